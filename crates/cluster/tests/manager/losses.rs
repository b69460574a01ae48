//! The loss of a shard's majority is accepted: which replicas vote afterwards, and how the epochs end that lacked their end.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Ask, ChangeRefusal, ClusterChange, Command, EpochEnd, HeartbeatRecord, Incarnation,
    Knowledge, LeaderCandidates, LeadershipClaim, LearnerLeads, Loss, LossStage, LostEnd,
    ManagerOptions, ManagerPlantedBugs, ProcessInstance, ReplacementStage, StateMachine, Term,
};
use shoal_cluster::topology::Topology;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::sync::Arc;

const S: ShardId = ShardId(0);
const T: ShardId = ShardId(1);

/// A manager of two shards with three voters each: S on the nodes 0 to 2, T on 3 to 5.
struct Cluster {
    machine: StateMachine,
}

impl Cluster {
    fn new(faults: ManagerPlantedBugs) -> Cluster {
        let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
        let options = ManagerOptions { faults, ..ManagerOptions::default() };
        let mut cluster = Cluster { machine: StateMachine::new(topology, options) };
        cluster.apply(Action::Take { drawn: DRAWN });
        (0..6).for_each(|node| cluster.join(node, 0));
        cluster
    }

    fn apply(&mut self, action: Action) {
        let command = Command { term: Term(1), at: Time(1), action };
        self.machine.apply(&command, &mut Vec::new());
        // What a compacted log begins with says all of it.
        let options = self.machine.options().clone();
        let image = StateMachine::from_image(&self.machine.image(), options).expect("an image");
        assert_eq!(image, self.machine);
    }

    /// A node begins a process after so many others, without memory.
    fn join(&mut self, node: u32, after: u32) {
        let (node, after) = (NodeId(node), Incarnation(after));
        let instance = ProcessInstance(u64::from(after.0) + 1);
        self.apply(Action::Join { node, instance, after, lost: true, last_heartbeat: Time::ZERO });
    }

    fn tick(&mut self) {
        self.apply(Action::Tick { heartbeats: Vec::new() });
    }

    /// A tick at a time at which the leases of all former processes have run out, with heartbeats of all nodes.
    fn tick_late(&mut self) {
        let at = Time(1) + 2 * self.machine.options().lease_at_manager();
        let nodes = (0..self.machine.configuration().nodes.len() as u32).map(NodeId);
        let heartbeat = |node| {
            let incarnation = self.machine.node(node).expect("a node").1;
            let known = self.machine.configuration().revision;
            HeartbeatRecord { node, incarnation, round: 1, at, known }
        };
        let action = Action::Tick { heartbeats: nodes.map(heartbeat).collect() };
        self.machine.apply(&Command { term: Term(1), at, action }, &mut Vec::new());
    }

    fn accept(&mut self, shard: ShardId, number: u64) {
        let change = ClusterChange::AcceptLoss { shard, number, at_s: 5 };
        self.apply(Action::Change { ask: Ask(number), change });
    }

    fn loss(&self) -> &Loss {
        self.machine.configuration().shards[0].loss.as_ref().expect("accepted")
    }

    fn incarnation(&self, node: u32) -> Incarnation {
        self.machine.node(NodeId(node)).expect("a node").1
    }

    /// A node says how far it knows S to be durable in the first epoch, or where that ended.
    fn tell(&mut self, node: u32, durable: Option<u64>, end: Option<u64>) {
        let known = |clock: Option<u64>| clock.map(|clock| (Epoch(1), EpochEnd::up_to(clock)));
        let durable = known(durable).into_iter().collect();
        let knowledge = Knowledge { durable, ends: known(end).into_iter().collect() };
        let (begun, incarnation) = (self.loss().begun, self.incarnation(node));
        let node = NodeId(node);
        self.apply(Action::Known { node, incarnation, shard: S, begun, knowledge });
    }

    fn claim(&self, shard: ShardId) -> LeadershipClaim {
        let it = &self.machine.configuration().shards[shard.0 as usize];
        LeadershipClaim { node: it.leader, incarnation: it.incarnation, shard, ballot: it.ballot }
    }

    /// The survivors hold S so far in the first epoch.
    fn hold(&mut self, clock: u64) {
        let held = [(Epoch(1), EpochEnd::up_to(clock))].into();
        self.apply(Action::Held { claim: self.claim(S), held });
    }

