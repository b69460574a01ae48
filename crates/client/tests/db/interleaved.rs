//! Several interactive transactions open at once on one thread, stepped in an order drawn from a
//! seed. The committed ones must be a serial execution in the order of their commits: replayed in
//! that order on ordered maps, every operation answers what it answered here.

use crate::model::{Model, Op, Outcome, Range, Subject, TABLES, draw};
use futures_executor::block_on;
use shoal_client::{Aborted, Db, Error, Options, TableId, Transaction};
use shoal_store::{StoreBug, StoreBugs};
use shoal_types::Random;

/// What a run is drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Contention {
    /// Transactions open at once.
    pub open: usize,
    /// Keys a table has; fewer mean more conflicts.
    pub keys: u8,
    /// Steps until the run ends.
    pub steps: usize,
}

/// Operations of one transaction with their answers.
pub type Log = Vec<(Op, Outcome)>;

/// Replays a committed transaction, and reports the first answer that differs.
pub fn replay(model: &mut Model, log: &Log) -> Result<(), String> {
    for (op, outcome) in log {
        let expected = model.apply(op);
        if *outcome != expected {
            return Err(format!("{op:?} answered {outcome:?}, in order it is {expected:?}"));
        }
    }
    Ok(())
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Tally {
    pub committed: u32,
    pub aborted: u32,
}

/// One run. An error is a deviation from the serial execution.
fn run(seed: u64, contention: Contention, faults: StoreBugs) -> Result<Tally, String> {
    let db = Db::with_options(Options { faults, ..Options::default() });
    let tables: Vec<TableId> =
        (0..TABLES).map(|number| db.table(&format!("t{number}")).unwrap()).collect();
    let mut random = Random::new(seed);
    let (mut model, mut tally) = (Model::default(), Tally::default());
    let mut open: Vec<(Transaction<'static>, Log)> = Vec::new();
    for _ in 0..contention.steps {
        if open.len() < contention.open && random.chance(1, 3) {
            open.push((db.begin().expect("room for it"), Log::new()));
        }
        if open.is_empty() {
            continue;
        }
        let at = random.below(open.len() as u64) as usize;
        if random.chance(1, 8) {
            let (tx, log) = open.swap_remove(at);
            end(tx, &log, &mut random, &mut model, &mut tally)?;
        } else {
            let (tx, log) = &mut open[at];
            let op = draw(&mut random, contention.keys);
            let outcome = tx.apply(&tables, &op).map_err(|error| format!("{op:?}: {error}"))?;
            log.push((op, outcome));
        }
    }
    drop(open);
    let tx = db.begin().expect("room for it");
    for table in 0..TABLES {
        let all = Op::Scan { table, range: Range::All, reverse: false, limit: None };
        let outcome = tx.apply(&tables, &all).expect("within limits");
        replay(&mut model, &vec![(all, outcome)])?;
    }
    Ok(tally)
}

fn end(
    tx: Transaction<'_>,
    log: &Log,
    random: &mut Random,
    model: &mut Model,
    tally: &mut Tally,
) -> Result<(), String> {
    if random.chance(1, 10) {
        tx.rollback();
        return Ok(());
    }
    match block_on(tx.commit()) {
        Ok(()) => {
            tally.committed += 1;
            replay(model, log)
        }
        Err(Error::Aborted(Aborted::Conflict(_))) => {
            tally.aborted += 1;
            Ok(())
        }
        Err(other) => Err(format!("a commit answered {other}")),
    }
}

const HOT: Contention = Contention { open: 4, keys: 3, steps: 600 };
const WARM: Contention = Contention { open: 8, keys: 24, steps: 1200 };
/// More keys than a leaf holds.
const WIDE: Contention = Contention { open: 6, keys: 200, steps: 2500 };

#[test]
fn committed_transactions_are_serial_in_commit_order() {
    let mut total = Tally::default();
    for seed in 0..150 {
        for contention in [HOT, WARM, WIDE] {
            let tally = run(seed, contention, StoreBugs::NONE)
                .unwrap_or_else(|deviation| panic!("seed {seed}, {contention:?}: {deviation}"));
            total.committed += tally.committed;
            total.aborted += tally.aborted;
        }
    }
    // A test in which nearly all or nearly none commit shows little.
    assert!(total.committed > 10_000 && total.aborted > 5_000, "{total:?}");
}

/// Runs with a planted bug, and how many of them must show it at least.
const RUNS: u64 = 20;
const RUNS_MIN: usize = 10;

fn caught(fault: StoreBug) -> usize {
    (0..RUNS).filter(|seed| run(*seed, HOT, StoreBugs::only(fault)).is_err()).count()
}

#[test]
fn skipping_the_read_set_is_caught() {
    assert!(caught(StoreBug::SkipReadSet) >= RUNS_MIN);
}

#[test]
fn skipping_the_node_set_is_caught() {
    assert!(caught(StoreBug::SkipNodeSet) >= RUNS_MIN);
}
