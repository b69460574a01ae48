//! Procedures, and how they run on a transaction at its coordinator.

use crate::execution::CoordinatorTransaction;
use shoal_types::procedure::{DynTransaction, OperationFuture};
use shoal_types::{Result, Rows, Scan, TableId, Transaction};

pub use shoal_types::procedure::{Procedure, ProcedureTransaction, Procedures};

/// What shards of this node answer within the call is ready, and nothing is allocated for it.
impl DynTransaction for CoordinatorTransaction<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        self.table(name)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        match self.get_at_once(table, key) {
            Some(result) => OperationFuture::ready(result),
            None => OperationFuture::waits(self.get_later(table, key)),
        }
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        Transaction::prefetch(self, keys);
    }

    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
        match self.scan_at_once(table, &scan) {
            Some(result) => OperationFuture::ready(result),
            None => OperationFuture::waits(self.scan_later(table, scan)),
        }
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        Transaction::put(self, table, key, value)
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        match self.insert_at_once(table, key, value) {
            Some(result) => OperationFuture::ready(result),
            None => OperationFuture::waits(self.insert_later(table, key, value)),
        }
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        Transaction::delete(self, table, key)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        match self.add_at_once(table, key, delta) {
            Some(result) => OperationFuture::ready(result),
            None => OperationFuture::waits(self.add_later(table, key, delta)),
        }
    }
}
