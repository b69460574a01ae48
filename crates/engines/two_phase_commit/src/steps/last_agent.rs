//! Two phases where the coordinator's node serves no shard: it keeps no decision, so one of the participants does, the *last
//! agent* (Samaras, Britton, Citron and Mohan, *Two-phase commit optimizations in a commercial distributed environment*,
//! Distributed and Parallel Databases 1995). Any node coordinates so, also one without replicas.
//!
//! ```text
//! coordinator            last agent (home)      participant on s2        streams
//!   lock       ──Lock────►  lock, draw 7
//!              ──Prepare─────────────────────►  lock, draw 31  ─────────► prepare record: home is the last agent's shard
//!   all are locked
//!   validate   ──Validate►  check reads ─────►  check reads
//!              ◄─Validated──────────────────── once the prepare record is durable
//!   all are prepared and valid
//!              ─DecideLast►  the decision, with what it writes itself ────► decision
//!              ◄─Committed  it is durable: install
//!   answer the client
//!              ──Commit──────────────────────►  install, release  ───────► outcome
//!              ◄─Resolved──────────────────────  it is durable
//!                           ◄─Acknowledgement──
//!                           all have it  ────────────────────────────────► end
//! ```
//! What the last agent writes is part of the decision and needs no prepare record, like what a coordinator writes on the home
//! shard of its own node. Home is the last agent's shard, under the leadership that has locked there: so prepared branches ask
//! where they always ask, and the rules are those of any home (P8, P9). What is particular:
//!
//! - The decision can come until the branch of the last agent is over. So *aborted* is answered under the leadership that is
//!   named only where that branch is over, or never came; it is refused then, however late it comes.
//! - From *DecideLast* on only the last agent knows the outcome. If it does not answer, or has been followed by another
//!   leader, the client receives *unknown*, and the coordinator sends nothing more to those that are prepared: they ask home.
//!   The coordinator has the last agent undo its branch, in case the request was lost: its locks are free as soon as that
//!   arrives. A decision is not undone.
//! - Home sends participants the decision when they have not acknowledged it for a while: their coordinator sends it first.

use crate::branch::TwoPhaseCommitBranch;
use crate::commit_progress::{CommitPhase, CommitPlan, CommitProgress};
use crate::message::{DecisionHome, TwoPhaseCommitRequest};
use crate::open_decisions::Delivery;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Error, ShardId};

/// The home of a transaction whose decision the participant of `shard` keeps.
pub(crate) fn last_agent(remote_branches: &RemoteBranches, shard: ShardId) -> DecisionHome {
    let leadership = remote_branches.with_remote(shard, |remote| remote.leader.since);
    DecisionHome { shard, leadership }
}

/// At the coordinator.
impl TwoPhaseCommit {
    /// Has the last agent append the decision: the other shards that have drawn a clock are prepared.
    pub(crate) fn decide_there(
        &mut self,
        it: &CommitProgress,
        shard: ShardId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let others = it.drawn.iter().map(|(drawer, _)| *drawer).filter(|drawer| *drawer != shard);
        let participants: Vec<ShardId> = others.collect();
        let request = |_| TwoPhaseCommitRequest::DecideLast { participants };
        self.runtime.send_next(&it.remote_branches, shard, request, effects);
    }

    /// Ends a transaction that has lost a participant which it needs: the leader there is another one, or does not answer.
    pub(crate) fn end_without(
        &mut self,
        it: CommitProgress,
        error: Error,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let may_be_decided =
            matches!((it.phase, it.plan), (CommitPhase::Deciding, CommitPlan::LastAgent(_)));
        match (
            may_be_decided
                && !self.options().faults.has(TwoPhaseCommitPlantedBug::AbortWhileDeciding),
            it.plan,
        ) {
            (true, CommitPlan::LastAgent(shard)) => {
                // Whether it is committed only the home shard knows, and those that are prepared ask there.
                self.release_last_agent(&it.remote_branches, shard, effects);
                self.runtime.finish(&it.remote_branches, Err(error));
            }
            _ => self.abort(it, error, effects),
        }
    }

    /// The last agent does not answer the request to decide. If that was lost, its locks need not be held until it takes the
    /// coordinator for silent: it is asked to undo its branch, repeatedly like every request. Where it has decided, that
    /// changes nothing.
    fn release_last_agent(
        &mut self,
        remote_branches: &RemoteBranches,
        shard: ShardId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let ignores = self.options().faults.has(TwoPhaseCommitPlantedBug::LeaveLastAgent);
        let is_open = remote_branches.open_branches().contains(&shard) && !ignores;
        if is_open {
            let abort = |_| TwoPhaseCommitRequest::Abort;
            self.runtime.send_next(remote_branches, shard, abort, effects);
        }
        self.runtime.expect_resolved(remote_branches.id.sequence, usize::from(is_open));
    }
}

/// At the last agent.
impl TwoPhaseCommit {
    /// Are these shards that can take part in a transaction which is decided on `home`?
    pub(crate) fn can_take_part(&self, home: ShardId, participants: &[ShardId]) -> bool {
        let can = |shard: &ShardId| *shard != home && self.has_shard(*shard);
        !participants.is_empty() && participants.iter().all(can)
    }

    /// A commit record of another node's transaction is durable at this place. If it is a decision, it is sent to the
    /// participants until they have it (rule P9).
    pub(crate) fn keep_decision(&mut self, at: usize, transaction: TransactionId) {
        let Some(participants) = self.streams[at].replay().participants(transaction) else {
            return;
        };
        let from = self.runtime.worker_context.now.get() + self.options().inquire_every;
        let repeated = participants.iter().map(|shard| (*shard, Delivery::RepeatedFrom(from)));
        let deliveries = repeated.collect();
        match self.options().faults.has(TwoPhaseCommitPlantedBug::EndUnacknowledged) {
            true => self.end_decision(at, transaction),
            false => self.streams.add_decision(at, transaction, deliveries),
        }
    }

    /// No decision is known on a transaction whose home is this leadership of the shard at this place: can none be appended
    /// any more (rule P8)? One of another node's that has no branch here never gets one after that.
    pub(crate) fn is_presumed_aborted(&mut self, at: usize, transaction: TransactionId) -> bool {
        let (worker_context, coordinator) =
            (&self.runtime.worker_context, transaction.coordinator());
        if coordinator == worker_context.place {
            return !self.coordinator.knows(transaction.sequence);
        }
        let is_known = worker_context.is_node(coordinator.node);
        if !is_known || !self.runtime.is_peer(coordinator) {
            return false;
        }
        let shard = self.streams[at].shard();
        let ignores = self.options().faults.has(TwoPhaseCommitPlantedBug::PresumeAbortUnended);
        match self.branches.get(transaction, shard) {
            Some(
                TwoPhaseCommitBranch::Open { .. }
                | TwoPhaseCommitBranch::Locked { .. }
                | TwoPhaseCommitBranch::Slicing(_),
            ) => ignores,
            Some(_) => false,
            None => {
                if !ignores {
                    self.branches.refuse(transaction, shard);
                }
                true
            }
        }
    }
}
