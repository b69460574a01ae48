//! Certification in slices: of what is too large to be locked and validated in one step.
//!
//! ```text
//!   gather reads ─► lock ─► validate ─► draw the clock, or what else comes next
//!       ▲  │         ▲ │      ▲  │
//!       └──┘         └─┘      └──┘   a slice a step; others have their turn in between
//! ```
//! Locks that are held stay held, and others that meet them give up as ever. A clock is drawn in one step with what
//! follows on the last slice of locks (M2): none is in flight while locks are still taken. Each read is validated once
//! all locks are held, everywhere; so what is still valid then was so when the last lock was taken.
//!
//! A transaction that is given up in between loses its locks in slices, too (`execution/session_pool.rs`).

use crate::branch::{BranchGoal, EpochTransaction, MakoBranch, PausedCertification, SlicedBranch};
use crate::message::{BranchHeader, MakoReply};
use crate::{Mako, MakoEffects, MakoMessage};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::staged_certification::{CertificationStage, StagedCertification};
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, Result, Stamp};

impl Mako {
    /// Goes on with what was paused first, by one slice.
    pub(crate) fn go_on(&mut self, effects: &mut MakoEffects) {
        match self.paused.pop_front() {
            None => {}
            Some(PausedCertification::Own(sequence)) => self.go_on_own(sequence, effects),
            Some(PausedCertification::Branch(from, header)) => {
                self.go_on_branch(from, &header, effects);
            }
        }
    }

    /// The dependencies of the next reads of a branch, as many as a step may look at; `None` where all are gathered.
    pub(crate) fn gather_some(
        &self,
        at: usize,
        of: EpochTransaction,
        staged: &mut StagedCertification,
        effects: &mut MakoEffects,
    ) -> Result<Option<Stamp>> {
        let (Some(from), CertificationStage::Reading(branch)) = (staged.gathers, &staged.stage)
        else {
            return Ok(None);
        };
        let most = self.runtime.worker_context.step_reads_max();
        let (stamp, next) =
            self.gather(at, of, branch, from..from.saturating_add(most), effects)?;
        self.runtime.worker_context.looked_at(next - from);
        staged.gathers = (next - from == most).then_some(next);
        Ok(Some(stamp))
    }

    /// Begins to do in slices what is asked of a branch that executes, and is too large for one step. Its coordinator
    /// knows as many of its reads.
    pub(crate) fn slice_branch(
        &mut self,
        header: &BranchHeader,
        branch: StoreBranch,
        gathered: usize,
        asked: BranchGoal,
    ) -> MakoBranch {
        let dependencies = Stamp::local(header.epoch, Clock::ZERO);
        let mut staged = StagedCertification::reading(branch, gathered);
        if matches!(asked, BranchGoal::Validate { .. }) {
            // Its coordinator received that with the reads.
            staged.gathers = None;
        }
        self.paused.push_back(PausedCertification::Branch(header.transaction.node, *header));
        MakoBranch::Slicing(SlicedBranch {
            staged,
            dependencies,
            reads: gathered,
            clock: None,
            asked,
        })
    }

    /// Begins to validate a branch in slices that holds its locks, and for which this clock was drawn.
    pub(crate) fn slice_locked(
        &mut self,
        header: &BranchHeader,
        locked: Locked<PooledSession>,
        clock: Clock,
    ) -> MakoBranch {
        let (staged, dependencies) =
            (StagedCertification::locked(locked), Stamp::local(header.epoch, Clock::ZERO));
        let (clock, asked) = (Some(clock), BranchGoal::Validate { last: false });
        self.paused.push_back(PausedCertification::Branch(header.transaction.node, *header));
        MakoBranch::Slicing(SlicedBranch { staged, dependencies, reads: 0, clock, asked })
    }

    /// Goes on with another node's branch, if it was not ended meanwhile, and answers when it is done.
    fn go_on_branch(&mut self, from: NodeId, header: &BranchHeader, effects: &mut MakoEffects) {
        let Some(at) = self.place_of(header.shard) else { return };
        let context = self.branches.context_mut(header.transaction, header.shard);
        let Some(MakoBranch::Slicing(slicing)) = context else { return };
        let is_open =
            header.epoch == self.runtime.worker_context.epoch.get() || slicing.clock.is_some();
        let reply = match is_open {
            false => self.refuse_epoch(at, header, effects),
            true => {
                let Some(MakoBranch::Slicing(slicing)) = self.branches.take(header) else { return };
                let (context, reply) = self
                    .slice(at, header, slicing, effects)
                    .unwrap_or_else(|error| (None, Some(MakoReply::Refused { error })));
                match context {
                    Some(context) => self.branches.keep(header, context, reply.clone()),
                    None => self.branches.close(header, reply.clone()),
                }
                match reply {
                    Some(reply) => reply,
                    None => {
                        return self.paused.push_back(PausedCertification::Branch(from, *header));
                    }
                }
            }
        };
        let BranchHeader { transaction, shard, step, .. } = *header;
        let message = MakoMessage::Reply { transaction, shard, step, reply };
        effects.push(EngineEffect::Send { to: transaction.coordinator(), message });
    }

