//! The dependency graph: a node for every attempt, an edge wherever one must come before another.
//!
//! Some rules relate one transaction to a whole range of others: everyone who began after it
//! ended, everyone who overwrote what it read. A [`Fan`] keeps such edges few. It is a tree of
//! helper nodes over a sequence of transactions, so that any range of them is a handful of
//! subtrees:
//!
//! ```text
//!            h1
//!          /    \          T7 → range [1, 4) of (a b c d)
//!        h2      h3          is T7 → b, T7 → h3
//!       /  \    /  \
//!      a    b  c    d
//! ```
//!
//! Invariants:
//! - An edge into a helper carries the kind of the dependency; [`Kind::Fan`] edges, which lead out
//!   of helpers, only continue it. So a path from one transaction to the next that passes through
//!   helpers is one dependency.
//! - From a helper one reaches only the transactions it stands for: no path exists that is not a
//!   dependency, and a transaction that leaves itself out of its range has no cycle with itself.

use super::indexed::{KeyId, TransactionId};
use super::report::{Dependency, EdgeCounts};
use petgraph::Graph as Petgraph;
use petgraph::graph::NodeIndex;
use std::ops::Range;

/// By what rule an edge stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Replaced a version; the order of the two is known from reads.
    Ww,
    /// Read a version.
    Wr,
    /// Replaced a version that was read; the order is known from reads.
    Rw,
    /// As `Ww`, the order of the versions being known from real time.
    WwRealtime,
    /// As `Rw`, the order of the versions being known from real time.
    RwRealtime,
    /// Ended before the other began.
    Realtime,
    /// Continues the edge that led into a helper.
    Fan,
}

