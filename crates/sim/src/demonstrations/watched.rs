//! A database that records which shards each transaction touches, and charges for operations on a worker's
//! own records.

use crate::cpu;
use bytes::Bytes;
use shoal_cluster::topology::{Home, Homes, Topology};
use shoal_engine::LocalDatabase;
use shoal_types::{Call, Database, Result, Rows, Scan, ShardId, TableId, Time, Transaction};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A set of shards with numbers below 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardSet(u64);

impl ShardSet {
    /// Puts a shard into the set.
    /// # Panics
    /// If its number is 64 or more.
    pub fn add(&mut self, shard: ShardId) {
        assert!(shard.0 < 64, "{shard} is beyond what a demonstration shows");
        self.0 |= 1 << shard.0;
    }

    /// The number of shards in the set.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has this shard.
    pub fn has(self, shard: ShardId) -> bool {
        self.0 >> shard.0 & 1 == 1
    }
}

/// The shards of a transaction's last attempt, and whether it wrote, which decide its class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Touched {
    /// The shards that it read or wrote. A read of a table that every shard has a copy of is served where the
    /// transaction runs, and touches no other shard.
    pub shards: ShardSet,
    /// Whether it wrote anything, on any shard.
    pub wrote: bool,
}

/// A database that records which shards each transaction touches. It belongs to one client, which runs one
/// transaction at a time.
#[derive(Clone)]
pub struct Watched {
    db: LocalDatabase,
    /// The shards that its node leads.
    led: ShardSet,
    topology: Arc<Topology>,
    touched: Rc<Cell<Touched>>,
    time: Rc<Cell<Time>>,
    /// When the transaction's first attempt was admitted.
    began: Rc<Cell<Option<Time>>>,
}

impl Watched {
    /// Watches `db`, which is on a worker of a node that leads the shards `led`, in true time.
    pub(super) fn new(
        db: LocalDatabase,
        led: ShardSet,
        topology: &Arc<Topology>,
        time: Rc<Cell<Time>>,
    ) -> Watched {
        let (touched, began) = (Rc::default(), Rc::default());
        Watched { db, led, topology: Arc::clone(topology), touched, time, began }
    }

    /// When the last transaction was admitted.
    pub(super) fn began(&self) -> Time {
        self.began.get().unwrap_or(self.time.get())
    }

    /// How long the last transaction has taken until now.
    pub(super) fn took(&self) -> Duration {
        self.time.get() - self.began()
    }

    /// What the last attempt of the last transaction touched.
    pub fn touched(&self) -> Touched {
        self.touched.get()
    }

    /// The database that is watched.
    pub fn local(&self) -> &LocalDatabase {
        &self.db
    }

    fn touch(&self, shard: ShardId, operations: usize) {
        let mut touched = self.touched.get();
        touched.shards.add(shard);
        self.touched.set(touched);
        // Other leaders count the operations that they serve for this transaction themselves.
        if self.led.has(shard) {
            cpu::charge(operations as u64);
        }
    }

    fn read(&self, table: TableId, key: &[u8]) {
        match self.topology.home(table, key) {
            Some(Home::One(shard)) => self.touch(shard, 1),
            Some(Home::Everywhere) => cpu::charge(1),
            None => {}
        }
    }

    fn write(&self, table: TableId, key: &[u8]) {
        self.touched.set(Touched { wrote: true, ..self.touched.get() });
        match self.topology.home(table, key) {
            Some(Home::One(shard)) => self.touch(shard, 1),
            Some(Home::Everywhere) => {
                self.topology.shard_ids().for_each(|shard| self.touch(shard, 1));
            }
            None => {}
        }
    }

    fn scanned(&self, table: TableId, scan: &Scan<'_>, rows: usize) {
        match self.topology.homes(table, scan) {
            Some(Homes::One(shard)) => self.touch(shard, rows.max(1)),
            Some(Homes::Ordered(shards) | Homes::Mixed(shards)) => {
                let each = rows.div_ceil(shards.len().max(1)).max(1);
                shards.into_iter().for_each(|shard| self.touch(shard, each));
            }
            Some(Homes::Everywhere) => cpu::charge(rows.max(1) as u64),
            None => {}
        }
    }
}

impl Database for Watched {
    type Transaction<'db> = WatchedTransaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        self.db.table(name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.began.set(None);
        self.db
            .transact(async |tx| {
                self.began.set(self.began.get().or(Some(self.time.get())));
                self.touched.set(Touched::default());
                body(&WatchedTransaction { tx, db: self }).await
            })
            .await
    }

    /// The operations of a procedure are not seen here, and so are not charged.
    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.began.set(Some(self.time.get()));
        self.touched.set(Touched::default());
        self.db.call(call).await
    }
}

/// A transaction that records the shards it touches, for [`Watched`].
pub struct WatchedTransaction<'db> {
    tx: &'db shoal_engine::CoordinatorTransaction<'db>,
    db: &'db Watched,
}

impl Transaction for WatchedTransaction<'_> {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.db.read(table, key);
        self.tx.get(table, key).await
    }

    async fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.db.read(table, key);
        self.tx.get_for_update(table, key).await
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.tx.prefetch(keys);
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        let rows = self.tx.scan(table, scan).await?;
        self.db.scanned(table, &scan, rows.len());
        Ok(rows)
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.write(table, key);
        self.tx.put(table, key, value)
    }

    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.write(table, key);
        self.tx.insert(table, key, value).await
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.db.write(table, key);
        self.tx.delete(table, key)
    }

    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.db.read(table, key);
        self.db.write(table, key);
        self.tx.add(table, key, delta).await
    }
}
