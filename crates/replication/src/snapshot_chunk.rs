//! A chunk of a copy of a shard, as every engine sends it, and how a replica takes one of its rows.

use crate::applied_write::AppliedWrite;
use crate::snapshot_transfer::{CopyKey, place_of};
use bytes::Bytes;
use shoal_store::{Session, WalkPlace};
use shoal_types::wire::Coded;
use shoal_types::{Clock, NodeId, Result, ShardId, Stamp, TableId};

/// A chunk of a copy of a shard. `C` is what the engine sends of the range: rows, and what goes with them.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct SnapshotChunk<C> {
    /// The shard that is copied.
    #[coded(short)]
    pub shard: ShardId,
    /// Which copy.
    pub copy: u64,
    /// The sender had all streams up to here when it began to send chunks.
    #[coded(short)]
    pub cut: Clock,
    /// Where it begins: a table, and a key.
    pub from: (TableId, Bytes),
    /// Where the next one begins. `None` for the last.
    pub until: Option<(TableId, Bytes)>,
    /// All that there is in between, in order.
    pub contents: C,
}

impl<C> SnapshotChunk<C> {
    /// Where it begins, and where the next one does.
    pub fn range(&self) -> (WalkPlace, Option<WalkPlace>) {
        (place_of(&self.from), self.until.as_ref().map(place_of))
    }

    /// Whether it ends behind the place at which it begins.
    pub fn ascends(&self) -> bool {
        self.until.as_ref().is_none_or(|until| self.from < *until)
    }

    /// The identity of its copy, which `peer` sends, where the shard is at this place.
    pub fn key(&self, at: usize, peer: NodeId) -> CopyKey {
        CopyKey { at, peer, copy: self.copy }
    }
}

/// The version of a row that a chunk brings.
#[derive(Debug, Clone, Copy)]
pub struct ChunkVersion<'a> {
    /// The table of the row.
    pub table: TableId,
    /// The key whose version it is.
    pub key: &'a [u8],
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The stamp of the version, as the shard keeps it.
    pub stamp: &'a Stamp,
}

/// Puts a version in the store of a replica, unless there is a newer one.
///
/// # Errors
/// If the store does not take it now: nothing was done, and the chunk comes again.
pub fn copy_row<O: From<AppliedWrite>>(
    shard: ShardId,
    session: &mut Session,
    version: ChunkVersion<'_>,
    mut observe: Option<&mut Vec<O>>,
) -> Result<()> {
    let ChunkVersion { table, key, value, stamp } = version;
    let transaction = session.begin();
    transaction.replicate(table, key, value)?;
    let order = (stamp.epoch, stamp.clock);
    transaction.lock()?.replay(
        stamp.as_ref(),
        |newest| (newest.epoch, newest.clock) < order,
        |_| false,
        |table, key, won| {
            if let Some(observations) = &mut observe {
                let (stamp, key) = (stamp.clone(), key.to_vec());
                observations.push(AppliedWrite { shard, stamp, table, key, won }.into());
            }
        },
    );
    Ok(())
}
