//! One manager after the other, command by command: what times mean when the clock changes.

use crate::world::DRAWN;
use shoal_cluster::manager::{
    Action, Command, HeartbeatRecord, Incarnation, ManagerOptions, ManagerPlantedBugs,
    ProcessInstance, Revision, StateMachine, Term,
};
use shoal_cluster::topology::Topology;
use shoal_types::{NodeId, Time};
use std::sync::Arc;

/// How far the second manager's clock is ahead.
const AHEAD_MS: u64 = 3_600_000;

const NODE: NodeId = NodeId(0);

struct Story {
    machine: StateMachine,
}

impl Story {
    fn new(faults: ManagerPlantedBugs) -> Story {
        let options = ManagerOptions { faults, ..ManagerOptions::default() };
        let topology = Arc::new(Topology::compact(3, 1, 3, 0, 1));
        Story { machine: StateMachine::new(topology, options) }
    }

    fn tell(&mut self, term: u64, at_ms: u64, action: Action) {
        let command = Command { term: Term(term), at: Time(at_ms * 1_000_000), action };
        self.machine.apply(&command, &mut Vec::new());
    }

    /// The leader reports heartbeats that have just arrived.
    fn tick(&mut self, term: u64, at_ms: u64, rounds: &[u64]) {
        let heartbeat = |round: &u64| HeartbeatRecord {
            node: NODE,
            incarnation: Incarnation(1),
            round: *round,
            at: Time(at_ms * 1_000_000),
            known: Revision(1),
        };
        self.tell(term, at_ms, Action::Tick { heartbeats: rounds.iter().map(heartbeat).collect() });
    }

    fn is_alive(&self) -> bool {
        self.machine.configuration().nodes[NODE.0 as usize].alive
    }

    /// The first manager begins, and admits the node, whose heartbeats reach it.
    fn begin(&mut self) {
        self.tell(1, 0, Action::Take { drawn: DRAWN });
        let (instance, after) = (ProcessInstance(7), Incarnation(0));
        self.tell(
            1,
            10,
            Action::Join { node: NODE, instance, after, lost: false, last_heartbeat: Time::ZERO },
        );
        self.tick(1, 20, &[1]);
    }

    /// The second manager proposes to take over at 100 ms, and is slow to get through; meanwhile the
    /// first one still receives heartbeats of the node, at 350 ms. At 701 ms that lease has 239 ms left at least.
    fn take_over(&mut self) {
        self.begin();
        self.tick(1, 350, &[2]);
        self.tell(2, AHEAD_MS + 100, Action::Take { drawn: DRAWN });
        self.tick(2, AHEAD_MS + 400, &[]);
        self.tick(2, AHEAD_MS + 701, &[]);
    }
}

#[test]
fn a_lease_lasts_on_through_a_change_of_manager() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.take_over();
    assert!(story.is_alive(), "counted from before it was granted");
    story.tick(2, AHEAD_MS + 1000, &[]);
    assert!(story.is_alive(), "600 ms are not over by every clock");
    story.tick(2, AHEAD_MS + 1001, &[]);
    assert!(!story.is_alive(), "no heartbeat of it arrived for a lease");
}

#[test]
fn leases_from_before_the_term_are_caught() {
    let mut story =
        Story::new(ManagerPlantedBugs { rebase_at_take: true, ..ManagerPlantedBugs::default() });
    story.take_over();
    assert!(!story.is_alive(), "the planted bug does nothing");
}

#[test]
fn a_heartbeat_of_an_hour_ago_renews_nothing() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.begin();
    story.tick(1, 100, &[4]);
    story.tick(1, 701, &[3]);
    assert!(!story.is_alive(), "an old heartbeat kept it alive");
    story.tick(1, 800, &[2, 4]);
    assert!(!story.is_alive(), "an old heartbeat brought it back");
    story.tick(1, 900, &[5]);
    assert!(story.is_alive(), "its next heartbeat did not bring it back");
}

#[test]
fn former_managers_are_void() {
    let mut story = Story::new(ManagerPlantedBugs::default());
    story.begin();
    story.tell(2, AHEAD_MS, Action::Take { drawn: DRAWN });
    story.tick(2, AHEAD_MS, &[]);
    let (before, void) = (story.machine.clone(), story.machine.void_commands());
    story.tick(1, AHEAD_MS * 2, &[2]);
    story.tell(1, AHEAD_MS * 2, Action::Take { drawn: DRAWN });
    story.tell(2, AHEAD_MS * 2, Action::Take { drawn: DRAWN });
    assert_eq!(story.machine.void_commands(), void + 3);
    assert_eq!(story.machine.configuration(), before.configuration());
    assert!(story.is_alive());
    // A manager that has not taken its term yet does not count.
    story.tick(3, AHEAD_MS * 3, &[]);
    assert!(story.is_alive());
}
