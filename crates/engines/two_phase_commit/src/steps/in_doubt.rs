//! Prepared branches whose coordinator is gone: they keep their locks, and the leader of their home shard is asked for the
//! decision until it answers (rule P7; Mohan, Lindsay and Obermarck call it the *inquiry* of a subordinate).
//!
//! ```text
//!  found prepared by a new leader ─┐                        locked, and decided
//!                                  ├─► in doubt ── Inquiry ─────────────────────► installed or dropped,
//!  its coordinator is gone ────────┘     │    ◄─── Decision                       outcome in the stream
//!                                        └─ also sent without an inquiry
//! ```

use crate::branch::TwoPhaseCommitBranch;
use crate::in_doubt_branch::{DecidedBranch, InDoubt};
use crate::leader_log::RecordWaiter;
use crate::message::{DecisionHome, Participant};
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::sliced_work::Installing;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use shoal_engine::engine::EngineEffect;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Error, NodeId, ShardId};

impl TwoPhaseCommit {
    /// Goes on with registering the keys of what is in doubt at this place, `left` at most, if that is not over. Says
    /// whether it is.
    fn register_in_doubt(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) -> bool {
        if self.streams[at].has_registered() {
            return true;
        }
        let before = *left;
        let is_over = self.streams[at].register_keys(&self.shared.in_doubt[at], left);
        self.runtime.worker_context.worked(before - *left);
        if is_over {
            self.runtime.nudge_others(effects);
        }
        is_over
    }

    /// Registers the keys of what is in doubt, then takes its locks, as far as it is its turn, and resolves what is decided,
    /// by `left` keys at most. Says whether all is locked or resolved.
    ///
    /// # Panics
    /// Where the store does not take what a former leader has prepared: the shard cannot be served without it.
    pub(crate) fn lock_in_doubt(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) -> bool {
        let since = self.streams[at].log().since();
        if !self.register_in_doubt(at, left, effects)
            || !self.shared.in_doubt[at].is_complete(since)
        {
            return false;
        }
        let (ignores, before) = (self.ignores_undecided(), *left);
        let skips = |branch: &InDoubt| ignores && !branch.is_decided();
        let (keys, stream) = (&self.shared.in_doubt[at], &mut self.streams[at]);
        for _ in 0..stream.branches_to_lock(keys) {
            if *left == 0 {
                break;
            }
            match stream.lock_next(keys, skips, left) {
                // A dropped transaction is rolled back in slices and still holds a lock, a table was dropped since, or all
                // sessions of the store are in use: all of that ends.
                (_, Ok(()) | Err(Error::Aborted(_))) => {}
                (transaction, Err(error)) => {
                    let shard = stream.shard();
                    panic!(
                        "P7: {transaction} is prepared on {shard}, and cannot be locked: {error}"
                    )
                }
            }
        }
        self.runtime.worker_context.worked(before - *left);
        let in_doubt = stream.in_doubt();
        let are_locked = in_doubt.are_locked()
            || (ignores && in_doubt.iter().all(|(_, it)| it.is_locked() || skips(it)));
        self.resolve_decided(at, left, effects);
        are_locked
    }

    /// Whether shards are served though undecided branches do not hold their locks.
    pub(crate) fn ignores_undecided(&self) -> bool {
        self.options().faults.has(TwoPhaseCommitPlantedBug::ServeWithoutRecoveredLocks)
    }

    /// Installs or drops the branches at this place that are locked and decided, or begins to, by `left` keys at most. A
    /// branch counts as one key at least.
    pub(crate) fn resolve_decided(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        while *left > 0
            && let Some(decided) = self.streams[at].take_decided()
        {
            let DecidedBranch { transaction, clock, home, writes, locked, is_committed } = decided;
            let keys = locked.size().writes;
            if is_committed {
                let outcome = RecordWaiter::Outcome(transaction, home.shard);
                let (next, outcome, in_doubt) = (0, Some(outcome), Some(writes));
                self.begin_to_install(
                    Installing { at, transaction, locked, clock, outcome, next, in_doubt },
                    *left,
                    effects,
                );
            } else {
                self.drop_locked(at, transaction, locked, clock, true, effects);
                self.streams[at].end_in_doubt(clock, writes);
            }
            *left -= keys.clamp(1, *left);
        }
    }

