//! The checker against the definition: for tiny histories, all orders of the transactions are
//! tried. What the checker calls an anomaly must leave none that works; of those histories that
//! have none, it must catch most.

use crate::history_common::{OVERLAPPING, Shape, age_a_read, serial_execution};
use shoal_workloads::history::{Attempt, History, Operation, Outcome, Seen, check};
use std::collections::BTreeMap;
use types::Random;

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

#[test]
fn no_anomaly_is_invented_and_most_are_found() {
    let (mut broken, mut caught) = (0, 0);
    for seed in 0..20_000 {
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
        let committed =
            attempts.iter().filter(|a| a.outcome != Outcome::Aborted).collect::<Vec<_>>();
        let explained = explainable(&State::new(), &committed);
        let history = History::new(attempts.clone()).expect("well formed");
        let report = check(&history);
        if explained {
            assert!(report.is_clean(), "seed {seed}: an order exists, but: {report}");
        } else {
            broken += 1;
            caught += u32::from(!report.is_clean());
        }
    }
    assert!(broken > 2000 && caught * 1000 > broken * 995, "{caught} caught of {broken}");
}
