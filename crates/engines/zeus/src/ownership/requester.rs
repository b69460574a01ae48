//! A requester: it asks for levels, collects acknowledgements, applies, and notifies the arbiters.

use super::arbiter::is_gift;
use super::driver::{addressed, lacks_rows, told};
use super::{Collected, Holding, OpenRequest, Ownership, Ticket, Want};
use crate::granule::GranuleId;
use crate::message::{Inv, MessageBody, OwnershipAck, OwnershipRequest};
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::{Level, OwnershipRecord, OwnershipTs, RequestKind};
use crate::scope::Scope;
use shoal_types::{Backoff, NodeId, Time};
use std::collections::BTreeSet;
use std::time::Duration;

impl Ownership {
    /// A transaction of this node wants granules: those that it lacks are requested together. Said again with more granules,
    /// it replaces what was said; `born` is the beginning of its first attempt.
    pub(crate) fn want(&mut self, scope: &mut Scope<'_>, ticket: Ticket, want: Want) {
        let granules: Vec<GranuleId> = want.granules.keys().cloned().collect();
        self.wants.insert(ticket, want);
        self.open.coming = granules.len();
        granules.iter().for_each(|granule| self.request_needed(scope, granule));
        self.open.coming = 0;
        self.changed.extend(granules);
    }

    /// The transactions that have all they want since this was asked last.
    pub(crate) fn take_ready(&mut self, node: NodeId, now: Time, hold: Duration) -> Vec<Ticket> {
        let mut ready = BTreeSet::new();
        for granule in std::mem::take(&mut self.changed) {
            let stopped: Vec<Ticket> = self.wants.stopped_by(&granule).collect();
            for ticket in stopped {
                let lacks = self.lacks(node, now, hold, ticket, &granule);
                match lacks {
                    Some(lacks) => self.wants.stop(ticket, lacks),
                    None => drop(ready.insert(ticket)),
                }
            }
        }
        ready.iter().for_each(|ticket| self.wants.set_ready(*ticket));
        ready.into_iter().collect()
    }

    /// A granule that the transaction wants and the node does not have, now. Those from `from` on are looked at first, so that
    /// granules which come in their order are looked at twice altogether.
    fn lacks(
        &self,
        node: NodeId,
        now: Time,
        hold: Duration,
        ticket: Ticket,
        from: &GranuleId,
    ) -> Option<GranuleId> {
        let want = self.wants.get(ticket)?;
        let is_lacking = |(granule, level): &(&GranuleId, &Level)| {
            !self.has(node, now, hold, granule, **level, want.born)
        };
        let mut later = want.granules.range(from..);
        let lacks = later.find(is_lacking).or_else(|| want.granules.iter().find(is_lacking));
        lacks.map(|(granule, _)| granule.clone())
    }

    /// The transaction wants nothing any more. What was requested for it may still be granted. Returns what it wanted.
    pub(crate) fn release(&mut self, ticket: Ticket) -> Option<Want> {
        self.wants.remove(ticket)
    }

    /// Whether the node has all that the transaction wants, now.
    pub(crate) fn has_all(&self, node: NodeId, now: Time, hold: Duration, ticket: Ticket) -> bool {
        let Some(want) = self.wants.get(ticket) else { return false };
        let mut granules = want.granules.iter();
        granules.all(|(granule, level)| self.has(node, now, hold, granule, *level, want.born))
    }

    /// Whether a transaction that was born then may use the granule at this level, now.
    pub(crate) fn has(
        &self,
        node: NodeId,
        now: Time,
        hold: Duration,
        granule: &GranuleId,
        level: Level,
        born: Time,
    ) -> bool {
        match level {
            Level::Owner => self.may_write(node, now, hold, granule, born),
            Level::Reader | Level::None => self.level(node, granule) >= level,
        }
    }

    /// The granule that the transaction wants and that no live node has any more, if there is one. While a newer record is pending
    /// here, it may be validated elsewhere, by a node that has the granule.
    #[must_use]
    pub fn lost(&self, ticket: Ticket) -> Option<&GranuleId> {
        let want = self.wants.get(ticket)?;
        want.granules.keys().find(|granule| {
            let holding = self.granules.get(granule);
            holding.is_some_and(|holding| holding.pending.is_none() && holding.record.is_lost())
        })
    }

