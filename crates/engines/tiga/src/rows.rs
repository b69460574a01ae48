//! The rows of a shard at a replica: what is decided, and over it what is in the log and not decided.
//!
//! ```text
//!   undecided   a: 7 (entry 12)   c: deleted (entry 13)       dropped when another ballot takes over
//!   decided     a: 5              b: 1              c: 3
//! ```
//! A leader executes on both together, and so does what computes a digest. Only the decided rows are in a snapshot.
//!
//! Each row has the digest of the transaction that declared it last as written, the sum of the digests of those that have read it
//! since, and the version that its value has: a transaction that changes nothing in the end leaves the version, and not the digest.
//! A row that was read and is absent is kept like a deleted one.

use crate::digest::{
    Digest, Resource, granule_resource, key_resource, range_resource, table_resource,
};
use crate::record::{Record, Write};
use crate::transaction::{KeyAccess, Part, Predecessor, RangeAccess};
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_types::hash_index::HashIndex;
use shoal_types::procedure::FootprintRange;
use shoal_types::wire::Coded;
use shoal_types::{TableId, Time};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// A row, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Row {
    /// `None`: there is none, or no more.
    pub value: Option<Bytes>,
    /// Of the last transaction that declared it as written.
    pub digest: Digest,
    /// The sum of the digests of those that have read it since.
    pub readers: Digest,
    /// Of the value; 0 where there is none. What is left of a deleted row is dropped at some time, and a leader that compares
    /// versions again has to come to the same verdict.
    pub version: u64,
}

impl Row {
    /// A row that was never written.
    pub const ABSENT: Row =
        Row { value: None, digest: Digest::NONE, readers: Digest::NONE, version: 0 };
}

/// What was written within a granule, or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Coded)]
pub struct RangeState {
    /// The sum of the digests of all that wrote in it.
    pub writers: Digest,
    /// The sum of the digests of those that wrote it as a range.
    pub range_writers: Digest,
    /// The sum of the digests of those that have read it as a range.
    pub readers: Digest,
    /// Changes with each value that is written in it.
    pub version: u64,
}

impl RangeState {
    fn add(&mut self, other: &RangeState) {
        self.writers = self.writers.plus(other.writers);
        self.range_writers = self.range_writers.plus(other.range_writers);
        self.readers = self.readers.plus(other.readers);
        self.version = self.version.wrapping_add(other.version);
    }

    fn subtract(&mut self, other: &RangeState) {
        self.writers = self.writers.minus(other.writers);
        self.range_writers = self.range_writers.minus(other.range_writers);
        self.readers = self.readers.minus(other.readers);
        self.version = self.version.wrapping_sub(other.version);
    }
}

/// Rows by tables.
pub(crate) type Tables = BTreeMap<TableId, BTreeMap<Bytes, Row>>;

/// What decided entries have changed since a copy began (rule T22).
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) rows: BTreeSet<(TableId, Bytes)>,
    pub(crate) ranges: BTreeSet<Resource>,
}

/// What decided entries have written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DecidedRows {
    pub(crate) tables: Tables,
    pub(crate) ranges: BTreeMap<Resource, RangeState>,
    /// Deleted rows, which are dropped once nothing at their timestamps can come any more.
    pub(crate) deleted: VecDeque<(Time, TableId, Bytes)>,
}

#[derive(Debug, Clone)]
struct UndecidedRow {
    row: Row,
    /// How many have read it since; `row` has the sum of their digests.
    readers: u32,
    /// The entry that wrote it last.
    index: u64,
    writer: Predecessor,
}

/// What is not decided of the writes within a granule, or a table.
#[derive(Debug, Default)]
struct UndecidedRange {
    sum: RangeState,
    /// Those that write in it, in the order of the log.
    writers: VecDeque<Predecessor>,
}

/// Readers that are not decided, of a key that no undecided record writes, or of a range.
#[derive(Debug, Default)]
struct UndecidedReaders {
    sum: Digest,
    count: u32,
}

