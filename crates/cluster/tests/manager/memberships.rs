//! Epochs that begin with deaths and returns, where as many epochs are closed as may be: none of them can begin then.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Applied, Command, EpochEnd, HeartbeatRecord, LeadershipClaim, ManagerOptions,
    NodeStanding, ProcessInstance, Revision, StateMachine, Term,
};
use shoal_cluster::topology::Topology;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Shards of three voters. Each membership is recorded that a configuration has had, and none may have two.
struct Cluster {
    machine: StateMachine,
    now: Time,
    rounds: u64,
    former: BTreeSet<(u32, Epoch)>,
    keeps_memory: bool,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster::of(1, false)
    }

    /// Nodes with their own shards, which may keep their memory on disks.
    fn of(shards: u32, keeps_memory: bool) -> Cluster {
        let topology = Arc::new(Topology::symmetric(1, shards, 3, 0, 1));
        let options =
            ManagerOptions { membership_epochs: true, keeps_memory, ..ManagerOptions::default() };
        let nodes = topology.nodes().len() as u32;
        let machine = StateMachine::new(topology, options);
        let mut cluster =
            Cluster { machine, now: Time(1), rounds: 0, former: BTreeSet::new(), keeps_memory };
        cluster.apply(Action::Take { drawn: DRAWN });
        (0..nodes).for_each(|node| _ = cluster.join(node));
        cluster
    }

    /// The leader of a shard reports that in the present epoch its data is whole.
    fn whole(&mut self, shard: u32) {
        let (shard, epoch) = (ShardId(shard), self.epoch());
        let it = self.machine.configuration().shard(shard).expect("a shard");
        let (node, incarnation, ballot) = (it.leader, it.incarnation, it.ballot);
        let claim = LeadershipClaim { node, incarnation, shard, ballot };
        self.apply(Action::Whole { claim, epoch });
    }

    fn dead(&self) -> Vec<u32> {
        let nodes = (0..).zip(&self.machine.configuration().nodes);
        nodes.filter(|(_, node)| !node.alive).map(|(id, _)| id).collect()
    }

    fn apply(&mut self, action: Action) -> Vec<Applied> {
        let before = Arc::clone(self.machine.configuration());
        let mut applied = Vec::new();
        self.machine.apply(&Command { term: Term(1), at: self.now, action }, &mut applied);
        let after = self.machine.configuration();
        for (node, (old, new)) in (0..).zip(before.nodes.iter().zip(&after.nodes)) {
            let process = |it: &NodeStanding| (!self.keeps_memory).then_some(it.incarnation);
            let membership = |it: &NodeStanding| (it.alive, process(it), it.since);
            if old.alive && old.incarnation.0 > 0 && membership(old) != membership(new) {
                self.former.insert((node, old.since));
            }
            let is_named_again = self.former.contains(&(node, new.since));
            assert!(!new.alive || !is_named_again, "two memberships of n{node}: {after:?}");
            assert!(!new.alive || new.since <= after.epoch, "n{node} is ahead: {after:?}");
        }
        applied
    }

    /// A new process of the node asks to be admitted. Returns whether it is.
    fn join(&mut self, node: u32) -> bool {
        self.join_after(node, self.now)
    }

    /// The same, where the last heartbeat of the former process has arrived then.
    fn join_after(&mut self, node: u32, last_heartbeat: Time) -> bool {
        let node = NodeId(node);
        let after = self.machine.node(node).expect("a node").1;
        let instance = ProcessInstance(u64::from(after.0) + 1);
        self.apply(Action::Join { node, instance, after, lost: false, last_heartbeat });
        self.machine.node(node).expect("a node").1 > after
    }

    /// So many milliseconds later, heartbeats of these nodes arrive.
    fn tick(&mut self, millis: u64, nodes: &[u32]) -> Vec<Applied> {
        self.now = self.now + Duration::from_millis(millis);
        self.rounds += 1;
        let heartbeats = nodes.iter().map(|node| HeartbeatRecord {
            node: NodeId(*node),
            incarnation: self.machine.node(NodeId(*node)).expect("a node").1,
            round: self.rounds,
            at: self.now,
            known: Revision(0),
        });
        let heartbeats = heartbeats.collect();
        self.apply(Action::Tick { heartbeats })
    }

    fn epoch(&self) -> Epoch {
        self.machine.configuration().epoch
    }

    fn is_alive(&self, node: usize) -> bool {
        self.machine.configuration().nodes[node].alive
    }

    /// The leader reports how this epoch ended.
    fn report(&mut self, epoch: Epoch) -> Vec<Applied> {
        let (shard, it) = (ShardId(0), &self.machine.configuration().shards[0]);
        let (node, incarnation, ballot) = (it.leader, it.incarnation, it.ballot);
        let claim = LeadershipClaim { node, incarnation, shard, ballot };
        self.apply(Action::Report { claim, epoch, end: EpochEnd::Whole })
    }

    /// A new process of the node asks to be admitted once the lease of the former one has run out, before the next tick.
    fn restart(&mut self, node: u32) -> bool {
        self.now = self.now + Duration::from_millis(700);
        self.join_after(node, Time::ZERO)
    }

    /// Restarts a node until no epoch can begin with that any more, while the shard reports nothing.
    fn exhaust(&mut self) {
        while self.restart(2) {
            assert!(self.epoch() < Epoch(2000), "epochs begin without a limit");
        }
    }
}

