//! A transaction at its coordinator: from execution to its outcome (rules P1, P3 and P4).
//!
//! ```text
//!            commit                     all locked              all valid, prepared       durable
//! executing ──────► (draining) ─► locking ────────► validating ───────────────────► deciding ──► told
//!     │                 │                               └► one other shard is written: it decides ─┤
//!     │                 └► delegated: one participant does all of it ─────────────────────────────►│
//!     └── anything goes wrong before it is decided: abort, everywhere ──► told
//! ```

use super::led::Waiter;
use super::message::{Reply, Request};
use super::{Effects, TwoPhaseCommit};
use crate::execution::exchange::Exchange;
use crate::execution::hub::{Branch, Ending, Submission};
use crate::execution::outbox::BranchKey;
use crate::execution::sessions::Pooled;
use crate::faults::Fault;
use crate::observation::Observation;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::Locked;
use types::{Clock, Error, Result, ShardId, Stamp};

/// The transactions of this worker that wait for something.
#[derive(Default)]
pub(super) struct Coordinator {
    transactions: BTreeMap<u64, Progress>,
}

enum Progress {
    Executing(Rc<Exchange>),
    Committing(Commit),
}

/// A transaction whose body is done.
struct Commit {
    exchange: Rc<Exchange>,
    ending: Ending,
    phase: Phase,
    plan: Plan,
    /// Its branches on own shards, by their place in [`TwoPhaseCommit::led`].
    own: Vec<(usize, OwnBranch)>,
    /// How many shards it writes, and the clocks that they have drawn.
    writers: usize,
    drawn: Vec<(ShardId, Clock)>,
    /// Answers that are still to come in this phase.
    waiting: usize,
    /// Prepare records of own shards that are not durable yet.
    undurable: usize,
    told: bool,
}

enum OwnBranch {
    Reading(Branch),
    Locked { locked: Locked<Pooled>, clock: Clock, prepared: bool },
}

/// Which shards it writes, and so who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// None: once it is validated it is over.
    ReadOnly,
    /// One of this node's, by its place in [`TwoPhaseCommit::led`].
    Own(usize),
    /// One of another node's.
    Other(ShardId),
    /// Several.
    TwoPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reads are under way that no task waits for any more.
    Draining,
    /// The one participant does everything.
    Delegated,
    Locking,
    /// Validating, and preparing.
    Validating,
    /// The commit record is on its way, here or at the only shard that is written.
    Deciding,
}

