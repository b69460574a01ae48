//! The ownership protocol: requests, arbitration, moves, and the replay of records (§4).

use super::data::{Granule, Kind, NodeId, OwnershipTs, Record, Set};
use super::messages::{Inv, Message, OwnershipAck};
use super::rules::Rule;
use super::state::{Collected, PendingRecord};
use super::step::Step;

impl Step<'_> {
    /// `node` asks for `granule` through this driver.
    pub(super) fn request(&mut self, node: NodeId, granule: Granule, kind: Kind, driver: NodeId) {
        let holding = self.holding_mut(node, granule);
        holding.requested = Some(kind);
        if kind == Kind::Leave {
            holding.serves = false;
        }
        let as_of = holding.hint;
        self.send(node, driver, Message::Request { granule, kind, as_of });
    }

    /// A request that was not granted is sent again, unless it has become needless.
    pub(super) fn repeat_request(&mut self, node: NodeId, granule: Granule) {
        let Some(requested) = self.holding(node, granule).requested else { return };
        let kind = match requested {
            Kind::Own | Kind::Read => self.needs(node, granule),
            Kind::Leave | Kind::Drop(_) => Some(requested),
        };
        let driver = self.directory(node).iter().next();
        match (kind, driver) {
            (Some(kind), Some(driver)) => self.request(node, granule, kind, driver),
            _ => self.holding_mut(node, granule).requested = None,
        }
    }

    pub(super) fn on_request(
        &mut self,
        node: NodeId,
        from: NodeId,
        granule: Granule,
        kind: Kind,
        as_of: OwnershipTs,
    ) {
        if !self.directory(node).has(node) || self.is_silent(node) {
            return;
        }
        let holding = self.holding(node, granule);
        let (known, pending) = (holding.record, holding.pending.as_ref());
        let is_void = as_of < known.o_ts && self.keeps(Rule::VoidStaleRequests);
        let is_pending = pending.is_some() && self.keeps(Rule::DriveValidated);
        let waits = known.owner.is_none() && !self.passed_barrier(node);
        let last = pending.map_or(known.o_ts.version, |pending| pending.inv.record.o_ts.version);
        let record = self.granted(known, kind, from);
        let Some(mut record) = record.filter(|_| !is_void && !is_pending && !waits) else {
            return self.send(node, from, Message::Nack { granule, record: known });
        };
        let view = &self.node(node).view;
        let epoch = if self.keeps(Rule::OtsEpoch) { view.epoch } else { 0 };
        let requester_since = view.since[from as usize];
        record.o_ts = OwnershipTs { version: last + 1, epoch, driver: node };
        let mut inv = Inv {
            granule,
            record,
            replaced: known,
            kind,
            requester: from,
            requester_since,
            arbiters: Set::default(),
            source: None,
            answer_to: from,
        };
        if self.address(node, &mut inv) {
            self.send_to_all(node, inv.arbiters, &Message::Inv(inv.clone()));
        }
    }

    /// The record after this request, if it can be granted.
    fn granted(&self, known: Record, kind: Kind, from: NodeId) -> Option<Record> {
        let mut record = known;
        let spare = known.readers.len() > self.scenario.readers_min;
        match kind {
            Kind::Own if known.owner != Some(from) => {
                known.owner.into_iter().for_each(|old| record.readers = record.readers.with(old));
                record.readers = record.readers.without(from);
                record.owner = Some(from);
            }
            Kind::Read if known.owner != Some(from) => record.readers = record.readers.with(from),
            Kind::Leave if known.owner.is_some() && spare && known.readers.has(from) => {
                record.readers = record.readers.without(from);
            }
            Kind::Drop(reader)
                if known.owner == Some(from) && spare && known.readers.has(reader) =>
            {
                record.readers = record.readers.without(reader);
            }
            Kind::Own | Kind::Read | Kind::Leave | Kind::Drop(_) => return None,
        }
        Some(record)
    }

    /// Sets the arbiters of an INV, and which reader gives the rows. False, if no node has them.
    fn address(&self, node: NodeId, inv: &mut Inv) -> bool {
        let live = self.node(node).view.live;
        inv.arbiters = self.directory(node);
        let owner = match self.keeps(Rule::ReplacedRecord) {
            true => inv.replaced.owner,
            false => self.holding(node, inv.granule).record.owner,
        };
        if let Some(owner) = owner.filter(|owner| live.has(*owner)) {
            inv.arbiters = inv.arbiters.with(owner);
        }
        if let Kind::Drop(reader) = inv.kind
            && live.has(reader)
            && self.keeps(Rule::DropArbiter)
        {
            inv.arbiters = inv.arbiters.with(reader);
        }
        let takes_rows = matches!(inv.kind, Kind::Own | Kind::Read) && !inv.creates();
        inv.source = None;
        if owner.is_none() && takes_rows && !inv.replaced.readers.has(inv.requester) {
            inv.source = inv.replaced.readers.common(live).iter().next();
            let Some(source) = inv.source else { return false };
            inv.arbiters = inv.arbiters.with(source);
        }
        true
    }

    pub(super) fn on_nack(&mut self, node: NodeId, granule: Granule, record: Record) {
        let holding = self.holding_mut(node, granule);
        holding.hint = holding.hint.max(record.o_ts);
        if matches!(holding.requested, Some(Kind::Leave | Kind::Drop(_))) {
            holding.requested = None;
        }
        if self.scenario.directory.has(node) || self.holding(node, granule).pending.is_some() {
            self.on_val(node, granule, record);
        }
    }

    pub(super) fn on_inv(&mut self, node: NodeId, from: NodeId, inv: Inv) {
        let granule = inv.granule;
        if self.is_silent(node) {
            return;
        }
        let (record, o_ts) = (self.holding(node, granule).record, inv.record.o_ts);
        if record.o_ts == o_ts {
            let answer_to = inv.answer_to;
            return self.send(node, answer_to, Message::Ack(OwnershipAck { inv, rows: None }));
        }
        if record.o_ts > o_ts {
            self.send(node, from, Message::Val { granule, record });
            return self.send(node, inv.requester, Message::Nack { granule, record });
        }
        let refuses = !self.keeps(Rule::OwnerWaits) && self.touching(node, granule);
        if record.owner == Some(node) && refuses {
            return self.send(node, inv.requester, Message::Nack { granule, record });
        }
        let sticky = self.keeps(Rule::StickyAck);
        let mut is_acknowledged = false;
        if let Some(pending) = &self.holding(node, granule).pending {
            let (other, requester) = (pending.inv.record.o_ts, pending.inv.requester);
            if other > o_ts {
                return self.send(node, inv.requester, Message::Nack { granule, record });
            }
            is_acknowledged = pending.is_acknowledged && sticky;
            if other < o_ts && other.driver == node {
                self.send(node, requester, Message::Nack { granule, record });
            }
        }
        let adopts = self.keeps(Rule::ReplacedRecord);
        let holding = self.holding_mut(node, granule);
        if inv.replaced.o_ts > holding.record.o_ts && adopts {
            holding.record = inv.replaced;
        }
        if inv.kind == Kind::Drop(node) {
            holding.serves = false;
        }
        let holds = holding.record.owner == Some(node) && inv.requester != node && !is_acknowledged;
        holding.pending = Some(PendingRecord { inv, is_answered: false, is_acknowledged });
        if !(holds && self.holds) {
            self.acknowledge(node, granule);
        }
    }

    /// Acknowledges the pending record, once the rules allow it.
    pub(super) fn acknowledge(&mut self, node: NodeId, granule: Granule) {
        let holding = self.holding(node, granule);
        let Some(pending) = &holding.pending else { return };
        if pending.is_answered || self.is_silent(node) {
            return;
        }
        let inv = pending.inv.clone();
        let is_owner = holding.record.owner == Some(node);
        if is_owner && self.touching(node, granule) {
            return;
        }
        if inv.source == Some(node) && !self.passed_barrier(node) {
            return;
        }
        let gives = (is_owner || inv.source == Some(node)) && inv.requester != node;
        let lacks = !inv.replaced.readers.has(inv.requester);
        let rows = (gives && lacks && holding.is_replica).then(|| {
            let mut row = holding.row.clone();
            row.is_valid = true;
            (holding.clock, row)
        });
        if let Some(pending) = &mut self.holding_mut(node, granule).pending {
            (pending.is_answered, pending.is_acknowledged) = (true, true);
        }
        let answer_to = inv.answer_to;
        self.send(node, answer_to, Message::Ack(OwnershipAck { inv, rows }));
    }

    /// Slots of the node are pending that stand against a move of the granule.
    fn touching(&self, node: NodeId, granule: Granule) -> bool {
        let mut slots = self.node(node).pipelines.iter().flat_map(|worker| &worker.pending);
        let (any, reads) = (self.keeps(Rule::WaitForPending), self.keeps(Rule::WaitForReads));
        slots.any(|slot| {
            let wrote = slot.inv.rows.iter().any(|(written, _)| *written == granule);
            any && (wrote || (reads && slot.touched.has(granule)))
        })
    }

    pub(super) fn on_ack(&mut self, node: NodeId, from: NodeId, ack: OwnershipAck) {
        let (granule, o_ts) = (ack.inv.granule, ack.inv.record.o_ts);
        let record = self.holding(node, granule).record;
        if record.o_ts >= o_ts {
            // It has applied: the arbiter lacks the VAL.
            if record.o_ts == o_ts {
                self.send(node, from, Message::Val { granule, record });
            }
            return;
        }
        let (arbiters, source) = (ack.inv.arbiters, ack.inv.source);
        let entry = self.node_mut(node).collected.entry((granule, o_ts));
        let (from, rows) = (Set::of(from), ack.rows.clone());
        let collected =
            entry.or_insert(Collected { ack, from: Set::default(), needed: Set::default() });
        collected.from = collected.from.and(from);
        collected.needed = collected.needed.and(arbiters);
        collected.ack.inv.source = source.or(collected.ack.inv.source);
        collected.ack.rows = rows.or(collected.ack.rows.take());
        self.complete(node, granule, o_ts);
    }

    /// Completes what the node has all ACKs for.
    pub(super) fn complete_collected(&mut self, node: NodeId, granule: Granule) {
        let collected = self.node(node).collected.keys();
        let of_granule: Vec<_> = collected.filter(|(of, _)| *of == granule).copied().collect();
        of_granule.into_iter().for_each(|(granule, o_ts)| self.complete(node, granule, o_ts));
    }

    /// Completes a request that all its arbiters have acknowledged: applies it, then sends VAL.
    fn complete(&mut self, node: NodeId, granule: Granule, o_ts: OwnershipTs) {
        let Some(collected) = self.node(node).collected.get(&(granule, o_ts)).cloned() else {
            return;
        };
        if self.holding(node, granule).record.o_ts >= o_ts {
            // A newer record was validated meanwhile.
            self.node_mut(node).collected.remove(&(granule, o_ts));
            return;
        }
        let view = &self.node(node).view;
        let is_missing = !collected.needed.common(view.live).minus(collected.from).is_empty();
        if is_missing && self.keeps(Rule::AllAcks) {
            return;
        }
        let inv = &collected.ack.inv;
        if inv.replaced.owner.is_none()
            && self.keeps(Rule::ReplayBarrier)
            && !self.passed_barrier(node)
        {
            return;
        }
        let is_requester =
            inv.requester == node && inv.requester_since == view.since[node as usize];
        let mut record = inv.record;
        if is_requester {
            if !self.apply_move(node, &collected) {
                return;
            }
        } else if record.owner == Some(inv.requester) && inv.kind == Kind::Own {
            record.owner = None;
        }
        self.node_mut(node).collected.remove(&(granule, o_ts));
        self.validate_record(node, granule, record);
        let told = collected.needed.and(Set::of(inv.requester)).without(node);
        let told = told.common(self.node(node).view.live);
        self.send_to_all(node, told, &Message::Val { granule, record });
    }

    /// Changes the requester's level; false, if it lacks the rows.
    fn apply_move(&mut self, node: NodeId, collected: &Collected) -> bool {
        let inv = &collected.ack.inv;
        // A leave or a drop that was refused once may still be granted: that takes nothing from another node.
        let takes = matches!(inv.kind, Kind::Own | Kind::Read);
        if takes && self.holding(node, inv.granule).requested.is_none() {
            let what = format!("n{node} was given g{} without asking", inv.granule);
            self.break_rule("Z5", what);
        }
        let holding = self.holding_mut(node, inv.granule);
        match inv.kind {
            Kind::Own | Kind::Read => {
                match &collected.ack.rows {
                    Some((clock, row)) => {
                        (holding.clock, holding.row) = (*clock, row.clone());
                    }
                    None if !holding.is_replica && !inv.creates() => return false,
                    // Nothing of the granule was pending when its owner let it go.
                    None => holding.row.is_valid = true,
                }
                (holding.is_replica, holding.serves) = (true, true);
            }
            Kind::Leave => (holding.is_replica, holding.serves) = (false, false),
            Kind::Drop(_) => {}
        }
        let is_other = |requested: &Kind| takes != matches!(requested, Kind::Own | Kind::Read);
        holding.requested = holding.requested.filter(is_other);
        true
    }

    /// A record is known to be validated: by VAL, or by a message with a newer one.
    pub(super) fn on_val(&mut self, node: NodeId, granule: Granule, record: Record) {
        let known = self.holding(node, granule).record;
        let is_news = record.o_ts > known.o_ts;
        // A node becomes the owner only by completing its own request.
        let is_gift = record.owner == Some(node) && known.owner != Some(node);
        if is_news && !is_gift && !self.is_silent(node) {
            self.validate_record(node, granule, record);
        }
    }

    fn validate_record(&mut self, node: NodeId, granule: Granule, record: Record) {
        let holding = self.holding_mut(node, granule);
        let o_ts = record.o_ts;
        holding.pending = holding.pending.take().filter(|pending| pending.inv.record.o_ts > o_ts);
        holding.record = record;
        holding.hint = holding.hint.max(o_ts);
        if record.owner != Some(node) && !record.readers.has(node) {
            holding.drop_rows();
        }
    }

    /// An arbiter that has stayed invalid sends the INV again, unchanged but for its arbiters and where ACKs go.
    pub(super) fn replay_record(&mut self, node: NodeId, granule: Granule) {
        let Some(pending) = &self.holding(node, granule).pending else { return };
        let mut inv = pending.inv.clone();
        let view = &self.node(node).view;
        let by_failure_only = !self.keeps(Rule::OwnerWaits);
        if by_failure_only && inv.record.o_ts.epoch == view.epoch {
            return;
        }
        let is_member = view.live.has(inv.requester)
            && view.since[inv.requester as usize] == inv.requester_since;
        inv.answer_to = if is_member { inv.requester } else { node };
        let is_addressed = self.address(node, &mut inv);
        if !is_member {
            inv.source = None;
        }
        if is_addressed || !is_member {
            self.send_to_all(node, inv.arbiters, &Message::Inv(inv.clone()));
        }
    }
}
