//! The adapters of [`RaftStorage`] for the library: its log, and its state machine.
//!
//! A committed command is applied by the state machine here, and read from the log by the
//! [`RaftReplica`](crate::RaftReplica). Where the log begins with a snapshot, the replica reads that first.

use crate::code::{self, Foreign};
use crate::config::{Entry, LogId, StorageError, Types, Vote};
use crate::leadership_evidence::LeadershipEvidence;
use crate::member::{LogMembers, Number, Volume};
use crate::storage::{Cell, RaftStorage};
use bytes::Bytes;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogId,
    RaftLogReader, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError, StoredMembership,
};
use shoal_cluster::manager::{self, StateMachine};
use shoal_types::wire::{self, Malformed};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use tokio::sync::watch;

/// Storage that the library's tasks and the replica share.
#[derive(Debug, Clone)]
pub struct LogStore {
    storage: Arc<dyn RaftStorage>,
    lead: LeadershipEvidence,
}

impl LogStore {
    pub fn new(storage: impl RaftStorage, lead: LeadershipEvidence) -> LogStore {
        LogStore { storage: Arc::new(storage), lead }
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

    /// The identity of the volume; an empty storage becomes `new`.
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

    /// The snapshot that the log begins with, if there is one.
    pub fn snapshot(&self) -> io::Result<Option<MachineSnapshot>> {
        self.cell(Cell::Snapshot)
    }

    fn set_snapshot(&self, image: &MachineSnapshot) -> io::Result<()> {
        self.set_cell(Cell::Snapshot, image)
    }

    /// The last index that was purged from the log.
    pub fn purged(&self) -> io::Result<Option<LogId>> {
        self.cell(Cell::Purged)
    }

    /// Ends the leadership of the former process before a new one begins. The library would continue to lead
    /// in the same term; but the manager requires one process for a term, since its clock and its received
    /// messages belong to the process. So the replica votes for itself in the next term, as it may at any
    /// time, and does not lead in that.
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

/// The error that makes the library stop when storage fails.
fn failed(subject: ErrorSubject<Number>, verb: ErrorVerb, error: &io::Error) -> StorageError {
    StorageIOError::new(subject, verb, AnyError::new(error)).into()
}

fn read_failed(error: &io::Error) -> StorageError {
    failed(ErrorSubject::Store, ErrorVerb::Read, error)
}

fn write_failed(error: &io::Error) -> StorageError {
    failed(ErrorSubject::Store, ErrorVerb::Write, error)
}

impl RaftLogReader<Types> for LogStore {
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

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

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

    async fn get_log_reader(&mut self) -> LogStore {
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
            // In this order: entries that are purged and still there do no harm.
            self.set_cell(Cell::Purged, &until)?;
            self.storage.purge(until.index + 1)
        };
        purge().map_err(|error| write_failed(&error))
    }
}

/// The committed index, and the committed member list.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    pub last: Option<LogId>,
    pub members: LogMembers,
}

/// The contents of a snapshot: the manager's state after an entry, and the member list at that entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSnapshot {
    pub meta: SnapshotMeta<Number, ()>,
    pub machine: Bytes,
}

/// The library's state machine: the committed index, the member list at that index, and a state machine of
/// the manager that has applied the log up to it. A process begins with the snapshot with which its log
/// begins.
///
/// The manager's owner has another state machine, which applies the same commands. This one only serves to
/// write snapshots: so the owner never waits for one.
#[derive(Debug)]
pub struct CommittedMachine {
    store: LogStore,
    applied: watch::Sender<Committed>,
    membership: StoredMembership<Number, ()>,
    machine: StateMachine,
    options: manager::ManagerOptions,
}

impl CommittedMachine {
    /// The state machine and a watch on its progress. `first` is the manager's state before the first
    /// command.
    ///
    /// # Errors
    /// If the stored snapshot cannot be read.
    pub fn new(
        store: LogStore,
        first: StateMachine,
    ) -> io::Result<(CommittedMachine, watch::Receiver<Committed>)> {
        let (applied, watched) = watch::channel(Committed::default());
        let options = first.options().clone();
        let membership = StoredMembership::default();
        let snapshot = store.snapshot()?;
        let mut machine = CommittedMachine { store, applied, membership, machine: first, options };
        if let Some(snapshot) = snapshot {
            machine.restore(&snapshot).map_err(damaged)?;
        }
        Ok((machine, watched))
    }

