//! The micro-benchmark of the Tiga paper (SOSP'25, §5.1): each transaction increments three numbers, on three different
//! shards. On each shard keys are drawn alike, uniformly or by Zipf's law; the more skewed, the more transactions conflict.
//!
//! ```text
//!  keys:   0 … n-1 of shard 0 | n … 2n-1 of shard 1 | 2n … 3n-1 of shard 2      n keys a shard
//!  client of shard 1:           first, the home     | second or third, as drawn
//! ```
//! Where there are fewer than three shards, increments go round them, and one key may come twice.
//!
//! A key is its number as four big-endian bytes. A value is a little-endian `u64` that starts at 0, which gives the check:
//!
//! Invariant: the sum of all values is three times the transactions committed.

use crate::micro::{Touched, key, number};
use crate::placed::{Division, Placed, ranges};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload, way};
use crate::ycsb::Distribution;
use crate::zipf::{Scrambled, Zipf};
use shoal_types::{Database, Random, Result, ShardId, TableId};

/// The increments of one transaction.
pub const KEYS_INCREMENTED: usize = 3;

/// The name under which a transaction is registered, as the procedure [`Touch`](crate::micro::Touch) of three keys.
pub const INCREMENT: &str = "increments.increment";

const KINDS: [&str; 1] = ["increment"];

/// The parameters and the table of the benchmark.
#[derive(Debug)]
pub struct Increments {
    table: TableId,
    shards: u32,
    keys_of_shard: u32,
    distribution: Distribution,
    /// The numbers of the keys within a shard, where they are drawn by Zipf's law.
    ranks: Option<Scrambled>,
    /// Transactions are calls of [`INCREMENT`].
    calls: bool,
    committed: Tally,
}

/// One client, with the shard of its first increments.
#[derive(Debug)]
pub struct IncrementsClient {
    number: usize,
    home: u32,
    random: Random,
}

impl Increments {
    /// The paper's number of keys of each shard.
    pub const KEYS: u32 = 1_000_000;

    /// The least skew of the paper, which most of its experiments have.
    pub const ZIPF_THETA: f64 = 0.5;

    /// So many keys on each of so many shards.
    ///
    /// # Errors
    /// Those of making the table.
    ///
    /// # Panics
    /// If there is no shard or no key, or a number of a key does not fit into four bytes.
    pub fn new<D: Database>(
        db: &D,
        shards: u32,
        keys_of_shard: u32,
        distribution: Distribution,
    ) -> Result<Increments> {
        assert!(shards > 0 && keys_of_shard > 0, "the increments need a key");
        assert!(shards.checked_mul(keys_of_shard).is_some(), "{shards} × {keys_of_shard} keys");
        let ranks = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipfian(theta) => {
                Some(Scrambled::new(Zipf::new(keys_of_shard.into(), theta)))
            }
        };
        let (table, committed) = (db.table("increments")?, Tally::new());
        Ok(Increments {
            table,
            shards,
            keys_of_shard,
            distribution,
            ranks,
            calls: false,
            committed,
        })
    }

    /// The same, with transactions that are calls of [`INCREMENT`]: the database has to know it.
    #[must_use]
    pub fn calling(self) -> Increments {
        Increments { calls: true, ..self }
    }

    /// The shards of a transaction: the client's own, and others in any order.
    fn draw_shards(&self, client: &mut IncrementsClient) -> [u32; KEYS_INCREMENTED] {
        let shards = self.shards;
        let mut other = |count: u32| client.random.below(count.into()) as u32;
        let at = |steps: u32| (client.home + steps) % shards;
        if shards < KEYS_INCREMENTED as u32 {
            return [0, 1, 2].map(at);
        }
        // Steps from the home: two different ones of 1 to shards - 1.
        let second = 1 + other(shards - 1);
        let third = 1 + other(shards - 2);
        [at(0), at(second), at(third + u32::from(third >= second))]
    }

    fn draw(&self, client: &mut IncrementsClient) -> [[u8; 4]; KEYS_INCREMENTED] {
        self.draw_shards(client).map(|shard| {
            let of_shard = match &self.ranks {
                None => client.random.below(self.keys_of_shard.into()),
                Some(ranks) => ranks.draw(&mut client.random),
            };
            key(u64::from(shard) * u64::from(self.keys_of_shard) + of_shard)
        })
    }
}

