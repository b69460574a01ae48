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
    /// The live nodes that have not replayed, as far as is known.
    replaying: BTreeSet<NodeId>,
    /// The live nodes that may not know it of this one.
    unaware: BTreeSet<NodeId>,
    /// There is an epoch to have a barrier.
    has_epoch: bool,
    repeat_at: Time,
}

impl Barrier {
    /// The barrier of an epoch in which these nodes are live.
    pub(crate) fn new(live: impl Iterator<Item = NodeId>) -> Barrier {
        let live: BTreeSet<NodeId> = live.collect();
        let (unaware, has_epoch) = (live.clone(), !live.is_empty());
        Barrier { replaying: live, unaware, has_epoch, repeat_at: Time::default() }
    }

    /// The live nodes that have not replayed, and those that may not know it of this one, if there is an epoch.
    pub(crate) fn state(&self) -> Option<(&BTreeSet<NodeId>, &BTreeSet<NodeId>)> {
        self.has_epoch.then_some((&self.replaying, &self.unaware))
    }

    /// The state that a former process of the node had recorded.
    pub(crate) fn restore(&mut self, replaying: BTreeSet<NodeId>, unaware: BTreeSet<NodeId>) {
        (self.replaying, self.unaware) = (replaying, unaware);
        self.has_epoch = true;
    }

    /// Whether all live nodes have replayed.
    pub(crate) fn is_passed(&self) -> bool {
        self.has_epoch && self.replaying.is_empty()
    }

    /// This node has nothing left to replay: it notifies all, until each has answered.
    pub(crate) fn notify(&mut self, scope: &mut Scope<'_>) {
        self.replaying.remove(&scope.node);
        self.unaware.remove(&scope.node);
        if self.unaware.is_empty() || self.repeat_at > scope.now {
            return;
        }
        self.repeat_at = scope.now + scope.options.repeat_after;
        scope.send_to_all(self.unaware.iter().copied(), &MessageBody::Replayed);
    }

    /// Another node has replayed.
    pub(crate) fn on_replayed(&mut self, scope: &mut Scope<'_>, from: NodeId) {
        self.replaying.remove(&from);
        scope.send(from, MessageBody::ReplayedHeard);
    }

    /// Another node knows that this one has replayed.
    pub(crate) fn on_heard(&mut self, from: NodeId) {
        self.unaware.remove(&from);
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        (!self.unaware.is_empty()).then_some(self.repeat_at)
    }
}
