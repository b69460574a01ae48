//! Managers, each over its replica, in virtual time; and the invariants that hold at any time.

use crate::network::Network;
use shoal_cluster::manager::{
    Action, Ask, CarriedLog, ClusterChange, Command, Incarnation, Manager, ManagerEffect,
    ManagerEvent, ManagerOptions, ProcessInstance, Revision, StateMachine, TableChange, Term,
    ToManager,
};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_raft::{InMemoryDisk, LogMember, RaftHandle, RaftReplica, Volume};
use shoal_types::{ClusterId, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The virtual time of a turn.
const TURN: Duration = Duration::from_millis(5);

/// Turns within which an expected event must happen: a minute.
const TURNS_MAX: u32 = 12_000;

/// The node that sends heartbeats to the managers.
const NODE: NodeId = NodeId(0);

pub fn nodes<const N: usize>(nodes: [u32; N]) -> BTreeSet<NodeId> {
    nodes.into_iter().map(NodeId).collect()
}

/// The member of each node in a test that makes no other volumes.
pub fn members<const N: usize>(members: [u32; N]) -> BTreeSet<LogMember> {
    let member = |node| LogMember { node: NodeId(node), volume: Volume(9) };
    members.into_iter().map(member).collect()
}

/// A manager that runs, with its replica of the log.
pub struct TestReplica {
    pub manager: Manager<CarriedLog>,
    pub replica: RaftReplica,
    pub handle: RaftHandle,
    /// The commands delivered in this process, after those in the state with which it began.
    pub told: Vec<Command>,
    /// The number of `told` that were delivered one by one, since a snapshot or the beginning.
    pub told_singly: usize,
    /// A first or restored state of which it is not known yet how many commands it has applied.
    restored: Option<StateMachine>,
    instance: u64,
    timer: Option<Time>,
    round: u64,
}

pub struct World {
    pub options: shoal_raft::RaftOptions,
    pub network: Network,
    pub test_replicas: BTreeMap<NodeId, TestReplica>,
    disks: BTreeMap<NodeId, InMemoryDisk>,
    /// The longest sequence of commands that was delivered to a manager, since `base`.
    order: Vec<Command>,
    /// The state before the first command of `order`.
    base: StateMachine,
    /// The leader of each term, with its process.
    leaders: BTreeMap<Term, (NodeId, u64)>,
    /// When each term's leader was first seen.
    begun: BTreeMap<Term, Time>,
    /// How often a replica led for certain.
    pub certain: u64,
    lives: u64,
    asks: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            options: shoal_raft::RaftOptions::default(),
            network: Network::new(seed),
            test_replicas: BTreeMap::new(),
            disks: BTreeMap::new(),
            order: Vec::new(),
            base: first(),
            leaders: BTreeMap::new(),
            begun: BTreeMap::new(),
            certain: 0,
            lives: 0,
            asks: 0,
        }
    }

    /// A cluster of these members, with a leader.
    pub async fn of<const N: usize>(seed: u64, members: [u32; N]) -> World {
        World::with(shoal_raft::RaftOptions::default(), seed, members).await
    }

    /// The same with these options.
    pub async fn with<const N: usize>(
        options: shoal_raft::RaftOptions,
        seed: u64,
        members: [u32; N],
    ) -> World {
        let mut world = World { options, ..World::new(seed) };
        for node in nodes(members) {
            world.start(node).await;
        }
        let first = world.test_replicas.values().next().expect("a manager runs").handle.clone();
        first.initialise(&world.members()).await.expect("a cluster");
        world.until("a leader", |world| world.leader().is_some()).await;
        world
    }

    /// The replicas that run, whether or not the log counts them as members.
    pub fn members(&self) -> BTreeSet<LogMember> {
        self.test_replicas.values().map(|test_replica| test_replica.handle.me()).collect()
    }

    /// The member that runs on a node.
    pub fn member(&self, node: NodeId) -> LogMember {
        self.test_replica(node).handle.me()
    }

    /// Starts a process of a replica, with what its former one has stored.
    pub async fn start(&mut self, node: NodeId) {
        self.lives += 1;
        let instance = self.lives;
        let new = Volume(u32::try_from(instance).expect("a short test"));
        let storage = self.disks.entry(node).or_default().clone();
        let access = self.network.access(node);
        let machine = first();
        let started = shoal_raft::start(node, new, &self.options, machine.clone(), storage, access);
        let replica = started.await;
        let (replica, handle) = replica.expect("a replica");
        self.network.plug(node, Some(handle.clone()));
        let drawn = ClusterId::new(u64::from(node.0) + 1).expect("not 0");
        let manager = Manager::new(CarriedLog::default(), machine, drawn);
        let test_replica = TestReplica {
            manager,
            replica,
            handle,
            told: vec![],
            told_singly: 0,
            restored: Some(first()),
            instance,
            timer: None,
            round: 0,
        };
        assert!(self.test_replicas.insert(node, test_replica).is_none(), "{node} runs already");
    }

    pub async fn stop(&mut self, node: NodeId) {
        let test_replica = self.test_replicas.remove(&node).expect("it runs");
        self.network.plug(node, None);
        test_replica.handle.stop().await;
    }

    /// Stops all replicas, so that the next test begins without any.
    pub async fn end(mut self) {
        for node in self.test_replicas.keys().copied().collect::<Vec<_>>() {
            self.stop(node).await;
        }
    }

    /// The storage of a node's replica.
    pub fn disk(&self, node: NodeId) -> &InMemoryDisk {
        &self.disks[&node]
    }

    /// Takes the storage of a replica that is stopped.
    pub fn forget(&mut self, node: NodeId) {
        assert!(!self.test_replicas.contains_key(&node), "{node} still runs");
        self.disks.remove(&node);
    }

    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// The manager that leads in the highest term.
    pub fn leader(&self) -> Option<NodeId> {
        let leading = self.test_replicas.iter().filter_map(|(node, test_replica)| {
            let term = test_replica.manager.leads()?;
            Some((term, *node))
        });
        leading.max().map(|(_, node)| node)
    }

    pub fn test_replica(&self, node: NodeId) -> &TestReplica {
        &self.test_replicas[&node]
    }

    /// Requests a table from a manager.
    pub fn ask(&mut self, node: NodeId, name: &str) {
        self.asks += 1;
        let (name, partitioning) = (name.to_owned(), Partitioning::Everywhere);
        let change =
            ClusterChange::Table(TableChange::Create { name, definition: partitioning.into() });
        let event = ManagerEvent::Asked { ask: Ask(self.asks), change };
        let now = self.now();
        self.test_replicas.get_mut(&node).expect("it runs").step(now, event);
    }

    /// Whether this manager knows the table.
    pub fn has_table(&self, node: NodeId, name: &str) -> bool {
        let topology = &self.test_replica(node).manager.machine().configuration().topology;
        topology.table(name).is_some()
    }

    /// Whether all running managers have the table.
    pub fn all_have(&self, name: &str) -> bool {
        self.test_replicas.keys().all(|node| self.has_table(*node, name))
    }

    /// Requests a table from the leader, repeatedly, until all running managers have it.
    pub async fn create(&mut self, name: &str) {
        let mut since = None;
        let retry = Duration::from_millis(500);
        self.until(&format!("{name} is everywhere"), |world| {
            if world.all_have(name) {
                return true;
            }
            if since.is_none_or(|since| world.now() - since > retry)
                && let Some(leader) = world.leader()
            {
                world.ask(leader, name);
                since = Some(world.now());
            }
            false
        })
        .await;
    }

    /// How often the table was requested in committed commands.
    pub fn commanded(&self, name: &str) -> usize {
        let is_it = |command: &&Command| match &command.action {
            Action::Change {
                change: ClusterChange::Table(TableChange::Create { name: other, .. }),
                ..
            } => other == name,
            _ => false,
        };
        self.order.iter().filter(is_it).count()
    }

    pub async fn turn(&mut self) {
        let now = self.now();
        self.test_replicas.values_mut().for_each(|test_replica| test_replica.turn(now));
        self.place_restored();
        for (node, test_replica) in &mut self.test_replicas {
            if test_replica.restored.is_some() {
                continue;
            }
            if let Some(term) = test_replica.manager.log_mut().term {
                // What former leaders committed was delivered, and nothing of its own term yet.
                let is_new = !self.leaders.contains_key(&term);
                assert!(
                    !is_new || test_replica.told.len() >= self.order.len(),
                    "{node} leads too early"
                );
                let leader = *self.leaders.entry(term).or_insert((*node, test_replica.instance));
                assert_eq!(leader, (*node, test_replica.instance), "two lead in term {term}");
                let later = self
                    .leaders
                    .range(term..)
                    .nth(1)
                    .filter(|(_, by)| by.1 == test_replica.instance);
                assert_eq!(later, None, "{node} leads in {term} after that");
                self.begun.entry(term).or_insert(now);
                if let Some(led) = test_replica.manager.log_mut().led {
                    let later = self.begun.range(term..).nth(1);
                    let before = later.filter(|(_, begun)| **begun <= led);
                    assert_eq!(before, None, "{node} did not lead in {term} at {led} any more");
                    self.certain += u64::from(led > Time::ZERO);
                }
            }
            let told = &test_replica.told;
            let both = told.len().min(self.order.len());
            assert_eq!(told[..both], self.order[..both], "{node} was told another order");
            self.order.extend(told[both..].iter().cloned());
        }
        tokio::time::sleep(TURN).await;
    }

    /// Places the restored states in the order of commands. Where a replica has applied commands, compacted its log
    /// and stopped before its manager received them, the states of all may be behind the end of the order: it then
    /// begins anew with one of which the others are successors.
    fn place_restored(&mut self) {
        let (base, order) = (&self.base, &self.order);
        self.test_replicas.values_mut().for_each(|other| other.place_restored(base, order));
        let mut running = self.test_replicas.values();
        let earliest = running.find_map(|candidate| {
            let (base, order) = (candidate.restored.as_ref()?, &candidate.told);
            let mut others = self.test_replicas.values();
            others.all(|other| other.place(base, order).is_some()).then_some((base, order))
        });
        if let Some((base, order)) = earliest {
            (self.base, self.order) = (base.clone(), order.clone());
            let (base, order) = (&self.base, &self.order);
            self.test_replicas.values_mut().for_each(|other| other.place_restored(base, order));
        }
    }

    pub async fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.turn().await;
        }
    }

    /// Turns until the condition holds.
    #[track_caller]
    pub fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut World) -> bool,
    ) -> impl Future<Output = ()> {
        let what = format!("{what} ({})", std::panic::Location::caller());
        async move {
            for _ in 0..TURNS_MAX {
                if is_so(self) {
                    return;
                }
                self.turn().await;
            }
            let state: Vec<_> =
                self.test_replicas.values().map(|test_replica| &test_replica.handle).collect();
            panic!("never: {what}; {state:#?}");
        }
    }

    /// Turns until the future is done.
    pub async fn during<R: Send + 'static>(
        &mut self,
        work: impl Future<Output = R> + Send + 'static,
    ) -> R {
        let work = tokio::spawn(work);
        self.until("the work is done", |_| work.is_finished()).await;
        work.await.expect("no panic")
    }

    /// Checks that all running managers come to the same state, and that those that were delivered the same commands have it.
    pub async fn agree(&mut self) {
        // Leaders tick all the time, so that one state is often behind another.
        self.until("all have one state", |world| {
            let replicas = world.test_replicas.values();
            let mut machines = BTreeMap::new();
            for placed in replicas.clone().filter(|replica| replica.restored.is_none()) {
                let machine = placed.manager.machine();
                let other = *machines.entry(placed.told.len()).or_insert(machine);
                assert!(other == machine, "equal logs, different machines");
            }
            let mut machines = replicas.map(|replica| replica.manager.machine());
            let first = machines.next().expect("a manager runs");
            machines.all(|machine| machine == first)
        })
        .await;
    }
}

