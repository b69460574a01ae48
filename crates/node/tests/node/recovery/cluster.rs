//! A cluster with a manager, and the network between them. What passes can be watched, changed, held and
//! lost.

use crate::common::{Row, carried, rows};
use shoal_cluster::manager::{
    self, CarriedLog, Manager, ManagerClient, ManagerRequest, ProcessInstance, StateMachine, Term,
};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{ClientId, ClientReply, REQUESTS_TABLE, ReplyToClient, requests_table};
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_log::MemoryStorage;
use shoal_mako::{Mako, MakoObservation};
use shoal_node::{
    Membership, RecoveredWorker, Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage,
    WorkerOrigin,
};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{
    ClusterId, Database, Error, NodeId, Random, ShardId, Stamp, Time, Transaction, WorkerId,
    WorkerPlace,
};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub type Place = (NodeId, WorkerId);
pub type Cause<E = Mako> = WorkerEvent<<E as Engine>::Message>;
pub type Disks = BTreeMap<WorkerId, BTreeMap<ShardId, MemoryStorage>>;

pub const TABLES: [&str; 2] = ["accounts", "notes"];
pub const ACCOUNTS: u64 = 24;
pub const MS: Duration = Duration::from_millis(1);

/// What is on its way.
pub enum Coming<E: Engine = Mako> {
    Worker(Place, u64, Cause<E>),
    Manager(NodeId, manager::ToManager),
    ManagerTimer,
    Operator(manager::ManagerEvent),
}

/// What clients were answered about their notes.
#[derive(Default)]
pub struct Ledger {
    pub next: Cell<u64>,
    pub kept: RefCell<BTreeSet<u64>>,
    pub refused: RefCell<BTreeSet<u64>>,
    pub unknown: Cell<u64>,
}

/// An engine whose clusters these tests run.
pub trait Tested: Engine {
    /// The shard and the stamp of an answer to a client, where the engine has stamps.
    fn told(seen: &Self::Observation) -> Option<(ShardId, Stamp)> {
        let _ = seen;
        None
    }
}

impl Tested for Mako {
    fn told(seen: &MakoObservation) -> Option<(ShardId, Stamp)> {
        match seen {
            MakoObservation::Acknowledged { own, stamp, .. } => Some((*own, stamp.clone())),
            _ => None,
        }
    }
}

impl Tested for TwoPhaseCommit {}

/// Nodes with a manager, and what is on its way.
pub struct Cluster<E: Engine = Mako> {
    pub topology: Arc<Topology>,
    pub setup: Setup<E::Options>,
    pub workers: BTreeMap<Place, Worker<E>>,
    pub shared: BTreeMap<NodeId, Arc<E::Shared>>,
    pub disks: BTreeMap<NodeId, Option<Disks>>,
    /// The process of each node; what is said to a former one gets lost.
    pub incarnations: BTreeMap<NodeId, u64>,
    pub manager: Manager<CarriedLog>,
    pub options: manager::ManagerOptions,
    pub queue: BinaryHeap<Reverse<(Time, u64)>>,
    pub coming: BTreeMap<u64, Coming<E>>,
    pub timers: BTreeMap<Place, Time>,
    /// Senders and receivers between which nothing comes through; the manager is the node after the last.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    pub now: Time,
    pub random: Random,
    pub ledger: Rc<Ledger>,
    pub stop: Rc<Cell<bool>>,
    pub trace: Option<Vec<String>>,
    /// The first node of which this is observed is to crash.
    pub trap: Option<fn(&E::Observation) -> bool>,
    /// What becomes of messages between nodes.
    pub filter: Option<Filter<E::Message>>,
    /// Messages that a filter holds.
    pub held: Vec<(Place, NodeId, WorkerMessage<E::Message>)>,
    /// Its reports do not reach the manager.
    pub mute: Option<NodeId>,
    /// A worker that stands still, and what happens to it meanwhile.
    pub stalled: Option<Place>,
    pub stalled_events: Vec<(u64, Cause<E>)>,
    /// What clients received.
    pub told: Vec<(Place, ShardId, Stamp)>,
    /// Lives that had to end.
    pub ended: usize,
    /// What clients from outside received.
    pub replies: Vec<(ClientId, ClientReply)>,
}