    /// One slice of a branch. Without a reply there are more.
    fn slice(
        &mut self,
        at: usize,
        header: &BranchHeader,
        mut it: SlicedBranch,
        effects: &mut MakoEffects,
    ) -> Result<(Option<MakoBranch>, Option<MakoReply>)> {
        if let Err(error) = self.check_serves(at, effects) {
            self.drop_context(at, header.transaction, Some(MakoBranch::Slicing(it)), effects);
            return Err(error);
        }
        let shard = self.leader_shards[at].lead.shard;
        if let Some(stamp) = self.gather_some(at, header.into(), &mut it.staged, effects)? {
            it.dependencies.merge(shard, stamp.seen_by(shard));
        }
        if it.staged.gathers.is_some() {
            return Ok((Some(MakoBranch::Slicing(it)), None));
        }
        let (locks, validates) = match it.asked {
            BranchGoal::Lock { validate } => (true, validate),
            BranchGoal::Validate { .. } => (false, true),
            BranchGoal::Commit { install } => (install && !it.staged.is_read_only(), true),
        };
        if locks && !matches!(it.staged.stage, CertificationStage::Locked(_)) {
            it.staged = it.staged.lock_some(&self.runtime.worker_context)?;
            if !matches!(it.staged.stage, CertificationStage::Locked(_)) || validates {
                return Ok((Some(MakoBranch::Slicing(it)), None));
            }
        }
        if validates {
            match self.validate_slice(&mut it.staged) {
                Ok(true) => {}
                Ok(false) => return Ok((Some(MakoBranch::Slicing(it)), None)),
                Err(error) => {
                    self.drop_context(
                        at,
                        header.transaction,
                        Some(MakoBranch::Slicing(it)),
                        effects,
                    );
                    return Err(error);
                }
            }
        }
        let (context, reply) = self.sliced(at, header, it, effects)?;
        Ok((context, Some(reply)))
    }

    fn validate_slice(&self, staged: &mut StagedCertification) -> Result<bool> {
        match self.skips_validation() {
            true => Ok(true),
            false => staged.validate_some(&self.runtime.worker_context),
        }
    }

    /// All that was to be done in slices is done.
    fn sliced(
        &mut self,
        at: usize,
        header: &BranchHeader,
        it: SlicedBranch,
        effects: &mut MakoEffects,
    ) -> Result<(Option<MakoBranch>, MakoReply)> {
        let SlicedBranch { staged, mut dependencies, reads, clock, asked } = it;
        let locked = match (staged.stage, clock) {
            (CertificationStage::Locked(locked), Some(clock)) => {
                return Ok((Some(MakoBranch::Locked { locked, clock }), MakoReply::Validated));
            }
            (CertificationStage::Locked(locked), None) => locked,
            (CertificationStage::Reading(branch), _) => {
                let BranchGoal::Validate { last: false } = asked else {
                    let reply = match asked {
                        BranchGoal::Commit { .. } => MakoReply::Certified { stamp: dependencies },
                        _ => MakoReply::Validated,
                    };
                    return Ok((None, reply));
                };
                return Ok((
                    Some(MakoBranch::Open { branch, reads, early: None }),
                    MakoReply::Validated,
                ));
            }
            (CertificationStage::Locking(_), _) => unreachable!("all locks are held"),
        };
        let clock = self.draw(at, header.into(), &locked, effects);
        if self.is_closed(header.epoch) {
            let context = Some(MakoBranch::Locked { locked, clock });
            self.drop_context(at, header.transaction, context, effects);
            return Err(Mako::not_open(header.epoch));
        }
        match asked {
            BranchGoal::Lock { .. } => {
                self.observe_locked(at, header, clock, effects);
                Ok((
                    Some(MakoBranch::Locked { locked, clock }),
                    MakoReply::Locked { clock, dependencies },
                ))
            }
            BranchGoal::Commit { .. } => {
                let shard = self.leader_shards[at].lead.shard;
                assert!(dependencies.clock < clock, "M2: {shard} drew {clock} too early");
                dependencies.clock = clock;
                self.bound(shard, &mut dependencies, effects);
                self.install_branch(at, header.transaction, locked, &dependencies, effects);
                Ok((None, MakoReply::Certified { stamp: dependencies }))
            }
            BranchGoal::Validate { .. } => unreachable!("what validates locks nothing"),
        }
    }
}
