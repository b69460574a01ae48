//! A shard as its leader's worker sees it: the open batch, and which safe clocks are durable (rules M2
//! and M3; the clocks in flight are in [`shoal_replication::in_flight_clocks`]).

use super::installing::Installing;
use super::leader_state::LeaderState;
use super::mako_replica::MakoReplica;
use super::options::MakoOptions;
use super::piece::{ENDS_MAX, OpenBatch};
use super::stable_prefix::{EntryContents, PieceNeeds};
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use bytes::Bytes;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::{PARTS_AHEAD_MAX, WriteRef};
use shoal_replication::in_flight_clocks::{InFlight, InFlightClocks};
use shoal_store::{Locked, LockedWrite, TrimQueue};
use shoal_types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use shoal_types::{Ballot, Clock, Epoch, ShardId, Stamp, StampRef, Time, VectorWatermark};
use std::collections::VecDeque;
use std::ops::Range;

/// A shard that this worker leads, or recovers: its clocks in flight, and the open batch of its log.
///
/// Invariants:
///
/// - The worker appends to the stream of a shard that it leads once the epochs before are closed, and to no other: where it
///   does not, there is no batch, and nothing is half in the stream.
/// - Only such a shard is served.
/// - What the entries on their way say is known, of each of them.
#[derive(Debug)]
pub(super) struct LeaderShard {
    pub(super) lead: InFlightClocks,
    /// How this node leads, if it does.
    pub(super) leader_state: Option<LeaderState>,
    /// This node leads the shard, or has led it: the store may have what was never committed.
    ever_led: bool,
    batch: OpenBatch,
    /// The buffer for what differs of a row.
    patch: Vec<u8>,
    /// The clocks of the batch's pieces that are whole.
    batched: Vec<Clock>,
    /// What they need before they count for good.
    needs: PieceNeeds,
    /// The batch has a part of a piece, and not the last: it is an entry.
    has_part: bool,
    /// What is installed in slices, in the order in which it was certified.
    installing: VecDeque<Installing>,
    /// Keys with versions that were overwritten by what is not covered. It outlives a leadership.
    overwritten: TrimQueue,
    /// What proposed entries say that are not decided.
    undecided: VecDeque<EntryContents>,
    /// The last epoch whose end is appended.
    ended: Epoch,
    /// The last epoch whose FVW is appended.
    finals_appended: Epoch,
}

/// An entry to be proposed.
pub(super) struct ClosedBatch {
    pub(super) entry: Bytes,
    pub(super) index: u64,
    pub(super) safe: Clock,
    pub(super) ends: Vec<(Epoch, Clock)>,
    pub(super) clocks: Vec<Clock>,
}

/// What has to be known to end epochs.
pub(super) struct EpochClosing<'a> {
    /// The epoch that is open.
    pub(super) open: Epoch,
    /// Epochs up to this one have been closed for so long that nothing waits for what is in flight any more.
    pub(super) overdue: Epoch,
    /// Does what is in flight hang, since its coordinator is gone?
    pub(super) hangs: &'a dyn Fn(InFlight) -> bool,
}

impl LeaderShard {
    /// A shard that is not led yet.
    pub(super) fn new(shard: ShardId, first: Epoch) -> LeaderShard {
        LeaderShard {
            lead: InFlightClocks::new(shard),
            leader_state: None,
            ever_led: false,
            batch: OpenBatch::default(),
            patch: Vec::new(),
            batched: Vec::new(),
            needs: PieceNeeds::default(),
            has_part: false,
            installing: VecDeque::new(),
            overwritten: TrimQueue::default(),
            undecided: VecDeque::new(),
            ended: Epoch(first.0 - 1),
            finals_appended: Epoch(first.0 - 1),
        }
    }

    /// This worker may append from now on: to a stream of that length, in which `ended` is the last epoch
    /// that has ended and `finals` the last whose FVW there is, and which is safe up to `safe`.
    pub(super) fn begin(&mut self, length: u64, safe: Clock, ended: Epoch, finals: Epoch) {
        self.lead.begin(length, safe);
        (self.ended, self.finals_appended) = (ended, finals);
    }

    /// Leads no more. What is not decided is forgotten: it may be lost or not.
    pub(super) fn resign(&mut self) {
        let shard = self.lead.shard;
        assert!(self.lead.is_over(Epoch(u32::MAX)), "M3: {shard} is left with clocks in flight");
        assert!(self.installing.is_empty(), "M3: {shard} is left with what is half in the stream");
        self.lead = InFlightClocks::new(shard);
        self.leader_state = None;
        self.batch = OpenBatch::default();
        self.batched.clear();
        self.needs = PieceNeeds::default();
        self.has_part = false;
        self.undecided.clear();
    }

