//! The state machine as bytes: what a compacted log begins with, in place of its first commands.
//!
//! Invariant: a machine and its image, read with the same options, are equal, and so go on alike. The encoding
//! is derived from the fields, so that a new one cannot be forgotten here.
//!
//! Images come from a disk or from another replica. One that breaks an invariant of the machine is malformed,
//! and never a panic.

use super::{ShardState, StateMachine};
use crate::manager::configuration::Move;
use crate::manager::options::ManagerOptions;
use bytes::{Bytes, BytesMut};
use shoal_types::NodeId;
use shoal_types::wire::{Coded, Input, Malformed};
use std::collections::BTreeSet;

/// The version of the format. Others are refused.
const VERSION: u8 = 9;

impl StateMachine {
    /// The machine as bytes, without its options, which are the same on every manager.
    #[must_use]
    pub fn image(&self) -> Bytes {
        assert!(!self.changed, "a change is not published: {self:?}");
        let mut out = BytesMut::new();
        VERSION.put(&mut out);
        self.put(&mut out);
        out.freeze()
    }

    /// Reads the machine of an image.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no image of a machine.
    ///
    /// # Panics
    /// If `options` contradict each other.
    pub fn from_image(image: &Bytes, options: ManagerOptions) -> Result<StateMachine, Malformed> {
        options.check();
        let mut input = Input::new(image);
        let from = &mut input;
        if u8::take(from)? != VERSION {
            return Err(from.wrong("an unknown version of the manager's image"));
        }
        let machine = StateMachine { options, ..StateMachine::take(from)? };
        input.end()?;
        if machine.is_whole() && machine.fault().is_none() {
            Ok(machine)
        } else {
            Err(Input::new(image).wrong("an image that no manager has"))
        }
    }

    /// Whether all nodes, shards and tables that it refers to exist.
    pub(super) fn is_whole(&self) -> bool {
        let (nodes, shards) = (self.topology.nodes().len(), self.topology.shards() as usize);
        let is_node = |node: &NodeId| (node.0 as usize) < nodes;
        let holders = |shard: &ShardState| {
            let assignment = &shard.assignment;
            let listed = assignment.voters.iter().chain(&assignment.learners);
            let others = assignment.empty.keys().chain(&assignment.left);
            let others = others.chain(assignment.voting_since.keys());
            listed.chain([&assignment.leader]).chain(others).copied().collect()
        };
        let named = self.shards.iter().flat_map(|shard| -> BTreeSet<NodeId> { holders(shard) });
        let tables = self.topology.tables();
        let moves = |moving: &Move| tables.get(moving.table).is_some();
        self.nodes.len() == nodes
            && self.shards.len() == shards
            && self.closing.values().all(|ends| ends.len() == shards)
            && self.shards.iter().all(|shard| !shard.assignment.voters.is_empty())
            && named.collect::<Vec<_>>().iter().all(is_node)
            && self.moving.as_ref().is_none_or(moves)
            && self.table_changes.is_whole(tables)
            && self.configuration.revision == self.revision
            && self.configuration.nodes.len() == nodes
            && self.configuration.shards.len() == shards
    }
}
