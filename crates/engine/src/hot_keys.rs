//! The keys that transactions read, write and conflict over most, by sampling.
//!
//! One of some operations is looked at, at random, so that a regular order of operations hides none. What is looked at is
//! counted in a small table (Space-Saving; Metwally, Agrawal, El Abbadi, ICDT'05): a key that is not in it takes the place of
//! the least counted one, with that count as its possible error. So a key with more than one `KEPT`th of the samples is in
//! the table for certain, and `count - error` is never too high. Counts are of a window of [`WINDOW`] and the one before it.
//!
//! It draws from a source of its own, so that whether it runs changes nothing else.

use shoal_types::{Conflict, KeyExcerpt, Random, TableId, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

/// One of so many reads and writes is looked at, on average. Fewer cost less and find less.
const OPERATIONS_EVERY: u32 = 128;

/// One of so many conflicts is.
const CONFLICTS_EVERY: u32 = 8;

/// Keys that a table holds.
const KEPT: usize = 32;

/// Keys of each kind that are reported.
pub const REPORTED_MAX: usize = 10;

/// The length of a window.
pub const WINDOW: Duration = Duration::from_secs(30);

/// What is done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// The key is read.
    Read,
    /// The key is written.
    Written,
    /// A transaction is aborted because of the key.
    Conflicted,
}

impl KeyUse {
    /// All of them, in order.
    pub const ALL: [KeyUse; 3] = [KeyUse::Read, KeyUse::Written, KeyUse::Conflicted];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            KeyUse::Read => "read",
            KeyUse::Written => "written",
            KeyUse::Conflicted => "conflicted",
        }
    }

    fn every(self) -> u32 {
        match self {
            KeyUse::Read | KeyUse::Written => OPERATIONS_EVERY,
            KeyUse::Conflicted => CONFLICTS_EVERY,
        }
    }
}

/// A key that is used much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotKey {
    /// The table of the key.
    pub table: TableId,
    /// The key, or the beginning of a long one.
    pub key: KeyExcerpt,
    /// About how often it was used in the two windows, and hardly less.
    pub uses: u64,
}

/// Counts of the keys that are used most, of one worker.
#[derive(Debug)]
pub struct HotKeys {
    /// How many uses are skipped before one is looked at, for each kind.
    skips: [Cell<u32>; KeyUse::ALL.len()],
    samples: RefCell<Samples>,
}

#[derive(Debug)]
struct Samples {
    random: Random,
    /// When the current window began.
    began: Time,
    current: [KeyCounts; KeyUse::ALL.len()],
    before: [KeyCounts; KeyUse::ALL.len()],
}

/// The keys with the greatest counts.
#[derive(Debug, Default)]
struct KeyCounts(Vec<CountedKey>);

#[derive(Debug, Clone, Copy)]
struct CountedKey {
    table: TableId,
    key: KeyExcerpt,
    count: u32,
    /// How much of the count may be of keys that were replaced.
    error: u32,
}

impl HotKeys {
    /// No key was used. `seed` determines which uses are looked at.
    pub fn new(seed: u64) -> HotKeys {
        HotKeys {
            skips: KeyUse::ALL.map(|of| Cell::new(of.every())),
            samples: RefCell::new(Samples {
                random: Random::new(seed),
                began: Time::default(),
                current: Default::default(),
                before: Default::default(),
            }),
        }
    }

    /// A key is used.
    #[inline]
    pub fn note(&self, now: Time, of: KeyUse, table: TableId, key: &[u8]) {
        if self.is_due(of) {
            self.sample(now, of, table, KeyExcerpt::new(key));
        }
    }

    /// A transaction is aborted because of this.
    pub fn note_conflict(&self, now: Time, conflict: &Conflict) {
        if let Conflict::ReadChanged { table, key } | Conflict::Locked { table, key } = conflict
            && self.is_due(KeyUse::Conflicted)
        {
            self.sample(now, KeyUse::Conflicted, *table, *key);
        }
    }

    /// The keys that were used most, each kind with the most used first, without those of the table `left_out`.
    pub fn report(&self, now: Time, left_out: Option<TableId>) -> [Vec<HotKey>; KeyUse::ALL.len()] {
        let mut samples = self.samples.borrow_mut();
        samples.turn(now);
        KeyUse::ALL.map(|of| samples.report(of, left_out))
    }

    #[inline]
    fn is_due(&self, of: KeyUse) -> bool {
        let skips = &self.skips[of as usize];
        let left = skips.get();
        skips.set(left.wrapping_sub(1));
        left == 0
    }

    #[cold]
    fn sample(&self, now: Time, of: KeyUse, table: TableId, key: KeyExcerpt) {
        let mut samples = self.samples.borrow_mut();
        samples.turn(now);
        samples.current[of as usize].add(table, key);
        // Uniform from 0 up, so that one of `every` is looked at on average.
        let skips = samples.random.below(u64::from(2 * of.every() - 1));
        self.skips[of as usize].set(skips as u32);
    }
}