/// The state before the first command.
pub fn first() -> StateMachine {
    StateMachine::new(Arc::new(Topology::symmetric(3, 1, 1, 0, 1)), ManagerOptions::default())
}

impl TestReplica {
    /// The number of commands of this order that lead from `base` to the restored state, if those delivered since
    /// then follow.
    fn place(&self, base: &StateMachine, order: &[Command]) -> Option<usize> {
        let restored = self.restored.as_ref()?;
        let mut machine = base.clone();
        for place in 0..=order.len() {
            let told = order[place..].iter().zip(&self.told).all(|(one, two)| one == two);
            if machine == *restored && told {
                return Some(place);
            }
            machine.apply(order.get(place)?, &mut Vec::new());
        }
        None
    }

    fn place_restored(&mut self, base: &StateMachine, order: &[Command]) {
        if let Some(place) = self.place(base, order) {
            self.told.splice(..0, order[..place].iter().cloned());
            self.restored = None;
        }
    }

    /// Delivers events until none is due.
    fn turn(&mut self, now: Time) {
        while self.exchange(now) {
            self.step(now, ManagerEvent::Log);
        }
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.step(now, ManagerEvent::Timer);
        }
        self.hear(now);
        if self.exchange(now) {
            self.step(now, ManagerEvent::Log);
        }
    }

    fn exchange(&mut self, now: Time) -> bool {
        let mailbox = self.manager.log_mut();
        let before = mailbox.decided.len();
        let news = self.replica.exchange(now, mailbox).expect("it runs");
        if let Some(machine) = &mailbox.restored {
            self.restored = Some((**machine).clone());
            (self.told, self.told_singly) = (Vec::new(), 0);
        }
        let told = mailbox
            .decided
            .iter()
            .skip(if self.restored.is_some() && self.told.is_empty() { 0 } else { before });
        let known = self.told.len();
        self.told.extend(told.cloned());
        self.told_singly += self.told.len() - known;
        news
    }

    fn step(&mut self, now: Time, event: ManagerEvent) {
        let mut effects = Vec::new();
        self.manager.step(now, event, &mut effects);
        for effect in effects {
            match effect {
                ManagerEffect::Timer { at } => self.timer = Some(at),
                ManagerEffect::Send { .. }
                | ManagerEffect::Answer { .. }
                | ManagerEffect::Applied(_) => {}
            }
        }
    }

    /// One node sends a heartbeat, so that the manager has something to do.
    fn hear(&mut self, now: Time) {
        let instance = ProcessInstance(1);
        let joined = self.manager.machine().node(NODE).is_some_and(|(other, _)| other == instance);
        self.round += 1;
        let message = if joined {
            let (round, granted) = (self.round, self.round - 1);
            let incarnation = Incarnation(1);
            ToManager::Heartbeat { instance, incarnation, round, granted, known: Revision(0) }
        } else {
            ToManager::Join { instance, after: Incarnation(0), lost: false }
        };
        self.step(now, ManagerEvent::Received { from: NODE, at: now, message });
    }
}
