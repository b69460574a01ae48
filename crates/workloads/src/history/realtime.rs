//! Dependencies through time: a transaction that ended before another began took effect before it.
//!
//! Sorted by start, those that began after an end are a suffix, and one edge links to it: O(n log n)
//! to sort, and three edges an attempt. A start at the very nanosecond of an end counts as concurrent.
//! Attempts of unknown outcome have no end and come before none.

use super::case::Case;
use super::graph::{Kind, Suffixes};
use super::indexed::TransactionId;

/// Adds the edges of real time between all committed transactions.
pub(super) fn infer(case: &mut Case<'_>) {
    let history = case.history;
    let start = |id: TransactionId| history.attempt(id).start_ns;
    let mut by_start = case.committed_ids();
    by_start.sort_by_key(|id| start(*id));
    let suffixes = Suffixes::new(&mut case.graph, &by_start);
    for &id in &by_start {
        let Some(end) = history.attempt(id).end_ns else { continue };
        let later = by_start.partition_point(|other| start(*other) <= end);
        suffixes.link(&mut case.graph, id, later, Kind::Realtime);
    }
}
