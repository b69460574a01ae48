//! Shoal: a transactional key-value store. The library.
//!
//! [`Db`] is the whole interface; everything else here appears in its operations.

pub use bytes::Bytes;
pub use shoal_client::{
    Aborted, BlockingTransaction, Conflict, Db, Error, Options, Rejected, Result, Rows, Scan,
    TableId, Transaction, Unknown, limits,
};
pub use shoal_types::{KeyExcerpt, tuple};

/// What procedures that run on any database are written against.
pub mod traits {
    pub use shoal_types::transaction::{Database, ScanEnd, Transaction};
}

/// The example in the README has to compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
