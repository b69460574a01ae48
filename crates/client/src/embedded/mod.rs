//! The embedded database: tables in the memory of this process, and on a disk if they should outlive it.
//!
//! `durable/` has the log and the checkpoints of a database on disk, `transaction.rs` its transactions, `procedure.rs` how procedures run on them, `retry.rs` and `pool.rs` retries and
//! idle sessions, `planted.rs` bugs for tests of tests.

mod durable;
mod planted;
mod pool;
mod procedure;
mod retry;
mod transaction;

pub use durable::{Examination, ExaminedTable, OpenError};
pub use planted::EmbeddedPlantedBugs;
pub(crate) use retry::LocalRetries;
pub use transaction::EmbeddedTransaction;

use crate::attempts::{self, Place};
use crate::future::TransactionFuture;
use bytes::Bytes;
use durable::{Durability, DurableLog, LogOptions};
use pool::{Pool, thread_slot};
use ring::rand::{SecureRandom, SystemRandom};
use shoal_disk::DiskFolder;
use shoal_store::{Store, StoreBugs, WalkPlace};
use shoal_types::{Call, Database, Epoch, Error, Procedures, Rejected, Result, TableId};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    /// How often [`Db::transact`](crate::Db::transact) runs a transaction that keeps meeting conflicts before it gives
    /// up. More make an error rarer and the worst latency longer. Default 1000.
    pub attempts_max: u32,
    /// Of a database on disk: bytes of a segment of its log, a multiple of 512, at least 4096. Two exist at least; a larger
    /// one is begun less often. Default 64 MiB.
    pub log_segment_bytes: u64,
    /// Of a database on disk: a checkpoint is taken when the log has grown by this since the last one, in bytes, and by as
    /// much as that one has. Fewer make opening quicker, and write more. Default 256 MiB.
    pub checkpoint_log_bytes: u64,
    /// Of a database on disk: what is not flushed is lost with the process, as if its machine lost power. For tests. Default false.
    #[doc(hidden)]
    pub loses_unflushed: bool,
    /// Of a database on disk: how much longer each flush takes. For tests. Default zero.
    #[doc(hidden)]
    pub flush_delay: Duration,
    /// Planted bugs, for tests of tests. Default: none.
    #[doc(hidden)]
    pub faults: StoreBugs,
    /// Of a database on disk: planted bugs of its replies. Default: none.
    #[doc(hidden)]
    pub planted: EmbeddedPlantedBugs,
}

impl Default for Options {
    fn default() -> Options {
        let store = shoal_store::Options::default();
        Options {
            transactions_max: store.transactions_max,
            memory_bytes_max: store.memory_bytes_max,
            memory_bytes_reserved: store.memory_bytes_reserved,
            attempts_max: 1000,
            log_segment_bytes: 64 << 20,
            checkpoint_log_bytes: 256 << 20,
            loses_unflushed: false,
            flush_delay: Duration::ZERO,
            faults: StoreBugs::NONE,
            planted: EmbeddedPlantedBugs::default(),
        }
    }
}

/// An embedded database, for programs that never connect to a cluster: what it has in common with a connected one is
/// [`Db`](crate::Db), which [holds](crate::Db::embedded) one of these. An operation of its transactions is one function
/// call, where that of a [`Db`](crate::Db) looks first which of both it is.
///
/// Cheap to clone; all clones are the same database, and any number of threads may use it at once.
#[derive(Clone)]
pub struct Embedded {
    pool: Arc<Pool>,
    attempts_max: u32,
    /// The procedures that can be called by name.
    procedures: Option<Arc<Procedures>>,
}

