//! A transaction at its coordinator: from execution to certification (rules M1 and M5).
//!
//! ```text
//!            commit                     all locked              all valid
//! executing ──────► (draining) ─► locking ────────► validating ─────────► certified ─► told
//!     │                 └► delegated: one participant does all of it ────────►│
//!     └── anything goes wrong: abort, everywhere ──► told
//! ```

use super::message::{Reply, Request};
use super::options::StampForm;
use super::participant::Context;
use super::slices::Paused;
use super::{Effects, Mako, Waiter};
use crate::execution::exchange::Exchange;
use crate::execution::hub::{Branch, Ending, Submission, recovering};
use crate::execution::outbox::BranchKey;
use crate::execution::staged::{Stage, Staged};
use crate::faults::Fault;
use crate::interleave;
use crate::observation::Observation;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{Aborted, Clock, Conflict, Error, Result, ShardId, Stamp, Unknown};

/// The transactions of this worker that have something to do with other nodes.
#[derive(Default)]
pub(super) struct Coordinator {
    transactions: BTreeMap<u64, Progress>,
}

impl Coordinator {
    /// How many transactions there are.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Does a transaction that waits for this shard hold locks on others, and clocks, meanwhile?
    pub(super) fn holds_besides(&self, (sequence, shard): BranchKey) -> bool {
        let Some(Progress::Certifying(it)) = self.transactions.get(&sequence) else { return false };
        let remotes = it.exchange.remotes();
        it.ending == Ending::Commit
            && matches!(it.phase, Phase::Locking | Phase::Validating)
            && (it.own.iter().any(|(_, own)| !own.is_read_only())
                || remotes.iter().any(|remote| remote.writes && remote.shard != shard))
    }
}

enum Progress {
    Executing(Rc<Exchange>),
    Certifying(Certification),
}

/// A transaction whose body is done.
struct Certification {
    exchange: Rc<Exchange>,
    ending: Ending,
    phase: Phase,
    /// Its branches on own shards, by their place in [`Mako::led`].
    own: Vec<(usize, Staged)>,
    /// Clocks that participants on other nodes have drawn.
    drawn: Vec<(ShardId, Clock)>,
    /// A participant that validated together with its lock.
    validated: Option<ShardId>,
    /// Answers that are still to come in this phase.
    waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reads are under way that no task waits for any more.
    Draining,
    /// The one participant does everything.
    Delegated,
    /// It takes own locks in slices.
    LockingOwn,
    Locking,
    /// It validates own reads in slices.
    ValidatingOwn,
    Validating,
}

impl Mako {
    /// Sends the operations that have gathered in an exchange.
    pub(super) fn send_batches(&mut self, exchange: &Rc<Exchange>, effects: &mut Effects) {
        let execute = |operations| Request::Execute { operations };
        if self.desk.send_batches(exchange, execute, effects) {
            let executing = || Progress::Executing(Rc::clone(exchange));
            self.coordinator.transactions.entry(exchange.id.sequence).or_insert_with(executing);
        }
    }

