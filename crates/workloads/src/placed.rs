//! Workloads that know which shard each client and each part of their data belongs to: TPC-C by its
//! warehouses, YCSB not at all, and the micro-benchmark with a share of transactions that leave their shard.

use crate::micro::{self, KEYS_PER_TRANSACTION, Touched, number};
use crate::rows;
use crate::tally::Tally;
use crate::tpcc::population::Part;
use crate::tpcc::{TpcC, keys};
use crate::workload::{Check, Done, Workload};
use crate::ycsb::Ycsb;
use shoal_types::{Database, Random, Result, Scan, ShardId, TableId, Transaction};

/// How a table is distributed over shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Each has a copy of all of it.
    Everywhere,
    /// Each has the keys from its own here up to the next shard's. The first shard's is empty.
    Ranges(Vec<Vec<u8>>),
    /// By the hash of the first bytes of a key, so many.
    ByPrefix(usize),
    /// As may be: key by key.
    ByKey,
}

/// How the table of this name is distributed where its workload does not know the shards. Warehouses of TPC-C stay together, and each
/// shard has the items; so do the rows of a subscriber of TATP. Rows of other workloads are by themselves.
pub fn unplaced_division(table: &str) -> Division {
    match table {
        "tpcc.item" => Division::Everywhere,
        // The key of every other table begins with a warehouse.
        _ if table.starts_with("tpcc.") => Division::ByPrefix(size_of::<u16>()),
        // With a subscriber.
        _ if table.starts_with("tatp.") => Division::ByPrefix(size_of::<u32>()),
        _ => Division::ByKey,
    }
}

/// How many bytes of a key of the table of this name name its granule, where that is not left to its division. What one
/// transaction of TPC-C scans is of one district; its stock is the warehouse's.
pub fn granule_bytes(table: &str) -> Option<usize> {
    match table {
        "tpcc.item" => None,
        "tpcc.warehouse" | "tpcc.stock" => Some(size_of::<u16>()),
        _ => table.starts_with("tpcc.").then_some(size_of::<u16>() + size_of::<u8>()),
    }
}

/// The table whose rows move together with those of the table of this name that belong to the same object, if there is another
/// one: the accounts of SmallBank have a row in two tables, and the subscribers of TATP rows in four.
pub fn family(table: &str) -> Option<&'static str> {
    match table {
        "small_bank.checking" => Some("small_bank.savings"),
        "tatp.access" | "tatp.facilities" | "tatp.forwardings" => Some("tatp.subscribers"),
        _ => None,
    }
}

/// A workload whose keys have known shards.
pub trait Placed: Workload + 'static {
    /// How the workload's table of this name is distributed over `shards` shards.
    fn division(&self, table: &str, shards: u32) -> Division;

    /// The shard on whose leader a part of the data is loaded.
    fn part_shard(&self, part: usize, shards: u32) -> ShardId;

    /// The shard on whose leader a client lives.
    fn client_shard(&self, number: usize, shards: u32) -> ShardId;

    /// The worker of that leader, of so many, on which the client lives.
    fn client_worker(&self, number: usize, shards: u32, workers: u32) -> u32 {
        in_turns(number, shards, workers)
    }
}

/// Neighbouring numbers are on different shards, or else on different workers.
pub fn in_turns(number: usize, shards: u32, workers: u32) -> u32 {
    (number / shards as usize % workers as usize) as u32
}

/// Which of so many shards has a warehouse, out of so many. Each has as many, or one more.
fn shard_of_warehouse(warehouse: u16, warehouses: u16, shards: u32) -> ShardId {
    ShardId(u32::from(warehouse - 1) * shards / u32::from(warehouses))
}

impl Placed for TpcC {
    fn division(&self, table: &str, shards: u32) -> Division {
        if table == "tpcc.item" {
            return Division::Everywhere;
        }
        let warehouses = u32::from(self.scale().warehouses);
        assert!(warehouses >= shards, "{warehouses} warehouses are not enough for {shards} shards");
        // The key of every other table begins with a warehouse.
        ranges(shards, |shard| {
            keys::warehouse((shard * warehouses).div_ceil(shards) as u16 + 1).to_vec()
        })
    }

    fn part_shard(&self, part: usize, shards: u32) -> ShardId {
        match Part::of(part) {
            Part::Items => ShardId(0),
            Part::Warehouse(warehouse) | Part::District(warehouse, _) => {
                shard_of_warehouse(warehouse, self.scale().warehouses, shards)
            }
        }
    }

    fn client_shard(&self, number: usize, shards: u32) -> ShardId {
        let warehouses = self.scale().warehouses;
        let warehouse = (number % usize::from(warehouses) + 1) as u16;
        shard_of_warehouse(warehouse, warehouses, shards)
    }
}

impl Placed for Ycsb {
    fn division(&self, _table: &str, _shards: u32) -> Division {
        Division::ByKey
    }

