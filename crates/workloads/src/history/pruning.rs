//! The order of a register's versions, as far as it follows from everything else.
//!
//! Any two versions *a* and *b* of a register stand in one of two orders, and each has
//! consequences (a *polygraph*, Papadimitriou, *The serializability of concurrent database updates*,
//! JACM 1979): if *a* comes first, all that read or wrote *a* precede the writer of *b*. So if a
//! path leads from the writer of *b* to one of those, that order is a cycle, *b* comes first, and
//! the writer and readers of *b* precede the writer of *a*. Each edge so gained may make more paths;
//! the rule is applied until nothing changes (Tan et al., *Cobra*, OSDI'20, §4.3, call it pruning).
//!
//! Special cases of it: the writer of *a* reaches the writer of *b*; a transaction that found null is
//! the first to write, since it precedes all other writers; where *b* replaced *a*, a version
//! that follows *a* follows *b*, too.
//!
//! Pairs that `registers` has ordered already are left out. A path is looked for between two places
//! of a topological order, so that its cost is what happened between them.

use super::case::Case;
use super::deadlines::deadlines;
use super::graph::{Adjacency, Kind, Note, Vertex};
use super::indexed::{KeyId, TransactionId};
use super::registers::Version;

/// Pairs of versions that are examined; in a history with more the others stay open.
const PAIRS_MAX: usize = 20_000_000;

/// What is left of the open pairs of versions.
#[derive(Debug)]
pub(super) enum Pruned {
    /// The graph has a cycle now: no order of the versions is possible.
    Cyclic,
    /// The pairs whose order is open. All others have edges in the graph.
    Open(Vec<Pair>),
    /// There are too many pairs; those with open orders are not known.
    TooMany,
}

/// Two versions of a register whose order is not known, as places in its versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub key: KeyId,
    pub places: [u32; 2],
}

/// Adds to the graph, which has no cycle, what follows of the order of versions. Stops when it has
/// looked at `steps_max` edges; the pairs it has not come to then are open.
pub(super) fn prune(case: &mut Case<'_>, versions: &[Vec<Version>], steps_max: usize) -> Pruned {
    let (mut open, all) = open_pairs(versions);
    let limit = case.steps.saturating_add(steps_max);
    let mut settled = false;
    loop {
        let adjacency = Adjacency::new(case.graph.vertices(), &case.graph.edges);
        let Some(deadlines) = deadlines(case, &adjacency) else { return Pruned::Cyclic };
        if settled || case.steps > limit {
            return if all { Pruned::Open(open) } else { Pruned::TooMany };
        }
        let order = adjacency.topological_order(|vertex| deadlines[vertex.index()]);
        let order = order.expect("a graph with deadlines has no cycle");
        case.steps += adjacency.edges.len();
        let mut paths = Paths::new(&adjacency, &order);
        let before = open.len();
        open.retain(|pair| {
            if case.steps + paths.steps > limit {
                return true;
            }
            let versions = &versions[pair.key.0 as usize];
            let [a, b] = pair.places.map(|place| &versions[place as usize]);
            let (a_first, b_first) = (paths.between(a, b), paths.between(b, a));
            let contradiction = a_first.is_some() && b_first.is_some();
            match (a_first, b_first) {
                (None, None) => return true,
                // Either makes a cycle; that between the writers is the shorter.
                (_, Some(path)) if !contradiction || Some(path.to) == a.writer => {
                    link(case, pair.key, [b, a], path);
                }
                (Some(path), _) => link(case, pair.key, [a, b], path),
                (None, Some(path)) => link(case, pair.key, [b, a], path),
            }
            false
        });
        case.steps += paths.steps;
        settled = open.len() == before;
    }
}

