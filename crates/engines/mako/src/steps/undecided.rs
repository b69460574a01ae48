//! Undecided versions: a replica keeps and decides them, and a new leader installs them (rule M12): see
//! [`undecided_versions`](crate::undecided_versions).

use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::undecided_versions::{TableKey, UndecidedVersion, order};
use crate::{Mako, MakoEffects};
use shoal_engine::execution::session_pool::SessionPool;
use shoal_replication::codec::StreamWrite;
use shoal_store::Change;
use shoal_types::{Error, Rejected, Result, Stamp, StampRef};
use std::rc::Rc;

/// Other workers hold locks for as long as a piece takes to be replayed.
const TRIES: u32 = 1_000_000;

impl Mako {
    /// Decides the versions that this node keeps and that can be decided.
    pub(crate) fn decide_undecided(&mut self, effects: &mut MakoEffects) {
        self.replay(|replays, target| replays.decide(target, &mut effects.observations));
    }

    /// This worker has replayed what is covered of the shard at this place, and the shard has ended all epochs before the
    /// leadership: keeps what is undecided for the last worker.
    pub(crate) fn keep_undecided(&mut self, at: usize) {
        let since = self.leader_shards[at].led_since().expect("it leads");
        self.follower_replays.keep_before(at, since, &self.shared);
    }

    /// All workers have replayed what is covered: installs the undecided versions.
    ///
    /// Versions of a key stand in the order of their stamps, and replay takes what is in the store for committed. So all
    /// workers replay what is covered first, and then the last of them installs what is not. From then on the store has
    /// it, and the table nothing: a leader does not see there what comes on top. Returns whether that is done: not if
    /// another worker of the node follows the next leader already, since what that keeps is for a follower.
    ///
    /// # Panics
    /// If a delta has no base, and nothing above it that needs none (M6). After an accepted loss of a majority that may be:
    /// what has replaced the base may be lost, or this node does not learn yet that it is committed.
    pub(crate) fn install_undecided(&self, at: usize, effects: &mut MakoEffects) -> bool {
        let (lead, watermarks) = (&self.leader_shards[at], self.watermarks.borrow());
        let (shard, since) = (lead.lead.shard, lead.led_since().expect("it leads"));
        let replica = self.shared.replica(shard).expect("held");
        let sessions = &self.runtime.worker_context.own[at].sessions;
        let committed = |stamp: StampRef<'_>| watermarks.covers(shard, stamp);
        let above = self.options().faults.has(MakoPlantedBug::InstallUndecidedAbove);
        let mut kept = self.shared.undecided(shard).lock();
        if replica.is_over(since) {
            return false;
        }
        let mut without_base: Option<TableKey> = None;
        let check = |without_base: Option<TableKey>| {
            let base = "M6: the base of a delta is there, or what has replaced it comes";
            let is_there = without_base.is_none() || !self.losses.is_empty();
            assert!(is_there, "{base}: {shard} {without_base:?}");
        };
        for ((table, key), UndecidedVersion { stamp, change }) in kept.take_all() {
            if without_base.as_ref().is_some_and(|before| *before != (table, key.clone())) {
                check(without_base.take());
            }
            // How an epoch ended may be known by now. Passes that roll it back are over then, and would not meet a version
            // that is installed behind them; of other epochs this worker begins a pass when it learns of the end.
            if watermarks.rejects(shard, stamp.as_ref()) {
                continue;
            }
            let write = StreamWrite { table, key, change };
            let tried = (0..TRIES).find_map(|_| {
                let installed = install(sessions, &stamp, &write, &committed, above);
                installed.inspect_err(|_| std::hint::spin_loop()).ok()
            });
            let inherited = tried.unwrap_or_else(|| panic!("{shard} cannot be recovered"));
            if inherited == Inherited::Installed {
                let key = write.key.to_vec();
                effects.observe(|| MakoObservation::Inherited { shard, stamp, table, key });
            }
            without_base =
                (inherited == Inherited::WithoutBase).then_some((write.table, write.key));
        }
        check(without_base);
        true
    }
}

/// What became of an undecided version in the store of a new leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inherited {
    /// It is there.
    Installed,
    /// Something is there that is as new, or the table was dropped.
    NotNewer,
    /// It is a delta, and its base is nowhere.
    WithoutBase,
}

