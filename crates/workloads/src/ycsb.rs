//! YCSB's core workloads A–F (Cooper et al., SoCC'10), one key a transaction.
//!
//! | | operations | keys |
//! |---|---|---|
//! | A | 50 % read, 50 % update | zipfian |
//! | B | 95 % read, 5 % update | zipfian |
//! | C | 100 % read | zipfian |
//! | D | 95 % read, 5 % insert | latest: zipfian, backwards from the newest |
//! | E | 95 % scan of 1–100 rows, 5 % insert | zipfian |
//! | F | 50 % read, 50 % read-modify-write | zipfian |
//!
//! A row's key is its number, scattered over all 64-bit numbers by a bijection (YCSB's
//! `insertorder=hashed`, without collisions), as eight big-endian bytes. Its value is
//!
//! ```text
//! value: | key 8 | counter 8 | filler | seal 8 = key xor counter |
//! ```
//!
//! so that every read can check that it got this key's value, whole. A read-modify-write adds one to
//! the counter, every other write sets it to 0.
//!
//! Invariants: a row for every number loaded and every insert committed; without updates, the
//! counters sum up to the committed read-modify-writes.

mod operation;
mod value;

pub use operation::{Asked, KeyOperation, OPERATION, What};
pub use value::VALUE_BYTES_MIN;

use self::operation::ReadRows;
use self::value::{address, checked_counter};
use crate::arguments::decode;
use crate::rows;
use crate::tally::{Padded, Tally};
use crate::workload::{Check, Done, Workload};
use crate::zipf::{Scrambled, Zipf};
use bytes::Bytes;
use shoal_types::wire::encode;
use shoal_types::{Call, Database, Random, Result, Scan, TableId, Transaction};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest scan of workload E.
const SCAN_ROWS_MAX: u64 = 100;

/// YCSB's number of rows in this project.
pub const KEYS: u32 = 1_000_000;

/// The default length of a value: that of one field of YCSB.
pub const VALUE_BYTES: usize = 100;

/// The core workloads A to F.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table above says what each letter is")]
pub enum Letter {
    A,
    B,
    C,
    D,
    E,
    F,
}

/// How the rows that operations touch are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Each row as likely as the other.
    Uniform,
    /// Zipfian with this skew; see [`Zipf`].
    Zipfian(f64),
}

/// The operation of a transaction on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

/// One of YCSB's workloads: its parameters, its table, and what its clients have done together.
#[derive(Debug)]
pub struct Ycsb {
    table: TableId,
    letter: Letter,
    keys: u64,
    value_bytes: usize,
    distribution: Distribution,
    /// Transactions are calls of [`KeyOperation`].
    calls: bool,
    ranks: Scrambled,
    latest: Zipf,
    /// The number of the next row to insert; those below may still be on their way.
    next_number: Padded<AtomicU64>,
    inserted: Tally,
    modified: Tally,
}

/// One client, with the random source of its keys.
#[derive(Debug)]
pub struct YcsbClient {
    number: usize,
    random: Random,
    /// The value to write, filler and all.
    value: Box<[u8]>,
}

impl Ycsb {
    /// Workload `letter` over `keys` rows of `db` with values of `value_bytes` bytes.
    ///
    /// # Errors
    /// Those of making the table.
    ///
    /// # Panics
    /// If `keys` is 0, `value_bytes` below [`VALUE_BYTES_MIN`], or the skew out of [`Zipf`]'s range.
    pub fn new<D: Database>(
        db: &D,
        letter: Letter,
        keys: u32,
        value_bytes: usize,
        distribution: Distribution,
    ) -> Result<Ycsb> {
        assert!(value_bytes >= VALUE_BYTES_MIN, "a value has {VALUE_BYTES_MIN} bytes or more");
        let theta = match distribution {
            Distribution::Zipfian(theta) => theta,
            Distribution::Uniform => Zipf::YCSB_THETA,
        };
        let latest = Zipf::new(u64::from(keys), theta);
        Ok(Ycsb {
            table: db.table("ycsb")?,
            letter,
            keys: u64::from(keys),
            value_bytes,
            distribution,
            calls: false,
            ranks: Scrambled::new(latest.clone()),
            latest,
            next_number: Padded(AtomicU64::new(u64::from(keys))),
            inserted: Tally::new(),
            modified: Tally::new(),
        })
    }

    /// The same, with transactions that are calls of [`KeyOperation`]: the database has to know it.
    #[must_use]
    pub fn calling(self) -> Ycsb {
        Ycsb { calls: true, ..self }
    }

