//! What a manager that leads has heard of nodes in its term, and which leases it renews.
//!
//! Most heartbeats change nothing but how long a lease lasts, and that the log need not know at once. The manager
//! renews a lease by itself, on two conditions, and then the argument of the [module](super) holds as if each
//! heartbeat were in the log:
//!
//! 1. *It led when the heartbeat came*, for certain: [`Log::led`](super::Log::led) says so. Then a manager of a later
//!    term was elected after the heartbeat was sent, and when it begins all leases anew, it begins this one not too
//!    early.
//! 2. *The lease had not run out* when the heartbeat was taken: by what the log knows, by a heartbeat before it that was
//!    such a one, or since the term has not lasted for a lease, and the log has still to begin all leases in it. Each
//!    tick tells of all that was heard in the last lease. So no tick on its way, lost or late, takes the node for dead: one proposed before the heartbeat was taken is from a time at which the lease ran, and
//!    tells of why or finds it in the log; one proposed after it tells of this heartbeat.
//!
//! A node whose lease has run out may have been taken for dead by a tick on its way. So the log has to hear of its
//! heartbeat first, and then of the next one none has to.

use super::command::{Heard, Incarnation, Term};
use super::machine::Machine;
use super::options::Options;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{NodeId, Time};

/// Heartbeats of a node that wait, at most. More are not renewed by; the first of them may be any moment.
const WAITING_MAX: usize = 16;

/// The heartbeats of one incarnation of a node.
#[derive(Debug)]
struct Voice {
    /// The last that was taken.
    heard: Heard,
    /// The lease had not run out when it was taken.
    is_sound: bool,
    /// Those that may be renewed by, once the manager led for certain. One after the other: were there only the last
    /// one, and the others' word took longer than a heartbeat, it would never be that one's turn.
    waiting: VecDeque<Heard>,
    /// The first grant since the node last proved that it hears, and when that was.
    unproved: Option<(u64, Time)>,
    /// Its successor wants to be admitted: it is heard no more.
    is_over: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// In which term, and since when it is this manager's.
    term: Term,
    since: Time,
    voices: BTreeMap<NodeId, Voice>,
}

impl Hearing {
    /// A term begins. All that was heard in the one before is over.
    pub(super) fn begin(&mut self, term: Term, now: Time) {
        if self.term != term {
            *self = Hearing { term, since: now, voices: BTreeMap::new() };
        }
    }

    /// Takes a heartbeat of the incarnation that the machine knows, whose node knows that `granted` was.
    ///
    /// Not of a node that speaks and does not hear: its lease is of no use to anybody.
    pub(super) fn hear(&mut self, now: Time, heard: Heard, granted: u64, machine: &Machine) {
        let lease = machine.options.lease_at_manager();
        let is_young = machine.is_timeless() && self.since + lease > now;
        let voice = self.voice(heard.node, heard.incarnation);
        // The log takes none that is older than what it knows, maybe from a manager before.
        let last = voice.heard.round.max(machine.round(heard.node));
        if voice.is_over || heard.round <= last {
            return;
        }
        let proved = |(first, _)| granted >= first || heard.known > voice.heard.known;
        voice.unproved = voice.unproved.filter(|unproved| !proved(*unproved));
        if voice.unproved.is_some_and(|(_, since)| now - since >= lease) {
            return;
        }
        let runs = voice.is_sound && voice.heard.at + lease > now;
        voice.is_sound = runs
            || machine.lease_runs(heard.node, now)
            || (is_young || machine.options.faults.renew_lapsed) && machine.is_alive(heard.node);
        voice.heard = Heard { at: heard.at.min(now).max(voice.heard.at), ..heard };
        if voice.is_sound && voice.waiting.len() < WAITING_MAX {
            voice.waiting.push_back(voice.heard);
        }
    }

    /// Renews the leases that may be, of a manager that led at `led`, from the sending of these heartbeats.
    pub(super) fn renew(&mut self, now: Time, led: Time, machine: &Machine) -> Vec<Heard> {
        let lease = machine.options.lease_at_manager();
        let mut renewals = Vec::new();
        for (node, voice) in &mut self.voices {
            let ready = voice.waiting.iter().take_while(|heard| heard.at <= led).count();
            let Some(heard) = voice.waiting.drain(..ready).next_back() else { continue };
            let is_current = machine.node(*node).is_some_and(|(_, own)| own == heard.incarnation);
            if !is_current || voice.is_over {
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
                voice.unproved.get_or_insert((heard.round, now));
                renewals.push(heard);
            }
        }
        renewals
    }

    /// What a tick tells.
    pub(super) fn told(&self, now: Time, options: &Options) -> impl Iterator<Item = Heard> {
        let lease = options.lease_at_manager();
        let heard = self.voices.values().map(|voice| voice.heard);
        heard.filter(move |heard| heard.round > 0 && heard.at + lease > now)
    }

    /// Whether a heartbeat waits since then, for the manager to be certain.
    pub(super) fn has_waited(&self, now: Time, span: Duration) -> bool {
        let first =
            |voice: &Voice| voice.waiting.front().is_some_and(|heard| heard.at + span <= now);
        self.voices.values().any(first)
    }

    /// Whether the log should know of a heartbeat before leases run out by it.
    pub(super) fn has_news(&self, now: Time, machine: &Machine) -> bool {
        let revision = machine.configuration().revision;
        self.told(now, &machine.options).any(|Heard { node, incarnation, known, .. }| {
            let is_current = machine.node(node).is_some_and(|(_, own)| own == incarnation);
            let is_behind = machine.known(node) < known.min(revision);
            is_current && (is_behind || !machine.is_alive(node))
        })
    }

    /// A successor of this incarnation wants to be admitted: from now on nothing of it is taken. Says when it was
    /// heard last.
    pub(super) fn end(&mut self, node: NodeId, incarnation: Incarnation) -> Time {
        let voice = self.voice(node, incarnation);
        voice.is_over = true;
        voice.heard.at
    }

    /// What is heard of this incarnation; of any other it is over.
    fn voice(&mut self, node: NodeId, incarnation: Incarnation) -> &mut Voice {
        let voice = self.voices.entry(node).or_insert(Voice::of(node, incarnation));
        if voice.heard.incarnation != incarnation {
            *voice = Voice::of(node, incarnation);
        }
        voice
    }
}

impl Voice {
    /// Nothing is heard yet.
    fn of(node: NodeId, incarnation: Incarnation) -> Voice {
        let (at, known) = (Time::ZERO, Default::default());
        let heard = Heard { node, incarnation, round: 0, at, known };
        let waiting = VecDeque::new();
        Voice { heard, is_sound: false, waiting, unproved: None, is_over: false }
    }
}
