//! What the workers of a node share: its places for copies of shards, and of those that it takes over, which keys are in doubt.

use super::in_doubt_keys::InDoubtKeys;
use super::options::TwoPhaseCommitOptions;
use shoal_engine::engine::Setup;
use shoal_replication::replica::ShardReplica;
use shoal_types::{Epoch, NodeId, ShardId};

/// The epoch of all transactions and versions: their order needs none.
pub(super) const FIRST_EPOCH: Epoch = Epoch(1);

/// Shared by the workers of a node.
#[derive(Debug)]
pub struct TwoPhaseCommitShared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<TwoPhaseCommitOptions>,
    /// The places of all shards.
    pub(super) replicas: Vec<ShardReplica>,
    /// In the order of the replicas.
    pub(super) in_doubt: Vec<InDoubtKeys>,
}

impl TwoPhaseCommitShared {
    pub(super) fn new(
        setup: &Setup<TwoPhaseCommitOptions>,
        node: NodeId,
        epoch: Epoch,
    ) -> TwoPhaseCommitShared {
        let replicas = ShardReplica::all(&setup.topology, node, epoch, &setup.options.limits);
        let workers = setup.topology.workers();
        let in_doubt = replicas.iter().map(|_| InDoubtKeys::new(workers)).collect();
        TwoPhaseCommitShared { node, replicas, in_doubt, setup: setup.clone() }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&ShardReplica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}
