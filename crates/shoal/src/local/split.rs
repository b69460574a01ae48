//! A cluster one of whose nodes is in this process, with clients inside, and the others in processes of their own.
//!
//! So the node that is measured shares no thread, no allocator and no lock with the others, and its clients need no socket.

use super::files::write_files;
use super::folder::{ClusterFolder, LocalNode, Security, open_access};
use super::in_process::{start_all, statuses};
use super::plan::ClusterPlan;
use super::processes::NodeProcesses;
use super::ready::wait_ready;
use super::removed_folder::RemovedFolder;
use crate::{ask, report};
use shoal_bench::cluster::{MakeTask, MeasuredCluster, OwnCluster};
use shoal_server::{NodeConfig, Server, WorkerCommand};
use shoal_types::{Counted, ShardId, WorkerId};
use std::{env, fmt, io, process};
use tokio::runtime::Runtime;

/// A local cluster of which one node consists of threads of this process. All of it ends when this is dropped.
pub struct SplitCluster {
    addresses: Vec<String>,
    shards: u32,
    workers: u32,
    /// Whether the node in this process led all shards when the cluster was ready.
    has_leaders: bool,
    /// The node in this process.
    here: Vec<Server>,
    _others: OtherNodes,
}

/// The nodes in processes of their own, and the folder of their files.
struct OtherNodes {
    processes: NodeProcesses,
    /// It goes when they have ended.
    _folder: RemovedFolder,
}

impl SplitCluster {
    /// Starts it with the node of this number here, and waits until every shard is served. Files of nodes do not contain the
    /// options of engines: all have the default ones.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn start(plan: &ClusterPlan, here: usize) -> Result<SplitCluster, String> {
        let said = |error: io::Error| error.to_string();
        let (mut listeners, addresses) = plan.listen(0).map_err(said)?;
        let name = format!("shoal-{}", process::id());
        let removed = RemovedFolder::new(&env::temp_dir(), &name).map_err(said)?;
        let folder = ClusterFolder(removed.path().to_owned());
        let others = OtherNodes { processes: NodeProcesses::default(), _folder: removed };
        let nodes =
            write_files(&folder, plan, &addresses, &[], Security::default()).map_err(said)?;
        let listener = listeners.swap_remove(here);
        drop(listeners);
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| *at != here) {
            others.processes.start(&folder, None, at, node).map_err(said)?;
        }
        let config =
            |node: &LocalNode| NodeConfig::read(&folder.node(&node.name).join("node.toml"));
        let servers = start_all(std::iter::once(config(&nodes[here])), vec![listener])?;
        let runtime = ask::runtime().map_err(said)?;
        let report = runtime.block_on(wait_ready(&addresses, &open_access()))?;
        let has_leaders = report.leaders().into_values().all(|node| node as usize == here);
        let (shards, workers) = (plan.shards, plan.workers);
        Ok(SplitCluster { addresses, shards, workers, has_leaders, here: servers, _others: others })
    }
}

impl Drop for OtherNodes {
    fn drop(&mut self) {
        match ask::runtime() {
            Ok(runtime) => runtime.block_on(self.processes.end()),
            Err(_) => self.processes.kill(),
        }
    }
}

impl fmt::Debug for SplitCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a cluster at {}", self.addresses.join(", "))
    }
}

impl MeasuredCluster for SplitCluster {
    /// What the node in this process has counted.
    fn counted(&self, _runtime: &Runtime) -> Counted {
        report::sum(statuses(&self.here, self.workers))
    }
}

impl OwnCluster for SplitCluster {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn shards(&self) -> u32 {
        self.shards
    }

    fn has_leaders(&self) -> bool {
        self.has_leaders
    }

    fn stop_leader(&self, _shard: ShardId) {
        if self.has_leaders {
            self.here[0].stop();
        }
    }

    fn spawn(&self, _shard: ShardId, worker: WorkerId, task: MakeTask) {
        // A node that has ended takes none, and one is missing.
        let _ = self.here[0].handle().command(worker, WorkerCommand::Spawn(task));
    }
}