    /// A participant has answered the request that was under way.
    pub(super) fn replied(&mut self, key: BranchKey, reply: Reply, effects: &mut Effects) {
        let (sequence, shard) = key;
        if reply == Reply::Resolved {
            return self.desk.resolved(sequence);
        }
        let exchange = match self.coordinator.transactions.get(&sequence) {
            Some(Progress::Executing(exchange)) => Rc::clone(exchange),
            Some(Progress::Certifying(certification)) => Rc::clone(&certification.exchange),
            None => {
                self.desk.counters.dropped += 1;
                return;
            }
        };
        let home = self.desk.hub.home();
        match reply {
            Reply::Executed { answers, dependencies } => {
                exchange.answer(home, shard, answers, dependencies.seen_by(shard));
                match self.coordinator.transactions.remove(&sequence) {
                    Some(Progress::Certifying(draining)) => self.drain(draining, effects),
                    other => {
                        self.coordinator.transactions.extend(other.map(|it| (sequence, it)));
                        self.send_batches(&exchange, effects);
                    }
                }
            }
            Reply::Locked { clock, dependencies } => {
                exchange.depend(home, dependencies.seen_by(shard));
                self.advance(sequence, effects, |it| it.drawn.push((shard, clock)));
            }
            Reply::Validated => {
                exchange.with_remote(shard, |remote| remote.over |= !remote.writes);
                self.advance(sequence, effects, |_| {});
            }
            Reply::Certified { stamp } => {
                exchange.with_remote(shard, |remote| remote.over = true);
                let done = self.coordinator.transactions.remove(&sequence);
                let installs =
                    matches!(done, Some(Progress::Certifying(it)) if it.ending == Ending::Commit);
                self.desk.hub.sequences.borrow_mut().finish(sequence);
                let writes = installs && exchange.with_remote(shard, |remote| remote.writes);
                let writes = writes.then_some((shard, stamp.clock)).into_iter().collect();
                self.certified(&exchange, shard, stamp, writes, effects);
            }
            Reply::Refused { error } => {
                exchange.fail(shard, &error);
                match self.coordinator.transactions.remove(&sequence) {
                    Some(Progress::Certifying(it)) => self.abort(it, error, effects),
                    other => self.coordinator.transactions.extend(other.map(|it| (sequence, it))),
                }
            }
            Reply::Resolved => unreachable!("handled above"),
        }
    }

    /// One of the answers that a phase waits for has come.
    fn advance(
        &mut self,
        sequence: u64,
        effects: &mut Effects,
        note: impl FnOnce(&mut Certification),
    ) {
        let Some(Progress::Certifying(mut it)) = self.coordinator.transactions.remove(&sequence)
        else {
            panic!("{sequence} was answered, and is not being certified");
        };
        note(&mut it);
        it.waiting -= 1;
        if it.waiting > 0 {
            self.coordinator.transactions.insert(sequence, Progress::Certifying(it));
        } else if it.phase == Phase::Locking {
            self.validate_all(it, effects);
        } else {
            self.install_all(it, effects);
        }
    }

    /// A transaction's body is done.
    pub(super) fn submit(&mut self, submission: Submission, effects: &mut Effects) {
        let Submission { exchange, branches, ending } = submission;
        exchange.marks.submit(self.desk.hub.now.get());
        exchange.own_keys.set(branches.iter().map(|(_, branch)| branch.size().writes).sum());
        let own = branches.into_iter().map(|(at, branch)| (at, Staged::reading(branch, 0)));
        let certification = Certification {
            ending,
            phase: Phase::Draining,
            own: own.collect(),
            drawn: Vec::new(),
            validated: None,
            waiting: 0,
            exchange: Rc::clone(&exchange),
        };
        self.coordinator.transactions.remove(&exchange.id.sequence);
        if let Some(error) = exchange.failure() {
            self.abort(certification, error, effects);
        } else if exchange.epoch < self.desk.hub.epoch.get() {
            self.abort(certification, Mako::not_open(exchange.epoch), effects);
        } else {
            self.drain(certification, effects);
        }
    }

    /// Certifies what is ready for that: no read is under way, and what is left to be written fits into the requests
    /// that lock.
    fn drain(&mut self, it: Certification, effects: &mut Effects) {
        let exchange = Rc::clone(&it.exchange);
        if !exchange.is_busy() {
            exchange.forget_reads();
        }
        if exchange.is_full() {
            self.send_batches(&exchange, effects);
        }
        if !exchange.is_busy() {
            return self.certify(it, effects);
        }
        let progress = Progress::Certifying(it);
        self.coordinator.transactions.insert(exchange.id.sequence, progress);
    }