/// The rows of a shard at a replica.
#[derive(Debug, Default)]
pub struct Rows {
    pub(crate) decided: DecidedRows,
    undecided: BTreeMap<TableId, BTreeMap<Bytes, UndecidedRow>>,
    undecided_ranges: HashIndex<Resource, UndecidedRange>,
    undecided_readers: HashIndex<Resource, UndecidedReaders>,
    /// Of the records that are appended and not decided, in their order.
    undecided_changes: VecDeque<(TransactionId, Changes)>,
    /// Some range was written as a whole, ever.
    pub(crate) has_range_writers: bool,
    /// What has changed since each copy began that is given.
    pub(crate) copies: BTreeMap<u64, Changed>,
}

/// What a record changes.
#[derive(Debug)]
struct Changes {
    rows: Vec<(TableId, Bytes, Option<Option<Bytes>>)>,
    ranges: Vec<(Resource, RangeState)>,
    /// The keys that are read and not written, and the ranges that are read.
    keys_read: Vec<KeyAccess>,
    ranges_read: Vec<Resource>,
}

/// What a record of this shard changes: the rows that it declares or writes, with new values where it writes them.
fn changes_of(part: &Part, record: &Record) -> Changes {
    let mut rows: Vec<(TableId, Bytes, Option<Option<Bytes>>)> = Vec::new();
    let mut ranges: BTreeMap<Resource, RangeState> = BTreeMap::new();
    let mut wrote = |resource: Resource, state: &RangeState| {
        ranges.entry(resource).or_default().add(state);
    };
    let digest = record.digest;
    let writes = record.writes(part);
    let mut declared = 0;
    for (place, key) in part.writes.iter().enumerate() {
        let is_it = |write: &&Write| write.table == key.table && write.key == key.key;
        // What is certified stands at the same place.
        let written = writes.get(place).filter(is_it).or_else(|| writes.iter().find(is_it));
        let value = written.map(|write| write.value.clone());
        declared += usize::from(value.is_some());
        let version = if value.is_some() { digest.version() } else { 0 };
        let state = RangeState { writers: digest, version, ..RangeState::default() };
        key.around().for_each(|resource| wrote(resource, &state));
        rows.push((key.table, key.key.clone(), value));
    }
    for range in part.ranges.iter().filter(|range| range.writes) {
        let state = RangeState {
            writers: digest,
            range_writers: digest,
            version: digest.version(),
            ..RangeState::default()
        };
        let granule = range.granule.as_ref().map(|it| granule_resource(range.table, it));
        let table = table_resource(range.table);
        let within = RangeState { range_writers: Digest::NONE, ..state };
        match granule {
            Some(granule) => {
                wrote(granule, &state);
                wrote(table, &within);
            }
            None => wrote(table, &state),
        }
    }
    if declared < writes.len() {
        let of_keys = part.writes.iter().map(|key| (key.table, &key.key));
        let of_keys: BTreeSet<(TableId, &Bytes)> = of_keys.collect();
        let others = writes.iter().filter(|write| !of_keys.contains(&(write.table, &write.key)));
        rows.extend(others.map(|it| (it.table, it.key.clone(), Some(it.value.clone()))));
    }
    let ranges_read = part.ranges.iter().filter(|range| range.reads);
    Changes {
        rows,
        ranges: ranges.into_iter().collect(),
        keys_read: part.only_read().cloned().collect(),
        ranges_read: ranges_read.map(RangeAccess::resource).collect(),
    }
}

impl Rows {
    /// The row of a key, decided or not.
    #[must_use]
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<&Row> {
        let undecided = self.undecided.get(&table).and_then(|rows| rows.get(key));
        match undecided {
            Some(undecided) => Some(&undecided.row),
            None => self.decided.tables.get(&table)?.get(key),
        }
    }

    /// Whether the last change of the row is decided.
    #[must_use]
    pub fn is_decided(&self, table: TableId, key: &[u8]) -> bool {
        !self.undecided.get(&table).is_some_and(|rows| rows.contains_key(key))
    }

    /// The transaction that declared the row last as written, if that is not decided.
    #[must_use]
    pub fn undecided_writer(&self, table: TableId, key: &[u8]) -> Option<&Predecessor> {
        self.undecided.get(&table)?.get(key).map(|it| &it.writer)
    }

