//! One step of the model: the state that an action changes, and how messages are sent and received.

use super::data::{Granule, NodeId, Set};
use super::messages::{Envelope, Message};
use super::rules::{Rule, Rules};
use super::scenarios::Scenario;
use super::state::{Holding, Node, State};
use crate::model::Violation;
use std::rc::Rc;

/// The state while an action changes it. The parts of the protocol are methods of this, in a file each.
pub(super) struct Step<'a> {
    pub scenario: &'a Scenario,
    pub rules: Rules,
    pub state: State,
    /// The rule that was broken first.
    pub violation: Option<Violation>,
    /// The owner delays its acknowledgement for a transaction of its own, if it may.
    pub holds: bool,
}

impl Step<'_> {
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.rules.keeps(rule)
    }

    pub(super) fn break_rule(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    pub(super) fn node(&self, node: NodeId) -> &Node {
        &self.state.nodes[node as usize]
    }

    pub(super) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        Rc::make_mut(&mut self.state.nodes[node as usize])
    }

    pub(super) fn holding(&self, node: NodeId, granule: Granule) -> &Holding {
        self.state.holding(node, granule)
    }

    pub(super) fn holding_mut(&mut self, node: NodeId, granule: Granule) -> &mut Holding {
        &mut self.node_mut(node).holdings[granule as usize]
    }

    /// The directory nodes that are live as far as `node` has learned.
    pub(super) fn directory(&self, node: NodeId) -> Set {
        self.scenario.directory.common(self.node(node).view.live)
    }

    pub(super) fn granules(&self) -> impl Iterator<Item = Granule> + use<> {
        0..self.scenario.granules.len() as Granule
    }

    /// A message to itself is handled at once.
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        if from == to {
            return self.receive(to, from, message);
        }
        let epoch = self.node(from).view.epoch;
        self.state.network.insert(Rc::new(Envelope { to, from, epoch, message }));
    }

    pub(super) fn send_to_all(&mut self, from: NodeId, to: Set, message: &Message) {
        to.iter().for_each(|to| self.send(from, to, message.clone()));
    }

    pub(super) fn receive(&mut self, node: NodeId, from: NodeId, message: Message) {
        match message {
            Message::Request { granule, kind, as_of } => {
                self.on_request(node, from, granule, kind, as_of);
            }
            Message::Nack { granule, record } => self.on_nack(node, granule, record),
            Message::Inv(inv) => self.on_inv(node, from, inv),
            Message::Ack(ack) => self.on_ack(node, from, ack),
            Message::Val { granule, record } => self.on_val(node, granule, record),
            Message::ReplicationInv(inv) => self.on_replication_inv(node, from, inv),
            Message::ReplicationAck { pipeline, slot } => {
                self.on_replication_ack(node, from, pipeline, slot);
            }
            Message::ReplicationVal { pipeline, slot } => {
                self.on_replication_val(node, pipeline, slot);
            }
            Message::CopyRequest => self.on_copy_request(node, from),
            Message::Copy(records) => self.on_copy(node, records),
        }
    }

    /// Removes messages that cannot have an effect any more, so that states that differ in them only are one.
    pub(super) fn collect_garbage(&mut self) {
        let old_are_heard = !self.keeps(Rule::Epochs);
        let State { network, nodes, configuration, .. } = &mut self.state;
        network.retain(|envelope| {
            let to = &nodes[envelope.to as usize];
            let is_old = envelope.epoch < to.view.epoch && !old_are_heard;
            let is_in_vain = envelope.epoch > to.view.epoch && !configuration.live.has(envelope.to);
            to.is_alive && !is_old && !is_in_vain
        });
    }

    /// Fires the timers of a node: what was not answered is sent again; requests only if it `asks`.
    pub(super) fn fire_timers(&mut self, node: NodeId, asks: bool) {
        self.repeat_commits(node);
        self.repeat_replays(node);
        if self.node(node).is_copying {
            let others = self.directory(node).without(node);
            self.send_to_all(node, others, &Message::CopyRequest);
        }
        for granule in self.granules() {
            self.acknowledge(node, granule);
            self.complete_collected(node, granule);
            self.replay_record(node, granule);
            if asks {
                self.repeat_request(node, granule);
            }
        }
    }
}
