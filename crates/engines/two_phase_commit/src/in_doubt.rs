//! Prepared branches whose coordinator is gone: they keep their locks, and the leader of their home shard is asked for the
//! decision until it answers (rule P7; Mohan, Lindsay and Obermarck call it the *inquiry* of a subordinate).
//!
//! ```text
//!  found prepared by a new leader ─┐                        locked, and decided
//!                                  ├─► in doubt ── Inquiry ─────────────────────► installed or dropped,
//!  its coordinator is gone ────────┘     │    ◄─── Decision                       outcome in the stream
//!                                        └─ also sent without an inquiry
//! ```

use super::branch::{TwoPhaseCommitBranch, ended};
use super::branch_writes::BranchWrites;
use super::in_doubt_branch::{InDoubt, InDoubtLocks, LockTurns};
use super::leader_log::RecordWaiter;
use super::message::Participant;
use super::sliced_work::Installing;
use super::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_engine::engine::EngineEffect;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::in_flight_clocks::InFlight;
use shoal_types::{Clock, Error, NodeId, ShardId, Time};

impl TwoPhaseCommit {
    /// All that was inherited of the stream at this place is decided: what is prepared there is in doubt.
    pub(super) fn find_in_doubt(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let shard = self.leader_logs[at].lead.shard;
        let now = self.runtime.worker_context.now.get();
        for (transaction, branch) in self.prepared_replays[at].prepared() {
            let clock = branch.clock;
            let flight = InFlight { transaction, epoch: FIRST_EPOCH, since: now, resolved: false };
            self.leader_logs[at].lead.begin_in_flight(clock, flight);
            self.in_doubt[at].insert(transaction, InDoubt::recovered(branch));
            effects.observe(|| TwoPhaseCommitObservation::Recovered { transaction, shard, clock });
        }
        let found = self.in_doubt[at].iter();
        let found = found.map(|(_, branch)| (branch.clock, branch.writes.clone())).collect();
        self.in_doubt_keys[at].begin(found);
        self.inquire_at = Time::ZERO;
    }

    /// Goes on with registering the keys of what is in doubt at this place, `left` at most, if that is not over. Says
    /// whether it is.
    fn register_in_doubt(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) -> bool {
        let (since, before) = (self.leader_logs[at].since(), *left);
        let (own, shared) = (&mut self.in_doubt_keys[at], &self.shared.in_doubt[at]);
        if own.is_registered {
            return true;
        }
        own.to_register.go_on(left, |clock, writes| shared.register(since, clock, writes));
        self.runtime.worker_context.worked(before - *left);
        if !own.to_register.is_empty() {
            self.goes_on_locking = true;
            return false;
        }
        own.is_registered = true;
        shared.complete(since);
        self.runtime.nudge_others(effects);
        true
    }

    /// Registers the keys of what is in doubt, then takes its locks, as far as it is its turn, and resolves what is decided,
    /// by `left` keys at most. Says whether all is locked or resolved.
    ///
    /// # Panics
    /// Where the store does not take what a former leader has prepared: the shard cannot be served without it.
    pub(super) fn lock_in_doubt(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) -> bool {
        let since = self.leader_logs[at].since();
        if !self.register_in_doubt(at, left, effects)
            || !self.shared.in_doubt[at].is_complete(since)
        {
            return false;
        }
        let (ignores, before) = (self.ignores_undecided(), *left);
        let skips = |branch: &InDoubt| ignores && branch.committed.is_none();
        let keys = &self.shared.in_doubt[at];
        let sessions = &self.prepared_replays[at].sessions;
        let turns = LockTurns { keys, leadership: since, sessions };
        let branches = &mut self.in_doubt[at];
        for _ in 0..branches.retry_waiting(keys.resolved(since)) {
            if *left == 0 {
                break;
            }
            match branches.lock_next(&turns, skips, left) {
                (_, Ok(())) => {}
                // A dropped transaction is rolled back in slices and still holds a lock, a table was dropped since, or all
                // sessions of the store are in use: all of that ends.
                (_, Err(Error::Aborted(_))) => self.retries_locks = true,
                (transaction, Err(error)) => {
                    let shard = self.leader_logs[at].lead.shard;
                    panic!(
                        "P7: {transaction} is prepared on {shard}, and cannot be locked: {error}"
                    )
                }
            }
        }
        self.goes_on_locking |= *left == 0 && branches.has_to_lock();
        self.runtime.worker_context.worked(before - *left);
        let are_locked = branches.are_locked()
            || (ignores && branches.iter().all(|(_, it)| it.is_locked() || skips(it)));
        self.resolve_decided(at, left, effects);
        are_locked
    }

