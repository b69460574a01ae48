//! Real threads: the system decides when a transaction stops. Between its steps each offers its core to
//! the others, so that they interleave on however few cores.

use crate::checker::{Committed, judge};
use crate::programs::{Mood, Stepped, World};
use shoal_store::StoreBugs;
use shoal_types::Random;
use std::sync::Barrier;
use std::thread;

const THREADS: u64 = 3;
/// Transactions of each thread in a round, which is judged by itself.
const TRANSACTIONS: usize = 60;
const ROUNDS: u64 = 60;

fn work(world: &World, random: &mut Random) -> Vec<Committed> {
    let mut committed = Vec::new();
    for at in 0..TRANSACTIONS {
        let mood = Mood::draw(&mut random.fork(at as u64 / 20));
        let mut running = world.begin(mood.program(world, random));
        loop {
            if random.chance(1, 3) {
                thread::yield_now();
            }
            match world.step(running) {
                Stepped::On(next) => running = next,
                Stepped::Committed(done) => {
                    committed.push(done);
                    break;
                }
                Stepped::Aborted => break,
            }
        }
        if random.chance(1, 10) {
            world.settle();
        }
    }
    committed
}

#[test]
fn histories_of_threads_are_strictly_serializable() {
    let world = World::new(StoreBugs::NONE);
    let mut before = world.state();
    for round in 0..ROUNDS {
        let (root, start) = (Random::new(round), Barrier::new(THREADS as usize));
        let committed: Vec<Committed> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let (mut random, world, start) = (root.fork(number), &world, &start);
                    scope.spawn(move || {
                        start.wait();
                        work(world, &mut random)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(!committed.is_empty(), "round {round}: nothing was committed");
        let after = world.state();
        if let Err(violation) = judge(&committed, &before, &after) {
            panic!("round {round}: {violation:#?}");
        }
        before = after;
    }
}
