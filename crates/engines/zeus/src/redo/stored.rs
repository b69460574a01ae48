//! The form of redo records, and of a node's part of a checkpoint, which is a list of such records.

use crate::granule::GranuleId;
use crate::message::{Inv, ReplicationInv};
use crate::record::{OwnershipRecord, OwnershipTs};
use crate::rows::{CarriedRow, Row, RowKey};
use crate::version::{PipelineId, Slot, Version, WorkerPipeline};
use crate::view::View;
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_types::wire::Coded;
use shoal_types::{Clock, NodeId, ShardId, TableId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a step has changed.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct RedoRecord {
    pub(crate) parts: Vec<RedoPart>,
}

/// Changes of one membership: first the holdings are set, and then the changes are made in their order.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct RedoPart {
    /// The number of the last request of the node.
    #[coded(short)]
    pub(crate) requests: u64,
    pub(crate) holdings: Vec<StoredHolding>,
    pub(crate) changes: Vec<Change>,
}

/// A granule as the node knows it.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct StoredHolding {
    pub(crate) granule: GranuleId,
    pub(crate) state: HoldingState,
}

/// What a node knows of a granule.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) enum HoldingState {
    /// It knows nothing of it.
    #[coded(tag = 0)]
    Unknown,
    /// It has given it up in this epoch, with this record.
    #[coded(tag = 1)]
    Forgotten(Arc<OwnershipRecord>),
    /// It may have a copy.
    #[coded(tag = 2)]
    Known(Arc<KnownHolding>),
}

/// A holding, but for what messages bring again.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct KnownHolding {
    pub(crate) record: OwnershipRecord,
    pub(crate) pending: Option<Inv>,
    /// An `Inv` with the pending record was acknowledged.
    pub(crate) is_acknowledged: bool,
    pub(crate) hint: OwnershipTs,
    #[coded(short)]
    pub(crate) granted: u64,
    pub(crate) is_replica: bool,
    pub(crate) serves: bool,
    pub(crate) begins_empty: bool,
    #[coded(short)]
    pub(crate) clock: Clock,
}

/// A slot that the node has applied.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct StoredSlot {
    pub(crate) inv: ReplicationInv,
    /// The node that has sent it; this one, if it is its own.
    #[coded(short)]
    pub(crate) from: NodeId,
    /// What it has read or written, if it is the node's own.
    pub(crate) touched: Vec<GranuleId>,
}

/// A row as a node has it.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) struct StoredRow {
    #[coded(short)]
    pub(crate) table: TableId,
    pub(crate) key: Bytes,
    pub(crate) version: Version,
    pub(crate) value: Option<Bytes>,
    pub(crate) is_valid: bool,
}

impl StoredRow {
    /// A row as the node has it.
    pub(crate) fn of((table, key): &RowKey, row: &Row) -> StoredRow {
        let Row { version, value, is_valid } = row.clone();
        StoredRow { table: *table, key: key.clone(), version, value, is_valid }
    }

    /// The row, as the node had it.
    pub(crate) fn row(self) -> (RowKey, Row) {
        let StoredRow { table, key, version, value, is_valid } = self;
        ((table, key), Row { version, value, is_valid })
    }

    /// A row that another node has given.
    pub(super) fn carried(row: &CarriedRow) -> StoredRow {
        let CarriedRow { table, key, version, value } = row.clone();
        StoredRow { table, key, version, value: Some(value), is_valid: true }
    }
}

/// A change of a node's state.
#[derive(Debug, Clone, PartialEq, Coded)]
pub(crate) enum Change {
    /// A slot was committed, or applied.
    #[coded(tag = 0)]
    Slot(StoredSlot),
    /// All slots of a pipeline up to this one are validated.
    #[coded(tag = 1)]
    Validated {
        pipeline: PipelineId,
        #[coded(short)]
        slot: Slot,
    },
    /// These are all rows of the granule.
    #[coded(tag = 2)]
    Rows { granule: GranuleId, rows: Vec<StoredRow> },
    /// All rows of the granule up to this clock are validated: a checkpoint may have later ones.
    #[coded(tag = 3)]
    RowsValid {
        granule: GranuleId,
        #[coded(short)]
        clock: Clock,
    },
    /// The node has no rows of the granule.
    #[coded(tag = 4)]
    RowsGone { granule: GranuleId },
    /// The node has entered a configuration. What that changes is not recorded besides.
    #[coded(tag = 5)]
    Entered(Arc<View>),
    /// These are the tables now.
    #[coded(tag = 6)]
    Placed(Arc<Topology>),
    /// The live nodes that have not replayed, and those that may not know it of this one.
    #[coded(tag = 7)]
    Barrier { replaying: BTreeSet<NodeId>, unaware: BTreeSet<NodeId> },
    /// The shards whose directories the node is copying, and those that may lack granules.
    #[coded(tag = 8)]
    Directories { copying: BTreeSet<ShardId>, rebuilt: BTreeSet<ShardId> },
    /// The first part of the checkpoint with this number was taken: it has all that was recorded before.
    #[coded(tag = 13)]
    CheckpointBegan {
        #[coded(short)]
        number: u64,
    },
    /// The configuration that the node is in. Only in checkpoints, as what follows.
    #[coded(tag = 9)]
    In(Arc<View>),
    /// How far a pipeline of the node is.
    #[coded(tag = 10)]
    OwnPipeline {
        of: WorkerPipeline,
        #[coded(short)]
        last: Slot,
        #[coded(short)]
        last_clock: Clock,
        #[coded(short)]
        validated: Slot,
    },
    /// How far a pipeline is that the node follows.
    #[coded(tag = 11)]
    FollowedPipeline {
        pipeline: PipelineId,
        #[coded(short)]
        applied: Slot,
        #[coded(short)]
        validated: Slot,
    },
    /// A slot that is pending, whose rows are among those of its granules.
    #[coded(tag = 12)]
    PendingSlot(StoredSlot),
}
