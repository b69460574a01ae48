//! Shoal: a transactional key-value store. The library.
//!
//! [`Db`] is the whole interface of a client, embedded or connected; everything else at the root of this crate appears in
//! its operations, or is what only one of both has: [`Embedded`] and [`Cluster`].
//! [`server`] is for programs that are nodes of a cluster themselves.

pub use bytes::Bytes;
pub use shoal_client::{
    Aborted, Access, Awaited, BlockingTransaction, Cause, ClientTls, Cluster, ClusterId,
    ClusterOptions, ClusterTransaction, Conflict, ConnectError, Db, Embedded, EmbeddedTransaction,
    Error, FolderError, LogError, NodeId, OpenError, OpenFolderError, Options, OptionsError,
    Partitioning, Procedure, ProcedureTransaction, Procedures, Rejected, RequestId, Result, Rows,
    Scan, Secret, ShardId, TableId, Transaction, TransactionFuture, Unknown, Wait, limits,
};
pub use shoal_types::{KeyExcerpt, tuple};

/// What the folder of a database on disk holds.
pub mod examine {
    pub use shoal_client::{
        Examination, ExaminedCheckpoint, ExaminedTable, LogIdentity, SegmentFile, SegmentSummary,
        Torn,
    };
}

/// A node of a cluster within a program of one's own, which adds procedures that its clients call by name.
/// `examples/procedures.rs` shows one, and its client.
#[cfg(feature = "server")]
pub mod server {
    pub use shoal_server::{
        ConfigError, NodeConfig, Server, ServerBuilder, ServerEnd, ServerStartError,
    };
}

/// What a procedure can say ahead of what it touches.
pub mod footprint {
    pub use shoal_types::procedure::{Access, Footprint, FootprintKey, FootprintRange, Shape};
}

/// What procedures that run on any database are written against.
pub mod traits {
    pub use shoal_types::bulk_load::LoadRow;
    pub use shoal_types::procedure::Call;
    pub use shoal_types::transaction::{Database, ScanEnd, Transaction};
}

/// The example in the README has to compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// And so have those of the quickstart.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/quickstart.md")]
struct Quickstart;
