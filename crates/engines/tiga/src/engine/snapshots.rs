//! The snapshots that a worker gives and takes, as far as they are.

use super::message::SnapshotPart;
use crate::ledger::Ledger;
use crate::snapshot::SnapshotInProgress;
use bytes::Bytes;
use shoal_replication::checkpoint_copy::CheckpointCopy;
use shoal_replication::snapshot_transfer::{CopyKey, SnapshotReceivers, SnapshotSenders};
use shoal_types::ShardId;
use std::collections::BTreeMap;

/// The state of a snapshot in a checkpoint. That of one which a peer sends names the copy.
pub(super) const CHECKPOINT: Bytes = Bytes::new();

/// The snapshots that a worker gives and takes.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub(super) senders: SnapshotSenders<()>,
    /// The heads of copies, once all else was taken.
    pub(super) heads: BTreeMap<u64, Bytes>,
    pub(super) receivers: SnapshotReceivers<SnapshotPart>,
    /// The copy for a checkpoint of this node.
    pub(super) checkpoint: CheckpointCopy<()>,
    /// What has come, of each shard.
    pub(super) in_progress: BTreeMap<ShardId, (CopyKey, SnapshotInProgress)>,
    /// What is read of this node's checkpoint, of each shard.
    pub(super) read: BTreeMap<ShardId, SnapshotInProgress>,
    /// Copies of which all has come.
    pub(super) whole: BTreeMap<ShardId, (CopyKey, Ledger)>,
}

impl Snapshots {
    /// How many copies are given, and taken.
    pub(super) fn sizes(&self) -> [usize; 2] {
        [self.senders.sizes()[0], self.receivers.size()]
    }
}
