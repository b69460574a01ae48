//! What the library is told of our types, and how patient it is.

use crate::member::LogMember;
use bytes::Bytes;
use openraft::{LeaderId, SnapshotPolicy};
use shoal_cluster::manager::{Command, Term};
use shoal_types::NodeId;
use std::sync::Arc;
use std::time::Duration;

openraft::declare_raft_types!(
    /// Commands go in and nothing comes back: what they do, they do to each manager's machine.
    pub Types:
        D = Command,
        R = (),
        NodeId = Number,
        Node = (),
        SnapshotData = Bytes,
);

/// A replica, as the library numbers it: see [`LogMember`].
pub type Number = u64;
/// An entry of the log.
pub type Entry = openraft::Entry<Types>;
/// The place of an entry, and the leader that made it.
pub type LogId = openraft::LogId<Number>;
/// The leader that a replica follows, or the candidate it has voted for.
pub type Vote = openraft::Vote<Number>;
/// Who votes and who learns.
pub type Membership = openraft::Membership<Number, ()>;
/// Why a replica cannot go on.
pub type StorageError = openraft::StorageError<Number>;
/// The library's handle, with the types of the managers' log.
pub type Raft = openraft::Raft<Types>;

/// Terms of Raft end here; at ten elections a second that takes six years. Half of what [`Term`] has
/// room for, so that our own terms do not exceed it, on any input.
pub const RAFT_TERM_MAX: u64 = 1 << 31;

/// How patient the replicas are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftOptions {
    /// A leader waits so long for an answer, more than a round trip and a write to disk take, and shows itself after one
    /// and a half of it at the latest. Default 50 ms.
    pub heartbeat: Duration,
    /// A follower that has not heard the leader for `election_max`, and then for a random time from
    /// here to there, wants to lead. More than a heartbeat. With the defaults that is mostly
    /// over before the leases of the nodes run out, which the last leader granted. Default 100 ms.
    pub election_min: Duration,
    /// See there. Default 200 ms.
    pub election_max: Duration,
    /// After so many entries the log is compacted: a snapshot takes the place of those before. Fewer keep the log
    /// shorter, and write the manager's state more often. Default 10,000, which is some ten minutes of ticks.
    pub snapshot_every: u64,
    /// So many of the entries in a snapshot are kept, for replicas that are a little behind. Default 1000.
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
    /// If the times are not each longer than the one before.
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
        assert!(self.snapshot_every > 0, "snapshots would never rest: {self:?}");
        assert!(config.heartbeat_interval > 0, "heartbeats would never rest: {self:?}");
        Arc::new(config.validate().unwrap_or_else(|error| panic!("{error}: {self:?}")))
    }
}

/// The manager's term: Raft's, and within that the node. The library lets several members lead in
/// one term of Raft, one after another, each with a higher number than the one before; so their votes
/// cannot be split for ever. Together the two are never the same for two leaders: of two volumes of a
/// node, the later becomes a member in a term that is not below the earlier's last, and leads only above it.
pub fn term(leader: LeaderId<Number>) -> Term {
    let raft_term = u32::try_from(leader.term).expect("terms are checked where they come in");
    Term(u64::from(raft_term) << 32 | u64::from(node_id(leader.node_id).0))
}

/// The node of a member.
pub fn node_id(number: Number) -> NodeId {
    LogMember::numbered(number).node
}
