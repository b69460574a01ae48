//! Pieces that are covered and not replayed, in the order in which they were covered.
//!
//! A piece waits where it has a delta whose base has not come: the base is in the stream of another worker, or of a shard of which
//! this node knows less. It holds up no other: passes are made over all pieces, in their order, each as many steps as it takes.
//! That order stays, so that one pass replays a chain of deltas once its first base is there.

use super::piece::Piece;
use super::piece_replay::ReplayedPieces;
use std::collections::VecDeque;

/// Covered pieces, some of which may wait.
#[derive(Debug, Default)]
pub(super) struct CoveredPieces {
    /// Those that are not tried in this pass yet, and behind them those that were covered since it began.
    untried: VecDeque<Piece>,
    /// How many are left of those that this pass tries.
    left: usize,
    /// What was tried in this pass in vain.
    waiting: VecDeque<Piece>,
    /// Something was replayed in this pass.
    gets_on: bool,
    is_stuck: bool,
}

impl CoveredPieces {
    pub(super) fn push(&mut self, piece: Piece) {
        self.untried.push_back(piece);
    }

    pub(super) fn clear(&mut self) {
        *self = CoveredPieces::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.untried.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.untried.len() + self.waiting.len()
    }

    /// Whether there are pieces, and to try again at once would be in vain: a lock is held, the step has replayed enough, or a whole
    /// pass has replayed nothing.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck && !self.is_empty()
    }

    /// Has `apply` replay the next pieces, as many as it can: it says which of the first are done. Calls `done` for them.
    pub(super) fn replay(
        &mut self,
        apply: impl FnOnce(&VecDeque<Piece>) -> ReplayedPieces,
        done: impl FnMut(&Piece),
    ) {
        if self.left == 0 {
            self.begin_pass();
        }
        if self.untried.is_empty() {
            return;
        }
        let before = self.untried.len();
        let is_any = apply(&self.untried).drain(&mut self.untried, &mut self.waiting, done);
        let tried = before - self.untried.len();
        self.left = self.left.saturating_sub(tried);
        self.gets_on |= is_any;
        let is_over = self.left == 0 && !self.waiting.is_empty();
        self.is_stuck = tried == 0 || (is_over && !self.gets_on);
    }

    fn begin_pass(&mut self) {
        while let Some(piece) = self.waiting.pop_back() {
            self.untried.push_front(piece);
        }
        (self.left, self.gets_on) = (self.untried.len(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::piece::{OpenBatch, StreamEntry};
    use super::*;
    use shoal_types::{Clock, Epoch, ShardId, Stamp};

    fn piece(clock: u64) -> Piece {
        let mut batch = OpenBatch::default();
        batch.push(Stamp::local(Epoch(1), Clock(clock)).as_ref(), |_| {});
        let entry = batch.close(Clock(0), &[], &[]);
        StreamEntry::decode(ShardId(0), entry).expect("well formed").pieces.pop().expect("one")
    }

    /// Tries one piece. It is done if the one with the clock before it is.
    fn step(pieces: &mut CoveredPieces, last: &mut u64) {
        let next = *last + 1;
        let tried = |untried: &VecDeque<Piece>| {
            let waits = untried[0].stamp.clock.0 != next;
            ReplayedPieces::first(waits)
        };
        pieces.replay(tried, |piece| *last = piece.stamp.clock.0);
    }

    #[test]
    fn one_pass_replays_a_chain_once_its_base_is_there() {
        let mut pieces = CoveredPieces::default();
        (2..=5).for_each(|clock| pieces.push(piece(clock)));
        // The base of the first is missing.
        let mut last = 0;
        for tried in 1..=3 {
            step(&mut pieces, &mut last);
            assert!(!pieces.is_stuck(), "{tried} of four are tried");
            pieces.push(piece(5 + tried));
        }
        step(&mut pieces, &mut last);
        assert!(pieces.is_stuck() && pieces.len() == 7, "a pass in vain: {pieces:?}");
        last = 1;
        for _ in 2..=8 {
            step(&mut pieces, &mut last);
        }
        assert!(pieces.is_empty() && last == 8, "{last}: {pieces:?}");
    }
}
