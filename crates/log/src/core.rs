//! A stream on one node: events go in, effects come out.
//!
//! This file dispatches each event to the node's [`StreamReplica`], or to the [`StreamLeader`] that one node
//! has in addition, and asserts the invariants after each step.

use super::events::{StreamCounters, StreamEffect, StreamEvent};
use super::leader::{LeaderPhase, StreamLeader};
use super::replica::StreamReplica;
use super::{LogLength, MemoryStorage, StreamMembers, StreamMessage, StreamOptions, StreamStorage};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId, Time};
use std::collections::VecDeque;

/// One replicated sequence, as one node sees it. See the [module](super).
#[derive(Debug)]
pub struct Stream<S: StreamStorage = MemoryStorage> {
    replica: StreamReplica<S>,
    leader: Option<Box<StreamLeader>>,
    /// Proposals that were queued when the voters changed: an appointment with `continues` takes them over.
    queue: VecDeque<Bytes>,
    timer: Option<Time>,
    /// The number of decided entries that were reported to the owner.
    announced: LogLength,
}

/// Values that never decrease.
struct MonotonicMarks {
    promised: Ballot,
    start: LogLength,
    decided: LogLength,
}

impl<S: StreamStorage> Stream<S> {
    /// The stream on node `me`, continuing from what `storage` holds.
    ///
    /// # Panics
    /// If `members` names no voter, or a node twice; if `options` allow no progress.
    pub fn new(
        me: NodeId,
        members: StreamMembers,
        options: StreamOptions,
        storage: S,
    ) -> Stream<S> {
        members.check();
        options.check();
        let announced = storage.decided();
        let replica = StreamReplica::new(me, members, options, storage);
        Stream { replica, leader: None, queue: VecDeque::new(), timer: None, announced }
    }

    /// Handles an event and appends the effects to `effects`. Deterministic: the same state and event give
    /// the same effects. `now` must never decrease.
    pub fn step(&mut self, now: Time, event: StreamEvent, effects: &mut Vec<StreamEffect>) {
        let before = self.marks();
        match event {
            StreamEvent::Lead { ballot, continues } => {
                self.on_lead(now, ballot, continues, effects);
            }
            StreamEvent::Resign => self.on_resign(),
            StreamEvent::Members { members } => self.on_members(now, members, effects),
            StreamEvent::Propose { entry } => self.on_propose(now, entry, effects),
            StreamEvent::Received { from, message } => self.on_message(now, from, message, effects),
            StreamEvent::Timer => self.on_timer(now, effects),
            StreamEvent::Persisted => self.on_persisted(now, effects),
            StreamEvent::Reborn { replica } => {
                if let Some(leader) = &mut self.leader {
                    leader.on_reborn(&mut self.replica, now, replica, effects);
                }
            }
            StreamEvent::Votes { votes } => self.on_votes(now, votes, effects),
            StreamEvent::Trim { before } => self.replica.trim(before),
            StreamEvent::Snapshot { to, length, state } => {
                self.on_snapshot_taken(now, to, length, state, effects);
            }
        }
        // A snapshot reports its entries to the owner by itself.
        self.announced = self.announced.max(self.replica.restored);
        let decided = self.decided();
        if decided > self.announced {
            self.announced = decided;
            effects.push(StreamEffect::Decided { length: decided });
        }
        self.arm(effects);
        self.assert_invariants(&before);
    }

    /// The number of entries that are known to be decided here.
    pub fn decided(&self) -> LogLength {
        self.replica.storage.decided()
    }

    /// The number of entries that are held or trimmed here, decided or not.
    pub fn accepted(&self) -> LogLength {
        self.replica.storage.log().length()
    }

    /// The index of the first entry still held.
    pub fn start(&self) -> LogLength {
        self.replica.storage.log().start()
    }

    /// The entry of this index, if it is held. An undecided one may still change, except on its leader.
    pub fn entry(&self, index: u64) -> Option<&Bytes> {
        self.replica.storage.log().entry(index)
    }

