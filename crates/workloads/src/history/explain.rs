//! Says in words why one transaction must come before another.

use super::cycles::Link;
use super::format::KeyKind;
use super::format::Operation;
use super::graph::{Graph, Kind, Note};
use super::indexed::{History, KeyId, TransactionId};
use super::report::{Dependency, Step};
use super::touches::{RegisterTouch, Touches};

/// The edges of a cycle, explained.
pub(super) fn cycle(
    history: &History,
    touches: &Touches<'_>,
    graph: &Graph,
    links: &[Link],
) -> Vec<Step> {
    let explain = |link: &Link| match link.note.map(|note| graph.note_of(note)) {
        None => in_time(history, link.from, link.to),
        Some(note) => {
            let mut step = between_versions(history, link.from, link.to, link.kind, note);
            let in_time = matches!(link.kind, Kind::WwRealtime | Kind::RwRealtime);
            if in_time && note.path_to.is_none() {
                let touches = &touches.registers[note.key.0 as usize];
                add_evidence_in_time(&mut step, history, touches, note);
            }
            step
        }
    };
    links.iter().map(explain).collect()
}

/// What two transactions did to a key.
pub(super) fn between_versions(
    history: &History,
    from: TransactionId,
    to: TransactionId,
    kind: Kind,
    note: Note,
) -> Step {
    let Note { key, before, after, path_to } = note;
    let name = history.key_name(key);
    let is_list = history.key_kind(key) == KeyKind::List;
    let is_next = after.is_some();
    let after = show(after.or_else(|| last_write(history, to, key)));
    let had = show(before);
    let dependency = kind.dependency().unwrap_or(Dependency::Realtime);
    let why = match dependency {
        Dependency::Ww if is_list && is_next => {
            format!("{to} appended {after} to {name} right after {from} appended {had}")
        }
        Dependency::Ww if is_list => format!(
            "{to} appended {after} to {name}, which no read shows yet; {from} appended {had}, which reads show"
        ),
        Dependency::Ww => format!("{to} wrote {after} to {name} after {from} wrote {had}"),
        Dependency::Wr if is_list => {
            format!("{to} read {name} up to {had}, which {from} appended")
        }
        Dependency::Wr => format!("{to} read {had} from {name}, which {from} wrote"),
        Dependency::Rw if is_list => match before {
            Some(had) => {
                format!("{from} read {name} up to {had}, without the {after} that {to} appended")
            }
            None => format!("{from} found {name} empty, without the {after} that {to} appended"),
        },
        Dependency::Rw => format!("{from} found {had} in {name}, which {to} replaced by {after}"),
        Dependency::Realtime => return in_time(history, from, to),
    };
    let mut step = Step { from, to, dependency, why, others: Vec::new() };
    if let Some(reached) = path_to {
        add_evidence_of_path(&mut step, history, note, reached);
    }
    step
}

/// Adds that version `before` was there first since its writer precedes one that had the other.
fn add_evidence_of_path(step: &mut Step, history: &History, note: Note, reached: TransactionId) {
    let write = note.before.and_then(|value| history.write_of(note.key, value));
    let Some(writer) = write.map(|write| write.transaction) else { return };
    let after = show(last_write(history, step.to, note.key));
    let had = show(note.before);
    step.others = vec![writer, reached];
    step.why += &if reached == step.to {
        format!("; {had} came before {after}, for a path leads from {writer} to {reached}")
    } else {
        format!(
            "; {had} came before {after}, for a path leads from {writer}, which wrote the one, to \
             {reached}, which had the other"
        )
    };
}

fn in_time(history: &History, from: TransactionId, to: TransactionId) -> Step {
    let end = show(history.attempt(from).end_ns);
    let start = history.attempt(to).start_ns;
    let why = format!("{from} ended at {end} ns, before {to} began at {start} ns");
    Step { from, to, dependency: Dependency::Realtime, why, others: Vec::new() }
}

/// Adds the transaction that shows that version `before` was there before the one that `step.to` wrote.
fn add_evidence_in_time(step: &mut Step, history: &History, touches: &[RegisterTouch], note: Note) {
    let after = last_write(history, step.to, note.key);
    let had = |value: Option<u64>| {
        touches
            .iter()
            .filter(move |t| t.found == Some(value) || t.writes.last().copied() == value)
            .map(|touch| touch.transaction)
    };
    let end = |id: &TransactionId| history.attempt(*id).end_ns.unwrap_or(u64::MAX);
    let start = |id: &TransactionId| history.attempt(*id).start_ns;
    let first = had(note.before).min_by_key(end);
    let Some((first, last)) = first.zip(had(after).max_by_key(start)) else { return };
    step.others = vec![first, last];
    step.why += &format!(
        "; {} came before {}, for {first}, which had the one, ended at {} ns, before {last}, which \
         had the other, began at {} ns",
        show(note.before),
        show(after),
        end(&first),
        start(&last)
    );
}

fn last_write(history: &History, id: TransactionId, key: KeyId) -> Option<u64> {
    history
        .operations(id)
        .filter_map(|(at, operation)| match operation {
            Operation::Append(_, value) | Operation::Write(_, value) if at == key => Some(*value),
            _ => None,
        })
        .last()
}

fn show(value: Option<u64>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| value.to_string())
}
