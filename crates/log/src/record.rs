//! The changes of a stream's storage, as a log on disk records them.
//!
//! ```text
//! changes   promise  append  decide  append  trim  append        in memory, in order
//! records   promise  append          append        append        each with the number of decided entries
//! ```
//! Each change that may be acknowledged is a record. The number of decided entries goes with the next of these: the leader
//! sends it again, so that it is worth no flush of its own. Nothing is recorded of a trim, which frees memory: what is read
//! from the log begins with the first entry that it has.

use super::LogLength;
use super::storage::{StorageChange, StorageState};
use bytes::Bytes;
use shoal_types::Ballot;
use shoal_types::wire::{Coded, decode, encode};
use thiserror::Error;

/// A record of a stream's log.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum StreamRecord {
    /// The replica begins without entries and without promises. Earlier records belong to a replica that this node held before.
    #[coded(tag = 0)]
    Begin,
    /// The replica has promised a ballot.
    #[coded(tag = 1)]
    Promise {
        /// The ballot, higher than any that was promised before.
        #[coded(short)]
        ballot: Ballot,
    },
    /// The replica has accepted an entry, under the ballot of its sequence.
    #[coded(tag = 2)]
    Append {
        /// The number of entries that it knew to be decided.
        #[coded(short)]
        decided: LogLength,
        /// The content.
        entry: Bytes,
    },
    /// The replica has cut its sequence, appended entries and moved it to a ballot, in one step.
    #[coded(tag = 3)]
    Replace {
        /// The ballot of the sequence from now on.
        #[coded(short)]
        ballot: Ballot,
        /// The number of entries that stay.
        #[coded(short)]
        from: LogLength,
        /// The number of entries that it knew to be decided.
        #[coded(short)]
        decided: LogLength,
        /// What follows them.
        #[coded(short)]
        entries: Vec<Bytes>,
    },
    /// A snapshot stands for the entries before `length`. The log does not have its content.
    #[coded(tag = 4)]
    Restore {
        /// How many they are.
        #[coded(short)]
        length: LogLength,
    },
}

/// A record, and the number of a storage's changes that are durable with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChanges {
    /// What the log on disk gets.
    pub record: StreamRecord,
    /// The changes that the record stands for.
    pub changes: usize,
}

/// A record that no replica writes after those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a record of a stream contradicts those before it: {0}")]
pub struct RecordError(&'static str);

pub(super) fn check(holds: bool, what: &'static str) -> Result<(), RecordError> {
    if holds { Ok(()) } else { Err(RecordError(what)) }
}

impl StreamRecord {
    /// The kind of these records in a log on disk, where there are others beside them.
    pub const KIND: u8 = 16;

    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self).into()
    }

    /// The record that these bytes are.
    ///
    /// # Errors
    /// If they are none.
    pub fn decode(bytes: &[u8]) -> Result<StreamRecord, RecordError> {
        decode(&Bytes::copy_from_slice(bytes)).map_err(|_| RecordError("its bytes are malformed"))
    }

    /// The record of a change, where it needs one.
    pub(super) fn of(change: &StorageChange, decided: LogLength) -> Option<StreamRecord> {
        Some(match change {
            StorageChange::Promise(ballot) => StreamRecord::Promise { ballot: *ballot },
            StorageChange::Append(entry) => StreamRecord::Append { decided, entry: entry.clone() },
            StorageChange::Replace(ballot, from, entries) => {
                let (ballot, from, entries) = (*ballot, *from, entries.clone());
                StreamRecord::Replace { ballot, from, decided, entries }
            }
            StorageChange::Restore(length) => StreamRecord::Restore { length: *length },
            StorageChange::Decide(_) | StorageChange::Trim(_) => return None,
        })
    }

    /// Makes the change that the record stands for.
    pub(super) fn replay(self, state: &mut StorageState) -> Result<(), RecordError> {
        match self {
            StreamRecord::Begin => *state = StorageState::default(),
            StreamRecord::Promise { ballot } => {
                check(ballot > state.promised, "a promise below an earlier one")?;
                state.apply(StorageChange::Promise(ballot));
            }
            StreamRecord::Append { decided, entry } => {
                decide(state, decided)?;
                state.apply(StorageChange::Append(entry));
            }
            StreamRecord::Replace { ballot, from, decided, entries } => {
                check(ballot <= state.promised, "accepted above what is promised")?;
                check(ballot > state.accepted_ballot, "moved to a ballot twice")?;
                decide(state, decided)?;
                let kept = state.decided.max(state.log.start());
                check(kept <= from && from <= state.log.length(), "cut where it cannot be")?;
                state.apply(StorageChange::Replace(ballot, from, entries));
            }
            StreamRecord::Restore { length } => {
                check(length > state.decided, "a snapshot of what is decided")?;
                state.apply(StorageChange::Restore(length));
            }
        }
        Ok(())
    }
}

