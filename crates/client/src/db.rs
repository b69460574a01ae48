//! The database, embedded or connected: one type, so that the same program runs on either.

use crate::attempts::{self, Place};
use crate::embedded::{Embedded, LocalRetries, OpenError, Options};
use crate::future::TransactionFuture;
use crate::remote::{
    Attempts, Cluster, ClusterOptions, ConnectError, WaitingTransaction, connect_blocking,
};
use crate::transaction::{BlockingPlace, BlockingTransaction, Transaction, TransactionPlace};
use bytes::Bytes;
use shoal_cluster::topology::TableDefinition;
use shoal_types::bulk_load::{self, LoadRow};
use shoal_types::{Call, Database, Error, Procedures, Result, TableId};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A database: one in the memory of this process, from [`Db::memory`], one that is on disk as well, from [`Db::open`], or a cluster, from [`Db::connect`]. A program that
/// has one runs on either.
///
/// Cheap to clone; all clones are the same database, and any number of threads and tasks may use it at once.
///
/// ```no_run
/// use shoal_client::{Db, Error};
///
/// /// Moves an amount between two accounts, and returns what is left on the first.
/// async fn pay(db: &Db, from: &[u8], to: &[u8], amount: i64) -> Result<i64, Error> {
///     let accounts = db.table("accounts")?;
///     db.transact(async |tx| {
///         let left = tx.add(accounts, from, -amount).await?;
///         if left < 0 {
///             return Err(Error::reject("insufficient funds"));
///         }
///         tx.add(accounts, to, amount).await?;
///         Ok(left)
///     })
///     .await
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// pay(&Db::memory(), b"alice", b"bob", 10).await?;
/// pay(&Db::connect(&["10.0.0.1:7000", "10.0.0.2:7000"]).await?, b"alice", b"bob", 10).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    place: DbPlace,
}

#[derive(Clone)]
enum DbPlace {
    Embedded(Embedded),
    Cluster(Cluster),
}

/// The attempts of a transaction on a [`Db`].
pub(crate) enum DbRetries {
    Embedded(Option<LocalRetries>),
    Cluster(Attempts),
}

impl Db {
    /// An empty database in memory. It lives as long as its last clone.
    pub fn memory() -> Db {
        Db::with_options(Options::default())
    }