    /// Every shard says of each closed epoch that it ended whole, if it has not said how.
    fn settle(&mut self) {
        let closed: Vec<Epoch> = self.machine.configuration().closing().collect();
        for (epoch, shard) in closed.into_iter().flat_map(|epoch| [(epoch, S), (epoch, T)]) {
            let claim = self.claim(shard);
            self.apply(Action::Report { claim, epoch, end: EpochEnd::Whole });
        }
    }

    fn replace(&mut self, outgoing: u32, incoming: u32, ask: u64) {
        let (outgoing, incoming) = (NodeId(outgoing), NodeId(incoming));
        let change = ClusterChange::ReplaceReplica { shard: S, outgoing, incoming };
        self.apply(Action::Change { ask: Ask(ask), change });
    }

    /// The leader of S has given a node all that it began with.
    fn fill(&mut self, node: u32) {
        let (claim, incarnation) = (self.claim(S), self.incarnation(node));
        self.apply(Action::CaughtUp { claim, replica: NodeId(node), incarnation });
    }

    fn end(&self) -> Option<EpochEnd> {
        let configuration = self.machine.configuration();
        let ends = configuration.ends.get(&Epoch(1)).expect("it is closed");
        ends[S.0 as usize].clone()
    }

    /// Shards have a learner each. Nodes 1 and 2 lose their memory, the loss is accepted, and all have reported what they know.
    fn lose_beside_learner() -> Cluster {
        let topology = Arc::new(Topology::symmetric(1, 2, 3, 1, 1));
        let mut cluster =
            Cluster { machine: StateMachine::new(topology, ManagerOptions::default()) };
        cluster.apply(Action::Take { drawn: DRAWN });
        (0..8).for_each(|node| cluster.join(node, 0));
        cluster.join(1, 1);
        cluster.join(2, 1);
        cluster.accept(S, 7);
        (0..8).for_each(|node| cluster.tell(node, Some(10), None));
        cluster.tick();
        cluster
    }

    /// Nodes 1 and 2 lose their memory, and the loss is accepted.
    fn lose(faults: ManagerPlantedBugs) -> Cluster {
        let mut cluster = Cluster::new(faults);
        assert_eq!(cluster.machine.check_loss(S), Err(ChangeRefusal::HasMajority(S)));
        cluster.accept(S, 1);
        assert_eq!(cluster.machine.configuration().shards[0].loss, None, "refused");
        cluster.join(1, 1);
        assert_eq!(cluster.machine.check_loss(S), Err(ChangeRefusal::HasMajority(S)));
        cluster.join(2, 1);
        assert_eq!(cluster.machine.check_loss(T), Err(ChangeRefusal::HasMajority(T)));
        cluster.accept(S, 7);
        cluster
    }
}

/// The last of the nodes knows most.
fn force(faults: ManagerPlantedBugs) -> Option<EpochEnd> {
    let mut cluster = Cluster::lose(faults);
    let asked = cluster.loss().clone();
    assert_eq!((asked.stage, asked.begun), (LossStage::Asking, Epoch(2)));
    let out = |cluster: &Cluster| cluster.machine.configuration().shards[0].out;
    assert_eq!(out(&cluster), Some(Epoch(2)), "out at once");
    (0..5).for_each(|node| cluster.tell(node, Some(30), None));
    cluster.tick();
    assert_eq!(cluster.loss().stage, LossStage::Asking, "one is still to say what it knows");
    // It says it twice, and in a former process.
    cluster.tell(4, Some(99), None);
    let (node, begun) = (NodeId(5), asked.begun);
    let knowledge =
        Knowledge { durable: [(Epoch(1), EpochEnd::up_to(98))].into(), ..Default::default() };
    let former = Incarnation(0);
    cluster.apply(Action::Known { node, incarnation: former, shard: S, begun, knowledge });
    cluster.tell(5, Some(40), None);
    cluster.accept(S, 7);
    assert_eq!(cluster.loss().reported.len(), 6, "a repeat begins nothing");
    cluster.tick();
    let assignment = cluster.machine.configuration().shards[0].clone();
    assert_eq!((&*assignment.voters, assignment.since), (&[NodeId(0)][..], Epoch(3)));
    assert!(assignment.members().all_promise && assignment.empty.is_empty());
    let void = [(NodeId(1), Incarnation(2)), (NodeId(2), Incarnation(2))];
    assert_eq!(cluster.loss().void, void.into());
    assert_eq!(cluster.end(), None);
    cluster.hold(35);
    assert_eq!((cluster.loss().stage, out(&cluster)), (LossStage::Over, Some(Epoch(2))));
    assert!(!cluster.machine.configuration().shards[0].members().all_promise);
    cluster.tick();
    cluster.hold(50);
    let end = cluster.end();
    assert_eq!(cluster.loss().ends[&Epoch(1)].end, end, "it is final");
    end
}

