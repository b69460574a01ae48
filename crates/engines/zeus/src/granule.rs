//! Granules: the unit of ownership.
//!
//! A granule is all rows, present or absent, of the tables of a *family* whose keys share a prefix. So inserts, deletes and
//! scans within one granule need its level and nothing more.
//!
//! ```text
//! table    key          granule_bytes = 3     granule
//! orders   c17/0001     c17                   (customers, "c17")
//! orders   c17/0002     c17                   (customers, "c17")
//! customers c17         c17                   (customers, "c17")
//! customers c9          a shorter key: whole  (customers, "c9")
//! ```
//! Where a range-partitioned table has no prefix, each of its ranges is a granule, named by the first key of the range.
//!
//! Invariant: all rows of a granule are on one shard. Definitions of tables are checked for that.

use bytes::Bytes;
use shoal_cluster::topology::{Home, Partitioning, TableGranules, TableMap, Topology};
use shoal_engine::client::REQUESTS_TABLE;
use shoal_types::transaction::ScanEnd;
use shoal_types::wire::Coded;
use shoal_types::{Scan, ShardId, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use thiserror::Error;

/// The most bytes that the rows of a granule have, keys and values, but for granules of the table of requests. A move carries all
/// of them, and while they are carried the granule is not written.
pub const GRANULE_BYTES_MAX: usize = 1 << 20;

/// The bytes of keys in the table of requests that name a shard, what kind of row it is, and a worker.
const CALLS_BYTES: usize = 9;

/// A granule's name. Displays as the family and the prefix, `t3:"c17"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct GranuleId {
    /// The first table of the family.
    #[coded(short)]
    pub family: TableId,
    /// What the keys of all rows begin with; for the granule of a range, the first key of the range.
    pub prefix: Bytes,
}

impl fmt::Display for GranuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\"{}\"", self.family, self.prefix.escape_ascii())
    }
}

/// A scan that no single granule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a scan of {table} is wider than a granule; with granules of {prefix_bytes} bytes it would not be"
)]
pub struct ScanTooWide {
    /// The table that is scanned.
    pub table: TableId,
    /// How many bytes all keys share that the scan can meet; 0, if it can meet any.
    pub prefix_bytes: usize,
}

