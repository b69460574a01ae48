//! Branches of transactions that other nodes coordinate (rule M2).
//!
//! ```text
//!   Execute*        Lock            Validate      Install
//!   ────────► open ──────► locked ──────────► locked ──────► over
//!                │ Validate (last), Commit, Abort, or any refusal ──►│
//! ```

use crate::branch::{BranchGoal, EpochTransaction, MakoBranch};
use crate::dependencies::{self, Reads};
use crate::message::{BranchHeader, MakoReply, MakoRequest};
use crate::observation::MakoObservation;
use crate::options::{GROUP_CLOCKS, StampForm};
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects, MakoMessage, plausibility};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::participant_table::RequestArrival;
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::worker_context::recovering;
use shoal_engine::interleave;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::in_flight_clocks::InFlight;
use shoal_store::Locked;
use shoal_types::{Clock, Epoch, Error, NodeId, Result, ShardId, Stamp};
use std::ops::Range;

/// A coordinator that leads nothing receives watermarks for so many times as long as its last request may wait: its
/// transaction waits for its own shards after that.
const ASKER_WAITS: u32 = 2;

impl Mako {
    /// Acts on a request, or says again what was said before.
    pub(crate) fn serve(
        &mut self,
        from: NodeId,
        header: &BranchHeader,
        request: MakoRequest,
        effects: &mut MakoEffects,
    ) {
        let is_own = |_: &usize| {
            self.runtime.worker_context.leader(header.shard)
                == self.runtime.worker_context.place.node
        };
        let at = self.place_of(header.shard).filter(is_own);
        let (Some(at), true) =
            (at, self.runtime.is_ours(self.runtime.peer(from), header, at.is_some()))
        else {
            return;
        };
        if !self.runtime.worker_context.leaderships.is_leader(from) {
            let limits = &self.runtime.worker_context.limits;
            let until = self.runtime.worker_context.now.get() + ASKER_WAITS * limits.shard_wait_max;
            self.gossip.is_asked(from, until);
        }
        let serves = self.leader_shards[at].serves();
        // Where its transaction may hold locks on other shards, it is refused (`unanswered.rs`).
        if !serves && !matches!(request, MakoRequest::Lock { .. } | MakoRequest::Validate { .. }) {
            return self.defer(from, header, request);
        }
        let ends = matches!(request, MakoRequest::Abort);
        let reply = match self.branches.arrive(header, ends) {
            RequestArrival::Act => {
                let shards = self.runtime.worker_context.topology.shards();
                let context = self.branches.context_mut(header.transaction, header.shard);
                if !plausibility::branch(context.as_deref(), &request, header, shards) {
                    // No coordinator of ours asks for that now.
                    self.runtime.counters.dropped += 1;
                    return;
                }
                let locked = matches!(context, Some(MakoBranch::Locked { .. }));
                let is_open = header.epoch == self.runtime.worker_context.epoch.get()
                    && self.runtime.worker_context.check_takes_part(header.shard).is_ok()
                    && !self.failure_detector.is_gone(header.transaction);
                match is_open || locked || ends {
                    _ if !serves => {
                        Some(self.refuse(at, header, recovering(header.shard), effects))
                    }
                    true => self.act(at, header, request, effects),
                    false => Some(self.refuse_epoch(at, header, effects)),
                }
            }
            RequestArrival::Repeated(reply) => reply,
            RequestArrival::Over => Some(MakoReply::Resolved),
            RequestArrival::Ended => Some(match request {
                MakoRequest::Install { .. } | MakoRequest::Abort => MakoReply::Resolved,
                _ => MakoReply::Refused { error: Mako::not_open(header.epoch) },
            }),
            RequestArrival::Stale => {
                self.runtime.counters.dropped += 1;
                return;
            }
        };
        // Otherwise it is done in slices, and answered then.
        let Some(reply) = reply else { return };
        let BranchHeader { transaction, shard, step, .. } = *header;
        let message = MakoMessage::Reply { transaction, shard, step, reply };
        effects.push(EngineEffect::Send { to: transaction.coordinator(), message });
    }

    /// The epoch of a branch is not open here. Nothing of a closed one may begin any more; and what this
    /// node has not learned of is tried again soon.
    pub(crate) fn refuse_epoch(
        &mut self,
        at: usize,
        header: &BranchHeader,
        effects: &mut MakoEffects,
    ) -> MakoReply {
        self.refuse(at, header, Mako::not_open(header.epoch), effects)
    }

