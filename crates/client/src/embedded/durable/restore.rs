//! From the files of a folder to a store: the newest checkpoint that is whole, and the log from there.

use super::open_error::OpenError;
use super::records::{self, CheckpointBegin, Fields, WriteRef};
use shoal_store::{ReplayRule, Replayed, ReplayedWrite, Session, Store};
use shoal_types::{Clock, Epoch, NodeId, StampRef, TableId};
use shoal_wal::{
    CheckpointHead, Folder, LogError, LogIdentity, RecordRef, Recovered, checkpoint_name,
    checkpoints, keep_older, read_checkpoint, recover,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A checkpoint in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptCheckpoint {
    pub(super) number: u64,
    /// The first segment that it needs.
    pub(super) first: u64,
}

/// What was restored, and from what.
pub(super) struct Restored {
    pub(super) store: Arc<Store>,
    /// The owner that all files name; `None` for a new folder.
    pub(super) identity: Option<LogIdentity>,
    pub(super) recovered: Recovered,
    /// Checkpoints that can be relied on, the newest first.
    pub(super) kept: Vec<KeptCheckpoint>,
    /// The greatest number of a checkpoint, also of those that are damaged.
    pub(super) last_number: u64,
    /// Of the checkpoint that was used.
    pub(super) checkpoint_bytes: u64,
}

/// A store that restored rows are only counted in.
pub(super) fn store_to_look_at() -> Arc<Store> {
    Arc::new(Store::new(shoal_store::Options::default()))
}

/// Restores a database into a store that `make` makes: another one for each checkpoint that is tried.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn restore(
    folder: &mut (impl Folder + ?Sized),
    make: impl Fn() -> Arc<Store>,
) -> Result<Restored, OpenError> {
    let numbers = checkpoints(folder)?;
    let last_number = numbers.first().copied().unwrap_or_default();
    let mut damage = None;
    for (place, number) in numbers.iter().copied().enumerate() {
        match Restoring::checkpoint(folder, make(), number) {
            Ok(restoring) => {
                let bytes = folder.length(&checkpoint_name(number))?;
                let mut restored = restoring.log(folder)?;
                restored.keep_older(folder, &numbers[place + 1..])?;
                return Ok(Restored { last_number, checkpoint_bytes: bytes, ..restored });
            }
            Err(OpenError::Log(error @ LogError::Damaged { .. })) => {
                damage.get_or_insert(error);
            }
            Err(other) => return Err(other),
        }
    }
    // The log has everything while there is one checkpoint only.
    let restored = Restoring::new(make())?.log(folder);
    match (restored, damage) {
        (Err(OpenError::Log(LogError::Missing { .. })), Some(damage)) => Err(damage.into()),
        (restored, _) => Ok(Restored { last_number, ..restored? }),
    }
}

impl Restored {
    /// Keeps the checkpoint before the one that was used: see [`shoal_wal::keep_older`].
    fn keep_older(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        older: &[u64],
    ) -> Result<(), OpenError> {
        let older = older.first().copied();
        let head = keep_older(&mut self.recovered, folder, older, self.identity)?;
        let kept = |CheckpointHead { number, first, .. }| KeptCheckpoint { number, first };
        self.kept.extend(head.map(kept));
        Ok(())
    }
}

/// A store that is being restored.
struct Restoring {
    store: Arc<Store>,
    session: Session,
    kept: Option<KeptCheckpoint>,
    identity: Option<LogIdentity>,
    /// The transactions up to here are in the checkpoint.
    begin: Clock,
    /// Above the ids of all tables that had been created when the checkpoint began: what became of those is in it.
    next_table: TableId,
    /// The log has to reach this.
    end: Clock,
    /// The greatest clock of a row in the checkpoint.
    newest: Clock,
    /// The last clock that was replayed.
    last: Clock,
    /// Keys that deltas were for whose bases are not there. The log deletes them, or drops their tables: that was done before the
    /// checkpoint came to them.
    missing: BTreeSet<(TableId, Box<[u8]>)>,
}

