//! The cluster under simulation: its workers, the state that they share, and their inboxes. A crash ends a
//! node's process; the next one begins with what the node's streams have stored.

use crate::clock::NodeClock;
use crate::disk::SimulatedDisk;
use crate::metrics::Engines;
use crate::transaction_clocks::{EventInstant, TransactionClocks};
use shoal_cluster::manager::{ManagerClient, ManagerOptions, ProcessInstance};
use shoal_cluster::topology::Topology;
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, WorkerPlace};
use shoal_log::MemoryStorage;
use shoal_node::{Membership, RecoveredWorker, Worker, WorkerEvent, WorkerOrigin, named_by_all};
use shoal_store::Store;
use shoal_types::{Ballot, EventTimes, NodeId, Random, ShardId, Time, WorkerId};
use shoal_wal::DiskPlantedBugs;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The fork of the random source from which transaction clocks are drawn; no other part of the cluster draws
/// from it.
const TRANSACTION_CLOCKS: u64 = 1;

/// The fork from which the volumes and delays of disks are drawn.
const DISKS: u64 = 2;

/// A worker with its inbox and timers.
pub(crate) struct SimulatedWorker<E: Engine> {
    /// `None` while its node is down.
    pub worker: Option<Worker<E>>,
    pub place: WorkerPlace,
    /// Whether it has taken its first event.
    pub has_begun: bool,
    /// Events that arrived while it was busy, with their times of arrival.
    pub inbox: VecDeque<(Time, WorkerEvent<E::Message>)>,
    /// The true time until which it takes no event.
    pub busy_until: Time,
    /// The total cost of its steps so far.
    pub worked: Duration,
    /// Whether it is scheduled to take an event from its inbox.
    pub will_look: bool,
    /// When its timer fires, or fired, if the worker is busy and has not taken that event; it has one timer.
    pub timer_at: Time,
    /// The same time on its node's clock.
    pub timer_local: Time,
    /// Whether a nudge is on its way to it.
    pub nudged: bool,
    /// The operations that it had counted after its last step.
    pub operations: u64,
    /// The bytes that it had counted as appended or replayed after its last step.
    pub bytes: u64,
    /// The keys that it had counted after its last step.
    pub keys: u64,
    /// The appends that it had counted as refused after its last step.
    pub refused_appends: u64,
    /// Whether changes of its streams are scheduled to become durable.
    pub persists: bool,
    /// What the streams of the node's last process had stored, where they have no disk.
    storages: BTreeMap<ShardId, MemoryStorage>,
    /// Where its streams are recorded, if they are on disk.
    pub disk: Option<SimulatedDisk>,
    /// The events that the current process receives before it starts: what its disk has.
    pub begins_with: Vec<WorkerEvent<E::Message>>,
}

/// The nodes of a simulated cluster.
pub(crate) struct SimulatedCluster<E: Engine> {
    pub simulated_workers: Vec<SimulatedWorker<E>>,
    pub clocks: Vec<NodeClock>,
    /// The nodes' transaction clocks, if the engine uses them.
    pub transaction_clocks: Option<TransactionClocks>,
    /// The time that each node needs, in percent of the usual time.
    pub slowdown_percent: Vec<u64>,
    /// The number of each node's current process.
    pub instances: Vec<u32>,
    pub workers: usize,
    setup: Setup<E::Options>,
    /// The topology with which each node's next process begins; `None` for a node that is not added yet, or was removed.
    files: Vec<Option<Arc<Topology>>>,
    /// Whether changes of streams become durable later than they are made.
    is_late: bool,
    /// The managers' options; `None` if the configuration never changes.
    options: Option<ManagerOptions>,
    shared: Vec<Option<Arc<E::Shared>>>,
    random: Random,
    /// The counters of former processes.
    gone: Engines,
}

/// What a worker of a new process begins with.
struct BegunStorages {
    /// What its streams had stored before.
    recovered: RecoveredWorker,
    /// Makes the storage of another stream.
    new_storage: fn() -> MemoryStorage,
    /// The former processes of its node that its disk names.
    processes: Vec<ProcessInstance>,
}