    /// Was the node appointed to the shard, and has this worker still to recover or to serve it?
    pub(super) fn is_recovering(&self) -> bool {
        self.leader_state.as_ref().is_some_and(LeaderState::is_recovering)
    }

    /// The node leads the shard, and may come to have what was never committed.
    pub(super) fn begin_leading(&mut self) -> &mut Option<LeaderState> {
        self.ever_led = true;
        &mut self.leader_state
    }

    /// How many of these keys there are.
    pub(super) fn overwritten_keys(&self) -> usize {
        self.overwritten.len()
    }

    /// The keys with versions that are freed once what overwrote them is covered.
    pub(super) fn overwritten(&mut self) -> &mut TrimQueue {
        &mut self.overwritten
    }

    /// The epoch in which the leadership began, if the node leads the shard.
    pub(super) fn led_since(&self) -> Option<Epoch> {
        self.leader_state.as_ref().map(|leader_state| leader_state.since())
    }

    /// Does the node lead the shard, or has it led? The store may have what was never committed.
    pub(super) fn ever_led(&self) -> bool {
        self.ever_led
    }

    /// The last epoch whose end is appended.
    pub(super) fn ended(&self) -> Epoch {
        self.ended
    }

    /// Is something installed in slices, and have the batch and the stream room for another part?
    fn may_install_more(&self) -> bool {
        let lead = &self.lead;
        let has_room = lead.is_leading() && lead.undecided() < PARTS_AHEAD_MAX;
        !self.installing.is_empty() && !self.has_part && has_room
    }

    /// Appends the writes from this place on, as many as a part may have. Returns the place of the next. A delta has a base
    /// that is committed: so no follower needs one that is never decided, and mostly it is there before.
    pub(super) fn append_part(
        &mut self,
        now: Time,
        locked: &Locked<PooledSession>,
        stamp: &Stamp,
        from: usize,
        watermarks: &Watermarks,
        options: &MakoOptions,
    ) -> usize {
        assert!(
            stamp.epoch > self.ended,
            "M9: a piece of {} comes after the end of {} on {}",
            stamp.epoch,
            self.ended,
            self.lead.shard
        );
        let (mut writes, mut bytes, mut next) = (0, 0, from);
        let LeaderShard { batch, patch, lead, .. } = self;
        let is_base = |old: StampRef<'_>| watermarks.covers(lead.shard, old);
        batch.push(stamp.as_ref(), |write| {
            next = locked.writes_from(from, |locked| {
                let change = locked.change(options.limits.deltas, is_base, patch);
                let LockedWrite { table, key, .. } = locked;
                write(WriteRef { table, key, change });
                writes += 1;
                bytes += key.len() + change.content().len();
                writes < options.part_writes_max && bytes < options.part_bytes_max
            });
        });
        let longest = options.part_bytes_max + KEY_BYTES_MAX + VALUE_BYTES_MAX;
        assert!(bytes <= longest && writes <= options.part_writes_max, "a step has no bound");
        self.needs.add(self.lead.shard, stamp.as_ref());
        self.lead.transit.gather(now);
        match next < locked.size().writes {
            true => self.has_part = true,
            false => self.batched.push(stamp.clock),
        }
        next
    }

    /// What is left of a transaction is installed in later steps, after what was certified before.
    pub(super) fn install_later(&mut self, rest: Installing) {
        self.installing.push_back(rest);
    }

    /// Takes out what is to be installed next, if the batch and the stream have room for it.
    pub(super) fn next_installing(&mut self) -> Option<Installing> {
        self.may_install_more().then(|| self.installing.pop_front()).flatten()
    }

    /// What is left of that is installed next.
    pub(super) fn install_next(&mut self, rest: Installing) {
        self.installing.push_front(rest);
    }

