//! The part of a stream that one node is besides: the leader, from its appointment on. Here it
//! prepares and adopts; `replicate.rs` has what it does then.
//!
//! ```text
//! Prepare ─► all    a majority of the voters has promised: adopt the best sequence among theirs and
//!                   the leader's own. What it lacks of that came with the promises, or is fetched
//!                   from the best replica, by entries or as a snapshot
//! ```
//! The leader's own sequence is a candidate even where it has no vote: a replica that accepted under a
//! ballot has the whole base of it, and with that all that was chosen before.

use super::replica::{Position, StreamReplica};
use super::{
    LogLength, StreamEffect, StreamMessage, StreamOptions, StreamPlantedBugs, StreamStorage,
};
use bytes::Bytes;
use shoal_types::{Backoff, Ballot, NodeId, Time};
use std::collections::VecDeque;

/// What the leader knows of another replica.
#[derive(Debug)]
pub(super) struct ReplicaProgress {
    pub id: NodeId,
    pub voter: bool,
    /// By its own last word, what it says counts.
    pub votes: bool,
    /// What it had accepted when it promised.
    pub promise: Option<Position>,
    /// It has accepted this much under our ballot, and persisted it. Counts as its vote.
    pub acked: LogLength,
    /// This much has come there; moves back if it asks again.
    pub received: LogLength,
    /// This much was sent.
    pub sent: LogLength,
    /// How many bytes may be on their way there.
    pub window: FlightWindow,
    /// The length that the replica was told to be decided.
    pub told: LogLength,
    /// The length that the replica says it knows to be decided.
    pub knows: LogLength,
    /// Since when it owes an answer.
    pub waiting_since: Option<Time>,
    /// It was silent for too long: it is asked now and then, and nothing streams there.
    pub silent: bool,
    /// How often it was asked while it was silent. What it says after the last of them is news.
    pub round: u64,
    /// Whether an `Append` went there at all: the first one may be empty, to move it to our ballot.
    pub greeted: bool,
    /// The hole that was last filled.
    pub hole: Option<Hole>,
    /// The owner was asked for a snapshot for it.
    pub snapshot_wanted: bool,
}

impl ReplicaProgress {
    /// Whether its word counts for the majority.
    pub fn counts(&self) -> bool {
        self.voter && self.votes
    }

    /// One of which nothing is known yet. It may have heard the round of a former process, or of a former membership, under our
    /// ballot, and names that in all its answers: so rounds go on there.
    fn new(
        id: NodeId,
        voter: bool,
        round: u64,
        now: Time,
        options: &StreamOptions,
    ) -> ReplicaProgress {
        ReplicaProgress {
            id,
            voter,
            votes: false,
            promise: None,
            acked: LogLength::ZERO,
            received: LogLength::ZERO,
            sent: LogLength::ZERO,
            window: FlightWindow::new(options),
            told: LogLength::ZERO,
            knows: LogLength::ZERO,
            waiting_since: Some(now),
            silent: false,
            round,
            greeted: false,
            hole: None,
            snapshot_wanted: false,
        }
    }
}

/// How many bytes may be on their way to a replica. What is on its way waits in queues before what is sent next, and so
/// the window is larger only for a replica that soon has what fills it.
#[derive(Debug)]
pub(super) struct FlightWindow {
    pub bytes: u64,
    /// What filled it, and when.
    full: Option<(LogLength, Time)>,
}

impl FlightWindow {
    pub fn new(options: &StreamOptions) -> FlightWindow {
        FlightWindow { bytes: options.window_bytes, full: None }
    }

    /// It is filled by what was sent up to here.
    pub fn filled(&mut self, sent: LogLength, now: Time) {
        self.full.get_or_insert((sent, now));
    }

    /// So much has come there.
    pub fn received(&mut self, received: LogLength, now: Time, options: &StreamOptions) {
        let Some((_, at)) = self.full.filter(|(length, _)| received >= *length) else {
            return;
        };
        self.full = None;
        self.bytes = match now - at <= options.retry_after {
            true => (self.bytes * 2).min(options.window_bytes_max),
            false => options.window_bytes,
        };
    }
}

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

/// How far the leader is.
#[derive(Debug)]
pub(super) enum LeaderPhase {
    /// It waits for a majority, or for the sequence it will adopt.
    Preparing {
        /// What came of that sequence.
        stage: AdoptedPrefix,
        /// Whether its own promise is persisted and the others were asked.
        asked: bool,
        /// When it asked last.
        asked_at: Time,
        /// What it fetches.
        fetching: Option<Fetching>,
    },
    /// A majority has promised the ballot: entries are appended.
    Leading {
        /// The ballot of the sequence that the leader adopted.
        adopted: Ballot,
        /// The length of that sequence.
        base: LogLength,
    },
}

/// A hole in what a peer has received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hole {
    /// The first entry that is missing.
    pub next: LogLength,
    /// When the entries were last sent.
    pub filled_at: Time,
    /// How long after that they are not sent again.
    pub backoff: Backoff,
}

