//! Nodes crash, restart, and are cut off, and the shards they led are taken over: a small cluster with a
//! manager, on a network that loses and delays. Whatever was acknowledged stays, whatever was aborted
//! never was, and all replicas end equal.
//!
//! `RECOVERY_FIRST` and `RECOVERY_SEEDS` choose other bad times, `RECOVERY_TRACE` shows what happened in one
//! that fails.

mod common;

use common::{Row, carried, rows};
use consensus::manager::{self, Life, Machine, Mailbox, Manager, Member, Term};
use consensus::stream::{self, MemoryStorage};
use consensus::topology::{Partitioning, Topology};
use engines::engine::Setup;
use engines::mako::{self, Mako, Shared};
use engines::{Engine, Observation, Procedures};
use shoal_node::{Effect, Effects, Event, Membership, Message, Origin, Worker};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Database, Error, NodeId, Random, ShardId, Time, Transaction, WorkerId};

type Place = (NodeId, WorkerId);
type Cause = Event<mako::Message>;
type Disks = BTreeMap<WorkerId, BTreeMap<ShardId, MemoryStorage>>;

const TABLES: [&str; 2] = ["accounts", "notes"];
const ACCOUNTS: u64 = 24;
const MS: Duration = Duration::from_millis(1);

/// What is on its way.
enum Coming {
    Worker(Place, u64, Cause),
    Manager(NodeId, manager::ToManager),
    ManagerTimer,
}

/// What clients were told of their notes.
#[derive(Default)]
struct Ledger {
    next: Cell<u64>,
    kept: RefCell<BTreeSet<u64>>,
    refused: RefCell<BTreeSet<u64>>,
    unknown: Cell<u64>,
}

/// Nodes with a manager, and what is on its way.
struct Cluster {
    topology: Arc<Topology>,
    setup: Setup<mako::Options>,
    workers: BTreeMap<Place, Worker<Mako>>,
    shared: BTreeMap<NodeId, Arc<Shared>>,
    disks: BTreeMap<NodeId, Option<Disks>>,
    /// The life of each node; what is said to a former one gets lost.
    lives: BTreeMap<NodeId, u64>,
    manager: Manager<Mailbox>,
    options: manager::Options,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    coming: BTreeMap<u64, Coming>,
    timers: BTreeMap<Place, Time>,
    /// From whom to whom nothing comes through; the manager is the node after the last.
    cut: BTreeSet<(NodeId, NodeId)>,
    now: Time,
    random: Random,
    ledger: Rc<Ledger>,
    stop: Rc<Cell<bool>>,
    trace: Option<Vec<String>>,
    /// Who lets this be seen first is to crash.
    trap: Option<fn(&Observation) -> bool>,
}

impl Cluster {
    fn new(topology: Topology, seed: u64) -> Cluster {
        let tables = TABLES.map(|name| (name, Partitioning::Hash { prefix_bytes: 0 }));
        let topology = Arc::new(topology.with_tables(tables).expect("a valid topology"));
        let procedures = Arc::new(Procedures::new());
        let streams = stream::Options {
            retry_after: 20 * MS,
            trim_entries: u64::MAX,
            ..stream::Options::default()
        };
        let mut options = mako::Options::default();
        options.limits.retry_after = 20 * MS;
        options.hang_after = 10 * MS;
        let setup = Setup { topology: Arc::clone(&topology), procedures, streams, options };
        let options = manager::Options {
            lease: 60 * MS,
            heartbeat_every: 10 * MS,
            suspect_after: 25 * MS,
            tick_every: 5 * MS,
            retry_after: 20 * MS,
            ..manager::Options::default()
        };
        let machine = Machine::new(Arc::clone(&topology), options.clone());
        let log = Mailbox { term: Some(Term(1)), ..Mailbox::default() };
        let mut cluster = Cluster {
            workers: BTreeMap::new(),
            shared: BTreeMap::new(),
            disks: BTreeMap::new(),
            lives: BTreeMap::new(),
            manager: Manager::new(log, machine),
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
            topology: Arc::clone(&topology),
            setup,
        };
        for node in topology.nodes() {
            cluster.start(node.id, Some(Disks::new()));
        }
        cluster.ask_manager(manager::Event::Log);
        cluster
    }

