//! What a worker of `tiga` measures beside what the workers of all engines do.

use crate::node::TigaNode;
use shoal_engine::metrics::{CommitStage, ShardColumn, ShardMetric};
use shoal_types::ShardId;

shoal_engine::counters! {
    /// What a worker of `tiga` counts.
    pub struct TigaCounters {
        /// Transactions that were coordinated here and committed by equal votes on all shards, in one round trip.
        Counter one_round_trip,
        /// Transactions that were coordinated here and committed by decided entries of some shard.
        Counter by_log,
        /// Of those by the log, those that a leader had raised to another timestamp.
        Counter by_log_raised,
        /// Of those by the log, those that rested on something else at a follower than at the leader.
        Counter by_log_mismatch,
        /// Of those by the log, those for which votes were missing.
        Counter by_log_missing,
        /// Transactions that a participant did not take.
        Counter not_taken,
        /// Transactions that were sent again.
        Counter sent_again,
        /// Transactions whose outcome was not known in time.
        Counter outcome_unknown,
        /// Transactions that leaders here have released.
        Counter released,
        /// Transactions that came too late at a replica here.
        Counter late_arrivals,
        /// Votes withheld at first, since they rest on something of several shards that is not synced.
        Counter votes_withheld,
        /// Released entries that followers here have dropped.
        Counter dropped_tentative,
        /// Nanoseconds by which the last timestamp was ahead.
        Level headroom_ns,
        /// Nanoseconds that are added to the delays.
        Level margin_ns,
        /// Transactions that wait at replicas here.
        Level waiting_at_replicas,
        /// Transactions that are released at followers here and not synced.
        Level tentative_at_replicas,
    }
}

/// The number of the stage that ends when a transaction is handed to its participants.
pub(super) const PREPARING: usize = 0;

pub(super) const STAGES: &[CommitStage] = &[
    CommitStage {
        name: "preparing_ns",
        label: "prepare",
        help: "Nanoseconds in which what they have read and write was gathered.",
    },
    CommitStage {
        name: "ordering_ns",
        label: "ordered, the rest",
        help: "Nanoseconds from their timestamp being drawn until they were committed and told.",
    },
];

pub(super) const SHARD_METRICS: &[ShardMetric] = &[
    ShardMetric {
        name: "waiting_here",
        help: "Transactions that wait for their timestamps or for other shards.",
        column: Some(ShardColumn::Leader("waiting")),
    },
    ShardMetric {
        name: "tentative_here",
        help: "Transactions that are released and not in the leader's log.",
        column: Some(ShardColumn::Followers("tentative")),
    },
];

impl TigaCounters {
    /// What the node counts.
    pub(super) fn of_node(node: &TigaNode) -> TigaCounters {
        let of = node.coordinator().counters;
        let mut counters = TigaCounters {
            one_round_trip: of.fast,
            by_log: of.slow,
            by_log_raised: of.slow_raised,
            by_log_mismatch: of.slow_mismatch,
            by_log_missing: of.slow_missing,
            not_taken: of.gone,
            sent_again: of.repeated,
            outcome_unknown: of.unknown,
            headroom_ns: node.coordinator().headroom.as_nanos() as u64,
            margin_ns: node.margin().as_nanos() as u64,
            ..TigaCounters::default()
        };
        for replica in node.replicas() {
            let of = replica.counters();
            counters.released += of.released;
            counters.late_arrivals += of.late;
            counters.votes_withheld += of.withheld;
            counters.dropped_tentative += of.dropped;
            let (waiting, tentative) = replica.waiting();
            counters.waiting_at_replicas += waiting as u64;
            counters.tentative_at_replicas += tentative as u64;
        }
        counters
    }
}

/// The values of [`SHARD_METRICS`].
pub(super) fn shard_values(node: &TigaNode, shard: ShardId) -> Vec<Option<u64>> {
    match node.replica(shard).map(|replica| (replica.serves(), replica.waiting())) {
        Some((Some(_), (waiting, _))) => vec![Some(waiting as u64), None],
        Some((None, (_, tentative))) => vec![None, Some(tentative as u64)],
        None => vec![None; SHARD_METRICS.len()],
    }
}

#[cfg(test)]
mod tests {
    use crate::Tiga;

    #[test]
    fn what_is_measured_is_declared() {
        shoal_engine::declarations::assert_declarations::<Tiga>();
    }
}
