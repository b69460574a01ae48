//! Shoal's client interface. A [`Db`] is a database in this process; later also one opened from a
//! directory or reached over a network, behind the same interface.
//!
//! ```
//! # use shoal_client as shoal;
//! use shoal::{Db, Error};
//!
//! # fn main() -> Result<(), Error> {
//! let db = Db::memory();
//! let accounts = db.table("accounts")?;
//! let left = db.transact_blocking(|tx| {
//!     tx.add(accounts, b"alice", 100)?;
//!     tx.add(accounts, b"bob", 30)?;
//!     tx.add(accounts, b"alice", -30)
//! })?;
//! assert_eq!(left, 70);
//! # Ok(())
//! # }
//! ```
//!
//! Read in this order: `db.rs` (the database and how a transaction is retried), `transaction.rs` (its
//! operations), `retry.rs` and `pool.rs` (what stands behind).

mod db;
mod pool;
mod retry;
mod transaction;

pub use db::{Db, Options};
pub use transaction::{BlockingTransaction, Transaction};
pub use types::{Aborted, Conflict, Error, Rejected, Result, Rows, Scan, TableId, Unknown, limits};
