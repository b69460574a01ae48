//! Faults that come and go: links that are clogged or cut, workers that stand still, nodes that no other
//! hears, that crash, that are cut off from some of the others; clocks that go wrong; managers that
//! fail.

use crate::failures::Fate;
use crate::network::Troubles;
use shoal_types::{Random, ShardId};

/// What goes wrong in a run, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultSchedule {
    /// What happens to single messages.
    pub troubles: Troubles,
    /// On average, so long from one of the following to the next; 0 for never.
    pub every_ns: u64,
    /// The longest that one of them lasts.
    pub longest_ns: u64,
    /// How likely each of them is.
    pub weights: FaultWeights,
    /// Of a hundred crashes, how many take the node's memory with them.
    pub lost_percent: u32,
    /// A node that crashes loses its memory, and crashes only where that can be borne.
    pub forgets: bool,
    /// Of a hundred steps of a recovery, how many bring about the next crash.
    pub struck_percent: u32,
    /// Of a hundred crashes, how many nodes never come back, where that can be borne.
    pub gone_percent: u32,
    /// Of a million steps, how many are interrupted for a while in the midst of their work.
    pub interrupted_ppm: u32,
    /// Of a hundred steps, in the midst of how many another worker of the node may act.
    pub interleaved_percent: u32,
    /// Clocks keep no bound: they jump, and run as they like.
    pub wild_clocks: bool,
}

/// How likely each fault is, compared with the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultWeights {
    /// A link is clogged, one way.
    pub clog: u32,
    /// A link is cut, one way.
    pub cut: u32,
    /// All links to and from a node are clogged.
    pub failure_detector: u32,
    /// A worker stands still.
    pub stall: u32,
    /// A node crashes, and starts again.
    pub crash: u32,
    /// All nodes of a datacenter crash, and start again.
    pub datacenter: u32,
    /// A node stands still: all its workers.
    pub pause: u32,
    /// A node is cut off from some others.
    pub part: u32,
    /// A clock changes its pace.
    pub clock: u32,
    /// The managers get another leader.
    pub elect: u32,
    /// The managers' log stands still.
    pub outage: u32,
    /// A manager stops, and starts again.
    pub manager: u32,
    /// Of those that have what a shard decided last one forgets it, and its leader falls silent.
    pub forget: u32,
    /// A leader is cut off until another leads, and is back when that one falls silent.
    pub diverge: u32,
}

/// The nodes from which a node is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The managers.
    Managers,
    /// The replicas of what it leads.
    Followers,
    /// Those who lead something.
    Leaders,
    /// Some nodes, whichever.
    Some,
    /// All nodes and managers: it is alone with its clients.
    All,
}

/// Which way nothing gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostDirection {
    /// It is not heard.
    Out,
    /// It does not hear.
    In,
    /// Both directions are cut.
    Both,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduledFault {
    /// Nothing arrives over the link between these two ends.
    Clog(usize, usize),
    /// What is sent over the link between these two ends is lost.
    Cut(usize, usize),
    /// Nothing arrives at or from this node.
    Silence(usize),
    /// This worker, counted over all nodes, does nothing.
    Stall(usize),
    /// This node crashes.
    Crash(usize),
    /// All nodes and managers of this datacenter crash.
    Datacenter(usize),
    /// No worker of this node does anything.
    Pause(usize),
    /// This node is cut off from those others, this way.
    Part(usize, Isolation, LostDirection),
    /// The clock of this node, or of this manager after the nodes, changes its pace.
    Clock(usize),
    /// Another manager leads.
    Elect,
    /// Managers decide nothing.
    Outage,
    /// This manager stops.
    Manager(usize),
    /// Followers of this shard fall behind, the one that does not loses its memory, and the leader falls silent.
    Forget(usize),
    /// The leader of this shard is cut off, and its successor is when the first is back.
    Diverge(usize),
    /// Whichever node leads this shard by then is cut off.
    Behead(usize),
    /// A majority of the voters of this shard is lost, like this.
    Lose(ShardId, Fate),
}

/// What there is to be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultTargets {
    /// The number of nodes in the cluster.
    pub nodes: usize,
    /// Clients outside.
    pub clients: usize,
    /// Workers, of all nodes together.
    pub workers: usize,
    /// How many datacenters there are.
    pub datacenters: usize,
    /// How many shards there are.
    pub shards: usize,
    /// Managers; where there are none, nothing happens that needs them.
    pub managers: usize,
}

