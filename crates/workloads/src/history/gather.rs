//! Gathers the touches of a history, and reports where a transaction contradicts itself.
//!
//! What a transaction found is its first read of a key, less its own appends to it. Later reads of the key must follow from
//! that and the transaction's own writes; where they do not, that is an *internal* anomaly, and they imply nothing about
//! others.

use super::case::Case;
use super::format::{KeyKind, Operation, Seen};
use super::indexed::{KeyId, TransactionId};
use super::report::{AnomalyKind, show_list};
use super::touches::{ListTouch, RegisterTouch, Touch, Touches};

/// Gathers all touches, and reports internal anomalies.
pub(super) fn gather<'h>(case: &mut Case<'h>) -> Touches<'h> {
    let history = case.history;
    let mut touches = Touches {
        lists: (0..history.keys()).map(|_| Vec::new()).collect(),
        registers: (0..history.keys()).map(|_| Vec::new()).collect(),
    };
    let mut operations = Vec::new();
    for id in case.committed_ids() {
        operations.clear();
        operations.extend(history.operations(id));
        operations.sort_by_key(|(key, _)| *key);
        for group in operations.chunk_by(|(a, _), (b, _)| a == b) {
            let key = group[0].0;
            let on_key = group.iter().map(|(_, operation)| *operation);
            match history.key_kind(key) {
                KeyKind::List => {
                    touches.lists[key.0 as usize].push(list_touch(case, id, key, on_key));
                }
                KeyKind::Register => {
                    touches.registers[key.0 as usize].push(register_touch(case, id, key, on_key));
                }
            }
        }
    }
    touches
}

fn list_touch<'h>(
    case: &mut Case<'h>,
    transaction: TransactionId,
    key: KeyId,
    operations: impl Iterator<Item = &'h Operation> + Clone,
) -> ListTouch<'h> {
    let mut touch = Touch { transaction, found: None, writes: Vec::new() };
    let will_append: Vec<u64> = operations.clone().filter_map(written_by).collect();
    for operation in operations {
        if let Some(value) = written_by(operation) {
            touch.writes.push(value);
            continue;
        }
        let elements: &[u64] = match operation {
            Operation::Read(_, Seen::List(elements)) => elements,
            _ => &[],
        };
        let others = elements.strip_suffix(touch.writes.as_slice());
        let fault = match (others, touch.found) {
            (None, _) => Some(format!("after appending {}", show_list(&touch.writes))),
            (Some(others), Some(found)) if others == found => None,
            (Some(_), Some(found)) => {
                let due = [found, touch.writes.as_slice()].concat();
                Some(format!("where {} was due", show_list(&due)))
            }
            (Some(others), None) => will_append
                .iter()
                .find(|value| others.contains(value))
                .map(|value| format!("with its own {value} where it had not appended that")),
        };
        match fault {
            None => touch.found = others,
            Some(fault) => internal(case, transaction, key, &show_list(elements), &fault),
        }
    }
    touch
}

fn register_touch<'h>(
    case: &mut Case<'h>,
    transaction: TransactionId,
    key: KeyId,
    operations: impl Iterator<Item = &'h Operation> + Clone,
) -> RegisterTouch {
    let mut touch = Touch { transaction, found: None, writes: Vec::new() };
    let will_write: Vec<u64> = operations.clone().filter_map(written_by).collect();
    for operation in operations {
        if let Some(value) = written_by(operation) {
            touch.writes.push(value);
            continue;
        }
        let value = match operation {
            Operation::Read(_, Seen::Value(value)) => Some(*value),
            _ => None,
        };
        let own = touch.writes.last().copied().map(Some);
        let fault = match own.or(touch.found) {
            Some(due) if value != due => Some(format!("where {} was due", show(due))),
            None if value.is_some_and(|value| will_write.contains(&value)) => {
                Some("before it wrote that itself".to_owned())
            }
            Some(_) => None,
            None => {
                touch.found = Some(value);
                None
            }
        };
        if let Some(fault) = fault {
            internal(case, transaction, key, &show(value), &fault);
        }
    }
    touch
}

/// The value that the operation writes, unless it reads.
fn written_by(operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Append(_, value) | Operation::Write(_, value) => Some(*value),
        Operation::Read(..) => None,
    }
}

fn show(value: Option<u64>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| value.to_string())
}

fn internal(case: &mut Case<'_>, id: TransactionId, key: KeyId, read: &str, fault: &str) {
    let name = case.history.key_name(key);
    case.findings.add(AnomalyKind::Internal, &[id], || {
        (format!("{id} read {read} from {name} {fault}"), Vec::new())
    });
}