#[test]
fn an_epoch_ends_where_a_live_node_knows_it_to_be_durable() {
    assert_eq!(force(ManagerPlantedBugs::default()), Some(EpochEnd::up_to(40)));
}

#[test]
fn an_end_below_what_is_known_is_seen() {
    let faults = ManagerPlantedBugs { force_below_known: true, ..ManagerPlantedBugs::default() };
    assert_ne!(force(faults), Some(EpochEnd::up_to(40)));
}

#[test]
fn an_epoch_ends_where_a_node_knows_that_it_ended() {
    let mut cluster = Cluster::lose(ManagerPlantedBugs::default());
    (0..5).for_each(|node| cluster.tell(node, Some(10), None));
    cluster.tell(5, None, Some(20));
    cluster.tick();
    cluster.hold(35);
    assert_eq!(cluster.end(), Some(EpochEnd::up_to(20)), "some nodes know so");
    let (known, held, end) =
        (EpochEnd::up_to(20), Some(EpochEnd::up_to(35)), Some(EpochEnd::up_to(20)));
    let lost = LostEnd { known, has_ended: true, held, end };
    assert_eq!(cluster.loss().ends[&Epoch(1)], lost);
}

#[test]
fn what_survivors_hold_beyond_what_is_known_stays() {
    let mut cluster = Cluster::lose(ManagerPlantedBugs::default());
    (0..6).for_each(|node| cluster.tell(node, Some(10), None));
    cluster.tick();
    cluster.hold(35);
    assert_eq!(cluster.end(), Some(EpochEnd::up_to(35)));
    // T says how it ended: the epoch is settled, and with the next one S takes part again.
    let (claim, epoch) = (cluster.claim(T), Epoch(1));
    cluster.apply(Action::Report { claim, epoch, end: EpochEnd::Whole });
    assert_eq!(
        cluster.machine.configuration().last(epoch).expect("settled").of(S),
        &EpochEnd::up_to(35)
    );
    for epoch in [2, 3].map(Epoch) {
        let claim = cluster.claim(T);
        cluster.apply(Action::Report { claim, epoch, end: EpochEnd::Whole });
    }
    cluster.tick();
    assert_eq!(cluster.machine.configuration().shards[0].out, None, "it takes part again");
    assert_eq!(cluster.machine.configuration().outage(S), None);
}

/// A survivor that loses its memory before the ends are forced is waited for, until an operator accepts that loss, too.
#[test]
fn a_loss_may_be_followed_by_another() {
    let mut cluster = Cluster::lose_beside_learner();
    assert_eq!(cluster.machine.configuration().shards[0].voters, [NodeId(0), NodeId(3)]);
    assert_eq!(cluster.machine.check_loss(S), Err(ChangeRefusal::HasMajority(S)));
    cluster.join(3, 1);
    assert_eq!(cluster.machine.check_loss(S), Ok(()), "all survivors have to promise");
    cluster.accept(S, 8);
    assert_eq!(
        cluster.loss().ends[&Epoch(1)].known,
        EpochEnd::up_to(10),
        "what was delivered stays known"
    );
    (0..8).for_each(|node| cluster.tell(node, None, None));
    cluster.tick();
    assert_eq!(cluster.machine.configuration().shards[0].voters, [NodeId(0)]);
    cluster.hold(5);
    assert_eq!(cluster.end(), Some(EpochEnd::up_to(10)));
}

/// S had ended an epoch, all shards have, and the survivor lacks the end.
#[test]
fn survivors_that_lack_a_settled_epoch_are_seen() {
    let mut cluster = Cluster::new(ManagerPlantedBugs::default());
    // They hold all of the first epoch, though not its end.
    for (epoch, end) in [(Epoch(1), EpochEnd::up_to(10)), (Epoch(2), EpochEnd::Whole)] {
        cluster.apply(Action::Close { claim: cluster.claim(S), epoch });
        for (shard, end) in [(S, end), (T, EpochEnd::Whole)] {
            let claim = cluster.claim(shard);
            cluster.apply(Action::Report { claim, epoch, end });
        }
        assert!(cluster.machine.configuration().last(epoch).is_some());
    }
    cluster.join(1, 1);
    cluster.join(2, 1);
    cluster.accept(S, 7);
    (0..6).for_each(|node| cluster.tell(node, None, None));
    cluster.tick();
    let begun = cluster.loss().begun;
    let held = (1..begun.0).map(|epoch| (Epoch(epoch), EpochEnd::up_to(15))).collect();
    cluster.apply(Action::Held { claim: cluster.claim(S), held });
    assert_eq!(cluster.loss().stage, LossStage::Over);
    let (known, held) = (EpochEnd::Whole, Some(EpochEnd::up_to(15)));
    let lost = LostEnd { known, has_ended: true, held, end: Some(EpochEnd::Whole) };
    assert_eq!(cluster.loss().ends[&Epoch(2)], lost);
    assert!(!cluster.loss().ends.contains_key(&Epoch(1)));
}

