//! The search for an order that explains a history.
//!
//! Transactions are placed one after the other, each once all that the dependency graph puts before
//! it are placed. Lists then read right by themselves, since the graph has the whole order of their
//! versions. Of registers it has a part, and so the search keeps what each holds: a transaction may
//! overwrite a version only once all others that read it are placed.
//!
//! - A transaction that writes no register is placed as soon as it may be: it stands in the way of
//!   none.
//! - Of the others the one that must be over first is placed: the one with the earliest end among
//!   its own and those of all that must follow it.
//! - Where none may be placed, the last choice is taken back and the next made (Wing and Gong,
//!   *Testing and verifying concurrent objects*, JPDC 1993). What led nowhere is remembered: the same
//!   transactions placed and the same versions held lead nowhere again (Lowe, *Testing for
//!   linearizability*, 2017). It is remembered by a hash of 128 bits.
//!
//! **Parts.** Where the pairs of versions are known whose order is open, the search is split. Add to
//! the graph, for each such pair, the edges of both its orders: the strongly connected components
//! of that are parts which do not depend on each other. For what leads from one to another is in the
//! graph, and leads one way; so any orders of the parts, one part after the other, make an order
//! of all, and a part that has none leaves none. A choice is not taken back once its part is placed.
//!
//! The search is complete: if it ends, there is an order or there is none. It ends early at a bound
//! of steps, and then nothing is known.

use super::case::Case;
use super::components::Components;
use super::deadlines::deadlines;
use super::graph::{Adjacency, Edge, Kind, Kinds, Vertex};
use super::indexed::TransactionId;
use super::pruning::Pair;
use super::registers::Version;
use shoal_types::Random;
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

/// The result of the search.
#[derive(Debug)]
pub(super) enum Search {
    /// An order of all committed transactions.
    Order(Vec<TransactionId>),
    /// There is none, since there is none of these.
    None(Vec<TransactionId>),
    /// The bound of steps was reached.
    GaveUp,
}

/// What a transaction does to a register; versions have numbers of their own in all of the history.
#[derive(Debug, Clone, Copy)]
struct Touch {
    transaction: u32,
    key: u32,
    found: Option<u32>,
    wrote: Option<u32>,
}

/// A transaction that could be placed: by the number of its part, those that write no register
/// first, then the earliest deadline.
type Candidate = (u32, bool, u64, u32);

/// A choice that can be taken back.
#[derive(Debug)]
struct Choice {
    /// The number of transactions placed before it.
    placed: usize,
    chosen: Candidate,
    state: u128,
}

/// Looks for an order of the committed transactions, given the graph so far, which has no cycle, and
/// the pairs of versions whose order is open, if they are known. Stops when it has looked at
/// `steps_max` edges and candidates more than the search without a step back would.
pub(super) fn search(
    case: &mut Case<'_>,
    versions: &[Vec<Version>],
    open: Option<&[Pair]>,
    steps_max: usize,
) -> Search {
    let adjacency = Adjacency::new(case.graph.vertices(), &case.graph.edges);
    let parts = match open {
        Some(open) => Parts::split(case, versions, open),
        None => Parts::whole(case),
    };
    let straight = 2 * adjacency.edges.len() + case.history.attempts().len();
    let mut placing = Placing::new(case, &adjacency, versions, parts.of);
    let limit = straight + steps_max;
    for part in parts.members {
        let found = place_part(&mut placing, &part, limit);
        if !matches!(found, Search::Order(_)) {
            case.steps += placing.steps;
            return found;
        }
    }
    case.steps += placing.steps;
    Search::Order(placing.placed)
}

/// Places the transactions of a part after those that are placed.
fn place_part(placing: &mut Placing<'_>, part: &[TransactionId], limit: usize) -> Search {
    let mut dead: HashSet<u128> = HashSet::new();
    let mut choices: Vec<Choice> = Vec::new();
    let all = placing.placed.len() + part.len();
    // Where to go on: at the first candidate, or after one that led nowhere.
    let mut after = None;
    while placing.placed.len() < all {
        if placing.steps > limit {
            return Search::GaveUp;
        }
        let state = placing.state;
        let known_dead = after.is_none() && dead.contains(&state);
        let candidate = if known_dead { None } else { placing.candidate(part[0], after) };
        let Some(chosen @ (_, chooses, _, id)) = candidate else {
            dead.extend(after.is_some().then_some(state));
            let Some(choice) = choices.pop() else { return Search::None(part.to_vec()) };
            placing.take_back(choice.placed);
            assert_eq!(placing.state, choice.state, "a choice taken back leaves no trace");
            after = Some(choice.chosen);
            continue;
        };
        if chooses {
            choices.push(Choice { placed: placing.placed.len(), chosen, state });
        }
        after = None;
        placing.place(TransactionId(id));
    }
    Search::Order(Vec::new())
}

/// The committed transactions, split into independent parts.
#[derive(Debug)]
struct Parts {
    /// The number of the part of each attempt.
    of: Vec<u32>,
    /// The transactions of each part.
    members: Vec<Vec<TransactionId>>,
}

