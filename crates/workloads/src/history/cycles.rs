//! Cycles of the dependency graph, named as Adya's anomalies (thesis, 1999, ch. 4; Elle, VLDB'20, §5).
//!
//! A class of cycles is given by the edges it may be made of and the edges of which it needs one:
//!
//! | class | begins with | goes on with |
//! |---|---|---|
//! | G0 | ww | ww |
//! | G1c | wr | ww, wr |
//! | G-single | rw | ww, wr |
//! | G2-item | rw | ww, wr, rw |
//! | G0-realtime | real time | ww, real time |
//! | … | the same, | each with real time added |
//!
//! An order of a register's versions that follows only from time (see `registers`) is used from
//! G-single-realtime on: when a read is stale, two such orders contradict each other, and the
//! stale read is the better name for it. What only a cycle of such writes shows comes last, in
//! what is left then.
//!
//! Every cycle lies within a strongly connected component of the graph restricted to the edges of
//! its class. The classes are tried in this order, and a component that holds the witness of an
//! earlier class is passed over: its members are entangled with a worse anomaly, and most of what
//! could be said of them follows from that.
//!
//! The witness is a shortest cycle: breadth first from every member of the component that has an
//! edge of the class's first kind, where the edges out of helpers have no length. The members that
//! began last come first: one stale read makes a component of all that happened since what it
//! missed, and a shortest cycle passes through it. In components so large that the search
//! would take more than [`STEPS_MAX`] steps the witness is the shortest cycle met till then. If none of
//! the class was met, the component is left to the next class; a component that all classes have
//! left still has cycles, one of which is named by the edges it is made of.

use super::components::Components;
use super::graph::{Adjacency, Edge, Graph, Kind, Kinds, NoteId, Vertex};
use super::indexed::{History, TransactionId};
use super::report::{AnomalyKind, Dependency};
use std::collections::VecDeque;

/// Edges that the search for one component's shortest cycle may look at.
pub const STEPS_MAX: usize = 20_000_000;

/// A dependency between two transactions of a cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub from: TransactionId,
    pub to: TransactionId,
    pub kind: Kind,
    pub note: Option<NoteId>,
}

#[derive(Debug)]
pub(super) struct Cycle {
    pub kind: AnomalyKind,
    pub links: Vec<Link>,
}

struct Class {
    kind: AnomalyKind,
    first: Kinds,
    rest: Kinds,
    /// The edges that make the components in which its cycles are looked for.
    within: Kinds,
}

const WRITES: Kinds = Kinds::of(&[Kind::Ww, Kind::Fan]);
const READS: Kinds = Kinds::of(&[Kind::Wr]);
const INFORMATION: Kinds = WRITES.and(READS);
const OVERWRITES: Kinds = Kinds::of(&[Kind::Rw]);
const TIME: Kinds = Kinds::of(&[Kind::Realtime]);
const WRITES_IN_TIME: Kinds = Kinds::of(&[Kind::WwRealtime]);
const OVERWRITES_IN_TIME: Kinds = Kinds::of(&[Kind::Rw, Kind::RwRealtime]);
const VERSIONS_IN_TIME: Kinds = WRITES.and(TIME).and(WRITES_IN_TIME);
const INFORMATION_IN_TIME: Kinds = VERSIONS_IN_TIME.and(READS);
const EVERYTHING: Kinds = INFORMATION_IN_TIME.and(OVERWRITES_IN_TIME);

const CLASSES: [Class; 10] = {
    use AnomalyKind::{
        G0, G0Realtime, G1c, G1cRealtime, G2Item, G2ItemRealtime, GSingle, GSingleRealtime,
    };
    const fn class(kind: AnomalyKind, first: Kinds, rest: Kinds) -> Class {
        Class { kind, first, rest, within: first.and(rest) }
    }
    [
        class(G0, Kinds::of(&[Kind::Ww]), WRITES),
        class(G1c, READS, INFORMATION),
        class(GSingle, OVERWRITES, INFORMATION),
        class(G2Item, OVERWRITES, INFORMATION.and(OVERWRITES)),
        class(G0Realtime, TIME, WRITES.and(TIME)),
        class(G1cRealtime, READS, INFORMATION.and(TIME)),
        class(GSingleRealtime, OVERWRITES_IN_TIME, INFORMATION_IN_TIME),
        class(G2ItemRealtime, OVERWRITES_IN_TIME, EVERYTHING),
        Class { within: EVERYTHING, ..class(G0Realtime, WRITES_IN_TIME, VERSIONS_IN_TIME) },
        Class { within: EVERYTHING, ..class(G1cRealtime, WRITES_IN_TIME, INFORMATION_IN_TIME) },
    ]
};

