//! A shard as its leader's worker sees it: clocks in flight, the open batch, what waits for which record
//! to be durable (rules P2 and P5).
//!
//! A clock is in flight from its draw until what was locked for it is installed or given up. The
//! **safe clock** is below all that are in flight on this worker: all that it draws next is greater,
//! and of the others it is in the stream what became of them.

use super::leader_state::LeaderState;
use super::options::TwoPhaseCommitOptions;
use super::record::{OpenRecords, PartSize};
use bytes::Bytes;
use shoal_engine::metrics::TransitTimes;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::PARTS_AHEAD_MAX;
use shoal_replication::in_flight_clocks::{InFlight, InFlightClocks};
use shoal_replication::replica::ShardReplica;
use shoal_types::{Ballot, Clock, Epoch, ShardId, Time};
use std::collections::VecDeque;

/// The leader's part of a worker's stream of a shard; at rest where the node follows.
///
/// Invariants:
///
/// - The worker appends to a stream once all that was inherited there is decided, and to no other (P7).
/// - What waits is known of each entry that is proposed and not decided, and of each that is ready.
/// - Where the node follows, nothing is in flight, gathered or waited for (P5).
#[derive(Debug)]
pub(super) struct LeaderLog {
    lead: InFlightClocks,
    /// The leadership, once the stream is prepared.
    state: Option<LeaderState>,
    batch: OpenRecords,
    /// What the last of the entries that are ready has.
    batched: BatchedRecords,
    /// What each of the entries before it has.
    full: VecDeque<BatchedRecords>,
    /// Each proposed entry that is not decided, and what waits for it.
    undecided: VecDeque<DurableRecords>,
}

/// The transactions of which an entry has the last record, or all.
#[derive(Debug, Default)]
struct BatchedRecords {
    /// The clocks of their writes.
    clocks: Vec<Clock>,
    /// The branches and transactions that wait for the entry.
    waiters: Vec<RecordWaiter>,
}

/// An entry of this leader, and what waits for it to be durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DurableRecords {
    pub(super) entry: Bytes,
    pub(super) waiters: Vec<RecordWaiter>,
}

/// A branch or a transaction that waits for a record to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordWaiter {
    /// The branch of a transaction that another node coordinates.
    Branch(TransactionId),
    /// The transaction of this worker with this sequence: one of its own shards is prepared.
    Prepared(u64),
    /// The transaction of this worker with this sequence: it is decided.
    Decided(u64),
    /// The leader of the home shard: a participant has the outcome of a committed transaction durable.
    Outcome(TransactionId, ShardId),
}

/// An entry to be proposed.
pub(super) struct ClosedRecords {
    pub(super) entry: Bytes,
    pub(super) index: u64,
    pub(super) safe: Clock,
    pub(super) clocks: Vec<Clock>,
    pub(super) is_heartbeat: bool,
}

impl LeaderLog {
    pub(super) fn new(shard: ShardId, part: PartSize) -> LeaderLog {
        LeaderLog {
            lead: InFlightClocks::new(shard),
            state: None,
            batch: OpenRecords::new(part),
            batched: BatchedRecords::default(),
            full: VecDeque::new(),
            undecided: VecDeque::new(),
        }
    }

    /// The shard whose stream it is.
    pub(super) fn shard(&self) -> ShardId {
        self.lead.shard
    }

    /// The leadership, once the stream is prepared.
    pub(super) fn state(&self) -> Option<&LeaderState> {
        self.state.as_ref()
    }

    /// The stream is prepared under `ballot`, with so many entries, in a leadership that began in epoch `since`.
    pub(super) fn lead(&mut self, ballot: Ballot, since: Epoch, inherited: u64) {
        match &mut self.state {
            Some(state) => state.prepare_again(ballot),
            state => *state = Some(LeaderState::new(ballot, since, inherited)),
        }
    }

    /// All that was inherited is decided and replayed: this worker may append to a stream of that length, which is safe so
    /// far.
    pub(super) fn begin(&mut self, length: u64, safe: Clock) {
        self.state.as_mut().expect("it leads").begin();
        self.lead.begin(length, safe);
    }

    /// Of this stream, all that is in doubt is locked or resolved.
    pub(super) fn recover(&mut self) {
        self.state.as_mut().expect("it leads").recover();
    }

    /// All streams of the shard are recovered.
    pub(super) fn serve(&mut self) {
        self.state.as_mut().expect("it leads").serve();
    }