    /// Calls the procedure; returns what it read.
    async fn call<D: Database>(&self, db: &D, key: [u8; 8], what: What) -> Result<ReadRows> {
        let arguments = encode(&Asked { table: self.table, key, what });
        decode(&db.call(&Call::new(OPERATION, &arguments).near(self.table, &key)).await?)
    }

    /// The two operations of the workload, and how many of 100 transactions do the first.
    #[inline]
    fn mix(&self) -> (u64, Operation, Operation) {
        match self.letter {
            Letter::A => (50, Operation::Read, Operation::Update),
            Letter::B => (95, Operation::Read, Operation::Update),
            Letter::C => (100, Operation::Read, Operation::Read),
            Letter::D => (95, Operation::Read, Operation::Insert),
            Letter::E => (95, Operation::Scan, Operation::Insert),
            Letter::F => (50, Operation::Read, Operation::ReadModifyWrite),
        }
    }

    /// The key of a row that exists, or (workload D) that is about to.
    #[inline]
    fn existing(&self, random: &mut Random) -> [u8; 8] {
        let number = match self.distribution {
            _ if self.letter == Letter::D => {
                let newest = self.next_number.0.load(Ordering::Relaxed) - 1;
                newest - self.latest_rank(random)
            }
            Distribution::Uniform => random.below(self.keys),
            Distribution::Zipfian(_) => self.ranks.draw(random),
        };
        key_of(number)
    }

    #[inline]
    fn latest_rank(&self, random: &mut Random) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.below(self.keys),
            Distribution::Zipfian(_) => self.latest.draw(random),
        }
    }

    /// A value with its filler, yet to be addressed.
    fn blank(&self, seed: u64) -> Box<[u8]> {
        let mut random = Random::new(seed);
        (0..self.value_bytes).map(|_| random.below(256) as u8).collect()
    }

    /// The counter of `value`, if it is a whole value of `key`.
    #[inline]
    fn counter(&self, key: [u8; 8], value: &[u8]) -> Result<u64> {
        if value.len() != self.value_bytes {
            return Err(rows::corrupt("a key with the value of another"));
        }
        checked_counter(key, value)
    }

    /// Judges what was read of rows, which it returns in order of keys.
    fn judge(&self, read: &ReadRows) -> Result<()> {
        for (key, value) in read {
            let key = key[..].try_into();
            self.counter(key.map_err(|_| rows::corrupt("a key of another length"))?, value)?;
        }
        Ok(())
    }

    /// The same for the one row that has to be there; the newest may still be on their way.
    fn judge_one(&self, read: &ReadRows) -> Result<()> {
        if read.is_empty() && self.letter != Letter::D {
            return Err(rows::corrupt("a key without a value"));
        }
        self.judge(read)
    }

    async fn read<D: Database>(&self, db: &D, random: &mut Random) -> Result<u32> {
        let key = self.existing(random);
        if self.calls {
            self.judge_one(&self.call(db, key, What::Read).await?)?;
            return Ok(1);
        }
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            match tx.get(self.table, &key).await? {
                Some(value) => self.counter(key, value).map(drop),
                // The newest rows may still be on their way.
                None if self.letter == Letter::D => Ok(()),
                None => Err(rows::corrupt("a key without a value")),
            }
        })
        .await?;
        Ok(runs)
    }

    async fn update<D: Database>(&self, db: &D, client: &mut YcsbClient) -> Result<u32> {
        let key = self.existing(&mut client.random);
        address(&mut client.value, key, 0);
        if self.calls {
            self.call(db, key, What::Update(Bytes::copy_from_slice(&client.value))).await?;
            return Ok(1);
        }
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            tx.put(self.table, &key, &client.value)
        })
        .await?;
        Ok(runs)
    }

    async fn insert<D: Database>(&self, db: &D, client: &mut YcsbClient) -> Result<u32> {
        let key = key_of(self.next_number.0.fetch_add(1, Ordering::Relaxed));
        address(&mut client.value, key, 0);
        if self.calls {
            self.call(db, key, What::Insert(Bytes::copy_from_slice(&client.value))).await?;
            self.inserted.count(client.number);
            return Ok(1);
        }
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            tx.insert(self.table, &key, &client.value).await
        })
        .await?;
        self.inserted.count(client.number);
        Ok(runs)
    }

    async fn scan<D: Database>(&self, db: &D, random: &mut Random) -> Result<u32> {
        let first = self.existing(random);
        let limit = 1 + random.below(SCAN_ROWS_MAX) as usize;
        if self.calls {
            self.judge(&self.call(db, first, What::Scan(limit as u32)).await?)?;
            return Ok(1);
        }
        let range = (Bound::Included(first.as_slice()), Bound::Unbounded);
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            for (key, value) in tx.scan(self.table, Scan::range(range).limit(limit)).await? {
                let key = key.try_into().map_err(|_| rows::corrupt("a key of another length"))?;
                self.counter(key, value)?;
            }
            Ok(())
        })
        .await?;
        Ok(runs)
    }

    async fn read_modify_write<D: Database>(&self, db: &D, client: &mut YcsbClient) -> Result<u32> {
        let key = self.existing(&mut client.random);
        if self.calls {
            self.judge_one(&self.call(db, key, What::ReadModifyWrite).await?)?;
            self.modified.count(client.number);
            return Ok(1);
        }
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            let Some(value) = tx.get_for_update(self.table, &key).await? else {
                return Err(rows::corrupt("a key without a value"));
            };
            let counter = self.counter(key, value)?;
            client.value.copy_from_slice(value);
            address(&mut client.value, key, counter + 1);
            tx.put(self.table, &key, &client.value)
        })
        .await?;
        self.modified.count(client.number);
        Ok(runs)
    }
}

