//! Judges small histories of one store for strict serializability.
//!
//! A transaction that writes has a clock, drawn while it held all its locks and before it validated. So the
//! order of clocks is the order in which such transactions have to make sense, of any kind: what they read, scanned or
//! found missing: the checker runs them in that order on an ordered map and compares every answer. A
//! transaction that only reads has no clock: there has to be a place for it between the others, neither
//! before one that ended before it began nor behind one that began after it ended.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A key, by its number.
pub type Key = u32;
/// A value that is written once.
pub type Value = u64;
/// The value of each key that is present.
pub type State = BTreeMap<Key, Value>;

/// An operation, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Get(Key, Option<Value>),
    Scan {
        range: RangeInclusive<Key>,
        reverse: bool,
        limit: usize,
        rows: Vec<(Key, Value)>,
    },
    Put(Key, Value),
    /// A write where there is no value yet; returns whether there was none.
    Insert(Key, Value, bool),
    Delete(Key),
}

/// A transaction that committed, as it is recorded for the search of a serial order.
#[derive(Debug, Clone)]
pub struct Committed {
    /// When it began and ended, in steps of a clock that all transactions share.
    pub began: u64,
    pub ended: u64,
    /// What it drew; nothing where it wrote nothing.
    pub clock: Option<u64>,
    pub ops: Vec<Op>,
}

/// What is wrong with a history.
#[derive(Debug)]
#[expect(dead_code, reason = "read through `Debug`")]
pub enum Violation {
    /// An answer that no state before the transaction gives.
    Answer { transaction: Committed, op: Op, expected: String },
    /// A transaction that only reads fits nowhere.
    NoPlace { transaction: Committed },
    /// The last state of the store is not that of the history.
    Outcome { expected: State, found: State },
}

/// Judges `history`, which led from `first` to `last`.
pub fn judge(history: &[Committed], first: &State, last: &State) -> Result<(), Box<Violation>> {
    let mut writers: Vec<&Committed> =
        history.iter().filter(|transaction| transaction.clock.is_some()).collect();
    writers.sort_by_key(|transaction| transaction.clock);
    // The states between the writers.
    let mut states = vec![first.clone()];
    for writer in &writers {
        let mut state = states.last().expect("at least the first").clone();
        run(writer, &mut state).map_err(|(op, expected)| {
            Box::new(Violation::Answer { transaction: (*writer).clone(), op, expected })
        })?;
        states.push(state);
    }
    place_readers(history, &writers, &states)?;
    let expected = states.pop().expect("at least the first");
    match expected == *last {
        true => Ok(()),
        false => Err(Box::new(Violation::Outcome { expected, found: last.clone() })),
    }
}

/// Runs a transaction on a state. Returns the first answer that differs, and what it should be.
fn run(transaction: &Committed, state: &mut State) -> Result<(), (Op, String)> {
    for op in &transaction.ops {
        match op {
            Op::Get(key, value) => {
                let expected = state.get(key).copied();
                if expected != *value {
                    return Err((op.clone(), format!("{expected:?}")));
                }
            }
            Op::Scan { range, reverse, limit, rows } => {
                let range = state.range(range.clone()).map(|(key, value)| (*key, *value));
                let expected: Vec<_> = match reverse {
                    true => range.rev().take(*limit).collect(),
                    false => range.take(*limit).collect(),
                };
                if expected != *rows {
                    return Err((op.clone(), format!("{expected:?}")));
                }
            }
            Op::Put(key, value) => {
                state.insert(*key, *value);
            }
            Op::Insert(key, value, inserted) => {
                let expected = !state.contains_key(key);
                if expected != *inserted {
                    return Err((op.clone(), format!("{expected}")));
                }
                state.entry(*key).or_insert(*value);
            }
            Op::Delete(key) => {
                state.remove(key);
            }
        }
    }
    Ok(())
}

/// Finds a place for each transaction that only reads: the first that is possible, in the order in which
/// they began, so that those that follow have all the room there is.
fn place_readers(
    history: &[Committed],
    writers: &[&Committed],
    states: &[State],
) -> Result<(), Box<Violation>> {
    let mut readers: Vec<&Committed> =
        history.iter().filter(|transaction| transaction.clock.is_none()).collect();
    readers.sort_by_key(|reader| reader.began);
    let mut placed: Vec<(u64, usize)> = Vec::new();
    for reader in readers {
        let behind = writers.iter().rposition(|writer| writer.ended < reader.began);
        let before = writers.iter().position(|writer| writer.began > reader.ended);
        let others = placed.iter().filter(|(ended, _)| *ended < reader.began).map(|(_, at)| *at);
        let least = others.chain(behind.map(|at| at + 1)).max().unwrap_or(0);
        let most = before.unwrap_or(writers.len());
        let fits = |at: &usize| run(reader, &mut states[*at].clone()).is_ok();
        let Some(at) = (least..=most).find(fits) else {
            return Err(Box::new(Violation::NoPlace { transaction: reader.clone() }));
        };
        placed.push((reader.ended, at));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(began: u64, ended: u64, clock: Option<u64>, ops: &[Op]) -> Committed {
        Committed { began, ended, clock, ops: ops.to_vec() }
    }

    fn scan(rows: &[(Key, Value)]) -> Op {
        Op::Scan { range: 0..=9, reverse: false, limit: 10, rows: rows.to_vec() }
    }

    #[test]
    fn a_serial_history_passes() {
        let history = [
            transaction(0, 2, Some(1), &[Op::Get(1, None), Op::Put(1, 7)]),
            transaction(1, 4, None, &[scan(&[])]),
            transaction(3, 5, Some(2), &[scan(&[(1, 7)]), Op::Delete(1), Op::Put(2, 8)]),
            transaction(6, 7, None, &[Op::Get(2, Some(8)), scan(&[(2, 8)])]),
        ];
        let last = State::from([(2, 8)]);
        judge(&history, &State::new(), &last).expect("serial");
    }

    #[test]
    fn anomalies_are_seen() {
        let lost_update = [
            transaction(0, 2, Some(1), &[Op::Get(1, None), Op::Put(1, 7)]),
            transaction(0, 2, Some(2), &[Op::Get(1, None), Op::Put(1, 8)]),
        ];
        let phantom = [
            transaction(0, 2, Some(1), &[scan(&[]), Op::Put(1, 7)]),
            transaction(0, 2, Some(2), &[scan(&[]), Op::Put(2, 8)]),
        ];
        let stale = [
            transaction(0, 1, Some(1), &[Op::Put(1, 7)]),
            transaction(2, 3, None, &[Op::Get(1, None)]),
        ];
        let torn = [
            transaction(0, 5, Some(1), &[Op::Put(1, 7), Op::Put(2, 7)]),
            transaction(0, 5, None, &[Op::Get(1, Some(7)), Op::Get(2, None)]),
        ];
        let backwards = [
            transaction(0, 9, Some(1), &[Op::Put(1, 7)]),
            transaction(1, 2, None, &[Op::Get(1, Some(7))]),
            transaction(3, 4, None, &[Op::Get(1, None)]),
        ];
        for history in [&lost_update[..], &phantom, &stale, &torn, &backwards] {
            let mut last = State::new();
            for transaction in history {
                let _ = run(transaction, &mut last);
            }
            assert!(judge(history, &State::new(), &last).is_err(), "{history:?}");
        }
        let lost = [transaction(0, 1, Some(1), &[Op::Put(1, 7)])];
        assert!(judge(&lost, &State::new(), &State::new()).is_err(), "the outcome counts");
    }
}
