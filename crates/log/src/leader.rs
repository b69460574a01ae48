//! The leader of a stream, from its appointment on. This file prepares and adopts a sequence; `replicate.rs`
//! replicates after that.
//!
//! ```text
//! Prepare ─► all    a majority of the voters has promised: adopt the best sequence among theirs and
//!                   the leader's own. What it lacks of that came with the promises, or is fetched
//!                   from the best replica, by entries or as a snapshot
//! ```
//! The leader's own sequence is a candidate even if the leader has no vote: a replica that accepted under a
//! ballot has the whole base of that ballot, and with it all entries decided before.

use super::replica::{FETCH_MESSAGES_MAX, Position, StreamReplica};
use super::replica_progress::{AcceptedBody, PromiseBody, ReplicaProgress};
use super::{
    LogLength, StreamEffect, StreamMessage, StreamOptions, StreamPlantedBugs, StreamStorage,
};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId, Time};
use std::collections::VecDeque;

/// A beginning of the sequence of some ballot, as far as it lies beyond the leader's own.
#[derive(Debug, Default)]
pub(super) struct AdoptedPrefix {
    ballot: Ballot,
    from: LogLength,
    entries: Vec<Bytes>,
}

impl AdoptedPrefix {
    fn end(&self) -> LogLength {
        LogLength(self.from.0 + self.entries.len() as u64)
    }
}

/// The phase of a leadership.
#[derive(Debug)]
pub(super) enum LeaderPhase {
    /// Waiting for a majority of promises, or for the sequence to adopt.
    Preparing {
        /// The entries of that sequence that were received.
        prefix: AdoptedPrefix,
        /// Whether the leader's own promise is persisted and the others were asked.
        asked: bool,
        /// When the others were last asked.
        asked_at: Time,
        /// The current request for entries.
        fetching: Option<Fetching>,
    },
    /// Leading: entries are appended and decided.
    Leading {
        /// The ballot of the adopted sequence.
        adopted: Ballot,
        /// The length of the adopted sequence.
        base: LogLength,
    },
}

/// A round of entries that are asked for.
#[derive(Debug)]
pub(super) struct Fetching {
    /// The replica that is asked.
    at: NodeId,
    /// The index of the first requested entry.
    from: LogLength,
    /// The number of messages of the answer.
    messages: u64,
    /// The indices at which the received messages begin.
    came: Vec<LogLength>,
}

impl Fetching {
    /// Records a message of this replica with entries from `from` on. One whose entries another replica sent
    /// earlier counts too: no other message answers that part of the request.
    fn note(&mut self, at: NodeId, from: LogLength) {
        if at == self.at && from >= self.from && !self.is_complete() && !self.came.contains(&from) {
            self.came.push(from);
        }
    }

    fn is_complete(&self) -> bool {
        self.came.len() as u64 >= self.messages
    }
}

#[derive(Debug)]
pub(super) struct StreamLeader {
    pub ballot: Ballot,
    pub phase: LeaderPhase,
    pub peers: Vec<ReplicaProgress>,
    /// The highest round of former members: they may be members again.
    round_of_former: u64,
    /// Whether this node is a voter.
    voter: bool,
    /// Whether it is a voter or a learner.
    pub is_member: bool,
    /// Proposals that wait for the window.
    pub queue: VecDeque<Bytes>,
    /// The lengths that the voters have accepted; kept to reuse its memory.
    pub tally: Vec<LogLength>,
    faults: StreamPlantedBugs,
}

impl StreamLeader {
    pub fn new<S: StreamStorage>(
        replica: &StreamReplica<S>,
        ballot: Ballot,
        queue: VecDeque<Bytes>,
        now: Time,
    ) -> StreamLeader {
        let (me, members) = (replica.me, &replica.members);
        let voters = members
            .voters
            .iter()
            .map(|id| ReplicaProgress::new(*id, true, 0, now, &replica.options));
        let learners = members
            .learners
            .iter()
            .map(|id| ReplicaProgress::new(*id, false, 0, now, &replica.options));
        let phase = LeaderPhase::Preparing {
            prefix: AdoptedPrefix::default(),
            asked: false,
            asked_at: now,
            fetching: None,
        };
        StreamLeader {
            ballot,
            phase,
            peers: voters.chain(learners).filter(|peer| peer.id != me).collect(),
            round_of_former: 0,
            voter: members.voters.contains(&me),
            is_member: members.all().any(|id| id == me),
            queue,
            tally: Vec::new(),
            faults: replica.options.faults,
        }
    }

