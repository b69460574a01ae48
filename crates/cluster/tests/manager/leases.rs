//! One manager, step by step: when it renews a lease by itself, and when the log has to know first.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, CarriedLog, Command, Incarnation, Manager, ManagerEffect, ManagerEvent, ManagerOptions,
    ManagerPlantedBugs, ProcessInstance, Revision, StateMachine, Term, ToManager, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_types::{NodeId, Time};
use std::sync::Arc;

const NODE: NodeId = NodeId(0);

struct Story {
    manager: Manager<CarriedLog>,
    /// What the manager has proposed, and the log has not committed.
    proposed: Vec<Command>,
}

fn ms(at: u64) -> Time {
    Time(at * 1_000_000)
}

impl Story {
    /// The node joined at 1 ms, and all that was proposed is committed.
    fn new(faults: ManagerPlantedBugs) -> Story {
        Story::with(ManagerOptions { faults, ..ManagerOptions::default() })
    }

    fn with(options: ManagerOptions) -> Story {
        let topology = Arc::new(Topology::compact(3, 1, 3, 0, 1));
        let machine = StateMachine::new(topology, options);
        let manager = Manager::new(CarriedLog::default(), machine, DRAWN);
        let mut story = Story { manager, proposed: Vec::new() };
        story.manager.log_mut().term = Some(Term(1));
        story.step(0, ManagerEvent::Timer);
        story.commit(0);
        story.join(1, 1, 0);
        story.commit(1);
        story
    }

    /// Steps, and says which heartbeats of the node are granted.
    fn step(&mut self, now: u64, event: ManagerEvent) -> Vec<u64> {
        let mut effects = Vec::new();
        self.manager.step(ms(now), event, &mut effects);
        self.proposed.extend(self.manager.log_mut().proposed.drain(..));
        let granted = effects.iter().filter_map(|effect| match effect {
            ManagerEffect::Send { to: NODE, message: ToNode::Granted { round, .. } } => {
                Some(*round)
            }
            _ => None,
        });
        granted.collect()
    }

    fn commit(&mut self, now: u64) -> Vec<u64> {
        let mut granted = Vec::new();
        while !self.proposed.is_empty() {
            let proposed = std::mem::take(&mut self.proposed);
            self.manager.log_mut().decided.extend(proposed);
            granted.extend(self.step(now, ManagerEvent::Log));
        }
        granted
    }

    /// The node led for certain at `at`, and learns of it now.
    fn led(&mut self, now: u64, at: u64) -> Vec<u64> {
        self.manager.log_mut().led = Some(ms(at));
        self.step(now, ManagerEvent::Log)
    }

    fn say(&mut self, now: u64, message: ToManager) -> Vec<u64> {
        self.step(now, ManagerEvent::Received { from: NODE, at: ms(now), message })
    }

    fn join(&mut self, now: u64, instance: u64, after: u32) {
        let (instance, after) = (ProcessInstance(instance), Incarnation(after));
        self.say(now, ToManager::Join { instance, after, lost: false });
    }

    fn beat(&mut self, now: u64, round: u64) -> Vec<u64> {
        self.beat_after(now, round, round - 1)
    }

    /// A heartbeat of a node that has received no grant since `granted`.
    fn beat_after(&mut self, now: u64, round: u64, granted: u64) -> Vec<u64> {
        let (instance, incarnation, known) = (ProcessInstance(1), Incarnation(1), Revision(1));
        self.say(now, ToManager::Heartbeat { instance, incarnation, round, granted, known })
    }

    fn is_alive(&self) -> bool {
        self.manager.machine().configuration().nodes[NODE.0 as usize].alive
    }
}

#[test]
fn a_lease_is_renewed_without_the_log_once_the_lead_is_certain() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    assert_eq!(story.beat(100, 1), [], "perhaps another leads");
    assert_eq!(story.led(101, 99), [], "perhaps another led when it came");
    assert_eq!(story.led(102, 100), [1]);
    assert_eq!(story.led(110, 110), [], "it is renewed by that");
    story.commit(111);
    story.beat(200, 2);
    assert_eq!(story.led(201, 201), [2]);
    assert!(story.proposed.is_empty(), "the log is spared");
}

