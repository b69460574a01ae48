//! The store: tables by name, the shard clock, and what all sessions share.

use crate::faults::StoreBugs;
use crate::index::Index;
use crate::lookup_cache::LookupCache;
use crate::memory::{Arena, Heap};
use crate::reclaim::Eras;
use crate::record::Record;
use crate::removals::Removals;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use crate::tables::Tables;
use crate::transaction::HashKeys;
use crate::version::Version;
use crossbeam_utils::CachePadded;
use shoal_types::limits::{TABLE_NAME_BYTES_MAX, TABLES_MAX, TRANSACTIONS_OPEN_MAX};
use shoal_types::{Clock, Epoch, Rejected, Result, TableId};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The limits of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sessions, and so transactions, that may be open at once. Each costs a few
    /// kilobytes once used, and a look whenever memory is reclaimed. At most
    /// [`TRANSACTIONS_OPEN_MAX`]. Default 1024.
    pub transactions_max: usize,
    /// Bytes of keys, versions, index and sessions' lists that the store may hold; a put beyond it is
    /// rejected, and so is a read of a transaction whose lists take half of it. Checked against a count
    /// that lags by up to 64 KiB a session. Default: no limit.
    pub memory_bytes_max: usize,
    /// Bytes to take from the system at once, so that growing to that size costs no transaction the
    /// time in which the system finds and clears a page. More is taken as needed. Default 0.
    pub memory_bytes_reserved: usize,
    /// The epoch that local transactions are stamped with. Default 0.
    pub epoch: Epoch,
    /// Keys the hash by which transactions find their own writes. Clients that know it can choose keys
    /// that collide, and so make a transaction slow: where clients are not trusted, give each store a
    /// random one. Default 0.
    pub hash_seed: u64,
    /// Planted bugs, for tests. Default: none.
    pub faults: StoreBugs,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            transactions_max: 1024,
            memory_bytes_max: usize::MAX,
            memory_bytes_reserved: 0,
            epoch: Epoch::default(),
            hash_seed: 0,
            faults: StoreBugs::NONE,
        }
    }
}

/// An in-memory, multi-core, transactional ordered store. See the [crate](crate).
pub struct Store {
    pub(crate) options: Options,
    pub(crate) tables: Tables,
    names: Mutex<BTreeMap<Box<str>, TableId>>,
    clock: CachePadded<AtomicU64>,
    /// Keys that dropped sessions would still have looked at; see `SessionState::removals`.
    removals: Mutex<Removals>,
    pub(crate) eras: Arc<Eras>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) hash_keys: Arc<HashKeys>,
    pub(crate) lookup_cache: Arc<LookupCache>,
    /// Up to so many bytes puts are taken: [`Options::memory_bytes_max`], or none while a log has no room.
    put_bytes_max: AtomicUsize,
    full_logs: Mutex<FullLogs>,
}

/// The logs of its node that have no room for what is written.
#[derive(Debug, Default)]
struct FullLogs {
    count: usize,
    /// The room that they need.
    segment_bytes: u64,
}

impl Store {
    /// A store without tables. A number of sessions that is not allowed is reported by [`Store::session`].
    pub fn new(options: Options) -> Store {
        let arena = Arc::new(Arena::default());
        arena.reserve(options.memory_bytes_reserved);
        // An impossible number is reported when a session is asked for.
        let sessions_max = match options.transactions_max {
            asked if asked <= TRANSACTIONS_OPEN_MAX => asked,
            _ => 0,
        };
        Store {
            tables: Tables::default(),
            names: Mutex::new(BTreeMap::new()),
            clock: CachePadded::new(AtomicU64::new(Clock::ZERO.0)),
            removals: Mutex::new(Removals::default()),
            eras: Arc::new(Eras::new(sessions_max, options.memory_bytes_max, options.faults)),
            lookup_cache: Arc::new(LookupCache::new(
                &arena,
                options.memory_bytes_max,
                options.faults,
            )),
            arena,
            hash_keys: Arc::new(HashKeys::new(options.hash_seed)),
            put_bytes_max: AtomicUsize::new(options.memory_bytes_max),
            full_logs: Mutex::new(FullLogs::default()),
            options,
        }
    }

    /// The table of this name; creates it if there is none.
    ///
    /// # Errors
    /// [`Rejected::TableName`] and [`Rejected::TooManyTables`].
    pub fn table(&self, name: &str) -> Result<TableId> {
        let mut names = lock(&self.names);
        if let Some(table) = names.get(name) {
            return Ok(*table);
        }
        Store::check_name(name, names.len())?;
        let table = self.tables.next();
        self.open_table(table)?;
        names.insert(name.into(), table);
        Ok(table)
    }

    /// The table of this name, if it was opened by it.
    pub fn named(&self, name: &str) -> Option<TableId> {
        lock(&self.names).get(name).copied()
    }

    /// The tables that are open by a name, in the order of their names.
    pub fn named_tables(&self) -> Vec<(Box<str>, TableId)> {
        lock(&self.names).iter().map(|(name, table)| (name.clone(), *table)).collect()
    }

    /// The id that the next table gets, above those of all tables that were ever opened.
    pub fn next_table(&self) -> TableId {
        self.tables.next()
    }

    /// Opens a table under the id that it has had in an earlier process. Another table of the name loses it.
    ///
    /// # Errors
    /// [`Rejected::TooManyTableIds`].
    pub fn restore_table(&self, name: &str, table: TableId) -> Result<()> {
        self.open_table(table)?;
        lock(&self.names).insert(name.into(), table);
        Ok(())
    }

