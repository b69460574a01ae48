//! Why a shard cannot be served, as far as a configuration shows: for operators, errors and logs.

use super::configuration::Configuration;
use shoal_types::{NodeId, ShardId};

/// Why a shard cannot be served, and what ends that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outage {
    /// A majority of the voters has its memory and is alive: a leader is being appointed.
    Appointing,
    /// There is no majority without these voters, which have their memory and are not alive: some have to
    /// restart with their memory.
    Waiting {
        /// The voters that have to restart.
        missing: Vec<NodeId>,
    },
    /// So many voters are empty that no majority is possible any more, whichever nodes restart.
    Lost {
        /// The voters that lost their memory, and cannot vote until they have a copy.
        empty: Vec<NodeId>,
        /// Voters and learners that are not empty, alive or away.
        survivors: Vec<NodeId>,
    },
}

impl Configuration {
    /// Why the shard cannot be served; `None` if it can, or there is no such shard. A leader may still be
    /// recovering the shard.
    #[must_use]
    pub fn outage(&self, shard: ShardId) -> Option<Outage> {
        let assignment = self.shard(shard)?;
        let standing = |node: &NodeId| self.nodes.get(node.0 as usize);
        let is_alive = |node: &NodeId| standing(node).is_some_and(|standing| standing.alive);
        let majority = match assignment.members().all_promise {
            true => assignment.voters.len(),
            false => assignment.voters.len() / 2 + 1,
        };
        let is_led = standing(&assignment.leader).is_some_and(|standing| {
            standing.alive && standing.incarnation == assignment.incarnation
        });
        let full: Vec<NodeId> = assignment.full_voters().collect();
        let empty = |node: &&NodeId| assignment.empty.contains_key(node);
        // A leader that was appointed after a voter lost its memory lets it vote again, if the leader could
        // prepare: at a majority of the voters that were not empty when it was appointed. If one of these has
        // lost its memory before it promised, the leader never prepares, the shard ends no epoch, and is out
        // before long.
        let lost_before = |node: &&NodeId| {
            assignment.empty.get(node).is_some_and(|lost| *lost < assignment.ballot.epoch)
        };
        let before = assignment.voters.iter().filter(lost_before).count();
        let others = assignment.voters.len() - before;
        let could_prepare = is_led && assignment.out.is_none() && others >= majority;
        let regaining = if could_prepare { before } else { 0 };
        if full.len() + regaining < majority {
            let holders = assignment.voters.iter().chain(&assignment.learners);
            return Some(Outage::Lost {
                empty: assignment.voters.iter().filter(empty).copied().collect(),
                survivors: holders.filter(|node| !empty(node)).copied().collect(),
            });
        }
        if full.iter().filter(|node| is_alive(node)).count() + regaining < majority {
            let missing = full.into_iter().filter(|node| !is_alive(node)).collect();
            return Some(Outage::Waiting { missing });
        }
        (!is_led).then_some(Outage::Appointing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::{Incarnation, ManagerOptions, StateMachine};
    use crate::topology::Topology;
    use shoal_types::Epoch;
    use std::sync::Arc;

    const S0: ShardId = ShardId(0);

    /// One shard on the nodes 0 to 2, which are all alive, in epoch 5, led by node 0 since epoch 3.
    fn configuration() -> Configuration {
        let topology = Arc::new(Topology::compact(1, 1, 3, 0, 1));
        let machine = StateMachine::new(topology, ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.epoch = Epoch(5);
        configuration.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(1));
        configuration.shards[0].ballot.epoch = Epoch(3);
        configuration
    }

    #[track_caller]
    fn says(change: impl FnOnce(&mut Configuration), expected: Option<&Outage>) {
        let mut configuration = configuration();
        change(&mut configuration);
        assert_eq!(configuration.outage(S0).as_ref(), expected);
    }

    #[test]
    fn a_shard_is_out_for_a_reason() {
        let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        says(|_| {}, None);
        says(|all| all.nodes[0].alive = false, Some(&Outage::Appointing));
        // Its leader began a new process, and is to be replaced.
        says(|all| all.nodes[0].incarnation = Incarnation(2), Some(&Outage::Appointing));
        let away = |all: &mut Configuration| {
            all.nodes[1].alive = false;
            all.nodes[2].alive = false;
        };
        says(away, Some(&Outage::Waiting { missing: nodes(&[1, 2]) }));
        let mixed = |all: &mut Configuration| {
            all.nodes[1].alive = false;
            all.shards[0].empty.insert(NodeId(2), Epoch(4));
        };
        says(mixed, Some(&Outage::Waiting { missing: nodes(&[1]) }));
        let lost = |first, second| {
            move |all: &mut Configuration| {
                all.shards[0].empty.insert(NodeId(1), Epoch(first));
                all.shards[0].empty.insert(NodeId(2), Epoch(second));
            }
        };
        let outage = Outage::Lost { empty: nodes(&[1, 2]), survivors: nodes(&[0]) };
        says(lost(4, 4), Some(&outage));
        // The leader was appointed after the first loss, by the other two: that voter will vote again.
        says(lost(2, 4), None);
        let out = |all: &mut Configuration| {
            lost(2, 4)(all);
            all.shards[0].out = Some(Epoch(5));
        };
        says(out, Some(&outage));
        // The leader was appointed after both, and a majority cannot promise it anything.
        says(lost(2, 2), Some(&outage));
        let mut unknown = configuration();
        unknown.shards.clear();
        assert_eq!(unknown.outage(S0), None);
    }
}
