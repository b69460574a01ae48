//! The part of a stream that every node is: it promises, accepts, and learns what is decided.
//!
//! ```text
//!               sure                 next          until
//!  own sequence  |  the leader's, in order |  hole  |  early
//! ```
//! Entries that come before their turn wait in the [`Inbox`], so that overtaking costs no resend;
//! and so do all entries while the replica has not yet got the leader's base and keeps its own
//! sequence. *Sure* is the beginning that its own sequence shares with the leader's: what is
//! decided, or all, if the leader adopted the same ballot.

use super::core::Counters;
use super::leader::FETCH_MESSAGES_MAX;
use super::{Effect, Length, Members, Message, Options, Storage};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Ballot, NodeId};

/// How far a node's sequence goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub ballot: Ballot,
    pub accepted: Length,
    pub decided: Length,
}

/// What came from the leader and is not in the log yet.
#[derive(Debug, Default)]
struct Inbox {
    /// While the base is incomplete: where the leader's entries begin, and what came in order.
    joining: Option<Joining>,
    /// What came before its turn, by the length before it.
    early: BTreeMap<Length, Vec<Bytes>>,
    early_entries: u64,
    early_bytes: u64,
}

#[derive(Debug)]
struct Joining {
    base: Length,
    sure: Length,
    run: Vec<Bytes>,
}

impl Joining {
    fn next(&self) -> Length {
        Length(self.sure.0 + self.run.len() as u64)
    }
}

/// The body of an `Append`.
struct Append {
    adopted: Ballot,
    base: Length,
    prev: Length,
    entries: Vec<Bytes>,
}

#[derive(Debug)]
pub(super) struct Replica<S> {
    pub me: NodeId,
    pub members: Members,
    pub options: Options,
    pub storage: S,
    pub counters: Counters,
    /// What all replicas have, by the leader's word.
    pub everywhere: Length,
    /// The length of the last snapshot that came.
    pub restored: Length,
    inbox: Inbox,
    /// What the leader of the promised ballot says is decided.
    told: Length,
    /// The length last acknowledged to that leader.
    acknowledged: Length,
    /// Its last question after silence.
    round: u64,
    /// A promise to be answered when it is persisted.
    owed: Option<(NodeId, Ballot, Position)>,
    /// Who waits for a snapshot that this node's owner was asked for, while another leads.
    wanted_by: Option<NodeId>,
    /// What this node says counts, where it is a voter: it remembers all that it promised.
    pub votes: bool,
}

impl<S: Storage> Replica<S> {
    pub fn new(me: NodeId, members: Members, options: Options, storage: S) -> Replica<S> {
        Replica {
            me,
            members,
            options,
            storage,
            counters: Counters::default(),
            everywhere: Length::ZERO,
            restored: Length::ZERO,
            inbox: Inbox::default(),
            told: Length::ZERO,
            acknowledged: Length::ZERO,
            round: 0,
            owed: None,
            wanted_by: None,
            votes: true,
        }
    }

    pub fn accepted(&self) -> Length {
        self.storage.log().length()
    }

    pub fn position(&self) -> Position {
        Position {
            ballot: self.storage.accepted_ballot(),
            accepted: self.accepted(),
            decided: self.storage.decided(),
        }
    }

    /// What may be told of the own sequence: accepted under its ballot, and persisted.
    pub fn persisted(&self) -> Length {
        let persisted = self.storage.persisted();
        if persisted.accepted_ballot == self.storage.accepted_ballot() {
            persisted.accepted.min(self.accepted())
        } else {
            Length::ZERO
        }
    }

    /// Whether the sequence is the promised leader's.
    fn has_joined(&self) -> bool {
        self.storage.accepted_ballot() == self.storage.promised()
    }

    /// Promises `ballot`; what came from lower ones and is not accepted is void.
    pub fn promise(&mut self, ballot: Ballot) {
        assert!(ballot > self.storage.promised(), "promise {ballot} after: {self:?}");
        self.storage.promise(ballot);
        self.inbox = Inbox::default();
        self.told = Length::ZERO;
        self.acknowledged = Length::ZERO;
        self.round = 0;
        self.owed = None;
        self.wanted_by = None;
    }

