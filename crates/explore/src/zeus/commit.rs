//! The reliable commit: local commits, pipelines, and what followers do (§5).

use super::data::{Granule, Kind, NodeId, Pipeline, Set, Version};
use super::messages::{Message, ReplicationInv};
use super::rules::Rule;
use super::scenarios::Transaction;
use super::state::{Slot, Status};
use super::step::Step;

impl Step<'_> {
    /// What a node has to ask for, so that a transaction of its own can go on.
    pub(super) fn needs(&self, node: NodeId, granule: Granule) -> Option<Kind> {
        let holding = self.holding(node, granule);
        let reads = holding.is_replica && holding.serves;
        let mut kind = None;
        for (transaction, state) in self.scenario.transactions.iter().zip(&self.state.transactions)
        {
            let touches = transaction.touched().has(granule);
            if transaction.node != node || state.status != Status::Waiting || !touches {
                continue;
            }
            if transaction.owned(self.rules).has(granule) {
                if holding.record.owner != Some(node) {
                    kind = Some(Kind::Own);
                }
            } else if !reads && holding.record.owner != Some(node) {
                kind = kind.or(Some(Kind::Read));
            }
        }
        kind
    }

    /// The write transaction can be committed locally.
    pub(super) fn can_commit(&self, transaction: &Transaction) -> bool {
        let (at, node) = (transaction.node, self.node(transaction.node));
        let owned = transaction.owned(self.rules);
        let has_level = transaction.touched().iter().all(|granule| {
            let holding = self.holding(at, granule);
            let is_free = holding
                .pending
                .as_ref()
                .is_none_or(|pending| self.scenario.holds && !pending.is_acknowledged);
            let owns = holding.record.owner == Some(at) && is_free;
            let reads = holding.is_replica && holding.serves && holding.row.is_valid;
            owns || (!owned.has(granule) && reads)
        });
        let other = &node.pipelines[1 - usize::from(transaction.worker)];
        let meets = |slot: &Slot| !slot.touched.common(transaction.touched()).is_empty();
        node.is_alive && has_level && !other.pending.iter().any(meets)
    }

    /// Commits a write transaction locally and sends its R-INV.
    pub(super) fn commit_locally(&mut self, number: usize) {
        let transaction = &self.scenario.transactions[number];
        let (node, worker) = (transaction.node, usize::from(transaction.worker));
        let pipeline = self.node(node).pipeline(node, transaction.worker);
        let coordinated = &self.node(node).pipelines[worker];
        let slot = coordinated.last + 1;
        let mut clock = coordinated.last_clock;
        let by_granule = self.keeps(Rule::GranuleClock);
        if by_granule {
            let touched = transaction.touched();
            let clocks = touched.iter().map(|granule| self.holding(node, granule).clock);
            clock = clock.max(clocks.max().unwrap_or_default());
        } else {
            let written = transaction.writes.iter();
            let clocks = written.map(|granule| self.holding(node, granule).row.version.clock);
            clock = clocks.max().unwrap_or_default();
        }
        clock += 1;
        let after = self.answered();
        let read = |granule| (granule, self.holding(node, granule).row.writers.clone());
        let reads = transaction.touched().iter().map(read).collect();
        let (mut rows, mut followers) = (Vec::new(), Set::default());
        for granule in transaction.writes.iter() {
            let holding = self.holding_mut(node, granule);
            holding.clock = holding.clock.max(clock);
            let row = &mut holding.row;
            row.version = Version { clock, pipeline, slot };
            row.writers.push(number as u8);
            (row.is_valid, row.is_tombstone) = (false, transaction.deletes);
            rows.push((granule, row.clone()));
            followers = followers.and(holding.record.readers);
        }
        followers = followers.common(self.node(node).view.live).without(node);
        let inv = ReplicationInv { pipeline, slot, previous_validated: false, followers, rows };
        let touched = transaction.touched();
        let acknowledged = Set::default();
        let coordinated = &mut self.node_mut(node).pipelines[worker];
        (coordinated.last, coordinated.last_clock) = (slot, clock);
        coordinated.pending.push(Slot { inv, acknowledged, touched, transaction: number as u8 });
        let state = &mut self.state.transactions[number];
        (state.status, state.after, state.reads) = (Status::Pending, after, reads);
        if !self.keeps(Rule::ReplyValidated) {
            self.answer(number);
        }
        self.send_slots(node, worker, Some(slot));
        self.validate_slots(node, worker);
    }

    /// Sends the R-INV of one pending slot, or of all.
    fn send_slots(&mut self, node: NodeId, worker: usize, only: Option<u8>) {
        let coordinated = &self.node(node).pipelines[worker];
        let validated = coordinated.validated;
        let slots = coordinated.pending.iter().map(|slot| slot.inv.clone());
        let slots: Vec<_> = slots.filter(|inv| only.is_none_or(|only| only == inv.slot)).collect();
        for mut inv in slots {
            inv.previous_validated = validated + 1 >= inv.slot;
            self.send_to_all(node, inv.followers, &Message::ReplicationInv(inv.clone()));
        }
    }

    /// Validates slots in order, as far as all their followers have acknowledged.
    pub(super) fn validate_slots(&mut self, node: NodeId, worker: usize) {
        let all = self.keeps(Rule::AllFollowers);
        loop {
            let coordinated = &mut self.node_mut(node).pipelines[worker];
            let Some(slot) = coordinated.pending.first() else { break };
            let (followers, acknowledged) = (slot.inv.followers, slot.acknowledged);
            let is_first = !all && !acknowledged.is_empty();
            if !followers.minus(acknowledged).is_empty() && !is_first {
                break;
            }
            let slot = coordinated.pending.remove(0);
            coordinated.validated = slot.inv.slot;
            // A follower of a later slot only has to know that it may apply it.
            let later = coordinated.pending.iter();
            let told = later.fold(followers, |told, slot| told.and(slot.inv.followers));
            for (granule, written) in &slot.inv.rows {
                let row = &mut self.holding_mut(node, *granule).row;
                row.is_valid |= row.version == written.version;
            }
            let (pipeline, number) = (slot.inv.pipeline, slot.inv.slot);
            let val = Message::ReplicationVal { pipeline, slot: number };
            self.send_to_all(node, told, &val);
            self.answer(usize::from(slot.transaction));
            self.granules().for_each(|granule| self.acknowledge(node, granule));
        }
    }

    /// A coordinator sends again what is pending, and sends followers that lack it what is validated.
    pub(super) fn repeat_commits(&mut self, node: NodeId) {
        for worker in 0..2 {
            self.send_slots(node, worker, None);
            self.validate_slots(node, worker);
            let pipeline = self.node(node).pipeline(node, worker as u8);
            self.repeat_validated(node, pipeline, self.node(node).pipelines[worker].validated);
        }
        let followed = self.node(node).followed.iter();
        let orphans = followed.filter(|(pipeline, _)| self.node(node).is_orphan(**pipeline));
        let orphans: Vec<_> = orphans.map(|(pipeline, of)| (*pipeline, of.validated)).collect();
        for (pipeline, validated) in orphans {
            self.repeat_validated(node, pipeline, validated);
        }
    }

    /// Sends R-VAL to nodes that wait for it; elsewhere it would have no effect.
    fn repeat_validated(&mut self, node: NodeId, pipeline: Pipeline, slot: u8) {
        let waits = |other: &NodeId| {
            let followed = self.node(*other).followed.get(&pipeline);
            *other != node
                && followed.is_some_and(|followed| {
                    let waits = !followed.pending.is_empty() || !followed.received.is_empty();
                    waits && followed.validated < slot
                })
        };
        let waiting: Vec<NodeId> = self.node(node).view.live.iter().filter(waits).collect();
        for other in waiting {
            self.send(node, other, Message::ReplicationVal { pipeline, slot });
        }
    }

    pub(super) fn on_replication_inv(&mut self, node: NodeId, from: NodeId, inv: ReplicationInv) {
        let (pipeline, slot) = (inv.pipeline, inv.slot);
        let followed = self.node_mut(node).followed.entry(pipeline).or_default();
        if inv.previous_validated {
            followed.validated = followed.validated.max(slot - 1);
        }
        if followed.applied < slot {
            followed.received.insert(slot, inv);
        } else if let Some(pending) = followed.pending.get_mut(&slot) {
            pending.followers = inv.followers;
        }
        self.apply_received(node, pipeline);
        let is_applied = self.node(node).followed[&pipeline].applied >= slot;
        if is_applied || !self.keeps(Rule::AckApplied) {
            self.send(node, from, Message::ReplicationAck { pipeline, slot });
        }
    }

    /// A follower applies what it has received, in order.
    fn apply_received(&mut self, node: NodeId, pipeline: Pipeline) {
        let in_order = self.keeps(Rule::SlotsInOrder);
        let Some(followed) = self.node_mut(node).followed.get_mut(&pipeline) else {
            return;
        };
        let mut applied = Vec::new();
        while let Some((slot, inv)) = followed.received.pop_first() {
            if slot <= followed.applied {
                continue;
            }
            if in_order && followed.applied.max(followed.validated) + 1 < slot {
                followed.received.insert(slot, inv);
                break;
            }
            followed.applied = slot;
            let is_valid = followed.validated >= slot;
            applied.push((inv.rows.clone(), is_valid));
            if !is_valid {
                followed.pending.insert(slot, inv);
            }
        }
        for (rows, is_valid) in applied {
            for (granule, row) in rows {
                let holding = self.holding_mut(node, granule);
                if !holding.is_replica {
                    continue;
                }
                holding.clock = holding.clock.max(row.version.clock);
                if holding.row.version < row.version {
                    holding.row = row;
                    holding.row.is_valid = is_valid;
                }
            }
        }
    }

    pub(super) fn on_replication_ack(
        &mut self,
        node: NodeId,
        from: NodeId,
        pipeline: Pipeline,
        slot: u8,
    ) {
        let worker = usize::from(pipeline.worker);
        if pipeline == self.node(node).pipeline(node, pipeline.worker) {
            let slots = &mut self.node_mut(node).pipelines[worker].pending;
            if let Some(slot) = slots.iter_mut().find(|pending| pending.inv.slot == slot) {
                slot.acknowledged = slot.acknowledged.with(from);
            }
            self.validate_slots(node, worker);
        } else if let Some(acknowledged) = self.node_mut(node).replays.get_mut(&(pipeline, slot)) {
            *acknowledged = acknowledged.with(from);
            self.validate_replays(node);
        }
    }

    pub(super) fn on_replication_val(&mut self, node: NodeId, pipeline: Pipeline, slot: u8) {
        let own_only = self.keeps(Rule::ValidateOwn);
        let at = self.node_mut(node);
        let followed = at.followed.entry(pipeline).or_default();
        followed.validated = followed.validated.max(slot);
        let later = followed.pending.split_off(&(slot + 1));
        let validated = std::mem::replace(&mut followed.pending, later);
        at.replays.retain(|(of, replayed), _| *of != pipeline || *replayed > slot);
        for inv in validated.into_values() {
            for (granule, written) in inv.rows {
                let row = &mut self.holding_mut(node, granule).row;
                row.is_valid |= row.version == written.version || !own_only;
            }
        }
        self.apply_received(node, pipeline);
    }
}