/// The granules of all tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GranuleLayout {
    tables: BTreeMap<TableId, TableLayout>,
    /// The table of requests.
    calls: Option<TableId>,
    /// The id that the next table gets.
    next: TableId,
    /// The families of which all tables were dropped since the first layout.
    dropped: BTreeSet<TableId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TableLayout {
    family: TableId,
    division: Division,
    /// The tables among which it was found: it stays placed by them when it is dropped.
    placed: Arc<TableMap>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Division {
    /// So many bytes of a key.
    Prefix(usize),
    /// The first keys of the ranges; the first of them is empty.
    Ranges(Vec<Bytes>),
}

impl GranuleLayout {
    /// The layout of the topology's tables, as they define it, but for the table of requests, whose granules are the results of
    /// one worker's calls on one shard.
    #[must_use]
    pub fn of(topology: &Topology) -> GranuleLayout {
        let all = topology.tables().iter();
        let moved = all.filter(|table| *table.partitioning() != Partitioning::Everywhere);
        let layouts = moved.map(|table| {
            let TableGranules { family, granule_bytes } = table.granules();
            let is_of_calls = table.name() == REQUESTS_TABLE;
            let granule_bytes = if is_of_calls { CALLS_BYTES } else { granule_bytes };
            let division = divide(table.partitioning(), granule_bytes);
            let placed = Arc::clone(topology.tables());
            (table.id(), TableLayout { family, division, placed })
        });
        let calls = topology.tables().iter().find(|table| table.name() == REQUESTS_TABLE);
        let calls = calls.map(|table| table.id());
        let (next, dropped) = (topology.tables().next(), BTreeSet::new());
        GranuleLayout { tables: layouts.collect(), calls, next, dropped }
    }

    /// The most bytes that a granule may have; `None` for one of the table of requests. That one has the results of a worker's
    /// calls on a shard, which are bounded by the number of sessions that a worker keeps; a worker that could store no further result
    /// could execute no calls.
    #[must_use]
    pub fn granule_bytes_max(&self, granule: &GranuleId) -> Option<usize> {
        (self.calls != Some(granule.family)).then_some(GRANULE_BYTES_MAX)
    }

    /// Tables that were dropped stay placed: slots may still name their granules.
    pub fn keep_dropped(&mut self, earlier: &GranuleLayout) {
        self.dropped.clone_from(&earlier.dropped);
        for (table, layout) in &earlier.tables {
            if !self.tables.contains_key(table) {
                // The first table of a family is dropped last.
                self.dropped.insert(*table);
                self.tables.insert(*table, layout.clone());
            }
        }
    }

    /// The families of which all tables were dropped since the first layout.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = TableId> {
        self.dropped.iter().copied()
    }

    /// Whether all tables of the family were dropped: nothing uses its granules any more.
    #[must_use]
    pub fn is_dropped(&self, family: TableId) -> bool {
        self.dropped.contains(&family) || self.was_dropped(family)
    }

    /// The granule of a key; `None` if there is no such table.
    #[must_use]
    pub fn granule_of(&self, table: TableId, key: &[u8]) -> Option<GranuleId> {
        let layout = self.tables.get(&table)?;
        let prefix = match &layout.division {
            Division::Prefix(bytes) => Bytes::copy_from_slice(&key[..key.len().min(*bytes)]),
            Division::Ranges(firsts) => firsts[range_of(firsts, key)].clone(),
        };
        Some(GranuleId { family: layout.family, prefix })
    }

    /// The one granule that has every row that the scan can meet; `None` if there is no such table.
    ///
    /// # Errors
    /// [`ScanTooWide`] if there may be rows of several granules.
    pub fn granule_of_scan(
        &self,
        table: TableId,
        scan: &Scan<'_>,
    ) -> Result<Option<GranuleId>, ScanTooWide> {
        let Some(layout) = self.tables.get(&table) else { return Ok(None) };
        let shared = shared_prefix(scan);
        let wide = ScanTooWide { table, prefix_bytes: shared.map_or(0, |shared| shared.len()) };
        match &layout.division {
            Division::Prefix(bytes) => {
                let single = single_key(scan);
                let within = shared.filter(|shared| shared.len() >= *bytes);
                let key = single.or(within).ok_or(wide)?;
                Ok(self.granule_of(table, key))
            }
            Division::Ranges(firsts) => {
                let first = match scan.start {
                    Bound::Included(key) | Bound::Excluded(key) => range_of(firsts, key),
                    Bound::Unbounded => 0,
                };
                let last = last_range(firsts, scan.end).max(first);
                if first != last {
                    return Err(wide);
                }
                Ok(Some(GranuleId { family: layout.family, prefix: firsts[first].clone() }))
            }
        }
    }

    /// The shard in whose directory the granule has its record.
    ///
    /// # Panics
    /// If the granule is of no family of this layout, which was validated when the granule was named.
    #[must_use]
    pub fn shard_of(&self, granule: &GranuleId) -> ShardId {
        let layout = self.tables.get(&granule.family);
        match layout.and_then(|layout| layout.placed.home(granule.family, &granule.prefix)) {
            Some(Home::One(shard)) => shard,
            Some(Home::Everywhere) | None => panic!("{granule} has no shard"),
        }
    }

    /// Whether the table was dropped before this layout was made, and had a place in none before it.
    #[must_use]
    pub fn was_dropped(&self, table: TableId) -> bool {
        table < self.next && !self.tables.contains_key(&table)
    }

    /// Whether a granule that another node names can exist: its family does, and its prefix is one.
    #[must_use]
    pub fn is_granule(&self, granule: &GranuleId) -> bool {
        let layout = self.tables.get(&granule.family);
        let is_first = layout.is_some_and(|layout| layout.family == granule.family);
        is_first && self.granule_of(granule.family, &granule.prefix).as_ref() == Some(granule)
    }
}

