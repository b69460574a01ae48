//! A transaction at its coordinator: from execution to certification (rules M1 and M5).
//!
//! ```text
//!            commit                     all locked              all valid
//! executing ──────► (draining) ─► locking ────────► validating ─────────► certified ─► answered
//!     │                 └► delegated: one participant does all of it ────────►│
//!     └── anything goes wrong: abort, everywhere ──► answered
//! ```

use crate::branch::{EpochTransaction, MakoBranch, PausedCertification};
use crate::certification::{Certification, CommitPhase};
use crate::commit_waits::{CommitWaiter, WaitingAttempt};
use crate::message::{MakoReply, MakoRequest};
use crate::metrics::{LOCKING, VALIDATING};
use crate::observation::MakoObservation;
use crate::options::{MakoOptions, StampForm};
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects, dependencies};
use shoal_engine::PlantedBug;
use shoal_engine::execution::coordinated_transactions::unless_committed;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::request_retransmission::BranchKey;
use shoal_engine::execution::session_pool::StoreBranch;
use shoal_engine::execution::staged_certification::{CertificationStage, StagedCertification};
use shoal_engine::execution::worker_context::{BodyEnd, LocalSubmission, Submission, recovering};
use shoal_engine::interleave;
use shoal_types::{Aborted, Clock, Conflict, Error, Result, ShardId, Stamp};
use std::rc::Rc;

impl Mako {
    /// Sends the operations that have gathered in the remote branches.
    pub(crate) fn send_batches(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut MakoEffects,
    ) {
        let execute = |operations| MakoRequest::Execute { operations };
        if self.runtime.send_batches(remote_branches, execute, effects) {
            self.coordinator.transactions.execute(remote_branches);
        }
    }

    /// A participant has answered the request that was under way.
    pub(crate) fn replied(&mut self, key: BranchKey, reply: MakoReply, effects: &mut MakoEffects) {
        let (sequence, shard) = key;
        if reply == MakoReply::Resolved {
            return self.runtime.resolved(sequence);
        }
        let Some(remote_branches) = self.coordinator.transactions.remote_branches(sequence) else {
            self.runtime.counters.dropped += 1;
            return;
        };
        let remote_branches = Rc::clone(remote_branches);
        let home = self.runtime.worker_context.home();
        match reply {
            MakoReply::Executed { answers, dependencies } => {
                dependencies::depend(&remote_branches, home, dependencies.seen_by(shard));
                remote_branches.answer(shard, answers);
                match self.coordinator.transactions.take_commit(sequence) {
                    Some(draining) => self.drain(draining, effects),
                    None => self.send_batches(&remote_branches, effects),
                }
            }
            MakoReply::Locked { clock, dependencies } => {
                dependencies::depend(&remote_branches, home, dependencies.seen_by(shard));
                self.advance(sequence, effects, |it| it.drawn.push((shard, clock)));
            }
            MakoReply::Validated => {
                remote_branches.with_remote(shard, |remote| remote.over |= !remote.writes);
                self.advance(sequence, effects, |_| {});
            }
            MakoReply::Certified { stamp } => {
                remote_branches.with_remote(shard, |remote| remote.over = true);
                let done = self.coordinator.transactions.take_commit(sequence);
                let installs = done.is_some_and(|it| it.ending == BodyEnd::Commit);
                self.runtime.worker_context.sequences.borrow_mut().finish(sequence);
                let writes = installs && remote_branches.with_remote(shard, |remote| remote.writes);
                let written = [(shard, stamp.clock)];
                let written = if writes { &written[..] } else { &[] };
                let attempt = WaitingAttempt::Shared(remote_branches);
                self.certified(attempt, shard, stamp, written, effects);
            }
            MakoReply::Refused { error } => {
                remote_branches.fail(shard, &error);
                if let Some(it) = self.coordinator.transactions.take_commit(sequence) {
                    self.abort(it, error, effects);
                }
            }
            MakoReply::Resolved => unreachable!("handled above"),
        }
    }