    /// Takes out what is `over`, of all that is installed in slices.
    pub(super) fn drop_installing(
        &mut self,
        over: impl Fn(&Installing) -> bool,
    ) -> VecDeque<Installing> {
        let (dropped, kept) = std::mem::take(&mut self.installing).into_iter().partition(over);
        self.installing = kept;
        dropped
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        let (shard, is_leading) = (self.lead.shard, self.lead.is_leading());
        let (said, proposed) = (self.undecided.len(), self.lead.undecided());
        assert_eq!(said, proposed, "M4: {shard} has so many entries on their way");
        let state = self.leader_state.as_ref();
        assert_eq!(
            state.is_some_and(LeaderState::is_closed),
            is_leading,
            "M9: {shard} appends: {state:?}"
        );
        assert!(is_leading || !self.serves(), "M9: {shard} is served, and not closed: {state:?}");
        let is_empty = self.batch.len() == 0 && self.installing.is_empty();
        assert!(is_leading || is_empty, "M3: {shard} is not led, and has a batch");
    }

    /// Does this node serve the shard?
    pub(super) fn serves(&self) -> bool {
        self.leader_state.as_ref().is_some_and(LeaderState::serves)
    }

    /// The ballot of a leader.
    pub(super) fn ballot(&self) -> Ballot {
        self.leader_state.as_ref().map_or(Ballot::default(), LeaderState::ballot)
    }

    /// The epochs before the open one that can end here, and how far the stream has all of each: of those
    /// of which nothing is in flight, and nothing can be any more since they are closed, all; of those whose
    /// time is over, or whose coordinators are gone, what is safe. What was in flight then is lost (rule M3). Each epoch is
    /// judged by what is in flight of it alone: where the shard was out, nothing was drawn, and its end is known to
    /// be all (rule M12).
    pub(super) fn ends(
        &self,
        closing: &EpochClosing<'_>,
        replica: &MakoReplica,
        options: &MakoOptions,
    ) -> Vec<(Epoch, Clock)> {
        let faults = options.faults;
        let mut ends = Vec::new();
        if !self.lead.is_leading() || self.ended.0 + 1 >= closing.open.0 {
            return ends;
        }
        let safe = self.lead.safe_now(replica, options.limits.faults);
        for epoch in (self.ended.0 + 1..closing.open.0).map(Epoch).take(ENDS_MAX) {
            let in_parts = || self.lead.hanging(epoch).all(|flight| flight.resolved);
            let misses = faults.has(MakoPlantedBug::EndEpochInFlight)
                || (faults.has(MakoPlantedBug::EndBetweenParts) && in_parts());
            let flies = self.lead.flies_in(epoch) && !misses;
            let waits = || epoch > closing.overdue && !self.lead.hanging(epoch).all(closing.hangs);
            let clock = match flies {
                false => Clock::MAX,
                true if waits() => break,
                true if faults.has(MakoPlantedBug::EndWholeWhileHanging) => Clock::MAX,
                true => safe,
            };
            ends.push((epoch, clock));
        }
        ends
    }

    /// The next entry, if it is time for one: with these ends of epochs, if there are any; for a batch that is
    /// full, or has nothing before it to wait for, or comes long enough after the one before; or for a
    /// heartbeat that the shard's watermark waits for. So a batch that opens while nothing much happens waits for
    /// nothing.
    pub(super) fn close(
        &mut self,
        now: Time,
        ends: Vec<(Epoch, Clock)>,
        watermarks: &Watermarks,
        replica: &MakoReplica,
        options: &MakoOptions,
    ) -> Option<ClosedBatch> {
        if !self.lead.is_leading() {
            return None;
        }
        let news = self.finals_appended < watermarks.settled() || !ends.is_empty();
        if !news && !self.is_due(now, replica, options) {
            return None;
        }
        let safe = self.lead.safe_now(replica, options.limits.faults);
        Some(self.close_with(now, safe, ends, watermarks, options))
    }

    /// The next entry, with these ends of epochs; the stream is safe that far.
    pub(super) fn close_with(
        &mut self,
        now: Time,
        safe: Clock,
        ends: Vec<(Epoch, Clock)>,
        watermarks: &Watermarks,
        options: &MakoOptions,
    ) -> ClosedBatch {
        let finals = (self.finals_appended.0 + 1..=watermarks.settled().0).map(Epoch);
        let (next, forgotten) = (Epoch(self.finals_appended.0 + 1), watermarks.forgotten());
        assert!(
            next > forgotten || watermarks.settled() < next,
            "M9: {} lacks the FVW of {next}, which is known no more up to {forgotten}",
            self.lead.shard
        );
        let finals: Vec<_> = finals.take(ENDS_MAX).map(|epoch| watermarks.last(epoch)).collect();
        self.ended = ends.last().map_or(self.ended, |(epoch, _)| *epoch);
        self.finals_appended = finals.last().map_or(self.finals_appended, VectorWatermark::epoch);
        let index = self.lead.append(now, safe, options.limits.faults);
        let (finals_appended, needs) = (self.finals_appended, std::mem::take(&mut self.needs));
        let said = EntryContents { safe, ends: ends.clone(), finals: finals_appended, needs };
        self.undecided.push_back(said);
        let clocks = std::mem::take(&mut self.batched);
        self.has_part = false;
        ClosedBatch { entry: self.batch.close(safe, &ends, &finals), index, safe, ends, clocks }
    }

