//! An operator accepts that a majority of a shard's voters is lost for good: the survivors go on with what they hold, and
//! all nodes agree how the epochs of that time ended (rules M9, M12).

use super::cluster::{Cluster, Coming, Fate, MS};
use super::lost_shard::Outcomes;
use crate::common::seeds;
use shoal_cluster::manager::{
    self, Ask, ChangeRefusal, ClusterChange, EpochEnd, LossStage, Outage, StateMachine,
};
use shoal_cluster::topology::Topology;
use shoal_engine::PlantedBugs;
use shoal_mako::MakoPlantedBug;
use shoal_node::WorkerMessage;
use shoal_types::{Clock, NodeId, ShardId, Time};

/// The shard whose majority is lost.
const S: ShardId = ShardId(0);

/// A shard that loses nothing.
const T: ShardId = ShardId(1);

/// Clients work on two shards with three voters and so many learners each; then they come to an end, if they are to.
fn cluster(seed: u64, learners: u32, quiet: bool) -> Cluster {
    let workers = 1 + seed as u32 % 2;
    let mut cluster = Cluster::new(Topology::symmetric(2, 2, 3, learners, workers), seed);
    cluster.run(Time::ZERO + 300 * MS);
    if quiet {
        cluster.end_clients();
    }
    cluster
}

impl Cluster {
    fn machine(&self) -> &StateMachine {
        self.manager.machine()
    }

    fn stage(&self, shard: ShardId) -> Option<LossStage> {
        let assignment = &self.machine().configuration().shards[shard.0 as usize];
        assignment.loss.as_ref().map(|loss| loss.stage)
    }

    fn voters(&self, shard: ShardId) -> Vec<NodeId> {
        self.machine().configuration().shards[shard.0 as usize].voters.clone()
    }

    /// An operator accepts the loss.
    fn accept_loss(&mut self, shard: ShardId, number: u64) -> Result<(), ChangeRefusal> {
        let checked = self.machine().check_loss(shard);
        let change = ClusterChange::AcceptLoss { shard, number, at_s: 1 };
        self.send(MS, Coming::Operator(manager::ManagerEvent::Asked { ask: Ask(number), change }));
        self.run(self.now + MS);
        checked
    }

    /// Two voters lose their memory, one of them the leader, and come back empty. Returns the survivor.
    fn lose_memory(&mut self, shard: ShardId) -> NodeId {
        let leader = self.leader(shard);
        let voters = self.voters(shard);
        let followers: Vec<NodeId> = voters.into_iter().filter(|it| *it != leader).collect();
        let lost = [leader, followers[0]];
        lost.iter().for_each(|node| self.crash(*node));
        self.run(self.now + 5 * MS);
        lost.iter().for_each(|node| self.restart(*node, false));
        self.until("no majority remembers", |cluster| {
            matches!(cluster.machine().configuration().outage(S), Some(Outage::Lost { .. }))
        });
        followers[1]
    }

    /// Until the loss is over, and the shard takes part again.
    fn until_over(&mut self, shard: ShardId) {
        self.until("the loss is over", |cluster| cluster.stage(shard) == Some(LossStage::Over));
        self.until("it takes part", |cluster| {
            cluster.machine().configuration().shards[shard.0 as usize].out.is_none()
        });
        self.run(self.now + 50 * MS);
    }
}

/// Two of three voters come back empty; the third has all that was acknowledged.
fn go_on_with_one(seed: u64, faults: manager::ManagerPlantedBugs) {
    let topology = Topology::symmetric(2, 2, 3, 0, 1);
    let mut cluster = Cluster::managed(topology, seed, faults, |_| {});
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    assert_eq!(cluster.accept_loss(S, 1), Err(ChangeRefusal::HasMajority(S)));
    assert_eq!(cluster.stage(S), None, "refused");
    let survivor = cluster.lose_memory(S);
    assert_eq!(cluster.accept_loss(S, 7), Ok(()));
    cluster.until_over(S);
    assert_eq!(cluster.voters(S), [survivor]);
    assert_eq!(cluster.serves(S, 1 << 40), Ok(()));
    assert_eq!(cluster.serves(T, 1 << 41), Ok(()), "it goes on");
    // It is its only voter, and so its leader again when it is back with its disk.
    cluster.crash(survivor);
    cluster.run(cluster.now + 100 * MS);
    cluster.restart(survivor, true);
    cluster.run(cluster.now + 200 * MS);
    assert_eq!(cluster.serves(S, 1 << 42), Ok(()));
    // A repeat of the request is none.
    let epoch = cluster.machine().configuration().epoch;
    let _ = cluster.accept_loss(S, 7);
    assert_eq!(cluster.machine().configuration().epoch, epoch);
    cluster.finish();
}

