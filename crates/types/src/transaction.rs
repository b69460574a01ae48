//! What a database and a transaction can do, wherever they run.
//!
//! Procedures and workloads are written against these traits, so that the same code runs on the
//! embedded database, on a cluster and in the simulator. A transaction's operations take `&self`:
//! what they return borrows the transaction, not one operation, so several values can be looked at
//! together, and reads that cross a network can be awaited together.

use crate::bulk_load::{self, LoadBatch, LoadRow};
use crate::counted::Counted;
use crate::error::{Error, KeyExcerpt, Rejected, Result};
use crate::id::TableId;
use crate::procedure::Call;
use bytes::Bytes;
use std::future::Future;
use std::ops::{Bound, RangeBounds};

/// A database that runs transactions: all of one takes effect at one instant between its call and
/// its answer, or none of it does (strict serializability).
pub trait Database: Clone + 'static {
    /// What the body of a transaction works with. It borrows the database, so that beginning one
    /// counts no references.
    type Transaction<'db>: Transaction
    where
        Self: 'db;

    /// The table of this name; creates it if there is none.
    fn table(&self, name: &str) -> Result<TableId>;

    /// Bytes that keys, values and index take, where the database knows.
    fn memory_bytes(&self) -> Option<usize> {
        None
    }

    /// What it has counted since it began; nothing, if it does not say. Not to be called within an asynchronous runtime.
    fn counted(&self) -> Counted {
        Counted::default()
    }

    /// Runs `body` as one transaction and commits it. On a conflict the body runs again, within
    /// the database's retry budget; an error it returns rolls the transaction back.
    fn transact<T>(
        &self,
        body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> impl Future<Output = Result<T>>;

    /// Writes many rows, in as many transactions as that takes, and reports to `loaded` how many rows each has written when
    /// it has committed. After an error, some rows are written and others are not.
    ///
    /// # Errors
    /// The first of the transactions' errors. No other begins after it.
    fn load(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut dyn FnMut(u64),
    ) -> impl Future<Output = Result<()>> {
        async move {
            for batch in bulk_load::batches(rows) {
                write_batch(self, &batch).await?;
                loaded(batch.rows().len() as u64);
            }
            Ok(())
        }
    }

    /// Calls a procedure that the database knows by name, as one transaction: in one message, where the data is
    /// elsewhere. It takes effect once, however often messages are lost and repeated. On a conflict it runs again, as
    /// in [`transact`](Database::transact).
    ///
    /// # Errors
    /// Those of the procedure; [`UnknownProcedure`](crate::Rejected::UnknownProcedure); those of the database.
    fn call(&self, call: &Call<'_>) -> impl Future<Output = Result<Bytes>>;
}

/// How often [`transact_again`] runs a transaction at most.
const ATTEMPTS_MAX: u32 = 100;

/// Runs `body` as one transaction, and again where it is aborted, beyond the database's retry budget: for loads and checks
/// beside many others, which have no caller that would do that.
///
/// # Errors
/// Those of the transaction; after 100 aborts the last of them.
pub async fn transact_again<D: Database, T>(
    db: &D,
    mut body: impl AsyncFnMut(&D::Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match db.transact(async |tx| body(tx).await).await {
            Err(Error::Aborted(_)) if attempts < ATTEMPTS_MAX => {}
            ended => return ended,
        }
    }
}

/// Writes the rows of a batch in one transaction.
async fn write_batch<D: Database>(db: &D, batch: &LoadBatch) -> Result<()> {
    transact_again(db, async |tx| {
        batch.rows().iter().try_for_each(|row| tx.put(row.table, &row.key, &row.value))
    })
    .await
}

/// One transaction's reads and writes. Reads see the transaction's own writes. Writes are buffered
/// and take effect together at commit.
pub trait Transaction {
    /// The value of `key`, or `None` where there is none.
    fn get(&self, table: TableId, key: &[u8]) -> impl Future<Output = Result<Option<&[u8]>>>;

    /// Like [`get`](Transaction::get), and says that a write of the key will follow, so that an
    /// engine which can take the lock early does.
    fn get_for_update(
        &self,
        table: TableId,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<&[u8]>>> {
        self.get(table, key)
    }

    /// Says which keys will be read soon, so that they can be brought near together instead of one
    /// after the other. A hint: it changes nothing but the time that reads take.
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let _ = keys;
    }

    /// The rows that `scan` asks for, in its order. No other transaction can add, change or remove
    /// a row of the range between this read and the commit.
    fn scan(&self, table: TableId, scan: Scan<'_>) -> impl Future<Output = Result<Rows<'_>>>;

    /// Writes `value` under `key`, whether or not the key exists.
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes `value` under a key that does not exist.
    ///
    /// # Errors
    /// [`KeyExists`](crate::Rejected::KeyExists) where it does; the transaction can go on.
    fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>>;

    /// Removes `key`, whether or not it exists.
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()>;

    /// Adds `delta`, wrapping, to the little-endian `i64` under `key` (an absent key counts as 0)
    /// and returns the sum.
    ///
    /// # Errors
    /// [`WrongValue`](crate::Rejected::WrongValue) where the value is not 8 bytes long.
    fn add(&self, table: TableId, key: &[u8], delta: i64) -> impl Future<Output = Result<i64>>;
}

/// Keys and values that a scan found, in its order. They borrow the transaction.
pub type Rows<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Which rows to read: bounds, direction, limit.
///
/// ```
/// use shoal_types::Scan;
/// Scan::all();
/// Scan::prefix(b"user/").limit(10);
/// Scan::range(b"a".as_slice()..b"f".as_slice()).reverse();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Scan<'k> {
    /// The bound below which no key is scanned.
    pub start: Bound<&'k [u8]>,
    /// The bound above which no key is scanned.
    pub end: ScanEnd<'k>,
    /// From the greatest key to the least.
    pub reverse: bool,
    /// At most this many rows.
    pub limit: usize,
}

/// The upper end of a [`Scan`].
#[derive(Debug, Clone, Copy)]
pub enum ScanEnd<'k> {
    /// A bound that names a key; `Unbounded` for the end of the table.
    Bound(Bound<&'k [u8]>),
    /// The last key that begins with these bytes.
    Prefix(&'k [u8]),
}

impl<'k> Scan<'k> {
    /// Every row of the table.
    pub fn all() -> Scan<'k> {
        Scan::range(..)
    }

    /// The rows whose keys lie in `range`.
    pub fn range(range: impl RangeBounds<&'k [u8]>) -> Scan<'k> {
        let copied = |bound: Bound<&&'k [u8]>| bound.map(|key| *key);
        Scan {
            start: copied(range.start_bound()),
            end: ScanEnd::Bound(copied(range.end_bound())),
            reverse: false,
            limit: usize::MAX,
        }
    }

    /// The rows whose keys begin with `prefix`.
    pub fn prefix(prefix: &'k [u8]) -> Scan<'k> {
        Scan {
            start: Bound::Included(prefix),
            end: ScanEnd::Prefix(prefix),
            reverse: false,
            limit: usize::MAX,
        }
    }

    /// The same rows, from the greatest key to the least.
    #[must_use]
    pub fn reverse(self) -> Scan<'k> {
        Scan { reverse: true, ..self }
    }

    /// At most `limit` of these rows, the first in the scan's order.
    #[must_use]
    pub fn limit(self, limit: usize) -> Scan<'k> {
        Scan { limit, ..self }
    }
}

/// What [`Transaction::add`] makes of a value: an absent one counts as 0.
///
/// # Errors
/// [`WrongValue`](crate::Rejected::WrongValue) where it is not 8 bytes long.
pub fn sum(table: TableId, key: &[u8], old: Option<&[u8]>, delta: i64) -> Result<i64> {
    const EXPECTED: usize = size_of::<i64>();
    let old = match old {
        None => 0,
        Some(value) => i64::from_le_bytes(value.try_into().map_err(|_| {
            let (key, bytes) = (KeyExcerpt::new(key), value.len());
            Rejected::WrongValue { table, key, operation: "add", bytes, expected: EXPECTED }
        })?),
    };
    Ok(old.wrapping_add(delta))
}
