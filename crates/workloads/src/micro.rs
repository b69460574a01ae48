//! The micro-benchmark of the Mako paper (§7, "small-sized transactions"): four keys a
//! transaction, drawn uniformly from a million; half of the transactions read them, half read each
//! and write it back.
//!
//! A key is its number as four big-endian bytes. A value is a little-endian `u64` that starts at 0
//! and grows by one with every write, which gives the check:
//!
//! Invariant: the sum of all values is four times the read-modify-write transactions committed.

use crate::arguments::decode;
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use bytes::Bytes;
use shoal_types::wire::Coded;
use shoal_types::wire::encode;
use shoal_types::{
    Call, Database, Error, Footprint, Procedure, ProcedureTransaction, Random, Result, TableId,
    Transaction,
};

/// Keys that one transaction touches; the same key may come twice.
pub const KEYS_PER_TRANSACTION: usize = 4;

/// The transaction types, by the numbers of the next two.
pub(crate) const KINDS: [&str; 2] = ["read-only", "read-modify-write"];
const READ_ONLY: usize = 0;
const READ_MODIFY_WRITE: usize = 1;

/// The micro-benchmark's parameters and tables.
#[derive(Debug)]
pub struct Micro {
    table: TableId,
    keys: u32,
    /// Transactions are calls of [`Touch`].
    calls: bool,
    committed_writers: Tally,
}

/// One client, with the random source of its keys.
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
        let (table, committed_writers) = (db.table("micro")?, Tally::new());
        Ok(Micro { table, keys, calls: false, committed_writers })
    }

    /// The same, with transactions that are calls of [`Touch`]: the database has to know it.
    #[must_use]
    pub fn calling(self) -> Micro {
        Micro { calls: true, ..self }
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

/// The name under which [`Touch`] is registered.
pub const TOUCH: &str = "micro.touch";

/// The transaction as a procedure: reads `N` keys and, if it is to, writes each back, greater by one. Returns what it read:
/// for each key a number, or none where another piece has the key.
#[derive(Debug, Clone, Copy)]
pub struct Touch<const N: usize>;

/// One transaction, which is also what [`Touch`] is called with.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Touched<const N: usize> {
    /// The table of the keys.
    #[coded(short)]
    pub table: TableId,
    /// Whether each key that is read is also written.
    pub writes: bool,
    /// The keys that are touched, in this order.
    pub keys: [[u8; 4]; N],
}

impl<const N: usize> Touched<N> {
    /// Reads a key, and writes it back.
    async fn touch<X: Transaction>(&self, tx: &X, key: &[u8; 4]) -> Result<u64> {
        if !self.writes {
            return number(tx.get(self.table, key).await?);
        }
        let value = number(tx.get_for_update(self.table, key).await?)?;
        tx.put(self.table, key, &value.wrapping_add(1).to_le_bytes())?;
        Ok(value)
    }

    /// Runs it on `db`: as a call of the [`Touch`] of this name, or interactively.
    pub(crate) async fn run<D: Database>(&self, db: &D, called: Option<&str>) -> Result<Done> {
        let kind = if self.writes { READ_MODIFY_WRITE } else { READ_ONLY };
        let mut runs = 0;
        if let Some(name) = called {
            runs = 1;
            let arguments = encode(self);
            let call = Call::new(name, &arguments).near(self.table, &self.keys[0]);
            let found: Vec<Option<u64>> = decode(&db.call(&call).await?)?;
            if found.len() != self.keys.len() || found.contains(&None) {
                return Err(Error::reject("a call did not return a number for every key"));
            }
        } else {
            db.transact(async |tx| {
                runs += 1;
                tx.prefetch(&self.keys.each_ref().map(|key| (self.table, &key[..])));
                for key in &self.keys {
                    self.touch(tx, key).await?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(Done { kind, retries: runs - 1, rolled_back: false })
    }
}

impl<const N: usize> Procedure for Touch<N> {
    async fn run(&self, tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
        let asked: Touched<N> = decode(arguments)?;
        let is_covered = asked.keys.map(|key| tx.covers(asked.table, &key));
        let covered = asked.keys.iter().zip(is_covered).filter(|(_, is_covered)| *is_covered);
        let covered: Vec<_> = covered.map(|(key, _)| (asked.table, &key[..])).collect();
        tx.prefetch(&covered);
        let mut found = Vec::with_capacity(N);
        for (key, is_covered) in asked.keys.iter().zip(is_covered) {
            found.push(match is_covered {
                true => Some(asked.touch(tx, key).await?),
                false => None,
            });
        }
        Ok(encode(&found))
    }

    fn footprint(&self, arguments: &[u8]) -> Result<Footprint> {
        let asked: Touched<N> = decode(arguments)?;
        let mut footprint = Footprint::pieces();
        for key in &asked.keys {
            match asked.writes {
                true => footprint.read_write(asked.table, key),
                false => footprint.read(asked.table, key),
            }
        }
        Ok(footprint)
    }

    fn combine(&self, _arguments: &[u8], results: Vec<Bytes>) -> Result<Bytes> {
        let mut found = [None; N].to_vec();
        for result in results {
            let piece: Vec<Option<u64>> = decode(&result)?;
            for (value, of_piece) in found.iter_mut().zip(piece) {
                *value = value.or(of_piece);
            }
        }
        Ok(encode(&found))
    }
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
            ("transactions", crate::workload::way(self.calls)),
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
        let row = |number: u64| (key(number), 0u64.to_le_bytes());
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
        let touched = Touched { table: self.table, writes, keys };
        let done = touched.run(db, self.calls.then_some(TOUCH)).await?;
        if writes {
            self.committed_writers.count(client.number);
        }
        Ok(done)
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut rows, mut sum, mut misshapen) = (0u64, 0u64, 0u64);
        let keys = 0..u64::from(self.keys);
        rows::for_each_numbered(db, self.table, keys, key, |_, value| {
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

/// The key with this number.
pub(crate) fn key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}
