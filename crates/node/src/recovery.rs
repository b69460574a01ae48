//! What a worker's checkpoint and its log on disk hold when its node begins again.
//!
//! ```text
//! checkpoint: heads, snapshots ─┐
//! log: ... │ mark │ records ────┴─► storages of streams, beginning where the parts of their shards end
//! ```
//! The log is read from a segment that begins before the checkpoint did, so its first records are in the heads. The checkpoint
//! put a **mark** into the log when it began: records before it are passed over.
//!
//! Where the record of a snapshot from a peer follows the mark, the log does not have its rows. Nothing behind that record counted
//! as durable (`records.rs`), so it is **void**, and what there was before is the state of the stream. The next process says so
//! in its log, since its own records go on from that state.

use crate::checkpoint_state::CheckpointBlock;
use crate::records::{ENGINE, ENGINE_FIRST};
use bytes::Bytes;
use shoal_cluster::manager::ProcessInstance;
use shoal_engine::engine::OF_NODE;
use shoal_log::{LogLength, MemoryStorage, RecordError, StreamHead, StreamRecord};
use shoal_types::ShardId;
use shoal_types::wire::decode;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// A checkpoint, or a log, is whole, and holds what no worker writes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecoveryError {
    /// A block of a checkpoint is malformed, or comes twice.
    #[error("a block of the checkpoint {0}")]
    Block(&'static str),
    /// A record cannot follow those before it.
    #[error("{shard}: {error}")]
    Record {
        /// The shard of the stream.
        shard: ShardId,
        /// What is wrong.
        error: RecordError,
    },
    /// The checkpoint's mark is not in the log.
    #[error("the log ends before the checkpoint {number} began")]
    NoMark {
        /// The number of the checkpoint.
        number: u64,
    },
}

/// What a worker begins with.
#[derive(Debug, Default)]
pub struct RecoveredWorker {
    /// What its streams had stored.
    pub(crate) storages: BTreeMap<ShardId, MemoryStorage>,
    /// For how many entries the parts of the checkpoint stand, and what the engine keeps beside them. The parts are to be
    /// passed to the worker before it starts.
    pub(crate) snapshots: BTreeMap<ShardId, (LogLength, Bytes)>,
    /// The engine's records, from the last first one on.
    pub(crate) engine_records: BTreeMap<ShardId, Vec<Bytes>>,
}

impl RecoveredWorker {
    /// What is left of streams that are stored without a checkpoint.
    #[must_use]
    pub fn of(storages: BTreeMap<ShardId, MemoryStorage>) -> RecoveredWorker {
        RecoveredWorker { storages, ..RecoveredWorker::default() }
    }

    /// The shards whose parts the worker is to receive before it starts.
    pub(crate) fn snapshot_shards(&self) -> BTreeSet<ShardId> {
        self.snapshots.keys().copied().collect()
    }
}

/// Reads a worker's checkpoint, if it has one, and then its log.
#[derive(Debug, Default)]
pub struct WorkerRecovery {
    heads: BTreeMap<ShardId, StreamHead>,
    snapshots: BTreeMap<ShardId, (LogLength, Bytes)>,
    storages: BTreeMap<ShardId, MemoryStorage>,
    engine_records: BTreeMap<ShardId, Vec<Bytes>>,
    /// The checkpoint whose mark is to come.
    awaited: Option<u64>,
    /// The streams whose last records are void.
    void: BTreeSet<ShardId>,
    /// A snapshot from a peer has come since the checkpoint.
    has_restored: bool,
    /// The processes that have written to the log, the oldest first.
    processes: Vec<ProcessInstance>,
}

/// So many processes are named again by a mark. The one that was admitted last is among them, unless as many were started after it
/// and not admitted: a list of so many says nothing of those that it lacks.
pub(crate) const PROCESSES_MAX: usize = 1024;

/// Adds a process to those that have written to a log.
pub(crate) fn name_process(processes: &mut Vec<ProcessInstance>, process: ProcessInstance) {
    if !processes.contains(&process) {
        processes.push(process);
        let surplus = processes.len().saturating_sub(PROCESSES_MAX);
        processes.drain(..surplus);
    }
}

impl WorkerRecovery {
    /// The kind of the records that are marks.
    pub const MARK: u8 = 17;
    /// The kind of the records that say that those of the stream behind the last snapshot from a peer are void.
    pub const VOID: u8 = 18;
    /// The kind of the records that name a process of the node: it writes what follows.
    pub const PROCESS: u8 = 19;

    /// Begins to read a worker that has no checkpoint.
    #[must_use]
    pub fn new() -> WorkerRecovery {
        WorkerRecovery::default()
    }

    /// Takes a block of a checkpoint; parts are passed over.
    ///
    /// # Errors
    /// If it is malformed, or comes twice.
    pub fn block(&mut self, bytes: &Bytes) -> Result<(), RecoveryError> {
        let block = decode(bytes).map_err(|_| RecoveryError::Block("is malformed"))?;
        let is_new = match block {
            CheckpointBlock::Head { shard, head } => self.heads.insert(shard, head).is_none(),
            CheckpointBlock::Snapshot { shard, length, state } => {
                self.snapshots.insert(shard, (length, state)).is_none()
            }
            CheckpointBlock::Part { .. } => true,
        };
        if is_new { Ok(()) } else { Err(RecoveryError::Block("comes twice")) }
    }

