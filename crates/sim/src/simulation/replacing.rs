//! Replicas of shards move to other nodes while everything fails.
//!
//! ```text
//!   asked ──► learner, empty ──► learner with a copy ──► new epoch: one voter more ──► new epoch: the replaced one has left
//! ```
//! A node that takes part may crash whenever the managers take one of these steps. Nodes that never come back are mostly
//! replaced first, as an operator would.

use super::{Simulation, SimulationEvent};
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_cluster::manager::{Assignment, ClusterChange, Configuration};
use shoal_types::{NodeId, ShardId, Time};

/// Of so many changes one takes back what is under way.
const KEPT_ONE_IN: u64 = 8;

/// The most crashes that are placed within the replacements of a run.
const REPLACEMENT_CRASHES_MAX: u32 = 6;

impl<E: Simulated> Simulation<E> {
    /// Has replicas replaced from now on, so often on average; never, where that is 0.
    pub fn set_replacements(&mut self, every_ns: u64) {
        self.replacements.every_ns = every_ns;
        self.plan_replacement();
    }

    fn plan_replacement(&mut self) {
        self.plan_request(self.replacements.every_ns, SimulationEvent::Replace);
    }

    /// Asks for a replacement, and draws the time of the next.
    pub(super) fn replace(&mut self) -> Result<(), Violation> {
        if self.replacements.every_ns == 0 {
            return Ok(());
        }
        if let Some(change) = self.draw_replacement()
            && let Some(managers) = &mut self.managers
        {
            self.work.replacements += 1;
            let ask = managers.next_ask();
            if let ClusterChange::ReplaceReplica { .. } = change {
                self.replacements.asked.insert(ask);
            }
            self.note(|now, trace| trace.note(now, format_args!("asked: {change:?}")));
            self.ask_managers(ask, &change)?;
        }
        self.plan_replacement();
        Ok(())
    }

    fn draw_replacement(&mut self) -> Option<ClusterChange> {
        let shard = ShardId(self.random.below(self.topology.shards().into()) as u32);
        let assignment = self.configuration()?.shard(shard)?.clone();
        if self.random.chance(1, KEPT_ONE_IN) {
            return Some(ClusterChange::KeepReplicas { shard });
        }
        let nodes = (0..self.cluster.clocks.len() as u32).map(NodeId);
        let may_take = |node: &NodeId| {
            let is_there = self.cluster.is_member(*node) && !self.gone.contains(node);
            is_there && !assignment.holds(*node)
        };
        let others: Vec<NodeId> = nodes.filter(may_take).collect();
        let incoming = *self.random.pick(&others)?;
        let mut replaced: Vec<NodeId> = assignment.holders().collect();
        if replaced.iter().any(|node| self.gone.contains(node)) && self.random.chance(3, 4) {
            replaced.retain(|node| self.gone.contains(node));
        }
        let outgoing = *self.random.pick(&replaced)?;
        Some(ClusterChange::ReplaceReplica { shard, outgoing, incoming })
    }

    /// The managers have gone from one configuration to another: where a replacement has come further, a node that takes part
    /// in it may crash now.
    pub(super) fn may_crash_in_replacement(
        &mut self,
        before: &Configuration,
        after: &Configuration,
    ) {
        if self.replacements.every_ns == 0 {
            return;
        }
        for (before, after) in before.shards.iter().zip(&after.shards) {
            let voters = |it: &Assignment| it.full_voters().collect::<Vec<_>>();
            let holders = |it: &Assignment| it.holders().collect::<Vec<_>>();
            let is_moved = holders(before) != holders(after)
                || voters(before) != voters(after)
                || before.empty.keys().ne(after.empty.keys());
            let percent = self.fault_schedule.map_or(0, |schedule| schedule.struck_percent);
            if !is_moved
                || self.replacements.crashes >= REPLACEMENT_CRASHES_MAX
                || self.random.below(100) >= u64::from(percent)
            {
                continue;
            }
            self.replacements.crashes += 1;
            let involved: Vec<NodeId> =
                holders(before).into_iter().chain(holders(after)).chain([after.leader]).collect();
            let node = *self.random.pick(&involved).expect("a shard has replicas");
            let longest_ns = self.fault_schedule.map_or(0, |schedule| schedule.longest_ns);
            let at = Time(self.now.0 + self.random.below(longest_ns / 16 + 2));
            self.queue.push(at, SimulationEvent::Strike { node });
        }
    }

    /// Whether every replica on a node that comes back has a copy of its shard.
    pub fn are_replicas_full(&self) -> bool {
        let Some(truth) = self.configuration() else { return true };
        let mut empty = truth.shards.iter().flat_map(|assignment| assignment.empty.keys());
        empty.all(|node| self.gone.contains(node))
    }
}
