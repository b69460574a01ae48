//! What the protocol counts.

/// What a replica counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaCounters {
    /// Transactions that a leader has released.
    pub released: u64,
    /// Transactions whose timestamps a leader has raised.
    pub raised: u64,
    /// Transactions that came too late to be voted for.
    pub late: u64,
    /// Transactions for which a follower had no room, so that it did not vote.
    pub without_room: u64,
    /// Votes that a follower has given.
    pub votes: u64,
    /// Votes that a follower has withheld at first, since they rest on something of several shards that is not synced.
    pub withheld: u64,
    /// Votes of leaders before the participants had agreed.
    pub optimistic: u64,
    /// Of these, those whose executions were discarded, since another timestamp was agreed on.
    pub discarded: u64,
    /// Released entries that a follower has dropped, since the log has something else before them.
    pub dropped: u64,
}

/// What a coordinator counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoordinatorCounters {
    /// Transactions committed by equal votes on all shards: in one round trip.
    pub fast: u64,
    /// Transactions that waited for the logs from the beginning, as a majority is near.
    pub by_log: u64,
    /// Others of which some shard's log decided.
    pub slow: u64,
    /// Of those that were slow: a vote had another timestamp than the leader's.
    pub slow_raised: u64,
    /// Of those that were slow: a vote had another digest than the leader's.
    pub slow_mismatch: u64,
    /// Of those that were slow: votes were missing.
    pub slow_missing: u64,
    /// Transactions that a participant did not take.
    pub gone: u64,
    /// Transactions that were sent again.
    pub repeated: u64,
    /// Transactions whose outcome was not known in time.
    pub unknown: u64,
}
