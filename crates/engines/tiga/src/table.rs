//! The decided rows of a table: found by a hash, and scanned in order.
//!
//! Each transaction finds its rows several times at each replica: for digests, to execute, when it is appended and when it is
//! decided. In a tree each of that would be a dozen comparisons, each elsewhere in memory.

use crate::digest::Digest;
use bytes::Bytes;
use shoal_types::wire::Coded;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

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

/// The rows of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: HashMap<Bytes, Row>,
    keys: BTreeSet<Bytes>,
}

impl Table {
    /// The row of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Row> {
        self.rows.get(key)
    }

    /// The row of a key, to change it.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Row> {
        self.rows.get_mut(key)
    }

    /// Adds a row, or replaces it.
    pub fn insert(&mut self, key: Bytes, row: Row) {
        if self.rows.insert(key.clone(), row).is_none() {
            self.keys.insert(key);
        }
    }

    /// Takes a row out.
    pub fn remove(&mut self, key: &[u8]) {
        if self.rows.remove(key).is_some() {
            self.keys.remove(key);
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows within bounds, ascending.
    ///
    /// # Panics
    /// If the lower bound is above the upper one.
    pub fn range(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = (&Bytes, &Row)> {
        let row = |key: &Bytes| self.rows.get(key).expect("each key has a row");
        self.keys.range::<[u8], _>(bounds).map(move |key| (key, row(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_and_visited_in_order() {
        let row = |version| Row { version, ..Row::ABSENT };
        let mut table = Table::default();
        for key in [b"c", b"a", b"b"] {
            table.insert(Bytes::from_static(key), row(1));
        }
        table.insert(Bytes::from_static(b"b"), row(2));
        table.remove(b"a");
        table.remove(b"x");
        let all = table
            .range((Bound::Unbounded, Bound::Unbounded))
            .map(|(key, row)| (&key[..], row.version));
        assert_eq!(all.collect::<Vec<_>>(), [(&b"b"[..], 2), (b"c", 1)]);
        assert_eq!((table.get(b"a"), table.get(b"b").map(|row| row.version)), (None, Some(2)));
    }
}
