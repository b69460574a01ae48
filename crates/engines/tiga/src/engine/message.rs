//! What workers of `tiga` say to each other.

use crate::message::Message;
use crate::snapshot::PartContents;
use bytes::Bytes;
use shoal_engine::client::Relay;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_types::wire::Coded;
use shoal_types::{ShardId, TableId};
use std::convert::Infallible;

/// A part of a snapshot of a shard.
#[derive(Debug, Clone, PartialEq, Coded)]
pub struct SnapshotPart {
    /// The shard that is copied.
    #[coded(short)]
    pub shard: ShardId,
    /// Which copy.
    pub copy: u64,
    /// Where it begins: a table, and a key; or a place behind all tables.
    pub from: (TableId, Bytes),
    /// Where the next one begins. `None` for the last.
    pub until: Option<(TableId, Bytes)>,
    /// All that there is in between, in order.
    pub contents: PartContents,
}

/// A message between two workers.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum TigaEngineMessage {
    /// What nodes say to each other as coordinators and replicas.
    #[coded(tag = 0)]
    Protocol(Message),
    /// Between the node that a client asked and the one that serves its call.
    #[coded(tag = 1)]
    Relay(Relay),
    /// A part of a snapshot, to a replica that lacks what its stream has no more.
    #[coded(tag = 2)]
    SnapshotPart(SnapshotPart),
    /// The answer: how far the snapshot has come.
    #[coded(tag = 3)]
    SnapshotPartTaken {
        /// The shard that is copied.
        #[coded(short)]
        shard: ShardId,
        /// Which copy.
        copy: u64,
        /// Everything before this place has been taken; `None`: everything.
        reached: Option<(TableId, Bytes)>,
    },
}

impl RuntimeMessage for TigaEngineMessage {
    /// Operations are part of the protocol's own reads and certificates.
    type Request = Infallible;

    fn request(_: BranchHeader, request: Infallible) -> TigaEngineMessage {
        match request {}
    }

    fn relay(relay: Relay) -> TigaEngineMessage {
        TigaEngineMessage::Relay(relay)
    }
}