    /// Ends a branch with this answer.
    fn refuse(
        &mut self,
        at: usize,
        header: &BranchHeader,
        error: Error,
        effects: &mut MakoEffects,
    ) -> MakoReply {
        let context = self.branches.take(header);
        self.drop_context(at, header.transaction, context, effects);
        let reply = MakoReply::Refused { error };
        self.branches.close(header, Some(reply.clone()));
        reply
    }

    /// Does what is asked for the first time, and makes sense. Without a reply it is done in slices, and answered then.
    fn act(
        &mut self,
        at: usize,
        header: &BranchHeader,
        request: MakoRequest,
        effects: &mut MakoEffects,
    ) -> Option<MakoReply> {
        if !matches!(request, MakoRequest::Install { .. } | MakoRequest::Abort) {
            self.act_as_leader(at, effects);
        }
        let context = self.branches.take(header);
        let (context, reply) = match (context, request) {
            (context, MakoRequest::Abort) => {
                self.drop_context(at, header.transaction, context, effects);
                (None, Some(MakoReply::Resolved))
            }
            (Some(MakoBranch::Locked { locked, clock }), MakoRequest::Install { stamp }) => {
                assert_eq!(stamp.clock, clock, "M2: {} is installed as drawn", header.transaction);
                self.install_branch(at, header.transaction, locked, &stamp, effects);
                (None, Some(MakoReply::Resolved))
            }
            (Some(MakoBranch::Locked { locked, clock }), MakoRequest::Validate { last: false })
                if !self.runtime.worker_context.is_short(locked.size()) =>
            {
                (Some(self.slice_locked(header, locked, clock)), None)
            }
            (Some(MakoBranch::Locked { locked, clock }), MakoRequest::Validate { last: false }) => {
                match self.validate(|| locked.validate()) {
                    Ok(()) => {
                        (Some(MakoBranch::Locked { locked, clock }), Some(MakoReply::Validated))
                    }
                    Err(error) => {
                        let context = Some(MakoBranch::Locked { locked, clock });
                        self.drop_context(at, header.transaction, context, effects);
                        (None, Some(MakoReply::Refused { error }))
                    }
                }
            }
            (Some(MakoBranch::Open { branch, reads, early }), request) => self
                .act_open(at, header, request, branch, reads, early, effects)
                .unwrap_or_else(|error| (None, Some(MakoReply::Refused { error }))),
            (None, request) => self
                .open(at, header.transaction, effects)
                .and_then(|(branch, reads, early)| {
                    self.act_open(at, header, request, branch, reads, early, effects)
                })
                .unwrap_or_else(|error| (None, Some(MakoReply::Refused { error }))),
            (Some(MakoBranch::Locked { .. } | MakoBranch::Slicing(_)), _) => {
                unreachable!("nothing else fits a branch that is locked")
            }
        };
        match context {
            Some(context) => self.branches.keep(header, context, reply.clone()),
            None => self.branches.close(header, reply.clone()),
        }
        reply
    }

    fn open(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut MakoEffects,
    ) -> Result<(StoreBranch, usize, Option<Clock>)> {
        let branch = self.runtime.worker_context.begin(at)?;
        Ok((branch, 0, self.draw_too_early(at, transaction, effects)))
    }

    #[cfg(feature = "planted")]
    fn draw_too_early(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut MakoEffects,
    ) -> Option<Clock> {
        if !self.options().faults.has(MakoPlantedBug::ClockBeforeLock) {
            return None;
        }
        let shard = self.leader_shards[at].lead.shard;
        let clock = self.shared.replica(shard).expect("held").store.draw_clock_too_early();
        let epoch = self.runtime.worker_context.epoch.get();
        self.begin_in_flight(at, EpochTransaction { transaction, epoch }, clock, effects);
        Some(clock)
    }

    #[cfg(not(feature = "planted"))]
    fn draw_too_early(&mut self, _: usize, _: TransactionId, _: &mut MakoEffects) -> Option<Clock> {
        None
    }

