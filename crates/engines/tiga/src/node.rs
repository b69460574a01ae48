//! A node's part of the protocol: its coordinator and its replicas, without I/O.
//!
//! Messages of a node to itself are handled within the step. What the log of a shard promises, accepts and decides comes
//! through the functions that are named so.

use crate::coordinator::{Coordinator, Ended};
use crate::execute::Library;
use crate::ledger::Ledger;
use crate::message::{Envelope, Message};
use crate::options::TigaOptions;
use crate::planted_bugs::TigaPlantedBug;
use crate::replica::Replica;
use crate::stamp::ArrivalTimes;
use crate::step::{Output, Step};
use crate::transaction::Transaction;
use crate::view::{ShardView, View};
use bytes::Bytes;
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The times of a step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The local time.
    pub local: Time,
    /// The time on the transaction clock.
    pub clock: Time,
    /// When the message of this step arrived, on the transaction clock.
    pub arrived: Time,
    /// The node holds its lease.
    pub has_lease: bool,
    /// The transaction clock is as accurate as the options ask for.
    pub is_accurate: bool,
}

/// What a configuration says of a shard that this node leads, or follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appointment {
    /// The ballot of this node.
    pub ballot: Ballot,
    /// The epoch in which its leadership began.
    pub since: Epoch,
}

/// A node's coordinator and replicas.
pub struct TigaNode {
    options: TigaOptions,
    is_on_disk: bool,
    view: View,
    coordinator: Coordinator,
    replicas: BTreeMap<ShardId, Replica>,
    output: Output,
    /// Answers to reads of this node.
    answers: Vec<(NodeId, Message)>,
}

impl TigaNode {
    /// A node that has nothing and knows no configuration.
    #[must_use]
    pub fn new(me: NodeId, options: TigaOptions) -> TigaNode {
        TigaNode {
            options,
            is_on_disk: false,
            view: View::new(me),
            coordinator: Coordinator::default(),
            replicas: BTreeMap::new(),
            output: Output::default(),
            answers: Vec::new(),
        }
    }

    /// The node has its votes on disk.
    pub fn keep_on_disk(&mut self) {
        self.is_on_disk = true;
    }

    /// The shards, as the node knows them.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The part that counts votes.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The replica of a shard, if it has one.
    #[must_use]
    pub fn replica(&self, shard: ShardId) -> Option<&Replica> {
        self.replicas.get(&shard)
    }

    /// The replica of a shard, to copy from it.
    pub fn replica_mut(&mut self, shard: ShardId) -> Option<&mut Replica> {
        self.replicas.get_mut(&shard)
    }

    /// These copies are over.
    pub fn end_copies(&mut self, is_over: impl Fn(u64) -> bool) {
        self.replicas.values_mut().for_each(|replica| replica.ledger_mut().end_copies(&is_over));
    }

