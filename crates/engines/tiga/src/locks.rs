//! What transactions lock, and which of them conflict: on keys, granules of ranges, and tables, with intentions.
//!
//! ```text
//!              intends to read   intends to write   reads   writes
//! intends to read     ·                 ·             ·       ✗
//! intends to write    ·                 ·             ✗       ✗
//! reads               ·                 ✗             ·       ✗
//! writes              ✗                 ✗             ✗       ✗
//! ```
//! A key is read or written; its granule and its table are only intended. A range reads or writes a granule, or the whole
//! table. So two transactions conflict exactly where both touch one key and one of them writes it, or where one touches a
//! range that has a key of the other.

use crate::digest::Resource;
use crate::stamp::Stamp;
use shoal_types::Time;
use shoal_types::hash_index::HashIndex;
use std::collections::VecDeque;

/// How something is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Something within it is read.
    IntendRead,
    /// Something within it is written.
    IntendWrite,
    /// The resource is read as a whole.
    Read,
    /// The resource is written, anywhere in it.
    Write,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::IntendRead, Mode::IntendWrite, Mode::Read, Mode::Write];

    /// Whether two transactions that lock one thing in these modes conflict.
    #[must_use]
    pub fn conflicts(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Write, _) | (_, Mode::Write) => true,
            (Mode::Read, Mode::IntendWrite) | (Mode::IntendWrite, Mode::Read) => true,
            (Mode::Read | Mode::IntendRead, Mode::Read | Mode::IntendRead)
            | (Mode::IntendRead, Mode::IntendWrite)
            | (Mode::IntendWrite, Mode::IntendRead | Mode::IntendWrite) => false,
        }
    }

    /// The weakest mode that is as strong as both.
    #[must_use]
    pub fn join(self, other: Mode) -> Mode {
        match (self, other) {
            (Mode::Read, Mode::IntendWrite) | (Mode::IntendWrite, Mode::Read) => Mode::Write,
            (one, other) => one.max(other),
        }
    }

    fn is_intention(self) -> bool {
        self < Mode::Read
    }
}

/// A lock: of what, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// What is locked.
    pub resource: Resource,
    /// How it is locked.
    pub mode: Mode,
}

/// The locks of a transaction, each resource once.
#[must_use]
pub fn joined(mut locks: Vec<Lock>) -> Vec<Lock> {
    locks.sort_unstable_by_key(|lock| lock.resource);
    let mut joined: Vec<Lock> = Vec::with_capacity(locks.len());
    for lock in locks {
        match joined.last_mut().filter(|last| last.resource == lock.resource) {
            Some(last) => last.mode = last.mode.join(lock.mode),
            None => joined.push(lock),
        }
    }
    joined
}

/// The greatest timestamps that are released or promised: above them a conflicting transaction is accepted.
#[derive(Debug, Default)]
pub struct ConflictTable {
    greatest: HashIndex<Resource, [Time; 4]>,
    /// Of everything that the table has forgotten.
    floor: Time,
    /// The table is swept once it has so many resources.
    sweep_at: usize,
}

/// The table is swept at so many resources at the earliest.
const SWEEP_LEAST: usize = 1 << 12;

impl ConflictTable {
    /// The greatest timestamp above which these locks are accepted; over what was written alone unless it counts reads.
    #[must_use]
    pub fn greatest(&self, locks: &[Lock], counts_reads: bool) -> Time {
        let of = |lock: &Lock| {
            let known = self.greatest.get(&lock.resource);
            let times = known.into_iter().flat_map(|known| Mode::ALL.into_iter().zip(known));
            let counts = |mode: Mode| {
                let is_read = matches!(mode, Mode::Read | Mode::IntendRead);
                lock.mode.conflicts(mode) && (counts_reads || !is_read)
            };
            times.filter(|(mode, _)| counts(*mode)).map(|(_, t)| *t).max()
        };
        locks.iter().filter_map(of).max().unwrap_or(Time::ZERO).max(self.floor)
    }

    /// Something with these locks is released or promised at `t`.
    pub fn note(&mut self, locks: &[Lock], t: Time) {
        for lock in locks {
            let times = self.greatest.get_or_insert_with(&lock.resource, Default::default);
            let time = &mut times[lock.mode as usize];
            *time = t.max(*time);
        }
    }

    /// Forgets what is not above `floor`: nothing is accepted at or below it any more.
    pub fn forget(&mut self, floor: Time) {
        self.floor = floor.max(self.floor);
        if self.greatest.len() >= self.sweep_at {
            let floor = self.floor;
            self.greatest.retain(|_, times| times.iter().any(|t| *t > floor));
            self.sweep_at = (2 * self.greatest.len()).max(SWEEP_LEAST);
        }
    }

