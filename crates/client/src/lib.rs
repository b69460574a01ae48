//! Shoal's client interface. A [`Db`] is a database in this process; a [`Cluster`], which
//! [`Db::connect`] reaches over a network, has the same interface.
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
//! operations), `procedure.rs` (how procedures run on it), `retry.rs` and `pool.rs` (retries and idle sessions); `remote/` has the client of a cluster.

mod db;
mod pool;
mod procedure;
mod remote;
mod retry;
mod transaction;

pub use db::{Db, Options};
pub use remote::environment;
pub use remote::{Cluster, ClusterOptions, ClusterTransaction, ConnectError, OptionsError};
pub use shoal_cluster::topology::Partitioning;
pub use shoal_net::Secret;
pub use shoal_net::client::Access;
pub use shoal_net::tls::ClientTls;
pub use shoal_types::{
    Aborted, Awaited, Cause, ClusterId, Conflict, Error, Footprint, NodeId, Procedure,
    ProcedureTransaction, Procedures, Rejected, RequestId, Result, Rows, Scan, ShardId, TableId,
    Unknown, Wait, limits,
};
pub use transaction::{BlockingTransaction, Transaction};
