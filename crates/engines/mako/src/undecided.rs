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
//! **Copies carry them** beside the rows of their range (`snapshot.rs`), with their stamps: from the table, and from
//! the store, where each version is undecided that is in a decided entry: its clock is not above the shard's end of its
//! epoch. The receiver's table has of the range, up to the cut, what the copy has, and nothing else: what is missing there was
//! decided. What is replayed of such clocks is skipped, as for rows, so what is decided later comes from the table.
//!
//! Locks are taken in this order: a replica's floor, the table, keys in the store.

use super::piece::Piece;
use super::shared::MakoShared;
use super::snapshot_chunk::{SnapshotChunk, UndecidedRow};
use super::{Mako, MakoEffects};
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use bytes::Bytes;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::replication::codec::StreamWrite;
use shoal_engine::replication::replay_floor::ReplayFloor;
use shoal_store::{Session, WalkPlace};
use shoal_types::{Clock, Epoch, Error, Rejected, Result, ShardId, Stamp, StampRef, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, DerefMut};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Other workers hold locks for as long as a piece takes to be replayed.
const TRIES: u32 = 1_000_000;

/// The place of a version among those of its key.
pub(super) type VersionOrder = (Epoch, Clock);

/// A key and its table.
type TableKey = (TableId, Bytes);

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

/// A version; no value is a tombstone.
#[derive(Debug, Clone)]
struct UndecidedVersion {
    stamp: Stamp,
    value: Option<Bytes>,
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

    /// A committed version of these keys is in the store: what is older does not matter any more.
    pub(super) fn supersede<'w>(
        &self,
        stamp: &Stamp,
        keys: impl Iterator<Item = (TableId, &'w Bytes)>,
    ) {
        let mut kept = self.lock();
        if !kept.keys.is_empty() {
            keys.for_each(|(table, key)| kept.supersede(table, key, order(stamp.as_ref())));
        }
    }
}

fn order(stamp: StampRef<'_>) -> VersionOrder {
    (stamp.epoch, stamp.clock)
}

impl KeptVersions {
    fn insert(&mut self, key: TableKey, version: UndecidedVersion) {
        let order = order(version.stamp.as_ref());
        self.keys.entry(key).or_default().insert(order, version);
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
                value: version.value.clone(),
                stamp: version.stamp.clone(),
            })
        })
    }
}

impl MakoShared {
    /// What this node keeps of `shard` beside its store.
    pub(super) fn undecided(&self, shard: ShardId) -> &UndecidedVersions {
        let at = self.replicas.iter().position(|replica| replica.shard == shard);
        &self.undecided[at.expect("a shard that is held")]
    }

    /// Keeps the versions of a piece that is undecided, but for those that do not matter.
    pub(super) fn keep(&self, shard: ShardId, sessions: &Rc<SessionPool>, piece: &Piece) {
        let Piece { stamp, writes } = piece;
        // Its own shard may have ended the epoch before it, which another worker of the node has just heard.
        if self.epochs.rejects(shard, stamp.as_ref()) {
            return;
        }
        let session = sessions.take();
        let mut session =
            session.unwrap_or_else(|error| panic!("{shard} cannot be followed: {error}"));
        let floor = self.replica(shard).expect("held").floor();
        let mut kept = self.undecided(shard).lock();
        let all = self.setup.options.faults.has(MakoPlantedBug::InstallUndecidedAbove);
        for StreamWrite { table, key, value } in writes {
            let mut superseded = || {
                let key = (*table, &key[..]);
                let found = self.is_superseded(shard, &session.begin(), key, order(stamp.as_ref()));
                found.unwrap_or_else(|error| panic!("{shard} cannot be followed: {error}"))
            };
            // Of such keys and clocks a copy has brought what is undecided.
            if !floor.has(*table, key, stamp.clock) && (all || !superseded()) {
                let version = UndecidedVersion { stamp: stamp.clone(), value: value.clone() };
                kept.insert((*table, key.clone()), version);
            }
        }
    }

