//! Copies of a store in use: its committed versions, a chunk at a time, for a replica that lacks truncated entries
//! (rule M10).
//!
//! The parts are taken one after the other and each shows what is committed *then*: the whole is no snapshot
//! of an instant. It has every
//! version committed when the first part was begun, or a newer one of its key; later versions are in it or not. A replica that replays what came later, by stamps, ends where the store is.

use crate::discard::{HeldLocks, chain};
use crate::guarded::Guarded;
use crate::record::Record;
use crate::session::{Pinned, Session};
use crate::walk::{WalkPlace, walk};
use shoal_types::{StampRef, TableId};
use std::ops::ControlFlow;

/// The limits of a step of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPart {
    /// The most records that it reads.
    pub records_max: usize,
    /// Bytes of keys and values after which it ends.
    pub bytes_max: usize,
}

/// A version that a copy shows.
#[derive(Debug, Clone, Copy)]
pub struct Copied<'v> {
    /// The table of the row.
    pub table: TableId,
    /// The key of the row.
    pub key: &'v [u8],
    /// The value; `None` for a tombstone.
    pub value: Option<&'v [u8]>,
    /// The stamp of the version.
    pub stamp: StampRef<'v>,
    /// Whether it is the newest committed version of its key.
    pub committed: bool,
}