/// How epochs were forced to end is not forgotten when the survivors are lost in turn.
#[test]
fn forced_ends_outlast_another_loss() {
    let mut cluster = Cluster::lose_beside_learner();
    cluster.hold(5);
    let forced = cluster.loss().ends[&Epoch(1)].clone();
    assert_eq!(
        (cluster.loss().stage, forced.end.clone()),
        (LossStage::Over, Some(EpochEnd::up_to(10)))
    );
    cluster.join(3, 1);
    cluster.accept(S, 8);
    assert_eq!(cluster.loss().stage, LossStage::Asking);
    (0..8).for_each(|node| cluster.tell(node, Some(99), None));
    assert_eq!(cluster.loss().ends[&Epoch(1)], forced);
}

#[test]
fn without_survivors_there_is_nothing_to_go_on_with() {
    let mut cluster = Cluster::new(ManagerPlantedBugs::default());
    (0..3).for_each(|node| cluster.join(node, 1));
    assert_eq!(cluster.machine.check_loss(S), Err(ChangeRefusal::NoSurvivor(S)));
}

/// Where only voters may lead, a learner that alone has its memory leads when its shard's loss is accepted: it votes then.
#[test]
fn a_learner_that_survives_alone_votes_and_leads() {
    let leader_candidates = LeaderCandidates::VotersOnly;
    let options = ManagerOptions { leader_candidates, ..ManagerOptions::default() };
    let topology = Arc::new(Topology::symmetric(1, 2, 3, 1, 1));
    let mut cluster = Cluster { machine: StateMachine::new(topology, options) };
    cluster.apply(Action::Take { drawn: DRAWN });
    (0..8).for_each(|node| cluster.join(node, 0));
    (0..3).for_each(|node| cluster.join(node, 1));
    cluster.tick_late();
    let leader = |cluster: &Cluster| cluster.machine.configuration().shards[0].ballot.node;
    assert_eq!(leader(&cluster), NodeId(0), "the learner is not appointed");
    assert_eq!(cluster.machine.check_loss(S), Ok(()));
    cluster.accept(S, 7);
    (0..8).for_each(|node| cluster.tell(node, Some(10), None));
    cluster.tick_late();
    let assignment = &cluster.machine.configuration().shards[0];
    assert_eq!((&*assignment.voters, leader(&cluster)), (&[NodeId(3)][..], NodeId(3)));
}

/// A shard of a voter and a learner, which leads.
fn led_by_learner() -> Topology {
    Topology::builder()
        .workers(1)
        .datacenter("d")
        .node("v", "d")
        .node("l", "d")
        .shard("l", ["v"], ["l"])
        .build()
        .expect("a topology")
}

/// A topology that names a learner as the first leader is refused where only voters may lead.
#[test]
fn a_learner_that_the_topology_has_lead_is_refused() {
    let error = LearnerLeads { shard: S, node: NodeId(1) };
    assert_eq!(LeaderCandidates::VotersOnly.check(&led_by_learner()), Err(error));
    assert_eq!(LeaderCandidates::LearnersFirst.check(&led_by_learner()), Ok(()));
    let voter_leads = Topology::symmetric(1, 2, 3, 1, 1);
    assert_eq!(LeaderCandidates::VotersOnly.check(&voter_leads), Ok(()));
}