fn divide(partitioning: &Partitioning, granule_bytes: usize) -> Division {
    match partitioning {
        Partitioning::Range { splits } if granule_bytes == 0 => {
            let firsts = splits.iter().map(|(first, _)| Bytes::copy_from_slice(first));
            Division::Ranges(firsts.collect())
        }
        Partitioning::Range { .. } | Partitioning::Hash { .. } | Partitioning::Everywhere => {
            Division::Prefix(granule_bytes)
        }
    }
}

/// The place of the range that has the key.
fn range_of(firsts: &[Bytes], key: &[u8]) -> usize {
    // The first range begins with the empty key, which is above none.
    firsts.partition_point(|first| **first <= *key) - 1
}

/// The place of the last range that a scan with this end can meet.
fn last_range(firsts: &[Bytes], end: ScanEnd<'_>) -> usize {
    let begun = match end {
        ScanEnd::Bound(Bound::Included(key)) => firsts.partition_point(|first| **first <= *key),
        ScanEnd::Bound(Bound::Excluded(key)) => firsts.partition_point(|first| **first < *key),
        ScanEnd::Bound(Bound::Unbounded) => firsts.len(),
        ScanEnd::Prefix(key) => {
            firsts.partition_point(|first| **first <= *key || first.starts_with(key))
        }
    };
    begun.max(1) - 1
}

/// The one key that the scan can meet, if it can meet no other.
fn single_key<'k>(scan: &Scan<'k>) -> Option<&'k [u8]> {
    let Bound::Included(low) = scan.start else { return None };
    let is_single = match scan.end {
        ScanEnd::Bound(Bound::Included(high)) => low == high,
        ScanEnd::Bound(Bound::Excluded(high)) => high.strip_prefix(low) == Some(&[0]),
        ScanEnd::Bound(Bound::Unbounded) | ScanEnd::Prefix(_) => false,
    };
    is_single.then_some(low)
}

