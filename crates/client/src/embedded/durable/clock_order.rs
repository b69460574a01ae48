//! Transactions in the order of their clocks, which threads deliver in any order.

use shoal_types::Clock;
use std::collections::BTreeMap;

/// Delivers what was put in, in the order of clocks and without a gap.
#[derive(Debug)]
pub(super) struct ClockOrder {
    /// All up to here were delivered.
    last: Clock,
    /// Records that came before one with a lower clock; `None` for clocks whose transaction failed.
    early: BTreeMap<Clock, Option<Vec<u8>>>,
}

impl ClockOrder {
    /// Delivers what comes after the clock `last`.
    pub(super) fn after(last: Clock) -> ClockOrder {
        ClockOrder { last, early: BTreeMap::new() }
    }

    /// The last clock that was delivered.
    pub(super) fn last(&self) -> Clock {
        self.last
    }

    /// # Panics
    /// If the clock was put in before.
    pub(super) fn put(&mut self, clock: Clock, record: Option<Vec<u8>>) {
        assert!(clock > self.last, "{clock} was delivered, up to {}", self.last);
        assert!(self.early.insert(clock, record).is_none(), "{clock} was drawn twice");
    }

    /// The record with the next clock; `None` until that is there. The record is `None` where its transaction failed.
    pub(super) fn next(&mut self) -> Option<(Clock, Option<Vec<u8>>)> {
        let first = self.early.first_entry()?;
        let clock = *first.key();
        (clock.0 == self.last.0 + 1).then(|| {
            self.last = clock;
            (clock, first.remove())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_waited_for() {
        let mut order = ClockOrder::after(Clock(4));
        order.put(Clock(7), Some(vec![7]));
        order.put(Clock(6), None);
        assert_eq!(order.next(), None);
        order.put(Clock(5), Some(vec![5]));
        assert_eq!(order.next(), Some((Clock(5), Some(vec![5]))));
        assert_eq!(order.next(), Some((Clock(6), None)));
        assert_eq!(order.next(), Some((Clock(7), Some(vec![7]))));
        assert_eq!((order.next(), order.last()), (None, Clock(7)));
    }
}
