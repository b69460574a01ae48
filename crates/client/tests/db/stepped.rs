//! The steps of a commit interleaved by hand, on the store itself: transactions lock and draw their
//! clock, validate, and install at different times, and others read, lock and validate in between,
//! all on one thread in an order drawn from a seed. The committed ones must be a serial execution in
//! the order of their clocks; one that wrote nothing stands where it was validated.

use crate::interleaved::{Log, Tally, replay};
use crate::model::{Model, Subject, TABLES, draw};
use shoal_client::TableId;
use shoal_store::{Locked, Options, Session, Store, StoreBug, StoreBugs, Transaction};
use shoal_types::{Clock, Epoch, Random, StampRef};
use std::sync::Arc;

/// Transactions in flight.
const OPEN: usize = 4;
/// Keys of a table.
const KEYS: u8 = 3;
const STEPS: usize = 800;

/// How far a transaction is.
enum Stage {
    Running(Transaction<Box<Session>>),
    Locked(Locked<Box<Session>>, Clock),
    /// Validated, hence decided, but not installed.
    Validated(Locked<Box<Session>>, Clock),
}

/// What became of a transaction that was moved on.
enum Next {
    Goes(Stage),
    Committed(Clock),
    Aborted,
}

/// Moves a transaction on by one step of its end.
fn step(stage: Stage, now: Clock) -> Next {
    match stage {
        Stage::Running(tx) if tx.is_read_only() => match tx.commit() {
            Ok(()) => Next::Committed(now),
            Err(_) => Next::Aborted,
        },
        Stage::Running(tx) => match tx.lock() {
            Ok(locked) => {
                let clock = locked.draw_clock();
                Next::Goes(Stage::Locked(locked, clock))
            }
            Err(_) => Next::Aborted,
        },
        Stage::Locked(locked, clock) => match locked.validate() {
            Ok(()) => Next::Goes(Stage::Validated(locked, clock)),
            Err(_) => Next::Aborted,
        },
        Stage::Validated(locked, clock) => {
            locked.install(StampRef { epoch: Epoch(0), clock, remote: &[] }, |_| true);
            Next::Committed(clock)
        }
    }
}

/// One run. An error is a deviation from the serial execution.
fn run(seed: u64, faults: StoreBugs) -> Result<Tally, String> {
    let store = Arc::new(Store::new(Options { faults, ..Options::default() }));
    let tables: Vec<TableId> =
        (0..TABLES).map(|number| store.table(&format!("t{number}")).unwrap()).collect();
    let mut random = Random::new(seed);
    let mut open: Vec<(Stage, Log)> = Vec::new();
    let mut committed: Vec<(Clock, usize, Log)> = Vec::new();
    let mut aborted = 0;
    for _ in 0..STEPS {
        if open.len() < OPEN && random.chance(1, 2) {
            let session = Box::new(store.session().expect("room for it"));
            open.push((Stage::Running(Transaction::on(session)), Log::new()));
        }
        if open.is_empty() {
            continue;
        }
        let (stage, mut log) = open.swap_remove(random.below(open.len() as u64) as usize);
        if let Stage::Running(tx) = &stage
            && !random.chance(1, 4)
        {
            let op = draw(&mut random, KEYS);
            let outcome = tx.apply(&tables, &op).map_err(|error| format!("{op:?}: {error}"))?;
            log.push((op, outcome));
            open.push((stage, log));
            continue;
        }
        match step(stage, store.clock()) {
            Next::Goes(stage) => open.push((stage, log)),
            Next::Committed(clock) => committed.push((clock, committed.len(), log)),
            Next::Aborted => aborted += 1,
        }
    }
    // What only read stands behind all clocks drawn by then, in the order of its validation.
    committed.sort_by_key(|(clock, place, _)| (*clock, *place));
    let mut model = Model::default();
    for (clock, _, log) in &committed {
        replay(&mut model, log).map_err(|deviation| format!("at clock {clock}: {deviation}"))?;
    }
    Ok(Tally { committed: committed.len() as u32, aborted })
}

#[test]
fn commits_in_steps_are_serial_in_clock_order() {
    let mut total = Tally::default();
    for seed in 0..300 {
        let tally = run(seed, StoreBugs::NONE)
            .unwrap_or_else(|deviation| panic!("seed {seed}: {deviation}"));
        total.committed += tally.committed;
        total.aborted += tally.aborted;
    }
    assert!(total.committed > 10_000 && total.aborted > 5_000, "{total:?}");
}

/// Runs with a planted bug, and how many of them must show it at least.
const RUNS: u64 = 20;
const RUNS_MIN: usize = 10;

fn caught(fault: StoreBug) -> usize {
    (0..RUNS).filter(|seed| run(*seed, StoreBugs::only(fault)).is_err()).count()
}

#[test]
fn skipping_the_read_set_is_caught() {
    assert!(caught(StoreBug::SkipReadSet) >= RUNS_MIN);
}

#[test]
fn skipping_the_node_set_is_caught() {
    assert!(caught(StoreBug::SkipNodeSet) >= RUNS_MIN);
}

#[test]
fn skipping_the_lock_check_is_caught() {
    assert!(caught(StoreBug::SkipLockCheck) >= RUNS_MIN);
}
