//! A shard as a follower's worker sees it: pieces wait for the watermark and are replayed, in whatever
//! order they are covered (rule M6, Mako §4.4).
//!
//! Each worker replays the stream of its number, beside the others and without a word to them: on one
//! key the greatest (epoch, clock) wins, whoever comes first (Thomas's rule). For that a tombstone has
//! to stay until nothing older can arrive. **Applied** is the clock up to which a worker has replayed
//! all there is; what lies at or below that of all workers is complete.

use super::awaiting::Awaiting;
use super::options::Options;
use super::piece::{Entry, Piece};
use crate::execution::sessions::Sessions;
use crate::faults::Fault;
use crate::replication::replica::Replica;
use crate::watermarks::Watermarks;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use types::{Clock, Epoch, ShardId, VectorWatermark, WorkerId};

/// See the module.
pub(super) struct Followed {
    pub(super) shard: ShardId,
    sessions: Rc<Sessions>,
    /// Pieces of each epoch that is not settled.
    waiting: BTreeMap<Epoch, Awaiting<Piece>>,
    shards: usize,
    /// The clocks of what waits.
    clocks: BTreeSet<Clock>,
    /// The safe clock of the last entry.
    safe: Clock,
    /// The last epoch of which no more can come.
    ended: Epoch,
}

impl Followed {
    pub(super) fn new(replica: &Replica, shards: usize) -> Followed {
        Followed {
            shard: replica.shard,
            sessions: Sessions::new(replica.store.clone()),
            waiting: BTreeMap::new(),
            shards,
            clocks: BTreeSet::new(),
            safe: Clock::ZERO,
            ended: Epoch(0),
        }
    }

    /// Takes the next entry of the stream.
    pub(super) fn enter(
        &mut self,
        entry: Entry,
        watermarks: &Watermarks,
        options: &Options,
        apply: &mut impl FnMut(&Rc<Sessions>, Piece),
    ) {
        assert!(entry.safe >= self.safe, "M3: the safe clock of {} went back", self.shard);
        self.safe = entry.safe;
        for piece in entry.pieces {
            if options.faults.has(Fault::ApplyAboveWatermark) {
                apply(&self.sessions, piece);
                continue;
            }
            let (stamp, epoch) = (piece.stamp.clone(), piece.stamp.epoch);
            assert!(epoch > self.ended, "M9: {stamp:?} of {} comes after the end", self.shard);
            if watermarks.covers(self.shard, stamp.as_ref()) {
                apply(&self.sessions, piece);
                continue;
            }
            self.clocks.insert(stamp.clock);
            let none = VectorWatermark::new(epoch, self.shards);
            let waiting = self.waiting.entry(epoch).or_insert_with(|| Awaiting::new(self.shards));
            // It may be of an epoch that this node has not heard of.
            let watermark = watermarks.live(epoch).unwrap_or(&none);
            let covered = waiting.push(watermark, self.shard, stamp, piece);
            assert!(covered.is_none(), "seen above");
        }
        self.ended = self.ended.max(entry.ended.unwrap_or_default());
    }

    /// Replays what the watermark covers by now.
    pub(super) fn advance(
        &mut self,
        watermarks: &Watermarks,
        apply: &mut impl FnMut(&Rc<Sessions>, Piece),
    ) {
        let Followed { shard, sessions, waiting, clocks, .. } = self;
        for watermark in watermarks.all_live() {
            let Some(waiting) = waiting.get_mut(&watermark.epoch()) else { continue };
            waiting.advance(watermark, |_, _, piece| {
                assert!(
                    watermark.covers(*shard, piece.stamp.as_ref()),
                    "M6: {piece:?} is not covered by {watermark:?}"
                );
                clocks.remove(&piece.stamp.clock);
                apply(sessions, piece);
            });
        }
    }

    /// Replays what is left of an epoch that is settled: all that its FVW covers.
    pub(super) fn settle(
        &mut self,
        epoch: Epoch,
        watermarks: &Watermarks,
        apply: &mut impl FnMut(&Rc<Sessions>, Piece),
    ) {
        let Some(mut waiting) = self.waiting.remove(&epoch) else { return };
        for (_, stamp, piece) in waiting.take_all() {
            assert!(
                watermarks.covers(self.shard, stamp.as_ref()),
                "M9: {stamp:?} of {} was certified, and {epoch} ended without it",
                self.shard
            );
            self.clocks.remove(&stamp.clock);
            apply(&self.sessions, piece);
        }
    }

    /// Everything of this stream up to here has been replayed.
    pub(super) fn applied(&self) -> Clock {
        self.clocks.first().map_or(self.safe, |first| Clock(first.0 - 1).min(self.safe))
    }

    /// How many pieces wait.
    pub(super) fn pending(&self) -> usize {
        self.waiting.values().map(Awaiting::len).sum()
    }
}

/// Publishes how far this worker has replayed.
pub(super) fn publish(followed: &Followed, replica: &Replica, worker: WorkerId) {
    replica.progress(worker, followed.applied());
}
