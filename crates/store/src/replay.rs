//! Replay: how a replica takes what its leader has certified, row by row.
//!
//! ```text
//! writes   ▓▓▓▓▓▓▓▓▓▓▓▓  up to 32 together: looked up side by side, then one after the other
//! a write  lock the record, or insert one that is locked ─► newer than what is there? ─► install ─► unlock
//! ```
//! No row depends on another: on one key the greatest epoch and clock wins, in any order of arrival (Thomas's rule). So
//! there is no write set, and no two locks are held at once; readers of a replica that has not applied everything up to
//! some clock are the engine's to keep away. A caller that brings the newest first has each row written once.
//!
//! A delta depends on its base, which it names: where the row is not there yet or older, the delta waits; where it is newer
//! than the delta, that gives way, as a row does. Versions between the two were rolled back by the leader that logged the
//! delta, and are replaced with the base.

use crate::change::{Change, Delta};
use crate::discard::chain;
use crate::guarded::Guarded;
use crate::index::{Index, Insertion};
use crate::lookahead::{TOGETHER, find_together};
use crate::record::{LockError, Record};
use crate::session::{Pinned, Session, SessionState};
use crate::store::Store;
use crate::version::{Content, Version};
use shoal_types::limits::{check_key, check_value};
use shoal_types::{Clock, Epoch, Result, StampRef, TableId};
use std::ptr::NonNull;

/// How much of the newest version is fetched: its stamp is all that is looked at.
const STAMP_BYTES: usize = 64;

/// How many keys that earlier writes left empty are looked at, beside those that the writes at hand leave empty.
const SWEEP_MORE: usize = 4;

/// A version of a row that another replica has certified.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedWrite<'w> {
    /// The table of the row.
    pub table: TableId,
    /// The key that is written.
    pub key: &'w [u8],
    /// What it makes of the row.
    pub change: Change<&'w [u8]>,
    /// The stamp of the version.
    pub stamp: StampRef<'w>,
}

/// What became of a replayed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// It is published.
    Won,
    /// A newer version is there, or the table was dropped.
    GaveWay,
    /// It is a delta whose base has not come: it is to be replayed again.
    Waits,
    /// It is a delta that does not fit what is there, which stays: with [`ReplayRule::CheckedDeltas`] only.
    Misfit,
}

/// Which versions give way. All but the first two are planted bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayRule {
    /// The older.
    #[default]
    NewestWins,
    /// The older. A delta without its base, or on a row of another length, is reported instead of a panic: for a log that no
    /// leader stands for.
    CheckedDeltas,
    /// The one that came before.
    LastWins,
    /// The older, and a delta is applied to any older version.
    AnyBase,
    /// The older, and a delta is applied to a newer version, too.
    NewerBase,
}