    fn part_shard(&self, part: usize, shards: u32) -> ShardId {
        ShardId((part % shards as usize) as u32)
    }

    fn client_shard(&self, number: usize, shards: u32) -> ShardId {
        ShardId((number % shards as usize) as u32)
    }
}

/// A range for each shard; `first` is the first key of each but the first.
pub(crate) fn ranges(shards: u32, first: impl Fn(u32) -> Vec<u8>) -> Division {
    let range = |shard| if shard == 0 { Vec::new() } else { first(shard) };
    Division::Ranges((0..shards).map(range).collect())
}

/// Rows that one transaction of the check reads.
const PAGE_ROWS: u32 = 500;

/// The micro-benchmark of the Mako paper (§7.1): four keys a transaction, half of the transactions read
/// them, half read each and write it back. Keys are drawn from those of the client's shard, but in the
/// given share of the transactions one of the four is another shard's. [`writing`](PlacedMicro::writing) has
/// all of them write, as in the paper's §7.7.
///
/// Keys are four big-endian bytes, values start at 0 and grow by one with every write.
#[derive(Debug)]
pub struct PlacedMicro {
    table: TableId,
    shards: u32,
    keys_of_shard: u32,
    cross_percent: u32,
    /// The given share is one of the clients: they always leave their shard, each for the same other
    /// one, and all others never do. So a client that waits for a shard is missing nowhere else.
    faithful: bool,
    /// Every transaction writes.
    all_write: bool,
    /// Transactions are calls of [`Touch`](micro::Touch).
    calls: bool,
    committed_writers: Tally,
}

/// One client, with the shard it belongs to.
#[derive(Debug)]
pub struct PlacedMicroClient {
    number: usize,
    shard: u32,
    /// The other shard that it touches, if that is always the same.
    mate: Option<u32>,
    random: Random,
}

impl PlacedMicro {
    /// So many keys on each of so many shards.
    ///
    /// # Errors
    /// Those of making the table.
    pub fn new<D: Database>(
        db: &D,
        shards: u32,
        keys_of_shard: u32,
        cross_percent: u32,
    ) -> Result<PlacedMicro> {
        let table = db.table("micro")?;
        let committed_writers = Tally::new();
        Ok(PlacedMicro {
            table,
            shards,
            keys_of_shard,
            cross_percent,
            faithful: false,
            all_write: false,
            calls: false,
            committed_writers,
        })
    }

    /// The same workload, in which every transaction writes.
    #[must_use]
    pub fn writing(self) -> PlacedMicro {
        PlacedMicro { all_write: true, ..self }
    }

    /// The same, with transactions that are calls of [`Touch`](micro::Touch): the database has to know it.
    #[must_use]
    pub fn calling(self) -> PlacedMicro {
        PlacedMicro { calls: true, ..self }
    }

    /// The same, but that the share is one of the clients, which are faithful: some always leave their
    /// shard, each for the same other one, and all others never do.
    ///
    /// # Errors
    /// Those of making the table.
    pub fn faithful<D: Database>(
        db: &D,
        shards: u32,
        keys_of_shard: u32,
        cross_percent: u32,
    ) -> Result<PlacedMicro> {
        let micro = PlacedMicro::new(db, shards, keys_of_shard, cross_percent)?;
        Ok(PlacedMicro { faithful: true, ..micro })
    }

    /// The shard to which a faithful client goes from its own.
    fn mate(&self, number: usize) -> Option<u32> {
        let (shards, percent) = (self.shards as usize, self.cross_percent as usize);
        let (shard, turn) = (number % shards, number / shards);
        let leavers = turn * percent / 100;
        let leaves = shards > 1 && (turn + 1) * percent / 100 > leavers;
        leaves.then(|| ((shard + 1 + leavers % (shards - 1)) % shards) as u32)
    }

    /// How many keys a shard has, and the sum of their values.
    ///
    /// # Errors
    /// Those of reading them.
    pub async fn sum<D: Database>(&self, db: &D, shard: ShardId) -> Result<(u64, u64)> {
        let (mut rows, mut sum) = (0, 0);
        let all = shard.0 * self.keys_of_shard..(shard.0 + 1) * self.keys_of_shard;
        for page in all.clone().step_by(PAGE_ROWS as usize) {
            let first = page.to_be_bytes();
            let last = all.end.min(page + PAGE_ROWS).to_be_bytes();
            let (found, added) = db
                .transact(async |tx| {
                    let range = Scan::range(first.as_slice()..last.as_slice());
                    let page = tx.scan(self.table, range).await?;
                    let values = page.iter().map(|(_, value)| number(Some(value)));
                    Ok((page.len() as u64, values.sum::<Result<u64>>()?))
                })
                .await?;
            rows += found;
            sum += added;
        }
        Ok((rows, sum))
    }

    /// By how much the sum of all values has grown at least: by every transaction acknowledged as committed.
    pub fn told_sum(&self) -> u64 {
        self.committed_writers.sum() * KEYS_PER_TRANSACTION as u64
    }

