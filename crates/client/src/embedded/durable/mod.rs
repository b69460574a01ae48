//! The embedded database on disk: its transactions in a write-ahead log, its state in checkpoints.
//!
//! ```text
//! commit    lock ─ encode ─ draw clock ─ validate ─ install ─► inbox          on the caller's thread
//! log       inbox ─ in the order of clocks, without a gap ─► groups, flushed   on the thread of the log
//! reply     when the clocks of all that was written and read are durable
//! ```
//! # Why a crash leaves exactly the transactions up to one clock
//!
//! The log has the transactions in the order of their clocks, without a gap: a clock that was drawn is waited for, until its
//! transaction is there, or was found to have failed. What a crash leaves of a log is its beginning. So what is restored
//! are the transactions up to one clock, and all that were acknowledged, since their records were flushed.
//!
//! That is a state that once was, because clocks are a serial order of what was written. A clock is drawn from one counter
//! while the transaction holds all its locks, and before it validates what it read. Let T depend on U in one of three ways:
//! - T overwrote what U wrote, or read it. Then U had installed it, so had drawn its clock, before T had the lock,
//!   or had read it, and T drew its own later.
//! - T overwrote what U had read, or put a key into a range that U had scanned. U found that unchanged and unlocked when it
//!   validated, after it had drawn its clock. T has the lock, or its placeholder in the index, later than that, and draws
//!   its clock under it.
//!
//! In all of them U has the lower clock.
//!
//! A transaction that wrote nothing is answered when the greatest clock among the versions that it read is durable. Where a key
//! was absent it read the tombstone, if there was one: tombstones stay in the index until they are durable.
//!
//! # Checkpoints
//!
//! A checkpoint is a walk over the store while it is used. It notes the last clock C0 that is in the log, with all
//! transactions up to it installed, and the segment of the log that later ones are in; then it writes the newest version of
//! each key, with its clock; then, when all clocks drawn so far are durable, C1, the last of them that has a record. So it has at
//! least the versions up to C0, and none above C1. Restoring it, the transactions above C0 are replayed; on each key the greatest
//! clock wins. If the log does not reach C1, it is damaged: it was durable that far.
//!
//! # Deltas
//!
//! A row that changes in few places is in the log as a delta on its former version, which that log, or the checkpoint, has before
//! it; but not where the row was deleted above C0, or its table dropped, and the walk came by later and found nothing. Then the
//! base of a delta above C0 is missing, and so is that of each until the deletion, which the log has, since C1 is not below its
//! clock. These deltas are passed over. A key whose bases are missing at the end of the log is damage,
//! and so is a delta that does not fit the row that is there.
//!
//! Read in this order: `records.rs`, `clock_order.rs`, `durable_clock.rs`, `shared.rs`, `durability.rs`, `log_thread.rs`, `restore.rs`,
//! `checkpoint.rs`, `backup.rs`, `log.rs`, `examine.rs`.

mod backup;
mod checkpoint;
mod clock_order;
mod durability;
mod durable_clock;
mod examine;
mod log;
mod log_thread;
mod open_error;
mod records;
mod restore;
mod shared;
#[cfg(test)]
mod tests;

pub(super) use durability::Durability;
pub use examine::{Examination, ExaminedTable};
pub(super) use log::{DurableLog, LogOptions};
pub use open_error::OpenError;