/// The graph's cycles, one a component and class. `lost_updates` are pairs already reported: the
/// G-single or G2-item that each of them forms gets no second name. Adds to `steps` the edges it
/// looked at.
pub(super) fn find(
    history: &History,
    graph: &Graph,
    lost_updates: &[[TransactionId; 2]],
    steps: &mut usize,
) -> Vec<Cycle> {
    let tangle = Tangle::new(graph);
    *steps += graph.edges.len();
    let mut witnesses: Vec<Vec<TransactionId>> = Vec::new();
    let mut cycles = Vec::new();
    if tangle.transactions.is_empty() {
        return cycles;
    }
    for class in &CLASSES {
        if class.kind == AnomalyKind::GSingle {
            witnesses.extend(lost_updates.iter().map(|pair| pair.to_vec()));
        }
        let components = Components::new(&tangle.adjacency, class.within);
        *steps += tangle.adjacency.edges.len();
        let covered = tangle.covered(&components, &witnesses);
        let mut search = Search::new(history, &tangle, &components);
        for (members, _) in components.members.iter().zip(covered).filter(|(_, covered)| !covered) {
            if let Some(edges) = search.shortest_cycle(members, class) {
                let links = tangle.links(&edges);
                witnesses.push(links.iter().map(|link| link.from).collect());
                cycles.push(Cycle { kind: class.kind, links });
            }
        }
        *steps += search.steps_of_all;
    }
    // What the bounded searches have left.
    let components = Components::new(&tangle.adjacency, EVERYTHING);
    let covered = tangle.covered(&components, &witnesses);
    let mut search = Search::new(history, &tangle, &components);
    for (members, _) in components.members.iter().zip(covered).filter(|(_, covered)| !covered) {
        let links = tangle.links(&search.any_cycle(members));
        cycles.push(Cycle { kind: name(&links), links });
    }
    *steps += search.steps_of_all;
    cycles
}

/// The class of a cycle, by its edges.
fn name(links: &[Link]) -> AnomalyKind {
    use AnomalyKind::{
        G0, G0Realtime, G1c, G1cRealtime, G2Item, G2ItemRealtime, GSingle, GSingleRealtime,
    };
    let count =
        |dependency| links.iter().filter(|link| link.kind.dependency() == Some(dependency)).count();
    let in_time = links
        .iter()
        .any(|link| matches!(link.kind, Kind::Realtime | Kind::WwRealtime | Kind::RwRealtime));
    let (plain, realtime) = match (count(Dependency::Rw), count(Dependency::Wr)) {
        (0, 0) => (G0, G0Realtime),
        (0, _) => (G1c, G1cRealtime),
        (1, _) => (GSingle, GSingleRealtime),
        (_, _) => (G2Item, G2ItemRealtime),
    };
    if in_time { realtime } else { plain }
}

/// The part of the graph that can hold cycles: its components of more than one vertex.
struct Tangle {
    adjacency: Adjacency,
    /// What each vertex stands for: a transaction, or `None` for a helper.
    transactions: Vec<Option<TransactionId>>,
    /// The vertex of each transaction of the whole graph, if it is in a component.
    places: Vec<Option<Vertex>>,
}

impl Tangle {
    fn new(whole: &Graph) -> Tangle {
        let adjacency = Adjacency::new(whole.vertices(), &whole.edges);
        let components = Components::new(&adjacency, EVERYTHING);
        let mut places = vec![None; whole.vertices()];
        let mut transactions = Vec::new();
        for member in components.members.iter().flatten() {
            places[member.index()] = Some(Vertex(transactions.len() as u32));
            transactions.push(whole.transaction(*member));
        }
        let number = |vertex: Vertex| components.number[vertex.index()];
        let within = whole.edges.iter().filter_map(|edge| {
            if number(edge.from) != number(edge.to) {
                return None;
            }
            let (from, to) = (places[edge.from.index()]?, places[edge.to.index()]?);
            Some(Edge { from, to, ..*edge })
        });
        let adjacency = Adjacency::new(transactions.len(), &within.collect::<Vec<_>>());
        Tangle { adjacency, transactions, places }
    }

    /// Which components hold the whole of a witness.
    fn covered(&self, components: &Components, witnesses: &[Vec<TransactionId>]) -> Vec<bool> {
        let mut covered = vec![false; components.members.len()];
        for witness in witnesses {
            let number_of = |id: &TransactionId| {
                let vertex = self.places[id.0 as usize]?;
                components.number[vertex.index()]
            };
            let Some(number) = witness.first().and_then(number_of) else { continue };
            if witness.iter().all(|id| number_of(id) == Some(number)) {
                covered[number as usize] = true;
            }
        }
        covered
    }

    /// The dependencies that a cycle of edges stands for, helpers left out. It begins at a
    /// transaction.
    fn links(&self, edges: &[Edge]) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        for Edge { from, to, kind, note } in edges {
            if let Some(from) = self.transactions[from.index()] {
                links.push(Link { from, to: from, kind: *kind, note: *note });
            }
            if let Some((link, to)) = links.last_mut().zip(self.transactions[to.index()]) {
                link.to = to;
            }
        }
        links
    }
}