    /// The sum of the digests of those that have read a row since it was declared last as written, decided or not.
    #[must_use]
    pub fn readers(&self, table: TableId, key: &[u8]) -> Digest {
        if let Some(undecided) = self.undecided.get(&table).and_then(|rows| rows.get(key)) {
            return undecided.row.readers;
        }
        let decided = self.decided.tables.get(&table).and_then(|rows| rows.get(key));
        let decided = decided.map_or(Digest::NONE, |row| row.readers);
        let undecided = self.undecided_readers.get(&key_resource(table, key));
        undecided.map_or(decided, |readers| decided.plus(readers.sum))
    }

    /// The sum of the digests of those that have read a range, decided or not.
    #[must_use]
    pub fn range_readers(&self, resource: Resource) -> Digest {
        let decided = self.decided.ranges.get(&resource).map_or(Digest::NONE, |it| it.readers);
        let undecided = self.undecided_readers.get(&resource);
        undecided.map_or(decided, |readers| decided.plus(readers.sum))
    }

    /// What was written within a granule or a table, decided or not.
    #[must_use]
    pub fn range(&self, resource: Resource) -> RangeState {
        let mut state = self.decided.ranges.get(&resource).copied().unwrap_or_default();
        if let Some(undecided) = self.undecided_ranges.get(&resource) {
            state.add(&undecided.sum);
        }
        state
    }

    /// The version of what a scan of a granule finds, or of the whole table where that is `None`. It changes with each value that
    /// is written there, also by what writes a range that no granule holds.
    #[must_use]
    pub fn range_version(&self, table: TableId, granule: Option<&[u8]>) -> u64 {
        let version = self.range(range_resource(table, granule)).version;
        match granule.is_some() && self.has_range_writers {
            true => {
                let writers = self.range(table_resource(table)).range_writers;
                version.wrapping_add(writers.version())
            }
            false => version,
        }
    }

    /// Whether all that was written in a granule, or in a table where that is `None`, is decided.
    #[must_use]
    pub fn is_range_decided(&self, table: TableId, granule: Option<&[u8]>) -> bool {
        let writes_all = |range: &UndecidedRange| range.sum.range_writers != Digest::NONE;
        let of_table = self.undecided_ranges.get(&table_resource(table));
        self.undecided_ranges.get(&range_resource(table, granule)).is_none()
            && (granule.is_none() || !of_table.is_some_and(writes_all))
    }

    /// The transactions that have written something within a granule or a table and are not decided.
    pub fn undecided_writers(&self, resource: Resource) -> impl Iterator<Item = &Predecessor> {
        self.undecided_ranges.get(&resource).into_iter().flat_map(|range| &range.writers)
    }

