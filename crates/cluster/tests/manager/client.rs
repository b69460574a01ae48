//! A node's side, message by message: what grants a lease and what does not.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Applied, Command, Configuration, EpochEnd, Generation, Incarnation, ManagerClient,
    ManagerClientEffect, ManagerClientEvent, ManagerOptions, ManagerRequest, ProcessInstance,
    Revision, StateMachine, Term, ToManager, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::sync::Arc;

const ME: NodeId = NodeId(0);
const SHARD: ShardId = ShardId(0);

fn ms(count: u64) -> Time {
    Time(count * 1_000_000)
}

/// Configurations as a machine makes them, one after each command.
fn configurations() -> Vec<Arc<Configuration>> {
    let topology = Arc::new(Topology::compact(3, 1, 3, 0, 1));
    let mut machine = StateMachine::new(topology, ManagerOptions::default());
    let mut made = vec![Arc::clone(machine.configuration())];
    let join = |node, after| {
        let instance = ProcessInstance(u64::from(after) + 1);
        let (node, after, last_heartbeat) = (NodeId(node), Incarnation(after), Time::ZERO);
        Action::Join { node, instance, after, lost: false, last_heartbeat }
    };
    let heartbeats = Vec::new();
    for (at, action) in [
        (0, Action::Take { drawn: DRAWN }),
        (1, join(0, 0)),
        (2, join(1, 0)),
        (601, join(1, 1)),
        (602, Action::Tick { heartbeats }),
    ] {
        let mut applied: Vec<Applied> = Vec::new();
        machine.apply(&Command { term: Term(1), at: ms(at), action }, &mut applied);
        made.push(Arc::clone(machine.configuration()));
    }
    made
}

/// A member that has joined at 10 ms, with the configuration in which all did.
fn joined(instance: u64, incarnation: u32) -> (ManagerClient, Vec<Arc<Configuration>>) {
    let all = configurations();
    let mut member =
        ManagerClient::new(ME, ProcessInstance(instance), false, ManagerOptions::default());
    member.step(ms(0), ManagerClientEvent::Timer, &mut Vec::new());
    let (instance, incarnation) = (ProcessInstance(instance), Incarnation(incarnation));
    let welcome = ToNode::Welcome { instance, incarnation, configuration: Arc::clone(&all[3]) };
    let mut effects = Vec::new();
    member.step(ms(10), ManagerClientEvent::Received(welcome), &mut effects);
    let beat = |effect: &ManagerClientEffect| {
        matches!(
            effect,
            ManagerClientEffect::Send { message: ToManager::Heartbeat { round: 2, .. } }
        )
    };
    assert!(effects.iter().any(beat), "the second heartbeat, sent at 10 ms: {effects:?}");
    (member, all)
}

fn grant(incarnation: u32, round: u64, revision: Revision) -> ManagerClientEvent {
    let incarnation = Incarnation(incarnation);
    let (generation, configuration) = (Generation(0), None);
    ManagerClientEvent::Received(ToNode::Granted {
        generation,
        incarnation,
        round,
        revision,
        configuration,
    })
}

#[test]
fn a_lease_counts_from_the_sending() {
    let (mut member, all) = joined(1, 1);
    assert!(!member.leads(SHARD, ms(10)), "nothing is granted yet");
    member.step(ms(300), grant(1, 2, all[3].revision), &mut Vec::new());
    assert!(member.leads(SHARD, ms(300)));
    let end = ms(10) + ManagerOptions::default().lease_at_node();
    assert_eq!(member.lease_end(), Some(end));
    assert!(member.leads(SHARD, Time(end.0 - 1)));
    assert!(!member.holds_lease(end));
}

#[test]
fn a_grant_to_a_former_process_grants_nothing() {
    let (mut member, all) = joined(2, 2);
    member.step(ms(20), grant(1, 2, all[3].revision), &mut Vec::new());
    assert!(!member.holds_lease(ms(20)));
    assert_eq!(member.late_messages(), 1);
    assert!(!member.votes(SHARD), "the configuration speaks of the former process");
}

#[test]
fn a_grant_counts_for_who_has_its_configuration() {
    let (mut member, all) = joined(1, 1);
    let newer = all.last().expect("some");
    member.step(ms(20), grant(1, 2, newer.revision), &mut Vec::new());
    assert!(!member.holds_lease(ms(20)));
    assert_eq!(member.bad_messages(), 1, "it should have come with it");
    let configured = ToNode::Configured { configuration: Arc::clone(newer) };
    member.step(ms(30), ManagerClientEvent::Received(configured), &mut Vec::new());
    member.step(ms(40), grant(1, 2, newer.revision), &mut Vec::new());
    assert!(member.holds_lease(ms(40)));
}

