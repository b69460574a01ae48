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
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{Clock, ShardId, VectorWatermark, WorkerId};

/// See the module.
pub(super) struct Followed {
    pub(super) shard: ShardId,
    sessions: Rc<Sessions>,
    waiting: Awaiting<Piece>,
    /// The clocks of what waits.
    clocks: BTreeSet<Clock>,
    /// The safe clock of the last entry.
    safe: Clock,
}

impl Followed {
    pub(super) fn new(replica: &Replica, shards: usize) -> Followed {
        Followed {
            shard: replica.shard,
            sessions: Sessions::new(replica.store.clone()),
            waiting: Awaiting::new(shards),
            clocks: BTreeSet::new(),
            safe: Clock::ZERO,
        }
    }

    /// Takes the next entry of the stream.
    pub(super) fn enter(
        &mut self,
        entry: Entry,
        watermark: &VectorWatermark,
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
            self.clocks.insert(piece.stamp.clock);
            let stamp = piece.stamp.clone();
            if let Some((_, piece)) = self.waiting.push(watermark, self.shard, stamp, piece) {
                self.clocks.remove(&piece.stamp.clock);
                apply(&self.sessions, piece);
            }
        }
    }

    /// Replays what the watermark covers by now.
    pub(super) fn advance(
        &mut self,
        watermark: &VectorWatermark,
        apply: &mut impl FnMut(&Rc<Sessions>, Piece),
    ) {
        let Followed { shard, sessions, waiting, clocks, .. } = self;
        waiting.advance(watermark, |_, _, piece| {
            assert!(
                watermark.covers(*shard, piece.stamp.as_ref()),
                "M6: {piece:?} is not covered by {watermark:?}"
            );
            clocks.remove(&piece.stamp.clock);
            apply(sessions, piece);
        });
    }

    /// Everything of this stream up to here has been replayed.
    pub(super) fn applied(&self) -> Clock {
        self.clocks.first().map_or(self.safe, |first| Clock(first.0 - 1).min(self.safe))
    }

    /// How many pieces wait.
    pub(super) fn pending(&self) -> usize {
        self.waiting.len()
    }
}

/// Publishes how far this worker has replayed.
pub(super) fn publish(followed: &Followed, replica: &Replica, worker: WorkerId) {
    replica.progress(worker, followed.applied());
}
