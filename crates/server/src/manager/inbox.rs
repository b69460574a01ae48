//! The manager inbox of a node: handles its inputs to managers, whether it hosts one or not.

use super::bootstrap::Bootstrap;
use super::change::{ChangeContext, ChangeTask, PendingChange, RequestedChange};
use super::folder::{LogStorage, ManagerFolder};
use super::host::ManagerHost;
use super::input::ManagerInput;
use super::operator::{FromOperator, OperatorRefusal, RecoveryStage, ToOperator};
use super::recovery::{AcceptedRecovery, ListHolder, ManagerRecovery};
use super::rpc::Rpc;
use super::shared_status::SharedStatus;
use crate::envelope::{Envelope, Hosting, RpcReply, RpcRequest};
use crate::worker_command::WorkerCommand;
use shoal_cluster::manager::{
    self, Ask, Assignment, CarriedLog, ChangeRefusal, Manager, ManagerEvent, ManagerOptions,
    StateMachine, ToManager,
};
use shoal_cluster::topology::Topology;
use shoal_net::SystemClock;
use shoal_raft::{LogMembers, RequestRefusal, Stopped, Volume};
use shoal_types::wire::encode;
use shoal_types::{ClusterId, NodeId, Random, ShardId, Time};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The parameters of a manager inbox.
#[derive(Debug)]
pub(crate) struct ManagerPlan {
    pub(crate) node: NodeId,
    pub(crate) topology: Arc<Topology>,
    pub(crate) options: ManagerOptions,
    pub(crate) log: shoal_raft::RaftOptions,
    /// The folder of the log and of the list of managers. `None` for memory, for a node that runs once.
    pub(crate) data: Option<PathBuf>,
    /// The source of volumes.
    pub(crate) random: Random,
}

/// Handles what a node's workers and other nodes send to managers, whether this node hosts one or not.
pub(super) struct ManagerInbox {
    pub(super) plan: ManagerPlan,
    /// The latest topology of a configuration that this node knows; before there is one, that of its file.
    pub(super) topology: Arc<Topology>,
    pub(super) folder: ManagerFolder,
    pub(super) shared_status: Arc<SharedStatus>,
    pub(super) rpc: Rpc,
    pub(super) clock: SystemClock,
    /// The manager that is hosted here.
    pub(super) manager_host: Option<ManagerHost>,
    /// The task that founds the cluster; it is aborted when this is dropped.
    bootstrap_task: Option<ChangeTask<()>>,
    change: Option<PendingChange>,
    /// The recovery in progress.
    pub(super) recovery: Option<ManagerRecovery>,
    /// The operator's number of the finished recovery, and the managers since.
    pub(super) recovered: Option<(u64, Vec<NodeId>)>,
}

impl ManagerInbox {
    pub(super) fn new(
        mut plan: ManagerPlan,
        shared_status: Arc<SharedStatus>,
        worker_hosts: shoal_net::Handle<WorkerCommand>,
    ) -> ManagerInbox {
        let clock = shared_status.clock;
        let rpc = Rpc::new(worker_hosts, clock, plan.random.next_u64());
        let folder = ManagerFolder(plan.data.clone());
        ManagerInbox {
            topology: Arc::clone(&plan.topology),
            plan,
            folder,
            shared_status,
            rpc,
            clock,
            manager_host: None,
            bootstrap_task: None,
            change: None,
            recovery: None,
            recovered: None,
        }
    }

    /// Runs until the node has ended; with a manager from the beginning, if there is storage for it.
    pub(super) async fn work(
        &mut self,
        storage: Option<LogStorage>,
        input_queue: &mut mpsc::Receiver<ManagerInput>,
    ) -> Result<(), Stopped> {
        if let Some(storage) = storage {
            self.open(storage).await?;
            self.found();
        }
        loop {
            let left = self.manager_host.as_ref().and_then(ManagerHost::left);
            tokio::select! {
                manager_input = input_queue.recv() => match manager_input {
                    Some(manager_input) => self.read(manager_input).await?,
                    None => return Ok(()),
                },
                () = news(self.manager_host.as_mut()) => {
                    self.with_host(ManagerHost::exchange)?;
                    self.take_heartbeats()?;
                }
                () = sleep(left) => {
                    self.take_heartbeats()?;
                    self.with_host(|manager_host| manager_host.step(ManagerEvent::Timer))?;
                }
            }
            if self.rpc.is_stopped() {
                return Ok(());
            }
            self.follow().await;
        }
    }

