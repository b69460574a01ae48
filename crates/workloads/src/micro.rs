//! The micro-benchmark of the Mako paper (§7, "small-sized transactions"): four keys a
//! transaction, drawn uniformly from a million; half of the transactions read them, half read each
//! and write it back.
//!
//! A key is its number as four big-endian bytes. A value is a little-endian `u64` that starts at 0
//! and grows by one with every write, which gives the check:
//!
//! Invariant: the sum of all values is four times the read-modify-write transactions committed.

use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Random, Result, TableId, Transaction};

/// Keys that one transaction touches; the same key may come twice.
pub(crate) const KEYS_PER_TRANSACTION: usize = 4;

/// The transaction types, by the numbers of the next two.
pub(crate) const KINDS: [&str; 2] = ["read-only", "read-modify-write"];
const READ_ONLY: usize = 0;
const READ_MODIFY_WRITE: usize = 1;

/// The micro-benchmark's parameters and tables.
#[derive(Debug)]
pub struct Micro {
    table: TableId,
    keys: u32,
    committed_writers: Tally,
}

/// One client of [`Micro`].
#[derive(Debug)]
pub struct MicroClient {
    number: usize,
    random: Random,
}

impl Micro {
    /// The paper's number of keys.
    pub const KEYS: u32 = 1_000_000;

    /// The benchmark over `keys` keys of `db`.
    ///
    /// # Errors
    /// Those of making the table.
    ///
    /// # Panics
    /// If `keys` is 0.
    pub fn new<D: Database>(db: &D, keys: u32) -> Result<Micro> {
        assert!(keys > 0, "the micro-benchmark needs a key");
        Ok(Micro { table: db.table("micro")?, keys, committed_writers: Tally::new() })
    }
}

/// The number that a value holds.
#[inline]
pub(crate) fn number(value: Option<&[u8]>) -> Result<u64> {
    match value.and_then(|value| value.try_into().ok()) {
        Some(bytes) => Ok(u64::from_le_bytes(bytes)),
        None => Err(rows::corrupt("a key without a value of 8 bytes")),
    }
}

/// One transaction: reads these keys and, if it `writes`, writes each back, greater by one.
pub(crate) async fn touch<D: Database>(
    db: &D,
    table: TableId,
    keys: &[[u8; 4]; KEYS_PER_TRANSACTION],
    writes: bool,
) -> Result<Done> {
    let mut runs = 0;
    db.transact(async |tx| {
        runs += 1;
        tx.prefetch(&keys.each_ref().map(|key| (table, &key[..])));
        for key in keys {
            if writes {
                let value = number(tx.get_for_update(table, key).await?)?;
                tx.put(table, key, &(value + 1).to_le_bytes())?;
            } else {
                number(tx.get(table, key).await?)?;
            }
        }
        Ok(())
    })
    .await?;
    let kind = if writes { READ_MODIFY_WRITE } else { READ_ONLY };
    Ok(Done { kind, retries: runs - 1, rolled_back: false })
}

impl Workload for Micro {
    type Client = MicroClient;

    fn name(&self) -> &'static str {
        "micro"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("keys", self.keys.to_string()),
            ("keys per transaction", KEYS_PER_TRANSACTION.to_string()),
            ("key bytes", "4".into()),
            ("value bytes", "8".into()),
            ("distribution", "uniform".into()),
            ("mix", "50 % read-only, 50 % read-modify-write".into()),
        ]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        rows::parts(u64::from(self.keys))
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let row = |number: u64| ((number as u32).to_be_bytes(), 0u64.to_le_bytes());
        let numbers = rows::part_of(u64::from(self.keys), part);
        rows::load(db, self.table, numbers, row, loaded).await
    }

    fn rows(&self) -> u64 {
        u64::from(self.keys)
    }

    fn client(&self, number: usize, seed: u64) -> MicroClient {
        MicroClient { number, random: Random::new(seed).fork(number as u64) }
    }

    async fn next<D: Database>(&self, db: &D, client: &mut MicroClient) -> Result<Done> {
        let random = &mut client.random;
        let writes = random.below(2) == 1;
        let keys: [[u8; 4]; KEYS_PER_TRANSACTION] =
            std::array::from_fn(|_| (random.below(u64::from(self.keys)) as u32).to_be_bytes());
        let done = touch(db, self.table, &keys, writes).await?;
        if writes {
            self.committed_writers.count(client.number);
        }
        Ok(done)
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut rows, mut sum, mut misshapen) = (0u64, 0u64, 0u64);
        rows::for_each(db, self.table, |_, value| {
            rows += 1;
            match number(Some(value)) {
                Ok(value) => sum = sum.wrapping_add(value),
                Err(_) => misshapen += 1,
            }
        })
        .await?;
        let expected = self.committed_writers.sum() * KEYS_PER_TRANSACTION as u64;
        Ok(vec![
            Check::equal("micro: rows = keys", rows, u64::from(self.keys)),
            Check::equal("micro: values of another length than 8 bytes = 0", misshapen, 0),
            Check::equal("micro: sum of values = 4 × committed read-modify-writes", sum, expected),
        ])
    }
}
