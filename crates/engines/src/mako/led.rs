//! A shard as its leader's worker sees it: clocks in flight, the open batch, the safe clock (rules M2
//! and M3).
//!
//! ```text
//! clocks  1 2 3 4 5 6 7 8 9      drawn by all workers of the shard
//!           ^   ^                in flight on this worker
//!         |                      its safe clock: one less than the first of them
//! ```
//! With nothing in flight, the safe clock is the greatest clock that anybody has drawn: whatever this
//! worker draws next is greater.

use super::options::Options;
use super::piece::Batch;
use crate::execution::sessions::Pooled;
use crate::faults::Fault;
use crate::observation::Observation;
use crate::replication::replica::Replica;
use crate::transaction_id::TransactionId;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use store::Locked;
use types::{Clock, Epoch, ShardId, Stamp, Time, VectorWatermark};

/// See the module.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) shard: ShardId,
    /// The stream is prepared. Before, entries gather.
    leading: bool,
    in_flight: BTreeSet<Clock>,
    batch: Batch,
    /// The clocks of the batch's pieces.
    batched: Vec<Clock>,
    /// How long the stream is, and how much of it is decided.
    proposed: u64,
    durable: u64,
    /// For each proposed entry that is not decided: its place after it, and its safe clock.
    undecided: VecDeque<(u64, Clock)>,
    safe_appended: Clock,
    appended_at: Time,
}

/// An entry to be proposed.
pub(super) struct Closed {
    pub(super) entry: Bytes,
    pub(super) index: u64,
    pub(super) safe: Clock,
    pub(super) clocks: Vec<Clock>,
}

impl Led {
    pub(super) fn new(shard: ShardId) -> Led {
        Led {
            shard,
            leading: false,
            in_flight: BTreeSet::new(),
            batch: Batch::default(),
            batched: Vec::new(),
            proposed: 0,
            durable: 0,
            undecided: VecDeque::new(),
            safe_appended: Clock::ZERO,
            appended_at: Time::ZERO,
        }
    }

    /// The stream is prepared, and that long.
    pub(super) fn lead(&mut self, length: u64) {
        self.leading = true;
        self.proposed = length;
        self.durable = length;
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leading
    }

    /// A clock was drawn on this worker, and is in flight now.
    pub(super) fn fly(&mut self, clock: Clock) {
        assert!(clock > self.safe_appended, "M3: {clock} was drawn below what was said to be safe");
        let fresh = self.in_flight.insert(clock);
        assert!(fresh, "M2: {} drew {clock} twice", self.shard);
    }

    /// The transaction that drew it was given up by its coordinator.
    pub(super) fn give_up(&mut self, clock: Clock) {
        let flew = self.in_flight.remove(&clock);
        assert!(flew, "M3: {clock} of {} was resolved before", self.shard);
    }

    /// Installs what a transaction has locked and appends its piece; its clock is resolved.
    pub(super) fn install(
        &mut self,
        locked: Locked<Pooled>,
        stamp: &Stamp,
        watermark: &VectorWatermark,
    ) {
        self.batch.push(stamp.as_ref(), |write| locked.writes(write));
        self.batched.push(stamp.clock);
        let shard = self.shard;
        locked.install(stamp.as_ref(), |old| watermark.covers(shard, old));
        self.in_flight.remove(&stamp.clock);
    }

    fn safe_clock(&self, replica: &Replica, options: &Options) -> Clock {
        match self.in_flight.first() {
            Some(first) if !options.faults.has(Fault::SafeClockPastInFlight) => Clock(first.0 - 1),
            _ => replica.store.clock(),
        }
    }

    /// The next entry, if it is time for one: for a batch that is full, or has nothing before it to wait
    /// for, or comes long enough after the one before; or for a heartbeat that the shard's watermark
    /// waits for. So a batch that opens while nothing much happens waits for nothing.
    pub(super) fn close(
        &mut self,
        now: Time,
        epoch: Epoch,
        replica: &Replica,
        options: &Options,
    ) -> Option<Closed> {
        if !self.is_due(now, replica, options) {
            return None;
        }
        let safe = self.safe_clock(replica, options).max(self.safe_appended);
        assert!(
            self.in_flight.first().is_none_or(|first| *first > safe)
                || options.faults.has(Fault::SafeClockPastInFlight),
            "M3: {safe} is called safe on {} while {:?} are in flight",
            self.shard,
            self.in_flight
        );
        let index = self.proposed;
        self.proposed += 1;
        self.undecided.push_back((self.proposed, safe));
        self.safe_appended = safe;
        self.appended_at = now;
        let clocks = std::mem::take(&mut self.batched);
        Some(Closed { entry: self.batch.close(epoch, safe), index, safe, clocks })
    }

    fn is_due(&self, now: Time, replica: &Replica, options: &Options) -> bool {
        if !self.leading {
            return false;
        }
        let is_full = self.batch.len() >= options.batch_transactions_max
            || self.batch.bytes() >= options.batch_bytes_max;
        let has_something = self.batch.len() > 0 || self.lags(replica, options);
        is_full || (has_something && now >= self.paced(options))
    }

    /// When the next entry may follow the last one.
    fn paced(&self, options: &Options) -> Time {
        let idle = self.proposed == self.durable;
        self.appended_at + if idle { options.batch_gap } else { options.batch_delay }
    }

    /// Does the shard's watermark wait for a heartbeat of this stream, which it could make?
    fn lags(&self, replica: &Replica, options: &Options) -> bool {
        let behind = self.safe_appended < replica.wanted();
        behind && self.safe_clock(replica, options) > self.safe_appended
    }

    /// When to look again, if nothing happens before.
    pub(super) fn next_due(&self, replica: &Replica, options: &Options) -> Option<Time> {
        if !self.leading {
            return None;
        }
        let some = self.batch.len() > 0 || self.lags(replica, options);
        some.then(|| self.paced(options))
    }

    /// The stream has decided that many entries. Returns how far it is safe and durable, if that
    /// changed.
    pub(super) fn durable(&mut self, length: u64) -> Option<Clock> {
        assert!(length <= self.proposed, "{} decided what was never proposed", self.shard);
        self.durable = self.durable.max(length);
        let mut safe = None;
        while let Some((_, clock)) =
            self.undecided.front().copied().filter(|(end, _)| *end <= length)
        {
            self.undecided.pop_front();
            safe = Some(clock);
        }
        safe
    }

    /// How much is under way: pieces that are not in the stream, entries that are not durable, clocks
    /// in flight.
    pub(super) fn pending(&self) -> usize {
        let entries = self.undecided.len();
        self.batch.len() + entries + self.in_flight.len()
    }
}

/// What a checker may want to know of an installation.
pub(super) fn installed(
    transaction: TransactionId,
    shard: ShardId,
    stamp: &Stamp,
    locked: &Locked<Pooled>,
) -> Vec<Observation> {
    let mut seen = Vec::new();
    locked.writes(|table, key, value| {
        seen.push(Observation::Installed {
            transaction,
            shard,
            stamp: stamp.clone(),
            table,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        });
    });
    seen
}