/// What becomes of a message.
pub enum Fate<M = shoal_mako::MakoMessage> {
    Pass,
    Drop,
    Hold,
    Replace(Box<WorkerMessage<M>>),
}

/// A manager that is not patient.
pub fn quick() -> manager::ManagerOptions {
    manager::ManagerOptions {
        lease: 60 * MS,
        heartbeat_every: 10 * MS,
        suspect_after: 25 * MS,
        tick_every: 5 * MS,
        retry_after: 20 * MS,
        ..manager::ManagerOptions::default()
    }
}

pub type Filter<M = shoal_mako::MakoMessage> =
    Box<dyn FnMut(Place, NodeId, &WorkerMessage<M>) -> Fate<M>>;

impl Cluster {
    pub fn new(topology: Topology, seed: u64) -> Cluster {
        Cluster::with(topology, seed, |_| {})
    }

    /// One whose setup is changed before it begins.
    pub fn with(
        topology: Topology,
        seed: u64,
        change: impl FnOnce(&mut Setup<shoal_mako::MakoOptions>),
    ) -> Cluster {
        Cluster::managed(topology, seed, manager::ManagerPlantedBugs::default(), change)
    }

    /// One whose manager has planted bugs, too.
    pub fn managed(
        topology: Topology,
        seed: u64,
        faults: manager::ManagerPlantedBugs,
        change: impl FnOnce(&mut Setup<shoal_mako::MakoOptions>),
    ) -> Cluster {
        Cluster::paced(topology, seed, manager::ManagerOptions { faults, ..quick() }, change)
    }

    /// The same, with a manager as patient as that.
    pub fn paced(
        topology: Topology,
        seed: u64,
        options: manager::ManagerOptions,
        change: impl FnOnce(&mut Setup<shoal_mako::MakoOptions>),
    ) -> Cluster {
        let mut engine = shoal_mako::MakoOptions::default();
        engine.limits.retry_after = 20 * MS;
        // A coordinator that leads nothing is received only when it asks, again after `retry_after` where that was lost.
        engine.hang_after = 2 * engine.limits.retry_after;
        Cluster::of(topology, seed, options, engine, change)
    }
}

impl<E: Tested> Cluster<E> {
    /// One of any engine.
    pub fn of(
        topology: Topology,
        seed: u64,
        options: manager::ManagerOptions,
        engine: E::Options,
        change: impl FnOnce(&mut Setup<E::Options>),
    ) -> Cluster<E> {
        let hash = Partitioning::Hash { prefix_bytes: 0 };
        let tables = TABLES.map(|name| (name, hash.clone()));
        let tables = tables.into_iter().chain([requests_table(topology.shards())]);
        let topology = Arc::new(topology.with_tables(tables).expect("a valid topology"));
        let procedures = Arc::new(Procedures::new());
        // A node that comes back with its disk reads its streams from the beginning.
        let streams = shoal_log::StreamOptions {
            retry_after: 20 * MS,
            trim_entries: u64::MAX,
            ..shoal_log::StreamOptions::default()
        };
        let topology_of_all = Arc::clone(&topology);
        let mut setup = Setup { topology: topology_of_all, procedures, streams, options: engine };
        change(&mut setup);
        let machine = StateMachine::new(Arc::clone(&topology), options.clone());
        let drawn = ClusterId::new(1).expect("not 0");
        let log = CarriedLog { term: Some(Term(1)), ..CarriedLog::default() };
        let mut cluster = Cluster {
            workers: BTreeMap::new(),
            shared: BTreeMap::new(),
            disks: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            manager: Manager::new(log, machine, drawn),
            options,
            queue: BinaryHeap::new(),
            coming: BTreeMap::new(),
            timers: BTreeMap::new(),
            cut: BTreeSet::new(),
            now: Time::ZERO,
            random: Random::new(seed),
            ledger: Rc::default(),
            stop: Rc::default(),
            trace: std::env::var("RECOVERY_TRACE").ok().map(|_| Vec::new()),
            trap: None,
            filter: None,
            held: Vec::new(),
            mute: None,
            stalled: None,
            stalled_events: Vec::new(),
            told: Vec::new(),
            ended: 0,
            replies: Vec::new(),
            topology: Arc::clone(&topology),
            setup,
        };
        for node in topology.nodes() {
            cluster.start(node.id, Some(Disks::new()));
        }
        cluster.ask_manager(manager::ManagerEvent::Log);
        cluster
    }

