//! The work that is due after a step has handled its event: each part of a worker's state reports whether it has something
//! due, and other parts are not visited. The timer is set to the first time at which a part has something due.

use crate::follower_replays::FollowerReplays;
use crate::live_epochs::LiveEpoch;
use crate::{Mako, MakoEffects};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::limits::TURN;
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_types::Time;

impl Mako {
    /// Goes on with what time, this event or another worker has made due: nothing else is visited.
    pub(crate) fn go_on_where_due(
        &mut self,
        now: Time,
        holds_lease: bool,
        effects: &mut MakoEffects,
    ) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // Before recovery goes on, which waits for it: nothing else may wake this worker.
        if self.follower_replays.is_left() {
            self.replay_blocked(effects);
        }
        if self.leader_shards.is_recovering() {
            // Twice: an entry that is appended here may be the last that says how an epoch ended.
            for _ in 0..2 {
                if holds_lease {
                    // What this event or another worker has brought counts: what is committed is replayed, not inherited.
                    self.release(effects);
                }
                self.recover_all(effects);
            }
        }
        if holds_lease {
            if !self.deferred.is_empty() {
                self.serve_deferred(now, effects);
            }
            if is_due(self.next_expiry()) {
                self.expire(now, effects);
            }
            if !self.paused.is_empty() {
                self.go_on(effects);
            }
            self.run(now, effects);
        }
        self.trim();
        if self.follower_replays.is_unstable() {
            self.replay(FollowerReplays::stabilize);
        }
        if self.snapshot_senders.is_due(now, self.runtime.worker_context.limits.retry_after) {
            self.give(now, effects);
        }
        if let Some(part) = self.checkpoint_copy.next_part(now) {
            self.give_part(now, &part, effects);
        }
        if is_due(self.collections.next_due()) {
            self.collection(now, effects);
        }
        if self.may_forget_finals() {
            self.forget_finals();
        }
        if self.failure_detector.may_ask(self.runtime.worker_context.epoch.get()) {
            self.ask_to_close(now, effects);
        }
        if is_due(self.group_due()) {
            self.close_group(effects);
        }
        let overdue = self.overdue(now);
        if self.leader_shards.leading_place(0).is_some() {
            self.close_batches(now, overdue, effects);
        }
        if self.epochs.may_have_branches(overdue) {
            self.end_overdue(overdue, effects);
        }
        self.tell_watermark(now, effects);
    }

    /// The invariants that each part of a worker's state asserts after a step.
    pub(crate) fn assert_invariants(&self) {
        self.epochs.assert_invariants(self.runtime.worker_context.epoch.get());
        self.waits.assert_invariants(self.epochs.iter().map(LiveEpoch::epoch));
        self.gossip.assert_invariants(self.runtime.worker_context.place.node);
        self.failure_detector.assert_invariants(self.runtime.worker_context.epoch.get());
        self.leader_shards.assert_invariants();
        self.follower_replays.assert_invariants(self.runtime.worker_context.place.worker);
        self.deferred.assert_invariants(&self.runtime.worker_context.limits);
        self.collections.assert_invariants();
        self.snapshot_senders.assert_invariants();
        self.snapshot_receivers.assert_invariants();
    }

    /// Asks to come back when there will be something to do.
    pub(crate) fn set_timer(&mut self, now: Time, effects: &mut MakoEffects) {
        let options = &self.shared.setup.options;
        let led = self.leader_shards.leading().filter_map(|(_, led)| {
            led.next_due(self.shared.replica(led.lead.shard).expect("led"), options)
        });
        // Without a lease nothing runs; when there is one again, that wakes this worker.
        let runs = self.holds_lease(now);
        let others = [
            self.runtime.next_due().filter(|_| runs),
            self.next_expiry().filter(|_| runs),
            (!self.paused.is_empty()).then(|| now + TURN).filter(|_| runs),
            self.runtime.next_ending(),
            self.next_silence(now),
            self.next_stall(now),
            self.follower_replays.next_due(now),
            self.gossip.next_due(&self.watermarks.borrow(), options),
            self.next_overdue(now),
            self.group_due(),
            self.collections.next_due(),
            self.next_given(),
            self.checkpoint_copy.next_due(),
            self.deferred.next_due().filter(|_| runs),
        ];
        if let Some(at) = led.chain(others.into_iter().flatten()).min() {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }
}
