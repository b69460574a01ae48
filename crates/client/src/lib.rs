//! Shoal's client interface. A [`Db`] is a database in this process, from [`Db::memory`], or on its disk, from
//! [`Db::open`], or a cluster, which
//! [`Db::connect`] reaches over a network: the same program runs on either.
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
//! Read in this order: `db.rs` (what users hold), `attempts.rs` (how a transaction is retried), `transaction.rs` and `future.rs` (its
//! operations); `embedded/` has the databases of this process, and `remote/` the client of a cluster.

mod attempts;
mod db;
mod embedded;
mod future;
mod remote;
mod transaction;

pub use db::Db;
#[doc(hidden)]
pub use embedded::EmbeddedPlantedBugs;
pub use embedded::{Embedded, EmbeddedTransaction, Examination, ExaminedTable, OpenError, Options};
pub use future::TransactionFuture;
pub use remote::environment;
pub use remote::{Cluster, ClusterOptions, ClusterTransaction, ConnectError, OptionsError};
pub use shoal_cluster::topology::{Partitioning, TableDefinition};
pub use shoal_disk::OpenFolderError;
pub use shoal_net::Secret;
pub use shoal_net::client::Access;
pub use shoal_net::tls::ClientTls;
pub use shoal_types::bulk_load::LoadRow;
pub use shoal_types::{
    Aborted, Awaited, Cause, ClusterId, Conflict, Error, Footprint, NodeId, Procedure,
    ProcedureTransaction, Procedures, Rejected, RequestId, Result, Rows, Scan, ShardId, TableId,
    Unknown, Wait, limits,
};
pub use shoal_wal::{
    ExaminedCheckpoint, FolderError, LogError, LogIdentity, SegmentFile, SegmentSummary, Torn,
};
pub use transaction::{BlockingTransaction, Transaction};
