//! A database that offers the core to other threads before every operation of a transaction.

use shoal::{Bytes, Db, Result, Rows, Scan, TableId, Transaction};
use std::thread::yield_now;

#[derive(Clone)]
pub struct Nervous(pub Db);

pub struct NervousTransaction<'t>(&'t Transaction<'t>);

impl shoal_types::Database for Nervous {
    type Transaction<'db> = NervousTransaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        self.0.table(name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&NervousTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.0.transact(async |tx: &mut Transaction<'_>| body(&NervousTransaction(tx)).await).await
    }

    async fn call(&self, call: &shoal_types::Call<'_>) -> Result<Bytes> {
        self.0.call(call.procedure, call.arguments).await
    }
}

impl shoal_types::Transaction for NervousTransaction<'_> {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        yield_now();
        self.0.get(table, key).await
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        yield_now();
        self.0.scan(table, scan).await
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        yield_now();
        self.0.put(table, key, value)
    }

    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        yield_now();
        self.0.insert(table, key, value).await
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        yield_now();
        self.0.delete(table, key)
    }

    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        yield_now();
        self.0.add(table, key, delta).await
    }
}
