//! Transactions that took long at their coordinator: what operators see of them.
//!
//! Where it is not wanted, nothing is kept. Otherwise a worker keeps the first `KEPT_MAX` of a step until
//! they are taken, and counts them all.

use crate::latency::Outcome;
use crate::transaction_id::TransactionId;
use shoal_types::{ShardId, Time};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// More of one moment is not read.
const KEPT_MAX: usize = 16;

/// A transaction that took long at its coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slow {
    /// What it was.
    pub kind: Kind,
    /// The last attempt; `None` if it was never let in.
    pub transaction: Option<TransactionId>,
    /// How often it ran.
    pub attempts: u32,
    /// The shards that its last attempt touched.
    pub shards: Vec<ShardId>,
    /// The operations of its last attempt.
    pub operations: u32,
    /// From when it was asked for until its outcome was reported.
    pub took: Duration,
    /// Of that, the time in which it waited for its client.
    pub client: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a transaction was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A client called this procedure.
    Call(Box<str>),
    /// A client took one step after the other.
    Interactive,
    /// A task of the worker ran it.
    Task,
}

/// The slow transactions of a worker.
#[derive(Debug)]
pub struct Slows {
    after: Option<Duration>,
    count: Cell<u64>,
    kept: RefCell<Vec<Slow>>,
}

impl Slows {
    /// What takes longer than `after` is slow; nothing, if that is `None`.
    pub fn new(after: Option<Duration>) -> Slows {
        Slows { after, count: Cell::new(0), kept: RefCell::default() }
    }

    /// Whether slow transactions are recorded at all.
    pub(crate) fn is_on(&self) -> bool {
        self.after.is_some()
    }

    /// A transaction that was asked for at `began` has ended. `slow` says what it was, if it took long.
    pub fn note(&self, began: Time, now: Time, slow: impl FnOnce(Duration) -> Slow) {
        let took = now - began;
        if self.after.is_none_or(|after| took <= after) {
            return;
        }
        self.count.set(self.count.get() + 1);
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(slow(took));
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Takes out the transactions that were kept.
    pub fn take(&self) -> Vec<Slow> {
        std::mem::take(&mut *self.kept.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_is_counted_and_some_of_it_kept() {
        let slows = Slows::new(Some(Duration::from_micros(10)));
        let note = |slows: &Slows, micros: u64| {
            let now = Time(1000) + Duration::from_micros(micros);
            slows.note(Time(1000), now, |took| Slow {
                kind: Kind::Task,
                transaction: None,
                attempts: 1,
                shards: Vec::new(),
                operations: 0,
                took,
                client: Duration::ZERO,
                outcome: Outcome::Committed,
            });
        };
        note(&slows, 10);
        assert_eq!((slows.count(), slows.take().len()), (0, 0));
        (0..20).for_each(|_| note(&slows, 11));
        let kept = slows.take();
        assert_eq!((slows.count(), kept.len(), slows.take().len()), (20, KEPT_MAX, 0));
        assert_eq!(
            (kept[0].took, kept[0].outcome),
            (Duration::from_micros(11), Outcome::Committed)
        );
        let off = Slows::new(None);
        note(&off, 1_000_000);
        assert!(off.count() == 0 && !off.is_on());
    }
}
