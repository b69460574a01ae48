//! A chunk of a copy of a shard, as the sender sends it: see `steps/snapshot.rs`.

use crate::observation::MakoObservation;
use bytes::Bytes;
use shoal_store::{Change, VersionOrder};
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, Stamp, TableId, VectorWatermark};
use std::collections::BTreeSet;

/// The places of undecided versions in a chunk.
pub(super) type ChunkOrders<'p> = BTreeSet<(TableId, &'p [u8], VersionOrder)>;

/// What the sender of a copy knows of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotScope {
    /// Up to this clock it brings all that is committed.
    pub(super) cut: Clock,
    /// The epochs up to this one were settled when it began.
    pub(super) settled: Epoch,
}

/// A chunk of a copy of a shard.
pub type SnapshotChunk = shoal_replication::snapshot_chunk::SnapshotChunk<ChunkContents>;

/// What a chunk has of its range.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ChunkContents {
    /// The epochs up to this one were settled, as far as the sender knew, when the copy began.
    #[coded(short)]
    pub settled: Epoch,
    /// How those up to this one ended the sender knows no more.
    #[coded(short)]
    pub forgotten: Epoch,
    /// In the first part, the FVWs of those that do not cover all of their epoch. In every part, how far the sender knows
    /// each later epoch to be durable: each row is covered, and each deletion that the part shows by lacking a row.
    pub watermarks: Vec<VectorWatermark>,
    /// All rows in between, in order.
    pub rows: Vec<ChunkRow>,
    /// What is undecided in between, each version above the row of its key.
    pub undecided: Vec<UndecidedRow>,
}

/// A version of which it is not known whether it counts, since a shard that it depends on has not said how its epoch ended
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct UndecidedRow {
    /// The table of the version.
    #[coded(short)]
    pub table: TableId,
    /// The key of the version.
    pub key: Bytes,
    /// What becomes of the row: a delta where the sender has it from a stream.
    pub change: Change<Bytes>,
    /// The stamp, as the shard keeps it.
    pub stamp: Stamp,
}

/// A row of a chunk. It is committed: the epoch and the clock are all of its stamp that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ChunkRow {
    /// The table of the row.
    #[coded(short)]
    pub table: TableId,
    /// The epoch of its version.
    #[coded(short)]
    pub epoch: Epoch,
    /// The clock of its version.
    #[coded(short)]
    pub clock: Clock,
    /// The key of the row.
    pub key: Bytes,
    /// The value of the committed version.
    pub value: Bytes,
}

impl ChunkContents {
    /// The places of what is undecided in it.
    pub(super) fn undecided_orders(&self) -> ChunkOrders<'_> {
        let order = |row: &UndecidedRow| (row.stamp.epoch, row.stamp.clock);
        self.undecided.iter().map(|row| (row.table, &row.key[..], order(row))).collect()
    }
}

/// What a checker sees of a chunk.
pub(super) fn observation(chunk: &SnapshotChunk, withheld: usize) -> MakoObservation {
    let plain = |(table, key): &(TableId, Bytes)| (*table, key.to_vec());
    let row = |row: &ChunkRow| (row.table, row.key.to_vec(), row.epoch, row.clock);
    let undecided =
        |row: &UndecidedRow| (row.table, row.key.to_vec(), row.stamp.epoch, row.stamp.clock);
    let contents = &chunk.contents;
    MakoObservation::Given {
        shard: chunk.shard,
        cut: chunk.cut,
        from: plain(&chunk.from),
        until: chunk.until.as_ref().map(plain),
        settled: (contents.forgotten, contents.settled),
        watermarks: contents.watermarks.clone(),
        rows: contents.rows.iter().map(row).collect(),
        undecided: contents.undecided.iter().map(undecided).collect(),
        withheld,
    }
}
