//! The durable state of a replica, behind a trait.
//!
//! The entries still held are always in memory, as an [`EntryLog`]. A storage on disk writes its changes
//! later, in the order in which they were made, and reports its progress by [`StreamStorage::persisted`]. No
//! promise and no acceptance is acknowledged before it is persisted.

use super::LogLength;
use bytes::Bytes;
use shoal_types::Ballot;
use std::collections::VecDeque;
use std::fmt;

/// The state that a crash would leave, as far as it may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persisted {
    /// The highest promised ballot.
    pub promised: Ballot,
    /// The ballot of the accepted sequence.
    pub accepted_ballot: Ballot,
    /// The length of that sequence. Within one ballot a sequence only grows.
    pub accepted: LogLength,
}

/// The state of one acceptor. Changes become durable in the order of the calls, so that a crash leaves a
/// state that existed.
pub trait StreamStorage: fmt::Debug {
    /// The highest ballot promised.
    fn promised(&self) -> Ballot;
    /// The ballot under which the sequence was accepted.
    fn accepted_ballot(&self) -> Ballot;
    /// The number of entries known to be decided. A crash may lose the latest value: the leader sends it
    /// again.
    fn decided(&self) -> LogLength;
    /// The entries still held.
    fn log(&self) -> &EntryLog;
    /// The durable state, which lags behind the above by the writes in progress.
    fn persisted(&self) -> Persisted;
    /// The bytes of the entries in those writes.
    fn unpersisted_bytes(&self) -> u64;
    /// Whether a snapshot from which it was restored is not durable: what follows waits for that.
    fn awaits_snapshot(&self) -> bool;

    /// Stores a promise.
    fn promise(&mut self, ballot: Ballot);
    /// Appends an entry, under the ballot of the sequence.
    fn append(&mut self, entry: Bytes);
    /// In one step: cuts the sequence to `from`, appends `entries`, and moves it to `ballot`.
    fn replace(&mut self, ballot: Ballot, from: LogLength, entries: Vec<Bytes>);
    /// Stores the number of decided entries.
    fn decide(&mut self, decided: LogLength);
    /// Removes the entries before `before`: the owner's state contains them. Where that is to outlive the process, the owner keeps
    /// what it needs of them on disk.
    fn trim(&mut self, before: LogLength);
    /// Replaces the entries before `length`, which are decided, by a snapshot; later entries and the ballot
    /// of the sequence stay. It counts as persisted once the owner's state is durable.
    fn restore(&mut self, length: LogLength);
}

/// No sequence that is read from a disk begins behind this: with the entries that fit in memory, its length is a number then. No
/// stream comes near it: a billion entries a second would take centuries.
pub(super) const START_MAX: LogLength = LogLength(u64::MAX / 2);

/// The entries of a sequence from `start` on, with running sums of their sizes.
#[derive(Clone, Default)]
pub struct EntryLog {
    start: LogLength,
    /// The sum of the sizes before `start`, up to a constant.
    start_bytes: u64,
    /// Each entry, with the sum of the sizes up to and including it.
    entries: VecDeque<(Bytes, u64)>,
}

impl EntryLog {
    /// The index of the first entry still held.
    #[must_use]
    pub fn start(&self) -> LogLength {
        self.start
    }

    /// The length of the sequence, trimmed entries included.
    #[must_use]
    pub fn length(&self) -> LogLength {
        LogLength(self.start.0 + self.entries.len() as u64)
    }

    /// The entry of this index; `None` if it is trimmed or does not exist yet.
    #[must_use]
    #[inline]
    pub fn entry(&self, index: u64) -> Option<&Bytes> {
        let place = usize::try_from(index.checked_sub(self.start.0)?).ok()?;
        self.entries.get(place).map(|(entry, _)| entry)
    }

    /// The size of the entries from `from` to before `until`, in bytes. Both must be indices of held entries,
    /// or the end.
    #[must_use]
    #[inline]
    pub fn bytes_between(&self, from: LogLength, until: LogLength) -> u64 {
        self.sum_before(until) - self.sum_before(from)
    }

    fn sum_before(&self, length: LogLength) -> u64 {
        match length.0 - self.start.0 {
            0 => self.start_bytes,
            held => self.entries[held as usize - 1].1,
        }
    }

    /// The end of the longest range of entries from `from`, before `until`, that has at most `bytes_max`
    /// bytes; it has at least one entry, if there is one.
    #[must_use]
    pub fn fit(&self, from: LogLength, until: LogLength, bytes_max: u64) -> LogLength {
        if self.bytes_between(from, until) <= bytes_max {
            return until;
        }
        let limit = self.sum_before(from).saturating_add(bytes_max);
        let within = self.entries.partition_point(|(_, sum)| *sum <= limit) as u64;
        LogLength((self.start.0 + within).clamp(from.0 + 1, until.0))
    }

    /// The index from which the last entries have at most `bytes_max` bytes together.
    #[must_use]
    pub fn tail(&self, bytes_max: u64) -> LogLength {
        let end = self.entries.back().map_or(self.start_bytes, |(_, sum)| *sum);
        let limit = end.saturating_sub(bytes_max);
        if limit <= self.start_bytes {
            return self.start;
        }
        LogLength(self.start.0 + self.entries.partition_point(|(_, sum)| *sum < limit) as u64 + 1)
    }

    /// The entries from `from` to before `until`, for a message. Only references are copied.
    #[must_use]
    pub fn entries(&self, from: LogLength, until: LogLength) -> Vec<Bytes> {
        let places = (from.0 - self.start.0) as usize..(until.0 - self.start.0) as usize;
        self.entries.range(places).map(|(entry, _)| entry.clone()).collect()
    }