    /// One of the answers that a phase waits for has come.
    fn advance(
        &mut self,
        sequence: u64,
        effects: &mut MakoEffects,
        note: impl FnOnce(&mut Certification),
    ) {
        let Some(mut it) = self.coordinator.transactions.take_commit(sequence) else {
            panic!("{sequence} was answered, and is not being certified");
        };
        note(&mut it);
        it.waiting -= 1;
        if it.waiting > 0 {
            self.coordinator.transactions.keep(it);
        } else if it.phase == CommitPhase::Locking {
            self.validate_all(it, effects);
        } else {
            self.install_all(it, effects);
        }
    }

    /// A transaction's body is done.
    pub(crate) fn submit(&mut self, submission: Submission, effects: &mut MakoEffects) {
        let Submission { remote_branches, branches, ending } = submission;
        let worker_context = &self.runtime.worker_context;
        worker_context.submit(&remote_branches.marks);
        remote_branches.own_keys.set(branches.writes());
        let is_local = remote_branches.remotes().is_empty();
        if !is_local {
            self.coordinator.transactions.remove(remote_branches.id.sequence);
        }
        let failure = remote_branches.failure().or_else(|| {
            let (epoch, open) = (remote_branches.epoch, worker_context.epoch.get());
            (epoch < open).then(|| Mako::not_open(epoch))
        });
        let own = match branches.into_only() {
            Ok((at, branch))
                if is_local && failure.is_none() && worker_context.is_short(branch.size()) =>
            {
                let install = ending == BodyEnd::Commit;
                let attempt = WaitingAttempt::Shared(remote_branches);
                return self.certify_here(at, attempt, branch, install, effects);
            }
            Ok(only) => vec![only],
            Err(branches) => branches.into_sorted(),
        };
        let own = own.into_iter().map(|(at, branch)| (at, StagedCertification::reading(branch, 0)));
        let certification = Certification {
            ending,
            phase: CommitPhase::Draining,
            own: own.collect(),
            drawn: Vec::new(),
            validated: None,
            waiting: 0,
            remote_branches,
        };
        match failure {
            Some(error) => self.abort(certification, error, effects),
            None => self.drain(certification, effects),
        }
    }

    /// The body of a transaction on one own shard is done.
    pub(crate) fn submit_local(&mut self, submission: LocalSubmission, effects: &mut MakoEffects) {
        let LocalSubmission { attempt, own, branch, ending } = submission;
        let worker_context = &self.runtime.worker_context;
        worker_context.submit(&attempt.marks);
        if attempt.epoch < worker_context.epoch.get() {
            worker_context.sequences.borrow_mut().finish(attempt.id.sequence);
            return self.runtime.finish(&attempt, Err(Mako::not_open(attempt.epoch)));
        }
        let install = ending == BodyEnd::Commit;
        self.certify_here(own, WaitingAttempt::Alone(attempt), branch, install, effects);
    }

    /// Certifies what is ready for that: no read is under way, and what is left to be written fits into the requests
    /// that lock.
    fn drain(&mut self, it: Certification, effects: &mut MakoEffects) {
        let remote_branches = Rc::clone(&it.remote_branches);
        if !remote_branches.is_busy() {
            remote_branches.forget_reads();
        }
        if remote_branches.is_full() {
            self.send_batches(&remote_branches, effects);
        }
        if !remote_branches.is_busy() {
            return self.certify(it, effects);
        }
        self.coordinator.transactions.keep(it);
    }

    /// Takes the locks: own ones at once, others by a message.
    fn certify(&mut self, mut it: Certification, effects: &mut MakoEffects) {
        let remote_branches = Rc::clone(&it.remote_branches);
        let remotes: Vec<(ShardId, bool)> =
            remote_branches.remotes().iter().map(|remote| (remote.shard, remote.writes)).collect();
        let install = it.ending == BodyEnd::Commit;
        if let ([], [(shard, _)]) = (&it.own[..], &remotes[..]) {
            it.phase = CommitPhase::Delegated;
            it.waiting = 1;
            let request = |operations| MakoRequest::Commit { operations, install };
            self.runtime.send_next(&remote_branches, *shard, request, effects);
            return self.coordinator.transactions.keep(it);
        }
        if install {
            if let Some(shard) = self.silent_writer(&remote_branches) {
                let error = Aborted::from(Conflict::NoAnswer { shard }).into();
                return self.abort(it, error, effects);
            }
            match self.lock_own(&mut it, effects) {
                Ok(true) => {}
                Ok(false) => return self.pause(it, CommitPhase::LockingOwn),
                Err(error) => return self.abort(it, error, effects),
            }
        }
        let writers: Vec<ShardId> = remotes
            .iter()
            .filter(|(_, writes)| install && *writes)
            .map(|(shard, _)| *shard)
            .collect();
        let too_early = self.options().faults.has(MakoPlantedBug::ValidateBeforeLocks);
        if (too_early || !writers.is_empty())
            && let Err(error) = self.check_own(&it)
        {
            return self.abort(it, error, effects);
        }
        it.phase = CommitPhase::Locking;
        it.waiting = writers.len();
        // All other locks are held by now, so the only one left may validate right after it.
        let validate = writers.len() == 1 || too_early;
        it.validated = writers.first().copied().filter(|_| validate);
        for shard in &writers {
            let request = |operations| MakoRequest::Lock { operations, validate };
            self.runtime.send_next(&remote_branches, *shard, request, effects);
        }
        self.watch_for_silence();
        match it.waiting {
            0 => self.validate_all(it, effects),
            _ => {
                self.coordinator.transactions.keep(it);
            }
        }
    }

