//! A transaction on the embedded database.
//!
//! No operation ever waits: it is done when it is called, and the futures that the trait asks for are ready. They hold
//! results, not the transaction, so a task that works with a transaction can move between threads.

use super::durable::{Durability, DurableLog};
use super::pool::Pooled;
use crate::future::TransactionFuture;
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
        self.inner.holder().pool().table(name)
    }

    /// `error`, which a body returned, unless the body had read what never was: then the conflict; or what may not be
    /// durable: then that.
    #[cold]
    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        let (error, durability) = self.confirm_reads(error);
        durability.wait().err().unwrap_or(error)
    }

    /// [`confirm_failure`](EmbeddedTransaction::confirm_failure), for callers that do not wait on their thread.
    #[cold]
    pub(crate) async fn confirm_failure_later(self, error: Error) -> Error {
        let (error, durability) = self.confirm_reads(error);
        durability.await.err().unwrap_or(error)
    }

    /// The error of a transaction whose body returned `error`, and the wait after which it counts.
    pub(super) fn confirm_reads(self, error: Error) -> (Error, Durability) {
        let durability = match self.inner.holder().pool().log() {
            Some(log) => log.transactions().confirm_reads(&self.inner),
            None => self.inner.validate().map(|()| Durability::reached()),
        };
        match (error, durability) {
            (error, Ok(durability)) => (error, durability),
            (error @ Error::Aborted(_), Err(_)) => (error, Durability::reached()),
            (_, Err(conflict)) => (conflict, Durability::reached()),
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

    /// See [`Transaction::commit`](crate::Transaction::commit). On a database on disk the calling thread waits until what was
    /// written and read is durable.
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn commit(self) -> Result<()> {
        self.certify()?.wait()
    }

    /// [`commit`](EmbeddedTransaction::commit), for callers that do not wait on their thread.
    #[inline]
    pub(crate) fn commit_later<'f>(self) -> TransactionFuture<'f, ()> {
        match self.certify() {
            Ok(durability) if !durability.is_reached() => TransactionFuture::waits(durability),
            certified => TransactionFuture::ready(certified.map(drop)),
        }
    }

    /// Makes the transaction take effect for others. Its own caller is answered when what is returned is over.
    #[inline]
    pub(super) fn certify(self) -> Result<Durability> {
        if self.inner.holder().pool().log().is_some() {
            return self.certify_on_disk();
        }
        self.inner.commit().map(|()| Durability::reached())
    }

    fn certify_on_disk(self) -> Result<Durability> {
        let log = self.inner.holder().pool().log().map(DurableLog::transactions);
        log.expect("a database on disk").commit(self.inner)
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
