//! How procedures run on a transaction of the serial reference database: no operation ever waits.

use super::ModelTransaction;
use shoal_types::procedure::{DynTransaction, OperationFuture};
use shoal_types::{Rejected, Result, Rows, Scan, TableId};

impl DynTransaction for ModelTransaction {
    fn table(&self, name: &str) -> Result<TableId> {
        let table = self.committed.names.get(name).copied();
        Ok(table.ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        OperationFuture::ready(self.read(table, key))
    }

    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
        OperationFuture::ready(self.rows_of(table, scan))
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, Some(value))
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        OperationFuture::ready(self.insert_absent(table, key, value))
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.write(table, key, None)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        OperationFuture::ready(self.add_to(table, key, delta))
    }
}