impl<E: Engine> SimulatedCluster<E> {
    /// A cluster that is about to start. Its nodes have manager clients if there are managers, which have
    /// these options. `is_late` if changes of streams become durable later; `disks` if they are recorded on disks, whose
    /// operations take at most so long, with these bugs in what uses them.
    pub fn new(
        setup: &Setup<E::Options>,
        clocks: Vec<NodeClock>,
        is_late: bool,
        disks: Option<(Duration, DiskPlantedBugs)>,
        options: Option<ManagerOptions>,
        seed: u64,
    ) -> SimulatedCluster<E> {
        let topology = &setup.topology;
        let nodes: Vec<NodeId> = (0..clocks.len() as u32).map(NodeId).collect();
        let founders = topology.nodes().len();
        assert!(founders <= nodes.len(), "every node has a clock");
        let file = |node: &NodeId| topology.node(*node).map(|_| Arc::clone(topology));
        let files = nodes.iter().map(file).collect();
        let workers = topology.workers();
        let places = nodes
            .iter()
            .flat_map(|node| (0..workers).map(|worker| (*node, WorkerId(worker))))
            .map(|(node, worker)| WorkerPlace { node, worker });
        let simulated_worker = |place| SimulatedWorker {
            worker: None,
            place,
            has_begun: false,
            inbox: VecDeque::new(),
            busy_until: Time::ZERO,
            worked: Duration::ZERO,
            will_look: false,
            timer_at: Time::MAX,
            timer_local: Time::MAX,
            nudged: false,
            operations: 0,
            bytes: 0,
            keys: 0,
            refused_appends: 0,
            persists: false,
            storages: BTreeMap::new(),
            disk: None,
            begins_with: Vec::new(),
        };
        let mut cluster = SimulatedCluster {
            simulated_workers: places.map(simulated_worker).collect(),
            transaction_clocks: E::USES_TRANSACTION_CLOCK.then(|| {
                TransactionClocks::draw(nodes.len(), Random::new(seed).fork(TRANSACTION_CLOCKS))
            }),
            clocks,
            slowdown_percent: vec![100; nodes.len()],
            instances: vec![0; nodes.len()],
            workers: workers as usize,
            setup: setup.clone(),
            files,
            is_late,
            options,
            shared: nodes.iter().map(|_| None).collect(),
            random: Random::new(seed),
            gone: Engines::default(),
        };
        if let Some((longest, planted)) = disks {
            let random = Random::new(seed).fork(DISKS);
            for (number, worker) in (0..).zip(&mut cluster.simulated_workers) {
                let (random, place) = (random.fork(number), worker.place);
                // Of each shard all voters but the first one: a majority.
                let mut shards = topology.shard_ids();
                let is_first = shards.any(|it| topology.voters(it).first() == Some(&place.node));
                let lies = planted.lie_about_flushes && !is_first;
                worker.disk = Some(SimulatedDisk::new(place, longest, planted, lies, random));
            }
        }
        nodes.into_iter().take(founders).for_each(|node| cluster.begin_instance(node, false));
        cluster
    }

    /// The topology with which the cluster began.
    pub fn first_topology(&self) -> &Arc<Topology> {
        &self.setup.topology
    }

    /// Whether the node is one of the cluster: it was there from the beginning, or is added, and was not removed.
    pub fn is_member(&self, node: NodeId) -> bool {
        self.files[node.0 as usize].is_some()
    }

    /// The node's next process begins with this topology.
    pub fn set_file(&mut self, node: NodeId, file: Option<Arc<Topology>>) {
        self.files[node.0 as usize] = file;
    }

    /// The transaction times of an event that a node takes at the true time `now`, and that arrived at
    /// `arrived`; `None` if the engine does not use them.
    pub fn event_times(&mut self, node: NodeId, now: Time, arrived: Time) -> Option<EventTimes> {
        let transaction_clocks = self.transaction_clocks.as_mut()?;
        let (clock, instance) = (self.clocks[node.0 as usize], self.instances[node.0 as usize]);
        let (local, arrived) = (clock.local(now), clock.local(arrived));
        Some(transaction_clocks.times(EventInstant { node, instance, now, local, arrived }))
    }

    /// The index of the worker at a place.
    #[inline]
    pub fn worker_at(&self, place: WorkerPlace) -> usize {
        place.node.0 as usize * self.workers + place.worker.0 as usize
    }

    /// The indices of a node's workers.
    pub fn workers_of(&self, node: NodeId) -> std::ops::Range<usize> {
        let first = node.0 as usize * self.workers;
        first..first + self.workers
    }

