//! Rows that are loaded into a database: many in a transaction.

use crate::id::TableId;
use bytes::Bytes;
use std::{iter, mem};

/// Rows of one transaction of a load. More save messages and waits; with less, a transaction takes its worker's time for a
/// shorter while, and repeats less after a conflict.
const BATCH_ROWS_MAX: usize = 512;

/// Bytes of the keys and values of such a transaction; a longer row is alone in one. A coordinator keeps as much of what a
/// client sends ahead four times.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// A row that is to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRow {
    /// The table of the row.
    pub table: TableId,
    /// 1 byte to [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX).
    pub key: Bytes,
    /// Up to [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
    pub value: Bytes,
}

impl LoadRow {
    /// A row of copies of these bytes.
    pub fn new(table: TableId, key: &[u8], value: &[u8]) -> LoadRow {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        LoadRow { table, key, value }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// The rows that one transaction of a load writes.
#[derive(Debug, Default)]
pub struct LoadBatch {
    rows: Vec<LoadRow>,
    bytes: usize,
}

impl LoadBatch {
    /// What the transaction writes, in the order in which the rows came.
    pub fn rows(&self) -> &[LoadRow] {
        &self.rows
    }

    /// Adds a row. If it does not fit, it begins the next batch, and the full one is returned.
    pub fn add(&mut self, row: LoadRow) -> Option<LoadBatch> {
        let is_full =
            self.rows.len() == BATCH_ROWS_MAX || self.bytes + row.bytes() > BATCH_BYTES_MAX;
        let full = (is_full && !self.rows.is_empty()).then(|| mem::take(self));
        self.bytes += row.bytes();
        self.rows.push(row);
        full
    }
}

/// The batches of these rows, in their order.
pub fn batches(rows: impl IntoIterator<Item = LoadRow>) -> impl Iterator<Item = LoadBatch> {
    let (mut rows, mut filling) = (rows.into_iter(), LoadBatch::default());
    iter::from_fn(move || match rows.by_ref().find_map(|row| filling.add(row)) {
        None if filling.rows.is_empty() => None,
        None => Some(mem::take(&mut filling)),
        full => full,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_bounds_and_loses_no_row() {
        let row = |bytes: usize| LoadRow::new(TableId(1), b"key", &vec![0; bytes]);
        let sizes = [1, BATCH_BYTES_MAX + 1, 2, BATCH_BYTES_MAX - 8, 3, 4];
        let lengths =
            |batch: LoadBatch| batch.rows.iter().map(|row| row.value.len()).collect::<Vec<_>>();
        let found: Vec<Vec<usize>> = batches(sizes.map(row)).map(lengths).collect();
        let expected =
            [vec![1], vec![BATCH_BYTES_MAX + 1], vec![2, BATCH_BYTES_MAX - 8], vec![3, 4]];
        assert_eq!(found, expected);
        let counts = batches((0..2 * BATCH_ROWS_MAX).map(|_| row(1))).map(|batch| batch.rows.len());
        assert_eq!(counts.collect::<Vec<_>>(), [BATCH_ROWS_MAX; 2]);
        assert_eq!(batches([]).count(), 0);
    }
}