impl Session {
    /// Publishes those of the writes that are newer than what is there, all of which is committed. Reports for each what
    /// became of it. Returns the place of the first that is not done, since another transaction keeps a lock; `None` where all
    /// are.
    ///
    /// A tombstone has to stay until nothing older can arrive, or that would come back to life; `removable` returns
    /// whether that is so for a stamp. A replica takes what its leader took: the database's limit of memory does not
    /// count here. It opens a table that is not open: the leader that wrote there knew that it exists. A table that was
    /// dropped stays dropped: nothing is written.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an id that no table can have, an empty or an oversized key or value.
    pub fn replay<'w>(
        &mut self,
        writes: impl IntoIterator<Item = ReplayedWrite<'w>>,
        rule: ReplayRule,
        removable: impl Fn(StampRef<'_>) -> bool,
        mut report: impl FnMut(&ReplayedWrite<'w>, Replayed),
    ) -> Result<Option<usize>> {
        let Session { state, store, .. } = self;
        let (mut writes, mut done) = (writes.into_iter(), 0);
        loop {
            let mut batch = [None; TOGETHER];
            // In this order: the last write is not taken where there is no room for it.
            let filled = batch.iter_mut().zip(&mut writes).map(|(place, write)| {
                *place = Some(write);
            });
            let count = filled.count();
            let batch = batch[..count].iter().flatten();
            for write in batch.clone() {
                check_key(write.table, write.key)?;
                check_value(write.table, write.key, write.change.content())?;
                if store.index(write.table).is_err() {
                    store.open_table(write.table)?;
                }
            }
            // A guard for each batch: what it retires is soon used again.
            let mut state = Pinned::take(state.get_mut());
            let removals_before = state.removals.len();
            let keys = batch.clone().map(|write| Some((write.table, write.key)));
            // SAFETY: pinned.
            let found = unsafe { find_together(store, keys, STAMP_BYTES) };
            let mut finished = 0;
            for (write, hint) in batch.zip(found) {
                let Some(replayed) = state.replay_write(store, write, hint, rule) else { break };
                report(write, replayed);
                finished += 1;
            }
            let emptied = state.removals.len() - removals_before;
            state.sweep(store, emptied + SWEEP_MORE, &removable);
            done += finished;
            if finished < count {
                return Ok(Some(done));
            }
            if count < TOGETHER {
                return Ok(None);
            }
        }
    }
}

impl SessionState {
    /// Publishes a write if it is newer than what is there. `None` where another transaction keeps the lock.
    ///
    /// REQUIRES: pinned.
    fn replay_write(
        &mut self,
        store: &Store,
        write: &ReplayedWrite<'_>,
        hint: Option<NonNull<Record>>,
        rule: ReplayRule,
    ) -> Option<Replayed> {
        let Ok(index) = store.index(write.table) else { return Some(Replayed::GaveWay) };
        let record = self.lock_row(index, write, hint)?;
        // SAFETY: locked by this session, and kept by its guard; so for the versions.
        let guarded = unsafe { record.as_ref() };
        let old = guarded.word().version();
        // SAFETY: as above.
        let newest = unsafe { Guarded::at(old) };
        // Under the lock: where a table is dropped after this, the pass that frees it waits for the lock.
        let replayed = match store.is_dropped(write.table) {
            true => Err(Replayed::GaveWay),
            false => self.replayed_version(write, newest, rule),
        };
        match replayed {
            Ok(new) => {
                guarded.unlock(new.as_ptr());
                self.retire_chain(old);
            }
            Err(_) => guarded.unlock(old),
        }
        // SAFETY: kept by the guard.
        if unsafe { guarded.word().version().as_ref() }.is_none_or(Version::is_tombstone) {
            // SAFETY: as above.
            unsafe { self.removals.push_back(record, &mut self.memory.heap) };
        }
        Some(replayed.err().unwrap_or(Replayed::Won))
    }

