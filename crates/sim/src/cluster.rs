//! The cluster under simulation: its workers, what they share, and what waits for each of them. Nodes
//! have lives: a crash ends one, and what is left is what their streams had stored.

use crate::clock::NodeClock;
use crate::metrics::Engines;
use consensus::manager::{Life, Member, Options};
use consensus::stream::MemoryStorage;
use engines::engine::Setup;
use engines::{Engine, Place};
use node::{Event, Membership, Origin, Worker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use types::{Ballot, NodeId, Random, ShardId, Time, WorkerId};

/// A worker and its place in time.
pub(crate) struct Seat<E: Engine> {
    /// `None` while its node is down.
    pub worker: Option<Worker<E>>,
    pub place: Place,
    /// It has taken its first event.
    pub has_begun: bool,
    /// What reached it while it was busy.
    pub inbox: VecDeque<Event<E::Message>>,
    /// It takes no event before.
    pub busy_until: Time,
    /// What its steps have cost so far.
    pub worked: Duration,
    /// It will look into its inbox when it is free.
    pub will_look: bool,
    /// When its timer goes off, or when it did, if a busy worker has not taken it yet: there is one.
    pub timer_at: Time,
    /// The same on its node's clock.
    pub timer_local: Time,
    /// A nudge is on its way.
    pub nudged: bool,
    /// Operations it had counted after its last step.
    pub operations: u64,
    /// Bytes that it had counted as appended or replayed.
    pub bytes: u64,
    /// The keys that were counted of it.
    pub keys: u64,
    /// Some of what its streams have changed is about to become durable.
    pub persists: bool,
    /// What is left of a life that is over.
    storages: BTreeMap<ShardId, MemoryStorage>,
}

/// See the module.
pub(crate) struct Cluster<E: Engine> {
    pub seats: Vec<Seat<E>>,
    pub clocks: Vec<NodeClock>,
    /// How slow each node is, in hundredths of what it could be.
    pub slowdown_percent: Vec<u64>,
    /// In which of its lives each node is.
    pub lives: Vec<u32>,
    pub workers: usize,
    setup: Setup<E::Options>,
    /// What streams change becomes durable later.
    is_late: bool,
    /// `None` where the configuration never changes.
    options: Option<Options>,
    shared: Vec<Option<Arc<E::Shared>>>,
    random: Random,
    /// What engines had counted whose lives are over.
    gone: Engines,
}

impl<E: Engine> Cluster<E> {
    /// A cluster that is about to start. Its nodes have members if there are managers, which have these
    /// options. `is_late` if what streams change becomes durable later.
    pub fn new(
        setup: &Setup<E::Options>,
        (clocks, is_late): (Vec<NodeClock>, bool),
        options: Option<Options>,
        seed: u64,
    ) -> Cluster<E> {
        let topology = &setup.topology;
        let nodes: Vec<NodeId> = topology.nodes().iter().map(|node| node.id).collect();
        assert_eq!(nodes.len(), clocks.len(), "every node has a clock");
        let workers = topology.workers();
        let places = nodes
            .iter()
            .flat_map(|node| (0..workers).map(|worker| (*node, WorkerId(worker))))
            .map(|(node, worker)| Place { node, worker });
        let seat = |place| Seat {
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
            persists: false,
            storages: BTreeMap::new(),
        };
        let mut cluster = Cluster {
            seats: places.map(seat).collect(),
            clocks,
            slowdown_percent: vec![100; nodes.len()],
            lives: vec![0; nodes.len()],
            workers: workers as usize,
            setup: setup.clone(),
            is_late,
            options,
            shared: nodes.iter().map(|_| None).collect(),
            random: Random::new(seed),
            gone: Engines::default(),
        };
        nodes.into_iter().for_each(|node| cluster.begin_life(node, false));
        cluster
    }

    /// Which seat a worker has.
    #[inline]
    pub fn seat_of(&self, place: Place) -> usize {
        place.node.0 as usize * self.workers + place.worker.0 as usize
    }

    /// The seats of a node.
    pub fn seats_of(&self, node: NodeId) -> std::ops::Range<usize> {
        let first = node.0 as usize * self.workers;
        first..first + self.workers
    }

    /// Is the node alive?
    pub fn is_up(&self, node: NodeId) -> bool {
        self.shared[node.0 as usize].is_some()
    }

    /// The nodes that take themselves for the leader of `shard`: each with the ballot under which, and the true time
    /// at which its lease ends.
    pub fn leases(&self, shard: ShardId) -> impl Iterator<Item = (NodeId, Ballot, Time)> + '_ {
        (0..self.clocks.len() as u32).map(NodeId).filter_map(move |node| {
            let host = self.seat_of(Place { node, worker: WorkerId(0) });
            let member = self.worker(host)?.member()?;
            let assignment = member.configuration()?.shard(shard)?;
            let own = (Some(assignment.leader), Some(assignment.incarnation));
            let end = member.lease_end().filter(|_| own == (Some(node), member.incarnation()))?;
            Some((node, assignment.ballot, self.clocks[node.0 as usize].when(end)))
        })
    }

    /// A node begins a life, with what its streams have stored unless that is lost.
    pub fn begin_life(&mut self, node: NodeId, lost: bool) {
        let at = node.0 as usize;
        assert!(self.shared[at].is_none(), "{node} is alive");
        let shared = E::share(&self.setup, node);
        self.shared[at] = Some(Arc::clone(&shared));
        self.lives[at] += 1;
        let workers = self.workers as u32;
        let membership = Membership::new(workers);
        let life = Life(self.random.next_u64());
        let mut member = self.options.as_ref().map(|it| Member::new(node, life, lost, it.clone()));
        for seat in self.seats_of(node) {
            let seed = self.random.next_u64();
            let kept = std::mem::take(&mut self.seats[seat].storages);
            let storages = if lost || kept.is_empty() { self.empty_storages(node) } else { kept };
            let origin = match &self.options {
                None => Origin { storages, ..Origin::fixed(&self.setup.topology, seed) },
                Some(_) => Origin {
                    membership: Arc::clone(&membership),
                    member: member.take(),
                    storages,
                    seed,
                },
            };
            let worker = self.seats[seat].place.worker;
            let worker = Worker::new(worker, node, &self.setup, Arc::clone(&shared), origin);
            self.seats[seat].worker = Some(worker);
        }
    }

    /// What the streams of a worker have stored that begins from nothing.
    fn empty_storages(&self, node: NodeId) -> BTreeMap<ShardId, MemoryStorage> {
        let empty = || if self.is_late { MemoryStorage::late() } else { MemoryStorage::new() };
        self.setup.topology.shards_of(node).map(|shard| (shard, empty())).collect()
    }

    /// A node's life ends. What ran on it is gone, and so is what waited for it.
    pub fn end_life(&mut self, node: NodeId) {
        for seat in self.seats_of(node) {
            let seat = &mut self.seats[seat];
            let worker = seat.worker.take().expect("it is alive");
            self.gone += counted(&worker);
            seat.storages = worker.into_storages();
            seat.storages.values_mut().for_each(MemoryStorage::crash);
            seat.persists = false;
            seat.has_begun = false;
            seat.inbox.clear();
            seat.will_look = false;
            (seat.timer_at, seat.timer_local) = (Time::MAX, Time::MAX);
            seat.nudged = false;
            (seat.operations, seat.bytes, seat.keys) = (0, 0, 0);
        }
        self.shared[node.0 as usize] = None;
    }

    /// The worker at a seat, if it is alive.
    pub fn worker(&self, seat: usize) -> Option<&Worker<E>> {
        self.seats[seat].worker.as_ref()
    }

    /// A node's copy of a shard.
    pub fn store(&self, node: NodeId, shard: ShardId) -> Option<Arc<Store>> {
        E::store(self.shared[node.0 as usize].as_ref()?, shard).cloned()
    }

    /// What all engines have counted.
    pub fn counted(&self) -> Engines {
        let mut all = self.gone;
        self.seats.iter().filter_map(|seat| seat.worker.as_ref()).for_each(|it| all += counted(it));
        all
    }
}

fn counted<E: Engine>(worker: &Worker<E>) -> Engines {
    let counters = worker.engine().counters();
    Engines {
        certified: counters.certified,
        committed: counters.committed,
        wrote: counters.wrote,
        cross_shard: counters.cross_shard,
        conflicts: counters.conflicts,
        resent: counters.resent,
        dropped: counters.dropped,
        stamps: counters.stamps,
        stamp_entries: counters.stamp_entries,
        batches: counters.batches,
        batch_bytes: counters.batch_bytes,
    }
}
