//! A transaction's operations, with and without `await`.
//!
//! On the embedded database no operation ever waits: an operation is done when it is called, and its
//! future is ready. The futures are here because the same code runs on a cluster, where a read may
//! have to ask another node. They hold results, not the transaction, so a task that works with a
//! transaction can move between threads.

use crate::pool::Pooled;
use shoal_types::{Error, Result, Rows, Scan, TableId};
use std::fmt;
use std::future::{Ready, ready};

/// A transaction. Reads see its own writes; writes are buffered and take effect together, at commit.
/// Dropping it rolls it back.
///
/// What is read borrows the transaction, and stays valid until it ends:
///
/// ```
/// # use shoal_client::{Db, Error};
/// # futures_executor::block_on(async {
/// let db = Db::memory();
/// let people = db.table("people")?;
/// let tx = db.begin()?;
/// tx.put(people, b"ada", b"1815")?;
/// let (ada, eve) = (tx.get(people, b"ada").await?, tx.get(people, b"eve").await?);
/// assert_eq!((ada, eve), (Some(&b"1815"[..]), None));
/// tx.commit().await?;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// Ending takes it by value, so one that has ended cannot be used:
///
/// ```compile_fail
/// # use shoal_client::{Db, Error};
/// # futures_executor::block_on(async {
/// # let db = Db::memory();
/// # let people = db.table("people")?;
/// # let tx = db.begin()?;
/// tx.commit().await?;
/// tx.put(people, b"eve", b"1900")?; // used after commit
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct Transaction<'db> {
    inner: BlockingTransaction<'db>,
}

impl<'db> Transaction<'db> {
    pub(crate) fn new(inner: BlockingTransaction<'db>) -> Transaction<'db> {
        Transaction { inner }
    }

    pub(crate) fn end(self) -> Result<()> {
        self.inner.commit()
    }

    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        self.inner.confirm_failure(error)
    }

    /// The value of `key`, or `None` where there is none.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table, an empty or an oversized key.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Ready<Result<Option<&[u8]>>> {
        ready(self.inner.get(table, key))
    }

    /// Like [`get`](Transaction::get), and says that a write of the key will follow.
    ///
    /// # Errors
    /// As for [`get`](Transaction::get).
    #[inline]
    pub fn get_for_update(&self, table: TableId, key: &[u8]) -> Ready<Result<Option<&[u8]>>> {
        self.get(table, key)
    }

    /// Says which keys will be read soon, and brings them near together instead of one after the
    /// other: worth it for a few keys up, on data larger than the processor's caches. A hint that
    /// changes nothing else.
    #[inline]
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.inner.prefetch(keys);
    }

    /// The rows that `scan` asks for, in its order. Until this transaction commits, no other can add,
    /// change or remove a row of the range, or this one is retried.
    ///
    /// ```
    /// # use shoal_client::{Db, Error, Scan};
    /// # futures_executor::block_on(async {
    /// # let db = Db::memory();
    /// # let people = db.table("people")?;
    /// # let tx = db.begin()?;
    /// # for name in ["ada", "alan", "barbara"] { tx.put(people, name.as_bytes(), b"")?; }
    /// let last = tx.scan(people, Scan::prefix(b"a").reverse().limit(1)).await?;
    /// assert_eq!(last, [(&b"alan"[..], &b""[..])]);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table or oversized bounds.
    #[inline]
    pub fn scan(&self, table: TableId, scan: Scan<'_>) -> Ready<Result<Rows<'_>>> {
        ready(self.inner.scan(table, scan))
    }

    /// Writes `value` under `key`, whether or not the key exists.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table, and where a limit would be passed.
    #[inline]
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(table, key, value)
    }

    /// Writes `value` under a key that does not exist.
    ///
    /// # Errors
    /// [`Rejected::KeyExists`](shoal_types::Rejected::KeyExists) where it does: the transaction can go on.
    /// And as for [`put`](Transaction::put).
    #[inline]
    pub fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Ready<Result<()>> {
        ready(self.inner.insert(table, key, value))
    }

    /// Removes `key`, whether or not it exists.
    ///
    /// # Errors
    /// As for [`put`](Transaction::put).
    #[inline]
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    /// Adds `delta`, wrapping, to the little-endian `i64` under `key` (an absent key counts as 0) and
    /// returns the sum.
    ///
    /// # Errors
    /// [`Rejected::WrongValue`](shoal_types::Rejected::WrongValue) where the value is not 8 bytes long. And
    /// as for [`put`](Transaction::put).
    #[inline]
    pub fn add(&self, table: TableId, key: &[u8], delta: i64) -> Ready<Result<i64>> {
        ready(self.inner.add(table, key, delta))
    }

    /// Commits: all writes take effect at one instant, or the error says why none did.
    ///
    /// # Errors
    /// [`Aborted::Conflict`](shoal_types::Aborted::Conflict) where another transaction got in the way: the
    /// same transaction may succeed if it is run again from its beginning.
    pub fn commit(self) -> Ready<Result<()>> {
        ready(self.end())
    }

    /// Rolls back: nothing happened. Dropping does the same.
    pub fn rollback(self) {}
}

impl shoal_types::Transaction for Transaction<'_> {
    #[inline]
    fn get(&self, table: TableId, key: &[u8]) -> impl Future<Output = Result<Option<&[u8]>>> {
        Transaction::get(self, table, key)
    }
    #[inline]
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        Transaction::prefetch(self, keys);
    }
    #[inline]
    fn scan(&self, table: TableId, scan: Scan<'_>) -> impl Future<Output = Result<Rows<'_>>> {
        Transaction::scan(self, table, scan)
    }
    #[inline]
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        Transaction::put(self, table, key, value)
    }
    #[inline]
    fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>> {
        Transaction::insert(self, table, key, value)
    }
    #[inline]
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        Transaction::delete(self, table, key)
    }
    #[inline]
    fn add(&self, table: TableId, key: &[u8], delta: i64) -> impl Future<Output = Result<i64>> {
        Transaction::add(self, table, key, delta)
    }
}

/// A [`Transaction`] for callers without an async runtime: the same operations, without `await`.
pub struct BlockingTransaction<'db> {
    inner: shoal_store::Transaction<Pooled<'db>>,
}

impl<'db> BlockingTransaction<'db> {
    pub(crate) fn on(session: Pooled<'db>) -> BlockingTransaction<'db> {
        BlockingTransaction { inner: shoal_store::Transaction::on(session) }
    }

    /// The table of this name; creates it if there is none.
    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        self.inner.table(name)
    }

    /// `error`, which a body returned, if the body's reads are valid; otherwise the conflict.
    #[cold]
    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        match (&error, self.inner.validate()) {
            (Error::Aborted(_), _) | (_, Ok(())) => error,
            (_, Err(conflict)) => conflict,
        }
    }

    /// See [`Transaction::get`].
    ///
    /// # Errors
    /// See there, as for all operations.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get(table, key)
    }

    /// See [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.inner.get(table, key)
    }

    /// See [`Transaction::prefetch`].
    #[inline]
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.inner.prefetch(keys);
    }

    /// See [`Transaction::scan`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.inner.scan(table, scan)
    }

    /// See [`Transaction::put`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(table, key, value)
    }

    /// See [`Transaction::insert`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.insert(table, key, value)
    }

    /// See [`Transaction::delete`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    /// See [`Transaction::add`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.inner.add(table, key, delta)
    }

    /// See [`Transaction::commit`].
    ///
    /// # Errors
    /// See there.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()
    }

    /// See [`Transaction::rollback`].
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl fmt::Debug for BlockingTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingTransaction").finish_non_exhaustive()
    }
}