    /// The version that a write publishes on this one; otherwise what becomes of the write.
    ///
    /// REQUIRES: locked.
    ///
    /// # Panics
    /// M6, but with [`ReplayRule::CheckedDeltas`]: where a delta is newer than what is there and that newer than its base, which is not
    /// there, or of another length.
    fn replayed_version(
        &mut self,
        write: &ReplayedWrite<'_>,
        newest: Option<Guarded<'_, Version>>,
        rule: ReplayRule,
    ) -> std::result::Result<NonNull<Version>, Replayed> {
        let order = |version: Guarded<'_, Version>| {
            let StampRef { epoch, clock, .. } = version.stamp_ref();
            (epoch, clock)
        };
        let (heap, own) = (&mut self.memory.heap, (write.stamp.epoch, write.stamp.clock));
        let gives_way = newest.is_some_and(|newest| order(newest) >= own);
        let is_delta = matches!(write.change, Change::Delta(_));
        if gives_way && rule != ReplayRule::LastWins && !(is_delta && rule == ReplayRule::NewerBase)
        {
            return Err(Replayed::GaveWay);
        }
        let content = match write.change {
            Change::Delete => Content::Tombstone,
            Change::Row(row) => Content::Value(row),
            Change::Delta(delta) => {
                // Of another length none can be patched.
                let fits = |it: &Guarded<'_, Version>| {
                    it.value().map(<[u8]>::len) == Some(delta.length as usize)
                };
                let base = match rule {
                    ReplayRule::NewestWins | ReplayRule::LastWins => base_of(newest, delta, order)?
                        .unwrap_or_else(|| {
                            panic!("M6: a delta of {:?} meets {:?}", delta.base, newest.map(order));
                        }),
                    ReplayRule::CheckedDeltas => {
                        base_of(newest, delta, order)?.filter(fits).ok_or(Replayed::Misfit)?
                    }
                    ReplayRule::AnyBase | ReplayRule::NewerBase => {
                        newest.filter(fits).ok_or(Replayed::Waits)?
                    }
                };
                return Ok(Version::patched(heap, base, delta, write.stamp));
            }
        };
        Ok(Version::stamped(heap, content, write.stamp))
    }

    /// The record of a key, locked: a new one where there is none. `None` where another transaction keeps the lock.
    ///
    /// REQUIRES: pinned.
    fn lock_row(
        &mut self,
        index: &Index,
        write: &ReplayedWrite<'_>,
        hint: Option<NonNull<Record>>,
    ) -> Option<NonNull<Record>> {
        let mut known = hint;
        loop {
            let record = match known.take() {
                Some(record) => record,
                // Not looked up again: where the key is there, the insertion finds it.
                None => match self.insert_locked(index, write) {
                    Ok(record) => return Some(record),
                    Err(record) => record,
                },
            };
            // SAFETY: found under this guard.
            match unsafe { record.as_ref() }.lock() {
                Ok(_) => return Some(record),
                Err(LockError::Held) => return None,
                Err(LockError::Dead) => {}
            }
        }
    }

    /// Puts a new record of a key into the index, locked and without a version.
    ///
    /// REQUIRES: pinned.
    ///
    /// # Errors
    /// The record that is there by now.
    fn insert_locked(
        &mut self,
        index: &Index,
        write: &ReplayedWrite<'_>,
    ) -> std::result::Result<NonNull<Record>, NonNull<Record>> {
        let record = Record::allocate(&mut self.memory.heap, write.table, write.key);
        // SAFETY: private.
        unsafe { record.as_ref() }.begin_locked();
        // SAFETY: pinned; the record is private.
        match unsafe { index.insert(record, &mut self.memory, &mut |_| {}) } {
            Insertion::Inserted => Ok(record),
            Insertion::Exists(known) => {
                // SAFETY: it stayed private.
                unsafe { Record::free(record, &mut self.memory.heap) };
                Err(known)
            }
        }
    }
}

