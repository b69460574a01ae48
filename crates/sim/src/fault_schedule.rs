//! Faults that begin and end: links are clogged or cut; workers stall; nodes crash, pause, or are cut off
//! from some of the others; clocks change their rates; managers fail.

use crate::majority_loss::Fate;
use crate::network::Troubles;
use shoal_types::{Random, ShardId};

/// The faults of a run, and how often each occurs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultSchedule {
    /// Losses, repetitions and delays of single messages, at any time.
    pub troubles: Troubles,
    /// The mean time between two of the following faults; 0 for never.
    pub every_ns: u64,
    /// The longest duration of a fault.
    pub longest_ns: u64,
    /// The least time from the end of a fault to the next; 0 where faults overlap.
    pub apart_ns: u64,
    /// The relative frequency of each fault.
    pub weights: FaultWeights,
    /// Percentage of crashes that lose the node's memory.
    pub lost_percent: u32,
    /// Whether every crash loses the node's memory: then nodes crash only where every shard keeps a majority
    /// with memory.
    pub forgets: bool,
    /// Percentage of recovery steps after which a node of the recovery crashes.
    pub struck_percent: u32,
    /// Percentage of crashes after which the node never restarts, where every shard keeps a majority.
    pub gone_percent: u32,
    /// Steps that are interrupted within their work, of a million.
    pub interrupted_ppm: u32,
    /// Percentage of steps within which another worker of the node may act.
    pub interleaved_percent: u32,
    /// Whether clocks exceed their bounds: they jump, and drift without limit.
    pub wild_clocks: bool,
    /// What is wrong with disks, where there are some.
    pub disks: DiskTroubles,
}

/// What is wrong with the disks of workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTroubles {
    /// Within this time each is full for a while, several times; 0 for never.
    pub full_within_ns: u64,
    /// Within this time an operation of each fails, which ends the process; 0 for never.
    pub fail_within_ns: u64,
    /// Percentage of restarts before which bits of the node's disks change, where every shard keeps a majority with memory.
    pub damaged_percent: u32,
    /// Percentage of restarts before which one of the node's disks is put back as it was at the end of an earlier process, where
    /// every shard keeps a majority with memory.
    pub put_back_percent: u32,
    /// Percentage of restarts in which a read of one of the node's disks fails, so that the process does not begin.
    pub unreadable_percent: u32,
}

/// The relative frequency of each fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultWeights {
    /// Clogs a link in one direction.
    pub clog: u32,
    /// Cuts a link in one direction.
    pub cut: u32,
    /// Clogs all links to and from a node.
    pub failure_detector: u32,
    /// A worker takes no events for a while.
    pub stall: u32,
    /// Crashes a node, which restarts.
    pub crash: u32,
    /// Crashes all nodes of a datacenter, which restart.
    pub datacenter: u32,
    /// Crashes all nodes at once, whose disks lose what was not flushed.
    pub power: u32,
    /// Pauses all workers of a node.
    pub pause: u32,
    /// Cuts a node off from some others.
    pub part: u32,
    /// Changes the rate of a clock.
    pub clock: u32,
    /// Makes another manager the leader.
    pub elect: u32,
    /// Stops the managers' log for a while.
    pub outage: u32,
    /// Stops a manager, which restarts.
    pub manager: u32,
    /// Makes a replica lose its memory of which few others have what was decided last, and pauses or isolates its leader.
    pub forget: u32,
    /// Cuts a leader off until another leads, and that one when the first is connected again.
    pub diverge: u32,
}

/// The ends from which a node is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The managers: the node gets no configuration, and its lease runs out.
    Managers,
    /// The followers of the shards that the node leads.
    Followers,
    /// The nodes that lead a shard.
    Leaders,
    /// A random set of nodes.
    Some,
    /// All nodes and managers: only clients reach the node.
    All,
}

/// The direction in which messages of an isolated node are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostDirection {
    /// Messages that it sends are lost.
    Out,
    /// Messages that are sent to it are lost.
    In,
    /// All its messages are lost.
    Both,
}

/// A fault that the schedule starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduledFault {
    /// Holds back messages over the link from the first end to the second.
    Clog(usize, usize),
    /// Loses messages over the link from the first end to the second.
    Cut(usize, usize),
    /// Holds back messages to and from this node.
    Silence(usize),
    /// Stalls this worker, counted over all nodes.
    Stall(usize),
    /// Crashes this node, counted from 0; it restarts later.
    Crash(usize),
    /// Crashes all nodes and managers of this datacenter.
    Datacenter(usize),
    /// Crashes all nodes. They restart with what their disks have flushed, and any part of what was written.
    Power,
    /// Pauses all workers of this node.
    Pause(usize),
    /// Loses messages between this node and those others in this direction.
    Part(usize, Isolation, LostDirection),
    /// Changes the rate of the clock of this node, or of this manager, counted after the nodes.
    Clock(usize),
    /// Makes another manager the leader.
    Elect,
    /// The managers' log decides nothing for a while.
    Outage,
    /// Stops this manager, counted from 0; it restarts later.
    Manager(usize),
    /// Delays followers of this shard, takes the memory of one that is not delayed, and pauses or isolates the leader.
    Forget(usize),
    /// Cuts off the leader of this shard, and its successor once the first is connected again.
    Diverge(usize),
    /// Cuts off the node that leads this shard when the fault starts.
    CutOffLeader(usize),
    /// Fails a majority of the voters of this shard in this way.
    Lose(ShardId, Fate),
}

/// The numbers of things that faults can be drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultTargets {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many clients outside there are.
    pub clients: usize,
    /// How many workers there are on all nodes together.
    pub workers: usize,
    /// How many datacenters there are.
    pub datacenters: usize,
    /// How many shards there are.
    pub shards: usize,
    /// How many managers there are; faults that need managers are not drawn where there are none.
    pub managers: usize,
}

impl FaultSchedule {
    /// Draws the next fault and its duration in nanoseconds. Ends of links are the nodes, followed by the
    /// clients outside.
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
            (ScheduledFault::Power, managed(weights.power)),
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
        // Short faults are more likely; but leases run out only during long ones.
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
