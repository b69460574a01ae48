//! Executions whose verdict is known, for the tests of the checker.

use shoal_types::Random;
use shoal_workloads::history::{Attempt, Operation, Outcome, Seen};
use std::collections::BTreeMap;

/// Time between two transactions' taking effect.
pub const SPACING_NS: u64 = 100;

/// A random serial execution.
pub struct Shape {
    pub transactions: u64,
    /// Lists, and as many registers, of one generation of keys.
    pub keys: u64,
    /// Transactions on one generation.
    pub generation: u64,
    /// How far a transaction's call and answer may lie from the instant it takes effect.
    pub reach_ns: u64,
    /// Of a hundred transactions, how many abort, and how many end in an unknown outcome.
    pub aborted_percent: u64,
    pub unknown_percent: u64,
}

pub const OVERLAPPING: Shape = Shape {
    transactions: 120,
    keys: 3,
    generation: 40,
    reach_ns: 5 * SPACING_NS,
    aborted_percent: 10,
    unknown_percent: 10,
};

#[derive(Default)]
struct State {
    lists: BTreeMap<String, Vec<u64>>,
    registers: BTreeMap<String, u64>,
}

pub fn serial_execution(shape: &Shape, seed: u64) -> Vec<Attempt> {
    let mut random = Random::new(seed);
    let mut state = State::default();
    let mut next_value = 0;
    let mut attempts = Vec::new();
    for number in 0..shape.transactions {
        if number % shape.generation == 0 {
            state = State::default();
        }
        let luck = random.below(100);
        let aborted = luck < shape.aborted_percent;
        let unknown = !aborted && luck < shape.aborted_percent + shape.unknown_percent;
        let undo = aborted || (unknown && random.below(2) == 0);
        let before = undo.then(|| (state.lists.clone(), state.registers.clone()));
        let operations = (0..1 + random.below(4))
            .map(|_| operate(&mut state, &mut random, &mut next_value, shape, number))
            .collect();
        if let Some((lists, registers)) = before {
            state = State { lists, registers };
        }
        let instant = (number + 10) * SPACING_NS;
        attempts.push(Attempt {
            client: random.below(8),
            start_ns: instant - random.below(shape.reach_ns + 1),
            end_ns: (!unknown).then(|| instant + random.below(shape.reach_ns + 1)),
            outcome: match (aborted, unknown) {
                (true, _) => Outcome::Aborted,
                (false, true) => Outcome::Unknown,
                (false, false) => Outcome::Ok,
            },
            operations,
        });
    }
    attempts
}

fn operate(
    state: &mut State,
    random: &mut Random,
    next_value: &mut u64,
    shape: &Shape,
    number: u64,
) -> Operation {
    let key = format!("{}-{}", number / shape.generation, random.below(shape.keys));
    *next_value += 1;
    match random.below(4) {
        0 => {
            state.lists.entry(format!("l{key}")).or_default().push(*next_value);
            Operation::Append(format!("l{key}"), *next_value)
        }
        1 => {
            state.registers.insert(format!("r{key}"), *next_value);
            Operation::Write(format!("r{key}"), *next_value)
        }
        2 => {
            let key = format!("l{key}");
            let seen = state.lists.get(&key).cloned().map_or(Seen::Absent, Seen::List);
            Operation::Read(key, seen)
        }
        _ => {
            let key = format!("r{key}");
            let seen = state.registers.get(&key).map_or(Seen::Absent, |value| Seen::Value(*value));
            Operation::Read(key, seen)
        }
    }
}

/// Makes one read of a committed transaction return what it might have returned earlier.
pub fn age_a_read(attempts: &mut [Attempt], random: &mut Random) -> bool {
    let mut written: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut reads = Vec::new();
    for (number, attempt) in attempts.iter().enumerate().filter(|(_, a)| a.outcome == Outcome::Ok) {
        for (place, operation) in attempt.operations.iter().enumerate() {
            match operation {
                Operation::Write(key, value) => {
                    written.entry(key.clone()).or_default().push(*value);
                }
                Operation::Read(key, Seen::Value(value)) => {
                    let older = written.get(key).into_iter().flatten().copied();
                    let older = older.take_while(|v| v != value).map(Seen::Value);
                    let choices: Vec<Seen> = older.chain([Seen::Absent]).collect();
                    let choice = random.below(choices.len() as u64) as usize;
                    reads.push((number, place, key.clone(), choices[choice].clone()));
                }
                Operation::Read(key, Seen::List(elements)) if !elements.is_empty() => {
                    let length = random.below(elements.len() as u64) as usize;
                    let older = Seen::List(elements[..length].to_vec());
                    reads.push((number, place, key.clone(), older));
                }
                Operation::Append(..) | Operation::Read(..) => {}
            }
        }
    }
    if reads.is_empty() {
        return false;
    }
    let chosen = random.below(reads.len() as u64) as usize;
    let (number, place, key, seen) = reads.swap_remove(chosen);
    attempts[number].operations[place] = Operation::Read(key, seen);
    true
}