    fn manager_id(&self) -> NodeId {
        NodeId(self.topology.nodes().len() as u32)
    }

    /// A node begins a life, with what its disks have kept; or with nothing.
    fn start(&mut self, node: NodeId, disks: Option<Disks>) {
        let life = *self.lives.entry(node).and_modify(|life| *life += 1).or_insert(1);
        let shared = Mako::share(&self.setup, node);
        let membership = Membership::new(self.topology.workers());
        let lost = disks.is_none();
        let mut disks = disks.unwrap_or_default();
        for worker in (0..self.topology.workers()).map(WorkerId) {
            let number = u64::from(node.0) << 16 | life;
            let member = (worker == WorkerId(0))
                .then(|| Member::new(node, Life(number), lost, self.options.clone()));
            let origin = Origin {
                membership: Arc::clone(&membership),
                member,
                storages: disks.remove(&worker).unwrap_or_default(),
                seed: self.random.next_u64(),
            };
            let new = Worker::new(worker, node, &self.setup, Arc::clone(&shared), origin);
            self.workers.insert((node, worker), new);
            self.timers.remove(&(node, worker));
            self.send(Duration::ZERO, Coming::Worker((node, worker), life, Event::Start));
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
            let life = self.lives[&node];
            self.send(MS, Coming::Worker((node, worker), life, Event::Nudged));
        }
    }