    /// The rows of a range that are present, ascending unless `reverse`.
    pub fn scan<'a>(
        &'a self,
        range: &FootprintRange,
        reverse: bool,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> + use<'a> {
        let end = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(range.start.clone()), end);
        let bounds = (!is_empty_range(&bounds)).then_some(bounds);
        let decided = self.decided.tables.get(&range.table).zip(bounds.clone());
        let decided = decided.map(|(rows, bounds)| rows.range(bounds));
        let undecided = self.undecided.get(&range.table).zip(bounds);
        let undecided = undecided.map(|(rows, bounds)| rows.range(bounds));
        let decided = in_order(decided.into_iter().flatten(), reverse);
        let undecided = undecided.into_iter().flatten().map(|(key, it)| (key, &it.row));
        merged(decided, in_order(undecided, reverse), reverse)
            .filter_map(|(key, row)| Some((key, row.value.as_ref()?)))
    }

    /// A record of the entry `index` is in the log now, behind all before it.
    pub fn append(&mut self, part: &Part, record: &Record, index: u64) {
        let changes = changes_of(part, record);
        let writer = Predecessor { stamp: record.stamp(), is_multi: record.transaction.is_multi() };
        for KeyAccess { table, key, .. } in &changes.keys_read {
            let written = self.undecided.get_mut(table).and_then(|rows| rows.get_mut(key));
            match written {
                Some(UndecidedRow { row, readers, .. }) => {
                    row.readers = row.readers.plus(record.digest);
                    *readers += 1;
                }
                None => self.add_readers(key_resource(*table, key), record.digest, 1),
            }
        }
        for resource in &changes.ranges_read {
            self.add_readers(*resource, record.digest, 1);
        }
        for (table, key, value) in &changes.rows {
            // What is written needs nothing of the row before.
            let before = value.is_none().then(|| self.get(*table, key)).flatten();
            let before = before.cloned().unwrap_or(Row::ABSENT);
            let row = after(before, record.digest, value.clone());
            let rows = self.undecided.entry(*table).or_default();
            let writer = writer.clone();
            rows.insert(key.clone(), UndecidedRow { row, readers: 0, index, writer });
        }
        for (resource, state) in &changes.ranges {
            self.has_range_writers |= state.range_writers != Digest::NONE;
            let range = self.undecided_ranges.get_or_insert_with(resource, UndecidedRange::default);
            range.sum.add(state);
            range.writers.push_back(writer.clone());
        }
        self.undecided_changes.push_back((record.id(), changes));
    }

    /// A record of the entry `index` is decided, the first of those that were appended.
    ///
    /// # Panics
    /// If it is not that one.
    pub fn decide(&mut self, record: &Record, index: u64) {
        let first = self.undecided_changes.pop_front();
        let (id, changes) = first.expect("what is decided was appended");
        assert_eq!(id, record.id(), "records are decided in the order of the log");
        let Changes { rows, ranges, keys_read, ranges_read } = changes;
        for (table, key, _) in &rows {
            let Some(undecided) = self.undecided.get_mut(table) else { continue };
            if undecided.get(key).is_some_and(|row| row.index == index)
                && let Some(UndecidedRow { row, readers, .. }) = undecided.remove(key)
                && readers > 0
            {
                // They are readers of the decided row now.
                self.add_readers(key_resource(*table, key), row.readers, readers);
            }
        }
        for KeyAccess { table, key, .. } in &keys_read {
            self.remove_reader(key_resource(*table, key), record.digest);
        }
        for resource in &ranges_read {
            self.remove_reader(*resource, record.digest);
        }
        for (resource, state) in &ranges {
            if let Some(range) = self.undecided_ranges.get_mut(resource) {
                range.sum.subtract(state);
                range.writers.pop_front();
                if range.writers.is_empty() {
                    self.undecided_ranges.remove(resource);
                }
            }
        }
        for changed in self.copies.values_mut() {
            changed.rows.extend(rows.iter().map(|(table, key, _)| (*table, key.clone())));
            changed.ranges.extend(ranges.iter().map(|(resource, _)| *resource));
            changed.rows.extend(keys_read.iter().map(|key| (key.table, key.key.clone())));
            changed.ranges.extend(&ranges_read);
        }
        self.decided.read(record, &keys_read, &ranges_read);
        self.decided.apply(record, rows, ranges);
    }

    fn add_readers(&mut self, resource: Resource, sum: Digest, count: u32) {
        let readers =
            self.undecided_readers.get_or_insert_with(&resource, UndecidedReaders::default);
        readers.sum = readers.sum.plus(sum);
        readers.count += count;
    }

    /// A reader is decided. It is not there if it has read what another undecided record has overwritten.
    fn remove_reader(&mut self, resource: Resource, digest: Digest) {
        let Some(readers) = self.undecided_readers.get_mut(&resource) else { return };
        readers.sum = readers.sum.minus(digest);
        readers.count -= 1;
        if readers.count == 0 {
            self.undecided_readers.remove(&resource);
        }
    }

    /// Drops deleted rows that were deleted at or below `seal`.
    pub fn drop_deleted(&mut self, seal: Time) {
        for (table, key) in self.decided.drop_deleted(seal) {
            for changed in self.copies.values_mut() {
                changed.rows.insert((table, key.clone()));
            }
        }
    }

    /// What is not decided is void.
    pub fn forget_undecided(&mut self) {
        self.undecided.clear();
        self.undecided_ranges = HashIndex::default();
        self.undecided_readers = HashIndex::default();
        self.undecided_changes.clear();
    }
}

/// The row after a transaction that declares it as written, and perhaps writes it.
fn after(before: Row, digest: Digest, value: Option<Option<Bytes>>) -> Row {
    match value {
        Some(value) => {
            let value = value.map(|value| Bytes::copy_from_slice(&value));
            let version = if value.is_some() { digest.version() } else { 0 };
            Row { value, digest, readers: Digest::NONE, version }
        }
        None => Row { digest, readers: Digest::NONE, ..before },
    }
}

/// Bounds between which no key can be.
fn is_empty_range((start, end): &(Bound<Bytes>, Bound<Bytes>)) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
        | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

