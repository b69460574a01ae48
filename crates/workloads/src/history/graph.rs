//! The dependency graph: a vertex for every attempt, an edge wherever one must come before another.
//!
//! Some rules relate one transaction to a whole range of others: every one that began after it
//! ended, every one that overwrote what it read. A [`Fan`] keeps such edges few. It is a tree of
//! helper vertices over a sequence of transactions, so that any range of them is a handful of
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
//! A [`Suffixes`] is the same for ranges that all reach to the end: helper *i* leads to transaction
//! *i* and to helper *i* + 1, so that each range costs one edge.
//!
//! Invariants:
//! - An edge into a helper carries the kind of the dependency; [`Kind::Fan`] edges, which lead out
//!   of helpers, only continue it. So a path from one transaction to the next that passes through
//!   helpers is one dependency.
//! - From a helper one reaches only the transactions it stands for: no path exists that is not a
//!   dependency, and a transaction that leaves itself out of its range has no cycle with itself.

use super::indexed::{KeyId, TransactionId};
use super::report::{Dependency, EdgeCounts};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::ops::Range;

/// The rule by which an edge exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Replaced a version; the order of the two is known from reads.
    Ww,
    /// Read a version that the other wrote.
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
    /// The dependency as which reports show the edge. The edges of a fan have none of their own.
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

/// A set of kinds of edges, a bit for each.
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

    /// The set of all kinds of edges.
    pub const ALL: Kinds = Kinds(u8::MAX);

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
    /// A transaction that had the second version, and which a path leads to from the writer of the
    /// first: why the versions stand in this order, where the kind does not show it.
    pub path_to: Option<TransactionId>,
}

impl Note {
    /// Evidence of a version of a key, and of what followed it.
    pub fn new(key: KeyId, before: Option<u64>, after: Option<u64>) -> Note {
        Note { key, before, after, path_to: None }
    }
}

/// The number of a note, from 1: an edge without one takes no more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoteId(NonZeroU32);

/// A transaction or a helper, by its number in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Vertex(pub u32);

impl Vertex {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<TransactionId> for Vertex {
    fn from(id: TransactionId) -> Vertex {
        Vertex(id.0)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub from: Vertex,
    pub to: Vertex,
    pub kind: Kind,
    pub note: Option<NoteId>,
}

// A history of a million transactions has some ten million edges.
const _: () = assert!(size_of::<Edge>() == 16);

/// The dependency graph as it is built: vertices by number, edges in a list.
#[derive(Debug)]
pub(super) struct Graph {
    /// The first vertices are attempts, by number; the others are helpers.
    attempts: usize,
    vertices: usize,
    pub edges: Vec<Edge>,
    notes: Vec<Note>,
    pub counts: EdgeCounts,
}

impl Graph {
    /// The graph of `attempts` attempts, without edges.
    pub fn new(attempts: usize) -> Graph {
        Graph {
            attempts,
            vertices: attempts,
            edges: Vec::new(),
            notes: Vec::new(),
            counts: EdgeCounts::default(),
        }
    }

    /// The number of vertices, helpers included.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// The attempt whose vertex it is; `None` for a helper.
    pub fn transaction(&self, vertex: Vertex) -> Option<TransactionId> {
        (vertex.index() < self.attempts).then_some(TransactionId(vertex.0))
    }

    /// A helper: edges into it are continued by what it is linked to.
    pub fn helper(&mut self) -> Vertex {
        self.vertices += 1;
        Vertex(self.vertices as u32 - 1)
    }

    /// Keeps the evidence for edges to come.
    pub fn note(&mut self, note: Note) -> NoteId {
        self.notes.push(note);
        let number = NonZeroU32::new(self.notes.len() as u32);
        NoteId(number.expect("fewer notes than edges, which are numbered in 32 bits"))
    }

    pub fn note_of(&self, id: NoteId) -> Note {
        self.notes[id.0.get() as usize - 1]
    }

