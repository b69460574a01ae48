//! How a procedure runs on any transaction: an object with a transaction's operations, and a handle to it.
//!
//! What the operations of an object return is a future of one type. It holds the result where that is known at once, as
//! for rows of this process, and a boxed future only where something has to be waited for.

use crate::error::Result;
use crate::id::TableId;
use crate::maybe_ready::MaybeReady;
use crate::transaction::{Rows, Scan, Transaction};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// The future of one operation of a [`DynTransaction`].
pub type OperationFuture<'f, T> =
    MaybeReady<Result<T>, Pin<Box<dyn Future<Output = Result<T>> + 'f>>>;

impl<'f, T> OperationFuture<'f, T> {
    /// Of an operation that may have to wait.
    pub fn waits(future: impl Future<Output = Result<T>> + 'f) -> OperationFuture<'f, T> {
        MaybeReady::Waits(Box::pin(future))
    }
}

/// A transaction as an object. Its operations are those of [`Transaction`]; databases and engines implement it for what
/// their procedures run on.
pub trait DynTransaction {
    /// The table of this name; see [`Database::table`](crate::Database::table).
    ///
    /// # Errors
    /// As for [`Database::table`](crate::Database::table).
    fn table(&self, name: &str) -> Result<TableId>;

    /// Whether this execution works with the key. Always, unless it is a piece of a transaction: then only with the rows
    /// of one shard, and with all of tables that every shard has a copy of.
    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        let _ = (table, key);
        true
    }

    /// See [`Transaction::get`].
    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>>;

    /// See [`Transaction::get_for_update`].
    fn get_for_update<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        self.get(table, key)
    }

    /// See [`Transaction::prefetch`].
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let _ = keys;
    }

    /// See [`Transaction::scan`]. A piece finds the rows of its shard.
    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>>;

    /// See [`Transaction::put`].
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()>;

    /// See [`Transaction::insert`].
    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()>;

    /// See [`Transaction::delete`].
    ///
    /// # Errors
    /// As for [`Transaction::delete`].
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()>;

    /// See [`Transaction::add`].
    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64>;
}

/// The transaction in which a procedure runs, of any database and any engine.
#[derive(Clone, Copy)]
pub struct ProcedureTransaction<'t> {
    inner: &'t dyn DynTransaction,
}

impl<'t> ProcedureTransaction<'t> {
    /// A handle to a transaction.
    #[inline]
    pub fn new(inner: &'t dyn DynTransaction) -> ProcedureTransaction<'t> {
        ProcedureTransaction { inner }
    }

    /// The table of this name.
    ///
    /// # Errors
    /// [`UnknownTableName`](crate::Rejected::UnknownTableName), where the database does not create it.
    pub fn table(&self, name: &str) -> Result<TableId> {
        self.inner.table(name)
    }

    /// Whether this execution works with the key; see [`DynTransaction::covers`].
    pub fn covers(&self, table: TableId, key: &[u8]) -> bool {
        self.inner.covers(table, key)
    }
}

impl fmt::Debug for ProcedureTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcedureTransaction").finish_non_exhaustive()
    }
}

impl Transaction for ProcedureTransaction<'_> {
    #[inline]
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get(table, key).await
    }

    #[inline]
    async fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get_for_update(table, key).await
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.inner.prefetch(keys);
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.inner.scan(table, scan).await
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(table, key, value)
    }

    #[inline]
    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.insert(table, key, value).await
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    #[inline]
    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.inner.add(table, key, delta).await
    }
}
