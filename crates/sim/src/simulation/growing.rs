//! Nodes are added to the cluster while everything fails, and removed from it.
//!
//! ```text
//!   added ──► its first process begins ──► takes replicas (`replacing.rs`)
//!   holds nothing ──► crashes, for good ──► taken for dead ──► removed ──► a process of it begins, and is not admitted
//! ```
//! Nodes have numbers from the beginning, and those that are not added yet are down: faults pass them by. A removal is asked
//! for at any time, of any node, and mostly refused.

use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_cluster::manager::ClusterChange;
use shoal_cluster::topology::Topology;
use shoal_types::{NodeId, Time};
use std::sync::Arc;
use std::time::Duration;

/// Of so many removals one is asked for whichever node it is.
const ANY_NODE_ONE_IN: u64 = 4;

/// Where leases are longer, no node is ever taken for dead.
const LEASE_MAX: Duration = Duration::from_secs(1000);

/// The longest time for which a process of a removed node goes on.
const LASTS_MAX: Duration = Duration::from_secs(2);

impl<E: Simulated> Simulation<E> {
    /// Has nodes added and removed from now on, so often on average; never, where that is 0.
    pub fn set_node_changes(&mut self, every_ns: u64) {
        self.node_changes.every_ns = every_ns;
        self.plan_node_change();
    }

    fn plan_node_change(&mut self) {
        self.plan_request(self.node_changes.every_ns, SimulationEvent::ChangeNodes);
    }

    /// Asks for an addition or a removal, and draws the time of the next.
    pub(super) fn change_nodes(&mut self) -> Result<(), Violation> {
        if self.node_changes.every_ns == 0 {
            return Ok(());
        }
        let change = match self.random.chance(1, 2) {
            true => self.draw_addition(),
            false => self.draw_removal(),
        };
        if let Some(change) = change
            && let Some(managers) = &mut self.managers
        {
            let ask = managers.next_ask();
            self.note(|now, trace| trace.note(now, format_args!("asked: {change:?}")));
            self.ask_managers(ask, &change)?;
        }
        self.plan_node_change();
        Ok(())
    }

    /// The next node that is not added. A repeat, before the managers have applied the first, asks for the same one.
    fn draw_addition(&self) -> Option<ClusterChange> {
        let topology = self.truth_topology();
        let number = topology.nodes().len();
        let place = number - self.topology.nodes().len();
        let datacenter = *self.node_changes.latecomers.get(place)?;
        let datacenter = topology.datacenters()[datacenter].name.clone();
        Some(ClusterChange::AddNode { name: format!("late{number}"), datacenter, address: None })
    }

    /// Whether no other of the first nodes is left. Clients begin with their addresses: one that has learned of no other node finds
    /// the cluster only while one of those is there (seeds 268585881, 268745670), and a member (536951106).
    pub(super) fn is_last_for_clients(&self, node: NodeId) -> bool {
        let first = self.topology.nodes().len() as u32;
        let topology = self.truth_topology();
        let mut members = topology.members().map(|member| member.id);
        let is_left = |it: NodeId| it != node && it.0 < first && !self.gone.contains(&it);
        node.0 < first && !members.any(is_left)
    }

    /// A node that holds nothing and may be removed when it is dead: it crashes for good. Or any node, which mostly is refused.
    fn draw_removal(&mut self) -> Option<ClusterChange> {
        let truth = Arc::clone(self.configuration()?);
        let mut members: Vec<NodeId> = truth.topology.members().map(|node| node.id).collect();
        members.retain(|node| !self.is_last_for_clients(*node));
        if self.random.chance(1, ANY_NODE_ONE_IN) {
            let node = *self.random.pick(&members)?;
            return Some(ClusterChange::RemoveNode { node });
        }
        let holds = |node: &NodeId| truth.shards.iter().any(|shard| shard.holds(*node));
        let idle: Vec<NodeId> = members.into_iter().filter(|node| !holds(node)).collect();
        let node = *self.random.pick(&idle)?;
        let may_die = self.replacements.asked.is_empty() && self.lease() < LEASE_MAX;
        if may_die && self.cluster.is_up(node) && self.may_be_gone(node) {
            self.end_instance(node, Time::MAX, true);
            self.gone.insert(node);
        }
        Some(ClusterChange::RemoveNode { node })
    }

    /// The topology file that an operator writes now: all nodes, and the tables with which the cluster began.
    pub(super) fn file(&self) -> Arc<Topology> {
        let first = self.cluster.first_topology().tables();
        let tables = first.iter().map(|it| (it.name().to_owned(), it.definition()));
        let file = (*self.truth_topology()).clone().with_tables(tables);
        Arc::new(file.expect("these tables were valid"))
    }

    /// The managers have added a node: its process begins soon.
    pub(super) fn node_added(&mut self, node: NodeId) {
        self.work.nodes_added += 1;
        let file = self.file();
        self.cluster.set_file(node, Some(file));
        let longest_ns = self.fault_schedule.map_or(0, |schedule| schedule.longest_ns);
        let at = Time(self.now.0 + self.random.below(longest_ns / 4 + 2));
        self.queue.push(at, SimulationEvent::Restart { node, instance: 0, lost: false });
    }

    /// The managers have removed a node: a process of it may go on for a while, or begin.
    pub(super) fn node_removed(&mut self, node: NodeId) {
        self.work.nodes_removed += 1;
        if !self.cluster.is_up(node) && self.random.chance(1, 2) {
            self.gone.remove(&node);
            self.restart(node, true);
        }
        let longest = (4 * self.lease()).min(LASTS_MAX);
        let lasts = self.random.below(longest.as_nanos() as u64 + 1);
        self.queue.push(Time(self.now.0 + lasts), SimulationEvent::Retire { node });
    }

    /// The last process of a node that was removed ends.
    pub(super) fn retire(&mut self, node: NodeId) {
        if self.cluster.is_up(node) {
            self.end_instance(node, Time::MAX, true);
        }
        self.gone.insert(node);
        self.cluster.set_file(node, None);
    }

    /// Ends the processes of all nodes that were removed.
    pub(super) fn retire_all(&mut self) {
        let topology = self.truth_topology();
        let removed: Vec<NodeId> =
            topology.nodes().iter().filter(|node| node.removed).map(|node| node.id).collect();
        removed.into_iter().for_each(|node| self.retire(node));
    }

    /// How many nodes there are, with those that are to be added.
    pub fn node_count(&self) -> u32 {
        self.cluster.clocks.len() as u32
    }
}
