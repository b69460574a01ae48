//! What a node knows of the configuration: the epoch, its members, and the directory nodes of each shard.
//!
//! Every death and every return begins an epoch. A member is named by its node *and* the epoch since which it has been in
//! without interruption: a node that was out, for however short a time, is another member afterwards, and records, followers
//! and pipelines of the earlier one count as dead. That also holds for a node that skips epochs, which never learns that the
//! other was out.

use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId, ShardId};
use std::collections::BTreeMap;
use std::fmt;

/// A node, and the epoch since which it has been a member without interruption. Displays as both, `n1 since e3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct Member {
    /// The node that is, or was, in.
    #[coded(short)]
    pub node: NodeId,
    /// The epoch that let it in.
    #[coded(short)]
    pub since: Epoch,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {}", self.node, self.since)
    }
}

/// The nodes that keep the ownership records of a shard's granules, dead ones too.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Directory {
    /// The node to which requests go first, so that one driver orders the contenders.
    pub leader: NodeId,
    /// All of them, the shard's voters; the leader is one.
    pub nodes: Vec<NodeId>,
    /// Those of them that were added later, each with the first epoch in which it is one.
    pub added: BTreeMap<NodeId, Epoch>,
    /// If no live node has the directory, no granule was created yet: none of the nodes that ever kept it has been out, or one
    /// that lives has been in it since the first epoch. Nothing is created without the acknowledgement of that one.
    pub is_first: bool,
}

/// The configuration of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct View {
    /// The number of the configuration; a later one is greater.
    pub epoch: Epoch,
    /// The live nodes, and since when each has been in.
    pub members: BTreeMap<NodeId, Epoch>,
    /// The directory nodes of each shard, by its number.
    pub directories: Vec<Directory>,
}

impl View {
    /// Before a node has learned of any epoch: it has no members.
    #[must_use]
    pub fn unknown() -> View {
        View { epoch: Epoch(0), members: BTreeMap::new(), directories: Vec::new() }
    }

    /// Whether the node is in.
    #[must_use]
    pub fn is_live(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// Whether the node is in, and has been since that epoch.
    #[must_use]
    pub fn is_member(&self, member: Member) -> bool {
        self.members.get(&member.node) == Some(&member.since)
    }

    /// The node as the member that it is now; `None` if it is out.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.members.get(&node).map(|since| Member { node, since: *since })
    }

    /// The nodes that are in, ascending.
    pub fn live(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.keys().copied()
    }

    /// The live directory nodes of a shard, its leader first.
    ///
    /// # Panics
    /// If the view has no such shard.
    pub fn directory(&self, shard: ShardId) -> impl Iterator<Item = NodeId> + '_ {
        let Directory { leader, nodes, .. } = &self.directories[shard.0 as usize];
        let others = nodes.iter().filter(move |node| *node != leader);
        let all = std::iter::once(leader).chain(others).copied();
        all.filter(|node| self.is_live(*node))
    }

    /// Whether the node keeps the records of the shard.
    ///
    /// # Panics
    /// If the view has no such shard.
    #[must_use]
    pub fn is_directory_node(&self, shard: ShardId, node: NodeId) -> bool {
        self.directories[shard.0 as usize].nodes.contains(&node)
    }

    /// Whether the node keeps the records of the shard, and has since that epoch or an earlier one.
    ///
    /// # Panics
    /// If the view has no such shard.
    #[must_use]
    pub fn is_directory_node_since(&self, shard: ShardId, node: NodeId, epoch: Epoch) -> bool {
        let added = self.directories[shard.0 as usize].added.get(&node);
        self.is_directory_node(shard, node) && added.is_none_or(|since| *since <= epoch)
    }

    /// Whether what an earlier view says of the node is void: it is out, or was out between `earlier` and this view.
    #[must_use]
    pub fn has_lost(&self, node: NodeId, earlier: &View) -> bool {
        let since = self.members.get(&node);
        since.is_none() || since != earlier.members.get(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(epoch: u32, members: &[(u32, u32)]) -> View {
        let members = members.iter().map(|(node, since)| (NodeId(*node), Epoch(*since))).collect();
        let nodes = [0, 1, 2].map(NodeId).to_vec();
        View {
            epoch: Epoch(epoch),
            members,
            directories: vec![Directory {
                leader: NodeId(1),
                nodes,
                added: BTreeMap::from([(NodeId(2), Epoch(3))]),
                is_first: true,
            }],
        }
    }

    #[test]
    fn a_node_may_be_added_to_a_directory() {
        let view = view(4, &[]);
        let is_one =
            |node, epoch| view.is_directory_node_since(ShardId(0), NodeId(node), Epoch(epoch));
        assert!(is_one(0, 0) && is_one(2, 3));
        assert!(!is_one(2, 2) && !is_one(3, 4));
    }

    #[test]
    fn a_node_that_was_out_is_another_member() {
        let (before, after) = (view(1, &[(0, 1), (1, 1)]), view(3, &[(0, 1), (1, 3), (2, 2)]));
        let [stayed, returned, new] = [0, 1, 2].map(|node| after.has_lost(NodeId(node), &before));
        assert_eq!((stayed, returned, new), (false, true, true));
        let member = before.member(NodeId(1)).expect("it is in");
        assert!(before.is_member(member) && !after.is_member(member));
        assert_eq!(member.to_string(), "n1 since e1");
        assert_eq!(before.member(NodeId(2)), None);
    }

    #[test]
    fn the_leader_of_a_directory_comes_first_while_it_lives() {
        let of = |members| view(1, members).directory(ShardId(0)).collect::<Vec<_>>();
        assert_eq!(of(&[(0, 1), (1, 1), (2, 1)]), [1, 0, 2].map(NodeId));
        assert_eq!(of(&[(0, 1), (2, 1), (7, 1)]), [0, 2].map(NodeId));
        assert!(view(1, &[]).is_directory_node(ShardId(0), NodeId(2)));
    }
}
