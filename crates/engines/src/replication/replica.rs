//! A node's copy of a shard, and how far each of its workers has come with it.

use consensus::topology::Topology;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Store;
use types::{Clock, Epoch, NodeId, ShardId, WorkerId};

/// See the module. Shared by the workers of the node, and atomic.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) shard: ShardId,
    pub(crate) store: Arc<Store>,
    /// This node leads the shard.
    pub(crate) led: bool,
    /// Where the node leads: how far each worker's stream is safe and durable. Where it follows: how
    /// far each worker has applied what its stream has.
    progress: Box<[AtomicU64]>,
    /// The greatest clock that some worker has appended: the others have to follow, or they would hold
    /// the shard back.
    wanted: AtomicU64,
}

impl Replica {
    /// All copies that `node` has, empty.
    pub(crate) fn all(
        topology: &Topology,
        node: NodeId,
        epoch: Epoch,
        sessions_max: usize,
        memory_bytes_max: usize,
    ) -> Vec<Replica> {
        let workers = topology.workers() as usize;
        let replicas = topology.shards_of(node).map(|shard| {
            let store = Store::new(store::Options {
                transactions_max: sessions_max,
                memory_bytes_max,
                epoch,
                ..store::Options::default()
            });
            for (at, table) in topology.tables().iter().enumerate() {
                let id = store.table(table.name()).expect("the topology keeps the limits");
                assert_eq!(id.0 as usize, at, "a table is numbered by its place in the topology");
            }
            Replica {
                shard,
                store: Arc::new(store),
                led: topology.leader(shard) == node,
                progress: (0..workers).map(|_| AtomicU64::new(0)).collect(),
                wanted: AtomicU64::new(0),
            }
        });
        replicas.collect()
    }

    /// Worker `worker` has come to `clock`. Returns how far all have.
    pub(crate) fn progress(&self, worker: WorkerId, clock: Clock) -> Clock {
        self.progress[worker.0 as usize].fetch_max(clock.0, Ordering::AcqRel);
        self.reached()
    }

    /// How far all workers have come.
    pub(crate) fn reached(&self) -> Clock {
        let progress = self.progress.iter().map(|clock| clock.load(Ordering::Acquire));
        Clock(progress.min().unwrap_or(0))
    }

    /// Every stream of the shard has to become safe up to `clock`. Says whether that is news.
    pub(crate) fn want(&self, clock: Clock) -> bool {
        self.wanted.fetch_max(clock.0, Ordering::AcqRel) < clock.0
    }

    /// See [`want`](Replica::want).
    pub(crate) fn wanted(&self) -> Clock {
        Clock(self.wanted.load(Ordering::Acquire))
    }
}
