//! The part of a stream that every node has: it promises, accepts, and learns what is decided.
//!
//! ```text
//!               sure                 next          until
//!  own sequence  |  the leader's, in order |  hole  |  early
//! ```
//! Entries that arrive early wait in the [`PendingAppends`], so that reordering costs no resend; and so do
//! all entries while the replica lacks part of the leader's base and keeps its own sequence. *Sure* is the
//! prefix that its own sequence shares with the leader's: the decided entries, or all, if the leader adopted
//! the same ballot.

use super::events::StreamCounters;
use super::{LogLength, StreamEffect, StreamMembers, StreamMessage, StreamOptions, StreamStorage};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId};
use std::collections::BTreeMap;

/// What a new leader lacks is asked for in rounds, each of twice as many messages as the one before, up to
/// so many: what lacks much would otherwise take a round trip for each message.
pub(super) const FETCH_MESSAGES_MAX: u64 = 16;

/// How far a node's sequence goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub ballot: Ballot,
    pub accepted: LogLength,
    pub decided: LogLength,
}

/// Entries that were received from the leader and are not in the log yet.
#[derive(Debug, Default)]
struct PendingAppends {
    /// While the base is incomplete: where the leader's entries begin, and those received in order.
    joining: Option<Joining>,
    /// Entries received early, by the length before them.
    early: BTreeMap<LogLength, Vec<Bytes>>,
    early_entries: u64,
    early_bytes: u64,
}

#[derive(Debug)]
struct Joining {
    base: LogLength,
    sure: LogLength,
    run: Vec<Bytes>,
}

impl Joining {
    fn next(&self) -> LogLength {
        LogLength(self.sure.0 + self.run.len() as u64)
    }
}

/// The fields of an `Append`.
struct AppendBody {
    adopted: Ballot,
    base: LogLength,
    prev: LogLength,
    entries: Vec<Bytes>,
}

#[derive(Debug)]
pub(super) struct StreamReplica<S> {
    pub me: NodeId,
    pub members: StreamMembers,
    pub options: StreamOptions,
    pub storage: S,
    pub counters: StreamCounters,
    /// The number of entries that all replicas have, as the leader reported.
    pub everywhere: LogLength,
    /// The length of the last snapshot received.
    pub restored: LogLength,
    inbox: PendingAppends,
    /// The number of decided entries, as the leader of the promised ballot reported.
    told: LogLength,
    /// The length that was last acknowledged to that leader.
    acknowledged: LogLength,
    /// The round of its last question.
    round: u64,
    /// A promise that is sent once it is persisted.
    owed: Option<(NodeId, Ballot, Position)>,
    /// The preparing leader that waits for a snapshot of this node's owner.
    wanted_by: Option<NodeId>,
    /// Whether this node's answers count, where it is a voter: it still has all its promises.
    pub votes: bool,
}

impl<S: StreamStorage> StreamReplica<S> {
    pub fn new(
        me: NodeId,
        members: StreamMembers,
        options: StreamOptions,
        storage: S,
    ) -> StreamReplica<S> {
        StreamReplica {
            me,
            members,
            options,
            storage,
            counters: StreamCounters::default(),
            everywhere: LogLength::ZERO,
            restored: LogLength::ZERO,
            inbox: PendingAppends::default(),
            told: LogLength::ZERO,
            acknowledged: LogLength::ZERO,
            round: 0,
            owed: None,
            wanted_by: None,
            votes: true,
        }
    }

    pub fn accepted(&self) -> LogLength {
        self.storage.log().length()
    }

    pub fn position(&self) -> Position {
        Position {
            ballot: self.storage.accepted_ballot(),
            accepted: self.accepted(),
            decided: self.storage.decided(),
        }
    }

    /// The acceptances that may be acknowledged: accepted under the sequence's ballot, and persisted.
    pub fn persisted(&self) -> LogLength {
        let persisted = self.storage.persisted();
        if self.options.faults.acknowledge_unpersisted {
            return self.accepted();
        }
        if persisted.accepted_ballot == self.storage.accepted_ballot() {
            persisted.accepted.min(self.accepted())
        } else {
            LogLength::ZERO
        }
    }

    /// Whether the disk is near enough to take more entries of a leader: see [`StreamOptions::unpersisted_bytes_max`].
    pub fn has_room(&self) -> bool {
        self.storage.unpersisted_bytes() < self.options.unpersisted_bytes_max
    }

