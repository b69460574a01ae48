//! The database, and how it runs a transaction.

use crate::pool::{Pool, thread_slot};
use crate::retry::LocalRetries;
use crate::transaction::{BlockingTransaction, Transaction};
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use shoal_store::{Store, StoreBugs, WalkPlace};
use shoal_types::{Call, Database, Epoch, Procedures, Rejected, Result, TableId};
use std::fmt;
use std::sync::Arc;

/// Records of a dropped table that are looked at in one go.
const FREED_AT_ONCE: usize = 1024;

/// What a database allows. Start from the default:
///
/// ```
/// # use shoal_client::{Db, Options};
/// let db = Db::with_options(Options { memory_bytes_max: 1 << 30, ..Options::default() });
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Transactions that may be open at once. More make the next one fail, with an error that says
    /// so; and so does each where this is above
    /// [`TRANSACTIONS_OPEN_MAX`](shoal_types::limits::TRANSACTIONS_OPEN_MAX). Default 1024.
    pub transactions_max: usize,
    /// Bytes that keys, values, index and the lists of open transactions may take together; a put beyond
    /// it is rejected, a delete is not. It counts what is stored: what was freed is used again for blocks of a similar
    /// size, but the process keeps it until the database goes. Default: no limit.
    pub memory_bytes_max: usize,
    /// Bytes to take from the system at the start, so that growing to that size costs no transaction
    /// the time in which the system finds and clears a page. More is taken as needed. Default 0.
    pub memory_bytes_reserved: usize,
    /// How often [`Db::transact`] runs a transaction that keeps meeting conflicts before it gives
    /// up. More make an error rarer and the worst latency longer. Default 1000.
    pub attempts_max: u32,
    /// Planted bugs, for tests of tests. Default: none.
    #[doc(hidden)]
    pub faults: StoreBugs,
}

impl Default for Options {
    fn default() -> Options {
        let store = shoal_store::Options::default();
        Options {
            transactions_max: store.transactions_max,
            memory_bytes_max: store.memory_bytes_max,
            memory_bytes_reserved: store.memory_bytes_reserved,
            attempts_max: 1000,
            faults: StoreBugs::NONE,
        }
    }
}

