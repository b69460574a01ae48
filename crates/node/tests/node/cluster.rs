//! A small cluster on a small network, with any engine: delays, loss and repetition from a seed, nothing
//! else.

use crate::common::{Row, carried, rows, seeds};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_mako::Mako;
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage, WorkerOrigin};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{
    Database, Error, NodeId, Random, Scan, ShardId, Time, Transaction, WorkerId, WorkerPlace,
};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Place = (NodeId, WorkerId);
type Cause<E> = WorkerEvent<<E as Engine>::Message>;

/// Nodes, and what is on its way to them.
struct Cluster<E: Engine> {
    topology: Arc<Topology>,
    workers: BTreeMap<Place, Worker<E>>,
    shared: BTreeMap<NodeId, Arc<E::Shared>>,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    coming: BTreeMap<u64, (Place, Cause<E>)>,
    /// When each worker comes back: only the earliest time that it asked for counts.
    timers: BTreeMap<Place, Time>,
    now: Time,
    random: Random,
    lossy: bool,
    delivered: u64,
}

const TABLES: [&str; 2] = ["accounts", "notes"];

impl<E: Engine> Cluster<E> {
    fn new(shape: Topology, seed: u64, options: E::Options, lossy: bool) -> Cluster<E> {
        let tables = TABLES.map(|name| (name, Partitioning::Hash { prefix_bytes: 0 }));
        let topology = shape.with_tables(tables);
        let topology = Arc::new(topology.expect("a valid topology"));
        let workers = topology.workers();
        let procedures = Arc::new(Procedures::new());
        let streams = shoal_log::StreamOptions::default();
        let setup = Setup { topology: Arc::clone(&topology), procedures, streams, options };
        let mut cluster = Cluster {
            topology: Arc::clone(&topology),
            workers: BTreeMap::new(),
            shared: BTreeMap::new(),
            queue: BinaryHeap::new(),
            coming: BTreeMap::new(),
            timers: BTreeMap::new(),
            now: Time::ZERO,
            random: Random::new(seed),
            lossy,
            delivered: 0,
        };
        for node in topology.nodes() {
            let shared = E::share(&setup, node.id);
            for worker in (0..workers).map(WorkerId) {
                let seed = seed ^ u64::from(node.id.0) << 8 ^ u64::from(worker.0);
                let origin = WorkerOrigin::fixed(&setup.topology, seed);
                let new = Worker::new(worker, node.id, &setup, Arc::clone(&shared), origin);
                cluster.workers.insert((node.id, worker), new);
                cluster.send(Duration::ZERO, (node.id, worker), WorkerEvent::Start);
            }
            cluster.shared.insert(node.id, shared);
        }
        cluster
    }

    fn send(&mut self, after: Duration, to: Place, event: Cause<E>) {
        let number = self.coming.last_key_value().map_or(0, |(last, _)| last + 1);
        self.coming.insert(number, (to, event));
        self.queue.push(Reverse((self.now + after, number)));
    }

    /// Delivers what comes until `done`, or for at most `events`.
    fn run(&mut self, events: u64, done: impl Fn(&Cluster<E>) -> bool) {
        for _ in 0..events {
            if done(self) {
                return;
            }
            let Some(Reverse((at, number))) = self.queue.pop() else {
                // No node has anything more to say: time passes.
                self.now = self.now + Duration::from_millis(1);
                continue;
            };
            let (to, event) = self.coming.remove(&number).expect("queued");
            self.now = self.now.max(at);
            if matches!(event, WorkerEvent::Timer) && self.timers.get(&to) != Some(&at) {
                continue; // An earlier one was asked for meanwhile.
            }
            if matches!(event, WorkerEvent::Timer) {
                self.timers.remove(&to);
            }
            self.step(to, event);
        }
        panic!("not done after {events} events, at {}", self.now);
    }

    fn step(&mut self, to: Place, event: Cause<E>) {
        let mut effects = WorkerEffects::new();
        let worker = self.workers.get_mut(&to).expect("a worker");
        worker.step(self.now, event, &mut effects);
        self.delivered += 1;
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { to: receiver, message } => {
                    self.transmit(to, receiver, &message);
                }
                WorkerEffect::Timer { at } => {
                    let at = at.max(self.now);
                    if self.timers.get(&to).is_none_or(|before| at < *before) {
                        self.timers.insert(to, at);
                        self.send(at - self.now, to, WorkerEvent::Timer);
                    }
                }
                WorkerEffect::Nudge { worker } => {
                    self.send(Duration::from_nanos(200), (to.0, worker), WorkerEvent::Nudged);
                }
                WorkerEffect::Reply(_)
                | WorkerEffect::Tell { .. }
                | WorkerEffect::Write { .. }
                | WorkerEffect::Checkpoint(_)
                | WorkerEffect::Superseded => {}
            }
        }
    }

    fn transmit(
        &mut self,
        (node, worker): Place,
        to: WorkerPlace,
        message: &WorkerMessage<E::Message>,
    ) {
        let from = WorkerPlace { node, worker };
        let copies = match self.lossy {
            true => [1, 1, 1, 1, 0, 2][self.random.below(6) as usize],
            false => 1,
        };
        for _ in 0..copies {
            let delay = Duration::from_nanos(
                50_000 + self.random.below(if self.lossy { 900_000 } else { 10 }),
            );
            let event = WorkerEvent::Received { from, message: carried(message) };
            self.send(delay, (to.node, to.worker), event);
        }
    }

    fn pending(&self) -> usize {
        self.workers.values().map(|worker| worker.engine().pending()).sum()
    }

    fn rows(&self, node: NodeId, shard: ShardId) -> Vec<Row> {
        rows(E::store(&self.shared[&node], shard).expect("a replica"), &self.topology, &TABLES)
    }
}