    /// Acts on a request to a branch that executes.
    #[expect(clippy::too_many_arguments, reason = "the parts of a context that is taken apart")]
    fn act_open(
        &mut self,
        at: usize,
        header: &BranchHeader,
        request: MakoRequest,
        branch: StoreBranch,
        reads: usize,
        early: Option<Clock>,
        effects: &mut MakoEffects,
    ) -> Result<(Option<MakoBranch>, Option<MakoReply>)> {
        let id = header.transaction;
        match request {
            MakoRequest::Execute { operations } => {
                let answers = match self.runtime.perform(&branch, &operations) {
                    Ok(answers) => answers,
                    Err(error) => {
                        self.drop_early(at, id, early, effects);
                        return Err(error);
                    }
                };
                let (dependencies, reads) =
                    self.gather(at, header.into(), &branch, reads..usize::MAX, effects)?;
                let context = MakoBranch::Open { branch, reads, early };
                Ok((Some(context), Some(MakoReply::Executed { answers, dependencies })))
            }
            MakoRequest::Lock { operations, validate } => {
                let performed = self
                    .check_draws(at)
                    .and_then(|()| self.runtime.perform(&branch, &operations).map(drop));
                if performed.is_ok() && self.takes_slices(&branch, early) {
                    let asked = BranchGoal::Lock { validate };
                    return Ok((Some(self.slice_branch(header, branch, reads, asked)), None));
                }
                let locked = performed.and_then(|()| {
                    self.lock_branch(at, header.into(), branch, reads, validate, effects)
                });
                let (locked, dependencies) =
                    locked.inspect_err(|_| self.drop_early(at, id, early, effects))?;
                let clock = early.unwrap_or_else(|| self.draw(at, header.into(), &locked, effects));
                let context = MakoBranch::Locked { locked, clock };
                let ignores = self.options().faults.has(MakoPlantedBug::LockAfterClose);
                if self.is_closed(header.epoch) && !ignores {
                    self.drop_context(at, id, Some(context), effects);
                    return Err(Mako::not_open(header.epoch));
                }
                self.observe_locked(at, header, clock, effects);
                Ok((Some(context), Some(MakoReply::Locked { clock, dependencies })))
            }
            MakoRequest::Validate { last } if self.takes_slices(&branch, early) => {
                let asked = BranchGoal::Validate { last };
                Ok((Some(self.slice_branch(header, branch, reads, asked)), None))
            }
            MakoRequest::Validate { last } => {
                let valid = self.validate(|| branch.validate());
                if last || valid.is_err() {
                    self.drop_early(at, id, early, effects);
                }
                valid?;
                let context = (!last).then_some(MakoBranch::Open { branch, reads, early });
                Ok((context, Some(MakoReply::Validated)))
            }
            MakoRequest::Commit { operations, install } => {
                self.drop_early(at, id, early, effects);
                if install {
                    self.runtime.perform(&branch, &operations)?;
                }
                if self.takes_slices(&branch, None) {
                    let asked = BranchGoal::Commit { install };
                    return Ok((Some(self.slice_branch(header, branch, 0, asked)), None));
                }
                let stamp = self.commit_branch(at, id, branch, install, effects)?;
                Ok((None, Some(MakoReply::Certified { stamp })))
            }
            MakoRequest::Install { .. } | MakoRequest::Abort => {
                unreachable!("it does not fit a branch that executes, or is done with already")
            }
        }
    }

    /// A branch of another node's transaction is locked, and its coordinator will receive the clock.
    pub(crate) fn observe_locked(
        &self,
        at: usize,
        header: &BranchHeader,
        clock: Clock,
        effects: &mut MakoEffects,
    ) {
        let shard = self.leader_shards[at].lead.shard;
        effects.observe(|| MakoObservation::Locked { shard, epoch: header.epoch, clock });
    }

    /// Is a branch too large to be locked and validated in one step?
    fn takes_slices(&self, branch: &StoreBranch, early: Option<Clock>) -> bool {
        early.is_none() && !self.runtime.worker_context.is_short(branch.size())
    }

    /// Locks a branch whose first `reads` reads the coordinator knows. Says what the others depend on.
    fn lock_branch(
        &mut self,
        at: usize,
        of: EpochTransaction,
        branch: StoreBranch,
        reads: usize,
        validate: bool,
        effects: &mut MakoEffects,
    ) -> Result<(Locked<PooledSession>, Stamp)> {
        let (dependencies, _) = self.gather(at, of, &branch, reads..usize::MAX, effects)?;
        interleave::point(&mut effects.observations);
        self.runtime.worker_context.certify(branch.size());
        let locked = branch.lock()?;
        if validate {
            self.validate(|| locked.validate())?;
        }
        Ok((locked, dependencies))
    }

