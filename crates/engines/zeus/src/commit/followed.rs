//! A follower of pipelines: it applies slots in order, and acknowledges what it has applied.

use super::replayed_slots::Replays;
use crate::message::{MessageBody, ReplicationInv};
use crate::ownership::Ownership;
use crate::planted_bugs::ZeusPlantedBug;
use crate::scope::Scope;
use crate::version::{PipelineId, Slot};
use shoal_types::{Backoff, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a follower keeps of a pipeline.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// The last slot that it has applied.
    pub applied: Slot,
    /// All slots up to this one are known to be validated.
    pub validated: Slot,
    /// Slots that cannot be applied yet, since an earlier one is missing.
    pub received: BTreeMap<Slot, Held>,
    /// Slots that were applied and are not validated.
    pub pending: BTreeMap<Slot, Held>,
}

/// A slot that a follower holds.
#[derive(Debug, Clone)]
pub struct Held {
    /// What was sent.
    pub inv: ReplicationInv,
    /// The coordinator, or the node that replays for it.
    pub from: NodeId,
    /// When the sender is reminded that it is not validated here.
    pub remind_at: Time,
    /// The waits until then.
    pub reminders: Backoff,
    /// The redo record that has it, once it is applied.
    pub recorded: u64,
}

/// All pipelines that a node follows, and those that it replays. Pipelines of the dead stay, as a few numbers each: another
/// node may send their slots again in any later epoch, and what was deleted since must not come back.
#[derive(Debug, Default)]
pub struct FollowedPipelines {
    pub(super) followed: BTreeMap<PipelineId, Followed>,
    /// Those that have pending slots.
    open: BTreeSet<PipelineId>,
    pub(super) replays: Replays,
}

impl FollowedPipelines {
    /// What the node has of a pipeline; `None` if nothing.
    #[must_use]
    pub fn get(&self, pipeline: &PipelineId) -> Option<&Followed> {
        self.followed.get(pipeline)
    }

    /// All pipelines of which the node has something.
    pub fn iter(&self) -> impl Iterator<Item = (&PipelineId, &Followed)> {
        self.followed.iter()
    }

    /// A slot has come. It is acknowledged once it is applied, again if it was applied before.
    pub(crate) fn on_inv(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
        from: NodeId,
        inv: ReplicationInv,
    ) {
        let (pipeline, slot) = (inv.pipeline, inv.slot);
        let followed = self.followed.entry(pipeline).or_default();
        if inv.previous_validated {
            // Another node may have replayed what this one replays, and have it validated.
            followed.learn(scope, pipeline, Slot(slot.0 - 1));
            self.replays.forget(pipeline, Slot(slot.0 - 1));
        }
        if followed.applied < slot {
            let mut reminders = scope.options.repeats();
            let remind_at = scope.now + reminders.advance();
            let held = Held { inv, from, remind_at, reminders, recorded: 0 };
            followed.received.insert(slot, held);
        } else if let Some(held) = followed.pending.get_mut(&slot) {
            (held.inv.followers, held.from) = (inv.followers, from);
        }
        let acknowledged = followed.apply(scope, ownership);
        note_open(&mut self.open, pipeline, followed);
        let is_applied = followed.applied >= slot || scope.has(ZeusPlantedBug::AckUnapplied);
        let known = is_applied && !acknowledged.iter().any(|(_, other)| *other == slot);
        let known = known.then_some((from, slot));
        for (to, slot) in acknowledged.into_iter().chain(known) {
            scope.send(to, MessageBody::ReplicationAck { pipeline, slot });
        }
    }

    /// All slots up to one are validated: rows whose newest version they wrote are valid (rule Z15), and later slots may be
    /// applied.
    pub(crate) fn on_val(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
        pipeline: PipelineId,
        slot: Slot,
    ) {
        let followed = self.followed.entry(pipeline).or_default();
        followed.learn(scope, pipeline, slot);
        followed.validate_applied(scope);
        self.replays.forget(pipeline, slot);
        for (to, slot) in followed.apply(scope, ownership) {
            scope.send(to, MessageBody::ReplicationAck { pipeline, slot });
        }
        note_open(&mut self.open, pipeline, followed);
    }

    /// Looks anew which pipelines have pending slots.
    pub(super) fn note_all_open(&mut self) {
        let open = self.followed.iter().filter(|(_, followed)| !followed.pending.is_empty());
        self.open = open.map(|(pipeline, _)| *pipeline).collect();
    }

