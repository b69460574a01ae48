//! A shard as its leader's worker sees it: clocks in flight, the open batch, what waits for which record
//! to be durable (rules P2 and P5).
//!
//! A clock is in flight from its draw until what was locked for it is installed or given up. The
//! **safe clock** is below all that are in flight on this worker: all that it draws next is greater,
//! and of the others it is in the stream what became of them.
//!
//! ```text
//!            appointed      stream prepared      all inherited     in doubt: locked, or    all workers'
//!  follows ──────────► waits ───────────► recovers ─────► is decided ─────► resolved; sealed ──────────► serves
//!     ▲                                                                                                  │
//!     └───────────────────────── another is appointed, or leads the stream ──────────────────────────────┘
//! ```

use super::options::TwoPhaseCommitOptions;
use super::record::{OpenRecords, PartSize};
use bytes::Bytes;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::PARTS_AHEAD_MAX;
use shoal_replication::in_flight_clocks::InFlightClocks;
use shoal_replication::replica::ShardReplica;
use shoal_types::{Ballot, Clock, Epoch, ShardId, Time};
use std::collections::VecDeque;

/// The leader's part of a worker's stream of a shard; at rest where the node follows.
#[derive(Debug)]
pub(super) struct LeaderLog {
    pub(super) lead: InFlightClocks,
    /// The leadership, once the stream is prepared.
    pub(super) leader_state: Option<LeaderState>,
    batch: OpenRecords,
    /// What the last of the entries that are ready has.
    batched: BatchedRecords,
    /// What each of the entries before it has.
    full: VecDeque<BatchedRecords>,
    /// Each proposed entry that is not decided, and what waits for it.
    undecided: VecDeque<DurableRecords>,
}

/// How far a leadership is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaderState {
    /// The last appointment.
    pub(super) ballot: Ballot,
    /// The epoch in which the leadership began.
    pub(super) since: Epoch,
    /// How many entries the stream had when it was prepared.
    pub(super) inherited: u64,
    /// These are decided and replayed: nothing of former leaderships can follow.
    pub(super) began: bool,
    /// Of this stream, all that is in doubt is locked or resolved.
    pub(super) recovered: bool,
    /// Where the first entry of this leadership is in the stream, once it is appended.
    pub(super) seal: Option<u64>,
    /// That entry is durable: a majority has accepted it under a ballot of this leadership, so every later leader inherits
    /// it, and of former leaderships nothing that is not before it.
    pub(super) sealed: bool,
    /// So it is of all streams of the shard.
    pub(super) serves: bool,
}

/// The transactions of which an entry has the last record, or all.
#[derive(Debug, Default)]
struct BatchedRecords {
    /// The clocks of their writes.
    clocks: Vec<Clock>,
    /// Who waits for the entry.
    waiters: Vec<RecordWaiter>,
}

/// An entry of this leader, and what waits for it to be durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DurableRecords {
    pub(super) entry: Bytes,
    pub(super) waiters: Vec<RecordWaiter>,
}

