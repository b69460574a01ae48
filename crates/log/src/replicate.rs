//! Replication by a leader that has prepared: append, count, decide, and bring lagging peers up to date.
//!
//! ```text
//! log      decided ....................... accepted | queue
//!          |            the window                  |
//! a peer        acked ... received ... sent
//!                         | in flight  |
//! ```
//! New entries are sent at once, in one message for each peer, with the number of decided ones. A peer that
//! reports a hole is sent just that; one that does not answer in time is asked from its last known position,
//! one message at a time, until it answers.

use super::leader::{LeaderPhase, StreamLeader};
use super::replica::StreamReplica;
use super::replica_progress::{AcceptedBody, FlightWindow, Hole, ReplicaProgress};
use super::{LogLength, StreamEffect, StreamMessage, StreamOptions, StreamStorage};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId, Time};

/// The fields that are the same in every `Append` of a leader.
#[derive(Debug, Clone, Copy)]
struct AppendHeader {
    ballot: Ballot,
    adopted: Ballot,
    base: LogLength,
}

impl StreamLeader {
    fn head(&self) -> Option<AppendHeader> {
        match self.phase {
            LeaderPhase::Preparing { .. } => None,
            LeaderPhase::Leading { adopted, base } => {
                Some(AppendHeader { ballot: self.ballot, adopted, base })
            }
        }
    }

    pub fn unacknowledged<S: StreamStorage>(&self, replica: &StreamReplica<S>) -> u64 {
        replica.accepted().beyond(replica.storage.decided()) + self.queue.len() as u64
    }

    pub fn has_room<S: StreamStorage>(&self, replica: &StreamReplica<S>) -> bool {
        self.is_leading() && self.queue.is_empty() && self.window_is_open(replica)
    }