impl Workload for Increments {
    type Client = IncrementsClient;

    fn name(&self) -> &'static str {
        "increments"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let distribution = match self.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipfian(theta) => format!("zipfian {theta}"),
        };
        vec![
            ("keys on a shard", self.keys_of_shard.to_string()),
            ("keys per transaction", KEYS_INCREMENTED.to_string()),
            ("distribution", distribution),
            ("transactions", way(self.calls)),
        ]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        self.shards as usize * rows::parts(self.keys_of_shard.into())
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let shard = self.part_shard(part, self.shards);
        let first = u64::from(shard.0) * u64::from(self.keys_of_shard);
        let of_shard = rows::part_of(self.keys_of_shard.into(), part / self.shards as usize);
        let numbers = first + of_shard.start..first + of_shard.end;
        rows::load(db, self.table, numbers, |number| (key(number), [0; 8]), loaded).await
    }

    fn rows(&self) -> u64 {
        u64::from(self.shards) * u64::from(self.keys_of_shard)
    }

    fn client(&self, number: usize, seed: u64) -> IncrementsClient {
        let random = Random::new(seed).fork(number as u64);
        IncrementsClient { number, home: self.client_shard(number, self.shards).0, random }
    }

    async fn next<D: Database>(&self, db: &D, client: &mut IncrementsClient) -> Result<Done> {
        let touched = Touched { table: self.table, writes: true, keys: self.draw(client) };
        let done = touched.run(db, self.calls.then_some(INCREMENT)).await?;
        self.committed.count(client.number);
        Ok(Done { kind: 0, ..done })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut rows, mut sum) = (0, 0);
        rows::for_each_numbered(db, self.table, 0..self.rows(), key, |_, value| {
            rows += 1;
            // What is no number makes the sum wrong.
            sum += number(Some(value)).unwrap_or_default();
        })
        .await?;
        let expected = self.committed.sum() * KEYS_INCREMENTED as u64;
        Ok(vec![
            Check::equal("increments: rows = keys", rows, self.rows()),
            Check::equal("increments: sum of values = 3 × committed", sum, expected),
        ])
    }
}

impl Placed for Increments {
    fn division(&self, _table: &str, shards: u32) -> Division {
        ranges(shards, |shard| key(u64::from(shard) * u64::from(self.keys_of_shard)).to_vec())
    }

    fn part_shard(&self, part: usize, shards: u32) -> ShardId {
        ShardId((part % shards as usize) as u32)
    }

    fn client_shard(&self, number: usize, shards: u32) -> ShardId {
        ShardId((number % shards as usize) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use std::collections::BTreeSet;

    const SHARDS: u32 = 5;

    /// The shards that transactions of one client go to.
    fn drawn(shards: u32, keys: u32) -> Vec<[u32; KEYS_INCREMENTED]> {
        let distribution = Distribution::Zipfian(Increments::ZIPF_THETA);
        let increments = Increments::new(&Model::new(), shards, keys, distribution).unwrap();
        let mut client = increments.client(3, 1);
        let shard = |key: [u8; 4]| u32::from_be_bytes(key) / keys;
        (0..1000).map(|_| increments.draw(&mut client).map(shard)).collect()
    }

    #[test]
    fn a_transaction_goes_to_three_shards_the_first_of_which_is_the_home_of_the_client() {
        let drawn = drawn(SHARDS, 10);
        for shards in &drawn {
            assert_eq!(shards[0], 3);
            assert_eq!(BTreeSet::from(*shards).len(), KEYS_INCREMENTED, "{shards:?}");
        }
        let others: BTreeSet<_> = drawn.iter().map(|shards| [shards[1], shards[2]]).collect();
        assert_eq!(others.len(), 12, "any two of the other four, in any order");
    }

    #[test]
    fn increments_go_round_where_there_are_fewer_shards() {
        assert!(drawn(1, 10).iter().all(|shards| *shards == [0; 3]));
        assert!(drawn(2, 10).iter().all(|shards| *shards == [1, 0, 1]));
    }
}