    /// Whether the replaced record of an `Inv` may be so: it does not name this node as an owner that it never was.
    pub(crate) fn is_plausible_replaced(&self, node: NodeId, inv: &Inv) -> bool {
        let known = self.granules.get(&inv.granule).map(|holding| &holding.record);
        let none = OwnershipRecord::default();
        let known = known.unwrap_or(&none);
        inv.replaced.o_ts <= known.o_ts || !is_gift(node, known, &inv.replaced)
    }

    /// Whether a request of this node with this number was granted by a record with an earlier timestamp.
    pub(crate) fn was_granted(&self, granule: &GranuleId, number: u64, o_ts: OwnershipTs) -> bool {
        let holding = self.granules.get(granule);
        holding.is_some_and(|holding| number <= holding.granted && holding.record.o_ts < o_ts)
    }

    /// Whether this node has made a request with this number.
    pub(crate) fn has_requested(&self, number: u64) -> bool {
        (1..=self.requests).contains(&number)
    }

    /// Asks for what the transactions need of a granule and the node does not have, unless it has asked.
    pub(super) fn request_needed(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        let Some((kind, born)) = self.needed(scope, granule) else { return };
        let request = self.granules.get(granule).and_then(|holding| holding.request.as_ref());
        let is_requested = request.is_some_and(|request| match request.kind {
            RequestKind::Own => true,
            RequestKind::Read => kind == RequestKind::Read,
            RequestKind::Leave | RequestKind::Drop(_) => false,
        });
        if !is_requested {
            self.request(scope, granule, kind, born);
        }
    }

    /// What has to be requested so that the transactions can go on, and since when they want it.
    fn needed(&self, scope: &Scope<'_>, granule: &GranuleId) -> Option<(RequestKind, Time)> {
        let (level, born) = self.wants.needed(granule)?;
        let holding = self.granules.get(granule);
        // An owner that has acknowledged a move asks for the granule once the move is complete.
        let is_owner = holding
            .is_some_and(|holding| holding.is_replica && holding.record.owner == Some(scope.node));
        let has = if is_owner { Level::Owner } else { self.level(scope.node, granule) };
        match level {
            Level::Owner if has < Level::Owner => Some((RequestKind::Own, born)),
            Level::Reader if has < Level::Reader => Some((RequestKind::Read, born)),
            Level::Owner | Level::Reader | Level::None => None,
        }
    }

    /// Asks the directory for a change of levels. A reader that is to leave stops serving first.
    pub(crate) fn request(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        kind: RequestKind,
        born: Time,
    ) {
        self.requests += 1;
        let (least, most) = (scope.options.backoff_least, scope.options.backoff_most);
        let (number, backoff) = (self.requests, Backoff::new(least, most));
        let repeats = scope.options.repeats();
        let holding = self.holding_mut(granule);
        if kind == RequestKind::Leave {
            holding.serves = false;
        }
        let repeat_at = scope.now;
        let attempts = 0;
        holding.request =
            Some(OpenRequest { kind, number, born, repeat_at, attempts, repeats, backoff });
        self.note(scope, granule);
        self.send_request(scope, granule);
    }

    /// Sends the open request of a granule: to the leader of its shard at first, and to the other directory nodes in turn
    /// while none answers.
    fn send_request(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        let directory: Vec<NodeId> = scope.directory(granule).collect();
        let waits = self.open.waits();
        let Some(holding) = self.granules.get_mut(granule) else { return };
        let as_of = holding.hint.max(holding.record.o_ts);
        let Some(request) = &mut holding.request else { return };
        request.repeat_at = scope.now + request.repeats.draw_from_half(&mut self.random) * waits;
        // A leader that has much to answer keeps the request: another driver would contend with it.
        let turn = (request.attempts / waits) as usize;
        request.attempts += 1;
        let body = MessageBody::Request(OwnershipRequest {
            number: request.number,
            granule: granule.clone(),
            kind: request.kind,
            as_of,
            waited: scope.now - request.born,
        });
        if !directory.is_empty() {
            scope.send(directory[turn % directory.len()], body);
        }
        self.schedule(scope, granule);
    }

    /// Sends a request again that was not granted in time, unless nothing needs it any more.
    pub(super) fn repeat_if_due(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        let request = self.granules.get(granule).and_then(|holding| holding.request.as_ref());
        let Some(request) = request.filter(|request| request.repeat_at <= scope.now) else {
            return;
        };
        let is_needed = !request.kind.takes() || self.needed(scope, granule).is_some();
        match is_needed {
            true => self.send_request(scope, granule),
            false => self.holding_mut(granule).request = None,
        }
    }

