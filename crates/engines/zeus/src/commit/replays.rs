//! Slots of dead coordinators: each follower that has applied one replays it, so that all live followers have it or none.
//!
//! What a follower has received and not applied dies with the epoch: no live node may have applied what comes before it,
//! and then it never happened (rule Z12). What is applied is replayed in order, without the dead, and validated once all live
//! followers have acknowledged.

use super::followed::FollowedPipelines;
use crate::message::MessageBody;
use crate::ownership::Ownership;
use crate::planted_bugs::ZeusPlantedBug;
use crate::scope::Scope;
use crate::version::{PipelineId, Slot};
use shoal_types::NodeId;
use std::collections::BTreeSet;

impl FollowedPipelines {
    /// How many slots of dead coordinators are replayed and not validated.
    #[must_use]
    pub fn replays(&self) -> usize {
        self.replays.slots.len()
    }

    /// In a new epoch: what was not applied dies, the dead follow nothing, and what was applied of dead coordinators is to be
    /// replayed.
    pub(crate) fn enter_epoch(&mut self, scope: &Scope<'_>, is_dead: impl Fn(NodeId) -> bool) {
        self.replays.slots.clear();
        self.replays.repeat_at = scope.now;
        for (pipeline, followed) in &mut self.followed {
            let is_orphan = !scope.view.is_member(pipeline.coordinator);
            if is_orphan && scope.has(ZeusPlantedBug::ReplayUnapplied) {
                followed.pending.append(&mut followed.received);
            }
            if !scope.has(ZeusPlantedBug::KeepReceived) {
                followed.received.clear();
            }
            for (slot, held) in &mut followed.pending {
                assert!(*slot <= followed.applied, "Z12: {slot} was not applied");
                held.inv.followers.retain(|follower| !is_dead(*follower));
                held.remind_at = scope.now;
                if is_orphan && !scope.has(ZeusPlantedBug::ReplayNothing) {
                    self.replays.slots.insert((*pipeline, *slot), BTreeSet::new());
                } else {
                    held.from = pipeline.coordinator.node;
                }
            }
        }
        self.note_all_open();
    }

    /// Sends again what is replayed, to the followers that have not acknowledged it.
    pub(crate) fn repeat_replays(&mut self, scope: &mut Scope<'_>) {
        if self.replays.slots.is_empty() || self.replays.repeat_at > scope.now {
            return;
        }
        self.replays.repeat_at = scope.now + scope.options.repeat_after;
        for ((pipeline, slot), acknowledged) in &self.replays.slots {
            let followed = &self.followed[pipeline];
            let mut inv = followed.pending[slot].inv.clone();
            inv.previous_validated = followed.validated.next() == *slot;
            let missing =
                inv.followers.difference(acknowledged).filter(|node| **node != scope.node);
            let missing: Vec<NodeId> = missing.copied().collect();
            scope.send_to_all(missing, &MessageBody::ReplicationInv(inv));
        }
    }

    /// A follower has applied a slot that this node replays, or reminds of one that is validated here.
    pub(crate) fn on_ack(
        &mut self,
        scope: &mut Scope<'_>,
        from: NodeId,
        pipeline: PipelineId,
        slot: Slot,
    ) {
        if let Some(acknowledged) = self.replays.slots.get_mut(&(pipeline, slot)) {
            acknowledged.insert(from);
            return;
        }
        let validated = self.followed.get(&pipeline).map(|followed| followed.validated);
        if let Some(slot) = validated.filter(|validated| *validated >= slot) {
            scope.send(from, MessageBody::ReplicationVal { pipeline, slot });
        }
    }

    /// Validates replayed slots that all live followers have acknowledged, in order; returns how many.
    pub(crate) fn validate_replays(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
    ) -> u64 {
        let mut validated = 0;
        while let Some((pipeline, slot, told)) = self.first_acknowledged(scope) {
            self.on_val(scope, ownership, pipeline, slot);
            scope.send_to_all(told, &MessageBody::ReplicationVal { pipeline, slot });
            validated += 1;
        }
        validated
    }

    /// The oldest replayed slot of a pipeline that all its followers have acknowledged, and the nodes that have to know.
    fn first_acknowledged(
        &self,
        scope: &Scope<'_>,
    ) -> Option<(PipelineId, Slot, BTreeSet<NodeId>)> {
        let (node, mut last) = (scope.node, None);
        for ((pipeline, slot), acknowledged) in &self.replays.slots {
            let is_first = last != Some(*pipeline);
            last = Some(*pipeline);
            let pending = &self.followed[pipeline].pending;
            let is_durable = scope.redo.is_durable(pending[slot].recorded);
            let mut followers = pending[slot].inv.followers.iter();
            if is_first
                && is_durable
                && followers.all(|other| *other == node || acknowledged.contains(other))
            {
                let told = pending.values().flat_map(|held| held.inv.followers.iter().copied());
                return Some((*pipeline, *slot, told.filter(|other| *other != node).collect()));
            }
        }
        None
    }
}
