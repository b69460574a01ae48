//! The scenarios: nodes, granules, what transactions do, and what may go wrong.

use super::data::{Granule, Kind, NodeId, Set};
use super::rules::{Rule, Rules};
use super::state::Budget;
use crate::protocol::{ScenarioInfo, ScenarioSize};
use ScenarioSize::{Large, Small, Unbounded};

/// What one model is about. Each transaction runs once, and each request is made at most once.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub nodes: u8,
    /// The nodes that have a copy of the ownership directory.
    pub directory: Set,
    /// Owner and readers of each granule.
    pub granules: Vec<(NodeId, Set)>,
    /// No fewer readers stay after a leave or a drop.
    pub readers_min: u32,
    pub transactions: Vec<Transaction>,
    /// Requests beside those that transactions need.
    pub requests: Vec<(NodeId, Granule, Kind)>,
    /// Requests go to any directory node at first, instead of the first.
    pub any_driver: bool,
    /// Owners may delay their acknowledgement for transactions of their own.
    pub holds: bool,
    pub crashing: Set,
    pub suspected: Set,
    pub budget: Budget,
}

/// A transaction; it is read-only if it writes nothing.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub node: NodeId,
    pub worker: u8,
    pub reads: Set,
    pub writes: Set,
    /// The transaction deletes the rows that it writes.
    pub deletes: bool,
}

impl Transaction {
    pub(super) fn touched(&self) -> Set {
        self.reads.and(self.writes)
    }

    /// What it has to own: everything, if it writes.
    pub(super) fn owned(&self, rules: Rules) -> Set {
        match rules.keeps(Rule::OwnReads) && !self.writes.is_empty() {
            true => self.touched(),
            false => self.writes,
        }
    }
}

fn set(members: &[u8]) -> Set {
    members.iter().fold(Set::default(), |set, member| set.with(*member))
}

fn write(node: NodeId, worker: u8, reads: &[Granule], writes: &[Granule]) -> Transaction {
    Transaction { node, worker, reads: set(reads), writes: set(writes), deletes: false }
}

fn read(node: NodeId, reads: &[Granule]) -> Transaction {
    write(node, 0, reads, &[])
}

fn scenario(
    directory: &[NodeId],
    granules: &[(NodeId, &[NodeId])],
    transactions: Vec<Transaction>,
) -> Scenario {
    Scenario {
        nodes: 3,
        directory: set(directory),
        granules: granules.iter().map(|(owner, readers)| (*owner, set(readers))).collect(),
        readers_min: 1,
        transactions,
        requests: Vec::new(),
        any_driver: false,
        holds: false,
        crashing: Set::default(),
        suspected: Set::default(),
        budget: Budget { requests: 2, ..Budget::default() },
    }
}

impl Scenario {
    fn with(mut self, budget: Budget) -> Scenario {
        self.budget = Budget { requests: self.budget.requests.max(budget.requests), ..budget };
        self
    }

    fn crashing(mut self, nodes: &[NodeId]) -> Scenario {
        (self.crashing, self.budget.crashes) = (set(nodes), 1);
        self
    }

    fn suspected(mut self, nodes: &[NodeId]) -> Scenario {
        (self.suspected, self.budget.suspicions) = (set(nodes), 1);
        self
    }
}

const fn info(name: &'static str, about: &'static str, size: ScenarioSize) -> ScenarioInfo {
    ScenarioInfo { name, about, size }
}