    /// Is there something to be appended to the stream, while `open` is the open epoch and the epochs up to `settled` are
    /// settled? Something may be found to wait all the same.
    pub(super) fn may_append(
        &self,
        now: Time,
        open: Epoch,
        settled: Epoch,
        replica: &MakoReplica,
        options: &MakoOptions,
    ) -> bool {
        self.ended.0 + 1 < open.0
            || self.finals_appended < settled
            || self.is_due(now, replica, options)
    }

    fn is_due(&self, now: Time, replica: &MakoReplica, options: &MakoOptions) -> bool {
        let is_full = self.has_part
            || self.batch.len() >= options.batch_transactions_max
            || self.batch.bytes() >= options.batch_bytes_max;
        is_full || self.next_due(replica, options).is_some_and(|at| at <= now)
    }

    /// When to look again, if nothing happens before.
    pub(super) fn next_due(&self, replica: &MakoReplica, options: &MakoOptions) -> Option<Time> {
        // Does the shard's watermark wait for a heartbeat of this stream, which it could make?
        let lags = || {
            self.lead.safe_appended() < replica.wanted()
                && self.lead.lags(replica, options.limits.faults)
        };
        if self.may_install_more() {
            return Some(Time::ZERO);
        }
        (self.lead.is_leading() && (self.batch.len() > 0 || lags()))
            .then(|| self.lead.paced(options.batch_gap, options.batch_delay))
    }

    /// The stream has that many decided entries. Returns what those of them say that are news.
    pub(super) fn durable(&mut self, now: Time, length: u64) -> Vec<EntryContents> {
        let news = self.lead.decide(now, length);
        self.undecided.drain(..news).collect()
    }

    /// How many proposed entries are not decided.
    pub(super) fn undecided(&self) -> usize {
        self.undecided.len()
    }

    /// How much is under way: pieces that are not in the stream, entries that are not durable, clocks
    /// in flight.
    pub(super) fn pending(&self) -> usize {
        self.batch.len() + self.lead.pending()
    }
}

/// What a checker may want to know of the installation of a part of the writes.
pub(super) fn installed(
    transaction: TransactionId,
    shard: ShardId,
    stamp: &Stamp,
    locked: &Locked<PooledSession>,
    part: Range<usize>,
) -> Vec<MakoObservation> {
    let mut seen = Vec::new();
    locked.writes_from(part.start, |LockedWrite { table, key, value, .. }| {
        seen.push(MakoObservation::Installed {
            transaction,
            shard,
            stamp: stamp.clone(),
            table,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        });
        seen.len() < part.len()
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Topology;
    use shoal_engine::execution::Limits;
    use shoal_types::{NodeId, WorkerId};

    /// Two epochs end in one entry; something hangs of the first, and the shard was out in the second.
    #[test]
    fn what_hangs_of_an_epoch_leaves_the_next_one_whole() {
        let topology = Topology::compact(1, 1, 1, 0, 1);
        let (node, limits) = (NodeId(0), Limits::default());
        let replica =
            MakoReplica::all(&topology, node, Epoch(5), &limits).pop().expect("one shard");
        let mut led = LeaderShard::new(replica.shard, Epoch(5));
        led.begin(0, Clock(6), Epoch(4), Epoch(4));
        let transaction = TransactionId { node, worker: WorkerId(0), sequence: 1 };
        let flight = InFlight { transaction, epoch: Epoch(5), since: Time::ZERO, resolved: false };
        replica.store.raise_clock(Clock(8));
        led.lead.begin_in_flight(Clock(8), flight);
        let ends = |overdue: u32, hangs: bool| {
            let hangs = |_| hangs;
            let closing = EpochClosing { open: Epoch(7), overdue: Epoch(overdue), hangs: &hangs };
            led.ends(&closing, &replica, &MakoOptions::default())
        };
        assert_eq!(ends(4, false), [], "it is waited for");
        let ended = [(Epoch(5), Clock(7)), (Epoch(6), Clock::MAX)];
        assert_eq!(ends(4, true), ended);
        assert_eq!(ends(6, false), ended);
    }
}