    /// Appends an entry.
    #[inline]
    pub fn push(&mut self, entry: Bytes) {
        let before = self.entries.back().map_or(self.start_bytes, |(_, sum)| *sum);
        let sum = before + entry.len() as u64;
        self.entries.push_back((entry, sum));
    }

    /// Removes the entries from `length` on.
    pub fn truncate(&mut self, length: LogLength) {
        assert!(self.start <= length && length <= self.length(), "cut to {length}: {self:?}");
        self.entries.truncate((length.0 - self.start.0) as usize);
    }

    /// Removes the entries before `before`.
    pub fn trim(&mut self, before: LogLength) {
        assert!(before <= self.length(), "trim to {before}, which does not exist: {self:?}");
        while self.start < before {
            let (_, sum) = self.entries.pop_front().expect("held: it is before the end");
            self.start_bytes = sum;
            self.start.0 += 1;
        }
    }

    /// Lets the log begin at `length`, and keeps later entries.
    pub fn restore(&mut self, length: LogLength) {
        if length <= self.length() {
            self.trim(length);
        } else {
            *self = EntryLog { start: length, ..EntryLog::default() };
        }
    }
}

/// Prints the bounds only, since a log can be long.
impl fmt::Debug for EntryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({}..{})", self.start, self.length())
    }
}

/// What a replica has.
#[derive(Debug, Clone, Default)]
pub(super) struct StorageState {
    pub(super) promised: Ballot,
    pub(super) accepted_ballot: Ballot,
    pub(super) decided: LogLength,
    pub(super) log: EntryLog,
}

/// What a call of a [`StreamStorage`] does.
#[derive(Debug, Clone)]
pub(super) enum StorageChange {
    Promise(Ballot),
    Append(Bytes),
    Replace(Ballot, LogLength, Vec<Bytes>),
    Decide(LogLength),
    Trim(LogLength),
    Restore(LogLength),
}

impl StorageChange {
    /// The bytes of its entries.
    pub(super) fn entry_bytes(&self) -> u64 {
        match self {
            StorageChange::Append(entry) => entry.len() as u64,
            StorageChange::Replace(_, _, entries) => {
                entries.iter().map(|entry| entry.len() as u64).sum()
            }
            StorageChange::Promise(_)
            | StorageChange::Decide(_)
            | StorageChange::Trim(_)
            | StorageChange::Restore(_) => 0,
        }
    }
}

impl StorageState {
    pub(super) fn apply(&mut self, change: StorageChange) {
        match change {
            StorageChange::Promise(ballot) => self.promised = ballot,
            StorageChange::Append(entry) => self.log.push(entry),
            StorageChange::Replace(ballot, from, entries) => {
                self.log.truncate(from);
                entries.into_iter().for_each(|entry| self.log.push(entry));
                self.accepted_ballot = ballot;
            }
            StorageChange::Decide(decided) => self.decided = decided,
            StorageChange::Trim(before) => self.log.trim(before),
            StorageChange::Restore(length) => {
                self.log.restore(length);
                self.decided = length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(sizes: &[usize]) -> EntryLog {
        let mut log = EntryLog::default();
        sizes.iter().for_each(|size| log.push(Bytes::from(vec![b'x'; *size])));
        log
    }

    #[test]
    fn sizes_survive_trims_and_cuts() {
        let mut log = log(&[1, 2, 4, 8]);
        assert_eq!(log.bytes_between(LogLength(1), LogLength(3)), 6);
        log.trim(LogLength(2));
        assert_eq!((log.start(), log.length()), (LogLength(2), LogLength(4)));
        assert_eq!(log.bytes_between(LogLength(2), LogLength(4)), 12);
        log.truncate(LogLength(3));
        log.push(Bytes::from_static(b"y"));
        assert_eq!(log.bytes_between(LogLength(2), LogLength(4)), 5);
        assert_eq!((log.entry(1), log.entry(3).map(Bytes::len)), (None, Some(1)));
    }

    #[test]
    fn messages_hold_what_fits_and_at_least_one_entry() {
        let log = log(&[4, 4, 4, 100]);
        assert_eq!(log.fit(LogLength(0), LogLength(4), 9), LogLength(2));
        assert_eq!(log.fit(LogLength(0), LogLength(4), 3), LogLength(1));
        assert_eq!(log.fit(LogLength(3), LogLength(4), 9), LogLength(4));
        assert_eq!(log.fit(LogLength(0), LogLength(1), 99), LogLength(1));
        assert_eq!(log.fit(LogLength(2), LogLength(2), 0), LogLength(2));
    }

    #[test]
    fn the_tail_is_what_fits_at_the_end() {
        let mut log = log(&[4, 4, 4, 8]);
        assert_eq!(log.tail(100), LogLength(0));
        assert_eq!((log.tail(12), log.tail(11)), (LogLength(2), LogLength(3)));
        assert_eq!((log.tail(7), log.tail(0)), (LogLength(4), LogLength(4)));
        log.trim(LogLength(3));
        assert_eq!(
            (log.tail(100), log.tail(8), log.tail(7)),
            (LogLength(3), LogLength(3), LogLength(4))
        );
    }

    #[test]
    fn a_snapshot_within_the_log_keeps_the_rest() {
        let mut log = log(&[1, 2, 4]);
        log.restore(LogLength(2));
        assert_eq!((log.start(), log.length()), (LogLength(2), LogLength(3)));
        log.restore(LogLength(9));
        assert_eq!((log.start(), log.length()), (LogLength(9), LogLength(9)));
    }
}