    /// The checkpoint with this number is read: its blocks stand for what the log has before its mark.
    ///
    /// # Errors
    /// If it has no snapshot of a stream that it has a head of, or the other way round.
    pub fn end_checkpoint(&mut self, number: u64) -> Result<(), RecoveryError> {
        let of_streams = self.snapshots.keys().filter(|shard| **shard != OF_NODE);
        if !self.heads.keys().eq(of_streams) {
            return Err(RecoveryError::Block("is missing"));
        }
        for (shard, head) in std::mem::take(&mut self.heads) {
            let storage = MemoryStorage::from_head(head);
            let storage = storage.map_err(|error| RecoveryError::Record { shard, error })?;
            self.storages.insert(shard, storage);
        }
        self.awaited = Some(number);
        Ok(())
    }

    /// Takes a record of the log.
    ///
    /// # Errors
    /// If it cannot follow those before it.
    pub fn record(
        &mut self,
        kind: u8,
        shard: ShardId,
        payload: &[u8],
    ) -> Result<(), RecoveryError> {
        let mut numbers = payload.chunks_exact(8).map(|it| it.try_into().expect("eight bytes"));
        if kind == WorkerRecovery::MARK {
            let number = numbers.next().map(u64::from_le_bytes);
            self.awaited.take_if(|awaited| number == Some(*awaited));
        }
        if [WorkerRecovery::MARK, WorkerRecovery::PROCESS].contains(&kind) {
            let named = numbers.map(|it| ProcessInstance(u64::from_le_bytes(it)));
            named.for_each(|process| name_process(&mut self.processes, process));
            return Ok(());
        }
        if self.awaited.is_some() {
            return Ok(());
        }
        if kind == WorkerRecovery::VOID {
            self.void.remove(&shard);
            return Ok(());
        }
        if [ENGINE, ENGINE_FIRST].contains(&kind) {
            if !self.void.contains(&shard) {
                self.engine_record(shard, payload, kind == ENGINE_FIRST);
            }
            return Ok(());
        }
        let failed = |error| RecoveryError::Record { shard, error };
        let record = StreamRecord::decode(payload).map_err(failed)?;
        match record {
            // The stream is another one from here on: nothing of the former one is needed.
            StreamRecord::Begin => {
                self.snapshots.remove(&shard);
                self.engine_records.remove(&shard);
                self.void.remove(&shard);
            }
            StreamRecord::Restore { .. } => {
                self.void.insert(shard);
                self.has_restored = true;
            }
            _ => {}
        }
        if self.void.contains(&shard) {
            return Ok(());
        }
        let storage = self.storages.entry(shard).or_insert_with(MemoryStorage::recorded);
        storage.replay(record).map_err(failed)
    }

    fn engine_record(&mut self, shard: ShardId, payload: &[u8], is_first: bool) {
        let records = self.engine_records.entry(shard).or_default();
        if is_first {
            records.clear();
        }
        if !payload.is_empty() {
            records.push(Bytes::copy_from_slice(payload));
        }
    }

    /// Whether a snapshot from a peer has come since the checkpoint: a later checkpoint may have had its rows.
    pub(crate) fn has_restored(&self) -> bool {
        self.has_restored
    }

    /// The processes that have written to the log, the oldest first.
    pub(crate) fn take_processes(&mut self) -> Vec<ProcessInstance> {
        std::mem::take(&mut self.processes)
    }

    /// Ends the reading. Returns what the worker begins with, and the streams whose last records are void: the log is to say
    /// so before it has others.
    ///
    /// # Errors
    /// If the mark of the checkpoint was not there, or a snapshot ends before the head of its stream begins.
    pub fn finish(self) -> Result<(RecoveredWorker, BTreeSet<ShardId>), RecoveryError> {
        let WorkerRecovery { snapshots, mut storages, engine_records, awaited, void, .. } = self;
        if let Some(number) = awaited {
            return Err(RecoveryError::NoMark { number });
        }
        for (shard, (length, _)) in snapshots.iter().filter(|(shard, _)| **shard != OF_NODE) {
            let storage = storages.get_mut(shard).expect("it has a head");
            let begun = storage.begin_behind(*length);
            begun.map_err(|error| RecoveryError::Record { shard: *shard, error })?;
        }
        Ok((RecoveredWorker { storages, snapshots, engine_records }, void))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn engine_records(records: &[(u8, &[u8])]) -> Vec<Bytes> {
        let mut recovery = WorkerRecovery::new();
        for (kind, payload) in records {
            recovery.record(*kind, SHARD, payload).expect("it can follow");
        }
        let (worker, _) = recovery.finish().expect("no checkpoint is awaited");
        worker.engine_records.get(&SHARD).cloned().unwrap_or_default()
    }

    #[test]
    fn a_first_record_of_an_engine_voids_those_before_it() {
        let records: [(u8, &[u8]); 4] =
            [(ENGINE, b"a"), (ENGINE_FIRST, b"b"), (ENGINE, b""), (ENGINE, b"c")];
        assert_eq!(engine_records(&records), [&b"b"[..], b"c"]);
    }

    #[test]
    fn what_an_engine_has_recorded_behind_a_snapshot_without_rows_is_void() {
        let restore = StreamRecord::Restore { length: LogLength(7) }.encode();
        let records: [(u8, &[u8]); 5] = [
            (ENGINE, b"a"),
            (StreamRecord::KIND, &restore),
            (ENGINE_FIRST, b"b"),
            (WorkerRecovery::VOID, b""),
            (ENGINE, b"c"),
        ];
        assert_eq!(engine_records(&records), [&b"a"[..], b"c"]);
    }
}