/// Searches for shortest cycles. Its state of a vertex belongs to one start and is out of date for
/// the next, so that nothing has to be cleared.
struct Search<'t> {
    history: &'t History,
    tangle: &'t Tangle,
    components: &'t Components,
    round: u32,
    reached: Vec<Reached>,
    /// Edges looked at for the present component, and for all before it.
    steps: usize,
    steps_of_all: usize,
}

/// How a vertex was reached, if `round` is the present one: by which of the tangle's edges.
#[derive(Clone, Copy)]
struct Reached {
    round: u32,
    distance: u32,
    by: u32,
}

impl<'t> Search<'t> {
    fn new(history: &'t History, tangle: &'t Tangle, components: &'t Components) -> Search<'t> {
        let never = Reached { round: 0, distance: u32::MAX, by: u32::MAX };
        let reached = vec![never; tangle.transactions.len()];
        Search { history, tangle, components, round: 0, reached, steps: 0, steps_of_all: 0 }
    }

    fn shortest_cycle(&mut self, members: &[Vertex], class: &Class) -> Option<Vec<Edge>> {
        self.steps = 0;
        let mut best = None;
        let mut length_max = u32::MAX;
        let kinds = [class.first, class.rest];
        for start in self.starts(members, class.first) {
            if let Some(length) = self.return_to(start, kinds, length_max, STEPS_MAX) {
                best = Some(self.path_to(start));
                length_max = length;
            }
            // No cycle is shorter than two.
            if length_max <= 2 || self.steps > STEPS_MAX {
                break;
            }
        }
        self.steps_of_all += self.steps;
        best
    }

    /// A cycle through some transaction of the component, of any edges.
    fn any_cycle(&mut self, members: &[Vertex]) -> Vec<Edge> {
        self.steps = 0;
        let is_transaction = |vertex: &&Vertex| self.tangle.transactions[vertex.index()].is_some();
        let start = *members.iter().find(is_transaction).expect("helpers alone form no cycle");
        let length = self.return_to(start, [EVERYTHING; 2], u32::MAX, usize::MAX);
        assert!(length.is_some(), "a member of a component has a path to itself");
        self.steps_of_all += self.steps;
        self.path_to(start)
    }

    /// The transactions with an edge of the `first` kinds, the latest to begin first.
    fn starts(&mut self, members: &[Vertex], first: Kinds) -> Vec<Vertex> {
        let mut starts = Vec::new();
        for &member in members {
            let Some(id) = self.tangle.transactions[member.index()] else { continue };
            let edges = self.tangle.adjacency.of(member);
            self.steps += edges.len();
            if edges.iter().any(|edge| first.contains(edge.kind)) {
                starts.push((self.history.attempt(id).start_ns, member));
            }
        }
        starts.sort_unstable_by(|a, b| b.cmp(a));
        starts.into_iter().map(|(_, member)| member).collect()
    }

    /// The length of the shortest cycle through `start` that begins with an edge of the first kinds
    /// and goes on with the second, if it is below `length_max` and found in time.
    fn return_to(
        &mut self,
        start: Vertex,
        kinds: [Kinds; 2],
        length_max: u32,
        steps_max: usize,
    ) -> Option<u32> {
        self.round += 1;
        let mut queue = VecDeque::new();
        let [first, rest] = kinds;
        self.expand(start, 0, first, &mut queue);
        while let Some((vertex, distance)) = queue.pop_front() {
            if distance >= length_max || self.steps > steps_max {
                return None;
            }
            if vertex == start {
                return Some(distance);
            }
            if distance == self.reached[vertex.index()].distance {
                self.expand(vertex, distance, rest, &mut queue);
            }
        }
        None
    }

    /// Reaches out over the edges of these kinds within the component. The queue is by distance:
    /// what costs nothing goes in front.
    fn expand(
        &mut self,
        vertex: Vertex,
        distance: u32,
        kinds: Kinds,
        queue: &mut VecDeque<(Vertex, u32)>,
    ) {
        let number = &self.components.number;
        let range = self.tangle.adjacency.range(vertex);
        self.steps += range.len();
        for place in range {
            let Edge { to, kind, .. } = self.tangle.adjacency.edges[place];
            if !kinds.contains(kind) || number[to.index()] != number[vertex.index()] {
                continue;
            }
            let distance = distance + u32::from(kind != Kind::Fan);
            let reached = &mut self.reached[to.index()];
            if reached.round == self.round && reached.distance <= distance {
                continue;
            }
            *reached = Reached { round: self.round, distance, by: place as u32 };
            if kind == Kind::Fan {
                queue.push_front((to, distance));
            } else {
                queue.push_back((to, distance));
            }
        }
    }

    /// The edges of the cycle through `start` that was just found.
    fn path_to(&self, start: Vertex) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut vertex = start;
        loop {
            let edge = self.tangle.adjacency.edges[self.reached[vertex.index()].by as usize];
            edges.push(edge);
            vertex = edge.from;
            if vertex == start {
                break;
            }
        }
        edges.reverse();
        edges
    }
}