    /// A message to replicas, from the node that leads or prepares to.
    pub fn on_message(&mut self, from: NodeId, message: Message, effects: &mut Vec<Effect>) {
        let ballot = message.ballot();
        if from != ballot.node {
            self.counters.bad_messages += 1;
            return;
        }
        if ballot < self.storage.promised() {
            self.counters.late_messages += 1;
            let promised = self.storage.promised();
            effects
                .push(Effect::Send { to: from, message: Message::Rejected { ballot, promised } });
            return;
        }
        let forget = self.options.faults.forget_promise;
        let asks = matches!(message, Message::Prepare { .. } | Message::Fetch { .. });
        if ballot > self.storage.promised() && !(asks && forget) {
            self.promise(ballot);
        }
        match message {
            Message::Prepare { accepted_ballot, accepted, decided, .. } => {
                let position = Position { ballot: accepted_ballot, accepted, decided };
                self.owed = Some((from, ballot, position));
                self.pay(effects);
            }
            Message::Fetch { accepted_ballot, from: first, messages, .. } => {
                self.on_fetch(from, (ballot, accepted_ballot), first, messages, effects);
            }
            Message::Append {
                adopted, base, prev, entries, decided, everywhere, round, ..
            } => {
                if prev.checked_add(entries.len()).is_none() {
                    self.counters.bad_messages += 1;
                    return;
                }
                self.round = self.round.max(round);
                self.on_append(Append { adopted, base, prev, entries });
                self.learn(decided, everywhere);
                self.answer(effects);
            }
            Message::Decide { decided, everywhere, .. } => self.learn(decided, everywhere),
            Message::Snapshot { length, state, .. } => {
                self.restore(length, state, effects);
                self.answer(effects);
            }
            Message::Promise { .. } | Message::Accepted { .. } | Message::Rejected { .. } => {
                unreachable!("answers go to the leader")
            }
        }
    }

    /// More is persisted: what was held back may be said.
    pub fn on_persisted(&mut self, effects: &mut Vec<Effect>) {
        self.pay(effects);
        // A leader that was deposed, or restarted, has no replica to tell.
        let led_by_another = self.storage.promised().node != self.me;
        if led_by_another && self.has_joined() && self.persisted() > self.acknowledged {
            self.answer(effects);
        }
    }

    /// Tells the leader again how far this node is: from now on it counts.
    pub fn say_again(&mut self, effects: &mut Vec<Effect>) {
        let promised = self.storage.promised();
        if promised.node == self.me || promised == Ballot::default() {
            return;
        }
        if self.has_joined() {
            self.acknowledged = Length::ZERO;
            self.answer(effects);
        } else if self.owed.is_none() && self.storage.persisted().promised == promised {
            self.send_promise(promised.node, promised, self.accepted(), effects);
        }
    }