/// The former process of a node may still run, and show what it has under its lease: the epoch of the next one, in which it is no
/// replica any more, does not begin before that is over. A restart waits for a lease at most.
#[test]
fn a_process_is_admitted_when_the_lease_of_the_former_one_is_over() {
    for last_tick in [true, false] {
        let mut cluster = Cluster::new();
        cluster.tick(10, &[0, 1, 2]);
        let (epoch, last_heartbeat) = (cluster.epoch(), cluster.now);
        let mut waited = 0;
        while !cluster.join_after(2, last_heartbeat) {
            assert_eq!(cluster.epoch(), epoch, "its membership has begun after {waited} ms");
            waited += 1;
            cluster.now = cluster.now + Duration::from_millis(1);
            if last_tick && waited % 50 == 0 {
                cluster.tick(0, &[0, 1]);
            }
        }
        assert!((600..=602).contains(&waited), "after {waited} ms");
        assert!(cluster.epoch() > epoch && cluster.is_alive(2));
    }
}

/// A node that dies when no epoch can begin returns only when one has begun, by which its membership is another one.
#[test]
fn a_node_returns_when_the_epoch_of_its_death_has_begun() {
    let mut cluster = Cluster::new();
    cluster.exhaust();
    let full = cluster.epoch();
    cluster.tick(10, &[0, 1, 2]);
    cluster.tick(400, &[0, 1]);
    let applied = cluster.tick(300, &[0, 1]);
    assert!(applied.contains(&Applied::Died(NodeId(2))), "{applied:?}");
    for _ in 0..3 {
        cluster.tick(20, &[0, 1, 2]);
        assert!(!cluster.is_alive(2), "its death has no epoch yet");
    }
    assert!(!cluster.join(2), "nor is another process admitted");
    assert_eq!(cluster.epoch(), full);

    // One epoch is settled: the one that is due begins. Another one is settled, and the node returns with the next.
    assert!(cluster.report(Epoch(1)).contains(&Applied::Raised(Epoch(full.0 + 1))));
    cluster.tick(20, &[0, 1, 2]);
    assert!(!cluster.is_alive(2), "its return would have no epoch");
    cluster.report(Epoch(2));
    let applied = cluster.tick(20, &[0, 1, 2]);
    assert!(applied.contains(&Applied::Revived(NodeId(2))), "{applied:?}");
    let since = cluster.machine.configuration().nodes[2].since;
    assert_eq!((since, cluster.epoch()), (Epoch(full.0 + 2), Epoch(full.0 + 2)));
}

/// Deaths and returns leave room for the epoch with which a shard gets another leader.
#[test]
fn a_dead_leader_is_replaced_when_no_node_can_return() {
    let mut cluster = Cluster::new();
    cluster.exhaust();
    let full = cluster.epoch();
    cluster.tick(10, &[0, 1, 2]);
    cluster.tick(400, &[1, 2]);
    let applied = cluster.tick(300, &[1, 2]);
    assert!(applied.contains(&Applied::Died(NodeId(0))), "{applied:?}");
    let assignment = &cluster.machine.configuration().shards[0];
    assert!(assignment.leader != NodeId(0) && assignment.ballot.epoch > full, "{assignment:?}");
    // The leader's reports make room.
    (1..full.0).map(Epoch).for_each(|epoch| _ = cluster.report(epoch));
    cluster.tick(20, &[0, 1, 2]);
    assert!(cluster.is_alive(0));
}