const ACCOUNTS: u64 = 24;

/// Moves money between accounts of any shard, keeps notes of it, and checks totals on the way.
async fn client<D: Database>(db: D, mut random: Random, transfers: u32) -> u64 {
    let (accounts, notes) =
        (db.table("accounts").expect("there"), db.table("notes").expect("there"));
    let mut moved = 0;
    for round in 0..transfers {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let note = random.below(1 << 40);
        let deletes = random.chance(3, 10);
        let outcome = db
            .transact(async |tx| {
                if tx.add(accounts, &from.to_be_bytes(), -1).await? < -50 {
                    return Err(Error::reject("overdrawn"));
                }
                tx.add(accounts, &to.to_be_bytes(), 1).await?;
                if deletes {
                    let rows = tx.scan(notes, Scan::all().limit(1)).await?;
                    if let Some((key, _)) = rows.first() {
                        tx.delete(notes, key)?;
                    }
                } else {
                    tx.put(notes, &note.to_be_bytes(), b"moved")?;
                }
                Ok(())
            })
            .await;
        moved += u64::from(outcome.is_ok());
        if round % 8 == 0 {
            let total = db
                .transact(async |tx| {
                    let rows = tx.scan(accounts, Scan::all()).await?;
                    let value = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("8"));
                    Ok(rows.iter().map(|(_, v)| value(v)).sum::<i64>())
                })
                .await;
            assert!(
                matches!(total, Ok(0) | Err(Error::Aborted(_) | Error::Unknown(_))),
                "{total:?}"
            );
        }
    }
    moved
}

/// Nine nodes, three for each of three shards.
fn nine(workers: u32) -> Topology {
    Topology::symmetric(3, 3, 3, 0, workers)
}

/// Clients on all leaders move money.
fn transfers<E: Engine>(
    shape: Topology,
    seed: u64,
    options: E::Options,
    lossy: bool,
) -> Cluster<E> {
    let cluster = Cluster::<E>::new(shape, seed, options, lossy);
    let topology = Arc::clone(&cluster.topology);
    let leads = |node| topology.shard_ids().any(|shard| topology.leader(shard) == node);
    transfers_on(cluster, seed, leads)
}

/// Clients on these nodes move money.
fn transfers_on<E: Engine>(
    mut cluster: Cluster<E>,
    seed: u64,
    coordinates: impl Fn(NodeId) -> bool,
) -> Cluster<E> {
    let topology = Arc::clone(&cluster.topology);
    let running = Rc::new(Cell::new(0));
    let moved = Rc::new(Cell::new(0));
    let places: Vec<Place> = cluster.workers.keys().copied().collect();
    let random = Random::new(seed);
    // Others coordinate nothing.
    for place in places.into_iter().filter(|(node, _)| coordinates(*node)) {
        for number in 0..3 {
            let engine = cluster.workers.get_mut(&place).expect("a worker").engine_mut();
            let (db, running, moved) = (engine.local(), Rc::clone(&running), Rc::clone(&moved));
            let random =
                random.fork(number << 8 | u64::from(place.0.0) << 2 | u64::from(place.1.0));
            running.set(running.get() + 1);
            engine.spawn(Box::pin(async move {
                moved.set(moved.get() + client(db, random, 20).await);
                running.set(running.get() - 1);
            }));
        }
        cluster.send(Duration::from_millis(1), place, WorkerEvent::Nudged);
    }
    cluster.run(4_000_000, |cluster| running.get() == 0 && cluster.pending() == 0);
    assert!(moved.get() > 0, "nothing was moved");
    // What the followers still have to receive is on its way.
    let until = cluster.now + Duration::from_secs(2);
    cluster.run(4_000_000, |cluster| cluster.now > until && cluster.pending() == 0);
    for shard in topology.shard_ids() {
        let leader = cluster.rows(topology.leader(shard), shard);
        assert!(!leader.is_empty());
        for replica in topology.replicas(shard) {
            assert_eq!(leader, cluster.rows(replica, shard), "{replica} of {shard} differs");
        }
    }
    cluster
}

