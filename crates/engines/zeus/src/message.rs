//! What nodes say to each other: the ownership protocol (§4 of the paper), the reliable commit (§5), and recovery.
//!
//! Every message has the epoch of its sender, and a node of another epoch drops it (rule Z10). Each may be lost, repeated,
//! reordered or late; what is not answered is sent again.

use crate::granule::GranuleId;
use crate::record::{OwnershipRecord, OwnershipTs, RequestKind, Requested};
use crate::rows::{CarriedRow, RowKey, RowWrite};
use crate::version::{PipelineId, Slot, Version};
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, NodeId, ShardId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A message between two nodes.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ZeusMessage {
    /// The epoch of the sender. Not in its short form: lists hold messages, and no form of one may be much smaller than it is in
    /// memory.
    pub epoch: Epoch,
    /// What it says.
    pub body: MessageBody,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum MessageBody {
    /// A node to a directory node, by default the leader of the granule's shard. Repeated until it is granted, or not needed
    /// any more; void once the record has changed (rule Z5).
    #[coded(tag = 0)]
    Request(OwnershipRequest),
    /// A directory node, or an arbiter that knows better, to a requester: not granted. The record is the newest that is
    /// validated at the sender.
    #[coded(tag = 1)]
    Nack {
        /// The granule that was asked for.
        granule: GranuleId,
        /// What is validated of it at the sender.
        record: OwnershipRecord,
        /// Whether a newer record is pending at the sender. It may be validated elsewhere: nodes that the record does not name may
        /// have the granule.
        is_pending: bool,
    },
    /// The driver to all arbiters: replace a record. An arbiter that stays invalid sends it again; a repeat is acknowledged
    /// again.
    #[coded(tag = 2)]
    Inv(Inv),
    /// An arbiter to the requester, or to the node that replays.
    #[coded(tag = 3)]
    Ack(OwnershipAck),
    /// The requester, which has applied, to the arbiters: the record is validated. Also the answer to an `Inv` or an `Ack`
    /// that is older than it.
    #[coded(tag = 4)]
    Val {
        /// The granule whose arbiters are valid again.
        granule: GranuleId,
        /// What they agree on.
        record: OwnershipRecord,
    },
    /// A coordinator, or a node that replays for a dead one, to the readers of what was written. Repeated until it is
    /// acknowledged.
    #[coded(tag = 5)]
    ReplicationInv(ReplicationInv),
    /// A follower to the sender of a `ReplicationInv`: it has applied it, and all before it.
    #[coded(tag = 6)]
    ReplicationAck {
        /// The pipeline of the slot.
        pipeline: PipelineId,
        /// What the follower has applied.
        #[coded(short)]
        slot: Slot,
    },
    /// The coordinator, or a node that replays, to followers: all slots up to this one are validated.
    #[coded(tag = 7)]
    ReplicationVal {
        /// The pipeline that is validated up to the slot.
        pipeline: PipelineId,
        /// The last slot that is validated.
        #[coded(short)]
        slot: Slot,
    },
    /// A node to all: it has replayed what it applied of dead coordinators (rule Z11). Repeated until it is acknowledged.
    #[coded(tag = 8)]
    Replayed,
    /// The answer to `Replayed`.
    #[coded(tag = 9)]
    ReplayedHeard,
    /// A directory node that is new to all others: what is in the directory? Repeated until it has all (rule Z18).
    #[coded(tag = 10)]
    CopyRequest {
        /// The shard whose directory is copied.
        #[coded(short)]
        shard: ShardId,
        /// The last granule that has come; `None` at the beginning.
        after: Option<GranuleId>,
    },
    /// The answer.
    #[coded(tag = 11)]
    Copy(DirectoryCopy),
    /// The owner of a granule to a node that is to become a reader of it: ask for that. Repeated while readers are too few.
    #[coded(tag = 12)]
    Recruit {
        /// The granule that has too few readers.
        granule: GranuleId,
        /// The granule's record: a node that is no directory node would ask as of an older one, and be refused.
        o_ts: OwnershipTs,
    },
    /// A requester to the node that gives it the rows: the next part of them. Repeated when the `Ack` with the first part is.
    #[coded(tag = 13)]
    PartRequest(PartRequest),
    /// The answer. Its sender has acknowledged the record and waits for the `Val`: until then no row of the granule changes.
    #[coded(tag = 14)]
    Part {
        /// What it answers.
        request: PartRequest,
        /// The rows that follow.
        part: CarriedPart,
    },
    /// The leader of a shard to a node that is new to its directory: has it copied all? Repeated until it has.
    #[coded(tag = 15)]
    CopyQuery {
        /// The shard whose directory it copies.
        #[coded(short)]
        shard: ShardId,
    },
    /// The answer: it has.
    #[coded(tag = 16)]
    CopyDone {
        /// The shard whose directory it has.
        #[coded(short)]
        shard: ShardId,
    },
}

/// A request for a part of a granule's rows.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct PartRequest {
    /// The granule that moves.
    pub granule: GranuleId,
    /// The record that the sender has acknowledged.
    pub o_ts: OwnershipTs,
    /// The last row that has come.
    pub after: RowKey,
}

