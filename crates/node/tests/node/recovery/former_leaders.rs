//! A replica whose store holds versions that it certified as the leader and never saw decided comes to lead
//! again before their epoch is settled, and gives copies of its store (rule M10).

use super::cluster::{Cluster, Coming, Fate, MS};
use shoal_cluster::topology::{Home, Topology};
use shoal_engine::Engine;
use shoal_node::WorkerMessage;
use shoal_types::{Database, NodeId, ShardId, Time, Transaction, WorkerId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const S: ShardId = ShardId(0);
const T: ShardId = ShardId(1);
const FIRST: WorkerId = WorkerId(0);

/// So many rows are certified and never decided.
const UNDECIDED: usize = 5;

/// Two shards with three voters each. Streams keep next to nothing, and copies come in many parts.
fn cluster(seed: u64) -> Cluster {
    let mut cluster = Cluster::with(Topology::symmetric(2, 2, 3, 0, 2), seed, |setup| {
        (setup.streams.trim_entries, setup.streams.retain_bytes) = (1, 0);
        setup.options.snapshot_part.records_max = 10;
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster.stop.set(true);
    // Clients whose nodes lead nothing wait in the queue for as long as they may.
    cluster.run(cluster.now + 2000 * MS);
    cluster
}

/// What the former leader certifies and never sees decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undecided {
    /// Other values of rows that are there.
    Values,
    /// Deletions of rows that are there.
    Deletions,
    /// Rows that were not there.
    Insertions,
}

impl Cluster {
    /// Wakes the first worker of a node, on which tasks were spawned.
    fn wake_first(&mut self, node: NodeId) {
        let event = shoal_node::WorkerEvent::Nudged;
        self.send(MS / 100, Coming::Worker((node, FIRST), self.incarnations[&node], event));
    }

    /// The keys of notes of S that are there, or that are not.
    fn notes(&self, node: NodeId, change: Undecided) -> Vec<Vec<u8>> {
        let rows = self.rows(node, S).into_iter().filter(|(table, ..)| *table == 1);
        let present = rows.map(|(_, key, _)| key);
        let table = self.topology.table("notes").expect("there");
        let new = (1u64 << 40..).map(|key| key.to_be_bytes().to_vec());
        let absent = new.filter(|key| self.topology.home(table, key) == Some(Home::One(S)));
        let keys: Vec<_> = match change {
            Undecided::Values | Undecided::Deletions => present.take(UNDECIDED).collect(),
            Undecided::Insertions => absent.take(UNDECIDED).collect(),
        };
        assert_eq!(keys.len(), UNDECIDED);
        keys
    }

    /// Has the first worker of a node certify changes of these notes.
    fn certify(&mut self, node: NodeId, keys: &[Vec<u8>], change: Undecided) {
        for key in keys {
            let key = key.clone();
            let engine = self.workers.get_mut(&(node, FIRST)).expect("up").engine_mut();
            let db = engine.local();
            engine.spawn(Box::pin(async move {
                let table = db.table("notes").expect("there");
                // It ends with the node's lead, if it ever does.
                let _ = db
                    .transact(async |tx| match change {
                        Undecided::Values | Undecided::Insertions => tx.put(table, &key, b"lost"),
                        Undecided::Deletions => tx.delete(table, &key),
                    })
                    .await;
            }));
        }
        self.wake_first(node);
    }

    /// What a transaction on the leader of S reads of these notes.
    fn read(&mut self, leader: NodeId, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let seen = Rc::new(RefCell::new(BTreeMap::new()));
        for (at, key) in keys.iter().enumerate() {
            let key = key.clone();
            let engine = self.workers.get_mut(&(leader, FIRST)).expect("up").engine_mut();
            let (db, seen) = (engine.local(), Rc::clone(&seen));
            engine.spawn(Box::pin(async move {
                let table = db.table("notes").expect("there");
                let read =
                    db.transact(async |tx| Ok(tx.get(table, &key).await?.map(<[u8]>::to_vec)));
                let value = read.await.expect("the shard is served");
                seen.borrow_mut().insert(at, value);
            }));
        }
        self.wake_first(leader);
        let (all, expected) = (Rc::clone(&seen), keys.len());
        self.until("the notes are read", |_| all.borrow().len() == expected);
        seen.take().into_values().collect()
    }
}

/// The leader of S certifies changes that do not leave its stream, is cut off, and follows its successor. While
/// the first epoch is not settled, it leads again and gives a copy to the third replica, which has lost its
/// memory; then that one comes to lead.
fn gives_what_it_certified(seed: u64, change: Undecided) {
    let mut cluster = cluster(seed);
    let (former, other) = (cluster.leader(S), cluster.leader(T));
    let keys = cluster.notes(former, change);
    let committed = cluster.rows(former, S);
    cluster.filter = Some(Box::new(move |(from, worker), _, message| match message {
        WorkerMessage::Stream {
            shard, message: shoal_log::StreamMessage::Append { .. }, ..
        } if from == former && worker == FIRST && *shard == S => Fate::Drop,
        _ => Fate::Pass,
    }));
    cluster.certify(former, &keys, change);
    cluster.run(cluster.now + 15 * MS);
    assert_ne!(cluster.rows(former, S), committed, "nothing was certified");
    // No epoch is settled from now on.
    cluster.mute = Some(other);
    cluster.cut_off(former);
    cluster.until("a successor", |cluster| cluster.leader(S) != former);
    let successor = cluster.leader(S);
    cluster.until("the successor's streams are prepared", |cluster| {
        let stream = |worker| cluster.workers[&(successor, worker)].stream(S).expect("held");
        (0..2).all(|worker| stream(WorkerId(worker)).is_leading())
    });
    cluster.run(cluster.now + 5 * MS);
    cluster.filter = None;
    cluster.cut.clear();
    cluster.run(cluster.now + 150 * MS);
    // The other shard's leader fails: one more epoch.
    cluster.cut_off(other);
    cluster.until("a successor of the other", |cluster| cluster.leader(T) != other);
    cluster.mute = Some(cluster.leader(T));
    cluster.run(cluster.now + 150 * MS);
    // The third replica loses its memory, and the former leader is appointed again.
    let voters = cluster.topology.voters(S).to_vec();
    let third = voters.into_iter().find(|node| ![former, successor].contains(node));
    let third = third.expect("three voters");
    cluster.crash(third);
    let manager = cluster.manager_id();
    cluster.cut.extend([(successor, manager), (manager, successor)]);
    cluster.until("the former leader leads again", |cluster| cluster.leader(S) == former);
    cluster.run(cluster.now + 60 * MS);
    cluster.restart(third, false);
    cluster.until("the copy", |cluster| cluster.starts(third).iter().all(|start| *start > 0));
    assert_eq!(cluster.rows(third, S), committed, "M10: the copy holds more, or less");
    cluster.mute = None;
    cluster.cut.clear();
    cluster.run(cluster.now + 500 * MS);
    for node in [former, successor, third] {
        assert_eq!(cluster.rows(node, S), committed, "{node} after the end of the epochs");
    }
    for node in [former, successor] {
        cluster.cut.extend([(node, manager), (manager, node)]);
    }
    cluster.until("the third replica leads", |cluster| cluster.leader(S) == third);
    cluster.cut.clear();
    cluster.run(cluster.now + 400 * MS);
    let expected = (change != Undecided::Insertions).then(|| b"moved".to_vec());
    assert_eq!(cluster.read(third, &keys), vec![expected; UNDECIDED]);
    cluster.finish();
}

#[test]
fn values_that_a_former_leader_certified_are_in_no_copy() {
    (100..104).for_each(|seed| gives_what_it_certified(seed, Undecided::Values));
}

#[test]
fn deletions_that_a_former_leader_certified_are_in_no_copy() {
    (104..108).for_each(|seed| gives_what_it_certified(seed, Undecided::Deletions));
}

#[test]
fn insertions_that_a_former_leader_certified_are_in_no_copy() {
    (108..112).for_each(|seed| gives_what_it_certified(seed, Undecided::Insertions));
}
