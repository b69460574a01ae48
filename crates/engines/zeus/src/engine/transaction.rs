//! What a worker keeps of a transaction: what it has read and will write, by granule, and operations that are not done.
//!
//! Operations are done here, on the node's own rows: a read waits until the granule is here at the level that it needs, and
//! until the row is validated. Writes are kept until the commit; reads see them.

use super::write_prediction::WritePrediction;
use crate::commit::LocalCommit;
use crate::granule::{GranuleId, GranuleLayout};
use crate::message::GranuleWrites;
use crate::node::ZeusNode;
use crate::read_only::{ReadOutcome, ReadSet, ReadStanding};
use crate::record::Level;
use crate::rows::{RowKey, RowWrite};
use bytes::Bytes;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::REQUESTS_TABLE;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::slot::ResultSlot;
use shoal_engine::execution::worker_context::BodyEnd;
use shoal_engine::operation::{Operation, OperationResult, OwnedScan, RangeEnd};
use shoal_types::limits::TRANSACTION_READS_MAX;
use shoal_types::{
    Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, Scan, ShardId, TableId, Time, WorkerId,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// The granules that the attempts of a transaction have touched, each with the greatest level: the next attempt asks for all
/// of them together.
pub(super) type KnownGranules = BTreeMap<GranuleId, Level>;

/// A transaction of this worker that has not received its outcome.
#[derive(Debug)]
pub(super) struct ZeusTransaction {
    pub(super) remote_branches: Rc<RemoteBranches>,
    reads: ReadSet,
    writes: BTreeMap<GranuleId, BTreeMap<RowKey, Option<Bytes>>>,
    /// What it has touched, with the levels that it needs.
    pub(super) granules: KnownGranules,
    prediction: Rc<WritePrediction>,
    batches: Vec<Batch>,
    /// What is to become of it once nothing of it is left to be done; `None` while its body runs.
    pub(super) ending: Option<BodyEnd>,
    /// It is committed locally.
    pub(super) is_committed: bool,
    /// Filled once all that it has read may be shown to a client.
    pub(super) revealing: Option<Rc<ResultSlot<Result<()>>>>,
    /// Until when it waits for what it waits for; `None` if it waits for nothing.
    pub(super) waits_until: Option<Time>,
    /// Until when it waits for a pending row, if that is in its way.
    pub(super) pending_until: Option<Time>,
}

/// Operations that travelled together, of one shard.
#[derive(Debug)]
struct Batch {
    shard: ShardId,
    operations: VecDeque<Operation>,
    answers: Vec<Result<OperationResult>>,
}

/// Why an operation, or a commit, is not done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// This granule has to be here, at this level.
    Granule(GranuleId, Level),
    /// A pending row is in the way.
    Pending,
    /// Pending slots are in the way of the commit.
    Slots,
    /// The node has no lease at present.
    Lease,
}

/// Why an operation was not done: it waits, or has failed.
enum NotDone {
    Waits(Obstacle),
    Failed(Error),
}

impl From<Error> for NotDone {
    fn from(error: Error) -> NotDone {
        NotDone::Failed(error)
    }
}

impl From<Rejected> for NotDone {
    fn from(error: Rejected) -> NotDone {
        NotDone::Failed(error.into())
    }
}

impl ZeusTransaction {
    pub(super) fn boxed(
        remote_branches: &Rc<RemoteBranches>,
        prediction: &Rc<WritePrediction>,
    ) -> Box<ZeusTransaction> {
        Box::new(ZeusTransaction {
            remote_branches: Rc::clone(remote_branches),
            reads: ReadSet::default(),
            writes: BTreeMap::new(),
            granules: remote_branches.over_attempts(|known: &mut KnownGranules| known.clone()),
            prediction: Rc::clone(prediction),
            batches: Vec::new(),
            ending: None,
            is_committed: false,
            revealing: None,
            waits_until: None,
            pending_until: None,
        })
    }

    /// Operations have come, to be done in their order.
    pub(super) fn take(&mut self, shard: ShardId, operations: Vec<Operation>) {
        self.batches.push(Batch { shard, operations: operations.into(), answers: Vec::new() });
    }

