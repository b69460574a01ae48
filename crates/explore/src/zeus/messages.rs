//! The messages of both protocols.

use super::data::{Granule, Kind, NodeId, OwnershipTs, Pipeline, Record, Row, Set};
use std::fmt;

/// A message that was sent and not yet delivered, or lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Envelope {
    pub to: NodeId,
    pub from: NodeId,
    /// The epoch of the sender's view when it sent the message.
    pub epoch: u8,
    pub message: Message,
}

/// A message of the ownership protocol, of the reliable commit, or of recovery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    /// Requester to driver. Void if `as_of` is older than the driver's record, so that a repeat moves nothing.
    Request { granule: Granule, kind: Kind, as_of: OwnershipTs },
    /// Driver to requester: not now. With the record it knows.
    Nack { granule: Granule, record: Record },
    /// Driver, or a node that replays, to arbiters. An equal one is acknowledged again.
    Inv(Inv),
    /// Arbiter to requester, or to the node that replays.
    Ack(OwnershipAck),
    /// Requester to arbiters: the record is validated. Also the answer to an INV that is older than what is known.
    Val { granule: Granule, record: Record },
    /// Coordinator, or a node that replays, to followers.
    ReplicationInv(ReplicationInv),
    /// Follower: the slot is applied.
    ReplicationAck { pipeline: Pipeline, slot: u8 },
    /// To followers: the slots up to this one are applied by all their followers.
    ReplicationVal { pipeline: Pipeline, slot: u8 },
    /// From a directory node without records to one that has them.
    CopyRequest,
    /// The records, validated and pending.
    Copy(Vec<(Record, Option<Inv>)>),
}

/// An invalidation of an ownership record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Inv {
    pub granule: Granule,
    pub record: Record,
    pub replaced: Record,
    pub kind: Kind,
    pub requester: NodeId,
    /// The epoch since which the requester was a member.
    pub requester_since: u8,
    pub arbiters: Set,
    /// The reader that gives the rows, where there is no owner.
    pub source: Option<NodeId>,
    /// The living requester, or else the node that replays.
    pub answer_to: NodeId,
}

/// An arbiter's acknowledgement; the rows, if the requester lacks them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OwnershipAck {
    pub inv: Inv,
    pub rows: Option<(u8, Row)>,
}

/// A locally committed transaction, for its followers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ReplicationInv {
    pub pipeline: Pipeline,
    pub slot: u8,
    pub previous_validated: bool,
    pub followers: Set,
    pub rows: Vec<(Granule, Row)>,
}

impl Inv {
    /// The granule had no record: it is created, empty.
    pub(super) fn creates(&self) -> bool {
        self.replaced.o_ts.version == 0
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Request { granule, kind, as_of } => {
                write!(f, "REQ {kind:?} g{granule} as of {as_of}")
            }
            Message::Nack { granule, record } => write!(f, "NACK g{granule} {record}"),
            Message::Inv(inv) => write!(f, "INV {inv}"),
            Message::Ack(ack) => {
                let rows = if ack.rows.is_some() { " with rows" } else { "" };
                write!(f, "ACK {}{rows}", ack.inv)
            }
            Message::Val { granule, record } => write!(f, "VAL g{granule} {record}"),
            Message::ReplicationInv(inv) => {
                let known = if inv.previous_validated { ", previous validated" } else { "" };
                write!(f, "R-INV {} slot {}{known}, writes", inv.pipeline, inv.slot)?;
                inv.rows.iter().try_for_each(|(granule, row)| {
                    write!(f, " g{granule} at clock {}", row.version.clock)
                })
            }
            Message::ReplicationAck { pipeline, slot } => write!(f, "R-ACK {pipeline} slot {slot}"),
            Message::ReplicationVal { pipeline, slot } => {
                write!(f, "R-VAL {pipeline} up to slot {slot}")
            }
            Message::CopyRequest => write!(f, "request for a copy of the directory"),
            Message::Copy(_) => write!(f, "copy of the directory"),
        }
    }
}

impl fmt::Display for Inv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, requester) = (self.kind, self.requester);
        write!(f, "g{} {kind:?} for n{requester}: {}", self.granule, self.record)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.map_or("no owner".to_owned(), |owner| format!("owner n{owner}"));
        let readers: Vec<String> = self.readers.iter().map(|reader| format!("n{reader}")).collect();
        write!(f, "({}: {owner}, readers {})", self.o_ts, readers.join(" "))
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}/{} since epoch {}", self.node, self.worker, self.since)
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{} → n{} in epoch {}: {}", self.from, self.to, self.epoch, self.message)
    }
}
