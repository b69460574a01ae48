//! The streams that this worker follows are replayed (rule M6): see [`follower_replays`](crate::follower_replays).

use crate::follower_replays::{FollowerReplays, ReplayTarget};
use crate::piece::StreamEntry;
use crate::{Mako, MakoEffects};
use bytes::Bytes;
use shoal_types::{Epoch, ShardId};

impl Mako {
    /// Lets the streams that this worker follows replay.
    pub(crate) fn replay<R>(
        &mut self,
        replay: impl FnOnce(&mut FollowerReplays, ReplayTarget<'_>) -> R,
    ) -> R {
        let Mako { shared, follower_replays, runtime, watermarks, .. } = self;
        let (watermarks, worker) = (&watermarks.borrow(), runtime.worker_context.place.worker);
        replay(follower_replays, ReplayTarget { shared, watermarks, worker })
    }

    /// The stream of `shard` has decided an entry that this worker did not propose.
    pub(crate) fn decided(&mut self, shard: ShardId, entry: Bytes, effects: &mut MakoEffects) {
        let at = self.place_of(shard).expect("a stream that is held");
        // A decided entry is in the store of the leader that proposed it: a replica that skipped it would differ from the
        // others for good.
        let entry = StreamEntry::decode(shard, entry)
            .unwrap_or_else(|error| panic!("a leader of {shard} proposed it: {error}"));
        let finals = entry.finals.clone();
        self.runtime.counters.operations +=
            entry.pieces.iter().map(|p| p.writes.len() as u64).sum::<u64>();
        self.replay(|replays, target| replays.enter(at, entry, target, &mut effects.observations));
        for last in finals {
            if !self.exceeds_final(&last) {
                self.learn_settled(last, effects);
            }
        }
    }

    /// Replays what the watermark covers by now.
    pub(crate) fn replay_covered(&mut self, effects: &mut MakoEffects) {
        self.replay(|replays, target| replays.advance(target, &mut effects.observations));
    }

    /// Goes on with what an earlier step has left to be replayed.
    pub(crate) fn replay_blocked(&mut self, effects: &mut MakoEffects) {
        self.replay(|replays, target| replays.retry(target, &mut effects.observations));
    }

    /// Replays what is left of an epoch that is settled.
    pub(crate) fn replay_settled(&mut self, epoch: Epoch, effects: &mut MakoEffects) {
        self.replay(|replays, target| {
            replays.settle(epoch, target, &mut effects.observations);
            replays.decide(target, &mut effects.observations);
        });
    }
}