impl Hole {
    /// The longest wait before the entries are sent again, as a multiple of [`StreamOptions::retry_after`].
    const WAIT_MAX: u32 = 64;

    /// A hole whose entries are sent for the first time.
    pub fn new(next: LogLength, now: Time, options: &StreamOptions) -> Hole {
        let least = options.retry_after;
        Hole { next, filled_at: now, backoff: Backoff::new(least, least * Hole::WAIT_MAX) }
    }

    /// The same hole, whose entries are sent once more.
    #[must_use]
    pub fn filled_again(mut self, now: Time) -> Hole {
        self.backoff.advance();
        Hole { filled_at: now, ..self }
    }
}

/// What a new leader lacks is asked for in rounds, each of twice as many messages as the one before, up to
/// so many: what lacks much would otherwise take a round trip for each message.
pub(super) const FETCH_MESSAGES_MAX: u64 = 16;

/// A round of entries that are asked for.
#[derive(Debug)]
pub(super) struct Fetching {
    /// The replica that is asked.
    at: NodeId,
    /// The first of them.
    from: LogLength,
    /// In how many messages.
    messages: u64,
    /// Where those begin that have come.
    came: Vec<LogLength>,
}

impl Fetching {
    /// A message of this replica, with entries from `from` on. What brings nothing new, since another
    /// replica was faster, counts all the same: nothing else will come for it.
    fn note(&mut self, at: NodeId, from: LogLength) {
        if at == self.at && from >= self.from && !self.is_over() && !self.came.contains(&from) {
            self.came.push(from);
        }
    }

    fn is_over(&self) -> bool {
        self.came.len() as u64 >= self.messages
    }
}

