//! How much a replica replays in one step: a lease must not run out behind it, and nothing else wait.

use crate::codec::{EncodedWrites, StreamWrite};
use shoal_types::Time;
use std::cell::Cell;

/// Bytes that one step replays by default, and one transaction beyond. More per step costs fewer steps.
pub const REPLAY_BYTES_MAX: usize = 1 << 20;

/// What a write costs beside its bytes.
const WRITE_BYTES: usize = 64;

/// What may still be replayed in the step that is under way.
///
/// Invariant: a step replays no more than it is allowed, and one transaction beyond; and of each stream it may look at one
/// transaction that cannot be applied yet.
#[derive(Debug, Default)]
pub struct ReplayBudget {
    /// The step.
    at: Cell<Time>,
    left: Cell<usize>,
    /// What was left before something was taken last, and the bytes of that.
    last: Cell<(usize, u64)>,
    /// Something was left for a later step.
    is_short: Cell<bool>,
    /// What all steps have replayed.
    total: Cell<u64>,
}

impl ReplayBudget {
    /// A step begins at this time, or goes on.
    pub fn begin(&self, now: Time, bytes: usize) {
        if self.at.replace(now) != now {
            self.left.set(bytes);
            self.is_short.set(false);
        }
    }

    /// Was something left for a later step?
    pub fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// How many bytes all steps have replayed.
    pub fn total(&self) -> u64 {
        self.total.get()
    }

    /// Nothing of what was taken last could be replayed: others may take it. Otherwise what waits for another stream would hold
    /// that up.
    pub fn give_back(&self) {
        let (left, bytes) = self.last.take();
        self.left.set(self.left.get().max(left));
        self.total.set(self.total.get() - bytes);
    }

    /// May writes of so many bytes be replayed in this step?
    pub fn take(&self, bytes: usize) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.last.set((left, bytes as u64));
            self.total.set(self.total.get() + bytes as u64);
        }
        self.left.set(left.saturating_sub(bytes));
        self.is_short.set(self.is_short.get() || left == 0);
        left > 0
    }
}

/// What writes cost: the bytes of their keys and values, and a little for each of them.
pub fn bytes_of(writes: &[StreamWrite]) -> usize {
    let bytes = |it: &StreamWrite| it.key.len() + it.change.borrowed().content().len();
    writes.iter().map(|write| WRITE_BYTES + bytes(write)).sum()
}

/// The same, of writes that are encoded.
pub fn bytes_of_encoded(writes: &EncodedWrites) -> usize {
    WRITE_BYTES * writes.len() + writes.content_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_replays_what_it_may_and_one_transaction() {
        let budget = ReplayBudget::default();
        budget.begin(Time(1), 100);
        assert!(budget.take(60) && budget.take(60), "the second begins within the bound");
        assert!(!budget.is_short());
        assert!(!budget.take(1) && budget.is_short());
        budget.begin(Time(1), 100);
        assert!(!budget.take(1), "the same step goes on");
        budget.begin(Time(2), 100);
        assert!(!budget.is_short() && budget.take(1000) && !budget.take(1));
    }

    #[test]
    fn what_could_not_be_replayed_is_left_for_others() {
        let budget = ReplayBudget::default();
        budget.begin(Time(1), 100);
        assert!(budget.take(60) && budget.take(1000));
        budget.give_back();
        budget.give_back();
        assert_eq!(budget.total(), 60);
        assert!(!budget.is_short() && budget.take(40) && !budget.take(1));
    }
}
