//! A transaction at its coordinator: from execution to its outcome (rules P1, P3 and P4).
//!
//! ```text
//!            commit                     all locked              all valid, prepared       durable
//! executing ──────► (draining) ─► locking ────────► validating ───────────────────► deciding ──► done
//!     │                 │                               └► another node's shard decides ───────────┤
//!     │                 └► delegated: one participant does all of it ─────────────────────────────►│
//!     └── anything goes wrong before it is decided: abort, everywhere ──► done
//! ```

use super::last_agent::last_agent;
use crate::commit_progress::{CommitPhase, CommitPlan, CommitProgress, OwnBranch};
use crate::leader_log::RecordWaiter;
use crate::message::{DecisionHome, TwoPhaseCommitReply, TwoPhaseCommitRequest};
use crate::metrics::{LOCKING, VALIDATING};
use crate::observation::TwoPhaseCommitObservation;
use crate::open_decisions::Delivery;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::record::writes_of;
use crate::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::engine::WorkerPlace;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::staged_certification::{CertificationStage, StagedCertification};
use shoal_engine::execution::worker_context::{BodyEnd, Submission, recovering};
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Clock, Error, Result, ShardId, Stamp, Time};
use std::collections::BTreeMap;
use std::rc::Rc;

impl TwoPhaseCommit {
    /// Sends the operations that have gathered in the remote branches.
    pub(crate) fn send_batches(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        if let Some(error) = self.moved(remote_branches) {
            remote_branches.spoil(&error);
            return;
        }
        let execute = |operations| TwoPhaseCommitRequest::Execute { operations };
        if self.runtime.send_batches(remote_branches, execute, effects) {
            self.coordinator.execute(remote_branches);
        }
    }

    /// A participant has answered the request that was under way.
    pub(crate) fn replied(
        &mut self,
        key: BranchKey,
        reply: TwoPhaseCommitReply,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let (sequence, shard) = key;
        if reply == TwoPhaseCommitReply::Resolved {
            self.runtime.resolved(sequence);
            return self.acknowledged(self.own_id(sequence), shard);
        }
        let Some(remote_branches) = self.coordinator.remote_branches(sequence) else {
            self.runtime.counters.dropped += 1;
            return;
        };
        let remote_branches = Rc::clone(remote_branches);
        match self.coordinator.take_commit(sequence) {
            None => {
                self.answer_reads(&remote_branches, shard, reply);
                self.send_batches(&remote_branches, effects);
            }
            Some(it) if it.phase == CommitPhase::Draining => {
                self.answer_reads(&remote_branches, shard, reply);
                self.begin(it, effects);
            }
            Some(it) => self.proceed(it, shard, reply, effects),
        }
    }

    fn answer_reads(
        &mut self,
        remote_branches: &RemoteBranches,
        shard: ShardId,
        reply: TwoPhaseCommitReply,
    ) {
        match reply {
            TwoPhaseCommitReply::Executed { answers } => {
                remote_branches.answer(shard, answers);
            }
            TwoPhaseCommitReply::Refused { error } => remote_branches.fail(shard, &error),
            // Nothing else was asked for.
            _ => self.runtime.counters.dropped += 1,
        }
    }

    /// A participant has answered a transaction that commits.
    fn proceed(
        &mut self,
        mut it: CommitProgress,
        shard: ShardId,
        reply: TwoPhaseCommitReply,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        match (it.phase, reply) {
            (_, TwoPhaseCommitReply::Refused { error }) => {
                it.remote_branches.fail(shard, &error);
                return self.abort(it, error, effects);
            }
            (CommitPhase::Locking, TwoPhaseCommitReply::Locked { clock }) => {
                it.drawn.push((shard, clock));
            }
            (CommitPhase::Validating, TwoPhaseCommitReply::Validated) => {
                // One that only read has nothing more to do.
                let prepared = it.drawn.iter().any(|(drawer, _)| *drawer == shard);
                it.remote_branches.with_remote(shard, |remote| remote.over = !prepared);
            }
            (CommitPhase::Delegated, TwoPhaseCommitReply::Committed { clock }) => {
                it.remote_branches.with_remote(shard, |remote| remote.over = true);
                it.drawn.extend(clock.map(|clock| (shard, clock)));
                self.count_certified(&it, effects);
                return self.commit(it, effects);
            }
            (CommitPhase::Deciding, TwoPhaseCommitReply::Committed { .. }) => {
                it.remote_branches.with_remote(shard, |remote| remote.over = true);
                return self.commit(it, effects);
            }
            // Nothing else was asked for.
            _ => {
                self.runtime.counters.dropped += 1;
                return self.coordinator.keep(it);
            }
        }
        it.waiting -= 1;
        self.go_on(it, effects);
    }