    /// Whether shards are served though undecided branches do not hold their locks.
    fn ignores_undecided(&self) -> bool {
        self.options().faults.has(TwoPhaseCommitPlantedBug::ServeWithoutRecoveredLocks)
    }

    /// Installs or drops the branches at this place that are locked and decided, or begins to, by `left` keys at most. A
    /// branch counts as one key at least.
    pub(super) fn resolve_decided(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        while *left > 0
            && let Some((transaction, branch)) = self.in_doubt[at].take_decided()
        {
            let InDoubt { clock, home, writes, locks, committed, .. } = branch;
            let InDoubtLocks::Locked(locked) = locks else {
                panic!("P7: {transaction} is resolved before it is locked")
            };
            let keys = locked.size().writes;
            if committed.expect("it is decided") {
                let outcome = RecordWaiter::Outcome(transaction, home.shard);
                let (next, outcome, in_doubt) = (0, Some(outcome), Some(writes));
                self.begin_to_install(
                    Installing { at, transaction, locked, clock, outcome, next, in_doubt },
                    *left,
                    effects,
                );
            } else {
                self.drop_locked(at, transaction, locked, clock, true, effects);
                self.end_in_doubt(at, clock, writes);
            }
            *left -= keys.clamp(1, *left);
        }
        self.goes_on_locking |= self.in_doubt[at].has_decided();
    }

    /// A branch that a former leader has prepared is resolved: it is the turn of the next on its keys, as soon as these are
    /// taken out.
    pub(super) fn end_in_doubt(&mut self, at: usize, clock: Clock, writes: BranchWrites) {
        if !writes.is_empty() {
            self.in_doubt_keys[at].to_resolve.push(clock, writes);
            self.goes_on_locking = true;
        }
    }

    /// Takes out the keys of what is resolved at this place, `left` at most.
    pub(super) fn resolve_keys(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let (since, before) = (self.leader_logs[at].since(), *left);
        let (own, shared) = (&mut self.in_doubt_keys[at].to_resolve, &self.shared.in_doubt[at]);
        if own.is_empty() {
            return;
        }
        own.go_on(left, |clock, writes| shared.resolve(since, clock, writes));
        self.goes_on_locking |= !own.is_empty();
        self.runtime.worker_context.worked(before - *left);
        self.runtime.nudge_others(effects);
    }

    /// Records the decision on a transaction that is prepared on the shard at this place, or was. A branch in doubt is
    /// resolved with the others that are decided, in this step or a later one.
    pub(super) fn learn(
        &mut self,
        at: usize,
        transaction: TransactionId,
        home: ShardId,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.leader_logs[at].lead.shard;
        if self.in_doubt[at].get(transaction).is_none()
            && let Some(TwoPhaseCommitBranch::Prepared { home: own, durable, valid, .. }) =
                self.branches.context_mut(transaction, shard)
            && own.shard == home
        {
            if committed && !(*durable && *valid) {
                self.runtime.counters.dropped += 1; // Nothing was decided yet that needs it.
                return;
            }
            self.leave_prepared(at, |id| id == transaction);
        }
        match self.in_doubt[at].get(transaction) {
            Some(branch) if branch.home.shard != home => self.runtime.counters.dropped += 1,
            Some(_) => {
                self.in_doubt[at].decide(transaction, committed);
                self.goes_on_locking = true;
            }
            // Its outcome is in an entry. If that is not durable, the decision comes again.
            None if committed && self.prepared_replays[at].may_be_committed(transaction) => {
                self.acknowledge(transaction, home, shard, effects);
            }
            None => {}
        }
    }