    /// What it has of shards.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    /// Does something, and then all that follows from it on this node.
    fn act(
        &mut self,
        now: Now,
        library: &Library<'_>,
        act: impl FnOnce(&mut Coordinator, &mut BTreeMap<ShardId, Replica>, &mut Step<'_>),
    ) {
        let Now { local, clock, arrived, has_lease, is_accurate } = now;
        let mut output = std::mem::take(&mut self.output);
        let sent_before = output.sends.len();
        let mut step = Step {
            is_recorded: self.is_on_disk,
            now: local,
            clock,
            arrived,
            has_lease,
            is_accurate,
            options: &self.options,
            library,
            view: &mut self.view,
            output: &mut output,
        };
        act(&mut self.coordinator, &mut self.replicas, &mut step);
        let me = step.view.me;
        let mut others = std::mem::take(&mut step.output.sends);
        let mut own: VecDeque<Message> = VecDeque::new();
        split(&mut others, sent_before, me, &mut own);
        loop {
            while let Some(message) = own.pop_front() {
                step.arrived = step.clock;
                let (coordinator, replicas) = (&mut self.coordinator, &mut self.replicas);
                receive(coordinator, replicas, &mut self.answers, &mut step, me, message);
                let from = others.len();
                others.append(&mut step.output.sends);
                split(&mut others, from, me, &mut own);
            }
            for replica in self.replicas.values_mut() {
                replica.recover(&mut step);
                replica.run(&mut step);
            }
            let from = others.len();
            others.append(&mut step.output.sends);
            split(&mut others, from, me, &mut own);
            if own.is_empty() {
                break;
            }
        }
        output.sends = others;
        self.output = output;
    }

    /// Begins a transaction, which is given up after `patience`.
    pub fn begin(
        &mut self,
        now: Now,
        library: &Library<'_>,
        transaction: Transaction,
        patience: Duration,
    ) {
        assert!(transaction.is_well_formed(), "a coordinator makes no {transaction:?}");
        self.act(now, library, |coordinator, _, step| {
            coordinator.begin(step, transaction, patience);
        });
    }

    /// Sends a message of this node's own.
    pub fn send(&mut self, now: Now, library: &Library<'_>, to: NodeId, message: Message) {
        self.act(now, library, |_, _, step| step.send(to, message));
    }

    /// A message has come.
    pub fn receive(&mut self, now: Now, library: &Library<'_>, from: NodeId, message: Message) {
        let mut answers = std::mem::take(&mut self.answers);
        self.act(now, library, |coordinator, replicas, step| {
            receive(coordinator, replicas, &mut answers, step, from, message);
        });
        answers.append(&mut self.answers);
        self.answers = answers;
    }

    /// The configuration has changed. `held` are the shards of which the node has replicas, with its appointments.
    pub fn configure(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shards: Vec<ShardView>,
        held: &BTreeMap<ShardId, Option<Appointment>>,
    ) {
        self.view.configure(shards);
        self.act(now, library, |_, replicas, step| {
            replicas.retain(|shard, _| held.contains_key(shard));
            for (shard, appointment) in held {
                let replica = replicas.entry(*shard).or_insert_with(|| Replica::new(*shard));
                match appointment {
                    Some(Appointment { ballot, since }) => replica.appoint(step, *ballot, *since),
                    None if replica.leading.is_some() => replica.step_down(step),
                    None => {}
                }
            }
        });
    }

    /// Applies something to a replica, if the node has it. Before there is a configuration, it has those of former processes.
    fn with_replica(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shard: ShardId,
        act: impl FnOnce(&mut Replica, &mut Step<'_>),
    ) {
        if self.view.shards.is_empty() {
            self.replicas.entry(shard).or_insert_with(|| Replica::new(shard));
        }
        self.act(now, library, |_, replicas, step| {
            if let Some(replica) = replicas.get_mut(&shard) {
                act(replica, step);
            }
        });
    }

    /// The log of a shard is prepared under the ballot of this node.
    pub fn prepared(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
    ) {
        self.with_replica(now, library, shard, |replica, _| replica.prepared(ballot, length));
    }

    /// The log of a shard has promised the ballot of another node.
    pub fn promised(&mut self, now: Now, library: &Library<'_>, shard: ShardId, ballot: Ballot) {
        self.with_replica(now, library, shard, |replica, step| replica.promise(step, ballot));
    }

    /// The log of a shard has accepted entries of another leader, the last of `length` ones.
    pub fn accepted(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        entries: &[Bytes],
    ) {
        self.with_replica(now, library, shard, |replica, step| {
            replica.accept(step, ballot, length, entries);
        });
    }

    /// The log of a shard that this node leads has so many decided entries.
    pub fn durable(&mut self, now: Now, library: &Library<'_>, shard: ShardId, length: u64) {
        self.with_replica(now, library, shard, |replica, step| replica.durable(step, length));
    }

    /// The log of a shard has decided an entry that this node did not propose.
    pub fn decided(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shard: ShardId,
        index: u64,
        entry: &Bytes,
    ) {
        self.with_replica(now, library, shard, |replica, step| replica.decide(step, index, entry));
    }

    /// The log of a shard begins behind a snapshot, which stands for this state.
    pub fn restored(&mut self, now: Now, library: &Library<'_>, shard: ShardId, ledger: Ledger) {
        self.with_replica(now, library, shard, |replica, step| replica.restore(step, ledger));
    }

    /// The records of the shard that former processes have left, behind what its log has from them.
    pub fn records_read(
        &mut self,
        now: Now,
        library: &Library<'_>,
        shard: ShardId,
        records: &[Bytes],
    ) {
        self.with_replica(now, library, shard, |replica, step| replica.read_records(step, records));
    }

    /// A checkpoint begins, which has no records: those that count are made again.
    pub fn record_list(&mut self, now: Now, library: &Library<'_>, shard: ShardId) {
        self.with_replica(now, library, shard, |replica, step| {
            if !step.options.bugs.has(TigaPlantedBug::CheckpointWithoutVotes) {
                replica.record_list(step);
            }
        });
    }

    /// Sends what waited until it was durable.
    pub fn send_all(&mut self, now: Now, library: &Library<'_>, sends: Vec<Envelope>) {
        self.act(now, library, |_, _, step| step.output.sends.extend(sends));
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, library: &Library<'_>) {
        self.act(now, library, |coordinator, replicas, step| {
            coordinator.tick(step);
            replicas.values_mut().for_each(|replica| replica.repeat(step));
        });
    }

    /// What is to be sent and appended since this was asked last.
    pub fn take_output(&mut self) -> Output {
        let observations = self.output.observations.as_ref().map(|_| Vec::new());
        std::mem::replace(&mut self.output, Output { observations, ..Output::default() })
    }

    /// From now on, or no longer, a checker looks on.
    pub fn observe(&mut self, is_observed: bool) {
        match is_observed {
            true => drop(self.output.observations.get_or_insert_default()),
            false => self.output.observations = None,
        }
    }

    /// What is added to the delays at present.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.coordinator.delays.margin(self.options.margin)
    }

    /// How much each of its tables holds.
    #[must_use]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let mut sizes = [0; 7];
        for replica in self.replicas.values() {
            let (waiting, tentative) = replica.waiting();
            let [undecided, recent, unsettled, coordinated] = replica.ledger().sizes();
            let of = [
                waiting,
                tentative,
                undecided,
                recent,
                unsettled,
                coordinated,
                replica.conflicts.len(),
            ];
            sizes.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        }
        let names = [
            "transactions that wait",
            "tentative transactions",
            "undecided entries",
            "transactions above the seal",
            "transactions that are not settled",
            "transactions kept for their coordinators",
            "resources in conflict tables",
        ];
        names.into_iter().zip(sizes).collect()
    }