    /// Takes the locks: own ones at once, others by a message.
    fn certify(&mut self, mut it: Certification, effects: &mut Effects) {
        let exchange = Rc::clone(&it.exchange);
        let remotes: Vec<(ShardId, bool)> =
            exchange.remotes().iter().map(|remote| (remote.shard, remote.writes)).collect();
        let install = it.ending == Ending::Commit;
        match (&mut it.own[..], &remotes[..]) {
            ([], [(shard, _)]) => {
                it.phase = Phase::Delegated;
                it.waiting = 1;
                let request = |operations| Request::Commit { operations, install };
                self.desk.send_next(&exchange, *shard, request, effects);
                let progress = Progress::Certifying(it);
                self.coordinator.transactions.insert(exchange.id.sequence, progress);
                return;
            }
            ([(at, own)], []) if own.is_short(&self.desk.hub) => {
                let at = *at;
                let Some(branch) = it.own.pop().and_then(|(_, own)| own.into_branch()) else {
                    return;
                };
                return self.certify_here(at, &it, branch, install, effects);
            }
            _ => {}
        }
        if install {
            if let Some(shard) = self.silent_writer(&exchange) {
                let error = Aborted::from(Conflict::NoAnswer { shard }).into();
                return self.abort(it, error, effects);
            }
            match self.lock_own(&mut it, effects) {
                Ok(true) => {}
                Ok(false) => return self.pause(it, Phase::LockingOwn),
                Err(error) => return self.abort(it, error, effects),
            }
        }
        let writers: Vec<ShardId> = remotes
            .iter()
            .filter(|(_, writes)| install && *writes)
            .map(|(shard, _)| *shard)
            .collect();
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        if (too_early || !writers.is_empty())
            && let Err(error) = self.check_own(&it)
        {
            return self.abort(it, error, effects);
        }
        it.phase = Phase::Locking;
        it.waiting = writers.len();
        // All other locks are held by now, so the only one left may validate right after it.
        let validate = writers.len() == 1 || too_early;
        it.validated = writers.first().copied().filter(|_| validate);
        for shard in &writers {
            let request = |operations| Request::Lock { operations, validate };
            self.desk.send_next(&exchange, *shard, request, effects);
        }
        self.watch_for_silence();
        match it.waiting {
            0 => self.validate_all(it, effects),
            _ => {
                let progress = Progress::Certifying(it);
                self.coordinator.transactions.insert(exchange.id.sequence, progress);
            }
        }
    }

    /// A transaction on one own shard: certified without a message.
    fn certify_here(
        &mut self,
        at: usize,
        it: &Certification,
        branch: Branch,
        install: bool,
        effects: &mut Effects,
    ) {
        let exchange = &it.exchange;
        let (transaction, shard) = (exchange.id, self.led[at].lead.shard);
        let writes = install && !branch.is_read_only();
        match self.commit_branch(at, transaction, branch, install, effects) {
            Ok(stamp) => {
                self.desk.hub.sequences.borrow_mut().finish(transaction.sequence);
                let writes = writes.then_some((shard, stamp.clock)).into_iter().collect();
                self.certified(exchange, shard, stamp, writes, effects);
            }
            Err(error) => {
                self.desk.hub.sequences.borrow_mut().finish(transaction.sequence);
                self.desk.finish(exchange, Err(error));
            }
        }
    }

