//! What the workers of a node share: its copies of shards. All of it is atomic.

use super::options::TwoPhaseCommitOptions;
use shoal_engine::engine::Setup;
use shoal_engine::replication::replica::ShardReplica;
use shoal_types::{Epoch, NodeId, ShardId};

/// See the module.
#[derive(Debug)]
pub struct TwoPhaseCommitShared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<TwoPhaseCommitOptions>,
    pub(super) epoch: Epoch,
    pub(super) replicas: Vec<ShardReplica>,
}

impl TwoPhaseCommitShared {
    pub(super) fn new(
        setup: &Setup<TwoPhaseCommitOptions>,
        node: NodeId,
        epoch: Epoch,
    ) -> TwoPhaseCommitShared {
        let replicas = ShardReplica::all(&setup.topology, node, epoch, &setup.options.limits);
        TwoPhaseCommitShared { node, epoch, replicas, setup: setup.clone() }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&ShardReplica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}
