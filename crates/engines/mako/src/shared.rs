//! What the workers of a node share: replicas, epochs, and what is undecided.

use super::epochs::Epochs;
use super::mako_replica::MakoReplica;
use super::options::MakoOptions;
use super::undecided_versions::UndecidedVersions;
use shoal_engine::engine::Setup;
use shoal_types::{Epoch, NodeId, ShardId};

/// What the workers of a node share: replicas, epochs, and the options.
#[derive(Debug)]
pub struct MakoShared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<MakoOptions>,
    /// The places of all shards.
    pub(super) replicas: Vec<MakoReplica>,
    pub(super) epochs: Epochs,
    /// What is undecided and not in the stores, in the order of the replicas.
    pub(super) undecided: Vec<UndecidedVersions>,
}

impl MakoShared {
    pub(super) fn new(setup: &Setup<MakoOptions>, node: NodeId, epoch: Epoch) -> MakoShared {
        let topology = &setup.topology;
        let replicas = MakoReplica::all(topology, node, epoch, &setup.options.limits);
        MakoShared {
            node,
            undecided: replicas.iter().map(|_| UndecidedVersions::default()).collect(),
            replicas,
            epochs: Epochs::new(epoch, topology.shards() as usize, topology.workers()),
            setup: setup.clone(),
        }
    }

    pub(super) fn replica(&self, shard: ShardId) -> Option<&MakoReplica> {
        self.replicas.iter().find(|replica| replica.shard == shard)
    }
}
