//! The barrier of an epoch: all live nodes have replayed what they had applied of dead coordinators (rule Z11).
//!
//! Before it, a reader of a granule without an owner may lack what the owner had committed and another reader has applied.

use crate::message::MessageBody;
use crate::scope::Scope;
use shoal_types::{NodeId, Time};
use std::collections::BTreeSet;

/// What a node knows of the barrier of its epoch.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// The nodes that have replayed; this one among them, once it has.
    replayed: BTreeSet<NodeId>,
    /// The nodes that know it of this one.
    heard_by: BTreeSet<NodeId>,
    repeat_at: Time,
}

impl Barrier {
    /// Whether all live nodes have replayed.
    pub(crate) fn is_passed(&self, scope_live: impl Iterator<Item = NodeId>) -> bool {
        let mut live = scope_live.peekable();
        live.peek().is_some() && live.all(|node| self.replayed.contains(&node))
    }

    /// This node has nothing left to replay: it notifies all, until each has answered.
    pub(crate) fn tell(&mut self, scope: &mut Scope<'_>) {
        self.replayed.insert(scope.node);
        self.heard_by.insert(scope.node);
        let missing: Vec<NodeId> =
            scope.view.live().filter(|node| !self.heard_by.contains(node)).collect();
        if missing.is_empty() || self.repeat_at > scope.now {
            return;
        }
        self.repeat_at = scope.now + scope.options.repeat_after;
        scope.send_to_all(missing, &MessageBody::Replayed);
    }

    /// Another node has replayed.
    pub(crate) fn on_replayed(&mut self, scope: &mut Scope<'_>, from: NodeId) {
        self.replayed.insert(from);
        scope.send(from, MessageBody::ReplayedHeard);
    }

    /// Another node knows that this one has replayed.
    pub(crate) fn on_heard(&mut self, from: NodeId) {
        self.heard_by.insert(from);
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self, mut live: impl Iterator<Item = NodeId>) -> Option<Time> {
        live.any(|node| !self.heard_by.contains(&node)).then_some(self.repeat_at)
    }
}
