//! A transaction that records what a procedure touches.

use super::footprint::{Access, Footprint};
use super::transaction::{DynTransaction, OperationFuture};
use crate::error::Result;
use crate::id::TableId;
use crate::transaction::{Rows, Scan};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A transaction that passes all operations to another one, and records what they touch.
///
/// What a run has touched is a guess of what the next one will: an engine can execute the procedure by that footprint, and
/// finds out where it was wrong.
pub struct FootprintRecorder<'i> {
    inner: &'i dyn DynTransaction,
    touched: RefCell<Touched>,
}

#[derive(Default)]
struct Touched {
    reads: BTreeSet<(TableId, Bytes)>,
    writes: BTreeSet<(TableId, Bytes)>,
    /// Has the ranges alone.
    scanned: Footprint,
}

impl<'i> FootprintRecorder<'i> {
    /// Records what is done on this transaction.
    pub fn new(inner: &'i dyn DynTransaction) -> FootprintRecorder<'i> {
        FootprintRecorder { inner, touched: RefCell::default() }
    }

    /// What was touched, each key once. It is to be executed as a whole.
    pub fn into_footprint(self) -> Footprint {
        let Touched { reads, writes, scanned } = self.touched.into_inner();
        let mut footprint = Footprint { ranges: scanned.ranges, ..Footprint::whole() };
        reads.iter().for_each(|(table, key)| footprint.read(*table, key));
        writes.iter().for_each(|(table, key)| footprint.write(*table, key));
        footprint
    }

    fn read(&self, table: TableId, key: &[u8]) {
        self.touched.borrow_mut().reads.insert((table, Bytes::copy_from_slice(key)));
    }

    fn written(&self, table: TableId, key: &[u8]) {
        self.touched.borrow_mut().writes.insert((table, Bytes::copy_from_slice(key)));
    }
}

impl DynTransaction for FootprintRecorder<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        self.inner.table(name)
    }

    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        self.inner.covers(table, key)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        self.read(table, key);
        self.inner.get(table, key)
    }

    fn get_for_update<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        self.read(table, key);
        self.inner.get_for_update(table, key)
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.inner.prefetch(keys);
    }

    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
        self.touched.borrow_mut().scanned.range(table, &scan, Access::Read);
        self.inner.scan(table, scan)
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.written(table, key);
        self.inner.put(table, key, value)
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        self.read(table, key);
        self.written(table, key);
        self.inner.insert(table, key, value)
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.written(table, key);
        self.inner.delete(table, key)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        self.read(table, key);
        self.written(table, key);
        self.inner.add(table, key, delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::{FootprintKey, Shape};

    /// A transaction that finds nothing.
    struct Empty;

    impl DynTransaction for Empty {
        fn table(&self, _: &str) -> Result<TableId> {
            Ok(TableId(0))
        }
        fn get<'t: 'f, 'f>(
            &'t self,
            _: TableId,
            _: &'f [u8],
        ) -> OperationFuture<'f, Option<&'t [u8]>> {
            OperationFuture::ready(Ok(None))
        }
        fn scan<'t: 'f, 'f>(&'t self, _: TableId, _: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
            OperationFuture::ready(Ok(Rows::default()))
        }
        fn put(&self, _: TableId, _: &[u8], _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn insert<'f>(&'f self, _: TableId, _: &'f [u8], _: &'f [u8]) -> OperationFuture<'f, ()> {
            OperationFuture::ready(Ok(()))
        }
        fn delete(&self, _: TableId, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn add<'f>(&'f self, _: TableId, _: &'f [u8], _: i64) -> OperationFuture<'f, i64> {
            OperationFuture::ready(Ok(0))
        }
    }

    #[test]
    fn each_operation_is_recorded_with_what_it_reads_and_writes() {
        let table = TableId(0);
        let recorder = FootprintRecorder::new(&Empty);
        for _ in 0..2 {
            drop(recorder.get(table, b"read"));
            recorder.put(table, b"put", b"").unwrap();
            recorder.delete(table, b"deleted").unwrap();
            drop(recorder.insert(table, b"inserted", b""));
            drop(recorder.add(table, b"added", 1));
        }
        drop(recorder.scan(table, Scan::prefix(b"s").limit(1)));
        let footprint = recorder.into_footprint();
        let keys = |keys: &[FootprintKey]| -> Vec<String> {
            keys.iter().map(|key| String::from_utf8_lossy(&key.key).into_owned()).collect()
        };
        assert_eq!(keys(&footprint.reads), ["added", "inserted", "read"]);
        assert_eq!(keys(&footprint.writes), ["added", "deleted", "inserted", "put"]);
        assert_eq!(footprint.shape, Shape::Whole);
        assert!(footprint.allows_scan(table, &Scan::prefix(b"s")), "all that it could meet");
        assert!(!footprint.allows_write(table, b"s"));
    }
}