    /// Whether it is to be committed with what it has written, and not only answered with what it has read.
    pub(super) fn commits_writes(&self) -> bool {
        self.writes() && self.ending == Some(BodyEnd::Commit)
    }

    /// Whether it writes something.
    pub(super) fn writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// What it has read, for its checks.
    pub(super) fn reads(&self) -> &ReadSet {
        &self.reads
    }

    /// A shard that it has something to do with, for errors.
    pub(super) fn shard(&self) -> ShardId {
        self.remote_branches.remotes().first().map_or(ShardId(0), |remote| remote.shard)
    }

    /// Does what can be done now, and answers it. Says what stands in the way of the rest.
    pub(super) fn advance(&mut self, now: Time, node: &ZeusNode) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        for mut batch in std::mem::take(&mut self.batches) {
            match self.perform_all(now, node, &mut batch) {
                None => self.remote_branches.answer(batch.shard, batch.answers),
                Some(obstacle) => {
                    obstacles.push(obstacle);
                    self.batches.push(batch);
                }
            }
        }
        obstacles
    }

    fn perform_all(&mut self, now: Time, node: &ZeusNode, batch: &mut Batch) -> Option<Obstacle> {
        while let Some(operation) = batch.operations.front() {
            match self.perform(now, node, operation) {
                Ok(answer) if operation.wants_answer() => batch.answers.push(Ok(answer)),
                Ok(_) => {}
                Err(NotDone::Waits(obstacle)) => {
                    self.need_rest(now, node, batch);
                    return Some(obstacle);
                }
                Err(NotDone::Failed(error)) if operation.wants_answer() => {
                    batch.answers.push(Err(error));
                }
                Err(NotDone::Failed(error)) => self.remote_branches.spoil(&error),
            }
            batch.operations.pop_front();
        }
        None
    }

    fn perform(
        &mut self,
        now: Time,
        node: &ZeusNode,
        operation: &Operation,
    ) -> Result<OperationResult, NotDone> {
        let layout = &node.placement().layout;
        check_table(&node.placement().topology, operation.table())?;
        match operation {
            Operation::Get { table, key } => {
                let value = self.get(now, node, *table, key)?;
                Ok(OperationResult::Value(value))
            }
            Operation::Scan { table, range } => self.scan(now, node, *table, range),
            Operation::Put { table, key, value } => {
                self.write(granule_of(layout, *table, key)?, (*table, key.clone()), value.clone());
                Ok(OperationResult::Done)
            }
            Operation::Insert { table, key, value } => {
                if self.get(now, node, *table, key)?.is_some() {
                    let key = KeyExcerpt::new(key);
                    return Err(Rejected::KeyExists { table: *table, key }.into());
                }
                let granule = granule_of(layout, *table, key)?;
                self.write(granule, (*table, key.clone()), Some(value.clone()));
                Ok(OperationResult::Done)
            }
        }
    }

    fn write(&mut self, granule: GranuleId, key: RowKey, value: Option<Bytes>) {
        self.need(&granule, Level::Owner);
        self.writes.entry(granule).or_default().insert(key, value);
    }

    /// Notes that the transaction needs this of a granule.
    fn need(&mut self, granule: &GranuleId, level: Level) -> Level {
        let needed = self.granules.entry(granule.clone()).or_insert(level);
        *needed = level.max(*needed);
        *needed
    }

    /// The level at which a read needs the granule. A transaction that writes owns everything that it reads (rule Z9), and
    /// results of calls are read by owners only: a node that has looked for one in vain has stopped all that may write it.
    fn reads_at(&self, node: &ZeusNode, table: TableId) -> Level {
        let tables = node.placement().topology.tables();
        let is_of_calls = tables.get(table).is_some_and(|table| table.name() == REQUESTS_TABLE);
        let writes = self.writes() || self.remote_branches.writes();
        if is_of_calls || writes { Level::Owner } else { Level::Reader }
    }

    /// Waits until the granule may be read.
    fn hold(
        &mut self,
        now: Time,
        node: &ZeusNode,
        table: TableId,
        granule: &GranuleId,
    ) -> Result<(), NotDone> {
        let mut level = self.need(granule, self.reads_at(node, table));
        if node.holds(now, granule, level, self.remote_branches.asked_at()) {
            return Ok(());
        }
        if self.prediction.expects_write(granule) {
            level = self.need(granule, Level::Owner);
        }
        Err(NotDone::Waits(Obstacle::Granule(granule.clone(), level)))
    }

    /// Notes what the operations behind one that waits need, so that it is asked for together with what that one waits for.
    fn need_rest(&mut self, now: Time, node: &ZeusNode, batch: &Batch) {
        let layout = &node.placement().layout;
        for operation in batch.operations.iter().skip(1) {
            let Operation::Get { table, key } = operation else { continue };
            if let Ok(granule) = granule_of(layout, *table, key) {
                // Whether it is here shows when its turn comes.
                let _ = self.hold(now, node, *table, &granule);
            }
        }
    }

    fn get(
        &mut self,
        now: Time,
        node: &ZeusNode,
        table: TableId,
        key: &Bytes,
    ) -> Result<Option<Bytes>, NotDone> {
        let granule = granule_of(&node.placement().layout, table, key)?;
        let place = (table, key.clone());
        let own = self.writes.get(&granule).and_then(|writes| writes.get(&place));
        if let Some(own) = own {
            return Ok(own.clone());
        }
        self.hold(now, node, table, &granule)?;
        let found = node.reader(now).with_own().get(&mut self.reads, &granule, &place);
        self.shown(found)
    }

    fn shown<T>(&self, found: ReadOutcome<T>) -> Result<T, NotDone> {
        match found {
            ReadOutcome::Shown(_) if self.reads.rows().len() > TRANSACTION_READS_MAX => {
                Err(Rejected::TransactionReads { max: TRANSACTION_READS_MAX }.into())
            }
            ReadOutcome::Shown(found) => Ok(found),
            ReadOutcome::Pending => Err(NotDone::Waits(Obstacle::Pending)),
            // The level was looked at just before.
            ReadOutcome::NoLevel => Err(NotDone::Waits(Obstacle::Lease)),
        }
    }

    fn scan(
        &mut self,
        now: Time,
        node: &ZeusNode,
        table: TableId,
        range: &OwnedScan,
    ) -> Result<OperationResult, NotDone> {
        let scan = range.scan();
        let granule = node.placement().layout.granule_of_scan(table, &scan);
        let granule = granule
            .map_err(|wide| Rejected::ScanTooWide { table, prefix_bytes: wide.prefix_bytes })?;
        let granule = granule.ok_or_else(|| not_known(table))?;
        self.hold(now, node, table, &granule)?;
        let (start, end) = bounds(range);
        let bounds = (start.clone(), end.clone());
        let found = node.reader(now).with_own().scan(&mut self.reads, &granule, table, bounds);
        let mut rows: BTreeMap<Bytes, Bytes> = self.shown(found)?.into_iter().collect();
        for ((of, key), value) in self.writes.get(&granule).into_iter().flatten() {
            if *of != table || !is_within(key, &start, &end) {
                continue;
            }
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(OperationResult::Rows(limited(rows, &scan)))
    }

    /// What it asks to commit.
    pub(super) fn local_commit(&self, worker: WorkerId) -> LocalCommit {
        let writes = self.writes.iter().filter(|_| self.commits_writes());
        let writes = writes.map(|(granule, rows)| GranuleWrites {
            granule: granule.clone(),
            rows: rows
                .iter()
                .map(|((table, key), value)| RowWrite {
                    table: *table,
                    key: key.clone(),
                    value: value.clone(),
                })
                .collect(),
        });
        LocalCommit {
            worker,
            born: self.remote_branches.asked_at(),
            tag: self.remote_branches.id.sequence,
            reads: self.reads.rows().to_vec(),
            scans: self.reads.scans().to_vec(),
            writes: writes.collect(),
        }
    }

    /// It needs to own everything that it has read or writes (rule Z9).
    pub(super) fn need_all_owned(&mut self) {
        let read: Vec<GranuleId> = self.reads.granules().cloned().collect();
        for granule in read.iter().chain(&self.writes.keys().cloned().collect::<Vec<_>>()) {
            self.need(granule, Level::Owner);
        }
    }

    /// It has committed: what it has read, it has written too or not.
    pub(super) fn teach(&self) {
        let read: BTreeSet<&GranuleId> = self.reads.granules().collect();
        for granule in read {
            self.prediction.learn(granule, self.writes.contains_key(granule));
        }
    }

    /// The next attempt, if there is one, asks for all granules at once.
    pub(super) fn remember(&self) {
        self.remote_branches.over_attempts(|known: &mut KnownGranules| {
            for (granule, level) in &self.granules {
                match known.entry(granule.clone()) {
                    Entry::Occupied(mut entry) => {
                        let greatest = (*entry.get()).max(*level);
                        entry.insert(greatest);
                    }
                    Entry::Vacant(entry) => drop(entry.insert(*level)),
                }
            }
        });
    }

    /// Lets a client see what was read so far, if it waits for that and it may. Says whether it may not yet.
    pub(super) fn reveal(&mut self, now: Time, node: &ZeusNode) -> Option<Obstacle> {
        let slot = self.revealing.as_ref()?;
        let epoch = self.remote_branches.epoch;
        let reveals = match node.reader(now).standing(&self.reads) {
            // The node may have been out since, and have lost its rows: a row that was deleted looks like one that never was.
            _ if node.view().epoch != epoch => {
                Err(Aborted::from(Conflict::EpochNotOpen { epoch }).into())
            }
            ReadStanding::Pending => return Some(Obstacle::Slots),
            ReadStanding::Validated => Ok(()),
            ReadStanding::Changed => Err(self.changed(None)),
        };
        slot.fill(reveals);
        self.revealing = None;
        None
    }

    /// Something that it has read has changed: the error names a row of the granule that it read, or the table.
    pub(super) fn changed(&self, granule: Option<&GranuleId>) -> Error {
        let mut rows = self.reads.rows().iter();
        let read = rows.find(|read| granule.is_none_or(|granule| read.granule == *granule));
        let conflict = match (read, granule) {
            (Some(read), _) => {
                let (table, key) = &read.key;
                Conflict::ReadChanged { table: *table, key: KeyExcerpt::new(key) }
            }
            (None, granule) => {
                let table = granule.map_or(TableId(0), |granule| granule.family);
                Conflict::RangeChanged { table }
            }
        };
        Aborted::from(conflict).into()
    }
}

