//! Real threads on few keys: what they saw must be strictly serializable. Each check is also run
//! against a database with a planted bug, which it must catch.
//!
//! Between its operations every transaction offers its core to others, so that they interleave on
//! however few cores. What a body sees before it commits may be inconsistent; only what committed
//! transactions return is judged.

mod bank;
mod history;
mod nervous;
mod ranges;
mod skew;

use shoal::{Db, Options};
use shoal_store::{StoreBug, StoreBugs};
use shoal_types::Random;
use std::sync::Barrier;
use std::thread;

/// Enough that on two cores some are always interrupted in the middle.
const THREADS: u64 = 3;

fn db(faults: StoreBugs) -> Db {
    Db::with_options(Options { faults, ..Options::default() })
}

/// Runs `work` on all threads at once, each with a random source of its own; the sum of what they
/// count.
fn on_threads(seed: u64, work: impl Fn(u64, &mut Random) -> u64 + Sync) -> u64 {
    let root = Random::new(seed);
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (mut random, work, start) = (root.fork(number), &work, &start);
                scope.spawn(move || {
                    start.wait();
                    work(number, &mut random)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// The planted bug shows: some run counts a violation. One run nearly always does; which threads the
/// system runs when is not in our hands.
#[track_caller]
fn catches(fault: StoreBug, violations: impl Fn(StoreBugs, u64) -> u64) {
    let caught = (0..50).any(|seed| violations(StoreBugs::only(fault), seed) > 0);
    assert!(caught, "{fault:?} went unnoticed");
}

#[track_caller]
fn holds(violations: impl Fn(StoreBugs, u64) -> u64) {
    assert_eq!(violations(StoreBugs::NONE, 1), 0);
}