    /// Whether this node leads and has finished preparing.
    pub fn is_leading(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.is_leading())
    }

    /// The highest ballot promised here. Its node is the leader, as far as this node knows.
    pub fn ballot(&self) -> Ballot {
        self.replica.storage.promised()
    }

    /// The number of decided entries that every voter and learner has accepted: no replica requests them
    /// again. The leader knows the exact number; other nodes know what it last sent them.
    pub fn replicated_everywhere(&self) -> LogLength {
        self.replica.everywhere.min(self.decided())
    }

    /// The number of proposed and inherited entries that are not decided; 0 if this node does not lead.
    pub fn unacknowledged(&self) -> u64 {
        self.leader.as_ref().map_or(0, |leader| leader.unacknowledged(&self.replica))
    }

    /// Whether this node leads and a proposal would be sent at once.
    pub fn has_room(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.has_room(&self.replica))
    }

    /// The ballot under which the sequence here was accepted.
    pub fn accepted_ballot(&self) -> Ballot {
        self.replica.storage.accepted_ballot()
    }

    /// The number of entries that are accepted under [that ballot](Stream::accepted_ballot) and persisted: what this node may
    /// acknowledge. 0 until the move to the ballot is persisted.
    pub fn persisted(&self) -> LogLength {
        self.replica.persisted()
    }

    /// Whether this node leads, and `node` has accepted under its ballot all entries that it inherited, and has persisted
    /// them. The leader itself is no exception: until then another replica may be the only one that has them for good.
    pub fn has_caught_up(&self, node: NodeId) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.has_caught_up(&self.replica, node))
    }

    /// The number of entries that each other replica is known to have accepted; empty if this node does not
    /// lead.
    pub fn acknowledged(&self) -> impl Iterator<Item = (NodeId, LogLength)> + '_ {
        let leader = self.leader.iter().filter(|leader| leader.is_leading());
        leader.flat_map(|leader| leader.peers.iter().map(|peer| (peer.id, peer.acked)))
    }

    /// Counts of dropped inputs and of retries so far.
    pub fn counters(&self) -> StreamCounters {
        self.replica.counters
    }

    /// How many proposed entries wait to be appended.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.leader.as_ref().map_or(0, |leader| leader.queue.len())
    }

    /// The storage, for its owner to query.
    pub fn storage(&self) -> &S {
        &self.replica.storage
    }

    /// The storage, for its owner to make changes durable. [`StreamEvent::Persisted`] has to follow.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.replica.storage
    }

    /// Ends the stream and returns its storage, as for a restart.
    pub fn into_storage(self) -> S {
        self.replica.storage
    }

    fn on_lead(
        &mut self,
        now: Time,
        ballot: Ballot,
        continues: bool,
        effects: &mut Vec<StreamEffect>,
    ) {
        assert_eq!(ballot.node, self.replica.me, "the ballot of another: {ballot}");
        if self.leader.as_ref().is_some_and(|leader| leader.ballot == ballot) {
            return; // A repeat of the current appointment.
        }
        let promised = self.replica.storage.promised();
        if ballot <= promised {
            effects.push(StreamEffect::Deposed { by: promised });
            return;
        }
        self.replica.promise(ballot);
        let kept = std::mem::take(&mut self.queue);
        let mut queue = self.leader.take().map_or(kept, |leader| leader.queue);
        if !continues {
            self.replica.counters.dropped_proposals += queue.len() as u64;
            queue.clear();
        }
        let mut leader = StreamLeader::new(&self.replica, ballot, queue, now);
        leader.on_persisted(&mut self.replica, now, effects);
        self.leader = Some(Box::new(leader));
    }

    fn on_resign(&mut self) {
        let leader = self.leader.take().map(|leader| leader.queue.len()).unwrap_or_default();
        let queued = std::mem::take(&mut self.queue).len();
        self.replica.counters.dropped_proposals += (leader + queued) as u64;
    }

    /// Votes that the leader received from former voters do not count among the new ones: it stops, and the
    /// next appointment begins with the promises of the new voters.
    fn on_members(&mut self, now: Time, members: StreamMembers, effects: &mut Vec<StreamEffect>) {
        let members = match self.replica.options.faults.keep_former_voters {
            true => members.with_voters_of(&self.replica.members),
            false => members,
        };
        members.check();
        if members == self.replica.members {
            return;
        }
        let same_voters = members.has_voters_of(&self.replica.members);
        self.replica.members = members;
        match &mut self.leader {
            Some(leader) if same_voters => {
                leader.follow_members(&mut self.replica, now, effects);
            }
            Some(_) => {
                self.queue = self.leader.take().map(|leader| leader.queue).unwrap_or_default();
            }
            None => {}
        }
    }

    fn on_propose(&mut self, now: Time, entry: Bytes, effects: &mut Vec<StreamEffect>) {
        match &mut self.leader {
            Some(leader) => leader.on_propose(&mut self.replica, now, entry, effects),
            None => self.replica.counters.dropped_proposals += 1,
        }
    }

    fn on_message(
        &mut self,
        now: Time,
        from: NodeId,
        message: StreamMessage,
        effects: &mut Vec<StreamEffect>,
    ) {
        if from == self.replica.me {
            self.replica.counters.bad_messages += 1;
            return;
        }
        match message {
            StreamMessage::Promise { .. } | StreamMessage::Accepted { .. } => {
                match &mut self.leader {
                    Some(leader) => {
                        leader.on_answer(&mut self.replica, now, from, message, effects);
                    }
                    None => self.replica.counters.late_messages += 1,
                }
            }
            StreamMessage::Rejected { ballot, promised } => {
                self.on_rejected(ballot, promised, effects);
            }
            StreamMessage::Snapshot { ballot, length, state } if ballot.node == self.replica.me => {
                self.on_snapshot_fetched(now, from, ballot, length, state, effects);
            }
            StreamMessage::Prepare { .. }
            | StreamMessage::Fetch { .. }
            | StreamMessage::Append { .. }
            | StreamMessage::Decide { .. }
            | StreamMessage::Snapshot { .. } => {
                let promised = self.replica.storage.promised();
                self.replica.on_message(from, message, effects);
                if self.replica.storage.promised() > promised {
                    self.depose(self.replica.storage.promised(), effects);
                }
            }
        }
    }

    fn on_rejected(&mut self, ballot: Ballot, promised: Ballot, effects: &mut Vec<StreamEffect>) {
        if promised <= ballot {
            self.replica.counters.bad_messages += 1;
        } else if self.leader.as_ref().is_some_and(|leader| leader.ballot == ballot) {
            self.depose(promised, effects);
        } else {
            self.replica.counters.late_messages += 1;
        }
    }

    /// The best replica has sent a snapshot to this node, which prepares to lead.
    fn on_snapshot_fetched(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        length: LogLength,
        state: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        match &mut self.leader {
            Some(leader) if leader.ballot == ballot => {
                leader.on_snapshot(&mut self.replica, now, from, length, state, effects);
            }
            Some(_) | None => self.replica.counters.late_messages += 1,
        }
    }

    fn on_snapshot_taken(
        &mut self,
        now: Time,
        to: NodeId,
        length: LogLength,
        state: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        assert!(length <= self.decided(), "a snapshot of {length} undecided entries: {self:?}");
        match &mut self.leader {
            Some(leader) => {
                leader.on_snapshot_taken(&mut self.replica, now, to, length, state, effects);
            }
            None => self.replica.on_snapshot_taken(to, length, state, effects),
        }
    }

    fn on_timer(&mut self, now: Time, effects: &mut Vec<StreamEffect>) {
        if let Some(at) = self.timer.filter(|at| now < *at) {
            effects.push(StreamEffect::Timer { at });
            return;
        }
        self.timer = None;
        if let Some(leader) = &mut self.leader {
            leader.on_timer(&mut self.replica, now, effects);
        }
    }

    fn on_persisted(&mut self, now: Time, effects: &mut Vec<StreamEffect>) {
        match &mut self.leader {
            Some(leader) => leader.on_persisted(&mut self.replica, now, effects),
            None => self.replica.on_persisted(effects),
        }
    }

    fn on_votes(&mut self, now: Time, votes: bool, effects: &mut Vec<StreamEffect>) {
        let votes = votes || self.replica.options.faults.vote_while_empty;
        if std::mem::replace(&mut self.replica.votes, votes) == votes || !votes {
            return;
        }
        // Acknowledgements that were sent before did not count.
        match &mut self.leader {
            Some(leader) => leader.on_own_vote(&mut self.replica, now, effects),
            None => self.replica.acknowledge_again(effects),
        }
    }

    fn depose(&mut self, by: Ballot, effects: &mut Vec<StreamEffect>) {
        // What was queued when the voters changed is not appended either: another leads.
        let mut dropped = std::mem::take(&mut self.queue).len();
        if let Some(leader) = self.leader.take() {
            dropped += leader.queue.len();
            effects.push(StreamEffect::Deposed { by });
        }
        self.replica.counters.dropped_proposals += dropped as u64;
    }

    /// Sets a timer while an answer is awaited.
    fn arm(&mut self, effects: &mut Vec<StreamEffect>) {
        if self.timer.is_some() {
            return;
        }
        self.timer = self.leader.as_ref().and_then(|leader| leader.due(&self.replica.options));
        if let Some(at) = self.timer {
            effects.push(StreamEffect::Timer { at });
        }
    }

    fn marks(&self) -> MonotonicMarks {
        MonotonicMarks { promised: self.ballot(), start: self.start(), decided: self.decided() }
    }

    fn assert_invariants(&self, before: &MonotonicMarks) {
        let (promised, start, decided) = (self.ballot(), self.start(), self.decided());
        assert!(before.promised <= promised, "forgot a promise: {self:?}");
        assert!(before.start <= start, "entries came back: {self:?}");
        assert!(before.decided <= decided, "a decision was taken back: {self:?}");
        assert!(start <= decided, "trimmed an undecided entry: {self:?}");
        assert!(decided <= self.accepted(), "decided an entry that is not here: {self:?}");
        assert!(self.replica.storage.accepted_ballot() <= promised, "accepted above: {self:?}");
        assert_eq!(self.announced, decided, "the owner does not know what is decided: {self:?}");
        self.replica.assert_invariants();
        if let Some(leader) = &self.leader {
            assert_eq!(leader.ballot, promised, "leads and promised another: {self:?}");
            leader.assert_invariants(&self.replica);
            if let LeaderPhase::Leading { base, .. } = leader.phase {
                assert!(base <= self.accepted(), "lost what it inherited: {self:?}");
            }
        }
    }
}
