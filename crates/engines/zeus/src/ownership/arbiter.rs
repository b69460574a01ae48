//! An arbiter: it is invalid from an `Inv` until a `Val`, and acknowledges what the rules allow.

use super::driver::addressed_anew;
use super::{Holding, Ownership, PendingInv, PendingSlots};
use crate::granule::GranuleId;
use crate::message::{Inv, MessageBody, OwnershipAck};
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::{Level, OwnershipRecord, RequestKind};
use crate::scope::Scope;
use shoal_types::{Clock, NodeId};

impl Ownership {
    /// A record is to be replaced. The greater timestamp wins; an equal one is acknowledged again; a lesser one receives what
    /// is known.
    pub(crate) fn on_inv(
        &mut self,
        scope: &mut Scope<'_>,
        slots: &impl PendingSlots,
        from: NodeId,
        inv: Inv,
    ) {
        let granule = inv.granule.clone();
        if scope.is_silent(&granule) {
            return;
        }
        let o_ts = inv.record.o_ts;
        let holding = self.holding_mut(&granule);
        let record = holding.record.clone();
        if record.o_ts == o_ts {
            let answer_to = inv.answer_to;
            scope.send(answer_to, MessageBody::Ack(OwnershipAck { inv, rows: None }));
            return;
        }
        let is_pending = holding.pending.is_some();
        let nack =
            MessageBody::Nack { granule: granule.clone(), record: record.clone(), is_pending };
        if record.o_ts > o_ts {
            scope.send(from, MessageBody::Val { granule: granule.clone(), record });
            scope.send(inv.requested.by.node, nack);
            return;
        }
        let (mut arrived, mut is_acknowledged) = (scope.now, false);
        let mut replays = scope.options.replays();
        if let Some(pending) = &holding.pending {
            let other = pending.inv.record.o_ts;
            if other > o_ts && !scope.has(ZeusPlantedBug::LesserWins) {
                return scope.send(inv.requested.by.node, nack);
            }
            // What was acknowledged stays so, for any of the contenders may have won by it (rule Z17).
            arrived = pending.arrived;
            let request_of = |inv: &Inv| (inv.requested, inv.number);
            assert!(
                from != scope.node || other != o_ts || request_of(&pending.inv) == request_of(&inv),
                "Z17: {granule} has two records {o_ts}"
            );
            if other == o_ts {
                replays = pending.replays;
            }
            is_acknowledged = pending.is_acknowledged && !scope.has(ZeusPlantedBug::Unacknowledge);
            if other < o_ts && other.driver == scope.node {
                scope.send(pending.inv.requested.by.node, nack);
            }
        }
        // The driver had the replaced record validated (rule Z16). An owner before that which has missed its `Val` would give
        // rows beside the present owner, older ones.
        if inv.replaced.o_ts > holding.record.o_ts && !scope.has(ZeusPlantedBug::NoReplacedRecord) {
            let is_left = holding.record.owner != Some(scope.node)
                || inv.replaced.owner == Some(scope.node)
                || is_acknowledged;
            assert!(
                is_left || scope.has(ZeusPlantedBug::CountUnacknowledged),
                "Z4: {granule} was moved from its owner, which has acknowledged nothing"
            );
            holding.set_record(scope, &granule, inv.replaced.clone());
        }
        let serves_on = scope.has(ZeusPlantedBug::ServeWhileDropped);
        if inv.requested.kind == RequestKind::Drop(scope.node) && !serves_on {
            // A reader that is dropped stops serving before it acknowledges.
            holding.serves = false;
        }
        if inv.creates() && inv.record.level_of(scope.node) == Level::Reader && !holding.is_replica
        {
            // Writes of the new owner may arrive before its `Val`.
            (holding.is_replica, holding.begins_empty, holding.clock) = (true, true, Clock::ZERO);
        }
        let wait = replays.draw_from_half(&mut self.random) * self.open.waits();
        let replay_at = scope.now + wait;
        let pending =
            PendingInv { inv, is_answered: false, is_acknowledged, arrived, replay_at, replays };
        self.holding_mut(&granule).pending = Some(pending);
        self.note(scope, &granule);
        self.acknowledge(scope, slots, &granule);
    }