impl Samples {
    /// Begins another window, if it is time.
    fn turn(&mut self, now: Time) {
        if now - self.began < WINDOW {
            return;
        }
        let last = std::mem::take(&mut self.current);
        self.before = if now - self.began < 2 * WINDOW { last } else { Default::default() };
        self.began = now;
    }

    fn report(&self, of: KeyUse, left_out: Option<TableId>) -> Vec<HotKey> {
        let mut uses: BTreeMap<(TableId, &[u8]), HotKey> = BTreeMap::new();
        let counted = self.before[of as usize].0.iter().chain(&self.current[of as usize].0);
        for counted in counted.filter(|counted| Some(counted.table) != left_out) {
            let CountedKey { table, key, .. } = *counted;
            let sum = uses.entry((table, counted.key.as_bytes())).or_insert(HotKey {
                table,
                key,
                uses: 0,
            });
            sum.uses += u64::from(counted.count - counted.error) * u64::from(of.every());
        }
        let mut uses: Vec<HotKey> = uses.into_values().collect();
        uses.sort_by_key(|key| std::cmp::Reverse(key.uses));
        uses.truncate(REPORTED_MAX);
        uses
    }
}

impl KeyCounts {
    fn add(&mut self, table: TableId, key: KeyExcerpt) {
        let found = self.0.iter_mut().find(|it| it.key == key && it.table == table);
        if let Some(found) = found {
            found.count = found.count.saturating_add(1);
        } else if self.0.len() < KEPT {
            self.0.push(CountedKey { table, key, count: 1, error: 0 });
        } else if let Some(least) = self.0.iter_mut().min_by_key(|it| it.count) {
            let error = least.count;
            *least = CountedKey { table, key, count: error.saturating_add(1), error };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(3);

    fn at(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(1000 + seconds)
    }

    /// Every tenth use is of one key, the others are of a thousand.
    fn use_keys(hot: &HotKeys, now: Time, of: KeyUse) {
        let mut random = Random::new(7);
        for number in 0..200_000_u64 {
            let key = if number % 10 == 0 { 0 } else { 1 + random.below(1000) };
            hot.note(now, of, TABLE, &key.to_be_bytes());
        }
    }

    #[test]
    fn a_key_that_is_used_much_is_found_among_many() {
        let hot = HotKeys::new(1);
        use_keys(&hot, at(0), KeyUse::Written);
        let [read, written, conflicted] = hot.report(at(1), None);
        assert!(read.is_empty() && conflicted.is_empty());
        assert_eq!(
            (written[0].table, written[0].key),
            (TABLE, KeyExcerpt::new(&0_u64.to_be_bytes()))
        );
        assert!((15_000..25_000).contains(&written[0].uses), "{written:?}");
        assert!(written[1].uses < 5_000 && written.len() <= REPORTED_MAX, "{written:?}");
    }

    #[test]
    fn a_table_is_left_out_and_takes_no_place() {
        let hot = HotKeys::new(1);
        let other = TableId(TABLE.0 + 1);
        for number in 0..20_000_u64 {
            hot.note(at(0), KeyUse::Read, TABLE, &(number % 20).to_be_bytes());
            hot.note(at(0), KeyUse::Read, other, b"alice");
        }
        let [read, ..] = hot.report(at(0), Some(TABLE));
        assert_eq!((read.len(), read[0].table, read[0].key), (1, other, KeyExcerpt::new(b"alice")));
    }

    #[test]
    fn old_uses_are_forgotten() {
        let hot = HotKeys::new(1);
        use_keys(&hot, at(0), KeyUse::Read);
        let first = hot.report(at(29), None)[0][0];
        assert_eq!(hot.report(at(31), None)[0][0], first, "in the window before");
        use_keys(&hot, at(32), KeyUse::Read);
        assert!(hot.report(at(33), None)[0][0].uses > first.uses * 3 / 2, "in both");
        assert_eq!(hot.report(at(120), None), [const { Vec::new() }; 3]);
    }

    #[test]
    fn conflicts_count_where_they_name_a_key() {
        let hot = HotKeys::new(1);
        let key = KeyExcerpt::new(b"alice");
        for _ in 0..1000 {
            hot.note_conflict(at(0), &Conflict::RangeChanged { table: TABLE });
            hot.note_conflict(at(0), &Conflict::Locked { table: TABLE, key });
        }
        let [_, _, conflicted] = hot.report(at(0), None);
        assert_eq!((conflicted.len(), conflicted[0].key), (1, key));
        assert!((500..2000).contains(&conflicted[0].uses), "{conflicted:?}");
    }
}
