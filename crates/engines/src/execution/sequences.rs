//! The numbers of a worker's transactions, and which of them are over.

use std::collections::VecDeque;

/// Counts transactions and remembers the oldest that is not over. Participants forget what they know
/// of older ones: nothing about them is ever said again, but for late repetitions, which they drop.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    oldest: u64,
    /// Of `oldest` and those after it: is it over?
    over: VecDeque<bool>,
}

impl Sequences {
    /// The next number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.over.push_back(false);
        self.oldest + self.over.len() as u64 - 1
    }

    /// Nothing will be said of this transaction any more.
    ///
    /// # Panics
    /// If it was over before.
    pub(crate) fn finish(&mut self, sequence: u64) {
        let at = sequence.checked_sub(self.oldest).and_then(|at| usize::try_from(at).ok());
        let over = at.and_then(|at| self.over.get_mut(at));
        assert!(over.is_some_and(|over| !std::mem::replace(over, true)), "{sequence} ended twice");
        while self.over.front() == Some(&true) {
            self.over.pop_front();
            self.oldest += 1;
        }
    }

    /// The oldest that is not over, or the next one.
    pub(crate) fn oldest(&self) -> u64 {
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
}
