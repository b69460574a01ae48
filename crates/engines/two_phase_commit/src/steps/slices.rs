//! Locks and validations in slices: of what is too large for one step (`staged_certification.rs` of the engines' shared crate;
//! installations are in `installing.rs`).
//!
//! ```text
//!   lock ─► validate ─► draw the clock, append the record
//!   ▲ │      ▲  │
//!   └─┘      └──┘   a slice a step; others have their turn in between
//! ```
//! Locks that are held stay held, and others that meet them give up as ever. A clock is drawn with the last lock of its
//! shard (P2). What counts is the validation that begins once all locks are held, everywhere (P1): what is still so at
//! any of its slices was so when the last lock was taken. A branch that is given up in between loses its locks in slices, too.

use super::participant::reply_to;
use crate::branch::{BranchGoal, BranchOutcome, ReplyTarget, SlicedBranch, TwoPhaseCommitBranch};
use crate::commit_progress::{CommitPhase, CommitProgress};
use crate::message::TwoPhaseCommitReply;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::sliced_work::PausedCommit;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::staged_certification::StagedCertification;
use shoal_store::Locked;
use shoal_types::Result;

impl TwoPhaseCommit {
    /// Goes on with what was paused first, by one slice.
    pub(crate) fn go_on_paused(&mut self, effects: &mut TwoPhaseCommitEffects) {
        match self.sliced.next_paused() {
            None => {}
            Some(PausedCommit::Own(sequence)) => {
                let is_paused = |it: &CommitProgress| {
                    matches!(it.phase, CommitPhase::LockingOwn | CommitPhase::ValidatingOwn)
                };
                match self.coordinator.take_commit_if(sequence, is_paused) {
                    Some(it) if it.phase == CommitPhase::LockingOwn => self.lock_rest(it, effects),
                    Some(it) => self.validate_all(it, effects),
                    None => {} // It was given up meanwhile.
                }
            }
            Some(PausedCommit::Branch(from, header)) => {
                self.go_on_branch(ReplyTarget { to: from, header }, effects);
            }
        }
    }

    /// The rest is for another step.
    pub(crate) fn pause(&mut self, mut it: CommitProgress, phase: CommitPhase) {
        it.phase = phase;
        self.sliced.pause(PausedCommit::Own(it.remote_branches.id.sequence));
        self.coordinator.keep(it);
    }

    /// Goes on with another node's branch, if it was not ended meanwhile, and answers when it is done.
    fn go_on_branch(&mut self, target: ReplyTarget, effects: &mut TwoPhaseCommitEffects) {
        let header = target.header;
        let Some(at) = self.streams.led_at(header.shard) else { return };
        match self.branches.get(header.transaction, header.shard) {
            Some(
                TwoPhaseCommitBranch::Slicing(_)
                | TwoPhaseCommitBranch::Locked { valid: false, .. }
                | TwoPhaseCommitBranch::Prepared { valid: false, .. },
            ) => {}
            _ => return,
        }
        self.act_as_leader(at, effects);
        let (context, reply) = match self.branches.take(&header).expect("seen above") {
            TwoPhaseCommitBranch::Slicing(SlicedBranch { staged, goal }) => self
                .certify_some(at, target, staged, goal, effects)
                .unwrap_or_else(|error| (None, Some(TwoPhaseCommitReply::Refused { error }))),
            held => self.validate_held(at, target, held, effects),
        };
        self.branches.put(&header, context, reply.clone());
        if let Some(reply) = reply {
            reply_to(target, reply, effects);
        }
    }

