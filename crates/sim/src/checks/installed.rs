//! M2: on one key, the order in which versions are installed and the order of their clocks agree.
//!
//! The versions of every key are kept, without those that were rolled back with their epoch, so that this
//! is also the model of what each shard holds. Order is judged by what one node installs: two leaders of
//! a shard know nothing of each other, but those of one are of other epochs than those of the other.

use super::durable::Durable;
use shoal_engine::TransactionId;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Stamp, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What the leaders have installed.
#[derive(Debug)]
pub struct Installed {
    shards: Vec<BTreeMap<TableId, Rows>>,
    /// What each node has installed last.
    last: BTreeMap<NodeId, BTreeMap<InstalledKey, InstallOrder>>,
    /// Versions of epochs that are not settled.
    open: BTreeMap<Epoch, Vec<(InstalledKey, Stamp)>>,
}

/// The place of a version among those of its key.
type InstallOrder = (Epoch, Clock);

/// A key, and where it lives.
type InstalledKey = (ShardId, TableId, Vec<u8>);

/// A table's keys and their versions.
pub type Rows = BTreeMap<Vec<u8>, InstalledVersions>;

/// The versions of a key, the newest last.
#[derive(Debug, Clone, Default)]
pub struct InstalledVersions(Vec<InstalledVersion>);

/// A version of a key.
#[derive(Debug, Clone)]
pub struct InstalledVersion {
    /// Its place in the order of the key's versions.
    pub order: InstallOrder,
    /// Its value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Who wrote it.
    pub transaction: TransactionId,
    /// Whether it counts is not known, and will not be: a shard that it depends on is lost.
    pub open: bool,
}

/// A version that is installed.
#[derive(Debug, Clone, Copy)]
pub struct InstalledRow<'a> {
    /// The node that did it.
    pub transaction: TransactionId,
    /// Its stamp as the shard keeps it.
    pub stamp: &'a Stamp,
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
}

impl InstalledVersions {
    /// The newest; `None` if all were rolled back.
    pub fn newest(&self) -> Option<&InstalledVersion> {
        self.0.last()
    }

    /// Those that may be the newest: the newest first, and the last of them counts, if any does.
    fn candidates(&self) -> impl Iterator<Item = &InstalledVersion> {
        let mut over = false;
        let newest_first = self.0.iter().rev();
        newest_first.take_while(move |version| !std::mem::replace(&mut over, !version.open))
    }

    /// Could a replica show this?
    pub fn may_show(&self, value: Option<&[u8]>) -> bool {
        let none_counts = self.candidates().all(|version| version.open);
        let mut candidates = self.candidates();
        candidates.any(|version| version.value.as_deref() == value)
            || (value.is_none() && none_counts)
    }

    /// Could a replica that leads have this as its newest version? A committed tombstone may be gone.
    pub fn may_have(&self, order: Option<InstallOrder>) -> bool {
        let none_counts = self.candidates().all(|version| version.open);
        let fits = |version: &InstalledVersion| {
            order == Some(version.order) || (order.is_none() && version.value.is_none())
        };
        self.candidates().any(fits) || (order.is_none() && none_counts)
    }

    /// All that may still count, the newest last.
    pub fn all(&self) -> &[InstalledVersion] {
        &self.0
    }

    /// Puts a version in its place.
    fn put(&mut self, version: InstalledVersion) -> Result<(), String> {
        let at = self.0.partition_point(|other| other.order < version.order);
        if let Some(other) = self.0.get(at).filter(|other| other.order == version.order) {
            // A later leader installs what its predecessor had installed and left without an outcome.
            return match other.transaction == version.transaction {
                true => Ok(()),
                false => Err(format!("{} installed it, too", other.transaction)),
            };
        }
        self.0.insert(at, version);
        Ok(())
    }
}