    /// How many resources it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.greatest.len()
    }

    /// Whether it has nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.greatest.is_empty()
    }
}

/// Transactions by what they lock, in the order of their stamps.
#[derive(Debug, Default)]
pub struct LockIndex {
    holders: HashIndex<Resource, Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    /// Transactions that read or write the table as a whole; always few.
    whole: VecDeque<(Stamp, Mode)>,
    intentions: VecDeque<(Stamp, Mode)>,
}

impl Holders {
    fn of(&self, mode: Mode) -> &VecDeque<(Stamp, Mode)> {
        if mode.is_intention() { &self.intentions } else { &self.whole }
    }

    fn of_mut(&mut self, mode: Mode) -> &mut VecDeque<(Stamp, Mode)> {
        if mode.is_intention() { &mut self.intentions } else { &mut self.whole }
    }

    /// Holders that can conflict with the mode.
    fn rivals(&self, mode: Mode) -> impl DoubleEndedIterator<Item = &(Stamp, Mode)> {
        let intentions = (!mode.is_intention()).then_some(&self.intentions);
        let rivals = self.whole.iter().chain(intentions.into_iter().flatten());
        rivals.filter(move |(_, other)| mode.conflicts(*other))
    }
}

impl LockIndex {
    /// Adds a transaction.
    pub fn add(&mut self, stamp: Stamp, locks: &[Lock]) {
        for Lock { resource, mode } in locks {
            let holders = self.holders.get_or_insert_with(resource, Holders::default);
            let holders = holders.of_mut(*mode);
            let at = holders.partition_point(|(other, _)| *other < stamp);
            holders.insert(at, (stamp, *mode));
        }
    }

    /// Removes a transaction.
    ///
    /// # Panics
    /// If it is not there.
    pub fn remove(&mut self, stamp: Stamp, locks: &[Lock]) {
        for Lock { resource, mode } in locks {
            let all = self.holders.get_mut(resource).expect("was added");
            let holders = all.of_mut(*mode);
            let at = holders.partition_point(|(other, _)| *other < stamp);
            let removed = holders.remove(at);
            assert_eq!(removed, Some((stamp, *mode)), "what is removed was added");
            if all.whole.is_empty() && all.intentions.is_empty() {
                self.holders.remove(resource);
            }
        }
    }

    /// Whether a conflicting one has a smaller stamp.
    #[must_use]
    pub fn has_before(&self, stamp: Stamp, locks: &[Lock]) -> bool {
        locks.iter().any(|lock| {
            let holders = self.holders.get(&lock.resource);
            holders.is_some_and(|it| it.rivals(lock.mode).any(|(other, _)| *other < stamp))
        })
    }