    /// Locks and validates a branch that has executed, as its goal says, or begins to.
    pub(crate) fn certify(
        &mut self,
        at: usize,
        target: ReplyTarget,
        branch: StoreBranch,
        goal: BranchGoal,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<BranchOutcome> {
        self.observe_reads(at, target.header.transaction, &branch, effects);
        self.certify_some(at, target, StagedCertification::reading(branch, 0), goal, effects)
    }

    /// Does as much of that as a step may.
    fn certify_some(
        &mut self,
        at: usize,
        target: ReplyTarget,
        mut staged: StagedCertification,
        goal: BranchGoal,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<BranchOutcome> {
        let locks = match goal {
            BranchGoal::Lock | BranchGoal::Prepare(_) => true,
            BranchGoal::Validate => false,
            BranchGoal::Commit { install } => install && !staged.is_read_only(),
        };
        if locks {
            staged = staged.lock_some(&self.runtime.worker_context)?;
        }
        let is_over = (!locks || staged.is_locked()) && self.validate_staged(&mut staged, goal)?;
        if !is_over {
            self.sliced.pause(PausedCommit::Branch(target.to, target.header));
            return Ok((Some(TwoPhaseCommitBranch::Slicing(SlicedBranch { staged, goal })), None));
        }
        match (staged.into_locked(), goal) {
            (Some(locked), BranchGoal::Prepare(home)) => {
                Ok(self.prepare_locked(at, target.header.transaction, locked, home, effects))
            }
            (Some(locked), BranchGoal::Commit { .. }) => {
                let clock = self.draw(at, target.header.transaction, &locked, effects);
                Ok(self.commit_branch(at, target, locked, clock, &[]))
            }
            (Some(locked), _) => {
                let clock = self.draw(at, target.header.transaction, &locked, effects);
                let since = self.runtime.worker_context.now.get();
                let due_at = self.branches.timeouts().locked(since);
                self.branches.watch(target.header.transaction, target.header.shard, due_at);
                let (valid, validates) = (false, 0);
                let context =
                    TwoPhaseCommitBranch::Locked { locked, clock, since, valid, validates };
                Ok((Some(context), Some(TwoPhaseCommitReply::Locked { clock })))
            }
            (None, BranchGoal::Commit { .. }) => {
                Ok((None, Some(TwoPhaseCommitReply::Committed { clock: None })))
            }
            (None, _) => Ok((None, Some(TwoPhaseCommitReply::Validated))),
        }
    }

    /// Validates as much as a step may. Says whether that was the last.
    fn validate_staged(&self, staged: &mut StagedCertification, goal: BranchGoal) -> Result<bool> {
        let alone = matches!(goal, BranchGoal::Commit { .. }) && !staged.is_locked();
        match self.skips_validation() && !alone {
            true => Ok(true),
            false => staged.validate_some(&self.runtime.worker_context),
        }
    }

    /// All locks are held, everywhere: checks what a branch has read that holds its own, as much as a step may. It is
    /// answered when that was the last, and its prepare record, if it has one, is durable.
    pub(crate) fn validate_held(
        &mut self,
        at: usize,
        target: ReplyTarget,
        mut context: TwoPhaseCommitBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) -> BranchOutcome {
        let (locked, validates, is_prepared) = match &mut context {
            TwoPhaseCommitBranch::Locked { locked, validates, .. } => (locked, validates, false),
            TwoPhaseCommitBranch::Prepared { locked, validates, .. } => (locked, validates, true),
            _ => unreachable!("only what holds its locks is validated again"),
        };
        let too_early = self.options().faults.has(TwoPhaseCommitPlantedBug::ValidateBeforeLocks);
        let checked = match self.skips_validation() || (is_prepared && too_early) {
            true => Ok(None),
            false => self.validate_locks(locked, *validates),
        };
        match (checked, context) {
            (
                Err(error),
                TwoPhaseCommitBranch::Locked { locked, clock, .. }
                | TwoPhaseCommitBranch::Prepared { locked, clock, .. },
            ) => {
                let transaction = target.header.transaction;
                self.drop_locked(at, transaction, locked, clock, is_prepared, effects);
                (None, Some(TwoPhaseCommitReply::Refused { error }))
            }
            (Ok(Some(next)), mut context) => {
                if let TwoPhaseCommitBranch::Locked { validates, .. }
                | TwoPhaseCommitBranch::Prepared { validates, .. } = &mut context
                {
                    *validates = next;
                }
                self.sliced.pause(PausedCommit::Branch(target.to, target.header));
                (Some(context), None)
            }
            (_, mut context) => {
                let now = self.runtime.worker_context.now.get();
                let mut reply = Some(TwoPhaseCommitReply::Validated);
                if let TwoPhaseCommitBranch::Locked { since, valid, .. } = &mut context {
                    (*since, *valid) = (now, true);
                }
                if let TwoPhaseCommitBranch::Prepared { durable, valid, target: waits, .. } =
                    &mut context
                {
                    *valid = true;
                    if !*durable {
                        *waits = Some(target);
                        reply = None;
                    }
                }
                (Some(context), reply)
            }
        }
    }

    /// Checks what was read, from this place on, as much as a step may. Returns the place of the rest, if there is one.
    pub(crate) fn validate_locks(
        &self,
        locked: &Locked<PooledSession>,
        from: usize,
    ) -> Result<Option<usize>> {
        let worker_context = &self.runtime.worker_context;
        let most = worker_context.step_reads_max();
        worker_context.looked_at((locked.size().reads - from).min(most));
        locked.validate_some(from, most)
    }

    fn skips_validation(&self) -> bool {
        self.options().faults.has(TwoPhaseCommitPlantedBug::SkipRemoteValidation)
    }
}