    /// Checks the name of a table, and that there may be another table.
    ///
    /// # Errors
    /// [`Rejected::TableName`] and [`Rejected::TooManyTables`].
    pub fn check_table(&self, name: &str) -> Result<()> {
        Store::check_name(name, lock(&self.names).len())
    }

    fn check_name(name: &str, tables: usize) -> Result<()> {
        if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
            Err(Rejected::TableName { bytes: name.len(), max: TABLE_NAME_BYTES_MAX })?;
        }
        if tables == TABLES_MAX {
            Err(Rejected::TooManyTables { max: TABLES_MAX })?;
        }
        Ok(())
    }

    /// Makes room for the rows of a table whose id was given elsewhere. Does nothing where it is open, or was dropped.
    ///
    /// # Errors
    /// [`Rejected::TooManyTableIds`].
    pub fn open_table(&self, table: TableId) -> Result<()> {
        self.tables.open(table, || {
            let heap = &mut Heap::new(Arc::clone(&self.arena));
            Index::new(heap, self.options.faults)
        })
    }

    /// From here on the table's rows are neither read nor written, and never again: transactions that have read or written
    /// some, and do not hold their locks yet, fail. The rows take room until
    /// [`Session::free_table`](crate::Session::free_table) has taken them out.
    ///
    /// Returns whether there may be rows to take out: not where it was dropped before, or never open.
    pub fn drop_table(&self, table: TableId) -> bool {
        let may_have_rows = self.tables.drop(table);
        if may_have_rows {
            lock(&self.names).retain(|_, named| *named != table);
        }
        may_have_rows
    }

    /// The tables that are open.
    pub fn open_tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.open_ids()
    }

    /// Whether the table was dropped.
    #[inline]
    pub fn is_dropped(&self, table: TableId) -> bool {
        self.tables.is_dropped(table)
    }

    /// Bytes that keys, versions and index take, to within 64 KiB a session.
    pub fn memory_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// The greatest shard clock drawn so far.
    pub fn clock(&self) -> Clock {
        Clock(self.clock.load(Ordering::SeqCst))
    }

    /// Draws the next shard clock. A transaction draws while it holds its locks (rule M2).
    pub(crate) fn draw_clock(&self) -> Clock {
        Clock(self.clock.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Moves the shard clock to `floor` at least: a node that keeps a collapsed stamp needs every shard's
    /// clock past its floor.
    pub fn raise_clock(&self, floor: Clock) {
        self.clock.fetch_max(floor.0, Ordering::SeqCst);
    }

    /// A planted bug: draws a clock for a transaction that does not hold its locks yet.
    #[cfg(feature = "early-clock")]
    pub fn draw_clock_too_early(&self) -> Clock {
        self.draw_clock()
    }

    pub(crate) fn leave_removals(&self, mut removals: Removals) {
        lock(&self.removals).append(&mut removals);
    }

    pub(crate) fn take_removals(&self) -> Removals {
        std::mem::take(&mut *lock(&self.removals))
    }

    /// A log into which what is written here goes has no room for its next segment, of so many bytes: until it
    /// [has](Store::log_has_room), writes of transactions are refused with [`Rejected::DiskFull`]. What another replica has certified
    /// is taken all the same. Several logs may be full.
    pub fn log_is_full(&self, segment_bytes: u64) {
        let mut full = lock(&self.full_logs);
        (full.count, full.segment_bytes) = (full.count + 1, segment_bytes);
        self.put_bytes_max.store(0, Ordering::Relaxed);
    }

    /// A log that was full has room again.
    ///
    /// # Panics
    /// If none was full.
    pub fn log_has_room(&self) {
        let mut full = lock(&self.full_logs);
        full.count = full.count.checked_sub(1).expect("a log was full");
        if full.count == 0 {
            self.put_bytes_max.store(self.options.memory_bytes_max, Ordering::Relaxed);
        }
    }

    /// Whether there is room for `more` bytes within [`Options::memory_bytes_max`], and in the logs.
    #[inline]
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.arena.bytes().saturating_add(more) <= self.put_bytes_max.load(Ordering::Relaxed)
    }

    /// Checks that the logs have room, where [`has_room`](Store::has_room) says that there is none for so much more.
    ///
    /// # Errors
    /// [`Rejected::DiskFull`].
    #[cold]
    pub fn check_logs(&self) -> Result<()> {
        let FullLogs { count, segment_bytes } = *lock(&self.full_logs);
        if count > 0 { Err(Rejected::DiskFull { segment_bytes })? } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn index(&self, table: TableId) -> Result<&Index> {
        self.tables.live(table)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let mut heap = Heap::new(Arc::clone(&self.arena));
        // SAFETY: sessions hold the store, so there is none left.
        unsafe { self.lookup_cache.tear_down(&mut heap) };
        let free_record = &mut |heap: &mut Heap, record: NonNull<Record>| {
            // SAFETY: sessions hold the store, so there is none left: no thread reads or locks.
            unsafe {
                let mut next = record.as_ref().word().version();
                while let Some(version) = NonNull::new(next) {
                    next = version.as_ref().prev();
                    Version::free(version, heap);
                }
                Record::free(record, heap);
            }
        };
        for index in self.tables.indexes() {
            // SAFETY: as above.
            unsafe { index.tear_down(&mut heap, free_record) };
        }
        // SAFETY: as above.
        unsafe { self.eras.free_orphans(&mut heap) };
        let mut removals = self.take_removals();
        while removals.pop_back(&mut heap).is_some() {}
        heap.fold();
        debug_assert_eq!(self.arena.bytes(), 0, "memory is leaked");
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("clock", &self.clock())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
