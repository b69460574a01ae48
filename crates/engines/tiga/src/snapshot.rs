//! Snapshots: how a replica gets the state that stands for entries which its log has no more, since they were cut (rule T22).
//!
//! ```text
//!   rows, in parts ──► ranges, in parts ──► head: fixed here, at a length of the log; in parts, too
//!          └─ what changes meanwhile ─────────┘
//! ```
//! Parts are taken at different times. While a copy is given, the sender notes which rows and ranges entries change, and the
//! head has these as they are when it is fixed. So the whole is the state at one length: that of the sender's decided entries
//! when it had taken all rows. The receiver keeps what comes apart from its own ledger, and replaces that at once.
//!
//! What is not in a snapshot: entries that are not decided, which the log has, and votes, which are the replica's own.

use crate::digest::Resource;
use crate::ledger::Ledger;
use crate::planted_bugs::TigaPlantedBug;
use crate::record::{Base, Candidate, Record};
use crate::rows::{Changed, RangeState, Row, Tables};
use bytes::Bytes;
use shoal_engine::{PlantedBugs, TransactionId};
use shoal_store::{CopyPart, WalkPlace};
use shoal_types::wire::{Coded, decode, encode};
use shoal_types::{NodeId, ShardId, TableId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Behind all tables: where ranges begin, by their names.
const RANGES: TableId = TableId(u32::MAX - 1);

/// Behind all ranges: the bytes of the head.
const HEAD: TableId = TableId(u32::MAX);

/// A part of a head has at least so many bytes, unless it is the last.
const HEAD_PART_BYTES: usize = 4096;

/// A row, as a snapshot brings it.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct SnapshotRow {
    /// The table of the row.
    #[coded(short)]
    pub table: TableId,
    /// The key of the row.
    pub key: Bytes,
    /// The row; `None` if nothing is left of it, which only a head says.
    pub row: Option<Row>,
}

/// What was written in a granule or a table, as a snapshot brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct SnapshotRange {
    /// The name of the range.
    pub resource: u64,
    /// What was written in it.
    pub state: RangeState,
}

/// What a part of a snapshot has.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum PartContents {
    /// Rows, in the order of tables and keys.
    #[coded(tag = 0)]
    Rows(Vec<SnapshotRow>),
    /// Ranges, in the order of their names.
    #[coded(tag = 1)]
    Ranges(Vec<SnapshotRange>),
    /// Bytes of the head.
    #[coded(tag = 2)]
    Head(Bytes),
}

impl PartContents {
    /// The bytes of keys and values, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            PartContents::Rows(rows) => rows.iter().map(|row| bytes_of(&row.key, &row.row)).sum(),
            PartContents::Ranges(ranges) => size_of_val(&ranges[..]),
            PartContents::Head(bytes) => bytes.len(),
        }
    }
}

fn bytes_of(key: &Bytes, row: &Option<Row>) -> usize {
    let value = row.as_ref().and_then(|row| row.value.as_ref());
    key.len() + value.map_or(0, Bytes::len) + size_of::<Row>()
}

/// A record that the ledger keeps, and why.
#[derive(Debug, Clone, PartialEq, Coded)]
struct KeptRecord {
    record: Arc<Record>,
    is_recent: bool,
    /// It is kept for its coordinator.
    is_coordinated: bool,
    /// Participants that may not have it; `None` if it is settled.
    waits_for: Option<BTreeSet<ShardId>>,
}

/// What is known of a coordinator's transactions.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
struct CoordinatorState {
    node: NodeId,
    worker: WorkerId,
    oldest: u64,
    refused: BTreeMap<u64, Time>,
}

/// A row that was deleted above the seal.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
struct DeletedRow {
    t: Time,
    table: TableId,
    key: Bytes,
}

/// What a ledger has beside rows and ranges, and those that have changed since their parts were taken.
#[derive(Debug, Clone, PartialEq, Coded)]
struct Head {
    applied: u64,
    seal: Time,
    base: Base,
    recorded: Vec<Candidate>,
    records: Vec<KeptRecord>,
    coordinators: Vec<CoordinatorState>,
    deleted: Vec<DeletedRow>,
    has_range_writers: bool,
    rows: Vec<SnapshotRow>,
    ranges: Vec<SnapshotRange>,
}

/// Where the head begins, and every other place in it.
fn head_place(offset: usize) -> WalkPlace {
    WalkPlace { table: HEAD, key: (offset as u64).to_be_bytes().to_vec() }
}

fn range_place(resource: Resource) -> WalkPlace {
    WalkPlace { table: RANGES, key: resource.to_be_bytes().to_vec() }
}

