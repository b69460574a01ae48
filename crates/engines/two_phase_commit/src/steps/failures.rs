//! What becomes of a coordinator's transactions where a shard that they need has another leader, or none (rule P8): nothing
//! that is not decided outlasts that, and nothing that is decided depends on it.

use crate::commit_progress::{CommitPhase, CommitPlan, CommitProgress, OwnBranch};
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::coordinated_transactions::unless_committed;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::worker_context::recovering;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Aborted, Conflict, ShardId, Time, Unknown};
use std::rc::Rc;

impl TwoPhaseCommit {
    /// The leadership of `shard` is another one: what its former leader was asked will not be answered. What is not decided
    /// and needs that is given up; a decision is sent to the new leader.
    pub(crate) fn lose_participant(&mut self, shard: ShardId, effects: &mut TwoPhaseCommitEffects) {
        self.runtime.lose_participant(shard);
        self.streams.lose_participant(shard);
        let error = recovering(shard);
        self.coordinator.lose_executing(shard, &error);
        // Where it is decided, that does not need an answer of this shard any more.
        let needs = |it: &CommitProgress| match (it.phase, it.plan) {
            (CommitPhase::Deciding, CommitPlan::Own(_) | CommitPlan::TwoPhase) => false,
            (CommitPhase::Deciding, CommitPlan::Other(by) | CommitPlan::LastAgent(by)) => {
                by == shard
            }
            _ => true,
        };
        let lost = self.coordinator.take_commits(|it| {
            let remotes = it.remote_branches.remotes();
            needs(it) && remotes.iter().any(|remote| remote.shard == shard)
        });
        for it in lost {
            // It may have done all of it before it was gone.
            let outcome = unless_committed(&it, shard, error.clone());
            it.remote_branches.lose(shard, &error);
            self.end_without(it, outcome, effects);
        }
    }

    /// This node is about to lay down the lead of the shard at this place: what is to be decided there never is, and what
    /// is on its way is left to the next leader. What is decided elsewhere goes on without the branch here.
    pub(crate) fn leave_home(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let shard = self.streams[at].shard();
        let touched = self.coordinator.take_commits(|it| {
            it.home.is_some_and(|(home, _)| home == at) || it.own.iter().any(|(own, _)| *own == at)
        });
        for mut it in touched {
            let is_home = it.home.is_some_and(|(home, _)| home == at);
            match (it.phase, is_home) {
                (CommitPhase::Deciding, true) => self.leave_deciding(at, it, effects),
                (CommitPhase::Deciding, false) => {
                    let transaction = it.remote_branches.id;
                    let own = std::mem::take(&mut it.own);
                    let (gone, kept) = own.into_iter().partition(|(own, _)| *own == at);
                    it.own = kept;
                    self.drop_own(transaction, gone, effects);
                    self.coordinator.keep(it);
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
        let CommitProgress { remote_branches, own, home, reported, handed_over, .. } = it;
        let transaction = remote_branches.id;
        let (_, home) = home.expect("it is decided at home");
        let (gone, kept): (Vec<_>, Vec<_>) = own.into_iter().partition(|(own, _)| *own == at);
        self.drop_own(transaction, gone, effects);
        for (at, branch) in kept {
            if let OwnBranch::Locked { locked, clock, prepared, .. } = branch {
                assert!(prepared, "P3: {transaction} is decided, and not prepared");
                self.streams.leave(at, transaction, locked, clock, home);
            }
        }
        if !handed_over {
            self.runtime.expect_resolved(transaction.sequence, 0);
        }
        if !reported {
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
                self.drop_locked(at, transaction, locked, clock, false, effects);
            }
        }
    }

    /// Ends what has waited too long for other shards, or for its decision to be durable. What is given up is not said any
    /// more: its participants end by themselves what they have not prepared, and ask for the rest.
    pub(crate) fn expire(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let expired = self.runtime.expire(now, |_, _| true);
        for branch in expired.undecided {
            self.give_up_on(branch, effects);
        }
        for (sequence, shard) in expired.decided {
            let transaction = self.own_id(sequence);
            self.streams.hand_over(transaction, shard);
        }
        self.expire_records(now, effects);
    }

    /// Ends what has waited too long for records in streams of this node.
    fn expire_records(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        while let Some(mut it) = self.coordinator.take_overdue(now, &self.runtime.worker_context) {
            let (CommitPhase::Deciding, Some((_, home))) = (it.phase, it.home) else {
                self.give_up_unprepared(it, effects);
                continue;
            };
            // It does not hold up what participants forget. They receive a decision like those with a new leader.
            (it.reported, it.handed_over) = (true, true);
            let remote_branches = Rc::clone(&it.remote_branches);
            self.coordinator.keep(it);
            self.runtime.expect_resolved(remote_branches.id.sequence, 0);
            let error = Unknown::NotDurable { shard: home.shard }.into();
            self.runtime.finish(&remote_branches, Err(error));
        }
    }

    /// A prepare record of an own shard does not become durable. Nothing is decided, so nothing of the transaction happens.
    fn give_up_unprepared(&mut self, it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        let undurable = it.own.iter().find(|(at, branch)| {
            let prepared = matches!(branch, OwnBranch::Locked { prepared: true, .. });
            prepared && self.streams[*at].log().undecided() > 0
        });
        let (at, _) = undurable.or(it.own.first()).expect("it has prepared here");
        let shard = self.streams[*at].shard();
        self.abort(it, Aborted::from(Conflict::NoAnswer { shard }).into(), effects);
    }

    /// The participant of `shard` does not answer what it was asked: the transaction ends without it.
    fn give_up_on(&mut self, branch: BranchKey, effects: &mut TwoPhaseCommitEffects) {
        if let Some((it, error)) = self.coordinator.give_up_on(branch) {
            self.end_without(it, error, effects);
        }
    }
}
