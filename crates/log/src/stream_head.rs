//! What a checkpoint keeps of a stream: the state with which the log on disk goes on behind it.

use super::LogLength;
use super::record::{RecordError, check};
use super::storage::{EntryLog, StorageState};
use bytes::Bytes;
use shoal_types::Ballot;
use shoal_types::wire::Coded;

/// The state of a stream's storage when a checkpoint began, without the entries for which the checkpoint's rows stand.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct StreamHead {
    /// The highest ballot that was promised.
    #[coded(short)]
    pub promised: Ballot,
    /// The ballot of the sequence.
    #[coded(short)]
    pub accepted_ballot: Ballot,
    /// The number of entries that were known to be decided.
    #[coded(short)]
    pub decided: LogLength,
    /// The index of the first entry in `entries`.
    #[coded(short)]
    pub start: LogLength,
    /// The entries from there to the end of the sequence.
    #[coded(short)]
    pub entries: Vec<Bytes>,
}

impl StreamHead {
    pub(super) fn of(state: &StorageState, from: LogLength) -> StreamHead {
        let StorageState { promised, accepted_ballot, decided, ref log } = *state;
        assert!(log.start() <= from && from <= decided, "a checkpoint from {from} of {state:?}");
        let entries = log.entries(from, log.length());
        StreamHead { promised, accepted_ballot, decided, start: from, entries }
    }

    pub(super) fn into_state(self) -> Result<StorageState, RecordError> {
        let StreamHead { promised, accepted_ballot, decided, start, entries } = self;
        let mut log = EntryLog::default();
        log.restore(start);
        entries.into_iter().for_each(|entry| log.push(entry));
        check(accepted_ballot <= promised, "accepted above what is promised")?;
        check(start <= decided && decided <= log.length(), "decided what it does not have")?;
        Ok(StorageState { promised, accepted_ballot, decided, log })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStorage, StreamRecord, StreamStorage};
    use super::*;
    use shoal_types::wire::{decode, encode};
    use shoal_types::{Epoch, NodeId};

    fn ballot(epoch: u32) -> Ballot {
        Ballot { epoch: Epoch(epoch), node: NodeId(1) }
    }

    #[test]
    fn a_storage_goes_on_behind_its_head() {
        let entries = ["a", "b", "c"].map(|text| Bytes::from_static(text.as_bytes()));
        let mut storage = MemoryStorage::recorded();
        storage.promise(ballot(1));
        storage.replace(ballot(1), LogLength(0), entries.to_vec());
        storage.decide(LogLength(2));
        let head = storage.head(LogLength(1));
        assert_eq!((head.start, head.entries.len()), (LogLength(1), 2));
        let mut behind = MemoryStorage::from_head(decode(&encode(&head)).unwrap()).unwrap();
        assert_eq!(behind.take_records(), [], "it is the same replica");
        let append = StreamRecord::Append { decided: LogLength(3), entry: entries[0].clone() };
        behind.replay(append).unwrap();
        assert_eq!((behind.promised(), behind.log().start()), (ballot(1), LogLength(1)));
        assert_eq!((behind.decided(), behind.log().length()), (LogLength(3), LogLength(4)));
        assert_eq!(behind.persisted().accepted, LogLength(4));
    }

    #[test]
    fn a_head_that_no_replica_has_is_refused() {
        let head = MemoryStorage::recorded().head(LogLength(0));
        let above = StreamHead { accepted_ballot: ballot(1), ..head.clone() };
        let missing = StreamHead { decided: LogLength(1), ..head };
        for head in [above, missing] {
            assert!(MemoryStorage::from_head(head).is_err());
        }
    }
}
