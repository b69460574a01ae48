//! What becomes of a coordinator's transactions where a shard that they need has another leader, or none (rule P8): nothing
//! that is not decided outlasts that, and nothing that is decided depends on it.

use super::coordinator::{
    CommitPhase, CommitPlan, CommitProgress, CoordinatedTransaction, OwnBranch,
};
use super::in_doubt::InDoubt;
use super::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::worker_context::recovering;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Aborted, Conflict, Error, ShardId, Time, Unknown};
use std::rc::Rc;

impl TwoPhaseCommit {
    /// The leadership of `shard` is another one: what its former leader was asked will not be answered. What is not decided
    /// and needs that is given up; what is decided is told to the new leader.
    pub(super) fn lose_participant(&mut self, shard: ShardId, effects: &mut TwoPhaseCommitEffects) {
        self.runtime.lose_participant(shard);
        self.decisions.iter_mut().for_each(|decisions| decisions.lose_participant(shard));
        let error = recovering(shard);
        let has_branch = |remote_branches: &RemoteBranches| {
            remote_branches.remotes().iter().any(|remote| remote.shard == shard)
        };
        let (mut lost, mut executing) = (Vec::new(), Vec::new());
        for (sequence, progress) in &self.coordinator.transactions {
            match progress {
                CoordinatedTransaction::Executing(it) if has_branch(it) => {
                    executing.push(Rc::clone(it));
                }
                CoordinatedTransaction::Committing(it) if has_branch(&it.remote_branches) => {
                    lost.push(*sequence);
                }
                CoordinatedTransaction::Executing(_) | CoordinatedTransaction::Committing(_) => {}
            }
        }
        executing.iter().for_each(|remote_branches| remote_branches.lose(shard, &error));
        for sequence in lost {
            let Some(CoordinatedTransaction::Committing(it)) =
                self.coordinator.transactions.remove(&sequence)
            else {
                continue;
            };
            match (it.phase, it.plan) {
                // The decision does not need an answer any more.
                (CommitPhase::Deciding, CommitPlan::Own(_) | CommitPlan::TwoPhase) => self.wait(it),
                (CommitPhase::Deciding, CommitPlan::Other(other)) if other != shard => {
                    self.wait(it);
                }
                // It may have done all of it before it was gone.
                (CommitPhase::Deciding | CommitPhase::Delegated, _) => {
                    it.remote_branches.lose(shard, &error);
                    self.abort(it, Unknown::Participant { shard }.into(), effects);
                }
                (CommitPhase::Draining | CommitPhase::Locking | CommitPhase::Validating, _) => {
                    it.remote_branches.lose(shard, &error);
                    self.abort(it, error.clone(), effects);
                }
            }
        }
    }

    /// This node is about to lay down the lead of the shard at this place: what is to be decided there never is, and what
    /// is on its way is left to the next leader. What is decided elsewhere goes on without the branch here.
    pub(super) fn leave_home(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let shard = self.leader_logs[at].lead.shard;
        let transactions = self.coordinator.transactions.iter();
        let touched = transactions.filter(|(_, progress)| match progress {
            CoordinatedTransaction::Executing(_) => false,
            CoordinatedTransaction::Committing(it) => {
                it.home.is_some_and(|(home, _)| home == at)
                    || it.own.iter().any(|(own, _)| *own == at)
            }
        });
        let touched: Vec<u64> = touched.map(|(sequence, _)| *sequence).collect();
        for sequence in touched {
            let Some(CoordinatedTransaction::Committing(mut it)) =
                self.coordinator.transactions.remove(&sequence)
            else {
                continue;
            };
            let is_home = it.home.is_some_and(|(home, _)| home == at);
            match (it.phase, is_home) {
                (CommitPhase::Deciding, true) => self.leave_deciding(at, it, effects),
                (CommitPhase::Deciding, false) => {
                    let transaction = it.remote_branches.id;
                    let own = std::mem::take(&mut it.own);
                    let (gone, kept) = own.into_iter().partition(|(own, _)| *own == at);
                    it.own = kept;
                    self.drop_own(transaction, gone, effects);
                    self.wait(it);
                }
                _ => self.abort(it, recovering(shard), effects),
            }
        }
    }

