//! Which FVWs that are not whole the manager keeps: those that a living node may not know, and the newest.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Command, EpochEnd, FinalEnds, HeartbeatRecord, Incarnation, LeadershipClaim,
    ManagerOptions, ProcessInstance, StateMachine, Term,
};
use shoal_cluster::topology::Topology;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::sync::Arc;
use std::time::Duration;

fn apply(machine: &mut StateMachine, at: Time, action: Action) {
    let command = Command { term: Term(1), at, action };
    machine.apply(&command, &mut Vec::new());
}

/// Two shards, all of whose nodes have come.
fn machine() -> StateMachine {
    machine_with(ManagerOptions::default())
}

fn machine_with(options: ManagerOptions) -> StateMachine {
    let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
    let mut machine = StateMachine::new(Arc::clone(&topology), options);
    apply(&mut machine, Time(1), Action::Take { drawn: DRAWN });
    for node in topology.nodes() {
        let (node, instance, after) = (node.id, ProcessInstance(7), Incarnation(0));
        let join = Action::Join { node, instance, after, lost: false, last_heartbeat: Time::ZERO };
        apply(&mut machine, Time(1), join);
    }
    machine
}

/// The claim of a shard's leader.
fn claim(machine: &StateMachine, shard: u32) -> LeadershipClaim {
    let it = &machine.configuration().shards[shard as usize];
    let (node, incarnation, ballot) = (it.leader, it.incarnation, it.ballot);
    LeadershipClaim { node, incarnation, shard: ShardId(shard), ballot }
}

/// No node reports that it has received any.
#[test]
fn who_begins_anew_hears_the_same_finals() {
    let mut machine = machine();
    let apply = |machine: &mut StateMachine, action| apply(machine, Time(1), action);
    for epoch in (1..1100).map(Epoch) {
        let of = claim(&machine, 0);
        apply(&mut machine, Action::Close { claim: of, epoch });
        for shard in 0..2 {
            let of = claim(&machine, shard);
            apply(
                &mut machine,
                Action::Report { claim: of, epoch, end: EpochEnd::up_to(u64::from(epoch.0)) },
            );
        }
        // A tick forgets what need not be kept.
        apply(&mut machine, Action::Tick { heartbeats: Vec::new() });
        assert_eq!(machine.configuration().settled, epoch);
    }
    let first = machine.configuration().last(Epoch(1)).expect("settled");
    let truth = FinalEnds::new(Epoch(1), vec![EpochEnd::up_to(1); 2]);
    assert_eq!(first, truth, "what a node that restarts receives of the first epoch");
}

/// A node need not lead the shard; another process of it is none.
#[test]
fn any_process_of_the_cluster_closes_an_epoch() {
    let mut machine = machine();
    let (of, epoch) = (claim(&machine, 0), Epoch(1));
    let follower = LeadershipClaim { node: NodeId(1), ..of };
    let other = LeadershipClaim { incarnation: Incarnation(of.incarnation.0 + 1), ..follower };
    let unknown = LeadershipClaim { node: NodeId(99), ..of };
    for claim in [other, unknown] {
        apply(&mut machine, Time(1), Action::Close { claim, epoch });
        assert_eq!(machine.configuration().epoch, epoch, "{claim:?}");
    }
    apply(&mut machine, Time(1), Action::Close { claim: follower, epoch });
    assert_eq!(machine.configuration().epoch, Epoch(2));
}

/// The oldest go that all living nodes have received; one that is gone for good holds nothing back.
#[test]
fn of_finals_that_all_nodes_have_the_newest_are_kept() {
    let options = ManagerOptions { finals_max: 4, ..ManagerOptions::default() };
    let mut machine = machine_with(options.clone());
    let fail = |machine: &mut StateMachine, round: u32, lease_tracker: u32| {
        let (at, epoch) = (Time(1) + Duration::from_millis(100) * round, Epoch(round));
        let of = claim(machine, 0);
        apply(machine, at, Action::Close { claim: of, epoch });
        for shard in 0..2 {
            let of = claim(machine, shard);
            let end = EpochEnd::up_to(u64::from(round));
            apply(machine, at, Action::Report { claim: of, epoch, end });
        }
        let (round, known) = (u64::from(round), machine.configuration().revision);
        let heartbeat =
            |node| HeartbeatRecord { node, incarnation: Incarnation(1), round, at, known };
        let heartbeats = (0..lease_tracker).map(|node| heartbeat(NodeId(node))).collect();
        apply(machine, at, Action::Tick { heartbeats });
    };
    let kept = |machine: &StateMachine| {
        let it = machine.configuration();
        let epochs = it.finals.iter().map(FinalEnds::epoch);
        assert!(epochs.eq((it.forgotten.0 + 1..=it.settled.0).map(Epoch)), "{it:?}");
        it.finals.len()
    };
    for round in 1..=20 {
        fail(&mut machine, round, 6);
        assert_eq!(kept(&machine), round.min(4) as usize, "round {round}");
    }
    // The last of them is silent, and may come back.
    for round in 21..=25 {
        fail(&mut machine, round, 5);
        assert_eq!(kept(&machine), 4 + (round as usize - 20).saturating_sub(4), "round {round}");
    }
    for round in 26..=60 {
        fail(&mut machine, round, 5);
    }
    assert!(!machine.configuration().nodes[5].alive);
    assert_eq!((kept(&machine), machine.configuration().forgotten), (4, Epoch(56)));
    let image = StateMachine::from_image(&machine.image(), options).expect("well-formed");
    assert_eq!(image, machine);
}

/// Epochs follow each other so quickly that at each tick every shard lacks the end of one, and never of the same for
/// long: none is out. One that reports no more is.
#[test]
fn who_reports_each_end_in_time_is_not_out() {
    let mut machine = machine();
    let (every, nodes) = (Duration::from_millis(100), machine.configuration().nodes.len() as u32);
    let is_out = |machine: &StateMachine| -> Vec<bool> {
        machine.configuration().shards.iter().map(|shard| shard.out.is_some()).collect()
    };
    let begin_next = |machine: &mut StateMachine, round: u32, reporting: u32| {
        let (at, epoch) = (Time(1) + every * round, machine.configuration().epoch);
        let of = claim(machine, 0);
        apply(machine, at, Action::Close { claim: of, epoch });
        let (round, known) = (u64::from(round), machine.configuration().revision);
        let heartbeat =
            |node| HeartbeatRecord { node, incarnation: Incarnation(1), round, at, known };
        let heartbeats = (0..nodes).map(|node| heartbeat(NodeId(node))).collect();
        apply(machine, at, Action::Tick { heartbeats });
        for shard in 0..reporting {
            let of = claim(machine, shard);
            apply(machine, at, Action::Report { claim: of, epoch, end: EpochEnd::Whole });
        }
    };
    for round in 1..=30 {
        begin_next(&mut machine, round, 2);
        assert_eq!(is_out(&machine), [false, false], "round {round}");
        assert_eq!(machine.configuration().epoch, Epoch(round + 1));
    }
    for round in 31..=60 {
        begin_next(&mut machine, round, 1);
    }
    assert_eq!(is_out(&machine), [false, true]);
}