pub(super) static SCENARIOS: &[ScenarioInfo] = &[
    info("commit", "two writes in one pipeline, read at the owner and at a replica", Large),
    info(
        "two-readers",
        "two writers in two pipelines, read by two read-only transactions at two replicas",
        Large,
    ),
    info("partial-pipeline", "three slots in one pipeline, each with other followers", Large),
    info(
        "partial-pipeline-crash",
        "a slot reads what the slot before it wrote, for another follower; the coordinator crashes",
        Small,
    ),
    info("commit-crash", "two pipelines; the coordinator crashes, and two replicas replay", Large),
    info("move-pending", "a granule moves while its last write is pending", Small),
    info("move-read", "a granule moves while a pending slot has read it", Small),
    info("write-skew", "two transactions each read what the other writes", Small),
    info("contention", "two nodes ask two drivers for one granule", Small),
    info("repeated-request", "a request is repeated after its granule has moved on", Small),
    info("repeated-inv", "an owner holds a granule, and is sent the INV twice", Large),
    info("lost-val", "two moves while two messages are lost", Large),
    info("join", "a node that is no replica becomes a reader while a write is pending", Small),
    info("leave", "a reader leaves, and wants to read again", Small),
    info("drop", "the owner drops a reader that reads", Small),
    info(
        "tombstone",
        "a row is written, deleted, and written again after its tombstone is gone",
        Small,
    ),
    info("ownerless", "the owner crashes, and a reader takes the granule", Small),
    info("ownerless-move", "the owner crashes while its granule moves", Large),
    info(
        "move-crash",
        "owner, requester or a reader crashes while a granule moves, and another node wants it",
        Large,
    ),
    info("suspicion", "a reader that lives is declared dead and goes on reading", Small),
    info("suspicion-return", "a node is declared dead, returns, and wants to write", Unbounded),
    info(
        "directory-return",
        "a directory node is declared dead and returns during moves",
        Unbounded,
    ),
    info(
        "random",
        "four nodes, six transactions, two crashes, a false suspicion, returns, losses and repeats",
        Unbounded,
    ),
];

/// The scenario with this name.
///
/// # Panics
/// If it is none of [`SCENARIOS`].
pub(super) fn named(name: &str) -> Scenario {
    let once = Budget { duplicates: 1, ..Budget::default() };
    match name {
        "commit" => scenario(
            &[2],
            &[(0, &[1, 2])],
            vec![write(0, 0, &[], &[0]), write(0, 0, &[], &[0]), read(0, &[0]), read(1, &[0])],
        )
        .with(once),
        "two-readers" => scenario(
            &[0],
            &[(0, &[1, 2]), (0, &[1, 2])],
            vec![
                write(0, 0, &[], &[0]),
                write(0, 1, &[], &[1]),
                read(1, &[0, 1]),
                read(2, &[0, 1]),
            ],
        ),
        "partial-pipeline" => scenario(
            &[0],
            &[(0, &[1]), (0, &[2])],
            vec![
                write(0, 0, &[], &[0]),
                write(0, 0, &[], &[0, 1]),
                write(0, 0, &[], &[1]),
                read(2, &[1]),
            ],
        )
        .with(once),
        "partial-pipeline-crash" => scenario(
            &[1, 2],
            &[(0, &[1]), (0, &[2])],
            vec![write(0, 0, &[], &[0]), write(0, 0, &[0], &[1]), read(2, &[1])],
        )
        .crashing(&[0]),
        "commit-crash" => scenario(
            &[1, 2],
            &[(0, &[1, 2]), (0, &[1, 2])],
            vec![
                write(0, 0, &[], &[0]),
                write(0, 0, &[], &[0, 1]),
                write(0, 1, &[], &[1]),
                read(1, &[0, 1]),
            ],
        )
        .crashing(&[0, 1]),
        _ => moves(name),
    }
}

/// Scenarios in which granules move, and no node dies.
fn moves(name: &str) -> Scenario {
    let once = Budget { duplicates: 1, ..Budget::default() };
    let taken = || vec![write(0, 0, &[], &[0]), write(2, 0, &[], &[0])];
    match name {
        "move-pending" => scenario(&[1, 2], &[(0, &[1])], taken()),
        "move-read" => scenario(
            &[2],
            &[(0, &[1]), (0, &[1])],
            vec![write(0, 0, &[1], &[0]), write(2, 0, &[], &[1]), read(1, &[0, 1])],
        ),
        "write-skew" => scenario(
            &[2],
            &[(0, &[1]), (1, &[0])],
            vec![write(0, 0, &[1], &[0]), write(1, 0, &[0], &[1])],
        )
        .with(Budget { requests: 3, ..Budget::default() }),
        "contention" => Scenario {
            any_driver: true,
            ..scenario(&[1, 2], &[(0, &[1])], vec![write(1, 0, &[], &[0]), write(2, 0, &[], &[0])])
        },
        "repeated-request" => {
            scenario(&[1], &[(0, &[1])], vec![write(1, 0, &[], &[0]), write(2, 0, &[], &[0])])
                .with(once)
        }
        "repeated-inv" => {
            Scenario { holds: true, ..scenario(&[1], &[(0, &[1])], taken()) }.with(once)
        }
        "lost-val" => {
            scenario(&[0, 1], &[(0, &[1])], vec![write(1, 0, &[], &[0]), write(2, 0, &[], &[0])])
                .with(Budget { losses: 2, ..Budget::default() })
        }
        "join" => {
            scenario(&[1], &[(0, &[1])], vec![write(0, 0, &[], &[0]), read(2, &[0])]).with(once)
        }
        "leave" => Scenario {
            requests: vec![(1, 0, Kind::Leave)],
            ..scenario(&[2], &[(0, &[1, 2])], vec![write(0, 0, &[], &[0]), read(1, &[0])])
        }
        .with(once),
        "drop" => Scenario {
            requests: vec![(0, 0, Kind::Drop(1))],
            ..scenario(&[2], &[(0, &[1, 2])], vec![write(0, 0, &[], &[0]), read(1, &[0])])
        },
        "tombstone" => {
            let delete = Transaction { deletes: true, ..write(0, 0, &[], &[0]) };
            let (first, last) = (write(0, 0, &[], &[0]), write(0, 0, &[], &[0]));
            scenario(&[2], &[(0, &[1])], vec![first, delete, last, read(1, &[0])])
        }
        _ => failures(name),
    }
}