    /// A clock was drawn under locks, or was found prepared: it is in flight now (P2).
    pub(super) fn begin_in_flight(&mut self, clock: Clock, flight: InFlight) {
        self.lead.begin_in_flight(clock, flight);
    }

    /// A clock is resolved: what it was drawn for is installed, or was given up.
    pub(super) fn end_in_flight(&mut self, clock: Clock) {
        self.lead.end_in_flight(clock);
    }

    /// Is this clock in flight?
    pub(super) fn flies(&self, clock: Clock) -> bool {
        self.lead.flies(clock)
    }

    /// The number of entries that are proposed and not decided.
    pub(super) fn undecided(&self) -> usize {
        self.lead.undecided()
    }

    /// Adds a record. `clock` is that of the writes in it; `waiter` is returned by `durable` when the record is.
    pub(super) fn append(
        &mut self,
        now: Time,
        clock: Option<Clock>,
        waiter: Option<RecordWaiter>,
        add: impl FnOnce(&mut OpenRecords),
    ) {
        add(&mut self.batch);
        // What was gathered before ends with the first entry that this record has filled, if there is one.
        while self.full.len() < self.batch.full() {
            self.full.push_back(std::mem::take(&mut self.batched));
        }
        self.lead.transit.gather(now);
        self.batched.clocks.extend(clock);
        self.batched.waiters.extend(waiter);
    }

    /// Takes the next entry, to be proposed.
    ///
    /// # Panics
    /// If it is [not due](LeaderLog::is_due).
    pub(super) fn close(
        &mut self,
        now: Time,
        replica: &ShardReplica,
        options: &TwoPhaseCommitOptions,
    ) -> ClosedRecords {
        assert!(self.is_due(now, replica, options), "{} has nothing to append", self.shard());
        // What became of clocks that are in flight no more may be in the last of the entries that are ready: the others say
        // nothing new of what is safe (rule P5).
        let is_part = self.batch.has_full();
        let safe = match is_part {
            true => self.lead.safe_appended(),
            false => self.lead.safe_now(replica, options.limits.faults),
        };
        let index = self.lead.append(now, safe, options.limits.faults);
        self.state.as_mut().expect("it leads").append(index);
        let is_heartbeat = !is_part && self.batch.len() == 0;
        let last = || std::mem::take(&mut self.batched);
        let BatchedRecords { clocks, waiters } = self.full.pop_front().unwrap_or_else(last);
        let entry = self.batch.close(self.since(), safe);
        self.undecided.push_back(DurableRecords { entry: entry.clone(), waiters });
        ClosedRecords { entry, index, safe, clocks, is_heartbeat }
    }

    /// The epoch in which the leadership began.
    pub(super) fn since(&self) -> Epoch {
        self.state.as_ref().map_or(Epoch(0), LeaderState::since)
    }

    /// The ballot of a leader.
    pub(super) fn ballot(&self) -> Ballot {
        self.state.as_ref().map_or(Ballot::default(), LeaderState::ballot)
    }

    /// Does this node serve the shard?
    pub(super) fn serves(&self) -> bool {
        self.state.as_ref().is_some_and(LeaderState::serves)
    }

    /// The leadership is over. What is appended and not decided comes back as a follower's, if it is decided.
    ///
    /// # Panics
    /// If a clock is in flight (P5).
    pub(super) fn resign(&mut self) {
        let shard = self.lead.shard;
        assert!(self.lead.is_over(Epoch(u32::MAX)), "P5: {shard} is left with clocks in flight");
        *self = LeaderLog::new(shard, self.batch.part());
    }

    /// Is it time for an entry: for a batch that is full, or has nothing before it to wait for, or comes long enough after the
    /// one before; or for a heartbeat?
    pub(super) fn is_due(
        &self,
        now: Time,
        replica: &ShardReplica,
        options: &TwoPhaseCommitOptions,
    ) -> bool {
        let is_full = self.batch.len() >= options.batch_records_max
            || self.batch.bytes() >= options.batch_bytes_max;
        self.lead.is_leading()
            && self.has_room()
            && (is_full || self.next_due(replica, options).is_some_and(|at| at <= now))
    }

    /// Has the stream room for another part, if one is next?
    fn has_room(&self) -> bool {
        !self.batch.has_full() || self.lead.undecided() < PARTS_AHEAD_MAX
    }