    pub fn on_propose<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        entry: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        self.queue.push_back(entry);
        if self.is_leading() {
            self.pump(replica, now, effects);
        }
    }

    /// Moves entries as far as possible: from the queue into the log, from accepted to decided, and from here
    /// to the peers.
    pub fn pump<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        let head = self.head().expect("called by those who lead");
        for peer in &mut self.peers {
            peer.window.received(peer.received, now, &replica.options);
        }
        loop {
            while !self.queue.is_empty() && self.window_is_open(replica) {
                let entry = self.queue.pop_front().expect("it is not empty");
                replica.storage.append(entry);
            }
            if !self.decide(replica) || self.queue.is_empty() {
                break;
            }
        }
        self.note_everywhere(replica);
        for peer in &mut self.peers {
            if peer.promise.is_some() && !peer.silent && !peer.snapshot_wanted {
                stream_to(peer, head, replica, now, effects);
            }
            let behind = peer.promise.is_none()
                || peer.acked < replica.accepted()
                || peer.knows < replica.storage.decided()
                // Until its vote counts: the message that enables it may have been lost.
                || (peer.voter && !peer.votes);
            peer.waiting_since = behind.then(|| peer.waiting_since.unwrap_or(now));
        }
    }

    /// Whether another entry may be appended: the undecided ones fit into the largest window of a peer, and the disk is not too far
    /// behind.
    pub fn window_is_open<S: StreamStorage>(&self, replica: &StreamReplica<S>) -> bool {
        let (log, decided) = (replica.storage.log(), replica.storage.decided());
        let flying = log.length().beyond(decided);
        let windows = self.peers.iter().map(|peer| peer.window.bytes);
        let bytes_max = windows.max().unwrap_or(replica.options.window_bytes);
        let fits = flying < replica.options.window_entries
            && log.bytes_between(decided, log.length()) < bytes_max;
        replica.has_room_to_lead() && (flying == 0 || fits)
    }

    /// Decides what a majority of the voters has accepted under this ballot: the majority rule.
    fn decide<S: StreamStorage>(&mut self, replica: &mut StreamReplica<S>) -> bool {
        let count_learner = replica.options.faults.count_learner;
        let voters = self.peers.iter().filter(|peer| peer.counts() || count_learner);
        self.tally.clear();
        self.tally.extend(voters.map(|peer| peer.acked));
        if self.votes(replica) || count_learner {
            self.tally.push(replica.persisted());
        }
        self.tally.sort_unstable_by(|a, b| b.cmp(a));
        let majority = replica.members.voters.len() / 2;
        let decided = self.tally.get(majority).copied().unwrap_or_default();
        let moves = decided > replica.storage.decided();
        if moves {
            let holds = |peer: &&ReplicaProgress| peer.counts() && peer.acked >= decided;
            let own = usize::from(self.votes(replica) && replica.persisted() >= decided);
            let votes = self.peers.iter().filter(holds).count() + own;
            assert!(
                replica.members.is_majority(votes) || count_learner,
                "majority: {decided:?} is decided by {votes} votes: {self:?}"
            );
            replica.storage.decide(decided);
        }
        moves
    }

    fn note_everywhere<S: StreamStorage>(&self, replica: &mut StreamReplica<S>) {
        let own = if self.is_member { replica.persisted() } else { replica.accepted() };
        let least = self.peers.iter().map(|peer| peer.acked).fold(own, LogLength::min);
        replica.everywhere = replica.everywhere.max(least.min(replica.storage.decided()));
    }

    pub fn on_accepted<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        place: usize,
        answer: AcceptedBody,
        effects: &mut Vec<StreamEffect>,
    ) {
        let AcceptedBody { length, next, until, decided, round, votes } = answer;
        let head = self.head();
        let peer = &mut self.peers[place];
        let ordered = length <= next && next <= until && decided <= next && round <= peer.round;
        let Some(head) = head.filter(|_| ordered && until <= replica.accepted() && peer.greeted)
        else {
            replica.counters.bad_messages += 1;
            return;
        };
        if next < peer.acked {
            // The peer reports less than it acknowledged. Either the answer is older, or the peer has lost
            // its memory: the latter is believed only if this answers the last question.
            if !peer.silent || round < peer.round {
                replica.counters.late_messages += 1;
                return;
            }
            peer.acked = length;
            peer.knows = decided;
            (peer.received, peer.sent) = (next, next);
        }
        // The snapshot that was sent to it was lost or refused, if it answers a question that was asked after the snapshot:
        // where a round trip takes longer than `retry_after`, no answer is to the last question (seed 62490).
        if next < peer.received && peer.snapshot_after.is_some_and(|before| round > before) {
            (peer.received, peer.sent) = (next, next);
        }
        if next >= peer.received {
            peer.snapshot_after = None;
        }
        if length > peer.acked || next > peer.received || decided > peer.knows || peer.silent {
            peer.waiting_since = Some(now);
        }
        peer.silent = false;
        peer.votes = votes;
        peer.acked = peer.acked.max(length);
        peer.knows = peer.knows.max(decided);
        peer.received = peer.received.max(next);
        peer.sent = peer.sent.max(next);
        // An answer that others have overtaken reports a hole that was filled since: were each of them believed, what is sent again
        // would bring more such answers than it takes away where all messages change places (seed 134257898).
        if until > next && next >= peer.received {
            fill(peer, head, replica, now, next, until, effects);
        }
        self.pump(replica, now, effects);
    }

    /// The owner has made the snapshot that a peer needs.
    pub fn on_snapshot_taken<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        to: NodeId,
        length: LogLength,
        state: Bytes,
        effects: &mut Vec<StreamEffect>,
    ) {
        let leading = self.is_leading();
        let wanted = |peer: &&mut ReplicaProgress| peer.id == to && peer.snapshot_wanted && leading;
        let Some(peer) = self.peers.iter_mut().find(wanted) else { return };
        let ballot = self.ballot;
        effects.push(StreamEffect::Send {
            to,
            message: StreamMessage::Snapshot { ballot, length, state },
        });
        peer.snapshot_wanted = false;
        peer.hole = peer.hole.map(|hole| Hole { filled_at: now, ..hole });
        peer.waiting_since = Some(now);
        peer.snapshot_after = Some(peer.round);
        peer.received = peer.received.max(length);
        peer.sent = peer.sent.max(length);
        self.pump(replica, now, effects);
    }

    /// Asks peers that have not answered in time, each with one message.
    pub fn retry<S: StreamStorage>(
        &mut self,
        replica: &mut StreamReplica<S>,
        now: Time,
        effects: &mut Vec<StreamEffect>,
    ) {
        let head = self.head().expect("called by those who lead");
        let due = |since: Time| since + replica.options.retry_after <= now;
        for place in 0..self.peers.len() {
            if !self.peers[place].waiting_since.is_some_and(due) {
                continue;
            }
            let prepare = self.prepare(replica, self.peers[place].id);
            let peer = &mut self.peers[place];
            peer.waiting_since = Some(now);
            if peer.promise.is_none() {
                effects.push(prepare);
            } else if peer.snapshot_wanted {
                continue; // It waits for our owner's snapshot, not for a message.
            } else if peer.received < replica.storage.log().start() {
                want_snapshot(peer, peer.received, now, &replica.options, effects);
            } else {
                // A replica that only lacks the number of decided entries is still streamed to.
                peer.silent = peer.acked < replica.accepted();
                peer.round += u64::from(peer.silent);
                peer.sent = peer.received;
                peer.window = FlightWindow::new(&replica.options);
                let (log, accepted) = (replica.storage.log(), replica.accepted());
                let end = log.fit(peer.sent, accepted, replica.options.message_bytes_max);
                // A long message may still be in flight, and is not sent twice at once: the peer is asked
                // first.
                let is_long = log.bytes_between(peer.sent, end) > RESENT_BYTES_MAX;
                let until = if is_long { peer.sent } else { accepted };
                send_append(peer, head, replica, until, effects);
            }
            replica.counters.retries += 1;
        }
    }
}

