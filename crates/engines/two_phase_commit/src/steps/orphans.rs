//! Branches whose coordinators are gone, or silent: what is prepared is in doubt, the rest is undone, since nothing was
//! decided that needs it (rule M11 of waits, and *presumed abort*).
//!
//! A coordinator asks nothing more of a branch when it is gone, or when its *abort* was lost for as long as it says that:
//! then it forgets the transaction, and what it holds here ends by itself after a while. A coordinator that comes after
//! that finds the branch ended, and gives the transaction up. A branch that is prepared stays until its home shard says
//! what was decided.

use crate::branch::TwoPhaseCommitBranch;
use crate::observation::TwoPhaseCommitObservation;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::sequences;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Clock, Time};

impl TwoPhaseCommit {
    /// Whether the configuration shows that the process which coordinated the transaction is gone.
    pub(crate) fn is_gone(&self, transaction: TransactionId) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let standing = configuration.nodes.get(transaction.node.0 as usize);
        standing.is_some_and(|standing| {
            !standing.alive || transaction.sequence < sequences::first(standing.incarnation)
        })
    }

    /// Ends the branches whose coordinators are gone, and leaves those in doubt that are prepared.
    pub(crate) fn leave_orphans(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let orphans = self.branches.open().filter(|(transaction, _, context)| match context {
            TwoPhaseCommitBranch::Open { .. }
            | TwoPhaseCommitBranch::Locked { .. }
            | TwoPhaseCommitBranch::Slicing(_) => self.is_gone(*transaction),
            TwoPhaseCommitBranch::Prepared { home, .. } => {
                let now = self.runtime.worker_context.leaderships.leader(home.shard).since;
                now != home.leadership || self.is_gone(*transaction)
            }
            TwoPhaseCommitBranch::Committing { .. } | TwoPhaseCommitBranch::Ended { .. } => false,
        });
        let orphans = orphans.map(|(transaction, shard, context)| {
            let is_prepared = matches!(context, TwoPhaseCommitBranch::Prepared { .. });
            let at = self.streams.place_of(shard).expect("branches are on shards of this node");
            (at, is_prepared, transaction)
        });
        let mut orphans: Vec<(usize, bool, TransactionId)> = orphans.collect();
        orphans.sort_unstable();
        for (at, is_prepared, transaction) in orphans {
            match is_prepared {
                true => self.leave_prepared(at, transaction),
                false => self.undo_branch(at, transaction, effects),
            }
        }
    }

    /// Undoes the branches that are not prepared, and whose coordinators have asked nothing for too long. Those that have been
    /// prepared for long ask for the decision.
    pub(crate) fn visit_due_branches(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let again = now + self.options().inquire_every;
        while let Some((transaction, shard)) = self.branches.take_due(now) {
            let at = self.streams.place_of(shard).expect("branches are on shards of this node");
            let home = match self.branches.get_mut(transaction, shard) {
                Some(TwoPhaseCommitBranch::Prepared { home, inquire_at, .. }) => {
                    *inquire_at = again;
                    Some(*home)
                }
                _ => None,
            };
            match home {
                None => self.undo_branch(at, transaction, effects),
                Some(home) => {
                    self.branches.watch(transaction, shard, again);
                    self.inquire(at, transaction, home, effects);
                }
            }
        }
    }

    /// Ends a branch that is not prepared: what is still asked of it is refused.
    fn undo_branch(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.streams[at].shard();
        let context = self.branches.end(transaction, shard).expect("it is open");
        assert!(
            !matches!(context, TwoPhaseCommitBranch::Prepared { .. }),
            "P8: {transaction} is prepared on {shard}, and undone without a decision"
        );
        self.leave_branch(at, transaction, context, effects);
    }

    /// A branch is over here, and what it has locked is free. Nothing is appended.
    pub(crate) fn leave_branch(
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
        self.give_up_clock(at, transaction, clock, effects);
    }

    /// Nothing is installed here with the clock that was drawn for the transaction.
    pub(crate) fn give_up_clock(
        &mut self,
        at: usize,
        transaction: TransactionId,
        clock: Clock,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.streams[at].shard();
        self.streams[at].end_in_flight(clock);
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: false,
        });
    }
}