impl DecidedRows {
    /// The transaction has read these.
    fn read(&mut self, record: &Record, keys: &[KeyAccess], ranges: &[Resource]) {
        let Record { t, digest, .. } = *record;
        for KeyAccess { table, key, .. } in keys {
            let rows = self.tables.entry(*table).or_default();
            if let Some(row) = rows.get_mut(key) {
                row.readers = row.readers.plus(digest);
                continue;
            }
            let key = Bytes::copy_from_slice(key);
            self.deleted.push_back((t, *table, key.clone()));
            rows.insert(key, Row { readers: digest, ..Row::ABSENT });
        }
        for resource in ranges {
            let state = self.ranges.entry(*resource).or_default();
            state.readers = state.readers.plus(digest);
        }
    }

    fn apply(
        &mut self,
        record: &Record,
        rows: Vec<(TableId, Bytes, Option<Option<Bytes>>)>,
        ranges: Vec<(Resource, RangeState)>,
    ) {
        for (table, key, value) in rows {
            let of_table = self.tables.entry(table).or_default();
            match of_table.get_mut(&key) {
                Some(row) => {
                    let before = std::mem::replace(row, Row::ABSENT);
                    *row = after(before, record.digest, value);
                    if row.value.is_none() {
                        self.deleted.push_back((record.t, table, key));
                    }
                }
                None => {
                    let key = Bytes::copy_from_slice(&key);
                    let row = after(Row::ABSENT, record.digest, value);
                    if row.value.is_none() {
                        self.deleted.push_back((record.t, table, key.clone()));
                    }
                    of_table.insert(key, row);
                }
            }
        }
        for (resource, state) in ranges {
            self.ranges.entry(resource).or_default().add(&state);
        }
    }

    /// Drops deleted rows that were deleted at or below `seal`. Returns which.
    fn drop_deleted(&mut self, seal: Time) -> Vec<(TableId, Bytes)> {
        let mut dropped = Vec::new();
        while self.deleted.front().is_some_and(|(t, _, _)| *t <= seal) {
            let Some((_, table, key)) = self.deleted.pop_front() else { break };
            let Some(rows) = self.tables.get_mut(&table) else { continue };
            if rows.get(&key).is_some_and(|row| row.value.is_none()) {
                rows.remove(&key);
                dropped.push((table, key));
            }
        }
        dropped
    }
}

/// The same, or from its end on.
fn in_order<I: DoubleEndedIterator>(all: I, reverse: bool) -> impl Iterator<Item = I::Item> {
    let (mut forward, mut backward) = (None, None);
    match reverse {
        false => forward = Some(all),
        true => backward = Some(all.rev()),
    }
    forward.into_iter().flatten().chain(backward.into_iter().flatten())
}

