//! The leader crashes between the parts of one transaction: its successor drops or completes all of them.

use super::cluster::{Cluster, Coming, MS};
use shoal_cluster::topology::{Home, Topology};
use shoal_engine::Engine;
use shoal_types::{Database, NodeId, ShardId, Time, Transaction, WorkerId};
use std::collections::BTreeSet;

const S: ShardId = ShardId(0);
const FIRST: WorkerId = WorkerId(0);

/// So many keys are written, and each is a part.
const PARTS: usize = 12;

/// Two shards with three voters each, with parts of one write, and as many keys to a step.
fn cluster(seed: u64, workers: u32) -> Cluster {
    let mut cluster = Cluster::with(Topology::symmetric(2, 2, 3, 0, workers), seed, |setup| {
        setup.options.part_writes_max = 1;
        setup.options.limits.step_keys_max = 1;
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster.stop.set(true);
    // Clients whose nodes lead nothing wait in the queue for as long as they may.
    cluster.run(cluster.now + 2000 * MS);
    cluster
}

impl Cluster {
    /// Keys that live on S and are not there.
    fn absent(&self, count: usize) -> BTreeSet<Vec<u8>> {
        let table = self.topology.table("notes").expect("there");
        let keys = (1u64 << 40..).map(|key| key.to_be_bytes().to_vec());
        keys.filter(|key| self.topology.home(table, key) == Some(Home::One(S)))
            .take(count)
            .collect()
    }

    /// A worker of the leader of S begins to write all of them in one transaction.
    fn write(&mut self, leader: NodeId, worker: WorkerId, keys: BTreeSet<Vec<u8>>) {
        let engine = self.workers.get_mut(&(leader, worker)).expect("up").engine_mut();
        let db = engine.local();
        engine.spawn(Box::pin(async move {
            let table = db.table("notes").expect("there");
            // The node crashes, and with it goes the answer.
            let _ = db
                .transact(async |tx| keys.iter().try_for_each(|key| tx.put(table, key, b"part")))
                .await;
        }));
        let event = shoal_node::WorkerEvent::Nudged;
        self.send(MS / 100, Coming::Worker((leader, worker), self.incarnations[&leader], event));
    }

    /// How many entries of S's stream a node has.
    fn accepted(&self, node: NodeId, worker: WorkerId) -> u64 {
        self.workers[&(node, worker)].stream(S).expect("a replica").accepted().0
    }

    /// How many of the keys a node has in its store.
    fn present(&self, node: NodeId, keys: &BTreeSet<Vec<u8>>) -> usize {
        let rows = self.rows(node, S).into_iter();
        rows.filter(|(table, key, _)| *table == 1 && keys.contains(key)).count()
    }
}

#[test]
fn a_leader_that_crashes_between_parts_leaves_all_or_none() {
    let (mut between, mut none, mut all) = (0, 0, 0);
    for seed in 0..24 {
        let mut cluster = cluster(seed, 1);
        let leader = cluster.leader(S);
        let topology = std::sync::Arc::clone(&cluster.topology);
        let followers: Vec<NodeId> =
            topology.replicas(S).filter(|replica| *replica != leader).collect();
        let keys = cluster.absent(PARTS);
        let before = cluster.accepted(followers[0], FIRST);
        cluster.write(leader, FIRST, keys.clone());
        cluster.run(cluster.now + (MS / 4) * seed as u32);
        let parts = cluster.accepted(followers[0], FIRST) - before;
        between += u32::from((1..PARTS as u64).contains(&parts));
        cluster.crash(leader);
        cluster.run(cluster.now + 400 * MS);
        assert_ne!(cluster.leader(S), leader);
        let successor = cluster.leader(S);
        let present = cluster.present(successor, &keys);
        assert!(
            present == 0 || present == PARTS,
            "seed {seed}: {present} of {PARTS} parts are in the store, {parts} were accepted"
        );
        (none, all) = (none + u32::from(present == 0), all + u32::from(present == PARTS));
        cluster.finish();
        topology.replicas(S).for_each(|replica| {
            assert_eq!(cluster.present(replica, &keys), present, "seed {seed}: {replica}");
        });
    }
    assert!(between > 3 && none > 0 && all > 0, "{between} between parts, {none} none, {all} all");
}

/// A worker stands still in the midst of its parts, and so long that its shard is out of later epochs, of which one is settled
/// before its own. Then it goes on: nothing has said how its own epoch ends.
#[test]
fn a_later_epoch_that_is_settled_first_ends_no_parts() {
    const SECOND: WorkerId = WorkerId(1);
    // More than may be ahead of what is decided.
    const MANY: usize = 48;
    let mut between = 0;
    for seed in 0..8 {
        let mut cluster = cluster(seed, 2);
        let leader = cluster.leader(S);
        let topology = std::sync::Arc::clone(&cluster.topology);
        let follower = topology.replicas(S).find(|node| *node != leader).expect("three voters");
        let keys = cluster.absent(MANY);
        let before = cluster.accepted(follower, SECOND);
        cluster.write(leader, SECOND, keys.clone());
        cluster.run(cluster.now + (MS / 2) * seed as u32);
        cluster.stalled = Some((leader, SECOND));
        cluster.run(cluster.now + 2 * MS);
        let parts = cluster.accepted(follower, SECOND) - before;
        between += u32::from((1..MANY as u64).contains(&parts));
        let epoch = |cluster: &Cluster| cluster.manager.machine().configuration().epoch;
        let own = epoch(&cluster);
        for _ in 0..3 {
            let other = cluster.leader(ShardId(1));
            cluster.crash(other);
            cluster.run(cluster.now + 200 * MS);
            cluster.restart(other, true);
            cluster.run(cluster.now + 200 * MS);
        }
        let truth = cluster.manager.machine().configuration();
        assert!(truth.last(own).is_none(), "seed {seed}: {own} is settled without S");
        let mut later = (own.0 + 1..truth.epoch.0).map(shoal_types::Epoch);
        assert!(later.any(|epoch| truth.last(epoch).is_some()), "seed {seed}: no epoch overtakes");
        assert_eq!(cluster.leader(S), leader, "seed {seed}");
        cluster.wake();
        cluster.run(cluster.now + 400 * MS);
        let present = cluster.present(leader, &keys);
        assert!(present == 0 || present == MANY, "seed {seed}: {present} of {MANY} parts");
        cluster.finish();
        topology.replicas(S).for_each(|replica| {
            assert_eq!(cluster.present(replica, &keys), present, "seed {seed}: {replica}");
        });
    }
    assert!(between > 2, "{between} were between parts");
}
