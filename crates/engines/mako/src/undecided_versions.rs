//! Undecided versions (rule M12): those of closed epochs which depend on shards that have not said how these ended there,
//! since they are lost for a while or for good.
//!
//! ```text
//! piece arrives ─► waits for the watermark ─► own shard ends the epoch ─► kept by key ─► decided: applied, or dropped
//!                                                                            │
//!                                                     this node leads: a version, with its stamp, on top of its key
//! ```
//! **Where they are.** Once a shard has ended an epoch itself, each piece of it is committed, rolled back, or waits for
//! other shards only. A follower keeps the versions of such a piece by their keys, in a table that its workers share, and
//! counts the piece as replayed: it holds back no other replay, tombstone or cut of a stream. A leader has them in its
//! store: what it certified it installed itself, and what it inherited the last of its workers to recover installs, in
//! the order of stamps: a transaction that reads one aborts with an error that names the lost shard
//! (`dependencies.rs`); a blind write goes on top. Once the shard has said how the epoch ended, the version is
//! committed or rolled back like any other that a leader has certified.
//!
//! **A committed version that is newer decides for those below:** whether they count or not, they are not the newest. So
//! the table drops them when such a version is applied or copied, and takes none below. Therefore tombstones need not
//! stay for them. A tombstone leaves the index when all workers have replayed what is older, and by then each
//! older piece that is undecided was met: either it was in the table when the tombstone came, or found that in the store.
//! Both happen under the table's lock.
//!
//! **A delta that is committed decides for its base:** the leader that logged it knew the base to be committed. The base may
//! be undecided here, since its stamp names a shard that has not said how its epoch ended. It is applied when the delta is. A copy
//! that comes between the two carries the base whole, and nothing below it.
//!
//! **A delta may come without its base.** A copy up to some clock lacks a row that was deleted later, and before the sender
//! looked for it. The stream behind that clock changes the row, and deletes it in the end. The copy says how far the sender
//! knew each epoch to be durable, and so the deletion is committed here, too, when it comes, also where a change below
//! it is undecided: that is dropped then. A new leader may install what is undecided before its worker has gone by what the copy
//! said: then the deletion is undecided, too, and a delta below it whose base is nowhere is left out. A delta that is
//! committed does not wait for the deletion: it gives way if its base is neither in the store nor in the table once all workers
//! have replayed or kept what is as old as the base.
//!
//! **Copies carry them** beside the rows of their range (`steps/snapshot.rs`), with their stamps: from the table, and from
//! the store, where each version is undecided that is in a decided entry: its clock is not above the shard's end of its
//! epoch. The receiver's table has of the range, up to the cut, what the copy has, and nothing else: what is missing there was
//! decided. What is replayed of such clocks is skipped, as for rows, so what is decided later comes from the table.
//!
//! Locks are taken in this order: a replica's floor, the table, keys in the store.

use super::snapshot_chunk::{SnapshotChunk, UndecidedRow};
use bytes::Bytes;
use shoal_replication::codec::StreamWrite;
use shoal_store::{Change, VersionOrder, WalkPlace};
use shoal_types::{Stamp, StampRef, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key, which is one of its table.
pub(super) type TableKey = (TableId, Bytes);

/// The undecided versions that a node keeps of a shard beside its store, for all of its workers.
#[derive(Debug, Default)]
pub(super) struct UndecidedVersions {
    kept: Mutex<KeptVersions>,
}

/// See [`UndecidedVersions`].
#[derive(Debug, Default)]
pub(super) struct KeptVersions {
    keys: BTreeMap<TableKey, BTreeMap<VersionOrder, UndecidedVersion>>,
}

/// A version, as its stream or a copy has brought it.
#[derive(Debug, Clone)]
pub(super) struct UndecidedVersion {
    pub(super) stamp: Stamp,
    pub(super) change: Change<Bytes>,
}

impl UndecidedVersions {
    /// The versions, for as long as nothing is to become of them.
    pub(super) fn lock(&self) -> MutexGuard<'_, KeptVersions> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many versions are kept.
    pub(super) fn len(&self) -> usize {
        self.lock().keys.values().map(BTreeMap::len).sum()
    }

    /// Committed versions of these keys are in the store: what is older does not matter any more. It asks for them where
    /// anything is kept.
    pub(super) fn supersede<K: Iterator<Item = (VersionOrder, TableId, Bytes)>>(
        &self,
        keys: impl FnOnce() -> K,
    ) {
        let mut kept = self.lock();
        if !kept.keys.is_empty() {
            keys().for_each(|(order, table, key)| kept.supersede(table, &key, order));
        }
    }
}

/// The place of the version with this stamp.
pub(super) fn order(stamp: StampRef<'_>) -> VersionOrder {
    (stamp.epoch, stamp.clock)
}

/// What became of undecided versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decided {
    /// All that was decided was applied or dropped.
    pub(super) is_through: bool,
    /// Something was.
    pub(super) gets_on: bool,
}

