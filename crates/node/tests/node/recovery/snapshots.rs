//! Replicas that lack what streams have no more.

use super::cluster::{Cluster, Fate, MS};
use shoal_cluster::topology::Topology;
use shoal_node::WorkerMessage;
use shoal_types::{NodeId, ShardId, Time, WorkerId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const S: ShardId = ShardId(0);

/// A shard with three voters beside another one. Streams keep next to nothing, and copies come in many parts.
fn cluster(workers: u32, seed: u64) -> Cluster {
    let mut cluster = Cluster::with(Topology::symmetric(2, 3, 3, 0, workers), seed, |setup| {
        (setup.streams.trim_entries, setup.streams.retain_bytes) = (4, 0);
        setup.options.snapshot_part.records_max = 10;
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster
}

impl Cluster {
    /// A voter of the shard that does not lead it.
    pub fn follower(&self) -> NodeId {
        let voters = self.topology.voters(S);
        *voters.iter().find(|voter| **voter != self.leader(S)).expect("three voters")
    }

    /// The first entries that the streams of a replica still hold.
    pub fn starts(&self, node: NodeId) -> Vec<u64> {
        self.starts_of(node, S)
    }

    /// The same of any shard.
    pub fn starts_of(&self, node: NodeId, shard: ShardId) -> Vec<u64> {
        let workers = (0..self.topology.workers()).map(WorkerId);
        let stream = |worker| self.workers[&(node, worker)].stream(shard).expect("held");
        let streams = workers.map(stream);
        streams.map(|stream| stream.start().0).collect()
    }

    /// No node learns that one any more, and it receives none.
    pub fn cut_off(&mut self, node: NodeId) {
        let others = (0..=self.manager_id().0).map(NodeId).filter(|other| *other != node);
        self.cut.extend(others.flat_map(|other| [(node, other), (other, node)]));
    }

    /// Runs until a replica's streams begin behind something, and its word counts.
    fn until_restored(&mut self, node: NodeId) {
        for _ in 0..200 {
            let truth = self.manager.machine().configuration();
            let counts = !truth.shards[S.0 as usize].empty.contains_key(&node);
            if counts && self.starts(node).iter().all(|start| *start > 0) {
                return;
            }
            self.run(self.now + 10 * MS);
        }
        panic!("{node} has nothing after two seconds: {:?}", self.starts(node));
    }

    /// What becomes of the parts of copies.
    fn filter_parts(
        &mut self,
        mut fate: impl FnMut(&shoal_mako::message::SnapshotChunk) -> Fate + 'static,
    ) {
        self.filter = Some(Box::new(move |_, _, message| match message {
            WorkerMessage::Engine { message: shoal_mako::MakoMessage::Chunk(part), .. }
                if part.shard == S =>
            {
                fate(part)
            }
            _ => Fate::Pass,
        }));
    }
}

#[test]
fn streams_are_cut_although_a_replica_is_away() {
    let mut cluster = cluster(1, 1);
    let away = cluster.follower();
    cluster.crash(away);
    let before = cluster.starts(cluster.leader(S));
    cluster.gets_on(300 * MS);
    cluster.until("it is cut", |cluster| cluster.starts(cluster.leader(S)) > before);
    cluster.restart(away, false);
    cluster.until_restored(away);
    cluster.finish();
}

#[test]
fn a_replica_without_memory_begins_behind_a_snapshot_and_may_lead() {
    for (workers, seed) in [(1, 2), (2, 3), (3, 4)] {
        let mut cluster = cluster(workers, seed);
        let first = cluster.leader(S);
        cluster.crash(first);
        cluster.gets_on(400 * MS);
        cluster.restart(first, false);
        cluster.until_restored(first);
        // With one voter away, its word is needed.
        let second = cluster.leader(S);
        cluster.crash(second);
        cluster.gets_on(400 * MS);
        cluster.restart(second, false);
        cluster.until_restored(second);
        cluster.finish();
    }
}

/// A replica comes back without memory; what becomes of the parts it gets, counted from 1, is said by `fate`.
fn restored_through(seed: u64, fate: fn(u32) -> Fate) -> Cluster {
    let mut cluster = cluster(2, seed);
    let away = cluster.follower();
    cluster.crash(away);
    cluster.gets_on(200 * MS);
    let mut count = 0;
    cluster.filter_parts(move |_| {
        count += 1;
        fate(count)
    });
    cluster.restart(away, false);
    cluster.until_restored(away);
    cluster.filter = None;
    cluster
}

#[test]
fn a_copy_survives_the_loss_of_every_third_part() {
    let lossy = |count| if count % 3 == 0 { Fate::Drop } else { Fate::Pass };
    restored_through(5, lossy).finish();
}

#[test]
fn parts_that_come_late_do_no_harm() {
    let late = |count| if count % 4 == 1 { Fate::Hold } else { Fate::Pass };
    let mut cluster = restored_through(6, late);
    cluster.gets_on(200 * MS);
    assert!(!cluster.held.is_empty());
    cluster.release();
    cluster.finish();
}

#[test]
fn a_sender_that_is_cut_off_leaves_half_a_copy() {
    let mut cluster = cluster(2, 7);
    let (sender_node, away) = (cluster.leader(S), cluster.follower());
    cluster.crash(away);
    cluster.gets_on(200 * MS);
    let passed = Rc::new(Cell::new(0));
    let counter = Rc::clone(&passed);
    cluster.filter_parts(move |_| {
        counter.set(counter.get() + 1);
        if counter.get() < 5 { Fate::Pass } else { Fate::Drop }
    });
    cluster.restart(away, false);
    for _ in 0..100 {
        cluster.run(cluster.now + 5 * MS);
        if passed.get() >= 5 {
            break;
        }
    }
    assert!(passed.get() >= 5, "no part was sent");
    cluster.filter = None;
    // A majority must remember: the sender is cut off, and not dead.
    cluster.cut_off(sender_node);
    cluster.run(cluster.now + 100 * MS);
    cluster.cut.clear();
    cluster.until_restored(away);
    cluster.finish();
}

/// It has kept its memory, and so it has rows that are deleted or changed since.
#[test]
fn a_replica_that_was_cut_off_for_long_gets_a_copy() {
    for seed in [8, 9] {
        let mut cluster = cluster(1 + (seed % 2) as u32, seed);
        let away = cluster.follower();
        cluster.cut_off(away);
        let before = cluster.starts(cluster.leader(S));
        cluster.gets_on(400 * MS);
        assert!(cluster.starts(cluster.leader(S)) > before);
        cluster.cut.clear();
        cluster.gets_on(400 * MS);
        cluster.finish();
    }
}

/// It has versions in its store that were never committed.
#[test]
fn a_leader_that_was_cut_off_gets_a_copy_from_its_successor() {
    for seed in [10, 11] {
        let mut cluster = cluster(1 + (seed % 2) as u32, seed);
        let away = cluster.leader(S);
        cluster.cut_off(away);
        cluster.gets_on(600 * MS);
        assert_ne!(cluster.leader(S), away);
        cluster.cut.clear();
        cluster.gets_on(400 * MS);
        cluster.finish();
    }
}

/// Two replicas lose their memory. When one of them counts again, the leader gets a new ballot, and goes on with the
/// copy that it gives to the other.
#[test]
fn a_copy_outlives_a_change_of_ballot() {
    for seed in [12, 13, 14] {
        let mut cluster = Cluster::with(Topology::symmetric(2, 2, 5, 0, 1), seed, |setup| {
            (setup.streams.trim_entries, setup.streams.retain_bytes) = (4, 0);
            setup.options.snapshot_part.records_max = 10;
        });
        cluster.run(Time::ZERO + 300 * MS);
        let (leader, voters) = (cluster.leader(S), cluster.topology.voters(S).to_vec());
        let mut others = voters.into_iter().filter(|voter| *voter != leader);
        let (quick, slow) = (others.next().expect("five"), others.next().expect("five"));
        cluster.crash(quick);
        cluster.crash(slow);
        cluster.gets_on(200 * MS);
        let ballot = |cluster: &Cluster| {
            cluster.manager.machine().configuration().shards[S.0 as usize].ballot
        };
        let copies: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
        let (parts, opened) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (seen, counter, open) = (Rc::clone(&copies), Rc::clone(&parts), Rc::clone(&opened));
        cluster.filter = Some(Box::new(move |_, to, message| match message {
            WorkerMessage::Engine { message: shoal_mako::MakoMessage::Chunk(part), .. }
                if part.shard == S && to == slow =>
            {
                seen.borrow_mut().insert(part.copy);
                counter.set(counter.get() + 1);
                if open.get() || counter.get() <= 2 { Fate::Pass } else { Fate::Drop }
            }
            _ => Fate::Pass,
        }));
        cluster.restart(slow, false);
        for _ in 0..300 {
            cluster.run(cluster.now + MS);
            if parts.get() > 2 {
                break;
            }
        }
        assert!(parts.get() > 2, "the copy is not under way");
        let before = ballot(&cluster);
        cluster.restart(quick, false);
        for _ in 0..300 {
            cluster.run(cluster.now + MS);
            if ballot(&cluster) > before {
                break;
            }
        }
        assert!(ballot(&cluster) > before && cluster.leader(S) == leader, "no new ballot");
        cluster.run(cluster.now + 60 * MS);
        opened.set(true);
        cluster.until_restored(slow);
        assert_eq!(copies.borrow().len(), 1, "the copy began again");
        cluster.filter = None;
        cluster.finish();
    }
}
