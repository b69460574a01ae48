//! The messages between leaders and replicas.
//!
//! Every message carries the ballot that it belongs to. A replica that has promised a higher one answers
//! [`StreamMessage::Rejected`]; a leader ignores answers to any ballot but its own. So a message may arrive
//! arbitrarily late.

use super::LogLength;
use bytes::Bytes;
use shoal_types::Ballot;
use shoal_types::wire::Coded;

/// A message between two nodes of a stream.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum StreamMessage {
    /// A new leader to every replica: promise `ballot`, and report what you have accepted. It also contains
    /// what the leader has, so that the answer can bring what it lacks. Legal at any time. A repeat is
    /// answered like the first.
    #[coded(tag = 0)]
    Prepare {
        /// The ballot of the new leader's appointment.
        #[coded(short)]
        ballot: Ballot,
        /// The ballot of the leader's own sequence.
        #[coded(short)]
        accepted_ballot: Ballot,
        /// The length of that sequence.
        #[coded(short)]
        accepted: LogLength,
        /// How much of it is known to be decided.
        #[coded(short)]
        decided: LogLength,
    },
    /// A replica to the leader, in answer to `Prepare` or `Fetch`: nothing below `ballot` will be
    /// accepted here any more, and this is what was. Sent only when the promise is persisted. A
    /// repeat says the same: nothing changes here before the leader appends.
    #[coded(tag = 1)]
    Promise {
        /// What is promised.
        #[coded(short)]
        ballot: Ballot,
        /// The ballot of the replica's sequence.
        #[coded(short)]
        accepted_ballot: Ballot,
        /// The length of that sequence.
        #[coded(short)]
        accepted: LogLength,
        /// How much of it is known to be decided.
        #[coded(short)]
        decided: LogLength,
        /// Where `entries` begin.
        #[coded(short)]
        from: LogLength,
        /// As much as fits of what the leader lacks; none where the leader lacks nothing.
        #[coded(short)]
        entries: Vec<Bytes>,
        /// Whether the promise counts for the majority: not if the replica has lost its memory, and with it
        /// other promises.
        votes: bool,
    },
    /// A leader that prepares, to the replica whose sequence it is going to adopt: send me more of it.
    /// Answered by `Promise` with entries, or by `Snapshot` where they are trimmed. A repeat is
    /// answered again.
    #[coded(tag = 2)]
    Fetch {
        /// The ballot of the new leader's appointment.
        #[coded(short)]
        ballot: Ballot,
        /// Of which sequence.
        #[coded(short)]
        accepted_ballot: Ballot,
        /// The first entry that is missing.
        #[coded(short)]
        from: LogLength,
        /// In at most so many messages: more hide the distance where much is missing.
        #[coded(short)]
        messages: u64,
    },
    /// The leader to a replica that promised: append `entries` after `prev`. With none, it asks for an
    /// answer. Idempotent, since the leader's sequence only grows; sent again from where the replica
    /// says, or after silence.
    #[coded(tag = 3)]
    Append {
        /// The ballot of the leader.
        #[coded(short)]
        ballot: Ballot,
        /// The ballot of the sequence that the leader adopted: a replica that has accepted under it has a
        /// beginning of that sequence.
        #[coded(short)]
        adopted: Ballot,
        /// The length of that sequence. A replica moves to `ballot` when it has all of it.
        #[coded(short)]
        base: LogLength,
        /// Where `entries` begin.
        #[coded(short)]
        prev: LogLength,
        /// How much is decided.
        #[coded(short)]
        decided: LogLength,
        /// How much every replica has accepted.
        #[coded(short)]
        everywhere: LogLength,
        /// How often the leader has asked this replica since it stopped answering.
        #[coded(short)]
        round: u64,
        /// What to append.
        #[coded(short)]
        entries: Vec<Bytes>,
    },
    /// A replica to the leader, in answer to `Append`, `Snapshot`, or when more is persisted: how far
    /// it is. Counts for all before. An older one that comes later is recognised by being less.
    #[coded(tag = 4)]
    Accepted {
        /// The ballot of the leader.
        #[coded(short)]
        ballot: Ballot,
        /// Accepted under `ballot`, and persisted; 0 while the base is incomplete.
        #[coded(short)]
        length: LogLength,
        /// The first entry that has not come.
        #[coded(short)]
        next: LogLength,
        /// If greater than `next`: something beyond has come, these between were overtaken or lost.
        #[coded(short)]
        until: LogLength,
        /// How much the replica knows to be decided.
        #[coded(short)]
        decided: LogLength,
        /// The greatest round of an `Append` that has come: so the leader knows after which of its
        /// questions this was said.
        #[coded(short)]
        round: u64,
        /// Whether the acceptance counts for the majority.
        votes: bool,
    },
    /// The leader to a replica, when entries were decided and nothing is to be appended. May be lost:
    /// the next `Append` says it again, and silence brings an empty one.
    #[coded(tag = 5)]
    Decide {
        /// The ballot of the leader.
        #[coded(short)]
        ballot: Ballot,
        /// How much is decided.
        #[coded(short)]
        decided: LogLength,
        /// How much every replica has accepted.
        #[coded(short)]
        everywhere: LogLength,
    },
    /// The leader to a replica, or the best replica to a leader that prepares: what the entries before
    /// `length` made, since they are trimmed. All of them are decided. One that brings nothing new is
    /// ignored.
    #[coded(tag = 6)]
    Snapshot {
        /// The ballot of the leader.
        #[coded(short)]
        ballot: Ballot,
        /// The entries that the state contains.
        #[coded(short)]
        length: LogLength,
        /// The owner's state, opaque to the log.
        state: Bytes,
    },
    /// A replica to a leader that is deposed without knowing: a higher ballot was promised. A repeat
    /// finds the leader deposed.
    #[coded(tag = 7)]
    Rejected {
        /// What was refused.
        #[coded(short)]
        ballot: Ballot,
        /// What was promised instead.
        #[coded(short)]
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
