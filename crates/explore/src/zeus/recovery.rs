//! Epochs, the replay of dead coordinators, the barrier, and copies of the directory.

use super::data::{NodeId, Pipeline, Record, Set};
use super::messages::{Inv, Message};
use super::rules::Rule;
use super::state::{Configuration, Coordinated, Holding, Node, PendingRecord, Status};
use super::step::Step;
use std::collections::BTreeMap;

impl Node {
    /// A node that knows nothing: it is dead, or has just started.
    pub(super) fn empty(nodes: usize, granules: usize) -> Node {
        let view = Configuration { epoch: 0, live: Set::default(), since: vec![0; nodes] };
        Node {
            is_alive: false,
            view,
            is_copying: false,
            holdings: vec![Holding::empty(); granules],
            pipelines: [Coordinated::default(), Coordinated::default()],
            followed: BTreeMap::new(),
            replays: BTreeMap::new(),
            barrier: false,
            collected: BTreeMap::new(),
        }
    }
}

impl Step<'_> {
    /// The node has not copied the directory yet: it counts as an arbiter and answers nothing.
    pub(super) fn is_silent(&self, node: NodeId) -> bool {
        self.node(node).is_copying && self.keeps(Rule::AnswerAfterCopy)
    }

    pub(super) fn passed_barrier(&self, node: NodeId) -> bool {
        self.node(node).barrier || !self.keeps(Rule::Barrier)
    }

    /// All live nodes have reported that they have replayed, which the model shows by one action instead of messages.
    pub(super) fn can_pass_barrier(&self, node: NodeId) -> bool {
        let at = self.node(node);
        let has_replayed = |other: NodeId| {
            let other = self.node(other);
            other.is_alive && other.view.epoch == at.view.epoch && other.replays.is_empty()
        };
        let is_in = at.is_alive && at.view.live.has(node);
        is_in && !at.barrier && at.view.live.iter().all(has_replayed)
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        *self.node_mut(node) = Node::empty(self.state.nodes.len(), self.scenario.granules.len());
        for number in 0..self.scenario.transactions.len() {
            let state = &mut self.state.transactions[number];
            let is_there = self.scenario.transactions[number].node == node;
            if is_there && state.status != Status::Answered {
                state.status = Status::Lost;
                state.seen.clear();
            }
        }
    }

    /// The manager begins an epoch without this node.
    pub(super) fn remove(&mut self, node: NodeId) {
        let configuration = &mut self.state.configuration;
        configuration.epoch += 1;
        configuration.live = configuration.live.without(node);
    }

    /// The manager begins an epoch with this node, which was out.
    pub(super) fn let_in(&mut self, node: NodeId) {
        let configuration = &mut self.state.configuration;
        configuration.epoch += 1;
        configuration.live = configuration.live.with(node);
        configuration.since[usize::from(node)] = configuration.epoch;
        self.node_mut(node).is_alive = true;
    }

    /// A node learns of the epoch that the manager has begun.
    pub(super) fn adopt(&mut self, node: NodeId) {
        let configuration = self.state.configuration.clone();
        let old = self.node(node).view.clone();
        let was_out = configuration.since[usize::from(node)] != old.since[usize::from(node)];
        if was_out {
            self.forget(node);
        }
        let by_since = self.keeps(Rule::Since);
        let is_dead = |other: &NodeId| {
            let at = usize::from(*other);
            let was_away = configuration.since[at] != old.since[at] || !old.live.has(*other);
            !configuration.live.has(*other) || (by_since && was_away && *other != node)
        };
        let dead: Set = self.state.node_ids().filter(is_dead).fold(Set::default(), Set::with);
        self.node_mut(node).view = configuration;
        self.strip(node, dead);
        self.collect_replays(node, dead);
        if was_out && self.scenario.directory.has(node) {
            self.node_mut(node).is_copying = true;
            let others = self.directory(node).without(node);
            self.send_to_all(node, others, &Message::CopyRequest);
        }
        self.repeat_commits(node);
        self.repeat_replays(node);
    }

    /// A node that was out drops everything.
    fn forget(&mut self, node: NodeId) {
        let keeps_rows = !self.keeps(Rule::DropOnReturn);
        let empty = Node::empty(self.state.nodes.len(), self.scenario.granules.len());
        let old = std::mem::replace(self.node_mut(node), Node { is_alive: true, ..empty });
        if keeps_rows {
            self.node_mut(node).holdings = old.holdings;
        }
        for number in 0..self.scenario.transactions.len() {
            if self.scenario.transactions[number].node != node {
                continue;
            }
            match self.state.transactions[number].status {
                Status::Pending => self.state.transactions[number].status = Status::Lost,
                Status::Reading { .. } => self.restart(number),
                Status::Waiting | Status::Answered | Status::Lost => {}
            }
        }
    }

    /// Takes dead nodes out of everything that the node knows.
    fn strip(&mut self, node: NodeId, dead: Set) {
        let discards = self.keeps(Rule::DiscardOldAcks);
        let at = self.node_mut(node);
        at.barrier = false;
        for holding in &mut at.holdings {
            holding.record.strip(dead);
            if let Some(PendingRecord { inv, .. }) = &mut holding.pending {
                inv.record.strip(dead);
                inv.replaced.strip(dead);
                inv.arbiters = inv.arbiters.minus(dead);
            }
        }
        for slot in at.pipelines.iter_mut().flat_map(|worker| &mut worker.pending) {
            slot.inv.followers = slot.inv.followers.minus(dead);
        }
        if discards {
            at.collected.clear();
        }
        for collected in at.collected.values_mut() {
            collected.needed = collected.needed.minus(dead);
            collected.ack.inv.record.strip(dead);
        }
    }

    /// Finds what has to be replayed of dead coordinators: what was applied. What was not dies with the epoch.
    fn collect_replays(&mut self, node: NodeId, dead: Set) {
        let (applied_only, forgets) =
            (self.keeps(Rule::ReplayApplied), self.keeps(Rule::ForgetUnapplied));
        let at = self.node_mut(node);
        at.replays.clear();
        let mut followed = std::mem::take(&mut at.followed);
        for (pipeline, of) in &mut followed {
            let is_orphan = at.is_orphan(*pipeline);
            if is_orphan && !applied_only {
                of.pending.append(&mut of.received);
            }
            if forgets {
                of.received.clear();
            }
            for (slot, inv) in &mut of.pending {
                inv.followers = inv.followers.minus(dead);
                if is_orphan {
                    at.replays.insert((*pipeline, *slot), Set::default());
                }
            }
        }
        at.followed = followed;
    }

    /// Sends the R-INVs of dead coordinators again.
    pub(super) fn repeat_replays(&mut self, node: NodeId) {
        let at = self.node(node);
        let mut sent = Vec::new();
        for (pipeline, slot) in at.replays.keys() {
            let followed = &at.followed[pipeline];
            let mut inv = followed.pending[slot].clone();
            inv.previous_validated = followed.validated + 1 >= *slot;
            sent.push(inv);
        }
        for inv in sent {
            let followers = inv.followers.without(node);
            self.send_to_all(node, followers, &Message::ReplicationInv(inv));
        }
        self.validate_replays(node);
    }

    /// Validates replayed slots that all live followers have acknowledged, in order.
    pub(super) fn validate_replays(&mut self, node: NodeId) {
        while let Some((pipeline, slot, told)) = self.first_validated(node) {
            self.on_replication_val(node, pipeline, slot);
            self.send_to_all(node, told, &Message::ReplicationVal { pipeline, slot });
        }
    }

    /// A replayed slot that can be validated, and the nodes that have to know.
    fn first_validated(&self, node: NodeId) -> Option<(Pipeline, u8, Set)> {
        let at = self.node(node);
        let mut last = None;
        for ((pipeline, slot), acknowledged) in &at.replays {
            let is_first = last != Some(*pipeline);
            last = Some(*pipeline);
            let followers = at.followed[pipeline].pending[slot].followers;
            let missing = followers.minus(*acknowledged).without(node);
            if is_first && missing.is_empty() {
                let slots = at.followed[pipeline].pending.values();
                let told = slots.fold(Set::default(), |told, inv| told.and(inv.followers));
                return Some((*pipeline, *slot, told.without(node)));
            }
        }
        None
    }

    pub(super) fn on_copy_request(&mut self, node: NodeId, from: NodeId) {
        if self.node(node).is_copying {
            return;
        }
        let pending_too = self.keeps(Rule::CopyPending);
        let copied = self.node(node).holdings.iter().map(|holding| {
            let pending = holding.pending.as_ref().filter(|_| pending_too);
            (holding.record, pending.map(|pending| pending.inv.clone()))
        });
        let copied = copied.collect();
        self.send(node, from, Message::Copy(copied));
    }

    pub(super) fn on_copy(&mut self, node: NodeId, records: Vec<(Record, Option<Inv>)>) {
        if !self.node(node).is_copying {
            return;
        }
        self.node_mut(node).is_copying = false;
        for (granule, (record, pending)) in (0..).zip(records) {
            let holding = self.holding_mut(node, granule);
            holding.hint = holding.hint.max(record.o_ts);
            holding.record = record;
            holding.pending = pending.map(|inv| PendingRecord {
                inv,
                is_answered: false,
                is_acknowledged: false,
            });
            self.acknowledge(node, granule);
        }
    }
}
