//! Pieces that are covered and not replayed, in the order in which they were covered.
//!
//! A piece waits where it has a delta whose base has not come: the base is in the stream of another worker, or of a shard of which
//! this node knows less. It holds up no other: passes are made over the pieces, in their order, each as many steps as it takes.
//! That order stays, so that one pass replays a chain of deltas once its first base is there. A base may be long in coming, and
//! many pieces wait for it: after passes in vain, what waits is left out of the next passes, of ever more of them.

use super::piece::Piece;
use super::piece_replay::ReplayedPieces;
use std::collections::VecDeque;

/// What waits is left out of fewer than 2 to the power of this many passes. More would have a follower lag behind; with fewer a
/// worker did little else than to try again.
const IN_VAIN_MAX: u32 = 6;

/// Covered pieces, some of which may wait.
#[derive(Debug, Default)]
pub(super) struct CoveredPieces {
    /// Those that are not tried in this pass yet, and behind them those that were covered since it began.
    untried: VecDeque<Piece>,
    /// How many are left of those that this pass tries.
    left: usize,
    /// What was tried in vain, and before what is not tried.
    waiting: VecDeque<Piece>,
    /// Whether this pass tries all pieces, and not only those that were never tried.
    is_whole: bool,
    /// Something was replayed in this pass.
    gets_on: bool,
    /// How many whole passes in a row have replayed nothing.
    in_vain: u32,
    /// So many passes leave out what waits.
    left_out: u32,
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

    /// Whether there are pieces, and to try again at once would be in vain: a lock is held, or a pass has replayed nothing.
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
        let before = self.untried.len();
        let mut is_deferred = false;
        if before > 0 {
            let replayed = apply(&self.untried);
            is_deferred = replayed.is_deferred();
            self.gets_on |= replayed.drain(&mut self.untried, &mut self.waiting, done);
        }
        let tried = before - self.untried.len();
        self.left = self.left.saturating_sub(tried);
        self.is_stuck = tried == 0 && !is_deferred;
        if self.left == 0 {
            self.end_pass();
        }
    }

    fn begin_pass(&mut self) {
        self.is_whole = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        while self.is_whole
            && let Some(piece) = self.waiting.pop_back()
        {
            self.untried.push_front(piece);
        }
        (self.left, self.gets_on) = (self.untried.len(), false);
    }

    fn end_pass(&mut self) {
        if self.is_whole {
            self.in_vain = if self.gets_on { 0 } else { (self.in_vain + 1).min(IN_VAIN_MAX) };
            self.left_out = (1 << self.in_vain) - 1;
        }
        self.is_stuck |= !self.gets_on && !self.waiting.is_empty();
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
        // What has come since, and then all of it.
        for _ in 0..3 + 7 {
            step(&mut pieces, &mut last);
        }
        assert!(pieces.is_empty() && last == 8, "{last}: {pieces:?}");
    }

    #[test]
    fn what_waits_in_vain_is_tried_ever_less_often() {
        let mut pieces = CoveredPieces::default();
        pieces.push(piece(2));
        let mut tried = Vec::new();
        for call in 0..200 {
            let wait = |_: &VecDeque<Piece>| {
                tried.push(call);
                ReplayedPieces::first(true)
            };
            pieces.replay(wait, |_| {});
            assert!(pieces.is_stuck());
        }
        assert_eq!(tried, [0, 2, 6, 14, 30, 62, 126, 190]);
        // Something new does not wait behind it.
        pieces.push(piece(3));
        let mut done = Vec::new();
        pieces.replay(|_| ReplayedPieces::first(false), |piece| done.push(piece.stamp.clock));
        assert_eq!((done, pieces.len()), (vec![Clock(3)], 1));
    }

    #[test]
    fn what_a_step_has_no_time_for_is_tried_in_the_next() {
        let mut pieces = CoveredPieces::default();
        pieces.push(piece(2));
        pieces.replay(|_| ReplayedPieces::deferred(), |_| panic!("nothing is done"));
        assert!(!pieces.is_stuck() && pieces.len() == 1);
        pieces.replay(|_| ReplayedPieces::first(false), |_| {});
        assert!(pieces.is_empty());
    }
}