    /// An empty database in memory, with limits of your own.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn with_options(options: Options) -> Db {
        Embedded::with_options(options).into()
    }

    /// Opens the database on disk in this folder; makes it if there is none. Everything is in memory as well, and is written
    /// to the folder's log before a transaction is confirmed.
    ///
    /// A reply, also to a transaction that only read, comes when all that it has written and read is durable. Other
    /// transactions see its writes earlier. After a crash the database has exactly the transactions up to one point of their
    /// order, and each that was confirmed.
    ///
    /// One process has the folder at a time. The last clone [closes](Db::close) the database when it is dropped.
    ///
    /// ```
    /// # use shoal_client::{Db, OpenError};
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// let path = folder.path().join("accounts");
    /// let db = Db::open(&path)?;
    /// let accounts = db.table("accounts")?;
    /// db.transact_blocking(|tx| tx.add(accounts, b"alice", 100))?;
    /// db.close();
    ///
    /// let db = Db::open(&path)?;
    /// let accounts = db.table("accounts")?;
    /// assert_eq!(db.transact_blocking(|tx| tx.add(accounts, b"alice", -30))?, 70);
    /// # Ok::<(), OpenError>(())
    /// ```
    ///
    /// # Errors
    /// See [`OpenError`]: another process uses the folder, which is named; a file is damaged, of another owner, or of a newer
    /// format.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn open(path: impl AsRef<Path>) -> Result<Db, OpenError> {
        Db::open_with(path, Options::default())
    }

    /// [`open`](Db::open), with limits of your own.
    ///
    /// # Errors
    /// As for [`open`](Db::open).
    ///
    /// # Panics
    /// As for [`open`](Db::open), and where the size of a segment is not allowed.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Db, OpenError> {
        Ok(Embedded::open(path.as_ref(), options)?.into())
    }

    /// Waits until all that was committed on a database on disk is durable, also transactions for which nothing waits any more. Of
    /// a database in memory, and of a cluster, nothing is to be waited for.
    ///
    /// # Errors
    /// [`Unknown::LogFailed`](shoal_types::Unknown::LogFailed).
    pub fn flush(&self) -> Result<()> {
        self.embedded().map_or(Ok(()), Embedded::flush)
    }

    /// Closes a database on disk: transactions that have not begun to commit are rejected from now on, in all clones; what was
    /// committed is written out, and the folder is free. Does nothing to other databases.
    pub fn close(&self) {
        if let Some(embedded) = self.embedded() {
            embedded.close();
        }
    }

    /// Copies a database on disk into another folder, which is new or empty, while it is in use. The copy has all that was
    /// committed before this was called, and is opened like any other.
    ///
    /// # Errors
    /// [`OpenError::NotOnDisk`], [`OpenError::NotEmpty`]; where a file cannot be read or written.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<(), OpenError> {
        self.embedded().ok_or(OpenError::NotOnDisk)?.backup(path.as_ref())
    }

    /// Connects to the cluster `shoal`, which asks clients for no secret, through any of these addresses,
    /// `host:port`. All else is learned from the nodes.
    ///
    /// To be called on a tokio runtime: the connections live on it.
    ///
    /// # Errors
    /// The error at each address, if no node was reached.
    ///
    /// # Panics
    /// If the system has no randomness, and outside of a tokio runtime.
    pub async fn connect<A: AsRef<str>>(addresses: &[A]) -> Result<Db, ConnectError> {
        Db::connect_with(addresses, ClusterOptions::default()).await
    }

    /// The same for a cluster with a name, a secret or TLS, and with deadlines and limits of your own.
    ///
    /// # Errors
    /// As for [`connect`](Db::connect), and where the cluster has no such [region](ClusterOptions::region) or the options
    /// are not [valid](ClusterOptions::validate).
    ///
    /// # Panics
    /// As for [`connect`](Db::connect).
    pub async fn connect_with<A: AsRef<str>>(
        addresses: &[A],
        options: ClusterOptions,
    ) -> Result<Db, ConnectError> {
        Ok(Cluster::connect_with(addresses, options).await?.into())
    }

    /// The same for callers without an async runtime: the connections live on a thread of the client.
    ///
    /// # Errors
    /// As for [`connect_with`](Db::connect_with), and where the system gives no thread.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn connect_blocking<A: AsRef<str>>(
        addresses: &[A],
        options: ClusterOptions,
    ) -> Result<Db, ConnectError> {
        let addresses = addresses.iter().map(|address| address.as_ref().into()).collect();
        Ok(connect_blocking(addresses, options)?.into())
    }

    /// The cluster, if this is a connected database: what only clusters have, such as shards and calls with a home.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.place {
            DbPlace::Embedded(_) => None,
            DbPlace::Cluster(cluster) => Some(cluster),
        }
    }

    /// The database in this process, if this is an embedded one.
    pub fn embedded(&self) -> Option<&Embedded> {
        match &self.place {
            DbPlace::Embedded(embedded) => Some(embedded),
            DbPlace::Cluster(_) => None,
        }
    }

    /// The same database, with another deadline than that of the [options](ClusterOptions::deadline). An embedded one
    /// has none, and stays as it is.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Db {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.clone().into(),
            DbPlace::Cluster(cluster) => cluster.with_deadline(deadline).into(),
        }
    }

    /// The same database, on which these procedures can be called by name, and no others. Clones that were made before
    /// keep theirs. The procedures of a cluster are those of its nodes: a connected database stays as it is.
    ///
    /// ```
    /// # use bytes::Bytes;
    /// # use shoal_client::{Db, Error, ProcedureTransaction, Procedures, Result};
    /// # use shoal_types::Transaction as _;
    /// async fn deposit(tx: &ProcedureTransaction<'_>, account: &[u8]) -> Result<Bytes> {
    ///     let balance = tx.add(tx.table("accounts")?, account, 1).await?;
    ///     Ok(Bytes::copy_from_slice(&balance.to_le_bytes()))
    /// }
    ///
    /// let db = Db::memory().with_procedures(Procedures::new().with("deposit", deposit));
    /// assert_eq!(db.call_blocking("deposit", b"alice")?, 1i64.to_le_bytes()[..]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn with_procedures(self, procedures: Procedures) -> Db {
        match self.place {
            DbPlace::Embedded(embedded) => embedded.with_procedures(procedures).into(),
            DbPlace::Cluster(cluster) => cluster.into(),
        }
    }

    /// The table of this name; creates it if there is none, in a cluster partitioned by a hash over all shards.
    ///
    /// A cluster is asked for a table that the client does not know, and the calling thread waits for that, which takes
    /// some tenths of a second where the table is created; [`open_table`](Db::open_table) is the same without holding a thread.
    ///
    /// # Errors
    /// [`Rejected::TableName`](shoal_types::Rejected::TableName),
    /// [`Rejected::TooManyTables`](shoal_types::Rejected::TooManyTables); of a cluster those of
    /// [`create_table`](Db::create_table), but for [`Rejected::TableExists`](shoal_types::Rejected::TableExists).
    pub fn table(&self, name: &str) -> Result<TableId> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.table(name),
            DbPlace::Cluster(cluster) => cluster.table(name),
        }
    }

    /// [`table`](Db::table), without holding a thread.
    ///
    /// # Errors
    /// As for [`table`](Db::table).
    pub async fn open_table(&self, name: &str) -> Result<TableId> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.table(name),
            DbPlace::Cluster(cluster) => cluster.open_table(name).await,
        }
    }

    /// Creates a table. All nodes of a cluster that live serve it when this returns. Where it exists and is divided like
    /// that, this is the table that exists. An embedded database has no partitions: any table of the name will do.
    ///
    /// ```
    /// # use shoal_client::{Db, Error, Partitioning};
    /// # futures_executor::block_on(async {
    /// # let db = Db::memory();
    /// // The orders of a customer, whose number takes eight bytes, live on one shard.
    /// let orders = db.create_table("orders", Partitioning::Hash { prefix_bytes: 8 }).await?;
    /// # let _ = orders;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`Cluster::create_table`]; of an embedded database as for [`table`](Db::table).
    pub async fn create_table(
        &self,
        name: &str,
        definition: impl Into<TableDefinition>,
    ) -> Result<TableId> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.table(name),
            DbPlace::Cluster(cluster) => cluster.create_table(name, definition).await,
        }
    }

    /// Drops the table of this name, with all its rows, and returns the id that it had: all that uses the id fails from here
    /// on with [`Rejected::TableDropped`](shoal_types::Rejected::TableDropped). A table that is created later under the
    /// name is another one.
    ///
    /// # Errors
    /// [`Rejected::UnknownTableName`](shoal_types::Rejected::UnknownTableName); see [`Embedded::drop_table`] and
    /// [`Cluster::drop_table`].
    pub async fn drop_table(&self, name: &str) -> Result<TableId> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.drop_table(name),
            DbPlace::Cluster(cluster) => cluster.drop_table(name).await,
        }
    }

    /// Runs `body` as one strictly serializable transaction and commits it.
    ///
    /// Where nothing has happened, after a conflict or since a node failed, `body` runs again, after a short random
    /// pause, up to [`Options::attempts_max`] or [`ClusterOptions::attempts_max`] times and until the deadline: it should do
    /// nothing that must not be done twice. An error that it returns rolls the transaction back and is returned here, but
    /// only once what it read has proved to be consistent; otherwise it runs again. If the future is dropped, or `body`
    /// panics, nothing happened, unless a cluster was asked to commit.
    ///
    /// The future can be spawned on a runtime of many threads. The compiler asks for `async move |tx|`
    /// there: it cannot yet prove that what a body borrows from around it may move between threads.
    ///
    /// ```
    /// # use shoal_client::{Db, Error};
    /// # futures_executor::block_on(async {
    /// let db = Db::memory();
    /// let accounts = db.table("accounts")?;
    /// let moved = db
    ///     .transact(async |tx| {
    ///         let left = tx.add(accounts, b"alice", -10).await?;
    ///         if left < 0 {
    ///             return Err(Error::reject("insufficient funds"));
    ///         }
    ///         tx.add(accounts, b"bob", 10).await
    ///     })
    ///     .await;
    /// assert_eq!(moved, Err(Error::reject("insufficient funds")));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// What `body` returns; [`Aborted`](shoal_types::Error::Aborted) where all attempts or all the time are used up;
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions),
    /// [`Rejected::TransactionsMax`](shoal_types::Rejected::TransactionsMax). Of a cluster also
    /// [`Unknown`](shoal_types::Error::Unknown) where the deadline passed before it was known what became of the commit.
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        attempts::run(self, body).await
    }

    /// [`transact`](Db::transact) for callers without an async runtime. The calling thread waits: for a cluster by way of
    /// a client with a thread of its own, so that it may be any thread.
    ///
    /// # Errors
    /// As for [`transact`](Db::transact).
    #[inline]
    pub fn transact_blocking<T>(
        &self,
        body: impl FnMut(&BlockingTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        match &self.place {
            DbPlace::Embedded(embedded) => {
                let mut retries = None;
                let begin = || {
                    let tx = BlockingPlace::Embedded(embedded.attempt_begin()?);
                    Ok(BlockingTransaction::new(tx))
                };
                let pause = |error| embedded.pause_blocking(&mut retries, error);
                run_blocking(begin, pause, body)
            }
            DbPlace::Cluster(cluster) => {
                let (client, thread) = cluster.blocking()?;
                let mut attempts = client.retries()?;
                let until = attempts.until();
                let begin = || {
                    let tx = client.begin_until(until);
                    let tx = Box::new(WaitingTransaction::new(tx, Arc::clone(&thread)));
                    Ok(BlockingTransaction::new(BlockingPlace::Cluster(tx)))
                };
                let pause = |error| thread.block_on(attempts.pause(error));
                run_blocking(begin, pause, body)
            }
        }
    }

    /// Writes many rows into a table, whether or not their keys exist, and returns their number. Faster than a transaction for
    /// each: a transaction writes some hundred rows, and on a cluster several of them are in flight on each shard, none of
    /// which crosses shards.
    ///
    /// `loaded` is called with the number of rows of each transaction that has committed: as a progress bar needs it. The whole is
    /// not one transaction: others see some rows before others, and after an error some rows are written and others are not.
    /// Loading them all again is harmless where no other transaction writes to them.
    ///
    /// ```
    /// # use shoal_client::{Db, Error};
    /// # futures_executor::block_on(async {
    /// # let db = Db::memory();
    /// let squares = db.table("squares")?;
    /// let rows = (0..100_000_u64).map(|n| (n.to_be_bytes(), (n * n).to_le_bytes()));
    /// let mut loaded = 0;
    /// let rows = db.load(squares, rows, |more| loaded += more).await?;
    /// assert_eq!((rows, loaded), (100_000, 100_000));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The first error of a transaction, as for [`transact`](Db::transact); no other begins after it.
    pub async fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        table: TableId,
        rows: impl IntoIterator<Item = (K, V)>,
        mut loaded: impl FnMut(u64),
    ) -> Result<u64> {
        let mut sum = 0;
        let mut count = |more| {
            sum += more;
            loaded(more);
        };
        self.load_rows(rows.into_iter().map(load_row(table)), &mut count).await?;
        Ok(sum)
    }

    /// [`load`](Db::load) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`load`](Db::load).
    pub fn load_blocking<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        table: TableId,
        rows: impl IntoIterator<Item = (K, V)>,
        mut loaded: impl FnMut(u64),
    ) -> Result<u64> {
        match &self.place {
            DbPlace::Embedded(_) => {
                let mut sum = 0;
                for batch in bulk_load::batches(rows.into_iter().map(load_row(table))) {
                    let rows = batch.rows();
                    self.transact_blocking(|tx| {
                        rows.iter().try_for_each(|row| tx.put(row.table, &row.key, &row.value))
                    })?;
                    sum += rows.len() as u64;
                    loaded(rows.len() as u64);
                }
                Ok(sum)
            }
            DbPlace::Cluster(cluster) => {
                let (client, thread) = cluster.blocking()?;
                thread.block_on(Db::from(client).load(table, rows, loaded))
            }
        }
    }

    async fn load_rows<L: FnMut(u64) + ?Sized>(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut L,
    ) -> Result<()> {
        match &self.place {
            DbPlace::Embedded(_) => {
                for batch in bulk_load::batches(rows) {
                    let count = batch.rows().len() as u64;
                    let write = async move |tx: &mut Transaction<'_>| {
                        let mut rows = batch.rows().iter();
                        rows.try_for_each(|row| tx.put(row.table, &row.key, &row.value))
                    };
                    self.transact(write).await?;
                    loaded(count);
                }
                Ok(())
            }
            DbPlace::Cluster(cluster) => cluster.load(rows, loaded).await,
        }
    }

    /// Calls a procedure by name, as one transaction, which is retried as in [`transact`](Db::transact). An embedded
    /// database knows those of [`with_procedures`](Db::with_procedures), a cluster those that its nodes know. A cluster
    /// is sent one message, and the call takes effect once, with any losses on the way and whichever nodes fail. The future
    /// can be spawned on a runtime of many threads.
    ///
    /// # Errors
    /// [`Rejected::UnknownProcedure`](shoal_types::Rejected::UnknownProcedure); those of the procedure; as for
    /// [`transact`](Db::transact). Of a cluster [`Unknown::Call`](shoal_types::Unknown::Call) where the deadline passed:
    /// then [`Cluster::call_again`] shows it.
    pub async fn call(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        self.run_call(&Call::new(procedure, arguments)).await
    }

    /// The same, executed on the shard on which `key` lives: best one that the procedure works with. It makes no
    /// difference to an embedded database.
    ///
    /// # Errors
    /// As for [`call`](Db::call), and [`Rejected::UnknownTable`](shoal_types::Rejected::UnknownTable).
    pub async fn call_near(
        &self,
        table: TableId,
        key: &[u8],
        procedure: &str,
        arguments: &[u8],
    ) -> Result<Bytes> {
        self.run_call(&Call::new(procedure, arguments).near(table, key)).await
    }

    async fn run_call(&self, call: &Call<'_>) -> Result<Bytes> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.call(call.procedure, call.arguments).await,
            DbPlace::Cluster(cluster) => cluster.call_at_home(call).await,
        }
    }

    /// [`call`](Db::call) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`call`](Db::call).
    pub fn call_blocking(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.call_blocking(procedure, arguments),
            DbPlace::Cluster(cluster) => {
                let (client, thread) = cluster.blocking()?;
                thread.block_on(Db::from(client).call(procedure, arguments))
            }
        }
    }

    /// Begins an interactive transaction. The caller ends it, and retries it where it likes; it keeps
    /// the database alive. In memory it holds back the reclamation of memory while it is open, so end it soon. On a cluster
    /// each of its operations may take as long as the deadline says, and nothing is sent before its first operation that
    /// has an answer.
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions).
    pub fn begin(&self) -> Result<Transaction<'static>> {
        Ok(Transaction::new(match &self.place {
            DbPlace::Embedded(embedded) => TransactionPlace::Embedded(embedded.begin()?),
            DbPlace::Cluster(cluster) => TransactionPlace::Cluster(Box::new(cluster.begin()?)),
        }))
    }

    /// [`begin`](Db::begin) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`begin`](Db::begin).
    pub fn begin_blocking(&self) -> Result<BlockingTransaction<'static>> {
        Ok(BlockingTransaction::new(match &self.place {
            DbPlace::Embedded(embedded) => BlockingPlace::Embedded(embedded.begin()?),
            DbPlace::Cluster(cluster) => {
                let (client, thread) = cluster.blocking()?;
                let tx = WaitingTransaction::new(client.begin()?, thread);
                BlockingPlace::Cluster(Box::new(tx))
            }
        }))
    }

    /// Bytes that keys, values and index take now, to within 64 KiB an open transaction; `None` of a cluster.
    pub fn memory_bytes(&self) -> Option<usize> {
        self.embedded().map(Embedded::memory_bytes)
    }
}