    /// The decision is on its way in a stream that this node leads no more. Whether it is made the next leader will see.
    fn leave_deciding(
        &mut self,
        at: usize,
        it: CommitProgress,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let CommitProgress { remote_branches, own, home, told, .. } = it;
        let transaction = remote_branches.id;
        let (_, home) = home.expect("it is decided at home");
        let (gone, kept): (Vec<_>, Vec<_>) = own.into_iter().partition(|(own, _)| *own == at);
        self.drop_own(transaction, gone, effects);
        for (at, branch) in kept {
            if let OwnBranch::Locked { locked, clock, prepared } = branch {
                assert!(prepared, "P3: {transaction} is decided, and not prepared");
                self.in_doubt[at].insert(transaction, InDoubt::left(locked, clock, home));
            }
        }
        self.inquire_at = Time::ZERO;
        self.runtime.expect_resolved(transaction.sequence, 0);
        if !told {
            let error = Unknown::NotDurable { shard: home.shard }.into();
            self.runtime.finish(&remote_branches, Err(error));
        }
    }

    /// Releases own branches without a record.
    fn drop_own(
        &mut self,
        transaction: TransactionId,
        own: Vec<(usize, OwnBranch)>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        for (at, branch) in own {
            if let OwnBranch::Locked { locked, clock, .. } = branch {
                self.drop_locked(at, transaction, (locked, clock), false, effects);
            }
        }
    }

    /// Ends what has waited too long for other shards, or for its decision to be durable.
    pub(super) fn expire(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let (expired, _) = self.runtime.expire(now, |_| false);
        for branch in expired {
            self.give_up_on(branch, effects);
        }
        if self.coordinator.deciding_due.is_none_or(|due| due > now) {
            return;
        }
        let wait_max = self.runtime.worker_context.limits.shard_wait_max;
        let (mut next, mut expired) = (None::<Time>, Vec::new());
        for progress in self.coordinator.transactions.values_mut() {
            let CoordinatedTransaction::Committing(it) = progress else { continue };
            let (CommitPhase::Deciding, Some((_, home)), false) = (it.phase, it.home, it.told)
            else {
                continue;
            };
            let due = it.deciding_since + wait_max;
            if due <= now {
                it.told = true;
                expired.push((Rc::clone(&it.remote_branches), home.shard));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        self.coordinator.deciding_due = next;
        for (remote_branches, shard) in expired {
            self.runtime.finish(&remote_branches, Err(Unknown::NotDurable { shard }.into()));
        }
    }

    /// The participant of `shard` does not answer what it was asked: the transaction ends without it.
    fn give_up_on(&mut self, (sequence, shard): BranchKey, effects: &mut TwoPhaseCommitEffects) {
        let error: Error = Aborted::from(Conflict::NoAnswer { shard }).into();
        match self.coordinator.transactions.remove(&sequence) {
            Some(CoordinatedTransaction::Committing(it)) => {
                let error = match it.phase {
                    // It may have done all of it, and the answers got lost.
                    CommitPhase::Delegated | CommitPhase::Deciding => {
                        Unknown::Participant { shard }.into()
                    }
                    CommitPhase::Draining | CommitPhase::Locking | CommitPhase::Validating => error,
                };
                self.abort(it, error, effects);
            }
            // Its body is told, and drops it.
            Some(CoordinatedTransaction::Executing(remote_branches)) => {
                remote_branches.time_out(shard, &error);
                self.coordinator
                    .transactions
                    .insert(sequence, CoordinatedTransaction::Executing(remote_branches));
            }
            None => {}
        }
    }
}
