//! The types with which the library is used, and its timeouts.

use crate::member::{LogMember, Number};
use bytes::Bytes;
use openraft::{LeaderId, SnapshotPolicy};
use shoal_cluster::manager::{Command, Term};
use shoal_types::NodeId;
use std::sync::Arc;
use std::time::Duration;

openraft::declare_raft_types!(
    /// Commands have no response: each manager's state machine applies them.
    pub Types:
        D = Command,
        R = (),
        NodeId = Number,
        Node = (),
        SnapshotData = Bytes,
);

/// An entry of the log.
pub type Entry = openraft::Entry<Types>;
/// The index of an entry, and the leader that made it.
pub type LogId = openraft::LogId<Number>;
/// The leader that a replica follows, or the candidate that it has voted for.
pub type Vote = openraft::Vote<Number>;
/// The voters and the learners.
pub type Membership = openraft::Membership<Number, ()>;
/// A failure of storage, which stops the replica.
pub type StorageError = openraft::StorageError<Number>;
/// The handle through which a replica is driven, and asked for its state.
pub type Raft = openraft::Raft<Types>;

/// The greatest term of Raft; at ten elections a second it is reached after six years. It is half of the
/// range of [`Term`], so that our own terms cannot overflow, on any input.
pub const RAFT_TERM_MAX: u64 = 1 << 31;

/// The timeouts and limits of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftOptions {
    /// The time that a leader waits for an answer, longer than a round trip and a write to disk; it sends a
    /// heartbeat every one and a half of it at the latest. Default 50 ms.
    pub heartbeat: Duration,
    /// A follower that has received nothing from the leader for `election_max`, and then for a random time
    /// from `election_min` to `election_max`, becomes a candidate. Longer than a heartbeat. With the defaults
    /// a new leader is mostly elected before the nodes' leases run out, which the last leader granted.
    /// Default 100 ms.
    pub election_min: Duration,
    /// The longest random time of an election: see `election_min`. Default 200 ms.
    pub election_max: Duration,
    /// The number of entries after which the log is compacted: a snapshot replaces the entries before. Fewer
    /// keep the log shorter, and write the manager's state more often. Default 10,000, which is some ten
    /// minutes of ticks.
    pub snapshot_every: u64,
    /// The number of entries in a snapshot that are kept all the same, for replicas that are a little behind.
    /// Default 1000.
    pub entries_kept: u64,
}

impl Default for RaftOptions {
    fn default() -> RaftOptions {
        RaftOptions {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(100),
            election_max: Duration::from_millis(200),
            snapshot_every: 10_000,
            entries_kept: 1000,
        }
    }
}

impl RaftOptions {
    /// # Panics
    /// If the times do not increase in the order of the fields.
    pub(crate) fn config(&self) -> Arc<openraft::Config> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let config = openraft::Config {
            cluster_name: "manager".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election_min),
            election_timeout_max: millis(self.election_max),
            max_payload_entries: crate::ENTRIES_PER_REQUEST_MAX,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every),
            max_in_snapshot_log_to_keep: self.entries_kept,
            purge_batch_size: 1,
            ..openraft::Config::default()
        };
        assert!(self.snapshot_every > 0, "snapshots need a pause between them: {self:?}");
        assert!(config.heartbeat_interval > 0, "heartbeats need a pause between them: {self:?}");
        Arc::new(config.validate().unwrap_or_else(|error| panic!("{error}: {self:?}")))
    }
}

/// The manager's term: Raft's term, and within that the node. The library lets several members lead in one
/// term of Raft, one after another, each with a higher number than the one before; so votes cannot be split
/// for ever. The pair is different for any two leaders: of two volumes of a node, the later becomes a member
/// in a term that is not below the earlier's last, and leads only in a higher one.
pub fn term(leader: LeaderId<Number>) -> Term {
    let raft_term = u32::try_from(leader.term).expect("terms are checked where they come in");
    Term(u64::from(raft_term) << 32 | u64::from(node_id(leader.node_id).0))
}

/// The node of a member.
pub fn node_id(number: Number) -> NodeId {
    LogMember::numbered(number).node
}