    pub fn link(
        &mut self,
        from: impl Into<Vertex>,
        to: impl Into<Vertex>,
        kind: Kind,
        note: Option<NoteId>,
    ) {
        match kind.dependency() {
            Some(Dependency::Ww) => self.counts.ww += 1,
            Some(Dependency::Wr) => self.counts.wr += 1,
            Some(Dependency::Rw) => self.counts.rw += 1,
            Some(Dependency::Realtime) => self.counts.realtime += 1,
            None => {}
        }
        self.edges.push(Edge { from: from.into(), to: to.into(), kind, note });
    }
}

/// Edges by the vertex they lead out of, side by side in memory.
#[derive(Debug)]
pub(super) struct Adjacency {
    /// Where the edges of each vertex begin; one more than there are vertices.
    offsets: Vec<u32>,
    pub edges: Vec<Edge>,
}

impl Adjacency {
    /// Sorts these edges between `vertices` vertices; those of one vertex keep their order.
    pub fn new(vertices: usize, edges: &[Edge]) -> Adjacency {
        let mut offsets = vec![0_u32; vertices + 1];
        for edge in edges {
            offsets[edge.from.index() + 1] += 1;
        }
        for vertex in 0..vertices {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut sorted = edges.to_vec();
        for edge in edges {
            let place = &mut next[edge.from.index()];
            sorted[*place as usize] = *edge;
            *place += 1;
        }
        Adjacency { offsets, edges: sorted }
    }

    /// How many vertices the graph has, those without edges included.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The range of the edges out of a vertex in `edges`.
    pub fn range(&self, vertex: Vertex) -> Range<usize> {
        self.offsets[vertex.index()] as usize..self.offsets[vertex.index() + 1] as usize
    }

    /// The edges out of a vertex.
    pub fn of(&self, vertex: Vertex) -> &[Edge] {
        &self.edges[self.range(vertex)]
    }

    /// The number of edges into each vertex.
    pub fn in_degrees(&self) -> Vec<u32> {
        let mut degrees = vec![0; self.vertices()];
        for edge in &self.edges {
            degrees[edge.to.index()] += 1;
        }
        degrees
    }

    /// All vertices, each after those that edges lead from to it; `None` if there is a cycle. Where
    /// there is a choice the least by `priority` comes first.
    pub fn topological_order(&self, priority: impl Fn(Vertex) -> u64) -> Option<Vec<Vertex>> {
        let mut waiting = self.in_degrees();
        let ready = (0..self.vertices() as u32).filter(|number| waiting[*number as usize] == 0);
        let entry = |vertex: Vertex| Reverse((priority(vertex), vertex));
        let mut ready: BinaryHeap<_> = ready.map(|number| entry(Vertex(number))).collect();
        let mut order = Vec::with_capacity(self.vertices());
        while let Some(Reverse((_, vertex))) = ready.pop() {
            order.push(vertex);
            for edge in self.of(vertex) {
                waiting[edge.to.index()] -= 1;
                if waiting[edge.to.index()] == 0 {
                    ready.push(entry(edge.to));
                }
            }
        }
        (order.len() == self.vertices()).then_some(order)
    }
}

/// All suffixes of a sequence of transactions, any of which can be linked to at once.
#[derive(Debug)]
pub(super) struct Suffixes {
    helpers: Vec<Vertex>,
}

impl Suffixes {
    pub fn new(graph: &mut Graph, targets: &[TransactionId]) -> Suffixes {
        let helpers: Vec<Vertex> = targets.iter().map(|_| graph.helper()).collect();
        for (place, (&helper, &target)) in helpers.iter().zip(targets).enumerate() {
            graph.link(helper, target, Kind::Fan, None);
            if let Some(&next) = helpers.get(place + 1) {
                graph.link(helper, next, Kind::Fan, None);
            }
        }
        Suffixes { helpers }
    }