/// Who waits for a record to be durable.
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
            leader_state: None,
            batch: OpenRecords::new(part),
            batched: BatchedRecords::default(),
            full: VecDeque::new(),
            undecided: VecDeque::new(),
        }
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

    /// The next entry, if it is time for one: for a batch that is full, or has nothing before it to wait
    /// for, or comes long enough after the one before; or for a heartbeat.
    pub(super) fn close(
        &mut self,
        now: Time,
        replica: &ShardReplica,
        options: &TwoPhaseCommitOptions,
    ) -> Option<ClosedRecords> {
        if !self.is_due(now, replica, options) {
            return None;
        }
        // What became of clocks that are in flight no more may be in the last of the entries that are ready: the others say
        // nothing new of what is safe (rule P5).
        let is_part = self.batch.has_full();
        let safe = match is_part {
            true => self.lead.safe_appended(),
            false => self.lead.safe_now(replica, options.limits.faults),
        };
        let index = self.lead.append(now, safe, options.limits.faults);
        if let Some(state) = &mut self.leader_state {
            state.seal.get_or_insert(index);
        }
        let is_heartbeat = !is_part && self.batch.len() == 0;
        let last = || std::mem::take(&mut self.batched);
        let BatchedRecords { clocks, waiters } = self.full.pop_front().unwrap_or_else(last);
        let entry = self.batch.close(self.since(), safe);
        self.undecided.push_back(DurableRecords { entry: entry.clone(), waiters });
        Some(ClosedRecords { entry, index, safe, clocks, is_heartbeat })
    }

    /// The epoch in which the leadership began.
    pub(super) fn since(&self) -> Epoch {
        self.leader_state.as_ref().map_or(Epoch(0), |state| state.since)
    }

    /// The ballot of a leader.
    pub(super) fn ballot(&self) -> Ballot {
        self.leader_state.as_ref().map_or(Ballot::default(), |state| state.ballot)
    }

    /// Does this node serve the shard?
    pub(super) fn serves(&self) -> bool {
        self.leader_state.as_ref().is_some_and(|state| state.serves)
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

    fn is_due(&self, now: Time, replica: &ShardReplica, options: &TwoPhaseCommitOptions) -> bool {
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
        let is_unsealed = self.leader_state.is_some_and(|state| state.seal.is_none());
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
        if let Some(state) = &mut self.leader_state {
            state.sealed |= state.seal.is_some_and(|seal| seal < length);
        }
        self.undecided.drain(..news).collect()
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
    use shoal_replication::in_flight_clocks::InFlight;
    use shoal_types::{NodeId, WorkerId};

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
        led.lead.begin(0, Clock::ZERO);
        replica.store.raise_clock(Clock(9));
        led.lead.begin_in_flight(Clock(7), FLIGHT);
        led.lead.begin_in_flight(Clock(9), FLIGHT);
        add(&mut led, 7);
        let closed = led.close(LATE, &replica, &options).expect("nothing before it");
        assert_eq!((closed.index, closed.safe, closed.clocks), (0, Clock(6), vec![Clock(7)]));
        led.lead.end_in_flight(Clock(7));
        led.lead.end_in_flight(Clock(9));
        let heartbeat_at = LATE + options.heartbeat;
        assert_eq!(led.next_due(&replica, &options), Some(heartbeat_at));
        let closed = led.close(heartbeat_at, &replica, &options).expect("it lags");
        assert!(closed.is_heartbeat);
        assert_eq!(closed.safe, Clock(9));
        assert_eq!(led.next_due(&replica, &options), None);
    }

    #[test]
    #[should_panic(expected = "P5")]
    fn nothing_is_drawn_below_a_safe_clock() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        led.lead.begin(0, Clock::ZERO);
        replica.store.raise_clock(Clock(9));
        add(&mut led, 9);
        led.close(LATE, &replica, &options).expect("nothing before it");
        led.lead.begin_in_flight(Clock(9), FLIGHT);
    }

    fn waiters(durable: Vec<DurableRecords>) -> Vec<RecordWaiter> {
        durable.into_iter().flat_map(|durable| durable.waiters).collect()
    }

    #[test]
    fn who_waits_hears_in_the_order_of_the_stream() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), TwoPhaseCommitOptions::default().part());
        led.lead.begin(3, Clock::ZERO);
        add(&mut led, 1);
        led.close(LATE, &replica, &options).expect("nothing before it");
        add(&mut led, 2);
        add(&mut led, 3);
        assert!(led.close(LATE, &replica, &options).is_none(), "one is on its way");
        let later = LATE + options.batch_delay;
        led.close(later, &replica, &options).expect("long after it");
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
        led.lead.begin(0, Clock::ZERO);
        replica.store.raise_clock(Clock(11));
        led.lead.begin_in_flight(Clock(10), FLIGHT);
        add(&mut led, 10);
        let mut replayed = super::super::prepared_replay::PreparedReplay::new(&replica);
        let mut close = |led: &mut LeaderLog| {
            let closed = led.close(LATE, &replica, &options).expect("it is due");
            let entry = super::super::record::RecordEntry::decode(closed.entry);
            replayed.enter(entry.expect("well-formed"), false);
            closed.safe
        };
        assert_eq!(close(&mut led), Clock(9));
        led.durable(LATE, 1);
        led.lead.begin_in_flight(Clock(11), FLIGHT);
        let value = vec![0; 1 << 20];
        led.append(LATE, Some(Clock(11)), None, |batch| {
            batch.prepare(id(11), Clock(11), HOME, |write| {
                for key in [b"a", b"b", b"c"] {
                    write(shoal_types::TableId(0), key, Some(&value[..]));
                }
            });
        });
        assert_eq!(close(&mut led), Clock(9));
        led.lead.end_in_flight(Clock(10));
        led.append(LATE, None, None, |batch| batch.outcome(id(10), true));
        assert_eq!(close(&mut led), Clock(9), "what became of it is in a later entry");
        assert_eq!(close(&mut led), Clock(10));
        assert!(!led.batch.has_full());
    }

    #[test]
    fn a_record_before_parts_is_in_the_first_of_their_entries() {
        let (replica, options) = (replica(), TwoPhaseCommitOptions::default());
        let mut led = LeaderLog::new(ShardId(0), PartSize { bytes_max: 1, writes_max: 1 });
        led.lead.begin(0, Clock::ZERO);
        replica.store.raise_clock(Clock(11));
        [10, 11].iter().for_each(|clock| led.lead.begin_in_flight(Clock(*clock), FLIGHT));
        add(&mut led, 10);
        let waiter = Some(RecordWaiter::Branch(id(11)));
        led.append(LATE, Some(Clock(11)), waiter, |batch| {
            batch.prepare(id(11), Clock(11), HOME, |write| {
                [b"a", b"b", b"c"]
                    .iter()
                    .for_each(|key| write(shoal_types::TableId(0), *key, None));
            });
        });
        let closed: Vec<Vec<Clock>> = (0..3)
            .map(|entry| {
                // The last one has no part behind it, and follows like any batch.
                let at = LATE + options.batch_delay * entry;
                led.close(at, &replica, &options).expect("it is due").clocks
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
        assert!(led.close(LATE, &replica, &options).is_none());
        led.lead.begin(0, Clock::ZERO);
        assert!(led.close(LATE, &replica, &options).is_some());
    }
}
