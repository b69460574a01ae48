//! A majority of the managers is lost: one that survives, and may lag, goes on from what nodes remember; the others come
//! back.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Applied, Ask, Assignment, ClusterChange, Command, Configuration, EpochEnd, FinalEnds,
    Generation, HeartbeatRecord, Incarnation, Knowledge, KnownEpochs, LeadershipClaim, Loss,
    LossStage, ManagerClient, ManagerClientEffect, ManagerClientEvent, ManagerOptions,
    ManagerPlantedBugs, NotRecovered, Outage, ProcessInstance, Recollection, Revision,
    StateMachine, Term, ToManager, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_types::{ClusterId, Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const S: ShardId = ShardId(0);
const T: ShardId = ShardId(1);
const FIRST: Generation = Generation(1 << 32);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// The managers of two shards of three voters each, S on the nodes 0 to 2 and T on 3 to 5.
struct Managers {
    machine: StateMachine,
    term: Term,
    now: Time,
}

impl Managers {
    fn new(faults: ManagerPlantedBugs) -> Managers {
        let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
        let machine =
            StateMachine::new(topology, ManagerOptions { faults, ..ManagerOptions::default() });
        let mut managers = Managers { machine, term: Term(1), now: at(1) };
        managers.apply(Action::Take { drawn: DRAWN });
        (0..6).for_each(|node| managers.join(node, 0));
        managers
    }

    fn apply(&mut self, action: Action) -> Vec<Applied> {
        let command = Command { term: self.term, at: self.now, action };
        let mut applied = Vec::new();
        self.machine.apply(&command, &mut applied);
        let image = self.machine.image();
        let again = StateMachine::from_image(&image, self.machine.options().clone());
        assert_eq!(again.expect("an image"), self.machine);
        applied
    }

    fn join(&mut self, node: u32, after: u32) {
        let (instance, last_heartbeat) = (instance(node, after + 1), self.now);
        let (node, after) = (NodeId(node), Incarnation(after));
        self.apply(Action::Join { node, instance, after, lost: true, last_heartbeat });
    }

    /// At that time heartbeats of these nodes arrive.
    fn learn(&mut self, millis: u64, nodes: Range<u32>) {
        self.now = at(millis);
        let heartbeats = nodes.map(|node| HeartbeatRecord {
            node: NodeId(node),
            incarnation: self.machine.node(NodeId(node)).expect("a node").1,
            round: 1,
            at: self.now,
            known: Revision(0),
        });
        let heartbeats = heartbeats.collect();
        self.apply(Action::Tick { heartbeats });
    }

    fn tick(&mut self, millis: u64) -> Vec<Applied> {
        self.now = at(millis);
        self.apply(Action::Tick { heartbeats: Vec::new() })
    }

    fn claim(&self, shard: ShardId) -> LeadershipClaim {
        let it = self.configuration().shard(shard).expect("a shard");
        LeadershipClaim { node: it.leader, incarnation: it.incarnation, shard, ballot: it.ballot }
    }

    fn report(&mut self, shard: ShardId, epoch: Epoch, end: EpochEnd) {
        let claim = self.claim(shard);
        self.apply(Action::Report { claim, epoch, end });
    }

    fn configuration(&self) -> &Arc<Configuration> {
        self.machine.configuration()
    }

    /// Epoch 2 begins, for something that hangs.
    fn close(&mut self) {
        let (claim, epoch) = (self.claim(S), self.configuration().epoch);
        self.apply(Action::Close { claim, epoch });
        assert_eq!(self.configuration().epoch, Epoch(epoch.0 + 1));
    }

    /// A node remembers the configuration as it is.
    fn remembered(&self, node: u32) -> Recollection {
        let (instance, incarnation) = self.machine.node(NodeId(node)).expect("a node");
        let configuration = Some(Arc::clone(self.configuration()));
        let epochs = KnownEpochs { open: self.configuration().epoch, ends: BTreeMap::new() };
        Recollection { instance, incarnation, pledged: FIRST, configuration, epochs }
    }

    fn remember(&self, nodes: impl IntoIterator<Item = u32>) -> BTreeMap<NodeId, Recollection> {
        nodes.into_iter().map(|node| (NodeId(node), self.remembered(node))).collect()
    }

    /// The one that is left goes on alone, on a clock that shows another time.
    fn recover(&self, recollections: &BTreeMap<NodeId, Recollection>) -> Managers {
        let machine = self.machine.recover(FIRST, recollections).expect("recovered");
        let mut managers = Managers { machine, term: Term(2), now: at(50) };
        let took = managers.apply(Action::Take { drawn: ClusterId::new(99).expect("not 0") });
        assert_eq!(took, [Applied::Took(Term(2))], "it is the same cluster");
        assert_eq!(managers.configuration().cluster, Some(DRAWN));
        managers
    }
}

fn instance(node: u32, incarnation: u32) -> ProcessInstance {
    ProcessInstance(u64::from(node * 1000 + incarnation))
}

fn appointed(applied: &[Applied]) -> Vec<ShardId> {
    let shard = |it: &Applied| match it {
        Applied::Appointed { shard, .. } => Some(*shard),
        _ => None,
    };
    applied.iter().filter_map(shard).collect()
}

#[test]
fn no_leader_is_appointed_before_the_longest_lease_has_run_out() {
    let before = Managers::new(ManagerPlantedBugs::default());
    let mut after = before.recover(&before.remember(0..6));
    let former = before.configuration();
    for (now, then) in after.configuration().shards.iter().zip(&former.shards) {
        assert_eq!(now.leader, then.leader);
        assert_eq!(now.incarnation, Incarnation(0), "no process leads");
    }
    assert_eq!(after.configuration().outage(S), Some(Outage::Appointing));
    let lease = ManagerOptions::default().lease_at_manager();
    assert_eq!(appointed(&after.tick(50)), []);
    let last = Time((at(50) + lease).0 - 1);
    after.now = last;
    let heartbeat = |node: u32| shoal_cluster::manager::HeartbeatRecord {
        node: NodeId(node),
        incarnation: Incarnation(1),
        round: 1,
        at: last,
        known: Revision(0),
    };
    let heartbeats: Vec<_> = (0..6).map(heartbeat).collect();
    assert_eq!(appointed(&after.apply(Action::Tick { heartbeats })), []);
    let applied = after.tick(1000);
    assert_eq!(appointed(&applied), [S, T]);
    let all = Arc::clone(after.configuration());
    let is_new = |it: &Assignment| it.since == all.epoch && it.ballot.epoch == all.epoch;
    assert!(all.shards.iter().all(is_new), "each is a new leadership");

    // Every epoch that may have been begun is reported by them, and then all is settled.
    let closing: Vec<Epoch> = all.closing().collect();
    assert_eq!(closing.first(), Some(&former.epoch));
    for epoch in closing {
        after.report(S, epoch, EpochEnd::up_to(5));
        after.report(T, epoch, EpochEnd::Whole);
    }
    assert_eq!(after.configuration().settled.0 + 1, after.configuration().epoch.0);
}

/// The survivor has missed a restart, an epoch and an appointment, which a live node knows.
#[test]
fn a_manager_that_lags_repeats_nothing_that_a_node_knows() {
    let mut lost = Managers::new(ManagerPlantedBugs::default());
    let survivor = Managers { machine: lost.machine.clone(), ..lost };
    lost.join(4, 1);
    lost.close();
    lost.tick(10);
    lost.learn(700, 1..6);
    lost.tick(800);
    let known = Arc::clone(lost.configuration());
    assert_eq!(known.shards[0].leader, NodeId(1), "node 0 has died");
    assert!(known.epoch > survivor.configuration().epoch);

    // Of those that answer, one knows it; the others know as little as the survivor.
    let mut recollections = survivor.remember([1, 2, 3]);
    recollections.extend(lost.remember([5]));
    // Another has learned from it that one more epoch had begun.
    recollections.get_mut(&NodeId(3)).expect("it answers").epochs.open = Epoch(known.epoch.0 + 1);
    let after = survivor.recover(&recollections);
    let now = after.configuration();
    assert!(now.epoch.0 > known.epoch.0 + 1 && now.revision > known.revision);
    assert_eq!(now.shards[0].leader, NodeId(1), "as the lost ones had it");
    let (of_lost, incarnation) = after.machine.node(NodeId(4)).expect("a node");
    assert_ne!(of_lost, instance(4, 2), "it did not answer");
    assert!(incarnation > Incarnation(2), "its second process was admitted already");
    let alive = |node: usize| now.nodes[node].alive;
    assert!([1, 2, 3, 5].into_iter().all(alive) && !alive(0) && !alive(4));
    assert_eq!(after.machine.node(NodeId(5)), lost.machine.node(NodeId(5)), "its process goes on");
    // What did not answer counts as lost.
    assert!(now.shards[0].empty.contains_key(&NodeId(0)));
    assert!(now.shards[1].empty.contains_key(&NodeId(4)));

    // A node that has a number of a process that is over is not taken for the one that follows it.
    let mut recollections = lost.remember([5, 1]);
    recollections.get_mut(&NodeId(1)).expect("it answers").incarnation = Incarnation(7);
    assert!(!survivor.recover(&recollections).configuration().nodes[1].alive);
}

#[test]
fn ends_that_nodes_know_stay_final() {
    let mut before = Managers::new(ManagerPlantedBugs::default());
    before.close();
    let mut recollections = before.remember(0..6);
    let learn = |it: &mut Recollection, ends: [Option<u64>; 2]| {
        it.epochs.ends.insert(Epoch(1), ends.map(|end| end.map(EpochEnd::up_to)).to_vec());
    };
    learn(recollections.get_mut(&NodeId(2)).expect("present"), [Some(7), None]);
    let after = before.recover(&recollections);
    let ends = after.configuration().ends[&Epoch(1)].clone();
    assert_eq!(ends, [Some(EpochEnd::up_to(7)), None]);

    // An FVW that is known from other nodes or streams, of an epoch that no configuration has as closed.
    let last = recollections.get_mut(&NodeId(3)).expect("present");
    last.epochs.open = Epoch(4);
    learn(last, [Some(7), Some(9)]);
    last.epochs.ends.insert(Epoch(3), vec![Some(EpochEnd::up_to(1)), Some(EpochEnd::Whole)]);
    let after = before.recover(&recollections);
    let last = FinalEnds::new(Epoch(1), vec![EpochEnd::up_to(7), EpochEnd::up_to(9)]);
    assert_eq!(after.configuration().last(Epoch(1)), Some(last));
    assert!(after.configuration().last(Epoch(3)).is_some());
    assert_eq!(after.configuration().settled, Epoch(1));

    learn(recollections.get_mut(&NodeId(5)).expect("present"), [Some(8), None]);
    let refused = before.machine.recover(FIRST, &recollections);
    assert_eq!(
        refused,
        Err(NotRecovered::Contradiction { node: NodeId(5), epoch: Epoch(1), shard: S })
    );
}

/// The loss of S's majority is accepted; of its voters the node 0 remembers, and 5 does not answer. The epochs 1 and 2 lack
/// their end on S.
fn accept_loss(managers: &mut Managers) {
    managers.close();
    (1..3).for_each(|node| managers.join(node, 1));
    let change = ClusterChange::AcceptLoss { shard: S, number: 7, at_s: 5 };
    managers.apply(Action::Change { ask: Ask(1), change });
    assert!(loss(managers).ends.keys().eq(&[Epoch(1), Epoch(2)]));
}

fn loss(managers: &Managers) -> &Loss {
    managers.configuration().shards[0].loss.as_ref().expect("accepted")
}

/// A live node reports what it knows of S.
fn send_known(managers: &mut Managers, node: u32, knowledge: Knowledge) {
    let (shard, begun) = (S, loss(managers).begun);
    let (node, incarnation) = (NodeId(node), managers.machine.node(NodeId(node)).expect("one").1);
    managers.apply(Action::Known { node, incarnation, shard, begun, knowledge });
}

/// The survivors of S hold the epochs that its loss names up to there.
fn hold(managers: &mut Managers, end: &EpochEnd) {
    let held = loss(managers).ends.keys().map(|epoch| (*epoch, end.clone())).collect();
    let claim = managers.claim(S);
    managers.apply(Action::Held { claim, held });
}

#[test]
fn an_accepted_loss_that_is_under_way_begins_again_and_ends() {
    for stage in [LossStage::Asking, LossStage::Preparing] {
        let mut before = Managers::new(ManagerPlantedBugs::default());
        accept_loss(&mut before);
        let asked = if stage == LossStage::Preparing { 6 } else { 3 };
        (0..asked).for_each(|node| send_known(&mut before, node, Knowledge::default()));
        before.tick(10);
        assert_eq!(loss(&before).stage, stage);
        let mut after = before.recover(&before.remember(0..5));
        let epoch = after.configuration().epoch;
        assert_eq!((loss(&after).stage, loss(&after).begun), (LossStage::Asking, epoch));
        after.tick(50);
        for node in 0..5 {
            // What a node knows of a clock is not forgotten.
            let durable = [(Epoch(2), EpochEnd::up_to(9))].into();
            send_known(&mut after, node, Knowledge { durable, ..Knowledge::default() });
        }
        after.learn(700, 0..5);
        after.tick(800);
        assert_eq!(loss(&after).stage, LossStage::Preparing);
        assert_eq!(after.configuration().shards[0].voters, [NodeId(0)]);
        hold(&mut after, &EpochEnd::up_to(4));
        assert_eq!(loss(&after).stage, LossStage::Over);
        assert_eq!(loss(&after).ends[&Epoch(2)].end, Some(EpochEnd::up_to(9)));
        let closing: Vec<Epoch> = after.configuration().closing().collect();
        assert!(closing.iter().all(|epoch| !after.configuration().lacks_end(*epoch, S)));
    }
}

#[test]
fn a_process_that_knows_another_end_than_the_one_that_was_forced_does_not_go_on() {
    let mut before = Managers::new(ManagerPlantedBugs::default());
    accept_loss(&mut before);
    // The node 3 is cut off, and had learned before where S ended the epoch 1.
    [0, 1, 2, 4, 5]
        .into_iter()
        .for_each(|node| send_known(&mut before, node, Knowledge::default()));
    let mut recollections = before.remember([0, 3, 5]);
    let learn = |it: &mut Recollection, end: u64| {
        it.epochs.ends.insert(Epoch(1), vec![Some(EpochEnd::up_to(end)), None]);
    };
    learn(recollections.get_mut(&NodeId(3)).expect("present"), 7);
    // Another knows the end that was forced, which no configuration that is left has.
    learn(recollections.get_mut(&NodeId(5)).expect("present"), 5);
    let after = before.recover(&recollections);
    let now = after.configuration();
    assert_eq!((now.nodes[3].alive, now.nodes[5].alive), (false, true));
    assert_eq!(now.ends[&Epoch(1)][0], Some(EpochEnd::up_to(5)));
    assert!(now.shards[1].empty.contains_key(&NodeId(3)), "it comes back without memory");
}

#[test]
fn only_processes_that_have_pledged_go_on_and_a_recovery_may_follow_one_that_few_nodes_know() {
    let before = Managers::new(ManagerPlantedBugs::default());
    let mut recollections = before.remember(0..6);
    recollections.get_mut(&NodeId(2)).expect("present").pledged = Generation(0);
    let mut first = before.recover(&recollections);
    assert!(!first.configuration().nodes[2].alive, "it has not pledged");

    // These managers are lost, too, when one node knows of them.
    first.tick(60);
    let second = FIRST.next(NodeId(3));
    let mut recollections = before.remember([0, 1]);
    recollections.extend(first.remember([4]));
    recollections.values_mut().for_each(|it| it.pledged = second);
    let after = before.machine.recover(second, &recollections).expect("recovered");
    let alive: Vec<bool> = after.configuration().nodes.iter().map(|node| node.alive).collect();
    assert_eq!(alive, [true, true, false, false, true, false]);
}

#[test]
fn what_cannot_be_safe_is_refused() {
    let before = Managers::new(ManagerPlantedBugs::default());
    let refused = |recollections: &BTreeMap<_, _>| {
        before.machine.recover(FIRST, recollections).expect_err("refused")
    };
    assert_eq!(refused(&BTreeMap::new()), NotRecovered::NothingRemembered);
    let mut recollections = before.remember([1]);
    let change = |it: &mut BTreeMap<NodeId, Recollection>, work: fn(&mut Recollection)| {
        let mut changed = it.clone();
        work(changed.get_mut(&NodeId(1)).expect("present"));
        refused(&changed)
    };
    let fresh = change(&mut recollections, |it| it.configuration = None);
    assert_eq!(fresh, NotRecovered::NothingRemembered);
    let later = change(&mut recollections, |it| it.pledged = FIRST.next(NodeId(0)));
    assert_eq!(later, NotRecovered::Late(FIRST.next(NodeId(0))));
    let far = change(&mut recollections, |it| it.epochs.open = Epoch(1000));
    assert!(matches!(far, NotRecovered::TooManyEpochs(_)), "{far}");
    let other = change(&mut recollections, |it| {
        let configuration = it.configuration.as_mut().expect("present");
        Arc::make_mut(configuration).cluster = ClusterId::new(5);
    });
    assert_eq!(other, NotRecovered::OtherCluster(NodeId(1)));
    let odd = change(&mut recollections, |it| {
        Arc::make_mut(it.configuration.as_mut().expect("present")).shards.truncate(1);
    });
    assert_eq!(odd, NotRecovered::Implausible(NodeId(1)));
    // It is done already.
    let done = before.recover(&recollections);
    let again = done.machine.recover(FIRST, &done.remember([1]));
    assert_eq!(again, Err(NotRecovered::Late(FIRST)));
    assert_eq!(FIRST.next(NodeId(3)).count(), 2);
}

/// A member that was granted a lease by managers that are lost, and what it says when it is asked to pledge.
fn member(
    managers: &Managers,
    pledges: bool,
    faults: ManagerPlantedBugs,
) -> (ManagerClient, Vec<ManagerClientEffect>) {
    let options = ManagerOptions { faults, ..ManagerOptions::default() };
    let mut member = ManagerClient::new(NodeId(1), instance(1, 1), true, options);
    let configuration = Arc::clone(managers.configuration());
    let welcome =
        ToNode::Welcome { instance: instance(1, 1), incarnation: Incarnation(1), configuration };
    let mut effects = Vec::new();
    member.step(at(0), ManagerClientEvent::Received(welcome), &mut effects);
    member.step(at(5), grant(managers, 1), &mut effects);
    assert!(member.holds_lease(at(6)));
    effects.clear();
    let recall = ToNode::Recall { generation: FIRST, pledges };
    member.step(at(7), ManagerClientEvent::Received(recall), &mut effects);
    (member, effects)
}

/// A heartbeat is granted, with the configuration.
fn grant(managers: &Managers, round: u64) -> ManagerClientEvent {
    let configuration = managers.configuration();
    ManagerClientEvent::Received(ToNode::Granted {
        generation: configuration.generation,
        incarnation: Incarnation(1),
        round,
        revision: configuration.revision,
        configuration: Some(Arc::clone(configuration)),
    })
}

/// The lost managers come back, all of them, with their log: a node that pledged has none of it.
fn return_of_the_lost(faults: ManagerPlantedBugs) -> bool {
    let mut lost = Managers::new(faults);
    let (mut member, effects) = member(&lost, true, faults);
    let recollection = effects.iter().find_map(|effect| match effect {
        ManagerClientEffect::Send { message: ToManager::Recalled { recollection, .. } } => {
            Some(recollection.clone())
        }
        _ => None,
    });
    let mut recollections = BTreeMap::from([(NodeId(1), recollection.expect("it answers"))]);
    recollections.extend(lost.remember([0, 2, 3, 4, 5]));
    assert!(!member.holds_lease(at(7)), "it has given it up");
    let recovered = lost.recover(&recollections);
    lost.close();
    let mut effects = Vec::new();
    let heartbeats = |effects: &[ManagerClientEffect]| {
        let round = |effect: &ManagerClientEffect| match effect {
            ManagerClientEffect::Send { message: ToManager::Heartbeat { round, .. } } => {
                Some(*round)
            }
            _ => None,
        };
        effects.iter().filter_map(round).next_back()
    };
    member.step(at(80), ManagerClientEvent::Timer, &mut effects);
    let round = heartbeats(&effects).expect("it shows itself");
    member.step(at(81), grant(&lost, round), &mut effects);
    if member.holds_lease(at(82)) {
        return true;
    }
    assert_eq!(member.configuration().map(|it| it.epoch), Some(Epoch(1)), "none of theirs");
    member.step(at(83), grant(&recovered, round), &mut effects);
    assert!(member.holds_lease(at(84)), "granted by those it has pledged to");
    let configured = ToNode::Configured { configuration: Arc::clone(lost.configuration()) };
    member.step(at(85), ManagerClientEvent::Received(configured), &mut effects);
    assert_eq!(member.configuration(), Some(recovered.configuration()));
    assert!(!effects.contains(&ManagerClientEffect::Superseded));
    member.holds_lease(at(700))
}

#[test]
fn managers_that_come_back_grant_nothing() {
    assert!(!return_of_the_lost(ManagerPlantedBugs::default()));
    assert!(return_of_the_lost(ManagerPlantedBugs {
        serve_former_managers: true,
        ..ManagerPlantedBugs::default()
    }));
}

#[test]
fn a_process_that_was_not_asked_ends_with_what_it_remembers() {
    let mut lost = Managers::new(ManagerPlantedBugs::default());
    // Asked, but not to pledge: nothing changes.
    let (mut member, _) = member(&lost, false, ManagerPlantedBugs::default());
    assert!(member.holds_lease(at(8)));
    let recovered = lost.recover(&lost.remember([0, 2, 3, 4, 5]));
    lost.close();
    let mut effects = Vec::new();
    member.step(at(9), grant(&lost, 1), &mut effects);
    let configuration = Arc::clone(recovered.configuration());
    let event = ManagerClientEvent::Received(ToNode::Configured { configuration });
    member.step(at(10), event, &mut effects);
    assert!(effects.contains(&ManagerClientEffect::Superseded));
    assert!(!member.holds_lease(at(10)));

    // So it learns as well of a process that may follow it: the lost managers may have admitted the next one.
    let (_, incarnation) = recovered.machine.node(NodeId(1)).expect("a node");
    assert!(incarnation > Incarnation(2));
}
