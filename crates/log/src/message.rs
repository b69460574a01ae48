//! What leaders and replicas tell each other.
//!
//! Every message names the ballot it belongs to. A replica that has promised a higher one answers
//! [`StreamMessage::Rejected`]; a leader ignores answers to any ballot but its own. So messages may come
//! late by any time.

use super::LogLength;
use bytes::Bytes;
use shoal_types::Ballot;

/// A message between two nodes of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamMessage {
    /// A new leader to every replica: promise `ballot`, and say what you have accepted. It also says
    /// what the leader has, so that the answer can bring what it lacks. Legal at any time. A repeat
    /// is answered like the first.
    Prepare {
        /// The appointment.
        ballot: Ballot,
        /// The ballot of the leader's own sequence,
        accepted_ballot: Ballot,
        /// its length,
        accepted: LogLength,
        /// and how much of it is decided.
        decided: LogLength,
    },
    /// A replica to the leader, in answer to `Prepare` or `Fetch`: nothing below `ballot` will be
    /// accepted here any more, and this is what was. Sent only when the promise is persisted. A
    /// repeat says the same: nothing changes here before the leader appends.
    Promise {
        /// What is promised.
        ballot: Ballot,
        /// The ballot of the replica's sequence,
        accepted_ballot: Ballot,
        /// its length,
        accepted: LogLength,
        /// and how much of it is decided.
        decided: LogLength,
        /// Where `entries` begin.
        from: LogLength,
        /// As much as fits of what the leader lacks; none where the leader lacks nothing.
        entries: Vec<Bytes>,
        /// Whether it counts for the majority: not where memory is lost, and with it other promises.
        votes: bool,
    },
    /// A leader that prepares, to the replica whose sequence it is going to adopt: send me more of it.
    /// Answered by `Promise` with entries, or by `Snapshot` where they are trimmed. A repeat is
    /// answered again.
    Fetch {
        /// The appointment.
        ballot: Ballot,
        /// Of which sequence.
        accepted_ballot: Ballot,
        /// The first entry that is missing.
        from: LogLength,
        /// In at most so many messages: more hide the distance where much is missing.
        messages: u64,
    },
    /// The leader to a replica that promised: append `entries` after `prev`. With none, it asks for an
    /// answer. Idempotent, since the leader's sequence only grows; sent again from where the replica
    /// says, or after silence.
    Append {
        /// The leader's.
        ballot: Ballot,
        /// The ballot of the sequence that the leader adopted: who has accepted under it has a
        /// beginning of that sequence.
        adopted: Ballot,
        /// The length of that sequence. A replica moves to `ballot` when it has all of it.
        base: LogLength,
        /// Where `entries` begin.
        prev: LogLength,
        /// What to append.
        entries: Vec<Bytes>,
        /// How much is decided.
        decided: LogLength,
        /// How much every replica has accepted.
        everywhere: LogLength,
        /// How often the leader has asked this replica after it had fallen silent.
        round: u64,
    },
    /// A replica to the leader, in answer to `Append`, `Snapshot`, or when more is persisted: how far
    /// it is. Counts for all before. An older one that comes later is recognised by being less.
    Accepted {
        /// The leader's.
        ballot: Ballot,
        /// Accepted under `ballot`, and persisted; 0 while the base is incomplete.
        length: LogLength,
        /// The first entry that has not come.
        next: LogLength,
        /// If greater than `next`: something beyond has come, these between were overtaken or lost.
        until: LogLength,
        /// How much the replica knows to be decided.
        decided: LogLength,
        /// The greatest round of an `Append` that has come: so the leader knows after which of its
        /// questions this was said.
        round: u64,
        /// Whether it counts for the majority.
        votes: bool,
    },
    /// The leader to a replica, when entries were decided and nothing is to be appended. May be lost:
    /// the next `Append` says it again, and silence brings an empty one.
    Decide {
        /// The leader's.
        ballot: Ballot,
        /// How much is decided.
        decided: LogLength,
        /// How much every replica has accepted.
        everywhere: LogLength,
    },
    /// The leader to a replica, or the best replica to a leader that prepares: what the entries before
    /// `length` made, since they are trimmed. All of them are decided. One that brings nothing new is
    /// ignored.
    Snapshot {
        /// The leader's.
        ballot: Ballot,
        /// The entries that the state contains.
        length: LogLength,
        /// The owner's; opaque.
        state: Bytes,
    },
    /// A replica to a leader that is deposed without knowing: a higher ballot was promised. A repeat
    /// finds the leader deposed.
    Rejected {
        /// What was refused.
        ballot: Ballot,
        /// What was promised instead.
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