    /// Has the store a committed version that is newer?
    ///
    /// # Errors
    /// Where this can be no key.
    fn is_superseded<S: DerefMut<Target = Session>>(
        &self,
        shard: ShardId,
        transaction: &shoal_store::Transaction<S>,
        (table, key): (TableId, &[u8]),
        than: VersionOrder,
    ) -> Result<bool> {
        let newer = |stamp: StampRef<'_>| order(stamp) > than && self.epochs.covers(shard, stamp);
        match transaction.get_where(table, key, newer) {
            // What is newer is that it is gone.
            Err(Error::Rejected(Rejected::TableDropped { .. })) => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    /// Applies what is kept of `shard` and committed by now, and drops what is rolled back. Says whether it came through.
    pub(super) fn decide(
        &self,
        shard: ShardId,
        watermarks: &Watermarks,
        mut apply: impl FnMut(&Stamp, &StreamWrite) -> bool,
    ) -> bool {
        let _floor = self.replica(shard).expect("held").floor(); // No copy is taken meanwhile.
        let mut kept = self.undecided(shard).lock();
        let mut is_through = true;
        kept.keys.retain(|(table, key), versions| {
            versions.retain(|_, version| !watermarks.rejects(shard, version.stamp.as_ref()));
            let covered =
                |version: &&UndecidedVersion| watermarks.covers(shard, version.stamp.as_ref());
            if let Some(version) = versions.values().rev().find(covered).cloned() {
                let UndecidedVersion { stamp, value } = version;
                let write = StreamWrite { table: *table, key: key.clone(), value };
                match apply(&stamp, &write) {
                    true => versions.retain(|other, _| *other > order(stamp.as_ref())),
                    false => is_through = false,
                }
            }
            !versions.is_empty()
        });
        is_through
    }

    /// Takes what a chunk of a copy has of undecided versions: of the part's range, up to its cut, nothing else is. To be
    /// called when its rows are taken. `here` is up to where the node's own streams are replayed.
    ///
    /// # Errors
    /// Where the part has what can be no version.
    pub(super) fn take_undecided(
        &self,
        part: &SnapshotChunk,
        session: &mut Session,
        (floor, here): (&ReplayFloor, Clock),
        kept: &mut KeptVersions,
    ) -> Result<()> {
        let (from, until) = part.range();
        let carried = part.undecided_orders();
        for ((table, key), versions) in kept.range_mut(&from, until.as_ref()) {
            versions.retain(|order, _| {
                order.1 > part.cut || carried.contains(&(*table, &key[..], *order))
            });
        }
        kept.keys.retain(|_, versions| !versions.is_empty());
        for UndecidedRow { table, key, value, stamp } in &part.undecided {
            // The node's own streams, or a copy before, have brought it, and it was kept or did not matter.
            let is_known = stamp.clock <= here || floor.has(*table, key, stamp.clock);
            let transaction = session.begin();
            transaction.replicate(*table, key, value.as_deref())?; // Could it be written?
            let than = order(stamp.as_ref());
            if !is_known && !self.is_superseded(part.shard, &transaction, (*table, key), than)? {
                let version = UndecidedVersion { stamp: stamp.clone(), value: value.clone() };
                kept.insert((*table, key.clone()), version);
            }
        }
        Ok(())
    }
}

/// The places of undecided versions in a part.
pub(super) type ChunkOrders<'p> = BTreeSet<(TableId, &'p [u8], VersionOrder)>;

impl Mako {
    /// Decides what can be of what this node keeps.
    pub(super) fn decide_undecided(&mut self, effects: &mut MakoEffects) {
        self.replay(|replays, target| replays.decide(target, &mut effects.observations));
    }

    /// This worker has replayed what is covered of the shard at this place, and the shard has ended all epochs before the
    /// leadership: keeps what is undecided for the last worker.
    pub(super) fn keep_undecided(&mut self, at: usize) {
        let since = self.leader_shards[at].led_since().expect("it leads");
        self.follower_replays.keep_before(at, since, &self.shared);
    }

    /// All workers have: installs it as versions.
    ///
    /// Versions of a key stand in the order of their stamps, and replay takes what is in the store for committed. So all
    /// workers replay what is covered first, and then the last of them installs what is not. From then on the store has
    /// it, and the table nothing: a leader does not see there what comes on top.
    pub(super) fn install_undecided(&self, at: usize, effects: &mut MakoEffects) {
        let (shard, watermarks) = (self.leader_shards[at].lead.shard, self.watermarks.borrow());
        let sessions = &self.runtime.worker_context.own[at].sessions;
        let committed = |stamp: StampRef<'_>| watermarks.covers(shard, stamp);
        let above = self.options().faults.has(MakoPlantedBug::InstallUndecidedAbove);
        let mut kept = self.shared.undecided(shard).lock();
        for ((table, key), versions) in std::mem::take(&mut kept.keys) {
            // How an epoch ended may be known by now. Passes that roll it back are over then, and would not meet a version
            // that is installed behind them; of other epochs this worker begins a pass when it hears of the end.
            let versions = versions.into_values();
            let versions =
                versions.filter(|version| !watermarks.rejects(shard, version.stamp.as_ref()));
            for UndecidedVersion { stamp, value } in versions {
                let write = StreamWrite { table, key: key.clone(), value };
                let tried = (0..TRIES).find_map(|_| {
                    let installed = install(sessions, &stamp, &write, &committed, above);
                    installed.inspect_err(|_| std::hint::spin_loop()).ok()
                });
                let installed = tried.unwrap_or_else(|| panic!("{shard} cannot be recovered"));
                if installed {
                    let key = write.key.to_vec();
                    effects.observe(|| MakoObservation::Inherited { shard, stamp, table, key });
                }
            }
        }
    }
}

/// Puts a version on top of its key's, unless there is one as new; or all the same, where that is planted. Says whether it
/// did.
///
/// # Errors
/// Where another worker changes the key at the same time.
fn install(
    sessions: &Rc<SessionPool>,
    stamp: &Stamp,
    write: &StreamWrite,
    committed: &dyn Fn(StampRef<'_>) -> bool,
    above: bool,
) -> Result<bool> {
    let transaction = shoal_store::Transaction::on(sessions.take()?);
    match transaction.get(write.table, &write.key) {
        Err(Error::Rejected(Rejected::TableDropped { .. })) => return Ok(false),
        // No row of the table has come here before.
        Err(Error::Rejected(Rejected::UnknownTable { .. })) => {}
        read => read.map(drop)?,
    }
    let mut newest = None;
    transaction
        .versions_read(0, usize::MAX, |version| newest = newest.max(Some(order(version.stamp))));
    if newest >= Some(order(stamp.as_ref())) && !above {
        return Ok(false);
    }
    transaction.replicate(write.table, &write.key, write.value.as_deref())?;
    let locked = transaction.lock()?;
    locked.validate()?;
    locked.install(stamp.as_ref(), committed);
    Ok(true)
}