/// [`attempts::run`] for a caller that waits on its thread: `begin` begins an attempt, and `pause` pauses after one.
#[inline]
fn run_blocking<'p, T>(
    mut begin: impl FnMut() -> Result<BlockingTransaction<'p>>,
    mut pause: impl FnMut(Error) -> Result<()>,
    mut body: impl FnMut(&BlockingTransaction<'_>) -> Result<T>,
) -> Result<T> {
    loop {
        let tx = begin()?;
        let error = match body(&tx) {
            Ok(value) => match tx.commit() {
                Ok(()) => return Ok(value),
                Err(error) => error,
            },
            Err(error) => tx.confirm_failure(error),
        };
        pause(error)?;
    }
}

/// Makes a row of a table from a key and a value.
fn load_row<K: AsRef<[u8]>, V: AsRef<[u8]>>(table: TableId) -> impl Fn((K, V)) -> LoadRow {
    move |(key, value)| LoadRow::new(table, key.as_ref(), value.as_ref())
}

/// The retries, or the transaction, of a database of the other kind.
#[cold]
fn mixed() -> ! {
    unreachable!("a database and its transactions are of one kind")
}

impl From<Embedded> for Db {
    fn from(embedded: Embedded) -> Db {
        Db { place: DbPlace::Embedded(embedded) }
    }
}

