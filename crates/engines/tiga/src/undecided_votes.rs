//! What a leader has released and voted for, and is not decided: a `Ready` names what of it stands in front of the
//! transaction (rule T23, `promise.rs`).

use crate::locks::LockIndex;
use crate::record::Record;
use crate::stamp::Stamp;
use crate::transaction::Work;
use std::collections::BTreeMap;

/// A `Ready` names no more than so many. With more in front of it, a transaction waits until some are decided.
const NAMED_MAX: usize = 256;

/// What a leader has released and voted for, and is not decided.
#[derive(Debug, Default)]
pub(crate) struct UndecidedVotes {
    locks: LockIndex,
    votes: BTreeMap<Stamp, Work>,
}

impl UndecidedVotes {
    pub(crate) fn add(&mut self, record: &Record, work: Work) {
        self.locks.add(record.stamp(), &work.locks);
        self.votes.insert(record.stamp(), work);
    }

    pub(crate) fn decide(&mut self, stamp: Stamp) {
        if let Some(work) = self.votes.remove(&stamp) {
            self.locks.remove(stamp, &work.locks);
        }
    }

    /// What stands in front of a transaction and conflicts with it. `None` if that is too much for a `Ready`.
    pub(crate) fn in_front(&self, stamp: Stamp, work: &Work) -> Option<Vec<Stamp>> {
        if self.votes.is_empty() {
            return Some(Vec::new());
        }
        let mut stamps: Vec<Stamp> = self.locks.before(stamp, &work.locks).collect();
        stamps.sort_unstable();
        stamps.dedup();
        (stamps.len() <= NAMED_MAX).then_some(stamps)
    }
}