    /// A request was refused: it is made again after a while, with what is known now. A `Leave` or a `Drop` is given up. A record
    /// that names no live node says that the granule is lost, unless a newer one is pending where it comes from.
    pub(crate) fn on_nack(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        record: OwnershipRecord,
        is_pending: bool,
    ) {
        let random = &mut self.random;
        let Some(holding) = self.granules.get_mut(granule) else { return };
        let is_stale = record.o_ts > holding.hint.max(holding.record.o_ts);
        holding.hint = holding.hint.max(record.o_ts);
        self.counters.nacks += 1;
        let is_requested = holding.request.is_some();
        if let Some(request) = &mut holding.request {
            // It was asked as of an older record, as the first request of a node always is. Otherwise another move is
            // under way, or an older transaction waits.
            let wait =
                if is_stale { Duration::ZERO } else { request.backoff.draw_from_half(random) };
            (request.repeat_at, request.attempts) = (scope.now + wait, 0);
            request.repeats.reset();
            if !request.kind.takes() {
                holding.request = None;
            }
        }
        let is_arbiter = scope.is_directory_node(granule) || holding.pending.is_some();
        match record.is_lost() {
            true if is_pending => {}
            true if is_requested => self.take_record(scope, granule, record),
            true | false if is_arbiter => self.on_val(scope, granule, record),
            true | false => {}
        }
        self.repeat_if_due(scope, granule);
        self.note(scope, granule);
    }

    /// An arbiter has acknowledged.
    pub(crate) fn on_ack(&mut self, scope: &mut Scope<'_>, from: NodeId, ack: OwnershipAck) {
        let (granule, o_ts) = (ack.inv.granule.clone(), ack.inv.record.o_ts);
        let held = self.granules.get(&granule).map(|holding| &holding.record);
        let record = held.or_else(|| self.forgotten.get(&granule));
        if let Some(record) = record.filter(|record| record.o_ts >= o_ts) {
            // This node has applied it: the arbiter lacks the `Val`.
            if record.o_ts == o_ts {
                let record = record.clone();
                scope.send(from, MessageBody::Val { granule, record });
            }
            return;
        }
        let OwnershipAck { inv, rows } = ack;
        let arbiters = inv.arbiters.clone();
        let source = inv.source;
        let collected =
            self.collected.entry((granule.clone(), o_ts)).or_insert_with(|| Collected {
                ack: OwnershipAck { inv, rows: None },
                from: BTreeSet::new(),
                needed: BTreeSet::new(),
                sender: None,
                changed: scope.now,
                part_due: None,
                part_repeats: scope.options.repeats(),
            });
        self.collected_due.get_or_insert(scope.now + scope.options.collected_kept());
        collected.changed = scope.now;
        collected.from.insert(from);
        collected.needed.extend(arbiters);
        collected.ack.inv.source = source.or(collected.ack.inv.source);
        if rows.is_some_and(|rows| collected.take_first_part(from, rows)) {
            self.request_part(scope, &granule, o_ts);
        }
        self.complete(scope, &granule, o_ts);
    }