impl Parts {
    /// All transactions in one part.
    fn whole(case: &Case<'_>) -> Parts {
        let members = case.committed_ids();
        let members = if members.is_empty() { Vec::new() } else { vec![members] };
        Parts { of: vec![0; case.history.attempts().len()], members }
    }

    /// The components of the graph with both orders of all open pairs.
    fn split(case: &mut Case<'_>, versions: &[Vec<Version>], open: &[Pair]) -> Parts {
        let mut edges: Vec<Edge> = case.graph.edges.clone();
        for pair in open {
            let [a, b] = pair.places.map(|place| &versions[pair.key.0 as usize][place as usize]);
            for (first, second) in [(a, b), (b, a)] {
                let Some(next) = second.writer.map(Vertex::from) else { continue };
                let holders = first.holders().map(Vertex::from).filter(|holder| *holder != next);
                edges.extend(holders.map(|from| Edge {
                    from,
                    to: next,
                    kind: Kind::Ww,
                    note: None,
                }));
            }
        }
        case.steps += edges.len();
        let components =
            Components::new(&Adjacency::new(case.graph.vertices(), &edges), Kinds::ALL);
        let mut parts = Parts { of: vec![0; case.history.attempts().len()], members: Vec::new() };
        let mut last = None;
        for &vertex in components.order.iter().rev() {
            let committed = |id: &TransactionId| case.committed(*id);
            let Some(id) = case.graph.transaction(vertex).filter(committed) else { continue };
            let component = components.number[vertex.index()];
            if component.is_none() || component != last {
                parts.members.push(Vec::new());
            }
            last = component;
            parts.of[vertex.index()] = parts.members.len() as u32 - 1;
            if let Some(part) = parts.members.last_mut() {
                part.push(id);
            }
        }
        parts
    }
}

/// The transactions placed so far, and what follows from that.
struct Placing<'a> {
    adjacency: &'a Adjacency,
    attempts: usize,
    /// The touches by transaction; `offsets` has the index of each one's first.
    touches: Vec<Touch>,
    offsets: Vec<u32>,
    /// For each vertex, the number of edges from vertices that are not placed.
    waiting: Vec<u32>,
    /// The number of each attempt's part.
    parts: Vec<u32>,
    deadlines: Vec<u64>,
    /// The vertices without such edges.
    ready: BTreeSet<Candidate>,
    /// The version that each register holds.
    held: Vec<u32>,
    /// For each version, the number of its readers that are not placed.
    readers: Vec<u32>,
    placed: Vec<TransactionId>,
    /// The versions that the placed transactions replaced, to be taken back.
    replaced: Vec<u32>,
    /// A hash of the set of placed transactions and of the versions held.
    state: u128,
    steps: usize,
}