/// The number in a place behind the tables; `None` if it is none of ours.
fn number_of(place: &WalkPlace) -> Option<u64> {
    Some(u64::from_be_bytes(place.key.as_slice().try_into().ok()?))
}

/// Whether a part that begins here is of the head.
#[must_use]
pub fn is_of_head(place: &WalkPlace) -> bool {
    place.table == HEAD
}

/// Whether a part can begin at this place, which a receiver has named.
#[must_use]
pub fn is_place(place: &WalkPlace) -> bool {
    (place.table != RANGES && place.table != HEAD) || number_of(place).is_some()
}

/// The part of a head that begins at this place, and where the next one does.
///
/// # Panics
/// If the place is not one that these functions have made.
#[must_use]
pub fn head_part(
    head: &Bytes,
    from: &WalkPlace,
    part: CopyPart,
) -> (PartContents, Option<WalkPlace>) {
    let first = number_of(from).expect("a place of a head") as usize;
    // A receiver may have forgotten where it is, and ask for what is behind the end.
    let first = first.min(head.len());
    let end = first.saturating_add(part.bytes_max.max(HEAD_PART_BYTES)).min(head.len());
    let next = (end < head.len()).then(|| head_place(end));
    (PartContents::Head(head.slice(first..end)), next)
}

impl Ledger {
    /// From now on, changes are noted for this copy.
    pub fn begin_copy(&mut self, copy: u64) {
        self.rows.copies.insert(copy, Changed::default());
    }

    /// These copies are whole, or given up.
    pub fn end_copies(&mut self, is_over: impl Fn(u64) -> bool) {
        self.rows.copies.retain(|copy, _| !is_over(*copy));
    }

    /// The rows or ranges from this place on, as they are now, and where the next part begins: the last ones of them are
    /// followed by the head.
    ///
    /// # Panics
    /// If the place is one of the head.
    #[must_use]
    pub fn copy_part(&self, from: &WalkPlace, part: CopyPart) -> (PartContents, WalkPlace) {
        assert!(!is_of_head(from), "the head is taken at one time");
        if from.table == RANGES {
            let first = number_of(from).expect("a place of a range");
            let mut all = self.rows.decided.ranges.range(first..);
            let taken = all.by_ref().take(part.records_max.max(1));
            let taken =
                taken.map(|(resource, state)| SnapshotRange { resource: *resource, state: *state });
            let contents = PartContents::Ranges(taken.collect());
            let next = all.next().map(|(resource, _)| range_place(*resource));
            return (contents, next.unwrap_or_else(|| head_place(0)));
        }
        let tables = self.rows.decided.tables.range(from.table..);
        let all = tables.flat_map(|(table, rows)| {
            let start = match *table == from.table {
                true => Bound::Included(&from.key[..]),
                false => Bound::Unbounded,
            };
            rows.range::<[u8], _>((start, Bound::Unbounded))
                .map(move |(key, row)| (*table, key, row))
        });
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for (table, key, row) in all {
            if rows.len() >= part.records_max.max(1) || bytes >= part.bytes_max.max(1) {
                let next = WalkPlace { table, key: key.to_vec() };
                return (PartContents::Rows(rows), next);
            }
            let row = Some(row.clone());
            bytes += bytes_of(key, &row);
            rows.push(SnapshotRow { table, key: key.clone(), row });
        }
        (PartContents::Rows(rows), range_place(0))
    }

    /// The head of a copy whose rows and ranges were taken: with it they are the state of the decided entries as of now.
    ///
    /// # Panics
    /// If there is no such copy.
    #[must_use]
    pub fn head(&self, copy: u64, bugs: PlantedBugs<TigaPlantedBug>) -> Bytes {
        let none = Changed::default();
        let Changed { rows, ranges } = match bugs.has(TigaPlantedBug::SnapshotWithoutChanges) {
            true => &none,
            false => &self.rows.copies[&copy],
        };
        let decided = &self.rows.decided;
        let row = |(table, key): &(TableId, Bytes)| SnapshotRow {
            table: *table,
            key: key.clone(),
            row: decided.tables.get(table).and_then(|rows| rows.get(key)).cloned(),
        };
        let range = |resource: &Resource| SnapshotRange {
            resource: *resource,
            state: decided.ranges.get(resource).copied().unwrap_or_default(),
        };
        let deleted = decided.deleted.iter().cloned();
        encode(&Head {
            applied: self.applied,
            seal: self.seal,
            base: self.base.clone(),
            recorded: self.recorded.values().cloned().collect(),
            records: match bugs.has(TigaPlantedBug::SnapshotWithoutRecords) {
                true => Vec::new(),
                false => self.kept_records(),
            },
            coordinators: self.coordinator_states(),
            deleted: deleted.map(|(t, table, key)| DeletedRow { t, table, key }).collect(),
            has_range_writers: self.rows.has_range_writers,
            rows: rows.iter().map(row).collect(),
            ranges: ranges.iter().map(range).collect(),
        })
    }

