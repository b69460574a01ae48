//! What a leader knows of another replica: what went there, what has come there, and how much may be on its way.

use super::replica::Position;
use super::{LogLength, StreamOptions};
use bytes::Bytes;
use shoal_types::{Backoff, NodeId, Time};

/// What the leader knows of another replica.
#[derive(Debug)]
pub(super) struct ReplicaProgress {
    pub id: NodeId,
    pub voter: bool,
    /// Whether its answers count for the majority, by the last of them.
    pub votes: bool,
    /// What it had accepted when it promised.
    pub promise: Option<Position>,
    /// It has accepted this much under our ballot, and persisted it. Counts as its vote.
    pub acked: LogLength,
    /// This much has come there; moves back if it asks again.
    pub received: LogLength,
    /// The round of the last question before a snapshot was sent, while no answer shows that the snapshot has arrived:
    /// `received` counts it as if it had.
    pub snapshot_after: Option<u64>,
    /// This much was sent.
    pub sent: LogLength,
    /// How many bytes may be on their way there.
    pub window: FlightWindow,
    /// The number of decided entries that was sent to it.
    pub told: LogLength,
    /// The number of decided entries that it has acknowledged.
    pub knows: LogLength,
    /// Since when it owes an answer.
    pub waiting_since: Option<Time>,
    /// It has not answered for too long: it is asked from time to time, and nothing streams there.
    pub silent: bool,
    /// How often it was asked since it stopped answering. An answer to the last of these requests is new.
    pub round: u64,
    /// Whether an `Append` went there at all: the first one may be empty, to move it to our ballot.
    pub greeted: bool,
    /// The hole that was last filled.
    pub hole: Option<Hole>,
    /// The owner was asked for a snapshot for it.
    pub snapshot_wanted: bool,
}

impl ReplicaProgress {
    /// Whether its acceptances count for the majority.
    pub fn counts(&self) -> bool {
        self.voter && self.votes
    }

    /// One of which nothing is known yet. It may have learned the round of a former process, or of a former membership, under our
    /// ballot, and names that in all its answers: so rounds go on there.
    pub fn new(
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
            snapshot_after: None,
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

/// The part of a `Promise` with the position of its sender, and the entries.
#[derive(Debug)]
pub(super) struct PromiseBody {
    pub position: Position,
    /// Where `entries` begin.
    pub from: LogLength,
    pub entries: Vec<Bytes>,
}

/// The part of an `Accepted` that shows how far its sender is.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedBody {
    pub length: LogLength,
    pub next: LogLength,
    pub until: LogLength,
    pub decided: LogLength,
    pub round: u64,
    pub votes: bool,
}
