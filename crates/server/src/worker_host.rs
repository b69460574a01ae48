//! A worker on its event loop: frames become events, effects become frames.
//!
//! Invariant: nothing blocks here. When a step ends, all effects of the worker are in the loop's outbox, or with the
//! manager of this process.

use crate::disks::{self, CheckpointToRead};
use crate::end_reason::EndReason;
use crate::envelope::Envelope;
use crate::manager::{FromOperator, InputSender, ManagerInput, OperatorRefusal, ToOperator};
use crate::slow::SlowLog;
use crate::status::{self, StatusSource};
use crate::worker_command::WorkerCommand;
use crate::worker_disk::WorkerDisk;
use bytes::Bytes;
use shoal_cluster::manager::{ManagerClient, ToManager, ToNode};
use shoal_cluster::topology::Topology;
use shoal_engine::client::{
    ClientId, ClientReply, Directory, FromClient, ReplyToClient, RequestFromClient, ToClient,
};
use shoal_engine::{Engine, WorkerPlace};
use shoal_net::{
    CoreInput, NetworkLimits, NodeTransactionClock, Outbox, PeerConfig, SharedClusterId,
    SystemClock,
};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, read_parts};
use shoal_raft::LogMembers;
use shoal_store::Store;
use shoal_types::wire::{self, Coded, MessageVersion};
use shoal_types::{NodeId, Rejected, ShardId, Time, WorkerId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Runs one worker on its event loop: frames become events of the worker, and its effects become frames.
pub(crate) struct WorkerHost<E: Engine> {
    node: NodeId,
    worker_id: WorkerId,
    worker: Worker<E>,
    /// The queue of the node's manager inbox, on the worker that exchanges messages with managers.
    manager_inputs: Option<InputSender>,
    /// The node that was asked last for the list of managers.
    asked: usize,
    /// The node whose manager has granted the lease.
    granter: Option<NodeId>,
    /// The identity of the cluster, as soon as the node knows it. `None` without managers.
    pub(crate) identity: Option<SharedClusterId>,
    directory: Directory,
    /// The network of the node.
    worker_hosts: shoal_net::Handle<WorkerCommand>,
    /// The nodes with which the network is set up.
    followed: Arc<Topology>,
    /// The node's copies of shards.
    stores: Vec<(ShardId, Arc<Store>)>,
    /// The outages that were logged last, of shards with a replica here.
    outages: BTreeMap<ShardId, String>,
    /// The nodes that this worker reaches, and the version of messages that it uses with each.
    peers: BTreeMap<NodeId, MessageVersion>,
    /// Whether clients may cut the node off, for tests.
    pub(crate) may_isolate: bool,
    malformed: u64,
    /// The node's transaction clock, for an engine that uses it.
    pub(crate) transaction_clock: Option<NodeTransactionClock>,
    /// When the frame that is being handled arrived; for other inputs, the time of the step.
    arrived: Time,
    slow: SlowLog,
    /// The node's folder, where it has logs.
    pub(crate) data: Option<PathBuf>,
    /// Set where the node ends and is to be started again.
    pub(crate) end_reason: EndReason,
    /// The worker's disk, where the cluster's durability has one.
    pub(crate) disk: Option<WorkerDisk>,
    /// The checkpoint that the worker receives before it starts.
    pub(crate) begins_with: Option<CheckpointToRead>,
    effects: WorkerEffects<E::Message, E::Observation>,
}

impl<E: Engine> WorkerHost<E> {
    /// Has the stages of transactions timed within steps, by the clock of the event loop.
    pub(crate) fn time_stages(&self, clock: SystemClock) {
        self.worker.engine().local().time_stages(move || clock.now());
    }

    pub(crate) fn new(
        place: WorkerPlace,
        worker: Worker<E>,
        manager_inputs: Option<InputSender>,
        topology: Arc<Topology>,
        worker_hosts: shoal_net::Handle<WorkerCommand>,
        stores: Vec<(ShardId, Arc<Store>)>,
    ) -> WorkerHost<E> {
        let WorkerPlace { node, worker: worker_id } = place;
        let routing = E::CLIENT_ROUTING;
        let directory = Directory { topology: Arc::clone(&topology), configuration: None, routing };
        WorkerHost {
            node,
            worker_id,
            worker,
            manager_inputs,
            asked: 0,
            granter: None,
            identity: None,
            outages: BTreeMap::new(),
            directory,
            worker_hosts,
            followed: topology,
            stores,
            peers: BTreeMap::new(),
            may_isolate: false,
            malformed: 0,
            transaction_clock: None,
            arrived: Time::ZERO,
            slow: SlowLog::default(),
            data: None,
            end_reason: EndReason::default(),
            disk: None,
            begins_with: None,
            effects: WorkerEffects::new(),
        }
    }

    /// The inputs of the worker's status.
    fn status_source(&self) -> StatusSource<'_, E> {
        StatusSource {
            node: self.node,
            worker_id: self.worker_id,
            worker: &self.worker,
            topology: self.topology(),
            identity: self.identity.as_ref(),
            manager_inputs: self.manager_inputs.as_ref(),
            stores: &self.stores,
            peers: &self.peers,
            malformed: self.malformed,
            disk: self.disk.as_ref().map(WorkerDisk::status),
        }
    }

    /// Steps the worker with an event, and performs its effects.
    fn step_worker(&mut self, now: Time, event: WorkerEvent<E::Message>, out: &mut Outbox) {
        if let Some(transaction_clock) = &self.transaction_clock {
            self.worker.set_times(transaction_clock.times(now, self.arrived));
        }
        self.worker.step(now, event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects.effects);
        for effect in effects.drain(..) {
            self.perform(now, effect, out);
        }
        self.effects.effects = effects;
        for slow in self.worker.engine_mut().take_slow() {
            let here = WorkerPlace { node: self.node, worker: self.worker_id };
            self.slow.tell(now, here, &slow);
        }
    }

    fn perform(&mut self, now: Time, effect: WorkerEffect<E::Message>, out: &mut Outbox) {
        match effect {
            WorkerEffect::Send { to, message } => {
                let envelope = Envelope::Worker(message);
                let frame = out.encode(|bytes| envelope.put(bytes));
                out.to_worker(to, frame);
            }
            WorkerEffect::Reply(ReplyToClient { to, reply }) => {
                answer(out, to, &ToClient::Reply(reply));
            }
            WorkerEffect::Tell { message } => self.tell_managers(now, &message, out),
            WorkerEffect::Superseded => {
                match self.worker.exceeds() {
                    Some(shard) => tracing::error!(
                        node = %self.node, %shard,
                        "the loss of a shard was accepted while this node was away, which knows more of it: it ends, and \
                         has to begin anew without memory"
                    ),
                    None if self.worker.manager_client().is_some_and(ManagerClient::is_behind) => {
                        tracing::error!(
                            node = %self.node,
                            "this node was away for so long that the managers keep no more how epochs ended of which it has \
                             something in memory: it ends, and has to begin anew without memory"
                        );
                    }
                    None if self
                        .worker
                        .manager_client()
                        .is_some_and(ManagerClient::has_older_disks) =>
                    {
                        tracing::error!(
                            node = %self.node,
                            "the logs of this node are an older image of what they were: they lack the process that was \
                             admitted last, and what it has promised. It ends, and has to begin anew without memory"
                        );
                    }
                    None => {
                        tracing::error!(node = %self.node, "another process of this node is admitted: it ends");
                        return out.stop();
                    }
                }
                if let Some(Err(error)) = self.data.as_deref().map(disks::void) {
                    tracing::error!(node = %self.node, %error, "the node's logs cannot be declared void: move them away");
                }
                self.end_reason.set(format!("{} has to begin anew, without memory", self.node));
                out.stop();
            }
            WorkerEffect::Write { records } => self.disk().write(records),
            WorkerEffect::Checkpoint(step) => self.disk().checkpoint(step),
            WorkerEffect::Timer { at } => out.timer(at),
            WorkerEffect::Nudge { worker } => out.nudge(worker),
        }
    }

    /// The disk to which streams that are recorded are written.
    fn disk(&self) -> &WorkerDisk {
        self.disk.as_ref().expect("streams are recorded where there is a disk")
    }

    /// Has the worker receive the checkpoint that it begins with, and start.
    fn begin(&mut self, now: Time, out: &mut Outbox) {
        if let Some(CheckpointToRead { mut folder, identity, parts }) = self.begins_with.take() {
            let read = read_parts(&mut folder, identity, &parts, |event| {
                self.step_worker(now, event, out);
            });
            if let Err(error) = read {
                tracing::error!(node = %self.node, %error, "a checkpoint that was whole cannot be read: the node ends");
                self.end_reason.set(format!("{} cannot read its checkpoint: {error}", self.node));
                return out.stop();
            }
        }
        self.step_worker(now, WorkerEvent::Start, out);
    }

    fn tell_managers(&mut self, now: Time, message: &ToManager, out: &mut Outbox) {
        let Some(manager_inputs) = &self.manager_inputs else { return };
        let (version, mut managers) = manager_inputs.managers();
        let lease_left = self.worker.lease_end() - now;
        if matches!(message, ToManager::Heartbeat { .. })
            && lease_left > manager_inputs.lease / 2
            && let Some(granter) = self.granter.filter(|granter| managers.contains(granter))
        {
            // That manager leads, and heartbeats are of no use to the others.
            managers = vec![granter];
        }
        if lease_left.is_zero() {
            // The managers may have changed; some node knows the new ones.
            let topology = self.topology();
            let nodes: Vec<NodeId> = topology.members().map(|node| node.id).collect();
            self.asked = (self.asked + 1) % nodes.len();
            managers.extend(Some(nodes[self.asked]).filter(|node| !managers.contains(node)));
        }
        for manager in managers {
            let message = message.clone();
            if manager == self.node {
                self.post(ManagerInput::FromNode { from: self.node, version, message });
            } else {
                send_urgent(out, manager, &Envelope::<E::Message>::ToManager { version, message });
            }
        }
    }

    fn on_manager_message(&mut self, now: Time, from: NodeId, message: ToNode, out: &mut Outbox) {
        if !self.belongs(from, &message) {
            return;
        }
        self.correct_former(from);
        let before = self.worker.lease_end();
        self.step_worker(now, WorkerEvent::FromManager { message }, out);
        if self.worker.lease_end() > before {
            self.granter = Some(from);
        }
        self.log_outages();
        self.follow_nodes(out);
    }

    /// The nodes, shards and tables of the configuration; before there is one, those of the node's file.
    fn topology(&self) -> &Arc<Topology> {
        let configuration = self.worker.configuration();
        configuration.map_or(&self.directory.topology, |configuration| &configuration.topology)
    }

    /// Sets the network up for the nodes that were added, and without those that were removed.
    fn follow_nodes(&mut self, out: &mut Outbox) {
        let topology = Arc::clone(self.topology());
        if Arc::ptr_eq(&topology, &self.followed) {
            return;
        }
        let own = |topology: &Topology| topology.node(self.node).map(|node| node.name.clone());
        let (told, file) = (own(&topology), own(&self.directory.topology));
        if told != file {
            tracing::error!(
                node = %self.node, ?told, ?file,
                "the cluster gives another name to this node's number than its topology file does: it ends; write the file \
                 anew, with `shoal nodes topology`"
            );
            return out.stop();
        }
        let known = self.followed.nodes().len();
        for node in topology.nodes() {
            let was_removed = self.followed.node(node.id).is_some_and(|node| node.removed);
            match &node.address {
                _ if node.removed && !was_removed => {
                    tracing::info!(here = %self.node, node = %node.id, name = node.name, "a node is removed");
                    self.worker_hosts.remove_peer(node.id);
                }
                Some(address) if node.id.0 as usize >= known => {
                    tracing::info!(here = %self.node, node = %node.id, name = node.name, address, "a node is added");
                    let (node, address) = (node.id, address.clone());
                    let datacenter = topology.nodes()[node.0 as usize].datacenter;
                    self.worker_hosts.set_peer(&PeerConfig { node, address, datacenter });
                }
                Some(_) | None => {}
            }
        }
        self.followed = Arc::clone(&topology);
        self.post(ManagerInput::Topology(topology));
    }

    /// Cuts the node off from all others, or ends that. Returns the new state.
    fn isolate(&self, isolated: bool) -> bool {
        let others = self.topology().members().filter(|other| other.id != self.node);
        match isolated {
            true => others.for_each(|other| {
                self.worker_hosts.set_link_faults(other.id, shoal_net::LinkFaults::CUT);
            }),
            false => self.worker_hosts.heal(),
        }
        isolated
    }

    /// Asks the manager inbox to send the list of managers to a node that was a manager and may not know that
    /// it was removed.
    fn correct_former(&mut self, from: NodeId) {
        let Some((version, managers)) = self.manager_inputs.as_ref().map(InputSender::managers)
        else {
            return;
        };
        if version > 0 && !managers.contains(&from) {
            self.post(ManagerInput::Members { from, members: LogMembers::default() });
        }
    }

    /// Logs when a shard of this node cannot be served any more, and why, and when it can again.
    fn log_outages(&mut self) {
        let Some(configuration) = self.worker.configuration() else { return };
        for (shard, _) in &self.stores {
            let outage = status::outage(configuration, *shard);
            if outage.as_ref() == self.outages.get(shard) {
                continue;
            }
            match outage {
                Some(outage) => {
                    tracing::warn!(node = %self.node, %shard, outage, "a shard cannot be served");
                    self.outages.insert(*shard, outage);
                }
                None => {
                    tracing::info!(node = %self.node, %shard, "a shard can be served again");
                    self.outages.remove(shard);
                }
            }
        }
    }

    /// Whether a manager's message is about the cluster of this node, which is that of the first
    /// configuration it receives. The network learns the identity before the worker does: from then on it
    /// drops what others had sent to a node of another cluster, or of none.
    fn belongs(&mut self, from: NodeId, message: &ToNode) -> bool {
        let told = message.configuration().and_then(|configuration| configuration.cluster);
        let (Some(identity), Some(cluster)) = (&self.identity, told) else { return true };
        let is_news = identity.get().is_none();
        let belongs = identity.learn(cluster);
        if !belongs {
            self.malformed += 1;
            tracing::error!(
                node = %self.node, %from, own = identity.get().map(tracing::field::display), other = %cluster,
                "a manager belongs to another cluster than this node"
            );
        } else if is_news {
            tracing::info!(node = %self.node, %cluster, "this node has joined its cluster");
            self.post(ManagerInput::Joined(cluster));
        }
        belongs
    }

    /// Sends an input to the node's manager inbox. Inputs without an inbox, or without room, are dropped,
    /// which is legal.
    fn post(&mut self, manager_input: ManagerInput) {
        match &self.manager_inputs {
            Some(manager_inputs) => manager_inputs.post(manager_input),
            None => self.malformed += 1,
        }
    }

    fn on_peer_frame(&mut self, now: Time, sender: WorkerPlace, frame: &Bytes, out: &mut Outbox) {
        let Ok(envelope) = wire::decode::<Envelope<E::Message>>(frame) else {
            self.malformed += 1;
            tracing::warn!(node = %self.node, from = %sender, "a malformed frame of a peer");
            return;
        };
        let from = sender.node;
        match envelope {
            Envelope::Worker(message) => {
                self.step_worker(now, WorkerEvent::Received { from: sender, message }, out);
            }
            // All other frames go between the first workers.
            _ if sender.worker != self.worker_id => self.malformed += 1,
            // The sender was a manager when it sent this, and its message was true then.
            Envelope::ToNode(message) if self.manager_inputs.is_some() => {
                self.on_manager_message(now, from, message, out);
            }
            Envelope::ToNode(_) => self.malformed += 1,
            Envelope::ToManager { version, message } => {
                self.post(ManagerInput::FromNode { from, version, message });
            }
            Envelope::Ask { number, question } => {
                self.post(ManagerInput::Ask { from, number, question });
            }
            Envelope::Answer { number, answer } => {
                self.post(ManagerInput::Answer { from, number, answer });
            }
            Envelope::Members(members) => self.post(ManagerInput::Members { from, members }),
        }
    }

    fn on_operator_frame(
        &mut self,
        client: shoal_net::ConnectedClient,
        frame: &Bytes,
        out: &mut Outbox,
    ) {
        let Ok(wanted) = wire::decode::<FromOperator>(frame) else {
            self.malformed += 1;
            return out.close_client(client, "malformed frame");
        };
        match &self.manager_inputs {
            Some(manager_inputs) => manager_inputs.post(ManagerInput::Operator { client, wanted }),
            None => {
                let told = ToOperator::Refused(OperatorRefusal::NoManagers);
                let frame = out.encode(|bytes| told.put(bytes));
                out.to_client(client, frame);
            }
        }
    }

    /// Whether the node does not know its cluster yet.
    fn is_without_cluster(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.get().is_none())
    }

    fn on_client_frame(
        &mut self,
        now: Time,
        client: shoal_net::ConnectedClient,
        frame: &Bytes,
        out: &mut Outbox,
    ) {
        let from = ClientId(client.0);
        match wire::decode::<FromClient>(frame) {
            // The request may be meant for another cluster, and would wait here until this node has joined
            // its own.
            Ok(FromClient::Request(_)) if self.is_without_cluster() => {
                out.close_client(client, "this node has not joined its cluster yet");
            }
            Ok(FromClient::Request(request)) => {
                self.step_worker(
                    now,
                    WorkerEvent::Client(RequestFromClient { from, request }),
                    out,
                );
            }
            Ok(FromClient::Directory) => {
                let configuration = self.worker.configuration().cloned();
                let directory = Directory { configuration, ..self.directory.clone() };
                answer(out, from, &ToClient::Directory(directory));
            }
            Ok(FromClient::Status) => {
                answer(out, from, &ToClient::Status(status::json(&self.status_source(), now)));
            }
            Ok(FromClient::Isolate(isolated)) => {
                let isolated = self.may_isolate && self.isolate(isolated);
                answer(out, from, &ToClient::Isolated(isolated));
            }
            Err(_) => {
                self.malformed += 1;
                out.close_client(client, "malformed frame");
            }
        }
    }

    fn command(&mut self, now: Time, command: WorkerCommand, out: &mut Outbox) {
        match command {
            WorkerCommand::FromManager(message) => {
                self.on_manager_message(now, self.node, message, out);
            }
            // Messages between managers are urgent: leases depend on them.
            WorkerCommand::Send { to, frame } => out.to_peer_urgent(to, frame),
            WorkerCommand::Spawn(make) => {
                let task = make(&self.worker.engine().local());
                self.worker.engine_mut().spawn(task);
                self.step_worker(now, WorkerEvent::Nudged, out);
            }
            WorkerCommand::Look(asker) => {
                // The caller may have given up.
                let _ = asker.send(status::of(&self.status_source(), now));
            }
            WorkerCommand::TakeDiskNews => {
                for news in self.disk().take_news() {
                    self.step_worker(now, news.into(), out);
                }
            }
            WorkerCommand::Answer { client, frame } => out.to_client(client, frame),
        }
    }
}