    fn kept_records(&self) -> Vec<KeptRecord> {
        let mut kept: BTreeMap<TransactionId, KeptRecord> = BTreeMap::new();
        let coordinated = self.coordinated.values().flat_map(|of| of.records.values());
        let unsettled = self.unsettled.values().map(|it| &it.record);
        for record in self.recent.values().chain(coordinated).chain(unsettled) {
            let id = record.id();
            kept.entry(id).or_insert_with(|| KeptRecord {
                record: Arc::clone(record),
                is_recent: self.recent.contains_key(&record.stamp()),
                is_coordinated: self.coordinated_record(id).is_some(),
                waits_for: self.unsettled.get(&id).map(|it| it.waits_for.clone()),
            });
        }
        kept.into_values().collect()
    }

    fn coordinator_states(&self) -> Vec<CoordinatorState> {
        let states = self.coordinated.iter().map(|((node, worker), of)| CoordinatorState {
            node: *node,
            worker: *worker,
            oldest: of.oldest,
            refused: of.refused.clone(),
        });
        states.collect()
    }
}

/// What has come of a snapshot.
#[derive(Debug, Default)]
pub struct SnapshotInProgress {
    tables: Tables,
    ranges: BTreeMap<Resource, RangeState>,
    head: Vec<u8>,
}

impl SnapshotInProgress {
    /// Takes the next part.
    pub fn take(&mut self, contents: PartContents) {
        match contents {
            PartContents::Rows(rows) => rows.into_iter().for_each(|row| self.set(row)),
            PartContents::Ranges(ranges) => {
                self.ranges.extend(ranges.iter().map(|range| (range.resource, range.state)));
            }
            PartContents::Head(bytes) => self.head.extend_from_slice(&bytes),
        }
    }

    fn set(&mut self, SnapshotRow { table, key, row }: SnapshotRow) {
        let rows = self.tables.entry(table).or_default();
        match row {
            Some(row) => {
                // Not a piece of the message, which would stay as long as one of its rows.
                let value = row.value.map(|value| Bytes::copy_from_slice(&value));
                rows.insert(Bytes::copy_from_slice(&key), Row { value, ..row });
            }
            None => drop(rows.remove(&key)),
        }
    }

    /// The ledger of a shard, from all parts; `None` if they are no snapshot of it.
    #[must_use]
    pub fn ledger(mut self, shard: ShardId) -> Option<Ledger> {
        let head: Head = decode(&Bytes::from(std::mem::take(&mut self.head))).ok()?;
        head.rows.into_iter().for_each(|row| self.set(row));
        self.ranges.extend(head.ranges.iter().map(|range| (range.resource, range.state)));
        let mut ledger = Ledger::new(shard);
        self.tables.retain(|_, rows| !rows.is_empty());
        ledger.rows.decided.tables = self.tables;
        ledger.rows.decided.ranges = self.ranges;
        let deleted = head.deleted.into_iter();
        ledger.rows.decided.deleted =
            deleted.map(|DeletedRow { t, table, key }| (t, table, key)).collect();
        ledger.rows.has_range_writers = head.has_range_writers;
        (ledger.applied, ledger.seal, ledger.base) = (head.applied, head.seal, head.base);
        let recorded = head.recorded.into_iter();
        ledger.recorded = recorded.map(|it| (it.transaction.id, it)).collect();
        for CoordinatorState { node, worker, oldest, refused } in head.coordinators {
            ledger.restore_coordinator((node, worker), oldest, refused);
        }
        for KeptRecord { record, is_recent, is_coordinated, waits_for } in head.records {
            record.transaction.place(shard)?;
            ledger.restore_record(&record, is_recent, is_coordinated, waits_for);
        }
        Some(ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_none_of_ours_is_refused_and_one_behind_the_end_brings_nothing() {
        assert!(is_place(&WalkPlace::default()) && is_place(&head_place(7)));
        for table in [RANGES, HEAD] {
            assert!(!is_place(&WalkPlace { table, key: vec![1] }));
        }
        let part = CopyPart { records_max: 1, bytes_max: 1 };
        let (contents, next) = head_part(&Bytes::from_static(b"head"), &head_place(9), part);
        assert_eq!((contents.bytes(), next), (0, None));
    }
}
