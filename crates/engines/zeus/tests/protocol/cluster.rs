//! A few nodes, the messages between them, and a manager that is always right about its own epochs.

use crate::checks;
use crate::disk::NodeDisk;
use bytes::Bytes;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_types::wire::{decode, encode};
use shoal_types::{Epoch, NodeId, Random, TableId, Time};
use shoal_zeus::commit::Validated;
use shoal_zeus::{
    Directory, Effect, GranuleId, GranuleLayout, Placement, View, ZeusMessage, ZeusNode,
    ZeusOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const T: TableId = TableId(0);

/// Clocks of nodes differ: only differences on one of them mean anything.
const SKEW: Duration = Duration::from_secs(3);

/// A message in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub from: NodeId,
    pub to: NodeId,
    pub message: ZeusMessage,
}

/// Nodes, messages, and the configuration.
pub struct Cluster {
    now: Time,
    /// `None` while a node is down.
    pub nodes: BTreeMap<NodeId, Option<ZeusNode>>,
    pub deliveries: Vec<Delivery>,
    /// The configuration that the manager has decided; nodes learn of it later.
    pub view: View,
    pub trace: Vec<String>,
    /// What was validated, by node, and not taken yet.
    pub validated: Vec<(NodeId, Validated)>,
    /// The first rule that was broken.
    pub violation: Option<String>,
    /// The disks of nodes that have one.
    pub disks: BTreeMap<NodeId, NodeDisk>,
    placement: Placement,
    workers: u32,
    options: ZeusOptions,
}

/// The granule whose keys begin with this.
pub fn granule(name: &str) -> GranuleId {
    GranuleId { family: T, prefix: Bytes::copy_from_slice(name.as_bytes()) }
}

impl Cluster {
    /// Nodes of which the first three are the directory of the one shard; they know the first epoch.
    pub fn new(nodes: u32, workers: u32, options: ZeusOptions) -> Cluster {
        let names = |count: u32| (0..count).map(|node| format!("n{node}"));
        let builder = Topology::builder().workers(workers).datacenter("d");
        let builder = names(nodes).fold(builder, |builder, name| builder.node(name, "d"));
        let topology = builder
            .shard("n0", names(3), names(0))
            .table("t", Partitioning::Hash { prefix_bytes: 1 })
            .build()
            .expect("a valid topology");
        let layout = GranuleLayout::of(&topology);
        let placement = Placement { topology: Arc::new(topology), layout };
        let nodes_of_directory = (0..3).map(NodeId).collect();
        let directory = Directory {
            leader: NodeId(0),
            nodes: nodes_of_directory,
            added: BTreeMap::new(),
            is_first: true,
        };
        let members = (0..nodes).map(|node| (NodeId(node), Epoch(1))).collect();
        let mut cluster = Cluster {
            now: Time::ZERO + Duration::from_secs(1),
            nodes: BTreeMap::new(),
            deliveries: Vec::new(),
            view: View { epoch: Epoch(1), members, directories: vec![directory] },
            trace: Vec::new(),
            validated: Vec::new(),
            violation: None,
            disks: BTreeMap::new(),
            placement,
            workers,
            options,
        };
        for node in (0..nodes).map(NodeId) {
            let new = cluster.empty(node);
            cluster.nodes.insert(node, Some(new));
        }
        cluster
    }

    fn empty(&self, node: NodeId) -> ZeusNode {
        let seed = u64::from(node.0);
        ZeusNode::new(node, self.workers, self.placement.clone(), self.options, seed)
    }

    /// The time on a node's clock.
    pub fn clock_of(&self, node: NodeId) -> Time {
        self.now + SKEW * node.0
    }

    pub fn up(&self, node: NodeId) -> Option<&ZeusNode> {
        self.nodes[&node].as_ref()
    }

    /// Whether the node is in, and knows of no membership of its own that is over.
    pub fn is_member(&self, node: NodeId) -> bool {
        let since = self.view.members.get(&node);
        since.is_some() && self.up(node).is_some_and(|up| up.view().members.get(&node) == since)
    }

