//! A node's copy of a shard, and how far each of its workers has come with it.
//!
//! A node has a place for every shard of the cluster, whether or not it has a replica: the configuration gives it
//! replicas, and takes them, while it runs. A place without a replica is empty. One whose replica was taken is not
//! used again by the same process, unless nothing of the shard had come.

use crate::replay_floor::ReplayFloor;
use shoal_cluster::topology::Topology;
use shoal_engine::execution::limits::Limits;
use shoal_store::Store;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, WorkerId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A node's place for a copy of a shard: its store, and how far each worker has applied its log. Shared by the workers
/// of the node, and atomic: a clone is the same copy.
#[derive(Debug, Clone)]
pub struct ShardReplica {
    /// The shard that it is a copy of.
    pub shard: ShardId,
    /// Its data.
    pub store: Arc<Store>,
    /// Where the node leads: how far each worker's stream is safe and durable. Where it follows: how
    /// far each worker has applied what its stream has.
    progress: Arc<[AtomicU64]>,
    /// Up to where tombstones may be removed as far as each worker is concerned, which may be sending copies that include
    /// those beyond.
    kept_from: Arc<[AtomicU64]>,
    /// What a copy from another replica has brought. Workers that replay hold it, and so does the one that copies.
    floor: Arc<RwLock<ReplayFloor>>,
    /// An appointment of this node, how many of its workers have recovered their part under it, and whether what they
    /// left to the last of them is installed.
    recovered: Arc<Mutex<(Ballot, u32, bool)>>,
    /// The workers that have learned that the node has no replica.
    absence: Arc<Mutex<ReplicaAbsence>>,
}

/// The workers of a node that know that the node has no replica of a shard, or not any more.
#[derive(Debug, Default)]
struct ReplicaAbsence {
    workers: BTreeSet<WorkerId>,
    /// Something of the shard had come to one of them.
    had_data: bool,
}

impl ShardReplica {
    /// The places of all shards on `node`, empty: first those of shards that it leads at first, then the others of which it
    /// has a replica at first.
    pub fn all(
        topology: &Topology,
        node: NodeId,
        epoch: Epoch,
        limits: &Limits,
    ) -> Vec<ShardReplica> {
        let workers = topology.workers() as usize;
        let held: BTreeSet<ShardId> = topology.shards_of(node).collect();
        let replicas = topology.shard_ids().map(|shard| {
            let is_held = held.contains(&shard);
            let store = Store::new(shoal_store::Options {
                transactions_max: limits.sessions_max,
                memory_bytes_max: limits.memory_bytes_max,
                memory_bytes_reserved: if is_held { limits.memory_bytes_reserved } else { 0 },
                epoch,
                hash_seed: limits.hash_seed,
                ..shoal_store::Options::default()
            });
            for table in topology.tables().iter().filter(|_| is_held) {
                store.open_table(table.id()).expect("the topology keeps the limits");
            }
            ShardReplica {
                shard,
                store: Arc::new(store),
                progress: (0..workers).map(|_| AtomicU64::new(0)).collect(),
                kept_from: (0..workers).map(|_| AtomicU64::new(u64::MAX)).collect(),
                floor: Arc::default(),
                recovered: Arc::default(),
                absence: Arc::default(),
            }
        });
        let mut replicas: Vec<ShardReplica> = replicas.collect();
        let leads = |shard| held.contains(&shard) && topology.leader(shard) == node;
        replicas.sort_by_key(|it| (!held.contains(&it.shard), !leads(it.shard)));
        replicas
    }

    /// A worker has learned that the node has a replica.
    pub fn give(&self, worker: WorkerId) {
        self.absence().workers.remove(&worker);
    }

    /// A worker has learned that the node has no replica, or not any more, and has done with it; `had_data` says that something
    /// of the shard had come to it. Returns whether all workers have, and something had come to one of them: then what is in
    /// the store can go.
    pub fn take(&self, worker: WorkerId, had_data: bool) -> bool {
        let mut absence = self.absence();
        absence.workers.insert(worker);
        absence.had_data |= had_data || !self.floor().is_empty();
        let all = absence.workers.len() == self.progress.len();
        all && std::mem::take(&mut absence.had_data)
    }

    fn absence(&self) -> MutexGuard<'_, ReplicaAbsence> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Worker `worker` has come to `clock`. Returns how far all have.
    pub fn progress(&self, worker: WorkerId, clock: Clock) -> Clock {
        self.progress[worker.0 as usize].fetch_max(clock.0, Ordering::AcqRel);
        self.reached()
    }

    /// How far all workers have come.
    pub fn reached(&self) -> Clock {
        least(&self.progress)
    }

    /// Tombstones up to here may be removed: nothing older can arrive, and no copy that is being sent has to include them.
    pub fn removable(&self) -> Clock {
        // In this order: see [`ShardReplica::keep_tombstones`].
        let reached = self.reached();
        let kept = self.kept_from.iter().map(|clock| clock.load(Ordering::SeqCst)).min();
        reached.min(Clock(kept.unwrap_or(u64::MAX)))
    }

    /// Worker `worker` is about to send a copy: from now on all tombstones stay, until it calls
    /// [`remove_tombstones`](ShardReplica::remove_tombstones). What another worker removes at this moment is at or below
    /// what [`reached`](ShardReplica::reached) returns afterwards.
    pub fn keep_tombstones(&self, worker: WorkerId) {
        self.kept_from[worker.0 as usize].store(0, Ordering::SeqCst);
    }

    /// Worker `worker` sends copies that include the tombstones beyond `clock`, and none up to there; the greatest clock
    /// where it sends none.
    pub fn remove_tombstones(&self, worker: WorkerId, clock: Clock) {
        self.kept_from[worker.0 as usize].store(clock.0, Ordering::SeqCst);
    }

    /// What a copy has brought, for workers that replay.
    pub fn floor(&self) -> RwLockReadGuard<'_, ReplayFloor> {
        self.floor.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for the worker that copies: none replays meanwhile.
    pub fn floor_mut(&self) -> RwLockWriteGuard<'_, ReplayFloor> {
        self.floor.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more worker has recovered its part under `ballot`. One that has not learned of a later
    /// appointment says it again under that. Says whether it is the last.
    pub fn recover(&self, ballot: Ballot) -> bool {
        let mut recovered = self.recovered();
        if recovered.0 < ballot {
            *recovered = (ballot, 0, false);
        }
        if recovered.0 > ballot {
            return false;
        }
        recovered.1 += 1;
        recovered.1 == self.progress.len() as u32
    }

    /// The last worker has installed what others have left to it under `ballot`.
    pub fn install(&self, ballot: Ballot) {
        let mut recovered = self.recovered();
        if recovered.0 == ballot {
            recovered.2 = true;
        }
    }

    /// Have all workers recovered their part under `ballot`?
    pub fn is_recovered(&self, ballot: Ballot) -> bool {
        *self.recovered() == (ballot, self.progress.len() as u32, true)
    }

    fn recovered(&self) -> MutexGuard<'_, (Ballot, u32, bool)> {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn least(clocks: &[AtomicU64]) -> Clock {
    Clock(clocks.iter().map(|clock| clock.load(Ordering::Acquire)).min().unwrap_or(0))
}
