//! The cluster of a script: its workers, what is on its way between them, its clock, and its manager.

use super::engines::{Engine, Procedures, Setup, TracedEngine};
use super::messages::{show_row, show_worker_message, to_manager_text, to_node_text};
use super::observations::show_applied;
use super::transactions::{Gate, Transcript, transaction};
use crate::common::{Row, carried, rows};
use bytes::Bytes;
use shoal_cluster::manager::{
    CarriedLog, Manager, ManagerClient, ManagerEffect, ManagerEvent, ManagerOptions,
    ProcessInstance, StateMachine, Term, ToNode,
};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::ReplyToClient;
use shoal_golden::{RecordedMessage, Words};
use shoal_log::MemoryStorage;
use shoal_node::{
    Membership, RecoveredWorker, Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage,
    WorkerOrigin,
};
use shoal_types::wire::encode;
use shoal_types::{
    ClusterId, DatacenterId, Epoch, EventTimes, NodeId, ShardId, Time, TransactionTime, WorkerId,
    WorkerPlace,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const WORKER: WorkerId = WorkerId(0);

/// So long a transaction that begins waits to be let in.
const LET_IN: Duration = Duration::from_micros(100);

/// More events at one time than any script makes.
const EVENTS_MAX: usize = 100_000;

/// A message on its way.
struct Delivery<E: Engine> {
    from: NodeId,
    to: NodeId,
    message: WorkerMessage<E::Message>,
    /// It is not shown, and does not wait for the script.
    is_hidden: bool,
}

impl<E: Engine> Clone for Delivery<E> {
    fn clone(&self) -> Self {
        Delivery { message: self.message.clone(), ..*self }
    }
}

/// Which messages a command means.
#[derive(Debug)]
pub struct Filter {
    from: Option<u32>,
    to: Option<u32>,
    kind: Option<String>,
    shard: Option<u32>,
    count: usize,
}

impl Filter {
    pub fn of(words: &Words<'_>) -> Filter {
        Filter {
            from: words.named("from"),
            to: words.named("to"),
            kind: words.text("kind").map(str::to_owned),
            shard: words.named("shard"),
            count: words.named("count").unwrap_or(usize::MAX),
        }
    }

    fn means<E: TracedEngine>(&self, delivery: &Delivery<E>) -> bool {
        let (class, shard) = match &delivery.message {
            WorkerMessage::Engine { message, .. } => ("engine", E::shard(message)),
            WorkerMessage::Stream { shard, .. } => ("stream", Some(*shard)),
        };
        let text = delivery.show();
        let kind = text.split_whitespace().next().expect("a kind");
        self.from.is_none_or(|node| delivery.from.0 == node)
            && self.to.is_none_or(|node| delivery.to.0 == node)
            && self.shard.is_none_or(|it| shard == Some(ShardId(it)))
            && self.kind.as_ref().is_none_or(|it| it == kind || it == class)
    }
}

impl<E: TracedEngine> Delivery<E> {
    fn show(&self) -> String {
        show_worker_message::<E>(&self.message)
    }
}

pub struct Cluster<E: TracedEngine> {
    topology: Arc<Topology>,
    setup: Setup<E::Options>,
    workers: BTreeMap<NodeId, Worker<E>>,
    shared: BTreeMap<NodeId, Arc<E::Shared>>,
    disks: BTreeMap<NodeId, BTreeMap<ShardId, MemoryStorage>>,
    /// How often each node has begun a process.
    instances: BTreeMap<NodeId, u64>,
    timers: BTreeMap<NodeId, Time>,
    manager: Option<Manager<CarriedLog>>,
    manager_timer: Option<Time>,
    deliveries: Vec<Delivery<E>>,
    held: Vec<Delivery<E>>,
    holds: Vec<Filter>,
    /// What the manager has said, and the nodes have not learned.
    told_nodes: VecDeque<(NodeId, ToNode)>,
    /// Nodes that reach no other, and those that the manager does not reach.
    cut_from_nodes: BTreeSet<NodeId>,
    cut_from_manager: BTreeSet<NodeId>,
    gates: BTreeMap<String, (NodeId, Rc<Gate>)>,
    transcript: Transcript,
    /// What each node said last to each other of what it says again and again.
    repeated: BTreeMap<(NodeId, NodeId), BTreeMap<Epoch, String>>,
    /// How many entries of its streams each node has accepted, as far as the trace shows.
    accepted: BTreeMap<(NodeId, ShardId), u64>,
    now: Time,
    shows_streams: bool,
    shows_replay: bool,
    pub trace: Vec<String>,
    /// All that was said, in the order in which it was sent.
    pub said: Vec<RecordedMessage>,
}

/// Leaders, then the other voters and the learners of all shards. The first letter of a key is its shard's.
fn topology(words: &Words<'_>) -> Topology {
    let number = |name, default| words.named::<u32>(name).unwrap_or(default);
    let (shards, voters, learners) =
        (number("shards", 1), number("voters", 3), number("learners", 0));
    let name = |node: u32| format!("n{node}");
    let nodes = shards + (voters - 1) + learners;
    let builder = Topology::builder().workers(1).datacenter("dc");
    let mut builder = (0..nodes).fold(builder, |builder, node| builder.node(name(node), "dc"));
    for shard in 0..shards {
        let followers = (shards..shards + voters - 1).map(name);
        let learners = (shards + voters - 1..nodes).map(name);
        builder = builder.shard(name(shard), [name(shard)].into_iter().chain(followers), learners);
    }
    let split = |shard: u32| match shard {
        0 => (Box::default(), ShardId(0)),
        shard => (Box::from([b'a' + shard as u8]), ShardId(shard)),
    };
    let splits = (0..shards).map(split).collect();
    let topology = builder.table("t", Partitioning::Range { splits }).build();
    let coordinators = nodes..nodes + number("coordinators", 0);
    coordinators.fold(topology.expect("a valid topology"), |topology, node| {
        topology.with_node(name(node), DatacenterId(0))
    })
}

fn manager_options<E: TracedEngine>() -> ManagerOptions {
    ManagerOptions {
        membership_epochs: E::MEMBERSHIP_EPOCHS,
        lease: 60 * MS,
        heartbeat_every: 10 * MS,
        suspect_after: 25 * MS,
        tick_every: 5 * MS,
        retry_after: 20 * MS,
        ..ManagerOptions::default()
    }
}

impl<E: TracedEngine> Cluster<E> {
    /// A cluster whose leaders serve.
    pub fn new(words: &Words<'_>) -> Cluster<E> {
        let topology = Arc::new(topology(words));
        // A node that comes back with its disk reads its streams from the beginning.
        let streams = shoal_log::StreamOptions {
            retry_after: 20 * MS,
            trim_entries: words.named("trim").unwrap_or(u64::MAX),
            ..shoal_log::StreamOptions::default()
        };
        let procedures = Arc::new(Procedures::new());
        let options = E::options(words);
        let setup = Setup { topology: Arc::clone(&topology), procedures, streams, options };
        let manager = words.has("managed").then(|| {
            let machine = StateMachine::new(Arc::clone(&topology), manager_options::<E>());
            let log = CarriedLog { term: Some(Term(1)), ..CarriedLog::default() };
            Manager::new(log, machine, ClusterId::new(1).expect("not 0"))
        });
        let mut cluster = Cluster {
            topology: Arc::clone(&topology),
            setup,
            workers: BTreeMap::new(),
            shared: BTreeMap::new(),
            disks: BTreeMap::new(),
            instances: BTreeMap::new(),
            timers: BTreeMap::new(),
            manager,
            manager_timer: None,
            deliveries: Vec::new(),
            held: Vec::new(),
            holds: Vec::new(),
            told_nodes: VecDeque::new(),
            cut_from_nodes: BTreeSet::new(),
            cut_from_manager: BTreeSet::new(),
            gates: BTreeMap::new(),
            transcript: Transcript::default(),
            repeated: BTreeMap::new(),
            accepted: BTreeMap::new(),
            now: Time::ZERO,
            shows_streams: false,
            shows_replay: words.has("replay"),
            trace: Vec::new(),
            said: Vec::new(),
        };
        cluster.ask_manager(ManagerEvent::Log);
        topology.nodes().iter().for_each(|node| cluster.build(node.id, Some(BTreeMap::new())));
        topology.nodes().iter().for_each(|node| cluster.step(node.id, WorkerEvent::Start));
        cluster.wait(100 * MS);
        cluster.trace.clear();
        cluster.shows_streams = words.has("streams");
        cluster
    }

    /// Makes a process of a node, with what its disk has kept; or with nothing.
    fn build(&mut self, node: NodeId, disk: Option<BTreeMap<ShardId, MemoryStorage>>) {
        let instance = self.instances.entry(node).or_default();
        *instance += 1;
        let number = u64::from(node.0) << 16 | *instance;
        let origin = match self.manager {
            None => WorkerOrigin::fixed(&self.topology, number),
            Some(_) => {
                let instance = ProcessInstance(number);
                let client =
                    ManagerClient::new(node, instance, disk.is_none(), manager_options::<E>());
                let storages = disk.unwrap_or_default();
                let membership = Membership::new(1);
                WorkerOrigin {
                    membership,
                    manager_client: Some(client),
                    recovered: RecoveredWorker::of(storages),
                    new_storage: MemoryStorage::new,
                    seed: number,
                }
            }
        };
        let shared = E::share(&self.setup, node);
        let worker = Worker::new(WORKER, node, &self.setup, Arc::clone(&shared), origin);
        self.workers.insert(node, worker);
        self.shared.insert(node, shared);
    }

    pub fn run(&mut self, name: &str, node: NodeId, operations: &str) {
        let gate = Rc::<Gate>::default();
        self.gates.insert(name.to_owned(), (node, Rc::clone(&gate)));
        let engine = self.workers.get_mut(&node).expect("up").engine_mut();
        let transcript = Rc::clone(&self.transcript);
        let (name, operations) = (name.to_owned(), operations.to_owned());
        engine.spawn(Box::pin(transaction(engine.local(), name, operations, gate, transcript)));
        self.step(node, WorkerEvent::Nudged);
        // Workers let transactions in when their timer goes off.
        let until = self.now + LET_IN;
        self.pump();
        while let Some(next) = self.next_timer().filter(|at| *at <= until) {
            self.now = self.now.max(next);
            self.pump();
        }
        self.now = until;
    }

    pub fn resume(&mut self, name: &str) {
        let (node, gate) = self.gates.get(name).expect("it was begun");
        gate.open();
        self.step(*node, WorkerEvent::Nudged);
    }

    /// Takes those that are meant out of what is on its way, in order.
    fn take(&mut self, filter: &Filter) -> Vec<Delivery<E>> {
        let mut left = filter.count;
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for delivery in self.deliveries.drain(..) {
            let is_meant = left > 0 && filter.means(&delivery);
            left -= usize::from(is_meant);
            if is_meant { &mut taken } else { &mut kept }.push(delivery);
        }
        self.deliveries = kept;
        taken
    }

    /// Delivers what is on its way now, and is meant.
    pub fn deliver(&mut self, filter: &Filter) {
        for delivery in self.take(filter) {
            self.arrive(&delivery);
            self.pump();
        }
    }

    pub fn lose(&mut self, filter: &Filter) {
        for lost in self.take(filter) {
            // If it is said again, that is news.
            self.repeated.remove(&(lost.from, lost.to));
            self.trace.push(format!("lost: {} → {} {}", lost.from, lost.to, lost.show()));
        }
    }

    /// What is meant arrives twice.
    pub fn repeat(&mut self, filter: &Filter) {
        let deliveries = self.take(filter);
        self.deliveries.extend(deliveries.clone());
        self.deliveries.extend(deliveries);
    }

    /// Holds what is meant, and with no `count` also what is sent later.
    pub fn hold(&mut self, filter: Filter) {
        let held = self.take(&filter);
        self.held.extend(held);
        if filter.count == usize::MAX {
            self.holds.push(filter);
        }
    }

    pub fn release(&mut self) {
        self.holds.clear();
        self.deliveries.append(&mut self.held);
    }

    /// Delivers until nothing is on its way that is not held.
    pub fn settle(&mut self) {
        self.pump();
        for _ in 0..EVENTS_MAX {
            if self.deliveries.is_empty() {
                return;
            }
            let delivery = self.deliveries.remove(0);
            self.arrive(&delivery);
            self.pump();
        }
        panic!("messages never end:\n{}", self.trace.join("\n"));
    }

    /// Delivers what does not wait for the script, and lets timers go off whose time has come.
    pub fn pump(&mut self) {
        for _ in 0..EVENTS_MAX {
            let background = self.deliveries.iter().position(|it| it.is_hidden);
            let due = self.timers.iter().find(|(_, at)| **at <= self.now).map(|(node, _)| *node);
            if let Some((node, message)) = self.told_nodes.pop_front() {
                if self.workers.contains_key(&node) && !self.cut_from_manager.contains(&node) {
                    self.step(node, WorkerEvent::FromManager { message });
                }
            } else if let Some(place) = background {
                let delivery = self.deliveries.remove(place);
                self.arrive(&delivery);
            } else if let Some(node) = due {
                self.timers.remove(&node);
                self.step(node, WorkerEvent::Timer);
            } else if self.manager_timer.take_if(|at| *at <= self.now).is_some() {
                self.ask_manager(ManagerEvent::Timer);
            } else {
                return;
            }
        }
        panic!("time stands still:\n{}", self.trace.join("\n"));
    }

    pub fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        self.settle();
        while let Some(next) = self.next_timer().filter(|at| *at <= until) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    fn next_timer(&self) -> Option<Time> {
        self.timers.values().chain(&self.manager_timer).min().copied()
    }

    pub fn crash(&mut self, node: NodeId) {
        let worker = self.workers.remove(&node).expect("up");
        self.shared.remove(&node);
        self.timers.remove(&node);
        self.disks.insert(node, worker.into_storages());
        self.repeated.retain(|(from, to), _| *from != node && *to != node);
    }

    pub fn restart(&mut self, node: NodeId, empty: bool) {
        let disk = self.disks.remove(&node).filter(|_| !empty);
        self.build(node, disk);
        self.step(node, WorkerEvent::Start);
    }

    pub fn cut(&mut self, node: NodeId, from_manager: bool, from_nodes: bool) {
        self.cut_from_manager.extend(from_manager.then_some(node));
        self.cut_from_nodes.extend(from_nodes.then_some(node));
    }

    pub fn heal(&mut self) {
        self.cut_from_nodes.clear();
        self.cut_from_manager.clear();
    }

    /// What each replica has; one line for all that have the same.
    pub fn show(&mut self) {
        for shard in self.topology.shard_ids() {
            let mut replicas: Vec<(String, Vec<Row>)> = Vec::new();
            for node in self.topology.replicas(shard).collect::<BTreeSet<_>>() {
                let Some(shared) = self.shared.get(&node) else { continue };
                let store = E::store(shared, shard).expect("every shard has a place");
                let found = rows(store, &self.topology, &["t"]);
                match replicas.iter_mut().find(|(_, rows)| *rows == found) {
                    Some((nodes, _)) => *nodes += &format!(" {node}"),
                    None => replicas.push((node.to_string(), found)),
                }
            }
            for (nodes, rows) in replicas {
                let row = |(_, key, value): &Row| {
                    show_row(&(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
                };
                let rows: Vec<_> = rows.iter().map(row).collect();
                let line = format!("  {shard} on {nodes}: {}", rows.join(" "));
                self.trace.push(line.trim_end().to_owned());
            }
        }
    }

    /// A message arrives, out of the bytes that it was sent as.
    fn arrive(&mut self, delivery: &Delivery<E>) {
        let Delivery { from, to, message, is_hidden } = delivery;
        let is_cut = self.cut_from_nodes.contains(from) || self.cut_from_nodes.contains(to);
        if is_cut || !self.workers.contains_key(to) {
            if !is_hidden {
                self.trace.push(format!("lost: {from} → {to} {}", delivery.show()));
            }
            return;
        }
        let dropped = |cluster: &Self| {
            let worker = &cluster.workers[to];
            worker.engine().counters().runtime.dropped + worker.strays()
        };
        let before = dropped(self);
        let from = WorkerPlace { node: *from, worker: WorkerId(0) };
        self.step(*to, WorkerEvent::Received { from, message: carried(message) });
        let is_repeated = match message {
            WorkerMessage::Engine { message, .. } => E::repeats(message).is_some(),
            WorkerMessage::Stream { .. } => false,
        };
        let is_shown = !is_hidden && !is_repeated && self.workers.contains_key(to);
        if is_shown && dropped(self) > before {
            self.trace.push(format!("{to} drops {}", delivery.show()));
        }
    }

    fn step(&mut self, node: NodeId, event: WorkerEvent<E::Message>) {
        let mut effects = WorkerEffects::observed();
        let worker = self.workers.get_mut(&node).expect("up");
        if E::USES_TRANSACTION_CLOCK {
            let now = TransactionTime { time: self.now, error_bound: Some(Duration::ZERO) };
            worker.set_times(EventTimes { now, arrived: now });
        }
        worker.step(self.now, event, &mut effects);
        let observations = effects.observations.iter().flatten();
        let lines = observations.filter_map(|it| E::observe(it, self.shows_replay));
        self.trace.extend(lines.map(|line| format!("{node} {line}")));
        self.trace.append(&mut self.transcript.borrow_mut());
        self.show_entries(node);
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { to, message } => {
                    assert_eq!(to.worker, WorkerId(0), "a node has one worker");
                    self.send(Delivery { from: node, to: to.node, message, is_hidden: false });
                }
                WorkerEffect::Reply(ReplyToClient { to, reply }) => {
                    self.trace.push(format!("{node} → client {}: {reply:?}", to.0));
                }
                WorkerEffect::Tell { message } => {
                    if !self.cut_from_manager.contains(&node) {
                        let (at, text) = (self.now, to_manager_text(node, &message));
                        self.said.push(RecordedMessage { text, bytes: encode(&message).to_vec() });
                        let message = carried(&message);
                        self.ask_manager(ManagerEvent::Received { from: node, at, message });
                    }
                }
                WorkerEffect::Timer { at } => {
                    let asked = self.timers.entry(node).or_insert(at);
                    *asked = at.min(*asked);
                }
                WorkerEffect::Nudge { worker } => panic!("there is no {worker}"),
                WorkerEffect::Write { .. } | WorkerEffect::Checkpoint(_) => {
                    unreachable!("storages are in memory")
                }
                WorkerEffect::Superseded => {
                    self.trace.push(format!("{node} ends its process, and begins another, empty"));
                    self.crash(node);
                    return self.restart(node, true);
                }
            }
        }
    }

    /// What a worker has appended to streams that it leads.
    fn show_entries(&mut self, node: NodeId) {
        let worker = &self.workers[&node];
        for shard in self.topology.shard_ids() {
            let Some(stream) = worker.stream(shard) else { continue };
            let seen = self.accepted.insert((node, shard), stream.accepted().0).unwrap_or(0);
            if !stream.is_leading() || stream.accepted_ballot() != stream.ballot() {
                continue;
            }
            for index in seen..stream.accepted().0 {
                let entry = stream.entry(index).map(|entry| E::describe_entry(shard, entry));
                if let Some(entry) = entry.filter(|entry| !entry.starts_with("[]")) {
                    self.trace.push(format!("{node} appends {shard}/{index} {entry}"));
                }
            }
        }
    }

    fn send(&mut self, mut delivery: Delivery<E>) {
        let between = (delivery.from, delivery.to);
        let text = delivery.show();
        self.said.push(RecordedMessage {
            text: format!("{} → {} {text}", between.0, between.1),
            bytes: encode(&delivery.message).to_vec(),
        });
        delivery.is_hidden = match &delivery.message {
            WorkerMessage::Stream { .. } => !self.shows_streams,
            WorkerMessage::Engine { message, .. } => E::repeats(message).is_some_and(|subject| {
                let known = self.repeated.entry(between).or_default();
                let before = known.insert(subject, text.clone());
                before.as_ref() == Some(&text) || !(self.shows_replay || self.leads(delivery.to))
            }),
        };
        if !delivery.is_hidden {
            self.show_sent(between.0, between.1, &text);
        }
        match self.holds.iter().any(|hold| hold.means(&delivery)) {
            true => self.held.push(delivery),
            false => self.deliveries.push(delivery),
        }
    }

    /// Does the configuration make the node a leader of any shard?
    fn leads(&self, node: NodeId) -> bool {
        let worker = self.workers.get(&node);
        let mut shards = self.topology.shard_ids();
        worker.is_some_and(|worker| shards.any(|shard| worker.is_appointed(shard)))
    }

    /// One line for all nodes that are transcript the same.
    fn show_sent(&mut self, from: NodeId, to: NodeId, text: &str) {
        let (head, tail) = (format!("{from} → "), format!(" {text}"));
        let to = to.to_string();
        // A message may end as another does; the names of nodes begin alike and have no blanks.
        let is_other = |name: &str| {
            name != to && name.strip_prefix('n').is_some_and(|it| it.parse::<u32>().is_ok())
        };
        let are_others = |last: &String| {
            let receivers = last.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail));
            receivers.is_some_and(|receivers| receivers.split(' ').all(is_other))
        };
        match self.trace.last_mut() {
            Some(last) if are_others(last) => {
                last.insert_str(last.len() - tail.len(), &format!(" {to}"));
            }
            _ => self.trace.push(format!("{head}{to}{tail}")),
        }
    }

    fn ask_manager(&mut self, event: ManagerEvent) {
        let Some(manager) = &mut self.manager else { return };
        let mut effects = Vec::new();
        // There is one, and it leads.
        manager.log_mut().led = Some(self.now);
        manager.step(self.now, event, &mut effects);
        // What is proposed is committed at once.
        loop {
            let log = manager.log_mut();
            let proposed = std::mem::take(&mut log.proposed);
            if proposed.is_empty() {
                break;
            }
            log.decided.extend(proposed);
            manager.step(self.now, ManagerEvent::Log, &mut effects);
        }
        for effect in effects {
            match effect {
                ManagerEffect::Send { to, message } => {
                    let text = to_node_text(to, &message);
                    self.said.push(RecordedMessage { text, bytes: encode(&message).to_vec() });
                    self.told_nodes.push_back((to, carried(&message)));
                }
                ManagerEffect::Timer { at } => {
                    let asked = self.manager_timer.get_or_insert(at);
                    *asked = at.min(*asked);
                }
                ManagerEffect::Answer { .. } => {}
                ManagerEffect::Applied(applied) => {
                    let line = show_applied(&applied);
                    self.trace.extend(line.map(|line| format!("manager: {line}")));
                }
            }
        }
    }
}