/// The image of a cluster that a learner leads is read where only voters may lead: no epoch appoints the learner again, and it
/// hands over.
#[test]
fn a_learner_that_leads_hands_over_where_only_voters_may_lead() {
    let topology = Arc::new(Topology::symmetric(1, 2, 3, 1, 1));
    let machine = StateMachine::new(topology, ManagerOptions::default());
    let mut cluster = Cluster { machine };
    cluster.apply(Action::Take { drawn: DRAWN });
    (0..8).for_each(|node| cluster.join(node, 0));
    cluster.join(0, 1);
    cluster.tick_late();
    assert_eq!(cluster.claim(S).node, NodeId(3), "the learner beside the former leader");
    cluster.settle();
    let leader_candidates = LeaderCandidates::VotersOnly;
    let options = ManagerOptions { leader_candidates, ..ManagerOptions::default() };
    let image = cluster.machine.image();
    cluster.machine = StateMachine::from_image(&image, options).expect("an image");

    // A voter waits for a new ballot of the leader.
    cluster.join(1, 1);
    cluster.fill(1);
    let (claim, epoch) = (cluster.claim(T), cluster.machine.configuration().epoch);
    cluster.apply(Action::Close { claim, epoch });
    assert_eq!(cluster.machine.configuration().epoch, Epoch(epoch.0 + 1));
    assert_eq!(cluster.claim(S).ballot.epoch, epoch, "no other ballot of the learner");
    cluster.tick_late();
    assert_eq!(cluster.claim(S).incarnation, Incarnation(0), "it hands over");
    cluster.tick_late();
    assert_eq!(cluster.claim(S).node, NodeId(2), "the voter that has its memory");
}

/// So it is with a founding in the log, from before only voters might lead.
#[test]
fn a_learner_that_the_log_has_lead_hands_over() {
    let leader_candidates = LeaderCandidates::VotersOnly;
    let options = ManagerOptions { leader_candidates, ..ManagerOptions::default() };
    let machine = StateMachine::new(Arc::new(Topology::symmetric(1, 2, 3, 1, 1)), options);
    let mut cluster = Cluster { machine };
    cluster.apply(Action::Found { drawn: DRAWN, topology: Arc::new(led_by_learner()) });
    (0..2).for_each(|node| cluster.join(node, 0));
    assert_eq!(cluster.claim(S).node, NodeId(1));
    (0..2).for_each(|_| cluster.tick_late());
    assert_eq!(cluster.claim(S).node, NodeId(0));
}

/// An engine that cannot go on after a loss has it refused, by name, and nothing changes.
#[test]
fn a_loss_that_the_engine_does_not_survive_is_refused() {
    let options = ManagerOptions { accepts_losses: false, ..ManagerOptions::default() };
    let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
    let mut cluster = Cluster { machine: StateMachine::new(topology, options) };
    cluster.apply(Action::Take { drawn: DRAWN });
    (0..6).for_each(|node| cluster.join(node, 0));
    cluster.join(1, 1);
    cluster.join(2, 1);
    assert_eq!(cluster.machine.check_loss(S), Err(ChangeRefusal::LossUnsupported(S)));
    cluster.accept(S, 7);
    assert_eq!(cluster.machine.configuration().shards[0].loss, None);
}

/// Of the replicas that were set aside one is replaced by itself, once its node has begun anew, and one by another node.
#[test]
fn a_shard_regains_its_voters() {
    let mut cluster = Cluster::lose(ManagerPlantedBugs::default());
    (0..6).for_each(|node| cluster.tell(node, Some(10), None));
    cluster.tick();
    cluster.hold(10);
    assert_eq!(cluster.loss().stage, LossStage::Over);
    let voters = |cluster: &Cluster| {
        let assignment = &cluster.machine.configuration().shards[0];
        let empty: Vec<u32> = assignment.empty.keys().map(|node| node.0).collect();
        (assignment.voters.iter().map(|node| node.0).collect::<Vec<_>>(), empty)
    };
    let stage = |cluster: &Cluster, outgoing, incoming| {
        cluster.machine.replacement_stage(S, NodeId(outgoing), NodeId(incoming))
    };
    cluster.replace(1, 1, 8);
    assert_eq!(stage(&cluster, 1, 1), None, "its process may have something of the shard");
    cluster.join(1, 2);
    cluster.replace(1, 1, 9);
    assert_eq!(stage(&cluster, 1, 1), Some(ReplacementStage::Copying));
    cluster.fill(1);
    assert_eq!(stage(&cluster, 1, 1), Some(ReplacementStage::Promoting));
    cluster.settle();
    cluster.tick();
    // A majority of two is both, so that any two of three have one of them: the new one counts at once.
    assert_eq!(voters(&cluster), (vec![0, 1], vec![]));
    assert_eq!(stage(&cluster, 1, 1), Some(ReplacementStage::Done));
    cluster.replace(2, 3, 10);
    cluster.fill(3);
    cluster.settle();
    cluster.tick();
    assert_eq!(voters(&cluster), (vec![0, 1, 3], vec![]));
    assert_eq!(stage(&cluster, 2, 3), Some(ReplacementStage::Done));
    let more = cluster.machine.check_replacement(S, NodeId(2), NodeId(4));
    let none = ChangeRefusal::HoldsNone { shard: S, node: NodeId(2) };
    assert_eq!(more, Err(none), "it has as many voters as it had");
}
