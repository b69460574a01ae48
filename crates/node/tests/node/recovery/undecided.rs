//! While a shard is lost, what depends on it stays undecided on others, and holds nothing up there: streams are cut,
//! replicas without memory get copies and lead, and all of it is decided when the shard is back (rule M12).

use super::cluster::{Cluster, Fate, MS};
use super::lost_shard::Outcomes;
use crate::common::Row;
use shoal_cluster::topology::Topology;
use shoal_engine::{Engine, PlantedBugs};
use shoal_mako::MakoPlantedBug;
use shoal_mako::message::MakoRequest;
use shoal_node::WorkerMessage;
use shoal_types::{
    Aborted, Conflict, Database, Error, NodeId, ShardId, Time, Transaction, WorkerId,
};
use std::rc::Rc;

/// The shard that is lost for a while.
const S: ShardId = ShardId(0);

/// A shard that loses nothing.
const T: ShardId = ShardId(1);

/// Entries that a stream may hold: some that followers have to acknowledge, and those behind a copy that is kept for 400 ms.
const HELD_MAX: u64 = 1000;

/// Keys on T of transactions that also write on S: it commits there, is lost there, commits and is overwritten, commits
/// and its row is deleted.
struct Keys {
    committed: u64,
    lost: u64,
    overwritten: u64,
    deleted: u64,
}

impl Cluster {
    /// Has a node write a note of a shard that it leads, without reading it.
    fn write_blindly(&mut self, node: NodeId, key: u64, value: Option<&'static [u8]>) {
        let told = Outcomes::default();
        let engine = self.workers.get_mut(&(node, WorkerId(0))).expect("up").engine_mut();
        let (db, to) = (engine.local(), Rc::clone(&told));
        engine.spawn(Box::pin(async move {
            let table = db.table("notes").expect("there");
            let outcome = db.transact(async |tx| match value {
                Some(value) => tx.put(table, &key.to_be_bytes(), value),
                None => tx.delete(table, &key.to_be_bytes()),
            });
            let outcome = outcome.await;
            to.borrow_mut().push(outcome);
        }));
        self.nudge(node);
        self.run(self.now + 100 * MS);
        assert_eq!(told.take(), [Ok(())], "nothing of it was read");
    }

    /// Entries that the streams of a shard hold on a node, at most.
    fn entries_held(&self, node: NodeId, shard: ShardId) -> u64 {
        let workers = (0..self.topology.workers()).map(WorkerId);
        let streams = workers.map(|worker| self.workers[&(node, worker)].stream(shard));
        let held = streams.map(|stream| {
            let stream = stream.expect("held");
            stream.accepted().0 - stream.start().0
        });
        held.max().expect("one worker")
    }

    /// Notes of T are written, one after the other. Meanwhile no stream of T holds much.
    fn write_notes(&mut self, count: u64, from: &mut u64) {
        for _ in 0..count {
            *from = self.key_on(T, *from + 1);
            let leader = self.leader(T);
            self.touch(leader, &[*from], &Outcomes::default());
            self.run(self.now + MS);
            let voters = self.topology.voters(T).to_vec();
            for voter in voters.into_iter().filter(|voter| self.is_up(*voter)) {
                let held = self.entries_held(voter, T);
                assert!(held < HELD_MAX, "a stream of {T} holds {held} entries on {voter}");
            }
        }
    }

    /// The value of a note of T on each of its replicas, which are all up.
    fn note_on_replicas(&self, key: u64) -> Vec<Option<Vec<u8>>> {
        let voters = self.topology.voters(T).iter();
        let rows = voters.map(|voter| self.rows(*voter, T));
        let is_it = |row: &Row| row.0 == 1 && row.1 == key.to_be_bytes();
        rows.map(|rows| Some(rows.into_iter().find(is_it)?.2)).collect()
    }
}

