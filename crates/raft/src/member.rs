//! The members of the log: volumes, not nodes.

use crate::config::Number;
use shoal_types::{NodeId, coded_newtype, coded_struct};
use std::collections::BTreeSet;
use std::fmt;

/// Identifies the storage of one replica, from its creation until it is lost. Drawn at random at its
/// creation; only compared for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Volume(pub u32);

coded_newtype!(Volume(u32));

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A volume on its node. A node that lost its volume has lost its vote and what it had accepted; with another
/// volume it is another member, and promises of the former one do not bind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogMember {
    /// The node that has the volume.
    pub node: NodeId,
    /// The volume, of those that the node ever had.
    pub volume: Volume,
}

coded_struct!(LogMember { node: NodeId, volume: Volume });

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

/// The members of the log, by the list at one index of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogMembers {
    /// Increases with every list; 0 if there was no list yet.
    pub version: u64,
    /// The voters, ascending; during a change, both the old and the new ones.
    pub voters: Vec<LogMember>,
    /// The learners, which become voters later, ascending.
    pub learners: Vec<LogMember>,
}

coded_struct!(LogMembers { version: u64, voters: Vec<LogMember>, learners: Vec<LogMember> });

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