    fn crash(&mut self, node: NodeId) {
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

    fn restart(&mut self, node: NodeId, keeps: bool) {
        let disks = self.disks.remove(&node).flatten();
        self.note(format_args!("{node} restarts, keeps its disk: {keeps}"));
        self.start(node, disks.filter(|_| keeps));
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.shared.contains_key(&node)
    }

    /// Are all other replicas of its shards up?
    fn peers_are_well(&self, node: NodeId) -> bool {
        let shards = self.topology.shards_of(node);
        shards.flat_map(|shard| self.topology.replicas(shard)).all(|replica| self.is_up(replica))
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now} {what}"));
        }
    }

    fn send(&mut self, after: Duration, what: Coming) {
        let number = self.coming.last_key_value().map_or(0, |(last, _)| last + 1);
        self.coming.insert(number, what);
        self.queue.push(Reverse((self.now + after, number)));
    }

    fn delay(&mut self) -> Duration {
        Duration::from_nanos(200_000 + self.random.below(1_500_000))
    }

    /// Lets time pass until then.
    fn run(&mut self, until: Time) {
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
                Coming::Worker(place, life, event) => {
                    if self.is_up(place.0) && self.lives[&place.0] == life {
                        if matches!(event, Event::Timer) {
                            if self.timers.get(&place) != Some(&at) {
                                continue;
                            }
                            self.timers.remove(&place);
                        }
                        self.step(place, event);
                    }
                }
                Coming::Manager(from, message) => {
                    self.ask_manager(manager::Event::Received { from, message });
                }
                Coming::ManagerTimer => self.ask_manager(manager::Event::Timer),
            }
        }
        self.now = self.now.max(until);
    }

    fn ask_manager(&mut self, event: manager::Event) {
        let mut effects = Vec::new();
        self.manager.step(self.now, event, &mut effects);
        // Whatever is proposed is committed at once.
        loop {
            let log = self.manager.log_mut();
            let proposed = std::mem::take(&mut log.proposed);
            if proposed.is_empty() {
                break;
            }
            log.decided.extend(proposed);
            self.manager.step(self.now, manager::Event::Log, &mut effects);
        }
        let own = self.manager_id();
        for effect in effects {
            match effect {
                manager::Effect::Send { to, message } => {
                    if self.comes_through(own, to) {
                        let (delay, life) = (self.delay(), self.lives[&to]);
                        let event = Event::Told { message: carried(&message) };
                        self.send(delay, Coming::Worker((to, WorkerId(0)), life, event));
                    }
                }
                manager::Effect::Timer { at } => self.send(at - self.now, Coming::ManagerTimer),
                manager::Effect::Answer { .. } => {}
                manager::Effect::Applied(applied) => {
                    if !matches!(applied, manager::Applied::Renewed { .. }) {
                        self.note(format_args!("manager: {applied:?}"));
                    }
                }
            }
        }
    }

    fn comes_through(&mut self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to)) && !self.random.chance(1, 50)
    }

    fn step(&mut self, place: Place, event: Cause) {
        let mut effects = Effects::observed();
        if self.trace.is_some() {
            self.note(format_args!("{}.{} {event:?}", place.0, place.1));
        }
        let worker = self.workers.get_mut(&place).expect("up");
        worker.step(self.now, event, &mut effects);
        for observation in effects.observations.into_iter().flatten() {
            self.note(format_args!("    {}.{} {observation:?}", place.0, place.1));
            if self.trap.take_if(|trap| trap(&observation)).is_some() {
                return self.crash(place.0); // Whatever it was about to send is lost.
            }
        }
        let life = self.lives[&place.0];
        for effect in effects.effects {
            match effect {
                Effect::Send { to, message } => self.transmit(place, to, &message),
                Effect::Timer { at } => {
                    let at = at.max(self.now);
                    if self.timers.get(&place).is_none_or(|before| at < *before) {
                        self.timers.insert(place, at);
                        self.send(at - self.now, Coming::Worker(place, life, Event::Timer));
                    }
                }
                Effect::Nudge { worker } => {
                    let after = Duration::from_nanos(200);
                    self.send(after, Coming::Worker((place.0, worker), life, Event::Nudged));
                }
                Effect::Tell { message } => {
                    if self.comes_through(place.0, self.manager_id()) {
                        let delay = self.delay();
                        self.send(delay, Coming::Manager(place.0, carried(&message)));
                    }
                }
                Effect::Reply { .. } => {}
                Effect::Superseded => panic!("{} has one life at a time", place.0),
            }
        }
    }

    fn transmit(&mut self, (from, worker): Place, to: NodeId, message: &Message<mako::Message>) {
        if !self.comes_through(from, to) || !self.is_up(to) {
            return;
        }
        let (delay, life) = (self.delay(), self.lives[&to]);
        let event = Event::Received { from, message: carried(message) };
        self.send(delay, Coming::Worker((to, worker), life, event));
    }

    fn rows(&self, node: NodeId, shard: ShardId) -> Vec<Row> {
        rows(Mako::store(&self.shared[&node], shard).expect("a replica"), &TABLES)
    }

    /// Everything is healed: all that was begun ends, all replicas are equal, and nobody was told what is
    /// not so.
    fn finish(&mut self) {
        self.cut.clear();
        let down: Vec<NodeId> = self.disks.keys().copied().collect();
        for node in down {
            self.restart(node, true);
        }
        self.run(self.now + 500 * MS);
        self.stop.set(true);
        for _ in 0..60 {
            self.run(self.now + 100 * MS);
            if self.unequal().is_none() {
                break;
            }
        }
        if let Some(complaint) = self.unequal() {
            self.complain(&complaint);
        }
        let mut notes = BTreeSet::new();
        let mut total = 0;
        for shard in self.topology.shard_ids() {
            for (table, key, value) in self.rows(self.topology.leader(shard), shard) {
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
        assert!(ledger.kept.borrow().len() > 20, "only {} kept", ledger.kept.borrow().len());
    }

    fn unequal(&self) -> Option<String> {
        let pending: usize = self.workers.values().map(|w| w.engine().pending()).sum();
        if pending > 0 {
            let each = self.workers.iter().map(|(place, w)| (place, w.engine().pending()));
            return Some(format!("{pending} are pending: {:?}", each.collect::<Vec<_>>()));
        }
        let configuration = self.manager.machine().configuration();
        if configuration.settled.0 + 1 < configuration.epoch.0 {
            return Some(format!("{:?} of {:?}", configuration.settled, configuration.epoch));
        }
        self.topology.shard_ids().find_map(|shard| {
            let mut replicas = self.topology.replicas(shard);
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

    fn complain(&mut self, what: &str) -> ! {
        if let Some(trace) = self.trace.take() {
            println!("{}", trace.join("\n"));
        }
        panic!("at {}: {what}", self.now);
    }
}

/// Moves money between accounts of any shard, and leaves a note of its own with each transfer.
async fn client(db: impl Database, mut random: Random, ledger: Rc<Ledger>, stop: Rc<Cell<bool>>) {
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

fn cluster(seed: u64) -> Cluster {
    let workers = 1 + (seed % 2) as u32;
    let shape = match seed % 4 {
        0 | 1 => Topology::symmetric(3, 3, 3, 0, workers),
        2 => Topology::symmetric(3, 2, 3, 1, workers),
        _ => Topology::compact(3, 4, 3, 0, workers),
    };
    let mut cluster = Cluster::new(shape, seed);
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

#[test]
fn a_cluster_with_a_manager_runs() {
    let mut cluster = cluster(1);
    cluster.finish();
}

#[test]
fn a_crashed_leader_is_replaced_and_returns() {
    for seed in 0..8 {
        let mut cluster = cluster(seed);
        let leader = cluster.topology.leader(ShardId(0));
        cluster.crash(leader);
        cluster.run(cluster.now + 400 * MS);
        cluster.restart(leader, seed % 3 > 0);
        cluster.run(cluster.now + 300 * MS);
        cluster.finish();
    }
}

/// Three shards with three voters each, for a while.
fn nine(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(Topology::symmetric(3, 3, 3, 0, 2), seed);
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

impl Cluster {
    fn leader(&self, shard: ShardId) -> NodeId {
        self.manager.machine().configuration().shards[shard.0 as usize].leader
    }

    /// Runs for so long, in which clients must get on.
    fn gets_on(&mut self, span: Duration) {
        let before = self.ledger.kept.borrow().len();
        self.run(self.now + span);
        assert!(self.ledger.kept.borrow().len() > before, "nothing was committed in {span:?}");
    }
}

#[test]
fn a_learner_at_the_leaders_place_takes_over() {
    let mut cluster = Cluster::new(Topology::symmetric(3, 2, 3, 1, 1), 1);
    cluster.run(Time::ZERO + 300 * MS);
    cluster.crash(cluster.leader(ShardId(0)));
    cluster.run(cluster.now + 200 * MS);
    let heir = cluster.leader(ShardId(0));
    assert!(cluster.topology.learners(ShardId(0)).contains(&heir), "{heir} leads");
    cluster.gets_on(200 * MS);
    cluster.finish();
}

#[test]
fn a_whole_datacenter_fails_and_returns() {
    let mut cluster = nine(2);
    let topology = Arc::clone(&cluster.topology);
    let first = topology.nodes()[0].datacenter;
    let lost: Vec<NodeId> =
        topology.nodes().iter().filter(|node| node.datacenter == first).map(|it| it.id).collect();
    lost.iter().for_each(|node| cluster.crash(*node));
    cluster.run(cluster.now + 300 * MS);
    cluster.gets_on(300 * MS);
    lost.iter().for_each(|node| cluster.restart(*node, true));
    cluster.finish();
}

/// A leader that lives and is cut off, in one direction or both, from the manager: another leads, and it
/// follows when it hears of that.
#[test]
fn a_leader_that_is_suspected_wrongly_follows() {
    for (seed, cuts) in [(3, [true, false]), (4, [false, true]), (5, [true, true])] {
        let mut cluster = nine(seed);
        let (leader, manager) = (cluster.leader(ShardId(1)), cluster.manager_id());
        let ways = [(leader, manager), (manager, leader)];
        cluster.cut.extend(ways.into_iter().zip(cuts).filter(|(_, cut)| *cut).map(|(way, _)| way));
        cluster.run(cluster.now + 250 * MS);
        assert_ne!(cluster.leader(ShardId(1)), leader);
        cluster.gets_on(200 * MS);
        cluster.cut.clear();
        cluster.gets_on(200 * MS);
        cluster.finish();
    }
}

/// A leader that the manager hears stays, whomever else it does not hear.
#[test]
fn a_leader_that_others_do_not_hear_stays() {
    let mut cluster = nine(6);
    let leader = cluster.leader(ShardId(2));
    let topology = Arc::clone(&cluster.topology);
    let followers: Vec<NodeId> = topology.replicas(ShardId(2)).collect();
    let leaders: Vec<NodeId> = topology.shard_ids().map(|shard| topology.leader(shard)).collect();
    for others in [followers, leaders] {
        for other in others.into_iter().filter(|other| *other != leader) {
            cluster.cut.extend([(leader, other), (other, leader)]);
        }
        // Everybody waits for it sooner or later.
        cluster.run(cluster.now + 300 * MS);
        assert_eq!(cluster.leader(ShardId(2)), leader);
        cluster.cut.clear();
        cluster.gets_on(600 * MS); // Some waited longer and longer before they asked again.
    }
    cluster.finish();
}

/// The new leader fails as well: at each step of its recovery.
#[test]
fn a_second_failure_at_every_step() {
    let steps: [fn(&Observation) -> bool; 6] = [
        |it| matches!(it, Observation::Led { ballot, .. } if ballot.epoch.0 > 1),
        |it| matches!(it, Observation::Appended { ballot, ends, .. } if ballot.epoch.0 > 1 && !ends.is_empty()),
        |it| matches!(it, Observation::Reported { epoch, shard: ShardId(0), .. } if epoch.0 == 1),
        |it| matches!(it, Observation::Settled { .. }),
        |it| matches!(it, Observation::Serves { ballot, .. } if ballot.epoch.0 > 1),
        |it| matches!(it, Observation::Acted { ballot, .. } if ballot.epoch.0 > 1),
    ];
    for (seed, step) in (10..).zip(steps) {
        let mut cluster = nine(seed);
        let first = cluster.leader(ShardId(0));
        cluster.crash(first);
        cluster.trap = Some(step);
        cluster.run(cluster.now + 150 * MS);
        assert!(cluster.trap.is_none(), "step {seed} was never reached");
        // Two of three replicas remember, then.
        cluster.restart(first, true);
        cluster.gets_on(600 * MS);
        cluster.finish();
    }
}

/// Anything that can go wrong, from a seed, for a while; then all is well again.
fn a_bad_time(seed: u64) {
    let mut cluster = cluster(seed);
    let nodes = cluster.topology.nodes().len() as u64;
    let end = cluster.now + 1500 * MS;
    let mut lost: Option<NodeId> = None;
    while cluster.now < end {
        let node = NodeId(cluster.random.below(nodes) as u32);
        match cluster.random.below(6) {
            // One replica of each shard may be down: shards share no nodes here.
            0 | 1 if cluster.is_up(node) && cluster.peers_are_well(node) => cluster.crash(node),
            2 | 3 if !cluster.is_up(node) => {
                let forgets = lost.is_none() && cluster.random.chance(1, 2);
                lost = if forgets { Some(node) } else { lost };
                cluster.restart(node, !forgets);
            }
            4 => {
                let other = NodeId(cluster.random.below(nodes + 1) as u32);
                cluster.note(format_args!("cut {node} to {other}"));
                cluster.cut.insert((node, other));
                if cluster.random.chance(1, 2) {
                    cluster.cut.insert((other, node));
                }
            }
            _ => cluster.cut.clear(),
        }
        let pause = Duration::from_nanos(cluster.random.below(60_000_000));
        cluster.run(cluster.now + pause);
    }
    cluster.finish();
}

#[test]
fn bad_times_lose_nothing() {
    let seeds = std::env::var("RECOVERY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let first = std::env::var("RECOVERY_FIRST").ok().and_then(|first| first.parse().ok());
    let first = first.unwrap_or(0);
    for seed in first..first + seeds.unwrap_or(20) {
        let outcome = std::panic::catch_unwind(|| a_bad_time(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
