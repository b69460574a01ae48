//! An interactive transaction: reads come from leaders with their versions, writes are buffered, and a certificate is made of
//! both when it commits.

use crate::message::{Found, Message, Read};
use crate::repetition::Repetition;
use crate::transaction::{Body, KeyAccess, Part, RangeAccess, Transaction, granule_bytes};
use crate::view::View;
use bytes::Bytes;
use shoal_cluster::topology::TableMap;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::worker_context::{BodyEnd, DeclaredCall};
use shoal_engine::operation::{Operation, OperationResult, OwnedScan};
use shoal_types::limits::TRANSACTION_READS_MAX;
use shoal_types::procedure::{Access, FootprintRange};
use shoal_types::{
    Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, Scan, ShardId, TableId, Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A key on a shard.
type PlacedKey = (ShardId, TableId, Bytes);

/// A transaction of this worker whose outcome is not reported.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) remote_branches: Rc<RemoteBranches>,
    /// What it has read, with the versions.
    reads: BTreeMap<PlacedKey, (u64, Option<Bytes>)>,
    /// The ranges that it has scanned, with their versions.
    ranges: BTreeMap<(ShardId, TableId, Option<Bytes>), u64>,
    writes: BTreeMap<PlacedKey, Option<Bytes>>,
    /// How many requests for reads were sent.
    pub(super) requests: u32,
    /// How many of them are not answered.
    pub(super) awaited: u32,
    /// What is to become of it once all reads are answered; `None` while its body runs.
    pub(super) ending: Option<BodyEnd>,
    /// When the transaction was handed to the protocol.
    pub(super) handed_at: Option<Time>,
}

/// A request for reads that is not answered.
#[derive(Debug)]
pub(super) struct PendingRead {
    /// The number of the transaction.
    pub(super) sequence: u64,
    pub(super) shard: ShardId,
    pub(super) operations: Vec<Operation>,
    pub(super) reads: Vec<Read>,
    /// What the first of them have found.
    pub(super) found: Vec<Found>,
    pub(super) repetition: Repetition,
    pub(super) give_up_at: Time,
}

impl PendingRead {
    /// Asks for what has not been found yet.
    pub(super) fn message(&self, number: u64) -> Message {
        let reads = self.reads[self.found.len()..].to_vec();
        Message::Reads { shard: self.shard, number, reads }
    }
}

/// A procedure that is being executed.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) call: Rc<DeclaredCall>,
    /// The shards that take part, in the order of their results.
    pub(super) shards: Vec<ShardId>,
}

/// The granule that holds all keys of a range, if one does.
pub(super) fn granule_of(tables: &TableMap, range: &FootprintRange) -> Option<Bytes> {
    let bytes = match granule_bytes(tables, range.table) {
        0 => return None,
        bytes => usize::from(bytes),
    };
    let prefix = range.start.get(..bytes)?;
    let granule = FootprintRange::of(range.table, &Scan::prefix(prefix), range.access);
    granule.covers(range).then(|| Bytes::copy_from_slice(prefix))
}

impl OpenTransaction {
    pub(super) fn new(remote_branches: &Rc<RemoteBranches>) -> OpenTransaction {
        OpenTransaction {
            remote_branches: Rc::clone(remote_branches),
            reads: BTreeMap::new(),
            ranges: BTreeMap::new(),
            writes: BTreeMap::new(),
            requests: 0,
            awaited: 0,
            ending: None,
            handed_at: None,
        }
    }