    /// Acknowledges what is pending, once the rules allow it: an owner has no pending slot that has read or written the
    /// granule (rule Z4), and holds it for no older transaction of its own; a reader that gives rows in place of a dead
    /// owner has passed the barrier (rule Z11).
    pub(super) fn acknowledge(
        &mut self,
        scope: &mut Scope<'_>,
        slots: &impl PendingSlots,
        granule: &GranuleId,
    ) {
        let older = self.wants.oldest_writer(granule);
        let Some(holding) = self.granules.get_mut(granule) else { return };
        let Some(pending) = &mut holding.pending else { return };
        if pending.is_answered || scope.is_silent(granule) {
            return;
        }
        let inv = &pending.inv;
        let requester = inv.requested.by.node;
        let is_owner = holding.record.owner == Some(scope.node);
        if is_owner {
            let holds_all = scope.has(ZeusPlantedBug::WaitWhileHolding);
            let holds = |born| holds_all || pending.yields_to(scope.now, scope.options.hold, born);
            let is_held =
                requester != scope.node && !pending.is_acknowledged && older.is_some_and(holds);
            let touches = match scope.has(ZeusPlantedBug::GrantAfterWrites) {
                true => slots.writes(granule),
                false => slots.touches(granule) && !scope.has(ZeusPlantedBug::GrantWhilePending),
            };
            if touches || is_held {
                return;
            }
        }
        let is_source = inv.source == Some(scope.node);
        if is_source && !scope.may_pass_barrier() {
            return;
        }
        // When it is acknowledged again, the new owner may have written the granule already.
        let is_first = is_owner && !pending.is_acknowledged;
        let inv = inv.clone();
        let (answer_to, record) = (inv.answer_to, inv.record.clone());
        (pending.is_answered, pending.is_acknowledged) = (true, true);
        let rows = holding.part_to_give(scope, granule, None);
        let of = scope.rows.granule(granule).filter(|_| is_first && rows.is_some());
        assert!(of.is_none_or(|of| of.is_valid()), "Z4: {granule} moves with pending rows");
        scope.rows.change(granule);
        scope.redo.touch(granule);
        scope.send(answer_to, MessageBody::Ack(OwnershipAck { inv, rows }));
        if scope.has(ZeusPlantedBug::ArbitersApplyFirst) {
            self.on_val(scope, granule, record);
        }
    }

    /// A record is known to be validated.
    pub(crate) fn on_val(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        record: OwnershipRecord,
    ) {
        if scope.is_silent(granule) {
            return;
        }
        let known = &self.holding_mut(granule).record;
        let is_news = record.o_ts > known.o_ts;
        if is_news && !is_gift(scope.node, known, &record) {
            self.validate_record(scope, granule, record);
        }
        self.note(scope, granule);
    }

    /// Replaces the validated record.
    pub(super) fn validate_record(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        record: OwnershipRecord,
    ) {
        scope.rows.change(granule);
        scope.redo.touch(granule);
        let o_ts = record.o_ts;
        self.forget_collected(granule, o_ts);
        let holding = self.holding_mut(granule);
        assert!(o_ts > holding.record.o_ts, "Z17: {record} replaces {}", holding.record);
        holding.pending = holding.pending.take().filter(|pending| pending.inv.record.o_ts > o_ts);
        holding.set_record(scope, granule, record);
        holding.hint = holding.hint.max(o_ts);
        if holding.record.owner.is_none() && scope.is_directory_node(granule) {
            self.uneven.insert(granule.clone());
        }
    }