fn decide(state: &mut StorageState, decided: LogLength) -> Result<(), RecordError> {
    let is_possible = state.decided <= decided && decided <= state.log.length();
    check(is_possible, "decided what it does not have")?;
    state.apply(StorageChange::Decide(decided));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStorage, StreamStorage};
    use super::*;
    use shoal_types::{Epoch, NodeId};

    fn ballot(epoch: u32) -> Ballot {
        Ballot { epoch: Epoch(epoch), node: NodeId(1) }
    }

    fn entry(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn replayed(records: &[RecordedChanges]) -> MemoryStorage {
        let mut storage = MemoryStorage::recorded();
        for RecordedChanges { record, .. } in records {
            let record = StreamRecord::decode(&record.encode()).expect("its own bytes");
            storage.replay(record).expect("in the order in which they were made");
        }
        storage
    }

    #[test]
    fn what_is_replayed_is_what_was_recorded() {
        let mut storage = MemoryStorage::recorded();
        storage.promise(ballot(1));
        storage.replace(ballot(1), LogLength(0), vec![entry("a"), entry("b")]);
        storage.append(entry("c"));
        let mut records = storage.take_records();
        let changes: Vec<_> = records.iter().map(|it| it.changes).collect();
        assert_eq!(changes, [0, 1, 1, 1], "the first says that the stream begins");
        storage.decide(LogLength(2));
        assert_eq!(storage.take_records(), [], "the number of decided entries waits for a record");
        storage.append(entry("d"));
        let last = storage.take_records();
        assert_eq!(last.iter().map(|it| it.changes).collect::<Vec<_>>(), [2]);
        records.extend(last);
        let storage = replayed(&records);
        assert_eq!((storage.promised(), storage.accepted_ballot()), (ballot(1), ballot(1)));
        assert_eq!((storage.decided(), storage.log().length()), (LogLength(2), LogLength(4)));
        assert_eq!(storage.log().entry(3), Some(&entry("d")));
        assert_eq!(storage.persisted().accepted, LogLength(4));
        assert_eq!(storage.pending(), 0);
    }

    #[test]
    fn a_replica_that_begins_again_has_nothing_of_the_one_before() {
        let mut former = MemoryStorage::recorded();
        former.promise(ballot(3));
        former.replace(ballot(3), LogLength(0), vec![entry("a")]);
        let mut records = former.take_records();
        let mut storage = MemoryStorage::recorded();
        storage.promise(ballot(2));
        records.extend(storage.take_records());
        let storage = replayed(&records);
        assert_eq!((storage.promised(), storage.log().length()), (ballot(2), LogLength(0)));
    }

    #[test]
    fn what_was_trimmed_is_in_the_log_and_what_a_snapshot_stands_for_is_not() {
        let mut storage = MemoryStorage::recorded();
        storage.promise(ballot(1));
        storage.replace(ballot(1), LogLength(0), vec![entry("a"), entry("b")]);
        storage.decide(LogLength(2));
        storage.trim(LogLength(1));
        storage.append(entry("c"));
        let mut records = storage.take_records();
        assert_eq!(replayed(&records).log().start(), LogLength(0));
        storage.persist(usize::MAX);
        storage.restore(LogLength(7));
        storage.append(entry("d"));
        records.extend(storage.take_records());
        let storage = replayed(&records);
        assert_eq!((storage.log().start(), storage.decided()), (LogLength(7), LogLength(7)));
        assert_eq!(storage.log().length(), LogLength(8));
    }

    #[test]
    fn a_record_that_cannot_follow_is_refused() {
        let (ballot, from, decided) = (ballot(1), LogLength(1), LogLength(0));
        let mut storage = MemoryStorage::recorded();
        let replace = StreamRecord::Replace { ballot, from, decided, entries: vec![] };
        let append = StreamRecord::Append { decided: LogLength(1), entry: entry("a") };
        let zero = StreamRecord::Promise { ballot: Ballot::default() };
        for record in [replace.clone(), append, zero] {
            assert!(storage.replay(record.clone()).is_err(), "{record:?}");
        }
        storage.replay(StreamRecord::Promise { ballot }).expect("the first promise");
        assert!(storage.replay(replace).is_err(), "there is no entry to keep");
        assert!(StreamRecord::decode(&[9]).is_err());
    }
}