    /// Locks what it writes here, as much as a step may. Says whether that was the last.
    fn lock_own(&mut self, it: &mut Certification, effects: &mut Effects) -> Result<bool> {
        let mut is_over = true;
        for (at, mut own) in std::mem::take(&mut it.own) {
            if is_over && !own.is_read_only() && !matches!(own.stage, Stage::Locked(_)) {
                self.check_serves(at, effects)?;
                is_over = self.depend_on_reads(at, &it.exchange, &mut own, effects)?;
                if is_over {
                    own = own.lock_some(&self.desk.hub)?;
                    is_over = matches!(own.stage, Stage::Locked(_));
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
        exchange: &Exchange,
        own: &mut Staged,
        effects: &mut Effects,
    ) -> Result<bool> {
        let id = (exchange.id, exchange.epoch);
        if let Some(stamp) = self.gather_some(at, id, own, effects)? {
            exchange.depend(self.desk.hub.home(), stamp.seen_by(self.led[at].lead.shard));
        }
        Ok(own.gathers.is_none())
    }

    /// All is checked when all locks are held (design §5, step 3). But what fails now already need not be kept from
    /// others for as long as locks on other shards take; where that takes more than a step, it is not worth it.
    fn check_own(&self, it: &Certification) -> Result<()> {
        let hub = &self.desk.hub;
        it.own.iter().try_for_each(|(_, own)| match &own.stage {
            Stage::Locked(locked) if hub.is_short(locked.size()) => locked.validate(),
            Stage::Reading(branch) if hub.is_short(branch.size()) => branch.validate(),
            _ => Ok(()),
        })
    }

    /// The rest is for another step.
    fn pause(&mut self, mut it: Certification, phase: Phase) {
        it.phase = phase;
        let sequence = it.exchange.id.sequence;
        self.paused.push_back(Paused::Own(sequence));
        self.coordinator.transactions.insert(sequence, Progress::Certifying(it));
    }

    /// Goes on with a transaction that was paused, if it was not given up meanwhile.
    pub(super) fn go_on_own(&mut self, sequence: u64, effects: &mut Effects) {
        match self.coordinator.transactions.remove(&sequence) {
            Some(Progress::Certifying(it)) if it.phase == Phase::LockingOwn => {
                self.certify(it, effects);
            }
            Some(Progress::Certifying(it)) if it.phase == Phase::ValidatingOwn => {
                self.validate_all(it, effects);
            }
            other => self.coordinator.transactions.extend(other.map(|it| (sequence, it))),
        }
    }

    /// All locks are held, everywhere: checks what was read, everywhere.
    fn validate_all(&mut self, mut it: Certification, effects: &mut Effects) {
        let exchange = Rc::clone(&it.exchange);
        if it.phase != Phase::ValidatingOwn {
            exchange.marks.lock(self.desk.hub.now.get());
        }
        it.phase = Phase::Validating;
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        for place in 0..it.own.len() {
            let (at, own) = &mut it.own[place];
            match self.validate_own(*at, &exchange, own, effects) {
                Ok(true) => {}
                Ok(false) => return self.pause(it, Phase::ValidatingOwn),
                Err(error) => return self.abort(it, error, effects),
            }
        }
        let install = it.ending == Ending::Commit;
        let readers: Vec<(ShardId, bool)> = exchange
            .remotes()
            .iter()
            .filter(|remote| remote.reads && it.validated != Some(remote.shard))
            .filter(|remote| !(too_early && install && remote.writes))
            .map(|remote| (remote.shard, !remote.writes))
            .collect();
        it.waiting = readers.len();
        for (shard, last) in readers {
            let request = |_| Request::Validate { last };
            self.desk.send_next(&exchange, shard, request, effects);
        }
        if it.waiting == 0 {
            return self.install_all(it, effects);
        }
        debug_assert!(install || it.drawn.is_empty(), "nothing is locked to be proved");
        self.watch_for_silence();
        let progress = Progress::Certifying(it);
        self.coordinator.transactions.insert(exchange.id.sequence, progress);
    }

    /// Checks what it read here, as much as a step may. Says whether that was the last.
    fn validate_own(
        &mut self,
        at: usize,
        exchange: &Exchange,
        own: &mut Staged,
        effects: &mut Effects,
    ) -> Result<bool> {
        self.check_serves(at, effects)?;
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        if too_early && matches!(own.stage, Stage::Locked(_)) {
            return Ok(true);
        }
        if !self.depend_on_reads(at, exchange, own, effects)? {
            return Ok(false);
        }
        own.validate_some(&self.desk.hub)
    }

    /// Everything is valid: the transaction is certified. Installs it everywhere. The clocks of own
    /// shards are drawn only now, still under the locks (rule M2): a transaction that waits for a slow participant
    /// has none in flight meanwhile, which would hold the safe clocks back.
    fn install_all(&mut self, it: Certification, effects: &mut Effects) {
        if let Some((at, _)) = it.own.iter().find(|(at, _)| !self.led[*at].serves()) {
            let shard = self.led[*at].lead.shard;
            return self.abort(it, recovering(shard), effects);
        }
        let mut own = it.own.iter().map(|(at, _)| self.check_draws(*at));
        if let Some(error) = own.find_map(Result::err) {
            return self.abort(it, error, effects);
        }
        if let Some(shard) = self.overtaken(&it) {
            return self.abort(it, Aborted::from(Conflict::Overtaken { shard }).into(), effects);
        }
        let Certification { exchange, own, mut drawn, ending, .. } = it;
        let home = self.desk.hub.home();
        let mut locked_here = Vec::new();
        interleave::point(&mut effects.observations);
        for (at, own) in own {
            if let Stage::Locked(locked) = own.stage {
                let clock = self.draw(at, (exchange.id, exchange.epoch), &locked, effects);
                drawn.push((self.led[at].lead.shard, clock));
                locked_here.push((at, locked, clock));
            }
        }
        let ignores = self.options().faults.has(Fault::CertifyAfterClose);
        if !locked_here.is_empty() && self.is_closed(exchange.epoch) && !ignores {
            for (at, locked, clock) in locked_here {
                let context = Some(Context::Locked { locked, clock });
                self.drop_context(at, exchange.id, context, effects);
            }
            let error = Mako::not_open(exchange.epoch);
            self.desk.give_up(&exchange, || Request::Abort, effects);
            return self.desk.finish(&exchange, Err(error));
        }
        let dependencies = exchange.dependencies();
        let mut stamp = dependencies.clone();
        for (shard, clock) in &drawn {
            stamp.push(home, *shard, *clock);
        }
        self.bound(home, &mut stamp, effects);
        self.assert_covers(&stamp, &dependencies, &drawn, home);
        for (at, locked, clock) in locked_here {
            let kept = stamp.seen_by(home).kept_by(self.led[at].lead.shard, clock);
            let kept = self.fit(kept);
            self.install_branch(at, exchange.id, locked, &kept, effects);
        }
        let remotes: Vec<(ShardId, bool)> =
            exchange.remotes().iter().map(|remote| (remote.shard, remote.over)).collect();
        let mut unresolved = 0;
        for (shard, over) in remotes {
            let clock = drawn.iter().find(|(drawer, _)| *drawer == shard).map(|(_, clock)| *clock);
            let request = match clock {
                Some(clock) if ending == Ending::Commit => {
                    let kept = match self.options().faults.has(Fault::InstallOwnClockOnly) {
                        true => Stamp::local(stamp.epoch, clock),
                        false => stamp.seen_by(home).kept_by(shard, clock),
                    };
                    Request::Install { stamp: self.fit(kept) }
                }
                // It was only read, and wanted to write.
                _ if over => continue,
                _ => Request::Abort,
            };
            unresolved += 1;
            self.desk.send_next(&exchange, shard, |_| request, effects);
        }
        self.desk.expect_resolved(exchange.id.sequence, unresolved);
        self.certified(&exchange, home, stamp, drawn, effects);
    }

    /// A shard whose clock for the transaction cannot be: its reads depend on as much of that shard or
    /// more, or the watermark has passed it. Reads come before locks, so this takes a participant that
    /// errs, or an insert that no task waited for and that went out with the lock.
    fn overtaken(&self, it: &Certification) -> Option<ShardId> {
        let planted = [Fault::ClockBeforeLock, Fault::SafeClockPastInFlight];
        if planted.into_iter().any(|fault| self.options().faults.has(fault)) {
            return None; // To give up would hide what the bug has done.
        }
        let (home, dependencies) = (self.desk.hub.home(), it.exchange.dependencies());
        let dependencies = dependencies.as_ref();
        let floor = dependencies.entry(home, ShardId::EVERY);
        // What the floor hides says nothing of this shard.
        let entry = |shard| Some(dependencies.entry(home, shard)).filter(|clock| *clock > floor);
        let watermarks = self.desk.hub.watermarks.borrow();
        let reached = |shard| watermarks.of(it.exchange.epoch, shard);
        let drawn = it.drawn.iter().find(|(shard, clock)| {
            entry(*shard).is_some_and(|entry| entry >= *clock) || reached(*shard) >= *clock
        });
        let own = || {
            let mut led = it.own.iter().map(|(at, _)| self.led[*at].lead.shard);
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
        let watermarks = self.desk.hub.watermarks.borrow();
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
            self.desk.hub.watermarks.borrow().prune(&mut stamp);
        }
        stamp
    }

    /// The transaction is certified: it will be told when it is durable, with all it depends on.
    fn certified(
        &mut self,
        exchange: &Rc<Exchange>,
        own: ShardId,
        stamp: Stamp,
        writes: Vec<(ShardId, Clock)>,
        effects: &mut Effects,
    ) {
        self.desk.counters.certified += 1;
        self.desk.counters.wrote += u64::from(!writes.is_empty());
        self.desk.counters.cross_shard += u64::from(writes.len() > 1);
        exchange.marks.certify(self.desk.hub.now.get(), !writes.is_empty());
        let transaction = exchange.id;
        effects.observe(|| {
            let stamp = stamp.clone();
            Observation::Certified { transaction, own, stamp, writes }
        });
        let since = self.desk.hub.now.get() + self.desk.hub.extra_wait(exchange.keys());
        let waiter = Waiter { exchange: Rc::clone(exchange), since, reveals: None };
        if self.options().faults.has(Fault::AcknowledgeAtCertification) {
            return self.reveal(own, stamp, &waiter, effects);
        }
        self.await_cover(own, stamp, waiter, effects);
    }

    /// Gives up what belongs to a closed epoch and is not certified. Where one participant decides, it
    /// may have done so already: its answer is waited for.
    pub(super) fn give_up_closed(&mut self, effects: &mut Effects) {
        let open = self.desk.hub.epoch.get();
        let closed = |progress: &Progress| match progress {
            Progress::Executing(_) => false,
            Progress::Certifying(it) => it.exchange.epoch < open && it.phase != Phase::Delegated,
        };
        let transactions = &self.coordinator.transactions;
        let closed: Vec<u64> = transactions
            .iter()
            .filter(|(_, progress)| closed(progress))
            .map(|(sequence, _)| *sequence)
            .collect();
        for sequence in closed {
            if let Some(Progress::Certifying(it)) = self.coordinator.transactions.remove(&sequence)
            {
                let error = Mako::not_open(it.exchange.epoch);
                self.abort(it, error, effects);
            }
        }
    }

    /// The leader of `shard` is gone: no node will answer what it was asked.
    pub(super) fn lose_participant(&mut self, shard: ShardId, effects: &mut Effects) {
        let asked = self.desk.lose_participant(shard);
        let error = Mako::not_open(self.desk.hub.epoch.get());
        for progress in self.coordinator.transactions.values() {
            if let Progress::Executing(exchange) = progress {
                exchange.lose(shard, &error);
            }
        }
        for sequence in asked {
            match self.coordinator.transactions.remove(&sequence) {
                Some(Progress::Certifying(it)) => {
                    it.exchange.lose(shard, &error);
                    // It may have done all of it before it was gone.
                    let error = match it.phase == Phase::Delegated {
                        true => Unknown::Participant { shard }.into(),
                        false => error.clone(),
                    };
                    self.abort(it, error, effects);
                }
                other => self.coordinator.transactions.extend(other.map(|it| (sequence, it))),
            }
        }
    }

    /// The participant of `shard` does not answer what it was asked: the transaction ends without it.
    pub(super) fn give_up_on(&mut self, (sequence, shard): BranchKey, effects: &mut Effects) {
        let error: Error = Aborted::from(Conflict::NoAnswer { shard }).into();
        match self.coordinator.transactions.remove(&sequence) {
            Some(Progress::Certifying(it)) => {
                // It may have done all of it, and the answers got lost.
                let error = match it.phase == Phase::Delegated {
                    true => Unknown::Participant { shard }.into(),
                    false => error,
                };
                self.abort(it, error, effects);
            }
            // Its body is told, and drops it.
            Some(Progress::Executing(exchange)) => {
                exchange.time_out(shard, &error);
                self.coordinator.transactions.insert(sequence, Progress::Executing(exchange));
            }
            None => {}
        }
    }

    /// Gives a transaction up, everywhere.
    fn abort(&mut self, it: Certification, error: Error, effects: &mut Effects) {
        let Certification { exchange, own, .. } = it;
        drop(own);
        self.desk.give_up(&exchange, || Request::Abort, effects);
        self.desk.finish(&exchange, Err(error));
    }

    /// A transaction was dropped before it asked to commit.
    pub(super) fn abandon(&mut self, exchange: &Rc<Exchange>, effects: &mut Effects) {
        self.coordinator.transactions.remove(&exchange.id.sequence);
        self.desk.give_up(exchange, || Request::Abort, effects);
    }
}
