//! Messages that no correct process sends, and commands made of them: nothing that comes from outside
//! stops a manager, a machine or a node.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Ask, CarriedLog, ClusterChange, Command, Configuration, EpochEnd, FinalEnds,
    Generation, HeartbeatRecord, Incarnation, Knowledge, KnownEpochs, LeadershipClaim, Manager,
    ManagerClient, ManagerClientEffect, ManagerClientEvent, ManagerEvent, ManagerOptions,
    ManagerRequest, ProcessInstance, Recollection, Revision, StateMachine, TableChange, Term,
    ToManager, ToNode,
};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_types::{Ballot, Epoch, NodeId, Random, ShardId, TableId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small numbers, so that they collide; now and then one that is beyond all bounds.
fn number(random: &mut Random) -> u64 {
    if random.chance(1, 30) { u64::MAX } else { random.below(6) }
}

fn node(random: &mut Random) -> NodeId {
    NodeId(number(random) as u32)
}

fn claim(random: &mut Random) -> LeadershipClaim {
    let (node, shard) = (node(random), ShardId(number(random) as u32));
    let incarnation = Incarnation(number(random) as u32);
    let ballot = Ballot { epoch: Epoch(number(random) as u32), node };
    LeadershipClaim { node, incarnation, shard, ballot }
}

fn partitioning(random: &mut Random) -> Partitioning {
    match random.below(4) {
        0 => Partitioning::Hash { prefix_bytes: number(random) as usize },
        1 => Partitioning::Everywhere,
        _ => {
            let split = |n: u64| (vec![b'x'; n as usize].into(), ShardId(n as u32));
            Partitioning::Range { splits: (0..random.below(4)).map(split).collect() }
        }
    }
}

fn change(random: &mut Random) -> ClusterChange {
    let (shard, table) = (ShardId(number(random) as u32), TableId(number(random) as u32));
    match random.below(10) {
        8 => ClusterChange::AddNode {
            name: "x".repeat(random.below(200) as usize),
            datacenter: format!("dc{}", random.below(4)),
            address: random.chance(1, 2).then(|| "y".repeat(random.below(3) as usize)),
        },
        9 => ClusterChange::RemoveNode { node: node(random) },
        0 => {
            ClusterChange::ReplaceReplica { shard, outgoing: node(random), incoming: node(random) }
        }
        1 => ClusterChange::KeepReplicas { shard },
        2 => {
            let name = "x".repeat(random.below(200) as usize);
            let partitioning = partitioning(random);
            ClusterChange::Table(TableChange::Create { name, definition: partitioning.into() })
        }
        6 => ClusterChange::Table(TableChange::Drop { table }),
        3 => ClusterChange::BeginMove { table, partitioning: partitioning(random) },
        4 => ClusterChange::EndMove { table },
        5 => ClusterChange::AcceptLoss { shard, number: number(random), at_s: number(random) },
        _ => ClusterChange::CancelMove { table },
    }
}

fn heartbeat(random: &mut Random) -> HeartbeatRecord {
    HeartbeatRecord {
        node: node(random),
        incarnation: Incarnation(number(random) as u32),
        round: number(random).saturating_add(random.below(100)),
        at: Time(number(random)),
        known: Revision(number(random)),
    }
}

fn clocks(random: &mut Random) -> BTreeMap<Epoch, EpochEnd> {
    let clock = |_| {
        (
            Epoch(random.below(8) as u32),
            EpochEnd::up_to(if random.chance(1, 9) { u64::MAX } else { random.below(9) }),
        )
    };
    (0..3).map(clock).collect()
}

fn to_manager(random: &mut Random) -> ToManager {
    let instance = ProcessInstance(number(random));
    match random.below(7) {
        0 => {
            let HeartbeatRecord { incarnation, round, known, .. } = heartbeat(random);
            let granted = number(random);
            ToManager::Heartbeat { instance, incarnation, round, granted, known }
        }
        1 => {
            let (after, lost) = (Incarnation(number(random) as u32), random.chance(1, 2));
            ToManager::Join { instance, after, lost }
        }
        2 => {
            let (epoch, end) = (Epoch(number(random) as u32), EpochEnd::up_to(number(random)));
            requested(random, |shard, _| ManagerRequest::Report { shard, epoch, end })
        }
        3 => {
            let epoch = Epoch(number(random) as u32);
            requested(random, |shard, _| ManagerRequest::Close { shard, epoch })
        }
        4 => {
            let begun = Epoch(number(random) as u32);
            let knowledge = Knowledge { durable: clocks(random), ends: clocks(random) };
            requested(random, |shard, _| ManagerRequest::Known { shard, begun, knowledge })
        }
        5 => {
            let held = clocks(random);
            requested(random, |shard, _| ManagerRequest::Held { shard, held })
        }
        _ => {
            let (replica, incarnation) = (node(random), Incarnation(number(random) as u32));
            let under = if random.chance(1, 4) { Some(claim(random).ballot) } else { None };
            requested(random, |shard, ballot| {
                let ballot = under.unwrap_or(ballot);
                ManagerRequest::CaughtUp { shard, replica, ballot, incarnation }
            })
        }
    }
}

/// A request in any name, about the shard and under the ballot of that.
fn requested(
    random: &mut Random,
    request: impl FnOnce(ShardId, Ballot) -> ManagerRequest,
) -> ToManager {
    let LeadershipClaim { incarnation, shard, ballot, .. } = claim(random);
    ToManager::Request { incarnation, ballot, request: request(shard, ballot) }
}

fn action(random: &mut Random) -> Action {
    match to_manager(random) {
        _ if random.chance(1, 20) => Action::Take { drawn: DRAWN },
        _ if random.chance(1, 20) => {
            let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
            Action::Found { drawn: DRAWN, topology }
        }
        _ if random.chance(1, 4) => {
            Action::Tick { heartbeats: (0..random.below(6)).map(|_| heartbeat(random)).collect() }
        }
        _ if random.chance(1, 5) => {
            Action::Change { ask: Ask(number(random)), change: change(random) }
        }
        ToManager::Heartbeat { .. } => Action::Tick { heartbeats: Vec::new() },
        ToManager::Join { instance, after, lost } => {
            let last_heartbeat = Time(number(random));
            Action::Join { node: node(random), instance, after, lost, last_heartbeat }
        }
        ToManager::Request { incarnation, ballot, request } => {
            let (node, shard) = (node(random), request.shard());
            let claim = LeadershipClaim { node, incarnation, shard, ballot };
            match request {
                ManagerRequest::Report { epoch, end, .. } => Action::Report { claim, epoch, end },
                ManagerRequest::Close { epoch, .. } => Action::Close { claim, epoch },
                ManagerRequest::CaughtUp { replica, incarnation, .. } => {
                    Action::CaughtUp { claim, replica, incarnation }
                }
                ManagerRequest::Known { begun, knowledge, .. } => {
                    Action::Known { node, incarnation, shard, begun, knowledge }
                }
                ManagerRequest::Held { held, .. } => Action::Held { claim, held },
                ManagerRequest::Whole { epoch, .. } => Action::Whole { claim, epoch },
            }
        }
        ToManager::Recalled { .. } => Action::Tick { heartbeats: Vec::new() },
        ToManager::ChangeTable { ask, change, .. } => {
            Action::Change { ask, change: ClusterChange::Table(change) }
        }
    }
}

fn configuration(random: &mut Random, like: &Configuration) -> Arc<Configuration> {
    let mut it = like.clone();
    it.revision = Revision(number(random));
    it.epoch = Epoch(random.below(100) as u32);
    it.settled = Epoch(number(random) as u32);
    it.nodes.truncate(random.below(5) as usize);
    it.shards.truncate(random.below(4) as usize);
    for shard in &mut it.shards {
        (shard.leader, shard.incarnation) = (node(random), Incarnation(number(random) as u32));
        shard.out = random.chance(1, 3).then(|| Epoch(number(random) as u32));
        shard.empty.insert(node(random), Epoch(number(random) as u32));
    }
    it.ends = (0..random.below(3))
        .map(|_| (Epoch(number(random) as u32), vec![None; random.below(4) as usize]))
        .collect();
    it.finals = (0..random.below(3))
        .map(|_| FinalEnds::whole(Epoch(number(random) as u32), random.below(4) as usize))
        .collect();
    Arc::new(it)
}

fn to_node(random: &mut Random, like: &Configuration) -> ToNode {
    let (instance, incarnation) =
        (ProcessInstance(number(random)), Incarnation(number(random) as u32));
    let configuration = configuration(random, like);
    match random.below(6) {
        0 => ToNode::OtherProcess { instance, incarnation, admitted: instance },
        1 => ToNode::Welcome { instance, incarnation, configuration },
        2 => {
            let (round, revision) = (number(random), Revision(number(random)));
            let configuration = Some(configuration).filter(|_| random.chance(1, 2));
            let generation = Generation(random.below(3));
            ToNode::Granted { generation, incarnation, round, revision, configuration }
        }
        3 => ToNode::Configured { configuration },
        4 => {
            let generation = Generation(random.below(3));
            ToNode::Recall { generation, pledges: random.chance(1, 10) }
        }
        _ => ToNode::Reported { claim: claim(random), epoch: Epoch(number(random) as u32) },
    }
}

fn machine() -> StateMachine {
    StateMachine::new(Arc::new(Topology::compact(2, 2, 3, 1, 1)), ManagerOptions::default())
}

fn run_machine(random: &mut Random) {
    let mut machine = machine();
    let mut at = 0;
    for _ in 0..400 {
        at += random.below(200_000_000);
        let time = if random.chance(1, 200) { Time::MAX } else { Time(at) };
        let right = random.chance(9, 10);
        let term = if right { machine.term() } else { Term(number(random)) };
        let command = Command { term, at: time, action: action(random) };
        machine.apply(&command, &mut Vec::new());
    }
}

/// A machine from an image goes on as the one that it is of; damaged images are refused or are other machines.
#[test]
fn images_of_machines_return_and_damaged_ones_never_panic() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut machine = machine();
        for at in 0..300_u64 {
            let command =
                Command { term: machine.term(), at: Time(at << 26), action: action(&mut random) };
            let mut again = StateMachine::from_image(&machine.image(), ManagerOptions::default())
                .expect("the image of a machine");
            let (mut effects, mut same) = (Vec::new(), Vec::new());
            machine.apply(&command, &mut effects);
            again.apply(&command, &mut same);
            assert!(machine == again && effects == same, "seed {seed}, command {at}");
        }
        let image = machine.image();
        for _ in 0..300 {
            let mut damaged = image.to_vec();
            let place = random.below(damaged.len() as u64) as usize;
            match random.below(4) {
                0 => damaged.truncate(place),
                1 => damaged[place] = random.next_u64() as u8,
                2 => damaged[place] ^= 1 << random.below(8),
                _ => damaged.insert(place, 0),
            }
            if let Ok(other) =
                StateMachine::from_image(&damaged.clone().into(), ManagerOptions::default())
            {
                assert_eq!(other.image(), damaged, "two images of one machine");
            }
        }
    }
}

