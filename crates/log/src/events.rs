//! The events of a stream, and the effects of a step.

use super::{LogLength, StreamMembers, StreamMessage};
use bytes::Bytes;
use shoal_types::{Ballot, NodeId, Time};

/// Something that happens to a stream.
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
    /// This node leads no more, though no other is appointed yet. What is not decided is left to the next leader, as after a
    /// crash; what is queued is dropped.
    Resign,
    /// These replicate the stream from now on. Where other nodes vote than before, the leader here counts no more: an
    /// appointment under a higher ballot follows, here or elsewhere. Learners come and go under the same ballot.
    Members {
        /// They. This node need not be one of them.
        members: StreamMembers,
    },
    /// The leader's owner appends an entry. Never refused: the owner heeds [`Stream::has_room`](crate::Stream::has_room).
    /// Dropped and counted if this node neither leads nor prepares to.
    Propose {
        /// The bytes of the entry, which the log does not read.
        entry: Bytes,
    },
    /// A message has arrived.
    Received {
        /// The sender.
        from: NodeId,
        /// What the sender has sent.
        message: StreamMessage,
    },
    /// The time of a [`StreamEffect::Timer`] has come. Too early does no harm.
    Timer,
    /// The storage has persisted more.
    Persisted,
    /// A replica has begun a new process, perhaps without memory: its earlier messages are void.
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
        /// The replica that needs it.
        to: NodeId,
        /// The decided entries that `state` contains: from [`Stream::start`](crate::Stream::start) to [`Stream::decided`](crate::Stream::decided).
        length: LogLength,
        /// The bytes of the snapshot, which the log does not read.
        state: Bytes,
    },
}

/// An effect of a stream. The order matters: earlier ones first.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEffect {
    /// Send a message. It may get lost.
    Send {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: StreamMessage,
    },
    /// This node leads from now on. The first `length` entries are inherited: to be read by
    /// [`Stream::entry`](crate::Stream::entry), and to be decided soon.
    Leading {
        /// The appointment.
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
        /// The replica that needs the snapshot.
        to: NodeId,
    },
    /// A snapshot has arrived: replace the owner's state by `state`. Its entries count as decided; no
    /// [`StreamEffect::Decided`] reports them.
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

/// Counts of inputs that a stream has dropped, and of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCounters {
    /// Messages that no correct node sends.
    pub bad_messages: u64,
    /// Messages about what is over: to a leader that is none any more, or of an older ballot.
    pub late_messages: u64,
    /// Proposals to a node that did not lead, and those still queued when it was deposed.
    pub dropped_proposals: u64,
    /// Messages sent again without an answer.
    pub retries: u64,
    /// Messages with entries that were not taken, since the disk was too far behind.
    pub refused_appends: u64,
}