/// Installs a version above those of its key, unless one is as new; with the planted bug in any case.
///
/// # Errors
/// If another worker changes the key at the same time.
fn install(
    sessions: &Rc<SessionPool>,
    stamp: &Stamp,
    write: &StreamWrite,
    committed: &dyn Fn(StampRef<'_>) -> bool,
    above: bool,
) -> Result<Inherited> {
    let transaction = shoal_store::Transaction::on(sessions.take()?);
    match transaction.get(write.table, &write.key) {
        Err(Error::Rejected(Rejected::TableDropped { .. })) => return Ok(Inherited::NotNewer),
        // No row of the table has come here before.
        Err(Error::Rejected(Rejected::UnknownTable { .. })) => {}
        read => drop(read?),
    }
    let mut newest = None;
    transaction
        .versions_read(0, usize::MAX, |version| newest = newest.max(Some(order(version.stamp))));
    if newest >= Some(order(stamp.as_ref())) && !above {
        return Ok(Inherited::NotNewer);
    }
    let mut row;
    let value = match write.change.borrowed() {
        Change::Delete => None,
        Change::Row(value) => Some(value),
        Change::Delta(delta) => {
            // Versions below are installed by now, undecided ones in their order. What stands between the base and the delta was
            // rolled back by the leader that logged it: this one may not know that yet, or have still to remove it.
            let is_base = |of: StampRef<'_>| order(of) == delta.base;
            let base = transaction.get_where(write.table, &write.key, is_base)?;
            let Some(base) = base.and_then(|base| base.value) else {
                return Ok(Inherited::WithoutBase);
            };
            row = base.to_vec();
            delta.apply(&mut row);
            Some(&row[..])
        }
    };
    transaction.replicate(write.table, &write.key, value)?;
    let locked = transaction.lock()?;
    locked.validate()?;
    locked.install(stamp.as_ref(), committed);
    Ok(Inherited::Installed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_store::{Delta, Options, Store};
    use shoal_types::{Clock, Epoch};
    use std::sync::Arc;

    const KEY: &[u8] = b"key";

    /// What is rolled back may still be in the store when a new leader installs what is undecided.
    #[test]
    fn between_a_delta_and_its_base_something_may_be_that_is_rolled_back() {
        let store = Arc::new(Store::new(Options::default()));
        let table = store.table("t").expect("the first table");
        let mut session = store.session().expect("the first session");
        let stamp = |clock| Stamp::local(Epoch(1), Clock(clock));
        let committed = |stamp: StampRef<'_>| stamp.clock <= Clock(3);
        for (clock, value) in [(3, b"old"), (8, b"bad")] {
            let transaction = session.begin();
            transaction.replicate(table, KEY, Some(value)).expect("there is room");
            transaction.lock().expect("no rival").install(stamp(clock).as_ref(), committed);
        }
        let sessions = SessionPool::new(store, usize::MAX);
        let patch = Bytes::from_static(b"\0\0\x03\0new");
        let delta = Delta { base: (Epoch(1), Clock(3)), length: 3, patch };
        let change = Change::Delta(delta);
        let write = StreamWrite { table, key: Bytes::from_static(KEY), change };
        let installed = install(&sessions, &stamp(12), &write, &committed, false);
        assert_eq!(installed, Ok(Inherited::Installed));
        let transaction = session.begin();
        assert_eq!(transaction.get(table, KEY), Ok(Some(&b"new"[..])));
    }

    /// A copy was up to clock 4, and lacks what is deleted at clock 20.
    #[test]
    fn a_delta_whose_base_is_nowhere_gives_way_to_the_deletion() {
        let store = Arc::new(Store::new(Options::default()));
        let table = store.table("t").expect("the first table");
        let sessions = SessionPool::new(store, usize::MAX);
        let delta = |base| {
            let patch = Bytes::from_static(b"\0\0\x03\0new");
            Change::Delta(Delta { base: (Epoch(1), Clock(base)), length: 3, patch })
        };
        let install = |clock, change| {
            let write = StreamWrite { table, key: Bytes::from_static(KEY), change };
            let stamp = Stamp::local(Epoch(1), Clock(clock));
            install(&sessions, &stamp, &write, &|_| false, false)
        };
        assert_eq!(install(9, delta(4)), Ok(Inherited::WithoutBase));
        assert_eq!(install(12, delta(9)), Ok(Inherited::WithoutBase));
        assert_eq!(install(20, Change::Delete), Ok(Inherited::Installed));
        let row = Change::Row(Bytes::from_static(b"old"));
        assert_eq!(install(24, row), Ok(Inherited::Installed));
        assert_eq!(install(28, delta(24)), Ok(Inherited::Installed));
        assert_eq!(install(28, delta(24)), Ok(Inherited::NotNewer));
    }
}
