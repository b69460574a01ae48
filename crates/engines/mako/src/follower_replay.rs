//! A shard as a follower's worker sees it: pieces wait for the watermark and are replayed, in any
//! order they are covered (rule M6, Mako §4.4).
//!
//! Each worker replays the stream of its number, beside the others and without a word to them: on one
//! key the greatest (epoch, clock) wins, in any order of arrival (Thomas's rule). For that a tombstone has
//! to stay until nothing older can arrive. **Applied** is the clock up to which a worker has replayed
//! all there is; what lies at or below that of all workers is complete.

use super::clock_counts::ClockCounts;
use super::covered_pieces::CoveredPieces;
use super::durability_wait::DurabilityWait;
use super::mako_replica::MakoReplica;
use super::options::MakoOptions;
use super::piece::{Piece, StreamEntry};
use super::piece_replay::ReplayedPieces;
use super::stable_prefix::{EntryContents, KnownEpochs, PieceNeeds, StablePrefix, StreamExtent};
use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_types::{Clock, Epoch, ShardId, VectorWatermark, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The log of one shard that this worker follows: what of it waits to be applied.
pub(super) struct FollowerReplay {
    shard: ShardId,
    sessions: Rc<SessionPool>,
    /// Pieces of each epoch that is not settled.
    waiting: BTreeMap<Epoch, DurabilityWait<Piece>>,
    shards: usize,
    /// Pieces of epochs of which this node does not know how they ended: that comes behind them in the stream.
    unknown: BTreeMap<Epoch, Vec<Piece>>,
    /// The clocks of what is not replayed.
    clocks: ClockCounts,
    /// Pieces that are covered and not replayed: they are, many together, before the step is over, unless a lock of another
    /// worker is in the way or the step has replayed enough.
    covered: CoveredPieces,
    /// What the stream says, as far as this worker has received it.
    extent: StreamExtent,
    /// How much of that the store has for good.
    stable: StablePrefix,
}

impl FollowerReplay {
    pub(super) fn new(replica: &MakoReplica, shards: usize) -> FollowerReplay {
        FollowerReplay {
            shard: replica.shard,
            sessions: SessionPool::new(replica.store.clone(), usize::MAX),
            waiting: BTreeMap::new(),
            unknown: BTreeMap::new(),
            shards,
            clocks: ClockCounts::default(),
            covered: CoveredPieces::default(),
            extent: StreamExtent::default(),
            stable: StablePrefix::default(),
        }
    }

    /// Takes the next entry of the stream.
    pub(super) fn enter(
        &mut self,
        entry: StreamEntry,
        watermarks: &Watermarks,
        options: &MakoOptions,
        keep: &mut impl FnMut(&Rc<SessionPool>, &Piece),
        apply: &mut impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> ReplayedPieces,
    ) {
        let StreamEntry { safe, ends, finals, pieces } = entry;
        let mut needs = PieceNeeds::default();
        for piece in pieces {
            needs.add(self.shard, piece.stamp.as_ref());
            if options.faults.has(MakoPlantedBug::ApplyAboveWatermark) {
                self.cover(piece);
                continue;
            }
            let stamp = piece.stamp.as_ref();
            let (epoch, clock) = (stamp.epoch, stamp.clock);
            assert!(
                epoch > self.extent.ended,
                "M9: {stamp:?} of {} comes after the end",
                self.shard
            );
            let trusts = options.faults.has(MakoPlantedBug::TakeForgottenForWhole);
            if epoch <= watermarks.forgotten() && epoch > self.extent.finals && !trusts {
                self.clocks.insert(clock);
                self.unknown.entry(epoch).or_default().push(piece);
                continue;
            }
            if watermarks.covers(self.shard, stamp) {
                self.cover(piece);
                continue;
            }
            if watermarks.rejects(self.shard, stamp) {
                continue;
            }
            if watermarks.end_of(epoch, self.shard).is_some() {
                keep(&self.sessions, &piece);
                continue;
            }
            self.clocks.insert(clock);
            let waiting = self.waiting.entry(epoch);
            let waiting = waiting.or_insert_with(|| DurabilityWait::new(self.shards));
            let stamp = piece.stamp.clone();
            let covered = match watermarks.live(epoch) {
                Some(watermark) => waiting.push(watermark, self.shard, stamp, piece),
                // This node has not learned of it.
                None => {
                    let none = VectorWatermark::new(epoch, self.shards);
                    waiting.push(&none, self.shard, stamp, piece)
                }
            };
            assert!(covered.is_none(), "what waits is not covered: {covered:?}");
        }
        for last in &finals {
            for piece in self.unknown.remove(&last.epoch()).into_iter().flatten() {
                match last.covers(self.shard, piece.stamp.as_ref()) {
                    true => self.covered.push(piece),
                    false => self.clocks.remove(piece.stamp.clock),
                }
            }
        }
        self.replay(apply);
        let finals = finals.last().map_or(self.extent.finals, VectorWatermark::epoch);
        self.note(EntryContents { safe, ends, finals, needs }, watermarks.settled());
    }

    /// The stream has one more entry, which says that.
    pub(super) fn note(&mut self, said: EntryContents, settled: Epoch) {
        self.extent.extend(self.shard, &said, settled);
        self.stable.push(said);
    }

    /// The store has all that is stable in another replica's, and what it says stands for the entries up to there.
    pub(super) fn restore(&mut self, extent: StreamExtent) {
        let (shard, before) = (self.shard, &self.extent);
        assert!(extent.length > before.length, "{shard} has {before:?}, and gets {extent:?}");
        assert!(extent.safe >= before.safe, "M3: the safe clock of {shard} went back");
        self.waiting.clear();
        self.unknown.clear();
        self.clocks = ClockCounts::default();
        self.covered.clear();
        self.extent = extent.clone();
        self.stable.restore(extent);
    }

    /// The node has no replica of the shard any more. Says whether something of the stream had come.
    pub(super) fn forget(&mut self) -> bool {
        let had_data = self.extent.length > 0;
        self.waiting.clear();
        self.unknown.clear();
        self.clocks = ClockCounts::default();
        self.covered.clear();
        (self.extent, self.stable) = (StreamExtent::default(), StablePrefix::default());
        had_data
    }

    /// A piece is covered, and is to be replayed.
    fn cover(&mut self, piece: Piece) {
        self.clocks.insert(piece.stamp.clock);
        self.covered.push(piece);
    }

    /// Replays what is covered, as much as `apply` does: it says which of the pieces are done.
    pub(super) fn replay(
        &mut self,
        apply: &mut impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> ReplayedPieces,
    ) {
        let FollowerReplay { covered, sessions, clocks, .. } = self;
        if !covered.is_empty() {
            let done = |piece: &Piece| clocks.remove(piece.stamp.clock);
            covered.replay(|pieces| apply(sessions, pieces), done);
        }
    }

    /// Is everything replayed that is covered?
    pub(super) fn is_through(&self) -> bool {
        self.covered.is_empty()
    }

    /// Is something covered, and would it be in vain to go on with it at once?
    pub(super) fn is_stuck(&self) -> bool {
        self.covered.is_stuck()
    }

    /// Replays what the watermark covers by now.
    pub(super) fn advance(
        &mut self,
        watermarks: &Watermarks,
        apply: &mut impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> ReplayedPieces,
    ) {
        let FollowerReplay { shard, waiting, covered, .. } = self;
        for watermark in watermarks.all_live() {
            let Some(waiting) = waiting.get_mut(&watermark.epoch()) else { continue };
            waiting.advance(watermark, |_, _, piece| {
                assert!(
                    watermark.covers(*shard, piece.stamp.as_ref()),
                    "M6: {piece:?} is not covered by {watermark:?}"
                );
                covered.push(piece);
            });
        }
        self.replay(apply);
    }

    /// Replays what the FVW of an epoch covers of it; the rest never will be (rule M9).
    pub(super) fn settle(
        &mut self,
        epoch: Epoch,
        watermarks: &Watermarks,
        apply: &mut impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> ReplayedPieces,
    ) {
        self.extent.ends.remove(&epoch);
        let Some(mut waiting) = self.waiting.remove(&epoch) else { return };
        for (_, _, piece) in waiting.take_all() {
            match watermarks.covers(self.shard, piece.stamp.as_ref()) {
                true => self.covered.push(piece),
                false => self.clocks.remove(piece.stamp.clock),
            }
        }
        self.replay(apply);
    }

    /// Shards have ended an epoch: drops what depends on more of them than there is.
    pub(super) fn drop_rejected(&mut self, epoch: Epoch, watermarks: &Watermarks) {
        let (Some(waiting), Some(watermark)) =
            (self.waiting.get_mut(&epoch), watermarks.live(epoch))
        else {
            return;
        };
        let rejected = |piece: &Piece| watermarks.rejects(self.shard, piece.stamp.as_ref());
        for (_, piece) in waiting.take_if(watermark, rejected) {
            self.clocks.remove(piece.stamp.clock);
        }
    }

    /// This shard has `ended` some epochs: what still waits of them is undecided, and kept elsewhere from now on.
    pub(super) fn set_aside(
        &mut self,
        ended: impl Fn(Epoch) -> bool,
        mut keep: impl FnMut(&Rc<SessionPool>, &Piece),
    ) {
        for (_, mut waiting) in self.waiting.extract_if(.., |epoch, _| ended(*epoch)) {
            for (_, _, piece) in waiting.take_all() {
                keep(&self.sessions, &piece);
                // After that: tombstones above it may go when nothing waits below.
                self.clocks.remove(piece.stamp.clock);
            }
        }
    }

    /// Sessions to replay with.
    pub(super) fn sessions(&self) -> &Rc<SessionPool> {
        &self.sessions
    }

    /// Everything of this stream up to here has been replayed.
    pub(super) fn applied(&self) -> Clock {
        let safe = self.extent.safe;
        self.clocks.first().map_or(safe, |first| Clock(first.0 - 1).min(safe))
    }

    /// Takes note of what the store has for good by now.
    pub(super) fn stabilize(
        &mut self,
        replica: &MakoReplica,
        worker: WorkerId,
        watermarks: &Watermarks,
        faults: PlantedBugs<MakoPlantedBug>,
    ) {
        let is_through = self.is_through() || faults.has(MakoPlantedBug::StableWhileBlocked);
        if is_through && self.stable.ahead() > 0 {
            let known = KnownEpochs { watermarks, finals: self.extent.finals };
            self.stable.advance(replica, worker, known, faults);
        }
    }

    /// Asserts that what counts as stable is replayed (M6): it would be missing where the stream is cut.
    pub(super) fn assert_invariants(&self, worker: WorkerId) {
        let (shard, greatest, applied) = (self.shard, self.stable.greatest(), self.applied());
        assert!(
            greatest <= applied,
            "M6: {worker} of {shard} is stable up to {greatest}, and has replayed all up to {applied} only"
        );
    }

    /// The shard whose stream is replayed.
    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    /// What the stream says, as far as this worker has received it.
    pub(super) fn extent(&self) -> &StreamExtent {
        &self.extent
    }

    /// How much of that the store has for good.
    pub(super) fn stable(&self) -> &StablePrefix {
        &self.stable
    }

    /// How many pieces wait.
    pub(super) fn pending(&self) -> usize {
        let unknown = self.unknown.values().map(Vec::len).sum::<usize>();
        self.waiting.values().map(DurabilityWait::len).sum::<usize>() + self.covered.len() + unknown
    }
}
