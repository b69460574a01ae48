//! What a replica must not forget, behind a trait: memory here, disks elsewhere.
//!
//! The entries still held are always in memory, as a [`EntryLog`]; a storage on disk writes its changes
//! behind, in the order they were made, and tells by [`StreamStorage::persisted`] how far it came.
//! Nothing is acknowledged that is not persisted: no promise and no accept.

use super::LogLength;
use bytes::Bytes;
use shoal_types::Ballot;
use std::collections::VecDeque;
use std::fmt;

/// What would be found after a crash: no message may say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persisted {
    /// The highest ballot that was promised.
    pub promised: Ballot,
    /// The ballot of the sequence.
    pub accepted_ballot: Ballot,
    /// Its length. Within one ballot a sequence only grows.
    pub accepted: LogLength,
}

/// The state of one acceptor. Changes become durable in the order of the calls, so that a crash
/// leaves a state that once was.
pub trait StreamStorage: fmt::Debug {
    /// The highest ballot promised.
    fn promised(&self) -> Ballot;
    /// The ballot under which the sequence was accepted.
    fn accepted_ballot(&self) -> Ballot;
    /// How much of the sequence is known to be decided. May be forgotten in part: it is told again.
    fn decided(&self) -> LogLength;
    /// The entries still held.
    fn log(&self) -> &EntryLog;
    /// What is durable. Behind the above by what is still on its way.
    fn persisted(&self) -> Persisted;

    /// Remembers a promise.
    fn promise(&mut self, ballot: Ballot);
    /// Appends an entry, under the ballot of the sequence.
    fn append(&mut self, entry: Bytes);
    /// In one step: cuts the sequence to `from`, appends `entries`, and moves it to `ballot`.
    fn replace(&mut self, ballot: Ballot, from: LogLength, entries: Vec<Bytes>);
    /// Remembers how much is decided.
    fn decide(&mut self, decided: LogLength);
    /// Forgets the entries before `before`. The owner's state already has them, durably.
    fn trim(&mut self, before: LogLength);
    /// A snapshot takes the place of the entries before `length`, which are decided; what is held
    /// beyond stays, and the ballot of the sequence too. The owner makes the state durable first.
    fn restore(&mut self, length: LogLength);
}

/// The entries of a sequence from `start` on, with running sums of their sizes.
#[derive(Clone, Default)]
pub struct EntryLog {
    start: LogLength,
    /// The sum of the sizes before `start`, from some beginning.
    start_bytes: u64,
    /// Each entry, with the sum of sizes up to and with it.
    entries: VecDeque<(Bytes, u64)>,
}

impl EntryLog {
    /// The first entry still held.
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

    /// The sizes of the entries from `from` to before `until`, in bytes. Both must be held, or be an
    /// end.
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

    /// The end of as many entries from `from` as have `bytes_max` bytes together, before `until`; at
    /// least of one, if there is one.
    #[must_use]
    pub fn fit(&self, from: LogLength, until: LogLength, bytes_max: u64) -> LogLength {
        if self.bytes_between(from, until) <= bytes_max {
            return until;
        }
        let limit = self.sum_before(from).saturating_add(bytes_max);
        let within = self.entries.partition_point(|(_, sum)| *sum <= limit) as u64;
        LogLength((self.start.0 + within).clamp(from.0 + 1, until.0))
    }

    /// The first entry of those at the end that have at most `bytes_max` together.
    #[must_use]
    pub fn tail(&self, bytes_max: u64) -> LogLength {
        let end = self.entries.back().map_or(self.start_bytes, |(_, sum)| *sum);
        let limit = end.saturating_sub(bytes_max);
        if limit <= self.start_bytes {
            return self.start;
        }
        LogLength(self.start.0 + self.entries.partition_point(|(_, sum)| *sum < limit) as u64 + 1)
    }

    /// Entries from `from` to before `until`, for a message. Nothing is copied but the references.
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

    /// Forgets the entries from `length` on.
    pub fn truncate(&mut self, length: LogLength) {
        assert!(self.start <= length && length <= self.length(), "cut to {length}: {self:?}");
        self.entries.truncate((length.0 - self.start.0) as usize);
    }

    /// Forgets the entries before `before`.
    pub fn trim(&mut self, before: LogLength) {
        assert!(before <= self.length(), "trim to {before}, which does not exist: {self:?}");
        while self.start < before {
            let (_, sum) = self.entries.pop_front().expect("held: it is before the end");
            self.start_bytes = sum;
            self.start.0 += 1;
        }
    }

    /// Begins at `length`, and keeps what is held beyond.
    pub fn restore(&mut self, length: LogLength) {
        if length <= self.length() {
            self.trim(length);
        } else {
            *self = EntryLog { start: length, ..EntryLog::default() };
        }
    }
}

/// Short: a log can be long.
impl fmt::Debug for EntryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({}..{})", self.start, self.length())
    }
}

/// A storage in memory. Everything is durable at once, unless it is [late](MemoryStorage::late).
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    seen: StorageState,
    late: Option<Box<DelayedWrites>>,
}

#[derive(Debug, Clone, Default)]
struct StorageState {
    promised: Ballot,
    accepted_ballot: Ballot,
    decided: LogLength,
    log: EntryLog,
}

/// What is on its way from memory to a medium.
#[derive(Debug, Clone, Default)]
struct DelayedWrites {
    durable: StorageState,
    pending: VecDeque<StorageChange>,
}

#[derive(Debug, Clone)]
enum StorageChange {
    Promise(Ballot),
    Append(Bytes),
    Replace(Ballot, LogLength, Vec<Bytes>),
    Decide(LogLength),
    Trim(LogLength),
    Restore(LogLength),
}

impl StorageState {
    fn apply(&mut self, change: StorageChange) {
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

impl MemoryStorage {
    /// The storage of a replica that has seen nothing yet.
    #[must_use]
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// The same; a change becomes durable only when [`persist`](MemoryStorage::persist) says so. For simulations of
    /// disks.
    #[must_use]
    pub fn late() -> MemoryStorage {
        MemoryStorage { seen: StorageState::default(), late: Some(Box::default()) }
    }

    /// How many changes are not durable yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.late.as_ref().map_or(0, |late| late.pending.len())
    }

    /// Makes the next `count` changes durable, or as many as there are.
    pub fn persist(&mut self, count: usize) {
        let Some(late) = &mut self.late else { return };
        let count = count.min(late.pending.len());
        late.pending.drain(..count).for_each(|change| late.durable.apply(change));
    }

    /// What a crash leaves.
    pub fn crash(&mut self) {
        if let Some(late) = &mut self.late {
            late.pending.clear();
            self.seen = late.durable.clone();
        }
    }

    fn change(&mut self, change: StorageChange) {
        if let Some(late) = &mut self.late {
            late.pending.push_back(change.clone());
        }
        self.seen.apply(change);
    }
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
    fn what_is_late_becomes_durable_in_order_and_a_crash_leaves_that() {
        let mut storage = MemoryStorage::late();
        let ballot = Ballot::default();
        storage.promise(ballot);
        storage.replace(ballot, LogLength(0), vec![Bytes::from_static(b"x")]);
        storage.append(Bytes::from_static(b"y"));
        assert_eq!((storage.pending(), storage.persisted().accepted), (3, LogLength(0)));
        storage.persist(2);
        assert_eq!(
            (storage.log().length(), storage.persisted().accepted),
            (LogLength(2), LogLength(1))
        );
        storage.crash();
        assert_eq!((storage.pending(), storage.log().length()), (0, LogLength(1)));
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