/// The others' word takes longer than one heartbeat after the other.
#[test]
fn heartbeats_that_wait_are_not_replaced_by_later_ones() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    for round in 1..=4 {
        story.beat(100 * round, round);
    }
    assert_eq!(story.led(401, 250), [2]);
    assert_eq!(story.led(402, 400), [4]);
}

/// The last heartbeat arrived at 1 ms. A tick of 602 ms is on its way when the next one arrives.
fn lapse(faults: ManagerPlantedBugs) -> (Story, Vec<u64>) {
    let mut story = Story::new(faults);
    story.step(602, ManagerEvent::Timer);
    assert_eq!(story.proposed.len(), 1, "a tick");
    story.beat(603, 1);
    let granted = story.led(604, 604);
    (story, granted)
}

#[test]
fn a_lease_that_had_run_out_waits_for_the_log() {
    let (mut story, granted) = lapse(ManagerPlantedBugs::default());
    assert_eq!(granted, [], "it may be dead for the log");
    story.commit(605);
    assert!(!story.is_alive(), "so it is");
    story.step(660, ManagerEvent::Timer);
    story.commit(661);
    assert!(story.is_alive(), "the next tick contained its heartbeat");
    story.beat(680, 2);
    assert_eq!(story.led(681, 681), [2]);
}

#[test]
fn a_lease_renewed_when_it_had_run_out_breaks_the_rule() {
    let (mut story, granted) =
        lapse(ManagerPlantedBugs { renew_lapsed: true, ..ManagerPlantedBugs::default() });
    assert_eq!(granted, [1]);
    story.commit(605);
    assert!(!story.is_alive(), "dead for the log, and under a lease");
}

#[test]
fn heartbeats_of_a_former_process_are_ignored_and_its_lease_is_waited_for() {
    for (faults, waits) in [
        (ManagerPlantedBugs::default(), true),
        (
            ManagerPlantedBugs { forget_former_instance: true, ..ManagerPlantedBugs::default() },
            false,
        ),
    ] {
        let mut story = Story::new(faults);
        story.beat(100, 1);
        story.commit(101);
        story.beat(400, 2);
        assert_eq!(
            story.led(401, 400),
            [2],
            "a lease until a second, of which the log knows nothing"
        );
        story.join(500, 2, 1);
        if waits {
            story.beat(510, 3);
            assert_eq!(story.led(511, 511), [], "its successor is on its way");
        }
        story.commit(512);
        let ballot = |story: &Story| story.manager.machine().configuration().shards[0].ballot;
        let before = ballot(&story);
        for at in (610..1000).step_by(60) {
            story.step(at, ManagerEvent::Timer);
            story.commit(at);
        }
        assert_eq!(ballot(&story) == before, waits, "another leads while the former process may");
    }
}

/// Heartbeats that an earlier manager received are known from the log.
#[test]
fn a_late_heartbeat_of_a_term_before_renews_nothing() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.beat(500, 7);
    story.step(610, ManagerEvent::Timer);
    assert!(
        matches!(&story.proposed[0].action, Action::Tick { heartbeats } if heartbeats.len() == 1)
    );
    story.commit(611);
    story.manager.log_mut().term = Some(Term(2));
    story.step(620, ManagerEvent::Log);
    story.commit(621);
    story.step(680, ManagerEvent::Timer);
    story.commit(681);
    story.beat(700, 6);
    assert_eq!(story.led(701, 701), []);
    story.beat(710, 8);
    assert_eq!(story.led(711, 711), [8]);
}

/// Of former terms nothing is known but that no lease begins before its own.
#[test]
fn a_new_manager_renews_by_the_heartbeats_it_finds() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.manager.log_mut().term = Some(Term(2));
    story.step(700, ManagerEvent::Log);
    story.commit(710);
    story.beat(711, 5);
    assert_eq!(story.led(712, 711), [5], "before the log knows anything of its term");
    story.commit(713);
    assert!(story.is_alive());
}