    /// Answers a `Prepare`, once the promise is persisted.
    fn pay(&mut self, effects: &mut Vec<Effect>) {
        let Some((to, ballot, leader)) = self.owed else { return };
        let forget = self.options.faults.forget_promise;
        if self.storage.persisted().promised < ballot && !forget {
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
        (ballot, accepted_ballot): (Ballot, Ballot),
        mut first: Length,
        messages: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.has_joined() {
            self.counters.late_messages += 1; // The leader has long got what it asked for.
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
            effects.push(Effect::SnapshotWanted { to });
        }
    }

    /// A promise with what is held from `from` on, as much as fits. Says how far that goes.
    fn send_promise(
        &self,
        to: NodeId,
        ballot: Ballot,
        from: Length,
        effects: &mut Vec<Effect>,
    ) -> Length {
        let Position { ballot: accepted_ballot, accepted, decided } = self.position();
        let log = self.storage.log();
        let from = if from < log.start() { accepted } else { from };
        let end = log.fit(from, accepted, self.options.message_bytes_max);
        let (entries, votes) = (log.entries(from, end), self.votes);
        let message =
            Message::Promise { ballot, accepted_ballot, accepted, decided, from, entries, votes };
        effects.push(Effect::Send { to, message });
        end
    }

    fn on_append(&mut self, append: Append) {
        let Append { adopted, base, prev, entries } = append;
        if self.has_joined() {
            if prev > self.accepted() {
                return self.keep_early(prev, entries);
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

    /// The beginning of the own sequence that is also the leader's.
    fn sure(&self, adopted: Ballot, base: Length) -> Length {
        let same = self.storage.accepted_ballot() == adopted || self.options.faults.keep_undecided;
        let shared = if same { self.accepted().min(base) } else { Length::ZERO };
        shared.max(self.storage.decided())
    }

    /// The first entry of the leader's that has not come.
    fn next(&self) -> Length {
        match &self.inbox.joining {
            _ if self.has_joined() => self.accepted(),
            Some(joining) => joining.next(),
            None => self.storage.decided(),
        }
    }

    /// Keeps entries that came before their turn, within the window.
    fn keep_early(&mut self, prev: Length, entries: Vec<Bytes>) {
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

    /// Moves early entries whose turn has come.
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

    /// Moves to the leader's ballot, if its base is complete: in one step.
    fn join(&mut self) {
        let early = self.options.faults.join_early;
        let is_whole = |joining: &mut Joining| joining.base <= joining.next() || early;
        if let Some(joining) = self.inbox.joining.take_if(is_whole) {
            assert!(joining.sure >= self.storage.decided(), "would replace a decision: {self:?}");
            self.storage.replace(self.storage.promised(), joining.sure, joining.run);
        }
    }

    fn learn(&mut self, decided: Length, everywhere: Length) {
        self.told = self.told.max(decided);
        self.everywhere = self.everywhere.max(everywhere);
        let here = self.told.min(self.accepted());
        if self.has_joined() && here > self.storage.decided() {
            self.storage.decide(here);
        }
    }

    /// Installs a snapshot, if it brings anything.
    pub fn restore(&mut self, length: Length, state: Bytes, effects: &mut Vec<Effect>) {
        if length > self.storage.decided() {
            self.storage.restore(length);
            self.restored = length;
            if self.has_joined() {
                self.drain_early();
            } else {
                // What came so far began before it; it is sent again if it is needed.
                self.inbox = Inbox::default();
            }
            effects.push(Effect::Restored { length, state });
        }
    }

    /// Tells the leader how far this replica is; unless the storage will call soon to say more.
    fn answer(&mut self, effects: &mut Vec<Effect>) {
        let ballot = self.storage.promised();
        let length = if self.has_joined() { self.persisted() } else { Length::ZERO };
        let next = self.next();
        let until = self.inbox.early.first_key_value().map_or(next, |(prev, _)| *prev);
        if self.has_joined() && until == next && length < next && length == self.acknowledged {
            return;
        }
        self.acknowledged = length;
        let (decided, round, votes) = (self.storage.decided(), self.round, self.votes);
        let message = Message::Accepted { ballot, length, next, until, decided, round, votes };
        effects.push(Effect::Send { to: ballot.node, message });
    }

    pub fn trim(&mut self, before: Length) {
        let before = before.min(self.storage.decided());
        if before > self.storage.log().start() {
            self.storage.trim(before);
        }
    }

    /// The owner's snapshot, for a leader that prepares.
    pub fn on_snapshot_taken(
        &mut self,
        to: NodeId,
        length: Length,
        state: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        if self.wanted_by == Some(to) {
            self.wanted_by = None;
            let ballot = self.storage.promised();
            effects.push(Effect::Send { to, message: Message::Snapshot { ballot, length, state } });
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

impl Inbox {
    fn forget(&mut self, entries: &[Bytes]) {
        self.early_entries -= entries.len() as u64;
        self.early_bytes -= entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
    }
}
