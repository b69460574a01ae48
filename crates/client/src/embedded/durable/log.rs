//! The log of a database on disk, as its transactions use it.

use super::backup;
use super::checkpoint::{Checkpointer, Checkpoints};
use super::durability::Durability;
use super::log_thread::{LogThread, ThreadFolder};
use super::open_error::OpenError;
use super::records;
use super::restore::{Restored, restore};
use super::shared::{Shared, Told, lock};
use crate::embedded::planted::EmbeddedPlantedBugs;
use shoal_store::{Session, Store, Transaction};
use shoal_types::limits::TABLE_IDS_MAX;
use shoal_types::{Clock, Epoch, NodeId, Rejected, Result, StampRef, TableId, Unknown};
use shoal_wal::{
    Folder, FolderError, LogEffect, LogIdentity, LogWriter, WriterOptions, perform,
    remove_unfinished,
};
use std::collections::VecDeque;
use std::fmt;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

/// What a log takes of the disk, and the bugs planted in its replies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    /// Of the files that the log consists of.
    pub(crate) segment_bytes: u64,
    /// The least growth of the log between two checkpoints, in bytes.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) planted: EmbeddedPlantedBugs,
}

/// The log of a database. Dropping it closes it.
pub(crate) struct DurableLog {
    shared: Arc<Shared>,
    path: PathBuf,
    checkpoints: Arc<Mutex<Checkpoints>>,
    /// Held while tables come and go.
    tables: Arc<Mutex<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    planted: EmbeddedPlantedBugs,
}

impl DurableLog {
    /// Opens the database of a folder: restores its store, into one that `make` makes, and goes on with its log. Backups are taken
    /// from the real folder at `path`.
    pub(crate) fn begin(
        mut folder: impl ThreadFolder,
        path: &Path,
        options: LogOptions,
        make: impl Fn() -> Arc<Store>,
        draw_volume: impl FnOnce() -> u64,
    ) -> Result<(Arc<Store>, DurableLog), OpenError> {
        remove_unfinished(&mut folder)?;
        let Restored { store, identity, recovered, kept, last_number, checkpoint_bytes } =
            restore(&mut folder, make)?;
        let of_new = || LogIdentity { cluster: None, node: NodeId(0), volume: draw_volume() };
        let identity = identity.unwrap_or_else(of_new);
        let segment_bytes = options.segment_bytes;
        let writer_options = WriterOptions { segment_bytes, ..WriterOptions::default() };
        let mut effects = Vec::new();
        let mut writer = LogWriter::begin(identity, writer_options, recovered, &mut effects);
        let effects = get_ready(&mut writer, &mut folder, effects)?;
        let checkpoints = Arc::new(Mutex::new(Checkpoints { kept, last_number }));
        let tables = Arc::default();
        let checkpointer = Checkpointer::new(
            identity,
            Arc::clone(&checkpoints),
            Arc::clone(&tables),
            segment_bytes,
            options.checkpoint_bytes,
            checkpoint_bytes,
        );
        let shared = Arc::new(Shared::new(store.clock(), segment_bytes));
        let (its, kept) = (Arc::clone(&shared), Arc::clone(&store));
        let log = LogThread::new(its, kept, folder, checkpointer, writer, effects);
        let thread = thread::Builder::new().name("shoal-log".into()).spawn(move || log.run());
        let thread = thread.map_err(|error| OpenError::Thread { reason: error.to_string() })?;
        let (path, thread) = (path.to_owned(), Mutex::new(Some(thread)));
        let planted = options.planted;
        Ok((store, DurableLog { shared, path, checkpoints, tables, thread, planted }))
    }

    /// What transactions need of the log.
    pub(crate) fn transactions(&self) -> LoggedTransactions {
        LoggedTransactions { shared: Arc::clone(&self.shared), planted: self.planted }
    }

    /// The table of this name; creates it, durably, if there is none.
    pub(crate) fn table(&self, store: &Store, name: &str) -> Result<TableId> {
        if let Some(table) = store.named(name) {
            return Ok(table);
        }
        let _tables = lock(&self.tables);
        if let Some(table) = store.named(name) {
            return Ok(table);
        }
        store.check_table(name)?;
        let table = store.next_table();
        if table.0 as usize >= TABLE_IDS_MAX {
            return Err(Rejected::TooManyTableIds { max: TABLE_IDS_MAX }.into());
        }
        self.append(records::TABLE_CREATED, records::encode_table(table, name))?;
        store.restore_table(name, table)?;
        Ok(table)
    }

    /// Drops a table, durably. Its rows are still to be freed.
    pub(crate) fn drop_table(&self, store: &Store, table: TableId) -> Result<()> {
        let _tables = lock(&self.tables);
        self.append(records::TABLE_DROPPED, records::encode_table(table, ""))?;
        store.drop_table(table);
        Ok(())
    }

