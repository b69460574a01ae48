//! A leader: it accepts transactions, agrees with the leaders of other participants, executes, and appends to the log.
//!
//! ```text
//!   Submit ──► accepted, raised where it is late ──► Propose(t) to the other participants
//!      due, nothing before it, all have proposed at most t ──► conflict tables set ──► Ready(t)
//!      Ready(t) of all ──► executed, appended, voted for
//! ```
//! Among leaders that are far apart, what is due and has nothing before it is executed and voted for at once
//! (`optimistic.rs`), and appended after the `Ready` of all.
//! Each `Ready` names the current ballots of all participants, and counts only while they are current (rule T20).

use crate::clock_agreement::{is_ready_awaited, past_everywhere};
use crate::exchange::contribution;
use crate::execute::{Execution, run_piece, run_whole};
use crate::leading::{DeferredReads, Phase};
use crate::message::{Envelope, LeaderVote, Message, Vote};
use crate::observation::TigaObservation;
use crate::part_reads::PartReads;
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::{OptimisticVote, Origin, Readiness, Waiting};
use crate::record::{Entry, Record, Refusal, others};
use crate::refusal::gone_at;
use crate::repetition::Repetition;
use crate::replica::Replica;
use crate::stamp::{ArrivalTimes, Stamp};
use crate::step::Step;
use crate::tentative::history;
use crate::transaction::{Body, History, Part, Transaction, Work};
use bytes::Bytes;
use shoal_cluster::topology::TableStanding;
use shoal_engine::TransactionId;
use shoal_types::{Ballot, NodeId, Result, ShardId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// With so many entries on their way, what is released gathers until one is decided.
const UNDECIDED_MAX: usize = 64;

/// So many that wait for room are looked at together: they may fill it.
const LOOKS_MAX: usize = 64;

/// So long after, it is looked again whether a table is known.
const TABLES_WAIT: Duration = Duration::from_millis(10);

/// What another participant has proposed.
#[derive(Debug, Clone, Copy)]
struct Proposal {
    shard: ShardId,
    ballot: Ballot,
    t: Time,
    /// The ballot of this shard that the transaction names.
    named: Ballot,
    /// Whether the sender asks for an answer.
    again: bool,
}

impl Replica {
    /// The ballot of the leader, while it serves.
    #[must_use]
    pub fn serves(&self) -> Option<Ballot> {
        let leading = self.leading.as_ref()?;
        matches!(leading.phase, Phase::Serving).then_some(leading.ballot)
    }

    /// Whether the final record of this leadership is decided: the next recovery counts the votes that are given under it.
    #[must_use]
    pub fn has_recovered(&self) -> bool {
        let base = &self.ledger.base;
        base.is_final && self.serves() == Some(base.ballot)
    }

    /// A transaction comes to the leader.
    pub(crate) fn submit_to_leader(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        t: Time,
        sent: Time,
        transaction: &Arc<Transaction>,
    ) {
        let (Some(work), Some(ballot)) = (Work::new(transaction, self.shard), self.serves()) else {
            return;
        };
        if !step.is_accurate {
            return; // Another leads soon, and is asked again (rule T12).
        }
        let id = transaction.id;
        if let Some(record) = self.ledger.record(id).cloned() {
            // The coordinator asks again.
            if from == id.node {
                let is_stable = !self.ledger.is_undecided(id);
                self.vote(step, &record, is_stable, ArrivalTimes::default());
            }
            return;
        }
        if self.queue.get(id).is_some() || self.ledger.is_over(id) {
            return self.repeat_vote(step, from, id);
        }
        if work.part().ballot > ballot {
            return; // The configuration that names it is on its way.
        }
        for part in &transaction.parts {
            step.view.hear(part.shard, part.ballot);
        }
        let is_old = |part: &Part| part.ballot < step.view.known(part.shard);
        let is_far = t > step.clock + step.options.ahead_max
            && !step.options.bugs.has(TigaPlantedBug::TrustFarClock);
        let times = ArrivalTimes { sent, arrived: step.arrived };
        if is_far || self.is_refused(id) || transaction.parts.iter().any(is_old) {
            let refusal = Refusal { id, oldest: transaction.oldest, t };
            return self.refuse(step, refusal, None, times);
        }
        let t = self.raised(step, t, &work);
        let waiting = Waiting::new(work, Origin::Accepted, times);
        self.enqueue(step, t, waiting);
    }

    /// The timestamp at which a transaction is accepted that asks for `t`: above all that conflicts (rule T1).
    fn raised(&mut self, step: &Step<'_>, t: Time, work: &Work) -> Time {
        let least = self.least_accepted(step, work);
        if t >= least || step.options.bugs.has(TigaPlantedBug::AcceptLate) {
            return t;
        }
        self.counters.raised += 1;
        least
    }

    /// Puts an accepted transaction into the queue, and proposes it where others take part.
    pub(crate) fn enqueue(&mut self, step: &mut Step<'_>, t: Time, mut waiting: Waiting) {
        let (id, needs_agreement) = (waiting.work.id(), waiting.needs_agreement());
        if needs_agreement {
            waiting.repetition = Some(Repetition::later(step.now, step.options.backoff()));
        }
        let transaction = Arc::clone(&waiting.work.transaction);
        self.queue.insert(step.now + step.options.hold_max, t, waiting);
        if needs_agreement {
            self.send_proposals(step, t, &transaction, false);
            for message in self.early.take(id) {
                self.receive_agreement(step, message);
            }
        }
    }

    fn send_proposals(&self, step: &mut Step<'_>, t: Time, transaction: &Transaction, again: bool) {
        let Some(ballot) = self.serves() else { return };
        for part in transaction.parts.iter().filter(|part| part.shard != self.shard) {
            let (to, named) = (part.shard, part.ballot);
            let (id, shard) = (transaction.id, self.shard);
            let sent = step.clock;
            let message = Message::Propose { id, to, shard, ballot, t, named, again, sent };
            step.send_to_leader(to, message);
        }
    }

    /// A `Propose`, a `Ready` or a `Gone` of another participant.
    pub fn receive_agreement(&mut self, step: &mut Step<'_>, message: Message) {
        match message {
            Message::Propose { id, shard, ballot, t, named, again, sent, to: _ } => {
                let is_current = step.view.hear(shard, ballot);
                if let Some(leading) = self.leading.as_mut().filter(|_| sent != Time::ZERO) {
                    leading.note_distance(shard, step.arrived.0.wrapping_sub(sent.0) as i64);
                }
                if is_current && self.serves().is_some() {
                    let proposal = Proposal { shard, ballot, t, named, again };
                    self.proposed(step, id, proposal);
                }
            }
            Message::Ready { id, shard, t, ref ballots, ref contribution, ref in_front, to: _ } => {
                if self.serves().is_none() {
                    return;
                }
                let (ballots, contribution) = (ballots.clone(), contribution.clone());
                let in_front = in_front.clone();
                let Some((_, waiting)) = self.queue.get_mut(id) else {
                    if self.ledger.record(id).is_none() && !self.ledger.is_over(id) {
                        self.early.keep(step.now, id, message);
                    }
                    return;
                };
                for (part, ballot) in waiting.work.transaction.parts.iter().zip(&ballots) {
                    step.view.hear(part.shard, *ballot);
                }
                let transaction = Arc::clone(&waiting.work.transaction);
                let ready = Readiness { t, ballots: ballots.clone(), contribution, in_front };
                waiting.readies.insert(shard, ready);
                let is_current = self.current_ballots(step, &transaction) == ballots;
                let Some((stamp, waiting)) = self.queue.get(id) else { return };
                if is_current && t > stamp.t && waiting.needs_agreement() {
                    // Its proposal is on its way, or lost.
                    self.queue.reposition(step.now + step.options.hold_max, id, t);
                }
                self.queue.look_at(id);
            }
            Message::Gone { id, shard, ballot, .. } => self.gone(step, id, shard, ballot),
            _ => {}
        }
    }

    /// Another participant does not have it and never will: it is released nowhere.
    fn gone(&mut self, step: &mut Step<'_>, id: TransactionId, shard: ShardId, ballot: Ballot) {
        if self.serves().is_none() || !step.view.hear(shard, ballot) {
            return;
        }
        let Some((Stamp { t, .. }, waiting)) = self.queue.get(id) else { return };
        if !waiting.needs_agreement() {
            return;
        }
        let refusal = Refusal { id, oldest: waiting.work.transaction.oldest, t };
        self.queue.remove(id);
        self.refuse(step, refusal, None, ArrivalTimes::default());
    }

    fn proposed(&mut self, step: &mut Step<'_>, id: TransactionId, proposal: Proposal) {
        let Proposal { shard, ballot, t, named, again } = proposal;
        let own = self.serves().expect("serves");
        if let Some((stamp, waiting)) = self.queue.get_mut(id) {
            waiting.proposals.insert(shard, (ballot, t));
            let (is_imported, own) =
                (matches!(waiting.origin, Origin::Imported(_)), waiting.own.clone());
            let transaction = Arc::clone(&waiting.work.transaction);
            if t > stamp.t && !is_imported {
                self.queue.reposition(step.now + step.options.hold_max, id, t);
            }
            self.queue.look_at(id);
            if again {
                // It lacks what was said here.
                let t = t.max(stamp.t);
                self.answer_proposal(step, shard, &transaction, t, own);
            }
            return;
        }
        if let Some(record) = self.ledger.record(id).cloned() {
            let ballots = self.current_ballots(step, &record.transaction);
            let Some(place) = record.transaction.place(self.shard) else { return };
            let contribution = record.contribution(place);
            let named = Work::new(&record.transaction, self.shard).and_then(|work| {
                let leading = self.leading.as_ref().expect("serves");
                leading.undecided_votes.in_front(record.stamp(), &work)
            });
            let Some(in_front) = named else { return };
            let ready = Readiness { t: record.t, ballots, contribution, in_front };
            return self.send_ready(step, id, shard, ready);
        }
        if self.ledger.is_over(id) {
            return step.send_to_leader(shard, gone_at(id, self.shard, own));
        }
        if named < own || self.is_refused(id) {
            let refusal = Refusal { id, oldest: 0, t };
            return self.refuse(step, refusal, Some(shard), ArrivalTimes::default());
        }
        if again {
            step.send_to_leader(shard, Message::Want { id, to: shard });
        }
        let to = self.shard;
        let (again, sent) = (false, Time::ZERO);
        let message = Message::Propose { id, to, shard, ballot, t, named, again, sent };
        self.early.keep(step.now, id, message);
    }

    fn answer_proposal(
        &self,
        step: &mut Step<'_>,
        to: ShardId,
        transaction: &Transaction,
        t: Time,
        own: Option<Readiness>,
    ) {
        let (Some(ballot), id, shard) = (self.serves(), transaction.id, self.shard) else { return };
        let named = transaction.place(to).map(|at| transaction.parts[at].ballot);
        let named = named.unwrap_or_default();
        let (again, sent) = (false, step.clock);
        let message = Message::Propose { id, to, shard, ballot, t, named, again, sent };
        step.send_to_leader(to, message);
        if let Some(ready) = own {
            self.send_ready(step, id, to, ready);
        }
    }

    fn send_ready(&self, step: &mut Step<'_>, id: TransactionId, to: ShardId, ready: Readiness) {
        let Readiness { t, ballots, contribution, in_front } = ready;
        let shard = self.shard;
        let message = Message::Ready { id, to, shard, t, ballots, contribution, in_front };
        step.send_to_leader(to, message);
    }

    /// A leader that has proposed a transaction is asked for it.
    pub fn wanted(&mut self, step: &mut Step<'_>, from: NodeId, id: TransactionId) {
        if let Some((stamp, waiting)) = self.queue.get(id) {
            let transaction = Arc::clone(&waiting.work.transaction);
            step.send(from, Message::Submit { t: stamp.t, sent: Time::ZERO, transaction });
        }
    }

    fn current_ballots(&self, step: &Step<'_>, transaction: &Transaction) -> Vec<Ballot> {
        let own = self.leading.as_ref().map(|leading| leading.ballot).unwrap_or_default();
        let of = |shard| if shard == self.shard { own } else { step.view.known(shard) };
        transaction.parts.iter().map(|part| of(part.shard)).collect()
    }

    /// Goes on with the transaction at the head of its queue.
    pub(crate) fn lead(&mut self, step: &mut Step<'_>, stamp: Stamp) {
        if self.serves().is_none() {
            return;
        }
        if self.refuse_settled_call(step, stamp) {
            return;
        }
        if self.waits_for_tables(step, stamp) {
            return;
        }
        if !self.has_room(step, stamp) {
            return;
        }
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return };
        if !waiting.needs_agreement() {
            return self.release(step, stamp, None);
        }
        let transaction = Arc::clone(&waiting.work.transaction);
        let ballots = self.current_ballots(step, &transaction);
        self.vote_optimistically(step, stamp, &ballots);
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return };
        let has_proposed = |shard: ShardId| {
            let is_ready = waiting.readies.get(&shard).is_some_and(|it| it.t == stamp.t);
            is_ready || waiting.is_proposed(shard, step.view.known(shard), stamp.t)
        };
        if !others(&transaction, self.shard).all(has_proposed) {
            return;
        }
        let is_said = |own: &Readiness| own.is_of(stamp.t, &ballots);
        if is_ready_awaited(step, &transaction, self.shard)
            && !waiting.own.as_ref().is_some_and(is_said)
            && !self.get_ready(step, stamp, &transaction, ballots.clone())
        {
            return;
        }
        if self.may_release(step, stamp, &transaction, &ballots) {
            self.release(step, stamp, Some(ballots));
        }
    }

    /// Whether no participant accepts or releases anything below the agreed timestamp any more that conflicts: it has said so,
    /// or the clock does.
    fn may_release(
        &mut self,
        step: &Step<'_>,
        stamp: Stamp,
        transaction: &Transaction,
        ballots: &[Ballot],
    ) -> bool {
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return false };
        let of_any = step.options.bugs.has(TigaPlantedBug::ReadyOfOldBallot);
        let is_ready = |shard: &ShardId| {
            let counts =
                |ready: &Readiness| ready.is_of(stamp.t, ballots) || (of_any && ready.t == stamp.t);
            waiting.readies.get(shard).is_some_and(counts)
        };
        let missing: Vec<ShardId> =
            others(transaction, self.shard).filter(|shard| !is_ready(shard)).collect();
        if missing.is_empty() || step.options.bugs.has(TigaPlantedBug::ReleaseBeforeReady) {
            return true;
        }
        let is_awaited = |shard: ShardId| {
            is_ready_awaited(step, transaction, shard)
                || !waiting.is_proposed(shard, step.view.known(shard), stamp.t)
        };
        if !step.is_accurate || missing.into_iter().any(is_awaited) {
            return false;
        }
        let past = past_everywhere(step, stamp.t);
        if step.clock < past {
            self.queue.postpone(stamp.id, past);
            return false;
        }
        true
    }

    /// Promises that nothing conflicting comes below, and says so. Says whether it could: what is certified may rest on what
    /// is not decided.
    fn get_ready(
        &mut self,
        step: &mut Step<'_>,
        stamp: Stamp,
        transaction: &Transaction,
        ballots: Vec<Ballot>,
    ) -> bool {
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return false };
        let exports_unstable = step.options.bugs.has(TigaPlantedBug::ExportUnstable);
        let rows = &self.ledger.rows;
        let Some(contribution) = contribution(&waiting.work, rows, exports_unstable) else {
            self.leading.as_mut().expect("serves").unstable.insert(stamp.id);
            return false;
        };
        let leading = self.leading.as_mut().expect("serves");
        let Some(in_front) = leading.undecided_votes.in_front(stamp, &waiting.work) else {
            leading.unstable.insert(stamp.id);
            return false;
        };
        if let Some(own) = waiting.own.as_ref().filter(|own| own.t == stamp.t) {
            // Another participant may have released it with that.
            assert!(
                own.contribution.as_ref().ok() == contribution.as_ref().ok(),
                "{} said of {}: {:?}, and says now: {contribution:?}",
                self.shard,
                stamp.id,
                own.contribution
            );
        }
        if !step.options.bugs.has(TigaPlantedBug::ReadyWithoutPromise) {
            self.conflicts.note(&waiting.work.locks, stamp.t);
        }
        let ready = Readiness { t: stamp.t, ballots, contribution, in_front };
        if let Some((_, waiting)) = self.queue.get_mut(stamp.id) {
            waiting.own = Some(ready.clone());
            waiting.repetition = Some(Repetition::later(step.now, step.options.backoff()));
        }
        for shard in others(transaction, self.shard) {
            self.send_ready(step, stamp.id, shard, ready.clone());
        }
        true
    }

    /// Whether a transaction declares ranges of tables that this node does not know yet: which rows of a range are this
    /// shard's, the table says. The configuration that has it is on its way.
    fn waits_for_tables(&mut self, step: &Step<'_>, stamp: Stamp) -> bool {
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return false };
        let parts = waiting.work.transaction.parts.iter();
        let mut ranges = parts.flat_map(|part| &part.declared_ranges);
        let tables = step.library.tables;
        let waits = ranges.any(|range| tables.standing(range.table) == TableStanding::NotGiven);
        if waits {
            self.queue.postpone(stamp.id, step.clock + TABLES_WAIT);
        }
        waits
    }

    /// Whether the leader may append more: all that is not decided may stand in a list, which one message holds. It is not ready
    /// before: what others release then, and this shard does not, they keep for its recovery.
    fn has_room(&mut self, step: &Step<'_>, stamp: Stamp) -> bool {
        let has_room = self.ledger.undecided_bytes() < step.options.window_bytes;
        if !has_room {
            self.leading.as_mut().expect("releases as a leader").without_room.insert(stamp);
        }
        has_room
    }

    /// While there is room, has the next ones looked at that wait for it, in their order. Says whether there are some. All are
    /// looked at before the leader waits again: another shard may wait for any of them.
    pub(crate) fn use_room(&mut self, step: &Step<'_>) -> bool {
        let Some(leading) = &mut self.leading else { return false };
        if self.ledger.undecided_bytes() >= step.options.window_bytes {
            return false;
        }
        let next = std::iter::from_fn(|| leading.without_room.pop_first()).take(LOOKS_MAX);
        next.map(|stamp| self.queue.look_at(stamp.id)).count() > 0
    }

    /// Executes a transaction, appends it and votes.
    fn release(&mut self, step: &mut Step<'_>, stamp: Stamp, ballots: Option<Vec<Ballot>>) {
        let Some(mut waiting) = self.queue.remove(stamp.id) else { return };
        let ballots = match (&waiting.origin, ballots) {
            (Origin::Imported(record), _) => record.ballots.clone(),
            (_, Some(ballots)) => ballots,
            (_, None) => self.current_ballots(step, &waiting.work.transaction),
        };
        let voted = self.take_vote(step, stamp, &mut waiting);
        let is_voted = voted.as_ref().is_some_and(|voted| voted.record.ballots == ballots);
        let (record, history) = match voted {
            Some(OptimisticVote { record, history }) => {
                let promises = self.promises(&waiting);
                let record = match is_voted && promises.is_empty() {
                    true => record,
                    false => Arc::new(Record { ballots, promises, ..Record::clone(&record) }),
                };
                (record, history)
            }
            None => {
                let (record, history) = self.execute(step, stamp, &waiting, ballots);
                (Arc::new(record), history)
            }
        };
        let Waiting { work, times, .. } = waiting;
        self.conflicts.note(&work.locks, stamp.t);
        let index = self.ledger.length();
        let bytes = record.bytes();
        self.ledger.append_record(&record, index, bytes, history.predecessors.len());
        let leading = self.leading.as_mut().expect("releases as a leader");
        if !record.transaction.by_log {
            leading.undecided_votes.add(&record, work);
        }
        leading.batch_bytes += bytes;
        leading.batch.push(Arc::clone(&record));
        leading.unstable.remove(&stamp.id);
        leading.inherited.remove(&stamp.id);
        self.counters.released += 1;
        let (shard, ballot) = (self.shard, leading.ballot);
        step.observe(|| TigaObservation::Released { shard, ballot, record: Arc::clone(&record) });
        if !is_voted && !record.transaction.by_log {
            self.vote(step, &record, false, times);
        }
        if self.leading.as_ref().is_some_and(|it| it.batch_bytes >= step.options.window_bytes) {
            self.flush(step, true);
        }
    }

    /// Executes a transaction. Returns what is appended, and what that rests on.
    pub(crate) fn execute(
        &self,
        step: &Step<'_>,
        stamp: Stamp,
        waiting: &Waiting,
        ballots: Vec<Ballot>,
    ) -> (Record, History) {
        let Execution { outcome, writes, exchanged } = self.run_body(step, waiting);
        let work = &waiting.work;
        let history = history(step, &self.ledger, &self.tentative, stamp, work);
        let digest = match step.options.bugs.has(TigaPlantedBug::DigestWithoutHistory) {
            true => work.digester(stamp.t).finish(),
            false => history.digest,
        };
        let record = Record {
            t: stamp.t,
            digest,
            ballots,
            outcome,
            procedure_writes: writes,
            exchanged,
            promises: self.promises(waiting),
            transaction: Arc::clone(&work.transaction),
        };
        (record, history)
    }

    fn run_body(&self, step: &Step<'_>, waiting: &Waiting) -> Execution {
        let (work, library) = (&waiting.work, step.library);
        let is_checked = !step.options.bugs.has(TigaPlantedBug::TouchUndeclared);
        match &work.transaction.body {
            Body::Pieces { call } => run_piece(work, call, &self.ledger.rows, library, is_checked),
            Body::Whole { call } => match self.contributions(waiting) {
                Ok(exchanged) => run_whole(work, call, exchanged, library, is_checked),
                Err(error) => Execution::without_writes(Err(error)),
            },
            Body::Certify => {
                let certified = self.contributions(waiting).map(|_| Bytes::new());
                Execution::without_writes(certified)
            }
        }
    }

    /// What the participants have said, in the order of the parts; of this one alone, where no other was asked.
    fn contributions(&self, waiting: &Waiting) -> Result<Vec<PartReads>> {
        let Waiting { work, own, readies, origin, .. } = waiting;
        let parts = work.transaction.parts.iter().enumerate();
        let of = |(place, part): (usize, &Part)| match (origin, part.shard == self.shard) {
            (Origin::Imported(record), _) => Some(record.contribution(place)),
            (_, true) => own
                .as_ref()
                .map(|own| own.contribution.clone())
                .or_else(|| contribution(work, &self.ledger.rows, true)),
            (_, false) => readies.get(&part.shard).map(|ready| ready.contribution.clone()),
        };
        parts.map(|part| of(part).unwrap_or(Ok(PartReads::default()))).collect()
    }

    /// The leader votes, or says that a transaction is stable.
    pub(crate) fn vote(
        &mut self,
        step: &mut Step<'_>,
        record: &Record,
        is_stable: bool,
        times: ArrivalTimes,
    ) {
        let Some(leading) = &mut self.leading else { return };
        let is_stable = is_stable || step.options.bugs.has(TigaPlantedBug::MaximumSyncPoint);
        let (ballots, outcome) = (record.ballots.clone(), record.outcome.clone());
        let vote = Vote {
            id: record.id(),
            shard: self.shard,
            t: record.t,
            digest: record.digest,
            ballot: leading.ballot,
            leader: Some(LeaderVote { ballots, outcome, is_stable }),
        };
        let ArrivalTimes { sent, arrived } = times;
        let message = Message::Vote { vote, sent, arrived };
        let envelope = Envelope { to: record.id().node, message };
        if !is_stable && step.is_recorded && !leading.batch.is_empty() {
            // It may be in the entry that is not made yet.
            leading.votes.push(envelope);
        } else if is_stable {
            step.output.sends.push(envelope);
        } else {
            step.send_when_durable(self.shard, vec![envelope]);
        }
    }

    /// Makes an entry of what was released, and of a seal that is due. Unless it hurries, it waits while many are on their
    /// way.
    pub(crate) fn flush(&mut self, step: &mut Step<'_>, hurries: bool) {
        if self.serves().is_none() {
            return;
        }
        let waits_for_seal = !self.ledger.recent.is_empty();
        let undecided = self.ledger.undecided_entries();
        let leading = self.leading.as_mut().expect("serves");
        let has_batch = !leading.batch.is_empty() || !leading.refusals.is_empty();
        if undecided >= UNDECIDED_MAX && !hurries {
            return;
        }
        let is_due = leading.seal_at <= step.now
            && undecided == 0
            && (leading.needs_seal || waits_for_seal || !leading.settled.is_empty());
        if !has_batch && !is_due {
            return;
        }
        let behind = Time(step.clock.0.saturating_sub(step.options.seal_lag.as_nanos() as u64));
        let least = self.queue.least().map_or(Time::MAX, |t| Time(t.0.saturating_sub(1)));
        let bound = if step.options.bugs.has(TigaPlantedBug::SealOpen) { Time::MAX } else { least };
        let seal = behind.min(bound).max(leading.seal).max(self.ledger.seal);
        (leading.seal, leading.seal_at) = (seal, step.now + step.options.seal_every);
        leading.needs_seal = has_batch;
        leading.batch_bytes = 0;
        let records = std::mem::take(&mut leading.batch);
        let settled = std::mem::take(&mut leading.settled);
        let refused = std::mem::take(&mut leading.refusals);
        let votes = std::mem::take(&mut leading.votes);
        let entry = Entry::Batch { records, seal, settled, refused };
        step.propose(self.shard, &entry);
        if !votes.is_empty() {
            step.send_when_durable(self.shard, votes);
        }
        self.ledger.append(entry);
        self.conflicts.forget(seal);
    }

    /// A majority has more of what this leader has appended.
    pub fn durable(&mut self, step: &mut Step<'_>, length: u64) {
        while self.ledger.applied < length.min(self.ledger.length()) {
            self.apply_next(step);
        }
        if let Some(leading) = &mut self.leading {
            std::mem::take(&mut leading.unstable).into_iter().for_each(|id| self.queue.look_at(id));
            let reads = std::mem::take(&mut leading.reads);
            for ((from, number), DeferredReads { reads, until }) in reads {
                self.read_until(step, from, number, reads, until);
            }
        }
    }

    /// Records of this leadership, or that it has adopted, are decided.
    pub(crate) fn decided_as_leader(&mut self, step: &mut Step<'_>, records: &[Arc<Record>]) {
        if self.serves().is_none() {
            return;
        }
        let mut decided: BTreeMap<ShardId, Vec<TransactionId>> = BTreeMap::new();
        for record in records {
            self.vote(step, record, true, ArrivalTimes::default());
            for shard in others(&record.transaction, self.shard) {
                decided.entry(shard).or_default().push(record.id());
            }
            let leading = self.leading.as_mut().expect("serves");
            leading.undecided_votes.decide(record.stamp());
            for shard in leading.settled_early.remove(&record.id()).unwrap_or_default() {
                self.settle(record.id(), shard);
            }
        }
        for (to, ids) in decided {
            self.send_settled(step, to, ids, false);
        }
    }

    fn send_settled(&self, step: &mut Step<'_>, to: ShardId, ids: Vec<TransactionId>, again: bool) {
        let Some(ballot) = self.serves() else { return };
        let message = Message::Settled { ids, to, shard: self.shard, ballot, again };
        step.send_to_leader(to, message);
    }

    fn settle(&mut self, id: TransactionId, shard: ShardId) {
        let Some(unsettled) = self.ledger.unsettled.get_mut(&id) else { return };
        unsettled.waits_for.remove(&shard);
        if let Some(leading) = self.leading.as_mut().filter(|_| unsettled.waits_for.is_empty()) {
            leading.settled.push(id);
        }
    }

    /// Another participant has decided these, as its leader under this ballot says.
    pub fn settled(
        &mut self,
        step: &mut Step<'_>,
        ids: &[TransactionId],
        shard: ShardId,
        ballot: Ballot,
        again: bool,
    ) {
        let trusts_all = step.options.bugs.has(TigaPlantedBug::SettleByFormerLeader);
        let Some(own) = self.serves() else { return };
        if !step.view.hear(shard, ballot) && !trusts_all {
            return;
        }
        let is_current = step.has_lease && own == step.view.known(self.shard);
        let mut known = Vec::new();
        for id in ids {
            if self.ledger.unsettled.contains_key(id) {
                self.settle(*id, shard);
            } else if self.ledger.is_undecided(*id) || self.queue.get(*id).is_some() {
                let leading = self.leading.as_mut().expect("serves");
                leading.settled_early.entry(*id).or_default().insert(shard);
            } else if is_current || trusts_all {
                // It is decided and forgotten here. A leader that another may have replaced does not know what that one has.
                known.push(*id);
            }
        }
        if again && !known.is_empty() {
            self.send_settled(step, shard, known, false);
        }
    }

    /// Sends again what was not answered in time, while this node leads.
    pub(crate) fn repeat(&mut self, step: &mut Step<'_>) {
        let repeat_after = step.options.repeat_after;
        let Some(leading) = self.leading.as_mut().filter(|it| it.repeat_at <= step.now) else {
            return;
        };
        leading.repeat_at = step.now + repeat_after;
        leading.reads.retain(|_, deferred| deferred.until > step.now);
        self.early
            .expire(Time((step.now.0).saturating_sub(step.options.early_max.as_nanos() as u64)));
        if self.serves().is_none() {
            return;
        }
        let due = self.queue.iter().filter(|(_, it)| it.needs_agreement());
        let due = due.filter(|(_, it)| it.repetition.is_some_and(|it| it.is_due(step.now)));
        let due: Vec<_> = due
            .map(|(stamp, it)| (stamp, Arc::clone(&it.work.transaction), it.own.clone()))
            .collect();
        for (stamp, transaction, own) in due {
            self.send_proposals(step, stamp.t, &transaction, true);
            let current = self.current_ballots(step, &transaction);
            if let Some(own) = own.filter(|own| own.ballots == current) {
                for shard in others(&transaction, self.shard) {
                    self.send_ready(step, stamp.id, shard, own.clone());
                }
            }
            if let Some((_, waiting)) = self.queue.get_mut(stamp.id)
                && let Some(repetition) = &mut waiting.repetition
            {
                repetition.take_due(step.now);
            }
            self.queue.look_at(stamp.id);
        }
        self.repeat_settled(step);
    }

    fn repeat_settled(&mut self, step: &mut Step<'_>) {
        let mut open: BTreeMap<ShardId, Vec<TransactionId>> = BTreeMap::new();
        let old =
            Time(step.clock.0.saturating_sub(4 * step.options.repeat_after.as_nanos() as u64));
        for (id, unsettled) in &self.ledger.unsettled {
            for shard in unsettled.waits_for.iter().filter(|_| unsettled.record.t < old) {
                open.entry(*shard).or_default().push(*id);
            }
        }
        for (to, ids) in open {
            self.send_settled(step, to, ids, true);
        }
    }

    /// When there will be something to do that no event brings, on the local clock.
    #[must_use]
    pub fn next_repeat(&self) -> Option<Time> {
        let leading = self.leading.as_ref()?;
        let needs_seal = leading.needs_seal || !self.ledger.recent.is_empty();
        let may_seal = needs_seal && self.ledger.undecided_entries() == 0;
        let seal = Some(leading.seal_at).filter(|_| self.serves().is_some() && may_seal);
        [Some(leading.repeat_at), seal].into_iter().flatten().min()
    }
}