    pub fn manager_id(&self) -> NodeId {
        NodeId(self.topology.nodes().len() as u32)
    }

    /// A node begins a process, with what its disks have kept; or with nothing.
    fn start(&mut self, node: NodeId, disks: Option<Disks>) {
        let instance =
            *self.incarnations.entry(node).and_modify(|instance| *instance += 1).or_insert(1);
        let shared = E::share(&self.setup, node);
        let membership = Membership::new(self.topology.workers());
        let lost = disks.is_none();
        let mut disks = disks.unwrap_or_default();
        for worker in (0..self.topology.workers()).map(WorkerId) {
            let number = u64::from(node.0) << 16 | instance;
            let manager_client = (worker == WorkerId(0)).then(|| {
                ManagerClient::new(node, ProcessInstance(number), lost, self.options.clone())
            });
            let origin = WorkerOrigin {
                membership: Arc::clone(&membership),
                manager_client,
                recovered: RecoveredWorker::of(disks.remove(&worker).unwrap_or_default()),
                new_storage: MemoryStorage::new,
                seed: self.random.next_u64(),
            };
            let new = Worker::new(worker, node, &self.setup, Arc::clone(&shared), origin);
            self.workers.insert((node, worker), new);
            self.timers.remove(&(node, worker));
            self.send(Duration::ZERO, Coming::Worker((node, worker), instance, WorkerEvent::Start));
        }
        self.shared.insert(node, shared);
        self.employ(node);
    }

    /// Clients of a node: they end with it.
    fn employ(&mut self, node: NodeId) {
        for worker in (0..self.topology.workers()).map(WorkerId) {
            for _ in 0..2 {
                let engine = self.workers.get_mut(&(node, worker)).expect("up").engine_mut();
                let (db, random) = (engine.local(), Random::new(self.random.next_u64()));
                let (ledger, stop) = (Rc::clone(&self.ledger), Rc::clone(&self.stop));
                engine.spawn(Box::pin(client(db, random, ledger, stop)));
            }
            let instance = self.incarnations[&node];
            self.send(MS, Coming::Worker((node, worker), instance, WorkerEvent::Nudged));
        }
    }

    pub fn crash(&mut self, node: NodeId) {
        let mut disks = Disks::new();
        for worker in (0..self.topology.workers()).map(WorkerId) {
            if let Some(dead) = self.workers.remove(&(node, worker)) {
                disks.insert(worker, dead.into_storages());
            }
        }
        self.shared.remove(&node);
        self.disks.insert(node, Some(disks));
        self.note(format_args!("{node} crashes"));
    }

    pub fn restart(&mut self, node: NodeId, keeps: bool) {
        let disks = self.disks.remove(&node).flatten();
        self.note(format_args!("{node} restarts, keeps its disk: {keeps}"));
        self.start(node, disks.filter(|_| keeps));
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.shared.contains_key(&node)
    }

