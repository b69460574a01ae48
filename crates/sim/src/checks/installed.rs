//! M2: on one key, the order in which versions are installed and the order of their clocks agree.
//!
//! The versions of every key are kept, without those that were rolled back with their epoch, so that this is
//! also the model of what each shard holds. Order is judged per node: two leaders of one shard do not see
//! each other's installs, but their versions belong to different epochs.

use super::durable::Durable;
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Stamp, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The versions that leaders have installed, by shard, table and key.
#[derive(Debug)]
pub struct Installed {
    shards: Vec<BTreeMap<TableId, Rows>>,
    /// The last version that each node has installed for each key.
    last: BTreeMap<NodeId, BTreeMap<InstalledKey, InstallOrder>>,
    /// Versions of epochs that are not settled.
    open: BTreeMap<Epoch, Vec<(InstalledKey, Stamp)>>,
    /// The newest version of a key that followers applied, and no leader was seen to install.
    unseen: BTreeMap<InstalledKey, InstallOrder>,
    /// Tables that the managers have dropped: nodes drop their rows when they learn of it.
    dropped: BTreeSet<TableId>,
}

/// Orders the versions of one key: epoch first, then clock.
pub(super) type InstallOrder = (Epoch, Clock);

/// A shard, a table of it and a key in that.
type InstalledKey = (ShardId, TableId, Vec<u8>);

/// A table's keys and their versions.
pub type Rows = BTreeMap<Vec<u8>, InstalledVersions>;

/// The versions of a key, the newest last.
#[derive(Debug, Clone, Default)]
pub struct InstalledVersions(Vec<InstalledVersion>);

/// A version of a key in the model.
#[derive(Debug, Clone)]
pub struct InstalledVersion {
    /// The epoch and the clock of the version: its place in the chain of its key.
    pub order: InstallOrder,
    /// Its value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// Whether it is committed cannot be decided any more: a shard on which it depends is lost.
    pub open: bool,
}

/// A version at the moment at which it is installed.
#[derive(Debug, Clone, Copy)]
pub struct InstalledRow<'a> {
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// Its stamp as the shard keeps it.
    pub stamp: &'a Stamp,
    /// The table in which the row was installed.
    pub table: TableId,
    /// The key under which it was installed.
    pub key: &'a [u8],
}

impl InstalledVersions {
    /// The newest version; `None` if all were rolled back.
    pub fn newest(&self) -> Option<&InstalledVersion> {
        self.0.last()
    }

    /// The versions of which one is the newest, newest first: undecided ones, and the newest that is decided.
    fn candidates(&self) -> impl Iterator<Item = &InstalledVersion> {
        let mut over = false;
        let newest_first = self.0.iter().rev();
        newest_first.take_while(move |version| !std::mem::replace(&mut over, !version.open))
    }

    /// Whether a replica may return this value for the key.
    pub fn may_show(&self, value: Option<&[u8]>) -> bool {
        let none_counts = self.candidates().all(|version| version.open);
        let mut candidates = self.candidates();
        candidates.any(|version| version.value.as_deref() == value)
            || (value.is_none() && none_counts)
    }

    /// Whether the leader's store may have this as the key's newest version. A committed tombstone may be
    /// collected.
    pub fn may_have(&self, order: Option<InstallOrder>) -> bool {
        let none_counts = self.candidates().all(|version| version.open);
        let fits = |version: &InstalledVersion| {
            order == Some(version.order) || (order.is_none() && version.value.is_none())
        };
        self.candidates().any(fits) || (order.is_none() && none_counts)
    }

    /// All versions that may be committed, the newest last.
    pub fn all(&self) -> &[InstalledVersion] {
        &self.0
    }

    /// Inserts a version in order.
    fn put(&mut self, version: InstalledVersion) -> Result<(), String> {
        let at = self.0.partition_point(|other| other.order < version.order);
        if let Some(other) = self.0.get(at).filter(|other| other.order == version.order) {
            // A later leader installs what its predecessor had installed and left undecided.
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
            unseen: BTreeMap::new(),
            dropped: BTreeSet::new(),
        }
    }

