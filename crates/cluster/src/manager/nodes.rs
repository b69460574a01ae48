//! Nodes that are added to the cluster, and removed from it.
//!
//! ```text
//!   added ──► known to all nodes that live ──► its process joins ──► takes replicas (`replacement.rs`)
//!   drained ──► its process ends ──► dead ──► removed
//! ```
//! A node that is added is dead until its process joins. A node that is removed holds no replica and has no lease: it does not
//! lead and does not vote. None of its processes joins again.
//!
//! Invariants: numbers of nodes are given in ascending order, and each once; a removed node holds no replica and is dead.

use super::ids::Revision;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, NodeState, StateMachine};
use shoal_types::{NodeId, ShardId};
use std::sync::Arc;

impl StateMachine {
    pub(super) fn on_add_node(
        &mut self,
        name: &str,
        datacenter: &str,
        address: Option<&str>,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        if self.added_node(name, datacenter, address).is_some() {
            return Ok(());
        }
        let topology = (*self.topology).clone();
        self.topology = Arc::new(topology.with_added_node(name, datacenter, address)?);
        let node = NodeId(self.nodes.len() as u32);
        self.nodes.push(NodeState::to_join(self.epoch));
        self.note_changed_nodes();
        effects.push(Applied::NodeAdded { node });
        Ok(())
    }

    pub(super) fn on_remove_node(
        &mut self,
        node: NodeId,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        if self.is_removed(node) {
            return Ok(());
        }
        self.check_removal(node)?;
        self.topology = Arc::new((*self.topology).clone().without_node(node));
        for shard in &mut self.shards {
            shard.assignment.left.remove(&node);
        }
        self.note_changed_nodes();
        effects.push(Applied::NodeRemoved { node });
        Ok(())
    }

    /// Checks whether a node may be removed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_removal(&self, node: NodeId) -> Result<(), ChangeRefusal> {
        let Some(state) = self.nodes.get(node.0 as usize) else {
            return Err(ChangeRefusal::NoNode(node));
        };
        let mut shards = (0..).map(ShardId).zip(&self.shards);
        if let Some((shard, _)) = shards.find(|(_, shard)| shard.assignment.holds(node)) {
            return Err(ChangeRefusal::NodeHolds { node, shard });
        }
        if state.alive {
            return Err(ChangeRefusal::NodeLives(node));
        }
        Ok(())
    }

    /// Checks whether a node may be added.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_addition(
        &self,
        name: &str,
        datacenter: &str,
        address: Option<&str>,
    ) -> Result<(), ChangeRefusal> {
        (*self.topology).clone().with_added_node(name, datacenter, address)?;
        Ok(())
    }

    /// The node with this name, in this datacenter and at this address, if there is one.
    #[must_use]
    pub fn added_node(
        &self,
        name: &str,
        datacenter: &str,
        address: Option<&str>,
    ) -> Option<NodeId> {
        let datacenter = self.topology.datacenter(datacenter)?;
        let mut members = self.topology.members();
        let same = members.find(|node| {
            (&*node.name, node.datacenter, node.address.as_deref()) == (name, datacenter, address)
        });
        same.map(|node| node.id)
    }

    /// Whether the node was removed.
    #[must_use]
    pub fn is_removed(&self, node: NodeId) -> bool {
        self.topology.node(node).is_some_and(|node| node.removed)
    }

    /// Whether all nodes that live have learned which nodes were added and removed last.
    #[must_use]
    pub fn are_nodes_known(&self) -> bool {
        self.is_known_by_living(self.nodes_changed)
    }

    fn note_changed_nodes(&mut self) {
        self.changed = true;
        self.nodes_changed = self.next_revision();
    }

    pub(super) fn is_known_by_living(&self, revision: Revision) -> bool {
        self.nodes.iter().filter(|node| node.alive).all(|node| node.known >= revision)
    }
}
