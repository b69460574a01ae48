//! Which node coordinates a transaction where granules move to the node that uses them ([`ClientRouting::Owners`]).
//!
//! The name of a granule selects a node, by rendezvous hashing (Thaler and Ravishankar, *Using name-based mappings to increase
//! hit rates*, IEEE/ACM ToN 1998): clients without a table in common send the transactions of one granule to one node, and when a
//! node fails, only its granules go elsewhere. A node answers [`Aborted::Moved`] where another one owns the granule and it has
//! moved often: then its transactions go to that owner, as long as it lives.
//!
//! [`ClientRouting::Owners`]: shoal_engine::client::ClientRouting::Owners
//! [`Aborted::Moved`]: shoal_types::Aborted::Moved

use bytes::Bytes;
use shoal_cluster::topology::key_hash;
use shoal_types::{NodeId, TableId};
use std::collections::{HashMap, VecDeque};

/// The most owners that a client remembers. The one that was learned first is forgotten first.
const OWNERS_MAX: usize = 1 << 16;

/// The name of a granule: the first table of its family, and what its keys begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GranuleName {
    pub(super) family: TableId,
    pub(super) prefix: Bytes,
}

/// The owners that nodes have named.
#[derive(Debug, Default)]
pub(super) struct GranuleRoutes {
    owners: HashMap<GranuleName, NodeId>,
    /// The granules of `owners`, in the order in which they were first named.
    order: VecDeque<GranuleName>,
}

impl GranuleRoutes {
    /// A node has named the owner of a granule.
    pub(super) fn learn(&mut self, granule: GranuleName, owner: NodeId) {
        if self.owners.insert(granule.clone(), owner).is_some() {
            return;
        }
        self.order.push_back(granule);
        if self.order.len() > OWNERS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.owners.remove(&first);
        }
    }

    /// The owner that a node has named last.
    pub(super) fn owner(&self, granule: &GranuleName) -> Option<NodeId> {
        self.owners.get(granule).copied()
    }
}

/// The node that the granule's name selects.
pub(super) fn selected(
    granule: &GranuleName,
    nodes: impl Iterator<Item = NodeId>,
) -> Option<NodeId> {
    let name = key_hash(&granule.prefix).to_be_bytes();
    nodes.max_by_key(|node| {
        let mut ballot = [0; 17];
        ballot[..8].copy_from_slice(&name);
        ballot[8..12].copy_from_slice(&granule.family.0.to_be_bytes());
        ballot[12..16].copy_from_slice(&node.0.to_be_bytes());
        (key_hash(&ballot), *node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granule(number: u64) -> GranuleName {
        GranuleName { family: TableId(3), prefix: Bytes::copy_from_slice(&number.to_be_bytes()) }
    }

    fn nodes(count: u32) -> impl Iterator<Item = NodeId> {
        (0..count).map(NodeId)
    }

    #[test]
    fn granules_are_spread_evenly_and_few_go_elsewhere_when_a_node_is_gone() {
        let mut counts = [0; 5];
        for number in 0..10_000 {
            let node = selected(&granule(number), nodes(5)).expect("one of five");
            counts[node.0 as usize] += 1;
            let fewer = selected(&granule(number), nodes(4)).expect("one of four");
            assert!(fewer == node || node == NodeId(4), "{number} went from {node} to {fewer}");
        }
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
        assert_eq!(selected(&granule(1), nodes(0)), None);
    }

    #[test]
    fn the_owner_that_was_learned_first_is_forgotten_first() {
        let mut routes = GranuleRoutes::default();
        routes.learn(granule(0), NodeId(1));
        routes.learn(granule(0), NodeId(2));
        assert_eq!(routes.owner(&granule(0)), Some(NodeId(2)));
        (1..=OWNERS_MAX as u64).for_each(|number| routes.learn(granule(number), NodeId(0)));
        assert_eq!((routes.owner(&granule(0)), routes.owners.len()), (None, OWNERS_MAX));
    }
}
