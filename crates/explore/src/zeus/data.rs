//! What messages carry and nodes keep: ids, ownership records, and rows.

use std::fmt;

/// The number of a node: its place in lists, and its bit in a [`Set`].
pub(super) type NodeId = u8;
/// A granule, by number. In the model it has one row.
pub(super) type Granule = u8;

/// A set of nodes, or of granules, or of transactions: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Set(pub u8);

impl Set {
    pub(super) fn of(one: u8) -> Set {
        Set(1 << one)
    }

    pub(super) fn has(self, one: u8) -> bool {
        self.0 & (1 << one) != 0
    }

    pub(super) fn with(self, one: u8) -> Set {
        Set(self.0 | 1 << one)
    }

    pub(super) fn without(self, one: u8) -> Set {
        Set(self.0 & !(1 << one))
    }

    pub(super) fn and(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(super) fn common(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    pub(super) fn minus(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |one| self.has(*one))
    }
}

/// The `o_ts` of an ownership record: the greater wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct OwnershipTs {
    pub version: u8,
    pub epoch: u8,
    pub driver: NodeId,
}

impl fmt::Display for OwnershipTs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.version, self.epoch, self.driver)
    }
}

/// What the directory says of a granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Record {
    pub o_ts: OwnershipTs,
    pub owner: Option<NodeId>,
    pub readers: Set,
}

impl Record {
    /// Removes dead nodes from the owner and the readers.
    pub(super) fn strip(&mut self, dead: Set) {
        self.owner = self.owner.filter(|owner| !dead.has(*owner));
        self.readers = self.readers.minus(dead);
    }
}

/// What an ownership request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Own,
    Read,
    Leave,
    Drop(NodeId),
}

/// A sequence of slots of one worker, in one membership of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Pipeline {
    pub node: NodeId,
    /// The epoch since which the node was a member.
    pub since: u8,
    pub worker: u8,
}

/// A version's identity; versions of a row are ordered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Version {
    pub clock: u8,
    pub pipeline: Pipeline,
    pub slot: u8,
}

/// A row. Its value is the list of the transactions that wrote it, in order, so that a read shows which it has seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub version: Version,
    pub writers: Vec<u8>,
    pub is_valid: bool,
    pub is_tombstone: bool,
}
