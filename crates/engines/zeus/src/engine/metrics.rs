//! What a worker of `zeus` measures beside what the workers of all engines do.

use crate::node::ZeusNode;
use shoal_engine::metrics::{CommitStage, ShardMetric};

shoal_engine::counters! {
    /// What a worker of `zeus` counts. What is not of its own transactions, its node counts, and the first worker reports.
    pub struct ZeusCounters {
        /// Transactions that were committed locally.
        Counter committed_locally,
        /// Transactions that waited for granules to come.
        Counter waits_for_moves,
        /// Granules that this node became the owner of.
        Counter moves,
        /// Granules that this node became a reader of.
        Counter reads_gained,
        /// Requests for granules that were refused, and made again.
        Counter requests_refused,
        /// Invalidations of records that were sent again.
        Counter replays,
        /// Slots that are committed locally and not validated.
        Level pending_slots,
        /// Granules of which this node has a copy.
        Level granules_held,
        /// Followers whose acknowledgement the oldest pending slots wait for.
        Level followers_awaited,
        /// Messages of another epoch, which were dropped.
        Counter foreign_epochs,
    }
}

/// The number of the stage that ends with the local commit.
pub(super) const OWNING: usize = 0;

pub(super) const STAGES: &[CommitStage] = &[
    CommitStage {
        name: "owning_ns",
        label: "own, commit locally",
        help: "Nanoseconds in which they waited for the granules that they write, and were committed locally.",
    },
    CommitStage {
        name: "validating_ns",
        label: "validated, the rest",
        help: "Nanoseconds from the local commit until all followers had applied it and they were told.",
    },
];

pub(super) const SHARD_METRICS: &[ShardMetric] = &[];

impl ZeusCounters {
    /// With what the node has counted.
    pub(super) fn of_node(self, node: &ZeusNode) -> ZeusCounters {
        let counted = node.ownership().counters();
        let held = node.ownership().holdings().filter(|(_, holding)| holding.is_replica);
        ZeusCounters {
            moves: counted.moves,
            reads_gained: counted.reads_gained,
            requests_refused: counted.nacks,
            replays: counted.replays,
            pending_slots: node.pipelines().pending() as u64,
            granules_held: held.count() as u64,
            followers_awaited: node.pipelines().stalling().len() as u64,
            foreign_epochs: node.counters().foreign_epochs,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Zeus;

    #[test]
    fn what_is_measured_is_declared() {
        shoal_engine::declarations::assert_declarations::<Zeus>();
    }
}