    /// The conflicting ones with smaller stamps; some may come twice.
    pub fn before<'a>(
        &'a self,
        stamp: Stamp,
        locks: &'a [Lock],
    ) -> impl Iterator<Item = Stamp> + 'a {
        self.rivals(locks).filter(move |other| *other < stamp)
    }

    /// The conflicting ones, each resource's in their order; some may come twice.
    pub fn rivals<'a>(&'a self, locks: &'a [Lock]) -> impl Iterator<Item = Stamp> + 'a {
        locks.iter().flat_map(|lock| {
            let holders = self.holders.get(&lock.resource).into_iter();
            holders.flat_map(|it| it.rivals(lock.mode)).map(|(stamp, _)| *stamp)
        })
    }

    /// Transactions that may have waited for what held these locks, now that it is gone.
    #[must_use]
    pub fn heads(&self, locks: &[Lock]) -> Vec<Stamp> {
        let mut heads = Vec::new();
        for lock in locks {
            let Some(holders) = self.holders.get(&lock.resource) else { continue };
            let first = holders.whole.iter().position(|(_, mode)| *mode == Mode::Write);
            let first = first.map_or(holders.whole.len(), |at| at + 1);
            let whole = holders.whole.iter().take(first);
            let intentions = (!lock.mode.is_intention()).then_some(&holders.intentions);
            // Many may read a row, as the marks of sessions are read: none of them has waited for another.
            let all = whole.chain(intentions.into_iter().flatten());
            let waited = all.filter(|(_, mode)| lock.mode.conflicts(*mode));
            heads.extend(waited.map(|(stamp, _)| *stamp));
        }
        heads
    }

    /// The last one that writes something, of those with smaller stamps, keys and ranges alike.
    #[must_use]
    pub fn last_writer(&self, stamp: Stamp, resource: Resource) -> Option<Stamp> {
        let holders = self.holders.get(&resource)?.of(Mode::Write);
        let mut before = holders.iter().rev().filter(|(other, _)| *other < stamp);
        before.find(|(_, mode)| *mode == Mode::Write).map(|(other, _)| *other)
    }

    /// All that read the resource and do not write it, of those with smaller stamps than the one and greater ones than the other.
    pub fn readers(
        &self,
        after: Option<Stamp>,
        before: Stamp,
        resource: Resource,
    ) -> impl Iterator<Item = Stamp> {
        let holders = self.holders.get(&resource).into_iter();
        let whole = holders.flat_map(|it| it.of(Mode::Read));
        let readers = whole.filter(|(_, mode)| *mode == Mode::Read).map(|(stamp, _)| *stamp);
        readers.filter(move |stamp| *stamp < before && after.is_none_or(|after| *stamp > after))
    }

    /// All that write something within the resource, of those with smaller stamps.
    pub fn writers(&self, stamp: Stamp, resource: Resource) -> impl Iterator<Item = (Stamp, Mode)> {
        let holders = self.holders.get(&resource).into_iter();
        let all = holders.flat_map(|it| it.whole.iter().chain(&it.intentions)).copied();
        all.filter(move |(other, mode)| {
            *other < stamp && matches!(mode, Mode::Write | Mode::IntendWrite)
        })
    }

    /// How many resources are locked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::TransactionId;
    use shoal_types::{NodeId, WorkerId};

    fn stamp(t: u64) -> Stamp {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: t };
        Stamp { t: Time(t), id }
    }

    fn lock(resource: Resource, mode: Mode) -> Lock {
        Lock { resource, mode }
    }

    #[test]
    fn conflicts_are_symmetric_and_a_joined_mode_has_those_of_both() {
        for one in Mode::ALL {
            for other in Mode::ALL {
                assert_eq!(one.conflicts(other), other.conflicts(one));
                let joined = one.join(other);
                for third in Mode::ALL {
                    let either = one.conflicts(third) || other.conflicts(third);
                    assert!(!either || joined.conflicts(third), "{one:?} {other:?} {third:?}");
                }
            }
        }
        let locks = [lock(1, Mode::Read), lock(2, Mode::IntendRead), lock(1, Mode::Write)];
        let joined = joined(locks.to_vec());
        assert_eq!(joined, [lock(1, Mode::Write), lock(2, Mode::IntendRead)]);
    }

    #[test]
    fn reads_are_accepted_below_reads_and_nothing_below_the_floor() {
        let mut table = ConflictTable::default();
        table.note(&[lock(1, Mode::Read), lock(9, Mode::IntendRead)], Time(7));
        assert_eq!(table.greatest(&[lock(1, Mode::Read)], true), Time::ZERO);
        assert_eq!(table.greatest(&[lock(1, Mode::Write)], true), Time(7));
        assert_eq!(table.greatest(&[lock(9, Mode::Write)], true), Time(7));
        table.forget(Time(9));
        assert_eq!(table.greatest(&[lock(5, Mode::Read)], true), Time(9));
        assert!(table.is_empty());
    }

    #[test]
    fn what_comes_before_is_found_in_any_order_of_arrival() {
        let (table, key) = (1, 2);
        let write = [lock(table, Mode::IntendWrite), lock(key, Mode::Write)];
        let scan = [lock(table, Mode::Read)];
        let mut index = LockIndex::default();
        index.add(stamp(5), &write);
        index.add(stamp(3), &scan);
        assert!(index.has_before(stamp(5), &write), "the scan is before the write");
        assert!(!index.has_before(stamp(3), &scan));
        index.add(stamp(4), &[lock(table, Mode::IntendWrite)]);
        assert_eq!(index.before(stamp(9), &scan).count(), 2);
        assert_eq!(index.last_writer(stamp(9), key), Some(stamp(5)));
        assert_eq!(index.last_writer(stamp(5), key), None);
        let readers = |after, before| index.readers(after, stamp(before), table).count();
        assert_eq!([readers(None, 3), readers(None, 4), readers(Some(stamp(3)), 9)], [0, 1, 0]);
        index.remove(stamp(3), &scan);
        assert!(!index.has_before(stamp(5), &write));
        index.remove(stamp(5), &write);
        index.remove(stamp(4), &[lock(table, Mode::IntendWrite)]);
        assert!(index.is_empty());
    }
}