/// Two shards. Transactions of both, coordinated by the leader of T, are durable there, and S is lost before T learns what
/// became of them.
fn begin(seed: u64, workers: u32, faults: PlantedBugs<MakoPlantedBug>) -> (Cluster, Keys) {
    let topology = Topology::symmetric(2, 2, 3, 0, workers);
    let mut cluster = Cluster::with(topology, seed, |setup| {
        (setup.streams.trim_entries, setup.streams.retain_bytes) = (4, 0);
        setup.options.snapshot_part.records_max = 10;
        setup.options.faults = faults;
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    let (x, z) = (cluster.leader(S), cluster.leader(T));
    let mut next = 1 << 40;
    let mut key = || {
        next = cluster.key_on(T, next + 1);
        next
    };
    let keys = Keys { committed: key(), lost: key(), overwritten: key(), deleted: key() };
    let drop_gossip = |message: &WorkerMessage<shoal_mako::MakoMessage>| {
        matches!(
            message,
            WorkerMessage::Engine { message: shoal_mako::MakoMessage::Gossip { .. }, .. }
        )
    };
    cluster.filter =
        Some(Box::new(
            move |from, _, message| {
                if from.0 == x && drop_gossip(message) { Fate::Drop } else { Fate::Pass }
            },
        ));
    let on_s = cluster.key_on(S, 1 << 41);
    for (key, on_s) in [keys.committed, keys.overwritten, keys.deleted].into_iter().zip([0, 1, 2]) {
        let on_s = cluster.key_on(S, (1 << 41) + on_s * 1000);
        cluster.touch(z, &[key, on_s], &Outcomes::default());
        cluster.run(cluster.now + 40 * MS);
    }
    let is_install = |message: &WorkerMessage<shoal_mako::MakoMessage>| {
        matches!(
            message,
            WorkerMessage::Engine {
                message: shoal_mako::MakoMessage::Request {
                    request: MakoRequest::Install { .. },
                    ..
                },
                ..
            }
        )
    };
    cluster.filter = Some(Box::new(move |from, to, message| {
        let is_dropped = from.0 == x && drop_gossip(message) || to == x && is_install(message);
        if is_dropped { Fate::Drop } else { Fate::Pass }
    }));
    cluster.touch(z, &[keys.lost, on_s + 1_000_000], &Outcomes::default());
    cluster.run(cluster.now + 10 * MS);
    let voters = cluster.topology.voters(S).to_vec();
    let other = *voters.iter().find(|voter| **voter != x).expect("three voters");
    [x, other].into_iter().for_each(|node| cluster.cut_off(node));
    cluster.filter = None;
    cluster.run(cluster.now + 200 * MS);
    (cluster, keys)
}

fn go_through(seed: u64, workers: u32, faults: PlantedBugs<MakoPlantedBug>) {
    let (mut cluster, keys) = begin(seed, workers, faults);
    let z = cluster.leader(T);
    for key in [keys.committed, keys.lost] {
        let told = Outcomes::default();
        cluster.touch(z, &[key], &told);
        cluster.run(cluster.now + 10_000 * MS);
        let told = told.take();
        let Some(Err(Error::Aborted(Aborted::RetriesExhausted { last, .. }))) = told.first() else {
            panic!("seed {seed}: {told:?}");
        };
        assert!(matches!(last, Conflict::Undecided { shard: S, .. }), "seed {seed}: {told:?}");
    }
    cluster.write_blindly(z, keys.overwritten, Some(b"newer"));
    cluster.write_blindly(z, keys.deleted, None);
    let mut from = 1 << 43;
    cluster.write_notes(2500, &mut from);
    // One follower comes back without memory, and gets a copy of a stream that was cut; then it leads.
    // It is in the same datacenter, and so the next to lead.
    let away = cluster.topology.voters(T)[2];
    assert_ne!(z, away);
    cluster.crash(away);
    cluster.write_notes(100, &mut from);
    cluster.restart(away, false);
    cluster.until_voters(T);
    assert!(cluster.starts_of(away, T).iter().all(|start| *start > 0), "it got a copy");
    cluster.crash(z);
    cluster.until("a successor", |cluster| cluster.leader(T) == away);
    cluster.restart(z, false);
    cluster.until_voters(T);
    cluster.write_notes(100, &mut from);
    // S is back, and says how its epochs ended.
    cluster.cut.clear();
    cluster.until("all is settled", |cluster| {
        let truth = cluster.manager.machine().configuration();
        truth.settled.0 + 1 == truth.epoch.0
    });
    cluster.finish();
    let all = |value: Option<&[u8]>| vec![value.map(<[u8]>::to_vec); 3];
    assert_eq!(
        cluster.note_on_replicas(keys.committed),
        all(Some(b"touched")),
        "seed {seed}: it committed"
    );
    assert_eq!(cluster.note_on_replicas(keys.lost), all(None), "seed {seed}: it was rolled back");
    assert_eq!(cluster.note_on_replicas(keys.overwritten), all(Some(b"newer")), "seed {seed}");
    assert_eq!(cluster.note_on_replicas(keys.deleted), all(None), "seed {seed}: it was deleted");
}

#[test]
fn what_a_lost_shard_leaves_undecided_holds_nothing_up() {
    for (seed, workers) in [(1, 1), (2, 2), (5, 1), (4, 3)] {
        go_through(seed, workers, PlantedBugs::NONE);
    }
}

#[test]
#[should_panic(expected = "it committed")]
fn copies_without_what_is_undecided_are_seen() {
    go_through(1, 1, PlantedBugs::only(MakoPlantedBug::CopyWithoutUndecided));
}
