//! The configuration manager's log in production: `openraft` under the manager's `Mailbox`, without
//! sockets.
//!
//! ```text
//!   Manager<Mailbox> ◄─ exchange, news ─ Replica ── proposals ──► openraft ◄──► Transport ◄──► others
//!      of one owner                         ▲                        │
//!                                           └──── committed ──── Storage
//! ```
//! What the manager asks of its log (`shoal_cluster::manager::Log`) is kept like this:
//!
//! 1. *One order, told to every replica from the first command on, or from a machine that has applied those before.*
//!    The library's state machine holds a machine of the manager and writes its image down every so many
//!    entries ([`RaftOptions::snapshot_every`]); then those before are removed from the log. A [`RaftReplica`] reads the
//!    snapshot that its log begins with, and then the log up to where it is committed, in each of its processes. One that is
//!    too far behind for the log of the leader is sent the snapshot, and its manager goes on from that.
//! 2. *At most one replica, in one process of it, leads in a term; a later leader in a higher one.* A
//!    term is Raft's own and the member's number; the library has no two leaders of the same two. It
//!    would let a leader that restarts go on in its term: [`start`] makes it resign first.
//! 3. *When a leader led for certain* it knows from what others acknowledge: `leadership_evidence.rs`.
//! 4. *A proposal may get lost, or be committed any time later.* Nothing waits for one. There are
//!    limits to how many are on their way; beyond, they are dropped and counted.
//!
//! A replica says that it leads when the library says so and an entry of its own term was told: then
//! everything that former leaders committed was told, too. That it leads no more it may learn late.
//!
//! A replica that restarts with its storage is what it was. One that lost it is no member: [members](LogMember) are volumes of the log, and
//! what is asked of a lost one is answered by none. It has to be [replaced](RaftHandle::replace), by another volume on
//! the same node or elsewhere.
//!
//! If a majority of the members is lost for good, another log [begins with](begin_with) what is remembered.
//!
//! Read in this order: `member.rs`, `replica.rs` with `leadership_evidence.rs`, `handle.rs`; `recovered.rs`; `config.rs`, `store.rs` with `storage/`,
//! `network.rs`; `code/`.
//!
//! Source: Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm* (ATC'14).

mod code;
mod config;
mod handle;
mod leadership_evidence;
mod member;
mod network;
mod recovered;
mod replica;
mod storage;
mod store;

pub use config::RaftOptions;
pub use handle::{ChangeError, RaftHandle, RaftStatus, RequestRefusal};
pub use member::{LogMember, LogMembers, Volume};
pub use network::{Transport, Unreachable};
pub use recovered::begin_with;
pub use replica::{RaftCounters, RaftReplica, Stopped, start};
pub use shoal_types::wire::Malformed;
pub use storage::{Cell, DiskStorage, InMemoryDisk, RaftStorage};

/// Longest command, in bytes; longer ones are not proposed. A table's splits are what is long.
pub const COMMAND_BYTES_MAX: usize = 4 << 20;

/// Where a request to another replica is cut off, in bytes: after the entry before which it would be
/// longer. With one command of the greatest size it is a little longer.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Longest machine in a snapshot that is sent to another replica, in bytes. A longer one still compacts the log; a
/// replica that needs it to catch up cannot. The splits of tables are what is long.
pub const SNAPSHOT_BYTES_MAX: usize = 8 << 20;

/// Most entries in one request.
const ENTRIES_PER_REQUEST_MAX: u64 = 300;

/// Most proposals that wait for the library.
const PROPOSALS_MAX: usize = 8192;

/// Most entries of a leader that are not committed, about: as many again may wait meanwhile.
const UNCOMMITTED_MAX: u64 = 8192;

/// Most entries told to the manager in one step.
const TOLD_AT_ONCE_MAX: u64 = 256;