/// Sends it ahead of queued frames: a lease must not run out behind the streams' data.
fn send_urgent<M: Coded>(out: &mut Outbox, to: NodeId, envelope: &Envelope<M>) {
    let frame = out.encode(|bytes| envelope.put(bytes));
    out.to_peer_urgent(to, frame);
}

fn answer(out: &mut Outbox, to: ClientId, told: &ToClient) {
    let mut frame = out.encode(|bytes| told.put(bytes));
    if let Some(instead) = too_long(told, frame.len(), NetworkLimits::default().frame_bytes_max) {
        frame = out.encode(|bytes| instead.put(bytes));
    }
    out.to_client(shoal_net::ConnectedClient(to.0), frame);
}

/// The reply in place of one that takes so many bytes, if that is longer than a frame may be and only lacks
/// results of reads: a frame that is too long would cost the client its connection.
fn too_long(told: &ToClient, bytes: usize, max: usize) -> Option<ToClient> {
    match told {
        &ToClient::Reply(ClientReply::Done { session, number, result: Ok(_) }) if bytes > max => {
            let result = Err(Rejected::AnswerTooLong { bytes, max }.into());
            Some(ToClient::Reply(ClientReply::Done { session, number, result }))
        }
        _ => None,
    }
}

impl<E: Engine + 'static> shoal_net::Core for WorkerHost<E> {
    type Command = WorkerCommand;

    fn step(&mut self, now: Time, input: CoreInput<WorkerCommand>, out: &mut Outbox) {
        self.arrived = match input {
            CoreInput::FromPeer { arrived, .. } | CoreInput::FromClient { arrived, .. } => arrived,
            CoreInput::Started
            | CoreInput::FromOperator { .. }
            | CoreInput::PeerUp { .. }
            | CoreInput::PeerDown { .. }
            | CoreInput::ClientGone { .. }
            | CoreInput::Timer
            | CoreInput::Nudged
            | CoreInput::Command(_) => now,
        };
        match input {
            CoreInput::Started => self.begin(now, out),
            CoreInput::FromPeer { from, frame, .. } => self.on_peer_frame(now, from, &frame, out),
            CoreInput::FromClient { client, frame, .. } => {
                self.on_client_frame(now, client, &frame, out);
            }
            CoreInput::FromOperator { client, frame } => {
                self.on_operator_frame(client, &frame, out);
            }
            CoreInput::Timer => self.step_worker(now, WorkerEvent::Timer, out),
            CoreInput::Nudged => self.step_worker(now, WorkerEvent::Nudged, out),
            CoreInput::Command(command) => self.command(now, command, out),
            CoreInput::PeerUp { node, instance, version } => {
                self.peers.insert(node, version);
                tracing::info!(here = %self.node, worker = %self.worker_id, %node, instance, %version, "peer up");
            }
            CoreInput::PeerDown { node } => {
                self.peers.remove(&node);
                tracing::info!(here = %self.node, worker = %self.worker_id, %node, "peer down");
            }
            // Its sessions time out.
            CoreInput::ClientGone { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::operation::OperationResult;

    #[test]
    fn only_what_was_read_is_too_long_for_an_answer() {
        let done = |result| ToClient::Reply(ClientReply::Done { session: 3, number: 7, result });
        let read = done(Ok(OperationResult::Value(Some(Bytes::from_static(b"long")))));
        assert_eq!(too_long(&read, 100, 100), None);
        let refused = done(Err(Rejected::AnswerTooLong { bytes: 101, max: 100 }.into()));
        assert_eq!(too_long(&read, 101, 100), Some(refused.clone()));
        assert_eq!(too_long(&refused, 101, 100), None);
        assert_eq!(too_long(&ToClient::Status(Bytes::new()), 101, 100), None);
    }
}
