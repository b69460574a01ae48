//! What a checker can observe of replay. An engine adds it to its [observations](shoal_engine::Engine::Observation).

use shoal_types::{ShardId, Stamp, TableId};

/// A follower has looked at one write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedWrite {
    /// The shard that is replayed.
    pub shard: ShardId,
    /// The version's stamp as the shard keeps it.
    pub stamp: Stamp,
    /// The table of the key.
    pub table: TableId,
    /// The key that is written.
    pub key: Vec<u8>,
    /// The version is the newest one now; otherwise a newer one was there.
    pub won: bool,
}
