//! YCSB's operations as one procedure.

use super::value::{address, checked_counter};
use crate::arguments::decode;
use crate::rows;
use bytes::Bytes;
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::wire::encode;
use shoal_types::{Footprint, Procedure, ProcedureTransaction, Result, Scan, TableId, Transaction};
use std::ops::Bound;

/// The name under which [`KeyOperation`] is registered.
pub const OPERATION: &str = "ycsb.operation";

/// The procedure: one operation on one key, or a scan from one. Returns the rows that it read.
#[derive(Debug, Clone, Copy)]
pub struct KeyOperation;

/// What [`KeyOperation`] is called with.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Asked {
    /// The table that YCSB's rows are in.
    #[coded(short)]
    pub table: TableId,
    /// The key, or the first one.
    pub key: [u8; 8],
    /// What is done with the key.
    pub what: What,
}

/// An operation on a key.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum What {
    /// Read it.
    #[coded(tag = 0)]
    Read,
    /// Write this under it, whether or not it exists.
    #[coded(tag = 1)]
    Update(Bytes),
    /// Write this under it; it does not exist.
    #[coded(tag = 2)]
    Insert(Bytes),
    /// Read so many rows from there on.
    #[coded(tag = 3)]
    Scan(u32),
    /// Add one to its counter.
    #[coded(tag = 4)]
    ReadModifyWrite,
}

/// Keys and values that were read, in the order of their keys.
pub(super) type ReadRows = Vec<(Bytes, Bytes)>;

impl Asked {
    fn scan(&self, rows: usize) -> Scan<'_> {
        let from = (Bound::Included(self.key.as_slice()), Bound::Unbounded);
        Scan::range(from).limit(rows)
    }

    /// Does it, where the key is covered; a scan reads what is covered.
    async fn perform<X: Transaction>(&self, tx: &X) -> Result<ReadRows> {
        let (table, key) = (self.table, &self.key);
        let mut read = Vec::new();
        match &self.what {
            What::Read => {
                let value = tx.get(table, key).await?;
                read.extend(value.map(|value| row(key, value)));
            }
            What::Update(value) => tx.put(table, key, value)?,
            What::Insert(value) => tx.insert(table, key, value).await?,
            What::Scan(rows) => {
                let rows = tx.scan(table, self.scan(*rows as usize)).await?;
                read.extend(rows.into_iter().map(|(key, value)| row(key, value)));
            }
            What::ReadModifyWrite => {
                let Some(value) = tx.get_for_update(table, key).await? else {
                    return Err(rows::corrupt("a key without a value"));
                };
                let counter = checked_counter(*key, value)?;
                let mut changed = value.to_vec();
                address(&mut changed, *key, counter.wrapping_add(1));
                read.push(row(key, value));
                tx.put(table, key, &changed)?;
            }
        }
        Ok(read)
    }
}

fn row(key: &[u8], value: &[u8]) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
}

impl Procedure for KeyOperation {
    async fn run(&self, tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
        let asked: Asked = decode(arguments)?;
        let is_scan = matches!(asked.what, What::Scan(_));
        let read = match is_scan || tx.covers(asked.table, &asked.key) {
            true => asked.perform(tx).await?,
            false => Vec::new(),
        };
        Ok(encode(&read))
    }

    fn footprint(&self, arguments: &[u8]) -> Result<Footprint> {
        let asked: Asked = decode(arguments)?;
        let (table, key) = (asked.table, &asked.key);
        let mut footprint = Footprint::pieces();
        match &asked.what {
            What::Read => footprint.read(table, key),
            What::Update(_) => footprint.write(table, key),
            What::Insert(_) | What::ReadModifyWrite => footprint.read_write(table, key),
            What::Scan(rows) => footprint.range(table, &asked.scan(*rows as usize), Access::Read),
        }
        Ok(footprint)
    }

    fn combine(&self, arguments: &[u8], results: Vec<Bytes>) -> Result<Bytes> {
        let asked: Asked = decode(arguments)?;
        let mut read = ReadRows::new();
        for result in results {
            read.extend(decode::<ReadRows>(&result)?);
        }
        read.sort_unstable();
        if let What::Scan(rows) = asked.what {
            read.truncate(rows as usize);
        }
        Ok(encode(&read))
    }
}
