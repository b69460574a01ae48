//! The messages between leaders and replicas.
//!
//! Every message carries the ballot that it belongs to. A replica that has promised a higher one answers
//! [`StreamMessage::Rejected`]; a leader ignores answers to any ballot but its own. So a message may arrive
//! arbitrarily late.

use super::LogLength;
use bytes::Bytes;
use shoal_types::Ballot;

/// A message between two nodes of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamMessage {
    /// A new leader to every replica: promise `ballot`, and report what was accepted. It carries the leader's
    /// own position, so that the answer can contain entries that the leader lacks. Legal at any time. A
    /// repeat is answered like the first.
    Prepare {
        /// The appointment.
        ballot: Ballot,
        /// The ballot of the leader's own sequence.
        accepted_ballot: Ballot,
        /// The length of that sequence.
        accepted: LogLength,
        /// The number of decided entries in it.
        decided: LogLength,
    },
    /// A replica to the leader, in answer to `Prepare` or `Fetch`: nothing below `ballot` will be accepted
    /// any more; this is what was accepted before. Sent only after the promise is persisted. A repeat has the
    /// same content: nothing changes at the replica before the leader appends.
    Promise {
        /// The promised ballot.
        ballot: Ballot,
        /// The ballot of the replica's sequence.
        accepted_ballot: Ballot,
        /// The length of that sequence.
        accepted: LogLength,
        /// The number of decided entries in it.
        decided: LogLength,
        /// The index of the first of `entries`.
        from: LogLength,
        /// The entries that the leader lacks, as many as fit; empty if it lacks none.
        entries: Vec<Bytes>,
        /// Whether the promise counts for the majority: not if the replica has lost its memory, and with it
        /// other promises.
        votes: bool,
    },
    /// A preparing leader to the replica whose sequence it is going to adopt: send more of it. Answered by
    /// `Promise` with entries, or by `Snapshot` if they are trimmed. A repeat is answered again.
    Fetch {
        /// The appointment.
        ballot: Ballot,
        /// The ballot of the sequence to send.
        accepted_ballot: Ballot,
        /// The first entry that is missing.
        from: LogLength,
        /// The most messages of the answer: more hide the distance if many entries are missing.
        messages: u64,
    },
    /// The leader to a replica that promised: append `entries` after `prev`. Without entries, it asks for an
    /// answer. Idempotent, since the leader's sequence only grows; sent again from where the replica reports
    /// to be, or if it does not answer in time.
    Append {
        /// The leader's ballot.
        ballot: Ballot,
        /// The ballot of the sequence that the leader adopted: a replica that has accepted under it has a
        /// prefix of that sequence.
        adopted: Ballot,
        /// The length of that sequence. A replica moves to `ballot` when it has all of it.
        base: LogLength,
        /// The index of the first of `entries`.
        prev: LogLength,
        /// The entries to append.
        entries: Vec<Bytes>,
        /// The number of decided entries.
        decided: LogLength,
        /// The number of entries that every replica has accepted.
        everywhere: LogLength,
        /// How often the leader has asked this replica since it stopped answering.
        round: u64,
    },
    /// A replica to the leader, in answer to `Append` or `Snapshot`, or when more is persisted: its progress,
    /// cumulative. An older one that arrives late is recognised by its lower values.
    Accepted {
        /// The leader's ballot.
        ballot: Ballot,
        /// The number of entries accepted under `ballot` and persisted; 0 while the base is incomplete.
        length: LogLength,
        /// The index of the first entry that was not received.
        next: LogLength,
        /// If greater than `next`: an entry from `until` on was received, and those between were overtaken or
        /// lost.
        until: LogLength,
        /// The number of entries that the replica knows to be decided.
        decided: LogLength,
        /// The greatest round of the `Append`s received: so the leader knows which of its questions this
        /// answer is newer than.
        round: u64,
        /// Whether the acceptance counts for the majority.
        votes: bool,
    },
    /// The leader to a replica, when entries were decided and there is none to append. May be lost: the next
    /// `Append` carries the same, and an empty one is sent if the replica does not acknowledge.
    Decide {
        /// The leader's ballot.
        ballot: Ballot,
        /// The number of decided entries.
        decided: LogLength,
        /// The number of entries that every replica has accepted.
        everywhere: LogLength,
    },
    /// The leader to a replica, or the best replica to a preparing leader: the state after the first `length`
    /// entries, which are trimmed. All of them are decided. A snapshot of fewer entries than are decided at
    /// the receiver is ignored.
    Snapshot {
        /// The leader's ballot.
        ballot: Ballot,
        /// The entries that the state contains.
        length: LogLength,
        /// The owner's state, opaque to the log.
        state: Bytes,
    },
    /// A replica to a leader that is deposed and does not know it: a higher ballot was promised. A repeat has
    /// no effect on a deposed leader.
    Rejected {
        /// The rejected ballot.
        ballot: Ballot,
        /// The promised ballot.
        promised: Ballot,
    },
}

impl StreamMessage {
    /// The ballot that the message belongs to.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        match self {
            StreamMessage::Prepare { ballot, .. }
            | StreamMessage::Promise { ballot, .. }
            | StreamMessage::Fetch { ballot, .. }
            | StreamMessage::Append { ballot, .. }
            | StreamMessage::Accepted { ballot, .. }
            | StreamMessage::Decide { ballot, .. }
            | StreamMessage::Snapshot { ballot, .. }
            | StreamMessage::Rejected { ballot, .. } => *ballot,
        }
    }
}