    /// Links `source` to the targets from `start` on, which it must not be among.
    pub fn link(&self, graph: &mut Graph, source: TransactionId, start: usize, kind: Kind) {
        if let Some(&helper) = self.helpers.get(start) {
            graph.link(source, helper, kind, None);
        }
    }
}

/// What an edge stands for, and the note that explains it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EdgeLabel {
    pub kind: Kind,
    pub note: Option<NoteId>,
}

/// A sequence of transactions, any range of which can be linked to at once.
#[derive(Debug)]
pub(super) struct Fan {
    targets: Vec<Vertex>,
    /// The tree's inner vertices, as a heap: number *i* has the children 2*i* and 2*i*+1; number *n* + *i* is
    /// target *i*. Number 0 is unused.
    inner: Vec<Vertex>,
}

impl Fan {
    pub fn new(graph: &mut Graph, targets: impl IntoIterator<Item = TransactionId>) -> Fan {
        let targets: Vec<Vertex> = targets.into_iter().map(Vertex::from).collect();
        let inner =
            (0..targets.len()).map(|i| if i == 0 { Vertex(u32::MAX) } else { graph.helper() });
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
        source: Vertex,
        range: Range<usize>,
        except: &[usize],
        label: EdgeLabel,
    ) {
        let mut start = range.start;
        for &hole in except.iter().filter(|hole| range.contains(hole)) {
            self.link_range(graph, source, start..hole, label);
            start = hole + 1;
        }
        self.link_range(graph, source, start..range.end, label);
    }

    fn link_range(
        &self,
        graph: &mut Graph,
        source: Vertex,
        range: Range<usize>,
        EdgeLabel { kind, note }: EdgeLabel,
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

    fn at(&self, place: usize) -> Vertex {
        match place.checked_sub(self.targets.len()) {
            Some(target) => self.targets[target],
            None => self.inner[place],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transactions that paths from `source` lead to.
    fn reached_from(graph: &Graph, source: Vertex) -> Vec<usize> {
        let adjacency = Adjacency::new(graph.vertices(), &graph.edges);
        let (mut reached, mut stack) = (vec![], vec![source]);
        while let Some(vertex) = stack.pop() {
            for edge in adjacency.of(vertex) {
                stack.push(edge.to);
                reached.extend(graph.transaction(edge.to).map(|id| id.0 as usize));
            }
        }
        reached
    }

    #[test]
    fn suffixes_reach_exactly_what_stands_from_a_place_on() {
        for size in 1..9 {
            for start in 0..=size {
                let mut graph = Graph::new(size + 1);
                let targets: Vec<TransactionId> = (0..size as u32).map(TransactionId).collect();
                let suffixes = Suffixes::new(&mut graph, &targets);
                let source = TransactionId(size as u32);
                suffixes.link(&mut graph, source, start, Kind::Realtime);
                let mut reached = reached_from(&graph, source.into());
                reached.sort_unstable();
                assert_eq!(reached, (start..size).collect::<Vec<_>>(), "size {size}, {start}..");
            }
        }
    }

    #[test]
    fn a_fan_reaches_exactly_the_range_without_the_exceptions() {
        for size in 1..20 {
            for (start, end) in (0..=size).flat_map(|s| (s..=size).map(move |e| (s, e))) {
                for hole in 0..size {
                    let mut graph = Graph::new(size + 1);
                    let source = Vertex(size as u32);
                    let fan = Fan::new(&mut graph, (0..size as u32).map(TransactionId));
                    fan.link(
                        &mut graph,
                        source,
                        start..end,
                        &[hole],
                        EdgeLabel { kind: Kind::Realtime, note: None },
                    );
                    let mut reached = reached_from(&graph, source);
                    reached.sort_unstable();
                    let expected: Vec<usize> = (start..end).filter(|&i| i != hole).collect();
                    assert_eq!(reached, expected, "size {size}, {start}..{end} without {hole}");
                }
            }
        }
    }
}