    /// Whether it is, for a leader's own entries. One that has taken a snapshot to lead does not wait for its checkpoint: the shard
    /// would wait with it.
    pub fn has_room_to_lead(&self) -> bool {
        self.has_room() || self.storage.awaits_snapshot()
    }

    /// Whether the node has moved to the promised leader's sequence.
    fn has_joined(&self) -> bool {
        self.storage.accepted_ballot() == self.storage.promised()
    }

    /// Promises `ballot`; entries received under lower ballots and not accepted are dropped.
    pub fn promise(&mut self, ballot: Ballot) {
        assert!(ballot > self.storage.promised(), "promise {ballot} after: {self:?}");
        self.storage.promise(ballot);
        self.inbox = PendingAppends::default();
        self.told = LogLength::ZERO;
        self.acknowledged = LogLength::ZERO;
        self.round = 0;
        self.owed = None;
        self.wanted_by = None;
    }

    /// Handles a message to replicas, from the node that leads or prepares to.
    pub fn on_message(
        &mut self,
        from: NodeId,
        message: StreamMessage,
        effects: &mut Vec<StreamEffect>,
    ) {
        let ballot = message.ballot();
        if from != ballot.node {
            self.counters.bad_messages += 1;
            return;
        }
        if ballot < self.storage.promised() {
            self.counters.late_messages += 1;
            let promised = self.storage.promised();
            effects.push(StreamEffect::Send {
                to: from,
                message: StreamMessage::Rejected { ballot, promised },
            });
            return;
        }
        let forget = self.options.faults.forget_promise;
        let asks = matches!(message, StreamMessage::Prepare { .. } | StreamMessage::Fetch { .. });
        if ballot > self.storage.promised() && !(asks && forget) {
            self.promise(ballot);
        }
        match message {
            StreamMessage::Prepare { accepted_ballot, accepted, decided, .. } => {
                let position = Position { ballot: accepted_ballot, accepted, decided };
                self.owed = Some((from, ballot, position));
                self.send_owed_promise(effects);
            }
            StreamMessage::Fetch { accepted_ballot, from: first, messages, .. } => {
                self.on_fetch(from, ballot, accepted_ballot, first, messages, effects);
            }
            StreamMessage::Append {
                adopted,
                base,
                prev,
                entries,
                decided,
                everywhere,
                round,
                ..
            } => {
                if prev.checked_add(entries.len()).is_none() {
                    self.counters.bad_messages += 1;
                    return;
                }
                let is_asked = round > self.round;
                self.round = self.round.max(round);
                self.on_append(AppendBody { adopted, base, prev, entries });
                self.learn(decided, everywhere);
                self.answer(is_asked, effects);
            }
            StreamMessage::Decide { decided, everywhere, .. } => self.learn(decided, everywhere),
            StreamMessage::Snapshot { length, state, .. } => {
                self.restore(length, state, effects);
                self.answer(false, effects);
            }
            StreamMessage::Promise { .. }
            | StreamMessage::Accepted { .. }
            | StreamMessage::Rejected { .. } => {
                unreachable!("answers go to the leader")
            }
        }
    }

    /// More is persisted: sends the answers that waited for it.
    pub fn on_persisted(&mut self, effects: &mut Vec<StreamEffect>) {
        self.send_owed_promise(effects);
        // A leader that was deposed, or restarted, has no leader to report to.
        let led_by_another = self.storage.promised().node != self.me;
        if led_by_another && self.has_joined() && self.persisted() > self.acknowledged {
            self.answer(false, effects);
        }
    }

    /// Sends the leader this node's progress again: from now on it counts.
    pub fn acknowledge_again(&mut self, effects: &mut Vec<StreamEffect>) {
        let promised = self.storage.promised();
        if promised.node == self.me || promised == Ballot::default() {
            return;
        }
        if self.has_joined() {
            self.acknowledged = LogLength::ZERO;
            self.answer(false, effects);
        } else if self.owed.is_none() && self.storage.persisted().promised == promised {
            self.send_promise(promised.node, promised, self.accepted(), effects);
        }
    }