/// Scenarios in which nodes die.
fn failures(name: &str) -> Scenario {
    let both = |first, second| vec![write(first, 0, &[], &[0]), write(second, 0, &[], &[0])];
    match name {
        "ownerless" => scenario(&[1, 2], &[(0, &[1, 2])], both(0, 1)).crashing(&[0]),
        "ownerless-move" => scenario(&[1, 2], &[(0, &[1, 2])], both(0, 1))
            .with(Budget { early_timers: 1, ..Budget::default() })
            .crashing(&[0]),
        "move-crash" => {
            let mut transactions = both(1, 2);
            transactions.push(read(0, &[0]));
            scenario(&[0, 1, 2], &[(0, &[1])], transactions).crashing(&[0, 1, 2])
        }
        "suspicion" => scenario(
            &[0, 2],
            &[(0, &[1, 2])],
            vec![write(0, 0, &[], &[0]), read(1, &[0]), read(2, &[0])],
        )
        .suspected(&[1]),
        "suspicion-return" => {
            let mut transactions = both(0, 1);
            transactions.extend([write(2, 0, &[1], &[0]), write(1, 0, &[0], &[1])]);
            transactions.extend([read(0, &[0, 1]), read(2, &[0, 1])]);
            let budget = Budget {
                returns: 1,
                losses: 1,
                duplicates: 2,
                early_timers: 2,
                requests: 8,
                ..Budget::default()
            };
            scenario(&[0, 1, 2], &[(0, &[1, 2]), (1, &[0, 2])], transactions)
                .with(budget)
                .suspected(&[0, 1])
        }
        "directory-return" => {
            let mut transactions = both(0, 1);
            transactions.extend([write(2, 0, &[], &[0]), write(0, 0, &[], &[0])]);
            let budget = Budget {
                returns: 2,
                losses: 2,
                duplicates: 1,
                early_timers: 2,
                ..Budget::default()
            };
            let of = scenario(&[1, 2], &[(0, &[1, 2])], transactions).with(budget);
            Scenario { any_driver: true, ..of.suspected(&[1, 2]) }
        }
        "random" => {
            let transactions = vec![
                write(0, 0, &[], &[0]),
                write(0, 0, &[1], &[0]),
                write(1, 1, &[0], &[1]),
                write(3, 0, &[], &[0, 1]),
                read(2, &[0, 1]),
                write(2, 0, &[0], &[1]),
                read(3, &[0, 1]),
            ];
            let budget = Budget {
                crashes: 2,
                suspicions: 1,
                returns: 2,
                losses: 3,
                duplicates: 3,
                early_timers: 3,
                requests: 8,
            };
            Scenario {
                nodes: 4,
                requests: vec![(1, 0, Kind::Leave), (0, 0, Kind::Drop(2))],
                any_driver: true,
                holds: true,
                crashing: set(&[0, 1, 3]),
                suspected: set(&[0, 1, 2, 3]),
                ..scenario(&[0, 1, 2], &[(0, &[1, 2]), (1, &[2, 3])], transactions)
            }
            .with(budget)
        }
        _ => panic!("there is no scenario {name}"),
    }
}
