//! The storage of a stream in memory. What a log on disk has to record of it can be taken, and replayed.

use super::LogLength;
use super::record::{RecordError, RecordedChanges, StreamRecord, check};
use super::storage::{EntryLog, Persisted, START_MAX, StorageChange, StorageState, StreamStorage};
use super::stream_head::StreamHead;
use bytes::Bytes;
use shoal_types::Ballot;
use std::collections::VecDeque;

/// A storage in memory. Everything is durable at once, unless it is [late](MemoryStorage::late).
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    seen: StorageState,
    late: Option<Box<DelayedWrites>>,
}

/// The changes that are not durable yet.
#[derive(Debug, Clone, Default)]
struct DelayedWrites {
    durable: StorageState,
    pending: VecDeque<StorageChange>,
    /// The bytes of entries in these.
    pending_bytes: u64,
    /// The snapshots among them.
    pending_restores: usize,
    /// The first of them whose records were taken.
    taken: usize,
    /// The number of decided entries after these.
    decided: LogLength,
    /// Whether a log on disk gets the changes.
    is_recorded: bool,
    /// The record of the beginning was taken, or read.
    has_begun: bool,
}

impl MemoryStorage {
    /// The storage of a new replica.
    #[must_use]
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// The same; a change becomes durable only by [`persist`](MemoryStorage::persist). For simulations of
    /// disks.
    #[must_use]
    pub fn late() -> MemoryStorage {
        MemoryStorage { seen: StorageState::default(), late: Some(Box::default()) }
    }

    /// The same, for a log on disk, which gets the [records](MemoryStorage::take_records) of the changes.
    #[must_use]
    pub fn recorded() -> MemoryStorage {
        let late = DelayedWrites { is_recorded: true, ..DelayedWrites::default() };
        MemoryStorage { seen: StorageState::default(), late: Some(Box::new(late)) }
    }

    /// Whether a log on disk gets the changes.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.is_recorded)
    }

    /// The storage of a replica whose checkpoint has this head, for a log on disk that goes on behind it. All of it is durable.
    ///
    /// # Errors
    /// If no replica has such a head.
    pub fn from_head(head: StreamHead) -> Result<MemoryStorage, RecordError> {
        check_start(head.start)?;
        let seen = head.into_state()?;
        let (durable, decided) = (seen.clone(), seen.decided);
        let late = DelayedWrites {
            durable,
            decided,
            is_recorded: true,
            has_begun: true,
            ..DelayedWrites::default()
        };
        Ok(MemoryStorage { seen, late: Some(Box::new(late)) })
    }

    /// Lets the storage begin behind a snapshot, which is durable. To be called when the log on disk is read.
    ///
    /// # Errors
    /// If it begins later, or no snapshot stands for so many entries.
    pub fn begin_behind(&mut self, length: LogLength) -> Result<(), RecordError> {
        check(self.seen.log.start() <= length, "entries are missing behind a snapshot")?;
        check_start(length)?;
        let late = self.late.iter_mut().map(|late| &mut late.durable);
        for state in late.chain([&mut self.seen]) {
            let decided = state.decided.max(length);
            state.apply(StorageChange::Restore(length));
            state.decided = decided;
        }
        if let Some(late) = &mut self.late {
            late.decided = self.seen.decided;
        }
        Ok(())
    }

    /// What a checkpoint keeps of the storage: the ballots, and the entries from `from` on, durable or not.
    ///
    /// # Panics
    /// If an entry from there on is cut, or `from` is beyond what is decided.
    #[must_use]
    pub fn head(&self, from: LogLength) -> StreamHead {
        StreamHead::of(&self.seen, from)
    }

    /// The number of changes that are not durable yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.late.as_ref().map_or(0, |late| late.pending.len())
    }

    /// Makes the next `count` changes durable, or as many as there are.
    pub fn persist(&mut self, count: usize) {
        let Some(late) = &mut self.late else { return };
        let count = count.min(late.pending.len());
        for change in late.pending.drain(..count) {
            late.pending_bytes -= change.entry_bytes();
            late.pending_restores -= usize::from(is_restore(&change));
            late.durable.apply(change);
        }
        late.taken = late.taken.saturating_sub(count);
    }

    /// Takes the records of new changes, for a log on disk. They stand for the changes in their order: when a record is
    /// durable, its changes are to be [persisted](MemoryStorage::persist). Empty unless the storage is
    /// [recorded](MemoryStorage::recorded).
    pub fn take_records(&mut self) -> Vec<RecordedChanges> {
        let Some(late) = self.late.as_mut().filter(|late| late.is_recorded) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        let mut changes = 0;
        if !std::mem::replace(&mut late.has_begun, true) {
            records.push(RecordedChanges { record: StreamRecord::Begin, changes });
        }
        for change in late.pending.range(late.taken..) {
            changes += 1;
            if let StorageChange::Decide(decided) | StorageChange::Restore(decided) = change {
                late.decided = *decided;
            }
            if let Some(record) = StreamRecord::of(change, late.decided) {
                late.taken += changes;
                records.push(RecordedChanges { record, changes: std::mem::take(&mut changes) });
            }
        }
        records
    }

    /// Makes the change of a record that was read from a log on disk. It is durable. To be called with the records in their
    /// order, before anything else.
    ///
    /// # Errors
    /// If the record contradicts those before it.
    pub fn replay(&mut self, record: StreamRecord) -> Result<(), RecordError> {
        if let StreamRecord::Restore { length } = record {
            check_start(length)?;
        }
        if let Some(late) = &mut self.late {
            assert!(late.pending.is_empty(), "read a log after there were changes: {late:?}");
            late.has_begun = true;
            record.clone().replay(&mut late.durable)?;
            late.decided = late.durable.decided;
        }
        record.replay(&mut self.seen)
    }

    /// Drops the changes that are not durable, as a crash does.
    pub fn crash(&mut self) {
        if let Some(late) = &mut self.late {
            late.pending.clear();
            late.pending_bytes = 0;
            late.pending_restores = 0;
            late.taken = 0;
            late.decided = late.durable.decided;
            self.seen = late.durable.clone();
        }
    }

    fn change(&mut self, change: StorageChange) {
        if let Some(late) = &mut self.late {
            late.pending_bytes += change.entry_bytes();
            late.pending_restores += usize::from(is_restore(&change));
            late.pending.push_back(change.clone());
        }
        self.seen.apply(change);
    }
}