/// The base of a delta in this chain. `None` where it is not there and something newer is: a leader logs a delta on the newest
/// version.
///
/// REQUIRES: locked, and the chain is older than the delta.
///
/// # Errors
/// [`Replayed::Waits`] where all of the chain is older, or there is none.
fn base_of<'g>(
    newest: Option<Guarded<'g, Version>>,
    delta: Delta<&[u8]>,
    order: impl Fn(Guarded<'_, Version>) -> (Epoch, Clock),
) -> std::result::Result<Option<Guarded<'g, Version>>, Replayed> {
    let newest = newest.filter(|newest| order(*newest) >= delta.base).ok_or(Replayed::Waits)?;
    // SAFETY: kept by the guard of the newest.
    let mut versions = chain(newest.pointer().as_ptr()).map(|it| unsafe { Guarded::new(it) });
    Ok(versions.find(|version| order(*version) == delta.base))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::store::Options;
    use shoal_types::transaction::Scan;
    use shoal_types::{Clock, Epoch, Random, Stamp};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// A key, the epoch and the clock at which it is written, and the value.
    type Write = (Vec<u8>, (u32, u64), Option<Vec<u8>>);

    fn replay(
        session: &mut Session,
        writes: &[Write],
        removable: u64,
    ) -> (Option<usize>, Vec<bool>) {
        let stamp = |(epoch, clock): (u32, u64)| Stamp::local(Epoch(epoch), Clock(clock));
        let stamps: Vec<Stamp> = writes.iter().map(|(_, order, _)| stamp(*order)).collect();
        let replayed = writes.iter().zip(&stamps).map(|((key, _, value), stamp)| ReplayedWrite {
            table: TableId(0),
            key,
            change: Change::of(value.as_deref()),
            stamp: stamp.as_ref(),
        });
        let mut won = Vec::new();
        let removable = |stamp: StampRef<'_>| stamp.clock <= Clock(removable);
        let report = |_: &_, replayed| won.push(replayed == Replayed::Won);
        let stopped = session.replay(replayed, ReplayRule::NewestWins, removable, report);
        (stopped.expect("within limits"), won)
    }

    fn rows(session: &mut Session) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let transaction = session.begin();
        let rows = transaction.scan(TableId(0), Scan::all()).expect("the table is open");
        rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn any_order_leaves_the_newest_of_each_key() {
        let mut random = Random::new(11);
        for round in 0..30 {
            let keys = [3, 40, 2000][round % 3];
            let mut writes: Vec<Write> = (1..=600)
                .map(|clock| {
                    let key = (random.below(keys) as u32).to_be_bytes().to_vec();
                    let value =
                        (random.below(4) > 0).then(|| vec![clock as u8; clock as usize % 90]);
                    (key, (1 + clock as u32 / 400, clock), value)
                })
                .collect();
            let newest: BTreeMap<_, _> =
                writes.iter().map(|(key, _, value)| (key.clone(), value.clone())).collect();
            let expected: BTreeMap<Vec<u8>, Vec<u8>> = newest
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
                .collect();
            random.shuffle(&mut writes);
            let store = Arc::new(Store::new(Options::default()));
            let mut sessions = [store.session().unwrap(), store.session().unwrap()];
            for (number, part) in writes.chunks(77).enumerate() {
                assert_eq!(replay(&mut sessions[number % 2], part, 0).0, None);
            }
            assert_eq!(rows(&mut sessions[0]), expected);
            // All tombstones may go now.
            for session in &mut sessions {
                session.sweep(|_| true);
            }
            assert_eq!(rows(&mut sessions[1]), expected);
        }
    }

    #[test]
    fn the_newest_first_means_that_a_row_is_written_once() {
        let store = Arc::new(Store::new(Options::default()));
        let mut session = store.session().unwrap();
        let write = |clock: u64| (b"k".to_vec(), (1, clock), Some(vec![clock as u8]));
        let (stopped, won) = replay(&mut session, &[write(3), write(2), write(1), write(4)], 0);
        assert_eq!((stopped, &won[..]), (None, &[true, false, false, true][..]));
        assert_eq!(rows(&mut session)[&b"k"[..]], [4]);
    }

    #[test]
    fn it_stops_at_a_lock_and_goes_on_from_there() {
        let store = Arc::new(Store::new(Options::default()));
        let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
        let writes: Vec<Write> =
            (0..100u8).map(|key| (vec![key + 1], (1, 7), Some(vec![key]))).collect();
        store.open_table(TableId(0)).unwrap();
        let transaction = other.begin();
        transaction.replicate(TableId(0), &[51], Some(b"held")).unwrap();
        let locked = transaction.lock().unwrap();
        let (stopped, won) = replay(&mut session, &writes, 0);
        assert_eq!((stopped, won.len()), (Some(50), 50));
        drop(locked);
        let (stopped, won) = replay(&mut session, &writes[50..], 0);
        assert_eq!((stopped, won.len()), (None, 50));
        assert_eq!(rows(&mut session).len(), 100);
    }

    #[test]
    fn a_tombstone_goes_when_nothing_older_can_come() {
        let store = Arc::new(Store::new(Options::default()));
        let mut session = store.session().unwrap();
        replay(&mut session, &[(b"k".to_vec(), (1, 5), None)], 4);
        let older = (b"k".to_vec(), (1, 3), Some(b"older".to_vec()));
        assert_eq!(replay(&mut session, &[older], 4).1, [false]);
        replay(&mut session, &[(b"l".to_vec(), (1, 6), Some(Vec::new()))], 5);
        let transaction = session.begin();
        let left = transaction.get_where(TableId(0), b"k", |_| true).unwrap();
        assert_eq!(left, None, "it has left the index");
    }

    #[test]
    fn a_table_that_was_dropped_takes_nothing() {
        let store = Arc::new(Store::new(Options::default()));
        let mut session = store.session().unwrap();
        let write = |key: &[u8]| (key.to_vec(), (1, 1), Some(b"v".to_vec()));
        assert_eq!(replay(&mut session, &[write(b"a")], 0).1, [true]);
        store.drop_table(TableId(0));
        assert_eq!(replay(&mut session, &[write(b"b")], 0), (None, vec![false]));
    }

    /// Replays a delta of key `k` that changes one byte: `skip` bytes stand in front of it.
    fn patch(session: &mut Session, clock: u64, base: u64, skip: u8, byte: u8) -> Replayed {
        let stamp = Stamp::local(Epoch(1), Clock(clock));
        let patch = [skip, 0, 1, 0, byte];
        let delta = Delta { base: (Epoch(1), Clock(base)), length: 3, patch: &patch[..] };
        let (table, change) = (TableId(0), Change::Delta(delta));
        let write = ReplayedWrite { table, key: b"k", change, stamp: stamp.as_ref() };
        let mut replayed = None;
        let report = |_: &_, it| replayed = Some(it);
        session.replay([write], ReplayRule::NewestWins, |_| false, report).unwrap();
        replayed.expect("it is reported")
    }

    #[test]
    fn a_delta_waits_for_its_base_and_gives_way_to_what_is_newer() {
        let store = Arc::new(Store::new(Options::default()));
        let mut session = store.session().unwrap();
        let row = |clock: u64| (b"k".to_vec(), (1, clock), Some(b"abc".to_vec()));
        assert_eq!(patch(&mut session, 3, 2, 0, b'x'), Replayed::Waits, "no row");
        replay(&mut session, &[row(1)], 0);
        assert_eq!(patch(&mut session, 3, 2, 0, b'x'), Replayed::Waits, "too old");
        assert_eq!(patch(&mut session, 2, 1, 1, b'y'), Replayed::Won);
        assert_eq!(patch(&mut session, 3, 2, 0, b'x'), Replayed::Won);
        assert_eq!(rows(&mut session)[&b"k"[..]], b"xyc");
        assert_eq!(patch(&mut session, 3, 2, 0, b'z'), Replayed::GaveWay, "again");
        assert_eq!(patch(&mut session, 2, 1, 1, b'z'), Replayed::GaveWay, "older");
        replay(&mut session, &[(b"k".to_vec(), (1, 5), None)], 0);
        assert_eq!(patch(&mut session, 4, 3, 1, b'z'), Replayed::GaveWay, "deleted");
        assert!(rows(&mut session).is_empty());
    }

    #[test]
    #[should_panic(expected = "M6")]
    fn a_delta_without_its_base_below_a_newer_row_is_no_delta_of_this_store() {
        let store = Arc::new(Store::new(Options::default()));
        let mut session = store.session().unwrap();
        replay(&mut session, &[(b"k".to_vec(), (1, 2), Some(b"abc".to_vec()))], 0);
        patch(&mut session, 3, 1, 0, b'x');
    }
}