    /// When the next entry is due, unless it is full before.
    pub(super) fn next_due(
        &self,
        replica: &ShardReplica,
        options: &TwoPhaseCommitOptions,
    ) -> Option<Time> {
        if !self.lead.is_leading() {
            return None;
        }
        let is_unsealed = self.state.is_some_and(|state| state.is_unsealed());
        if !self.has_room() {
            return None;
        }
        if self.batch.has_full() || is_unsealed {
            return Some(Time::ZERO);
        }
        if self.batch.len() > 0 {
            return Some(self.lead.paced(options.batch_gap, options.batch_delay));
        }
        // Could a heartbeat say anything new?
        let lags = self.lead.lags(replica, options.limits.faults);
        lags.then(|| self.lead.appended_at() + options.heartbeat)
    }

    /// The stream has decided that many entries. Returns those of them that are news, with what waited for them, in their order.
    pub(super) fn durable(&mut self, now: Time, length: u64) -> Vec<DurableRecords> {
        let news = self.lead.decide(now, length);
        if let Some(state) = &mut self.state {
            state.decide(length);
        }
        self.undecided.drain(..news).collect()
    }

    /// How long entries were on their way, of those that were decided since this was last asked.
    pub(super) fn take_transit(&mut self) -> TransitTimes {
        self.lead.transit.take()
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        let (shard, is_leading) = (self.lead.shard, self.lead.is_leading());
        let has_begun = self.state.is_some_and(|state| state.has_begun());
        assert_eq!(has_begun, is_leading, "P7: {shard} is led: {:?}", self.state);
        let (waited_for, proposed) = (self.undecided.len(), self.lead.undecided());
        assert_eq!(waited_for, proposed, "P4: {shard} has so many entries on their way");
        assert_eq!(self.full.len(), self.batch.full(), "P4: {shard} has so many entries ready");
        assert!(has_begun || self.pending() == 0, "P5: {shard} is not led, and has {self:?}");
    }

    /// How much is under way: records that are not in the stream, entries that are not durable, clocks
    /// in flight.
    pub(super) fn pending(&self) -> usize {
        self.batch.len() + self.lead.pending()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::DecisionHome;
    use super::*;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::execution::Limits;
    use shoal_replication::codec::WriteRef;
    use shoal_replication::in_flight_clocks::InFlight;
    use shoal_types::{NodeId, TableId, WorkerId};

    const EPOCH: Epoch = Epoch(1);
    const HOME: DecisionHome = DecisionHome { shard: ShardId(0), leadership: EPOCH };
    const FLIGHT: InFlight = InFlight {
        transaction: TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 0 },
        epoch: EPOCH,
        since: Time(0),
        resolved: false,
    };
    const LATE: Time = Time(1_000_000_000);

    fn replica() -> ShardReplica {
        let topology = Topology::symmetric(1, 1, 1, 0, 1)
            .with_tables([("t", Partitioning::Hash { prefix_bytes: 0 })])
            .expect("a valid topology");
        ShardReplica::all(&topology, NodeId(0), EPOCH, &Limits::default()).pop().expect("one shard")
    }

