//! What a manager that leads has heard of nodes in its term, and which leases it renews.
//!
//! Most heartbeats change nothing but how long a lease lasts, and that the log need not know at once. The manager
//! renews a lease by itself, on two conditions, and then the argument of the [module](super) holds as if each
//! heartbeat were in the log:
//!
//! 1. *It led when the heartbeat came*, for certain: [`ManagerLog::led`](super::ManagerLog::led) says so. Then a manager of a later
//!    term was elected after the heartbeat was sent, and when it begins all leases anew, it begins this one not too
//!    early.
//! 2. *The lease had not run out* when the heartbeat was taken: by what the log knows, by a heartbeat before it that was
//!    such a one, or since the term has not lasted for a lease, and the log has still to begin all leases in it. Each
//!    tick tells of all that was heard in the last lease. So no tick on its way, lost or late, takes the node for dead: one proposed before the heartbeat was taken is from a time at which the lease ran, and
//!    tells of why or finds it in the log; one proposed after it tells of this heartbeat.
//!
//! A node whose lease has run out may have been taken for dead by a tick on its way. So the log has to hear of its
//! heartbeat first, and then of the next one none has to.

use super::command::{HeartbeatRecord, Incarnation, Term};
use super::options::ManagerOptions;
use super::state_machine::StateMachine;
use shoal_types::{NodeId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Heartbeats of a node that wait, at most. More are not renewed by; the first of them may be any moment.
const WAITING_MAX: usize = 16;

/// The heartbeats of one incarnation of a node.
#[derive(Debug)]
struct HeartbeatHistory {
    /// The last that was taken.
    heard: HeartbeatRecord,
    /// The lease had not run out when it was taken.
    is_sound: bool,
    /// Those that may be renewed by, once the manager led for certain. One after the other: were there only the last
    /// one, and the others' word took longer than a heartbeat, it would never be that one's turn.
    waiting: VecDeque<HeartbeatRecord>,
    /// The first grant since the node last proved that it hears, and when that was.
    unproved: Option<(u64, Time)>,
    /// Its successor wants to be admitted: it is heard no more.
    is_over: bool,
}

/// The leases that a manager grants without the log, and the heartbeats that renew them.
#[derive(Debug, Default)]
pub(super) struct LeaseTracker {
    /// In which term, and since when it is this manager's.
    term: Term,
    since: Time,
    heartbeat_histories: BTreeMap<NodeId, HeartbeatHistory>,
}

impl LeaseTracker {
    /// A term begins. All that was heard in the one before is over.
    pub(super) fn begin(&mut self, term: Term, now: Time) {
        if self.term != term {
            *self = LeaseTracker { term, since: now, heartbeat_histories: BTreeMap::new() };
        }
    }

    /// Takes a heartbeat of the incarnation that the machine knows, whose node knows that `granted` was.
    ///
    /// Not of a node that speaks and does not hear: its lease is of no use to clients.
    pub(super) fn hear(
        &mut self,
        now: Time,
        heard: HeartbeatRecord,
        granted: u64,
        machine: &StateMachine,
    ) {
        let lease = machine.options.lease_at_manager();
        let is_young = machine.is_timeless() && self.since + lease > now;
        let heartbeat_history = self.heartbeat_history(heard.node, heard.incarnation);
        // The log takes none that is older than what it knows, maybe from a manager before.
        let last = heartbeat_history.heard.round.max(machine.round(heard.node));
        if heartbeat_history.is_over || heard.round <= last {
            return;
        }
        let proved = |(first, _)| granted >= first || heard.known > heartbeat_history.heard.known;
        heartbeat_history.unproved =
            heartbeat_history.unproved.filter(|unproved| !proved(*unproved));
        if heartbeat_history.unproved.is_some_and(|(_, since)| now - since >= lease) {
            return;
        }
        let runs = heartbeat_history.is_sound && heartbeat_history.heard.at + lease > now;
        heartbeat_history.is_sound = runs
            || machine.lease_runs(heard.node, now)
            || (is_young || machine.options.faults.renew_lapsed) && machine.is_alive(heard.node);
        heartbeat_history.heard =
            HeartbeatRecord { at: heard.at.min(now).max(heartbeat_history.heard.at), ..heard };
        if heartbeat_history.is_sound && heartbeat_history.waiting.len() < WAITING_MAX {
            heartbeat_history.waiting.push_back(heartbeat_history.heard);
        }
    }

    /// Renews the leases that may be, of a manager that led at `led`, from the sending of these heartbeats.
    pub(super) fn renew(
        &mut self,
        now: Time,
        led: Time,
        machine: &StateMachine,
    ) -> Vec<HeartbeatRecord> {
        let lease = machine.options.lease_at_manager();
        let mut renewals = Vec::new();
        for (node, heartbeat_history) in &mut self.heartbeat_histories {
            let ready =
                heartbeat_history.waiting.iter().take_while(|heard| heard.at <= led).count();
            let Some(heard) = heartbeat_history.waiting.drain(..ready).next_back() else {
                continue;
            };
            let is_current = machine.node(*node).is_some_and(|(_, own)| own == heard.incarnation);
            if !is_current || heartbeat_history.is_over {
                continue;
            }
            let faults = machine.options.faults;
            let is_faulty = faults.renew_lapsed
                || faults.appoint_early
                || faults.appoint_hasty
                || faults.trust_former_clocks;
            let (is_alive, is_over) = (machine.is_alive(*node), heard.at + lease <= now);
            assert!(
                is_alive || is_over || is_faulty,
                "{node} is dead, and its lease runs: {heard:?}"
            );
            if is_alive {
                heartbeat_history.unproved.get_or_insert((heard.round, now));
                renewals.push(heard);
            }
        }
        renewals
    }

    /// What a tick tells.
    pub(super) fn told(
        &self,
        now: Time,
        options: &ManagerOptions,
    ) -> impl Iterator<Item = HeartbeatRecord> {
        let lease = options.lease_at_manager();
        let heard =
            self.heartbeat_histories.values().map(|heartbeat_history| heartbeat_history.heard);
        heard.filter(move |heard| heard.round > 0 && heard.at + lease > now)
    }

    /// Whether a heartbeat waits since then, for the manager to be certain.
    pub(super) fn has_waited(&self, now: Time, span: Duration) -> bool {
        let first = |heartbeat_history: &HeartbeatHistory| {
            heartbeat_history.waiting.front().is_some_and(|heard| heard.at + span <= now)
        };
        self.heartbeat_histories.values().any(first)
    }

    /// Whether the log should know of a heartbeat before leases run out by it.
    pub(super) fn has_news(&self, now: Time, machine: &StateMachine) -> bool {
        let revision = machine.configuration().revision;
        self.told(now, &machine.options).any(
            |HeartbeatRecord { node, incarnation, known, .. }| {
                let is_current = machine.node(node).is_some_and(|(_, own)| own == incarnation);
                let is_behind = machine.known(node) < known.min(revision);
                is_current && (is_behind || !machine.is_alive(node))
            },
        )
    }

    /// A successor of this incarnation wants to be admitted: from now on nothing of it is taken. Says when it was
    /// heard last.
    pub(super) fn end(&mut self, node: NodeId, incarnation: Incarnation) -> Time {
        let heartbeat_history = self.heartbeat_history(node, incarnation);
        heartbeat_history.is_over = true;
        heartbeat_history.heard.at
    }

    /// What is heard of this incarnation; of any other it is over.
    fn heartbeat_history(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> &mut HeartbeatHistory {
        let heartbeat_history =
            self.heartbeat_histories.entry(node).or_insert(HeartbeatHistory::of(node, incarnation));
        if heartbeat_history.heard.incarnation != incarnation {
            *heartbeat_history = HeartbeatHistory::of(node, incarnation);
        }
        heartbeat_history
    }
}

impl HeartbeatHistory {
    /// Nothing is heard yet.
    fn of(node: NodeId, incarnation: Incarnation) -> HeartbeatHistory {
        let (at, known) = (Time::ZERO, Default::default());
        let heard = HeartbeatRecord { node, incarnation, round: 0, at, known };
        let waiting = VecDeque::new();
        HeartbeatHistory { heard, is_sound: false, waiting, unproved: None, is_over: false }
    }
}
