//! A stream that this worker leads: the clocks in flight and the safe clock, the lengths proposed and decided, and the
//! pace. Asserts the rules of the clock order and of the safe clock.
//!
//! ```text
//! clocks  1 2 3 4 5 6 7 8 9      drawn by all workers of the shard
//!           ^   ^                in flight on this worker
//!         |                      its safe clock: one less than the first of them
//! ```
//! With nothing in flight, the safe clock is the greatest clock that was drawn on the shard: the next clocks of this worker
//! are greater.

use crate::replica::ShardReplica;
use crate::transit::Transit;
use shoal_engine::TransactionId;
use shoal_engine::{PlantedBug, PlantedBugs};
use shoal_types::{Clock, Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The clocks of one shard that a worker has drawn and not resolved; its safe clock is below them.
#[derive(Debug)]
pub struct InFlightClocks {
    /// The shard that the stream belongs to.
    pub shard: ShardId,
    /// The stream is prepared. Before, what is to be proposed gathers.
    leading: bool,
    /// A later epoch's clocks are greater.
    in_flight: BTreeMap<Clock, InFlight>,
    /// How long the stream is, and how much of it is decided.
    proposed: u64,
    decided: u64,
    safe_appended: Clock,
    appended_at: Time,
    /// Since when the first entry that is not decided could be: it was appended then, or the one before was decided.
    waits_since: Time,
    /// The times that transactions spend in open batches and in the stream.
    pub transit: Transit,
}

/// What a clock in flight was drawn for.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// The coordinator is to resolve it.
    pub transaction: TransactionId,
    /// The epoch of the transaction.
    pub epoch: Epoch,
    /// When it was drawn.
    pub since: Time,
    /// The coordinator has said what becomes of it, and only this worker has still to do so.
    pub resolved: bool,
}

impl InFlightClocks {
    /// A stream that is not prepared yet.
    pub fn new(shard: ShardId) -> InFlightClocks {
        InFlightClocks {
            shard,
            leading: false,
            in_flight: BTreeMap::new(),
            proposed: 0,
            decided: 0,
            safe_appended: Clock::ZERO,
            appended_at: Time::ZERO,
            waits_since: Time::ZERO,
            transit: Transit::default(),
        }
    }

    /// The stream is prepared, and that long. What is in it is safe up to `safe`.
    pub fn begin(&mut self, length: u64, safe: Clock) {
        self.leading = true;
        self.proposed = length;
        self.decided = length;
        self.safe_appended = safe;
    }

    /// Is the stream prepared?
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// A clock was drawn on this worker, and is in flight now.
    pub fn begin_in_flight(&mut self, clock: Clock, flight: InFlight) {
        let (shard, safe) = (self.shard, self.safe_appended);
        assert!(
            clock > safe,
            "safe clock: {clock} of {shard} was drawn, and {safe} was appended as safe"
        );
        let before = self.in_flight.insert(clock, flight);
        assert!(before.is_none(), "clock order: {shard} drew {clock} twice");
    }

    /// A clock is resolved: what it was drawn for is installed, or was given up.
    pub fn end_in_flight(&mut self, clock: Clock) {
        let flew = self.in_flight.remove(&clock);
        assert!(flew.is_some(), "safe clock: {clock} of {} was resolved before", self.shard);
    }

    /// The coordinator of a clock that is in flight has said what becomes of it: it is waited for no more.
    pub fn resolve(&mut self, clock: Clock) {
        let flight = self.in_flight.get_mut(&clock).expect("it is in flight");
        flight.resolved = true;
    }

