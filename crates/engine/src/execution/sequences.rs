//! The numbers of a worker's transactions, and which of them are over.

use shoal_cluster::manager::Incarnation;
use std::collections::VecDeque;

/// A process has room for so many transactions: at a million a second, for half a year. A node may have a
/// million lives.
const LIFE_BITS: u32 = 44;

/// The number of the first transaction of a worker in a process of its node.
pub fn first(incarnation: Incarnation) -> u64 {
    u64::from(incarnation.0.saturating_sub(1)) << LIFE_BITS
}

/// Counts transactions and remembers the oldest that is not over. Participants forget what they know
/// of older ones: nothing about them is ever said again, but for late repetitions, which they drop.
#[derive(Debug, Default)]
pub struct Sequences {
    oldest: u64,
    /// Of `oldest` and those after it: is it over?
    over: VecDeque<bool>,
}

impl Sequences {
    /// The node begins a process: its numbers follow those of all processes before.
    pub fn begin_instance(&mut self, incarnation: Incarnation) {
        let first = first(incarnation);
        if first > self.oldest {
            assert!(self.over.is_empty(), "a process has begun with transactions under way");
            self.oldest = first;
        }
    }

    /// The next number.
    pub fn begin(&mut self) -> u64 {
        self.over.push_back(false);
        self.oldest + self.over.len() as u64 - 1
    }

    /// Nothing will be said of this transaction any more.
    ///
    /// # Panics
    /// If it was over before.
    pub fn finish(&mut self, sequence: u64) {
        let at = sequence.checked_sub(self.oldest).and_then(|at| usize::try_from(at).ok());
        let over = at.and_then(|at| self.over.get_mut(at));
        assert!(over.is_some_and(|over| !std::mem::replace(over, true)), "{sequence} ended twice");
        while self.over.front() == Some(&true) {
            self.over.pop_front();
            self.oldest += 1;
        }
    }

    /// How many numbers are kept: those of the oldest that is not over and of all after it.
    pub(crate) fn len(&self) -> usize {
        self.over.len()
    }

    /// The oldest that is not over, or the next one.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_waits_for_its_turn() {
        let mut sequences = Sequences::default();
        let numbers: Vec<u64> = (0..4).map(|_| sequences.begin()).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        sequences.finish(1);
        sequences.finish(2);
        assert_eq!(sequences.oldest(), 0);
        sequences.finish(0);
        assert_eq!(sequences.oldest(), 3);
        assert_eq!(sequences.begin(), 4);
    }

    #[test]
    fn a_new_process_goes_on_after_the_last() {
        let mut sequences = Sequences::default();
        sequences.begin_instance(Incarnation(1));
        assert_eq!(sequences.begin(), 0);
        let mut sequences = Sequences::default();
        sequences.begin_instance(Incarnation(3));
        assert_eq!(sequences.begin(), 2 << LIFE_BITS);
    }
}
