//! The records of a worker's streams, on their way to its log on disk.
//!
//! ```text
//! stream ─ changes ─► new records ─ Write ─► the log on disk ─ Recorded ─► stream: persisted
//! engine ─ records ────────┘                                          └──► engine: Recorded
//!                          restore, and what follows it in its stream ─► a checkpoint ─► stream: persisted
//! ```
//! One log has the records of all streams of a worker, so they become durable in the order in which they were made. The record
//! of a snapshot from a peer does not have its rows: it counts once a checkpoint has these, and so does what follows it in its
//! stream.

use bytes::Bytes;
use shoal_engine::engine::OF_NODE;
use shoal_log::{LogLength, RecordedChanges, StreamPlantedBugs, StreamRecord};
use shoal_types::ShardId;
use shoal_wal::Record;
use std::collections::{BTreeMap, VecDeque};

/// The kind of an engine's records in the log on disk.
pub(crate) const ENGINE: u8 = 20;
/// The kind of those that void the ones of the same shard before them.
pub(crate) const ENGINE_FIRST: u8 = 21;

/// A stream of a worker: its shard, and its [number](crate::hosted_stream::HostedStream::number).
pub(super) type StreamKey = (ShardId, u64);

/// Stands in for the stream of records that belong to the node; those of streams are counted from 1.
pub(super) const RECORDS_OF_NODE: StreamKey = (OF_NODE, 0);

/// A record that does not count as durable yet.
#[derive(Debug, Clone, Copy)]
struct PendingRecord {
    /// What of its stream is durable with the record.
    holds: DurableRecords,
    /// The number of entries for which a snapshot stands, if it is the record of one.
    restores: Option<LogLength>,
}

/// What of a stream has become durable.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurableRecords {
    /// Changes of the stream.
    pub(super) changes: usize,
    /// Records of the engine.
    pub(super) of_engine: u64,
}

impl DurableRecords {
    fn add(&mut self, other: DurableRecords) {
        self.changes += other.changes;
        self.of_engine += other.of_engine;
    }
}

/// What streams have recorded, and is not durable.
#[derive(Debug, Default)]
pub(super) struct PendingRecords {
    new: Vec<Record>,
    pending: VecDeque<(StreamKey, PendingRecord)>,
    /// How many of these are records of snapshots.
    restores: usize,
    /// Records that are in the log on disk, and wait for a checkpoint: of each stream the first is that of a snapshot.
    held: BTreeMap<StreamKey, VecDeque<PendingRecord>>,
    planted: StreamPlantedBugs,
}

impl PendingRecords {
    /// Nothing is recorded.
    pub(super) fn new(planted: StreamPlantedBugs) -> PendingRecords {
        PendingRecords { planted, ..PendingRecords::default() }
    }

    /// Takes what a stream has recorded.
    pub(super) fn add(&mut self, stream: StreamKey, records: Vec<RecordedChanges>) {
        for RecordedChanges { record, changes } in records {
            let restores = match &record {
                StreamRecord::Restore { length } if !self.planted.count_snapshot_early => {
                    Some(*length)
                }
                _ => None,
            };
            self.restores += usize::from(restores.is_some());
            let holds = DurableRecords { changes, of_engine: 0 };
            self.pending.push_back((stream, PendingRecord { holds, restores }));
            let (shard, payload) = (stream.0, record.encode());
            self.new.push(Record { kind: StreamRecord::KIND, shard, payload });
        }
    }

    /// Takes a record of the engine, which follows what its stream has recorded.
    pub(super) fn add_of_engine(&mut self, stream: StreamKey, payload: Bytes, is_first: bool) {
        let holds = DurableRecords { changes: 0, of_engine: 1 };
        self.pending.push_back((stream, PendingRecord { holds, restores: None }));
        let kind = match is_first {
            true => ENGINE_FIRST,
            false => ENGINE,
        };
        self.new.push(Record { kind, shard: stream.0, payload: payload.into() });
    }