    /// The dependencies of these reads of a branch, as many as there are; and the number of the read after them.
    pub(crate) fn gather(
        &self,
        at: usize,
        of: EpochTransaction,
        branch: &StoreBranch,
        reads: Range<usize>,
        effects: &mut MakoEffects,
    ) -> Result<(Stamp, usize)> {
        let shard = self.leader_shards[at].lead.shard;
        let (faults, full) = (self.options().faults, self.options().stamps == StampForm::Full);
        let watermarks = &self.watermarks.borrow();
        let EpochTransaction { transaction, epoch } = of;
        let context = Reads { shard, epoch, watermarks, full, faults };
        let observed = effects.observations.as_ref().map_or(0, Vec::len);
        let gathered = match &mut effects.observations {
            None => dependencies::of(branch, reads, &context, None),
            Some(observations) => dependencies::of(
                branch,
                reads,
                &context,
                Some(&mut |read| {
                    let (stamp, tombstone) = (read.stamp.to_stamp(), read.tombstone);
                    observations.push(MakoObservation::Read {
                        transaction,
                        shard,
                        stamp,
                        tombstone,
                    });
                }),
            ),
        };
        if gathered.is_err() {
            // None of it is ever seen.
            effects.observations.iter_mut().for_each(|seen| seen.truncate(observed));
        }
        if gathered.is_err() {
            // Drops versions that were rolled back, now that a read has met them.
            branch.discard_read(|stamp| watermarks.rejects(shard, stamp));
        }
        let gathered = gathered?;
        Ok((gathered.stamp, gathered.reads))
    }

    /// A transaction that touches this shard only: all of its certification at once.
    pub(crate) fn commit_branch(
        &mut self,
        at: usize,
        transaction: TransactionId,
        branch: StoreBranch,
        install: bool,
        effects: &mut MakoEffects,
    ) -> Result<Stamp> {
        let shard = self.leader_shards[at].lead.shard;
        let epoch = self.runtime.worker_context.epoch.get();
        self.check_serves(at, effects)?;
        let of = EpochTransaction { transaction, epoch };
        let (mut stamp, _) = self.gather(at, of, &branch, 0..usize::MAX, effects)?;
        self.runtime.worker_context.certify(branch.size());
        if branch.is_read_only() || !install {
            branch.validate()?;
            return Ok(stamp);
        }
        interleave::point(&mut effects.observations);
        let locked = branch.lock()?;
        let clock = self.draw(at, of, &locked, effects);
        let ignores = self.options().faults.has(MakoPlantedBug::InstallAfterClose);
        let valid = match self.is_closed(epoch) && !ignores {
            true => Err(Mako::not_open(epoch)),
            false => locked.validate(),
        };
        if let Err(error) = valid {
            let context = Some(MakoBranch::Locked { locked, clock });
            self.drop_context(at, transaction, context, effects);
            return Err(error);
        }
        // The clocks of the versions that were read here were drawn before: they are below the new one.
        assert!(stamp.clock < clock, "M2: {shard} drew {clock} after {}", stamp.clock);
        stamp.clock = clock;
        self.bound(shard, &mut stamp, effects);
        self.install_branch(at, transaction, locked, &stamp, effects);
        Ok(stamp)
    }

    /// Does this node serve the shard at this place? It may have been deposed since the transaction began.
    pub(crate) fn check_serves(&mut self, at: usize, effects: &mut MakoEffects) -> Result<()> {
        if !self.leader_shards[at].serves() {
            return Err(recovering(self.leader_shards[at].lead.shard));
        }
        self.act_as_leader(at, effects);
        self.check_draws(at)
    }