    /// Whether this node's own acceptances count for the majority.
    pub fn votes<S: StreamStorage>(&self, replica: &StreamReplica<S>) -> bool {
        self.voter && replica.votes
    }

    /// Whether `node` has accepted and persisted all inherited entries.
    pub fn has_caught_up<S: StreamStorage>(
        &self,
        replica: &StreamReplica<S>,
        node: NodeId,
    ) -> bool {
        let LeaderPhase::Leading { base, .. } = self.phase else { return false };
        if node == replica.me {
            return replica.storage.accepted_ballot() == self.ballot && replica.persisted() >= base;
        }
        self.peers.iter().any(|it| {
            it.id == node && it.greeted && (it.acked >= base || self.faults.caught_up_early)
        })
    }

    pub fn is_leading(&self) -> bool {
        matches!(self.phase, LeaderPhase::Leading { .. })
    }

    /// The storage has persisted more: if it is the leader's own promise, asks the others; if it is acceptances,
    /// counts them.
    pub fn on_persisted<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        match &mut self.phase {
            LeaderPhase::Preparing { asked, .. } => {
                if !*asked && replica.storage.persisted().promised >= self.ballot {
                    *asked = true;
                    self.ask(replica, now, effects);
                    self.try_adopt(replica, now, effects);
                }
            }
            LeaderPhase::Leading { .. } => self.pump(replica, now, effects),
        }
    }

    /// A replica may have lost its memory: it is asked from the beginning.
    pub fn on_reborn<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        reborn: NodeId,
        effects: &mut Vec<StreamEffect>,
    ) {
        let Some(place) = self.peers.iter().position(|peer| peer.id == reborn) else { return };
        if self.faults.keep_former_acks {
            return;
        }
        let ReplicaProgress { voter, round, .. } = self.peers[place];
        self.peers[place] = ReplicaProgress::new(reborn, voter, round, now, &replica.options);
        if let LeaderPhase::Preparing { asked: false, .. } = self.phase {
            return; // It is asked with the others.
        }
        if let LeaderPhase::Preparing { fetching, .. } = &mut self.phase {
            fetching.take_if(|fetching| fetching.at == reborn);
        }
        effects.push(self.prepare(replica, reborn));
    }

    /// The leader's own vote counts from now on.
    pub fn on_own_vote<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        match &self.phase {
            LeaderPhase::Preparing { asked: true, .. } => self.try_adopt(replica, now, effects),
            LeaderPhase::Preparing { asked: false, .. } => {}
            LeaderPhase::Leading { .. } => self.pump(replica, now, effects),
        }
    }

    /// The learners have changed.
    pub fn follow_members<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        let members = &replica.members;
        self.is_member = members.all().any(|id| id == replica.me);
        let is_member = |peer: &ReplicaProgress| members.all().any(|id| id == peer.id);
        let gone = self.peers.iter().filter(|peer| !is_member(peer)).map(|peer| peer.round);
        self.round_of_former = gone.fold(self.round_of_former, u64::max);
        self.peers.retain(is_member);
        let is_new = |id: &NodeId| *id != replica.me && self.peers.iter().all(|it| it.id != *id);
        let new: Vec<NodeId> = members.learners.iter().copied().filter(is_new).collect();
        let round = self.round_of_former;
        self.peers.extend(
            new.iter().map(|id| ReplicaProgress::new(*id, false, round, now, &replica.options)),
        );
        let asked = !matches!(self.phase, LeaderPhase::Preparing { asked: false, .. });
        if let LeaderPhase::Preparing { fetching, .. } = &mut self.phase {
            fetching.take_if(|fetching| self.peers.iter().all(|peer| peer.id != fetching.at));
        }
        if asked {
            effects.extend(new.into_iter().map(|id| self.prepare(replica, id)));
        }
        match self.is_leading() {
            true => self.pump(replica, now, effects),
            false if asked => self.try_adopt(replica, now, effects),
            false => {}
        }
    }

    /// Asks every replica that has not promised.
    fn ask<S: StreamStorage>(
        &mut self,
        replica: &StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        if let LeaderPhase::Preparing { asked_at, .. } = &mut self.phase {
            *asked_at = now;
        }
        // A voter that did not vote when it promised may vote by now, and what it said then may be lost.
        let is_missed =
            |peer: &&ReplicaProgress| peer.promise.is_none() || peer.voter && !peer.votes;
        for peer in self.peers.iter().filter(is_missed) {
            effects.push(self.prepare(replica, peer.id));
        }
    }

    pub fn prepare<S: StreamStorage>(
        &self,
        replica: &StreamReplica<S>,
        to: NodeId,
    ) -> StreamEffect {
        let Position { ballot: accepted_ballot, accepted, decided } = replica.position();
        let ballot = self.ballot;
        StreamEffect::Send {
            to,
            message: StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided },
        }
    }

    /// Handles an answer to the leader of some ballot.
    pub fn on_answer<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        from: NodeId,
        message: StreamMessage,
        effects: &mut Vec<StreamEffect>,
    ) {
        let Some(place) = self.peers.iter().position(|peer| peer.id == from) else {
            replica.counters.bad_messages += 1;
            return;
        };
        if message.ballot() != self.ballot {
            // A higher ballot with our id would come from another process of this node; there is none.
            let counters = &mut replica.counters;
            let late = message.ballot() < self.ballot;
            *(if late { &mut counters.late_messages } else { &mut counters.bad_messages }) += 1;
            return;
        }
        match message {
            StreamMessage::Promise {
                accepted_ballot,
                accepted,
                decided,
                from,
                entries,
                votes,
                ..
            } => {
                let position = Position { ballot: accepted_ballot, accepted, decided };
                self.peers[place].votes = votes;
                self.on_promise(
                    replica,
                    now,
                    place,
                    PromiseBody { position, from, entries },
                    effects,
                );
            }
            StreamMessage::Accepted { length, next, until, decided, round, votes, .. } => {
                let state = AcceptedBody { length, next, until, decided, round, votes };
                self.on_accepted(replica, now, place, state, effects);
            }
            StreamMessage::Prepare { .. }
            | StreamMessage::Fetch { .. }
            | StreamMessage::Append { .. }
            | StreamMessage::Decide { .. }
            | StreamMessage::Snapshot { .. }
            | StreamMessage::Rejected { .. } => unreachable!("no answer to a leader's question"),
        }
    }

    fn on_promise<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        place: usize,
        promise: PromiseBody,
        effects: &mut Vec<StreamEffect>,
    ) {
        let PromiseBody { position, from, entries } = promise;
        let peer = &mut self.peers[place];
        let fits = from.checked_add(entries.len()).is_some_and(|end| end <= position.accepted);
        if peer.greeted {
            replica.counters.late_messages += 1; // A repeat from before this node led.
            return;
        }
        // A replica that restarted may have moved to our ballot in its former process.
        let joined = position.ballot == self.ballot
            && matches!(self.phase, LeaderPhase::Leading { .. })
            && position.accepted <= replica.accepted();
        let possible = position.ballot < self.ballot || joined;
        if !fits || position.decided > position.accepted || !possible {
            replica.counters.bad_messages += 1;
            return;
        }
        match &mut self.phase {
            LeaderPhase::Preparing { prefix, asked, asked_at, fetching } => {
                peer.promise = Some(position);
                *asked_at = now;
                let asked_for = fetching.as_ref().is_some_and(|fetching| fetching.at == peer.id);
                // Of two sequences the one of the higher ballot is kept; but requested entries are kept too,
                // since they were requested by all that is known so far.
                if peer.voter && (position.ballot >= prefix.ballot || asked_for) {
                    keep_entries(replica, prefix, position.ballot, from, entries);
                }
                if let Some(fetching) = fetching {
                    fetching.note(peer.id, from);
                }
                if *asked {
                    self.try_adopt(replica, now, effects);
                }
            }
            LeaderPhase::Leading { adopted, base } => {
                begin_streaming(peer, position, *adopted, *base, joined);
                self.pump(replica, now, effects);
            }
        }
    }

    /// A snapshot from the replica whose sequence this leader is going to adopt.
    pub fn on_snapshot<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        from: NodeId,
        length: LogLength,
        state: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        match &mut self.phase {
            LeaderPhase::Preparing { prefix, asked_at, fetching, .. } => {
                if !self.peers.iter().any(|peer| peer.id == from) {
                    replica.counters.bad_messages += 1;
                    return;
                }
                *asked_at = now;
                // The kept prefix begins before the snapshot, and so ended at a gap.
                *prefix = AdoptedPrefix::default();
                *fetching = None;
                replica.restore(length, state, effects);
                self.try_adopt(replica, now, effects);
            }
            LeaderPhase::Leading { .. } => replica.counters.late_messages += 1,
        }
    }

    /// Begins to lead if a majority has promised and the best sequence is complete here; else fetches the
    /// rest.
    fn try_adopt<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        let own_votes = usize::from(self.votes(replica));
        let LeaderPhase::Preparing { prefix, fetching, .. } = &mut self.phase else { return };
        let promises = self.peers.iter().filter(|peer| peer.counts() && peer.promise.is_some());
        let (members, promised) = (&replica.members, promises.count() + own_votes);
        let faulty = self.faults.prepare_at_majority && members.is_majority(promised);
        if !members.prepares(promised) && !faulty {
            return;
        }
        let own = replica.position();
        let asked = fetching.as_ref().map(|fetching| fetching.at);
        let (best, at) = best_of(&self.peers, own, asked, self.faults);
        if best.accepted < own.decided {
            // A majority does not know what was decided: voters have lost their storage. Leading on would
            // undo decisions; refusing keeps them.
            replica.counters.bad_messages += 1;
            return;
        }
        let Some(at) = at else {
            return self.adopt(replica, now, best, own.accepted, Vec::new(), effects);
        };
        let shares = own.ballot == best.ballot || self.faults.adopt_onto_own;
        let sure = if shares { own.accepted } else { own.decided };
        let has_prefix = prefix.ballot == best.ballot && prefix.end() > sure;
        let covered = if has_prefix { prefix.end() } else { sure };
        if covered >= best.accepted {
            let sure = sure.min(best.accepted);
            let mut entries =
                if has_prefix { std::mem::take(&mut prefix.entries) } else { Vec::new() };
            if has_prefix {
                entries.drain(..entries.len().min(sure.beyond(prefix.from) as usize));
            }
            entries.truncate(best.accepted.beyond(sure) as usize);
            return self.adopt(replica, now, best, sure, entries, effects);
        }
        let before = fetching.as_ref().filter(|fetching| fetching.at == at);
        if before.is_some_and(|fetching| !fetching.is_complete()) {
            return; // In flight, or lost: then the timer repeats it.
        }
        let messages = before.map_or(1, |it| (it.messages * 2).min(FETCH_MESSAGES_MAX));
        *fetching = Some(Fetching { at, from: covered, messages, came: Vec::new() });
        let (ballot, accepted_ballot) = (self.ballot, best.ballot);
        let message = StreamMessage::Fetch { ballot, accepted_ballot, from: covered, messages };
        effects.push(StreamEffect::Send { to: at, message });
    }

    /// Adopts the best sequence, which is the leader's own up to `from` followed by `entries`.
    fn adopt<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        best: Position,
        from: LogLength,
        entries: Vec<Bytes>,
        effects: &mut Vec<StreamEffect>,
    ) {
        assert!(from >= replica.storage.decided(), "would replace a decision: {replica:?}");
        replica.storage.replace(self.ballot, from, entries);
        let base = replica.accepted();
        assert_eq!(base, best.accepted, "adopted something else: {best:?}, {replica:?}");
        // Every entry that one of them knows to be decided is in the sequence.
        let promises = self.peers.iter().filter_map(|peer| peer.promise);
        let known = promises.map(|promise| promise.decided).max().unwrap_or_default().min(base);
        if known > replica.storage.decided() {
            replica.storage.decide(known);
        }
        self.phase = LeaderPhase::Leading { adopted: best.ballot, base };
        effects.push(StreamEffect::Leading { ballot: self.ballot, length: base });
        for peer in &mut self.peers {
            peer.waiting_since = Some(now);
            if let Some(promise) = peer.promise {
                begin_streaming(peer, promise, best.ballot, base, false);
            }
        }
        self.pump(replica, now, effects);
    }

    /// The timer has fired.
    pub fn on_timer<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        match &mut self.phase {
            LeaderPhase::Preparing { asked, asked_at, fetching, .. } => {
                if !*asked || now < *asked_at + replica.options.retry_after {
                    return;
                }
                // The best replica did not answer in time: there may be a majority without it.
                if let Some(silent) = fetching.take() {
                    self.peers.iter_mut().filter(|peer| peer.id == silent.at).for_each(|peer| {
                        peer.promise = None;
                    });
                }
                replica.counters.retries += 1;
                self.ask(replica, now, effects);
                self.try_adopt(replica, now, effects);
            }
            LeaderPhase::Leading { .. } => self.retry(replica, now, effects),
        }
    }

    /// The time at which some replica has not answered for too long.
    pub fn due(&self, options: &StreamOptions) -> Option<Time> {
        let since = match &self.phase {
            // The promise of the leader itself is not persisted yet; the storage reports it.
            LeaderPhase::Preparing { asked: false, .. } => None,
            LeaderPhase::Preparing { asked_at, .. } => Some(*asked_at),
            LeaderPhase::Leading { .. } => {
                self.peers.iter().filter_map(|peer| peer.waiting_since).min()
            }
        };
        Some(since? + options.retry_after)
    }

    pub fn assert_invariants<S: StreamStorage>(&self, replica: &StreamReplica<S>) {
        let accepted = replica.accepted();
        for peer in &self.peers {
            assert!(peer.acked <= accepted, "{} has more than we: {self:?}", peer.id);
            assert!(peer.received <= peer.sent, "{} got what we did not send: {self:?}", peer.id);
            assert!(peer.sent <= accepted, "{} was sent more than we have: {self:?}", peer.id);
        }
        match &self.phase {
            LeaderPhase::Preparing { .. } => {
                assert!(replica.storage.accepted_ballot() < self.ballot, "adopted: {self:?}");
            }
            LeaderPhase::Leading { adopted, .. } => {
                assert!(*adopted < self.ballot, "adopted from itself: {self:?}");
                let own = replica.storage.accepted_ballot();
                assert_eq!(own, self.ballot, "leads another's sequence: {self:?}");
                let waits = !self.queue.is_empty();
                assert!(
                    !(waits && self.window_is_open(replica)),
                    "entries wait for nothing: {self:?}"
                );
            }
        }
    }
}

