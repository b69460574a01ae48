//! Pipelines, slots, and the versions of rows that they make.
//!
//! A worker's write transactions form *pipelines*; each takes the next *slot* of one at its local commit. A version of a row is
//! named by its clock and by the slot that wrote it. The clock is greater than that of the granule, which is kept over
//! deletes and carried by moves: with a row's own clock, an owner without the tombstone would insert again at a low clock,
//! and followers would skip the write.

use crate::view::Member;
use shoal_types::wire::Coded;
use shoal_types::{Clock, WorkerId};
use std::fmt;

/// One of the pipelines of a node's workers. Displays as `0` if it is the first of worker 0, and as `0.2` if it is the third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct WorkerPipeline {
    /// The worker's number within its node.
    #[coded(short)]
    pub worker: WorkerId,
    /// The pipeline's number among those of the worker.
    #[coded(short)]
    pub number: u32,
}

impl fmt::Display for WorkerPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.worker.0),
            number => write!(f, "{}.{number}", self.worker.0),
        }
    }
}

/// Slots of one worker, in one membership of its node. Displays as `n1/0 since e3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct PipelineId {
    /// The node whose worker it is, as the member that it was then.
    pub coordinator: Member,
    /// Which of its pipelines it is.
    pub of: WorkerPipeline,
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { node, since } = self.coordinator;
        write!(f, "{node}/{} since {since}", self.of)
    }
}

/// The place of a transaction in its pipeline, from 1. Displays as `#5`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Coded,
    shoal_types::wire::Short,
)]
#[repr(transparent)]
pub struct Slot(pub u64);

impl Slot {
    /// Before the first slot.
    pub const NONE: Slot = Slot(0);

    /// The slot that follows.
    #[must_use]
    pub fn next(self) -> Slot {
        Slot(self.0 + 1)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A version of a row; of two of one row the greater is the newer. Displays as `7 by n1/0 since e3 #5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct Version {
    /// Greater than the clocks of all granules that the transaction touched.
    #[coded(short)]
    pub clock: Clock,
    /// The pipeline of the transaction that wrote it.
    pub pipeline: PipelineId,
    /// Its slot there.
    #[coded(short)]
    pub slot: Slot,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {} {}", self.clock, self.pipeline, self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{Epoch, NodeId};

    #[test]
    fn versions_are_ordered_by_their_clocks() {
        let version = |clock, node, slot| {
            let coordinator = Member { node: NodeId(node), since: Epoch(3) };
            let of = WorkerPipeline { worker: WorkerId(0), number: 0 };
            let pipeline = PipelineId { coordinator, of };
            Version { clock: Clock(clock), pipeline, slot: Slot(slot) }
        };
        assert!(version(6, 2, 9) < version(7, 1, 5));
        assert_eq!(version(7, 1, 5).to_string(), "7 by n1/0 since e3 #5");
        assert_eq!(Slot::NONE.next(), Slot(1));
        assert_eq!(WorkerPipeline { worker: WorkerId(1), number: 2 }.to_string(), "1.2");
    }
}