/// A database. Cheap to clone; all clones are the same database, and any number of threads may use
/// it at once.
#[derive(Clone)]
pub struct Db {
    pool: Arc<Pool>,
    attempts_max: u32,
    /// The procedures that can be called by name.
    procedures: Option<Arc<Procedures>>,
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
        let store = Store::new(shoal_store::Options {
            transactions_max: options.transactions_max,
            memory_bytes_max: options.memory_bytes_max,
            memory_bytes_reserved: options.memory_bytes_reserved,
            epoch: Epoch::default(),
            hash_seed: hash_seed(),
            faults: options.faults,
        });
        let attempts_max = options.attempts_max;
        Db { pool: Arc::new(Pool::new(Arc::new(store))), attempts_max, procedures: None }
    }

    /// The same database, on which these procedures can be called by name, and no others. Clones that were made before
    /// keep theirs.
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
        Db { procedures: Some(Arc::new(procedures)), ..self }
    }

    /// The table of this name; creates it if there is none.
    ///
    /// # Errors
    /// [`Rejected::TableName`](shoal_types::Rejected::TableName),
    /// [`Rejected::TooManyTables`](shoal_types::Rejected::TooManyTables).
    pub fn table(&self, name: &str) -> Result<TableId> {
        self.pool.store().table(name)
    }

    /// Drops the table of this name, with all its rows, and returns the id that it had: all that uses the id fails from here
    /// on with [`Rejected::TableDropped`](shoal_types::Rejected::TableDropped). Waits for transactions that are installing
    /// rows of it.
    ///
    /// # Errors
    /// [`Rejected::UnknownTableName`](shoal_types::Rejected::UnknownTableName);
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions) where no session is left to free the rows.
    pub fn drop_table(&self, name: &str) -> Result<TableId> {
        let store = self.pool.store();
        let unknown = || Rejected::UnknownTableName { name: name.into() };
        let table = store.named(name).ok_or_else(unknown)?;
        let mut session = store.session()?;
        store.drop_table(table);
        let mut next = Some(WalkPlace { table, key: Vec::new() });
        while let Some(place) = next {
            next = session.free_table(&place, FREED_AT_ONCE);
            std::thread::yield_now();
        }
        Ok(table)
    }

    /// Runs `body` as one strictly serializable transaction and commits it.
    ///
    /// On a conflict with another transaction `body` runs again, after a short random pause, up to
    /// [`Options::attempts_max`] times: it should do nothing that must not be done twice. An error
    /// that it returns rolls the transaction back and is returned here, but only once what it read
    /// has proved to be consistent; otherwise it runs again. If the future is dropped, or `body`
    /// panics, nothing happened.
    ///
    /// The future can be spawned on a runtime of many threads. The compiler asks for `async move |tx|`
    /// there: it cannot yet tell that what a body borrows from around it may move between threads.
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
    /// What `body` returns; [`Aborted::RetriesExhausted`](shoal_types::Aborted::RetriesExhausted);
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions),
    /// [`Rejected::TransactionsMax`](shoal_types::Rejected::TransactionsMax).
    pub async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut retries = None;
        loop {
            let mut tx = Transaction::new(BlockingTransaction::on(self.pool.take()?));
            let error = match body(&mut tx).await {
                Ok(value) => match tx.end() {
                    Ok(()) => return Ok(value),
                    Err(error) => error,
                },
                Err(error) => tx.confirm_failure(error),
            };
            retries.get_or_insert_with(|| self.retries()).pause(error).await?;
        }
    }

    /// [`transact`](Db::transact) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`transact`](Db::transact).
    pub fn transact_blocking<T>(
        &self,
        mut body: impl FnMut(&BlockingTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut retries = None;
        loop {
            match self.attempt(&mut body)? {
                Ok(value) => return Ok(value),
                Err(error) => {
                    retries.get_or_insert_with(|| self.retries()).pause_blocking(error)?;
                }
            }
        }
    }

    /// Runs `body` once, and commits it. The inner result is that of the attempt; an error outside means that
    /// it did not begin.
    #[inline]
    fn attempt<T>(
        &self,
        body: &mut impl FnMut(&BlockingTransaction<'_>) -> Result<T>,
    ) -> Result<Result<T>> {
        let tx = BlockingTransaction::on(self.pool.take()?);
        Ok(match body(&tx) {
            Ok(value) => tx.commit().map(|()| value),
            Err(error) => Err(tx.confirm_failure(error)),
        })
    }

    /// Calls a procedure by name, as one transaction, which is retried as in [`transact`](Db::transact). The future can be
    /// spawned on a runtime of many threads.
    ///
    /// # Errors
    /// [`Rejected::UnknownProcedure`](shoal_types::Rejected::UnknownProcedure); those of the procedure; and as for
    /// [`transact`](Db::transact).
    pub async fn call(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        let procedure = self.procedures().get(procedure)?;
        let mut retries = None;
        loop {
            match self.attempt(&mut |tx| procedure.run_at_once(tx, arguments))? {
                Ok(result) => return Ok(result),
                Err(error) => {
                    retries.get_or_insert_with(|| self.retries()).pause(error).await?;
                }
            }
        }
    }

    /// [`call`](Db::call) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`call`](Db::call).
    pub fn call_blocking(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        let procedure = self.procedures().get(procedure)?;
        self.transact_blocking(|tx| procedure.run_at_once(tx, arguments))
    }

    fn procedures(&self) -> &Procedures {
        static NONE: Procedures = Procedures::new();
        self.procedures.as_deref().unwrap_or(&NONE)
    }

    /// Begins an interactive transaction. The caller ends it, and retries it where it likes; it keeps
    /// the database alive. It holds back the reclamation of memory while it is open, so end it soon.
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions).
    pub fn begin(&self) -> Result<Transaction<'static>> {
        self.begin_blocking().map(Transaction::new)
    }

    /// [`begin`](Db::begin) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`begin`](Db::begin).
    pub fn begin_blocking(&self) -> Result<BlockingTransaction<'static>> {
        Ok(BlockingTransaction::on(self.pool.take_owned()?))
    }

    /// Bytes that keys, values and index take now, to within 64 KiB an open transaction.
    pub fn memory_bytes(&self) -> usize {
        self.pool.store().memory_bytes()
    }

    #[cold]
    fn retries(&self) -> LocalRetries {
        // Rivals in a conflict run on different threads, or after different commits.
        let seed = (thread_slot() as u64) << 48 ^ self.pool.store().clock().0;
        LocalRetries::new(self.attempts_max, seed)
    }
}

/// A random seed of the hash by which transactions find their writes, so that keys cannot be chosen to
/// collide.
fn hash_seed() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    u64::from_le_bytes(bytes)
}

impl Database for Db {
    type Transaction<'db> = Transaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        Db::table(self, name)
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(Db::memory_bytes(self))
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        Db::transact(self, async |tx: &mut Transaction<'_>| body(tx).await).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Db::call(self, call.procedure, call.arguments).await
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("store", self.pool.store()).finish_non_exhaustive()
    }
}