impl From<Cluster> for Db {
    fn from(cluster: Cluster) -> Db {
        Db { place: DbPlace::Cluster(cluster) }
    }
}

impl Place for Db {
    type Transaction<'p> = Transaction<'p>;
    type Retries = DbRetries;

    #[inline]
    fn retries(&self) -> Result<DbRetries> {
        match &self.place {
            DbPlace::Embedded(_) => Ok(DbRetries::Embedded(None)),
            DbPlace::Cluster(cluster) => cluster.retries().map(DbRetries::Cluster),
        }
    }

    #[inline]
    fn attempt(&self, retries: &DbRetries) -> Result<Transaction<'_>> {
        Ok(Transaction::new(match (&self.place, retries) {
            (DbPlace::Embedded(embedded), _) => {
                TransactionPlace::Embedded(embedded.attempt_begin()?)
            }
            (DbPlace::Cluster(cluster), DbRetries::Cluster(attempts)) => {
                TransactionPlace::Cluster(Box::new(cluster.begin_until(attempts.until())))
            }
            (DbPlace::Cluster(_), DbRetries::Embedded(_)) => mixed(),
        }))
    }

    #[inline]
    fn end<'p>(&'p self, tx: Transaction<'p>) -> TransactionFuture<'p, ()> {
        tx.commit()
    }

    async fn confirm_failure<'p>(&'p self, tx: Transaction<'p>, error: Error) -> Error {
        match tx.into_place() {
            TransactionPlace::Embedded(tx) => tx.confirm_failure_later(error).await,
            TransactionPlace::Cluster(tx) => tx.confirm_failure(error).await,
        }
    }

    async fn pause(&self, retries: &mut DbRetries, error: Error) -> Result<()> {
        match (&self.place, retries) {
            (DbPlace::Embedded(embedded), DbRetries::Embedded(retries)) => {
                embedded.pause(retries, error).await
            }
            (DbPlace::Cluster(_), DbRetries::Cluster(attempts)) => attempts.pause(error).await,
            (DbPlace::Embedded(_), DbRetries::Cluster(_))
            | (DbPlace::Cluster(_), DbRetries::Embedded(_)) => mixed(),
        }
    }
}

impl Database for Db {
    type Transaction<'db> = Transaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        Db::table(self, name)
    }

    fn memory_bytes(&self) -> Option<usize> {
        Db::memory_bytes(self)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        Db::transact(self, async |tx: &mut Transaction<'_>| body(tx).await).await
    }

    async fn load(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.load_rows(rows, loaded).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.run_call(call).await
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            DbPlace::Embedded(embedded) => embedded.fmt(f),
            DbPlace::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
