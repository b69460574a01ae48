//! The members of the log: volumes, not nodes.

use shoal_types::NodeId;
use shoal_types::wire::{Coded, Short};
use std::collections::BTreeSet;
use std::fmt;

/// The library's number of a replica: see [`LogMember`].
pub type Number = u64;

/// What one replica keeps of the log, from when it is made until it is lost. Drawn by chance when it is made; only
/// for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
pub struct Volume(pub u32);

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One volume on its node. A node that lost its volume does not know its votes and what it had accepted; with
/// another volume it is another member, which has promised nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct LogMember {
    /// The node that has the volume.
    pub node: NodeId,
    /// The volume, of those that the node ever had.
    pub volume: Volume,
}

impl fmt::Display for LogMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (volume {})", self.node, self.volume)
    }
}

impl LogMember {
    /// The library's number of the member. Numbers are in the order of the nodes.
    pub(crate) fn number(self) -> Number {
        u64::from(self.node.0) << 32 | u64::from(self.volume.0)
    }

    pub(crate) fn numbered(number: Number) -> LogMember {
        LogMember { node: NodeId((number >> 32) as u32), volume: Volume(number as u32) }
    }
}

/// The members, by the log at one index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct LogMembers {
    /// Increases with every list; 0 if there was no list yet.
    pub version: u64,
    /// The voters, ascending; during a change, both the old and the new ones.
    pub voters: Vec<LogMember>,
    /// The learners, which become voters later, ascending.
    pub learners: Vec<LogMember>,
}

impl LogMembers {
    pub(crate) fn of(stored: &openraft::StoredMembership<Number, ()>) -> LogMembers {
        let all = |numbers: &mut dyn Iterator<Item = Number>| {
            let all: BTreeSet<LogMember> = numbers.map(LogMember::numbered).collect();
            all.into_iter().collect()
        };
        LogMembers {
            version: stored.log_id().map_or(0, |id| id.index + 1),
            voters: all(&mut stored.membership().voter_ids()),
            learners: all(&mut stored.membership().learner_ids()),
        }
    }

    /// The nodes of the voters.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.voters.iter().map(|member| member.node).collect()
    }

    /// Whether this member is a voter or a learner.
    #[must_use]
    pub fn contains(&self, member: LogMember) -> bool {
        self.voters.contains(&member) || self.learners.contains(&member)
    }
}