    /// Enters the next phase, if this one is done.
    fn go_on(&mut self, it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        match it.phase {
            CommitPhase::Locking if it.waiting == 0 => self.validate_all(it, effects),
            CommitPhase::Validating if it.waiting == 0 && it.undurable == 0 => {
                self.decide(it, effects);
            }
            _ => self.coordinator.keep(it),
        }
    }

    /// A transaction's body is done.
    pub(crate) fn submit(&mut self, submission: Submission, effects: &mut TwoPhaseCommitEffects) {
        let Submission { remote_branches, branches, ending } = submission;
        self.runtime.worker_context.submit(&remote_branches.marks);
        self.coordinator.remove(remote_branches.id.sequence);
        remote_branches.own_keys.set(branches.writes());
        let reading = |branch| OwnBranch::Reading(StagedCertification::reading(branch, 0));
        let own = branches.into_sorted().into_iter().map(|(at, branch)| (at, reading(branch)));
        let it = CommitProgress {
            remote_branches,
            ending,
            phase: CommitPhase::Draining,
            plan: CommitPlan::ReadOnly,
            home: None,
            phase_since: Time::ZERO,
            own: own.collect(),
            writers: 0,
            drawn: Vec::new(),
            waiting: 0,
            undurable: 0,
            reported: false,
            handed_over: false,
        };
        self.begin(it, effects);
    }

    /// Begins to commit, unless reads are under way.
    fn begin(&mut self, it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        if let Some(error) =
            it.remote_branches.failure().or_else(|| self.moved(&it.remote_branches))
        {
            return self.abort(it, error, effects);
        }
        if let Some((at, _)) = it.own.iter().find(|(at, _)| !self.streams[*at].log().serves()) {
            let error = recovering(self.streams[*at].shard());
            return self.abort(it, error, effects);
        }
        let remote_branches = Rc::clone(&it.remote_branches);
        if !remote_branches.is_busy() {
            remote_branches.forget_reads();
        }
        if remote_branches.is_full() {
            self.send_batches(&remote_branches, effects);
            self.coordinator.remove(remote_branches.id.sequence);
        }
        if remote_branches.is_busy() {
            self.coordinator.keep(it);
        } else {
            self.lock_all(it, effects);
        }
    }

    /// Takes the locks: own ones first, others by messages.
    fn lock_all(&mut self, mut it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        let remote_branches = Rc::clone(&it.remote_branches);
        let install = it.ending == BodyEnd::Commit;
        let remotes: Vec<(ShardId, bool)> =
            remote_branches.remotes().iter().map(|it| (it.shard, it.writes)).collect();
        if let ([], [(shard, _)]) = (&it.own[..], &remotes[..]) {
            it.phase = CommitPhase::Delegated;
            let request = |operations| TwoPhaseCommitRequest::OnePhase { operations, install };
            self.runtime.send_next(&remote_branches, *shard, request, effects);
            return self.coordinator.keep(it);
        }
        let others = it.written_elsewhere();
        let own: Vec<usize> = it
            .own
            .iter()
            .filter(|(_, branch)| install && branch.writes())
            .map(|(at, _)| *at)
            .collect();
        it.writers = own.len() + others.len();
        it.plan = match (&own[..], &others[..]) {
            ([], []) => CommitPlan::ReadOnly,
            ([at], []) => CommitPlan::Own(*at),
            ([], [shard]) => CommitPlan::Other(*shard),
            ([], [shard, ..]) if self.served().is_none() => CommitPlan::LastAgent(*shard),
            _ => CommitPlan::TwoPhase,
        };
        it.home = match it.plan {
            CommitPlan::ReadOnly | CommitPlan::Other(_) | CommitPlan::LastAgent(_) => None,
            CommitPlan::Own(at) => Some(at),
            // Where it writes itself, if it does, since it need not be prepared there.
            CommitPlan::TwoPhase => own.first().copied().or_else(|| self.served()),
        }
        .map(|at| (at, self.home_at(at)));
        self.lock_rest(it, effects);
    }