fn run_manager(random: &mut Random) {
    let mut manager = Manager::new(CarriedLog::default(), machine(), DRAWN);
    let mut now = 0;
    for _ in 0..400 {
        now += random.below(50_000_000);
        let event = match random.below(8) {
            0 => ManagerEvent::Timer,
            1 => ManagerEvent::Asked { ask: Ask(number(random)), change: change(random) },
            2 => {
                let mailbox = manager.log_mut();
                if random.chance(1, 10) {
                    mailbox.term = Some(Term(random.below(6))).filter(|term| *term > Term(0));
                }
                mailbox.led = Some(Time(number(random).saturating_mul(1_000_000_000)));
                let proposed = std::mem::take(&mut mailbox.proposed);
                mailbox.decided.extend(proposed);
                ManagerEvent::Log
            }
            _ => {
                let (from, at) = (node(random), Time(number(random)));
                ManagerEvent::Received { from, at, message: to_manager(random) }
            }
        };
        manager.step(Time(now), event, &mut Vec::new());
    }
}

fn run_member(random: &mut Random) {
    let like = machine().configuration().as_ref().clone();
    let mut member =
        ManagerClient::new(NodeId(1), ProcessInstance(1), false, ManagerOptions::default());
    let mut now = 0;
    for _ in 0..400 {
        now += random.below(50_000_000);
        let shard = ShardId(number(random) as u32);
        let event = match random.below(8) {
            0 => ManagerClientEvent::Timer,
            1 => {
                let (epoch, end) = (Epoch(number(random) as u32), EpochEnd::up_to(number(random)));
                ManagerClientEvent::Request(ManagerRequest::Report { shard, epoch, end })
            }
            2 => {
                let ballot = Ballot { epoch: Epoch(number(random) as u32), node: node(random) };
                let incarnation = Incarnation(number(random) as u32);
                ManagerClientEvent::Request(ManagerRequest::CaughtUp {
                    shard,
                    replica: node(random),
                    ballot,
                    incarnation,
                })
            }
            _ => ManagerClientEvent::Received(to_node(random, &like)),
        };
        let mut effects: Vec<ManagerClientEffect> = Vec::new();
        member.step(Time(now), event, &mut effects);
        let _leads = member.leads(shard, Time(now));
    }
}