    /// Ends the manager that is hosted here.
    pub(super) async fn close(&mut self) {
        (self.bootstrap_task, self.change) = (None, None);
        self.shared_status.close();
        if let Some(manager_host) = self.manager_host.take() {
            manager_host.log.stop().await;
        }
    }

    pub(super) async fn open(&mut self, storage: LogStorage) -> Result<(), Stopped> {
        let new = self.draw_volume();
        let (node, options) = (self.plan.node, &self.plan.log);
        let rpc = self.rpc.clone();
        let machine = StateMachine::new(Arc::clone(&self.plan.topology), self.plan.options.clone());
        let first = machine.clone();
        let (replica, log) = match storage {
            LogStorage::Disk(disk) => {
                shoal_raft::start(node, new, options, first, disk, rpc).await?
            }
            LogStorage::Memory(memory) => {
                shoal_raft::start(node, new, options, first, memory, rpc).await?
            }
        };
        let drawn = ClusterId::draw(&mut self.plan.random);
        let manager = Manager::new(CarriedLog::default(), machine, drawn);
        let mut manager_host =
            ManagerHost::new(manager, replica, log, self.rpc.clone(), self.clock);
        tracing::info!(manager_client = %manager_host.log.me(), "a manager is hosted here");
        self.shared_status.state().log = Some(manager_host.log.clone());
        manager_host.step(ManagerEvent::Timer)?;
        self.manager_host = Some(manager_host);
        Ok(())
    }

    pub(super) fn draw_volume(&mut self) -> Volume {
        Volume(self.plan.random.next_u64() as u32)
    }

    /// If this is the first of the named managers, founds the cluster, unless there is one.
    fn found(&mut self) {
        let node = self.plan.node;
        let Some(manager_host) = &self.manager_host else { return };
        if self.shared_status.named.iter().min() != Some(&node) {
            return;
        }
        let nodes = self.topology.members().map(|other| other.id);
        let bootstrap = Bootstrap {
            log: manager_host.log.clone(),
            rpc: self.rpc.clone(),
            shared_status: Arc::clone(&self.shared_status),
            others: nodes.filter(|other| *other != node).collect(),
            patience: self.patience(),
        };
        self.bootstrap_task = Some(ChangeTask(tokio::spawn(bootstrap.found())));
    }

    /// Longest wait for a reply of another manager inbox, which may have to create a file.
    fn patience(&self) -> Duration {
        2 * self.plan.log.heartbeat
    }

    fn with_host(
        &mut self,
        work: impl FnOnce(&mut ManagerHost) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        self.manager_host.as_mut().map_or(Ok(()), work)
    }

    /// Passes the kept heartbeats to the manager here, if it leads.
    fn take_heartbeats(&mut self) -> Result<(), Stopped> {
        let lease = self.plan.options.lease.as_nanos() as u64;
        let since = Time(self.clock.now().0.saturating_sub(lease));
        let Some(manager_host) =
            self.manager_host.as_mut().filter(|manager_host| manager_host.leads())
        else {
            return Ok(());
        };
        let heartbeats = self.shared_status.state().take_heartbeats(since);
        let events = heartbeats.into_iter();
        manager_host.steps(events.map(|(from, (at, message))| ManagerEvent::Received {
            from,
            at,
            message,
        }))
    }

