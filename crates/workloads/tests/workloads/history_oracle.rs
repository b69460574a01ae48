//! The checker against the definition: for tiny histories, all orders of the transactions are
//! tried. Where one explains the history the checker must not find an anomaly; where none does it must
//! not find the history consistent; and it must hardly ever leave one undecided.

use crate::history_common::{OVERLAPPING, Shape, age_a_read, serial_execution};
use shoal_types::Random;
use shoal_workloads::history::{
    Attempt, Bounds, History, Operation, Outcome, Seen, Verdict, check, check_within,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the keys hold; a register is a list of one.
type State<'h> = BTreeMap<&'h str, Vec<u64>>;

/// Whether the transactions in `rest` can follow one another from this state, in an order that
/// explains every read and keeps to real time. Unknown ones may be left out.
fn explainable<'h>(state: &State<'h>, rest: &[&'h Attempt]) -> bool {
    if rest.iter().all(|attempt| attempt.outcome == Outcome::Unknown) {
        return true;
    }
    (0..rest.len()).any(|first| {
        let mut others = rest.to_vec();
        let attempt = others.remove(first);
        let in_time =
            others.iter().all(|other| other.end_ns.is_none_or(|end| end >= attempt.start_ns));
        in_time && run(state, attempt).is_some_and(|state| explainable(&state, &others))
    })
}

/// The state after the transaction, if its reads fit.
fn run<'h>(state: &State<'h>, attempt: &'h Attempt) -> Option<State<'h>> {
    let mut state = state.clone();
    for operation in &attempt.operations {
        match operation {
            Operation::Append(key, value) => state.entry(key).or_default().push(*value),
            Operation::Write(key, value) => drop(state.insert(key, vec![*value])),
            Operation::Read(key, seen) => {
                let held = state.get(key.as_str()).map_or(&[][..], Vec::as_slice);
                let fits = match seen {
                    Seen::Absent => held.is_empty(),
                    Seen::Value(value) => held == [*value],
                    Seen::List(elements) => held == elements,
                };
                if !fits {
                    return None;
                }
            }
        }
    }
    Some(state)
}

/// Gives a read what another read of the same key saw.
fn swap_two_reads(attempts: &mut [Attempt], random: &mut Random) {
    let mut reads: Vec<(&str, &mut Seen)> = attempts
        .iter_mut()
        .flat_map(|attempt| &mut attempt.operations)
        .filter_map(|operation| match operation {
            Operation::Read(key, seen) => Some((key.as_str(), seen)),
            Operation::Append(..) | Operation::Write(..) => None,
        })
        .collect();
    if reads.len() < 2 {
        return;
    }
    let (one, other) = (random.below(reads.len() as u64), random.below(reads.len() as u64));
    let (one, other) = (one.min(other) as usize, one.max(other) as usize);
    if one == other || reads[one].0 != reads[other].0 {
        return;
    }
    let (left, right) = reads.split_at_mut(other);
    std::mem::swap(left[one].1, right[0].1);
}

/// How often each was the verdict of the definition, and how often the checker left it undecided.
#[derive(Debug, Default)]
struct Tally {
    explained: u32,
    refused: u32,
    undecided: u32,
}

impl Tally {
    fn judge(&mut self, attempts: Vec<Attempt>, seed: u64) {
        let effective =
            attempts.iter().filter(|a| a.outcome != Outcome::Aborted).collect::<Vec<_>>();
        let explained = explainable(&State::new(), &effective);
        let history = History::new(attempts).expect("well formed");
        let report = check(&history);
        let text = || {
            let mut text = Vec::new();
            history.write(&mut text).expect("memory takes everything");
            String::from_utf8(text).expect("JSON is text")
        };
        match (report.verdict, explained) {
            (Verdict::Violated, true) => {
                panic!("seed {seed}: an order exists, but: {report}\n{}", text())
            }
            (Verdict::Consistent, false) => panic!("seed {seed}: no order exists\n{}", text()),
            (Verdict::Undecided, _) => self.undecided += 1,
            (Verdict::Violated, false) | (Verdict::Consistent, true) => {}
        }
        self.explained += u32::from(explained);
        self.refused += u32::from(!explained);
    }

    /// Many of both kinds, hardly any undecided.
    fn assert_fair(&self, of_each: u32) {
        assert!(self.explained > of_each && self.refused > of_each, "{self:?}");
        assert!(self.undecided * 1000 <= self.explained + self.refused, "{self:?}");
    }
}

/// Serial executions, of which up to three reads are changed.
#[test]
fn executions_with_damaged_reads_are_judged_by_the_definition() {
    let mut tally = Tally::default();
    for seed in 0..12_000 {
        let mut random = Random::new(!seed);
        let shape = Shape {
            transactions: 2 + random.below(5),
            keys: 1 + random.below(2),
            reach_ns: random.below(5) * 60,
            ..OVERLAPPING
        };
        let mut attempts = serial_execution(&shape, seed);
        for _ in 0..random.below(4) {
            if random.below(2) == 0 {
                age_a_read(&mut attempts, &mut random);
            } else {
                swap_two_reads(&mut attempts, &mut random);
            }
        }
        tally.judge(attempts, seed);
    }
    tally.assert_fair(2000);
}

/// What the keys of a random history are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Registers,
    Lists,
    Mixed,
}