/// Recollections of nodes, with content that no manager has sent.
fn run_recovery(random: &mut Random) {
    let mut machine = machine();
    let take = Command { term: Term(1), at: Time(0), action: Action::Take { drawn: DRAWN } };
    machine.apply(&take, &mut Vec::new());
    for _ in 0..random.below(40) {
        let command = Command { term: Term(1), at: Time(number(random)), action: action(random) };
        machine.apply(&command, &mut Vec::new());
    }
    let mut recollections = BTreeMap::new();
    for _ in 0..random.below(5) {
        let mut newest = machine.configuration().as_ref().clone();
        match random.below(4) {
            0 => newest = configuration(random, &newest).as_ref().clone(),
            1 => newest.revision = Revision(number(random)),
            2 => newest.epoch = Epoch(number(random) as u32),
            _ => {}
        }
        let ends = |random: &mut Random| {
            let end =
                |random: &mut Random| random.chance(1, 2).then(|| EpochEnd::up_to(number(random)));
            (0..2 + random.below(20) / 19).map(|_| end(random)).collect::<Vec<_>>()
        };
        let ends = (0..random.below(4)).map(|_| (Epoch(number(random) as u32), ends(random)));
        let ends = ends.collect();
        let recollection = Recollection {
            instance: ProcessInstance(number(random)),
            incarnation: Incarnation(number(random) as u32),
            pledged: Generation(random.below(2) << 32),
            configuration: Some(Arc::new(newest)).filter(|_| random.chance(4, 5)),
            epochs: KnownEpochs { open: Epoch(number(random) as u32), ends },
        };
        recollections.insert(node(random), recollection);
    }
    let recovered = machine.recover(Generation(0).next(NodeId(1)), &recollections);
    if let Ok(recovered) = recovered {
        let again = StateMachine::from_image(&recovered.image(), ManagerOptions::default());
        assert_eq!(again.expect("an image"), recovered);
    }
}

#[test]
fn nonsense_stops_nobody() {
    for seed in 0..2000 {
        let result = std::panic::catch_unwind(|| {
            let mut random = Random::new(seed);
            run_machine(&mut random);
            run_manager(&mut random);
            run_member(&mut random);
            run_recovery(&mut random);
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}
