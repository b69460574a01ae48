//! A shard has lost its majority, for long or for good: what needs it ends with an error that names it, within the
//! deadline, and others go on (rules M11 and M12).

use super::cluster::{Cluster, Coming, MS};
use crate::common::seeds;
use shoal_cluster::manager;
use shoal_cluster::topology::{Home, Topology};
use shoal_engine::{Engine, PlantedBug, PlantedBugs};
use shoal_mako::{MakoOptions, MakoPlantedBug};
use shoal_types::{Aborted, Database, Error, NodeId, ShardId, Time, Transaction, WorkerId};
use std::cell::RefCell;
use std::rc::Rc;

/// The shard that is lost.
const S: ShardId = ShardId(0);

/// A shard that loses nothing.
const T: ShardId = ShardId(1);

/// A replica allows so few that transactions which never end use them up soon.
const SESSIONS: usize = 64;

/// Clients wait so long for what they ask for.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(10);

/// What transactions received.
pub(super) type Outcomes = Rc<RefCell<Vec<shoal_types::Result<()>>>>;

/// Two shards with three voters each; clients have come to an end.
fn quiet(seed: u64, faults: PlantedBugs<MakoPlantedBug>) -> Cluster {
    quiet_with(seed, |options| options.faults = faults)
}

/// The same with other options.
fn quiet_with(seed: u64, change: impl FnOnce(&mut MakoOptions)) -> Cluster {
    let mut cluster = Cluster::with(Topology::symmetric(2, 2, 3, 0, 1), seed, |setup| {
        setup.options.limits.sessions_max = SESSIONS;
        change(&mut setup.options);
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    cluster
}

impl Cluster {
    /// The first key from `from` on whose note is on the shard.
    pub(super) fn key_on(&self, shard: ShardId, from: u64) -> u64 {
        let table = self.topology.table("notes").expect("there");
        let home = |key: &u64| self.topology.home(table, &key.to_be_bytes());
        (from..).find(|key| home(key) == Some(Home::One(shard))).expect("there are many")
    }

    /// Has a node write and read notes in one transaction.
    pub(super) fn touch(&mut self, node: NodeId, keys: &[u64], told: &Outcomes) {
        let engine = self.workers.get_mut(&(node, WorkerId(0))).expect("up").engine_mut();
        let (db, told, keys) = (engine.local(), Rc::clone(told), keys.to_vec());
        engine.spawn(Box::pin(async move {
            let table = db.table("notes").expect("there");
            let outcome = db.transact(async |tx| {
                for key in &keys {
                    tx.get(table, &key.to_be_bytes()).await?;
                    tx.put(table, &key.to_be_bytes(), b"touched")?;
                }
                Ok(())
            });
            let outcome = outcome.await;
            told.borrow_mut().push(outcome);
        }));
        self.nudge(node);
    }

    /// Has a node write notes in one transaction that reads nothing, again and again.
    fn write_unread(&mut self, node: NodeId, keys: &[u64], told: &Outcomes) {
        let engine = self.workers.get_mut(&(node, WorkerId(0))).expect("up").engine_mut();
        let (db, told, keys) = (engine.local(), Rc::clone(told), keys.to_vec());
        engine.spawn(Box::pin(async move {
            let table = db.table("notes").expect("there");
            let outcome = db.transact(async |tx| {
                keys.iter().try_for_each(|key| tx.put(table, &key.to_be_bytes(), b"written"))
            });
            let outcome = outcome.await;
            told.borrow_mut().push(outcome);
        }));
        self.nudge(node);
    }

    /// Has the first worker of a node look around.
    pub(super) fn nudge(&mut self, node: NodeId) {
        let event = Coming::Worker(
            (node, WorkerId(0)),
            self.incarnations[&node],
            shoal_node::WorkerEvent::Nudged,
        );
        self.send(MS / 100, event);
    }

    /// Two of the three nodes with a replica of the shard crash, its leader among them.
    fn lose_majority(&mut self, shard: ShardId) -> [NodeId; 2] {
        let leader = self.leader(shard);
        let voters = self.topology.voters(shard).to_vec();
        let other = *voters.iter().find(|voter| **voter != leader).expect("three voters");
        [leader, other].map(|node| {
            self.crash(node);
            node
        })
    }

    /// How much is under way on a node's worker.
    fn pending(&self, node: NodeId) -> usize {
        self.workers[&(node, WorkerId(0))].engine().pending()
    }
}

/// Does the error say which shard was lost?
fn names_lost(error: &Error) -> bool {
    error.to_string().contains(&S.to_string())
}

/// What needs S, which is lost, is asked for again and again at the leader of T, and what needs T alone.
///
/// # Errors
/// Where something does not end as it should, or leaves something behind.
fn go_on_without(seed: u64, faults: PlantedBugs<MakoPlantedBug>) -> Result<(), String> {
    let mut cluster = quiet(seed, faults);
    let z = cluster.leader(T);
    cluster.lose_majority(S);
    let (lost, mut key) = (cluster.key_on(S, 1 << 40), 1 << 41);
    for round in 0..6 {
        let (both, alone) = (Outcomes::default(), Outcomes::default());
        for _ in 0..20 {
            key = cluster.key_on(T, key + 1);
            cluster.touch(z, &[key, lost], &both);
        }
        cluster.run(cluster.now + 100 * MS);
        for _ in 0..10 {
            key = cluster.key_on(T, key + 1);
            cluster.touch(z, &[key], &alone);
        }
        cluster.run(cluster.now + DEADLINE);
        let (both, alone) = (both.take(), alone.take());
        let named = both.iter().filter(|told| told.as_ref().is_err_and(names_lost));
        let committed = alone.iter().filter(|told| told.is_ok()).count();
        let ends = (named.count(), committed, cluster.pending(z));
        if ends != (20, 10, 0) {
            return Err(format!("seed {seed}, round {round}: {ends:?}, {both:?}, {alone:?}"));
        }
    }
    Ok(())
}

#[test]
fn what_needs_a_lost_shard_ends_and_keeps_nothing() {
    for seed in seeds(0..4) {
        go_on_without(seed, PlantedBugs::NONE).expect("it ends");
    }
}

/// A leader falls silent long before it can have a successor, and transactions wait for its shard that write on both
/// others. Says whether one of those serves meanwhile.
fn serve_beside_silent(seed: u64, faults: PlantedBugs<MakoPlantedBug>) -> bool {
    let patient =
        manager::ManagerOptions { lease: 3000 * MS, ..manager::ManagerOptions::default() };
    let mut cluster = Cluster::paced(Topology::symmetric(1, 3, 3, 0, 1), seed, patient, |setup| {
        setup.options.hang_after = 100 * MS;
        setup.options.faults = faults;
    });
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    let (coordinator, beside) = (cluster.leader(T), ShardId(2));
    cluster.crash(cluster.leader(S));
    let told = Outcomes::default();
    for round in 0..5 {
        let keys = [S, T, beside].map(|shard| cluster.key_on(shard, (1 << 40) + 1000 * round));
        cluster.write_unread(coordinator, &keys, &told);
    }
    cluster.run(cluster.now + 150 * MS);
    let (leader, key) = (cluster.leader(beside), cluster.key_on(beside, 1 << 41));
    let alone = Outcomes::default();
    cluster.touch(leader, &[key], &alone);
    cluster.run(cluster.now + 100 * MS);
    alone.take() == [Ok(())]
}

#[test]
fn what_waits_for_a_silent_leader_holds_up_no_other_shard() {
    (0..4).for_each(|seed| assert!(serve_beside_silent(seed, PlantedBugs::NONE), "seed {seed}"));
}

#[test]
fn locks_held_for_a_silent_leader_are_seen() {
    assert!(!serve_beside_silent(0, PlantedBugs::only(MakoPlantedBug::HoldForSilent)));
}

#[test]
fn waits_without_a_bound_are_seen() {
    go_on_without(0, PlantedBugs::only(MakoPlantedBug::WaitForever))
        .expect_err("nothing ends the waits");
}

/// A leader that reaches the manager and no follower keeps its lease, and can make nothing durable. It certifies for as
/// long as a network may be out, and then nothing until a majority answers again.
fn certify_alone(seed: u64, faults: PlantedBugs<MakoPlantedBug>) -> usize {
    let mut cluster = quiet(seed, faults);
    let x = cluster.leader(S);
    let others: Vec<NodeId> =
        cluster.topology.nodes().iter().map(|node| node.id).filter(|node| *node != x).collect();
    cluster.cut.extend(others.iter().flat_map(|other| [(x, *other), (*other, x)]));
    let (told, mut key) = (Outcomes::default(), 0);
    for _ in 0..30 {
        key = cluster.key_on(S, key + 1);
        cluster.touch(x, &[key], &told);
        cluster.run(cluster.now + 100 * MS);
    }
    cluster.run(cluster.now + DEADLINE);
    let told = told.take();
    assert_eq!(told.len(), 30, "{told:?}");
    assert!(told.iter().all(|told| told.as_ref().is_err_and(names_lost)), "{told:?}");
    assert_eq!(cluster.leader(S), x, "it has its lease");
    cluster.cut.clear();
    cluster.run(cluster.now + 500 * MS);
    let again = Outcomes::default();
    cluster.touch(x, &[key], &again);
    cluster.run(cluster.now + 100 * MS);
    assert_eq!(again.take(), [Ok(())], "its majority is back");
    told.iter().filter(|told| matches!(told, Err(Error::Unknown(_)))).count()
}

#[test]
fn a_leader_that_makes_nothing_durable_certifies_nothing() {
    for seed in seeds(0..4) {
        let certified = certify_alone(seed, PlantedBugs::NONE);
        assert!((1..10).contains(&certified), "{certified} were certified in 3 s");
    }
}

#[test]
#[should_panic(expected = "M11")]
fn a_leader_that_certifies_alone_is_seen() {
    certify_alone(0, PlantedBugs::only(MakoPlantedBug::CertifyWhileStalled));
}

impl Cluster {
    /// Has the leader of a shard write a note there, alone.
    pub(super) fn serves(&mut self, shard: ShardId, from: u64) -> Result<(), Error> {
        let (leader, key, told) =
            (self.leader(shard), self.key_on(shard, from), Outcomes::default());
        self.touch(leader, &[key], &told);
        let until = self.now + DEADLINE;
        while told.borrow().is_empty() && self.now < until {
            self.run(self.now + MS);
        }
        told.take().pop().expect("an outcome within the deadline")
    }

    /// Lets time pass until all voters of a shard count, one of which has just come back.
    pub(super) fn until_voters(&mut self, shard: ShardId) {
        self.run(self.now + 50 * MS);
        self.until("its vote", |cluster| {
            let truth = cluster.manager.machine().configuration();
            truth.shards[shard.0 as usize].empty.is_empty()
        });
    }

    /// Lets time pass until then, for a while at most.
    pub(super) fn until(&mut self, what: &str, done: impl Fn(&Cluster) -> bool) {
        for _ in 0..2000 {
            if done(self) {
                return;
            }
            self.run(self.now + MS);
        }
        self.complain(&format!("{what}: it never comes"));
    }
}

/// While S is lost, T fails over again and again, and its former leaders come back empty and get their votes back. Then S
/// comes back, and all that could not be decided is decided, on all replicas alike.
#[test]
fn others_fail_over_again_and_again_while_a_shard_is_lost() {
    for seed in seeds(0..8) {
        let workers = 1 + seed as u32 % 2;
        let mut cluster = Cluster::new(Topology::symmetric(2, 2, 3, 0, workers), seed);
        cluster.run(Time::ZERO + 300 * MS);
        // Clients go on: what was certified on both shards, and is durable on T only, is undecided.
        let lost = cluster.lose_majority(S);
        for round in 0..3 {
            let leader = cluster.leader(T);
            cluster.crash(leader);
            cluster.until("a successor", |cluster| cluster.leader(T) != leader);
            if let Err(error) = cluster.serves(T, (1 << 40) * (round + 1)) {
                cluster.complain(&format!("seed {seed}, round {round}: T does not serve: {error}"));
            }
            cluster.restart(leader, false);
            cluster.until_voters(T);
        }
        let truth = cluster.manager.machine().configuration();
        assert!(truth.shards[S.0 as usize].out.is_some(), "seed {seed}: S is lost");
        assert!(truth.ends.len() < 8, "seed {seed}: {:?} are not settled", truth.ends);
        lost.iter().for_each(|node| cluster.restart(*node, true));
        cluster.finish();
        let truth = cluster.manager.machine().configuration();
        assert!(truth.shards[S.0 as usize].out.is_none(), "seed {seed}: S is back");
    }
}

/// A shard whose leader was cut off from the others, and cannot say so far how the last epochs ended, though its majority
/// is back: it draws no clock until the manager lets it in.
fn be_out(seed: u64, faults: PlantedBugs) {
    let mut cluster = quiet_with(seed, |options| options.limits.faults = faults);
    let x = cluster.leader(S);
    let others: Vec<NodeId> =
        cluster.topology.nodes().iter().map(|node| node.id).filter(|node| *node != x).collect();
    cluster.cut.extend(others.iter().flat_map(|other| [(x, *other), (*other, x)]));
    let is_out = |cluster: &Cluster| {
        cluster.manager.machine().configuration().shards[S.0 as usize].out.is_some()
    };
    let key = cluster.key_on(S, 0);
    cluster.touch(x, &[key], &Outcomes::default());
    cluster.until("S is out", is_out);
    cluster.mute = Some(x);
    cluster.cut.clear();
    cluster.run(cluster.now + 200 * MS);
    assert!(is_out(&cluster), "its leader has not said how the epochs ended");
    let told = Outcomes::default();
    cluster.touch(x, &[key], &told);
    cluster.run(cluster.now + 100 * MS);
    let out = Aborted::ShardOut { shard: S };
    assert_eq!(told.take(), [Err(Error::Aborted(out))]);
    cluster.mute = None;
    cluster.until("S is in again", |cluster| !is_out(cluster));
    cluster.run(cluster.now + 50 * MS);
    assert_eq!(cluster.serves(S, 1 << 40), Ok(()));
}

#[test]
fn a_shard_that_is_out_draws_no_clock_until_it_is_in_again() {
    (0..4).for_each(|seed| be_out(seed, PlantedBugs::NONE));
}

#[test]
#[should_panic(expected = "M12")]
fn a_shard_that_serves_while_it_is_out_is_seen() {
    be_out(0, PlantedBugs::only(PlantedBug::ServeWhileOut));
}
