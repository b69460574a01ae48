//! What a worker of `two_phase_commit` measures beside what the workers of all engines do.

use shoal_engine::metrics::{CommitStage, ShardMetric};

shoal_engine::counters! {
    /// What a worker of `two_phase_commit` counts.
    pub struct TwoPhaseCommitCounters {
        /// Transactions that were coordinated here and decided to commit.
        Counter certified,
    }
}

/// The number of the stage that ends when all locks are held.
pub(super) const LOCKING: usize = 0;
/// The number of the stage that ends with the decision.
pub(super) const VALIDATING: usize = 1;

pub(super) const STAGES: &[CommitStage] = &[
    CommitStage {
        name: "locking_ns",
        label: "lock",
        help: "Nanoseconds in which they took their locks.",
    },
    CommitStage {
        name: "validating_ns",
        label: "validate, prepare",
        help: "Nanoseconds in which what they had read was validated, and they were prepared.",
    },
    CommitStage {
        name: "awaiting_ns",
        label: "decision, the rest",
        help: "Nanoseconds from their decision until they were acknowledged.",
    },
];

pub(super) const SHARD_METRICS: &[ShardMetric] = &[
    ShardMetric {
        name: "reached",
        help: "The clock up to which this copy has applied what was decided.",
        column: None,
    },
    ShardMetric {
        name: "drawn",
        help: "The greatest clock that was drawn, on the leader.",
        column: None,
    },
];

#[cfg(test)]
mod tests {
    use crate::TwoPhaseCommit;

    #[test]
    fn what_is_measured_is_declared() {
        shoal_engine::declarations::assert_declarations::<TwoPhaseCommit>();
    }
}