/// A request for a level of a granule.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct OwnershipRequest {
    /// Counts the requests of the requester; repeats of one have its number.
    #[coded(short)]
    pub number: u64,
    /// The granule whose level is asked for.
    pub granule: GranuleId,
    /// The change of levels that is asked for.
    pub kind: RequestKind,
    /// The newest record that the requester has learned of.
    pub as_of: OwnershipTs,
    /// For how long the transaction has wanted it: the older one goes first.
    pub waited: Duration,
}

/// An invalidation of an ownership record.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
#[coded(check = Inv::check)]
pub struct Inv {
    /// The granule that changes hands, or whose readers change.
    pub granule: GranuleId,
    /// The record to be.
    pub record: OwnershipRecord,
    /// The validated record from which it was driven (rule Z16).
    pub replaced: OwnershipRecord,
    /// What was asked for, by which member.
    pub requested: Requested,
    /// The number of the request.
    #[coded(short)]
    pub number: u64,
    /// For how long the requester had waited when it was driven.
    pub waited: Duration,
    /// The nodes that have to acknowledge, computed anew in each epoch.
    pub arbiters: BTreeSet<NodeId>,
    /// The reader that gives the rows, where there is no owner to give them.
    pub source: Option<NodeId>,
    /// The requester while it lives, and else the node that replays.
    #[coded(short)]
    pub answer_to: NodeId,
}

/// An arbiter's acknowledgement. It carries the whole invalidation, which the requester may not have seen.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct OwnershipAck {
    /// What is acknowledged.
    pub inv: Inv,
    /// The first rows of the granule, from the node that gives it to a requester that has none.
    pub rows: Option<CarriedPart>,
}

/// Rows of a granule as they are carried to a new replica: all of them, or those behind an earlier part.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
#[coded(check = CarriedPart::check)]
pub struct CarriedPart {
    /// The granule's clock.
    #[coded(short)]
    pub clock: Clock,
    /// The rows, all validated, ascending by table and key.
    pub rows: Vec<CarriedRow>,
    /// Whether no more follow.
    pub is_last: bool,
}

/// A locally committed transaction, for its followers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
#[coded(check = ReplicationInv::check)]
pub struct ReplicationInv {
    /// The pipeline of the coordinator, which may be dead.
    pub pipeline: PipelineId,
    /// Its place there.
    #[coded(short)]
    pub slot: Slot,
    /// All earlier slots are validated: a follower that lacks them need not wait for them. Computed anew when it is sent
    /// again.
    pub previous_validated: bool,
    /// All readers of what was written.
    pub followers: BTreeSet<NodeId>,
    /// The clock of what was written.
    #[coded(short)]
    pub clock: Clock,
    /// The rows, by granule.
    pub writes: Vec<GranuleWrites>,
}

/// What a transaction writes to one granule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Coded)]
pub struct GranuleWrites {
    /// The granule; a transaction has it once.
    pub granule: GranuleId,
    /// Each row once.
    pub rows: Vec<RowWrite>,
}

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct DirectoryCopy {
    /// The shard whose granules are copied.
    #[coded(short)]
    pub shard: ShardId,
    /// What it answers: the granule after which it begins.
    pub after: Option<GranuleId>,
    /// Whether the sender has the directory; else these are the records of granules that it holds itself.
    pub is_directory: bool,
    /// Whether the directory is one that was rebuilt, and may lack granules.
    pub is_rebuilt: bool,
    /// Records, ascending by granule, pending ones too.
    pub records: Vec<CopiedRecord>,
    /// Whether there are no more.
    pub is_last: bool,
}