/// Transactions whose reads return anything that was ever written, or nothing.
fn arbitrary(keys: Keys, random: &mut Random) -> Vec<Attempt> {
    let transactions = 2 + random.below(5);
    let places = 1 + random.below(3);
    // Half of the histories have no order in time at all.
    let span = [1, 8][random.below(2) as usize];
    let mut written: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut attempts: Vec<Attempt> = Vec::new();
    for number in 0..transactions {
        let mut operations = Vec::new();
        for operation in 0..1 + random.below(3) {
            let key = random.below(places);
            let is_list = match keys {
                Keys::Registers => false,
                Keys::Lists => true,
                Keys::Mixed => key == 0,
            };
            let key = format!("{}{key}", if is_list { 'l' } else { 'r' });
            let value = 10 * number + operation;
            let writes = random.below(2) == 0;
            operations.push(match (writes, is_list) {
                (true, true) => Operation::Append(key.clone(), value),
                (true, false) => Operation::Write(key.clone(), value),
                (false, _) => Operation::Read(key.clone(), Seen::Absent),
            });
            if writes {
                written.entry(key).or_default().push(value);
            }
        }
        let start_ns = random.below(span);
        let outcome = match random.below(10) {
            0 => Outcome::Aborted,
            1 => Outcome::Unknown,
            _ => Outcome::Ok,
        };
        let end_ns = (outcome != Outcome::Unknown).then(|| start_ns + random.below(span));
        attempts.push(Attempt { client: number, start_ns, end_ns, outcome, operations });
    }
    // All elements of a list in one order, of which reads mostly show the first few.
    written.values_mut().for_each(|values| random.shuffle(values));
    for attempt in &mut attempts {
        let mut own = BTreeMap::new();
        for operation in &mut attempt.operations {
            match operation {
                Operation::Write(key, value) => drop(own.insert(key.clone(), *value)),
                Operation::Append(..) => {}
                Operation::Read(key, seen) => {
                    *seen = see(key, own.get(key.as_str()).copied(), &written, random);
                }
            }
        }
    }
    attempts
}

fn see(
    key: &str,
    own: Option<u64>,
    written: &BTreeMap<String, Vec<u64>>,
    random: &mut Random,
) -> Seen {
    let values = written.get(key).map_or(&[][..], Vec::as_slice);
    let some = random.below(values.len() as u64 + 1) as usize;
    match (key.starts_with('l'), own) {
        (true, _) if some == 0 => Seen::Absent,
        (true, _) => {
            let mut elements = values[..some].to_vec();
            if random.below(12) == 0 {
                random.shuffle(&mut elements);
            }
            Seen::List(elements)
        }
        (false, Some(own)) => Seen::Value(own),
        (false, None) => values.get(some).map_or(Seen::Absent, |value| Seen::Value(*value)),
    }
}

#[test]
fn arbitrary_histories_are_judged_by_the_definition() {
    for keys in [Keys::Registers, Keys::Lists, Keys::Mixed] {
        let mut tally = Tally::default();
        for seed in 0..8000 {
            tally.judge(arbitrary(keys, &mut Random::new(seed)), seed);
        }
        tally.assert_fair(500);
    }
}

/// Registers that are written twice each, blindly, and transactions that read versions of several.
fn entangled(random: &mut Random) -> Vec<Attempt> {
    let keys = 2 + random.below(3);
    let transactions = 3 + random.below(4) as usize;
    let mut operations: Vec<Vec<Operation>> = vec![Vec::new(); transactions];
    let mut touched: BTreeSet<(usize, u64)> = BTreeSet::new();
    for key in 0..keys {
        let mut writers: Vec<usize> = (0..transactions).collect();
        random.shuffle(&mut writers);
        for version in 0..2 {
            let writer = writers[version as usize];
            touched.insert((writer, key));
            operations[writer].push(Operation::Write(format!("r{key}"), version));
        }
    }
    for _ in 0..keys + random.below(2 * keys) {
        let (reader, key) = (random.below(transactions as u64) as usize, random.below(keys));
        if touched.insert((reader, key)) {
            let seen = Seen::Value(random.below(2));
            operations[reader].push(Operation::Read(format!("r{key}"), seen));
        }
    }
    let attempt = |operations| Attempt {
        client: 0,
        start_ns: 0,
        end_ns: Some(1),
        outcome: Outcome::Ok,
        operations,
    };
    operations.into_iter().map(attempt).collect()
}

#[test]
fn entangled_histories_are_judged_by_the_definition() {
    let mut tally = Tally::default();
    for seed in 0..6000 {
        tally.judge(entangled(&mut Random::new(seed)), seed);
    }
    tally.assert_fair(1000);
}

/// A search that gives up reports only that.
#[test]
fn without_time_to_search_a_history_is_undecided_or_judged_the_same() {
    const NONE: Bounds = Bounds { search_steps: 0, pruning_steps: 0 };
    let mut undecided = BTreeSet::new();
    for seed in 0..4000 {
        let attempts = arbitrary(Keys::Registers, &mut Random::new(seed));
        let history = History::new(attempts).expect("well formed");
        let (hasty, thorough) = (check_within(&history, NONE), check(&history));
        if hasty.verdict == Verdict::Undecided {
            undecided.insert(thorough.verdict as u8);
            assert!(!hasty.is_clean() && hasty.to_string().contains("UNDECIDED"), "{hasty}");
        } else {
            assert_eq!(hasty.verdict, thorough.verdict, "seed {seed}");
        }
    }
    let both = BTreeSet::from([Verdict::Consistent as u8, Verdict::Violated as u8]);
    assert_eq!(undecided, both, "the bound was never reached");
}
