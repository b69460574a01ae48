//! Dependencies through registers.
//!
//! A read of a register shows one version and nothing of the order of the others. What is inferred
//! here holds in every strictly serializable execution with these reads; so if the edges form a
//! cycle, there was no such execution (Elle, VLDB'20, §5.2). Versions *a* and *b* of a key:
//!
//! - **Initial null.** Nothing was there before the first write, and nothing deletes: null comes
//!   before every written version.
//! - **Writes follow reads.** A transaction that found *a* and wrote *b* replaced *a*: nothing lies between.
//! - **Real time.** If a transaction that read or wrote *a* ended before another that read or wrote
//!   *b* began, *a* comes before *b*: the register held *a* just before or after the first took
//!   effect and *b* just before or after the second did, the second took effect later, and a
//!   version that was replaced does not return. Edges that rest on this are of kinds of their own,
//!   since only strict serializability forbids cycles with them.
//!
//! For the last rule a version is an interval: from the first *end* of those that read or wrote it
//! to the last *start* of those. *a* comes before *b* if *a*'s end is below *b*'s start; sorted by
//! start, the versions that must follow *a* are a suffix.
//!
//! - **wr**: from the writer of a version to its readers.
//! - **ww**: from its writer to the writers of the versions known to follow.
//! - **rw**: from its readers to the same, but for themselves.
//!
//! Only a transaction's last write to a key makes a version. A read of an earlier one is an
//! anomaly (G1b), as are reads of what aborted (G1a) or never was; they are reported and not used.

use super::case::Case;
use super::graph::{EdgeLabel, Fan, Kind, Note, Vertex};
use super::indexed::{KeyId, TransactionId};
use super::touches::RegisterTouch;
use std::collections::HashMap;
use std::ops::Range;

/// A version of a register, and the transactions that read, wrote or replaced it.
#[derive(Debug)]
pub(super) struct Version {
    /// The value; `None` for the initial version.
    pub value: Option<u64>,
    /// The transaction that wrote it; `None` for the initial version.
    pub writer: Option<TransactionId>,
    /// The transactions that found it and did not write.
    pub readers: Vec<TransactionId>,
    /// The transactions that found it and wrote.
    pub updaters: Vec<TransactionId>,
    /// The first end of those that read or wrote it; `u64::MAX` if none is known.
    pub first_end: u64,
    /// The last start of those.
    pub last_start: u64,
}

impl Version {
    /// The transactions that read or wrote it.
    pub fn holders(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.writer.into_iter().chain(self.readers.iter().chain(&self.updaters).copied())
    }
}

/// A set of versions that are known to follow some version, as places in a fan over their writers.
struct Followers<'a> {
    fan: &'a Fan,
    range: Range<usize>,
    /// The position of each writer in the fan.
    places: &'a HashMap<TransactionId, usize>,
    /// The kinds of the edges to them: from a writer, from a reader.
    kinds: (Kind, Kind),
}

/// Adds all edges that the touches of this register justify. Returns its versions: the initial one
/// first, the others by last start.
pub(super) fn infer(case: &mut Case<'_>, key: KeyId, touches: &[RegisterTouch]) -> Vec<Version> {
    if touches.is_empty() {
        return Vec::new();
    }
    let mut versions = gather_versions(case, key, touches);
    versions[1..].sort_by_key(|version| (version.last_start, version.writer));
    let writers: Vec<TransactionId> = versions.iter().filter_map(|v| v.writer).collect();
    let places = places_of(&writers);
    let everyone = Fan::new(&mut case.graph, writers);
    for version in &versions {
        let note = Note::new(key, version.value, None);
        for &reader in version.readers.iter().chain(&version.updaters) {
            if let Some(writer) = version.writer {
                case.link(writer, reader, Kind::Wr, note);
            }
        }
        case.lost_update(key, version.value, &version.updaters);

        if version.writer.is_none() {
            let kinds = (Kind::Ww, Kind::Rw);
            let range = 0..places.len();
            let all = Followers { fan: &everyone, range, places: &places, kinds };
            link_followers(case, version, note, &all);
            continue;
        }
        let updater_places = places_of(&version.updaters);
        let updaters = Fan::new(&mut case.graph, version.updaters.iter().copied());
        let replaced = Followers {
            fan: &updaters,
            range: 0..version.updaters.len(),
            places: &updater_places,
            kinds: (Kind::Ww, Kind::Rw),
        };
        link_followers(case, version, note, &replaced);
        let from = versions[1..].partition_point(|other| other.last_start <= version.first_end);
        let later = Followers {
            fan: &everyone,
            range: from..places.len(),
            places: &places,
            kinds: (Kind::WwRealtime, Kind::RwRealtime),
        };
        link_followers(case, version, note, &later);
    }
    versions
}

