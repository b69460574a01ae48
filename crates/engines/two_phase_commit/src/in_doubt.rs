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
use super::branch_writes::{BranchPlace, BranchWrites};
use super::in_doubt_branch::{InDoubt, InDoubtLocks};
use super::leader_log::RecordWaiter;
use super::message::Participant;
use super::sliced_work::Installing;
use super::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_engine::engine::EngineEffect;
use shoal_engine::replication::in_flight_clocks::InFlight;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Transaction;
use shoal_types::{Clock, NodeId, Result, ShardId, Time};

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
        let found = self.in_doubt[at].values();
        let found = found.map(|branch| (branch.clock, branch.writes.clone())).collect();
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

    /// Registers the keys of what is in doubt, then takes its locks, as far as it is its turn: as many as a step may. Resolves
    /// what is decided. Says whether all is locked or resolved.
    pub(super) fn lock_in_doubt(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) -> bool {
        let since = self.leader_logs[at].since();
        let mut left = self.options().limits.step_keys_max;
        if !self.register_in_doubt(at, &mut left, effects)
            || !self.shared.in_doubt[at].is_complete(since)
        {
            return false;
        }
        let ignores =
            self.options().faults.has(TwoPhaseCommitPlantedBug::ServeWithoutRecoveredLocks);
        let open = self.in_doubt[at].iter().filter(|(_, branch)| !branch.is_locked());
        let open: Vec<TransactionId> = open.map(|(transaction, _)| *transaction).collect();
        let (mut all, mut any, mut blocked) = (true, false, false);
        for transaction in open {
            if ignores && self.in_doubt[at][&transaction].committed.is_none() {
                continue;
            }
            if left == 0 {
                (all, self.goes_on_locking) = (false, true);
                break;
            }
            match self.lock_some_in_doubt(at, transaction, &mut left) {
                Ok(true) => {
                    self.resolve_in_doubt(at, transaction, effects);
                    any = true;
                }
                // Its turn is to come, or the next slice.
                Ok(false) => all = false,
                // Another worker still replays what is beside it.
                Err(_) => (all, blocked) = (false, true),
            }
        }
        self.retries_locks |= blocked || (any && !all);
        all
    }

    /// Goes on with the locks of a branch in doubt if it is its turn, by `left` keys at most. Says whether it has all.
    fn lock_some_in_doubt(
        &mut self,
        at: usize,
        transaction: TransactionId,
        left: &mut usize,
    ) -> Result<bool> {
        let since = self.leader_logs[at].since();
        let branch = self.in_doubt[at].get_mut(&transaction).expect("its caller has seen it");
        let waiting = InDoubtLocks::Waiting(BranchPlace::default());
        let mut locks = std::mem::replace(&mut branch.locks, waiting);
        // Where an error ends it, it begins again.
        while *left > 0 && !matches!(locks, InDoubtLocks::Locked(_)) {
            locks = match locks {
                InDoubtLocks::Waiting(mut place) => {
                    let (keys, before) = (&self.shared.in_doubt[at], *left);
                    let is_turn =
                        keys.follow_turn(since, branch.clock, &branch.writes, &mut place, left);
                    self.runtime.worker_context.worked(before - *left);
                    if !is_turn {
                        branch.locks = InDoubtLocks::Waiting(place);
                        self.goes_on_locking |= *left == 0;
                        return Ok(false);
                    }
                    let session = self.prepared_replays[at].sessions.take()?;
                    InDoubtLocks::Writing(Transaction::on(session), BranchPlace::default())
                }
                InDoubtLocks::Writing(writing, mut place) => {
                    match branch.writes.next_from(&mut place, *left) {
                        Some(slice) => {
                            for write in slice {
                                writing.replicate(
                                    write.table,
                                    &write.key,
                                    write.value.as_deref(),
                                )?;
                            }
                            self.runtime.worker_context.worked(slice.len());
                            *left -= slice.len();
                            InDoubtLocks::Writing(writing, place)
                        }
                        None => InDoubtLocks::Locking(writing.locking()),
                    }
                }
                InDoubtLocks::Locking(mut locking) => {
                    let is_over = locking.lock_some(*left)?;
                    let (locks, keys) = match is_over {
                        true => {
                            let locked = locking.locked();
                            let keys = locked.size().writes.min(*left);
                            (InDoubtLocks::Locked(locked), keys)
                        }
                        false => (InDoubtLocks::Locking(locking), *left),
                    };
                    self.runtime.worker_context.worked(keys);
                    *left -= keys;
                    locks
                }
                locked @ InDoubtLocks::Locked(_) => locked,
            };
        }
        branch.locks = locks;
        self.goes_on_locking |= !branch.is_locked();
        Ok(branch.is_locked())
    }

    /// Installs or drops a branch in doubt that is locked and whose decision is known, or begins to.
    fn resolve_in_doubt(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let it = &self.in_doubt[at][&transaction];
        let (true, Some(committed)) = (it.is_locked(), it.committed) else { return };
        let it = self.in_doubt[at].remove(&transaction).expect("seen above");
        let InDoubt { clock, home, writes, locks, .. } = it;
        let InDoubtLocks::Locked(locked) = locks else { unreachable!("seen above") };
        if committed {
            let outcome = RecordWaiter::Outcome(transaction, home.shard);
            let (next, outcome, in_doubt) = (0, Some(outcome), Some(writes));
            return self.begin_to_install(
                Installing { at, transaction, locked, clock, outcome, next, in_doubt },
                effects,
            );
        }
        self.drop_locked(at, transaction, locked, clock, true, effects);
        self.end_in_doubt(at, clock, writes);
    }

    /// A branch that a former leader has prepared is resolved: it is the turn of the next on its keys, as soon as these are
    /// taken out.
    pub(super) fn end_in_doubt(&mut self, at: usize, clock: Clock, writes: BranchWrites) {
        if !writes.is_empty() {
            self.in_doubt_keys[at].to_resolve.push(clock, writes);
            self.goes_on_locking = true;
        }
    }

    /// Takes out the keys of what is resolved at this place, as many as a step may.
    pub(super) fn resolve_keys(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let (since, most) = (self.leader_logs[at].since(), self.options().limits.step_keys_max);
        let (own, shared) = (&mut self.in_doubt_keys[at].to_resolve, &self.shared.in_doubt[at]);
        if own.is_empty() {
            return;
        }
        let mut left = most;
        own.go_on(&mut left, |clock, writes| shared.resolve(since, clock, writes));
        self.goes_on_locking |= !own.is_empty();
        self.runtime.worker_context.worked(most - left);
        self.runtime.nudge_others(effects);
    }

    /// The decision on a transaction that is prepared on the shard at this place, or was.
    pub(super) fn learn(
        &mut self,
        at: usize,
        transaction: TransactionId,
        home: ShardId,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.leader_logs[at].lead.shard;
        if !self.in_doubt[at].contains_key(&transaction)
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
        match self.in_doubt[at].get_mut(&transaction) {
            Some(branch) if branch.home.shard != home => self.runtime.counters.dropped += 1,
            Some(branch) => {
                assert!(
                    branch.committed.is_none_or(|before| before == committed),
                    "P8: {transaction} was decided in two ways"
                );
                branch.committed = Some(committed);
                match branch.is_locked() {
                    true => self.resolve_in_doubt(at, transaction, effects),
                    // Resolved with its turn, which may be now.
                    false => _ = self.lock_in_doubt(at, effects),
                }
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
            for (transaction, branch) in &mut self.in_doubt[at] {
                if branch.committed.is_some() {
                    continue;
                }
                if branch.ask_at <= now {
                    branch.ask_at = now + again;
                    asked.push((at, *transaction, branch.home));
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

    /// A decision came from another node.
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

    /// Sends a participant a decision.
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
