//! A seed decides which transaction takes its next step: every interleaving of steps comes up, and again
//! for the same seed. What happens between the steps' own instructions is for `tests/model.rs`.

use crate::checker::{Committed, Violation, judge};
use crate::programs::{Mood, Running, Stepped, World};
use shoal_store::StoreBugs;
use shoal_types::Random;

/// Transactions that run at a time.
const OPEN: usize = 4;
/// Steps of a history.
const STEPS: usize = 1200;

/// Runs the history of a seed and judges it.
fn history(seed: u64, faults: StoreBugs) -> Result<(), Box<Violation>> {
    let mut random = Random::new(seed);
    let world = World::new(faults);
    let mut running: Vec<Option<Running>> = (0..OPEN).map(|_| None).collect();
    let mut committed: Vec<Committed> = Vec::new();
    let mut mood = Mood::draw(&mut random);
    for step in 0..STEPS {
        if step % 100 == 0 {
            mood = Mood::draw(&mut random);
        }
        if random.chance(1, 20) {
            world.settle();
        }
        let at = random.below(OPEN as u64) as usize;
        let now = match running[at].take() {
            Some(now) => now,
            None => world.begin(mood.program(&world, &mut random)),
        };
        match world.step(now) {
            Stepped::On(next) => running[at] = Some(next),
            Stepped::Committed(done) => committed.push(done),
            Stepped::Aborted => {}
        }
    }
    drop(running);
    assert!(committed.len() > STEPS / 100, "seed {seed}: only {} committed", committed.len());
    judge(&committed, &Default::default(), &world.state())
}

#[test]
fn histories_are_strictly_serializable() {
    for seed in 0..400 {
        if let Err(violation) = history(seed, StoreBugs::NONE) {
            panic!("seed {seed}: {violation:#?}");
        }
    }
}

#[cfg(feature = "faults")]
mod planted {
    use super::*;
    use shoal_store::StoreBug;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A bug shows within so many seeds, as a violation or as a broken assertion.
    const SEEDS: u64 = 400;

    #[track_caller]
    fn catches(fault: StoreBug) {
        let run = |seed| {
            catch_unwind(AssertUnwindSafe(|| history(seed, StoreBugs::only(fault)).is_err()))
        };
        let caught = (0..SEEDS).find(|seed| run(*seed).unwrap_or(true));
        assert!(caught.is_some(), "{fault:?} went unnoticed for {SEEDS} seeds");
    }

    #[test]
    fn skip_read_set() {
        catches(StoreBug::SkipReadSet);
    }

    #[test]
    fn skip_node_set() {
        catches(StoreBug::SkipNodeSet);
    }

    #[test]
    fn skip_lock_check() {
        catches(StoreBug::SkipLockCheck);
    }

    #[test]
    fn absent_deletion_unnoted() {
        catches(StoreBug::AbsentDeletionUnnoted);
    }

    #[test]
    fn dead_is_unchanged() {
        catches(StoreBug::DeadIsUnchanged);
    }
}
