//! A transaction's operations, with and without `await`, on an embedded and on a connected database.
//!
//! On an embedded database no operation ever waits, but for the commit of one on disk: it is done when it is called, and its
//! future is ready and owns no memory. On a cluster a future is boxed, and a message is sent where one has to be. The futures hold what they
//! need of a transaction that can be shared, so a task that works with a transaction can move between threads.

use crate::embedded::EmbeddedTransaction;
use crate::future::TransactionFuture;
use crate::remote::{ClusterTransaction, WaitingTransaction};
use shoal_types::{Error, Result, Rows, Scan, TableId};
use std::fmt;

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
///
/// On a cluster, an operation that fails with [`Aborted`](Error::Aborted) or [`Unknown`](Error::Unknown) ends it: all that
/// follow fail with the same error.
pub struct Transaction<'db> {
    inner: TransactionPlace<'db>,
}

pub(crate) enum TransactionPlace<'db> {
    Embedded(EmbeddedTransaction<'db>),
    Cluster(Box<ClusterTransaction>),
}

impl<'db> Transaction<'db> {
    #[inline]
    pub(crate) fn new(inner: TransactionPlace<'db>) -> Transaction<'db> {
        Transaction { inner }
    }

    #[inline]
    pub(crate) fn into_place(self) -> TransactionPlace<'db> {
        self.inner
    }

    /// The value of `key`, or `None` where there is none.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table, an empty or an oversized key;
    /// [`Aborted`](shoal_types::Aborted) where the transaction is over.
    #[inline]
    pub fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> TransactionFuture<'f, Option<&'t [u8]>> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => TransactionFuture::ready(tx.get(table, key)),
            TransactionPlace::Cluster(tx) => TransactionFuture::waits(tx.get(table, key)),
        }
    }

    /// Like [`get`](Transaction::get), and says that a write of the key will follow.
    ///
    /// # Errors
    /// As for [`get`](Transaction::get).
    #[inline]
    pub fn get_for_update<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> TransactionFuture<'f, Option<&'t [u8]>> {
        self.get(table, key)
    }

    /// Says which keys will be read soon. In memory they are brought near together instead of one after the other: worth it
    /// for a few keys up, on data larger than the processor's caches. On a cluster they are read together, with the next
    /// operation that has an answer, in one round trip. A hint that changes nothing else.
    #[inline]
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        match &self.inner {
            TransactionPlace::Embedded(tx) => tx.prefetch(keys),
            TransactionPlace::Cluster(tx) => tx.prefetch(keys),
        }
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
    /// [`Rejected`](shoal_types::Rejected) for an unknown table or oversized bounds; as for [`get`](Transaction::get).
    #[inline]
    pub fn scan<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        scan: Scan<'f>,
    ) -> TransactionFuture<'f, Rows<'t>> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => TransactionFuture::ready(tx.scan(table, scan)),
            TransactionPlace::Cluster(tx) => TransactionFuture::waits(tx.scan(table, scan)),
        }
    }

    /// Writes `value` under `key`, whether or not the key exists. On a cluster it waits in the client for the next
    /// operation that has an answer, which fails where the cluster refuses it.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table, and where a limit would be passed.
    #[inline]
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => tx.put(table, key, value),
            TransactionPlace::Cluster(tx) => tx.put(table, key, value),
        }
    }

    /// Writes `value` under a key that does not exist.
    ///
    /// # Errors
    /// [`Rejected::KeyExists`](shoal_types::Rejected::KeyExists) where it does: the transaction can go on.
    /// And as for [`put`](Transaction::put) and [`get`](Transaction::get).
    #[inline]
    pub fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> TransactionFuture<'f, ()> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => {
                TransactionFuture::ready(tx.insert(table, key, value))
            }
            TransactionPlace::Cluster(tx) => TransactionFuture::waits(tx.insert(table, key, value)),
        }
    }

    /// Removes `key`, whether or not it exists.
    ///
    /// # Errors
    /// As for [`put`](Transaction::put).
    #[inline]
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => tx.delete(table, key),
            TransactionPlace::Cluster(tx) => tx.delete(table, key),
        }
    }

    /// Adds `delta`, wrapping, to the little-endian `i64` under `key` (an absent key counts as 0) and
    /// returns the sum.
    ///
    /// # Errors
    /// [`Rejected::WrongValue`](shoal_types::Rejected::WrongValue) where the value is not 8 bytes long. And
    /// as for [`put`](Transaction::put) and [`get`](Transaction::get).
    #[inline]
    pub fn add<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        delta: i64,
    ) -> TransactionFuture<'f, i64> {
        match &self.inner {
            TransactionPlace::Embedded(tx) => TransactionFuture::ready(tx.add(table, key, delta)),
            TransactionPlace::Cluster(tx) => TransactionFuture::waits(tx.add(table, key, delta)),
        }
    }

    /// Commits: all writes take effect at one instant, or the error says what is true. If the future is
    /// dropped before it is done, the outcome is not known on a cluster, and is known for others on an embedded database: there
    /// the transaction was done when it was asked for, and the future waits until it is durable.
    ///
    /// # Errors
    /// [`Aborted`](shoal_types::Aborted): nothing happened, as another transaction got in the way or a node failed; the
    /// same transaction may succeed if it is run again from its beginning. Of a cluster also
    /// [`Unknown`](shoal_types::Error::Unknown), where the deadline passed before it was known what became of the commit.
    #[inline]
    pub fn commit(self) -> TransactionFuture<'db, ()> {
        match self.inner {
            TransactionPlace::Embedded(tx) => tx.commit_later(),
            TransactionPlace::Cluster(tx) => TransactionFuture::waits(tx.commit()),
        }
    }

    /// Rolls back: nothing happened. Dropping does the same.
    pub fn rollback(self) {}
}