#[test]
fn others_are_asked_when_heartbeats_wait() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.beat(100, 1);
    assert!(!story.manager.log_mut().asks, "they are asked now and then");
    story.step(151, ManagerEvent::Timer);
    assert!(std::mem::take(&mut story.manager.log_mut().asks), "it has waited for 50 ms");
    story.step(160, ManagerEvent::Timer);
    assert!(!story.manager.log_mut().asks, "they have just been asked");
    assert_eq!(story.led(170, 151), [1]);
    story.step(250, ManagerEvent::Timer);
    assert!(!story.manager.log_mut().asks, "nothing waits");
}

/// The node was dead when the term began, and a heartbeat of it had arrived. By that it is alive again, for a lease and no longer.
#[test]
fn who_was_dead_when_a_term_began_has_no_lease_of_its_beginning() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.step(602, ManagerEvent::Timer);
    story.commit(603);
    assert!(!story.is_alive());
    story.manager.log_mut().term = Some(Term(2));
    story.step(1000, ManagerEvent::Log);
    story.commit(1000);
    let (instance, incarnation, known) = (ProcessInstance(1), Incarnation(1), Revision(1));
    let message = ToManager::Heartbeat { instance, incarnation, round: 7, granted: 0, known };
    story.step(1001, ManagerEvent::Received { from: NODE, at: ms(700), message });
    story.step(1051, ManagerEvent::Timer);
    story.commit(1052);
    assert!(story.is_alive());
    for at in (1100..1800).step_by(51) {
        story.step(at, ManagerEvent::Timer);
        if !story.proposed.is_empty() && at > 1300 {
            break;
        }
        story.commit(at);
    }
    assert!(story.is_alive() && !story.proposed.is_empty(), "a tick that buries it is on its way");
    let now = story.proposed[0].at.0 / 1_000_000 + 5;
    story.beat(now, 8);
    assert_eq!(story.led(now + 1, now), [], "it may be dead for the log");
    story.commit(now + 2);
    assert!(!story.is_alive());
}

/// Nothing may leave while the others are silent, too. The node missed its first grant, and was then cut off from the managers for longer
/// than a lease (zeus, seed 538871601: it stayed without a lease for good, and all waited for it).
#[test]
fn a_node_that_may_not_leave_is_granted_a_lease_again_when_it_is_back() {
    let options =
        ManagerOptions { membership_epochs: true, keeps_memory: true, ..ManagerOptions::default() };
    let mut story = Story::with(options);
    story.beat(100, 1);
    assert_eq!(story.led(101, 101), [1]);
    for at in (600..2000).step_by(60) {
        story.step(at, ManagerEvent::Timer);
        story.commit(at);
    }
    assert!(story.is_alive());
    // A lease from a heartbeat that was ignored would have ended when that is granted.
    assert_eq!(story.beat_after(2001, 2, 0), []);
    assert_eq!(story.beat_after(2500, 3, 0), []);
    assert_eq!(story.beat_after(2602, 4, 0), [2]);
    story.beat_after(2700, 5, 2);
    story.step(2760, ManagerEvent::Timer);
    story.commit(2761);
    story.beat_after(2801, 6, 2);
    assert_eq!(story.led(2802, 2802), [6]);
}

/// One whose heartbeats arrive, and which receives nothing, gets no lease by that.
#[test]
fn a_node_that_receives_no_grants_has_no_lease_after_a_while() {
    let options =
        ManagerOptions { membership_epochs: true, keeps_memory: true, ..ManagerOptions::default() };
    let mut story = Story::with(options);
    let mut granted = Vec::new();
    for at in (100..5000).step_by(100) {
        granted.extend(story.beat_after(at, at, 0).into_iter().map(|round| (at, round)));
        granted.extend(story.led(at + 1, at + 1).into_iter().map(|round| (at, round)));
        story.step(at + 60, ManagerEvent::Timer);
        story.commit(at + 61);
    }
    assert!(story.is_alive(), "it may not leave");
    let (early, late) = granted.split_at(granted.partition_point(|(at, _)| *at <= 700));
    assert_eq!(early.len(), 7);
    assert!(late.len() > 2 && late.iter().all(|(at, round)| round + 600 <= *at), "{late:?}");
}
