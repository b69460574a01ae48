//! This worker's streams of all shards, which of them a step has to visit, and what is sent again until it is answered.
//!
//! A stream is **active** from when a step changes it until nothing is under way there that goes on by itself: replay,
//! recovery, or what is in doubt. No other needs a visit. Batches are another matter: what is safe in a stream depends on a
//! clock that all workers of the shard draw from, so those that this worker appends to are all looked at, once a step.
//!
//! Invariants:
//!
//! - A stream where something is under way is active.
//! - Those that [`led`](ShardStreams::next_led) visits are those whose leadership this worker has taken up.
//! - Each decision and each inquiry that is to be repeated is queued for when it is due, or before (P9).

use super::in_doubt_keys::InDoubtKeys;
use super::message::DecisionHome;
use super::open_decisions::Delivery;
use super::record::PartSize;
use super::shard_stream::{Resend, ShardStream};
use shoal_engine::execution::due_queue::DueQueue;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::replica::ShardReplica;
use shoal_store::Locked;
use shoal_types::{Ballot, Clock, Epoch, ShardId, Time};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// All of them, in the order of the node's places.
pub(super) struct ShardStreams {
    streams: Vec<ShardStream>,
    /// The place of each shard, by its number.
    places: Vec<usize>,
    /// The places of those that this worker leads, or is about to, in order.
    led: Vec<usize>,
    /// The places of those that are active, in order.
    active: Vec<usize>,
    /// What is to be sent again, with the place of its stream.
    resends: DueQueue<(usize, Resend)>,
    /// Recovery begins with the shard at this place or the next one, so that none waits for all work on another.
    recovers_first: usize,
}

/// What is to be sent again now.
pub(super) struct DueResend {
    /// The place of the stream.
    pub(super) at: usize,
    pub(super) resend: Resend,
    /// Where the transaction is decided.
    pub(super) home: DecisionHome,
}

impl ShardStreams {
    /// Streams without entries, of which none is led.
    pub(super) fn new(replicas: &[ShardReplica], part: PartSize) -> ShardStreams {
        let mut places = vec![0; replicas.len()];
        for (at, replica) in replicas.iter().enumerate() {
            places[replica.shard.0 as usize] = at;
        }
        ShardStreams {
            streams: replicas.iter().map(|replica| ShardStream::new(replica, part)).collect(),
            places,
            led: Vec::new(),
            active: Vec::new(),
            resends: DueQueue::default(),
            recovers_first: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// All of them, in the order of the node's places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ShardStream> {
        self.streams.iter()
    }

    /// The place of a shard.
    pub(super) fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.places.get(shard.0 as usize).copied()
    }

    /// The place of a shard that this node leads, as far as it has taken that up.
    pub(super) fn led_at(&self, shard: ShardId) -> Option<usize> {
        self.place_of(shard).filter(|at| self[*at].leadership().is_some())
    }

    /// The first place of a shard that this node serves.
    pub(super) fn served(&self) -> Option<usize> {
        self.led.iter().copied().find(|at| self[*at].log().serves())
    }

    /// The first place from this one on of a stream that this worker leads, or is about to.
    pub(super) fn next_led(&self, from: usize) -> Option<usize> {
        self.led.get(self.led.partition_point(|at| *at < from)).copied()
    }

    /// The streams that this worker leads, or is about to.
    pub(super) fn led(&self) -> impl Iterator<Item = &ShardStream> {
        self.led.iter().map(|at| &self.streams[*at])
    }

    /// The first place from this one on of a stream that a step has to visit.
    pub(super) fn next_active(&self, from: usize) -> Option<usize> {
        self.active.get(self.active.partition_point(|at| *at < from)).copied()
    }

    /// The streams that a step has to visit.
    pub(super) fn active(&self) -> impl Iterator<Item = &ShardStream> {
        self.active.iter().map(|at| &self.streams[*at])
    }

    /// The place at which recovery begins.
    pub(super) fn recovers_first(&self) -> usize {
        self.recovers_first
    }

    /// A step could not do all that was to be done: the next one begins with the next shard.
    pub(super) fn rotate_recovery(&mut self) {
        self.recovers_first = (self.recovers_first + 1) % self.streams.len();
    }

    fn activate(&mut self, at: usize) {
        if let Err(place) = self.active.binary_search(&at) {
            self.active.insert(place, at);
        }
    }

    /// The end of a step: asserts the invariants of what was visited, and leaves active where something is under way.
    pub(super) fn end_step(&mut self, ignores_undecided: bool) {
        let streams = &self.streams;
        self.active.retain(|at| {
            streams[*at].assert_invariants(ignores_undecided);
            streams[*at].is_busy()
        });
        debug_assert!(
            (0..self.len()).all(|at| !self[at].is_busy() || self.active.contains(&at)),
            "P7: something is under way, and not visited"
        );
        let led = (0..self.len()).filter(|at| self[*at].leadership().is_some());
        debug_assert!(led.eq(self.led.iter().copied()), "P7: {:?} are led, not these", self.led);
    }
}

