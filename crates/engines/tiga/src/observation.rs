//! What the engine lets a checker see.

use crate::digest::Digest;
use crate::record::Record;
use shoal_engine::TransactionId;
use shoal_types::{Ballot, ShardId, Time};
use std::sync::Arc;

/// Which path committed a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Equal votes, on all shards.
    Fast,
    /// Decided entries, on some shard at least.
    Slow,
}

/// What a worker lets a checker see.
#[derive(Debug, Clone, PartialEq)]
pub enum TigaObservation {
    /// A leader has ended its recovery.
    Serves {
        /// The shard that is served.
        shard: ShardId,
        /// The ballot of the leader.
        ballot: Ballot,
    },
    /// A follower has voted for a transaction.
    Voted {
        /// The transaction.
        id: TransactionId,
        /// The shard of the replica.
        shard: ShardId,
        /// The ballot under which it has voted.
        ballot: Ballot,
        /// The timestamp of the vote.
        t: Time,
        /// The digest of the vote.
        digest: Digest,
    },
    /// A leader has executed a transaction and voted for it, before the participants have agreed.
    VotedOptimistically {
        /// The shard that it leads.
        shard: ShardId,
        /// Under which it leads.
        ballot: Ballot,
        /// What it appends if they agree.
        record: Arc<Record>,
    },
    /// A leader has executed a transaction, appended it and voted for it.
    Released {
        /// The shard that it leads.
        shard: ShardId,
        /// Under which it leads.
        ballot: Ballot,
        /// What it has appended.
        record: Arc<Record>,
    },
    /// A follower has accepted an entry from the leader's log.
    Synced {
        /// The shard of the replica.
        shard: ShardId,
        /// The ballot under which it has accepted it.
        ballot: Ballot,
        /// The transactions in it.
        records: Vec<Arc<Record>>,
    },
    /// A replica has applied an entry of the log.
    Applied {
        /// The shard of the replica.
        shard: ShardId,
        /// The place of the entry.
        index: u64,
        /// The transactions in it.
        records: Vec<Arc<Record>>,
    },
    /// A replica begins behind a snapshot of so many entries.
    Restored {
        /// The shard of the replica.
        shard: ShardId,
        /// How many entries the snapshot stands for.
        length: u64,
    },
    /// A coordinator has learned that a shard does not take a transaction, and reports that it has no effect.
    Refused {
        /// The transaction.
        id: TransactionId,
    },
    /// A coordinator takes a transaction for committed.
    Committed {
        /// The transaction.
        id: TransactionId,
        /// Its timestamp.
        t: Time,
        /// By which path.
        path: Path,
        /// The participants.
        shards: Vec<ShardId>,
    },
}