    async fn read(&mut self, manager_input: ManagerInput) -> Result<(), Stopped> {
        match manager_input {
            ManagerInput::FromNode {
                from,
                version,
                message: ToManager::Recalled { generation, recollection },
            } => {
                if let Some(recovery) = &mut self.recovery {
                    let now = self.clock.now();
                    recovery.on_answer(
                        now,
                        ListHolder { node: from, version },
                        generation,
                        recollection,
                        self.plan.node,
                    );
                }
            }
            ManagerInput::FromNode { from, version, message } => {
                self.correct(from, version);
                let at = self.clock.now();
                self.with_host(|manager_host| {
                    manager_host.step(ManagerEvent::Received { from, at, message })
                })?;
            }
            ManagerInput::Ask { from, number, question: RpcRequest::Log(request) } => {
                self.serve(from, number, request);
            }
            ManagerInput::Ask { from, number, question: RpcRequest::Host { on_disk } } => {
                let answer = self.host(on_disk).await?;
                self.rpc.send(from, &Envelope::Answer { number, answer });
            }
            ManagerInput::Answer { from, number, answer } => {
                self.rpc.answered(from, number, answer);
            }
            ManagerInput::Members { from, members } => {
                let version = members.version;
                self.learn(members);
                self.correct(from, version);
            }
            ManagerInput::Joined(cluster) => {
                if let Err(error) = self.folder.keep_cluster(cluster) {
                    tracing::warn!(node = %self.plan.node, %error, "the identity of the cluster is not stored");
                }
            }
            ManagerInput::Topology(topology) => self.topology = topology,
            ManagerInput::Operator { client, wanted } => {
                let reply = match wanted.clone() {
                    FromOperator::ReplaceManager { outgoing, incoming } => {
                        self.change(RequestedChange::Replace { outgoing, incoming }).await
                    }
                    FromOperator::AddManagers { first, second } => {
                        self.change(RequestedChange::Add([first, second])).await
                    }
                    FromOperator::CheckRecovery => self.recover(None).await?,
                    FromOperator::RecoverManagers { number, silent, lost } => {
                        self.recover(Some(AcceptedRecovery { number, silent, lost })).await?
                    }
                    FromOperator::CheckLoss { shard } => self.check_loss(shard),
                    FromOperator::AcceptLoss { shard, number, at_s } => {
                        self.accept_loss(shard, number, at_s)?
                    }
                    FromOperator::ReplaceReplica { shard, outgoing, incoming, number } => {
                        self.replace_replica(shard, outgoing, incoming, number)?
                    }
                    FromOperator::AddNode { name, datacenter, address, number } => {
                        let place = AddedNode { name, datacenter, address };
                        self.add_node(place, number)?
                    }
                    FromOperator::RemoveNode { node, number } => self.remove_node(node, number)?,
                };
                tracing::info!(node = %self.plan.node, ?wanted, ?reply, "an operator asks");
                self.rpc.command(WorkerCommand::Answer { client, frame: encode(&reply) });
            }
        }
        Ok(())
    }

    /// Sends the list of managers to another manager inbox, if that has an older one.
    fn correct(&self, other: NodeId, version: u64) {
        if version < self.shared_status.version() && other != self.plan.node {
            self.rpc.send(other, &Envelope::Members(self.shared_status.known()));
        }
    }

    fn learn(&self, members: LogMembers) {
        if !self.shared_status.learn(members) {
            return;
        }
        let known = self.shared_status.known();
        let (version, managers) = (known.version, known.nodes());
        tracing::info!(node = %self.plan.node, version, ?managers, "the managers");
        if let Err(error) = self.folder.keep(&known) {
            tracing::warn!(node = %self.plan.node, %error, "the list of managers is not stored");
        }
    }

    /// Takes the list of managers from the log, and ends the manager here if it was removed.
    pub(super) async fn follow(&mut self) {
        let Some(manager_host) = &self.manager_host else { return };
        if let Some(members) = manager_host.log.members() {
            self.learn(members);
        }
        if manager_host.log.is_dropped(&self.shared_status.known()) {
            tracing::info!(manager_client = %manager_host.log.me(), "it was removed from the managers: it ends");
            self.close().await;
            // If that fails, the log is found at the next start, and the manager ends again.
            if let Err(error) = self.folder.drop_log(&self.shared_status.known()) {
                tracing::warn!(node = %self.plan.node, %error, "its log is not set aside");
            }
        }
        if self.change.as_ref().is_some_and(|change| change.is_forgotten(self.clock.now())) {
            self.change = None;
        }
    }

    /// Has the replica here answer the replica of another manager.
    fn serve(&self, from: NodeId, number: u64, request: bytes::Bytes) {
        let Some(manager_host) = &self.manager_host else { return };
        let (log, rpc) = (manager_host.log.clone(), self.rpc.clone());
        // The sender may be a removed manager that asks a lost volume.
        let known = Some(self.shared_status.known()).filter(|known| !known.nodes().contains(&from));
        tokio::spawn(async move {
            match log.serve(&request).await {
                Ok(response) => {
                    let answer = RpcReply::Log(response);
                    rpc.send(from, &Envelope::Answer { number, answer });
                }
                Err(RequestRefusal::Misdirected { .. }) if let Some(known) = known => {
                    rpc.send(from, &Envelope::Members(known));
                }
                // For a lost volume, for as long as it is a member.
                Err(error) => tracing::debug!(%from, %error, "a manager is not answered"),
            }
        });
    }

