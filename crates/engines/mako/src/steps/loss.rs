//! The loss of a shard's majority, as a worker handles it: see [`losses`](crate::losses).

use crate::epoch_ends::{clock_of, end_at};
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_cluster::manager::{Configuration, EpochEnd, LossStage, ManagerRequest};
use shoal_engine::engine::EngineEffect;
use shoal_types::{Clock, Epoch, ShardId, VectorWatermark};
use std::collections::BTreeMap;

/// Most epochs of which a leader says that its stream lacks their end; the first of them say the most.
const LACKING_MAX: usize = 1024;

impl Mako {
    /// The configuration says of which shards the majority is lost.
    pub(crate) fn learn_losses(
        &mut self,
        configuration: &Configuration,
        effects: &mut MakoEffects,
    ) {
        self.losses.follow(configuration);
        for (shard, loss) in self.losses.iter() {
            let begun = loss.begun;
            let learns = self.options().faults.has(MakoPlantedBug::LearnAfterLoss);
            if let Some(knowledge) = self.shared.epochs.freeze(shard, begun, learns)
                && loss.stage == LossStage::Asking
            {
                effects.push(EngineEffect::Manager(ManagerRequest::Known {
                    shard,
                    begun,
                    knowledge,
                }));
            }
        }
    }

    /// All that the survivors of the shard at this place hold of this worker's stream is decided: says how far that goes.
    pub(crate) fn tell_held(&mut self, at: usize, effects: &mut MakoEffects) {
        let shard = self.leader_shards[at].lead.shard;
        let (Some(loss), Some(leader_state)) =
            (self.losses.preparing(shard), &mut self.leader_shards[at].leader_state)
        else {
            return;
        };
        if leader_state.hold() {
            return;
        }
        let extent = self.follower_replays.of(at).extent();
        let clock = |epoch: &Epoch| extent.ends.get(epoch).copied().unwrap_or(extent.safe);
        let mut clocks: BTreeMap<Epoch, Clock> =
            loss.ends.keys().map(|epoch| (*epoch, clock(epoch))).collect();
        // The epochs whose ends are not in this stream: others may have learned them from the lost majority.
        let lacking = (extent.ended.0 + 1..loss.begun.0).map(Epoch).take(LACKING_MAX);
        lacking.for_each(|epoch| _ = clocks.entry(epoch).or_insert(extent.safe));
        if let Some(held) = self.shared.epochs.hold(shard, leader_state.ballot(), clocks) {
            let held = held.into_iter().map(|(epoch, clock)| (epoch, end_at(clock))).collect();
            effects.push(EngineEffect::Manager(ManagerRequest::Held { shard, held }));
        }
    }

    /// Of the epochs that a shard has not ended, as far as this node knows: how far it is durable, and how far this worker's
    /// stream has all of it, if the node has a copy.
    pub(crate) fn lacking_ends(&self, shard: ShardId) -> Vec<(Epoch, EpochEnd, Option<EpochEnd>)> {
        let is_held = self.runtime.worker_context.leaderships.holds(shard);
        let place = self.place_of(shard).filter(|_| is_held);
        let extent = place.map(|at| self.follower_replays.of(at).extent());
        let held = |epoch: Epoch| {
            extent.map(|extent| extent.ends.get(&epoch).copied().unwrap_or(extent.safe))
        };
        let open = self.epochs.iter().filter(|live| !live.watermark().has_ended(shard));
        let of = |epoch, durable| (epoch, end_at(durable), held(epoch).map(end_at));
        open.map(|live| of(live.epoch(), live.watermark().of(shard))).collect()
    }

    /// Does this node know more than an FVW that stands in a stream? If the end of a shard was forced while the node was away,
    /// the configuration says so, and [`exceeds_loss`](Mako::exceeds_loss) sees it. If not, receiving the same FVW with the
    /// configuration violates M9.
    pub(crate) fn exceeds_final(&self, last: &VectorWatermark) -> bool {
        let Some(live) = self.epochs.get(last.epoch()) else { return false };
        let mut shards = self.runtime.worker_context.topology.shard_ids();
        shards.any(|shard| live.watermark().of(shard) > last.of(shard))
    }

    /// A shard of which this node has acted by more than the configuration says that there was, since the loss of its
    /// majority was accepted while this node was away.
    ///
    /// # Panics
    /// If this node was not away: no end is forced below what it reported (M9).
    pub(crate) fn exceeds_loss(&self, configuration: &Configuration) -> Option<ShardId> {
        let end = |epoch: Epoch, shard: ShardId| match configuration.ends.get(&epoch) {
            Some(ends) => ends.get(shard.0 as usize)?.as_ref().map(clock_of),
            None => configuration.last(epoch).map(|last| clock_of(last.of(shard))),
        };
        let exceeds = |shard: ShardId| {
            self.epochs.iter().find(|live| {
                let (reached, ended) =
                    (live.watermark().of(shard), live.watermark().has_ended(shard));
                end(live.epoch(), shard)
                    .is_some_and(|end| reached > end || (ended && reached != end))
            })
        };
        let worker_context = &self.runtime.worker_context;
        for (shard, assignment) in (0..).map(ShardId).zip(&configuration.shards) {
            let Some(loss) = &assignment.loss else { continue };
            let Some(live) = exceeds(shard) else { continue };
            assert!(
                !loss.has_reported(
                    worker_context.place.node,
                    worker_context.leaderships.incarnation()
                ),
                "M9: {} of {shard} was forced to end below what {} had told",
                live.epoch(),
                worker_context.place.node
            );
            return Some(shard);
        }
        None
    }
}