impl<'a> Placing<'a> {
    fn new(
        case: &Case<'_>,
        adjacency: &'a Adjacency,
        versions: &[Vec<Version>],
        parts: Vec<u32>,
    ) -> Placing<'a> {
        let attempts = case.history.attempts().len();
        let (mut touches, held, readers) = touches(versions);
        touches.sort_unstable_by_key(|touch| (touch.transaction, touch.key));
        touches.dedup_by(|next, touch| {
            let same = (next.transaction, next.key) == (touch.transaction, touch.key);
            if same {
                touch.found = touch.found.or(next.found);
                touch.wrote = touch.wrote.or(next.wrote);
            }
            same
        });
        let mut offsets = vec![0_u32; attempts + 1];
        for touch in &touches {
            offsets[touch.transaction as usize + 1] += 1;
        }
        for id in 0..attempts {
            offsets[id + 1] += offsets[id];
        }
        let mut placing = Placing {
            adjacency,
            attempts,
            touches,
            offsets,
            waiting: adjacency.in_degrees(),
            parts,
            deadlines: deadlines(case, adjacency).expect("cycles have been looked for"),
            ready: BTreeSet::new(),
            held,
            readers,
            placed: Vec::new(),
            replaced: Vec::new(),
            state: 0,
            steps: adjacency.edges.len(),
        };
        let first: Vec<Vertex> = (0..adjacency.vertices() as u32)
            .map(Vertex)
            .filter(|vertex| placing.waiting[vertex.index()] == 0)
            .collect();
        for vertex in first {
            if vertex.index() >= attempts {
                placing.release(vertex);
            } else if case.committed(TransactionId(vertex.0)) {
                placing.ready.insert(placing.as_candidate(vertex));
            }
        }
        placing
    }

    fn touches_of(&self, transaction: u32) -> &[Touch] {
        let [from, to] = [0, 1].map(|next| self.offsets[transaction as usize + next] as usize);
        &self.touches[from..to]
    }

    fn as_candidate(&self, vertex: Vertex) -> Candidate {
        let writes = self.touches_of(vertex.0).iter().any(|touch| touch.wrote.is_some());
        let part = self.parts[vertex.index()];
        (part, writes, self.deadlines[vertex.index()], vertex.0)
    }

    /// The first transaction of a part, after `after`, that may be placed. The part is given by one
    /// of its members.
    fn candidate(&mut self, member: TransactionId, after: Option<Candidate>) -> Option<Candidate> {
        let part = self.parts[member.0 as usize];
        let after = after.map_or(Bound::Included((part, false, 0, 0)), Bound::Excluded);
        let end = Bound::Excluded((part + 1, false, 0, 0));
        let mut looked_at = 0;
        let found = self.ready.range((after, end)).find(|(_, _, _, transaction)| {
            looked_at += 1;
            self.may_be_placed(*transaction)
        });
        let found = found.copied();
        self.steps += looked_at;
        found
    }

    fn may_be_placed(&self, transaction: u32) -> bool {
        self.touches_of(transaction).iter().all(|touch| {
            let held = self.held[touch.key as usize];
            let own = u32::from(touch.found == Some(held));
            touch.found.is_none_or(|found| found == held)
                && (touch.wrote.is_none() || self.readers[held as usize] == own)
        })
    }

    fn place(&mut self, id: TransactionId) {
        let candidate = self.as_candidate(id.into());
        self.ready.remove(&candidate);
        for place in self.offsets[id.0 as usize]..self.offsets[id.0 as usize + 1] {
            let touch = self.touches[place as usize];
            if let Some(found) = touch.found {
                self.readers[found as usize] -= 1;
            }
            if let Some(wrote) = touch.wrote {
                let held = std::mem::replace(&mut self.held[touch.key as usize], wrote);
                self.replaced.push(held);
                self.state ^= hash_of_version(held) ^ hash_of_version(wrote);
            }
        }
        self.state ^= hash_of_transaction(id);
        self.placed.push(id);
        self.release(id.into());
    }

    /// Removes all but the first `placed` transactions from the order.
    fn take_back(&mut self, placed: usize) {
        while self.placed.len() > placed {
            let Some(id) = self.placed.pop() else { return };
            self.hold_back(id.into());
            self.state ^= hash_of_transaction(id);
            for place in (self.offsets[id.0 as usize]..self.offsets[id.0 as usize + 1]).rev() {
                let touch = self.touches[place as usize];
                if let Some(found) = touch.found {
                    self.readers[found as usize] += 1;
                }
                if let Some(wrote) = touch.wrote {
                    let held = self.replaced.pop().expect("each write replaced a version");
                    self.held[touch.key as usize] = held;
                    self.state ^= hash_of_version(held) ^ hash_of_version(wrote);
                }
            }
            let candidate = self.as_candidate(id.into());
            self.ready.insert(candidate);
        }
    }

    /// Removes the edges out of a vertex from the counts of their targets.
    fn release(&mut self, vertex: Vertex) {
        let mut stack = vec![vertex];
        while let Some(vertex) = stack.pop() {
            for edge in self.adjacency.of(vertex) {
                self.steps += 1;
                let to = edge.to.index();
                self.waiting[to] -= 1;
                if self.waiting[to] > 0 {
                    continue;
                }
                if to >= self.attempts {
                    stack.push(edge.to);
                } else {
                    let candidate = self.as_candidate(edge.to);
                    self.ready.insert(candidate);
                }
            }
        }
    }

    /// Adds the edges out of a vertex to the counts of their targets.
    fn hold_back(&mut self, vertex: Vertex) {
        let mut stack = vec![vertex];
        while let Some(vertex) = stack.pop() {
            for edge in self.adjacency.of(vertex) {
                self.steps += 1;
                let to = edge.to.index();
                if self.waiting[to] == 0 {
                    if to >= self.attempts {
                        stack.push(edge.to);
                    } else {
                        let candidate = self.as_candidate(edge.to);
                        self.ready.remove(&candidate);
                    }
                }
                self.waiting[to] += 1;
            }
        }
    }
}

/// What all transactions do to registers, a touch a version; the version that each register holds
/// at first, and the number of readers of each version.
fn touches(versions: &[Vec<Version>]) -> (Vec<Touch>, Vec<u32>, Vec<u32>) {
    let (mut touches, mut held, mut readers) = (Vec::new(), Vec::new(), Vec::new());
    for (key, versions) in versions.iter().enumerate() {
        held.push(readers.len() as u32);
        for version in versions {
            let number = readers.len() as u32;
            let touch = |id: TransactionId| Touch {
                transaction: id.0,
                key: key as u32,
                found: None,
                wrote: None,
            };
            touches.extend(version.writer.map(|id| Touch { wrote: Some(number), ..touch(id) }));
            let found = version.readers.iter().chain(&version.updaters);
            touches.extend(found.map(|id| Touch { found: Some(number), ..touch(*id) }));
            readers.push((version.readers.len() + version.updaters.len()) as u32);
        }
    }
    (touches, held, readers)
}

fn hash_of_transaction(id: TransactionId) -> u128 {
    hash(u64::from(id.0))
}

fn hash_of_version(version: u32) -> u128 {
    hash(u64::from(version) | 1 << 32)
}

fn hash(number: u64) -> u128 {
    let mut random = Random::new(number);
    u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
}
