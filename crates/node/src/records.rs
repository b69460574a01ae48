//! The records of a worker's streams, on their way to its log on disk.
//!
//! ```text
//! stream ─ changes ─► new records ─ Write ─► the log on disk ─ Recorded ─► stream: persisted
//! ```
//! One log has the records of all streams of a worker, so they become durable in the order in which they were made.

use shoal_log::{RecordedChanges, StreamRecord};
use shoal_types::ShardId;
use shoal_wal::Record;
use std::collections::{BTreeMap, VecDeque};

/// A record that is not durable yet.
#[derive(Debug)]
struct PendingRecord {
    shard: ShardId,
    /// The [number](crate::hosted_stream::HostedStream::number) of its stream.
    stream: u64,
    /// The changes of that which are durable with the record.
    changes: usize,
}

/// What streams have recorded, and is not durable.
#[derive(Debug, Default)]
pub(super) struct PendingRecords {
    new: Vec<Record>,
    pending: VecDeque<PendingRecord>,
}

impl PendingRecords {
    /// Takes what a stream has recorded.
    pub(super) fn add(&mut self, shard: ShardId, stream: u64, records: Vec<RecordedChanges>) {
        for RecordedChanges { record, changes } in records {
            self.pending.push_back(PendingRecord { shard, stream, changes });
            let payload = record.encode();
            self.new.push(Record { kind: StreamRecord::KIND, shard, payload });
        }
    }

    /// The records that were added since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.new)
    }

    /// Notes that so many more are durable. Returns for each stream, by shard and number, how many of its changes are.
    ///
    /// # Panics
    /// If fewer were written.
    pub(super) fn persist(&mut self, records: u64) -> BTreeMap<(ShardId, u64), usize> {
        let mut changes = BTreeMap::new();
        for _ in 0..records {
            let record = self.pending.pop_front().expect("what is durable was written");
            *changes.entry((record.shard, record.stream)).or_default() += record.changes;
        }
        changes
    }

    /// The number of records that are not durable.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}