/// More bytes than this are not sent again to a peer that does not answer before it reports that it lacks
/// them: a slow one would receive them twice, and become slower.
const RESENT_BYTES_MAX: u64 = 64 << 10;

/// Sends a peer its new entries, as far as its window allows.
fn stream_to<S: StreamStorage>(
    peer: &mut ReplicaProgress,
    head: AppendHeader,
    replica: &StreamReplica<S>,
    now: Time,
    effects: &mut Vec<StreamEffect>,
) {
    let log = replica.storage.log();
    if peer.sent < log.start() {
        return want_snapshot(peer, peer.sent, now, &replica.options, effects);
    }
    let options = &replica.options;
    let (first, received) = (peer.sent, peer.received.max(log.start()));
    while peer.sent < log.length() {
        let room = options.window_entries.saturating_sub(peer.sent.beyond(received));
        let full = log.bytes_between(received, peer.sent) >= peer.window.bytes;
        // Limits the step: the rest follows when some of this is acknowledged.
        let enough = log.bytes_between(first, peer.sent) >= options.window_bytes;
        if room == 0 || (full && peer.sent > received) || (enough && peer.sent > first) {
            break;
        }
        let until = log.length().min(LogLength(peer.sent.0 + room));
        send_append(peer, head, replica, until, effects);
    }
    if peer.sent > first && log.bytes_between(received, peer.sent) >= peer.window.bytes {
        peer.window.filled(peer.sent, now);
    }
    if peer.sent < log.length() {
        return;
    }
    let decided = replica.storage.decided();
    if !peer.greeted {
        send_append(peer, head, replica, peer.sent, effects);
    } else if peer.told < decided {
        peer.told = decided;
        let (ballot, everywhere) = (head.ballot, replica.everywhere);
        let message = StreamMessage::Decide { ballot, decided, everywhere };
        effects.push(StreamEffect::Send { to: peer.id, message });
    }
}

/// Sends one message with the entries from `peer.sent` to before `until`, as many as fit.
fn send_append<S: StreamStorage>(
    peer: &mut ReplicaProgress,
    head: AppendHeader,
    replica: &StreamReplica<S>,
    until: LogLength,
    effects: &mut Vec<StreamEffect>,
) {
    let (prev, log) = (peer.sent, replica.storage.log());
    let end = log.fit(prev, until, replica.options.message_bytes_max);
    effects.push(append(peer, head, replica, prev, log.entries(prev, end)));
    peer.greeted = true;
    peer.sent = end;
    peer.told = replica.storage.decided();
}

fn append<S: StreamStorage>(
    to: &ReplicaProgress,
    head: AppendHeader,
    replica: &StreamReplica<S>,
    prev: LogLength,
    entries: Vec<Bytes>,
) -> StreamEffect {
    let AppendHeader { ballot, adopted, base } = head;
    let (decided, everywhere) = (replica.storage.decided(), replica.everywhere);
    let round = to.round;
    let message =
        StreamMessage::Append { ballot, adopted, base, prev, entries, decided, everywhere, round };
    StreamEffect::Send { to: to.id, message }
}

/// Sends what a peer reports to be missing, once in a while for the same hole: all that overtook it
/// reports it too. And each time it waits for longer: a peer that cannot keep up would be kept busy with what
/// it was sent before, for ever.
fn fill<S: StreamStorage>(
    peer: &mut ReplicaProgress,
    head: AppendHeader,
    replica: &StreamReplica<S>,
    now: Time,
    next: LogLength,
    until: LogLength,
    effects: &mut Vec<StreamEffect>,
) {
    let same = peer.hole.filter(|hole| hole.next == next);
    let is_early = |hole: Hole| now < hole.filled_at + hole.backoff.bound();
    if peer.snapshot_wanted || same.is_some_and(is_early) {
        return;
    }
    let log = replica.storage.log();
    if next < log.start() {
        return want_snapshot(peer, next, now, &replica.options, effects);
    }
    peer.hole = Some(match same {
        Some(hole) => hole.filled_again(now),
        None => Hole::new(next, now, &replica.options),
    });
    let end = log.fit(next, until, replica.options.message_bytes_max);
    effects.push(append(peer, head, replica, next, log.entries(next, end)));
    if end < until {
        // Too much for one message: stream on from there.
        peer.received = next;
        peer.sent = end;
    }
}

fn want_snapshot(
    peer: &mut ReplicaProgress,
    next: LogLength,
    now: Time,
    options: &StreamOptions,
    effects: &mut Vec<StreamEffect>,
) {
    peer.hole = Some(Hole::new(next, now, options));
    peer.snapshot_wanted = true;
    effects.push(StreamEffect::SnapshotWanted { to: peer.id });
}