    /// Are all other replicas of its shards up?
    pub fn peers_are_well(&self, node: NodeId) -> bool {
        let shards = self.topology.shards_of(node);
        shards.flat_map(|shard| self.topology.replicas(shard)).all(|replica| self.is_up(replica))
    }

    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now} {what}"));
        }
    }

    /// Has what a filter held arrive.
    pub fn release(&mut self) {
        for ((from, worker), to, message) in std::mem::take(&mut self.held) {
            let instance = self.incarnations[&to];
            let from = WorkerPlace { node: from, worker };
            let event = WorkerEvent::Received { from, message };
            self.send(MS / 100, Coming::Worker((to, worker), instance, event));
        }
    }

    /// Has the worker that stands still go on.
    pub fn wake(&mut self) {
        let Some(place) = self.stalled.take() else { return };
        for (instance, event) in std::mem::take(&mut self.stalled_events) {
            self.send(MS / 100, Coming::Worker(place, instance, event));
        }
    }

    pub fn send(&mut self, after: Duration, what: Coming<E>) {
        let number = self.coming.last_key_value().map_or(0, |(last, _)| last + 1);
        self.coming.insert(number, what);
        self.queue.push(Reverse((self.now + after, number)));
    }

    fn delay(&mut self) -> Duration {
        Duration::from_nanos(200_000 + self.random.below(1_500_000))
    }

    /// Lets time pass until then.
    pub fn run(&mut self, until: Time) {
        let mut events = 0;
        while let Some(Reverse((at, number))) = self.queue.peek().copied()
            && at <= until
        {
            events += 1;
            if events > 1_000_000 {
                self.complain("time stands still");
            }
            self.queue.pop();
            self.now = self.now.max(at);
            match self.coming.remove(&number).expect("queued") {
                Coming::Worker(place, instance, event) => {
                    if self.is_up(place.0) && self.incarnations[&place.0] == instance {
                        if matches!(event, WorkerEvent::Timer) {
                            if self.timers.get(&place) != Some(&at) {
                                continue;
                            }
                            self.timers.remove(&place);
                        }
                        match self.stalled == Some(place) {
                            true => self.stalled_events.push((instance, event)),
                            false => self.step(place, event),
                        }
                    }
                }
                Coming::Manager(from, message) => {
                    let at = self.now;
                    self.ask_manager(manager::ManagerEvent::Received { from, at, message });
                }
                Coming::ManagerTimer => self.ask_manager(manager::ManagerEvent::Timer),
                Coming::Operator(event) => self.ask_manager(event),
            }
        }
        self.now = self.now.max(until);
    }

    fn ask_manager(&mut self, event: manager::ManagerEvent) {
        let mut effects = Vec::new();
        // There is one, and it leads.
        self.manager.log_mut().led = Some(self.now);
        self.manager.step(self.now, event, &mut effects);
        // What is proposed is committed at once.
        loop {
            let log = self.manager.log_mut();
            let proposed = std::mem::take(&mut log.proposed);
            if proposed.is_empty() {
                break;
            }
            log.decided.extend(proposed);
            self.manager.step(self.now, manager::ManagerEvent::Log, &mut effects);
        }
        let own = self.manager_id();
        for effect in effects {
            match effect {
                manager::ManagerEffect::Send { to, message } => {
                    if self.comes_through(own, to) {
                        let (delay, instance) = (self.delay(), self.incarnations[&to]);
                        let event = WorkerEvent::FromManager { message: carried(&message) };
                        self.send(delay, Coming::Worker((to, WorkerId(0)), instance, event));
                    }
                }
                manager::ManagerEffect::Timer { at } => {
                    self.send(at - self.now, Coming::ManagerTimer);
                }
                manager::ManagerEffect::Answer { .. } => {}
                manager::ManagerEffect::Applied(applied) => {
                    self.note(format_args!("manager: {applied:?}"));
                }
            }
        }
    }

    fn comes_through(&mut self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to)) && !self.random.chance(1, 50)
    }

    fn step(&mut self, place: Place, event: Cause<E>) {
        let mut effects = WorkerEffects::observed();
        if self.trace.is_some() {
            self.note(format_args!("{}.{} {event:?}", place.0, place.1));
        }
        let worker = self.workers.get_mut(&place).expect("up");
        worker.step(self.now, event, &mut effects);
        for observation in effects.observations.into_iter().flatten() {
            self.told.extend(E::told(&observation).map(|(own, stamp)| (place, own, stamp)));
            self.note(format_args!("    {}.{} {observation:?}", place.0, place.1));
            if self.trap.take_if(|trap| trap(&observation)).is_some() {
                return self.crash(place.0); // What it was about to send is lost.
            }
        }
        let instance = self.incarnations[&place.0];
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { to, message } => {
                    assert_eq!(to.worker, place.1, "these engines speak with their like");
                    self.transmit(place, to.node, &message);
                }
                WorkerEffect::Timer { at } => {
                    let at = at.max(self.now);
                    if self.timers.get(&place).is_none_or(|before| at < *before) {
                        self.timers.insert(place, at);
                        self.send(
                            at - self.now,
                            Coming::Worker(place, instance, WorkerEvent::Timer),
                        );
                    }
                }
                WorkerEffect::Nudge { worker } => {
                    let after = Duration::from_nanos(200);
                    self.send(
                        after,
                        Coming::Worker((place.0, worker), instance, WorkerEvent::Nudged),
                    );
                }
                WorkerEffect::Tell { message } => {
                    let report = matches!(
                        message,
                        manager::ToManager::Request {
                            request: ManagerRequest::Report { .. } | ManagerRequest::Known { .. },
                            ..
                        }
                    );
                    if report && self.mute == Some(place.0) {
                        continue;
                    }
                    if self.comes_through(place.0, self.manager_id()) {
                        let delay = self.delay();
                        self.send(delay, Coming::Manager(place.0, carried(&message)));
                    }
                }
                WorkerEffect::Reply(ReplyToClient { to, reply }) => self.replies.push((to, reply)),
                WorkerEffect::Write { .. } | WorkerEffect::Checkpoint(_) => {
                    unreachable!("storages are in memory")
                }
                WorkerEffect::Superseded => {
                    let worker = &self.workers[&place];
                    let is_behind = worker.manager_client().is_some_and(ManagerClient::is_behind);
                    let exceeds = worker.exceeds().is_some();
                    assert!(exceeds || is_behind, "{} has one process at a time", place.0);
                    self.ended += 1;
                    self.crash(place.0);
                    return self.restart(place.0, false);
                }
            }
        }
    }

    fn transmit(&mut self, (from, worker): Place, to: NodeId, message: &WorkerMessage<E::Message>) {
        let fate = self.filter.as_mut().map(|filter| filter((from, worker), to, message));
        let message = match &fate {
            Some(Fate::Drop) => return,
            Some(Fate::Hold) => return self.held.push(((from, worker), to, message.clone())),
            Some(Fate::Replace(other)) => other,
            Some(Fate::Pass) | None => message,
        };
        if !self.comes_through(from, to) || !self.is_up(to) {
            return;
        }
        let (delay, instance) = (self.delay(), self.incarnations[&to]);
        let from = WorkerPlace { node: from, worker };
        let event = WorkerEvent::Received { from, message: carried(message) };
        self.send(delay, Coming::Worker((to, worker), instance, event));
    }

    /// How many rows for requests a node's copy of a shard has.
    pub fn request_rows(&self, node: NodeId, shard: ShardId) -> usize {
        let store = E::store(&self.shared[&node], shard).expect("a replica");
        rows(store, &self.topology, &[REQUESTS_TABLE]).len()
    }

    pub fn rows(&self, node: NodeId, shard: ShardId) -> Vec<Row> {
        rows(E::store(&self.shared[&node], shard).expect("a replica"), &self.topology, &TABLES)
    }

    /// Everything is healed: all that was begun ends, all replicas are equal, and no client received what is
    /// not so.
    pub fn finish(&mut self) {
        self.cut.clear();
        let down: Vec<NodeId> = self.disks.keys().copied().collect();
        for node in down {
            self.restart(node, true);
        }
        self.run(self.now + 500 * MS);
        self.stop.set(true);
        self.come_to_rest();
        let mut notes = BTreeSet::new();
        let mut total = 0;
        for shard in self.topology.shard_ids() {
            for (table, key, value) in self.rows(self.leader(shard), shard) {
                match table {
                    0 => total += i64::from_le_bytes(value.try_into().expect("8 bytes")),
                    _ => _ = notes.insert(u64::from_be_bytes(key.try_into().expect("8 bytes"))),
                }
            }
        }
        let ledger = Rc::clone(&self.ledger);
        let lost: Vec<_> = ledger.kept.borrow().difference(&notes).copied().collect();
        let risen: Vec<_> = ledger.refused.borrow().intersection(&notes).copied().collect();
        if !lost.is_empty() || !risen.is_empty() || total != 0 {
            self.complain(&format!("lost {lost:?}, risen {risen:?}, total {total}"));
        }
        let kept = ledger.kept.borrow().len();
        if kept <= 20 {
            self.complain(&format!("only {kept} kept"));
        }
    }

    /// Clients begin no more, and come to an end.
    pub fn end_clients(&mut self) {
        self.stop.set(true);
        self.run(self.now + 200 * MS);
    }

    /// What is under way ends, and all replicas of a shard are equal.
    pub fn come_to_rest(&mut self) {
        for _ in 0..60 {
            self.run(self.now + 100 * MS);
            if self.unequal().is_none() {
                return;
            }
        }
        if let Some(complaint) = self.unequal() {
            self.complain(&complaint);
        }
    }

    /// How much is under way, on all workers.
    pub fn under_way(&self) -> usize {
        self.workers.values().map(|worker| worker.engine().pending()).sum()
    }

    pub fn unequal(&self) -> Option<String> {
        let pending = self.under_way();
        if pending > 0 {
            let each = self.workers.iter().map(|(place, w)| (place, w.engine().pending()));
            return Some(format!("{pending} are pending: {:?}", each.collect::<Vec<_>>()));
        }
        let configuration = self.manager.machine().configuration();
        if configuration.settled.0 + 1 < configuration.epoch.0 {
            return Some(format!("{:?} of {:?}", configuration.settled, configuration.epoch));
        }
        self.topology.shard_ids().find_map(|shard| {
            let mut replicas = configuration.shards[shard.0 as usize].holders();
            let first = replicas.next().expect("one");
            let rows = self.rows(first, shard);
            replicas.find(|replica| self.rows(*replica, shard) != rows).map(|replica| {
                let other = self.rows(replica, shard);
                let only = |a: &[Row], b: &[Row]| -> Vec<String> {
                    let missing = a.iter().filter(|row| !b.contains(row));
                    missing.take(3).map(|row| format!("{row:?}")).collect()
                };
                format!(
                    "{first} and {replica} differ in {shard}: {:?} and {:?}",
                    only(&rows, &other),
                    only(&other, &rows)
                )
            })
        })
    }

    pub fn complain(&mut self, what: &str) -> ! {
        if let Some(trace) = self.trace.take() {
            println!("{}", trace.join("\n"));
        }
        panic!("at {}: {what}", self.now);
    }
}

/// Moves money between accounts of any shard, and leaves a note of its own with each transfer.
pub async fn client(
    db: impl Database,
    mut random: Random,
    ledger: Rc<Ledger>,
    stop: Rc<Cell<bool>>,
) {
    let (accounts, notes) =
        (db.table("accounts").expect("there"), db.table("notes").expect("there"));
    while !stop.get() {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let note = ledger.next.replace(ledger.next.get() + 1);
        let outcome = db
            .transact(async |tx| {
                tx.add(accounts, &from.to_be_bytes(), -1).await?;
                tx.add(accounts, &to.to_be_bytes(), 1).await?;
                tx.put(notes, &note.to_be_bytes(), b"moved")
            })
            .await;
        match outcome {
            Ok(()) => _ = ledger.kept.borrow_mut().insert(note),
            Err(Error::Aborted(_)) => _ = ledger.refused.borrow_mut().insert(note),
            Err(Error::Unknown(_)) => ledger.unknown.set(ledger.unknown.get() + 1),
            Err(Error::Rejected(error)) => panic!("{error}"),
        }
    }
}
