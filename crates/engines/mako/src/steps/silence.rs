//! Transactions that hang since their coordinators are gone, and the request to end the epoch (rule M3): see
//! [`failure_detector`](crate::failure_detector).

use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_cluster::manager::ManagerRequest;
use shoal_engine::engine::EngineEffect;
use shoal_replication::in_flight_clocks::InFlight;
use shoal_types::{Epoch, NodeId, Time};

/// What is in flight for so many times as long as it may hang after its epoch is stuck, though its coordinator
/// is received: one of the two ways between us is cut.
const STUCK: u32 = 4;

impl Mako {
    /// From when on the coordinator of something in flight counts as gone.
    fn gone_at(&self, flight: InFlight) -> Time {
        let worker_context = &self.runtime.worker_context;
        let transaction = flight.transaction;
        if transaction.node == worker_context.place.node || flight.resolved {
            return Time::MAX;
        }
        // A node that leads nothing sends nothing where it has nothing to send.
        let patience = match worker_context.leaderships.is_leader(transaction.node) {
            true => self.options().silent_after,
            false => self.options().hang_after,
        };
        let silent = self.failure_detector.gone_at(transaction, patience);
        // Messages may arrive from a node that receives none of this node.
        silent.min(flight.since + STUCK * self.options().hang_after)
    }

    /// Whether a transaction in flight hangs, since its coordinator is gone.
    pub(crate) fn hangs(&self, flight: InFlight, now: Time) -> bool {
        self.gone_at(flight) <= now
    }

    /// Asks for the end of the open epoch, if something of it hangs that holds up a shard.
    pub(crate) fn ask_to_close(&mut self, now: Time, effects: &mut MakoEffects) {
        let open = self.runtime.worker_context.epoch.get();
        let led = self.held_up(now, open);
        if let Some(at) = led {
            self.suspect_hanging(at, open, now);
            if self.options().faults.has(MakoPlantedBug::SilenceResolves) {
                return self.end_branches(at, open, effects);
            }
        }
        let led = led.map(|at| self.leader_shards[at].lead.shard);
        // A coordinator asks as well: what it could not end anywhere goes with the epoch.
        let Some(shard) = led.or_else(|| self.failure_detector.unanswered_by(open)) else { return };
        self.failure_detector.ask(open);
        effects.observe(|| MakoObservation::HeldUp { shard, epoch: open });
        effects.push(EngineEffect::Manager(ManagerRequest::Close { shard, epoch: open }));
    }

    /// The place of a shard that this worker leads, and on which something of the open epoch hangs; else of one whose stream
    /// decides nothing.
    fn held_up(&self, now: Time, open: Epoch) -> Option<usize> {
        let mut led = self.leader_shards.leading();
        let hangs = led.find(|(_, led)| {
            let first = led.lead.first_in_flight();
            first.is_some_and(|first| first.epoch == open && self.hangs(first, now))
        });
        let stalled = || {
            self.leader_shards.leading().find(|(at, led)| {
                let takes_part = self.runtime.worker_context.takes_part(led.lead.shard);
                takes_part && self.is_stalled(*at)
            })
        };
        hangs.or_else(stalled).map(|(at, _)| at)
    }

    /// Records the nodes that count as gone: their transactions in flight, of this epoch or an earlier one, hang.
    pub(crate) fn suspect_hanging(&mut self, at: usize, last: Epoch, now: Time) {
        let hanging =
            self.leader_shards[at].lead.hanging(last).filter(|flight| self.hangs(*flight, now));
        let gone: Vec<NodeId> = hanging.map(|flight| flight.transaction.node).collect();
        gone.into_iter().for_each(|node| self.failure_detector.suspect(node));
    }

    /// When to look again whether a node is gone.
    pub(crate) fn next_silence(&self, now: Time) -> Option<Time> {
        let led = self.leader_shards.leading();
        let first = led.filter_map(|(_, led)| Some(self.gone_at(led.lead.first_in_flight()?)));
        let at = first.filter(|at| *at > now && *at < Time::MAX).min()?;
        Some(at.min(now + self.options().silent_after / 2))
    }
}
