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
//! An order of a register's versions that only time tells (see `registers`) is used from
//! G-single-realtime on: when a read is stale, two such orders contradict each other, and the
//! stale read is the better name for it. What only a cycle of such writes shows comes last, in
//! what is left then.
//!
//! Every cycle lies within a strongly connected component of the graph restricted to the edges of
//! its class. The classes are tried in this order, and a component that holds the witness of an
//! earlier class is passed over: its members are entangled with a worse anomaly, and most of what
//! could be said of them follows from that.
//!
//! The witness is a shortest cycle: breadth first from every member of the component, where the
//! edges out of helpers have no length. In components so large that this would take more than
//! [`STEPS_MAX`] steps it is the shortest of those met till then, or, if no cycle of the class was
//! met, the component is left to the next class.

use super::graph::{Edge, Graph, Kind, Kinds, NoteId};
use super::indexed::TransactionId;
use super::report::AnomalyKind;
use petgraph::Graph as Petgraph;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeFiltered, EdgeRef};
use std::collections::{HashMap, VecDeque};

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
/// G-single or G2-item that each of them forms gets no second name.
pub(super) fn find(graph: &Graph, lost_updates: &[[TransactionId; 2]]) -> Vec<Cycle> {
    let tangle = Tangle::new(graph);
    let mut witnesses: Vec<Vec<TransactionId>> = Vec::new();
    let mut cycles = Vec::new();
    for class in &CLASSES {
        if class.kind == AnomalyKind::GSingle {
            witnesses.extend(lost_updates.iter().map(|pair| pair.to_vec()));
        }
        let components = tangle.components(class.within);
        let covered = tangle.covered(&components, &witnesses);
        let mut search = Search::new(&tangle, &components);
        for (members, _) in components.members.iter().zip(covered).filter(|(_, covered)| !covered) {
            if let Some(edges) = search.shortest_cycle(members, class) {
                let links = tangle.links(&edges);
                witnesses.push(links.iter().map(|link| link.from).collect());
                cycles.push(Cycle { kind: class.kind, links });
            }
        }
    }
    cycles
}

/// The part of the graph that can hold cycles: its components of more than one node.
struct Tangle {
    /// A node is a transaction, or a helper.
    graph: Petgraph<Option<TransactionId>, Edge>,
    nodes: HashMap<TransactionId, NodeIndex>,
}

/// The strongly connected components of more than one node, for some kinds of edges.
struct Components {
    members: Vec<Vec<NodeIndex>>,
    /// The component of each node, if it is in one.
    number: Vec<Option<u32>>,
}

impl Tangle {
    fn new(whole: &Graph) -> Tangle {
        let mut tangle = Tangle { graph: Petgraph::new(), nodes: HashMap::new() };
        let mut place = vec![None; whole.inner.node_count()];
        let components = kosaraju_scc(&whole.inner).into_iter().filter(|nodes| nodes.len() > 1);
        for (number, members) in components.enumerate() {
            for member in members {
                let transaction = whole.transaction(member);
                let node = tangle.graph.add_node(transaction);
                place[member.index()] = Some((number, node));
                tangle.nodes.extend(transaction.map(|id| (id, node)));
            }
        }
        for edge in whole.inner.edge_references() {
            if let Some((from_number, from)) = place[edge.source().index()]
                && let Some((to_number, to)) = place[edge.target().index()]
                && from_number == to_number
            {
                tangle.graph.add_edge(from, to, *edge.weight());
            }
        }
        tangle
    }

    fn components(&self, kinds: Kinds) -> Components {
        let restricted =
            EdgeFiltered::from_fn(&self.graph, |edge| kinds.contains(edge.weight().kind));
        let members: Vec<Vec<NodeIndex>> =
            kosaraju_scc(&restricted).into_iter().filter(|nodes| nodes.len() > 1).collect();
        let mut number = vec![None; self.graph.node_count()];
        for (component, nodes) in members.iter().enumerate() {
            for node in nodes {
                number[node.index()] = Some(component as u32);
            }
        }
        Components { members, number }
    }

