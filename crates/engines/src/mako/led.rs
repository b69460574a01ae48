//! A shard as its leader's worker sees it: the open batch, and which safe clocks are durable (rules M2
//! and M3; the clocks in flight are in `../replication/lead.rs`).

use super::options::Options;
use super::piece::Batch;
use crate::execution::sessions::Pooled;
use crate::faults::{Fault, Faults};
use crate::observation::Observation;
use crate::replication::lead::Lead;
use crate::replication::replica::Replica;
use crate::transaction_id::TransactionId;
use crate::watermarks::Watermarks;
use bytes::Bytes;
use std::collections::VecDeque;
use store::Locked;
use types::{Clock, Epoch, ShardId, Stamp, Time};

/// See the module.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) lead: Lead,
    batch: Batch,
    /// The clocks of the batch's pieces.
    batched: Vec<Clock>,
    /// The safe clocks of proposed entries that are not decided, and the epochs that end with them.
    undecided: VecDeque<(Clock, Option<Epoch>)>,
    /// The last epoch whose end is appended.
    ended: Epoch,
    /// The last epoch whose end is durable.
    pub(super) reported: Epoch,
}

/// An entry to be proposed.
pub(super) struct Closed {
    pub(super) entry: Bytes,
    pub(super) index: u64,
    pub(super) safe: Clock,
    pub(super) ended: Option<Epoch>,
    pub(super) clocks: Vec<Clock>,
}

impl Led {
    /// A shard that is led from `first` on.
    pub(super) fn new(shard: ShardId, first: Epoch) -> Led {
        Led {
            lead: Lead::new(shard),
            batch: Batch::default(),
            batched: Vec::new(),
            undecided: VecDeque::new(),
            ended: Epoch(first.0 - 1),
            reported: Epoch(first.0 - 1),
        }
    }

    /// Installs what a transaction has locked and appends its piece; its clock is resolved.
    pub(super) fn install(
        &mut self,
        locked: Locked<Pooled>,
        stamp: &Stamp,
        watermarks: &Watermarks,
    ) {
        assert!(
            stamp.epoch > self.ended,
            "M9: a piece of {} comes after the end of {} on {}",
            stamp.epoch,
            self.ended,
            self.lead.shard
        );
        self.batch.push(stamp.as_ref(), |write| locked.writes(write));
        self.batched.push(stamp.clock);
        let shard = self.lead.shard;
        locked.install(stamp.as_ref(), |old| watermarks.covers(shard, old));
        self.lead.land(stamp.clock);
    }

    /// The last epoch before `open` that can end here: nothing of it is in flight, and nothing of it can
    /// be any more, since it is closed.
    fn over(&self, open: Epoch, faults: Faults) -> Option<Epoch> {
        let over = |epoch: &Epoch| self.lead.is_over(*epoch) || faults.has(Fault::EndEpochInFlight);
        (self.ended.0 + 1..open.0).map(Epoch).take_while(over).last()
    }

    /// The next entry, if it is time for one: for a batch that is full, or has nothing before it to wait
    /// for, or comes long enough after the one before; or for a heartbeat that the shard's watermark
    /// waits for; or for the end of an epoch. So a batch that opens while nothing much happens waits for nothing.
    pub(super) fn close(
        &mut self,
        now: Time,
        open: Epoch,
        replica: &Replica,
        options: &Options,
    ) -> Option<Closed> {
        let ended = self.over(open, options.faults).filter(|_| self.lead.is_leading());
        if ended.is_none() && !self.is_due(now, replica, options) {
            return None;
        }
        self.ended = ended.unwrap_or(self.ended);
        let (index, safe) = self.lead.append(now, replica, options.faults);
        self.undecided.push_back((safe, ended));
        let clocks = std::mem::take(&mut self.batched);
        Some(Closed { entry: self.batch.close(safe, ended), index, safe, ended, clocks })
    }

    fn is_due(&self, now: Time, replica: &Replica, options: &Options) -> bool {
        let is_full = self.batch.len() >= options.batch_transactions_max
            || self.batch.bytes() >= options.batch_bytes_max;
        self.lead.is_leading()
            && (is_full || self.next_due(replica, options).is_some_and(|at| at <= now))
    }

    /// When to look again, if nothing happens before.
    pub(super) fn next_due(&self, replica: &Replica, options: &Options) -> Option<Time> {
        // Does the shard's watermark wait for a heartbeat of this stream, which it could make?
        let lags = || {
            self.lead.safe_appended() < replica.wanted() && self.lead.lags(replica, options.faults)
        };
        (self.lead.is_leading() && (self.batch.len() > 0 || lags()))
            .then(|| self.lead.paced(options.batch_gap, options.batch_delay))
    }

    /// The stream has decided that many entries. Returns how far it is safe and durable, if that
    /// changed, and the epochs that have ended.
    pub(super) fn durable(&mut self, length: u64) -> (Option<Clock>, Vec<Epoch>) {
        let news = self.lead.decide(length);
        let (mut durable, mut ends) = (None, Vec::new());
        for (safe, ended) in self.undecided.drain(..news) {
            durable = Some(safe);
            ends.extend(ended);
        }
        (durable, ends)
    }

    /// How much is under way: pieces that are not in the stream, entries that are not durable, clocks
    /// in flight.
    pub(super) fn pending(&self) -> usize {
        self.batch.len() + self.lead.pending()
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
