//! The leader crashes between the parts of one transaction: its successor drops or completes all of them.

use super::cluster::{Cluster, Coming, MS};
use consensus::topology::{Home, Topology};
use engines::Engine;
use std::collections::BTreeSet;
use types::{Database, NodeId, ShardId, Time, Transaction, WorkerId};

const S: ShardId = ShardId(0);
const FIRST: WorkerId = WorkerId(0);

/// So many keys are written, and each is a part.
const PARTS: usize = 12;

/// Two shards with three voters each, with parts of one write, and as many keys to a step.
fn cluster(seed: u64) -> Cluster {
    let mut cluster = Cluster::with(Topology::symmetric(2, 2, 3, 0, 1), seed, |setup| {
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
    fn absent(&self) -> BTreeSet<Vec<u8>> {
        let table = self.topology.table("notes").expect("there");
        let keys = (1u64 << 40..).map(|key| key.to_be_bytes().to_vec());
        keys.filter(|key| self.topology.home(table, key) == Some(Home::One(S)))
            .take(PARTS)
            .collect()
    }

    /// The leader of S begins to write all of them in one transaction.
    fn write(&mut self, leader: NodeId, keys: BTreeSet<Vec<u8>>) {
        let engine = self.workers.get_mut(&(leader, FIRST)).expect("up").engine_mut();
        let db = engine.local();
        engine.spawn(Box::pin(async move {
            let table = db.table("notes").expect("there");
            // The node crashes, and with it goes the answer.
            let _ = db
                .transact(async |tx| keys.iter().try_for_each(|key| tx.put(table, key, b"part")))
                .await;
        }));
        let event = shoal_node::Event::Nudged;
        self.send(MS / 100, Coming::Worker((leader, FIRST), self.lives[&leader], event));
    }

    /// How many entries of S's stream a node has.
    fn accepted(&self, node: NodeId) -> u64 {
        self.workers[&(node, FIRST)].stream(S).expect("a replica").accepted().0
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
        let mut cluster = cluster(seed);
        let leader = cluster.leader(S);
        let topology = std::sync::Arc::clone(&cluster.topology);
        let followers: Vec<NodeId> =
            topology.replicas(S).filter(|replica| *replica != leader).collect();
        let keys = cluster.absent();
        let before = cluster.accepted(followers[0]);
        cluster.write(leader, keys.clone());
        cluster.run(cluster.now + (MS / 4) * seed as u32);
        let parts = cluster.accepted(followers[0]) - before;
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