impl Kind {
    /// What a report calls it. A fan has no name of its own.
    pub fn dependency(self) -> Option<Dependency> {
        match self {
            Kind::Ww | Kind::WwRealtime => Some(Dependency::Ww),
            Kind::Wr => Some(Dependency::Wr),
            Kind::Rw | Kind::RwRealtime => Some(Dependency::Rw),
            Kind::Realtime => Some(Dependency::Realtime),
            Kind::Fan => None,
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub const fn of(kinds: &[Kind]) -> Kinds {
        let mut bits = 0;
        let mut index = 0;
        while index < kinds.len() {
            bits |= 1 << kinds[index] as u8;
            index += 1;
        }
        Kinds(bits)
    }

    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

/// The evidence for an edge between versions of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub key: KeyId,
    /// The version that the first transaction wrote or read; `None` where there was none.
    pub before: Option<u64>,
    /// The version that the second wrote, where that is not simply its last to the key.
    pub after: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoteId(u32);

#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub kind: Kind,
    pub note: Option<NoteId>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Graph {
    pub inner: Petgraph<(), Edge>,
    /// The first nodes are attempts, by number; the others are helpers.
    attempts: usize,
    notes: Vec<Note>,
    pub counts: EdgeCounts,
}

impl Graph {
    /// The graph of `attempts` attempts, without edges.
    pub fn new(attempts: usize) -> Graph {
        let mut inner = Petgraph::with_capacity(3 * attempts, 16 * attempts);
        for _ in 0..attempts {
            inner.add_node(());
        }
        Graph { inner, attempts, notes: Vec::new(), counts: EdgeCounts::default() }
    }

    /// The node of an attempt.
    pub fn node(id: TransactionId) -> NodeIndex {
        NodeIndex::new(id.0 as usize)
    }

    /// The attempt whose node it is; `None` for a helper.
    pub fn transaction(&self, node: NodeIndex) -> Option<TransactionId> {
        (node.index() < self.attempts).then_some(TransactionId(node.index() as u32))
    }

    /// A helper: edges into it are continued by what it is linked to.
    pub fn helper(&mut self) -> NodeIndex {
        self.inner.add_node(())
    }

    /// Keeps the evidence for edges to come.
    pub fn note(&mut self, note: Note) -> NoteId {
        self.notes.push(note);
        NoteId(self.notes.len() as u32 - 1)
    }

    pub fn note_of(&self, id: NoteId) -> Note {
        self.notes[id.0 as usize]
    }

    pub fn link(&mut self, from: NodeIndex, to: NodeIndex, kind: Kind, note: Option<NoteId>) {
        match kind.dependency() {
            Some(Dependency::Ww) => self.counts.ww += 1,
            Some(Dependency::Wr) => self.counts.wr += 1,
            Some(Dependency::Rw) => self.counts.rw += 1,
            Some(Dependency::Realtime) => self.counts.realtime += 1,
            None => {}
        }
        self.inner.add_edge(from, to, Edge { kind, note });
    }
}

/// A sequence of transactions, any range of which can be linked to at once. See the module.
#[derive(Debug)]
pub(super) struct Fan {
    targets: Vec<NodeIndex>,
    /// The tree's inner nodes, as a heap: node *i* has the children 2*i* and 2*i*+1; number *n* + *i* is
    /// target *i*. Number 0 is unused.
    inner: Vec<NodeIndex>,
}

impl Fan {
    pub fn new(graph: &mut Graph, targets: impl IntoIterator<Item = TransactionId>) -> Fan {
        let targets: Vec<NodeIndex> = targets.into_iter().map(Graph::node).collect();
        let inner =
            (0..targets.len()).map(|i| if i == 0 { NodeIndex::end() } else { graph.helper() });
        let fan = Fan { inner: inner.collect(), targets };
        for parent in 1..fan.targets.len() {
            for child in [2 * parent, 2 * parent + 1] {
                graph.link(fan.inner[parent], fan.at(child), Kind::Fan, None);
            }
        }
        fan
    }

    /// Links `source` to the targets in `range` but for those at the places `except`, which are in
    /// order.
    pub fn link(
        &self,
        graph: &mut Graph,
        source: NodeIndex,
        range: Range<usize>,
        except: &[usize],
        (kind, note): (Kind, Option<NoteId>),
    ) {
        let mut start = range.start;
        for &hole in except.iter().filter(|hole| range.contains(hole)) {
            self.link_range(graph, source, start..hole, (kind, note));
            start = hole + 1;
        }
        self.link_range(graph, source, start..range.end, (kind, note));
    }

    fn link_range(
        &self,
        graph: &mut Graph,
        source: NodeIndex,
        range: Range<usize>,
        (kind, note): (Kind, Option<NoteId>),
    ) {
        let (mut low, mut high) =
            (range.start + self.targets.len(), range.end + self.targets.len());
        while low < high {
            if low % 2 == 1 {
                graph.link(source, self.at(low), kind, note);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                graph.link(source, self.at(high), kind, note);
            }
            low /= 2;
            high /= 2;
        }
    }

    fn at(&self, place: usize) -> NodeIndex {
        match place.checked_sub(self.targets.len()) {
            Some(target) => self.targets[target],
            None => self.inner[place],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petgraph::visit::Dfs;

    #[test]
    fn a_fan_reaches_exactly_the_range_without_the_exceptions() {
        for size in 1..20 {
            for (start, end) in (0..=size).flat_map(|s| (s..=size).map(move |e| (s, e))) {
                for hole in 0..size {
                    let mut graph = Graph::new(size + 1);
                    let source = NodeIndex::new(size);
                    let fan = Fan::new(&mut graph, (0..size as u32).map(TransactionId));
                    fan.link(&mut graph, source, start..end, &[hole], (Kind::Realtime, None));
                    let mut reached = vec![];
                    let mut dfs = Dfs::new(&graph.inner, source);
                    while let Some(node) = dfs.next(&graph.inner) {
                        if node.index() < size {
                            reached.push(node.index());
                        }
                    }
                    reached.sort_unstable();
                    let expected: Vec<usize> = (start..end).filter(|&i| i != hole).collect();
                    assert_eq!(reached, expected, "size {size}, {start}..{end} without {hole}");
                }
            }
        }
    }
}