/// The key of row `number`: the finalizer of SplitMix64, a bijection.
#[inline]
fn key_of(number: u64) -> [u8; 8] {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()
}

impl Workload for Ycsb {
    type Client = YcsbClient;

    fn name(&self) -> &'static str {
        match self.letter {
            Letter::A => "ycsb-a",
            Letter::B => "ycsb-b",
            Letter::C => "ycsb-c",
            Letter::D => "ycsb-d",
            Letter::E => "ycsb-e",
            Letter::F => "ycsb-f",
        }
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let latest = if self.letter == Letter::D { "latest, " } else { "" };
        let distribution = match self.distribution {
            Distribution::Uniform => format!("{latest}uniform"),
            Distribution::Zipfian(theta) => format!("{latest}zipfian {theta}"),
        };
        vec![
            ("keys", self.keys.to_string()),
            ("keys per transaction", "1".into()),
            ("key bytes", "8".into()),
            ("value bytes", self.value_bytes.to_string()),
            ("distribution", distribution),
            ("transactions", crate::workload::way(self.calls)),
        ]
    }

    fn kinds(&self) -> &'static [&'static str] {
        match self.letter {
            Letter::A | Letter::B => &["read", "update"],
            Letter::C => &["read"],
            Letter::D => &["read", "insert"],
            Letter::E => &["scan", "insert"],
            Letter::F => &["read", "read-modify-write"],
        }
    }

    fn load_parts(&self) -> usize {
        rows::parts(self.keys)
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let filler = self.blank(seed);
        let row = |number| {
            let (key, mut value) = (key_of(number), filler.clone());
            address(&mut value, key, 0);
            (key, value)
        };
        rows::load(db, self.table, rows::part_of(self.keys, part), row, loaded).await
    }

    fn rows(&self) -> u64 {
        self.keys
    }

    fn client(&self, number: usize, seed: u64) -> YcsbClient {
        let random = Random::new(seed).fork(number as u64);
        YcsbClient { number, random, value: self.blank(seed) }
    }

    async fn next<D: Database>(&self, db: &D, client: &mut YcsbClient) -> Result<Done> {
        let (share, first, second) = self.mix();
        let kind = usize::from(client.random.below(100) >= share);
        let runs = match if kind == 0 { first } else { second } {
            Operation::Read => self.read(db, &mut client.random).await?,
            Operation::Update => self.update(db, client).await?,
            Operation::Insert => self.insert(db, client).await?,
            Operation::Scan => self.scan(db, &mut client.random).await?,
            Operation::ReadModifyWrite => self.read_modify_write(db, client).await?,
        };
        Ok(Done { kind, retries: runs - 1, rolled_back: false })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut rows, mut sum, mut corrupt) = (0u64, 0u64, 0u64);
        let numbers = 0..self.next_number.0.load(Ordering::Relaxed);
        rows::for_each_numbered(db, self.table, numbers, key_of, |key, value| {
            rows += 1;
            match key.try_into().map(|key| self.counter(key, value)) {
                Ok(Ok(counter)) => sum = sum.wrapping_add(counter),
                _ => corrupt += 1,
            }
        })
        .await?;
        let expected = self.keys + self.inserted.sum();
        let modified = self.modified.sum();
        Ok(vec![
            Check::equal("ycsb: rows = rows loaded + committed inserts", rows, expected),
            Check::equal("ycsb: values of another key or not whole = 0", corrupt, 0),
            Check::equal("ycsb: sum of counters = committed read-modify-writes", sum, modified),
        ])
    }
}
