//! Dependencies through lists.
//!
//! A read of a list shows all its versions so far, in order (Elle, VLDB'20, §4.3), so:
//!
//! - Every two reads of a key must be prefixes of one another. The longest is the **version
//!   order**: each element's version follows that of the element before it. Reads that fit
//!   nowhere are an anomaly, *incompatible order*, and are not used further.
//! - A committed append that the longest read lacks comes after all that it shows: had it come
//!   before, the read would show it. Among themselves such appends are in no known order.
//! - **ww**: from the writer of an element to the writer of the next; from the last one's writer
//!   to everyone whose append is in no read.
//! - **wr**: from the writer of a read's last element to the reader. The writers before it are
//!   reached through ww.
//! - **rw**: from the reader to the writer of the first element its read lacks, or to everyone
//!   whose append is in no read.
//!
//! Elements of aborted and of no transaction, and repetitions, are anomalies of their own; reads
//! are judged as if these elements were not there, so that one fault is not reported as many.

use super::case::Case;
use super::graph::{EdgeLabel, Fan, Kind, Note, Vertex};
use super::indexed::{KeyId, TransactionId};
use super::report::{AnomalyKind, show_list};
use super::touches::ListTouch;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A read, without the elements that should not be there.
struct Reading<'h> {
    transaction: TransactionId,
    elements: Cow<'h, [u64]>,
    /// The reader appends to the list, too.
    appends: bool,
}

/// A key's version order, and the transactions that come after its end.
struct Versions {
    key: KeyId,
    order: Vec<u64>,
    /// Transactions with appends that no read shows, by number.
    unread: Vec<TransactionId>,
    /// The tree over `unread`, by which a range of it is linked to.
    fan: Fan,
}

/// Adds all edges that the touches of this list justify.
pub(super) fn infer<'h>(case: &mut Case<'h>, key: KeyId, touches: &[ListTouch<'h>]) {
    if touches.is_empty() {
        return;
    }
    let readings = clean_readings(case, key, touches);
    let versions = version_order(case, key, touches, &readings);
    link_writers(case, &versions);
    let mut updates: Vec<(usize, TransactionId)> = Vec::new();
    for reading in &readings {
        if !fits(case, &versions, &readings, reading) {
            continue;
        }
        if let Some(&last) = reading.elements.last()
            && case.is_intermediate(reading.transaction, key, last, &reading.elements)
        {
            continue;
        }
        link_reader(case, &versions, reading);
        if reading.appends {
            updates.push((reading.elements.len(), reading.transaction));
        }
    }
    updates.sort_unstable();
    for same in updates.chunk_by(|(a, _), (b, _)| a == b) {
        let before = same[0].0.checked_sub(1).map(|last| versions.order[last]);
        let updaters: Vec<TransactionId> = same.iter().map(|(_, id)| *id).collect();
        case.lost_update(key, before, &updaters);
    }
}

/// All reads of the key, the longest first, without what should not be in them.
fn clean_readings<'h>(
    case: &mut Case<'h>,
    key: KeyId,
    touches: &[ListTouch<'h>],
) -> Vec<Reading<'h>> {
    let mut reads: Vec<_> =
        touches.iter().filter_map(|touch| touch.found.map(|elements| (touch, elements))).collect();
    reads.sort_by_key(|(_, elements)| std::cmp::Reverse(elements.len()));
    // The longest read that has no fault; its prefixes have none either and need no look.
    let mut faultless: &[u64] = &[];
    let mut readings = Vec::with_capacity(reads.len());
    for (touch, elements) in reads {
        let elements = if faultless.starts_with(elements) {
            Cow::Borrowed(elements)
        } else {
            clean(case, key, touch.transaction, elements)
        };
        if let Cow::Borrowed(elements) = elements
            && elements.len() > faultless.len()
        {
            faultless = elements;
        }
        let appends = !touch.writes.is_empty();
        readings.push(Reading { transaction: touch.transaction, elements, appends });
    }
    // Taking elements out may have changed which is longest.
    readings.sort_by_key(|reading| std::cmp::Reverse(reading.elements.len()));
    readings
}

fn clean<'h>(
    case: &mut Case<'h>,
    key: KeyId,
    reader: TransactionId,
    elements: &'h [u64],
) -> Cow<'h, [u64]> {
    let mut seen = HashSet::with_capacity(elements.len());
    let mut kept = Vec::with_capacity(elements.len());
    for &element in elements {
        if !seen.insert(element) {
            let name = case.history.key_name(key);
            let writer = case.history.write_of(key, element).map(|write| write.transaction);
            let involved: Vec<TransactionId> = writer.into_iter().chain([reader]).collect();
            case.findings.add(AnomalyKind::DuplicateElement, &involved, || {
                let list = show_list(elements);
                (format!("{reader} read {list} from {name}: {element} is in it twice"), Vec::new())
            });
        } else if case.writer_of(reader, key, element).is_some() {
            kept.push(element);
        }
    }
    if kept.len() == elements.len() { Cow::Borrowed(elements) } else { Cow::Owned(kept) }
}

