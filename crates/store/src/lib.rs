//! Shoal's store: an ordered concurrent index over versioned records, and optimistic concurrency
//! control over them. In memory, in one process; no networking.
//!
//! A [`Store`] has tables. A [`Session`] is one user's place in it: a guard against reclamation,
//! buffers, a share of the memory count. A [`Transaction`] reads and buffers writes on a session;
//! then it locks, draws a shard clock, validates and installs, all at once
//! ([`Transaction::commit`]) or step by step for an engine that has shards to ask in between
//! ([`Transaction::lock`] and [`Locked`]).
//!
//! ```
//! use shoal_store::{Options, Store};
//! use std::sync::Arc;
//!
//! let store = Arc::new(Store::new(Options::default()));
//! let table = store.table("accounts")?;
//! let mut session = store.session()?;
//! let tx = session.begin();
//! tx.put(table, b"alice", b"10")?;
//! assert_eq!(tx.get(table, b"alice")?, Some(b"10".as_slice()));
//! tx.commit()?;
//! # Ok::<(), shoal_types::Error>(())
//! ```
//!
//! Read in this order: `key.rs`, `version.rs` and `record.rs` (what is stored), `index/` and `lookup_cache.rs` (where),
//! `reclaim.rs` and `memory.rs` (allocation and reclamation), `transaction/` (transactions on it),
//! `discard.rs` (how certified versions are rolled back), `trim.rs` (how overwritten ones are freed), `change.rs`, `replay.rs`
//! and `copy.rs` (what replicas take and give), `tables.rs` (which tables
//! are open, and which were dropped).
//!
//! This is the only crate with `unsafe`, but for a system call in `net`. Its invariant: all memory that can be reached through
//! the index while a session is pinned stays allocated until the session is unpinned.

#[cfg(feature = "bare")]
pub mod bare;
mod change;
mod copy;
mod discard;
mod faults;
mod guarded;
mod index;
mod key;
mod lookahead;
mod lookup_cache;
mod memory;
mod reclaim;
mod record;
mod removals;
mod replay;
mod session;
mod store;
mod sync;
mod tables;
mod transaction;
mod trim;
mod version;
mod walk;
mod work;

pub use change::{Change, Delta, DeltaUse, VersionOrder};
pub use copy::{Copied, CopyPart};
pub use discard::{RollBack, RolledBack};
pub use faults::{StoreBug, StoreBugs};
pub use replay::{ReplayRule, Replayed, ReplayedWrite};
pub use session::Session;
pub use store::{Options, Store};
pub use transaction::{Locked, LockedWrite, Locking, Size, Transaction};
pub use trim::TrimQueue;
pub use version::VersionRef;
pub use walk::WalkPlace;