    /// A transaction on one own shard: certified without a message, in this call.
    fn certify_here(
        &mut self,
        at: usize,
        attempt: WaitingAttempt,
        branch: StoreBranch,
        install: bool,
        effects: &mut MakoEffects,
    ) {
        let (transaction, shard) = (attempt.id, self.leader_shards[at].lead.shard);
        let writes = install && !branch.is_read_only();
        let committed = self.commit_branch(at, transaction, branch, install, effects);
        self.runtime.worker_context.sequences.borrow_mut().finish(transaction.sequence);
        match committed {
            Ok(stamp) => {
                let written = [(shard, stamp.clock)];
                let written = if writes { &written[..] } else { &[] };
                self.certified(attempt, shard, stamp, written, effects);
            }
            Err(error) => self.runtime.finish(&attempt, Err(error)),
        }
    }

    /// Locks what it writes here, as much as a step may. Says whether that was the last.
    fn lock_own(&mut self, it: &mut Certification, effects: &mut MakoEffects) -> Result<bool> {
        let mut is_over = true;
        for (at, mut own) in std::mem::take(&mut it.own) {
            if is_over && !own.is_read_only() && !matches!(own.stage, CertificationStage::Locked(_))
            {
                self.check_serves(at, effects)?;
                is_over = self.depend_on_reads(at, &it.remote_branches, &mut own, effects)?;
                if is_over {
                    own = own.lock_some(&self.runtime.worker_context)?;
                    is_over = matches!(own.stage, CertificationStage::Locked(_));
                }
            }
            it.own.push((at, own));
        }
        Ok(is_over)
    }

    /// Adds what its reads here depend on, as many as a step may look at. Says whether those were the last.
    fn depend_on_reads(
        &mut self,
        at: usize,
        remote_branches: &RemoteBranches,
        own: &mut StagedCertification,
        effects: &mut MakoEffects,
    ) -> Result<bool> {
        let of = EpochTransaction { transaction: remote_branches.id, epoch: remote_branches.epoch };
        if let Some(stamp) = self.gather_some(at, of, own, effects)? {
            let (home, shard) =
                (self.runtime.worker_context.home(), self.leader_shards[at].lead.shard);
            dependencies::depend(remote_branches, home, stamp.seen_by(shard));
        }
        Ok(own.gathers.is_none())
    }

    /// All is checked when all locks are held (Mako §4). But what fails now already need not be kept from
    /// others for as long as locks on other shards take; where that takes more than a step, it is not worth it.
    fn check_own(&self, it: &Certification) -> Result<()> {
        let worker_context = &self.runtime.worker_context;
        it.own.iter().try_for_each(|(_, own)| match &own.stage {
            CertificationStage::Locked(locked) if worker_context.is_short(locked.size()) => {
                locked.validate()
            }
            CertificationStage::Reading(branch) if worker_context.is_short(branch.size()) => {
                branch.validate()
            }
            _ => Ok(()),
        })
    }

    /// The rest is for another step.
    fn pause(&mut self, mut it: Certification, phase: CommitPhase) {
        it.phase = phase;
        let sequence = it.remote_branches.id.sequence;
        self.paused.push_back(PausedCertification::Own(sequence));
        self.coordinator.transactions.keep(it);
    }