/// The position to adopt: the longest of the highest ballot; and the replica that has it, if not this node.
/// Of several replicas, it is the one that was `asked`, so that two with the same position are not asked in
/// turns.
fn best_of(
    peers: &[ReplicaProgress],
    own: Position,
    asked: Option<NodeId>,
    faults: StreamPlantedBugs,
) -> (Position, Option<NodeId>) {
    let rank = |position: &Position| match faults.adopt_longest {
        true => (Ballot::default(), position.accepted),
        false => (position.ballot, position.accepted),
    };
    let mut best = (own, None);
    for peer in peers.iter().filter(|peer| peer.counts()) {
        let Some(promise) = peer.promise else { continue };
        let wins = if faults.adopt_shortest {
            rank(&promise) < rank(&best.0) && promise.accepted >= own.decided
        } else {
            rank(&promise) > rank(&best.0)
        };
        let goes_on = asked == Some(peer.id) && best.1.is_some() && rank(&promise) == rank(&best.0);
        if wins || goes_on {
            best = (promise, Some(peer.id));
        }
    }
    best
}

/// Keeps entries that extend the leader's own sequence towards that of `ballot`.
fn keep_entries<S: StreamStorage>(
    replica: &StreamReplica<S>,
    prefix: &mut AdoptedPrefix,
    ballot: Ballot,
    from: LogLength,
    entries: Vec<Bytes>,
) {
    let own = replica.position();
    let sure = if own.ballot == ballot { own.accepted } else { own.decided };
    // Entries that do not extend the own sequence are dropped; a snapshot may have covered them.
    if ballot == prefix.ballot && prefix.end() > sure {
        if from <= prefix.end() {
            let known = prefix.end().beyond(from) as usize;
            prefix.entries.extend(entries.into_iter().skip(known));
        }
    } else if from <= sure {
        *prefix = AdoptedPrefix { ballot, from, entries };
    }
}

/// A replica has promised: determines where streaming to it begins. Its sequence is a prefix of ours as far
/// as it is decided; and as a whole, if it is of the ballot that we adopted, or the replica has `joined`
/// ours.
fn begin_streaming(
    peer: &mut ReplicaProgress,
    promise: Position,
    adopted: Ballot,
    base: LogLength,
    joined: bool,
) {
    let shared = match promise.ballot == adopted {
        _ if joined => promise.accepted,
        true => promise.accepted.min(base),
        false => LogLength::ZERO,
    };
    let sure = shared.max(promise.decided.min(base));
    peer.promise = Some(promise);
    peer.received = sure;
    peer.sent = sure;
    peer.knows = promise.decided;
    peer.told = promise.decided;
}