    /// Whether a process of the node is running.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.shared[node.0 as usize].is_some()
    }

    /// The nodes that take themselves for the leader of `shard`: each with its ballot, and the true time at
    /// which its lease ends.
    pub fn leases(&self, shard: ShardId) -> impl Iterator<Item = (NodeId, Ballot, Time)> + '_ {
        (0..self.clocks.len() as u32).map(NodeId).filter_map(move |node| {
            let host = self.worker_at(WorkerPlace { node, worker: WorkerId(0) });
            let manager_client = self.worker(host)?.manager_client()?;
            let assignment = manager_client.configuration()?.shard(shard)?;
            let own = (Some(assignment.leader), Some(assignment.incarnation));
            let end = manager_client
                .lease_end()
                .filter(|_| own == (Some(node), manager_client.incarnation()))?;
            Some((node, assignment.ballot, self.clocks[node.0 as usize].when(end)))
        })
    }

    /// Starts a process of a node, with what its streams have stored unless that is lost.
    pub fn begin_instance(&mut self, node: NodeId, lost: bool) {
        let at = node.0 as usize;
        assert!(self.shared[at].is_none(), "{node} is alive");
        let file = self.files[at].as_ref().unwrap_or_else(|| panic!("{node} is no member"));
        let setup = Setup { topology: Arc::clone(file), ..self.setup.clone() };
        let shared = E::share(&setup, node);
        self.shared[at] = Some(Arc::clone(&shared));
        self.instances[at] += 1;
        let workers = self.workers as u32;
        let membership = Membership::new(workers);
        let instance = ProcessInstance(self.random.next_u64());
        let all = self.workers_of(node);
        let begun: Vec<_> = all.map(|worker| self.begin_storages(worker, instance, lost)).collect();
        let named = named_by_all(begun.iter().map(|begun| begun.processes.clone()));
        let manager_client = |it: &ManagerOptions| {
            ManagerClient::new(node, instance, lost, it.clone()).with_disks(named)
        };
        let mut manager_client = self.options.as_ref().map(manager_client);
        for (simulated_worker, begun) in self.workers_of(node).zip(begun) {
            let seed = self.random.next_u64();
            let BegunStorages { recovered, new_storage, .. } = begun;
            let origin = match &self.options {
                None => {
                    let fixed = WorkerOrigin::fixed(&setup.topology, seed);
                    WorkerOrigin { recovered, new_storage, ..fixed }
                }
                Some(_) => WorkerOrigin {
                    membership: Arc::clone(&membership),
                    manager_client: manager_client.take(),
                    recovered,
                    new_storage,
                    seed,
                },
            };
            let worker = self.simulated_workers[simulated_worker].place.worker;
            let worker = Worker::new(worker, node, &setup, Arc::clone(&shared), origin);
            self.simulated_workers[simulated_worker].worker = Some(worker);
        }
    }

    /// What a worker begins with, which is nothing if that is lost.
    fn begin_storages(
        &mut self,
        simulated_worker: usize,
        process: ProcessInstance,
        lost: bool,
    ) -> BegunStorages {
        let simulated_worker = &mut self.simulated_workers[simulated_worker];
        if let Some(disk) = &mut simulated_worker.disk {
            if lost {
                disk.replace();
            }
            let (recovered, events, processes) = disk.begin(process);
            simulated_worker.begins_with = events;
            return BegunStorages { recovered, new_storage: MemoryStorage::recorded, processes };
        }
        let kept = std::mem::take(&mut simulated_worker.storages);
        let storages = if lost { BTreeMap::new() } else { kept };
        let new_storage = if self.is_late { MemoryStorage::late } else { MemoryStorage::new };
        let recovered = RecoveredWorker::of(storages);
        BegunStorages { recovered, new_storage, processes: Vec::new() }
    }

    /// Ends a node's process: its workers and their inboxes are dropped. Without `power`, its disks lose what was not
    /// flushed.
    pub fn end_instance(&mut self, node: NodeId, power: bool) {
        for simulated_worker in self.workers_of(node) {
            let simulated_worker = &mut self.simulated_workers[simulated_worker];
            let worker = simulated_worker.worker.take().expect("it is alive");
            self.gone += &Engines::of(worker.engine());
            simulated_worker.storages = worker.into_storages();
            simulated_worker.storages.values_mut().for_each(MemoryStorage::crash);
            simulated_worker.disk.iter_mut().for_each(|disk| disk.crash(power));
            simulated_worker.persists = false;
            simulated_worker.begins_with.clear();
            simulated_worker.has_begun = false;
            simulated_worker.inbox.clear();
            simulated_worker.will_look = false;
            (simulated_worker.timer_at, simulated_worker.timer_local) = (Time::MAX, Time::MAX);
            simulated_worker.nudged = false;
            (simulated_worker.operations, simulated_worker.bytes, simulated_worker.keys) =
                (0, 0, 0);
            simulated_worker.refused_appends = 0;
        }
        self.shared[node.0 as usize] = None;
    }

    /// The worker with this index, if its node is up.
    pub fn worker(&self, simulated_worker: usize) -> Option<&Worker<E>> {
        self.simulated_workers[simulated_worker].worker.as_ref()
    }

    /// A node's copy of a shard.
    pub fn store(&self, node: NodeId, shard: ShardId) -> Option<Arc<Store>> {
        E::store(self.shared[node.0 as usize].as_ref()?, shard).cloned()
    }

    /// The counters of all engines, former processes included.
    pub fn counted(&self) -> Engines {
        let mut all = self.gone.clone();
        self.simulated_workers
            .iter()
            .filter_map(|simulated_worker| simulated_worker.worker.as_ref())
            .for_each(|it| all += &Engines::of(it.engine()));
        all
    }
}