    /// Answers a `Prepare` once the promise is persisted.
    fn send_owed_promise(&mut self, effects: &mut Vec<StreamEffect>) {
        let Some((to, ballot, leader)) = self.owed else { return };
        let faults = self.options.faults;
        let is_early = faults.forget_promise || faults.promise_unpersisted;
        if self.storage.persisted().promised < ballot && !is_early {
            return;
        }
        self.owed = None;
        let own = self.position();
        let from = if own.ballot == leader.ballot {
            leader.accepted.min(own.accepted)
        } else if own.ballot > leader.ballot {
            leader.decided.min(own.accepted)
        } else {
            own.accepted
        };
        self.send_promise(to, ballot, from, effects);
    }

    fn on_fetch(
        &mut self,
        to: NodeId,
        ballot: Ballot,
        accepted_ballot: Ballot,
        mut first: LogLength,
        messages: u64,
        effects: &mut Vec<StreamEffect>,
    ) {
        if self.has_joined() {
            self.counters.late_messages += 1; // The leader has received what it asked for.
        } else if accepted_ballot != self.storage.accepted_ballot() || first > self.accepted() {
            self.counters.bad_messages += 1;
        } else if first >= self.storage.log().start() {
            for _ in 0..messages.clamp(1, FETCH_MESSAGES_MAX) {
                first = self.send_promise(to, ballot, first, effects);
                if first == self.accepted() {
                    break;
                }
            }
        } else if self.wanted_by != Some(to) {
            self.wanted_by = Some(to);
            effects.push(StreamEffect::SnapshotWanted { to });
        }
    }

    /// Sends a promise with the entries from `from` on, as many as fit. Returns the index after the last of
    /// them.
    fn send_promise(
        &self,
        to: NodeId,
        ballot: Ballot,
        from: LogLength,
        effects: &mut Vec<StreamEffect>,
    ) -> LogLength {
        let Position { ballot: accepted_ballot, accepted, decided } = self.position();
        let log = self.storage.log();
        let from = if from < log.start() { accepted } else { from };
        let end = log.fit(from, accepted, self.options.message_bytes_max);
        let (entries, votes) = (log.entries(from, end), self.votes);
        let message = StreamMessage::Promise {
            ballot,
            accepted_ballot,
            accepted,
            decided,
            from,
            entries,
            votes,
        };
        effects.push(StreamEffect::Send { to, message });
        end
    }

    fn on_append(&mut self, append: AppendBody) {
        let AppendBody { adopted, base, prev, entries } = append;
        if self.has_joined() {
            if prev > self.accepted() {
                return self.keep_early(prev, entries);
            }
            if !self.has_room() {
                // As if it were lost: it is sent again.
                self.counters.refused_appends += u64::from(!entries.is_empty());
                return;
            }
            let known = (self.accepted().0 - prev.0) as usize;
            entries.into_iter().skip(known).for_each(|entry| self.storage.append(entry));
        } else {
            let mut joining = match self.inbox.joining.take() {
                Some(joining) => joining,
                None => Joining { base, sure: self.sure(adopted, base), run: Vec::new() },
            };
            if prev > joining.next() {
                self.keep_early(prev, entries);
            } else {
                let known = (joining.next().0 - prev.0) as usize;
                joining.run.extend(entries.into_iter().skip(known));
            }
            self.inbox.joining = Some(joining);
        }
        self.drain_early();
        self.join();
    }

    /// The length of the prefix that the own sequence shares with the leader's.
    fn sure(&self, adopted: Ballot, base: LogLength) -> LogLength {
        let same = self.storage.accepted_ballot() == adopted || self.options.faults.keep_undecided;
        let shared = if same { self.accepted().min(base) } else { LogLength::ZERO };
        shared.max(self.storage.decided())
    }

    /// The index of the leader's first entry that was not received.
    fn next(&self) -> LogLength {
        match &self.inbox.joining {
            _ if self.has_joined() => self.accepted(),
            Some(joining) => joining.next(),
            None => self.storage.decided(),
        }
    }

    /// Keeps entries that arrived early, within the window.
    fn keep_early(&mut self, prev: LogLength, entries: Vec<Bytes>) {
        let bytes: u64 = entries.iter().map(|entry| entry.len() as u64).sum();
        let count = entries.len() as u64;
        let inbox = &mut self.inbox;
        let longer = inbox.early.get(&prev).is_none_or(|held| held.len() < entries.len());
        let fits = inbox.early_entries + count <= self.options.window_entries
            && inbox.early_bytes + bytes <= self.options.window_bytes_max
            && (inbox.early.len() as u64) < self.options.window_entries;
        if longer && fits {
            inbox.early_entries += count;
            inbox.early_bytes += bytes;
            if let Some(replaced) = inbox.early.insert(prev, entries) {
                inbox.forget(&replaced);
            }
        }
    }