impl Embedded {
    /// An empty database in memory, with limits of your own.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn with_options(options: Options) -> Embedded {
        Embedded::on(Pool::new(store_of(options), None), options)
    }

    /// Opens the database in this folder; see [`Db::open`](crate::Db::open).
    ///
    /// # Errors
    /// See there.
    ///
    /// # Panics
    /// If the system has no randomness, and where the size of a segment is not allowed.
    pub fn open(path: &Path, options: Options) -> Result<Embedded, OpenError> {
        let log_options = LogOptions {
            segment_bytes: options.log_segment_bytes,
            checkpoint_bytes: options.checkpoint_log_bytes,
            planted: options.planted,
        };
        let make = || store_of(options);
        let mut folder = DiskFolder::open(path)?.with_flush_delay(options.flush_delay);
        if options.loses_unflushed {
            folder = folder.losing_unflushed();
        }
        let (store, log) = DurableLog::begin(folder, path, log_options, make, random_number)?;
        Ok(Embedded::on(Pool::new(store, Some(log)), options))
    }

    /// How many checkpoints of a database on disk were completed since it was opened.
    pub fn checkpoints(&self) -> u64 {
        self.pool.log().map_or(0, DurableLog::checkpoints)
    }

    fn on(pool: Pool, options: Options) -> Embedded {
        let attempts_max = options.attempts_max;
        Embedded { pool: Arc::new(pool), attempts_max, procedures: None }
    }

    /// See [`Db::flush`](crate::Db::flush).
    ///
    /// # Errors
    /// See there.
    pub fn flush(&self) -> Result<()> {
        self.pool.log().map_or(Ok(()), |log| log.flush(self.pool.store()))
    }

    /// See [`Db::close`](crate::Db::close).
    pub fn close(&self) {
        if let Some(log) = self.pool.log() {
            log.close();
        }
    }

    /// See [`Db::backup`](crate::Db::backup).
    ///
    /// # Errors
    /// See there.
    pub fn backup(&self, path: &Path) -> Result<(), OpenError> {
        let log = self.pool.log().ok_or(OpenError::NotOnDisk)?;
        log.backup(self.pool.store(), path)
    }

    /// See [`Db::with_procedures`](crate::Db::with_procedures).
    #[must_use]
    pub fn with_procedures(self, procedures: Procedures) -> Embedded {
        Embedded { procedures: Some(Arc::new(procedures)), ..self }
    }

    /// The table of this name; creates it if there is none.
    ///
    /// # Errors
    /// [`Rejected::TableName`](shoal_types::Rejected::TableName),
    /// [`Rejected::TooManyTables`](shoal_types::Rejected::TooManyTables).
    pub fn table(&self, name: &str) -> Result<TableId> {
        self.pool.table(name)
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
        match self.pool.log() {
            Some(log) => log.drop_table(store, table)?,
            None => drop(store.drop_table(table)),
        }
        let mut next = Some(WalkPlace { table, key: Vec::new() });
        while let Some(place) = next {
            next = session.free_table(&place, FREED_AT_ONCE);
            std::thread::yield_now();
        }
        Ok(table)
    }

    /// Calls a procedure by name; see [`Db::call`](crate::Db::call).
    ///
    /// # Errors
    /// See there.
    pub async fn call(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        let procedure = self.procedures().get(procedure)?;
        let mut retries = None;
        loop {
            let attempt = self.run_once(|tx| procedure.run_at_once(tx, arguments))?;
            attempt.durability.await?;
            match attempt.result {
                Ok(result) => return Ok(result),
                Err(error) => self.pause(&mut retries, error).await?,
            }
        }
    }

    /// [`call`](Embedded::call) for callers without an async runtime.
    ///
    /// # Errors
    /// As for [`call`](Embedded::call).
    pub fn call_blocking(&self, procedure: &str, arguments: &[u8]) -> Result<Bytes> {
        let procedure = self.procedures().get(procedure)?;
        let mut retries = None;
        loop {
            let attempt = self.run_once(|tx| procedure.run_at_once(tx, arguments))?;
            attempt.durability.wait()?;
            match attempt.result {
                Ok(result) => return Ok(result),
                Err(error) => self.pause_blocking(&mut retries, error)?,
            }
        }
    }

    /// Runs `body` once, and commits it. An error means that it did not begin.
    #[inline]
    fn run_once<T>(
        &self,
        body: impl FnOnce(&EmbeddedTransaction<'_>) -> Result<T>,
    ) -> Result<Attempt<T>> {
        let tx = self.attempt_begin()?;
        Ok(match body(&tx) {
            Ok(value) => match tx.certify() {
                Ok(durability) => Attempt { result: Ok(value), durability },
                Err(error) => Attempt { result: Err(error), durability: Durability::reached() },
            },
            Err(error) => {
                let (error, durability) = tx.confirm_reads(error);
                Attempt { result: Err(error), durability }
            }
        })
    }

    /// A transaction that borrows the database.
    #[inline]
    pub(crate) fn attempt_begin(&self) -> Result<EmbeddedTransaction<'_>> {
        Ok(EmbeddedTransaction::on(self.pool.take()?))
    }

    /// Pauses after an attempt that `error` ended.
    ///
    /// # Errors
    /// See [`LocalRetries::pause_blocking`].
    #[cold]
    pub(crate) fn pause_blocking(
        &self,
        retries: &mut Option<LocalRetries>,
        error: Error,
    ) -> Result<()> {
        retries.get_or_insert_with(|| self.new_retries()).pause_blocking(error)
    }

    fn procedures(&self) -> &Procedures {
        static NONE: Procedures = Procedures::new();
        self.procedures.as_deref().unwrap_or(&NONE)
    }

    /// Begins an interactive transaction; see [`Db::begin`](crate::Db::begin).
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`](shoal_types::Rejected::TooManyTransactions).
    pub fn begin(&self) -> Result<EmbeddedTransaction<'static>> {
        Ok(EmbeddedTransaction::on(self.pool.take_owned()?))
    }

    /// Bytes that keys, values and index take now, to within 64 KiB an open transaction.
    pub fn memory_bytes(&self) -> usize {
        self.pool.store().memory_bytes()
    }

    #[cold]
    fn new_retries(&self) -> LocalRetries {
        // Rivals in a conflict run on different threads, or after different commits.
        let seed = (thread_slot() as u64) << 48 ^ self.pool.store().clock().0;
        LocalRetries::new(self.attempts_max, seed)
    }
}

/// An attempt of a transaction. The result counts when what was read and written is durable.
struct Attempt<T> {
    result: Result<T>,
    durability: Durability,
}

/// An empty store. Its hash, by which transactions find their writes, has a random seed, so that keys cannot be chosen to
/// collide.
fn store_of(options: Options) -> Arc<Store> {
    Arc::new(Store::new(shoal_store::Options {
        transactions_max: options.transactions_max,
        memory_bytes_max: options.memory_bytes_max,
        memory_bytes_reserved: options.memory_bytes_reserved,
        epoch: Epoch::default(),
        hash_seed: random_number(),
        faults: options.faults,
    }))
}

fn random_number() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    u64::from_le_bytes(bytes)
}

impl Place for Embedded {
    type Transaction<'p> = EmbeddedTransaction<'p>;
    type Retries = Option<LocalRetries>;

    #[inline]
    fn retries(&self) -> Result<Option<LocalRetries>> {
        Ok(None)
    }

    #[inline]
    fn attempt(&self, _: &Option<LocalRetries>) -> Result<EmbeddedTransaction<'_>> {
        self.attempt_begin()
    }

    #[inline]
    fn end<'p>(&'p self, tx: EmbeddedTransaction<'p>) -> TransactionFuture<'p, ()> {
        tx.commit_later()
    }

    async fn confirm_failure<'p>(&'p self, tx: EmbeddedTransaction<'p>, error: Error) -> Error {
        tx.confirm_failure_later(error).await
    }

    async fn pause(&self, retries: &mut Option<LocalRetries>, error: Error) -> Result<()> {
        retries.get_or_insert_with(|| self.new_retries()).pause(error).await
    }
}

impl Database for Embedded {
    type Transaction<'db> = EmbeddedTransaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        Embedded::table(self, name)
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(Embedded::memory_bytes(self))
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&EmbeddedTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        attempts::run(self, async |tx: &mut EmbeddedTransaction<'_>| body(tx).await).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Embedded::call(self, call.procedure, call.arguments).await
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("store", self.pool.store()).finish_non_exhaustive()
    }
}