    fn restore(&mut self, image: &MachineSnapshot) -> Result<(), Malformed> {
        self.machine = StateMachine::from_image(&image.machine, self.options.clone())?;
        self.membership = image.meta.last_membership.clone();
        self.tell(image.meta.last_log_id);
        Ok(())
    }

    fn last(&self) -> Option<LogId> {
        self.applied.borrow().last
    }

    fn tell(&self, last: Option<LogId>) {
        self.applied.send_replace(Committed { last, members: LogMembers::of(&self.membership) });
    }
}

impl RaftStateMachine<Types> for CommittedMachine {
    type SnapshotBuilder = SnapshotWriter;

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
        let mut effects = Vec::new();
        for entry in entries {
            let id = *entry.get_log_id();
            assert!(last < Some(id), "{id} is committed after {last:?}");
            match entry.payload {
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(id), membership);
                }
                EntryPayload::Normal(command) => {
                    self.machine.apply(&command, &mut effects);
                    effects.clear();
                }
                EntryPayload::Blank => {}
            }
            last = Some(id);
            count += 1;
        }
        self.tell(last);
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotWriter {
        let last_log_id = self.last();
        let meta = SnapshotMeta {
            last_log_id,
            last_membership: self.membership.clone(),
            snapshot_id: last_log_id.map_or_else(String::new, |id| id.to_string()),
        };
        let machine = self.machine.image();
        SnapshotWriter { store: self.store.clone(), image: MachineSnapshot { meta, machine } }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<Number, ()>,
        machine: Box<Bytes>,
    ) -> Result<(), StorageError> {
        let image = MachineSnapshot { meta: meta.clone(), machine: *machine };
        // Stored first: once it is announced, the replica may read it.
        self.store.set_snapshot(&image).map_err(|error| write_failed(&error))?;
        self.restore(&image).map_err(|error| read_failed(&damaged(error)))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let image = self.store.snapshot().map_err(|error| read_failed(&error))?;
        Ok(image.map(|MachineSnapshot { meta, machine }| Snapshot {
            meta,
            snapshot: Box::new(machine),
        }))
    }
}

/// Builds a snapshot of a state that was copied.
#[derive(Debug)]
pub struct SnapshotWriter {
    store: LogStore,
    image: MachineSnapshot,
}

impl RaftSnapshotBuilder<Types> for SnapshotWriter {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        self.store.set_snapshot(&self.image).map_err(|error| write_failed(&error))?;
        let MachineSnapshot { meta, machine } = self.image.clone();
        Ok(Snapshot { meta, snapshot: Box::new(machine) })
    }
}

/// The command of an entry, if it has one.
pub fn command(entry: Entry) -> Option<shoal_cluster::manager::Command> {
    match entry.payload {
        EntryPayload::Normal(command) => Some(command),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{DiskStorage, InMemoryDisk};
    use openraft::testing::{StoreBuilder, Suite};
    use shoal_cluster::topology::Topology;
    use tempfile::TempDir;

    struct InMemory;

    /// The state of a small cluster before the first command.
    fn first() -> StateMachine {
        let topology = Topology::symmetric(3, 1, 1, 0, 1);
        StateMachine::new(topology.into(), manager::ManagerOptions::default())
    }

    fn with_machine(store: LogStore) -> (LogStore, CommittedMachine) {
        let (machine, _) = CommittedMachine::new(store.clone(), first()).expect("no snapshot yet");
        (store, machine)
    }

    impl StoreBuilder<Types, LogStore, CommittedMachine> for InMemory {
        async fn build(&self) -> Result<((), LogStore, CommittedMachine), StorageError> {
            let (store, machine) =
                with_machine(LogStore::new(InMemoryDisk::new(), LeadershipEvidence::default()));
            Ok(((), store, machine))
        }
    }

    struct OnDisk;

    impl StoreBuilder<Types, LogStore, CommittedMachine, TempDir> for OnDisk {
        async fn build(&self) -> Result<(TempDir, LogStore, CommittedMachine), StorageError> {
            let folder = TempDir::new().expect("a folder");
            let storage = DiskStorage::open(&folder.path().join("log")).expect("a file");
            let (store, machine) =
                with_machine(LogStore::new(storage, LeadershipEvidence::default()));
            Ok((folder, store, machine))
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
    fn a_leader_before_a_restart_does_not_lead_after_it() {
        let store = LogStore::new(InMemoryDisk::new(), LeadershipEvidence::default());
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