#[test]
fn a_shard_goes_on_with_what_survives() {
    seeds(0..8).for_each(|seed| go_on_with_one(seed, manager::ManagerPlantedBugs::default()));
}

#[test]
#[should_panic(expected = "the loss is over: it never comes")]
fn void_voters_that_count_are_seen() {
    go_on_with_one(
        0,
        manager::ManagerPlantedBugs { count_void_voters: true, ..Default::default() },
    );
}

/// A voter and a learner survive, and both vote: when the leader fails, the other needs it back.
#[test]
fn a_learner_that_survives_votes() {
    for seed in seeds(0..8) {
        let mut cluster = cluster(seed, 1, true);
        cluster.lose_memory(S);
        assert_eq!(cluster.accept_loss(S, 3), Ok(()));
        cluster.until_over(S);
        let voters = cluster.voters(S);
        assert_eq!(voters.len(), 2, "seed {seed}: {voters:?}");
        assert_eq!(cluster.serves(S, 1 << 40), Ok(()));
        let leader = cluster.leader(S);
        cluster.crash(leader);
        cluster.run(cluster.now + 100 * MS);
        cluster.restart(leader, true);
        cluster.run(cluster.now + 200 * MS);
        assert_eq!(cluster.serves(S, 1 << 41), Ok(()));
        cluster.finish();
    }
}

/// Clients go on all the while, and the survivor may lack what was acknowledged: all nodes agree what is lost.
fn lose_while_busy(seed: u64, faults: manager::ManagerPlantedBugs) -> Clock {
    let workers = 1 + seed as u32 % 2;
    let topology = Topology::symmetric(2, 2, 3, 0, workers);
    let mut cluster = Cluster::managed(topology, seed, faults, |_| {});
    cluster.run(Time::ZERO + 250 * MS);
    let leader = cluster.leader(S);
    let behind = cluster.voters(S).into_iter().rfind(|it| *it != leader).expect("three voters");
    // The survivor receives nothing of the last streams.
    cluster.cut.insert((leader, behind));
    cluster.run(cluster.now + 50 * MS);
    cluster.cut.clear();
    let survivor = cluster.lose_memory(S);
    assert_eq!(survivor, behind);
    assert_eq!(cluster.accept_loss(S, 9), Ok(()));
    cluster.until_over(S);
    cluster.stop.set(true);
    cluster.run(cluster.now + 3000 * MS);
    for (shard, from) in [(S, 1 << 40), (T, 1 << 41)] {
        if let Err(error) = cluster.serves(shard, from) {
            cluster.complain(&format!("seed {seed}: {shard} does not serve: {error}"));
        }
    }
    let loss = cluster.machine().configuration().shards[0].loss.clone().expect("accepted");
    let missing = loss.ends.values().map(|lost| {
        let number =
            |end: &Option<EpochEnd>| end.as_ref().and_then(EpochEnd::number).expect("told");
        Clock(number(&lost.end) - number(&lost.held))
    });
    missing.max().unwrap_or_default()
}

#[test]
fn what_live_nodes_know_of_a_lost_shard_stands() {
    let torn = (0..12).filter(|seed| {
        let missing = lose_while_busy(*seed, manager::ManagerPlantedBugs::default());
        missing > Clock::ZERO
    });
    assert!(torn.count() > 0, "the survivor always had all that others knew");
}

#[test]
#[should_panic(expected = "M9")]
fn forced_ends_below_what_live_nodes_know_are_seen() {
    let faults = manager::ManagerPlantedBugs { force_below_known: true, ..Default::default() };
    seeds(0..12).for_each(|seed| _ = lose_while_busy(seed, faults));
}