    /// Brings a finished stamp, kept by `own`, into the form that the options ask for.
    pub(crate) fn bound(&mut self, own: ShardId, stamp: &mut Stamp, effects: &mut MakoEffects) {
        match self.options().stamps {
            StampForm::Full => return,
            StampForm::Sparse { remote_max } => {
                self.watermarks.borrow().prune(stamp);
                stamp.collapse(remote_max);
            }
            StampForm::Timestamp => stamp.level(1),
            StampForm::Group { .. } => {
                stamp.level(GROUP_CLOCKS);
                let floor = stamp.as_ref().entry(own, ShardId::EVERY);
                return self.gossip.open_group(floor, self.runtime.worker_context.now.get());
            }
        }
        let floor = stamp.as_ref().entry(own, ShardId::EVERY);
        if floor > Clock::ZERO {
            // The transaction waits for every shard now: for own ones, and for those that others lead.
            self.gossip.raise_floor(floor);
            self.pass_floor(floor, effects);
        }
    }

    /// Has the epoch closed on this node? To be asked after a clock was drawn: if not, everything of a
    /// later epoch draws greater ones. So on a shard the clocks of an epoch are below those of the next,
    /// and none overwrites a version of a later epoch (rule M8).
    pub(crate) fn is_closed(&self, epoch: Epoch) -> bool {
        self.shared.epochs.open() > epoch
    }

    /// Draws a clock under the locks (rule M2).
    pub(crate) fn draw(
        &mut self,
        at: usize,
        of: EpochTransaction,
        locked: &Locked<PooledSession>,
        effects: &mut MakoEffects,
    ) -> Clock {
        let shard = self.leader_shards[at].lead.shard;
        assert!(!self.is_stalled(at), "M11: {shard} decides nothing, and certifies");
        let worker_context = &self.runtime.worker_context;
        let takes_part = of.epoch < worker_context.epoch.get() || worker_context.takes_part(shard);
        assert!(takes_part, "M12: {shard} is out, and draws a clock");
        let clock = locked.draw_clock();
        self.begin_in_flight(at, of, clock, effects);
        clock
    }

    fn begin_in_flight(
        &mut self,
        at: usize,
        of: EpochTransaction,
        clock: Clock,
        effects: &mut MakoEffects,
    ) {
        let EpochTransaction { transaction, epoch } = of;
        let (shard, since) =
            (self.leader_shards[at].lead.shard, self.runtime.worker_context.now.get());
        self.leader_shards[at]
            .lead
            .begin_in_flight(clock, InFlight { transaction, epoch, since, resolved: false });
        effects.observe(|| MakoObservation::Drawn { transaction, shard, clock });
    }

    /// Passes on the floor of a stamp that is kept here, which is about all shards.
    pub(crate) fn note_floor(&mut self, at: usize, stamp: &Stamp, effects: &mut MakoEffects) {
        let floor = stamp.as_ref().entry(self.leader_shards[at].lead.shard, ShardId::EVERY);
        if let StampForm::Group { .. } = self.options().stamps {
            self.gossip.open_group(floor, self.runtime.worker_context.now.get());
        } else if floor > Clock::ZERO {
            // Its coordinator sends it to all shards as well, and may be gone.
            self.gossip.raise_floor(floor);
            self.pass_floor(floor, effects);
        }
    }

    /// Undoes what a branch has done so far; its clock is resolved by its coordinator's word.
    pub(crate) fn drop_context(
        &mut self,
        at: usize,
        transaction: TransactionId,
        context: Option<MakoBranch>,
        effects: &mut MakoEffects,
    ) {
        match context {
            None => {}
            Some(MakoBranch::Open { branch, early, .. }) => {
                drop(branch);
                self.drop_early(at, transaction, early, effects);
            }
            Some(MakoBranch::Locked { locked, clock }) => {
                drop(locked);
                self.drop_early(at, transaction, Some(clock), effects);
            }
            Some(MakoBranch::Slicing(slicing)) => {
                let (staged, clock) = slicing.into_parts();
                drop(staged);
                self.drop_early(at, transaction, clock, effects);
            }
        }
    }

    fn drop_early(
        &mut self,
        at: usize,
        transaction: TransactionId,
        clock: Option<Clock>,
        effects: &mut MakoEffects,
    ) {
        let Some(clock) = clock else { return };
        let shard = self.leader_shards[at].lead.shard;
        self.leader_shards[at].lead.end_in_flight(clock);
        effects.observe(|| MakoObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: false,
        });
    }

    fn validate(&self, validate: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.skips_validation() {
            true => Ok(()),
            false => validate(),
        }
    }

    /// A planted bug.
    pub(crate) fn skips_validation(&self) -> bool {
        self.options().faults.has(MakoPlantedBug::SkipRemoteValidation)
    }
}