impl Installed {
    /// A check that has seen no version yet.
    pub fn new(shards: usize) -> Installed {
        Installed {
            shards: vec![BTreeMap::new(); shards],
            last: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// What a shard holds of a table.
    pub fn rows(&self, shard: ShardId, table: TableId) -> Option<&Rows> {
        self.shards[shard.0 as usize].get(&table)
    }

    /// The keys of a shard from one place on and before another, in order, with their versions.
    pub fn range<'a>(
        &'a self,
        shard: ShardId,
        from: &'a (TableId, Vec<u8>),
        until: Option<&'a (TableId, Vec<u8>)>,
    ) -> impl Iterator<Item = (TableId, &'a [u8], &'a InstalledVersions)> {
        let last = until.map_or(TableId(u32::MAX), |until| until.0);
        let tables = self.shards[shard.0 as usize].range(from.0..=last);
        let before = move |table: TableId, key: &[u8]| {
            until.is_none_or(|(last, end)| table < *last || key < &end[..])
        };
        tables.flat_map(move |(table, rows)| {
            let start = if *table == from.0 { &from.1[..] } else { &[] };
            let rows = rows.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
            let rows = rows.map(|(key, versions)| (*table, &key[..], versions));
            rows.take_while(move |(table, key, _)| before(*table, key))
        })
    }

    /// The leader of a shard, on this node, installs a version. It stays out of the model if it is rolled
    /// back already.
    pub fn install(
        &mut self,
        node: NodeId,
        shard: ShardId,
        row: InstalledRow<'_>,
        value: Option<&[u8]>,
        rolled_back: bool,
    ) -> super::RuleVerdict {
        let order = (row.stamp.epoch, row.stamp.clock);
        let place = (shard, row.table, row.key.to_vec());
        let name = || {
            let (table, key) = (row.table, row.key.escape_ascii());
            format!("{} {} {} of {table} '{key}' on {shard}", row.transaction, order.0, order.1)
        };
        let last = self.last.entry(node).or_default().entry(place.clone()).or_default();
        if order <= *last {
            return Err(format!("{} was installed over {} {}", name(), last.0, last.1));
        }
        *last = order;
        if rolled_back {
            return Ok(());
        }
        let rows = self.shards[shard.0 as usize].entry(row.table).or_default();
        let (value, transaction) = (value.map(<[u8]>::to_vec), row.transaction);
        let version = InstalledVersion { order, value, transaction, open: false };
        let versions = match rows.get_mut(row.key) {
            Some(versions) => versions,
            None => rows.entry(row.key.to_vec()).or_default(),
        };
        versions.put(version).map_err(|what| format!("{}: {what}", name()))?;
        self.open.entry(order.0).or_default().push((place, row.stamp.clone()));
        Ok(())
    }

    /// An epoch is settled: what its FVW does not cover never was, and what is older than that which it
    /// covers is of no account any more.
    pub fn settle(&mut self, epoch: Epoch, durable: &Durable) {
        for ((shard, table, key), stamp) in self.open.remove(&epoch).unwrap_or_default() {
            let rows = self.shards[shard.0 as usize].get_mut(&table);
            let Some(versions) = rows.and_then(|rows| rows.get_mut(&key)) else { continue };
            let order = (stamp.epoch, stamp.clock);
            if durable.is_rolled_back(shard, &stamp) {
                versions.0.retain(|version| version.order != order);
            } else {
                versions.0.retain(|version| version.order >= order || version.order.0 >= epoch);
            }
        }
    }

    /// See [`Checks::end_without`](super::Checks::end_without).
    pub fn end_without(&mut self, lost: ShardId, durable: &Durable) {
        for ((shard, table, key), stamp) in self.open.values().flatten() {
            let rows = self.shards[shard.0 as usize].get_mut(table);
            let Some(versions) = rows.and_then(|rows| rows.get_mut(key)) else { continue };
            let order = (stamp.epoch, stamp.clock);
            if durable.is_rolled_back(*shard, stamp) {
                versions.0.retain(|version| version.order != order);
            } else if durable.is_open(*shard, stamp, lost) {
                let version = versions.0.iter_mut().find(|version| version.order == order);
                version.into_iter().for_each(|version| version.open = true);
            }
        }
    }

    /// A node has crashed, and remembers nothing that it installed.
    pub fn crashed(&mut self, node: NodeId) {
        self.last.remove(&node);
    }
}