    /// Appends a record, and waits until it is durable.
    fn append(&self, kind: u8, payload: Vec<u8>) -> Result<()> {
        self.shared.check(true)?;
        let (done, is_done) = mpsc::channel();
        self.shared.tell(Told::Record { kind, payload, done });
        is_done.recv().map_err(|_| Unknown::LogFailed.into())
    }

    /// Checkpoints that were completed since it was opened.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.shared.checkpoints.load(Ordering::Acquire)
    }

    /// Waits until everything that was committed is durable.
    pub(crate) fn flush(&self, store: &Store) -> Result<()> {
        Durability::of(Arc::clone(&self.shared), store.clock()).wait()
    }

    /// Writes out everything and ends. Later calls do nothing.
    pub(crate) fn close(&self) {
        self.shared.stop_taking("it was closed");
        self.shared.tell(Told::Close);
        if let Some(thread) = lock(&self.thread).take() {
            // A panic there was reported to all that waited.
            let _ = thread.join();
        }
    }

    /// Copies the database into another folder, with all that was committed before.
    pub(crate) fn backup(&self, store: &Store, to: &Path) -> Result<(), OpenError> {
        let checkpoints = lock(&self.checkpoints);
        self.flush(store)?;
        backup::copy(&self.path, to, &checkpoints, &self.shared)
    }
}

/// Commits transactions to a log.
pub(crate) struct LoggedTransactions {
    pub(super) shared: Arc<Shared>,
    planted: EmbeddedPlantedBugs,
}

impl LoggedTransactions {
    /// Commits a transaction, and returns what its caller has to wait for. An error means that nothing happened.
    pub(crate) fn commit<S: DerefMut<Target = Session>>(
        &self,
        transaction: Transaction<S>,
    ) -> Result<Durability> {
        if transaction.is_read_only() {
            return self.confirm_reads(&transaction);
        }
        let LoggedTransactions { shared, planted } = self;
        shared.check(true)?;
        let mut locked = transaction.lock()?;
        let mut record = records::encode_transaction(&locked);
        let drawn = Drawn { shared, clock: locked.draw_clock(), is_told: false };
        let clock = drawn.clock;
        locked.validate()?;
        records::set_clock(&mut record, clock);
        let stamp = StampRef { epoch: Epoch::default(), clock, remote: &[] };
        let removable = |tombstone: StampRef<'_>| {
            planted.forget_tombstones || tombstone.clock <= shared.durable.get()
        };
        locked.install_committed_until(usize::MAX, stamp, removable);
        drawn.installed(record);
        if planted.reply_before_flush {
            return Ok(Durability::reached());
        }
        Ok(Durability::of(Arc::clone(shared), clock))
    }

    /// Checks that all that was read is still so, and returns what the reader has to wait for.
    pub(crate) fn confirm_reads<S: DerefMut<Target = Session>>(
        &self,
        transaction: &Transaction<S>,
    ) -> Result<Durability> {
        self.shared.check(false)?;
        transaction.validate()?;
        if self.planted.reply_before_reads {
            return Ok(Durability::reached());
        }
        let mut newest = Clock::ZERO;
        transaction.versions_read(0, usize::MAX, |read| newest = newest.max(read.stamp.clock));
        Ok(Durability::of(Arc::clone(&self.shared), newest))
    }
}

impl Drop for DurableLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for DurableLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableLog").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Carries out what the writer wants until the number of this incarnation is durable. Returns what is left to do.
fn get_ready(
    writer: &mut LogWriter,
    folder: &mut impl Folder,
    effects: Vec<LogEffect>,
) -> Result<Vec<LogEffect>, OpenError> {
    let mut effects = VecDeque::from(effects);
    while !writer.is_ready() {
        let Some(effect) = effects.pop_front() else {
            let (file, what) = ("log".to_owned(), "the disk has no room for a segment".to_owned());
            return Err(FolderError { file, what, is_full: true }.into());
        };
        let mut more = Vec::new();
        writer.step(perform(folder, &effect), &mut more);
        effects.extend(more);
        if let Some(failure) = writer.failure() {
            return Err(failure.clone().into());
        }
    }
    Ok(effects.into())
}

/// A clock that was drawn: the log waits for its transaction, or for the news that it failed.
struct Drawn<'l> {
    shared: &'l Shared,
    clock: Clock,
    is_told: bool,
}

impl Drawn<'_> {
    fn installed(mut self, record: Vec<u8>) {
        self.is_told = true;
        // Where the log has ended, the wait says so.
        self.shared.tell(Told::Drawn(self.clock, Some(record)));
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        if thread::panicking() {
            self.shared.stop_taking("a panic may have left a transaction installed in part");
            self.shared.tell(Told::Panicked);
        } else {
            self.shared.tell(Told::Drawn(self.clock, None));
        }
    }
}