    fn id(sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(1), worker: WorkerId(0), sequence }
    }

    /// The worker leads a stream that has so many entries.
    fn begin(led: &mut LeaderLog, length: u64) {
        led.lead(Ballot::default(), EPOCH, length);
        led.begin(length, Clock::ZERO);
    }

    fn add(led: &mut LeaderLog, clock: u64) {
        let waiter = Some(RecordWaiter::Branch(id(clock)));
        led.append(LATE, Some(Clock(clock)), waiter, |batch| {
            batch.prepare(id(clock), Clock(clock), HOME, |_| {});
        });
    }

    #[test]
    fn a_safe_clock_is_below_what_is_in_flight() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        begin(&mut led, 0);
        replica.store.raise_clock(Clock(9));
        led.begin_in_flight(Clock(7), FLIGHT);
        led.begin_in_flight(Clock(9), FLIGHT);
        add(&mut led, 7);
        let closed = led.close(LATE, &replica, &options);
        assert_eq!((closed.index, closed.safe, closed.clocks), (0, Clock(6), vec![Clock(7)]));
        led.end_in_flight(Clock(7));
        led.end_in_flight(Clock(9));
        let heartbeat_at = LATE + options.heartbeat;
        assert_eq!(led.next_due(&replica, &options), Some(heartbeat_at));
        let closed = led.close(heartbeat_at, &replica, &options);
        assert!(closed.is_heartbeat);
        assert_eq!(closed.safe, Clock(9));
        assert_eq!(led.next_due(&replica, &options), None);
    }

    #[test]
    #[should_panic(expected = "safe clock")]
    fn nothing_is_drawn_below_a_safe_clock() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        begin(&mut led, 0);
        replica.store.raise_clock(Clock(9));
        add(&mut led, 9);
        led.close(LATE, &replica, &options);
        led.begin_in_flight(Clock(9), FLIGHT);
    }

    fn waiters(durable: Vec<DurableRecords>) -> Vec<RecordWaiter> {
        durable.into_iter().flat_map(|durable| durable.waiters).collect()
    }

    #[test]
    fn who_waits_hears_in_the_order_of_the_stream() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        begin(&mut led, 3);
        add(&mut led, 1);
        led.close(LATE, &replica, &options);
        add(&mut led, 2);
        add(&mut led, 3);
        assert!(!led.is_due(LATE, &replica, &options), "one is on its way");
        let later = LATE + options.batch_delay;
        led.close(later, &replica, &options);
        assert_eq!(waiters(led.durable(LATE, 3)), []);
        assert_eq!(waiters(led.durable(LATE, 4)), [RecordWaiter::Branch(id(1))]);
        assert_eq!(waiters(led.durable(LATE, 4)), []);
        assert_eq!(
            waiters(led.durable(LATE, 5)),
            [RecordWaiter::Branch(id(2)), RecordWaiter::Branch(id(3))]
        );
        assert_eq!(led.pending(), 0);
    }

    #[test]
    fn parts_do_not_say_that_a_clock_is_safe_whose_outcome_comes_after_them() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        begin(&mut led, 0);
        replica.store.raise_clock(Clock(11));
        led.begin_in_flight(Clock(10), FLIGHT);
        add(&mut led, 10);
        let mut replayed = super::super::prepared_replay::PreparedReplay::new(&replica);
        let mut close = |led: &mut LeaderLog| {
            let closed = led.close(LATE, &replica, &options);
            let entry = super::super::record::RecordEntry::decode(closed.entry);
            replayed.enter(entry.expect("well-formed"), false);
            closed.safe
        };
        assert_eq!(close(&mut led), Clock(9));
        led.durable(LATE, 1);
        led.begin_in_flight(Clock(11), FLIGHT);
        let value = vec![0; 1 << 20];
        led.append(LATE, Some(Clock(11)), None, |batch| {
            batch.prepare(id(11), Clock(11), HOME, |write| {
                for key in [b"a", b"b", b"c"] {
                    write(WriteRef::row(TableId(0), key, &value));
                }
            });
        });
        assert_eq!(close(&mut led), Clock(9));
        led.end_in_flight(Clock(10));
        led.append(LATE, None, None, |batch| batch.outcome(id(10), true));
        assert_eq!(close(&mut led), Clock(9), "what became of it is in a later entry");
        assert_eq!(close(&mut led), Clock(10));
        assert!(!led.batch.has_full());
    }

    #[test]
    fn a_record_before_parts_is_in_the_first_of_their_entries() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), PartSize { bytes_max: 1, writes_max: 1 });
        begin(&mut led, 0);
        replica.store.raise_clock(Clock(11));
        [10, 11].iter().for_each(|clock| led.begin_in_flight(Clock(*clock), FLIGHT));
        add(&mut led, 10);
        let waiter = Some(RecordWaiter::Branch(id(11)));
        led.append(LATE, Some(Clock(11)), waiter, |batch| {
            batch.prepare(id(11), Clock(11), HOME, |write| {
                [b"a", b"b", b"c"]
                    .iter()
                    .for_each(|key| write(WriteRef::row(TableId(0), *key, b"")));
            });
        });
        let closed: Vec<Vec<Clock>> = (0..3)
            .map(|entry| {
                // The last one has no part behind it, and follows like any batch.
                let at = LATE + options.batch_delay * entry;
                led.close(at, &replica, &options).clocks
            })
            .collect();
        assert_eq!(closed, [vec![Clock(10)], vec![], vec![Clock(11)]]);
        assert_eq!(waiters(led.durable(LATE, 1)), [RecordWaiter::Branch(id(10))]);
        assert_eq!(waiters(led.durable(LATE, 2)), []);
        assert_eq!(waiters(led.durable(LATE, 3)), [RecordWaiter::Branch(id(11))]);
    }

    #[test]
    fn a_stream_that_is_not_prepared_gathers() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        add(&mut led, 1);
        assert!(!led.is_due(LATE, &replica, &options));
        begin(&mut led, 0);
        assert!(led.is_due(LATE, &replica, &options));
    }
}
