//! A replica of a shard: what all replicas do, and what followers do.
//!
//! ```text
//!   Submit ──► accepted? ── no: the leader's log says where it belongs
//!                 └ yes ──► queue ── due, nothing conflicting before it ──► released: tentative ──► Vote
//!   log ── accepted ──► synced: leaves queue and tentative list ── decided ──► ledger
//! ```
//! A replica that leads does what `leader.rs` says instead of voting.

use crate::leading::Leading;
use crate::ledger::Ledger;
use crate::locks::ConflictTable;
use crate::message::{Envelope, Message, Vote};
use crate::metrics::ReplicaCounters;
use crate::observation::TigaObservation;
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::{Early, Origin, Queue, Waiting};
use crate::record::{Base, Entry, Record, Refusal, TentativeList};
use crate::stamp::{ArrivalTimes, Stamp};
use crate::step::Step;
use crate::tentative::{Tentative, TentativeEntries, history};
use crate::transaction::{Transaction, Work};
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_types::wire::decode;
use shoal_types::{Ballot, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was synced, for each coordinator.
type Synced = BTreeMap<NodeId, Vec<(TransactionId, Time)>>;

/// So many withheld votes are looked at together.
const WITHHELD_MAX: usize = 64;

/// A replica of a shard.
#[derive(Debug)]
pub struct Replica {
    pub(crate) shard: ShardId,
    pub(crate) ledger: Ledger,
    /// What is released or promised here.
    pub(crate) conflicts: ConflictTable,
    pub(crate) queue: Queue,
    pub(crate) early: Early,
    pub(crate) tentative: TentativeEntries,
    /// The ballot that the log of this replica has promised.
    pub(crate) promised: Ballot,
    /// The ballot of the last final record that was accepted: under it, and no other, the replica votes (rule T17).
    pub(crate) base: Ballot,
    /// What only a leader has.
    pub(crate) leading: Option<Leading>,
    /// What former processes have recorded is read.
    pub(crate) has_records: bool,
    /// The bytes of its records on disk, since all of the list was recorded.
    pub(crate) recorded_bytes: usize,
    pub(crate) counters: ReplicaCounters,
}

impl Replica {
    /// A replica that has nothing.
    #[must_use]
    pub fn new(shard: ShardId) -> Replica {
        Replica {
            shard,
            ledger: Ledger::new(shard),
            conflicts: ConflictTable::default(),
            queue: Queue::default(),
            early: Early::default(),
            tentative: TentativeEntries::default(),
            promised: Ballot::default(),
            base: Ballot::default(),
            leading: None,
            has_records: false,
            recorded_bytes: 0,
            counters: ReplicaCounters::default(),
        }
    }

    /// The decided state.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The decided state, to copy it.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The shard that it is a copy of.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> ReplicaCounters {
        self.counters
    }

    /// How many transactions wait here, and how many are released and not synced.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue.len(), self.tentative.len())
    }

    /// A transaction comes from its coordinator, or from a leader that was asked for it.
    pub fn submit(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        t: Time,
        sent: Time,
        transaction: &Arc<Transaction>,
    ) {
        if self.leading.is_some() {
            return self.submit_to_leader(step, from, t, sent, transaction);
        }
        let Some(work) = Work::new(transaction, self.shard) else { return };
        let (id, ballot) = (transaction.id, work.part().ballot);
        let is_ours = ballot == self.promised && self.may_vote(step);
        // The first time it comes from its coordinator, with the timestamp that all followers vote at, if they vote for it.
        let is_first = sent != Time::ZERO;
        let is_known = self.queue.get(id).is_some()
            || self.tentative.get(id).is_some()
            || self.ledger.record(id).is_some()
            || self.ledger.is_refused(id)
            || self.ledger.is_over(id);
        let is_far = t > step.clock + step.options.ahead_max;
        if !is_ours || !is_first || is_known || is_far || !step.is_accurate {
            return;
        }
        // All that it accepts may stand in a list, which one message holds.
        let bytes = self.queue.bytes() + self.tentative.bytes() + work.bytes;
        if bytes > step.options.window_bytes {
            self.counters.without_room += 1;
            return;
        }
        let is_late = t < self.least_accepted(step, &work);
        if is_late && !step.options.bugs.has(TigaPlantedBug::AcceptLate) {
            // The leader's log says where it belongs.
            self.counters.late += 1;
            return;
        }
        let waiting =
            Waiting::new(work, Origin::Accepted, ArrivalTimes { sent, arrived: step.arrived });
        self.queue.insert(step.now + step.options.hold_max, t, waiting);
    }

    /// Whether this replica votes at present (rules T9 and T17).
    fn may_vote(&self, step: &Step<'_>) -> bool {
        let votes_early = step.options.bugs.has(TigaPlantedBug::VoteBeforeFinal);
        let is_current = self.base == self.promised || votes_early;
        self.leading.is_none() && is_current && step.view.votes(self.shard) && self.has_votes(step)
    }

    /// Goes on with what waits, as far as it can.
    pub fn run(&mut self, step: &mut Step<'_>) {
        self.queue.advance(step.clock, step.now);
        loop {
            while let Some(id) = self.queue.next_changed() {
                let Some(stamp) = self.queue.is_head(id) else { continue };
                match self.leading.is_some() {
                    true => self.lead(step, stamp),
                    false => self.release_tentatively(step, stamp),
                }
            }
            if !self.use_room(step) {
                break;
            }
        }
        if self.leading.is_some() {
            self.flush(step, false);
        }
    }

    fn release_tentatively(&mut self, step: &mut Step<'_>, stamp: Stamp) {
        let Some(waiting) = self.queue.remove(stamp.id) else { return };
        let Waiting { work, times, .. } = waiting;
        self.conflicts.note(&work.locks, stamp.t);
        let history = history(step, &self.ledger, &self.tentative, stamp, &work);
        self.tentative.insert(Tentative::new(stamp, work, history, false, times));
        self.try_vote(step, stamp);
    }

    /// Votes for a released transaction, unless something of several shards that it rests on, directly or not, is not synced
    /// here (rule T5). What it rests on directly and is voted for rests on nothing of that kind.
    fn try_vote(&mut self, step: &mut Step<'_>, stamp: Stamp) {
        if !self.may_vote(step) {
            return;
        }
        let Some(tentative) = self.tentative.get(stamp.id).filter(|it| !it.is_voted) else {
            return;
        };
        let mut history = history(step, &self.ledger, &self.tentative, stamp, &tentative.work);
        let mut predecessors = history.predecessors.iter();
        let open = predecessors.find(|before| self.tentative.is_open(before)).cloned();
        if let Some(open) = open
            && !step.options.bugs.has(TigaPlantedBug::VoteOverUnagreed)
        {
            self.counters.withheld += u64::from(tentative.waits_for.is_none());
            self.tentative.withhold(stamp.id, open);
            return;
        }
        if self.tentative.bytes() + history.bytes() > 2 * step.options.window_bytes {
            // It rests on so much that its place in a list would be long. The log says where it belongs.
            self.counters.without_room += 1;
            self.tentative.remove(stamp.id);
            return;
        }
        if step.options.bugs.has(TigaPlantedBug::DigestWithoutHistory) {
            history.digest = tentative.work.digester(stamp.t).finish();
        }
        let ArrivalTimes { sent, arrived } = tentative.times;
        let vote = Vote {
            id: stamp.id,
            shard: self.shard,
            t: stamp.t,
            digest: history.digest,
            ballot: self.promised,
            leader: None,
        };
        self.tentative.vote(stamp.id, history);
        self.counters.votes += 1;
        let Vote { id, shard, t, digest, ballot, .. } = vote;
        step.observe(|| TigaObservation::Voted { id, shard, ballot, t, digest });
        let message = Message::Vote { vote, sent, arrived };
        self.send_vote(step, id, Envelope { to: id.node, message });
    }

    /// The log has promised the ballot of another node: what is accepted and not decided is void, but a vote may rest on it.
    pub fn promise(&mut self, step: &mut Step<'_>, ballot: Ballot) {
        if ballot <= self.promised {
            return;
        }
        self.step_down(step);
        self.promised = ballot;
        self.give_list(step, ballot);
    }

    /// Ends a leadership, if there is one, and voids what is not decided.
    pub(crate) fn step_down(&mut self, step: &mut Step<'_>) {
        let leading = self.leading.take();
        self.clear_queue();
        let mut undecided = self.ledger.forget_undecided();
        undecided.extend(leading.into_iter().flat_map(|leading| leading.batch));
        self.tentative.keep_undecided(self.shard, &undecided);
        self.record_end(step);
    }

    /// Gives the tentative list to the leader of the promised ballot.
    pub fn give_list(&mut self, step: &mut Step<'_>, ballot: Ballot) {
        let is_current = ballot == self.promised && self.has_votes(step);
        if !is_current || ballot.node == step.view.me || !step.view.votes(self.shard) {
            return;
        }
        let list = self.own_list(step);
        let message = Message::List { shard: self.shard, ballot, list };
        step.send_when_durable(self.shard, vec![Envelope { to: ballot.node, message }]);
    }

    pub(crate) fn own_list(&self, step: &Step<'_>) -> TentativeList {
        let forgets = step.options.bugs.has(TigaPlantedBug::ForgetTentative);
        let entries = if forgets { Vec::new() } else { self.tentative.candidates() };
        TentativeList { base: self.base, entries }
    }

    /// The log has accepted entries of another leader, the last of `length` ones.
    pub fn accept(&mut self, step: &mut Step<'_>, ballot: Ballot, length: u64, entries: &[Bytes]) {
        if ballot != self.promised || self.leading.is_some() {
            return;
        }
        let first = length - entries.len() as u64;
        let mut synced = Synced::new();
        for (index, entry) in (first..).zip(entries) {
            if index == self.ledger.length() {
                self.append(step, entry, &mut synced);
            }
        }
        self.report_synced(step, synced);
        self.vote_for_withheld(step);
    }

    /// Reports what the log has to coordinators that wait for it: those of transactions for which this replica has not voted as
    /// their leader has. One on the leader's node knows it as early from there.
    fn report_synced(&self, step: &mut Step<'_>, synced: Synced) {
        let (shard, ballot) = (self.shard, self.promised);
        if !step.view.votes(shard) {
            return; // What it has accepted is no part of a majority.
        }
        for (coordinator, transactions) in synced {
            if coordinator != ballot.node {
                step.send(coordinator, Message::Synced { shard, ballot, transactions });
            }
        }
    }

    /// Votes for what was withheld, as far as that may be now; a vote may be what another one waits for.
    fn vote_for_withheld(&mut self, step: &mut Step<'_>) {
        loop {
            let before = self.counters.votes;
            for id in self.tentative.withheld(WITHHELD_MAX) {
                if let Some(stamp) = self.tentative.get(id).map(|it| it.stamp) {
                    self.try_vote(step, stamp);
                }
            }
            if self.counters.votes == before {
                return;
            }
        }
    }

    /// Appends an entry of another leader. What this replica has not voted for as that leader has goes into `synced`.
    fn append(&mut self, step: &mut Step<'_>, entry: &Bytes, synced: &mut Synced) {
        let entry: Entry = decode(entry).expect("a leader appends entries that can be read");
        match &entry {
            Entry::Batch { records, refused, .. } => {
                for record in records {
                    let id = record.id();
                    if !record.transaction.by_log && !self.has_voted_for(record) {
                        synced.entry(id.node).or_default().push((id, record.t));
                    }
                    self.sync(step, record);
                }
                let (shard, ballot) = (self.shard, self.promised);
                step.observe(|| TigaObservation::Synced {
                    shard,
                    ballot,
                    records: records.clone(),
                });
                for Refusal { id, .. } in refused {
                    self.queue.remove(*id);
                    self.tentative.remove(*id);
                }
            }
            Entry::Start { .. } => {}
            Entry::Final { ballot, .. } => {
                // Its leader's start record was decided before it made this.
                if *ballot == self.promised {
                    self.tentative.clear();
                    self.base = *ballot;
                }
            }
        }
        self.ledger.append(entry);
    }

    /// Whether this replica's vote for a transaction is as the leader's.
    fn has_voted_for(&self, record: &Record) -> bool {
        let own = self.tentative.get(record.id()).filter(|own| own.is_voted);
        own.is_some_and(|own| (own.stamp.t, own.history.digest) == (record.t, record.digest))
    }

    /// A transaction stands in the log of the leader.
    fn sync(&mut self, step: &Step<'_>, record: &Record) {
        let Some(work) = Work::new(&record.transaction, self.shard) else { return };
        let stamp = record.stamp();
        self.queue.remove(stamp.id);
        self.tentative.remove(stamp.id);
        if !step.options.bugs.has(TigaPlantedBug::KeepBehindSynced) {
            self.counters.dropped += self.tentative.drop_behind(stamp, &work) as u64;
        }
        for behind in self.queue.before(stamp, &work) {
            self.counters.late += u64::from(self.queue.remove(behind.id).is_some());
        }
        self.conflicts.note(&work.locks, stamp.t);
    }

    /// An entry that another leader proposed is decided.
    pub fn decide(&mut self, step: &mut Step<'_>, index: u64, entry: &Bytes) {
        if index < self.ledger.applied {
            return;
        }
        assert_eq!(index, self.ledger.applied, "entries of {} are decided in order", self.shard);
        if self.ledger.length() == index {
            self.append(step, entry, &mut Synced::new());
        }
        self.apply_next(step);
    }

    /// Applies the next entry, which is decided.
    pub(crate) fn apply_next(&mut self, step: &mut Step<'_>) {
        match self.ledger.decide() {
            Entry::Batch { seal, records, refused, .. } => {
                let (shard, index) = (self.shard, self.ledger.applied - 1);
                let applied = &records;
                step.observe(|| TigaObservation::Applied {
                    shard,
                    index,
                    records: applied.clone(),
                });
                self.follow_seal(seal);
                if self.leading.is_some() {
                    self.decided_as_leader(step, &records);
                    self.refusals_decided(step, &refused);
                }
            }
            Entry::Start { .. } => self.tentative.clear(),
            Entry::Final { .. } => {}
        }
    }

    /// The log begins behind a snapshot: `ledger` is the state that it stands for. What this replica has voted for stays, as
    /// far as the log up to there lets it.
    pub fn restore(&mut self, step: &mut Step<'_>, ledger: Ledger) {
        assert!(self.serves().is_none(), "the leader of {} has its log", self.shard);
        let (shard, length) = (self.shard, ledger.applied);
        let undecided = self.ledger.undecided_from(length);
        self.ledger = ledger;
        let Base { ballot, is_final, .. } = self.ledger.base;
        if ballot != self.base {
            // Its start record is among the entries that the snapshot stands for.
            self.tentative.clear();
        }
        if is_final && ballot == self.promised {
            self.base = ballot;
        }
        let recent: Vec<Arc<Record>> = self.ledger.recent.values().cloned().collect();
        recent.iter().for_each(|record| self.sync(step, record));
        let ids = self.tentative.ids().chain(self.queue.iter().map(|(stamp, _)| stamp.id));
        let refused: Vec<_> = ids.filter(|id| self.ledger.is_refused(*id)).collect();
        for id in refused {
            self.queue.remove(id);
            self.tentative.remove(id);
        }
        self.follow_seal(self.ledger.seal);
        undecided.into_iter().for_each(|entry| self.ledger.append(entry));
        step.observe(|| TigaObservation::Restored { shard, length });
    }

    /// What is not in the log up to a seal never will be (rule T15).
    fn follow_seal(&mut self, seal: Time) {
        self.conflicts.forget(seal);
        if self.leading.is_some() {
            return;
        }
        self.tentative.drop_sealed(seal);
        let sealed = self.queue.iter().take_while(|(stamp, _)| stamp.t <= seal);
        let sealed: Vec<_> = sealed.map(|(stamp, _)| stamp.id).collect();
        sealed.into_iter().for_each(|id| drop(self.queue.remove(id)));
    }

    /// When there will be something to do: on the transaction clock, and on the local clock.
    #[must_use]
    pub fn next_due(&self) -> (Option<Time>, Option<Time>) {
        (self.queue.next_due(), self.queue.next_held())
    }
}