/// All pairs of versions whose order is not known, and whether these are really all.
fn open_pairs(versions: &[Vec<Version>]) -> (Vec<Pair>, bool) {
    let mut pairs = Vec::new();
    for (key, versions) in versions.iter().enumerate() {
        let written = versions.get(1..).unwrap_or_default();
        for (place, a) in written.iter().enumerate() {
            // By last start: those from here on follow `a` in time.
            let overlapping = written.partition_point(|b| b.last_start <= a.first_end);
            for (other, b) in written.iter().enumerate().take(overlapping).skip(place + 1) {
                let replaced = |a: &Version, b: &Version| {
                    b.writer.is_some_and(|writer| a.updaters.contains(&writer))
                };
                if b.first_end < a.last_start || replaced(a, b) || replaced(b, a) {
                    continue;
                }
                if pairs.len() == PAIRS_MAX {
                    return (pairs, false);
                }
                // The initial version is at place 0.
                let places = [place as u32 + 1, other as u32 + 1];
                pairs.push(Pair { key: KeyId(key as u32), places });
            }
        }
    }
    (pairs, true)
}

/// A path from the writer of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    /// The transaction that it leads to.
    to: TransactionId,
    /// There is none without an edge that rests on real time.
    needs_time: bool,
}

/// Adds the edges of the first version's coming before the second.
fn link(case: &mut Case<'_>, key: KeyId, [first, second]: [&Version; 2], path: Path) {
    let Some(next) = second.writer else { return };
    let (ww, rw) = match path.needs_time {
        false => (Kind::Ww, Kind::Rw),
        true => (Kind::WwRealtime, Kind::RwRealtime),
    };
    let evidence = Note { path_to: Some(path.to), ..Note::new(key, first.value, None) };
    let note = Some(case.graph.note(evidence));
    for holder in first.holders().filter(|holder| *holder != next) {
        let kind = if Some(holder) == first.writer { ww } else { rw };
        case.graph.link(holder, next, kind, note);
    }
}

/// Looks for paths in a graph without cycles.
struct Paths<'a> {
    adjacency: &'a Adjacency,
    /// The position of each vertex in a topological order.
    positions: Vec<u32>,
    /// The search in which each vertex was last met, and the last that looked for it.
    met: Vec<u32>,
    sought: Vec<u32>,
    searches: u32,
    stack: Vec<Vertex>,
    steps: usize,
}

impl<'a> Paths<'a> {
    fn new(adjacency: &'a Adjacency, order: &[Vertex]) -> Paths<'a> {
        let mut positions = vec![0; order.len()];
        for (position, vertex) in order.iter().enumerate() {
            positions[vertex.index()] = position as u32;
        }
        let (met, sought) = (vec![0; order.len()], vec![0; order.len()]);
        Paths { adjacency, positions, met, sought, searches: 0, stack: Vec::new(), steps: 0 }
    }

    /// A path from the writer of a version to a transaction that read or wrote another: to its
    /// writer and without time, if there is such a one.
    fn between(&mut self, version: &Version, other: &Version) -> Option<Path> {
        let from = version.writer?;
        let any = self.reach(from, other.holders(), true)?;
        let without_time = self.reach(from, other.holders(), false);
        let needs_time = without_time.is_none();
        let to_writer = self.reach(from, other.writer.into_iter(), needs_time);
        Some(Path { to: to_writer.or(without_time).unwrap_or(any), needs_time })
    }

    fn reach(
        &mut self,
        from: TransactionId,
        targets: impl Iterator<Item = TransactionId>,
        in_time: bool,
    ) -> Option<TransactionId> {
        let start = self.positions[Vertex::from(from).index()];
        self.searches += 1;
        let mut last = start;
        for target in targets {
            let target = Vertex::from(target).index();
            self.steps += 1;
            self.sought[target] = self.searches;
            last = last.max(self.positions[target]);
        }
        if last == start {
            return None;
        }
        self.stack.clear();
        self.stack.push(from.into());
        while let Some(vertex) = self.stack.pop() {
            let edges = self.adjacency.of(vertex);
            self.steps += edges.len();
            for edge in edges {
                let to = edge.to.index();
                let skipped = !in_time
                    && matches!(edge.kind, Kind::Realtime | Kind::WwRealtime | Kind::RwRealtime);
                if skipped || self.positions[to] > last || self.met[to] == self.searches {
                    continue;
                }
                if self.sought[to] == self.searches {
                    return Some(TransactionId(edge.to.0));
                }
                self.met[to] = self.searches;
                self.stack.push(edge.to);
            }
        }
        None
    }
}