    /// The records that were added since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.new)
    }

    /// Whether a stream waits for a checkpoint that has the rows of a snapshot.
    pub(super) fn await_checkpoint(&self) -> bool {
        !self.held.is_empty() || self.restores > 0
    }

    /// Notes that so many more are in the log on disk. Returns what of each stream is durable.
    ///
    /// # Panics
    /// If fewer were written.
    pub(super) fn persist(&mut self, records: u64) -> BTreeMap<StreamKey, DurableRecords> {
        let mut durable: BTreeMap<StreamKey, DurableRecords> = BTreeMap::new();
        for _ in 0..records {
            let (stream, record) = self.pending.pop_front().expect("what is durable was written");
            self.restores -= usize::from(record.restores.is_some());
            match self.held.get_mut(&stream) {
                Some(held) => held.push_back(record),
                None if record.restores.is_some() => {
                    self.held.insert(stream, [record].into());
                }
                None => durable.entry(stream).or_default().add(record.holds),
            }
        }
        durable
    }

    /// Notes that a checkpoint is durable, whose rows stand for so many entries of each stream. Returns what of each stream
    /// is durable by that.
    pub(super) fn checkpointed(
        &mut self,
        lengths: &BTreeMap<StreamKey, LogLength>,
    ) -> BTreeMap<StreamKey, DurableRecords> {
        let mut durable: BTreeMap<StreamKey, DurableRecords> = BTreeMap::new();
        for (stream, length) in lengths {
            let Some(held) = self.held.get_mut(stream) else { continue };
            let counts = |record: &PendingRecord| record.restores.is_none_or(|it| it <= *length);
            while let Some(record) = held.front().copied().filter(counts) {
                held.pop_front();
                durable.entry(*stream).or_default().add(record.holds);
            }
            if held.is_empty() {
                self.held.remove(stream);
            }
        }
        durable
    }

    /// Forgets what waits of streams that have ended: no checkpoint is needed for them.
    pub(super) fn retain(&mut self, is_there: impl Fn(&StreamKey) -> bool) {
        self.held.retain(|stream, _| is_there(stream));
        for (_, record) in self.pending.iter_mut().filter(|(stream, _)| !is_there(stream)) {
            self.restores -= usize::from(record.restores.take().is_some());
        }
    }

    /// The number of records that do not count as durable.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.held.values().map(VecDeque::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamKey = (ShardId(1), 4);
    const OTHER: StreamKey = (ShardId(2), 5);

    fn restore(length: u64) -> RecordedChanges {
        RecordedChanges { record: StreamRecord::Restore { length: LogLength(length) }, changes: 1 }
    }

    fn changes(changes: usize) -> DurableRecords {
        DurableRecords { changes, of_engine: 0 }
    }

    fn append() -> RecordedChanges {
        let (decided, entry) = (LogLength(0), Bytes::from_static(b"x"));
        RecordedChanges { record: StreamRecord::Append { decided, entry }, changes: 2 }
    }

    #[test]
    fn a_snapshot_and_what_follows_it_wait_for_a_checkpoint() {
        let mut records = PendingRecords::default();
        records.add(STREAM, vec![append(), restore(7), append()]);
        records.add(OTHER, vec![append()]);
        assert!(records.await_checkpoint());
        assert_eq!(records.persist(2), [(STREAM, changes(2))].into());
        assert_eq!(records.persist(2), [(OTHER, changes(2))].into());
        let lengths = |length| [(STREAM, LogLength(length)), (OTHER, LogLength(9))].into();
        assert_eq!(records.checkpointed(&lengths(6)), [].into(), "it began before the snapshot");
        records.add(STREAM, vec![restore(9)]);
        assert_eq!(records.persist(1), [].into());
        assert_eq!(records.checkpointed(&lengths(7)), [(STREAM, changes(3))].into());
        assert!(records.await_checkpoint(), "a second snapshot came meanwhile");
        assert_eq!(records.checkpointed(&lengths(9)), [(STREAM, changes(1))].into());
        assert_eq!((records.await_checkpoint(), records.len()), (false, 0));
    }

    #[test]
    fn records_of_an_engine_become_durable_behind_those_of_its_stream() {
        let mut records = PendingRecords::default();
        records.add(STREAM, vec![append()]);
        records.add_of_engine(STREAM, Bytes::from_static(b"x"), false);
        records.add(STREAM, vec![restore(7)]);
        records.add_of_engine(STREAM, Bytes::new(), true);
        let kinds: Vec<u8> = records.take_new().iter().map(|record| record.kind).collect();
        assert_eq!(kinds, [StreamRecord::KIND, ENGINE, StreamRecord::KIND, ENGINE_FIRST]);
        let durable = |changes| DurableRecords { changes, of_engine: 1 };
        assert_eq!(records.persist(2), [(STREAM, durable(2))].into());
        assert_eq!(records.persist(2), [].into(), "they wait for the rows of the snapshot");
        let lengths = [(STREAM, LogLength(7))].into();
        assert_eq!(records.checkpointed(&lengths), [(STREAM, durable(1))].into());
    }

    #[test]
    fn a_stream_that_has_ended_waits_for_no_checkpoint() {
        let mut records = PendingRecords::default();
        records.add(STREAM, vec![restore(7), append()]);
        records.persist(1);
        records.add(STREAM, vec![restore(9)]);
        records.add(OTHER, vec![restore(3)]);
        records.retain(|stream| *stream == OTHER);
        records.persist(2);
        assert!(records.await_checkpoint(), "the other one waits");
        records.retain(|_| false);
        records.persist(1);
        assert_eq!((records.await_checkpoint(), records.len()), (false, 0));
    }
}
