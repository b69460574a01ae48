//! The decided rows of a table.

use crate::digest::Digest;
use bytes::Bytes;
use shoal_types::wire::Coded;
use std::collections::BTreeMap;

/// The rows of a table, by their keys.
pub type Table = BTreeMap<Bytes, Row>;

/// A row, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Row {
    /// `None`: there is none, or no more.
    pub value: Option<Bytes>,
    /// Of the last transaction that declared it as written.
    pub digest: Digest,
    /// Of the value; 0 where there is none. What is left of a deleted row is dropped at some time, and a leader that compares
    /// versions again has to come to the same verdict.
    pub version: u64,
}

impl Row {
    /// A row that was never written.
    pub const ABSENT: Row = Row { value: None, digest: Digest::NONE, version: 0 };
}