    /// Reminds senders of what is still pending here, ever later: the `ReplicationVal` was lost, or the slot waits for another
    /// follower. Of a pipeline the last slot is named, since what validates it validates those before it.
    pub(crate) fn remind(&mut self, scope: &mut Scope<'_>) {
        for pipeline in &self.open {
            let followed = self.followed.get_mut(pipeline).expect("it has pending slots");
            let Some((slot, held)) = followed.pending.iter_mut().next_back() else { continue };
            if held.remind_at > scope.now || self.replays.has(*pipeline, *slot) {
                continue;
            }
            let (to, body) =
                (held.from, MessageBody::ReplicationAck { pipeline: *pipeline, slot: *slot });
            if scope.view.is_live(to) && to != scope.node {
                scope.send(to, body);
            }
            held.remind_at = scope.now + held.reminders.advance();
        }
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let pending = self.open.iter().filter_map(|pipeline| {
            let (slot, held) = self.followed[pipeline].pending.last_key_value()?;
            (!self.replays.has(*pipeline, *slot)).then_some(held.remind_at)
        });
        pending.chain(self.replays.wakes_at()).min()
    }
}

/// Applies what a slot writes to the granules of which the node has a copy.
pub(super) fn apply_writes(
    scope: &mut Scope<'_>,
    ownership: &mut Ownership,
    inv: &ReplicationInv,
    is_valid: bool,
) {
    for writes in &inv.writes {
        if ownership.is_replica(&writes.granule) {
            ownership.raise_clock(&writes.granule, inv.clock);
            scope.rows.apply(&writes.granule, &writes.rows, inv.version(), is_valid);
        }
    }
}

/// Notes whether the pipeline has pending slots.
fn note_open(open: &mut BTreeSet<PipelineId>, pipeline: PipelineId, followed: &Followed) {
    match followed.pending.is_empty() {
        true => drop(open.remove(&pipeline)),
        false => drop(open.insert(pipeline)),
    }
}

impl Followed {
    /// All slots up to this one are validated.
    fn learn(&mut self, scope: &mut Scope<'_>, pipeline: PipelineId, slot: Slot) {
        if self.validated < slot {
            self.validated = slot;
            scope.redo.validate(pipeline, slot);
        }
    }

    /// Makes the rows valid of what was applied and is validated.
    pub(super) fn validate_applied(&mut self, scope: &mut Scope<'_>) {
        let later = self.pending.split_off(&self.validated.next());
        for (_, Held { inv, .. }) in std::mem::replace(&mut self.pending, later) {
            for writes in &inv.writes {
                match scope.has(ZeusPlantedBug::ValidateNewer) {
                    true => scope.rows.validate_newer(&writes.granule, &writes.rows),
                    false => scope.rows.validate(&writes.granule, &writes.rows, inv.version()),
                }
            }
        }
    }

    /// Applies what has come, in order: a slot once the one before it is applied, or known to be validated (rule Z6). Says
    /// to which nodes these slots are to be acknowledged.
    fn apply(&mut self, scope: &mut Scope<'_>, ownership: &mut Ownership) -> Vec<(NodeId, Slot)> {
        self.validate_applied(scope);
        let mut acknowledged = Vec::new();
        while let Some(first) = self.received.first_entry() {
            let slot = *first.key();
            let skips = slot > self.applied && self.applied.max(self.validated).next() < slot;
            if skips && !scope.has(ZeusPlantedBug::SkipSlot) {
                break;
            }
            let mut held = first.remove();
            if slot <= self.applied {
                continue;
            }
            scope.redo.apply_slot(&held.inv, held.from, None);
            held.recorded = scope.redo.next();
            assert!(
                slot.0 == self.applied.0 + 1 || slot.0 <= self.validated.0 + 1,
                "Z6: {slot} skips"
            );
            acknowledged.push((held.from, slot));
            self.take(scope, ownership, held);
        }
        acknowledged
    }

    /// Applies a slot that can be.
    pub(super) fn take(&mut self, scope: &mut Scope<'_>, ownership: &mut Ownership, held: Held) {
        let slot = held.inv.slot;
        self.applied = slot;
        let is_valid = self.validated >= slot;
        apply_writes(scope, ownership, &held.inv, is_valid);
        if !is_valid {
            self.pending.insert(slot, held);
        }
    }
}