    /// Whether it writes something.
    pub(super) fn writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// How many keys it has read or written.
    pub(super) fn size(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Whether all that it has read came at once from one leader: then it was so at that moment.
    pub(super) fn has_read_at_once(&self) -> bool {
        self.requests <= 1
    }

    /// What has to be read before these operations can be done.
    pub(super) fn needed(
        &self,
        tables: &TableMap,
        shard: ShardId,
        operations: &[Operation],
    ) -> Vec<Read> {
        let mut needed: Vec<Read> = Vec::new();
        for operation in operations {
            let read = match operation {
                Operation::Get { table, key } | Operation::Insert { table, key, .. } => {
                    let place = (shard, *table, key.clone());
                    if self.reads.contains_key(&place) || self.writes.contains_key(&place) {
                        continue;
                    }
                    Read::Key { table: *table, key: key.clone() }
                }
                Operation::Scan { table, range } => {
                    let scanned = FootprintRange::of(*table, &range.scan(), Access::Read);
                    let granule = granule_of(tables, &scanned);
                    // Own deletions may hide as many rows.
                    let hidden = self.writes.values().filter(|value| value.is_none()).count();
                    let pending = operations.iter().filter(|it| it.writes()).count();
                    let limit = range.limit.saturating_add((hidden + pending) as u64);
                    let range = OwnedScan { limit, ..range.clone() };
                    Read::Range { table: *table, range, granule }
                }
                Operation::Put { .. } => continue,
            };
            if matches!(read, Read::Range { .. }) || !needed.contains(&read) {
                needed.push(read);
            }
        }
        needed
    }

    /// What was read has come. Returns the rows of scans, in their order.
    ///
    /// # Errors
    /// Where something has changed since it was read first.
    pub(super) fn take(
        &mut self,
        shard: ShardId,
        reads: &[Read],
        found: Vec<Found>,
    ) -> Result<VecDeque<OperationResult>> {
        let mut scanned = VecDeque::new();
        for (read, Found { result, version }) in reads.iter().zip(found) {
            match (read, result) {
                (Read::Key { table, key }, OperationResult::Value(value)) => {
                    let place = (shard, *table, Bytes::copy_from_slice(key));
                    let before = self.reads.insert(place, (version, value));
                    if before.is_some_and(|(before, _)| before != version) {
                        return Err(changed(*table, key));
                    }
                }
                (Read::Range { table, granule, .. }, result) => {
                    let before = self.ranges.insert((shard, *table, granule.clone()), version);
                    if before.is_some_and(|before| before != version) {
                        let table = *table;
                        return Err(Aborted::from(Conflict::RangeChanged { table }).into());
                    }
                    scanned.push_back(result);
                }
                (Read::Key { .. }, _) => {}
            }
        }
        if self.reads.len() > TRANSACTION_READS_MAX {
            return Err(Rejected::TransactionReads { max: TRANSACTION_READS_MAX }.into());
        }
        Ok(scanned)
    }

    /// Does operations, all of whose reads are here. The answers go to the body.
    pub(super) fn perform(
        &mut self,
        shard: ShardId,
        operations: Vec<Operation>,
        mut scanned: VecDeque<OperationResult>,
    ) {
        let mut answers = Vec::new();
        for operation in operations {
            let wants_answer = operation.wants_answer();
            let done = self.perform_one(shard, operation, &mut scanned);
            match done {
                Ok(answer) if wants_answer => answers.push(Ok(answer)),
                Ok(_) => {}
                Err(error) if wants_answer => answers.push(Err(error)),
                Err(error) => self.remote_branches.spoil(&error),
            }
        }
        self.remote_branches.answer(shard, answers);
    }

    fn perform_one(
        &mut self,
        shard: ShardId,
        operation: Operation,
        scanned: &mut VecDeque<OperationResult>,
    ) -> Result<OperationResult> {
        match operation {
            Operation::Get { table, key } => {
                Ok(OperationResult::Value(self.value(&(shard, table, key))))
            }
            Operation::Put { table, key, value } => {
                self.writes.insert((shard, table, key), value);
                Ok(OperationResult::Done)
            }
            Operation::Insert { table, key, value } => {
                let place = (shard, table, key);
                if self.value(&place).is_some() {
                    let key = KeyExcerpt::new(&place.2);
                    return Err(Rejected::KeyExists { table, key }.into());
                }
                self.writes.insert(place, Some(value));
                Ok(OperationResult::Done)
            }
            Operation::Scan { table, range } => {
                let found = scanned.pop_front().unwrap_or(OperationResult::Later);
                Ok(self.merged(shard, table, &range, found))
            }
        }
    }

    /// The value of a key, as the transaction sees it.
    fn value(&self, place: &PlacedKey) -> Option<Bytes> {
        match self.writes.get(place) {
            Some(own) => own.clone(),
            None => self.reads.get(place).and_then(|(_, value)| value.clone()),
        }
    }

    /// The rows of a scan, with own writes among them.
    fn merged(
        &self,
        shard: ShardId,
        table: TableId,
        range: &OwnedScan,
        found: OperationResult,
    ) -> OperationResult {
        let (rows, is_cut) = match found {
            OperationResult::Rows(rows) => (rows, false),
            OperationResult::Page(rows) => (rows, true),
            other => return other,
        };
        let scan = range.scan();
        let limited = rows.len() as u64 >= range.limit || is_cut;
        let last = rows.last().filter(|_| limited).map(|(key, _)| key.clone());
        let scanned = FootprintRange::of(table, &scan, Access::Read);
        let is_within = |key: &Bytes| {
            let is_covered = last.as_ref().is_none_or(|last| match scan.reverse {
                true => key >= last,
                false => key <= last,
            });
            is_covered && scanned.contains(table, key)
        };
        let mut merged: BTreeMap<Bytes, Bytes> = rows.into_iter().collect();
        for ((of, in_table, key), value) in &self.writes {
            if (*of, *in_table) != (shard, table) || !is_within(key) {
                continue;
            }
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        let rows: Vec<(Bytes, Bytes)> = match scan.reverse {
            true => merged.into_iter().rev().take(scan.limit).collect(),
            false => merged.into_iter().take(scan.limit).collect(),
        };
        match is_cut && rows.len() < scan.limit && !rows.is_empty() {
            true => OperationResult::Page(rows),
            false => OperationResult::Rows(rows),
        }
    }

    /// What it asks to commit; with its writes only if it is to take effect. `None` if there is nothing.
    pub(super) fn certificate(
        &self,
        view: &View,
        tables: &TableMap,
        oldest: u64,
        ending: BodyEnd,
    ) -> Option<Transaction> {
        let mut parts: BTreeMap<ShardId, Part> = BTreeMap::new();
        for ((shard, table, key), (version, _)) in &self.reads {
            let part = part_of(&mut parts, view, *shard);
            part.reads.push(KeyAccess::new(tables, *table, key));
            part.certificate.versions.push(*version);
        }
        for ((shard, table, granule), version) in &self.ranges {
            let part = part_of(&mut parts, view, *shard);
            let granule = granule.clone();
            let (reads, writes) = (true, false);
            part.ranges.push(RangeAccess { table: *table, granule, reads, writes });
            part.certificate.ranges.push(*version);
        }
        let writes = self.writes.iter().filter(|_| ending == BodyEnd::Commit);
        for ((shard, table, key), value) in writes {
            let part = part_of(&mut parts, view, *shard);
            part.writes.push(KeyAccess::new(tables, *table, key));
            part.certificate.values.push(value.clone());
        }
        let parts: Vec<Part> = parts.into_values().collect();
        let id = self.remote_branches.id;
        (!parts.is_empty()).then_some(Transaction {
            id,
            oldest,
            by_log: false,
            body: Body::Certify,
            parts,
        })
    }
}

/// The part of a shard, which is made when it is first needed.
pub(super) fn part_of<'p>(
    parts: &'p mut BTreeMap<ShardId, Part>,
    view: &View,
    shard: ShardId,
) -> &'p mut Part {
    parts.entry(shard).or_insert_with(|| {
        Part::new(shard, view.shard(shard).map(|view| view.ballot).unwrap_or_default())
    })
}

fn changed(table: TableId, key: &Bytes) -> Error {
    Aborted::from(Conflict::ReadChanged { table, key: KeyExcerpt::new(key) }).into()
}
