//! Branches whose coordinators are gone, or silent: what is prepared is in doubt, the rest is undone, since nothing was
//! decided that needs it (rule M11 of waits, and *presumed abort*).
//!
//! A coordinator asks nothing more of a branch when it is gone, or when its *abort* was lost for as long as it says that:
//! then it forgets the transaction, and what it holds here ends by itself after a while. A coordinator that comes after
//! that finds the branch ended, and gives the transaction up. A branch that is prepared stays until its home shard says
//! what was decided.

use super::branch::{TwoPhaseCommitBranch, ended, looked_at_every};
use super::{TwoPhaseCommit, TwoPhaseCommitEffects};
use crate::observation::TwoPhaseCommitObservation;
use shoal_engine::execution::sequences;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{ShardId, Time};
use std::collections::BTreeMap;

impl TwoPhaseCommit {
    /// Whether the configuration shows that the process which coordinated the transaction is gone.
    pub(super) fn is_gone(&self, transaction: TransactionId) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let standing = configuration.nodes.get(transaction.node.0 as usize);
        standing.is_some_and(|standing| {
            !standing.alive || transaction.sequence < sequences::first(standing.incarnation)
        })
    }

    /// Ends the branches whose coordinators are gone, and leaves those in doubt that are prepared.
    pub(super) fn leave_orphans(&mut self, effects: &mut TwoPhaseCommitEffects) {
        for at in 0..self.leader_logs.len() {
            let shard = self.leader_logs[at].lead.shard;
            let (mut orphans, mut left) = (Vec::new(), Vec::new());
            for (transaction, of, context) in self.branches.open() {
                if of != shard {
                    continue;
                }
                match context {
                    TwoPhaseCommitBranch::Open { .. }
                    | TwoPhaseCommitBranch::Locked { .. }
                    | TwoPhaseCommitBranch::Slicing(_)
                        if self.is_gone(transaction) =>
                    {
                        orphans.push(transaction);
                    }
                    TwoPhaseCommitBranch::Prepared { home, .. } => {
                        let now = self.runtime.worker_context.leaderships.leader(home.shard).since;
                        if now != home.leadership || self.is_gone(transaction) {
                            left.push(transaction);
                        }
                    }
                    TwoPhaseCommitBranch::Open { .. }
                    | TwoPhaseCommitBranch::Locked { .. }
                    | TwoPhaseCommitBranch::Slicing(_)
                    | TwoPhaseCommitBranch::Committing { .. }
                    | TwoPhaseCommitBranch::Ended { .. } => {}
                }
            }
            self.undo_branches(at, &orphans, effects);
            if !left.is_empty() {
                self.leave_prepared(at, |id| left.contains(&id));
            }
        }
    }

    /// A branch that is not prepared ends at this time, unless its coordinator asks for something before.
    pub(super) fn expect_request(&mut self, branch: &TwoPhaseCommitBranch) {
        if let Some(at) = branch.expires_at(&self.runtime.worker_context.limits) {
            self.branches_due = self.branches_due.min(at);
        }
    }

    /// Ends the branches that are not prepared, and whose coordinators have asked nothing for too long.
    pub(super) fn expire_branches(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        if now < self.branches_due {
            return;
        }
        let limits = &self.runtime.worker_context.limits;
        let mut next = Time::MAX;
        let mut over: BTreeMap<ShardId, Vec<TransactionId>> = BTreeMap::new();
        for (transaction, shard, context) in self.branches.open() {
            match context.expires_at(limits) {
                Some(at) if at <= now => over.entry(shard).or_default().push(transaction),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
        self.branches_due = match next {
            Time::MAX => Time::MAX,
            at => at.max(now + looked_at_every(limits)),
        };
        for (shard, transactions) in over {
            let at = self.place_of(shard).expect("branches are on shards of this node");
            self.undo_branches(at, &transactions, effects);
        }
    }

    /// Ends branches that are not prepared: what is still asked of them is refused.
    fn undo_branches(
        &mut self,
        at: usize,
        transactions: &[TransactionId],
        effects: &mut TwoPhaseCommitEffects,
    ) {
        if transactions.is_empty() {
            return;
        }
        let shard = self.leader_logs[at].lead.shard;
        let over =
            self.branches.end(shard, &Some(ended(shard)), |id, _, _| transactions.contains(&id));
        for (transaction, context) in over {
            assert!(
                !matches!(context, TwoPhaseCommitBranch::Prepared { .. }),
                "P8: {transaction} is prepared on {shard}, and undone without a decision"
            );
            self.leave_branch(at, transaction, context, effects);
        }
    }

    /// A branch is over here, and what it has locked is free. Nothing is appended.
    pub(super) fn leave_branch(
        &mut self,
        at: usize,
        transaction: TransactionId,
        context: TwoPhaseCommitBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let clock = match &context {
            TwoPhaseCommitBranch::Open { .. }
            | TwoPhaseCommitBranch::Slicing(_)
            | TwoPhaseCommitBranch::Ended { .. } => return,
            TwoPhaseCommitBranch::Locked { clock, .. }
            | TwoPhaseCommitBranch::Prepared { clock, .. }
            | TwoPhaseCommitBranch::Committing { clock, .. } => *clock,
        };
        drop(context);
        let shard = self.leader_logs[at].lead.shard;
        self.leader_logs[at].lead.end_in_flight(clock);
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: false,
        });
    }
}