/// What changes with leaderships.
impl ShardStreams {
    /// The stream at this place is prepared: see [`ShardStream::lead`].
    pub(super) fn lead(&mut self, at: usize, ballot: Ballot, since: Epoch, inherited: u64) {
        self[at].lead(ballot, since, inherited);
        if let Err(place) = self.led.binary_search(&at) {
            self.led.insert(place, at);
        }
    }

    /// All that was inherited at this place is decided and in the store: see [`ShardStream::begin`].
    pub(super) fn begin(&mut self, at: usize, now: Time, replica: &ShardReplica) {
        for resend in self[at].begin(now, replica) {
            self.resends.push(now, (at, resend));
        }
    }

    /// The shard at this place is led no more: see [`ShardStream::resign`].
    pub(super) fn resign(
        &mut self,
        at: usize,
        keys: &InDoubtKeys,
        drawn: Clock,
    ) -> Vec<TransactionId> {
        self.led.retain(|other| *other != at);
        self[at].resign(keys, drawn)
    }
}

/// What is sent again.
impl ShardStreams {
    /// A branch at this place that its leader has prepared is without a coordinator: see [`ShardStream::leave`].
    pub(super) fn leave(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        home: DecisionHome,
    ) {
        self[at].leave(transaction, locked, clock, home);
        self.resends.push(Time::ZERO, (at, Resend::Inquiry(transaction)));
    }

    /// Adds a decision of the stream at this place that these participants have to receive.
    pub(super) fn add_decision(
        &mut self,
        at: usize,
        transaction: TransactionId,
        participants: BTreeMap<ShardId, Delivery>,
    ) {
        for (shard, delivery) in &participants {
            if let Delivery::RepeatedFrom(from) = delivery {
                self.resends.push(*from, (at, Resend::Decision(transaction, *shard)));
            }
        }
        self[at].add_decision(transaction, participants);
    }

    /// A participant has the outcome of a committed transaction durable.
    pub(super) fn acknowledge(&mut self, now: Time, transaction: TransactionId, shard: ShardId) {
        let mut from = 0;
        while let Some(at) = self.next_led(from) {
            if self.streams[at].has_decision(transaction) {
                return self[at].acknowledge(now, transaction, shard);
            }
            from = at + 1;
        }
    }

    /// The leadership of `shard` is another now, or this node's branch there is gone: decisions that were sent there may be
    /// lost.
    pub(super) fn lose_participant(&mut self, shard: ShardId) {
        let mut from = 0;
        while let Some(at) = self.next_led(from) {
            for transaction in self.streams[at].decisions_of(shard) {
                self.repeat_decision(at, transaction, shard);
            }
            from = at + 1;
        }
    }

    /// The participant of `shard` does not answer its coordinator: the home shard sends it the decision, as to one with a new
    /// leader.
    pub(super) fn hand_over(&mut self, transaction: TransactionId, shard: ShardId) {
        let mut from = 0;
        while let Some(at) = self.next_led(from) {
            self.repeat_decision(at, transaction, shard);
            from = at + 1;
        }
    }

    fn repeat_decision(&mut self, at: usize, transaction: TransactionId, shard: ShardId) {
        if self[at].repeat_decision(transaction, shard, Time::ZERO) {
            self.resends.push(Time::ZERO, (at, Resend::Decision(transaction, shard)));
        }
    }

    /// Takes the next that is to be sent again; after this one, that will be at the time `again`.
    pub(super) fn take_resend(&mut self, now: Time, again: Time) -> Option<DueResend> {
        let streams = &self.streams;
        let (at, resend) =
            self.resends.take_due(now, |(at, resend)| streams[*at].resend_at(*resend))?;
        self.resends.push(again, (at, resend));
        let home = self[at].resend_again(resend, again);
        Some(DueResend { at, resend, home })
    }

    /// When the next is to be sent.
    pub(super) fn next_resend(&mut self) -> Option<Time> {
        let streams = &self.streams;
        self.resends.next_due(|(at, resend)| streams[*at].resend_at(*resend))
    }

    /// The number of times that are kept at which something is to be sent again.
    pub(super) fn resends(&self) -> usize {
        self.resends.len()
    }
}

impl Index<usize> for ShardStreams {
    type Output = ShardStream;

    fn index(&self, at: usize) -> &ShardStream {
        &self.streams[at]
    }
}

impl IndexMut<usize> for ShardStreams {
    /// What changes is visited: the stream becomes active.
    fn index_mut(&mut self, at: usize) -> &mut ShardStream {
        self.activate(at);
        &mut self.streams[at]
    }
}
