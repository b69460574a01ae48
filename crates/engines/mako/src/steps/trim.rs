//! Versions that were overwritten are freed once the stamp of what overwrote them is covered, remote entries too: see
//! [`TrimQueue`](shoal_store::TrimQueue).

use crate::Mako;
use crate::planted_bugs::MakoPlantedBug;

impl Mako {
    /// Frees the versions that were overwritten by what the watermark covers by now, on each own shard as many as a step may.
    /// Those that are left have their turn in another step; until then they only take memory.
    pub(crate) fn trim(&mut self) {
        let worker_context = &self.runtime.worker_context;
        let watermarks = self.watermarks.borrow();
        let is_early = self.shared.setup.options.faults.has(MakoPlantedBug::TrimUncovered);
        for (own, led) in worker_context.own.iter().zip(self.leader_shards.iter_mut()) {
            let (shard, queue) = (own.shard, led.overwritten());
            let is_due = |epoch, clock| {
                is_early || watermarks.is_settled(epoch) || watermarks.of(epoch, shard) >= clock
            };
            if !queue.first().is_some_and(|(epoch, clock)| is_due(epoch, clock)) {
                continue;
            }
            // All sessions are in use: there will be some again.
            let Ok(mut session) = own.sessions.take() else { continue };
            session.trim(queue, worker_context.limits.step_keys_max, is_due, |stamp| {
                is_early || watermarks.covers(shard, stamp)
            });
        }
    }
}