/// The rows of both, in the order that both have, and of a key in both that of the second.
fn merged<'a>(
    below: impl Iterator<Item = (&'a Bytes, &'a Row)>,
    above: impl Iterator<Item = (&'a Bytes, &'a Row)>,
    reverse: bool,
) -> impl Iterator<Item = (&'a Bytes, &'a Row)> {
    let (mut below, mut above) = (below.peekable(), above.peekable());
    std::iter::from_fn(move || {
        let order = match (below.peek(), above.peek()) {
            (Some((below, _)), Some((above, _))) if reverse => above.cmp(below),
            (Some((below, _)), Some((above, _))) => below.cmp(above),
            (_, None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => below.next(),
            Ordering::Greater => above.next(),
            Ordering::Equal => {
                below.next();
                above.next()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::{Body, Transaction};
    use shoal_types::{Ballot, NodeId, ShardId, WorkerId};
    use std::sync::Arc;

    /// The record of a transaction with this part, and a digest of its own.
    fn record_of(part: &Part, sequence: u64) -> Record {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence };
        let (body, parts) = (Body::Certify, vec![part.clone()]);
        let transaction = Arc::new(Transaction { id, oldest: 0, by_log: false, body, parts });
        Record {
            t: Time(sequence),
            digest: Digest(1 << sequence),
            ballots: Vec::new(),
            outcome: Ok(Bytes::new()),
            procedure_writes: Vec::new(),
            exchanged: Vec::new(),
            promises: Vec::new(),
            transaction,
        }
    }

    /// What writes a range that no granule holds is seen by scans of each granule: else they would miss rows, and certify.
    #[test]
    fn a_granule_changes_with_what_is_written_in_all_of_the_table() {
        let table = TableId(0);
        let mut part = Part::new(ShardId(0), Ballot::default());
        part.ranges.push(RangeAccess { table, granule: None, reads: false, writes: true });
        let record = record_of(&part, 1);
        let mut rows = Rows::default();
        let granule = Some(b"g".as_slice());
        let before = rows.range_version(table, granule);
        rows.append(&part, &record, 0);
        let undecided = rows.range_version(table, granule);
        assert_ne!(undecided, before);
        assert!(!rows.is_range_decided(table, granule));
        rows.decide(&record, 0);
        assert_eq!(rows.range_version(table, granule), undecided);
        assert!(rows.is_range_decided(table, granule));
    }

    fn reading_and_writing(reads: &[u8], writes: &[u8], scans: bool) -> Part {
        let table = TableId(0);
        let access = |byte: &u8| KeyAccess {
            table,
            key: Bytes::copy_from_slice(&[*byte]),
            granule_bytes: 0,
        };
        let mut part = Part::new(ShardId(0), Ballot::default());
        part.reads = reads.iter().map(access).collect();
        part.writes = writes.iter().map(access).collect();
        if scans {
            part.ranges.push(RangeAccess { table, granule: None, reads: true, writes: false });
        }
        let value = Some(Bytes::from_static(b"x"));
        part.certificate.values = writes.iter().map(|_| value.clone()).collect();
        part
    }

    /// Votes are equal only if digests are, however much of the log is decided at a replica.
    #[test]
    fn readers_are_the_same_whether_they_are_decided_or_not() {
        let (table, mut seen) = (TableId(0), 0);
        for seed in 0..200 {
            let mut random = shoal_types::Random::new(seed);
            let records: Vec<(Part, Record)> = (1..40)
                .map(|sequence| {
                    let keys = [random.below(4) as u8];
                    let part = match random.below(5) {
                        0 => reading_and_writing(&keys, &keys, false),
                        1 => reading_and_writing(&[], &keys, false),
                        2 => reading_and_writing(&[], &[], true),
                        _ => reading_and_writing(&keys, &[], false),
                    };
                    let record = record_of(&part, sequence);
                    (part, record)
                })
                .collect();
            let mut replicas = [Rows::default(), Rows::default(), Rows::default()];
            let mut decided = [0; 3];
            for appended in 0..records.len() {
                for (place, rows) in replicas.iter_mut().enumerate() {
                    let (part, record) = &records[appended];
                    rows.append(part, record, appended as u64);
                    let until = match place {
                        0 => 0,
                        1 => appended + 1,
                        _ => {
                            random.range_inclusive(decided[place] as u64, appended as u64) as usize
                        }
                    };
                    let to_decide = records.iter().enumerate().take(until);
                    for (index, (_, record)) in to_decide.skip(decided[place]) {
                        rows.decide(record, index as u64);
                    }
                    decided[place] = decided[place].max(until);
                }
                for key in 0..4 {
                    let of = |rows: &Rows| rows.readers(table, &[key]);
                    let all = replicas.each_ref().map(of);
                    assert_eq!((all[0], all[0]), (all[1], all[2]), "seed {seed}, key {key}");
                }
                let of = |rows: &Rows| rows.range_readers(table_resource(table));
                let all = replicas.each_ref().map(of);
                assert_eq!((all[0], all[0]), (all[1], all[2]), "seed {seed}");
            }
            seen += u32::from((0..4).any(|key| replicas[1].readers(table, &[key]) != Digest::NONE));
        }
        assert!(seen > 150, "{seen} of 200 end with readers");
    }

    /// A leader that compared the version of a deleted row before that was dropped, and again after it, came to another
    /// verdict than the one that it had sent: half of a transaction took effect.
    #[test]
    fn a_deleted_row_has_the_version_of_one_that_never_was() {
        let written = after(Row::ABSENT, Digest(7), Some(Some(Bytes::from_static(b"x"))));
        assert_ne!(written.version, Row::ABSENT.version);
        let deleted = after(written, Digest(8), Some(None));
        assert_eq!((deleted.version, deleted.digest), (Row::ABSENT.version, Digest(8)));
    }
}