    /// The transactions of this node that have ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        self.coordinator.take_ended()
    }

    /// The answers to reads of this node since this was asked last, with their senders.
    pub fn take_answers(&mut self) -> Vec<(NodeId, Message)> {
        std::mem::take(&mut self.answers)
    }

    /// When there will be something to do, on the local clock.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Time> {
        let queues = self.replicas.values().map(Replica::next_due);
        let queues = queues.flat_map(|(t, held)| [t.map(|t| now.local + (t - now.clock)), held]);
        let queues = queues.flatten();
        let repeats = self.replicas.values().filter_map(Replica::next_repeat);
        queues.chain(repeats).chain(self.coordinator.next_due()).min()
    }
}

/// Moves the messages from `first` on that go to the node itself.
fn split(sends: &mut Vec<Envelope>, first: usize, me: NodeId, own: &mut VecDeque<Message>) {
    if !sends[first..].iter().any(|envelope| envelope.to == me) {
        return;
    }
    for envelope in sends.split_off(first) {
        match envelope.to == me {
            true => own.push_back(envelope.message),
            false => sends.push(envelope),
        }
    }
}

/// Handles a message.
fn receive(
    coordinator: &mut Coordinator,
    replicas: &mut BTreeMap<ShardId, Replica>,
    answers: &mut Vec<(NodeId, Message)>,
    step: &mut Step<'_>,
    from: NodeId,
    message: Message,
) {
    match message {
        Message::Submit { t, sent, transaction } => {
            if !transaction.is_well_formed() {
                return;
            }
            for part in &transaction.parts {
                if let Some(replica) = replicas.get_mut(&part.shard) {
                    replica.submit(step, from, t, sent, &transaction);
                }
            }
        }
        Message::Vote { vote, sent, arrived } => {
            coordinator.voted(step, from, vote, ArrivalTimes { sent, arrived });
        }
        Message::Synced { shard, ballot, transactions } => {
            coordinator.synced(step, from, shard, ballot, &transactions);
        }
        Message::Gone { id, shard, sent, arrived, .. } => {
            if id.node == step.view.me {
                coordinator.gone(step, from, id, shard, ArrivalTimes { sent, arrived });
            }
            for replica in replicas.values_mut().filter(|replica| replica.shard != shard) {
                replica.receive_agreement(step, message.clone());
            }
        }
        Message::Propose { to, .. } | Message::Ready { to, .. } => {
            if let Some(replica) = replicas.get_mut(&to) {
                replica.receive_agreement(step, message);
            }
        }
        Message::Want { id, to } => {
            if let Some(replica) = replicas.get_mut(&to) {
                replica.wanted(step, from, id);
            }
        }
        Message::Settled { ids, to, shard, ballot, again } => {
            if let Some(replica) = replicas.get_mut(&to) {
                replica.settled(step, &ids, shard, ballot, again);
            }
        }
        Message::ListWanted { shard, ballot } => {
            if let Some(replica) = replicas.get_mut(&shard) {
                replica.give_list(step, ballot);
            }
        }
        Message::List { shard, ballot, list } => {
            if let Some(replica) = replicas.get_mut(&shard) {
                replica.listed(from, ballot, list);
            }
        }
        Message::Query { to, shard, ballot } => {
            if let Some(replica) = replicas.get_mut(&to) {
                replica.query(step, shard, ballot);
            }
        }
        Message::Answer { to, asked, shard, ballot, part, items } => {
            if let Some(replica) = replicas.get_mut(&to) {
                replica.answered(step, asked, shard, ballot, part, items);
            }
        }
        Message::Reads { shard, number, reads } => {
            if let Some(replica) = replicas.get_mut(&shard) {
                replica.read(step, from, number, reads);
            }
        }
        message @ Message::ReadsDone { .. } => answers.push((from, message)),
    }
}
