//! What the workers of a node share: stores, clocks, the watermark. All of it is atomic.

use super::options::Options;
use crate::engine::Setup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Store;
use types::{Clock, Epoch, NodeId, ShardId, VectorWatermark, WorkerId};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<Options>,
    pub(super) epoch: Epoch,
    pub(super) replicas: Vec<Replica>,
    pub(super) watermark: SharedWatermark,
}

/// The node's copy of a shard.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) shard: ShardId,
    pub(super) store: Arc<Store>,
    /// This node leads the shard.
    pub(super) led: bool,
    /// Where the node leads: how far each worker's stream is safe and durable. Where it follows: how
    /// far each worker has applied what its stream has.
    progress: Box<[AtomicU64]>,
    /// The greatest clock that some worker has appended: the others have to follow, or they would hold
    /// the shard's watermark back.
    wanted: AtomicU64,
}

impl Shared {
    pub(super) fn new(setup: &Setup<Options>, node: NodeId, epoch: Epoch) -> Shared {
        let topology = &setup.topology;
        let workers = topology.workers() as usize;
        let replicas = topology.shards_of(node).map(|shard| {
            let store = Store::new(store::Options {
                transactions_max: setup.options.limits.sessions_max,
                memory_bytes_max: setup.options.memory_bytes_max,
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
        Shared {
            node,
            epoch,
            replicas: replicas.collect(),
            watermark: SharedWatermark::new(topology.shards() as usize),
            setup: setup.clone(),
        }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}

impl Replica {
    /// Worker `worker` has come to `clock`. Returns how far all have.
    pub(super) fn progress(&self, worker: WorkerId, clock: Clock) -> Clock {
        self.progress[worker.0 as usize].fetch_max(clock.0, Ordering::AcqRel);
        self.reached()
    }

    /// How far all workers have come.
    pub(super) fn reached(&self) -> Clock {
        let progress = self.progress.iter().map(|clock| clock.load(Ordering::Acquire));
        Clock(progress.min().unwrap_or(0))
    }

    /// Every stream of the shard has to become safe up to `clock`. Says whether that is news.
    pub(super) fn want(&self, clock: Clock) -> bool {
        self.wanted.fetch_max(clock.0, Ordering::AcqRel) < clock.0
    }

    /// See [`want`](Replica::want).
    pub(super) fn wanted(&self) -> Clock {
        Clock(self.wanted.load(Ordering::Acquire))
    }
}

/// The node's view of the vector watermark.
#[derive(Debug)]
pub(super) struct SharedWatermark {
    clocks: Box<[AtomicU64]>,
    /// Moves with every change, so that nobody has to look at the clocks for nothing.
    version: AtomicU64,
}

impl SharedWatermark {
    fn new(shards: usize) -> SharedWatermark {
        SharedWatermark {
            clocks: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            version: AtomicU64::new(0),
        }
    }

    /// Raises the watermark of `shard`, and says whether that changed it.
    pub(super) fn raise(&self, shard: ShardId, clock: Clock) -> bool {
        let Some(own) = self.clocks.get(shard.0 as usize) else { return false };
        let raised = own.fetch_max(clock.0, Ordering::AcqRel) < clock.0;
        if raised {
            self.version.fetch_add(1, Ordering::Release);
        }
        raised
    }

    /// Raises every shard's to that of `other`, and says whether that changed any.
    pub(super) fn merge(&self, other: &VectorWatermark) -> bool {
        (0..self.clocks.len() as u32)
            .map(ShardId)
            .fold(false, |changed, shard| self.raise(shard, other.of(shard)) | changed)
    }

    /// Brings a worker's view up to date, which was so at `seen`. Returns the version it has then.
    pub(super) fn refresh(&self, view: &mut VectorWatermark, seen: u64) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        if version != seen {
            for (shard, clock) in (0..).zip(&self.clocks) {
                view.raise(ShardId(shard), Clock(clock.load(Ordering::Acquire)));
            }
        }
        version
    }
}
