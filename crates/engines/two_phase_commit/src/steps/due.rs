//! The work that is due after a step has handled its event: each part of a worker's state reports whether it has something
//! due, and other parts are not visited. The timer is set to the first time at which a part has something due.

use crate::leader_log::ClosedRecords;
use crate::observation::TwoPhaseCommitObservation;
use crate::{BLOCKED_FOR, TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::limits::TURN;
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_types::Time;

impl TwoPhaseCommit {
    /// Goes on with what time, this event or another worker has made due: nothing else is visited.
    pub(crate) fn go_on_where_due(
        &mut self,
        now: Time,
        holds_lease: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if self.sliced.is_installing() {
            self.install_more(effects);
        }
        self.replay_active(effects);
        if self.senders.is_due(now, self.runtime.worker_context.limits.retry_after) {
            self.give(now, effects);
        }
        if let Some(part) = self.checkpoint_copy.next_part(now) {
            self.give_part(now, &part, effects);
        }
        self.recover_active(effects);
        if holds_lease {
            if !self.deferred.is_empty() {
                self.serve_deferred(now, effects);
            }
            if is_due(self.runtime.next_expiry())
                || is_due(self.coordinator.next_overdue(&self.runtime.worker_context))
            {
                self.expire(now, effects);
            }
            if self.sliced.is_paused() {
                self.go_on_paused(effects);
            }
            self.run(now, effects);
        }
        if is_due(self.branches.next_due()) {
            self.visit_due_branches(now, effects);
        }
        if is_due(self.streams.next_resend()) {
            self.send_again(now, effects);
        }
        let batch_due = self.close_batches(now, effects);
        self.set_timer(now, batch_due, effects);
    }

    /// The invariants that each part of a worker's state asserts after a step.
    pub(crate) fn assert_invariants(&mut self) {
        self.streams.end_step(self.ignores_undecided());
        self.sliced.assert_invariants(|at| self.streams[at].has_begun());
        self.deferred.assert_invariants(&self.runtime.worker_context.limits);
        self.senders.assert_invariants();
        self.receivers.assert_invariants();
    }

    /// Proposes the batches and heartbeats whose time has come. Returns when the next one is due.
    fn close_batches(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) -> Option<Time> {
        let (mut next_due, mut from) = (None::<Time>, 0);
        while let Some(at) = self.streams.next_led(from) {
            let (replica, options) = (&self.shared.replicas[at], &self.shared.setup.options);
            if self.streams[at].log().is_due(now, replica, options) {
                let closed = self.streams[at].close(now, replica, options);
                self.propose(now, at, closed, effects);
            }
            let (replica, options) = (&self.shared.replicas[at], &self.shared.setup.options);
            let due = self.streams[at].log().next_due(replica, options);
            next_due = next_due.into_iter().chain(due).min();
            from = at + 1;
        }
        next_due
    }

    fn propose(
        &mut self,
        now: Time,
        at: usize,
        closed: ClosedRecords,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let ClosedRecords { entry, index, safe, clocks, is_heartbeat } = closed;
        let (shard, ballot) = (self.streams[at].shard(), self.streams[at].log().ballot());
        self.runtime.count_batch(entry.len());
        if is_heartbeat || now >= self.nudged_at + self.options().heartbeat {
            self.nudged_at = now;
            self.runtime.nudge_others(effects);
        }
        effects.observe(|| TwoPhaseCommitObservation::Appended {
            shard,
            ballot,
            index,
            safe,
            clocks,
        });
        effects.push(EngineEffect::Propose { shard, entry });
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(
        &mut self,
        now: Time,
        batch_due: Option<Time>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        // Without a lease nothing runs; when there is one again, that wakes this worker.
        let runs = self.holds_lease(now);
        let left = self.in_doubt_budget.left;
        let is_blocked = self.streams.active().any(|stream| stream.is_blocked());
        let is_sliced = self.sliced.is_installing()
            || self.streams.active().any(|stream| stream.is_sliced(left));
        let due = [
            batch_due,
            self.branches.next_due(),
            self.streams.next_resend(),
            self.runtime.next_due().filter(|_| runs),
            self.runtime.next_expiry().filter(|_| runs),
            self.deferred.next_due().filter(|_| runs),
            self.coordinator.next_overdue(&self.runtime.worker_context).filter(|_| runs),
            self.runtime.next_ending(),
            self.senders.next_due(self.runtime.worker_context.limits.retry_after),
            self.checkpoint_copy.next_due(),
            is_blocked.then(|| now + if self.budget.is_short() { TURN } else { BLOCKED_FOR }),
            is_sliced.then(|| now + TURN),
            self.sliced.is_paused().then(|| now + TURN).filter(|_| runs),
        ];
        if let Some(at) = due.into_iter().flatten().min() {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }

    /// The number of transactions and branches that go on in another step.
    pub(crate) fn sliced(&self) -> usize {
        let keys: usize = self.streams.iter().map(|stream| stream.keys_left()).sum();
        self.sliced.len() + keys
    }
}
