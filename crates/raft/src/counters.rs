//! Counts of what a replica has dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a replica has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RaftCounters {
    /// Requests and answers that no correct replica sends.
    pub malformed: u64,
    /// Requests for another replica, or for another volume of this node.
    pub misdirected: u64,
    /// Proposals that were too long, or too many at once.
    pub proposals_dropped: u64,
    /// Snapshots that were too long to be sent to a replica that needs one.
    pub snapshots_too_long: u64,
}

/// The same, while it is counted.
#[derive(Debug, Default)]
pub struct CounterCells {
    pub malformed: AtomicU64,
    pub misdirected: AtomicU64,
    pub proposals_dropped: AtomicU64,
    pub snapshots_too_long: AtomicU64,
}

impl CounterCells {
    pub fn counters(&self) -> RaftCounters {
        RaftCounters {
            malformed: self.malformed.load(Ordering::Relaxed),
            misdirected: self.misdirected.load(Ordering::Relaxed),
            proposals_dropped: self.proposals_dropped.load(Ordering::Relaxed),
            snapshots_too_long: self.snapshots_too_long.load(Ordering::Relaxed),
        }
    }
}