    /// The directory has this record. One of a directory that was rebuilt may name fewer nodes than the record with the same
    /// timestamp does here.
    pub(crate) fn take_record(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        record: OwnershipRecord,
    ) {
        let holding = self.holding_mut(granule);
        let known = &holding.record;
        let is_owner = record.owner == Some(scope.node);
        if known.o_ts != record.o_ts || *known == record || is_owner {
            return self.on_val(scope, granule, record);
        }
        scope.rows.change(granule);
        scope.redo.touch(granule);
        holding.set_record(scope, granule, record);
        if scope.is_directory_node(granule) {
            self.uneven.insert(granule.clone());
        }
        self.note(scope, granule);
    }

    /// An arbiter that stays invalid sends the `Inv` again, unchanged but for its arbiters and where answers go: to the
    /// requester while that member lives, and else to this node.
    pub(super) fn replay_if_due(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        let (random, waits) = (&mut self.random, self.open.waits());
        let holding = self.granules.get_mut(granule);
        let Some(pending) = holding.and_then(|holding| holding.pending.as_mut()) else { return };
        if pending.replay_at > scope.now {
            return;
        }
        pending.replay_at = scope.now + pending.replays.draw_from_half(random) * waits;
        if scope.is_silent(granule) {
            return;
        }
        let mut inv = addressed_anew(scope, &pending.inv);
        let lives = scope.view.is_member(inv.requested.by);
        inv.answer_to = if lives { inv.requested.by.node } else { scope.node };
        if !lives {
            inv.source = None;
        }
        if scope.has(ZeusPlantedBug::ReplayChangesRecord) {
            inv.record.readers.pop_last();
        }
        self.counters.replays += 1;
        let arbiters = inv.arbiters.clone();
        scope.send_to_all(arbiters, &MessageBody::Inv(inv));
    }
}

impl Holding {
    /// The newest record that is validated here; an empty copy serves from the first one on. A node that the record does not name
    /// drops its copy. No slot of the node has that copy pending: as the owner it waited for its slots before it acknowledged the
    /// move, and as a follower it keeps the slots themselves, which it can replay without the rows.
    pub(super) fn set_record(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        record: OwnershipRecord,
    ) {
        let level = record.level_of(scope.node);
        if self.begins_empty && !record.is_uncreated() {
            self.begins_empty = false;
            self.serves = level == Level::Reader;
        }
        self.record = record;
        if level == Level::None && self.is_replica {
            self.drop_copy();
            scope.rows.discard(granule);
            scope.redo.discard_rows(granule);
        }
    }

    /// In a new epoch: what is pending has the arbiters of this epoch.
    ///
    /// A node that has left the directory, or copies it anew, drops what is pending, unless it is the owner, which must not write
    /// any more (rule Z17). Contending records are ordered by the arbiters that they have in common, the drivers among them: one
    /// that was driven here may have none in common with one that was completed meanwhile. Where it is to arbitrate, the
    /// directory sends the `Inv` again.
    pub(super) fn address_anew(&mut self, scope: &Scope<'_>, is_dead: impl Fn(NodeId) -> bool) {
        let Some(pending) = &mut self.pending else { return };
        let granule = &pending.inv.granule;
        let keeps = scope.is_directory_node(granule)
            && !scope.copying.contains(&scope.placement.shard_of(granule));
        if !keeps && pending.inv.replaced.owner != Some(scope.node) {
            self.pending = None;
            return;
        }
        let Inv { record, replaced, .. } = &mut pending.inv;
        record.strip(&is_dead);
        replaced.strip(&is_dead);
        pending.inv = addressed_anew(scope, &pending.inv);
        pending.replay_at = scope.now;
        pending.replays.reset();
    }

    /// The node is no replica any more.
    fn drop_copy(&mut self) {
        (self.is_replica, self.serves, self.begins_empty) = (false, false, false);
        self.clock = Clock::ZERO;
    }
}

/// Whether the record names the node as the owner, which it is not as far as it knows: a node becomes the owner only by completing
/// its own request (rule Z1).
pub(super) fn is_gift(node: NodeId, known: &OwnershipRecord, record: &OwnershipRecord) -> bool {
    record.owner == Some(node) && known.owner != Some(node)
}