/// Tables that every shard has are in no granule.
fn check_table(topology: &Topology, table: TableId) -> Result<()> {
    let found = topology.tables().get(table).ok_or_else(|| not_known(table))?;
    match found.partitioning() {
        Partitioning::Everywhere => Err(Rejected::TableEverywhere { table }.into()),
        Partitioning::Hash { .. } | Partitioning::Range { .. } => Ok(()),
    }
}

fn granule_of(layout: &GranuleLayout, table: TableId, key: &Bytes) -> Result<GranuleId> {
    layout.granule_of(table, key).ok_or_else(|| not_known(table))
}

fn not_known(table: TableId) -> Error {
    Aborted::from(Conflict::TableNotKnown { table }).into()
}

/// The bounds of the keys that a scan can meet.
fn bounds(range: &OwnedScan) -> (Bound<Bytes>, Bound<Bytes>) {
    let end = match &range.end {
        RangeEnd::Bound(bound) => bound.clone(),
        RangeEnd::Prefix(prefix) => after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded),
    };
    (range.start.clone(), end)
}

/// The least key above all that begin with the prefix; `None` if there is none.
fn after_prefix(prefix: &Bytes) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above.into())
}

fn is_within(key: &Bytes, start: &Bound<Bytes>, end: &Bound<Bytes>) -> bool {
    let is_after = match start {
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
        Bound::Unbounded => true,
    };
    is_after
        && match end {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        }
}

/// The rows that a scan brings, in its order.
fn limited(rows: BTreeMap<Bytes, Bytes>, scan: &Scan<'_>) -> Vec<(Bytes, Bytes)> {
    match scan.reverse {
        true => rows.into_iter().rev().take(scan.limit).collect(),
        false => rows.into_iter().take(scan.limit).collect(),
    }
}