/// Sorts the touches by the version they found or wrote. Reports reads that found none.
fn gather_versions(case: &mut Case<'_>, key: KeyId, touches: &[RegisterTouch]) -> Vec<Version> {
    let new = |value, writer| Version {
        value,
        writer,
        readers: Vec::new(),
        updaters: Vec::new(),
        first_end: u64::MAX,
        last_start: 0,
    };
    let mut versions = vec![new(None, None)];
    let mut numbers = HashMap::from([(None, 0)]);
    for touch in touches {
        if let Some(&value) = touch.writes.last() {
            numbers.insert(Some(value), versions.len());
            versions.push(new(Some(value), Some(touch.transaction)));
        }
    }
    for touch in touches {
        let found = touch.found.filter(|&found| is_sound(case, key, touch.transaction, found));
        let attempt = case.history.attempt(touch.transaction);
        let wrote = touch.writes.last().map(|&value| Some(value));
        for value in found.into_iter().chain(wrote) {
            let version = &mut versions[numbers[&value]];
            version.first_end = version.first_end.min(attempt.end_ns.unwrap_or(u64::MAX));
            version.last_start = version.last_start.max(attempt.start_ns);
        }
        if let Some(value) = found {
            let version = &mut versions[numbers[&value]];
            let by = if wrote.is_some() { &mut version.updaters } else { &mut version.readers };
            by.push(touch.transaction);
        }
    }
    versions
}

/// Whether what was found is a version: the initial one, or the last write of a transaction.
fn is_sound(case: &mut Case<'_>, key: KeyId, reader: TransactionId, found: Option<u64>) -> bool {
    let Some(value) = found else { return true };
    case.writer_of(reader, key, value).is_some() && !case.is_intermediate(reader, key, value, &[])
}

/// Links every transaction that had to do with `version` to the writers of the versions that follow it.
fn link_followers(case: &mut Case<'_>, version: &Version, note: Note, followers: &Followers<'_>) {
    let Followers { fan, range, places, kinds: (from_writer, from_reader) } = followers;
    let Version { writer, readers, updaters, .. } = version;
    if range.is_empty() || (writer.is_none() && readers.is_empty() && updaters.is_empty()) {
        return;
    }
    let graph = &mut case.graph;
    let note = Some(graph.note(note));
    let own = writer.and_then(|writer| places.get(&writer).copied());
    // Those that write nothing themselves share one helper; the others must leave themselves out.
    let shared = graph.helper();
    fan.link(
        graph,
        shared,
        range.clone(),
        own.as_slice(),
        EdgeLabel { kind: Kind::Fan, note: None },
    );
    if let Some(writer) = writer {
        graph.link(*writer, shared, *from_writer, note);
    }
    for reader in readers {
        graph.link(*reader, shared, *from_reader, note);
    }
    for updater in updaters {
        let mut except: Vec<usize> = own.into_iter().chain(places.get(updater).copied()).collect();
        except.sort_unstable();
        let node = Vertex::from(*updater);
        fan.link(graph, node, range.clone(), &except, EdgeLabel { kind: *from_reader, note });
    }
}

fn places_of(transactions: &[TransactionId]) -> HashMap<TransactionId, usize> {
    transactions.iter().enumerate().map(|(place, id)| (*id, place)).collect()
}
