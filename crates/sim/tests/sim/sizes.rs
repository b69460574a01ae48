//! Where bytes have a price, a step that handles too many of them costs a node its lease.

use consensus::manager::{self, Pace};
use consensus::topology::{Partitioning, Topology};
use engines::engine::Setup;
use engines::mako::{self, Mako};
use engines::{Place, Procedures};
use shoal_sim::clock::NodeClock;
use shoal_sim::cpu::Cpu;
use shoal_sim::managers::Managed;
use shoal_sim::network::Delay;
use shoal_sim::simulation::{Simulation, World};
use shoal_sim::subject::Subject;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::limits::{TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX};
use types::{Database, ShardId, TableId, Time, Transaction, WorkerId};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the largest transaction of the longest values on three replicas with slow processors. Says how many epochs have
/// begun until it is durable and replayed.
fn epochs_begun(options: mako::Options) -> u32 {
    let tables = [("t".to_owned(), Partitioning::Hash { prefix_bytes: 0 })];
    let topology = Topology::compact(1, 1, 3, 0, 1)
        .with_tables(tables.into_iter().chain(Mako::tables(1)).collect::<Vec<_>>())
        .expect("a topology");
    let topology = Arc::new(topology);
    let pace = Pace::steady(Duration::from_millis(1));
    let managers = Managed {
        datacenters: vec![0; 3],
        clocks: vec![NodeClock::TRUE; 3],
        pace,
        options: manager::Options::default(),
    };
    let world = World {
        clocks: vec![NodeClock::TRUE; topology.nodes().len()],
        delays: vec![vec![Delay { base_ns: 50_000, jitter_ns: 20_000 }]],
        clients: Vec::new(),
        // A megabyte takes some ten milliseconds, and all of the transaction much more than a lease.
        cpu: Cpu::MEASURED.with_bytes().slower(10),
        persistence_ns: 0,
        rules: None,
        managers: Some(managers),
    };
    let (procedures, streams) =
        (Arc::new(Procedures::new()), consensus::stream::Options::default());
    let setup = Setup { topology, procedures, streams, options };
    let mut simulation = Simulation::<Mako>::new(&setup, world, 1);
    assert_eq!(simulation.run_while_not(PATIENCE, Simulation::is_led), Ok(true));
    let epoch =
        |simulation: &Simulation<Mako>| simulation.configuration().expect("managed").epoch.0;
    let before = epoch(&simulation);
    let place = Place { node: simulation.leader(ShardId(0)), worker: WorkerId(0) };
    let (local, done) = (simulation.local(place), Rc::new(Cell::new(None)));
    let outcome = Rc::clone(&done);
    simulation.spawn(
        place,
        Box::pin(async move {
            let value = vec![1; VALUE_BYTES_MAX];
            let keys = (TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX - 1) as u8;
            let put = async |tx: &engines::Transaction| {
                (0..keys).try_for_each(|key| tx.put(TableId(0), &[key], &value))
            };
            outcome.set(Some(local.transact(put).await.is_ok()));
        }),
    );
    let end = simulation.run_while_not(PATIENCE, |_| done.get().is_some());
    assert_eq!(end, Ok(true), "it never ends");
    // Followers have it in their stores.
    simulation.run_until(Time(simulation.now().0 + 5_000_000_000)).expect("no rule is judged");
    epoch(&simulation) - before
}

#[test]
fn the_largest_transaction_costs_no_lease_where_bytes_have_a_price() {
    assert_eq!(epochs_begun(mako::Options::default()), 0);
}

#[test]
fn a_step_without_a_bound_costs_a_lease() {
    let all = usize::MAX / 2;
    let options = mako::Options {
        part_bytes_max: all,
        part_writes_max: all,
        replay_bytes_max: all,
        ..mako::Options::default()
    };
    assert!(epochs_begun(options) > 0, "nothing is slow");
}
