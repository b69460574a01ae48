//! What a worker of `mako` measures beside what the workers of all engines do.

use shoal_engine::metrics::{CommitStage, ShardColumn, ShardMetric};

shoal_engine::counters! {
    /// What a worker of `mako` counts.
    pub struct MakoCounters {
        /// Transactions that were coordinated and certified here.
        Counter certified,
        /// Certified transactions that were rolled back, since a shard failed.
        Counter rolled_back,
        /// Versions that were dropped, since their transactions were rolled back.
        Counter discarded,
        /// Stamps kept with versions, one for each shard that a transaction wrote.
        Counter stamps,
        /// Entries of those stamps, the shard's own included.
        Counter stamp_entries,
    }
}

/// The number of the stage that ends when all locks are held.
pub(super) const LOCKING: usize = 0;
/// The number of the stage that ends with certification.
pub(super) const VALIDATING: usize = 1;

pub(super) const STAGES: &[CommitStage] = &[
    CommitStage {
        name: "locking_ns",
        label: "lock",
        help: "Nanoseconds in which they took their locks; all of it, where one participant did the rest.",
    },
    CommitStage {
        name: "validating_ns",
        label: "validate",
        help: "Nanoseconds in which what they had read was validated.",
    },
    CommitStage {
        name: "awaiting_ns",
        label: "watermark, the rest",
        help: "Nanoseconds from their certification until they were acknowledged.",
    },
];

pub(super) const SHARD_METRICS: &[ShardMetric] = &[
    ShardMetric {
        name: "watermark",
        help: "The clock up to which the shard is known to be durable, in the open epoch.",
        column: Some(ShardColumn::Leader("watermark")),
    },
    ShardMetric {
        name: "reached",
        help: "The clock up to which this copy is durable, if it leads, or applied, if it follows.",
        column: None,
    },
    ShardMetric {
        name: "drawn",
        help: "The greatest clock that was drawn, on the leader.",
        column: None,
    },
    ShardMetric {
        name: "undurable",
        help: "Clocks drawn beyond the watermark, on the leader.",
        column: Some(ShardColumn::Leader("not durable yet")),
    },
    ShardMetric {
        name: "unapplied",
        help: "Clocks up to the watermark that this copy has not applied, where it follows.",
        column: Some(ShardColumn::Followers("clocks to apply")),
    },
];

#[cfg(test)]
mod tests {
    use crate::Mako;

    #[test]
    fn what_is_measured_is_declared() {
        shoal_engine::declarations::assert_declarations::<Mako>();
    }
}
