//! Whether one order of transactions explains a history, by the definition: run one after the other
//! from nothing, each reads what it read, and none comes after one that began when it had ended.
//!
//! The checker calls a history consistent only with an order that passes here.

use super::format::{Operation, Seen};
use super::indexed::{History, TransactionId};

/// What a key holds: a list's elements, or a register's value as a list of one.
type Held = Vec<u64>;

/// Why the order does not explain the history, if it does not.
pub(super) fn fault(history: &History, order: &[TransactionId]) -> Option<String> {
    let mut held: Vec<Held> = vec![Held::new(); history.keys()];
    let mut last_start = 0;
    for &id in order {
        let attempt = history.attempt(id);
        if attempt.end_ns.is_some_and(|end| end < last_start) {
            return Some(format!("{id} had ended when one placed before it began"));
        }
        last_start = last_start.max(attempt.start_ns);
        for (key, operation) in history.operations(id) {
            let held = &mut held[key.0 as usize];
            let fits = match operation {
                Operation::Append(_, value) => {
                    held.push(*value);
                    true
                }
                Operation::Write(_, value) => {
                    held.clear();
                    held.push(*value);
                    true
                }
                Operation::Read(_, Seen::Absent) => held.is_empty(),
                Operation::Read(_, Seen::Value(value)) => *held == [*value],
                Operation::Read(_, Seen::List(elements)) => held == elements,
            };
            if !fits {
                let name = history.key_name(key);
                return Some(format!("{id} would have read {held:?} from {name}: {operation:?}"));
            }
        }
    }
    None
}
