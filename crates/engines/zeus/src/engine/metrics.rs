//! What a worker of `zeus` measures beside what the workers of all engines do.

use super::shared::SharedNode;
use crate::record::Level;
use shoal_engine::metrics::{CommitStage, NodeColumn, ShardMetric};
use shoal_types::Time;
use std::time::Duration;

shoal_engine::counters! {
    /// What a worker of `zeus` counts. What is not of its own transactions, its node counts, and the first worker reports.
    pub struct ZeusCounters {
        /// Transactions that were committed locally.
        Counter committed_locally,
        /// Transactions of this node that waited for granules to come.
        Counter waits_for_moves,
        /// Transactions of clients that were sent to the owner of a granule that moves often.
        Counter sent_to_owners,
        /// Granules that this node became the owner of.
        Counter moves,
        /// Granules that this node became a reader of.
        Counter reads_gained,
        /// Requests for granules that were refused, and made again.
        Counter requests_refused,
        /// Invalidations of records that were sent again.
        Counter replays,
        /// Slots of dead coordinators that were validated here.
        Counter slots_replayed,
        /// Parts of large granules that came after the first.
        Counter parts_received,
        /// Readers that were dropped at this node's request, since a granule had too many.
        Counter readers_dropped,
        /// Directories of shards that were copied from another node.
        Counter directories_copied,
        /// Directories that no node had, and that were rebuilt from what nodes know of their granules.
        Counter directories_rebuilt,
        /// Transactions that were refused, since no copy of a granule is left.
        Counter refused_as_lost,
        /// Slots that are committed locally and not validated.
        Level pending_slots,
        /// Granules that this node became the owner of in the last second.
        Level moves_a_second,
        /// Granules that this node owns.
        Level granules_owned,
        /// Granules that this node is a reader of.
        Level granules_read,
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

pub(super) const NODE_COLUMNS: &[NodeColumn] = &[
    NodeColumn { counter: "moves_a_second", heading: "moves a second" },
    NodeColumn { counter: "waits_for_moves", heading: "waits for moves" },
    NodeColumn { counter: "sent_to_owners", heading: "sent to owners" },
    NodeColumn { counter: "pending_slots", heading: "slots pending" },
    NodeColumn { counter: "replays", heading: "replays" },
    NodeColumn { counter: "granules_owned", heading: "granules owned" },
    NodeColumn { counter: "granules_read", heading: "read" },
    NodeColumn { counter: "followers_awaited", heading: "followers that stall" },
];

/// The time over which moves are counted.
const RATED: Duration = Duration::from_secs(1);

/// How many granules have moved here in the last second that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoveRate {
    since: Time,
    moves: u64,
    a_second: u64,
}

impl MoveRate {
    pub(super) const NONE: MoveRate = MoveRate { since: Time::ZERO, moves: 0, a_second: 0 };

    /// So many granules have moved here by now.
    pub(super) fn advance(&mut self, now: Time, moves: u64) {
        let span = now - self.since;
        if span >= RATED {
            let moved = moves.saturating_sub(self.moves) as f64;
            let a_second = (moved / span.as_secs_f64()).round() as u64;
            *self = MoveRate { since: now, moves, a_second };
        }
    }

    pub(super) fn a_second(&self) -> u64 {
        self.a_second
    }
}

impl ZeusCounters {
    /// With what the node has counted.
    pub(super) fn of_node(self, shared: &SharedNode) -> ZeusCounters {
        let node = &shared.node;
        let (counted, counters) = (node.ownership().counters(), node.counters());
        let (mut owned, mut read) = (0, 0);
        for (_, holding) in node.ownership().holdings() {
            match holding.level(node.id()) {
                Level::Owner => owned += 1,
                Level::Reader => read += 1,
                Level::None => {}
            }
        }
        ZeusCounters {
            waits_for_moves: shared.waits_for_moves,
            sent_to_owners: shared.sent_to_owners,
            refused_as_lost: shared.refused_as_lost,
            moves: counted.moves,
            reads_gained: counted.reads_gained,
            requests_refused: counted.nacks,
            replays: counted.replays,
            slots_replayed: counters.slots_replayed,
            parts_received: counted.parts,
            readers_dropped: counted.readers_dropped,
            directories_copied: counters.directories_copied,
            directories_rebuilt: counters.directories_rebuilt,
            pending_slots: node.pipelines().pending() as u64,
            granules_owned: owned,
            granules_read: read,
            followers_awaited: node.pipelines().stalling().len() as u64,
            foreign_epochs: counters.foreign_epochs,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MoveRate;
    use crate::Zeus;
    use shoal_types::Time;
    use std::time::Duration;

    #[test]
    fn moves_are_rated_by_the_second() {
        let mut rate = MoveRate::NONE;
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        rate.advance(at(1_000), 50);
        rate.advance(at(1_900), 300);
        assert_eq!(rate.a_second(), 50);
        rate.advance(at(3_000), 350);
        assert_eq!(rate.a_second(), 150);
    }

    #[test]
    fn what_is_measured_is_declared() {
        shoal_engine::declarations::assert_declarations::<Zeus>();
    }
}
