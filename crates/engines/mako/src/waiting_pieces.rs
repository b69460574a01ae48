//! The pieces of an epoch that wait for the watermark, as a follower keeps them.
//!
//! Most depend on no other shard, and come in the order of their clocks: those wait in a queue, at whose front the next to
//! be covered is. The others wait in the heaps of [`DurabilityWait`], where none waits behind another.

use super::durability_wait::DurabilityWait;
use super::piece::Piece;
use shoal_types::{ShardId, VectorWatermark};
use std::collections::VecDeque;

/// Pieces of one shard and epoch.
///
/// Invariant: those in order have stamps without entries of other shards, in the order of their clocks.
pub(super) struct WaitingPieces {
    in_order: VecDeque<Piece>,
    others: DurabilityWait<Piece>,
}

impl WaitingPieces {
    /// None, in a configuration of so many shards.
    pub(super) fn new(shards: usize) -> WaitingPieces {
        WaitingPieces { in_order: VecDeque::new(), others: DurabilityWait::new(shards) }
    }

    /// Adds a piece of `own` that `watermark` does not cover.
    pub(super) fn push(&mut self, watermark: &VectorWatermark, own: ShardId, piece: Piece) {
        let last = self.in_order.back();
        let comes_last = last.is_none_or(|last| last.stamp.clock <= piece.stamp.clock);
        if comes_last && piece.stamp.as_ref().remote.is_empty() {
            return self.in_order.push_back(piece);
        }
        let covered = self.others.push(watermark, own, piece.stamp.clone(), piece);
        assert!(covered.is_none(), "what waits is not covered: {covered:?}");
    }

    /// Takes out what `watermark` covers.
    pub(super) fn advance(
        &mut self,
        watermark: &VectorWatermark,
        own: ShardId,
        mut done: impl FnMut(Piece),
    ) {
        let reached = watermark.of(own);
        let is_covered = |piece: &Piece| piece.stamp.clock <= reached;
        let covered = self.in_order.iter().take_while(|piece| is_covered(piece)).count();
        self.in_order.drain(..covered).for_each(&mut done);
        self.others.advance(watermark, |_, _, piece| done(piece));
    }

    /// Takes out the pieces that `picked` picks out.
    pub(super) fn take_if(
        &mut self,
        watermark: &VectorWatermark,
        picked: impl Fn(&Piece) -> bool,
    ) -> Vec<Piece> {
        let (taken, kept) = std::mem::take(&mut self.in_order).into_iter().partition(&picked);
        self.in_order = kept;
        let mut taken: Vec<Piece> = VecDeque::into(taken);
        taken.extend(self.others.take_if(watermark, picked).into_iter().map(|(_, piece)| piece));
        taken
    }

    /// Takes out everything.
    pub(super) fn take_all(mut self) -> impl Iterator<Item = Piece> {
        let others = self.others.take_all();
        self.in_order.into_iter().chain(others.map(|(_, _, piece)| piece))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }
}
