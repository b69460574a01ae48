//! Overwritten versions are freed as soon as what replaced them is committed, instead of at the next write of their key.
//!
//! An installation leaves the version that it overwrites behind its own, since its own may still be rolled back. Where the
//! commit follows soon, the block is still in a cache then, and goes to the next version of its size: so a key has one
//! version most of the time, as where every installation is committed at once.
//!
//! ```text
//! install v2   record ─ v2 ─ v1      the record is marked, and stands in the queue with v2's clock
//! v2 covered   record ─ v2           v1 is retired, and the mark is gone
//! ```
//! The queue holds pointers to records beyond the guard under which they were found. The mark keeps them valid: a marked
//! record does not die ([`Record::kill`]), and a record that lives is not freed.
//!
//! Invariants:
//!
//! - A record is marked as long as it stands in a queue, in one, and once.
//! - Only the holder of its lock marks a record, takes the mark off, and cuts its chain.
//! - Behind the newest committed version of a chain nothing is read but under a guard that began before the cut.

use crate::discard::{Unlock, chain};
use crate::guarded::Guarded;
use crate::record::{LockError, Record};
use crate::session::{Pinned, Session, SessionState};
use shoal_types::{Clock, Epoch, StampRef};
use std::collections::VecDeque;
use std::fmt;
use std::ptr::{self, NonNull};

/// A queue that is longer than this takes no more: the next write of their keys cuts those chains.
const QUEUED_MAX: usize = 1 << 16;

/// The records of one store that have overwritten versions, in the order in which those were overwritten. It belongs to
/// one store, and is dropped after the last transaction on it only: what still stands in it then keeps its record in the index.
#[derive(Default)]
pub struct TrimQueue {
    entries: VecDeque<QueuedRecord>,
}

#[derive(Clone, Copy)]
struct QueuedRecord {
    record: NonNull<Record>,
    epoch: Epoch,
    clock: Clock,
}

impl TrimQueue {
    /// The stamp that has to be covered first: its epoch and its clock.
    #[inline]
    pub fn first(&self) -> Option<(Epoch, Clock)> {
        self.entries.front().map(|first| (first.epoch, first.clock))
    }

    /// How many records wait.
    #[expect(clippy::len_without_is_empty, reason = "the first entry says whether there is one")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A version with this stamp is about to be published on a record that has others.
    ///
    /// REQUIRES: the caller holds the record's lock.
    #[inline]
    pub(crate) fn push(&mut self, record: NonNull<Record>, stamp: StampRef<'_>) {
        // SAFETY: the caller keeps it; from here on the mark does.
        let guarded = unsafe { record.as_ref() };
        if guarded.word().is_marked() || self.entries.len() >= QUEUED_MAX {
            return;
        }
        guarded.mark(true);
        let (epoch, clock) = (stamp.epoch, stamp.clock);
        self.entries.push_back(QueuedRecord { record, epoch, clock });
    }
}

impl fmt::Debug for TrimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrimQueue({} records)", self.entries.len())
    }
}

