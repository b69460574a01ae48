//! What can fail in a local cluster, and how it is made to.
//!
//! A failure has victims: the leader of a shard, or, where processes are killed together, others too.

use crate::ask;
use crate::local::{LocalCluster, LocalNode, block};
use crate::report::StatusReport;
use rustix::process::{Pid, Signal, kill_process};
use shoal_engine::client::{FromClient, ToClient};
use shoal_types::{Durability, ShardId};
use std::time::Duration;

/// Something that happens to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFailure {
    /// Processes are killed, all of them at once. `shoal local` starts others.
    Kill(KilledNodes),
    /// The process is stopped for a while.
    Pause(Duration),
    /// For a while no packet passes between the node and other nodes. Clients still reach it.
    Partition(Duration),
    /// For a while no packet of it reaches another node, or none of another node reaches it. Clients still reach
    /// it. Only in clusters whose nodes have network namespaces.
    OneWay { span: Duration, way: PacketDirection },
}

/// Of which nodes the processes are killed. More than the leader only in clusters whose nodes keep logs on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledNodes {
    /// The leader of the shard.
    Leader,
    /// A majority of the voters of the shard, the leader among them.
    Majority,
    /// All nodes.
    All,
}

/// Which packets are lost between a node and the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// Packets that the others send.
    In,
    /// Packets that the node sends.
    Out,
}

/// The node to which it happens.
#[derive(Debug, Clone)]
pub struct Victim {
    /// The place among the nodes.
    pub at: usize,
    /// The node that fails.
    pub node: LocalNode,
    cluster: LocalCluster,
}

impl Victim {
    /// The node at this place.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(cluster: &LocalCluster, at: usize) -> Victim {
        Victim { at, node: cluster.nodes[at].clone(), cluster: cluster.clone() }
    }
}

impl InjectedFailure {
    /// How long it lasts by itself.
    pub fn span(&self) -> Duration {
        match self {
            InjectedFailure::Kill(_) => Duration::ZERO,
            InjectedFailure::Pause(span)
            | InjectedFailure::Partition(span)
            | InjectedFailure::OneWay { span, .. } => *span,
        }
    }

    /// Whether processes end.
    pub fn kills(&self) -> bool {
        matches!(self, InjectedFailure::Kill(_))
    }

    /// What happens to each victim, in words.
    pub fn words(&self) -> &'static str {
        match self {
            InjectedFailure::Kill(_) => "is killed",
            InjectedFailure::Pause(_) => "stands still",
            InjectedFailure::Partition(_) => "is cut off",
            InjectedFailure::OneWay { way: PacketDirection::In, .. } => {
                "receives nothing of other nodes"
            }
            InjectedFailure::OneWay { way: PacketDirection::Out, .. } => "reaches no other node",
        }
    }

    /// The nodes to which it happens where the leader of a shard is to fail. That is the first.
    ///
    /// # Errors
    /// A sentence, if there is no leader, or data would be lost for good.
    pub async fn victims(&self, cluster: &LocalCluster, shard: u32) -> Result<Vec<Victim>, String> {
        let report = StatusReport::gather(&cluster.addresses(), &cluster.access).await?;
        let none = || format!("no node leads S{shard} at the moment, or there is none");
        let leader = *report.leaders().get(&shard).ok_or_else(none)?;
        let voters = report.topology.voters(ShardId(shard));
        let others = match self {
            InjectedFailure::Kill(KilledNodes::Majority) => voters.len() / 2,
            InjectedFailure::Kill(KilledNodes::All) => cluster.nodes.len() - 1,
            InjectedFailure::Kill(KilledNodes::Leader)
            | InjectedFailure::Pause(_)
            | InjectedFailure::Partition(_)
            | InjectedFailure::OneWay { .. } => 0,
        };
        if others > 0 && report.topology.durability() == Durability::Memory {
            let lost = "its nodes keep nothing on disk, so that all would be lost: start the cluster with `shoal local \
                        --durability fsync`";
            return Err(lost.into());
        }
        let voters = voters.iter().map(|node| node.0);
        // Of all nodes, those that are no voters come last.
        let order = voters.chain(0..cluster.nodes.len() as u32).filter(|node| *node != leader);
        let mut at = vec![leader];
        for other in order {
            if at.len() <= others && !at.contains(&other) {
                at.push(other);
            }
        }
        Ok(at.into_iter().map(|at| Victim::of(cluster, at as usize)).collect())
    }

    /// Lets it happen to all of them at once, and waits until it is over.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    pub async fn play(&self, victims: &[Victim]) -> Result<(), String> {
        for victim in victims {
            self.begin(victim).await?;
        }
        tokio::time::sleep(self.span()).await;
        for victim in victims {
            self.end(victim).await?;
        }
        Ok(())
    }

    /// Lets it happen to one of them.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    pub async fn begin(&self, victim: &Victim) -> Result<(), String> {
        match self {
            InjectedFailure::Kill(_) => victim.cluster.signal(victim.at, Signal::KILL),
            InjectedFailure::Pause(_) => victim.cluster.signal(victim.at, Signal::STOP),
            InjectedFailure::Partition(_) => victim.cluster.cut(victim.at, true).await,
            InjectedFailure::OneWay { way, .. } => victim.cluster.block(victim.at, *way, true),
        }
    }

    /// Lets it be over.
    async fn end(&self, victim: &Victim) -> Result<(), String> {
        match self {
            InjectedFailure::Kill(_) => Ok(()),
            InjectedFailure::Pause(_) => victim.cluster.signal(victim.at, Signal::CONT),
            InjectedFailure::Partition(_) => victim.cluster.cut(victim.at, false).await,
            InjectedFailure::OneWay { way, .. } => victim.cluster.block(victim.at, *way, false),
        }
    }
}

impl LocalCluster {
    /// Lets a node go on that was paused or cut off.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    pub async fn heal(&self, at: usize) -> Result<(), String> {
        self.signal(at, Signal::CONT)?;
        if self.namespaces {
            self.block(at, PacketDirection::In, false)?;
            self.block(at, PacketDirection::Out, false)?;
        }
        self.cut(at, false).await
    }

    /// Lets packets between a node and all others get lost, one way, or no more.
    fn block(&self, at: usize, way: PacketDirection, is_blocked: bool) -> Result<(), String> {
        if !self.namespaces {
            let where_to = "packets get lost one way only between network namespaces: start the cluster with \
                            `shoal local --namespaces`";
            return Err(where_to.into());
        }
        let others = (0..self.nodes.len()).filter(|other| *other != at);
        let blocked = others.map(|other| match way {
            PacketDirection::In => block(other, at, is_blocked),
            PacketDirection::Out => block(at, other, is_blocked),
        });
        blocked.collect()
    }

    /// Signals a node's process.
    fn signal(&self, at: usize, signal: Signal) -> Result<(), String> {
        let node = &self.nodes[at];
        if node.process == self.process {
            let all = "all nodes are in one process: start the cluster without --in-process";
            return Err(all.into());
        }
        let pid = i32::try_from(node.process).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("{} has no process", node.name))?;
        kill_process(pid, signal).map_err(|error| format!("cannot signal {}: {error}", node.name))
    }

    /// Cuts a node off from the others, or no more.
    async fn cut(&self, at: usize, is_cut: bool) -> Result<(), String> {
        let address = &self.nodes[at].address;
        match ask::ask(address, &self.access, 0, &FromClient::Isolate(is_cut)).await? {
            ToClient::Isolated(so) if so == is_cut => Ok(()),
            _ => Err(format!("{address} is not to be cut off: its node.toml needs `chaos = true`")),
        }
    }
}
