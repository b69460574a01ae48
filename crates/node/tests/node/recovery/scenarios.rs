//! Named bad times, and random ones.

use super::cluster::{Cluster, MS, Tested};
use crate::common::seeds;
use shoal_cluster::topology::Topology;
use shoal_mako::MakoObservation;
use shoal_types::{NodeId, ShardId, Time};
use std::sync::Arc;
use std::time::Duration;

fn cluster(seed: u64) -> Cluster {
    let workers = 1 + (seed % 2) as u32;
    let shape = match seed % 4 {
        0 | 1 => Topology::symmetric(3, 3, 3, 0, workers),
        2 => Topology::symmetric(3, 2, 3, 1, workers),
        _ => Topology::compact(3, 4, 3, 0, workers),
    };
    let mut cluster = Cluster::new(shape, seed);
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

#[test]
fn a_cluster_with_a_manager_runs() {
    let mut cluster = cluster(1);
    cluster.finish();
}

#[test]
fn a_crashed_leader_is_replaced_and_returns() {
    for seed in seeds(0..8) {
        let mut cluster = cluster(seed);
        let leader = cluster.topology.leader(ShardId(0));
        cluster.crash(leader);
        cluster.run(cluster.now + 400 * MS);
        cluster.restart(leader, seed % 3 > 0);
        cluster.run(cluster.now + 300 * MS);
        cluster.finish();
    }
}

/// Three shards with three voters each, for a while.
pub fn nine(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(Topology::symmetric(3, 3, 3, 0, 2), seed);
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

impl<E: Tested> Cluster<E> {
    pub fn leader(&self, shard: ShardId) -> NodeId {
        self.manager.machine().configuration().shards[shard.0 as usize].leader
    }

    /// Runs for so long, in which clients must get on.
    pub fn gets_on(&mut self, span: Duration) {
        let before = self.ledger.kept.borrow().len();
        self.run(self.now + span);
        if self.ledger.kept.borrow().len() == before {
            self.complain(&format!("nothing was committed in {span:?}"));
        }
    }
}

#[test]
fn a_learner_at_the_leaders_place_takes_over() {
    let mut cluster = Cluster::new(Topology::symmetric(3, 2, 3, 1, 1), 1);
    cluster.run(Time::ZERO + 300 * MS);
    cluster.crash(cluster.leader(ShardId(0)));
    cluster.run(cluster.now + 200 * MS);
    let heir = cluster.leader(ShardId(0));
    assert!(cluster.topology.learners(ShardId(0)).contains(&heir), "{heir} leads");
    cluster.gets_on(200 * MS);
    cluster.finish();
}

#[test]
fn a_whole_datacenter_fails_and_returns() {
    let mut cluster = nine(2);
    let topology = Arc::clone(&cluster.topology);
    let first = topology.nodes()[0].datacenter;
    let lost: Vec<NodeId> =
        topology.nodes().iter().filter(|node| node.datacenter == first).map(|it| it.id).collect();
    lost.iter().for_each(|node| cluster.crash(*node));
    cluster.run(cluster.now + 300 * MS);
    cluster.gets_on(300 * MS);
    lost.iter().for_each(|node| cluster.restart(*node, true));
    cluster.finish();
}

/// A leader that lives and is cut off, in one direction or both, from the manager: another leads, and it
/// follows when it learns of that.
#[test]
fn a_leader_that_is_suspected_wrongly_follows() {
    for (seed, cuts) in [(3, [true, false]), (4, [false, true]), (5, [true, true])] {
        let mut cluster = nine(seed);
        let (leader, manager) = (cluster.leader(ShardId(1)), cluster.manager_id());
        let ways = [(leader, manager), (manager, leader)];
        cluster.cut.extend(ways.into_iter().zip(cuts).filter(|(_, cut)| *cut).map(|(way, _)| way));
        cluster.run(cluster.now + 250 * MS);
        assert_ne!(cluster.leader(ShardId(1)), leader);
        cluster.gets_on(200 * MS);
        cluster.cut.clear();
        cluster.gets_on(200 * MS);
        cluster.finish();
    }
}

/// A leader whose heartbeats reach the manager stays, whichever nodes it does not reach.
#[test]
fn a_leader_that_others_do_not_hear_stays() {
    let mut cluster = nine(6);
    let leader = cluster.leader(ShardId(2));
    let topology = Arc::clone(&cluster.topology);
    let followers: Vec<NodeId> = topology.replicas(ShardId(2)).collect();
    let leaders: Vec<NodeId> = topology.shard_ids().map(|shard| topology.leader(shard)).collect();
    for others in [followers, leaders] {
        for other in others.into_iter().filter(|other| *other != leader) {
            cluster.cut.extend([(leader, other), (other, leader)]);
        }
        // Every worker waits for it sooner or later.
        cluster.run(cluster.now + 300 * MS);
        assert_eq!(cluster.leader(ShardId(2)), leader);
        cluster.cut.clear();
        cluster.gets_on(600 * MS); // Some waited longer and longer before they asked again.
    }
    cluster.finish();
}

/// The new leader fails as well: at each step of its recovery.
#[test]
fn a_second_failure_at_every_step() {
    let steps: [fn(&MakoObservation) -> bool; 6] = [
        |it| matches!(it, MakoObservation::Led { ballot, .. } if ballot.epoch.0 > 1),
        |it| matches!(it, MakoObservation::Appended { ballot, ends, .. } if ballot.epoch.0 > 1 && !ends.is_empty()),
        |it| matches!(it, MakoObservation::Reported { shard: ShardId(0), .. }),
        |it| matches!(it, MakoObservation::Settled { .. }),
        |it| matches!(it, MakoObservation::Serves { ballot, .. } if ballot.epoch.0 > 1),
        |it| matches!(it, MakoObservation::Acted { ballot, .. } if ballot.epoch.0 > 1),
    ];
    for (seed, step) in (10..).zip(steps) {
        let mut cluster = nine(seed);
        let first = cluster.leader(ShardId(0));
        cluster.crash(first);
        cluster.trap = Some(step);
        cluster.run(cluster.now + 150 * MS);
        assert!(cluster.trap.is_none(), "step {seed} was never reached");
        // Two of three replicas remember, then.
        cluster.restart(first, true);
        cluster.gets_on(600 * MS);
        cluster.finish();
    }
}

/// Anything that can go wrong, from a seed, for a while; then all is well again.
fn a_bad_time(seed: u64) {
    let mut cluster = cluster(seed);
    let nodes = cluster.topology.nodes().len() as u64;
    let end = cluster.now + 1500 * MS;
    let mut lost: Option<NodeId> = None;
    while cluster.now < end {
        let node = NodeId(cluster.random.below(nodes) as u32);
        match cluster.random.below(6) {
            // One replica of each shard may be down: shards share no nodes here.
            0 | 1 if cluster.is_up(node) && cluster.peers_are_well(node) => cluster.crash(node),
            2 | 3 if !cluster.is_up(node) => {
                let forgets = lost.is_none() && cluster.random.chance(1, 2);
                lost = if forgets { Some(node) } else { lost };
                cluster.restart(node, !forgets);
            }
            4 => {
                let other = NodeId(cluster.random.below(nodes + 1) as u32);
                cluster.note(format_args!("cut {node} to {other}"));
                cluster.cut.insert((node, other));
                if cluster.random.chance(1, 2) {
                    cluster.cut.insert((other, node));
                }
            }
            _ => cluster.cut.clear(),
        }
        let pause = Duration::from_nanos(cluster.random.below(60_000_000));
        cluster.run(cluster.now + pause);
    }
    cluster.finish();
}

#[test]
fn bad_times_lose_nothing() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first: u64 = number("RECOVERY_FIRST").unwrap_or(0);
    let chosen = match number("RECOVERY_SEEDS") {
        Some(count) => first..first + count,
        None => seeds(first..first + 8),
    };
    for seed in chosen {
        let outcome = std::panic::catch_unwind(|| a_bad_time(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