    /// The model's rows of a table on a shard.
    pub fn rows(&self, shard: ShardId, table: TableId) -> Option<&Rows> {
        self.shards[shard.0 as usize].get(&table)
    }

    /// Whether a leader was seen to install this version, or a newer one.
    pub fn has_seen(&self, shard: ShardId, stamp: &Stamp, table: TableId, key: &[u8]) -> bool {
        let versions = self.rows(shard, table).and_then(|rows| rows.get(key));
        let newest = versions.and_then(InstalledVersions::newest);
        newest.is_some_and(|newest| newest.order >= (stamp.epoch, stamp.clock))
    }

    /// Whether a leader has installed this version, and it holds a value.
    pub fn is_live(&self, shard: ShardId, stamp: &Stamp, table: TableId, key: &[u8]) -> bool {
        let versions = self.rows(shard, table).and_then(|rows| rows.get(key));
        let order = (stamp.epoch, stamp.clock);
        let mut all = versions.into_iter().flat_map(|versions| versions.all());
        all.any(|version| version.order == order && version.value.is_some())
    }

    /// A follower has applied a version of a transaction whose leader stopped before it had installed all of it.
    pub fn follow(&mut self, shard: ShardId, stamp: &Stamp, table: TableId, key: &[u8]) {
        let newest = self.unseen.entry((shard, table, key.to_vec())).or_default();
        *newest = (stamp.epoch, stamp.clock).max(*newest);
    }

    /// Keys of a table whose newest version no leader was seen to install, and the order of that: the model does not know what
    /// replicas have there.
    pub fn unseen(&self, shard: ShardId, table: TableId) -> BTreeMap<&[u8], InstallOrder> {
        let of_table = (shard, table, Vec::new())..;
        let unseen =
            self.unseen.range(of_table).take_while(|(key, _)| (key.0, key.1) == (shard, table));
        let is_newest = |((_, _, key), order): &(&InstalledKey, &InstallOrder)| {
            let versions = self.rows(shard, table).and_then(|rows| rows.get(key));
            versions.and_then(InstalledVersions::newest).is_none_or(|newest| newest.order < **order)
        };
        unseen.filter(is_newest).map(|((_, _, key), order)| (&key[..], *order)).collect()
    }

    /// The managers have dropped a table.
    pub fn drop_table(&mut self, table: TableId) {
        self.dropped.insert(table);
    }

    /// The model's keys of a shard in a range, in order, with their versions; without those of dropped tables.
    pub fn range<'a>(
        &'a self,
        shard: ShardId,
        from: &'a (TableId, Vec<u8>),
        until: Option<&'a (TableId, Vec<u8>)>,
    ) -> impl Iterator<Item = (TableId, &'a [u8], &'a InstalledVersions)> {
        let last = until.map_or(TableId(u32::MAX), |until| until.0);
        let tables = self.shards[shard.0 as usize].range(from.0..=last);
        let tables = tables.filter(|(table, _)| !self.dropped.contains(table));
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

    /// The leader of a shard, on this node, installs a version. The model leaves it out if it is rolled back
    /// already.
    pub fn install(
        &mut self,
        node: NodeId,
        shard: ShardId,
        row: InstalledRow<'_>,
        value: Option<&[u8]>,
        rolled_back: bool,
    ) -> RuleVerdict {
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

    /// An epoch is settled: versions that its FVW does not cover leave the model, and so do those older than
    /// a version that it covers.
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

    /// The epoch ends without the lost shard: versions that depend on that shard leave the model or stay
    /// undecided. Called by [`Checks::end_without`](super::Checks::end_without).
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

    /// A node has crashed: the versions that it had installed are no longer in its store.
    pub fn crashed(&mut self, node: NodeId) {
        self.last.remove(&node);
    }
}