/// The longest prefix that all keys have that the scan can meet.
fn shared_prefix<'k>(scan: &Scan<'k>) -> Option<&'k [u8]> {
    let (Bound::Included(low) | Bound::Excluded(low)) = scan.start else { return None };
    let high = match scan.end {
        ScanEnd::Prefix(high) | ScanEnd::Bound(Bound::Included(high) | Bound::Excluded(high)) => {
            high
        }
        ScanEnd::Bound(Bound::Unbounded) => return None,
    };
    let shared = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    // An exclusive end that differs in its last byte, by one, is above all keys with the byte below it, and no other.
    let ends_next = matches!(scan.end, ScanEnd::Bound(Bound::Excluded(_)))
        && high.len() == shared + 1
        && low.get(shared).and_then(|byte| byte.checked_add(1)) == high.last().copied();
    Some(&low[..shared + usize::from(ends_next)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use shoal_cluster::topology::TableDefinition;

    const T: TableId = TableId(0);
    const U: TableId = TableId(1);

    fn topology_of(tables: impl IntoIterator<Item = (&'static str, TableDefinition)>) -> Topology {
        Topology::symmetric(1, 3, 1, 0, 1).with_tables(tables).expect("a valid topology")
    }

    fn layout_of(
        tables: impl IntoIterator<Item = (&'static str, TableDefinition)>,
    ) -> GranuleLayout {
        GranuleLayout::of(&topology_of(tables))
    }

    /// Clients choose nodes by what the topology says of granules.
    #[test]
    fn clients_name_granules_as_nodes_do() {
        for definition in [
            TableDefinition::from(by_range(&["", "g", "p"])),
            TableDefinition::from(by_range(&["", "g", "p"])).granule_bytes(2),
            by_hash(0).into(),
            TableDefinition::from(by_hash(2)).granule_bytes(3),
        ] {
            let topology = topology_of([("t", definition)]);
            let table = topology.tables().get(T).expect("it is there");
            for key in ["a", "g", "horse", "p", "zebra"] {
                let here = GranuleLayout::of(&topology).granule_of(T, key.as_bytes());
                let prefix = here.expect("a table").prefix;
                assert_eq!(prefix, table.granule_prefix(key.as_bytes()), "{key}");
            }
        }
    }

    fn by_hash(prefix_bytes: usize) -> Partitioning {
        Partitioning::Hash { prefix_bytes }
    }

    fn by_range(firsts: &[&str]) -> Partitioning {
        Partitioning::ranges(firsts.iter().map(|first| first.as_bytes().to_vec()))
    }

    fn layout(partitioning: Partitioning, granule_bytes: usize) -> GranuleLayout {
        layout_of([("t", TableDefinition::from(partitioning).granule_bytes(granule_bytes))])
    }

    #[test]
    fn a_table_that_is_dropped_stays_placed() {
        let tables = [("t", by_hash(1)), ("u", by_hash(1))];
        let earlier = layout_of(tables.map(|(name, by)| (name, TableDefinition::from(by))));
        assert!(!earlier.is_dropped(T) && !earlier.is_dropped(U));
        let mut later = layout_of([("t", TableDefinition::from(by_hash(1)))]);
        later.keep_dropped(&earlier);
        assert!(!later.is_dropped(T) && later.is_dropped(U));
        assert_eq!(later.granule_of(U, b"key"), earlier.granule_of(U, b"key"));
    }

    fn granule(prefix: &'static str) -> GranuleId {
        GranuleId { family: T, prefix: Bytes::from_static(prefix.as_bytes()) }
    }

    #[test]
    fn tables_of_a_family_share_their_granules() {
        let hashed = || TableDefinition::from(by_hash(2)).granule_bytes(3);
        let layout = layout_of([("customers", hashed()), ("orders", hashed().family("customers"))]);
        assert_eq!(layout.granule_of(T, b"c17"), Some(granule("c17")));
        assert_eq!(layout.granule_of(U, b"c17/0001"), Some(granule("c17")));
        assert_eq!(layout.granule_of(T, b"c9"), Some(granule("c9")));
        assert_eq!(layout.granule_of(TableId(2), b"c9"), None);
        assert_eq!(granule("c\"17").to_string(), "t0:\"c\\\"17\"");
    }

    #[test]
    fn granules_are_bounded_but_for_those_of_the_table_of_requests() {
        let requests = TableDefinition::from(by_range(&["", "g"]));
        let layout = layout_of([("t", by_hash(1).into()), (REQUESTS_TABLE, requests)]);
        let found = |table| layout.granule_of(table, b"key-of-a-row").expect("a table");
        assert_eq!(layout.granule_bytes_max(&found(T)), Some(GRANULE_BYTES_MAX));
        assert_eq!(layout.granule_bytes_max(&found(U)), None);
    }

    #[test]
    fn a_range_is_a_granule_where_nothing_is_defined() {
        let layout = layout_of([("t", by_range(&["", "g", "p"]).into()), ("u", by_hash(0).into())]);
        assert_eq!(layout.granule_of(T, b"horse"), Some(granule("g")));
        assert_eq!(layout.shard_of(&granule("g")), ShardId(1));
        let whole = layout.granule_of(U, b"horse").expect("a table");
        assert_eq!(whole, GranuleId { family: U, prefix: Bytes::from_static(b"horse") });
        assert!(layout.is_granule(&granule("p")) && layout.is_granule(&whole));
        assert!(!layout.is_granule(&granule("q")), "it is the name of no range");
        assert!(!layout.is_granule(&GranuleId { family: TableId(9), prefix: Bytes::new() }));
    }

    #[test]
    fn a_range_may_have_many_granules() {
        let layout = layout(by_range(&["", "g", "p"]), 2);
        assert_eq!(layout.granule_of(T, b"horse"), Some(granule("ho")));
        assert_eq!(layout.shard_of(&granule("ho")), ShardId(1));
        assert_eq!(layout.granule_of_scan(T, &Scan::prefix(b"hor")), Ok(Some(granule("ho"))));
        layout.granule_of_scan(T, &Scan::prefix(b"h")).expect_err("it is wider");
    }

    #[test]
    fn a_scan_within_a_granule_is_told_from_a_wider_one() {
        let layout = layout(by_hash(2), 3);
        let found = |scan: Scan<'_>| layout.granule_of_scan(T, &scan);
        assert_eq!(found(Scan::prefix(b"c17/")), Ok(Some(granule("c17"))));
        assert_eq!(found(Scan::prefix(b"c17")), Ok(Some(granule("c17"))));
        let until = |low: &'static [u8], high: &'static [u8]| Scan::range(low..high);
        assert_eq!(found(until(b"c17/1", b"c17/5")), Ok(Some(granule("c17"))));
        assert_eq!(found(until(b"c17", b"c18")), Ok(Some(granule("c17"))));
        assert_eq!(found(until(b"c9", b"c9\0")), Ok(Some(granule("c9"))));
        let wide = |prefix_bytes| Err(ScanTooWide { table: T, prefix_bytes });
        assert_eq!(found(until(b"c17", b"c19")), wide(2));
        assert_eq!(found(Scan::prefix(b"c1")), wide(2));
        assert_eq!(found(Scan::all()), wide(0));
    }

    fn scan_of(variant: u8, low: &[u8], high: &[u8]) -> Option<(Bound<Vec<u8>>, u8)> {
        (low <= high).then(|| match variant % 2 {
            0 => (Bound::Included(low.to_vec()), variant),
            _ => (Bound::Excluded(low.to_vec()), variant),
        })
    }

    proptest! {
        /// Every key that a scan of one granule can meet is in that granule.
        #[test]
        fn scans_meet_keys_of_their_granule_only(
            low in vec(0_u8..3, 0..4),
            high in vec(0_u8..3, 0..4),
            key in vec(0_u8..3, 0..5),
            variant in 0_u8..6,
            granule_bytes in 0_usize..4,
        ) {
            let layout = match granule_bytes {
                0 => layout(Partitioning::ranges([vec![], vec![1], vec![1, 2]]), 0),
                bytes => layout(by_hash(1), bytes),
            };
            let Some((start, variant)) = scan_of(variant, &low, &high) else { return Ok(()) };
            let start = match &start {
                Bound::Included(key) => Bound::Included(&key[..]),
                Bound::Excluded(key) => Bound::Excluded(&key[..]),
                Bound::Unbounded => Bound::Unbounded,
            };
            let end = match variant / 2 {
                0 => ScanEnd::Bound(Bound::Included(&high[..])),
                1 => ScanEnd::Bound(Bound::Excluded(&high[..])),
                _ => ScanEnd::Prefix(&high[..]),
            };
            let scan = Scan { start, end, reverse: false, limit: usize::MAX };
            let is_after = match start {
                Bound::Included(low) => &key[..] >= low,
                Bound::Excluded(low) => &key[..] > low,
                Bound::Unbounded => true,
            };
            let is_before = match end {
                ScanEnd::Bound(Bound::Included(high)) => &key[..] <= high,
                ScanEnd::Bound(Bound::Excluded(high)) => &key[..] < high,
                ScanEnd::Bound(Bound::Unbounded) => true,
                ScanEnd::Prefix(prefix) => &key[..] <= prefix || key.starts_with(prefix),
            };
            if let Ok(found) = layout.granule_of_scan(T, &scan)
                && is_after
                && is_before
            {
                prop_assert_eq!(found, layout.granule_of(T, &key));
            }
        }
    }
}