impl Session {
    /// Shows `visit` the rows of a part of the store from `from` on: of each key the newest version for which
    /// `committed` holds, unless that is a tombstone; and before it those that are newer and for which `undecided`
    /// holds, tombstones or not. Returns where the next part begins, and `None` at the end of the store.
    ///
    /// REQUIRES: where another session [installs](crate::Locked::install), `committed` returns true
    /// for every version that this session takes for committed, since older ones are trimmed. An undecided version
    /// stays undecided until it is committed or rolled back.
    pub fn copy(
        &mut self,
        from: &WalkPlace,
        part: CopyPart,
        committed: impl Fn(StampRef<'_>) -> bool,
        undecided: impl Fn(StampRef<'_>) -> bool,
        mut visit: impl FnMut(Copied<'_>),
    ) -> Option<WalkPlace> {
        let _state = Pinned::take(self.state.get_mut());
        let mut bytes = 0;
        // SAFETY: pinned; so for all below.
        unsafe {
            walk(&self.store, from, part.records_max, |table, record| {
                if bytes >= part.bytes_max {
                    return ControlFlow::Break(());
                }
                if self.store.is_dropped(table) {
                    return ControlFlow::Continue(());
                }
                let key = Record::key(record);
                for version in chain(record.as_ref().word().version()) {
                    let version = Guarded::new(version);
                    let (value, stamp) = (version.value(), version.stamp_ref());
                    // In this order: what is undecided may be committed between the two questions, and is in the copy
                    // either way.
                    let undecided = undecided(stamp);
                    let committed = committed(stamp);
                    if value.is_some() && committed || !committed && undecided {
                        bytes += key.len() + value.map_or(0, <[u8]>::len);
                        visit(Copied { table, key, value, stamp, committed });
                    }
                    if committed {
                        break;
                    }
                }
                ControlFlow::Continue(())
            })
        }
    }

    /// Drops, of the keys from `from` on and before `until` (`None`: to the end of the store), all versions
    /// that `stale` picks out, without a trace; looks at `most` records. Returns before which place it has: `None`
    /// where it has all, and otherwise less than `until`, since that was enough, or since a transaction holds the
    /// key there.
    pub fn erase(
        &mut self,
        from: &WalkPlace,
        until: Option<&WalkPlace>,
        most: usize,
        stale: impl Fn(TableId, &[u8], StampRef<'_>) -> bool,
    ) -> Option<WalkPlace> {
        let state = &mut *Pinned::take(self.state.get_mut());
        let removals_before = state.removals.len();
        let mut over = false;
        // SAFETY: pinned; so for all below.
        let next = unsafe {
            walk(&self.store, from, most, |table, record| {
                let key = Record::key(record);
                over = until.is_some_and(|until| !until.is_behind(table, key));
                if over {
                    return ControlFlow::Break(());
                }
                match state.discard(record, &|stamp| stale(table, key, stamp)) {
                    Ok(_) => ControlFlow::Continue(()),
                    Err(HeldLocks) => ControlFlow::Break(()),
                }
            })
        };
        let emptied = state.removals.len() - removals_before;
        state.sweep(&self.store, emptied, &|_| false);
        next.filter(|next| !over && until.is_none_or(|until| next < until))
    }

    /// Frees the rows of a dropped table from `from` on; looks at `most` records. Returns where to go on; `None` where no
    /// row is left. A transaction that held the lock of a row when the table was dropped may still install it: the pass stops
    /// there until it has.
    ///
    /// # Panics
    /// If the table was not dropped.
    pub fn free_table(&mut self, from: &WalkPlace, most: usize) -> Option<WalkPlace> {
        assert!(self.store.is_dropped(from.table), "{} is in use", from.table);
        let state = &mut *Pinned::take(self.state.get_mut());
        let removals_before = state.removals.len();
        // SAFETY: pinned; so for all below.
        let next = unsafe {
            walk(&self.store, from, most, |table, record| {
                // A lock may be that of a key without a version yet.
                let is_held = || record.as_ref().word().is_locked();
                match table != from.table || is_held() || state.discard(record, &|_| true).is_err()
                {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
        };
        let emptied = state.removals.len() - removals_before;
        state.sweep(&self.store, emptied, &|_| false);
        next.filter(|next| next.table == from.table)
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::store::{Options, Store};
    use shoal_types::{Clock, Epoch, Stamp};
    use std::cell::Cell;
    use std::sync::Arc;

    const SMALL: CopyPart = CopyPart { records_max: 2, bytes_max: usize::MAX };

    /// Installs a row, or a tombstone, at a clock; those up to 10 are committed.
    fn put(session: &mut Session, table: TableId, key: &str, value: Option<&str>, clock: u64) {
        let transaction = session.begin();
        transaction.replicate(table, key.as_bytes(), value.map(str::as_bytes)).unwrap();
        let stamp = Stamp::local(Epoch(1), Clock(clock));
        transaction.lock().unwrap().install(stamp.as_ref(), |stamp| stamp.clock <= Clock(10));
    }

    fn store() -> (Arc<Store>, TableId, TableId) {
        let store = Arc::new(Store::new(Options::default()));
        let (one, two) = (store.table("one").unwrap(), store.table("two").unwrap());
        (store, one, two)
    }

    fn rows(session: &mut Session, part: CopyPart) -> Vec<(u32, String, String, u64)> {
        let (mut rows, mut at) = (Vec::new(), Some(WalkPlace::default()));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        while let Some(from) = at {
            let committed = |stamp: StampRef<'_>| stamp.clock <= Clock(10);
            at = session.copy(
                &from,
                part,
                committed,
                |_: StampRef<'_>| false,
                |copied| {
                    let value = text(copied.value.expect("no tombstones"));
                    rows.push((copied.table.0, text(copied.key), value, copied.stamp.clock.0));
                },
            );
            assert!(at.as_ref().is_none_or(|at| *at > from), "it gets on");
        }
        rows
    }

    #[test]
    fn a_copy_has_the_newest_committed_row_of_each_key() {
        let (store, one, two) = store();
        let mut session = store.session().unwrap();
        for (key, value, clock) in [("a", "1", 1), ("b", "1", 2), ("c", "1", 3), ("d", "1", 11)] {
            put(&mut session, one, key, Some(value), clock);
        }
        put(&mut session, one, "b", Some("2"), 12);
        put(&mut session, one, "c", None, 13);
        put(&mut session, two, "a", Some("x"), 4);
        let row = |table: TableId, key: &str, value: &str, clock| {
            (table.0, key.to_owned(), value.to_owned(), clock)
        };
        let expected = [
            row(one, "a", "1", 1),
            row(one, "b", "1", 2),
            row(one, "c", "1", 3),
            row(two, "a", "x", 4),
        ];
        assert_eq!(rows(&mut session, SMALL), expected);
        let narrow = CopyPart { records_max: usize::MAX, bytes_max: 1 };
        assert_eq!(rows(&mut session, narrow), expected);
        put(&mut session, two, "a", None, 5);
        assert_eq!(rows(&mut session, SMALL), expected[..3], "no tombstones");
    }

    #[test]
    fn what_is_undecided_comes_before_what_is_committed() {
        let (store, one, _) = store();
        let mut session = store.session().unwrap();
        for (key, value, clock) in [("a", "1", 1), ("a", "2", 11), ("b", "3", 12), ("c", "4", 3)] {
            put(&mut session, one, key, Some(value), clock);
        }
        put(&mut session, one, "b", None, 14);
        put(&mut session, one, "c", Some("5"), 5);
        let mut seen = Vec::new();
        let next = session.copy(
            &WalkPlace::default(),
            CopyPart { records_max: 9, ..SMALL },
            |stamp| stamp.clock <= Clock(10),
            |stamp| stamp.clock != Clock(12),
            |it| {
                seen.push((it.key[0], it.stamp.clock.0, it.value.is_some(), it.committed));
            },
        );
        let expected = [
            (b'a', 11, true, false),
            (b'a', 1, true, true),
            (b'b', 14, false, false),
            (b'c', 5, true, true),
        ];
        assert_eq!((next, &seen[..]), (None, &expected[..]), "nothing below what is committed");
    }

    /// Other workers learn how an epoch ended while a copy looks at a version.
    #[test]
    fn what_is_decided_while_it_is_looked_at_is_in_the_copy() {
        let (store, one, _) = store();
        let mut session = store.session().unwrap();
        put(&mut session, one, "a", Some("1"), 1);
        put(&mut session, one, "a", Some("2"), 11);
        let decided = Cell::new(false);
        // Between any two questions about it, it is committed.
        let committed = |stamp: StampRef<'_>| stamp.clock <= Clock(10) || decided.replace(true);
        let undecided = |stamp: StampRef<'_>| stamp.clock > Clock(10) && !decided.replace(true);
        let mut seen = Vec::new();
        session.copy(&WalkPlace::default(), SMALL, committed, undecided, |it| {
            seen.push(it.stamp.clock.0);
        });
        assert_eq!(seen.first(), Some(&11), "the newest is missing: {seen:?}");
    }

    #[test]
    fn what_is_stale_goes_from_a_range_and_leaves_nothing() {
        let (store, one, two) = store();
        let mut session = store.session().unwrap();
        for (key, clock) in [("a", 1), ("b", 2), ("c", 3), ("d", 9)] {
            put(&mut session, one, key, Some("1"), clock);
        }
        put(&mut session, two, "a", Some("1"), 4);
        let place = |table, key: &str| WalkPlace { table, key: key.as_bytes().to_vec() };
        let old =
            |_: TableId, key: &[u8], stamp: StampRef<'_>| stamp.clock < Clock(9) && key != b"c";
        let left = session.erase(&place(one, "b"), Some(&place(two, "a")), 100, old);
        assert_eq!(left, None, "neither a, which is before, nor c, nor d, nor two's a");
        let keys = |rows: Vec<(u32, String, String, u64)>| -> Vec<String> {
            rows.into_iter().map(|(table, key, ..)| format!("{table}{key}")).collect()
        };
        assert_eq!(keys(rows(&mut session, SMALL)), ["0a", "0c", "0d", "1a"]);
        let left = session.erase(&WalkPlace::default(), None, 2, |_, _, _| true);
        assert_eq!(keys(rows(&mut session, SMALL)), ["0d", "1a"]);
        let left = left.expect("two are left");
        assert!(left.is_behind(one, b"c") && !left.is_behind(one, b"d"), "{left:?}");
        assert_eq!(session.erase(&left, None, 100, |_, _, _| true), None);
        assert!(rows(&mut session, SMALL).is_empty());
    }

    #[test]
    fn a_lock_stops_an_erasure() {
        let (store, one, _) = store();
        let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
        put(&mut session, one, "a", Some("1"), 1);
        let transaction = other.begin();
        transaction.replicate(one, b"a", Some(b"2")).unwrap();
        let locked = transaction.lock().unwrap();
        let at = WalkPlace { table: one, key: b"a".to_vec() };
        assert_eq!(session.erase(&WalkPlace::default(), None, 100, |_, _, _| true), Some(at));
        drop(locked);
        assert_eq!(session.erase(&WalkPlace::default(), None, 100, |_, _, _| true), None);
        assert!(rows(&mut session, SMALL).is_empty());
    }
}