fn money_is_neither_made_nor_lost<E: Engine>() {
    for workers in [1, 2] {
        let seed = 7 + u64::from(workers);
        let cluster = transfers::<E>(nine(workers), seed, E::Options::default(), false);
        let committed: u64 = cluster
            .workers
            .values()
            .map(|worker| worker.engine().counters().runtime.committed)
            .sum();
        assert!(committed > 100, "only {committed}");
    }
}

fn a_lossy_network_changes_nothing<E: Engine>() {
    for seed in seeds(0..6) {
        let workers = 1 + (seed % 2) as u32;
        let cluster = transfers::<E>(nine(workers), seed, E::Options::default(), true);
        let resent: u64 =
            cluster.workers.values().map(|worker| worker.engine().counters().runtime.resent).sum();
        assert!(resent > 0, "nothing was lost");
    }
}

fn the_same_seed_makes_the_same_run<E: Engine>() {
    let runs = [0, 1].map(|_| {
        let cluster = transfers::<E>(nine(2), 3, E::Options::default(), true);
        (cluster.now, cluster.delivered)
    });
    assert_eq!(runs[0], runs[1]);
}

/// What has one voter is decided as soon as it is proposed, within the step. The engine's proposals
/// for other shards must not be overtaken by those that it then makes: followers would see safe clocks
/// fall.
fn a_shard_with_one_voter_keeps_the_order<E: Engine>() {
    let options = E::Options::default;
    transfers::<E>(Topology::compact(2, 3, 1, 1, 1), 5, options(), false);
    transfers::<E>(Topology::compact(1, 3, 1, 1, 2), 6, options(), true);
}

/// Every test for every engine.
macro_rules! engines {
    ($($name:ident: $engine:ty,)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn money_is_neither_made_nor_lost_and_replicas_end_equal() {
                money_is_neither_made_nor_lost::<$engine>();
            }

            #[test]
            fn a_lossy_network_changes_nothing_but_the_time_it_takes() {
                a_lossy_network_changes_nothing::<$engine>();
            }

            #[test]
            fn a_shard_with_one_voter_keeps_the_order() {
                super::a_shard_with_one_voter_keeps_the_order::<$engine>();
            }

            #[test]
            fn the_same_seed_makes_the_same_run() {
                super::the_same_seed_makes_the_same_run::<$engine>();
            }
        }
    )* };
}

engines! {
    with_mako: Mako,
    with_two_phase_commit: TwoPhaseCommit,
}

#[test]
fn stamps_of_any_form_end_equal() {
    use shoal_mako::StampForm;
    let every = Duration::from_millis(2);
    let bounded = [StampForm::Sparse { remote_max: 1 }, StampForm::Timestamp];
    for stamps in bounded.into_iter().chain([StampForm::Full, StampForm::Group { every }]) {
        let options = shoal_mako::MakoOptions { stamps, ..shoal_mako::MakoOptions::default() };
        transfers::<Mako>(nine(2), 11, options, true);
    }
}

/// A node that leads nothing reads, locks and commits at the leaders of others, and receives from them what is durable;
/// one with a replica, and one without a stream or a store.
#[test]
fn nodes_that_lead_nothing_coordinate() {
    use shoal_mako::StampForm;
    let every = Duration::from_millis(2);
    let forms = [
        shoal_mako::MakoOptions::default().stamps,
        StampForm::Sparse { remote_max: 1 },
        StampForm::Full,
        StampForm::Timestamp,
        StampForm::Group { every },
    ];
    let shape = nine(2);
    let leads = |shape: &Topology, node| shape.shard_ids().any(|shard| shape.leader(shard) == node);
    let follower = shape.nodes().iter().map(|node| node.id).find(|node| !leads(&shape, *node));
    let follower = follower.expect("nine nodes hold three shards");
    let without_replica = NodeId(shape.nodes().len() as u32);
    let shape = shape.clone().with_node("coordinator", shape.nodes()[1].datacenter);
    for (seed, stamps) in (20..).zip(forms) {
        for (node, alone) in [(without_replica, true), (without_replica, false), (follower, true)] {
            let options = shoal_mako::MakoOptions { stamps, ..shoal_mako::MakoOptions::default() };
            let cluster = Cluster::<Mako>::new(shape.clone(), seed, options, alone);
            let cluster =
                transfers_on(cluster, seed, |it| it == node || !alone && leads(&shape, it));
            let own = cluster.workers.iter().filter(|((it, _), _)| *it == node);
            let committed: u64 =
                own.map(|(_, worker)| worker.engine().counters().runtime.committed).sum();
            assert!(committed > 50, "{node}, {stamps:?}: only {committed}");
        }
    }
}
