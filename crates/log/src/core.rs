//! A stream on one node: events go in, effects come out.
//!
//! This file is the front: it hands each event to the [`StreamReplica`] that every node is, or to the
//! [`StreamLeader`] that one of them is besides, and asserts after each step what always holds.

use super::leader::{LeaderPhase, StreamLeader};
use super::replica::StreamReplica;
use super::{LogLength, MemoryStorage, StreamMembers, StreamMessage, StreamOptions, StreamStorage};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId, Time};
use std::collections::VecDeque;

/// What happens to a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// This node is appointed to lead under `ballot`, which carries its name. A ballot that is lower
    /// than a promise is answered by [`StreamEffect::Deposed`]; so is one that this node held before it
    /// restarted, since it is not known what it proposed then.
    Lead {
        /// The appointment. No other has the same.
        ballot: Ballot,
        /// No other led since this node did: what it has queued is still to be appended. Otherwise that is
        /// dropped.
        continues: bool,
    },
    /// These replicate the stream from now on. Where other nodes vote than before, the leader here counts no more: an
    /// appointment under a higher ballot follows, here or elsewhere. Learners come and go under the same ballot.
    Members {
        /// They. This node need not be one of them.
        members: StreamMembers,
    },
    /// The leader's owner appends an entry. Never refused: the owner heeds [`Stream::has_room`].
    /// Dropped and counted if this node neither leads nor prepares to.
    Propose {
        /// The bytes of the entry, which the log does not read.
        entry: Bytes,
    },
    /// A message came.
    Received {
        /// The node that sent the message.
        from: NodeId,
        /// What the node sent.
        message: StreamMessage,
    },
    /// The time of a [`StreamEffect::Timer`] has come. Too early does no harm.
    Timer,
    /// The storage has persisted more.
    Persisted,
    /// A replica has begun a new process, perhaps without memory: what it said before is void.
    Reborn {
        /// The replica in its new process.
        replica: NodeId,
    },
    /// Whether what this node promises and accepts counts, where it is a voter; at first it does. Not
    /// after its memory was lost, until the configuration says so: it may have promised what it does
    /// not know of. It holds what it is sent all the same.
    Votes {
        /// Whether it does.
        votes: bool,
    },
    /// The owner's state contains the entries before `before`, durably; they may go. Bounded by what
    /// is decided.
    Trim {
        /// The first entry to keep.
        before: LogLength,
    },
    /// The owner's answer to [`StreamEffect::SnapshotWanted`]. Ignored if that is not so any more.
    Snapshot {
        /// Who wanted it.
        to: NodeId,
        /// The decided entries that `state` contains: from [`Stream::start`] to [`Stream::decided`].
        length: LogLength,
        /// The bytes of the snapshot, which the log does not read.
        state: Bytes,
    },
}

/// What a stream wants done. The order matters: earlier ones first.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEffect {
    /// Send a message. It may get lost.
    Send {
        /// The node that the message is for.
        to: NodeId,
        /// What is to be sent.
        message: StreamMessage,
    },
    /// This node leads from now on. The first `length` entries are inherited: to be read by
    /// [`Stream::entry`], and to be decided soon.
    Leading {
        /// The ballot of the appointment.
        ballot: Ballot,
        /// What is inherited.
        length: LogLength,
    },
    /// This node leads no more, or will not. What it proposed and is not decided may be lost or not.
    Deposed {
        /// The higher ballot.
        by: Ballot,
    },
    /// The entries before `length` are decided, and will never change.
    Decided {
        /// How many are.
        length: LogLength,
    },
    /// A replica needs entries that are trimmed here. Asked once; answer by [`StreamEvent::Snapshot`], any
    /// time later.
    SnapshotWanted {
        /// Who needs it.
        to: NodeId,
    },
    /// A snapshot came: replace the owner's state by `state`. Its entries count as decided; no
    /// [`StreamEffect::Decided`] tells of them.
    Restored {
        /// The entries that `state` contains.
        length: LogLength,
        /// The bytes of the snapshot, which the log does not read.
        state: Bytes,
    },
    /// Bring [`StreamEvent::Timer`] at this time. There is one at most; it replaces an earlier one.
    Timer {
        /// The time at which to come back.
        at: Time,
    },
}

/// What a stream has dropped, since there was nothing better to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCounters {
    /// Messages that no correct node sends.
    pub bad_messages: u64,
    /// Messages about what is over: to a leader that is none any more, or of an older ballot.
    pub late_messages: u64,
    /// Proposals to a node that did not lead, and those still queued when it was deposed.
    pub dropped_proposals: u64,
    /// Messages sent again after silence.
    pub retries: u64,
}