fn version_order<'h>(
    case: &mut Case<'h>,
    key: KeyId,
    touches: &[ListTouch<'h>],
    readings: &[Reading<'h>],
) -> Versions {
    let order = readings.first().map_or_else(Vec::new, |longest| longest.elements.to_vec());
    let places: HashMap<u64, usize> =
        order.iter().enumerate().map(|(place, element)| (*element, place)).collect();
    for (place, element) in order.iter().enumerate() {
        let write = case.history.write_of(key, *element);
        let Some((writer, next)) = write.and_then(|write| Some((write.transaction, write.next?)))
        else {
            continue;
        };
        if places.get(&next).is_some_and(|after| *after < place) {
            let name = case.history.key_name(key);
            case.findings.add(AnomalyKind::IncompatibleOrder, &[writer], || {
                let text = format!(
                    "{writer} appended {element} to {name} before {next}, but reads show {next} first"
                );
                (text, Vec::new())
            });
        }
    }
    let unread =
        touches.iter().filter(|t| t.writes.iter().any(|value| !places.contains_key(value)));
    let unread: Vec<TransactionId> = unread.map(|touch| touch.transaction).collect();
    let fan = Fan::new(&mut case.graph, unread.iter().copied());
    Versions { key, order, unread, fan }
}

/// Adds a ww edge from the writer of each element to that of the next.
fn link_writers(case: &mut Case<'_>, versions: &Versions) {
    let key = versions.key;
    let writer_of = |case: &Case<'_>, element| {
        case.history.write_of(key, element).map(|write| write.transaction)
    };
    for pair in versions.order.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if let (Some(from), Some(to)) = (writer_of(case, before), writer_of(case, after)) {
            let note = Note::new(key, Some(before), Some(after));
            case.link(from, to, Kind::Ww, note);
        }
    }
    if let Some(&last) = versions.order.last()
        && let Some(writer) = writer_of(case, last)
    {
        link_to_unread(case, versions, writer, Kind::Ww, Some(last));
    }
}

/// The wr edge and the rw edges of a read that is a prefix of the version order.
fn link_reader(case: &mut Case<'_>, versions: &Versions, reading: &Reading<'_>) {
    let (key, reader) = (versions.key, reading.transaction);
    let last = reading.elements.last().copied();
    if let Some(write) = last.and_then(|last| case.history.write_of(key, last)) {
        case.link(write.transaction, reader, Kind::Wr, Note::new(key, last, None));
    }
    match versions.order.get(reading.elements.len()) {
        Some(&next) => {
            if let Some(write) = case.history.write_of(key, next) {
                let note = Note::new(key, last, Some(next));
                case.link(reader, write.transaction, Kind::Rw, note);
            }
        }
        None => link_to_unread(case, versions, reader, Kind::Rw, last),
    }
}

/// Links to everyone whose append no read shows, but for the source itself.
fn link_to_unread(
    case: &mut Case<'_>,
    versions: &Versions,
    from: TransactionId,
    kind: Kind,
    before: Option<u64>,
) {
    let Versions { key, unread, fan, .. } = versions;
    let own = unread.binary_search(&from).ok();
    let note = case.graph.note(Note::new(*key, before, None));
    fan.link(
        &mut case.graph,
        Vertex::from(from),
        0..unread.len(),
        own.as_slice(),
        EdgeLabel { kind, note: Some(note) },
    );
}

/// Whether a read is a prefix of the version order; where not, that is reported.
fn fits(
    case: &mut Case<'_>,
    versions: &Versions,
    readings: &[Reading<'_>],
    reading: &Reading<'_>,
) -> bool {
    if versions.order.starts_with(&reading.elements) {
        return true;
    }
    let longest = readings[0].transaction;
    let reader = reading.transaction;
    let name = case.history.key_name(versions.key);
    case.findings.add(AnomalyKind::IncompatibleOrder, &[longest, reader], || {
        let same =
            versions.order.iter().zip(&*reading.elements).take_while(|(a, b)| a == b).count();
        let text = format!(
            "{longest} and {reader} read {name} in different orders: after {same} common elements, \
             {longest} saw {} and {reader} saw {}",
            versions.order[same], reading.elements[same]
        );
        (text, Vec::new())
    });
    false
}