impl shoal_types::Transaction for Transaction<'_> {
    #[inline]
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        Transaction::get(self, table, key).await
    }
    #[inline]
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        Transaction::prefetch(self, keys);
    }
    #[inline]
    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        Transaction::scan(self, table, scan).await
    }
    #[inline]
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        Transaction::put(self, table, key, value)
    }
    #[inline]
    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        Transaction::insert(self, table, key, value).await
    }
    #[inline]
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        Transaction::delete(self, table, key)
    }
    #[inline]
    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        Transaction::add(self, table, key, delta).await
    }
}

/// A [`Transaction`] for callers without an async runtime: the same operations, without `await`. On a cluster the calling
/// thread waits for each answer.
pub struct BlockingTransaction<'db> {
    inner: BlockingPlace<'db>,
}

pub(crate) enum BlockingPlace<'db> {
    Embedded(EmbeddedTransaction<'db>),
    Cluster(Box<WaitingTransaction>),
}

impl<'db> BlockingTransaction<'db> {
    #[inline]
    pub(crate) fn new(inner: BlockingPlace<'db>) -> BlockingTransaction<'db> {
        BlockingTransaction { inner }
    }

    /// `error`, which a body returned, if the body's reads are valid; otherwise the conflict.
    #[cold]
    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        match self.inner {
            BlockingPlace::Embedded(tx) => tx.confirm_failure(error),
            BlockingPlace::Cluster(tx) => tx.confirm_failure(error),
        }
    }

    /// See [`Transaction::get`].
    ///
    /// # Errors
    /// See there, as for all operations.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.get(table, key),
            BlockingPlace::Cluster(tx) => tx.get(table, key),
        }
    }

    /// See [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(table, key)
    }

    /// See [`Transaction::prefetch`].
    #[inline]
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.prefetch(keys),
            BlockingPlace::Cluster(tx) => tx.prefetch(keys),
        }
    }

    /// See [`Transaction::scan`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.scan(table, scan),
            BlockingPlace::Cluster(tx) => tx.scan(table, scan),
        }
    }

    /// See [`Transaction::put`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.put(table, key, value),
            BlockingPlace::Cluster(tx) => tx.put(table, key, value),
        }
    }

    /// See [`Transaction::insert`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.insert(table, key, value),
            BlockingPlace::Cluster(tx) => tx.insert(table, key, value),
        }
    }

    /// See [`Transaction::delete`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.delete(table, key),
            BlockingPlace::Cluster(tx) => tx.delete(table, key),
        }
    }

    /// See [`Transaction::add`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.add(table, key, delta),
            BlockingPlace::Cluster(tx) => tx.add(table, key, delta),
        }
    }

    /// See [`Transaction::commit`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn commit(self) -> Result<()> {
        match self.inner {
            BlockingPlace::Embedded(tx) => tx.commit(),
            BlockingPlace::Cluster(tx) => tx.commit(),
        }
    }

    /// See [`Transaction::rollback`].
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            TransactionPlace::Embedded(tx) => tx.fmt(f),
            TransactionPlace::Cluster(tx) => tx.fmt(f),
        }
    }
}

impl fmt::Debug for BlockingTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            BlockingPlace::Embedded(tx) => tx.fmt(f),
            BlockingPlace::Cluster(tx) => tx.fmt(f),
        }
    }
}
