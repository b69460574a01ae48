//! A cluster within this process.

use super::folder::open_access;
use super::plan::{ClusterPlan, secret};
use super::ready::wait_ready;
use super::removed_folder::RemovedFolder;
use crate::{ask, procedures, report};
use shoal_bench::cluster::{MakeTask, MeasuredCluster, OwnCluster};
use shoal_net::Secret;
use shoal_server::{ConfigError, NodeConfig, NodeStatus, Server, WorkerCommand};
use shoal_types::{Counted, NodeId, ShardId, WorkerId};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// A local cluster whose nodes are threads of this process. It ends when this is dropped.
#[derive(Debug)]
pub struct InProcessCluster {
    addresses: Vec<String>,
    servers: Vec<Server>,
    /// The place of each shard's leader among the servers, at the beginning.
    leaders: Vec<usize>,
    workers: u32,
    /// What the workers of nodes that were stopped had counted.
    stopped: Mutex<Vec<NodeStatus>>,
    /// The folder of the nodes, which goes when they have ended: fields are dropped in this order.
    _folder: Option<RemovedFolder>,
}

impl InProcessCluster {
    /// Starts it, and waits until every shard is served.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn start(plan: &ClusterPlan) -> Result<InProcessCluster, String> {
        let (listeners, addresses) = plan.listen(0).map_err(|error| error.to_string())?;
        let topology = plan.topology(&addresses).map_err(|error| error.to_string())?;
        let names = plan.managers();
        let managers = topology.nodes().iter().filter(|node| names.contains(&node.name));
        let managers: Vec<NodeId> = managers.map(|node| node.id).collect();
        let secret = Secret::new(secret().map_err(|error| error.to_string())?);
        let folder = plan.disk.as_deref().filter(|_| plan.durability.is_on_disk());
        let folder = folder.map(|parent| RemovedFolder::new(parent, "cluster")).transpose();
        let folder = folder.map_err(|error| format!("no folder for the nodes: {error}"))?;
        let config = |node: &shoal_cluster::topology::Node| {
            let config = NodeConfig::new(&topology, node.id, managers.clone(), secret.clone())?;
            let (engine, clock_error) = (plan.engine.clone(), plan.clock_error(node.id));
            let memory_bytes_reserved = plan.memory_bytes_reserved;
            let flush_delay = plan.flush_delay_of(node.id);
            let data = folder.as_ref().map(|folder| folder.path().join(&node.name));
            Ok(NodeConfig {
                engine,
                clock_error,
                memory_bytes_reserved,
                flush_delay,
                data,
                ..config
            })
        };
        let servers = start_all(topology.nodes().iter().map(config), listeners)?;
        let runtime = ask::runtime().map_err(|error| error.to_string())?;
        let report = runtime.block_on(wait_ready(&addresses, &open_access()))?;
        let leaders = report.leaders().into_values().map(|node| node as usize).collect();
        let stopped = Mutex::default();
        let workers = plan.workers;
        Ok(InProcessCluster { addresses, servers, leaders, workers, stopped, _folder: folder })
    }
}

impl MeasuredCluster for InProcessCluster {
    fn counted(&self, _runtime: &Runtime) -> Counted {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report::sum(statuses(&self.servers, self.workers).chain(stopped))
    }
}

/// The statuses of the workers of these nodes, so many of each; without those of nodes that have ended.
pub(super) fn statuses(servers: &[Server], workers: u32) -> impl Iterator<Item = NodeStatus> {
    servers.iter().flat_map(move |server| {
        (0..workers).map(WorkerId).filter_map(|worker| {
            let (told, status) = oneshot::channel();
            server.handle().command(worker, WorkerCommand::Look(told)).ok()?;
            status.blocking_recv().ok()
        })
    })
}

impl OwnCluster for InProcessCluster {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn shards(&self) -> u32 {
        self.leaders.len() as u32
    }

    fn has_leaders(&self) -> bool {
        true
    }

    fn stop_leader(&self, shard: ShardId) {
        let leader = &self.servers[self.leaders[shard.0 as usize]];
        let last = statuses(std::slice::from_ref(leader), self.workers);
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).extend(last);
        leader.stop();
    }

    fn spawn(&self, shard: ShardId, worker: WorkerId, task: MakeTask) {
        let leader = self.servers[self.leaders[shard.0 as usize]].handle();
        // A node that has ended takes none, and one is missing.
        let _ = leader.command(worker, WorkerCommand::Spawn(task));
    }
}

/// Starts nodes within this process, each of which listens at one of these sockets.
///
/// # Errors
/// A sentence that says which of them cannot.
pub fn start_all(
    configs: impl Iterator<Item = Result<NodeConfig, ConfigError>>,
    listeners: Vec<TcpListener>,
) -> Result<Vec<Server>, String> {
    let known = Arc::new(procedures::known());
    let start = |(config, listener): (Result<NodeConfig, ConfigError>, TcpListener)| {
        let config = config.map_err(|error| error.to_string())?;
        let server = Server::start(&config, Arc::clone(&known), Some(listener));
        server.map_err(|error| error.to_string())
    };
    configs.zip(listeners).map(start).collect()
}
