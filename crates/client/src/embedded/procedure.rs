//! How procedures run on a transaction of the embedded database: no operation ever waits.

use super::transaction::EmbeddedTransaction;
use shoal_types::procedure::{DynTransaction, OperationFuture};
use shoal_types::{Result, Rows, Scan, TableId};

impl DynTransaction for EmbeddedTransaction<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        self.table(name)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        OperationFuture::ready(EmbeddedTransaction::get(self, table, key))
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        EmbeddedTransaction::prefetch(self, keys);
    }

    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
        OperationFuture::ready(EmbeddedTransaction::scan(self, table, scan))
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        EmbeddedTransaction::put(self, table, key, value)
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        OperationFuture::ready(EmbeddedTransaction::insert(self, table, key, value))
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        EmbeddedTransaction::delete(self, table, key)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        OperationFuture::ready(EmbeddedTransaction::add(self, table, key, delta))
    }
}
