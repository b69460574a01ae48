//! `shoal chaos`: lets something fail in a local cluster, and says what came of it.

use super::{Trouble, Verdict, print};
use crate::chaos::Writers;
use crate::duration;
use crate::local::{Folder, LocalCluster};
use crate::report::Report;
use clap::{Args, Subcommand};
use client::Db;
use engines::client::FromClient;
use net::client::Access;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::Duration;

/// The writers are at work so long before anything fails.
const BEFORE: Duration = Duration::from_secs(2);

/// And so long after it is over.
const AFTER: Duration = Duration::from_secs(4);

/// Let something fail in a local cluster, and see what it costs
///
/// Writers are at work on every shard meanwhile, and count what is acknowledged: afterwards all of it has to
/// be there, once. A node that is killed is started again by `shoal local`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal chaos kill-leader 0
  shoal chaos pause 1 --for 5s
  shoal chaos partition 2

Exit codes: 0 every acknowledged write is there, 1 some are not, 2 there is no such cluster")]
pub struct Chaos {
    #[command(subcommand)]
    failure: Failure,
    /// The folder of the cluster
    #[arg(long, global = true, value_name = "FOLDER", default_value = "shoal-local")]
    local: PathBuf,
}

#[derive(Debug, Clone, Subcommand)]
enum Failure {
    /// Kill the process of a shard's leader
    #[command(after_help = "Example:\n  shoal chaos kill-leader 0")]
    KillLeader {
        /// The shard
        shard: u32,
    },
    /// Stop the process of a shard's leader for a while
    #[command(after_help = "Example:\n  shoal chaos pause 0 --for 5s")]
    Pause {
        /// The shard
        shard: u32,
        /// How long
        #[arg(long = "for", default_value = "3s", value_parser = duration::parse_positive)]
        span: Duration,
    },
    /// Cut a shard's leader off from all other nodes for a while; clients still reach it
    #[command(after_help = "Example:\n  shoal chaos partition 0 --for 5s")]
    Partition {
        /// The shard
        shard: u32,
        /// How long
        #[arg(long = "for", default_value = "3s", value_parser = duration::parse_positive)]
        span: Duration,
    },
    /// Let all go on that was paused or cut off
    #[command(after_help = "Example:\n  shoal chaos heal")]
    Heal,
}

impl Chaos {
    pub(super) fn run(&self) -> Result<Verdict, Trouble> {
        let cluster = Folder(self.local.clone()).read().map_err(Trouble::Usage)?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| Trouble::Usage(error.to_string()))?;
        runtime.block_on(async {
            match &self.failure {
                Failure::Heal => heal(&cluster).await,
                failure => strike(&cluster, failure).await,
            }
        })
    }
}

/// The leader of a shard, as its place among the nodes.
async fn leader(cluster: &LocalCluster, shard: u32) -> Result<usize, Trouble> {
    let report = Report::gather(&cluster.addresses(), &Access::open("shoal")).await;
    let report = report.map_err(Trouble::Usage)?;
    let none = || Trouble::Usage(format!("nobody leads S{shard} at the moment, or there is none"));
    report.leaders().get(&shard).map(|node| *node as usize).ok_or_else(none)
}

async fn strike(cluster: &LocalCluster, failure: &Failure) -> Result<Verdict, Trouble> {
    let failed = |error: &dyn std::fmt::Display| Trouble::Database(error.to_string());
    let db = Db::connect(&cluster.addresses()).await.map_err(|error| failed(&error))?;
    let writers = Writers::start(&db).map_err(|error| failed(&error))?;
    tokio::time::sleep(BEFORE).await;
    let (Failure::KillLeader { shard }
    | Failure::Pause { shard, .. }
    | Failure::Partition { shard, .. }) = failure
    else {
        unreachable!("healing strikes nobody")
    };
    let at = leader(cluster, *shard).await?;
    let node = &cluster.nodes[at];
    let struck = writers.elapsed();
    match failure {
        Failure::KillLeader { .. } => {
            signal(cluster, at, Signal::KILL)?;
            print(&format!("{} is killed, which leads S{shard}\n", node.name))?;
        }
        Failure::Pause { span, .. } => {
            signal(cluster, at, Signal::STOP)?;
            print(&format!("{} is paused, which leads S{shard}\n", node.name))?;
            tokio::time::sleep(*span).await;
            signal(cluster, at, Signal::CONT)?;
        }
        Failure::Partition { span, .. } => {
            cut(&node.address, true).await?;
            print(&format!("{} is cut off, which leads S{shard}\n", node.name))?;
            tokio::time::sleep(*span).await;
            cut(&node.address, false).await?;
        }
        Failure::Heal => {}
    }
    tokio::time::sleep(AFTER).await;
    let tally = writers.finish(struck).await.map_err(|error| failed(&error))?;
    print(&format!("\n{}", tally.text()))?;
    Ok(if tally.holds() { Verdict::Holds } else { Verdict::Fails })
}

async fn heal(cluster: &LocalCluster) -> Result<Verdict, Trouble> {
    for (at, node) in cluster.nodes.iter().enumerate() {
        signal(cluster, at, Signal::CONT)?;
        cut(&node.address, false).await?;
    }
    print("all nodes go on, and reach each other\n")?;
    Ok(Verdict::Holds)
}

/// Signals a node's process.
fn signal(cluster: &LocalCluster, at: usize, signal: Signal) -> Result<(), Trouble> {
    let node = &cluster.nodes[at];
    if node.process == cluster.process {
        let all = "all nodes are in one process: start the cluster without --in-process";
        return Err(Trouble::Usage(all.into()));
    }
    let pid = i32::try_from(node.process).ok().and_then(Pid::from_raw);
    let gone = || Trouble::Usage(format!("{} has no process", node.name));
    kill_process(pid.ok_or_else(gone)?, signal)
        .map_err(|error| Trouble::Usage(format!("cannot signal {}: {error}", node.name)))
}

/// Cuts a node off from the others, or no more.
async fn cut(address: &str, is_cut: bool) -> Result<(), Trouble> {
    let question = FromClient::Isolate(is_cut);
    let told = crate::ask::ask(address, &Access::open("shoal"), 0, &question).await;
    told.map(drop).map_err(Trouble::Usage)
}