    /// Goes on with a transaction that was paused, if it was not given up meanwhile.
    pub(crate) fn go_on_own(&mut self, sequence: u64, effects: &mut MakoEffects) {
        let is_paused = |it: &Certification| {
            matches!(it.phase, CommitPhase::LockingOwn | CommitPhase::ValidatingOwn)
        };
        let it = self.coordinator.transactions.take_commit_if(sequence, is_paused);
        match it {
            Some(it) if it.phase == CommitPhase::LockingOwn => self.certify(it, effects),
            Some(it) => self.validate_all(it, effects),
            None => {}
        }
    }

    /// All locks are held, everywhere: validates all reads, everywhere.
    fn validate_all(&mut self, mut it: Certification, effects: &mut MakoEffects) {
        let remote_branches = Rc::clone(&it.remote_branches);
        if it.phase != CommitPhase::ValidatingOwn {
            self.runtime.worker_context.end_stage(&remote_branches.marks, LOCKING);
        }
        it.phase = CommitPhase::Validating;
        let too_early = self.options().faults.has(MakoPlantedBug::ValidateBeforeLocks);
        for place in 0..it.own.len() {
            let (at, own) = &mut it.own[place];
            match self.validate_own(*at, &remote_branches, own, effects) {
                Ok(true) => {}
                Ok(false) => return self.pause(it, CommitPhase::ValidatingOwn),
                Err(error) => return self.abort(it, error, effects),
            }
        }
        let install = it.ending == BodyEnd::Commit;
        let readers: Vec<(ShardId, bool)> = remote_branches
            .remotes()
            .iter()
            .filter(|remote| remote.reads && it.validated != Some(remote.shard))
            .filter(|remote| !(too_early && install && remote.writes))
            .map(|remote| (remote.shard, !remote.writes))
            .collect();
        it.waiting = readers.len();
        for (shard, last) in readers {
            let request = |_| MakoRequest::Validate { last };
            self.runtime.send_next(&remote_branches, shard, request, effects);
        }
        if it.waiting == 0 {
            return self.install_all(it, effects);
        }
        debug_assert!(install || it.drawn.is_empty(), "nothing is locked to be proved");
        self.watch_for_silence();
        self.coordinator.transactions.keep(it);
    }

    /// Checks what it read here, as much as a step may. Says whether that was the last.
    fn validate_own(
        &mut self,
        at: usize,
        remote_branches: &RemoteBranches,
        own: &mut StagedCertification,
        effects: &mut MakoEffects,
    ) -> Result<bool> {
        self.check_serves(at, effects)?;
        let too_early = self.options().faults.has(MakoPlantedBug::ValidateBeforeLocks);
        if too_early && matches!(own.stage, CertificationStage::Locked(_)) {
            return Ok(true);
        }
        if !self.depend_on_reads(at, remote_branches, own, effects)? {
            return Ok(false);
        }
        own.validate_some(&self.runtime.worker_context)
    }