impl TwoPhaseCommit {
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
        match self.coordinator.transactions.remove(&sequence) {
            None => self.desk.counters.dropped += 1,
            Some(Progress::Executing(exchange)) => {
                self.answer_reads(&exchange, shard, reply);
                self.coordinator
                    .transactions
                    .insert(sequence, Progress::Executing(Rc::clone(&exchange)));
                self.send_batches(&exchange, effects);
            }
            Some(Progress::Committing(it)) if it.phase == Phase::Draining => {
                self.answer_reads(&it.exchange, shard, reply);
                self.begin(it, effects);
            }
            Some(Progress::Committing(it)) => self.proceed(it, shard, reply, effects),
        }
    }

    fn answer_reads(&mut self, exchange: &Exchange, shard: ShardId, reply: Reply) {
        match reply {
            Reply::Executed { answers } => {
                // All that can be read is committed: nothing depends on anything still to come.
                let nothing = Stamp::local(exchange.epoch, Clock::ZERO);
                exchange.answer(self.desk.hub.home(), shard, answers, nothing.seen_by(shard));
            }
            Reply::Refused { error } => exchange.fail(shard, &error),
            // Nothing else was asked for.
            _ => self.desk.counters.dropped += 1,
        }
    }

    /// A participant has answered a transaction that commits.
    fn proceed(&mut self, mut it: Commit, shard: ShardId, reply: Reply, effects: &mut Effects) {
        match (it.phase, reply) {
            (_, Reply::Refused { error }) => {
                it.exchange.fail(shard, &error);
                return self.abort(it, error, effects);
            }
            (Phase::Locking, Reply::Locked { clock }) => it.drawn.push((shard, clock)),
            (Phase::Validating, Reply::Validated) => {
                // One that only read has nothing more to do.
                let prepared = it.drawn.iter().any(|(drawer, _)| *drawer == shard);
                it.exchange.with_remote(shard, |remote| remote.over = !prepared);
            }
            (Phase::Delegated, Reply::Committed { clock }) => {
                it.exchange.with_remote(shard, |remote| remote.over = true);
                it.drawn.extend(clock.map(|clock| (shard, clock)));
                self.count_certified(&it, effects);
                return self.commit(it, effects);
            }
            (Phase::Deciding, Reply::Committed { .. }) => {
                it.exchange.with_remote(shard, |remote| remote.over = true);
                return self.commit(it, effects);
            }
            // Nothing else was asked for.
            _ => {
                self.desk.counters.dropped += 1;
                return self.wait(it);
            }
        }
        it.waiting -= 1;
        self.go_on(it, effects);
    }

    /// Enters the next phase, if this one is done.
    fn go_on(&mut self, it: Commit, effects: &mut Effects) {
        match it.phase {
            Phase::Locking if it.waiting == 0 => self.validate_all(it, effects),
            Phase::Validating if it.waiting == 0 && it.undurable == 0 => self.decide(it, effects),
            _ => self.wait(it),
        }
    }

    fn wait(&mut self, it: Commit) {
        let sequence = it.exchange.id.sequence;
        let before = self.coordinator.transactions.insert(sequence, Progress::Committing(it));
        assert!(before.is_none(), "{sequence} waits twice");
    }

    /// A transaction's body is done.
    pub(super) fn submit(&mut self, submission: Submission, effects: &mut Effects) {
        let Submission { exchange, branches, ending } = submission;
        exchange.marks.submit(self.desk.hub.now.get());
        self.coordinator.transactions.remove(&exchange.id.sequence);
        let own = branches.into_iter().map(|(at, branch)| (at, OwnBranch::Reading(branch)));
        let it = Commit {
            exchange,
            ending,
            phase: Phase::Draining,
            plan: Plan::ReadOnly,
            own: own.collect(),
            writers: 0,
            drawn: Vec::new(),
            waiting: 0,
            undurable: 0,
            told: false,
        };
        self.begin(it, effects);
    }

    /// Begins to commit, unless reads are under way.
    fn begin(&mut self, it: Commit, effects: &mut Effects) {
        if let Some(error) = it.exchange.failure() {
            return self.abort(it, error, effects);
        }
        let exchange = Rc::clone(&it.exchange);
        if !exchange.is_busy() {
            exchange.forget_reads();
        }
        if exchange.is_full() {
            self.send_batches(&exchange, effects);
            self.coordinator.transactions.remove(&exchange.id.sequence);
        }
        if exchange.is_busy() {
            self.wait(it);
        } else {
            self.lock_all(it, effects);
        }
    }

    /// Takes the locks: own ones at once, others by messages.
    fn lock_all(&mut self, mut it: Commit, effects: &mut Effects) {
        let exchange = Rc::clone(&it.exchange);
        let install = it.ending == Ending::Commit;
        let remotes: Vec<(ShardId, bool)> =
            exchange.remotes().iter().map(|it| (it.shard, it.writes)).collect();
        if let ([], [(shard, _)]) = (&it.own[..], &remotes[..]) {
            it.phase = Phase::Delegated;
            let request = |operations| Request::OnePhase { operations, install };
            self.desk.send_next(&exchange, *shard, request, effects);
            return self.wait(it);
        }
        let others: Vec<ShardId> = remotes
            .iter()
            .filter(|(_, writes)| install && *writes)
            .map(|(shard, _)| *shard)
            .collect();
        let writes = |branch: &OwnBranch| match branch {
            OwnBranch::Reading(branch) => install && !branch.is_read_only(),
            OwnBranch::Locked { .. } => true,
        };
        let own: Vec<usize> =
            it.own.iter().filter(|(_, branch)| writes(branch)).map(|(at, _)| *at).collect();
        it.writers = own.len() + others.len();
        it.plan = match (&own[..], &others[..]) {
            ([], []) => Plan::ReadOnly,
            ([at], []) => Plan::Own(*at),
            ([], [shard]) => Plan::Other(*shard),
            _ => Plan::TwoPhase,
        };
        let locked = self.lock_own(&mut it, &own, effects);
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        if let Err(error) = locked.and_then(|()| match (too_early, others.is_empty()) {
            (true, _) => self.validate_own(&mut it, effects),
            (false, false) => check_own(&it),
            (false, true) => Ok(()),
        }) {
            return self.abort(it, error, effects);
        }
        if others.is_empty() {
            // These were all locks there are, so it need not be prepared to be validated.
            return self.validate_all(it, effects);
        }
        self.prepare_own(&mut it);
        it.phase = Phase::Locking;
        it.waiting = others.len();
        let home = self.desk.hub.home();
        for shard in others {
            let request = |operations| match it.plan {
                Plan::TwoPhase => Request::Prepare { operations, home },
                _ => Request::Lock { operations },
            };
            self.desk.send_next(&exchange, shard, request, effects);
        }
        self.wait(it);
    }

    fn lock_own(
        &mut self,
        it: &mut Commit,
        writers: &[usize],
        effects: &mut Effects,
    ) -> Result<()> {
        let transaction = it.exchange.id;
        for (at, branch) in std::mem::take(&mut it.own) {
            let branch = match branch {
                OwnBranch::Reading(branch) if writers.contains(&at) => branch,
                other => {
                    it.own.push((at, other));
                    continue;
                }
            };
            self.observe_reads(at, transaction, &branch, effects);
            let locked = branch.lock()?;
            let clock = self.draw(at, transaction, &locked, effects);
            it.drawn.push((self.led[at].lead.shard, clock));
            it.own.push((at, OwnBranch::Locked { locked, clock, prepared: false }));
        }
        Ok(())
    }

    /// Prepares own branches, like other nodes'; but for the one on the home shard, where the decision
    /// will be.
    fn prepare_own(&mut self, it: &mut Commit) {
        let (transaction, home) = (it.exchange.id, self.desk.hub.home());
        for (at, branch) in &mut it.own {
            if let OwnBranch::Locked { locked, clock, prepared } = branch
                && it.plan == Plan::TwoPhase
                && self.led[*at].lead.shard != home
            {
                *prepared = true;
                it.undurable += 1;
                let waiter = Some(Waiter::Prepared(transaction.sequence));
                self.led[*at].append(self.desk.hub.now.get(), Some(*clock), waiter, |batch| {
                    batch.prepare(transaction, *clock, home, |write| locked.writes(write));
                });
            }
        }
    }

    fn validate_own(&mut self, it: &mut Commit, effects: &mut Effects) -> Result<()> {
        it.own.iter().try_for_each(|(at, branch)| match branch {
            OwnBranch::Locked { locked, .. } => locked.validate(),
            OwnBranch::Reading(branch) => {
                self.observe_reads(*at, it.exchange.id, branch, effects);
                branch.validate()
            }
        })?;
        // What was only read has nothing more to do.
        it.own.retain(|(_, branch)| matches!(branch, OwnBranch::Locked { .. }));
        Ok(())
    }

    /// All locks are held, everywhere (rule P1): checks what was read, everywhere.
    fn validate_all(&mut self, mut it: Commit, effects: &mut Effects) {
        let id = it.exchange.id;
        assert_eq!(it.drawn.len(), it.writers, "P1: {id} validates, and not all is locked");
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        if !too_early && let Err(error) = self.validate_own(&mut it, effects) {
            return self.abort(it, error, effects);
        }
        if it.phase != Phase::Locking {
            self.prepare_own(&mut it);
        }
        it.phase = Phase::Validating;
        it.exchange.marks.lock(self.desk.hub.now.get());
        let others = others_to_validate(&it);
        it.waiting = others.len();
        let exchange = Rc::clone(&it.exchange);
        for shard in others {
            self.desk.send_next(&exchange, shard, |_| Request::Validate, effects);
        }
        self.go_on(it, effects);
    }

    /// An own shard other than the home shard has its prepare record durable.
    pub(super) fn own_is_prepared(&mut self, sequence: u64, effects: &mut Effects) {
        // Otherwise it was given up meanwhile.
        if let Some(Progress::Committing(mut it)) = self.coordinator.transactions.remove(&sequence)
        {
            it.undurable -= 1;
            self.go_on(it, effects);
        }
    }

    /// Everything is valid and prepared (rule P3): appends the commit record.
    fn decide(&mut self, mut it: Commit, effects: &mut Effects) {
        let transaction = it.exchange.id;
        assert!(
            it.waiting == 0 && it.undurable == 0 && it.drawn.len() == it.writers,
            "P3: {transaction} is decided with something missing"
        );
        self.count_certified(&it, effects);
        it.phase = Phase::Deciding;
        if self.options().faults.has(Fault::AcknowledgeAtCertification) {
            self.tell(&mut it, effects);
        }
        match it.plan {
            Plan::ReadOnly => return self.commit(it, effects),
            Plan::Own(at) => self.append_decision(at, &it),
            Plan::TwoPhase => self.append_decision(0, &it),
            Plan::Other(shard) => {
                let request = |operations| Request::OnePhase { operations, install: true };
                let exchange = Rc::clone(&it.exchange);
                self.desk.send_next(&exchange, shard, request, effects);
            }
        }
        self.wait(it);
    }

    fn append_decision(&mut self, at: usize, it: &Commit) {
        let transaction = it.exchange.id;
        let own = it.own.iter().find_map(|(place, branch)| match branch {
            OwnBranch::Locked { locked, clock, .. } if *place == at => Some((locked, *clock)),
            _ => None,
        });
        let home = self.led[at].lead.shard;
        let others = it.drawn.iter().map(|(shard, _)| *shard).filter(|shard| *shard != home);
        let participants: Vec<ShardId> = others.collect();
        let waiter = Waiter::Decided(transaction.sequence);
        self.append_commit(at, transaction, &participants, own, waiter);
    }

    /// The commit record is durable.
    pub(super) fn is_decided(&mut self, sequence: u64, effects: &mut Effects) {
        let Some(Progress::Committing(it)) = self.coordinator.transactions.remove(&sequence) else {
            panic!("{sequence} was decided, and is not known");
        };
        assert_eq!(it.phase, Phase::Deciding, "{sequence} was decided too early");
        self.commit(it, effects);
    }

    /// It is committed (rule P4): tells the client, installs here, and has it installed elsewhere.
    fn commit(&mut self, mut it: Commit, effects: &mut Effects) {
        let exchange = Rc::clone(&it.exchange);
        let transaction = exchange.id;
        for (at, branch) in std::mem::take(&mut it.own) {
            if let OwnBranch::Locked { locked, clock, prepared } = branch {
                self.install(at, transaction, locked, clock, effects);
                if prepared {
                    self.append_outcome(at, transaction, true);
                }
            }
        }
        let open = exchange.open_branches();
        for shard in &open {
            let prepared = it.drawn.iter().any(|(drawer, _)| drawer == shard);
            let request = if prepared { Request::Commit } else { Request::Abort };
            self.desk.send_next(&exchange, *shard, |_| request, effects);
        }
        self.desk.expect_resolved(transaction.sequence, open.len());
        self.tell(&mut it, effects);
    }

    fn count_certified(&mut self, it: &Commit, effects: &mut Effects) {
        self.desk.counters.certified += 1;
        self.desk.counters.wrote += u64::from(!it.drawn.is_empty());
        self.desk.counters.cross_shard += u64::from(it.drawn.len() > 1);
        it.exchange.marks.certify(self.desk.hub.now.get(), !it.drawn.is_empty());
        let (transaction, own) = (it.exchange.id, self.desk.hub.home());
        effects.observe(|| {
            let (stamp, writes) = (self.stamp(it), it.drawn.clone());
            Observation::Certified { transaction, own, stamp, writes }
        });
    }

    /// What it writes, as the home shard would keep it.
    fn stamp(&self, it: &Commit) -> Stamp {
        let mut stamp = Stamp::local(it.exchange.epoch, Clock::ZERO);
        for (shard, clock) in &it.drawn {
            stamp.push(self.desk.hub.home(), *shard, *clock);
        }
        stamp
    }

    fn tell(&mut self, it: &mut Commit, effects: &mut Effects) {
        if std::mem::replace(&mut it.told, true) {
            return; // Only with a planted bug.
        }
        let (transaction, own) = (it.exchange.id, self.desk.hub.home());
        effects.observe(|| Observation::Told { transaction, own, stamp: self.stamp(it) });
        self.desk.commit(&it.exchange);
    }

    /// Gives a transaction up, everywhere.
    fn abort(&mut self, it: Commit, error: Error, effects: &mut Effects) {
        let Commit { exchange, own, .. } = it;
        for (at, branch) in own {
            if let OwnBranch::Locked { locked, clock, prepared } = branch {
                self.drop_locked(at, exchange.id, (locked, clock), prepared, effects);
            }
        }
        self.desk.give_up(&exchange, || Request::Abort, effects);
        self.desk.finish(&exchange, Err(error));
    }

    /// A transaction was dropped before it asked to commit.
    pub(super) fn abandon(&mut self, exchange: &Rc<Exchange>, effects: &mut Effects) {
        self.coordinator.transactions.remove(&exchange.id.sequence);
        self.desk.give_up(exchange, || Request::Abort, effects);
    }
}

/// All is checked when all locks are held (rule P1). But what fails now already need not be kept from others for as
/// long as locks on other shards take.
fn check_own(it: &Commit) -> Result<()> {
    it.own.iter().try_for_each(|(_, branch)| match branch {
        OwnBranch::Locked { locked, .. } => locked.validate(),
        OwnBranch::Reading(branch) => branch.validate(),
    })
}

/// The branches on other nodes' shards that have something to check, or to be prepared.
fn others_to_validate(it: &Commit) -> Vec<ShardId> {
    let remotes = it.exchange.remotes();
    let others = remotes.iter().filter(|remote| match it.plan {
        // It validated with its lock.
        Plan::Other(shard) if shard == remote.shard => false,
        Plan::TwoPhase => remote.reads || remote.writes,
        Plan::ReadOnly | Plan::Own(_) | Plan::Other(_) => remote.reads,
    });
    others.map(|remote| remote.shard).collect()
}