    /// Nodes that are members and run.
    pub fn members(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|node| self.is_member(*node)).collect()
    }

    /// Lets a node take a step, if it is up; its effects are done, and the state is checked.
    pub fn step<R>(
        &mut self,
        node: NodeId,
        step: impl FnOnce(&mut ZeusNode, Time) -> R,
    ) -> Option<R> {
        let now = self.clock_of(node);
        let up = self.nodes.get_mut(&node)?.as_mut()?;
        let result = step(up, now);
        let effects = match self.disks.get_mut(&node) {
            Some(disk) => disk.take(up),
            None => up.take_effects(),
        };
        let validated = up.take_validated();
        let ready = up.take_ready();
        for Effect::Send { to, message } in effects {
            assert_ne!(to, node, "{node} sends to itself: {message:?}");
            let message = decode(&encode(&message)).expect("what is sent can be read");
            let delivery = Delivery { from: node, to, message };
            self.trace.push(format!("{node} → {to} {}", delivery.message));
            self.deliveries.push(delivery);
        }
        for ticket in ready {
            self.trace.push(format!("{node} has all for {}", ticket.0));
        }
        for done in validated {
            self.trace.push(format!("{node} validated T{}", done.tag));
            self.validated.push((node, done));
        }
        if let Err(what) = checks::check(self) {
            self.violation.get_or_insert(what);
        }
        Some(result)
    }

    pub fn deliver(&mut self, delivery: Delivery) {
        self.deliver_with(delivery, Vec::new());
    }

    /// Delivers a message, and behind it others between the same nodes, in one step.
    pub fn deliver_with(&mut self, delivery: Delivery, others: Vec<Delivery>) {
        let Delivery { from, to, .. } = delivery;
        let all = std::iter::once(delivery).chain(others).map(|delivery| delivery.message);
        self.step(to, |node, now| node.receive(now, from, all));
    }

    /// Time passes for all nodes.
    pub fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            let is_due = self.up(node).and_then(ZeusNode::wakes_at);
            if is_due.is_some_and(|at| at <= self.clock_of(node)) {
                self.step(node, |node, now| node.tick(now));
            }
        }
    }

    /// Delivers all messages, in order, and those that they make.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            if self.deliveries.is_empty() {
                return;
            }
            let first = self.deliveries.remove(0);
            self.deliver(first);
        }
        panic!("messages go on for ever: {:?}", self.deliveries);
    }

    /// The manager begins an epoch without these nodes, whose leases are over, and with those.
    pub fn begin_epoch(&mut self, without: &[NodeId], with: &[NodeId]) {
        self.view.epoch.0 += 1;
        for node in without {
            self.view.members.remove(node);
            // The manager waits until the lease has run out.
            self.step(*node, |node, _| node.renew(Time::ZERO));
        }
        for node in with {
            self.view.members.insert(*node, self.view.epoch);
        }
        let directory = &mut self.view.directories[0];
        directory.is_first &= !without.iter().any(|node| directory.nodes.contains(node));
        let is_in = |node: &&NodeId| self.view.members.contains_key(*node);
        directory.leader = *directory.nodes.iter().find(is_in).unwrap_or(&directory.nodes[0]);
    }

    /// With the epoch that begins, these nodes are the directory.
    pub fn replace_directory(&mut self, nodes: Vec<NodeId>) {
        let next = Epoch(self.view.epoch.0 + 1);
        let directory = &mut self.view.directories[0];
        let new = nodes.iter().filter(|node| !directory.nodes.contains(node));
        directory.added.extend(new.map(|node| (*node, next)));
        directory.is_first &= directory.nodes.iter().all(|node| nodes.contains(node));
        directory.nodes = nodes;
    }

    /// A node learns of the configuration.
    pub fn hear(&mut self, node: NodeId) {
        let view = self.view.clone();
        let is_in = view.is_live(node);
        self.step(node, |node, now| {
            node.enter(now, view);
            if is_in {
                node.renew(Time::MAX);
            }
        });
    }

    /// A node learns that the table was dropped.
    pub fn drop_table(&mut self, node: NodeId) {
        let topology = Topology::clone(&self.placement.topology);
        let tables: [(&str, Partitioning); 0] = [];
        let topology = topology.with_tables(tables).expect("a valid topology");
        let layout = GranuleLayout::of(&topology);
        let placement = Placement { topology: Arc::new(topology), layout };
        self.step(node, |node, now| node.place(now, placement));
    }

    /// The node loses all it has.
    pub fn crash(&mut self, node: NodeId) {
        self.nodes.insert(node, None);
    }

    /// The nodes have disks from now on: nothing has happened yet.
    pub fn keep_on_disks(&mut self) {
        for (node, up) in self.nodes.iter_mut().filter_map(|(node, up)| Some((*node, up.as_mut()?)))
        {
            up.record();
            up.end_restore(Time::ZERO);
            self.disks.insert(node, NodeDisk::default());
        }
    }

    /// What a node has written is flushed.
    pub fn flush(&mut self, node: NodeId) {
        let records = self.disks.get_mut(&node).map_or(0, NodeDisk::flush);
        if records > 0 {
            self.step(node, |node, now| node.recorded(now, records));
        }
    }

    /// A node goes on with a checkpoint.
    pub fn advance_checkpoint(&mut self, node: NodeId) {
        let up = self.nodes.get_mut(&node).and_then(Option::as_mut);
        if let (Some(disk), Some(up)) = (self.disks.get_mut(&node), up) {
            disk.advance_checkpoint(up);
        }
    }

    /// The process of a node ends, and the next one has what its disk has. It learns of the configuration later.
    pub fn bounce(&mut self, node: NodeId, random: &mut Random) {
        let mut new = self.empty(node);
        let now = self.clock_of(node);
        let disk = self.disks.get_mut(&node).expect("it has a disk");
        disk.crash(random);
        new.record();
        disk.restore(&mut new, now);
        self.trace.push(format!("{node} restarts with its disk"));
        self.nodes.insert(node, Some(new));
    }

    /// A new process of the node runs; it learns of the configuration later.
    pub fn restart(&mut self, node: NodeId) {
        let empty = self.empty(node);
        let up = self.nodes.entry(node).or_default();
        up.get_or_insert(empty);
    }
}