    /// What is in flight that belongs to `epoch` or to one before, the first clock first.
    pub fn hanging(&self, epoch: Epoch) -> impl Iterator<Item = InFlight> + '_ {
        self.in_flight.values().copied().filter(move |flight| flight.epoch <= epoch)
    }

    /// What the first clock in flight was drawn for: it holds up the safe clock.
    pub fn first_in_flight(&self) -> Option<InFlight> {
        self.in_flight.values().next().copied()
    }

    /// Has something been in flight since then, or before, that `coordinator` is to resolve?
    pub fn waits_for(&self, coordinator: NodeId, since: Time) -> bool {
        let mut flights = self.in_flight.values();
        flights.any(|flight| {
            let waits = flight.transaction.node == coordinator && !flight.resolved;
            waits && flight.since <= since
        })
    }

    /// Is this clock in flight?
    pub fn flies(&self, clock: Clock) -> bool {
        self.in_flight.contains_key(&clock)
    }

    /// Is something in flight that belongs to `epoch`?
    pub fn flies_in(&self, epoch: Epoch) -> bool {
        self.in_flight.values().any(|flight| flight.epoch == epoch)
    }

    /// Is nothing in flight that belongs to `epoch` or to one before?
    pub fn is_over(&self, epoch: Epoch) -> bool {
        self.hanging(epoch).next().is_none()
    }

    fn safe_clock(&self, replica: &ShardReplica, faults: PlantedBugs) -> Clock {
        match self.in_flight.keys().next() {
            Some(first) if !faults.has(PlantedBug::SafeClockPastInFlight) => Clock(first.0 - 1),
            _ => replica.store.clock(),
        }
    }

    /// How far an entry that is appended now would say that it is safe.
    pub fn safe_now(&self, replica: &ShardReplica, faults: PlantedBugs) -> Clock {
        self.safe_clock(replica, faults).max(self.safe_appended)
    }

    /// How far the stream says that it is safe.
    pub fn safe_appended(&self) -> Clock {
        self.safe_appended
    }

    /// Could an entry say of a greater clock that it is safe?
    pub fn lags(&self, replica: &ShardReplica, faults: PlantedBugs) -> bool {
        self.safe_clock(replica, faults) > self.safe_appended
    }

    /// When the next entry may follow the last one: after `gap` where nothing is on its way, otherwise
    /// after `delay`.
    pub fn paced(&self, gap: Duration, delay: Duration) -> Time {
        let idle = self.proposed == self.decided;
        self.appended_at + if idle { gap } else { delay }
    }

    /// When the last entry was appended.
    pub fn appended_at(&self) -> Time {
        self.appended_at
    }

    /// An entry is appended that says that the stream is safe so far. Returns its index.
    pub fn append(&mut self, now: Time, safe: Clock, faults: PlantedBugs) -> u64 {
        assert!(safe >= self.safe_appended, "safe clock: that of {} goes back", self.shard);
        assert!(
            self.in_flight.keys().next().is_none_or(|first| *first > safe)
                || faults.has(PlantedBug::SafeClockPastInFlight),
            "safe clock: {safe} is appended as safe on {} while {:?} are in flight",
            self.shard,
            self.in_flight
        );
        self.safe_appended = safe;
        self.appended_at = now;
        if self.proposed == self.decided {
            self.waits_since = now;
        }
        self.transit.append(now);
        self.proposed += 1;
        self.proposed - 1
    }

    /// The stream has decided that many entries. Returns how many of them are news.
    pub fn decide(&mut self, now: Time, length: u64) -> usize {
        assert!(length <= self.proposed, "{} decided what was never proposed", self.shard);
        let news = length.saturating_sub(self.decided);
        self.decided += news;
        if news > 0 {
            self.waits_since = now;
        }
        self.transit.decide(now, news as usize);
        news as usize
    }

    /// Has nothing been decided for so long, though something is to be?
    pub fn is_stalled(&self, now: Time, after: Duration) -> bool {
        self.waits_since().is_some_and(|since| since + after <= now)
    }

    /// Since when the first entry that is not decided could be, if there is one.
    pub fn waits_since(&self) -> Option<Time> {
        (self.leading && self.proposed > self.decided).then_some(self.waits_since)
    }

    /// Entries that are not decided.
    pub fn undecided(&self) -> usize {
        (self.proposed - self.decided) as usize
    }

    /// Entries that are not decided, and clocks in flight.
    pub fn pending(&self) -> usize {
        self.undecided() + self.in_flight.len()
    }
}