    /// Moves early entries that continue the sequence.
    fn drain_early(&mut self) {
        loop {
            let next = self.next();
            let Some(first) = self.inbox.early.first_entry().filter(|first| *first.key() <= next)
            else {
                return;
            };
            let (prev, entries) = first.remove_entry();
            self.inbox.forget(&entries);
            let new = entries.into_iter().skip((next.0 - prev.0) as usize);
            match &mut self.inbox.joining {
                Some(joining) => joining.run.extend(new),
                None => new.for_each(|entry| self.storage.append(entry)),
            }
        }
    }

    /// Moves to the leader's ballot in one step, if its base is complete.
    fn join(&mut self) {
        let early = self.options.faults.join_early;
        let is_whole = |joining: &mut Joining| joining.base <= joining.next() || early;
        if let Some(joining) = self.inbox.joining.take_if(is_whole) {
            assert!(joining.sure >= self.storage.decided(), "would replace a decision: {self:?}");
            self.storage.replace(self.storage.promised(), joining.sure, joining.run);
        }
    }

    fn learn(&mut self, decided: LogLength, everywhere: LogLength) {
        self.told = self.told.max(decided);
        self.everywhere = self.everywhere.max(everywhere);
        let here = self.told.min(self.accepted());
        if self.has_joined() && here > self.storage.decided() {
            self.storage.decide(here);
        }
    }

    /// Installs a snapshot, if it covers more than is decided here.
    pub fn restore(&mut self, length: LogLength, state: Bytes, effects: &mut Vec<StreamEffect>) {
        if length > self.storage.decided() {
            self.storage.restore(length);
            self.restored = length;
            if self.has_joined() {
                self.drain_early();
            } else {
                // Pending entries begin before the snapshot; they are sent again if they are needed.
                self.inbox = PendingAppends::default();
            }
            effects.push(StreamEffect::Restored { length, state });
        }
    }

    /// Reports this replica's progress to the leader; where that has not `asked` for it again, only if the storage will not report
    /// more. A leader without an answer sends again what has come here, and a replica that is busy with making it durable would get
    /// more and more of that to do (two_phase_commit 1058966411). With an answer it sends what follows, which is bounded by what may
    /// wait here to become durable.
    fn answer(&mut self, asked: bool, effects: &mut Vec<StreamEffect>) {
        let ballot = self.storage.promised();
        let length = if self.has_joined() { self.persisted() } else { LogLength::ZERO };
        let next = self.next();
        let until = self.inbox.early.first_key_value().map_or(next, |(prev, _)| *prev);
        let will_report = self.has_joined() && until == next && length < next;
        if will_report && length == self.acknowledged && !(asked && self.has_room()) {
            return;
        }
        self.acknowledged = length;
        let (decided, round, votes) = (self.storage.decided(), self.round, self.votes);
        let message =
            StreamMessage::Accepted { ballot, length, next, until, decided, round, votes };
        effects.push(StreamEffect::Send { to: ballot.node, message });
    }

    pub fn trim(&mut self, before: LogLength) {
        let before = before.min(self.storage.decided());
        if before > self.storage.log().start() {
            self.storage.trim(before);
        }
    }

    /// The owner's snapshot, for a preparing leader.
    pub fn on_snapshot_taken(
        &mut self,
        to: NodeId,
        length: LogLength,
        state: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        if self.wanted_by == Some(to) {
            self.wanted_by = None;
            let ballot = self.storage.promised();
            effects.push(StreamEffect::Send {
                to,
                message: StreamMessage::Snapshot { ballot, length, state },
            });
        }
    }

    pub fn assert_invariants(&self) {
        let next = self.next();
        let turn_came = self.inbox.early.first_key_value().is_some_and(|(prev, _)| *prev <= next);
        assert!(!turn_came, "an entry waits although its turn has come: {self:?}");
        assert!(!self.has_joined() || self.inbox.joining.is_none(), "joins twice: {self:?}");
        assert!(self.acknowledged <= self.accepted(), "acknowledged too much: {self:?}");
    }
}

impl PendingAppends {
    fn forget(&mut self, entries: &[Bytes]) {
        self.early_entries -= entries.len() as u64;
        self.early_bytes -= entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
    }
}
