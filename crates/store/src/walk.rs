//! Passes over a whole store, a part at a time: every record of every table, in the order of tables and
//! keys, also those of dropped tables. Between the parts a pass holds nothing but its [`WalkPlace`].

use crate::index::Seek;
use crate::record::Record;
use crate::store::Store;
use shoal_types::TableId;
use std::ops::ControlFlow;
use std::ptr::NonNull;

/// A place between the records of a store: before the first key of a table that is not below `key`. The
/// default is the beginning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WalkPlace {
    /// The table in which the walk goes on.
    pub table: TableId,
    /// The first key that was not visited.
    pub key: Vec<u8>,
}

impl WalkPlace {
    /// Does this place lie behind `key`?
    pub fn is_behind(&self, table: TableId, key: &[u8]) -> bool {
        (table, key) < (self.table, &self.key[..])
    }

    /// Before `record`.
    ///
    /// # Safety
    /// The record is kept.
    pub(crate) unsafe fn before(table: TableId, record: NonNull<Record>) -> WalkPlace {
        // SAFETY: the caller's promise.
        WalkPlace { table, key: unsafe { Record::key(record) }.to_vec() }
    }

    fn of(table: TableId, seek: Seek<'_>) -> WalkPlace {
        let key = match seek {
            Seek::First => Vec::new(),
            Seek::From(key) => key.to_vec(),
            // The least key above it.
            Seek::After(key) => [key, &[0]].concat(),
            Seek::Last | Seek::DownFrom(_) | Seek::Before(_) => unreachable!("it goes upwards"),
        };
        WalkPlace { table, key }
    }
}

/// Shows `visit` the records from `from` on, until it has seen `most` of them or breaks off. Returns where to
/// go on, which is before the record at which it broke off; `None` at the end of the store.
///
/// # Safety
/// The caller holds a guard of the store.
pub(crate) unsafe fn walk(
    store: &Store,
    from: &WalkPlace,
    most: usize,
    mut visit: impl FnMut(TableId, NonNull<Record>) -> ControlFlow<()>,
) -> Option<WalkPlace> {
    let (mut table, mut seek) = (from.table, Seek::From(&from.key));
    let mut left = most;
    while table < store.tables.next() {
        if left == 0 {
            return Some(WalkPlace::of(table, seek));
        }
        let Some(index) = store.tables.any(table) else {
            (table, seek) = (TableId(table.0 + 1), Seek::First);
            continue;
        };
        // SAFETY: the caller's promise.
        let rows = unsafe { index.rows(seek, left) };
        // An empty leaf is looked at, too.
        left -= rows.records().count().clamp(1, left);
        for record in rows.records() {
            if visit(table, record).is_break() {
                // SAFETY: as above.
                return Some(unsafe { WalkPlace::before(table, record) });
            }
        }
        (table, seek) = match rows.next {
            Some(next) => (table, next),
            None => (TableId(table.0 + 1), Seek::First),
        };
    }
    None
}