    /// Everything is valid: the transaction is certified. Installs it everywhere. The clocks of own
    /// shards are drawn only now, still under the locks (rule M2): a transaction that waits for a slow participant
    /// has none in flight meanwhile, which would hold the safe clocks back.
    fn install_all(&mut self, it: Certification, effects: &mut MakoEffects) {
        if let Some((at, _)) = it.own.iter().find(|(at, _)| !self.leader_shards[*at].serves()) {
            let shard = self.leader_shards[*at].lead.shard;
            return self.abort(it, recovering(shard), effects);
        }
        let mut own = it.own.iter().map(|(at, _)| self.check_draws(*at));
        if let Some(error) = own.find_map(Result::err) {
            return self.abort(it, error, effects);
        }
        if let Some(shard) = self.overtaken(&it) {
            return self.abort(it, Aborted::from(Conflict::Overtaken { shard }).into(), effects);
        }
        let Certification { remote_branches, own, mut drawn, ending, .. } = it;
        let home = self.runtime.worker_context.home();
        let mut locked_here = Vec::new();
        interleave::point(&mut effects.observations);
        for (at, own) in own {
            if let CertificationStage::Locked(locked) = own.stage {
                let (transaction, epoch) = (remote_branches.id, remote_branches.epoch);
                let of = EpochTransaction { transaction, epoch };
                let clock = self.draw(at, of, &locked, effects);
                drawn.push((self.leader_shards[at].lead.shard, clock));
                locked_here.push((at, locked, clock));
            }
        }
        let ignores = self.options().faults.has(MakoPlantedBug::CertifyAfterClose);
        if !locked_here.is_empty() && self.is_closed(remote_branches.epoch) && !ignores {
            for (at, locked, clock) in locked_here {
                let context = Some(MakoBranch::Locked { locked, clock });
                self.drop_context(at, remote_branches.id, context, effects);
            }
            let error = Mako::not_open(remote_branches.epoch);
            self.runtime.give_up(&remote_branches, || MakoRequest::Abort, effects);
            return self.runtime.finish(&remote_branches, Err(error));
        }
        let dependencies = dependencies::known(&remote_branches);
        let mut stamp = dependencies.clone();
        for (shard, clock) in &drawn {
            stamp.push(home, *shard, *clock);
        }
        self.bound(home, &mut stamp, effects);
        self.assert_covers(&stamp, &dependencies, &drawn, home);
        for (at, locked, clock) in locked_here {
            let kept = stamp.seen_by(home).kept_by(self.leader_shards[at].lead.shard, clock);
            let kept = self.fit(kept);
            self.install_branch(at, remote_branches.id, locked, &kept, effects);
        }
        let remotes: Vec<(ShardId, bool)> =
            remote_branches.remotes().iter().map(|remote| (remote.shard, remote.over)).collect();
        let mut unresolved = 0;
        for (shard, over) in remotes {
            let clock = drawn.iter().find(|(drawer, _)| *drawer == shard).map(|(_, clock)| *clock);
            let request = match clock {
                Some(clock) if ending == BodyEnd::Commit => {
                    let kept = match self.options().faults.has(MakoPlantedBug::InstallOwnClockOnly)
                    {
                        true => Stamp::local(stamp.epoch, clock),
                        false => stamp.seen_by(home).kept_by(shard, clock),
                    };
                    MakoRequest::Install { stamp: self.fit(kept) }
                }
                // It was only read, and wanted to write.
                _ if over => continue,
                _ => MakoRequest::Abort,
            };
            unresolved += 1;
            self.runtime.send_next(&remote_branches, shard, |_| request, effects);
        }
        self.runtime.expect_resolved(remote_branches.id.sequence, unresolved);
        let attempt = WaitingAttempt::Shared(remote_branches);
        self.certified(attempt, home, stamp, &drawn, effects);
    }

    /// A shard whose clock for the transaction cannot be: its reads depend on as much of that shard or
    /// more, or the watermark has passed it. Reads come before locks, so this takes a participant that
    /// errs, or an insert that no task waited for and that went out with the lock.
    fn overtaken(&self, it: &Certification) -> Option<ShardId> {
        let MakoOptions { faults, limits, .. } = self.options();
        if faults.has(MakoPlantedBug::ClockBeforeLock)
            || limits.faults.has(PlantedBug::SafeClockPastInFlight)
        {
            return None; // To give up would hide what the bug has done.
        }
        let (home, dependencies) =
            (self.runtime.worker_context.home(), dependencies::known(&it.remote_branches));
        let dependencies = dependencies.as_ref();
        let floor = dependencies.entry(home, ShardId::EVERY);
        // What the floor hides says nothing of this shard.
        let entry = |shard| Some(dependencies.entry(home, shard)).filter(|clock| *clock > floor);
        let watermarks = self.watermarks.borrow();
        let reached = |shard| watermarks.of(it.remote_branches.epoch, shard);
        let drawn = it.drawn.iter().find(|(shard, clock)| {
            entry(*shard).is_some_and(|entry| entry >= *clock) || reached(*shard) >= *clock
        });
        let own = || {
            let mut led = it.own.iter().map(|(at, _)| self.leader_shards[*at].lead.shard);
            led.find(|shard| {
                let store = &self.shared.replica(*shard).expect("led").store;
                entry(*shard).is_some_and(|entry| entry > store.clock())
            })
        };
        drawn.map(|(shard, _)| *shard).or_else(own)
    }