/// Applies the versions of a key that are committed, from the newest on that needs no base, and the oldest of these first: one may be the
/// base of another. A leader logs a delta only on a base that it knows to be committed: so it is, even where this node does not
/// know of the shards that it depends on. Drops what is not newer. Says whether all was applied.
fn apply_committed(
    (table, key): &TableKey,
    versions: &mut BTreeMap<VersionOrder, UndecidedVersion>,
    is_committed: impl Fn(&UndecidedVersion) -> bool,
    apply: &mut impl FnMut(&Stamp, &StreamWrite) -> bool,
) -> bool {
    let (mut committed, mut bases) = (Vec::new(), Vec::new());
    for (order, version) in versions.iter().rev() {
        if bases.contains(order) || is_committed(version) {
            committed.push(version.clone());
            match &version.change {
                Change::Delta(delta) => bases.push(delta.base),
                Change::Row(_) | Change::Delete => break,
            }
        }
    }
    committed.into_iter().rev().all(|UndecidedVersion { stamp, change }| {
        let is_applied = apply(&stamp, &StreamWrite { table: *table, key: key.clone(), change });
        if is_applied {
            versions.retain(|other, _| *other > order(stamp.as_ref()));
        }
        is_applied
    })
}

impl KeptVersions {
    /// Adds a version. Where a copy has brought it whole, that stays: its stream has it as a delta, and the copy may have brought no
    /// base, since the sender had applied the version on top of it (seed 538873381).
    pub(super) fn insert(&mut self, key: TableKey, version: UndecidedVersion) {
        let order = order(version.stamp.as_ref());
        let versions = self.keys.entry(key).or_default();
        let is_whole = |found: &UndecidedVersion| !matches!(found.change, Change::Delta(_));
        if is_whole(&version) || !versions.get(&order).is_some_and(is_whole) {
            versions.insert(order, version);
        }
    }

    /// Drops all versions.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Drops what is not newer.
    pub(super) fn supersede(&mut self, table: TableId, key: &Bytes, by: VersionOrder) {
        let key = (table, key.clone());
        if let Some(versions) = self.keys.get_mut(&key) {
            versions.retain(|order, _| *order > by);
            if versions.is_empty() {
                self.keys.remove(&key);
            }
        }
    }

    /// Is this version kept?
    pub(super) fn has(&self, table: TableId, key: &Bytes, order: VersionOrder) -> bool {
        let versions = self.keys.get(&(table, key.clone()));
        versions.is_some_and(|versions| versions.contains_key(&order))
    }

    /// The keys from one place on and before another.
    fn range_mut<'k>(
        &'k mut self,
        from: &WalkPlace,
        until: Option<&'k WalkPlace>,
    ) -> impl Iterator<Item = (&'k TableKey, &'k mut BTreeMap<VersionOrder, UndecidedVersion>)> + use<'k>
    {
        let start = Bound::Included((from.table, Bytes::copy_from_slice(&from.key)));
        let rest = self.keys.range_mut((start, Bound::Unbounded));
        rest.take_while(move |(key, _)| until.is_none_or(|until| until.is_behind(key.0, &key.1)))
    }

    /// Of a range, up to the cut of a copy, only what the copy carries is kept.
    pub(super) fn keep_carried(&mut self, part: &SnapshotChunk) {
        let (from, until) = part.range();
        let carried = part.contents.undecided_orders();
        for ((table, key), versions) in self.range_mut(&from, until.as_ref()) {
            versions.retain(|order, _| {
                order.1 > part.cut || carried.contains(&(*table, &key[..], *order))
            });
        }
        self.keys.retain(|_, versions| !versions.is_empty());
    }

    /// Drops what is `rejected`, and has what is `covered` applied, with its bases. Says whether all of it was, and whether any
    /// was.
    pub(super) fn decide(
        &mut self,
        rejected: impl Fn(StampRef<'_>) -> bool,
        covered: impl Fn(StampRef<'_>) -> bool,
        mut apply: impl FnMut(&Stamp, &StreamWrite) -> bool,
    ) -> Decided {
        let mut decided = Decided { is_through: true, gets_on: false };
        self.keys.retain(|key, versions| {
            versions.retain(|_, version| !rejected(version.stamp.as_ref()));
            let before = versions.len();
            let is_covered = |version: &UndecidedVersion| covered(version.stamp.as_ref());
            decided.is_through &= apply_committed(key, versions, is_covered, &mut apply);
            decided.gets_on |= versions.len() < before;
            !versions.is_empty()
        });
        decided
    }

    /// The version of a key at this place is committed, if it is here: it is the base of a delta that is, or that itself. Has it
    /// applied.
    pub(super) fn commit(
        &mut self,
        key: &TableKey,
        place: VersionOrder,
        mut apply: impl FnMut(&Stamp, &StreamWrite) -> bool,
    ) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let is_it = |version: &UndecidedVersion| order(version.stamp.as_ref()) == place;
        apply_committed(key, versions, is_it, &mut apply);
        if versions.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Takes out everything, the versions of a key in order.
    pub(super) fn take_all(
        &mut self,
    ) -> impl Iterator<Item = (TableKey, UndecidedVersion)> + use<> {
        let keys = std::mem::take(&mut self.keys).into_iter();
        keys.flat_map(|(key, versions)| {
            versions.into_values().map(move |version| (key.clone(), version))
        })
    }

    /// The versions of a range, for a copy.
    pub(super) fn rows<'k>(
        &'k mut self,
        from: &WalkPlace,
        until: Option<&'k WalkPlace>,
    ) -> impl Iterator<Item = UndecidedRow> + use<'k> {
        self.range_mut(from, until).flat_map(|((table, key), versions)| {
            versions.values().map(|version| UndecidedRow {
                table: *table,
                key: key.clone(),
                change: version.change.clone(),
                stamp: version.stamp.clone(),
            })
        })
    }
}