    fn draw(&self, client: &mut PlacedMicroClient) -> [[u8; 4]; KEYS_PER_TRANSACTION] {
        let random = &mut client.random;
        let key = |random: &mut Random, shard: u32| {
            shard * self.keys_of_shard + random.below(self.keys_of_shard.into()) as u32
        };
        let mut keys = [0; KEYS_PER_TRANSACTION].map(|_| key(random, client.shard));
        let other = match self.faithful {
            true => client.mate,
            false => {
                let leaves = self.shards > 1 && random.chance(self.cross_percent.into(), 100);
                let other = || random.below(u64::from(self.shards) - 1) as u32;
                leaves.then(other).map(|other| other + u32::from(other >= client.shard))
            }
        };
        if let Some(other) = other {
            keys[random.below(KEYS_PER_TRANSACTION as u64) as usize] = key(random, other);
        }
        keys.map(u32::to_be_bytes)
    }
}

impl Workload for PlacedMicro {
    type Client = PlacedMicroClient;

    fn name(&self) -> &'static str {
        "micro"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let writers = if self.all_write { "all" } else { "half" };
        vec![
            ("keys on a shard", self.keys_of_shard.to_string()),
            ("transactions with a key of another shard", format!("{} %", self.cross_percent)),
            ("transactions that write", writers.to_owned()),
            ("transactions", crate::workload::way(self.calls)),
        ]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &micro::KINDS
    }

    fn load_parts(&self) -> usize {
        self.shards as usize
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let first = part as u32 * self.keys_of_shard;
        let last = first + self.keys_of_shard;
        let row = |key: u64| ((key as u32).to_be_bytes(), [0; 8]);
        rows::load(db, self.table, first.into()..last.into(), row, loaded).await
    }

    fn rows(&self) -> u64 {
        u64::from(self.shards) * u64::from(self.keys_of_shard)
    }

    fn client(&self, number: usize, seed: u64) -> PlacedMicroClient {
        let random = Random::new(seed).fork(number as u64);
        let mate = if self.faithful { self.mate(number) } else { None };
        PlacedMicroClient { number, shard: self.client_shard(number, self.shards).0, mate, random }
    }

    async fn next<D: Database>(&self, db: &D, client: &mut PlacedMicroClient) -> Result<Done> {
        let keys = self.draw(client);
        let writes = self.all_write || client.random.chance(1, 2);
        let touched = Touched { table: self.table, writes, keys };
        let done = touched.run(db, self.calls.then_some(micro::TOUCH)).await?;
        if writes {
            self.committed_writers.count(client.number);
        }
        Ok(done)
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut rows, mut sum) = (0, 0);
        for shard in (0..self.shards).map(ShardId) {
            let (found, added) = self.sum(db, shard).await?;
            rows += found;
            sum += added;
        }
        Ok(vec![
            Check::equal("micro: rows = keys", rows, self.rows()),
            Check::equal(
                "micro: sum of values = 4 × committed read-modify-writes",
                sum,
                self.told_sum(),
            ),
        ])
    }
}

impl Placed for PlacedMicro {
    fn division(&self, _table: &str, shards: u32) -> Division {
        ranges(shards, |shard| (shard * self.keys_of_shard).to_be_bytes().to_vec())
    }

    fn part_shard(&self, part: usize, _shards: u32) -> ShardId {
        ShardId(part as u32)
    }

    fn client_shard(&self, number: usize, shards: u32) -> ShardId {
        ShardId((number % shards as usize) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::tpcc::Scale;

    #[test]
    fn clients_and_parts_of_tpcc_are_where_their_warehouse_is() {
        for (warehouses, shards) in [(1, 1), (3, 3), (4, 3), (7, 3), (12, 5)] {
            let tpcc = TpcC::new(&Model::new(), Scale::small(warehouses)).unwrap();
            let Division::Ranges(first) = tpcc.division("tpcc.stock", shards) else {
                panic!("stock is divided by warehouses")
            };
            let holder = |warehouse: u16| {
                let key = keys::warehouse(warehouse);
                first.iter().rposition(|first| first[..] <= key[..]).unwrap() as u32
            };
            assert!(first.is_sorted() && first.len() == shards as usize);
            for number in 0..usize::from(warehouses) {
                let shard = tpcc.client_shard(number, shards);
                assert_eq!(holder(number as u16 + 1), shard.0, "{warehouses} on {shards}");
            }
            for part in 1..tpcc.load_parts() {
                let (Part::Warehouse(warehouse) | Part::District(warehouse, _)) = Part::of(part)
                else {
                    panic!("part {part}")
                };
                assert_eq!(holder(warehouse), tpcc.part_shard(part, shards).0);
            }
            for shard in 0..shards {
                assert!((1..=warehouses).any(|warehouse| holder(warehouse) == shard));
            }
        }
    }
}
