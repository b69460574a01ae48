//! Whom this worker has not heard for a while (design §5, "Failure").
//!
//! What a coordinator has in flight on a shard holds up that shard's watermark, and silence resolves nothing
//! (rule M3): only the end of the epoch does. A leader that is held up by a coordinator who is gone does not
//! wait until the manager has buried that one: it asks for the end of the epoch at once. To be wrong costs
//! an epoch, and the transactions that hang; nobody loses an office for it.

use super::{Effects, Mako};
use crate::engine::Effect;
use crate::execution::sequences;
use crate::faults::Fault;
use crate::observation::Observation;
use crate::replication::lead::Flight;
use consensus::manager::Configuration;
use std::time::Duration;
use types::{Epoch, NodeId, Time};

/// What is in flight for so many times as long as it may hang after its epoch is stuck, though its coordinator
/// is heard: one of the two ways between us is cut.
const STUCK: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Silence {
    peers: Vec<Peer>,
    /// Since when this worker steps without a break: before, it may have heard nobody for its own fault.
    awake_since: Time,
    stepped_at: Time,
    /// The last epoch whose end was asked for.
    asked: Epoch,
}

#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    heard: Time,
    /// Its transactions with a lower number are of a former life, or it is dead.
    first: u64,
}

impl Silence {
    pub(super) fn new(nodes: usize) -> Silence {
        Silence {
            peers: vec![Peer::default(); nodes],
            awake_since: Time::ZERO,
            stepped_at: Time::ZERO,
            asked: Epoch(0),
        }
    }

    /// A step begins. Whoever waits for silence looks twice before it is reached.
    pub(super) fn awake(&mut self, now: Time, patience: Duration) {
        if self.stepped_at + patience * 3 / 4 < now {
            self.awake_since = now;
        }
        self.stepped_at = now;
    }

    pub(super) fn hear(&mut self, from: NodeId, now: Time) {
        if let Some(peer) = self.peers.get_mut(from.0 as usize) {
            peer.heard = now;
        }
    }

    pub(super) fn configured(&mut self, configuration: &Configuration) {
        for (peer, standing) in self.peers.iter_mut().zip(&configuration.nodes) {
            peer.first = match standing.alive {
                true => sequences::first(standing.incarnation),
                false => u64::MAX,
            };
        }
    }
}

impl Mako {
    /// From when on the coordinator of something in flight counts as gone.
    fn gone_at(&self, flight: Flight) -> Time {
        let hub = &self.desk.hub;
        let transaction = flight.transaction;
        if transaction.node == hub.place.node {
            return Time::MAX;
        }
        let Some(peer) = self.silence.peers.get(transaction.node.0 as usize) else {
            return Time::MAX;
        };
        if transaction.sequence < peer.first {
            return Time::ZERO;
        }
        // Whoever leads nothing says nothing where there is nothing to say.
        let patience = match hub.is_leader(transaction.node) {
            true => self.options().silent_after,
            false => self.options().hang_after,
        };
        let silent = peer.heard.max(self.silence.awake_since) + patience;
        // We may hear one who does not hear us.
        silent.min(flight.since + STUCK * self.options().hang_after)
    }

    /// Does it hang, since its coordinator is gone?
    pub(super) fn hangs(&self, flight: Flight, now: Time) -> bool {
        self.gone_at(flight) <= now
    }

    /// Asks for the end of the open epoch, if something of it hangs that holds up a shard.
    pub(super) fn ask_to_close(&mut self, now: Time, effects: &mut Effects) {
        let open = self.desk.hub.epoch.get();
        if self.silence.asked >= open {
            return;
        }
        let mut led = self.led.iter().filter(|led| led.lead.is_leading());
        let held_up = led.find(|led| {
            let first = led.lead.first_in_flight();
            first.is_some_and(|first| first.epoch == open && self.hangs(first, now))
        });
        let Some(shard) = held_up.map(|led| led.lead.shard) else { return };
        if self.options().faults.has(Fault::SilenceResolves) {
            let at = self.place_of(shard).expect("it is led");
            return self.end_branches(at, open, effects);
        }
        self.silence.asked = open;
        effects.observe(|| Observation::HeldUp { shard, epoch: open });
        effects.push(Effect::Close { shard, epoch: open });
    }

    /// When to look again whether somebody is gone.
    pub(super) fn next_silence(&self, now: Time) -> Option<Time> {
        let led = self.led.iter().filter(|led| led.lead.is_leading());
        let first = led.filter_map(|led| Some(self.gone_at(led.lead.first_in_flight()?)));
        let at = first.filter(|at| *at > now && *at < Time::MAX).min()?;
        Some(at.min(now + self.options().silent_after / 2))
    }
}