    /// Takes the own locks that it has not, and then those of other nodes' shards.
    pub(crate) fn lock_rest(
        &mut self,
        mut it: CommitProgress,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let (remote_branches, others) = (Rc::clone(&it.remote_branches), it.written_elsewhere());
        match self.lock_own(&mut it, effects) {
            Ok(true) => {}
            Ok(false) => return self.pause(it, CommitPhase::LockingOwn),
            Err(error) => return self.abort(it, error, effects),
        }
        let too_early = self.options().faults.has(TwoPhaseCommitPlantedBug::ValidateBeforeLocks);
        if let Err(error) = match (too_early, others.is_empty()) {
            (true, _) => self.validate_own(&mut it, effects).map(drop),
            (false, false) => self.check_own(&it),
            (false, true) => Ok(()),
        } {
            return self.abort(it, error, effects);
        }
        if others.is_empty() {
            // These were all locks there are, so it need not be prepared to be validated.
            return self.validate_all(it, effects);
        }
        self.prepare_own(&mut it);
        it.phase = CommitPhase::Locking;
        it.waiting = others.len();
        let home = match it.plan {
            CommitPlan::ReadOnly | CommitPlan::Own(_) | CommitPlan::Other(_) => None,
            CommitPlan::TwoPhase => it.home.map(|(_, home)| home),
            CommitPlan::LastAgent(shard) => Some(last_agent(&remote_branches, shard)),
        };
        for shard in others {
            let request = |operations| match home.filter(|home| home.shard != shard) {
                Some(home) => TwoPhaseCommitRequest::Prepare { operations, home },
                None => TwoPhaseCommitRequest::Lock { operations },
            };
            self.runtime.send_next(&remote_branches, shard, request, effects);
        }
        self.coordinator.keep(it);
    }