    /// Hosts a manager, if none is here.
    async fn host(&mut self, on_disk: bool) -> Result<RpcReply, Stopped> {
        if on_disk && !self.folder.is_kept() {
            return Ok(RpcReply::InMemory);
        }
        if self.manager_host.is_none() {
            let opened = match self.folder.log() {
                Ok(storage) => self.open(storage).await.map_err(|error| error.to_string()),
                Err(error) => Err(format!("it cannot make a log: {error}")),
            };
            if let Err(why) = opened {
                return Ok(RpcReply::CannotHost(why));
            }
        }
        let log = &self.manager_host.as_ref().expect("it is open").log;
        let is_new = log.is_new().await? && self.shared_status.version() == 0;
        Ok(RpcReply::Hosts(Hosting { volume: log.me().volume, is_new }))
    }

    /// The manager that is hosted here, if it leads.
    fn leading(&mut self) -> Result<&mut ManagerHost, ToOperator> {
        let Some(manager_host) = &mut self.manager_host else {
            return Err(ToOperator::NotLeading { leader: None });
        };
        match manager_host.leads() {
            true => Ok(manager_host),
            false => Err(ToOperator::NotLeading { leader: manager_host.log.status().leader }),
        }
    }

    /// Whether the loss of a shard's majority may be accepted, and what survives.
    fn check_loss(&mut self, shard: ShardId) -> ToOperator {
        let machine = match self.leading() {
            Ok(manager_host) => manager_host.machine(),
            Err(reply) => return reply,
        };
        if let Err(why) = machine.check_loss(shard) {
            return ToOperator::Refused(OperatorRefusal::Failed(why.to_string()));
        }
        let configuration = machine.configuration();
        let survivors = machine.survivors(shard);
        let holders = configuration.shard(shard).into_iter().flat_map(Assignment::holders);
        let aside = holders.filter(|node| !survivors.contains(node)).collect();
        let nodes = (0..).map(NodeId).zip(&configuration.nodes);
        let silent = nodes.filter(|(_, standing)| !standing.alive).map(|(node, _)| node).collect();
        ToOperator::MayLose { survivors, aside, silent }
    }

    /// Accepts the loss of a shard's majority, or returns its progress.
    fn accept_loss(
        &mut self,
        shard: ShardId,
        number: u64,
        at_s: u64,
    ) -> Result<ToOperator, Stopped> {
        let manager_host = match self.leading() {
            Ok(manager_host) => manager_host,
            Err(reply) => return Ok(reply),
        };
        let assignment = manager_host.machine().configuration().shard(shard);
        let loss = assignment.and_then(|assignment| assignment.loss.as_ref());
        if let Some(loss) = loss.filter(|loss| loss.number == number) {
            return Ok(ToOperator::Lost(loss.clone()));
        }
        if let Err(why) = manager_host.machine().check_loss(shard) {
            return Ok(ToOperator::Refused(OperatorRefusal::Failed(why.to_string())));
        }
        let change = manager::ClusterChange::AcceptLoss { shard, number, at_s };
        manager_host.step(ManagerEvent::Asked { ask: Ask(number), change })?;
        Ok(ToOperator::UnderWay(RecoveryStage::Accepting))
    }

    /// Has a replica of a shard replaced, or returns the progress.
    fn replace_replica(
        &mut self,
        shard: ShardId,
        outgoing: NodeId,
        incoming: NodeId,
        number: u64,
    ) -> Result<ToOperator, Stopped> {
        let manager_host = match self.leading() {
            Ok(manager_host) => manager_host,
            Err(told) => return Ok(told),
        };
        let machine = manager_host.machine();
        if let Some(stage) = machine.replacement_stage(shard, outgoing, incoming) {
            return Ok(ToOperator::Replacing(stage));
        }
        if let Err(why) = machine.check_replacement(shard, outgoing, incoming) {
            return Ok(ToOperator::Refused(OperatorRefusal::Failed(why.to_string())));
        }
        let change = manager::ClusterChange::ReplaceReplica { shard, outgoing, incoming };
        manager_host.step(ManagerEvent::Asked { ask: Ask(number), change })?;
        Ok(ToOperator::UnderWay(RecoveryStage::Accepting))
    }

