//! Lists and registers, judged by the checker of strict serializability.

use crate::nervous::Nervous;
use crate::{THREADS, catches, db};
use futures_executor::block_on;
use shoal_store::{StoreBug, StoreBugs};
use shoal_workloads::history::generator::{Generator, Parameters};
use shoal_workloads::history::{History, Report, check};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const TRANSACTIONS: u64 = 1000;

fn run(faults: StoreBugs, seed: u64, parameters: Parameters) -> Report {
    let db = Nervous(db(faults));
    let generator = Generator::new(&db, parameters, THREADS).expect("two tables");
    // A count instead of a clock: all the checker asks for is which ended before which began.
    let ticks = AtomicU64::new(0);
    let start = Barrier::new(THREADS as usize);
    let recorders = thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|number| {
                let (db, ticks, start) = (&db, &ticks, &start);
                let mut client = generator.client(number, seed);
                scope.spawn(move || {
                    let clock = || ticks.fetch_add(1, Ordering::SeqCst);
                    start.wait();
                    for _ in 0..TRANSACTIONS {
                        block_on(client.next(db, &clock)).expect("well-formed transactions");
                    }
                    client.into_recorder()
                })
            })
            .collect();
        let joined = clients.into_iter().map(|client| client.join().expect("no panic"));
        joined.collect::<Vec<_>>()
    });
    check(&History::merge(recorders).expect("well formed"))
}

/// Reads, appends and writes of very few keys.
fn hot() -> Parameters {
    Parameters { lists: 2, registers: 2, operations_max: 5, ..Parameters::default() }
}

/// Scans of keys that are not there yet: fresh ones come every few transactions.
fn wide() -> Parameters {
    Parameters {
        lists: 12,
        registers: 12,
        scans_percent: 30,
        reads_percent: 20,
        generation_transactions: 4,
        ..Parameters::default()
    }
}

#[test]
fn histories_are_strictly_serializable() {
    let mut aborted = 0;
    for (seed, parameters) in [(1, hot()), (2, wide()), (3, Parameters::default())] {
        let report = run(StoreBugs::NONE, seed, parameters);
        assert!(report.is_clean(), "seed {seed}: {report}");
        assert!(report.committed as u64 >= THREADS * TRANSACTIONS, "seed {seed}: {report}");
        aborted += report.aborted;
    }
    assert!(aborted > 30, "too tame: {aborted} aborts");
}

fn anomalies(parameters: Parameters) -> impl Fn(StoreBugs, u64) -> u64 {
    move |faults, seed| run(faults, seed, parameters.clone()).found.values().sum::<usize>() as u64
}

#[test]
fn skipping_the_read_set_is_caught() {
    catches(StoreBug::SkipReadSet, anomalies(hot()));
}

#[test]
fn skipping_the_node_set_is_caught() {
    catches(StoreBug::SkipNodeSet, anomalies(wide()));
}