    /// The outcome of a committed transaction is durable on `shard`: the leader of its home shard need not send it again.
    pub(super) fn acknowledge(
        &mut self,
        transaction: TransactionId,
        home: ShardId,
        shard: ShardId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let to = self.runtime.worker_context.leader(home);
        if to == self.runtime.worker_context.place.node {
            return self.acknowledged(transaction, shard);
        }
        let message = TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard };
        effects.push(EngineEffect::Send { to: self.runtime.peer(to), message });
    }

    /// Prepared branches on the shard at this place of which that holds are without a coordinator from now on.
    pub(super) fn leave_prepared(&mut self, at: usize, left: impl Fn(TransactionId) -> bool) {
        let shard = self.leader_logs[at].lead.shard;
        let ended = Some(ended(shard));
        let over = self.branches.end(shard, &ended, |id, _, context| {
            matches!(context, TwoPhaseCommitBranch::Prepared { .. }) && left(id)
        });
        for (transaction, context) in over {
            if let TwoPhaseCommitBranch::Prepared { locked, clock, home, .. } = context {
                self.in_doubt[at].insert(transaction, InDoubt::left(locked, clock, home));
            }
        }
        self.inquire_at = Time::ZERO;
    }

    /// Asks for the decisions on what is in doubt, and on what has been prepared for long without one.
    pub(super) fn inquire(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        if now < self.inquire_at {
            return;
        }
        let (again, long) = (self.options().inquire_every, self.options().inquire_after);
        let mut next = Time::MAX;
        let mut asked = Vec::new();
        for at in 0..self.in_doubt.len() {
            for (transaction, branch) in self.in_doubt[at].iter_mut() {
                if branch.committed.is_some() {
                    continue;
                }
                if branch.ask_at <= now {
                    branch.ask_at = now + again;
                    asked.push((at, transaction, branch.home));
                }
                next = next.min(branch.ask_at);
            }
        }
        for (transaction, shard, context) in self.branches.open() {
            if let TwoPhaseCommitBranch::Prepared { home, since, .. } = context
                && let Some(at) = self.led_at(shard)
            {
                let due = *since + long;
                if due <= now {
                    asked.push((at, transaction, *home));
                }
                next = next.min(due.max(now + again));
            }
        }
        self.inquire_at = next;
        for (at, transaction, home) in asked {
            let log = &self.leader_logs[at];
            let participant = Participant { shard: log.lead.shard, leadership: log.since() };
            let to = self.runtime.worker_context.leader(home.shard);
            if to == self.runtime.worker_context.place.node {
                self.answer_inquiry(to, transaction, home, participant, effects);
            } else {
                let message = TwoPhaseCommitMessage::Inquiry { transaction, home, participant };
                effects.push(EngineEffect::Send { to: self.runtime.peer(to), message });
            }
        }
    }

    /// The leader of the home shard, which may be this node, has sent a decision.
    pub(super) fn receive_decision(
        &mut self,
        transaction: TransactionId,
        home: ShardId,
        participant: Participant,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let began = |at: &usize| {
            let state = self.leader_logs[*at].leader_state;
            state.is_some_and(|it| it.began && it.since == participant.leadership)
        };
        match self.led_at(participant.shard).filter(began) {
            Some(at) => self.learn(at, transaction, home, committed, effects),
            None => self.runtime.counters.dropped += 1,
        }
    }

    /// Sends a participant a decision. One on a branch that this node leads itself is recorded, and handled in slices like
    /// those of other nodes.
    pub(super) fn send_decision(
        &mut self,
        to: NodeId,
        transaction: TransactionId,
        home: ShardId,
        participant: Participant,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        if to == self.runtime.worker_context.place.node {
            return self.receive_decision(transaction, home, participant, committed, effects);
        }
        let message = TwoPhaseCommitMessage::Decision { transaction, home, participant, committed };
        effects.push(EngineEffect::Send { to: self.runtime.peer(to), message });
    }
}