    /// Locks what it writes here, as much as a step may. Says whether that was the last.
    fn lock_own(
        &mut self,
        it: &mut CommitProgress,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<bool> {
        let transaction = it.remote_branches.id;
        let install = it.ending == BodyEnd::Commit;
        let mut is_over = true;
        for (at, branch) in std::mem::take(&mut it.own) {
            let mut staged = match branch {
                OwnBranch::Reading(staged) if is_over && install && !staged.is_read_only() => {
                    staged
                }
                other => {
                    it.own.push((at, other));
                    continue;
                }
            };
            self.observe_staged(at, transaction, &mut staged, effects);
            let staged = staged.lock_some(&self.runtime.worker_context)?;
            is_over = staged.is_locked();
            let CertificationStage::Locked(locked) = staged.stage else {
                it.own.push((at, OwnBranch::Reading(staged)));
                continue;
            };
            let clock = self.draw(at, transaction, &locked, effects);
            it.drawn.push((self.streams[at].shard(), clock));
            let (prepared, validates) = (false, Some(0));
            it.own.push((at, OwnBranch::Locked { locked, clock, prepared, validates }));
        }
        Ok(is_over)
    }

    /// Shows what an own branch has read, once.
    fn observe_staged(
        &self,
        at: usize,
        transaction: TransactionId,
        staged: &mut StagedCertification,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        if let (Some(_), CertificationStage::Reading(branch)) =
            (staged.gathers.take(), &staged.stage)
        {
            self.observe_reads(at, transaction, branch, effects);
        }
    }

    /// Prepares own branches, like other nodes'; but for the one on the home shard, where the decision
    /// will be.
    fn prepare_own(&mut self, it: &mut CommitProgress) {
        let transaction = it.remote_branches.id;
        let Some((home_at, home)) = it.home.filter(|_| it.plan == CommitPlan::TwoPhase) else {
            return;
        };
        for (at, branch) in &mut it.own {
            let bases = self.delta_bases(*at);
            if let OwnBranch::Locked { locked, clock, prepared, .. } = branch
                && *at != home_at
                && !*prepared
            {
                *prepared = true;
                it.undurable += 1;
                let waiter = Some(RecordWaiter::Prepared(transaction.sequence));
                self.streams[*at].append(
                    self.runtime.worker_context.now.get(),
                    Some(*clock),
                    waiter,
                    |batch| {
                        batch.prepare(transaction, *clock, home, |write| {
                            writes_of(locked, bases, write);
                        });
                    },
                );
            }
        }
    }

    /// Checks what it read here, as much as a step may. Says whether that was the last.
    fn validate_own(
        &mut self,
        it: &mut CommitProgress,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<bool> {
        it.own.iter().for_each(|(at, _)| self.act_as_leader(*at, effects));
        for (at, branch) in &mut it.own {
            let is_over = match branch {
                OwnBranch::Locked { locked, validates, .. } => {
                    if let Some(from) = *validates {
                        *validates = self.validate_locks(locked, from)?;
                    }
                    validates.is_none()
                }
                OwnBranch::Reading(staged) => {
                    self.observe_staged(*at, it.remote_branches.id, staged, effects);
                    staged.validate_some(&self.runtime.worker_context)?
                }
            };
            if !is_over {
                return Ok(false);
            }
        }
        // What was only read has nothing more to do.
        it.own.retain(|(_, branch)| matches!(branch, OwnBranch::Locked { .. }));
        Ok(true)
    }

    /// All is checked when all locks are held (rule P1). But what fails now already need not be kept from others for as
    /// long as locks on other shards take; where that takes more than a step, it is not worth it.
    fn check_own(&self, it: &CommitProgress) -> Result<()> {
        let worker_context = &self.runtime.worker_context;
        it.own.iter().try_for_each(|(_, branch)| match branch {
            OwnBranch::Locked { locked, .. } if worker_context.is_short(locked.size()) => {
                locked.validate()
            }
            OwnBranch::Reading(StagedCertification {
                stage: CertificationStage::Reading(branch),
                ..
            }) if worker_context.is_short(branch.size()) => branch.validate(),
            OwnBranch::Locked { .. } | OwnBranch::Reading(_) => Ok(()),
        })
    }

    /// All locks are held, everywhere (rule P1): checks what was read, everywhere.
    pub(crate) fn validate_all(
        &mut self,
        mut it: CommitProgress,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let id = it.remote_branches.id;
        assert_eq!(it.drawn.len(), it.writers, "P1: {id} validates, and not all is locked");
        let too_early = self.options().faults.has(TwoPhaseCommitPlantedBug::ValidateBeforeLocks);
        let validated = if too_early { Ok(true) } else { self.validate_own(&mut it, effects) };
        match validated {
            Ok(true) => {}
            Ok(false) => return self.pause(it, CommitPhase::ValidatingOwn),
            Err(error) => return self.abort(it, error, effects),
        }
        self.prepare_own(&mut it);
        it.phase = CommitPhase::Validating;
        it.phase_since = self.runtime.worker_context.now.get();
        if it.undurable > 0 {
            self.expect_durable(&it);
        }
        self.runtime.worker_context.end_stage(&it.remote_branches.marks, LOCKING);
        let others = others_to_validate(&it);
        it.waiting = others.len();
        let remote_branches = Rc::clone(&it.remote_branches);
        for shard in others {
            self.runtime.send_next(
                &remote_branches,
                shard,
                |_| TwoPhaseCommitRequest::Validate,
                effects,
            );
        }
        self.go_on(it, effects);
    }

    /// An own shard other than the home shard has its prepare record durable.
    pub(crate) fn own_is_prepared(&mut self, sequence: u64, effects: &mut TwoPhaseCommitEffects) {
        // Otherwise it was given up meanwhile.
        if let Some(mut it) = self.coordinator.take_commit(sequence) {
            it.undurable -= 1;
            self.go_on(it, effects);
        }
    }

    /// Everything is valid and prepared (rule P3): appends the commit record.
    fn decide(&mut self, mut it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        let transaction = it.remote_branches.id;
        assert!(
            it.waiting == 0 && it.undurable == 0 && it.drawn.len() == it.writers,
            "P3: {transaction} is decided with something missing"
        );
        self.count_certified(&it, effects);
        it.phase = CommitPhase::Deciding;
        it.phase_since = self.runtime.worker_context.now.get();
        if self.options().faults.has(TwoPhaseCommitPlantedBug::AcknowledgeAtCertification) {
            self.report_outcome(&mut it, effects);
        }
        match it.plan {
            CommitPlan::ReadOnly => return self.commit(it, effects),
            CommitPlan::Own(at) => self.append_decision(at, &it),
            CommitPlan::TwoPhase => {
                let (at, home) = it.home.expect("it is chosen with the plan");
                assert_eq!(
                    self.home_at(at),
                    home,
                    "P8: {transaction} is decided by another leadership than it was prepared under"
                );
                self.append_decision(at, &it);
            }
            CommitPlan::Other(shard) => {
                let request =
                    |operations| TwoPhaseCommitRequest::OnePhase { operations, install: true };
                let remote_branches = Rc::clone(&it.remote_branches);
                self.runtime.send_next(&remote_branches, shard, request, effects);
            }
            CommitPlan::LastAgent(shard) => self.decide_there(&it, shard, effects),
        }
        self.coordinator.keep(it);
    }

    fn append_decision(&mut self, at: usize, it: &CommitProgress) {
        let transaction = it.remote_branches.id;
        let own = it.own.iter().find_map(|(place, branch)| match branch {
            OwnBranch::Locked { locked, clock, .. } if *place == at => Some((locked, *clock)),
            _ => None,
        });
        let home = self.streams[at].shard();
        let others = it.drawn.iter().map(|(shard, _)| *shard).filter(|shard| *shard != home);
        let participants: Vec<ShardId> = others.collect();
        let waiter = RecordWaiter::Decided(transaction.sequence);
        self.expect_durable(it);
        self.append_commit(at, transaction, &participants, own, waiter);
    }

    /// A record that a transaction waits for is on its way, or will be at once.
    fn expect_durable(&mut self, it: &CommitProgress) {
        self.coordinator.expect_record(it, &self.runtime.worker_context);
    }

    /// The commit record is durable.
    pub(crate) fn is_decided(&mut self, sequence: u64, effects: &mut TwoPhaseCommitEffects) {
        let Some(it) = self.coordinator.take_commit(sequence) else {
            panic!("{sequence} was decided, and is not known");
        };
        assert_eq!(it.phase, CommitPhase::Deciding, "{sequence} was decided too early");
        self.commit(it, effects);
    }

    /// The transaction is committed (rule P4): answers the client, installs here, and has the participants install.
    fn commit(&mut self, mut it: CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        let remote_branches = Rc::clone(&it.remote_branches);
        let transaction = remote_branches.id;
        let home = it.home.filter(|_| it.plan == CommitPlan::TwoPhase);
        // A participant of which nothing is known here receives the decision like one with a new leader.
        let mut deliveries: BTreeMap<ShardId, Delivery> = it
            .drawn
            .iter()
            .map(|(shard, _)| (*shard, Delivery::RepeatedFrom(Time::ZERO)))
            .collect();
        for (at, branch) in std::mem::take(&mut it.own) {
            if let OwnBranch::Locked { locked, clock, prepared, .. } = branch {
                let outcome = prepared.then(|| {
                    let (here, (_, home)) = (self.home_at(at), home.expect("two phases"));
                    deliveries.insert(here.shard, Delivery::Coordinated(here.leadership));
                    RecordWaiter::Outcome(transaction, home.shard)
                });
                self.install(at, transaction, locked, clock, outcome, effects);
            }
        }
        let mut sent = 0;
        let open = if it.handed_over { Vec::new() } else { remote_branches.open_branches() };
        for shard in open {
            let prepared = it.drawn.iter().any(|(drawer, _)| *drawer == shard);
            let leadership = remote_branches.with_remote(shard, |remote| remote.leader.since);
            if leadership != self.runtime.worker_context.leaderships.leader(shard).since {
                continue; // That leader is gone, and with it the branch as it was.
            }
            let request =
                if prepared { TwoPhaseCommitRequest::Commit } else { TwoPhaseCommitRequest::Abort };
            deliveries.insert(shard, Delivery::Coordinated(leadership));
            self.runtime.send_next(&remote_branches, shard, |_| request, effects);
            sent += 1;
        }
        if !it.handed_over {
            self.runtime.expect_resolved(transaction.sequence, sent);
        }
        if let Some((at, home)) = home {
            let drew = |shard: &ShardId| it.drawn.iter().any(|(drawer, _)| drawer == shard);
            deliveries.retain(|shard, _| *shard != home.shard && drew(shard));
            match self.options().faults.has(TwoPhaseCommitPlantedBug::EndUnacknowledged) {
                true => self.end_decision(at, transaction),
                false => self.streams.add_decision(at, transaction, deliveries),
            }
        }
        self.report_outcome(&mut it, effects);
    }

    fn count_certified(&mut self, it: &CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        self.counters.certified += 1;
        self.runtime.count_writes(&it.remote_branches, it.drawn.len());
        self.runtime.worker_context.end_stage(&it.remote_branches.marks, VALIDATING);
        let (transaction, own) = (it.remote_branches.id, self.runtime.worker_context.home());
        effects.observe(|| {
            let (stamp, writes) = (self.stamp(it), it.drawn.clone());
            TwoPhaseCommitObservation::Certified { transaction, own, stamp, writes }
        });
    }

    /// What it writes, as the home shard would keep it: all versions carry one epoch.
    fn stamp(&self, it: &CommitProgress) -> Stamp {
        let mut stamp = Stamp::local(FIRST_EPOCH, Clock::ZERO);
        for (shard, clock) in &it.drawn {
            stamp.push(self.runtime.worker_context.home(), *shard, *clock);
        }
        stamp
    }

    /// Answers the client, once.
    fn report_outcome(&mut self, it: &mut CommitProgress, effects: &mut TwoPhaseCommitEffects) {
        if std::mem::replace(&mut it.reported, true) {
            return; // Only with a planted bug.
        }
        let transaction = it.remote_branches.id;
        let shards = it.drawn.len();
        effects.observe(|| TwoPhaseCommitObservation::Acknowledged { transaction, shards });
        self.runtime.commit(&it.remote_branches);
    }

    /// Gives a transaction up, everywhere.
    pub(crate) fn abort(
        &mut self,
        it: CommitProgress,
        error: Error,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let CommitProgress { remote_branches, own, .. } = it;
        for (at, branch) in own {
            if let OwnBranch::Locked { locked, clock, prepared, .. } = branch {
                self.drop_locked(at, remote_branches.id, locked, clock, prepared, effects);
            }
        }
        self.runtime.give_up(&remote_branches, || TwoPhaseCommitRequest::Abort, effects);
        self.runtime.finish(&remote_branches, Err(error));
    }

    /// A transaction was dropped before it asked to commit.
    pub(crate) fn abandon(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        self.coordinator.remove(remote_branches.id.sequence);
        self.runtime.give_up(remote_branches, || TwoPhaseCommitRequest::Abort, effects);
    }

    /// The name of this worker's transaction with this number.
    pub(crate) fn own_id(&self, sequence: u64) -> TransactionId {
        let WorkerPlace { node, worker } = self.runtime.worker_context.place;
        TransactionId { node, worker, sequence }
    }

    /// The place of a shard that this node serves.
    fn served(&self) -> Option<usize> {
        self.streams.served()
    }

    /// The present leadership of the shard at this place.
    fn home_at(&self, at: usize) -> DecisionHome {
        self.streams[at].home()
    }

    /// Why the transaction cannot go on, if the leadership of a shard that it has spoken to is over.
    fn moved(&self, remote_branches: &RemoteBranches) -> Option<Error> {
        let remotes = remote_branches.remotes();
        let mut moved = remotes.iter().filter(|remote| {
            let now = self.runtime.worker_context.leaderships.leader(remote.shard);
            now != remote.leader
        });
        moved.next().map(|remote| recovering(remote.shard))
    }
}

/// The branches on other nodes' shards that have something to check, or to be prepared.
fn others_to_validate(it: &CommitProgress) -> Vec<ShardId> {
    let remotes = it.remote_branches.remotes();
    let others = remotes.iter().filter(|remote| match it.plan {
        // It validated with its lock.
        CommitPlan::Other(shard) if shard == remote.shard => false,
        CommitPlan::TwoPhase | CommitPlan::LastAgent(_) => remote.reads || remote.writes,
        CommitPlan::ReadOnly | CommitPlan::Own(_) | CommitPlan::Other(_) => remote.reads,
    });
    others.map(|remote| remote.shard).collect()
}