    /// Rule M1: what the transaction has drawn and what it has read is in its stamp, or durable.
    fn assert_covers(
        &self,
        stamp: &Stamp,
        dependencies: &Stamp,
        drawn: &[(ShardId, Clock)],
        home: ShardId,
    ) {
        let entry = |shard| stamp.as_ref().entry(home, shard);
        for (shard, clock) in drawn {
            assert!(entry(*shard) >= *clock, "M1: {stamp:?} lacks {clock} of {shard}");
        }
        let watermarks = self.watermarks.borrow();
        let read = dependencies.as_ref().remote.iter().map(|entry| (entry.shard, entry.clock));
        for (shard, clock) in read.chain([(home, dependencies.clock)]) {
            assert!(
                entry(shard) >= clock || watermarks.of(stamp.epoch, shard) >= clock,
                "M1: {stamp:?} lacks {clock} of {shard}, which was read"
            );
        }
    }

    /// A participant's stamp may have one entry more than the coordinator's: its own became remote.
    fn fit(&self, mut stamp: Stamp) -> Stamp {
        if let StampForm::Sparse { .. } = self.options().stamps {
            self.watermarks.borrow().prune(&mut stamp);
        }
        stamp
    }

    /// The transaction is certified: it will be answered when it is durable, with all it depends on.
    fn certified(
        &mut self,
        attempt: WaitingAttempt,
        own: ShardId,
        stamp: Stamp,
        writes: &[(ShardId, Clock)],
        effects: &mut MakoEffects,
    ) {
        self.counters.certified += 1;
        self.runtime.count_writes(&attempt, writes.len());
        self.runtime.worker_context.end_stage(&attempt.marks, VALIDATING);
        let transaction = attempt.id;
        effects.observe(|| {
            let (stamp, writes) = (stamp.clone(), writes.to_vec());
            MakoObservation::Certified { transaction, own, stamp, writes }
        });
        let since = self.runtime.worker_context.now.get()
            + self.runtime.worker_context.extra_wait(attempt.keys());
        let waiter = CommitWaiter { attempt, since, reveals: None };
        if self.options().faults.has(MakoPlantedBug::AcknowledgeAtCertification) {
            return self.reveal(own, stamp, &waiter, effects);
        }
        self.await_cover(own, stamp, waiter, effects);
    }

    /// Gives up what belongs to a closed epoch and is not certified. Where one participant decides, it
    /// may have done so already: its answer is waited for.
    pub(crate) fn give_up_closed(&mut self, effects: &mut MakoEffects) {
        let open = self.runtime.worker_context.epoch.get();
        let is_closed = |it: &Certification| {
            it.remote_branches.epoch < open && it.phase != CommitPhase::Delegated
        };
        for it in self.coordinator.transactions.take_commits(is_closed) {
            let error = Mako::not_open(it.remote_branches.epoch);
            self.abort(it, error, effects);
        }
    }

    /// The leader of `shard` is gone: no node will answer what it was asked.
    pub(crate) fn lose_participant(&mut self, shard: ShardId, effects: &mut MakoEffects) {
        let asked = self.runtime.lose_participant(shard);
        let error = Mako::not_open(self.runtime.worker_context.epoch.get());
        self.coordinator.transactions.lose_executing(shard, &error);
        for sequence in asked {
            if let Some(it) = self.coordinator.transactions.take_commit(sequence) {
                it.remote_branches.lose(shard, &error);
                // The participant may have done all of it before it was gone.
                let error = unless_committed(&it, shard, error.clone());
                self.abort(it, error, effects);
            }
        }
    }

    /// The participant of `shard` does not answer what it was asked: the transaction ends without it.
    pub(crate) fn give_up_on(&mut self, branch: BranchKey, effects: &mut MakoEffects) {
        if let Some((it, error)) = self.coordinator.transactions.give_up_on(branch) {
            self.abort(it, error, effects);
        }
    }

    /// Gives a transaction up, everywhere.
    fn abort(&mut self, it: Certification, error: Error, effects: &mut MakoEffects) {
        let Certification { remote_branches, own, .. } = it;
        drop(own);
        self.runtime.give_up(&remote_branches, || MakoRequest::Abort, effects);
        self.runtime.finish(&remote_branches, Err(error));
    }

    /// A transaction was dropped before it asked to commit.
    pub(crate) fn abandon(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut MakoEffects,
    ) {
        self.coordinator.transactions.remove(remote_branches.id.sequence);
        self.runtime.give_up(remote_branches, || MakoRequest::Abort, effects);
    }
}