impl Session {
    /// Retires, of the records at the front of `queue`, whose stamps are `due`, the versions behind the newest one for which
    /// `committed` holds; looks at `most` records. A record whose newest version is not committed, or whose lock is held,
    /// goes to the end of the queue.
    ///
    /// REQUIRES: `queue` is of installations on this store. For `committed` as for [`copy`](Session::copy).
    pub fn trim(
        &mut self,
        queue: &mut TrimQueue,
        most: usize,
        due: impl Fn(Epoch, Clock) -> bool,
        committed: impl Fn(StampRef<'_>) -> bool,
    ) {
        let state = &mut *Pinned::take(self.state.get_mut());
        for _ in 0..most.min(queue.entries.len()) {
            let Some(first) = queue.entries.front().copied() else { return };
            if !due(first.epoch, first.clock) {
                return;
            }
            let left = state.trim(first, &committed);
            queue.entries.pop_front();
            queue.entries.extend(left);
        }
    }
}

impl SessionState {
    /// Cuts the chain of a record. Returns what is to be queued for it.
    ///
    /// REQUIRES: pinned; the record is marked, and the caller has taken it out of its queue.
    fn trim(
        &mut self,
        queued: QueuedRecord,
        committed: &dyn Fn(StampRef<'_>) -> bool,
    ) -> Option<QueuedRecord> {
        // SAFETY: marked.
        let record = unsafe { queued.record.as_ref() };
        let newest = match record.try_lock() {
            Ok(newest) => newest,
            Err(LockError::Held) => return Some(queued),
            Err(LockError::Dead) => panic!("a record died that stands in a queue"),
        };
        // Gives the lock back, should `committed` panic.
        let unlock = Unlock { record, newest };
        let kept = chain(newest).find(|version| {
            // SAFETY: kept by the guard; so for all below.
            committed(unsafe { Guarded::new(*version) }.stamp_ref())
        });
        let mut cut = ptr::null_mut();
        if let Some(kept) = kept {
            // SAFETY: as above.
            let kept = unsafe { kept.as_ref() };
            cut = kept.prev();
            kept.set_prev(ptr::null_mut());
        }
        // SAFETY: as above.
        let left = unsafe { Guarded::at(newest) }.filter(|_| kept != NonNull::new(newest));
        let left = left.map(|newest| {
            let StampRef { epoch, clock, .. } = newest.stamp_ref();
            QueuedRecord { record: queued.record, epoch, clock }
        });
        record.mark(left.is_some());
        drop(unlock);
        self.retire_chain(cut);
        left
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::{Options, Store};
    use shoal_types::TableId;
    use std::sync::Arc;

    struct Fixture {
        store: Arc<Store>,
        table: TableId,
        session: Session,
        queue: TrimQueue,
    }

    fn fixture() -> Fixture {
        let store = Arc::new(Store::new(Options::default()));
        let table = store.table("t").expect("within limits");
        let session = store.session().expect("within limits");
        Fixture { store, table, session, queue: TrimQueue::default() }
    }

    impl Fixture {
        /// Installs a value, or a tombstone, that is committed once `reached` is its clock.
        fn install(&mut self, key: &[u8], value: Option<&[u8]>, reached: Clock) -> Clock {
            let tx = self.session.begin();
            match value {
                Some(value) => tx.put(self.table, key, value).expect("within limits"),
                None => tx.delete(self.table, key).expect("within limits"),
            }
            let mut locked = tx.lock().expect("no other transaction runs");
            let clock = locked.draw_clock();
            let stamp = StampRef { epoch: Epoch(0), clock, remote: &[] };
            locked.install_and_queue(
                usize::MAX,
                stamp,
                |stamp| stamp.clock <= reached,
                &mut self.queue,
            );
            clock
        }

        fn trim(&mut self, reached: Clock) {
            self.session.trim(
                &mut self.queue,
                100,
                |_, clock| clock <= reached,
                |stamp| stamp.clock <= reached,
            );
        }

        fn versions(&mut self, key: &[u8]) -> usize {
            let tx = self.session.begin();
            let (seen, table) = (std::cell::Cell::new(0), self.table);
            let count = |_: StampRef<'_>| {
                seen.set(seen.get() + 1);
                false
            };
            assert!(tx.get_where(table, key, count).expect("within limits").is_none());
            drop(tx);
            seen.get()
        }
    }

    #[test]
    fn a_version_goes_when_what_overwrote_it_is_committed() {
        let mut it = fixture();
        let first = it.install(b"k", Some(b"1"), Clock::ZERO);
        assert_eq!(it.queue.first(), None, "nothing was overwritten");
        let second = it.install(b"k", Some(b"2"), first);
        assert_eq!((it.versions(b"k"), it.queue.first()), (2, Some((Epoch(0), second))));
        it.trim(first);
        assert_eq!((it.versions(b"k"), it.queue.len()), (2, 1), "it may be rolled back");
        it.trim(second);
        assert_eq!((it.versions(b"k"), it.queue.len()), (1, 0));
    }

    #[test]
    fn a_record_stands_in_the_queue_once_and_until_its_newest_version_is_committed() {
        let mut it = fixture();
        let first = it.install(b"k", Some(b"1"), Clock::ZERO);
        let second = it.install(b"k", Some(b"2"), first);
        let third = it.install(b"k", Some(b"3"), first);
        assert_eq!((it.versions(b"k"), it.queue.len()), (3, 1));
        it.trim(second);
        assert_eq!((it.versions(b"k"), it.queue.first()), (2, Some((Epoch(0), third))));
        it.trim(third);
        assert_eq!((it.versions(b"k"), it.queue.len()), (1, 0));
    }

    #[test]
    fn what_is_rolled_back_leaves_what_was_committed() {
        let mut it = fixture();
        let first = it.install(b"k", Some(b"1"), Clock::ZERO);
        let second = it.install(b"k", Some(b"2"), first);
        it.session.discard(it.table, b"k", |stamp| stamp.clock >= second).expect("unlocked");
        // The epoch is settled, and covers nothing after the first.
        it.session.trim(&mut it.queue, 100, |_, _| true, |stamp| stamp.clock <= first);
        assert_eq!((it.versions(b"k"), it.queue.len()), (1, 0));
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_at_the_end_of_the_queue() {
        let mut it = fixture();
        let first = it.install(b"k", Some(b"1"), Clock::ZERO);
        let last = it.install(b"k", Some(b"2"), first);
        let mut other = it.store.session().expect("within limits");
        let holder = other.begin();
        holder.put(it.table, b"k", b"3").expect("within limits");
        let holder = holder.lock().expect("no other transaction runs");
        it.trim(last);
        assert_eq!((it.versions(b"k"), it.queue.len()), (2, 1));
        drop(holder);
        it.trim(last);
        assert_eq!((it.versions(b"k"), it.queue.len()), (1, 0));
    }

    #[test]
    fn a_key_leaves_the_index_once_it_stands_in_no_queue() {
        let mut it = fixture();
        let first = it.install(b"k", Some(b"1"), Clock::ZERO);
        let deleted = it.install(b"k", None, first);
        it.session.sweep(|_| true);
        assert_eq!(it.versions(b"k"), 2, "the queue leads to it");
        it.trim(deleted);
        assert_eq!(it.versions(b"k"), 1);
        it.session.sweep(|_| true);
        assert_eq!(it.versions(b"k"), 0);
    }
}
