//! A simulated network in memory.

use bytes::Bytes;
use shoal_raft::{RaftHandle, Transport, Unreachable};
use shoal_types::{NodeId, Random, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// What the network does with frames, and which pairs are cut.
struct NetworkFaults {
    random: Random,
    loss_percent: u64,
    delay_max: Duration,
    /// Pairs of sender and receiver between which all messages are lost.
    cut: BTreeSet<(NodeId, NodeId)>,
    handles: BTreeMap<NodeId, RaftHandle>,
    /// How long the machine was suspended in total: the runtime's time stands still meanwhile.
    suspended: Duration,
}

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network {
    began: Instant,
    network_faults: Arc<Mutex<NetworkFaults>>,
}

/// A node's access to it.
pub struct Access {
    from: NodeId,
    network: Network,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        let network_faults = NetworkFaults {
            random: Random::new(seed),
            loss_percent: 0,
            delay_max: Duration::from_millis(2),
            cut: BTreeSet::new(),
            handles: BTreeMap::new(),
            suspended: Duration::ZERO,
        };
        Network { began: Instant::now(), network_faults: Arc::new(Mutex::new(network_faults)) }
    }

    pub fn access(&self, from: NodeId) -> Access {
        Access { from, network: self.clone() }
    }

    fn change<R>(&self, change: impl FnOnce(&mut NetworkFaults) -> R) -> R {
        change(&mut self.network_faults.lock().expect("no thread panics with the lock held"))
    }

    /// Sets the replica that is reached at this node.
    pub fn plug(&self, node: NodeId, handle: Option<RaftHandle>) {
        self.change(|network_faults| match handle {
            Some(handle) => _ = network_faults.handles.insert(node, handle),
            None => _ = network_faults.handles.remove(&node),
        });
    }

    /// Cuts the link in one direction.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.change(|network_faults| _ = network_faults.cut.insert((from, to)));
    }

    /// Cuts all links between a node and these others.
    pub fn isolate(&self, node: NodeId, others: impl IntoIterator<Item = NodeId>) {
        for other in others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    pub fn set_loss(&self, loss_percent: u64, delay_max: Duration) {
        self.change(|network_faults| {
            (network_faults.loss_percent, network_faults.delay_max) = (loss_percent, delay_max);
        });
    }

    /// Removes all cuts, losses and long delays.
    pub fn heal(&self) {
        self.change(|network_faults| network_faults.cut.clear());
        self.set_loss(0, Duration::from_millis(2));
    }

    /// Suspends the machine on which all replicas run. Only the replicas' clock continues.
    pub fn suspend(&self, span: Duration) {
        self.change(|network_faults| network_faults.suspended += span);
    }

    /// The time, by a clock that goes on while the machine is suspended.
    pub fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed() + self.change(|network_faults| network_faults.suspended)
    }

    /// Waits for the delay of a message. Returns false if the message is lost.
    async fn travel(&self, from: NodeId, to: NodeId) -> bool {
        let (lost, delay) = self.change(|network_faults| {
            let lost = network_faults.random.below(100) < network_faults.loss_percent;
            let micros = u64::try_from(network_faults.delay_max.as_micros()).expect("short delays");
            (lost, Duration::from_micros(network_faults.random.range_inclusive(0, micros)))
        });
        tokio::time::sleep(delay).await;
        !lost && self.change(|network_faults| !network_faults.cut.contains(&(from, to)))
    }
}

impl Transport for Access {
    async fn call(&self, to: NodeId, request: Bytes) -> Result<Bytes, Unreachable> {
        let gone = Err(Unreachable { to });
        if !self.network.travel(self.from, to).await {
            return gone;
        }
        let handle = self.network.change(|network_faults| network_faults.handles.get(&to).cloned());
        let Some(handle) = handle else { return gone };
        let Ok(response) = handle.serve(&request).await else { return gone };
        if self.network.travel(to, self.from).await { Ok(response) } else { gone }
    }

    fn now(&self) -> Time {
        self.network.now()
    }
}
