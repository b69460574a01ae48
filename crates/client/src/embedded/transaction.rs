//! A transaction on the embedded database.
//!
//! No operation ever waits: it is done when it is called, and the futures that the trait asks for are ready. They hold
//! results, not the transaction, so a task that works with a transaction can move between threads.

use super::pool::Pooled;
use shoal_types::{Error, Result, Rows, Scan, TableId, Transaction};
use std::fmt;
use std::future::ready;

/// A transaction on an embedded database, with the operations of [`BlockingTransaction`](crate::BlockingTransaction).
/// Dropping it rolls it back.
pub struct EmbeddedTransaction<'db> {
    inner: shoal_store::Transaction<Pooled<'db>>,
}

impl<'db> EmbeddedTransaction<'db> {
    pub(super) fn on(session: Pooled<'db>) -> EmbeddedTransaction<'db> {
        EmbeddedTransaction { inner: shoal_store::Transaction::on(session) }
    }

    /// The table of this name; creates it if there is none.
    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        self.inner.table(name)
    }

    /// `error`, which a body returned, unless the body had read what never was: then the conflict.
    #[cold]
    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        match (&error, self.inner.validate()) {
            (Error::Aborted(_), _) | (_, Ok(())) => error,
            (_, Err(conflict)) => conflict,
        }
    }

    /// See [`Transaction::get`](crate::Transaction::get).
    ///
    /// # Errors
    /// See there, as for all operations.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get(table, key)
    }

    /// See [`Transaction::get_for_update`](crate::Transaction::get_for_update).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get(table, key)
    }

    /// See [`Transaction::prefetch`](crate::Transaction::prefetch).
    #[inline]
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.inner.prefetch(keys);
    }

    /// See [`Transaction::scan`](crate::Transaction::scan).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.inner.scan(table, scan)
    }

    /// See [`Transaction::put`](crate::Transaction::put).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(table, key, value)
    }

    /// See [`Transaction::insert`](crate::Transaction::insert).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.insert(table, key, value)
    }

    /// See [`Transaction::delete`](crate::Transaction::delete).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    /// See [`Transaction::add`](crate::Transaction::add).
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.inner.add(table, key, delta)
    }

    /// See [`Transaction::commit`](crate::Transaction::commit).
    ///
    /// # Errors
    /// See there.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()
    }

    /// See [`Transaction::rollback`](crate::Transaction::rollback).
    pub fn rollback(self) {}
}

impl Transaction for EmbeddedTransaction<'_> {
    #[inline]
    fn get(&self, table: TableId, key: &[u8]) -> impl Future<Output = Result<Option<&[u8]>>> {
        ready(EmbeddedTransaction::get(self, table, key))
    }
    #[inline]
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        EmbeddedTransaction::prefetch(self, keys);
    }
    #[inline]
    fn scan(&self, table: TableId, scan: Scan<'_>) -> impl Future<Output = Result<Rows<'_>>> {
        ready(EmbeddedTransaction::scan(self, table, scan))
    }
    #[inline]
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        EmbeddedTransaction::put(self, table, key, value)
    }
    #[inline]
    fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>> {
        ready(EmbeddedTransaction::insert(self, table, key, value))
    }
    #[inline]
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        EmbeddedTransaction::delete(self, table, key)
    }
    #[inline]
    fn add(&self, table: TableId, key: &[u8], delta: i64) -> impl Future<Output = Result<i64>> {
        ready(EmbeddedTransaction::add(self, table, key, delta))
    }
}

impl fmt::Debug for EmbeddedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTransaction").finish_non_exhaustive()
    }
}
