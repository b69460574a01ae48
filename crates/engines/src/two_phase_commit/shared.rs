//! What the workers of a node share: its copies of shards. All of it is atomic.

use super::options::Options;
use crate::engine::Setup;
use crate::replication::replica::Replica;
use types::{Epoch, NodeId, ShardId};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<Options>,
    pub(super) epoch: Epoch,
    pub(super) replicas: Vec<Replica>,
}

impl Shared {
    pub(super) fn new(setup: &Setup<Options>, node: NodeId, epoch: Epoch) -> Shared {
        let replicas = Replica::all(&setup.topology, node, epoch, &setup.options.limits);
        Shared { node, epoch, replicas, setup: setup.clone() }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}
