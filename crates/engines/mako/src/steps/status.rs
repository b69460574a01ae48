//! A worker's status: the sizes of its tables, for tests that show that none grows for ever, and its metrics of each shard.

use crate::Mako;
use crate::follower_replay::FollowerReplay;
use crate::leader_shard::LeaderShard;
use crate::metrics::SHARD_METRICS;
use crate::undecided_versions::UndecidedVersions;
use shoal_types::ShardId;

impl Mako {
    /// See [`Engine::sizes`](shoal_engine::Engine::sizes).
    pub(crate) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let [coordinators, over] = self.branches.sizes();
        let [live, finals, ended] = self.watermarks.borrow().sizes();
        let [shared_live, shared_finals, shared_ended] = self.shared.epochs.sizes();
        let of_led = |count: fn(&LeaderShard) -> usize| self.leader_shards.iter().map(count).sum();
        let of_followed =
            |count: fn(&FollowerReplay) -> usize| self.follower_replays.iter().map(count).sum();
        let floors = self.shared.replicas.iter().map(|replica| replica.floor().len());
        let undecided = self.shared.undecided.iter().map(UndecidedVersions::len);
        let own = vec![
            ("transactions with branches", self.coordinator.len()),
            ("branches that are open", self.branches.len()),
            ("coordinators of branches", coordinators),
            ("branches that are over", over),
            ("epochs that are not settled", live),
            ("final watermarks", finals),
            ("ends of epochs", ended),
            ("the node's epochs that are not settled", shared_live),
            ("the node's final watermarks", shared_finals),
            ("the node's ends of epochs", shared_ended),
            ("transactions that wait for the watermark", self.waits.len()),
            ("pieces and clocks of shards that are led", of_led(LeaderShard::pending)),
            ("entries that are not decided", of_led(LeaderShard::undecided)),
            ("keys with overwritten versions", of_led(LeaderShard::overwritten_keys)),
            ("pieces that wait to be replayed", of_followed(FollowerReplay::pending)),
            ("entries that are not stable", of_followed(|it| it.stable().ahead())),
            ("ends of epochs in streams", of_followed(|it| it.extent().ends.len())),
            ("claims of copies", floors.sum()),
            ("undecided versions", undecided.sum()),
            ("requests that are deferred", self.deferred.len()),
            ("what goes on in another step", self.paused.len()),
            ("sweeps", self.collections.len()),
            ("copies given", self.snapshot_senders.sizes()[0]),
            ("copies taken", self.snapshot_receivers.size()),
        ];
        let mut sizes = self.runtime.sizes();
        sizes.extend(own);
        sizes
    }

    /// The values of [`SHARD_METRICS`].
    pub(crate) fn shard_numbers(&self, shard: ShardId) -> [Option<u64>; SHARD_METRICS.len()] {
        let epoch = self.runtime.worker_context.epoch.get();
        let watermark = self.watermarks.borrow().of(epoch, shard).0;
        let is_held = self.runtime.worker_context.leaderships.holds(shard);
        let replica = self.shared.replica(shard).filter(|_| is_held);
        let leads = self.leader_shards.leading().any(|(_, led)| led.lead.shard == shard);
        let reached = replica.map(|replica| replica.reached().0);
        let drawn = replica.filter(|_| leads).map(|replica| replica.store.clock().0);
        let undurable = drawn.map(|drawn| drawn.saturating_sub(watermark));
        let unapplied = reached.filter(|_| !leads).map(|reached| watermark.saturating_sub(reached));
        [Some(watermark), reached, drawn, undurable, unapplied]
    }
}
