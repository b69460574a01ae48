//! Where bytes and keys have a price, a step that handles too many of them costs a node its lease.

use shoal_cluster::manager::{self, LogPace};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::Setup;
use shoal_engine::{Procedures, WorkerPlace};
use shoal_mako::Mako;
use shoal_replication::codec::PART_WRITES_MAX;
use shoal_sim::clock::NodeClock;
use shoal_sim::cpu::Cpu;
use shoal_sim::managers::ManagersPlan;
use shoal_sim::network::Delay;
use shoal_sim::simulation::{Simulation, SimulationWorld};
use shoal_sim::subject::Subject;
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_WRITES_MAX, VALUE_BYTES_MAX};
use shoal_types::{Database, Error, Result, ShardId, TableId, Time, Transaction, WorkerId};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any run of this file.
const PATIENCE: Duration = Duration::from_secs(60);

/// The writes of a transaction.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys: usize,
    value_bytes: usize,
    /// Whether it is rolled back at the end.
    gives_up: bool,
}

/// As many of the longest values as a transaction may write.
const LONG_VALUES: Size = Size {
    keys: TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX - 1,
    value_bytes: VALUE_BYTES_MAX,
    gives_up: false,
};

/// As many keys as a transaction may write.
const MANY_KEYS: Size = Size { keys: TRANSACTION_WRITES_MAX, value_bytes: 1, gives_up: false };

/// The outcome and the cost of a run.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// The outcome of the transaction.
    ended: Result<()>,
    /// The number of epochs that have begun.
    epochs: u32,
    /// The most keys that one step has locked, validated, installed or rolled back.
    step_keys_most: u64,
}

/// Runs a transaction on shards of three replicas with slow processors, and measures its cost until it is
/// durable and replayed.
fn cost<E: Subject>(options: E::Options, shards: u32, size: Size) -> Cost {
    let tables = [("t".to_owned(), Partitioning::Hash { prefix_bytes: 0 }.into())];
    let topology = Topology::compact(1, shards, 3, 0, 1)
        .with_tables(tables.into_iter().chain(E::tables(1)).collect::<Vec<_>>())
        .expect("a topology");
    let topology = Arc::new(topology);
    let pace = LogPace::steady(Duration::from_millis(1));
    let managers = ManagersPlan {
        datacenters: vec![0; 3],
        clocks: vec![NodeClock::TRUE; 3],
        pace,
        options: manager::ManagerOptions::default(),
    };
    let world = SimulationWorld {
        latecomers: Vec::new(),
        clocks: vec![NodeClock::TRUE; topology.nodes().len()],
        delays: vec![vec![Delay { base_ns: 50_000, jitter_ns: 20_000 }]],
        clients: Vec::new(),
        // A megabyte takes some ten milliseconds, and the whole transaction much longer than a lease.
        cpu: Cpu::MEASURED.with_bytes().with_keys().slower(10),
        persistence_ns: 0,
        disks: None,
        is_judged: false,
        managers: Some(managers),
    };
    let (procedures, streams) = (Arc::new(Procedures::new()), shoal_log::StreamOptions::default());
    let setup = Setup { topology, procedures, streams, options };
    let mut simulation = Simulation::<E>::new(&setup, world, 1);
    assert_eq!(simulation.run_while_not(PATIENCE, Simulation::is_led), Ok(true));
    let epoch = |simulation: &Simulation<E>| simulation.configuration().expect("managed").epoch.0;
    let before = epoch(&simulation);
    let place = WorkerPlace { node: simulation.leader(ShardId(0)), worker: WorkerId(0) };
    let (local, done) = (simulation.local(place), Rc::new(RefCell::new(None)));
    let outcome = Rc::clone(&done);
    simulation.spawn(
        place,
        Box::pin(async move {
            let ended = local
                .transact(async |tx: &shoal_engine::CoordinatorTransaction| fill(tx, size).await)
                .await;
            *outcome.borrow_mut() = Some(ended);
        }),
    );
    let end = simulation.run_while_not(PATIENCE, |_| done.borrow().is_some());
    assert_eq!(end, Ok(true), "it never ends");
    let ended = done.borrow_mut().take().expect("it has ended");
    // Now the followers have it in their stores.
    simulation.run_until(Time(simulation.now().0 + 5_000_000_000)).expect("no rule is judged");
    let epochs = epoch(&simulation) - before;
    Cost { ended, epochs, step_keys_most: simulation.step_keys_most() }
}

async fn fill(tx: &shoal_engine::CoordinatorTransaction<'_>, size: Size) -> Result<()> {
    let value = vec![1; size.value_bytes];
    for number in 0..size.keys {
        tx.put(TableId(0), &(number as u32).to_be_bytes(), &value)?;
        if number % 4096 == 0 {
            // A read lets other transactions of the worker run.
            tx.get(TableId(0), &(number as u32).to_be_bytes()).await?;
        }
    }
    match size.gives_up {
        true => Err(Error::reject("it has written enough")),
        false => Ok(()),
    }
}

/// The most keys that one step may lock, install and roll back: each kind for one transaction.
fn step_keys_max<E: Subject>(options: &mut E::Options, part_writes_max: usize) -> u64 {
    3 * E::limits(options).step_keys_max.max(part_writes_max) as u64
}

/// The transaction costs no lease, and no step handles too many keys.
fn passes<E: Subject>(shards: u32, size: Size)
where
    E::Options: Default,
{
    let mut options = E::Options::default();
    let max = step_keys_max::<E>(&mut options, PART_WRITES_MAX);
    let Cost { ended, epochs, step_keys_most } = cost::<E>(options, shards, size);
    assert_eq!(ended.is_ok(), !size.gives_up, "{size:?} on {shards} shards: {ended:?}");
    assert_eq!(epochs, 0, "{size:?} on {shards} shards cost a lease");
    assert!(step_keys_most <= max, "a step handled {step_keys_most} keys, and {max} are allowed");
}

fn all_pass<E: Subject>()
where
    E::Options: Default,
{
    passes::<E>(1, LONG_VALUES);
    passes::<E>(1, MANY_KEYS);
    passes::<E>(2, MANY_KEYS);
    passes::<E>(1, Size { gives_up: true, ..MANY_KEYS });
}

#[test]
fn the_largest_transactions_of_mako_cost_no_lease() {
    all_pass::<Mako>();
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn the_largest_transactions_of_two_phase_commit_cost_no_lease() {
    all_pass::<TwoPhaseCommit>();
}

/// Locks, installs and rolls back without a bound.
fn costs_a_lease_without_a_bound_on_keys<E: Subject>()
where
    E::Options: Default,
{
    let mut options = E::Options::default();
    E::limits(&mut options).step_keys_max = usize::MAX / 32;
    assert!(cost::<E>(options, 1, MANY_KEYS).epochs > 0, "nothing is slow");
}

#[test]
fn a_step_of_mako_without_a_bound_on_keys_costs_a_lease() {
    costs_a_lease_without_a_bound_on_keys::<Mako>();
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_step_of_two_phase_commit_without_a_bound_on_keys_costs_a_lease() {
    costs_a_lease_without_a_bound_on_keys::<TwoPhaseCommit>();
}

#[test]
fn a_step_without_a_bound_on_bytes_costs_a_lease() {
    let all = usize::MAX / 2;
    let options = shoal_mako::MakoOptions {
        part_bytes_max: all,
        part_writes_max: all,
        replay_bytes_max: all,
        ..shoal_mako::MakoOptions::default()
    };
    assert!(cost::<Mako>(options, 1, LONG_VALUES).epochs > 0, "nothing is slow");
}