#[test]
fn configurations_are_told_once_and_never_back() {
    let (mut member, all) = joined(1, 1);
    let mut delivered = Vec::new();
    for place in [5, 4, 5, 2] {
        let configuration = Arc::clone(&all[place]);
        let mut effects = Vec::new();
        let event = ManagerClientEvent::Received(ToNode::Configured { configuration });
        member.step(ms(20), event, &mut effects);
        delivered.extend(effects.into_iter().filter_map(|effect| match effect {
            ManagerClientEffect::Configured { configuration } => Some(configuration.revision),
            _ => None,
        }));
    }
    assert_eq!(delivered, [all[5].revision]);
}

/// Eight epochs have ended meanwhile, and how the first ones did is kept no more.
#[test]
fn a_process_that_can_learn_no_more_how_an_epoch_ended_is_over() {
    let configured = |all: &[Arc<Configuration>], forgotten: u32| {
        let (epoch, settled, forgotten) = (Epoch(9), Epoch(8), Epoch(forgotten));
        let newest = Configuration::clone(all.last().expect("some"));
        let revision = Revision(newest.revision.0 + 10);
        let ends = std::collections::BTreeMap::new();
        Arc::new(Configuration { revision, epoch, settled, forgotten, ends, ..newest })
    };
    for forgotten in [0, 1, 5] {
        let (mut member, all) = joined(1, 1);
        assert_eq!(all[3].epoch, Epoch(1));
        let configuration = configured(&all, forgotten);
        let mut effects = Vec::new();
        let event = ManagerClientEvent::Received(ToNode::Configured { configuration });
        member.step(ms(20), event, &mut effects);
        let over = effects.contains(&ManagerClientEffect::Superseded);
        assert_eq!((over, member.is_behind()), (forgotten > 0, forgotten > 0));
    }
    // One that begins learns of those that are kept.
    let mut member = ManagerClient::new(ME, ProcessInstance(1), false, ManagerOptions::default());
    let (instance, incarnation) = (ProcessInstance(1), Incarnation(1));
    let welcome =
        ToNode::Welcome { instance, incarnation, configuration: configured(&joined(1, 1).1, 5) };
    let mut effects = Vec::new();
    member.step(ms(10), ManagerClientEvent::Received(welcome), &mut effects);
    let delivered = effects.iter().filter_map(|effect| match effect {
        ManagerClientEffect::Final { ends } => Some(ends.epoch()),
        _ => None,
    });
    assert_eq!(delivered.collect::<Vec<_>>(), [6, 7, 8].map(Epoch));
    assert!(!member.is_behind());
}

#[test]
fn a_superseded_process_is_over() {
    let (mut member, all) = joined(1, 1);
    member.step(ms(20), grant(1, 2, all[3].revision), &mut Vec::new());
    assert!(member.holds_lease(ms(20)));
    let other_process = ToNode::OtherProcess {
        instance: ProcessInstance(1),
        incarnation: Incarnation(2),
        admitted: ProcessInstance(7),
    };
    let mut effects = Vec::new();
    member.step(ms(30), ManagerClientEvent::Received(other_process), &mut effects);
    assert_eq!(effects, [ManagerClientEffect::Superseded]);
    assert!(!member.holds_lease(ms(30)));
    effects.clear();
    member.step(ms(100), ManagerClientEvent::Timer, &mut effects);
    assert_eq!(effects, [], "it says no more");
}

#[test]
fn a_process_with_older_disks_does_not_join() {
    let [former, last, own] = [3, 4, 5].map(ProcessInstance);
    let answer = |admitted| {
        let incarnation = Incarnation(2);
        ManagerClientEvent::Received(ToNode::OtherProcess { instance: own, incarnation, admitted })
    };
    for (lost, named, joins) in [
        (false, vec![former, last], true),
        (false, vec![former], false),
        // It begins without memory anyway.
        (true, vec![former], true),
        // Logs from before processes were recorded.
        (false, vec![], true),
    ] {
        let member = ManagerClient::new(NodeId(0), own, lost, ManagerOptions::default());
        let mut member = member.with_disks(named.clone());
        let mut effects = Vec::new();
        member.step(ms(1), answer(last), &mut effects);
        let asks = |effect: &ManagerClientEffect| {
            matches!(effect, ManagerClientEffect::Send { message: ToManager::Join { .. } })
        };
        assert_eq!(effects.iter().any(asks), joins, "{named:?}: {effects:?}");
        assert_eq!(effects.contains(&ManagerClientEffect::Superseded), !joins);
        assert_eq!(member.has_older_disks(), !joins);
    }
}

