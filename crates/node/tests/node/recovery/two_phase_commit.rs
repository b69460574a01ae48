//! The same of `two_phase_commit`: leaders die at each step of a transaction, with all that hangs on it.

use super::cluster::{Cluster, Fate, MS, quick};
use crate::common::seeds;
use shoal_cluster::topology::Topology;
use shoal_node::WorkerMessage;
use shoal_two_phase_commit::message::{TwoPhaseCommitReply, TwoPhaseCommitRequest};
use shoal_two_phase_commit::{
    TwoPhaseCommit, TwoPhaseCommitMessage, TwoPhaseCommitObservation, TwoPhaseCommitOptions,
};
use shoal_types::{NodeId, ShardId, Time, WorkerId};
use std::cell::Cell;
use std::rc::Rc;

type Message = WorkerMessage<TwoPhaseCommitMessage>;

/// Three shards with three voters each, for a while.
fn cluster(seed: u64) -> Cluster<TwoPhaseCommit> {
    let workers = 1 + (seed % 2) as u32;
    let topology = match seed % 3 {
        0 => Topology::compact(3, 3, 3, 0, workers),
        _ => Topology::symmetric(3, 3, 3, 0, workers),
    };
    let mut options = TwoPhaseCommitOptions::default();
    options.limits.retry_after = 20 * MS;
    options.limits.sessions_max = 1 << 10;
    options.inquire_every = 20 * MS;
    options.inquire_after = 100 * MS;
    let mut cluster = Cluster::of(topology, seed, quick(), options, |_| {});
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

/// The node that crashed.
fn crashed(cluster: &Cluster<TwoPhaseCommit>) -> Option<NodeId> {
    cluster.topology.nodes().iter().map(|node| node.id).find(|node| !cluster.is_up(*node))
}

/// Goes on until a node has crashed, and its shards are served again.
fn survives(mut cluster: Cluster<TwoPhaseCommit>, keeps: bool) {
    let end = cluster.now + 1000 * MS;
    while crashed(&cluster).is_none() {
        assert!(cluster.now < end, "nothing crashes");
        cluster.run(cluster.now + MS);
    }
    let dead = crashed(&cluster).expect("seen above");
    cluster.run(cluster.now + 300 * MS);
    let leads = |shard: &ShardId| cluster.leader(*shard) == dead;
    assert!(!cluster.topology.shard_ids().any(|shard| leads(&shard)), "{dead} leads on");
    cluster.gets_on(300 * MS);
    cluster.restart(dead, keeps);
    cluster.gets_on(300 * MS);
    cluster.finish();
}

/// Has the node crash that lets this be seen first.
fn dies_when(seed: u64, trap: fn(&TwoPhaseCommitObservation) -> bool) {
    let mut cluster = cluster(seed);
    cluster.trap = Some(trap);
    survives(cluster, seed.is_multiple_of(2));
}

#[test]
fn a_cluster_with_a_manager_runs() {
    (0..4).for_each(|seed| cluster(seed).finish());
}

#[test]
fn a_crashed_leader_is_replaced_and_returns() {
    for seed in seeds(0..8) {
        let mut cluster = cluster(seed);
        let leader = cluster.topology.leader(ShardId(0));
        cluster.crash(leader);
        survives(cluster, seed % 3 > 0);
    }
}

/// All is prepared, and the decision is not in the stream: nothing of it happens.
#[test]
fn a_coordinator_dies_before_its_decision() {
    for seed in seeds(0..8) {
        dies_when(
            seed,
            |seen| matches!(seen, TwoPhaseCommitObservation::Certified { writes, .. } if writes.len() > 1),
        );
    }
}

/// The decision is durable, and no participant has learned of it: all of it happens.
#[test]
fn a_coordinator_dies_with_its_decision() {
    for seed in seeds(0..8) {
        dies_when(
            seed,
            |seen| matches!(seen, TwoPhaseCommitObservation::Acknowledged { shards, .. } if *shards > 1),
        );
    }
}

/// A worker of a leader that takes over finds something in doubt, and dies as well.
#[test]
fn a_leader_dies_that_takes_over() {
    for seed in seeds(0..8) {
        let mut cluster = cluster(seed);
        let leader = cluster.leader(ShardId(1));
        cluster.crash(leader);
        cluster.run(cluster.now + 50 * MS);
        cluster.trap = Some(|seen| matches!(seen, TwoPhaseCommitObservation::Recovered { .. }));
        cluster.run(cluster.now + 300 * MS);
        cluster.trap = None;
        cluster.restart(leader, true);
        cluster.run(cluster.now + 300 * MS);
        cluster.finish();
    }
}

/// Says what becomes of a reply or a request of this kind, and notes the sender of the first.
fn watch(
    cluster: &mut Cluster<TwoPhaseCommit>,
    is_it: fn(&TwoPhaseCommitMessage) -> bool,
) -> Rc<Cell<Option<(NodeId, NodeId)>>> {
    let seen = Rc::new(Cell::new(None));
    let noted = Rc::clone(&seen);
    cluster.filter = Some(Box::new(move |(from, _), to, message: &Message| match message {
        WorkerMessage::Engine { message, .. } if is_it(message) => {
            if noted.get().is_none() {
                noted.set(Some((from, to)));
            }
            Fate::Drop
        }
        WorkerMessage::Engine { .. } | WorkerMessage::Stream { .. } => Fate::Pass,
    }));
    seen
}

/// Crashes the nodes between which the first message of this kind was sent; all of these get lost.
fn both_die(seed: u64, is_it: fn(&TwoPhaseCommitMessage) -> bool, which: [bool; 2]) {
    // Not where one node leads all shards.
    let mut cluster = cluster(3 * seed + 1);
    let seen = watch(&mut cluster, is_it);
    let end = cluster.now + 1000 * MS;
    while seen.get().is_none() {
        assert!(cluster.now < end, "no such message");
        cluster.run(cluster.now + MS / 4);
    }
    let (from, to) = seen.get().expect("seen above");
    let dead = [from, to].into_iter().zip(which).filter(|(_, dies)| *dies);
    let dead: Vec<NodeId> = dead.map(|(node, _)| node).collect();
    dead.iter().for_each(|node| cluster.crash(*node));
    cluster.filter = None;
    cluster.run(cluster.now + 300 * MS);
    dead.iter().for_each(|node| cluster.restart(*node, true));
    cluster.gets_on(400 * MS);
    cluster.finish();
}

fn is_validated(message: &TwoPhaseCommitMessage) -> bool {
    let validated = TwoPhaseCommitReply::Validated;
    matches!(message, TwoPhaseCommitMessage::Reply { reply, .. } if *reply == validated)
}

fn is_commit(message: &TwoPhaseCommitMessage) -> bool {
    let commit = TwoPhaseCommitRequest::Commit;
    matches!(message, TwoPhaseCommitMessage::Request { request, .. } if *request == commit)
}

/// A participant has prepared, durably, and dies; and so does its coordinator, or not.
#[test]
fn a_prepared_participant_dies() {
    for seed in seeds(0..6) {
        both_die(seed, is_validated, [true, false]);
    }
}

#[test]
fn a_prepared_participant_and_its_coordinator_die() {
    for seed in seeds(1..8) {
        both_die(seed, is_validated, [true, true]);
    }
}

/// It is decided, the client is answered, and the participant has not learned.
#[test]
fn a_participant_dies_before_it_hears_the_decision() {
    for seed in seeds(0..6) {
        both_die(seed, is_commit, [false, true]);
    }
}

#[test]
fn a_coordinator_and_a_participant_die_with_the_decision() {
    for seed in seeds(1..8) {
        both_die(seed, is_commit, [true, true]);
    }
}

#[test]
fn bad_times_are_survived() {
    for seed in seeds(0..8) {
        let mut cluster = cluster(seed);
        for round in 0..6_u64 {
            let nodes = cluster.topology.nodes().len() as u64;
            let node = NodeId(cluster.random.below(nodes) as u32);
            if cluster.is_up(node) && cluster.peers_are_well(node) {
                cluster.crash(node);
                let down = cluster.random.below(200) as u32;
                cluster.run(cluster.now + down * MS);
                cluster.restart(node, round % 2 == 0);
            }
            let others = (0..nodes as u32).map(NodeId).filter(|other| *other != node);
            if cluster.random.chance(1, 3) {
                for other in others {
                    cluster.cut.extend([(node, other), (other, node)]);
                }
            }
            cluster.run(cluster.now + 150 * MS);
            cluster.cut.clear();
            // Until all have their votes again.
            cluster.run(cluster.now + 200 * MS);
        }
        cluster.finish();
    }
}

/// Streams keep next to nothing, and copies come in many parts.
#[test]
fn streams_are_cut_and_a_replica_without_memory_gets_a_copy() {
    for seed in seeds(0..6) {
        let mut options = TwoPhaseCommitOptions::default();
        options.limits.retry_after = 20 * MS;
        options.limits.sessions_max = 1 << 10;
        options.inquire_every = 20 * MS;
        options.snapshot_part.records_max = 10;
        let topology = Topology::symmetric(3, 3, 3, 0, 1 + (seed % 2) as u32);
        let mut cluster =
            Cluster::<TwoPhaseCommit>::of(topology, seed, quick(), options, |setup| {
                (setup.streams.trim_entries, setup.streams.retain_bytes) = (4, 0);
            });
        cluster.run(Time::ZERO + 600 * MS);
        let starts = |cluster: &Cluster<TwoPhaseCommit>, node, shard| -> Vec<u64> {
            let workers = (0..cluster.topology.workers()).map(WorkerId);
            let stream = |worker| cluster.workers[&(node, worker)].stream(shard).expect("held");
            workers.map(|worker| stream(worker).start().0).collect()
        };
        for shard in cluster.topology.shard_ids() {
            let starts = starts(&cluster, cluster.leader(shard), shard);
            assert!(starts.iter().all(|start| *start > 0), "{shard} keeps all: {starts:?}");
        }
        // In every other seed a leader, whose successor may need a copy itself.
        let shard = ShardId(0);
        let leader = cluster.leader(shard);
        let followers = cluster.topology.voters(shard).iter();
        let follower = followers.copied().find(|voter| *voter != leader).expect("three voters");
        let victim = if seed.is_multiple_of(2) { leader } else { follower };
        cluster.crash(victim);
        cluster.gets_on(300 * MS);
        cluster.restart(victim, false);
        cluster.run(cluster.now + 1000 * MS);
        let starts = starts(&cluster, victim, shard);
        assert!(starts.iter().all(|start| *start > 0), "{victim} has no copy: {starts:?}");
        cluster.gets_on(300 * MS);
        cluster.finish();
    }
}