impl FaultSchedule {
    /// Draws the next fault of a cluster and how long it lasts. Ends of links are the nodes and, after
    /// them, the clients outside.
    pub fn draw(&self, random: &mut Random, extent: FaultTargets) -> (ScheduledFault, u64) {
        let FaultTargets { nodes, clients, workers, datacenters, shards, managers } = extent;
        let below = |random: &mut Random, count: usize| random.below(count.max(1) as u64) as usize;
        let node = below(random, nodes);
        let end = below(random, nodes + clients);
        let (one, other) = if random.chance(1, 2) { (node, end) } else { (end, node) };
        let others = [
            Isolation::Managers,
            Isolation::Followers,
            Isolation::Leaders,
            Isolation::Some,
            Isolation::All,
        ];
        let others = *random.pick(&others).expect("several");
        let way = *random
            .pick(&[LostDirection::Out, LostDirection::In, LostDirection::Both])
            .expect("several");
        let weights = &self.weights;
        let managed = |weight| if managers > 0 { weight } else { 0 };
        let kinds = [
            (ScheduledFault::Clog(one, other), weights.clog),
            (ScheduledFault::Cut(one, other), weights.cut),
            (ScheduledFault::Silence(node), weights.failure_detector),
            (ScheduledFault::Crash(node), managed(weights.crash)),
            (ScheduledFault::Datacenter(below(random, datacenters)), managed(weights.datacenter)),
            (ScheduledFault::Pause(node), managed(weights.pause)),
            (ScheduledFault::Part(node, others, way), managed(weights.part)),
            (ScheduledFault::Clock(below(random, nodes + managers)), managed(weights.clock)),
            (ScheduledFault::Elect, managed(weights.elect)),
            (ScheduledFault::Outage, managed(weights.outage)),
            (ScheduledFault::Manager(below(random, managers)), managed(weights.manager)),
            (ScheduledFault::Forget(below(random, shards)), managed(weights.forget)),
            (ScheduledFault::Diverge(below(random, shards)), managed(weights.diverge)),
            (ScheduledFault::Stall(below(random, workers)), weights.stall),
        ];
        let all: u64 = kinds.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut lot = random.below(all.max(1));
        let mut scheduled_fault = kinds[kinds.len() - 1].0;
        for (kind, weight) in kinds {
            if lot < u64::from(weight) {
                scheduled_fault = kind;
                break;
            }
            lot -= u64::from(weight);
        }
        // Short ones are more likely; but leases run out only while something lasts.
        let halvings = match scheduled_fault {
            ScheduledFault::Part(..) | ScheduledFault::Pause(_) => 3,
            _ => 6,
        };
        let longest = self.longest_ns >> random.below(halvings);
        (scheduled_fault, 1 + random.below(longest.max(1)))
    }

    /// Draws how long it takes until the next fault.
    pub fn pause_ns(&self, random: &mut Random) -> u64 {
        1 + random.below(2 * self.every_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: FaultTargets =
        FaultTargets { nodes: 3, clients: 2, workers: 3, datacenters: 2, shards: 1, managers: 1 };

    #[test]
    fn only_what_has_a_weight_happens() {
        let weights = FaultWeights { cut: 3, ..FaultWeights::default() };
        let fault_schedule = FaultSchedule { longest_ns: 100, weights, ..FaultSchedule::default() };
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let (scheduled_fault, lasts) = fault_schedule.draw(&mut random, EXTENT);
            assert!(
                matches!(
                    scheduled_fault,
                    ScheduledFault::Cut(0..=2, 0..=4) | ScheduledFault::Cut(0..=4, 0..=2)
                ) && (1..=100).contains(&lasts)
            );
        }
    }

    #[test]
    fn nodes_crash_where_managers_see_to_it() {
        let weights = FaultWeights { crash: 1, ..FaultWeights::default() };
        let fault_schedule = FaultSchedule { longest_ns: 100, weights, ..FaultSchedule::default() };
        let mut random = Random::new(1);
        assert!(matches!(fault_schedule.draw(&mut random, EXTENT).0, ScheduledFault::Crash(0..=2)));
        let alone = FaultTargets { managers: 0, ..EXTENT };
        assert!(matches!(fault_schedule.draw(&mut random, alone).0, ScheduledFault::Stall(_)));
    }
}