/// The reports in these effects.
fn reports(effects: &[ManagerClientEffect]) -> Vec<(Epoch, EpochEnd)> {
    let reports = effects.iter().filter_map(|effect| match effect {
        ManagerClientEffect::Send {
            message: ToManager::Request { request: ManagerRequest::Report { epoch, end, .. }, .. },
        } => Some((*epoch, end.clone())),
        _ => None,
    });
    reports.collect()
}

#[test]
fn only_what_is_asked_is_reported() {
    let (mut member, all) = joined(1, 1);
    let mut closed = Configuration::clone(&all[4]);
    closed.epoch = Epoch(3);
    closed.ends = [(Epoch(2), vec![None; closed.shards.len()])].into();
    closed.settled = Epoch(1);
    let event =
        ManagerClientEvent::Received(ToNode::Configured { configuration: Arc::new(closed) });
    member.step(ms(20), event, &mut Vec::new());
    let report = |epoch| {
        ManagerClientEvent::Request(ManagerRequest::Report {
            shard: SHARD,
            epoch: Epoch(epoch),
            end: EpochEnd::Whole,
        })
    };
    let mut effects = Vec::new();
    member.step(ms(20), report(1), &mut effects);
    assert_eq!(effects, [], "the first epoch is settled");
    assert_eq!(member.late_messages(), 1);
    member.step(ms(20), report(2), &mut effects);
    assert_eq!(reports(&effects), [(Epoch(2), EpochEnd::Whole)]);
}

/// The owner has learned from another node that an epoch is closed, and has ended it, before the manager says so here.
#[test]
fn what_is_reported_early_is_repeated_until_it_is_received() {
    let (mut member, all) = joined(1, 1);
    let event = ManagerClientEvent::Request(ManagerRequest::Report {
        shard: SHARD,
        epoch: Epoch(1),
        end: EpochEnd::up_to(7),
    });
    let mut effects = Vec::new();
    member.step(ms(20), event, &mut effects);
    let mut closed = Configuration::clone(&all[4]);
    closed.epoch = Epoch(2);
    closed.ends = [(Epoch(1), vec![None; closed.shards.len()])].into();
    closed.settled = Epoch(0);
    let event =
        ManagerClientEvent::Received(ToNode::Configured { configuration: Arc::new(closed) });
    member.step(ms(30), event, &mut effects);
    effects.clear();
    member.step(ms(1000), ManagerClientEvent::Timer, &mut effects);
    assert_eq!(reports(&effects), [(Epoch(1), EpochEnd::up_to(7))]);
}

/// The node leads under another ballot by now, or the replica lives anew: then what it said of it counts for nothing.
#[test]
fn what_caught_up_did_so_under_one_ballot_in_one_process() {
    let (mut member, all) = joined(1, 1);
    let mut empty = Configuration::clone(&all[4]);
    let (replica, since) = (NodeId(1), Epoch(1));
    empty.shards[SHARD.0 as usize].empty.insert(replica, since);
    let ballot = empty.shards[SHARD.0 as usize].ballot;
    let incarnation = empty.nodes[replica.0 as usize].incarnation;
    let event = ManagerClientEvent::Received(ToNode::Configured { configuration: Arc::new(empty) });
    member.step(ms(20), event, &mut Vec::new());
    let mut says = |ballot, incarnation| {
        let event = ManagerClientEvent::Request(ManagerRequest::CaughtUp {
            shard: SHARD,
            replica,
            ballot,
            incarnation,
        });
        let mut effects = Vec::new();
        member.step(ms(20), event, &mut effects);
        effects.iter().any(|effect| matches!(effect, ManagerClientEffect::Send { .. }))
    };
    let former = Ballot { epoch: Epoch(0), ..ballot };
    assert!(!says(former, incarnation));
    assert!(!says(ballot, Incarnation(incarnation.0 - 1)));
    assert!(says(ballot, incarnation));
}