fn is_restore(change: &StorageChange) -> bool {
    matches!(change, StorageChange::Restore(_))
}

fn check_start(start: LogLength) -> Result<(), RecordError> {
    check(start <= START_MAX, "it begins behind more entries than there can be")
}

impl StreamStorage for MemoryStorage {
    fn promised(&self) -> Ballot {
        self.seen.promised
    }

    fn accepted_ballot(&self) -> Ballot {
        self.seen.accepted_ballot
    }

    fn decided(&self) -> LogLength {
        self.seen.decided
    }

    fn log(&self) -> &EntryLog {
        &self.seen.log
    }

    fn persisted(&self) -> Persisted {
        let StorageState { promised, accepted_ballot, log, .. } = match &self.late {
            None => &self.seen,
            Some(late) => &late.durable,
        };
        let (promised, accepted_ballot) = (*promised, *accepted_ballot);
        Persisted { promised, accepted_ballot, accepted: log.length() }
    }

    fn unpersisted_bytes(&self) -> u64 {
        self.late.as_ref().map_or(0, |late| late.pending_bytes)
    }

    fn awaits_snapshot(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.pending_restores > 0)
    }

    fn promise(&mut self, ballot: Ballot) {
        self.change(StorageChange::Promise(ballot));
    }

    fn append(&mut self, entry: Bytes) {
        self.change(StorageChange::Append(entry));
    }

    fn replace(&mut self, ballot: Ballot, from: LogLength, entries: Vec<Bytes>) {
        self.change(StorageChange::Replace(ballot, from, entries));
    }

    fn decide(&mut self, decided: LogLength) {
        self.change(StorageChange::Decide(decided));
    }

    fn trim(&mut self, before: LogLength) {
        self.change(StorageChange::Trim(before));
    }

    fn restore(&mut self, length: LogLength) {
        self.change(StorageChange::Restore(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_becomes_durable_in_order_and_a_crash_leaves_that() {
        let mut storage = MemoryStorage::late();
        let ballot = Ballot::default();
        storage.promise(ballot);
        storage.replace(ballot, LogLength(0), vec![Bytes::from_static(b"x")]);
        storage.append(Bytes::from_static(b"y"));
        assert_eq!((storage.pending(), storage.persisted().accepted), (3, LogLength(0)));
        assert_eq!(storage.unpersisted_bytes(), 2);
        storage.persist(2);
        assert_eq!(
            (storage.log().length(), storage.persisted().accepted),
            (LogLength(2), LogLength(1))
        );
        assert_eq!(storage.unpersisted_bytes(), 1);
        storage.crash();
        assert_eq!(storage.unpersisted_bytes(), 0);
        assert_eq!((storage.pending(), storage.log().length()), (0, LogLength(1)));
    }

    #[test]
    fn what_was_read_does_not_begin_where_its_length_is_no_number() {
        for start in [START_MAX, LogLength(START_MAX.0 + 1), LogLength(u64::MAX)] {
            let mut restored = MemoryStorage::recorded();
            let is_restored = restored.replay(StreamRecord::Restore { length: start }).is_ok();
            let mut behind = MemoryStorage::recorded();
            let is_behind = behind.begin_behind(start).is_ok();
            let entries = vec![Bytes::from_static(b"x")];
            let head = MemoryStorage::recorded().head(LogLength(0));
            let from_head =
                MemoryStorage::from_head(StreamHead { start, decided: start, entries, ..head });
            let is_possible = start == START_MAX;
            assert_eq!((is_restored, is_behind), (is_possible, is_possible), "{start}");
            assert_eq!(from_head.is_ok(), is_possible, "{start}");
        }
    }

    #[test]
    fn a_storage_does_not_begin_before_its_entries() {
        let mut storage = MemoryStorage::recorded();
        storage.begin_behind(LogLength(4)).expect("it has none");
        assert!(storage.begin_behind(LogLength(3)).is_err());
        storage.begin_behind(LogLength(4)).expect("it begins there");
        assert_eq!((storage.log().start(), storage.decided()), (LogLength(4), LogLength(4)));
    }
}