/// A machine that stands still makes all nodes silent. One is declared dead, and forgets what it has: it is back when it has
/// caught up, and until then the others stay, as they have what the shard needs.
#[test]
fn of_nodes_that_are_silent_together_a_majority_keeps_its_memory() {
    let mut cluster = Cluster::new();
    cluster.tick(10, &[0, 1, 2]);
    let died = |applied: &[Applied]| {
        applied.iter().filter(|it| matches!(it, Applied::Died(_))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(died(&cluster.tick(700, &[])), [Applied::Died(NodeId(0))]);
    let applied = cluster.tick(20, &[0, 1, 2]);
    assert!(applied.contains(&Applied::Revived(NodeId(0))), "{applied:?}");
    let empty = |cluster: &Cluster| {
        cluster.machine.configuration().shards[0].empty.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(empty(&cluster), [NodeId(0)]);
    assert_ne!(cluster.machine.configuration().shards[0].leader, NodeId(0), "it has no memory");
    assert_eq!(died(&cluster.tick(700, &[])), [Applied::Died(NodeId(0))]);
    cluster.tick(20, &[0, 1, 2]);
    assert!((0..3).all(|node| cluster.is_alive(node)));
}

/// Nodes that have crashed together are declared dead all the same, the last ones later.
#[test]
fn a_majority_that_stays_silent_is_declared_dead() {
    let mut cluster = Cluster::new();
    cluster.tick(10, &[0, 1, 2]);
    let mut waited = 0;
    while cluster.is_alive(0) || cluster.is_alive(1) {
        cluster.tick(100, &[2]);
        waited += 100;
    }
    assert!((9_000..11_000).contains(&waited), "after {waited} ms");
    assert!(cluster.is_alive(2));
}

/// With its disks, the next process of a node is the same member: it is admitted at once, and no epoch begins. Without them it is
/// another one.
#[test]
fn a_process_with_the_memory_of_the_former_one_is_the_same_member() {
    let mut cluster = Cluster::of(1, true);
    cluster.tick(10, &[0, 1, 2]);
    let before = (cluster.epoch(), cluster.machine.configuration().nodes[2].since);
    assert!(cluster.join(2), "it does not wait for the lease of the former process");
    let after = cluster.machine.configuration();
    assert_eq!((after.epoch, after.nodes[2].since), before);
    assert!(after.nodes[2].is_first && after.shards[0].empty.is_empty());
    let (after, instance) =
        (cluster.machine.node(NodeId(2)).expect("a node").1, ProcessInstance(9));
    cluster.now = cluster.now + Duration::from_millis(700);
    let (node, last_heartbeat) = (NodeId(2), Time::ZERO);
    cluster.apply(Action::Join { node, instance, after, lost: true, last_heartbeat });
    let after = cluster.machine.configuration();
    assert!(after.epoch > before.0 && after.nodes[2].since == after.epoch);
    assert!(!after.nodes[2].is_first && after.shards[0].empty.contains_key(&NodeId(2)));
    assert!(!cluster.machine.has_all_copies(), "what it had is void");
}

/// Leases end one after the other, and the first node is not the only one to be silent (zeus, seed 538871242: two left, and the last copy
/// of something may have been on a third, which never came back).
#[test]
fn no_node_leaves_when_all_lose_power() {
    let mut cluster = Cluster::of(3, true);
    let members: Vec<u32> = (0..9).collect();
    cluster.tick(10, &members);
    cluster.tick(100, &members[1..]);
    (0..200).for_each(|_| _ = cluster.tick(50, &[]));
    assert_eq!(cluster.dead(), []);
    (0..20).for_each(|_| _ = cluster.tick(100, &members[1..]));
    assert_eq!(cluster.dead(), [0], "the others are back");
}

/// Data has three copies, so two nodes may leave; while three are silent, each of them may have the only copy of something.
#[test]
fn nodes_with_disks_stay_while_they_may_have_the_last_copy() {
    let mut cluster = Cluster::of(3, true);
    let members: Vec<u32> = (0..9).collect();
    cluster.tick(10, &members);
    // Of each shard one voter.
    let silent: Vec<u32> =
        (0..3).map(|shard| cluster.machine.configuration().shards[shard].voters[2].0).collect();
    let but = |silent: &[u32]| -> Vec<u32> {
        members.iter().copied().filter(|node| !silent.contains(node)).collect()
    };
    (0..200).for_each(|_| _ = cluster.tick(100, &but(&silent)));
    assert_eq!(cluster.dead(), [], "any of them may have the last copy");
    (0..20).for_each(|_| _ = cluster.tick(100, &but(&silent[..2])));
    let mut gone = silent[..2].to_vec();
    gone.sort_unstable();
    assert_eq!(cluster.dead(), gone);
    assert!(!cluster.machine.has_all_copies());
    let options =
        ManagerOptions { membership_epochs: true, keeps_memory: true, ..ManagerOptions::default() };
    let image = StateMachine::from_image(&cluster.machine.image(), options).expect("an image");
    assert!(image == cluster.machine && !image.has_all_copies(), "{image:?}");
    (0..200).for_each(|_| _ = cluster.tick(100, &but(&silent)));
    assert_eq!(cluster.dead(), gone, "nothing is copied yet");
    cluster.tick(10, &but(&silent[..2]));
    (0..2).for_each(|shard| cluster.whole(shard));
    assert!(!cluster.machine.has_all_copies(), "one shard has not reported");
    cluster.whole(2);
    assert!(cluster.machine.has_all_copies());
    (0..20).for_each(|_| _ = cluster.tick(100, &but(&silent)));
    gone.push(silent[2]);
    gone.sort_unstable();
    assert_eq!(cluster.dead(), gone, "what it had is elsewhere");
}