    /// Which components hold the whole of a witness.
    fn covered(&self, components: &Components, witnesses: &[Vec<TransactionId>]) -> Vec<bool> {
        let mut covered = vec![false; components.members.len()];
        for witness in witnesses {
            let number_of =
                |id| self.nodes.get(id).and_then(|node| components.number[node.index()]);
            let Some(number) = witness.first().and_then(number_of) else { continue };
            if witness.iter().all(|id| number_of(id) == Some(number)) {
                covered[number as usize] = true;
            }
        }
        covered
    }

    /// The dependencies that a cycle of edges stands for, helpers left out.
    fn links(&self, edges: &[EdgeIndex]) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        for &index in edges {
            let Some((source, target)) = self.graph.edge_endpoints(index) else { continue };
            let Edge { kind, note } = self.graph[index];
            if let Some(from) = self.graph[source] {
                links.push(Link { from, to: from, kind, note });
            }
            if let Some((link, to)) = links.last_mut().zip(self.graph[target]) {
                link.to = to;
            }
        }
        links
    }
}

/// Looks for shortest cycles. What it knows of a node belongs to one start and is out of date for
/// the next, so that nothing has to be cleared.
struct Search<'t> {
    tangle: &'t Tangle,
    components: &'t Components,
    round: u32,
    reached: Vec<Reached>,
    steps: usize,
}

/// How a node was reached, if `round` is the present one.
#[derive(Clone, Copy)]
struct Reached {
    round: u32,
    distance: u32,
    by: EdgeIndex,
}

impl<'t> Search<'t> {
    fn new(tangle: &'t Tangle, components: &'t Components) -> Search<'t> {
        let never = Reached { round: 0, distance: u32::MAX, by: EdgeIndex::end() };
        let reached = vec![never; tangle.graph.node_count()];
        Search { tangle, components, round: 0, reached, steps: 0 }
    }

    fn shortest_cycle(&mut self, members: &[NodeIndex], class: &Class) -> Option<Vec<EdgeIndex>> {
        self.steps = 0;
        let mut best = None;
        let mut length_max = u32::MAX;
        for &start in members.iter().filter(|node| self.tangle.graph[**node].is_some()) {
            if let Some(length) = self.return_to(start, class, length_max) {
                best = Some(self.path_to(start));
                length_max = length;
            }
            // No cycle is shorter than two.
            if length_max <= 2 || self.steps > STEPS_MAX {
                break;
            }
        }
        best
    }

    /// The length of the shortest cycle through `start`, if it is below `length_max`.
    fn return_to(&mut self, start: NodeIndex, class: &Class, length_max: u32) -> Option<u32> {
        self.round += 1;
        let mut queue = VecDeque::new();
        self.expand(start, 0, class.first, &mut queue);
        while let Some((node, distance)) = queue.pop_front() {
            if distance >= length_max || self.steps > STEPS_MAX {
                return None;
            }
            if node == start {
                return Some(distance);
            }
            if distance == self.reached[node.index()].distance {
                self.expand(node, distance, class.rest, &mut queue);
            }
        }
        None
    }

    /// Reaches out over the edges of these kinds within the component. The queue is by distance:
    /// what costs nothing goes in front.
    fn expand(
        &mut self,
        node: NodeIndex,
        distance: u32,
        kinds: Kinds,
        queue: &mut VecDeque<(NodeIndex, u32)>,
    ) {
        for edge in self.tangle.graph.edges(node) {
            self.steps += 1;
            let (target, kind) = (edge.target(), edge.weight().kind);
            let number = &self.components.number;
            if !kinds.contains(kind) || number[target.index()] != number[node.index()] {
                continue;
            }
            let distance = distance + u32::from(kind != Kind::Fan);
            let reached = &mut self.reached[target.index()];
            if reached.round == self.round && reached.distance <= distance {
                continue;
            }
            *reached = Reached { round: self.round, distance, by: edge.id() };
            if kind == Kind::Fan {
                queue.push_front((target, distance));
            } else {
                queue.push_back((target, distance));
            }
        }
    }

    /// The edges of the cycle through `start` that was just found.
    fn path_to(&self, start: NodeIndex) -> Vec<EdgeIndex> {
        let mut edges = Vec::new();
        let mut node = start;
        loop {
            let by = self.reached[node.index()].by;
            edges.push(by);
            match self.tangle.graph.edge_endpoints(by) {
                Some((source, _)) if source != start => node = source,
                _ => break,
            }
        }
        edges.reverse();
        edges
    }
}
