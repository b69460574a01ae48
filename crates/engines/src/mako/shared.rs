//! What the workers of a node share: stores, clocks, the watermark. All of it is atomic.

use super::epochs::Epochs;
use super::options::Options;
use super::undecided::Inheritance;
use crate::engine::Setup;
use crate::replication::replica::Replica;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::{Clock, Epoch, NodeId, ShardId, StampRef, VectorWatermark};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<Options>,
    pub(super) replicas: Vec<Replica>,
    pub(super) epochs: Epochs,
    /// What the workers of a new leader leave to the last of them, by the place of the shard.
    pub(super) inheritances: Vec<Inheritance>,
}

impl Shared {
    pub(super) fn new(setup: &Setup<Options>, node: NodeId, epoch: Epoch) -> Shared {
        let topology = &setup.topology;
        let replicas = Replica::all(topology, node, epoch, &setup.options.limits);
        Shared {
            node,
            inheritances: replicas.iter().map(|_| Inheritance::default()).collect(),
            replicas,
            epochs: Epochs::new(epoch, topology.shards() as usize, topology.workers()),
            setup: setup.clone(),
        }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}

/// The node's view of the vector watermark of an epoch.
#[derive(Debug)]
pub(super) struct SharedWatermark {
    clocks: Box<[AtomicU64]>,
    /// How far a shard may ever come, where a stream of it has ended the epoch with something hanging: what
    /// it says to be safe after that is so for later epochs only.
    caps: Box<[AtomicU64]>,
    /// Has a shard ended the epoch, so that it comes no further?
    ended: Box<[AtomicBool]>,
    /// Moves with every change, so that the clocks need not be looked at for nothing.
    version: AtomicU64,
}

impl SharedWatermark {
    pub(super) fn new(shards: usize) -> SharedWatermark {
        SharedWatermark {
            clocks: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            caps: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect(),
            ended: (0..shards).map(|_| AtomicBool::new(false)).collect(),
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

    /// A stream of `shard` ends the epoch here. To be said before the stream says more to be safe.
    pub(super) fn cap(&self, shard: ShardId, clock: Clock) {
        self.caps[shard.0 as usize].fetch_min(clock.0, Ordering::AcqRel);
    }

    /// A stream that this node leads has made `shard` durable so far; that is so for the epoch up to where
    /// it ended.
    pub(super) fn raise_led(&self, shard: ShardId, clock: Clock) -> bool {
        let cap = Clock(self.caps[shard.0 as usize].load(Ordering::Acquire));
        self.raise(shard, clock.min(cap))
    }

    /// `shard` has ended the epoch, and comes no further than it is. Says whether that is news.
    pub(super) fn end(&self, shard: ShardId) -> bool {
        let Some(ended) = self.ended.get(shard.0 as usize) else { return false };
        let news = !ended.swap(true, Ordering::AcqRel);
        if news {
            self.version.fetch_add(1, Ordering::Release);
        }
        news
    }

    /// Has `shard` ended the epoch?
    pub(super) fn has_ended(&self, shard: ShardId) -> bool {
        self.ended.get(shard.0 as usize).is_some_and(|ended| ended.load(Ordering::Acquire))
    }

    /// The shards that have ended the epoch.
    pub(super) fn ended(&self) -> impl Iterator<Item = ShardId> + '_ {
        let ended = (0..).map(ShardId).zip(&self.ended);
        ended.filter(|(_, ended)| ended.load(Ordering::Acquire)).map(|(shard, _)| shard)
    }

    /// How far `shard` is.
    pub(super) fn of(&self, shard: ShardId) -> Clock {
        let own = self.clocks.get(shard.0 as usize);
        own.map_or(Clock::ZERO, |own| Clock(own.load(Ordering::Acquire)))
    }

    /// Raises every shard's to that of `other`, and says whether that changed any.
    pub(super) fn merge(&self, other: &VectorWatermark) -> bool {
        (0..self.clocks.len() as u32)
            .map(ShardId)
            .fold(false, |changed, shard| self.raise(shard, other.of(shard)) | changed)
    }

    /// Does it cover `stamp`, which `own` keeps? See [`VectorWatermark::covers`].
    pub(super) fn covers(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let all = || (0..self.clocks.len() as u32).map(|shard| self.of(ShardId(shard))).min();
        stamp.is_reached(own, |shard| match shard {
            ShardId::EVERY => all().unwrap_or(Clock::ZERO),
            shard => self.of(shard),
        })
    }

    /// Moves with every change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Brings a worker's view up to date.
    pub(super) fn refresh(&self, view: &mut VectorWatermark) {
        for (shard, clock) in (0..).zip(&self.clocks) {
            view.raise(ShardId(shard), Clock(clock.load(Ordering::Acquire)));
        }
    }
}