/// One replicated sequence, as one node sees it. See the [module](super).
#[derive(Debug)]
pub struct Stream<S: StreamStorage = MemoryStorage> {
    replica: StreamReplica<S>,
    leader: Option<Box<StreamLeader>>,
    /// What waited to be appended when other nodes became the voters: an appointment that continues takes it over.
    queue: VecDeque<Bytes>,
    timer: Option<Time>,
    /// As far as the owner knows of decisions.
    announced: LogLength,
}

/// What only ever grows.
struct MonotonicMarks {
    promised: Ballot,
    start: LogLength,
    decided: LogLength,
}

impl<S: StreamStorage> Stream<S> {
    /// The stream on node `me`, continuing from what `storage` holds.
    ///
    /// # Panics
    /// If `members` names no voter, or a node twice; if `options` stands still.
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

    /// Same state, same event: same effects. They are added to `effects`. `now` never decreases.
    pub fn step(&mut self, now: Time, event: StreamEvent, effects: &mut Vec<StreamEffect>) {
        let before = self.marks();
        match event {
            StreamEvent::Lead { ballot, continues } => {
                self.on_lead(now, ballot, continues, effects);
            }
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
        // A snapshot tells of its entries by itself.
        self.announced = self.announced.max(self.replica.restored);
        let decided = self.decided();
        if decided > self.announced {
            self.announced = decided;
            effects.push(StreamEffect::Decided { length: decided });
        }
        self.arm(effects);
        self.assert_invariants(&before);
    }

    /// How much is known to be decided here.
    pub fn decided(&self) -> LogLength {
        self.replica.storage.decided()
    }

    /// How much is held or trimmed here, decided or not.
    pub fn accepted(&self) -> LogLength {
        self.replica.storage.log().length()
    }

    /// The first entry still held.
    pub fn start(&self) -> LogLength {
        self.replica.storage.log().start()
    }

    /// The entry of this index, if it is held. Undecided ones may still change, except on their leader.
    pub fn entry(&self, index: u64) -> Option<&Bytes> {
        self.replica.storage.log().entry(index)
    }

    /// Whether this node leads, and is done preparing.
    pub fn is_leading(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.is_leading())
    }

    /// The highest ballot promised here. Its node is the leader, as far as this one knows.
    pub fn ballot(&self) -> Ballot {
        self.replica.storage.promised()
    }

    /// What every voter and learner has accepted, and is decided: no replica will ask for it. The leader
    /// knows best; others know what it told them.
    pub fn replicated_everywhere(&self) -> LogLength {
        self.replica.everywhere.min(self.decided())
    }

    /// Entries that were proposed here, and inherited ones, that are not decided. 0 if this node does
    /// not lead.
    pub fn unacknowledged(&self) -> u64 {
        self.leader.as_ref().map_or(0, |leader| leader.unacknowledged(&self.replica))
    }

    /// Whether this node leads and a proposal would go out at once.
    pub fn has_room(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.has_room(&self.replica))
    }

    /// The ballot under which the sequence here was accepted.
    pub fn accepted_ballot(&self) -> Ballot {
        self.replica.storage.accepted_ballot()
    }

    /// Whether this node leads, and `peer` has accepted, under its ballot, all that it inherited.
    pub fn has_caught_up(&self, peer: NodeId) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.has_caught_up(peer))
    }

    /// How much each other replica is known to have accepted. Nothing if this node does not lead.
    pub fn acknowledged(&self) -> impl Iterator<Item = (NodeId, LogLength)> + '_ {
        let leader = self.leader.iter().filter(|leader| leader.is_leading());
        leader.flat_map(|leader| leader.peers.iter().map(|peer| (peer.id, peer.acked)))
    }

    /// What was dropped so far.
    pub fn counters(&self) -> StreamCounters {
        self.replica.counters
    }

    /// What a storage did meanwhile is its own business; this is to ask it.
    pub fn storage(&self) -> &S {
        &self.replica.storage
    }

    /// For the owner of the storage: to let it know what has become durable. [`StreamEvent::Persisted`]
    /// should follow.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.replica.storage
    }

    /// Ends the stream and keeps its storage, as a restart does.
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
            return; // Said twice.
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

    /// Votes that were given to the leader of other voters are not counted among these: it stops, and the next appointment
    /// begins with their promises.
    fn on_members(&mut self, now: Time, members: StreamMembers, effects: &mut Vec<StreamEffect>) {
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

    /// The best replica sends a snapshot to this node, which prepares to lead.
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
        // What was said before did not count.
        match &mut self.leader {
            Some(leader) => leader.on_own_vote(&mut self.replica, now, effects),
            None => self.replica.say_again(effects),
        }
    }

    fn depose(&mut self, by: Ballot, effects: &mut Vec<StreamEffect>) {
        if let Some(leader) = self.leader.take() {
            self.replica.counters.dropped_proposals += leader.queue.len() as u64;
            effects.push(StreamEffect::Deposed { by });
        }
    }

    /// One timer is set while an answer is waited for.
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
