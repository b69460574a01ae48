//! A transaction that touches only shards of its own node takes no memory from the allocator: its parts are used again.
//!
//! What a step, and an entry of the log, allocates is shared by the transactions in it. So leaders are measured whose steps
//! let in few transactions and many: what the second allocates more, it allocates for the transactions.

use allocation_counter::measure;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::Setup;
use shoal_engine::execution::CoordinatorTransaction;
use shoal_engine::{Engine, Procedures};
use shoal_mako::{Mako, MakoOptions};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_types::{Database, NodeId, Time, Transaction, WorkerId};
use std::sync::Arc;

/// What a step lets in, of the two leaders that are compared. An entry has as many transactions.
const FEW: usize = 16;
const MANY: usize = 64;

/// What an entry, which grows as it is filled, allocates more for the transactions between [`FEW`] and [`MANY`].
const GROWTH_MAX: u64 = 6;

/// A leader without followers, whose clients run transactions without a pause.
struct Leader {
    worker: Worker<Mako>,
    effects: WorkerEffects<<Mako as Engine>::Message, <Mako as Engine>::Observation>,
    now: Time,
}

impl Leader {
    /// A leader with twice as many clients as a step lets in: the others wait for room. Each reads a row of its own, and
    /// writes it.
    fn new(begins_max: usize) -> Leader {
        let tables = [("t", Partitioning::Hash { prefix_bytes: 0 })];
        let topology = Topology::symmetric(1, 1, 1, 0, 1).with_tables(tables).expect("valid");
        let mut options = MakoOptions::default();
        options.limits.begins_max = begins_max;
        let setup = Setup {
            topology: Arc::new(topology),
            procedures: Arc::new(Procedures::new()),
            streams: shoal_log::StreamOptions::default(),
            options,
        };
        let shared = Mako::share(&setup, NodeId(0));
        let origin = WorkerOrigin::fixed(&setup.topology, 1);
        let mut worker = Worker::<Mako>::new(WorkerId(0), NodeId(0), &setup, shared, origin);
        for client in 0..2 * begins_max as u64 {
            let db = worker.engine().local();
            worker.engine_mut().spawn(Box::pin(async move {
                let table = db.table("t").expect("a table");
                let key = client.to_be_bytes();
                loop {
                    let count = async |tx: &CoordinatorTransaction| {
                        let before = tx.get(table, &key).await?.map_or(0, |row| row[0]);
                        tx.put(table, &key, &[before.wrapping_add(1); 100])
                    };
                    db.transact(count).await.expect("no other transaction writes the row");
                }
            }));
        }
        let mut leader = Leader { worker, effects: WorkerEffects::new(), now: Time(1000) };
        leader.step(WorkerEvent::Start);
        leader.step(WorkerEvent::Nudged);
        leader
    }

    /// Handles an event, and goes on at the time that the worker asks for.
    fn step(&mut self, event: WorkerEvent<<Mako as Engine>::Message>) {
        self.worker.step(self.now, event, &mut self.effects);
        let mut next = None::<Time>;
        for effect in self.effects.effects.drain(..) {
            if let WorkerEffect::Timer { at } = effect {
                next = Some(next.map_or(at, |before| before.min(at)));
            }
        }
        self.now = next.unwrap_or(self.now).max(self.now);
    }

    fn counted(&self) -> (u64, u64) {
        let counters = self.worker.engine().counters().runtime;
        (counters.committed, counters.batches)
    }

    /// Runs so many steps.
    fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step(WorkerEvent::Timer));
    }

    /// The transactions, the entries and the allocations of some steps.
    fn measured(begins_max: usize) -> [u64; 3] {
        let mut leader = Leader::new(begins_max);
        leader.run(2000);
        let before = leader.counted();
        let allocated = measure(|| leader.run(1000)).count_total;
        let after = leader.counted();
        [after.0 - before.0, after.1 - before.1, allocated]
    }
}

#[test]
fn a_local_transaction_allocates_nothing() {
    let [few, few_entries, few_allocations] = Leader::measured(FEW);
    let [many, many_entries, many_allocations] = Leader::measured(MANY);
    println!("{few} {few_entries} {few_allocations}; {many} {many_entries} {many_allocations}");
    assert_eq!(many_entries, few_entries, "as many entries");
    assert_eq!(many * FEW as u64, few * MANY as u64, "with more transactions");
    let more = many_allocations - few_allocations;
    assert!(
        more <= few_entries * GROWTH_MAX,
        "{more} allocations for {} transactions more in as many entries",
        many - few
    );
}