/// A node is away while others are asked what they know of S, and knows more than they: when it is back it drops its
/// memory, and follows like any that begins anew.
#[test]
fn a_node_that_returns_knowing_more_begins_anew() {
    for seed in seeds(0..4) {
        let mut cluster = Cluster::new(Topology::symmetric(2, 3, 3, 0, 1), seed);
        cluster.run(Time::ZERO + 300 * MS);
        cluster.end_clients();
        let (leader, away) = (cluster.leader(S), cluster.leader(ShardId(2)));
        let behind = cluster.voters(S).into_iter().rfind(|it| *it != leader).expect("three voters");
        let nodes: Vec<NodeId> = cluster.topology.nodes().iter().map(|node| node.id).collect();
        let follower = cluster.voters(S).into_iter().find(|it| ![leader, behind].contains(it));
        let kept = [Some(leader), Some(away), follower].map(|node| node.expect("three voters"));
        for other in nodes.iter().copied().filter(|node| !kept.contains(node)) {
            cluster.cut.extend([(leader, other), (away, other)]);
        }
        // Only one node outside of S learns of this.
        for _ in 0..10 {
            cluster.serves(S, 1 << 40).expect("it has its majority");
        }
        let manager = cluster.manager_id();
        cluster.cut.extend(nodes.iter().flat_map(|other| [(away, *other), (*other, away)]));
        cluster.cut.extend([(away, manager), (manager, away)]);
        assert_eq!(cluster.lose_memory(S), behind);
        cluster.until("it is away", |cluster| {
            !cluster.machine().configuration().nodes[away.0 as usize].alive
        });
        assert_eq!(cluster.accept_loss(S, 9), Ok(()));
        cluster.until_over(S);
        assert_eq!(cluster.incarnations[&away], 1);
        cluster.cut.clear();
        cluster.until("it begins anew", |cluster| cluster.incarnations[&away] == 2);
        cluster.until("it counts again", |cluster| {
            cluster.machine().configuration().shards[2].empty.is_empty()
        });
        for (shard, from) in [(S, 1 << 40), (T, 1 << 41), (ShardId(2), 1 << 42)] {
            assert_eq!(cluster.serves(shard, from), Ok(()), "seed {seed}: {shard}");
        }
    }
}

/// The former leader and one of its followers, a majority with all its memory, were away. When they are back they receive
/// which replicas vote: nothing that they have accepted counts.
#[test]
fn former_voters_that_return_as_a_majority_are_set_aside() {
    for seed in seeds(0..4) {
        let mut cluster = cluster(seed, 0, true);
        let (leader, voters, manager) =
            (cluster.leader(S), cluster.voters(S), cluster.manager_id());
        let survivor = voters.iter().copied().rfind(|it| *it != leader).expect("three voters");
        let former: Vec<NodeId> = voters.into_iter().filter(|it| *it != survivor).collect();
        let nodes: Vec<NodeId> = cluster.topology.nodes().iter().map(|node| node.id).collect();
        let others = nodes.into_iter().chain([manager]).filter(|node| !former.contains(node));
        for (one, other) in others.flat_map(|other| former.iter().map(move |one| (*one, other))) {
            cluster.cut.extend([(one, other), (other, one)]);
        }
        // They serve for as long as their lease lasts, and answer nothing after that.
        let key = cluster.key_on(S, 1 << 40);
        cluster.touch(leader, &[key], &Outcomes::default());
        cluster.until("its majority is away", |cluster| {
            matches!(cluster.machine().configuration().outage(S), Some(Outage::Waiting { .. }))
        });
        assert_eq!(cluster.accept_loss(S, 9), Ok(()));
        cluster.until_over(S);
        assert_eq!(cluster.serves(S, 1 << 41), Ok(()));
        cluster.cut.clear();
        cluster.run(cluster.now + 300 * MS);
        assert_eq!(cluster.voters(S), [survivor]);
        let rows = cluster.rows(survivor, S);
        assert_eq!(cluster.serves(S, 1 << 42), Ok(()));
        assert_eq!(cluster.rows(survivor, S).len(), rows.len() + 1, "nothing else came");
        for (shard, from) in [(S, 1 << 43), (T, 1 << 44)] {
            assert_eq!(cluster.serves(shard, from), Ok(()), "seed {seed}: {shard}");
        }
    }
}

/// A watermark that a former leader has sent reaches a node after that node has reported what it knows.
fn hear_late(seed: u64, faults: PlantedBugs<MakoPlantedBug>) {
    let topology = Topology::symmetric(2, 2, 3, 0, 1);
    let mut cluster = Cluster::with(topology, seed, |setup| setup.options.faults = faults);
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    let (leader, hears) = (cluster.leader(S), cluster.leader(T));
    let behind = cluster.voters(S).into_iter().rfind(|it| *it != leader).expect("three voters");
    let silent = cluster.voters(T).into_iter().rfind(|it| *it != hears).expect("three voters");
    cluster.cut.insert((leader, behind));
    cluster.filter = Some(Box::new(move |(from, _), to, message| {
        match (from == leader, to == hears, message) {
            (
                true,
                true,
                WorkerMessage::Engine { message: shoal_mako::MakoMessage::Gossip { .. }, .. },
            ) => Fate::Hold,
            (
                true,
                false,
                WorkerMessage::Engine { message: shoal_mako::MakoMessage::Gossip { .. }, .. },
            ) => Fate::Drop,
            _ => Fate::Pass,
        }
    }));
    for _ in 0..10 {
        cluster.serves(S, 1 << 40).expect("it has its majority");
    }
    cluster.filter = None;
    assert_eq!(cluster.lose_memory(S), behind);
    cluster.mute = Some(silent);
    assert_eq!(cluster.accept_loss(S, 9), Ok(()));
    cluster.until("it has told", |cluster| {
        let loss = cluster.machine().configuration().shards[0].loss.as_ref();
        loss.is_some_and(|loss| loss.reported.contains_key(&hears))
    });
    cluster.release();
    cluster.run(cluster.now + 5 * MS);
    assert_eq!(cluster.stage(S), Some(LossStage::Asking), "one has not told");
    cluster.mute = None;
    cluster.until_over(S);
    for (shard, from) in [(S, 1 << 40), (T, 1 << 41)] {
        assert_eq!(cluster.serves(shard, from), Ok(()), "seed {seed}: {shard}");
    }
}

