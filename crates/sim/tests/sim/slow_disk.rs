//! A disk that takes a hundred milliseconds for a flush delays no commit while the disks of a majority do not, also where it is the
//! leader's.

use shoal_cluster::manager::{self, LogPace};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::Setup;
use shoal_engine::{CoordinatorTransaction, Procedures, WorkerPlace};
use shoal_mako::Mako;
use shoal_sim::clock::NodeClock;
use shoal_sim::cpu::Cpu;
use shoal_sim::managers::ManagersPlan;
use shoal_sim::network::Delay;
use shoal_sim::simulation::{Simulation, SimulationWorld};
use shoal_sim::subject::Subject;
use shoal_tiga::Tiga;
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{Database, Durability, NodeId, ShardId, TableId, Time, Transaction, WorkerId};
use shoal_wal::DiskPlantedBugs;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any run of this file.
const PATIENCE: Duration = Duration::from_secs(120);

/// What each operation of a disk takes: all the same, so that it does not matter which majority is the quickest.
const QUICK: Duration = Duration::from_micros(100);
const SLOW: Duration = Duration::from_millis(100);

const TRANSACTIONS: u32 = 101;

/// The median time of transactions that write a row at its leader, one after the other, where these of the three replicas have slow disks:
/// 0 is the leader.
fn median<E: Subject>(slow: &[usize]) -> Duration
where
    E::Options: Default,
{
    let tables = [("t".to_owned(), Partitioning::Hash { prefix_bytes: 0 }.into())];
    let topology = Topology::compact(1, 1, 3, 0, 1)
        .with_tables(tables.into_iter().chain(E::tables(1)).collect::<Vec<_>>())
        .expect("a topology");
    let topology = Arc::new(topology.with_durability(Durability::Fsync));
    let managers = ManagersPlan {
        datacenters: vec![0; 3],
        clocks: vec![NodeClock::TRUE; 3],
        pace: LogPace::steady(Duration::from_millis(1)),
        options: manager::ManagerOptions::default(),
    };
    let world = SimulationWorld {
        latecomers: Vec::new(),
        clocks: vec![NodeClock::TRUE; 3],
        delays: vec![vec![Delay { base_ns: 50_000, jitter_ns: 20_000 }]],
        clients: Vec::new(),
        cpu: Cpu::MEASURED,
        persistence_ns: 4 * QUICK.as_nanos() as u64,
        disks: Some(DiskPlantedBugs::default()),
        is_judged: false,
        managers: Some(managers),
    };
    let (procedures, streams) = (Arc::new(Procedures::new()), shoal_log::StreamOptions::default());
    let setup = Setup { topology, procedures, streams, options: E::Options::default() };
    let mut simulation = Simulation::<E>::new(&setup, world, 1);
    assert_eq!(simulation.run_while_not(PATIENCE, Simulation::is_led), Ok(true));
    let leader = simulation.leader(ShardId(0));
    let followers = (0..3).map(NodeId).filter(|node| *node != leader);
    let nodes: Vec<NodeId> = std::iter::once(leader).chain(followers).collect();
    for (place, node) in nodes.iter().enumerate() {
        simulation.set_disk_delay(*node, if slow.contains(&place) { SLOW } else { QUICK });
    }
    let place = WorkerPlace { node: leader, worker: WorkerId(0) };
    let (local, time) = (simulation.local(place), simulation.true_time());
    let took = Rc::new(RefCell::new(Vec::new()));
    let times = Rc::clone(&took);
    let client = async move {
        for number in 0..TRANSACTIONS {
            let began: Time = time.get();
            let body = async |tx: &CoordinatorTransaction| {
                tx.put(TableId(0), &number.to_be_bytes(), b"value")
            };
            local.transact(body).await.expect("nothing fails");
            times.borrow_mut().push(time.get() - began);
        }
    };
    simulation.spawn(place, Box::pin(client));
    let has_ended = |_: &Simulation<E>| took.borrow().len() == TRANSACTIONS as usize;
    assert_eq!(simulation.run_while_not(PATIENCE, has_ended), Ok(true), "it never ends");
    assert_eq!(simulation.leader(ShardId(0)), leader, "no lease ran out");
    let mut took = took.take();
    took.sort_unstable();
    took[took.len() / 2]
}

/// The target of one disk in three that is slow: the median grows by a tenth at most. A majority of them shows.
fn one_slow_disk_delays_nothing<E: Subject>()
where
    E::Options: Default,
{
    let quick = median::<E>(&[]);
    assert!(quick < SLOW / 20, "{quick:?}");
    for slow in [0, 1] {
        let took = median::<E>(&[slow]);
        assert!(took * 10 <= quick * 11, "replica {slow}: {took:?}, and {quick:?} without");
    }
    let took = median::<E>(&[0, 1]);
    assert!(took >= SLOW, "a majority waits for slow disks, and a commit took {took:?}");
}

#[test]
fn a_slow_disk_delays_nothing_in_mako() {
    one_slow_disk_delays_nothing::<Mako>();
}

/// One round trip takes all three votes; without one of them the log decides, which takes another one, and no flush of the slow disk.
#[test]
fn a_slow_disk_delays_nothing_beyond_a_round_trip_in_tiga() {
    let quick = median::<Tiga>(&[]);
    for slow in [0, 1] {
        let took = median::<Tiga>(&[slow]);
        assert!(took < 3 * quick, "replica {slow}: {took:?}, and {quick:?} without");
    }
    assert!(median::<Tiga>(&[0, 1]) >= SLOW, "a majority waits for slow disks");
}

#[test]
fn a_slow_disk_delays_nothing_in_two_phase_commit() {
    one_slow_disk_delays_nothing::<TwoPhaseCommit>();
}
