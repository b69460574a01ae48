//! One replicated sequence of entries: MultiPaxos in its sequence form.
//!
//! ```text
//!  leader      Prepare ─► replicas ─► Promise      once, at the appointment: what is accepted?
//!              adopt the longest sequence of the highest ballot among a majority of the voters
//!              Append  ─► replicas ─► Accepted     pipelined, as far as the window goes
//!              Decide  ─► replicas                 if there is no Append to carry it
//!
//!  index       0 ...... start ........ decided ...... accepted
//!              | trimmed  |  held, never  | held, may    |
//!              |          |  changes      | be replaced  |
//! ```
//! An acceptor holds one promised ballot and one accepted sequence, and the ballot under which it
//! accepted that. There are no holes, so there are no empty entries to fill them with. Roles are
//! separate: *voters* make the majority, *learners* store the same and have no say, and a node that is
//! appointed leads, voter or not.
//!
//! # Why it is safe
//!
//! 1. Under one ballot there is one leader, and its sequence only grows. So sequences accepted under
//!    the same ballot are prefixes of each other.
//! 2. A replica moves to a ballot in one step, by accepting all that the leader had adopted (the
//!    *base*), or it stays with the ballot it had. Chosen entries are never traded for a beginning.
//! 3. An entry is decided when a majority of the voters has accepted it under the leader's ballot
//!    (the majority rule). Any later majority has a member that accepted it, or a sequence that extends it.
//! 4. What is decided is the same for ever, independent of the replica that says so. So a snapshot of it may be installed
//!    under any ballot, and changes the ballot of nothing.
//!
//! # What may go wrong around it
//!
//! Messages may be lost, repeated, reordered, and late by any time. Nodes may stop and return with
//! what their storage had persisted. A replica that lost that must not vote; it may learn.
//!
//! Read in this order: `message.rs`, `events.rs`, `core.rs`, `replica.rs`, `leader.rs`, `replicate.rs`,
//! `storage.rs`, `record.rs`, `stream_head.rs`, `memory_storage.rs`, `wire.rs`.
//!
//! Sources: Lamport, *Paxos Made Simple* (2001); Haridi, Kroll and Carbone, *Lecture Notes on
//! Leader-based Sequence Paxos* (2020), for the form without holes.

mod core;
mod events;
mod leader;
mod log_length;
mod memory_storage;
mod message;
mod options;
mod record;
mod replica;
mod replica_progress;
mod replicate;
mod storage;
mod stream_head;
#[cfg(test)]
mod wire;

pub use self::core::Stream;
pub use events::{StreamCounters, StreamEffect, StreamEvent};
pub use log_length::LogLength;
pub use memory_storage::MemoryStorage;
pub use message::StreamMessage;
pub use options::{StreamMembers, StreamOptions, StreamPlantedBugs};
pub use record::{RecordError, RecordedChanges, StreamRecord};
pub use storage::{EntryLog, Persisted, StreamStorage};
pub use stream_head::StreamHead;