#[derive(Debug)]
pub(super) struct StreamLeader {
    pub ballot: Ballot,
    pub phase: LeaderPhase,
    pub peers: Vec<ReplicaProgress>,
    /// The highest round of those that are members no longer: they may come back.
    round_gone: u64,
    /// Whether this node is a voter.
    voter: bool,
    /// Whether it is a voter or a learner.
    pub is_member: bool,
    /// Proposals that wait for the window.
    pub queue: VecDeque<Bytes>,
    /// What the voters have accepted; kept to be filled again and again.
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
            stage: AdoptedPrefix::default(),
            asked: false,
            asked_at: now,
            fetching: None,
        };
        StreamLeader {
            ballot,
            phase,
            peers: voters.chain(learners).filter(|peer| peer.id != me).collect(),
            round_gone: 0,
            voter: members.voters.contains(&me),
            is_member: members.all().any(|id| id == me),
            queue,
            tally: Vec::new(),
            faults: replica.options.faults,
        }
    }

    /// Whether this node's own word counts for the majority.
    pub fn votes<S: StreamStorage>(&self, replica: &StreamReplica<S>) -> bool {
        self.voter && replica.votes
    }

    /// Whether `peer` has accepted all that was inherited.
    pub fn has_caught_up(&self, peer: NodeId) -> bool {
        let LeaderPhase::Leading { base, .. } = self.phase else { return false };
        self.peers.iter().any(|it| {
            it.id == peer && it.greeted && (it.acked >= base || self.faults.caught_up_early)
        })
    }

    pub fn is_leading(&self) -> bool {
        matches!(self.phase, LeaderPhase::Leading { .. })
    }

    /// The own promise is persisted: ask the others. Or the own accepts are: count them.
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

    /// A replica has forgotten, perhaps, what it said: it is asked from the beginning.
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

    /// The own word counts from now on.
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

    /// Learners have come or gone.
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
        self.round_gone = gone.fold(self.round_gone, u64::max);
        self.peers.retain(is_member);
        let is_new = |id: &NodeId| *id != replica.me && self.peers.iter().all(|it| it.id != *id);
        let new: Vec<NodeId> = members.learners.iter().copied().filter(is_new).collect();
        let round = self.round_gone;
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
        for peer in self.peers.iter().filter(|peer| peer.promise.is_none()) {
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

    /// An answer to the leader of some ballot.
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
            // A higher one with our name would be another process of ours; there is none.
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
                self.on_promise(replica, now, place, position, (from, entries), effects);
            }
            StreamMessage::Accepted { length, next, until, decided, round, votes, .. } => {
                let state =
                    super::replicate::AcceptedBody { length, next, until, decided, round, votes };
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
        position: Position,
        (from, entries): (LogLength, Vec<Bytes>),
        effects: &mut Vec<StreamEffect>,
    ) {
        let peer = &mut self.peers[place];
        let fits = from.checked_add(entries.len()).is_some_and(|end| end <= position.accepted);
        if peer.greeted {
            replica.counters.late_messages += 1; // A repeat of what it said before we led.
            return;
        }
        // One that lives anew may have joined us in the process before.
        let joined = position.ballot == self.ballot
            && matches!(self.phase, LeaderPhase::Leading { .. })
            && position.accepted <= replica.accepted();
        let possible = position.ballot < self.ballot || joined;
        if !fits || position.decided > position.accepted || !possible {
            replica.counters.bad_messages += 1;
            return;
        }
        match &mut self.phase {
            LeaderPhase::Preparing { stage, asked, asked_at, fetching } => {
                peer.promise = Some(position);
                *asked_at = now;
                let asked_for = fetching.as_ref().is_some_and(|fetching| fetching.at == peer.id);
                // Of two sequences the one of the higher ballot is worth keeping; but what is
                // fetched was chosen by all that is known by now.
                if peer.voter && (position.ballot >= stage.ballot || asked_for) {
                    stage_entries(replica, stage, position.ballot, from, entries);
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
            LeaderPhase::Preparing { stage, asked_at, fetching, .. } => {
                if !self.peers.iter().any(|peer| peer.id == from) {
                    replica.counters.bad_messages += 1;
                    return;
                }
                *asked_at = now;
                // Begins before the snapshot, and so ended where entries were missing.
                *stage = AdoptedPrefix::default();
                *fetching = None;
                replica.restore(length, state, effects);
                self.try_adopt(replica, now, effects);
            }
            LeaderPhase::Leading { .. } => replica.counters.late_messages += 1,
        }
    }

    /// Leads, if a majority has promised and the best sequence is here; else fetches that.
    fn try_adopt<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        let own_votes = usize::from(self.votes(replica));
        let LeaderPhase::Preparing { stage, fetching, .. } = &mut self.phase else { return };
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
            // A majority does not know what was decided: voters have lost their storage. Leading
            // on would undo decisions; not leading keeps them.
            replica.counters.bad_messages += 1;
            return;
        }
        let Some(at) = at else {
            return self.adopt(replica, now, best, own.accepted, Vec::new(), effects);
        };
        let shares = own.ballot == best.ballot || self.faults.adopt_onto_own;
        let sure = if shares { own.accepted } else { own.decided };
        let staged = stage.ballot == best.ballot && stage.end() > sure;
        let covered = if staged { stage.end() } else { sure };
        if covered >= best.accepted {
            let sure = sure.min(best.accepted);
            let mut entries = if staged { std::mem::take(&mut stage.entries) } else { Vec::new() };
            if staged {
                entries.drain(..entries.len().min(sure.beyond(stage.from) as usize));
            }
            entries.truncate(best.accepted.beyond(sure) as usize);
            return self.adopt(replica, now, best, sure, entries, effects);
        }
        let before = fetching.as_ref().filter(|fetching| fetching.at == at);
        if before.is_some_and(|fetching| !fetching.is_over()) {
            return; // On its way, or lost; then the timer sees to it.
        }
        let messages = before.map_or(1, |it| (it.messages * 2).min(FETCH_MESSAGES_MAX));
        *fetching = Some(Fetching { at, from: covered, messages, came: Vec::new() });
        let (ballot, accepted_ballot) = (self.ballot, best.ballot);
        let message = StreamMessage::Fetch { ballot, accepted_ballot, from: covered, messages };
        effects.push(StreamEffect::Send { to: at, message });
    }

    /// Takes over the best sequence, which is the own one up to `from` and then `entries`.
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
        // What any of them knew to be decided is in the sequence.
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

    /// The time of the timer has come.
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
                // The best replica fell silent: perhaps there is a majority without it.
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

    /// When some replica will have been silent for too long.
    pub fn due(&self, options: &StreamOptions) -> Option<Time> {
        let since = match &self.phase {
            // The storage comes first, and says so.
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
                assert!(!(waits && self.has_room(replica)), "entries wait for nothing: {self:?}");
            }
        }
    }
}

/// The position to adopt: of the highest ballot, the longest. And whose it is, if not the own: of several,
/// the one that was `asked`, so that two who have the same are not asked in turns.
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

/// Keeps what continues the own sequence towards that of `ballot`.
fn stage_entries<S: StreamStorage>(
    replica: &StreamReplica<S>,
    stage: &mut AdoptedPrefix,
    ballot: Ballot,
    from: LogLength,
    entries: Vec<Bytes>,
) {
    let own = replica.position();
    let sure = if own.ballot == ballot { own.accepted } else { own.decided };
    // What does not reach beyond the own sequence is none; a snapshot may have overtaken it.
    if ballot == stage.ballot && stage.end() > sure {
        if from <= stage.end() {
            let known = stage.end().beyond(from) as usize;
            stage.entries.extend(entries.into_iter().skip(known));
        }
    } else if from <= sure {
        *stage = AdoptedPrefix { ballot, from, entries };
    }
}

/// A replica has promised: where to go on from. Its sequence is a beginning of ours as far as it is
/// decided, and if it is of the ballot we adopted, or has `joined` us, as a whole.
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
