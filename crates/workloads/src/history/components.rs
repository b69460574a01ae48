//! Strongly connected components (Tarjan, *Depth-first search and linear graph algorithms*, SIAM J.
//! Comput. 1972), without recursion: a history of a million transactions has paths as long.

use super::graph::{Adjacency, Kinds, Vertex};

/// The strongly connected components of more than one vertex, for some kinds of edges.
#[derive(Debug)]
pub(super) struct Components {
    /// The vertices of each component.
    pub members: Vec<Vec<Vertex>>,
    /// The component of each vertex, if it is in one.
    pub number: Vec<Option<u32>>,
    /// All vertices. Edges lead from later ones to earlier ones, but for those within a component, whose
    /// vertices stand together.
    pub order: Vec<Vertex>,
}

/// A vertex whose edges are being followed, and the next of them.
struct Frame {
    vertex: Vertex,
    edge: usize,
}

const UNSEEN: u32 = 0;
/// The number of a vertex whose component is complete.
const COMPLETE: u32 = u32::MAX;

/// The search as it goes.
struct Search<'a> {
    adjacency: &'a Adjacency,
    /// When each vertex was first met, counted from 1; `UNSEEN`, or `COMPLETE`.
    met: Vec<u32>,
    /// The least number of a vertex met that each reaches, as far as is known.
    low: Vec<u32>,
    count: u32,
    path: Vec<Frame>,
    /// The vertices met whose components are not complete, in the order they were met.
    open: Vec<Vertex>,
    found: Components,
}

impl Components {
    /// The components of the graph restricted to edges of these kinds.
    pub fn new(adjacency: &Adjacency, kinds: Kinds) -> Components {
        let vertices = adjacency.vertices();
        let mut search = Search {
            adjacency,
            met: vec![UNSEEN; vertices],
            low: vec![0; vertices],
            count: 0,
            path: Vec::new(),
            open: Vec::new(),
            found: Components {
                members: Vec::new(),
                number: vec![None; vertices],
                order: Vec::with_capacity(vertices),
            },
        };
        for root in (0..vertices as u32).map(Vertex) {
            if search.met[root.index()] == UNSEEN {
                search.enter(root);
                search.follow(kinds);
            }
        }
        search.found
    }
}

impl Search<'_> {
    fn enter(&mut self, vertex: Vertex) {
        self.count += 1;
        self.met[vertex.index()] = self.count;
        self.low[vertex.index()] = self.count;
        self.open.push(vertex);
        self.path.push(Frame { vertex, edge: self.adjacency.range(vertex).start });
    }

    /// Follows all edges from the last vertex of the path.
    fn follow(&mut self, kinds: Kinds) {
        while let Some(frame) = self.path.last_mut() {
            let vertex = frame.vertex;
            if frame.edge == self.adjacency.range(vertex).end {
                self.leave(vertex);
                continue;
            }
            let edge = &self.adjacency.edges[frame.edge];
            frame.edge += 1;
            if !kinds.contains(edge.kind) {
                continue;
            }
            match self.met[edge.to.index()] {
                UNSEEN => self.enter(edge.to),
                COMPLETE => {}
                met => self.low[vertex.index()] = self.low[vertex.index()].min(met),
            }
        }
    }

    /// Steps back from the last vertex of the path, and completes its component if it was the first of it.
    fn leave(&mut self, vertex: Vertex) {
        self.path.pop();
        let low = self.low[vertex.index()];
        if let Some(parent) = self.path.last() {
            let parent = parent.vertex.index();
            self.low[parent] = self.low[parent].min(low);
        }
        if low != self.met[vertex.index()] {
            return;
        }
        let first = self.open.iter().rposition(|member| *member == vertex);
        let members = self.open.split_off(first.expect("a vertex is open until it is complete"));
        for member in &members {
            self.met[member.index()] = COMPLETE;
        }
        self.found.order.extend(&members);
        if members.len() > 1 {
            let number = self.found.members.len() as u32;
            for member in &members {
                self.found.number[member.index()] = Some(number);
            }
            self.found.members.push(members);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Graph, Kind};
    use super::super::indexed::TransactionId;
    use super::*;
    use shoal_types::Random;

    #[test]
    fn two_vertices_share_a_component_exactly_if_they_reach_each_other() {
        let mut random = Random::new(1);
        for size in 1..12_usize {
            for _ in 0..50 {
                let mut graph = Graph::new(size);
                let mut reaches = vec![vec![false; size]; size];
                for _ in 0..random.below(3 * size as u64) {
                    let [from, to] = [0; 2].map(|_| random.below(size as u64) as usize);
                    let kind = if random.below(5) == 0 { Kind::Rw } else { Kind::Ww };
                    let id = |number: usize| TransactionId(number as u32);
                    graph.link(id(from), id(to), kind, None);
                    reaches[from][to] |= kind == Kind::Ww;
                }
                for (by, from) in (0..size).flat_map(|by| (0..size).map(move |from| (by, from))) {
                    let onward = reaches[by].clone();
                    if reaches[from][by] {
                        reaches[from].iter_mut().zip(onward).for_each(|(to, also)| *to |= also);
                    }
                }
                let adjacency = Adjacency::new(size, &graph.edges);
                let found = Components::new(&adjacency, Kinds::of(&[Kind::Ww]));
                for (a, b) in (0..size).flat_map(|a| (0..size).map(move |b| (a, b))) {
                    let together = found.number[a].is_some() && found.number[a] == found.number[b];
                    let mutual = a != b && reaches[a][b] && reaches[b][a];
                    assert_eq!(a != b && together, mutual, "{a} and {b} of {graph:?}");
                    let place = |id| found.order.iter().position(|vertex| vertex.index() == id);
                    let backward = reaches[a][b] && !reaches[b][a];
                    assert!(!backward || place(b) < place(a), "{a} and {b} of {graph:?}");
                }
                assert_eq!(found.order.len(), size);
            }
        }
    }
}
