//! The heartbeats that a leading manager has received in its term, and the leases that it renews.
//!
//! Most heartbeats only extend a lease, which the log need not record at once. The manager renews a lease
//! without the log on two conditions; then the argument of the [module](super) holds as if each heartbeat
//! were in the log:
//!
//! 1. *It led when the heartbeat arrived*, for certain, as [`ManagerLog::led`](super::ManagerLog::led)
//!    reports. Then a manager of a later term was elected after the heartbeat was sent, and when it begins all
//!    leases anew, it does not begin this one too early.
//! 2. *The lease had not run out* when the heartbeat was accepted: by the log's record, by an earlier
//!    heartbeat of this kind, or since the term has not lasted for a lease, and the log has still to begin all
//!    leases in it. Each tick contains all heartbeats of the last lease. So no tick in flight, lost or late,
//!    declares the node dead: one proposed before the heartbeat was accepted is from a time at which the lease
//!    ran, and contains or finds in the log the reason; one proposed after it contains this heartbeat.
//!
//! A node whose lease has run out may have been declared dead by a tick in flight. So the log has to record
//! its heartbeat first; its next heartbeats can be granted without the log again.

use super::command::HeartbeatRecord;
use super::ids::{Incarnation, Term};
use super::options::ManagerOptions;
use super::state_machine::StateMachine;
use shoal_types::{NodeId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most waiting heartbeats of a node. Later ones renew nothing; the first of them may be granted at any
/// moment.
const WAITING_MAX: usize = 16;

/// The heartbeats of one incarnation of a node.
#[derive(Debug)]
struct HeartbeatHistory {
    /// The last heartbeat that was accepted.
    latest: HeartbeatRecord,
    /// Whether the lease had not run out when it was accepted.
    is_sound: bool,
    /// Heartbeats that renew the lease once the manager is certain that it led, in order. If only the last
    /// one were kept, and acknowledgements took longer than a heartbeat's interval, that one would always be
    /// replaced before its turn.
    waiting: VecDeque<HeartbeatRecord>,
    /// The first grant since the node last proved that it receives grants, and the time of that proof.
    unproved: Option<(u64, Time)>,
    /// The first heartbeat that was ignored since, or since one was tried.
    ignored: Option<HeartbeatRecord>,
    /// The node's next process has asked to be admitted: heartbeats of this one are ignored.
    is_over: bool,
}

/// The leases that a manager grants without the log, and the heartbeats that renew them.
#[derive(Debug, Default)]
pub(super) struct LeaseTracker {
    /// The current term, and since when it is this manager's.
    term: Term,
    since: Time,
    heartbeat_histories: BTreeMap<NodeId, HeartbeatHistory>,
}

impl LeaseTracker {
    /// Begins a term. Heartbeats of the former one no longer count.
    pub(super) fn begin(&mut self, term: Term, now: Time) {
        if self.term != term {
            *self = LeaseTracker { term, since: now, heartbeat_histories: BTreeMap::new() };
        }
    }

    /// Accepts a heartbeat of the known incarnation, whose node has received the grant `granted`.
    ///
    /// Heartbeats of a node that receives no grants are ignored: its lease is of no use to clients. Where it is not declared dead, since
    /// it may not leave, it may be reached again later. So now and then the result is an ignored heartbeat to grant whose lease
    /// would have ended: the grant allows nothing, and the node proves with its next heartbeat that it has received it.
    pub(super) fn accept(
        &mut self,
        now: Time,
        heartbeat: HeartbeatRecord,
        granted: u64,
        machine: &StateMachine,
    ) -> Option<HeartbeatRecord> {
        let lease = machine.options.lease_at_manager();
        let is_young = machine.is_timeless() && self.since + lease > now;
        let heartbeat_history = self.heartbeat_history(heartbeat.node, heartbeat.incarnation);
        // The log accepts none that is older than its record, which may be from an earlier manager.
        let last = heartbeat_history.latest.round.max(machine.round(heartbeat.node));
        if heartbeat_history.is_over || heartbeat.round <= last {
            return None;
        }
        let proved =
            |(first, _)| granted >= first || heartbeat.known > heartbeat_history.latest.known;
        heartbeat_history.unproved =
            heartbeat_history.unproved.filter(|unproved| !proved(*unproved));
        if heartbeat_history.unproved.is_some_and(|(_, since)| now - since >= lease) {
            let ended = heartbeat_history.ignore(now, heartbeat, lease);
            return ended.filter(|_| machine.is_alive(heartbeat.node));
        }
        heartbeat_history.ignored = None;
        let runs = heartbeat_history.is_sound && heartbeat_history.latest.at + lease > now;
        heartbeat_history.is_sound = runs
            || machine.lease_runs(heartbeat.node, now)
            || (is_young || machine.options.faults.renew_lapsed)
                && machine.is_alive(heartbeat.node);
        heartbeat_history.latest = HeartbeatRecord {
            at: heartbeat.at.min(now).max(heartbeat_history.latest.at),
            ..heartbeat
        };
        if heartbeat_history.is_sound && heartbeat_history.waiting.len() < WAITING_MAX {
            heartbeat_history.waiting.push_back(heartbeat_history.latest);
        }
        None
    }

    /// Renews leases, for a manager that led for certain at `led`, from the sending of the heartbeats that
    /// arrived by then.
    pub(super) fn renew(
        &mut self,
        now: Time,
        led: Time,
        machine: &StateMachine,
    ) -> Vec<HeartbeatRecord> {
        let lease = machine.options.lease_at_manager();
        let mut renewals = Vec::new();
        for (node, heartbeat_history) in &mut self.heartbeat_histories {
            let ready = heartbeat_history
                .waiting
                .iter()
                .take_while(|heartbeat| heartbeat.at <= led)
                .count();
            let Some(heartbeat) = heartbeat_history.waiting.drain(..ready).next_back() else {
                continue;
            };
            let is_current =
                machine.node(*node).is_some_and(|(_, own)| own == heartbeat.incarnation);
            if !is_current || heartbeat_history.is_over {
                continue;
            }
            let faults = machine.options.faults;
            let is_faulty = faults.renew_lapsed
                || faults.appoint_early
                || faults.appoint_hasty
                || faults.trust_former_clocks;
            let (is_alive, is_over) = (machine.is_alive(*node), heartbeat.at + lease <= now);
            assert!(
                is_alive || is_over || is_faulty,
                "{node} is dead, and its lease runs: {heartbeat:?}"
            );
            if is_alive {
                heartbeat_history.unproved.get_or_insert((heartbeat.round, now));
                renewals.push(heartbeat);
            }
        }
        renewals
    }

    /// The heartbeats to put into a tick.
    pub(super) fn unexpired(
        &self,
        now: Time,
        options: &ManagerOptions,
    ) -> impl Iterator<Item = HeartbeatRecord> {
        let lease = options.lease_at_manager();
        let latest =
            self.heartbeat_histories.values().map(|heartbeat_history| heartbeat_history.latest);
        latest.filter(move |heartbeat| heartbeat.round > 0 && heartbeat.at + lease > now)
    }

    /// Whether a heartbeat has waited for longer than `span` for the manager to be certain.
    pub(super) fn has_waited(&self, now: Time, span: Duration) -> bool {
        let first = |heartbeat_history: &HeartbeatHistory| {
            heartbeat_history.waiting.front().is_some_and(|heartbeat| heartbeat.at + span <= now)
        };
        self.heartbeat_histories.values().any(first)
    }

    /// Whether the log should record a heartbeat before leases run out by its record.
    pub(super) fn has_news(&self, now: Time, machine: &StateMachine) -> bool {
        let revision = machine.configuration().revision;
        self.unexpired(now, &machine.options).any(
            |HeartbeatRecord { node, incarnation, known, .. }| {
                let is_current = machine.node(node).is_some_and(|(_, own)| own == incarnation);
                let is_behind = machine.known(node) < known.min(revision);
                is_current && (is_behind || !machine.is_alive(node))
            },
        )
    }

    /// A successor of this incarnation asks to be admitted: from now on no heartbeat of the incarnation is
    /// accepted. Returns when the last one arrived.
    pub(super) fn end(&mut self, node: NodeId, incarnation: Incarnation) -> Time {
        let heartbeat_history = self.heartbeat_history(node, incarnation);
        heartbeat_history.is_over = true;
        heartbeat_history.latest.at
    }

    /// The heartbeats of this incarnation; those of any other are dropped.
    fn heartbeat_history(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> &mut HeartbeatHistory {
        let heartbeat_history =
            self.heartbeat_histories.entry(node).or_insert(HeartbeatHistory::of(node, incarnation));
        if heartbeat_history.latest.incarnation != incarnation {
            *heartbeat_history = HeartbeatHistory::of(node, incarnation);
        }
        heartbeat_history
    }
}

impl HeartbeatHistory {
    /// A history without heartbeats.
    fn of(node: NodeId, incarnation: Incarnation) -> HeartbeatHistory {
        let (at, known) = (Time::ZERO, Default::default());
        let latest = HeartbeatRecord { node, incarnation, round: 0, at, known };
        let waiting = VecDeque::new();
        let (unproved, ignored) = (None, None);
        HeartbeatHistory { latest, is_sound: false, waiting, unproved, ignored, is_over: false }
    }

    /// Ignores a heartbeat. Returns the first of them when the lease from it would have ended, and begins again with this one.
    fn ignore(
        &mut self,
        now: Time,
        heartbeat: HeartbeatRecord,
        lease: Duration,
    ) -> Option<HeartbeatRecord> {
        let first = *self.ignored.get_or_insert(heartbeat);
        (first.at + lease <= now).then(|| {
            self.ignored = Some(heartbeat);
            first
        })
    }
}