    /// Completes what all arbiters have acknowledged: applies it, then notifies them (rule Z2).
    ///
    /// A move whose replaced record has lost its owner waits for the barrier: what the owner had committed, and a replica
    /// has applied, has to be everywhere first (rule Z11).
    pub(super) fn complete(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        o_ts: OwnershipTs,
    ) {
        let place = (granule.clone(), o_ts);
        let Some(collected) = self.collected.get(&place) else { return };
        let known = self.granules.get(granule).map(|holding| holding.record.o_ts);
        if known.is_some_and(|known| known >= o_ts) {
            // A newer record was validated meanwhile.
            self.collected.remove(&place);
            return;
        }
        let is_missing =
            |node: &&NodeId| scope.view.is_live(**node) && !collected.from.contains(*node);
        let inv = &collected.ack.inv;
        let waits = inv.replaced.owner.is_none() && !scope.may_pass_barrier();
        let owns_early = scope.has(ZeusPlantedBug::OwnBeforeAllAcks);
        let is_missing = !owns_early && collected.needed.iter().any(|node| is_missing(&node));
        if waits || is_missing {
            return;
        }
        let is_requester = scope.view.member(scope.node) == Some(inv.requested.by);
        let takes_part = scope.has(ZeusPlantedBug::ApplyFirstPart);
        if is_requester && collected.next_after().is_some() && !takes_part {
            return;
        }
        let takes_rows = inv.requested.kind.takes() && !inv.creates();
        let is_replica = self.granules.get(granule).is_some_and(|holding| holding.is_replica);
        // A copy that the replaced record does not name is an old one: of a reader that has missed the `Val` of its drop.
        let lacks = is_requester
            && takes_rows
            && collected.ack.rows.is_none()
            && (!is_replica || lacks_rows(inv));
        if lacks && addressed(scope, inv.clone()).is_some() {
            return;
        }
        let Some(Collected { ack, needed, .. }) = self.collected.remove(&place) else { return };
        let mut record = ack.inv.record.clone();
        let inv = ack.inv.clone();
        if lacks {
            // Every live node that had the rows has died since: the granule is lost.
            record.strip(|node| node == scope.node);
        } else if is_requester {
            self.apply_move(scope, ack);
        } else if record.owner == Some(inv.requested.by.node)
            && inv.requested.kind == RequestKind::Own
        {
            record.owner = None;
        }
        self.validate_record(scope, granule, record.clone());
        let val = MessageBody::Val { granule: granule.clone(), record };
        scope.send_to_all(told(scope, &inv, &needed), &val);
        self.note(scope, granule);
    }

    /// Drops acknowledgements to which none was added for long. They are of a record that lost against a contending one, which a
    /// requester that wants the granule no more does not learn of: while it is pending anywhere, all arbiters acknowledge it again and
    /// again.
    pub(super) fn drop_old_collected(&mut self, scope: &Scope<'_>) {
        if self.collected_due.is_none_or(|at| at > scope.now) {
            return;
        }
        let kept = scope.options.collected_kept();
        self.collected.retain(|_, collected| collected.changed + kept > scope.now);
        self.collected_due = (!self.collected.is_empty()).then_some(scope.now + kept);
    }

    /// Acknowledgements of records up to this one decide nothing any more.
    pub(super) fn forget_collected(&mut self, granule: &GranuleId, o_ts: OwnershipTs) {
        let of_granule = (granule.clone(), OwnershipTs::default())..=(granule.clone(), o_ts);
        let old: Vec<_> =
            self.collected.range(of_granule).map(|(place, _)| place.clone()).collect();
        old.iter().for_each(|place| drop(self.collected.remove(place)));
    }

    /// Changes the level of this node, whose request was granted.
    fn apply_move(&mut self, scope: &mut Scope<'_>, ack: OwnershipAck) {
        let OwnershipAck { inv, rows } = ack;
        let takes = inv.requested.kind.takes();
        let holding = self.holding_mut(&inv.granule);
        assert!(
            inv.number > holding.granted,
            "Z5: request {} of {} is granted twice",
            inv.number,
            inv.granule
        );
        holding.granted = inv.number;
        match inv.requested.kind {
            RequestKind::Own | RequestKind::Read => {
                match rows {
                    Some(carried) => {
                        holding.clock = carried.clock;
                        scope.redo.receive_rows(&inv.granule, &carried.rows);
                        scope.rows.receive(&inv.granule, carried.rows);
                    }
                    // Nothing of the granule was pending when its owner let it go.
                    None => {
                        scope.redo.validate_rows(&inv.granule, holding.clock);
                        scope.rows.validate_all(&inv.granule);
                    }
                }
                (holding.is_replica, holding.serves, holding.begins_empty) = (true, true, false);
            }
            RequestKind::Leave => {
                assert!(!holding.serves, "a reader of {} leaves while it serves", inv.granule);
            }
            RequestKind::Drop(_) => {}
        }
        holding.close_request(takes);
        let is_drop = matches!(inv.requested.kind, RequestKind::Drop(_));
        self.counters.readers_dropped += u64::from(is_drop);
        let is_owner = inv.record.owner == Some(scope.node);
        if is_owner {
            self.uneven.insert(inv.granule);
        }
        match is_owner {
            true => self.counters.moves += u64::from(takes),
            false => self.counters.reads_gained += u64::from(takes),
        }
    }
}

impl Holding {
    /// The open request is granted, if it is one that takes, or gives up, as what was granted.
    fn close_request(&mut self, takes: bool) {
        self.request = self.request.take().filter(|request| request.kind.takes() != takes);
    }
}
