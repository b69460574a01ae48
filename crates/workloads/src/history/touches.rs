//! What each committed transaction did to each key, reduced to what others can see: what it found
//! there, and what it wrote.
//!
//! **Which attempts committed.** An attempt of known outcome: as recorded. One of unknown outcome exactly if a
//! committed transaction read something it wrote: then it must have committed, or that read is an
//! anomaly in itself. Where it was not read, it is left out: leaving out can hide an anomaly, never
//! make one. Reads by aborted attempts are not judged: optimistic engines let a doomed transaction
//! see anything.

use super::format::{Operation, Outcome, Seen};
use super::indexed::{History, TransactionId};

/// The accesses of one committed transaction to one key. `R` is the type of the value read.
#[derive(Debug)]
pub(super) struct Touch<R> {
    pub transaction: TransactionId,
    /// The value that it read, if it read one.
    pub found: Option<R>,
    /// The values that it wrote, in order.
    pub writes: Vec<u64>,
}

/// A touch of a list, which reads the elements that others appended.
pub(super) type ListTouch<'h> = Touch<&'h [u64]>;

/// A touch of a register, which reads the value there, or that there is none yet.
pub(super) type RegisterTouch = Touch<Option<u64>>;

/// All touches, by key number; the touches of a list's key are in `lists`, and so on.
#[derive(Debug)]
pub(super) struct Touches<'h> {
    pub lists: Vec<Vec<ListTouch<'h>>>,
    pub registers: Vec<Vec<RegisterTouch>>,
}

/// Whether each attempt committed, by the rules of this module.
pub(super) fn committed(history: &History) -> Vec<bool> {
    let outcome = |id| history.attempt(id).outcome;
    let mut committed: Vec<bool> = history.ids().map(|id| outcome(id) == Outcome::Ok).collect();
    if history.ids().all(|id| outcome(id) != Outcome::Unknown) {
        return committed;
    }
    let mut examine: Vec<TransactionId> =
        history.ids().filter(|id| committed[id.0 as usize]).collect();
    let mut longest: Vec<&[u64]> = vec![&[]; history.keys()];
    while let Some(reader) = examine.pop() {
        for (key, operation) in history.operations(reader) {
            let values = match operation {
                Operation::Read(_, Seen::Value(value)) => std::slice::from_ref(value),
                Operation::Read(_, Seen::List(elements)) => {
                    unexamined(&mut longest[key.0 as usize], elements)
                }
                Operation::Read(_, Seen::Absent) | Operation::Append(..) | Operation::Write(..) => {
                    continue;
                }
            };
            for writer in values.iter().filter_map(|value| history.write_of(key, *value)) {
                let id = writer.transaction;
                if outcome(id) == Outcome::Unknown && !committed[id.0 as usize] {
                    committed[id.0 as usize] = true;
                    examine.push(id);
                }
            }
        }
    }
    committed
}

/// The part of `elements` that is not in `longest`. Reads of a list mostly extend each other, so
/// nearly every element is examined once, not once a read.
fn unexamined<'h>(longest: &mut &'h [u64], elements: &'h [u64]) -> &'h [u64] {
    if longest.starts_with(elements) {
        return &[];
    }
    if !elements.starts_with(longest) {
        return elements;
    }
    let examined = longest.len();
    *longest = elements;
    &elements[examined..]
}
