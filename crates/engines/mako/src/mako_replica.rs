//! A node's place for a copy of a shard as `mako` needs it: beside the copy itself, what its workers have to know of each other.

use shoal_cluster::topology::Topology;
use shoal_engine::execution::Limits;
use shoal_replication::replica::ShardReplica;
use shoal_types::{Clock, Epoch, NodeId, WorkerId};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A copy of a shard. Shared by the workers of the node, and atomic.
///
/// Invariant: none of its clocks and epochs goes back.
#[derive(Debug)]
pub(super) struct MakoReplica {
    replica: ShardReplica,
    /// Up to which clock the stream of each worker is stable: no replay of it changes the store any more.
    covered: Box<[AtomicU64]>,
    /// The greatest clock that some worker has appended: the others have to follow, or they would hold
    /// the shard back.
    wanted: AtomicU64,
    /// Leaderships of this node that began in this epoch or before are over, as some worker knows. The others
    /// may learn of it later, and their own streams' acknowledgements still come: their progress means what
    /// was followed by then.
    over: AtomicU32,
}

impl MakoReplica {
    /// The places of all shards on `node`, empty: see [`ShardReplica::all`].
    pub(super) fn all(
        topology: &Topology,
        node: NodeId,
        epoch: Epoch,
        limits: &Limits,
    ) -> Vec<MakoReplica> {
        let replicas = ShardReplica::all(topology, node, epoch, limits).into_iter();
        let new = |replica| MakoReplica {
            replica,
            covered: (0..topology.workers()).map(|_| AtomicU64::new(0)).collect(),
            wanted: AtomicU64::new(0),
            over: AtomicU32::new(0),
        };
        replicas.map(new).collect()
    }

    /// Worker `worker` has a stable stream up to `clock`. Returns up to where all have: what has such a
    /// clock, or a lesser one, is in the store for good.
    pub(super) fn cover(&self, worker: WorkerId, clock: Clock) -> Clock {
        self.covered[worker.0 as usize].fetch_max(clock.0, Ordering::AcqRel);
        self.covered()
    }

    /// Up to where the stream of one worker is stable.
    pub(super) fn covered_by(&self, worker: WorkerId) -> Clock {
        Clock(self.covered[worker.0 as usize].load(Ordering::Acquire))
    }

    /// Up to where the streams of all workers are stable.
    pub(super) fn covered(&self) -> Clock {
        let covered = self.covered.iter().map(|clock| clock.load(Ordering::Acquire));
        Clock(covered.min().unwrap_or(0))
    }

    /// A worker does not take part, or no longer, in leads that began in this epoch or before. To be said before it
    /// follows another leader.
    pub(super) fn end_leadership(&self, since: Epoch) {
        self.over.fetch_max(since.0, Ordering::AcqRel);
    }

    /// Does some worker take no part in the lead that began in this epoch? To be asked after its progress was.
    pub(super) fn is_over(&self, since: Epoch) -> bool {
        self.over.load(Ordering::Acquire) >= since.0
    }

    /// Every stream of the shard has to become safe up to `clock`. Says whether that is news.
    pub(super) fn want(&self, clock: Clock) -> bool {
        self.wanted.fetch_max(clock.0, Ordering::AcqRel) < clock.0
    }

    /// Up to which clock every stream of the shard has to become safe.
    pub(super) fn wanted(&self) -> Clock {
        Clock(self.wanted.load(Ordering::Acquire))
    }
}

impl Deref for MakoReplica {
    type Target = ShardReplica;

    fn deref(&self) -> &ShardReplica {
        &self.replica
    }
}
