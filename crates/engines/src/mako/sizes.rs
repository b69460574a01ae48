//! How much each table of a worker holds, for tests that show that none grows for ever.

use super::Mako;
use super::followed::Followed;
use super::led::Led;
use super::undecided::Undecided;

impl Mako {
    /// See [`Engine::sizes`](crate::Engine::sizes).
    pub(super) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let [coordinators, over] = self.branches.sizes();
        let [live, finals, ended] = self.desk.hub.watermarks.borrow().sizes();
        let [shared_live, shared_finals, shared_ended] = self.shared.epochs.sizes();
        let awaiting = self.live.iter().map(|live| live.awaiting.len());
        let of_led = |count: fn(&Led) -> usize| self.led.iter().map(count).sum();
        let of_followed = |count: fn(&Followed) -> usize| self.followed.iter().map(count).sum();
        let floors = self.shared.replicas.iter().map(|replica| replica.floor().len());
        let undecided = self.shared.undecided.iter().map(Undecided::len);
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
            ("transactions that wait for the watermark", awaiting.sum()),
            ("pieces and clocks of shards that are led", of_led(Led::pending)),
            ("entries that are not decided", of_led(Led::undecided)),
            ("pieces that wait to be replayed", of_followed(Followed::pending)),
            ("entries that are not absorbed", of_followed(|it| it.absorbed.ahead())),
            ("ends of epochs in streams", of_followed(|it| it.extent.ends.len())),
            ("claims of copies", floors.sum()),
            ("undecided versions", undecided.sum()),
            ("requests that are parked", self.parked.len()),
            ("what goes on in another step", self.paused.len()),
            ("sweeps", self.sweeps.len()),
            ("copies given", self.givings.len()),
            ("copies taken", self.takings.len()),
        ];
        let mut sizes = self.desk.sizes();
        sizes.extend(own);
        sizes
    }
}
