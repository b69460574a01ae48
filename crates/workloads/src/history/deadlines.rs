//! By when each vertex of the dependency graph must be placed in an order.

use super::case::Case;
use super::graph::Adjacency;

/// For each vertex the earliest end of its transaction and of all that follow.
/// `None` if there is a cycle.
pub(super) fn deadlines(case: &Case<'_>, adjacency: &Adjacency) -> Option<Vec<u64>> {
    let order = adjacency.topological_order(|_| 0)?;
    let mut deadlines = vec![u64::MAX; adjacency.vertices()];
    for vertex in order.into_iter().rev() {
        let own = case.graph.transaction(vertex).and_then(|id| case.history.attempt(id).end_ns);
        let followers = adjacency.of(vertex).iter().map(|edge| deadlines[edge.to.index()]);
        deadlines[vertex.index()] = followers.chain(own).min().unwrap_or(u64::MAX);
    }
    Some(deadlines)
}
