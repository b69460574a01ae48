//! What becomes of undecided versions on a node: kept beside the store, decided, copied (see [`undecided_versions`]).
//!
//! [`undecided_versions`]: super::undecided_versions

use super::piece::Piece;
use super::planted_bugs::MakoPlantedBug;
use super::shared::MakoShared;
use super::snapshot_chunk::{SnapshotChunk, UndecidedRow};
use super::undecided_versions::{
    Decided, KeptVersions, UndecidedVersion, UndecidedVersions, order,
};
use super::watermarks::Watermarks;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay_floor::ReplayFloor;
use shoal_store::{Session, VersionOrder};
use shoal_types::{Clock, Error, Rejected, Result, ShardId, Stamp, StampRef, TableId};
use std::ops::DerefMut;
use std::rc::Rc;

impl MakoShared {
    /// What this node keeps of `shard` beside its store.
    pub(super) fn undecided(&self, shard: ShardId) -> &UndecidedVersions {
        let at = self.replicas.iter().position(|replica| replica.shard == shard);
        &self.undecided[at.expect("a shard that is held")]
    }

    /// Keeps the versions of a piece that is undecided, but for those that do not matter.
    pub(super) fn keep(&self, shard: ShardId, sessions: &Rc<SessionPool>, piece: &Piece) {
        let Piece { stamp, writes } = piece;
        // Its own shard may have ended the epoch before it, which another worker of the node has just learned.
        if self.epochs.rejects(shard, stamp.as_ref()) {
            return;
        }
        let session = sessions.take();
        let mut session =
            session.unwrap_or_else(|error| panic!("{shard} cannot be followed: {error}"));
        let floor = self.replica(shard).expect("held").floor();
        let mut kept = self.undecided(shard).lock();
        let all = self.setup.options.faults.has(MakoPlantedBug::InstallUndecidedAbove);
        for StreamWrite { table, key, change } in writes.shared() {
            let mut superseded = || {
                let than = order(stamp.as_ref());
                let found = self.is_superseded(shard, &session.begin(), table, &key, than);
                found.unwrap_or_else(|error| panic!("{shard} cannot be followed: {error}"))
            };
            // Of such keys and clocks a copy has brought what is undecided.
            if !floor.has(table, &key, stamp.clock) && (all || !superseded()) {
                kept.insert((table, key), UndecidedVersion { stamp: stamp.clone(), change });
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
        table: TableId,
        key: &[u8],
        than: VersionOrder,
    ) -> Result<bool> {
        let newer = |stamp: StampRef<'_>| order(stamp) > than && self.epochs.covers(shard, stamp);
        match transaction.get_where(table, key, newer) {
            // What is newer is that it is gone.
            Err(Error::Rejected(Rejected::TableDropped { .. })) => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    /// Applies what is kept of `shard` and committed by now, and drops what is rolled back.
    pub(super) fn decide(
        &self,
        shard: ShardId,
        watermarks: &Watermarks,
        apply: impl FnMut(&Stamp, &StreamWrite) -> bool,
    ) -> Decided {
        let _floor = self.replica(shard).expect("held").floor(); // No copy is taken meanwhile.
        let mut kept = self.undecided(shard).lock();
        let rejected = |stamp: StampRef<'_>| watermarks.rejects(shard, stamp);
        kept.decide(rejected, |stamp| watermarks.covers(shard, stamp), apply)
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
        floor: &ReplayFloor,
        here: Clock,
        kept: &mut KeptVersions,
    ) -> Result<()> {
        kept.keep_carried(part);
        for UndecidedRow { table, key, change, stamp } in &part.contents.undecided {
            // The node's own streams, or a copy before, have brought it, and it was kept or did not matter.
            let is_known = stamp.clock <= here || floor.has(*table, key, stamp.clock);
            let transaction = session.begin();
            // Could it be written?
            transaction.replicate(*table, key, Some(change.borrowed().content()))?;
            let than = order(stamp.as_ref());
            if !is_known && !self.is_superseded(part.shard, &transaction, *table, key, than)? {
                let version = UndecidedVersion { stamp: stamp.clone(), change: change.clone() };
                kept.insert((*table, key.clone()), version);
            }
        }
        Ok(())
    }
}
