//! What the library sees of [`Storage`]: its log, and a state machine that only counts.
//!
//! The commands themselves stay in the log. That one is committed means that the count passes it, and
//! that the [`Replica`](crate::Replica) reads it from there. So they exist once.

use crate::code::{self, Foreign};
use crate::config::{Entry, LogId, Number, StorageError, Types, Vote};
use crate::lead::Lead;
use crate::member::{Members, Volume};
use crate::storage::{Cell, Storage};
use bytes::Bytes;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogId,
    RaftLogReader, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError, StoredMembership,
};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use types::wire::{self, Malformed};

/// Storage that the library's tasks and the replica share.
#[derive(Debug, Clone)]
pub struct Store {
    storage: Arc<dyn Storage>,
    lead: Lead,
}

impl Store {
    pub fn new(storage: impl Storage, lead: Lead) -> Store {
        Store { storage: Arc::new(storage), lead }
    }

    /// The entries in `range` that are there.
    pub fn entries(&self, range: Range<u64>) -> io::Result<Vec<Entry>> {
        let entries = self.storage.read(range)?;
        entries.iter().map(|entry| code::decode(entry).map_err(damaged)).collect()
    }

    fn cell<T: Foreign>(&self, cell: Cell) -> io::Result<Option<T>> {
        let value = self.storage.cell(cell)?;
        value.map(|value| code::decode(&value).map_err(damaged)).transpose()
    }

    fn set_cell(&self, cell: Cell, value: &impl Foreign) -> io::Result<()> {
        self.storage.set_cell(cell, &code::encode(value))
    }

    /// Which volume this is: `new`, if there is nothing yet.
    pub fn volume(&self, new: Volume) -> io::Result<Volume> {
        if let Some(volume) = self.storage.cell(Cell::Volume)? {
            return wire::decode(&volume).map_err(damaged);
        }
        if self.storage.last()?.is_some() || self.storage.cell(Cell::Vote)?.is_some() {
            let nameless = "there is a log, and it does not say which volume it is";
            return Err(io::Error::new(io::ErrorKind::InvalidData, nameless));
        }
        self.storage.set_cell(Cell::Volume, &wire::encode(&new))?;
        Ok(new)
    }

    /// Up to where the log is gone.
    pub fn purged(&self) -> io::Result<Option<LogId>> {
        self.cell(Cell::Purged)
    }

    /// Before a new life begins: if the former one led, it does so no more. The library would go on
    /// leading in the same term; but the manager counts on one life for a term, since its clock and
    /// what it heard belong to that. So the replica votes for itself in the next term, as it may at
    /// any time, and is no leader of that.
    pub fn resign(&self, me: Number) -> io::Result<()> {
        let vote = self.cell::<Vote>(Cell::Vote)?;
        if let Some(vote) = vote.filter(|vote| vote.committed && vote.leader_id.node_id == me) {
            self.set_cell(Cell::Vote, &Vote::new(vote.leader_id.term + 1, me))?;
        }
        Ok(())
    }
}

fn damaged(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// What the library is told when storage fails: it stops.
fn failed(subject: ErrorSubject<Number>, verb: ErrorVerb, error: &io::Error) -> StorageError {
    StorageIOError::new(subject, verb, AnyError::new(error)).into()
}

fn read_failed(error: &io::Error) -> StorageError {
    failed(ErrorSubject::Store, ErrorVerb::Read, error)
}

fn write_failed(error: &io::Error) -> StorageError {
    failed(ErrorSubject::Store, ErrorVerb::Write, error)
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(start..end).map_err(|error| read_failed(&error))
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let read = || {
            let purged = self.purged()?;
            let last = self.storage.last()?;
            let last: Option<Entry> =
                last.map(|entry| code::decode(&entry).map_err(damaged)).transpose()?;
            let last = last.map(|entry| entry.log_id).max(purged);
            Ok(LogState { last_purged_log_id: purged, last_log_id: last })
        };
        read().map_err(|error| read_failed(&error))
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.lead.votes(vote);
        self.set_cell(Cell::Vote, vote).map_err(|error| write_failed(&error))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        self.cell(Cell::Vote).map_err(|error| read_failed(&error))
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.set_cell(Cell::Committed, &committed).map_err(|error| write_failed(&error))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let committed = self.cell::<Option<LogId>>(Cell::Committed);
        committed.map(Option::flatten).map_err(|error| read_failed(&error))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut first = None;
        let entries: Vec<Bytes> = entries
            .into_iter()
            .map(|entry| {
                first = first.or(Some(entry.log_id.index));
                code::encode(&entry)
            })
            .collect();
        if let Some(first) = first {
            self.storage.append(first, &entries).map_err(|error| write_failed(&error))?;
        }
        flushed.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        self.storage.truncate(from.index).map_err(|error| write_failed(&error))
    }

    async fn purge(&mut self, until: LogId) -> Result<(), StorageError> {
        let purge = || {
            // In this order: entries that are there still, though purged, do no harm.
            self.set_cell(Cell::Purged, &until)?;
            self.storage.purge(until.index + 1)
        };
        purge().map_err(|error| write_failed(&error))
    }
}

