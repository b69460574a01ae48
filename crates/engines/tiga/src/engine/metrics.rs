//! What a worker of `tiga` measures beside what the workers of all engines do.

use crate::node::TigaNode;
use shoal_engine::metrics::{CommitStage, NodeColumn, ShardColumn, ShardMetric};
use shoal_types::ShardId;
use std::time::Duration;

shoal_engine::counters! {
    /// What a worker of `tiga` counts.
    pub struct TigaCounters {
        /// Transactions that were coordinated here and committed by equal votes on all shards, in one round trip.
        Counter one_round_trip,
        /// Transactions that were coordinated here and voted for nowhere, since a majority of each participant is near.
        Counter without_votes,
        /// Others that were coordinated here and committed by decided entries of some shard.
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
        /// Transactions for which followers here had no room, so that they did not vote.
        Counter without_room,
        /// Votes withheld at first, since they rest on something of several shards that is not synced.
        Counter votes_withheld,
        /// Released entries that followers here have dropped.
        Counter dropped_tentative,
        /// Votes of leaders here before the participants had agreed on a timestamp.
        Counter optimistic_votes,
        /// Of these, those whose executions were discarded, since another timestamp was agreed on.
        Counter discarded_executions,
        /// Percent of the transactions that were coordinated here and voted for that took one round trip.
        Level one_round_trip_percent,
        /// Microseconds by which the last timestamp was ahead.
        Level headroom_us,
        /// Microseconds that are added to the delays.
        Level margin_us,
        /// Microseconds to the furthest replica, the difference of the clocks included; 0 where that is behind.
        Level delay_most_us,
        /// Microseconds by which the clock may be off, as the system reports; 0 where it reports nothing.
        Level clock_error_bound_us,
        /// 1 where the system does not report by how much the clock may be off, else 0.
        Level clock_unbounded,
        /// Transactions that wait at replicas here.
        Level waiting_at_replicas,
        /// Transactions that are released at followers here and not synced.
        Level tentative_at_replicas,
    }
}

/// The columns of a node in a status: why transactions take more than one round trip, and what bounds them.
pub(super) const NODE_COLUMNS: &[NodeColumn] = &[
    NodeColumn { counter: "one_round_trip_percent", heading: "one round trip, %" },
    NodeColumn { counter: "without_votes", heading: "without votes" },
    NodeColumn { counter: "by_log_raised", heading: "raised" },
    NodeColumn { counter: "by_log_mismatch", heading: "mismatches" },
    NodeColumn { counter: "by_log_missing", heading: "votes missing" },
    NodeColumn { counter: "votes_withheld", heading: "votes withheld" },
    NodeColumn { counter: "late_arrivals", heading: "late" },
    NodeColumn { counter: "discarded_executions", heading: "discarded" },
    NodeColumn { counter: "waiting_at_replicas", heading: "waiting" },
    NodeColumn { counter: "headroom_us", heading: "headroom, µs" },
    NodeColumn { counter: "delay_most_us", heading: "delay, µs" },
    NodeColumn { counter: "clock_error_bound_us", heading: "clock bound, µs" },
    NodeColumn { counter: "clock_unbounded", heading: "without clock bound" },
];

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
    pub(super) fn of_node(node: &TigaNode, error_bound: Option<Duration>) -> TigaCounters {
        let of = node.coordinator().counters;
        let mut counters = TigaCounters {
            one_round_trip: of.fast,
            without_votes: of.by_log,
            by_log: of.slow,
            by_log_raised: of.slow_raised,
            by_log_mismatch: of.slow_mismatch,
            by_log_missing: of.slow_missing,
            not_taken: of.gone,
            sent_again: of.repeated,
            outcome_unknown: of.unknown,
            one_round_trip_percent: (100 * of.fast).checked_div(of.fast + of.slow).unwrap_or(0),
            headroom_us: node.coordinator().headroom.as_micros() as u64,
            margin_us: node.margin().as_micros() as u64,
            delay_most_us: node.coordinator().delays.most().max(0) as u64 / 1000,
            clock_error_bound_us: error_bound.unwrap_or_default().as_micros() as u64,
            clock_unbounded: u64::from(error_bound.is_none()),
            ..TigaCounters::default()
        };
        for replica in node.replicas() {
            let of = replica.counters();
            counters.released += of.released;
            counters.late_arrivals += of.late;
            counters.without_room += of.without_room;
            counters.votes_withheld += of.withheld;
            counters.dropped_tentative += of.dropped;
            counters.optimistic_votes += of.optimistic;
            counters.discarded_executions += of.discarded;
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
