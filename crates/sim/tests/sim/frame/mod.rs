//! The event loop of the simulator, with a trivial engine: it is deterministic, keeps time, and is fast.

mod toy;

use shoal_cluster::topology::Topology;
use shoal_engine::Procedures;
use shoal_engine::engine::Setup;
use shoal_sim::clock::NodeClock;
use shoal_sim::cpu::Cpu;
use shoal_sim::fault_schedule::{FaultSchedule, FaultWeights};
use shoal_sim::network::{Delay, Troubles};
use shoal_sim::simulation::{Simulation, SimulationWorld};
use shoal_types::Time;
use std::sync::Arc;
use std::time::Duration;
use toy::{Options, Toy};

const MS: u64 = 1_000_000;

fn simulation(options: Options, cpu: Cpu, clock: NodeClock, seed: u64) -> Simulation<Toy> {
    let topology = Arc::new(Topology::symmetric(1, 3, 3, 0, 2));
    let nodes = topology.nodes().len();
    let delay = Delay { base_ns: 50_000, jitter_ns: 20_000 };
    let world = SimulationWorld {
        latecomers: Vec::new(),
        clocks: vec![clock; nodes],
        delays: vec![vec![delay]],
        clients: Vec::new(),
        cpu,
        persistence_ns: 0,
        disks: None,
        is_judged: true,
        managers: None,
    };
    let procedures = Arc::new(Procedures::new());
    let streams = shoal_log::StreamOptions::default();
    let setup = Setup { topology, procedures, streams, options };
    Simulation::new(&setup, world, seed)
}

fn hopping(seed: u64) -> Simulation<Toy> {
    let options = Options { tokens: 3, timer: Some(Duration::from_millis(1)) };
    let mut simulation = simulation(options, Cpu::FREE, NodeClock::new(5 * MS, 100), seed);
    let half = 500_000;
    let fault_schedule = FaultSchedule {
        troubles: Troubles {
            loss_ppm: 1000,
            duplicate_ppm: 1000,
            reorder_ppm: half,
            tail_ppm: 1000,
        },
        every_ns: MS,
        longest_ns: 5 * MS,
        weights: FaultWeights {
            clog: 1,
            cut: 1,
            failure_detector: 1,
            stall: 1,
            ..FaultWeights::default()
        },
        ..FaultSchedule::default()
    };
    simulation.set_fault_schedule(fault_schedule);
    simulation.run_until(Time(200 * MS)).unwrap();
    simulation
}

#[test]
fn a_seed_repeats_to_the_last_event() {
    let (one, again, other) = (hopping(1), hopping(1), hopping(2));
    assert!(one.metrics().work.delivered > 1000);
    assert_eq!(one.digest(), again.digest());
    assert_eq!(one.metrics(), again.metrics());
    assert_ne!(one.digest(), other.digest());
}

#[test]
fn tokens_hop_from_any_worker_to_any_other() {
    let engines = hopping(4).metrics().engines;
    // Each of 18 workers has one like it and 16 others: 1 on its own node, 8 of its number elsewhere, 8 of the other.
    let share = |count: u64| count * 17 * 100 / engines.get("hops");
    assert!((80..120).contains(&share(engines.get("wrote"))), "{engines:?}");
    assert!((600..1000).contains(&share(engines.get("cross_shard"))), "{engines:?}");
}

#[test]
fn every_trouble_is_met_and_healing_ends_it() {
    let mut simulation = hopping(3);
    let before = simulation.metrics();
    for (name, count) in before.traffic.all().chain([("stalls", before.work.stalls)]) {
        assert!(count > 0, "{name} never happened: {before:?}");
    }
    simulation.heal();
    simulation.run_until(Time(300 * MS)).unwrap();
    let after = simulation.metrics();
    assert_eq!(before.traffic.lost, after.traffic.lost);
    assert!(after.work.delivered > before.work.delivered);
}

#[test]
fn timers_go_by_the_local_clock() {
    let timers = |drift_ppm| {
        let options = Options { tokens: 0, timer: Some(Duration::from_millis(1)) };
        let clock = NodeClock::new(7, drift_ppm);
        let mut simulation = simulation(options, Cpu::FREE, clock, 1);
        simulation.run_until(Time(10_000 * MS + MS / 2)).unwrap();
        simulation.metrics().engines.get("committed")
    };
    let workers = 3 * 3 * 2;
    assert_eq!(timers(0), workers * 10_000);
    // A clock that gains a millisecond a second fires timers that much more often.
    assert_eq!(timers(1000), workers * 10_010);
    assert_eq!(timers(-1000), workers * 9_990);
}

#[test]
fn work_takes_the_time_it_costs() {
    // Tokens that were taken: those in the inbox of a busy worker have only arrived.
    let taken = |cpu: Cpu, slow: bool| {
        let options = Options { tokens: 50, timer: None };
        let mut simulation = simulation(options, cpu, NodeClock::TRUE, 1);
        if slow {
            for node in simulation.topology().nodes().to_vec() {
                simulation.slow_down(node.id, 1000);
            }
        }
        simulation.run_until(Time(100 * MS)).unwrap();
        simulation.metrics().engines.get("hops")
    };
    let microseconds = Duration::from_micros;
    let (event, message, operation) = (microseconds(5), microseconds(3), microseconds(2));
    let cpu = Cpu { event, message, operation, ..Cpu::FREE };
    // 18 workers, 10 µs a hop, 100 ms: at most this many, and nearly as many, since each always has a token.
    let (most, found) = (180_000, taken(cpu, false));
    assert!((most * 9 / 10..=most).contains(&found), "{found}");
    let found = taken(cpu, true);
    assert!((most * 8 / 100..=most / 10).contains(&found), "{found}");
    assert!(taken(Cpu::FREE, false) > most);
}

#[test]
fn a_frame_has_arrived_before_it_is_taken_by_the_transaction_clock() {
    let waited = |cpu: Cpu| {
        let options = Options { tokens: 50, timer: None };
        let mut simulation = simulation(options, cpu, NodeClock::new(3, 200), 1);
        simulation.run_until(Time(20 * MS)).unwrap();
        let engines = simulation.metrics().engines;
        (engines.get("conflicts"), engines.get("hops"))
    };
    let event = Duration::from_micros(10);
    let (waited_for_busy, taken) = waited(Cpu { event, ..Cpu::FREE });
    assert!(waited_for_busy > taken / 2, "{waited_for_busy} of {taken}");
    assert_eq!(waited(Cpu::FREE).0, 0, "frames that a free worker takes have not waited");
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
#[expect(clippy::disallowed_methods, reason = "this test is a measurement")]
fn the_frame_is_quick() {
    let options = Options { tokens: 100, timer: Some(Duration::from_millis(1)) };
    let mut simulation = simulation(options, Cpu::FREE, NodeClock::new(1, 20), 1);
    let began = std::time::Instant::now();
    simulation.run_until(Time(200 * MS)).unwrap();
    let delivered = simulation.metrics().work.delivered;
    let rate = delivered as f64 / began.elapsed().as_secs_f64();
    println!("{delivered} messages, {rate:.0} a second");
    assert!(rate > 200_000.0, "{rate}");
}
