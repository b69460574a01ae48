//! Which shard of this node does the operations on keys that begin alike, as far as earlier operations have found it out.
//!
//! To find the shard of a key takes the partitioning of its table, a hash, and the leaderships. Most transactions work with
//! keys that share what determines their shard. So the last answer is kept for each table: the prefix of the key that
//! was looked up, and the place of the shard that serves it here.
//!
//! Invariants:
//!
//! - What is kept was so when it was noted, and all is forgotten when leaderships or tables change
//!   ([`WorkerContext::configured`](super::worker_context::WorkerContext::configured),
//!   [`serve`](super::worker_context::WorkerContext::serve)).
//! - Only a key that one shard alone has is found here.

use shoal_cluster::topology::key_head;
use shoal_types::TableId;
use std::cell::Cell;

/// Tables that do not share a place. A power of two.
const PLACES: usize = 64;

/// A longer prefix than this is not kept.
const PREFIX_BYTES_MAX: usize = size_of::<u64>();

/// The routes of one worker.
#[derive(Debug)]
pub(crate) struct LocalRoutes {
    by_table: Box<[Cell<LocalRoute>; PLACES]>,
}

/// The keys of `table` that are as long as `mask` says, and whose first bytes are `prefix`, are of the shard at `own`.
#[derive(Debug, Clone, Copy)]
struct LocalRoute {
    prefix: u64,
    mask: u64,
    table: TableId,
    own: u16,
    prefix_bytes: u16,
}

impl LocalRoute {
    /// A key is never so short.
    const NONE: LocalRoute =
        LocalRoute { prefix: 0, mask: 0, table: TableId(0), own: 0, prefix_bytes: u16::MAX };
}

impl Default for LocalRoutes {
    fn default() -> LocalRoutes {
        LocalRoutes { by_table: Box::new([const { Cell::new(LocalRoute::NONE) }; PLACES]) }
    }
}

impl LocalRoutes {
    /// The place of the shard that does operations on `key`, if it is known.
    #[inline]
    pub(crate) fn find(&self, table: TableId, key: &[u8]) -> Option<usize> {
        let route = self.by_table[table.0 as usize % PLACES].get();
        let is_route = route.table == table
            && key.len() >= usize::from(route.prefix_bytes)
            && key_head(key) & route.mask == route.prefix;
        is_route.then_some(usize::from(route.own))
    }

    /// The shard at this place does the operations on the keys of `table` that begin with the same `prefix_bytes` as `key`.
    pub(crate) fn note(&self, table: TableId, key: &[u8], prefix_bytes: usize, own: usize) {
        let Ok(place) = u16::try_from(own) else { return };
        if prefix_bytes > PREFIX_BYTES_MAX || key.len() < prefix_bytes {
            return;
        }
        let mask = !u64::MAX.checked_shr(8 * prefix_bytes as u32).unwrap_or(0);
        let route = LocalRoute {
            prefix: key_head(key) & mask,
            mask,
            table,
            own: place,
            prefix_bytes: prefix_bytes as u16,
        };
        self.by_table[table.0 as usize % PLACES].set(route);
    }

    /// What was noted may not be so any more.
    pub(crate) fn forget(&self) {
        self.by_table.iter().for_each(|route| route.set(LocalRoute::NONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(3);

    #[test]
    fn keys_that_begin_alike_have_one_route() {
        let routes = LocalRoutes::default();
        assert_eq!(routes.find(TABLE, b"ab1"), None);
        routes.note(TABLE, b"ab1", 2, 5);
        assert_eq!([routes.find(TABLE, b"ab"), routes.find(TABLE, b"ab23456789")], [Some(5); 2]);
        assert_eq!([routes.find(TABLE, b"ac1"), routes.find(TABLE, b"a")], [None; 2]);
        assert_eq!(routes.find(TableId(3 + PLACES as u32), b"ab1"), None, "another table");
        routes.note(TABLE, b"12345678x", 8, 6);
        assert_eq!(routes.find(TABLE, b"12345678"), Some(6));
        assert_eq!(routes.find(TABLE, b"12345679"), None);
        routes.forget();
        assert_eq!(routes.find(TABLE, b"12345678"), None);
    }

    #[test]
    fn a_table_with_one_shard_has_one_route_for_all_keys() {
        let routes = LocalRoutes::default();
        routes.note(TABLE, b"k", 0, 0);
        assert_eq!([routes.find(TABLE, b""), routes.find(TABLE, b"\xff\xff")], [Some(0); 2]);
    }

    #[test]
    fn what_cannot_be_compared_at_once_is_not_kept() {
        let routes = LocalRoutes::default();
        routes.note(TABLE, b"123456789", 9, 1);
        routes.note(TABLE, b"1", 2, 1);
        assert_eq!([routes.find(TABLE, b"123456789"), routes.find(TABLE, b"1")], [None; 2]);
    }

    #[test]
    fn the_head_of_a_key_compares_as_the_key_does() {
        assert_eq!(
            [key_head(b""), key_head(b"\x01"), key_head(b"\0\0\0\0\0\0\0\x02z")],
            [0, 1 << 56, 2]
        );
    }
}