    /// Has a node added, or returns the progress.
    fn add_node(&mut self, place: AddedNode, number: u64) -> Result<ToOperator, Stopped> {
        let manager_host = match self.leading() {
            Ok(manager_host) => manager_host,
            Err(told) => return Ok(told),
        };
        let AddedNode { name, datacenter, address } = place;
        let machine = manager_host.machine();
        if let Some(node) = machine.added_node(&name, &datacenter, Some(&address)) {
            return Ok(ToOperator::NodeAdded { node, is_known: machine.are_nodes_known() });
        }
        if let Err(why) = machine.check_addition(&name, &datacenter, Some(&address)) {
            return Ok(ToOperator::Refused(OperatorRefusal::Failed(why.to_string())));
        }
        let change = manager::ClusterChange::AddNode { name, datacenter, address: Some(address) };
        manager_host.step(ManagerEvent::Asked { ask: Ask(number), change })?;
        Ok(ToOperator::UnderWay(RecoveryStage::Accepting))
    }

    /// Has a node removed, or returns the progress.
    fn remove_node(&mut self, node: NodeId, number: u64) -> Result<ToOperator, Stopped> {
        let manager_host = match self.leading() {
            Ok(manager_host) => manager_host,
            Err(told) => return Ok(told),
        };
        let machine = manager_host.machine();
        if machine.is_removed(node) {
            return Ok(ToOperator::NodeRemoved { is_known: machine.are_nodes_known() });
        }
        let members = manager_host.log.status().members;
        if members.nodes().contains(&node) {
            return Ok(ToOperator::Refused(OperatorRefusal::HostsManager(node)));
        }
        match machine.check_removal(node) {
            Ok(()) => {}
            Err(ChangeRefusal::NodeLives(_)) => {
                return Ok(ToOperator::UnderWay(RecoveryStage::Living));
            }
            Err(why) => {
                return Ok(ToOperator::Refused(OperatorRefusal::Failed(why.to_string())));
            }
        }
        let change = manager::ClusterChange::RemoveNode { node };
        manager_host.step(ManagerEvent::Asked { ask: Ask(number), change })?;
        Ok(ToOperator::UnderWay(RecoveryStage::Accepting))
    }

    /// Goes on with a change of the managers, if this manager leads.
    async fn change(&mut self, wanted: RequestedChange) -> ToOperator {
        let Some(manager_host) = &self.manager_host else {
            return ToOperator::NotLeading { leader: None };
        };
        let topology = &manager_host.machine().configuration().topology;
        let is_there = |node: &NodeId| topology.node(*node).is_some_and(|node| !node.removed);
        let unknown = wanted.incoming().iter().find(|node| !is_there(node));
        if let Some(node) = unknown {
            return ToOperator::Refused(OperatorRefusal::NoNode(*node));
        }
        let (log, now) = (&manager_host.log, self.clock.now());
        let status = log.status();
        if status.leader != Some(self.plan.node) {
            return ToOperator::NotLeading { leader: status.leader };
        }
        if let Some(change) = self.change.as_mut().filter(|it| it.is(wanted)) {
            let is_over = change.is_over();
            let reply = change.ask(log, now).await;
            if is_over {
                self.change = None;
            }
            return reply;
        }
        let members = log.members().filter(|members| members.version == status.members.version);
        // An uncommitted list may still change.
        let Some(members) = members else { return ToOperator::UnderWay(RecoveryStage::Voting) };
        if let Some(reply) = wanted.foregone(&members) {
            return reply;
        }
        let way = ChangeContext {
            log: log.clone(),
            rpc: self.rpc.clone(),
            patience: self.patience(),
            on_disk: self.folder.is_kept(),
        };
        self.change = Some(PendingChange::begin(way, wanted, now));
        ToOperator::UnderWay(RecoveryStage::Reaching)
    }
}

/// A node that an operator wants to be added.
struct AddedNode {
    name: String,
    datacenter: String,
    address: String,
}

/// Waits for news of the manager, if there is one.
async fn news(manager_host: Option<&mut ManagerHost>) {
    match manager_host {
        Some(manager_host) => manager_host.news().await,
        None => std::future::pending().await,
    }
}

/// Waits for this time; for ever if it is `None`.
async fn sleep(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