    /// Takes out the keys of what is resolved at this place, `left` at most.
    pub(crate) fn resolve_keys(
        &mut self,
        at: usize,
        left: &mut usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        if !self.streams[at].has_resolved_keys() {
            return;
        }
        let before = *left;
        self.streams[at].resolve_keys(&self.shared.in_doubt[at], left);
        self.runtime.worker_context.worked(before - *left);
        self.runtime.nudge_others(effects);
    }

    /// Records the decision on a transaction that is prepared on the shard at this place, or was. A branch in doubt is
    /// resolved with the others that are decided, in this step or a later one.
    pub(crate) fn learn(
        &mut self,
        at: usize,
        transaction: TransactionId,
        home: ShardId,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.streams[at].shard();
        if self.streams[at].in_doubt().get(transaction).is_none()
            && let Some(TwoPhaseCommitBranch::Prepared { home: own, durable, valid, .. }) =
                self.branches.get(transaction, shard)
            && own.shard == home
        {
            if committed && !(*durable && *valid) {
                self.runtime.counters.dropped += 1; // Nothing was decided yet that needs it.
                return;
            }
            self.leave_prepared(at, transaction);
        }
        match self.streams[at].in_doubt().get(transaction) {
            Some(branch) if branch.home().shard != home => self.runtime.counters.dropped += 1,
            Some(_) => self.streams[at].decide(transaction, committed),
            // Its outcome is in an entry. If that is not durable, the decision comes again.
            None if committed && self.streams[at].replay().may_be_committed(transaction) => {
                self.acknowledge(transaction, home, shard, effects);
            }
            None => {}
        }
    }

    /// The outcome of a committed transaction is durable on `shard`: the leader of its home shard need not send it again.
    pub(crate) fn acknowledge(
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

    /// A prepared branch on the shard at this place is without a coordinator from now on.
    pub(crate) fn leave_prepared(&mut self, at: usize, transaction: TransactionId) {
        let shard = self.streams[at].shard();
        let branch = self.branches.end(transaction, shard);
        let Some(TwoPhaseCommitBranch::Prepared { locked, clock, home, .. }) = branch else {
            panic!("P7: {transaction} is not prepared on {shard}")
        };
        self.streams.leave(at, transaction, locked, clock, home);
    }

    /// Asks for the decision on a transaction that is prepared on the shard at this place.
    pub(crate) fn inquire(
        &mut self,
        at: usize,
        transaction: TransactionId,
        home: DecisionHome,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let stream = &self.streams[at];
        let participant = Participant { shard: stream.shard(), leadership: stream.log().since() };
        let to = self.runtime.worker_context.leader(home.shard);
        if to == self.runtime.worker_context.place.node {
            return self.answer_inquiry(to, transaction, home, participant, effects);
        }
        let message = TwoPhaseCommitMessage::Inquiry { transaction, home, participant };
        effects.push(EngineEffect::Send { to: self.runtime.peer(to), message });
    }

    /// The leader of the home shard, which may be this node, has sent a decision.
    pub(crate) fn receive_decision(
        &mut self,
        transaction: TransactionId,
        home: ShardId,
        participant: Participant,
        committed: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let is_meant = |at: &usize| {
            let stream = &self.streams[*at];
            stream.has_begun() && stream.log().since() == participant.leadership
        };
        match self.streams.led_at(participant.shard).filter(is_meant) {
            Some(at) => self.learn(at, transaction, home, committed, effects),
            None => self.runtime.counters.dropped += 1,
        }
    }

    /// Sends a participant a decision. One on a branch that this node leads itself is recorded, and handled in slices like
    /// those of other nodes.
    pub(crate) fn send_decision(
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