/// What a record takes beside the name of its granule, about.
const RECORD_BYTES: usize = 64;

/// A record of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct CopiedRecord {
    /// The granule, of the shard that is copied.
    pub granule: GranuleId,
    /// The newest record that is validated at the sender.
    pub record: OwnershipRecord,
    /// Whether the sender itself has a copy of the granule that serves. A directory that is rebuilt names no other nodes, but for
    /// the readers of an owner that reports itself.
    pub serves: bool,
    /// What is pending beside it.
    pub pending: Option<Inv>,
    /// Whether the sender has acknowledged that, or another one that was pending before it.
    pub is_acknowledged: bool,
}

impl MessageBody {
    /// The granule that it is about, if it is one of the ownership protocol.
    pub(crate) fn granule(&self) -> Option<&GranuleId> {
        match self {
            MessageBody::Request(request) => Some(&request.granule),
            MessageBody::Nack { granule, .. }
            | MessageBody::Val { granule, .. }
            | MessageBody::Recruit { granule, .. } => Some(granule),
            MessageBody::Inv(inv) | MessageBody::Ack(OwnershipAck { inv, .. }) => {
                Some(&inv.granule)
            }
            MessageBody::PartRequest(request) | MessageBody::Part { request, .. } => {
                Some(&request.granule)
            }
            MessageBody::ReplicationInv(_)
            | MessageBody::ReplicationAck { .. }
            | MessageBody::ReplicationVal { .. }
            | MessageBody::Replayed
            | MessageBody::ReplayedHeard
            | MessageBody::CopyRequest { .. }
            | MessageBody::Copy(_)
            | MessageBody::CopyQuery { .. }
            | MessageBody::CopyDone { .. } => None,
        }
    }

    /// The bytes of the rows and records that the message carries.
    pub(crate) fn bytes_carried(&self) -> usize {
        match self {
            MessageBody::Copy(copy) => copy.records.iter().map(CopiedRecord::bytes).sum(),
            MessageBody::Ack(ack) => ack.rows.as_ref().map_or(0, CarriedPart::bytes),
            MessageBody::Part { part, .. } => part.bytes(),
            MessageBody::ReplicationInv(inv) => {
                let rows = inv.writes.iter().flat_map(|writes| &writes.rows);
                let bytes =
                    |row: &RowWrite| row.key.len() + row.value.as_ref().map_or(0, |it| it.len());
                rows.map(bytes).sum()
            }
            MessageBody::Request(_)
            | MessageBody::Nack { .. }
            | MessageBody::Inv(_)
            | MessageBody::Val { .. }
            | MessageBody::ReplicationAck { .. }
            | MessageBody::ReplicationVal { .. }
            | MessageBody::Replayed
            | MessageBody::ReplayedHeard
            | MessageBody::CopyRequest { .. }
            | MessageBody::CopyQuery { .. }
            | MessageBody::CopyDone { .. }
            | MessageBody::Recruit { .. }
            | MessageBody::PartRequest(_) => 0,
        }
    }
}

impl CopiedRecord {
    /// About as many as it takes: the name of the granule stands in what is pending, too.
    fn bytes(&self) -> usize {
        let names = 1 + usize::from(self.pending.is_some());
        names * (RECORD_BYTES + self.granule.prefix.len())
    }
}

impl CarriedPart {
    fn bytes(&self) -> usize {
        self.rows.iter().map(CarriedRow::bytes).sum()
    }

    /// The row behind which more follow; `None` if this is the last part.
    pub(crate) fn next_after(&self) -> Option<RowKey> {
        let last = self.rows.last().filter(|_| !self.is_last)?;
        Some((last.table, last.key.clone()))
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.is_last || !self.rows.is_empty() {
            true => Ok(()),
            false => Err("a part without rows that is not the last"),
        }
    }
}

impl Inv {
    /// Whether the granule had no record: it begins empty.
    #[must_use]
    pub fn creates(&self) -> bool {
        self.replaced.is_uncreated()
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.record.o_ts > self.replaced.o_ts {
            true => Ok(()),
            false => Err("a record that does not follow the one that it replaces"),
        }
    }
}

impl ReplicationInv {
    /// The version that its rows have.
    #[must_use]
    pub fn version(&self) -> Version {
        Version { clock: self.clock, pipeline: self.pipeline, slot: self.slot }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.slot > Slot::NONE {
            true => Ok(()),
            false => Err("slots begin with 1"),
        }
    }
}
