//! Installations in slices: a transaction's piece that is too long for one step (rule M3).
//!
//! ```text
//!   certified ─► part ─► part ─► … ─► last part ─► clock resolved
//!                one a step, an entry of the stream each; with each its versions are installed, its locks released
//! ```
//! However much a transaction writes, a step encodes no more of it than [`part_bytes_max`](super::options::MakoOptions::part_bytes_max) and
//! `part_writes_max` say, and one write: a lease must not run out behind it. Each **part** is a piece of its own with
//! the stamp of all. The transaction's clock is in flight until the last part is in the stream:
//! so the safe clock of each entry with an earlier part is below the stamp's, no watermark covers one part without the
//! others, and an end of the epoch in between rejects them all, here as on other replicas. A transaction that reads or overwrites what is
//! installed of them depends on the clock (M1, M2), and is covered or rejected with them; what is not installed is
//! locked, so a transaction that meets some versions of before and some of after gives up.
//!
//! Parts go no further ahead of what is durable than [`PARTS_AHEAD_MAX`](shoal_replication::codec::PARTS_AHEAD_MAX)
//! entries.

use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::Stamp;
use std::fmt;

/// A certified transaction on a shard that this node leads, some parts of which may be in the stream.
pub(super) struct Installing {
    pub(super) transaction: TransactionId,
    pub(super) locked: Locked<PooledSession>,
    pub(super) stamp: Stamp,
    /// The writes before are in the stream.
    pub(super) next: usize,
}

impl fmt::Debug for Installing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Installing { transaction, stamp, next, .. } = self;
        write!(f, "Installing({transaction}, {stamp:?}, from {next})")
    }
}