/// What is committed: how far the log, and who the members are.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    pub last: Option<LogId>,
    pub members: Members,
}

/// How far the log is committed, and who was a member then. It begins anew with each life; the
/// library counts the committed entries again.
#[derive(Debug)]
pub struct Count {
    applied: watch::Sender<Committed>,
    membership: StoredMembership<Number, ()>,
    snapshot: Arc<Mutex<Option<SnapshotMeta<Number, ()>>>>,
}

impl Count {
    /// And where it can be watched.
    pub fn new() -> (Count, watch::Receiver<Committed>) {
        let (applied, watched) = watch::channel(Committed::default());
        let count = Count {
            applied,
            membership: StoredMembership::default(),
            snapshot: Arc::new(Mutex::new(None)),
        };
        (count, watched)
    }

    fn last(&self) -> Option<LogId> {
        self.applied.borrow().last
    }

    fn tell(&self, last: Option<LogId>) {
        self.applied.send_replace(Committed { last, members: Members::of(&self.membership) });
    }
}

impl RaftStateMachine<Types> for Count {
    type SnapshotBuilder = Extent;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId>, StoredMembership<Number, ()>), StorageError> {
        Ok((self.last(), self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut last = self.last();
        let mut count = 0;
        for entry in entries {
            let id = *entry.get_log_id();
            assert!(last < Some(id), "{id} is committed after {last:?}");
            if let EntryPayload::Membership(membership) = entry.payload {
                self.membership = StoredMembership::new(Some(id), membership);
            }
            last = Some(id);
            count += 1;
        }
        self.tell(last);
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> Extent {
        Extent {
            applied: self.last(),
            membership: self.membership.clone(),
            snapshot: Arc::clone(&self.snapshot),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<()>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<Number, ()>,
        _: Box<()>,
    ) -> Result<(), StorageError> {
        self.membership = meta.last_membership.clone();
        self.tell(meta.last_log_id);
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let meta = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: Box::default() }))
    }
}

/// A snapshot of a count: how far it is, without what the log keeps. The library wants one to
/// exist; it never makes one with our options, and no replica sends one.
#[derive(Debug)]
pub struct Extent {
    applied: Option<LogId>,
    membership: StoredMembership<Number, ()>,
    snapshot: Arc<Mutex<Option<SnapshotMeta<Number, ()>>>>,
}

impl RaftSnapshotBuilder<Types> for Extent {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
            snapshot_id: self.applied.map_or_else(String::new, |id| id.to_string()),
        };
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: Box::default() })
    }
}

/// The command of an entry, if it has one.
pub fn command(entry: Entry) -> Option<consensus::manager::Command> {
    match entry.payload {
        EntryPayload::Normal(command) => Some(command),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{DiskStorage, MemoryStorage};
    use openraft::testing::{StoreBuilder, Suite};
    use tempfile::TempDir;

    struct InMemory;

    impl StoreBuilder<Types, Store, Count> for InMemory {
        async fn build(&self) -> Result<((), Store, Count), StorageError> {
            Ok(((), Store::new(MemoryStorage::new(), Lead::default()), Count::new().0))
        }
    }

    struct OnDisk;

    impl StoreBuilder<Types, Store, Count, TempDir> for OnDisk {
        async fn build(&self) -> Result<(TempDir, Store, Count), StorageError> {
            let folder = TempDir::new().expect("a folder");
            let storage = DiskStorage::open(&folder.path().join("log")).expect("a file");
            Ok((folder, Store::new(storage, Lead::default()), Count::new().0))
        }
    }

    #[test]
    fn memory_is_what_the_library_expects() {
        Suite::test_all(InMemory).expect("a store");
    }

    #[test]
    fn a_file_is_what_the_library_expects() {
        Suite::test_all(OnDisk).expect("a store");
    }

    #[test]
    fn who_led_before_a_restart_does_not_lead_after_it() {
        let store = Store::new(MemoryStorage::new(), Lead::default());
        let votes = [
            (Vote::new_committed(4, 1), Vote::new(5, 1)),
            (Vote::new_committed(4, 2), Vote::new_committed(4, 2)),
            (Vote::new(4, 1), Vote::new(4, 1)),
        ];
        store.resign(1).expect("nothing to resign from");
        for (before, after) in votes {
            store.set_cell(Cell::Vote, &before).expect("memory");
            store.resign(1).expect("memory");
            assert_eq!(store.cell(Cell::Vote).expect("memory"), Some(after));
        }
    }
}