#[test]
fn what_comes_late_of_a_lost_shard_changes_nothing() {
    seeds(0..8).for_each(|seed| hear_late(seed, PlantedBugs::NONE));
}

#[test]
#[should_panic(expected = "M9")]
fn nodes_that_learn_after_they_have_told_are_seen() {
    (0..8).for_each(|seed| hear_late(seed, PlantedBugs::only(MakoPlantedBug::LearnAfterLoss)));
}

/// Anything may fail while the loss is accepted: the survivor, which keeps its disk, the leader of the other shard, a way
/// to the manager. In the end both shards serve, their replicas are equal, and nothing is there that was refused.
fn accept_in_bad_times(seed: u64) {
    let mut random = shoal_types::Random::new(seed);
    let (workers, learners) = (1 + random.below(2) as u32, random.below(2) as u32);
    let mut cluster = Cluster::new(Topology::symmetric(2, 2, 3, learners, workers), seed);
    cluster.run(Time::ZERO + (100 + random.below(150) as u32) * MS);
    let leader = cluster.leader(S);
    let behind = cluster.voters(S).into_iter().rfind(|it| *it != leader).expect("three voters");
    if random.chance(1, 2) {
        cluster.cut.insert((leader, behind));
    }
    cluster.run(cluster.now + random.below(60) as u32 * MS);
    cluster.cut.clear();
    cluster.lose_memory(S);
    assert_eq!(cluster.accept_loss(S, seed), Ok(()), "seed {seed}");
    let manager = cluster.manager_id();
    for _ in 0..3 {
        cluster.run(cluster.now + random.below(40) as u32 * MS);
        let nodes: Vec<NodeId> = cluster.topology.nodes().iter().map(|node| node.id).collect();
        let victim = match random.below(3) {
            0 => cluster.leader(S),
            1 => cluster.leader(T),
            _ => nodes[random.below(nodes.len() as u64) as usize],
        };
        match random.below(3) {
            _ if !cluster.is_up(victim) => {}
            0 => {
                cluster.crash(victim);
                cluster.run(cluster.now + random.below(100) as u32 * MS);
                cluster.restart(victim, true);
            }
            1 => {
                cluster.cut.extend([(victim, manager), (manager, victim)]);
                cluster.run(cluster.now + random.below(100) as u32 * MS);
                cluster.cut.clear();
            }
            _ => cluster.cut.extend(nodes.iter().flat_map(|it| [(victim, *it), (*it, victim)])),
        }
    }
    cluster.cut.clear();
    cluster.until_over(S);
    cluster.stop.set(true);
    for (shard, from) in [(S, 1 << 40), (T, 1 << 41)] {
        cluster.until("it has a leader", |cluster| {
            cluster.machine().configuration().outage(shard).is_none()
        });
        let served = (0..20).any(|round| cluster.serves(shard, from + (round << 32)).is_ok());
        if !served {
            cluster.complain(&format!("seed {seed}: {shard} does not serve"));
        }
    }
    cluster.come_to_rest();
    let refused = cluster.ledger.refused.borrow().clone();
    for shard in [S, T] {
        let rows = cluster.rows(cluster.leader(shard), shard).into_iter();
        let notes = rows.filter(|(table, ..)| *table == 1);
        let notes = notes.map(|(_, key, _)| u64::from_be_bytes(key.try_into().expect("8 bytes")));
        let risen: Vec<u64> = notes.filter(|note| refused.contains(note)).collect();
        assert_eq!(risen, [0; 0], "seed {seed}: {shard} has what was refused");
    }
}

#[test]
fn losses_are_accepted_in_bad_times() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = number("RECOVERY_FIRST").unwrap_or(0);
    (first..first + number("RECOVERY_SEEDS").unwrap_or(20)).for_each(accept_in_bad_times);
}