impl Restoring {
    fn new(store: Arc<Store>) -> Result<Restoring, OpenError> {
        let session = store.session()?;
        Ok(Restoring {
            store,
            session,
            kept: None,
            identity: None,
            begin: Clock::ZERO,
            next_table: TableId(0),
            end: Clock::ZERO,
            newest: Clock::ZERO,
            last: Clock::ZERO,
            missing: BTreeSet::new(),
        })
    }

    fn checkpoint(
        folder: &mut (impl Folder + ?Sized),
        store: Arc<Store>,
        number: u64,
    ) -> Result<Restoring, OpenError> {
        let mut restoring = Restoring::new(store)?;
        let mut failure = None;
        let head = read_checkpoint(folder, number, None, &mut |kind, block| {
            if failure.is_some() {
                return Ok(());
            }
            match restoring.block(kind, block) {
                Ok(()) => Ok(()),
                Err(Wrong::Bytes(what)) => Err(what),
                Err(Wrong::Store(error)) => {
                    failure = Some(error);
                    Ok(())
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        check_embedded(&checkpoint_name(number), head.identity)?;
        restoring.identity = Some(head.identity);
        restoring.kept = Some(KeptCheckpoint { number, first: head.first });
        restoring.last = restoring.begin;
        Ok(restoring)
    }

    fn block(&mut self, kind: u8, block: &[u8]) -> Result<(), Wrong> {
        match kind {
            records::HEAD => {
                let begin = CheckpointBegin::decode(block).filter(|it| may_be(it.clock));
                let begin = begin.ok_or("its head is no head")?;
                (self.begin, self.next_table) = (begin.clock, begin.next_table);
                for table in (0..begin.next_table.0).map(TableId) {
                    match begin.tables.iter().find(|(_, named)| *named == table) {
                        Some((name, _)) => self.store.restore_table(name, table)?,
                        None => self.drop_table(table)?,
                    }
                }
                Ok(())
            }
            records::ROWS => self.rows(block),
            records::TAIL => {
                self.end = transaction_clock(&mut Fields(block)).ok_or("its tail is no tail")?;
                match self.newest <= self.end {
                    true => Ok(()),
                    false => Err("a row is newer than its tail".into()),
                }
            }
            _ => Err("a block of an unknown kind".into()),
        }
    }

    /// An id that was given, and is given to no other table.
    fn drop_table(&mut self, table: TableId) -> Result<(), Wrong> {
        self.store.open_table(table)?;
        self.store.drop_table(table);
        Ok(())
    }

    fn rows(&mut self, block: &[u8]) -> Result<(), Wrong> {
        let mut fields = Fields(block);
        let mut rows = Vec::new();
        while !fields.is_empty() {
            let clock = transaction_clock(&mut fields).ok_or("a row is cut")?;
            self.newest = self.newest.max(clock);
            rows.push((fields.write().ok_or("a row is cut")?, clock));
        }
        self.put(rows)
    }

    /// Puts writes in, where nothing newer is.
    fn put<'w>(
        &mut self,
        writes: impl IntoIterator<Item = (WriteRef<'w>, Clock)>,
    ) -> Result<(), Wrong> {
        let writes = writes.into_iter().map(|(WriteRef { table, key, change }, clock)| {
            let stamp = StampRef { epoch: Epoch::default(), clock, remote: &[] };
            ReplayedWrite { table, key, change, stamp }
        });
        let (missing, mut misfits) = (&mut self.missing, 0);
        let report = |write: &ReplayedWrite<'_>, replayed| match replayed {
            Replayed::Misfit => misfits += 1,
            Replayed::Waits => _ = missing.insert((write.table, write.key.into())),
            Replayed::Won | Replayed::GaveWay if missing.is_empty() => {}
            Replayed::Won | Replayed::GaveWay => {
                _ = missing.remove(&(write.table, write.key.into()));
            }
        };
        // The log is replayed in order: nothing older comes after a tombstone.
        let rest = self.session.replay(writes, ReplayRule::CheckedDeltas, |_| true, report)?;
        assert_eq!(rest, None, "a store that is restored has one session");
        match misfits {
            0 => Ok(()),
            _ => Err("it changes a row that is another one".into()),
        }
    }

    fn log(mut self, folder: &mut (impl Folder + ?Sized)) -> Result<Restored, OpenError> {
        let first = self.kept.map_or(1, |kept| kept.first);
        let mut wrong = None;
        let identity = self.identity;
        let recovered = recover(folder, identity, first, &mut |record| {
            if wrong.is_none() {
                wrong = self.record(record).err();
            }
        })?;
        let damaged = |what| {
            let last = recovered.summaries.last();
            let file = last.map_or_else(|| "log".to_owned(), |last| last.file.to_string());
            LogError::Damaged { file, offset: recovered.end.offset, what }
        };
        match wrong {
            Some(Wrong::Bytes(what)) => return Err(damaged(what).into()),
            Some(Wrong::Store(error)) => return Err(error.into()),
            None if self.last < self.end => {
                return Err(damaged("the log ends before the checkpoint does").into());
            }
            None if !self.missing.is_empty() => {
                return Err(damaged("it changes a row that is nowhere").into());
            }
            None => {}
        }
        let identity = recovered.identity.or(identity);
        if let (Some(identity), Some(last)) = (identity, recovered.summaries.last()) {
            check_embedded(&last.file.to_string(), identity)?;
        }
        self.store.raise_clock(self.last);
        let kept = self.kept.into_iter().collect();
        let store = self.store;
        Ok(Restored { store, identity, recovered, kept, last_number: 0, checkpoint_bytes: 0 })
    }

    fn record(&mut self, record: RecordRef<'_>) -> Result<(), Wrong> {
        let mut fields = Fields(record.payload);
        match record.kind {
            records::TRANSACTION => {
                let clock =
                    transaction_clock(&mut fields).ok_or("a transaction without a clock")?;
                if clock <= self.begin {
                    return Ok(());
                }
                if clock <= self.last {
                    return Err("transactions out of order".into());
                }
                let mut writes = Vec::new();
                while !fields.is_empty() {
                    writes.push((fields.write().ok_or("a write is cut")?, clock));
                }
                self.last = clock;
                self.put(writes)
            }
            records::TABLE_CREATED => {
                let (table, name) = fields.table().ok_or("a table without a name")?;
                // Not by what the store has: rows may have come before the name, since a walk sees newer tables, too.
                if table < self.next_table {
                    return Ok(());
                }
                Ok(self.store.restore_table(name, table)?)
            }
            records::TABLE_DROPPED => {
                let (table, _) = fields.table().ok_or("a table without an id")?;
                self.store.drop_table(table);
                // An id that is too great for a table is neither open nor dropped.
                if !self.store.is_dropped(table) {
                    return Err("it drops a table that cannot be there".into());
                }
                self.free(table);
                self.missing.retain(|(missing, _)| *missing != table);
                Ok(())
            }
            _ => Err("a record of an unknown kind".into()),
        }
    }

    fn free(&mut self, table: TableId) {
        let mut next = Some(shoal_store::WalkPlace { table, key: Vec::new() });
        while let Some(place) = next {
            next = self.session.free_table(&place, usize::MAX);
        }
    }
}

/// Whether a transaction may have this clock: the next one has a greater one.
fn may_be(clock: Clock) -> bool {
    clock < Clock(u64::MAX)
}

/// Takes a clock, if a transaction may have it.
fn transaction_clock(fields: &mut Fields<'_>) -> Option<Clock> {
    fields.u64().map(Clock).filter(|clock| may_be(*clock))
}

/// What is wrong with a record or a block.
enum Wrong {
    Bytes(&'static str),
    /// The record does not fit the store.
    Store(shoal_types::Error),
}

impl From<&'static str> for Wrong {
    fn from(what: &'static str) -> Wrong {
        Wrong::Bytes(what)
    }
}

impl From<shoal_types::Error> for Wrong {
    fn from(error: shoal_types::Error) -> Wrong {
        Wrong::Store(error)
    }
}

/// Refuses the folder of a cluster's node.
fn check_embedded(file: &str, identity: LogIdentity) -> Result<(), LogError> {
    let file = file.to_owned();
    match (identity.cluster, identity.node) {
        (Some(cluster), _) => {
            let found = cluster.get();
            Err(LogError::Foreign { file, what: "cluster", found, expected: 0 })
        }
        (None, NodeId(0)) => Ok(()),
        (None, NodeId(node)) => {
            Err(LogError::Foreign { file, what: "node", found: node.into(), expected: 0 })
        }
    }
}
