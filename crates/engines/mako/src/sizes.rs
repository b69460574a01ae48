//! How much each table of a worker holds, for tests that show that none grows for ever.

use super::Mako;
use super::follower_replay::FollowerReplay;
use super::leader_shard::LeaderShard;
use super::undecided::UndecidedVersions;

impl Mako {
    /// See [`Engine::sizes`](shoal_engine::Engine::sizes).
    pub(super) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
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
}
