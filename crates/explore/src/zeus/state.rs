//! What a model of Zeus remembers: nodes, messages under way, the configuration, and how far the transactions are.

use super::data::{Granule, Kind, NodeId, OwnershipTs, Pipeline, Record, Row, Set, Version};
use super::messages::{Envelope, Inv, OwnershipAck, ReplicationInv};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What a node knows and has of a granule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Holding {
    /// The newest ownership record that is validated here.
    pub record: Record,
    /// An INV that is not yet validated.
    pub pending: Option<PendingRecord>,
    /// The newest `o_ts` it has learned of.
    pub hint: OwnershipTs,
    /// The node has asked for this, and was not answered.
    pub requested: Option<Kind>,
    /// Whether it has a copy of the rows, as owner or as reader.
    pub is_replica: bool,
    /// Whether its copy is current, so that it may be read.
    pub serves: bool,
    /// The granule's clock, which deletions do not lower.
    pub clock: u8,
    pub row: Row,
}

/// A record that an INV has brought.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PendingRecord {
    pub inv: Inv,
    /// The INV that came last was answered.
    pub is_answered: bool,
    /// One of the INVs was acknowledged: the owner must not write any more.
    pub is_acknowledged: bool,
}

/// A transaction that is committed locally and not validated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub inv: ReplicationInv,
    pub acknowledged: Set,
    /// The granules that it read or wrote.
    pub touched: Set,
    pub transaction: u8,
}

/// What a coordinator keeps of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Coordinated {
    /// The slot begun last; slots begin with 1.
    pub last: u8,
    pub last_clock: u8,
    /// All up to this one are validated.
    pub validated: u8,
    pub pending: Vec<Slot>,
}

/// What a follower keeps of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Followed {
    pub applied: u8,
    pub validated: u8,
    /// R-INVs that cannot be applied yet.
    pub received: BTreeMap<u8, ReplicationInv>,
    /// R-INVs that were applied and are not validated.
    pub pending: BTreeMap<u8, ReplicationInv>,
}

/// The ACKs for an INV that a requester, or a node that replays, has got.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Collected {
    pub ack: OwnershipAck,
    pub from: Set,
    pub needed: Set,
}

/// Members, and the epoch since which each is one without interruption.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Configuration {
    pub epoch: u8,
    pub live: Set,
    pub since: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub is_alive: bool,
    /// The configuration as far as it has learned.
    pub view: Configuration,
    /// Whether this is a directory node that has no records yet.
    pub is_copying: bool,
    pub holdings: Vec<Holding>,
    pub pipelines: [Coordinated; 2],
    pub followed: BTreeMap<Pipeline, Followed>,
    /// The slots of dead coordinators that it replays, and the nodes that have acknowledged each.
    pub replays: BTreeMap<(Pipeline, u8), Set>,
    /// The node knows that all live nodes have replayed.
    pub barrier: bool,
    pub collected: BTreeMap<(Granule, OwnershipTs), Collected>,
}

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Waiting,
    /// A read-only transaction has read, and checked so many.
    Reading {
        checked: u8,
    },
    /// The owner has committed it, and not all readers have acknowledged.
    Pending,
    Answered,
    /// The node died before it was answered.
    Lost,
}

/// What a read-only transaction saw, for its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub version: Version,
    pub o_ts: OwnershipTs,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TransactionState {
    pub status: Status,
    /// Transactions that were answered before it began.
    pub after: Set,
    /// Each granule it has read, with the writers it has seen.
    pub reads: Vec<(Granule, Vec<u8>)>,
    pub seen: Vec<Seen>,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Budget {
    pub crashes: u8,
    /// Live nodes that are declared dead.
    pub suspicions: u8,
    /// Dead nodes that come back, without memory.
    pub returns: u8,
    pub losses: u8,
    pub duplicates: u8,
    /// Timers that fire while messages are under way.
    pub early_timers: u8,
    /// Requests of transactions for ownership or reader level; a fair run has no such bound.
    pub requests: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Shared between states until one changes.
    pub nodes: Vec<Rc<Node>>,
    /// As a set: equal messages under way are one.
    pub network: BTreeSet<Rc<Envelope>>,
    pub configuration: Configuration,
    pub transactions: Vec<TransactionState>,
    /// The planned requests that were made.
    pub requested: Set,
    pub budget: Budget,
}

impl State {
    pub(super) fn holding(&self, node: NodeId, granule: Granule) -> &Holding {
        &self.nodes[node as usize].holdings[granule as usize]
    }

    pub(super) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        0..self.nodes.len() as u8
    }

    /// The node lives and its lease runs: no later epoch has begun without it.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        let at = usize::from(node);
        self.nodes[at].is_alive
            && self.configuration.live.has(node)
            && self.configuration.since[at] == self.nodes[at].view.since[at]
    }

    /// The nodes that are alive and in the configuration, as the process that it admitted.
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.node_ids().filter(|node| self.is_member(*node))
    }
}

impl Node {
    /// The pipeline of its worker.
    pub(super) fn pipeline(&self, node: NodeId, worker: u8) -> Pipeline {
        Pipeline { node, since: self.view.since[node as usize], worker }
    }

    /// The coordinator of this pipeline is dead, as far as it has learned.
    pub(super) fn is_orphan(&self, pipeline: Pipeline) -> bool {
        !self.view.live.has(pipeline.node)
            || self.view.since[pipeline.node as usize] != pipeline.since
    }
}

impl Holding {
    /// What a node without a record has.
    pub(super) fn empty() -> Holding {
        Holding {
            record: Record::default(),
            pending: None,
            hint: OwnershipTs::default(),
            requested: None,
            is_replica: false,
            serves: false,
            clock: 0,
            row: Row::empty(),
        }
    }

    /// The node is no replica any more.
    pub(super) fn drop_rows(&mut self) {
        (self.is_replica, self.serves) = (false, false);
        (self.clock, self.row) = (0, Row::empty());
    }
}

impl Row {
    pub(super) fn empty() -> Row {
        Row {
            version: Version::default(),
            writers: Vec::new(),
            is_valid: true,
            is_tombstone: false,
        }
    }
}

impl TransactionState {
    pub(super) fn waiting() -> TransactionState {
        TransactionState {
            status: Status::Waiting,
            after: Set::default(),
            reads: Vec::new(),
            seen: Vec::new(),
        }
    }
}
