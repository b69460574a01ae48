//! The configuration manager's log in production: `openraft` under the manager's `Mailbox`, without
//! sockets.
//!
//! ```text
//!   Manager<Mailbox> ◄─ exchange, news ─ Replica ── proposals ──► openraft ◄──► Transport ◄──► others
//!      of one owner                         ▲                        │
//!                                           └──── committed ──── Storage
//! ```
//! The manager's requirements on its log (`shoal_cluster::manager::Log`) are met like this:
//!
//! 1. *Every replica receives one order of commands, from the first on, or from a snapshot of the state after
//!    the earlier ones.* The library's state machine contains a state machine of the manager, whose image is
//!    stored every so many entries ([`RaftOptions::snapshot_every`]); then the entries before are removed from
//!    the log. A [`RaftReplica`] reads the snapshot with which its log begins, and then the log up to the
//!    committed index, in each of its processes. One that is too far behind for the leader's log is sent the
//!    snapshot, and its manager continues from that.
//! 2. *At most one replica, in one process of it, leads in a term; a later leader has a higher term.* A term is
//!    Raft's own and the member's number, which no two leaders of the library share. The library would let a
//!    restarted leader continue in its term: [`start`] makes it resign first.
//! 3. *The time at which a leader last led for certain* follows from acknowledgements:
//!    `leadership_evidence.rs`.
//! 4. *A proposal may be lost, or be committed at any later time.* Nothing waits for one. The number of
//!    proposals in progress is limited; beyond that they are dropped and counted.
//!
//! A replica reports that it leads when the library does and an entry of its own term was delivered: then
//! everything that former leaders committed was delivered too. It may learn late that it leads no more.
//!
//! A replica that restarts with its storage is the same member. One that lost its storage is no member:
//! [members](LogMember) are volumes of the log, and no replica answers requests for a lost volume. It has to
//! be [replaced](RaftHandle::replace) by another volume, on the same node or elsewhere.
//!
//! If a majority of the members is lost for good, another log [begins](begin_with) with the newest state that
//! was recovered.
//!
//! Read in this order: `member.rs`, `replica.rs` with `leadership_evidence.rs`, `handle.rs`, `stopped.rs`, `counters.rs`;
//! `recovered.rs`; `config.rs`, `store.rs` with `storage/`, `network.rs`; `code/`.
//!
//! Source: Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm* (ATC'14).

mod code;
mod config;
mod counters;
mod handle;
mod leadership_evidence;
mod member;
mod network;
mod recovered;
mod replica;
mod stopped;
mod storage;
mod store;

pub use config::RaftOptions;
pub use counters::RaftCounters;
pub use handle::{ChangeError, RaftHandle, RaftStatus, RequestRefusal};
pub use member::{LogMember, LogMembers, Volume};
pub use network::{Transport, Unreachable};
pub use recovered::begin_with;
pub use replica::{RaftReplica, start};
pub use shoal_types::wire::Malformed;
pub use stopped::Stopped;
pub use storage::{Cell, DiskStorage, InMemoryDisk, RaftStorage};

/// Longest command, in bytes; longer ones are not proposed. Only the splits of tables make commands long.
pub const COMMAND_BYTES_MAX: usize = 4 << 20;

/// The length at which a request to another replica is cut, in bytes: before the entry that would exceed it.
/// With a single command of the greatest size the request is a little longer.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Longest image in a snapshot that is sent to another replica, in bytes. A longer one still compacts the
/// log, but a replica that needs it cannot catch up. Only the splits of tables make images long.
pub const SNAPSHOT_BYTES_MAX: usize = 8 << 20;

/// Most entries in one request.
const ENTRIES_PER_REQUEST_MAX: u64 = 300;

/// Most proposals that wait for the library.
const PROPOSALS_MAX: usize = 8192;

/// The number of uncommitted entries of a leader above which proposals wait; about as many may wait.
const UNCOMMITTED_MAX: u64 = 8192;

/// Most entries delivered to the manager in one step.
const TOLD_AT_ONCE_MAX: u64 = 256;
