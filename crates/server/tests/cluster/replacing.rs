//! Replicas move to other nodes, as an operator asks.

use crate::cluster::Cluster;
use shoal_cluster::manager::ReplacementStage;
use shoal_server::{FromOperator, NodeStatus, OperatorRefusal, Protocol, ToOperator};
use shoal_types::{NodeId, ShardId};

pub const S: ShardId = ShardId(0);

/// Whether a node has a copy of the shard.
pub fn holds(status: &NodeStatus) -> bool {
    status.shards[0].memory_bytes.is_some()
}

impl Cluster {
    /// Adds one to each key of the shard, whose count is this one then.
    pub async fn count(&self, via: NodeId, keys: &[u8], times: i64) {
        let mut client = self.client(times as u64);
        for key in keys {
            let told = client.call(via, S, "count", &[*key]).await.expect("counted");
            assert_eq!(told[..], times.to_le_bytes(), "key {key}");
        }
    }

    /// Has a node take the replica of another one, and returns the last answer.
    pub async fn replace(&self, outgoing: u32, incoming: u32, number: u64) -> ToOperator {
        let (outgoing, incoming) = (NodeId(outgoing), NodeId(incoming));
        let wanted = FromOperator::ReplaceReplica { shard: S, outgoing, incoming, number };
        self.decide(wanted, |told| match told {
            ToOperator::Replacing(stage) => *stage == ReplacementStage::Done,
            told => !matches!(told, ToOperator::NotLeading { .. } | ToOperator::UnderWay(_)),
        })
        .await
    }

    /// Waits until the voters of the shard are these, as a node sees it.
    pub async fn until_voted_by(&self, voters: [u32; 3]) {
        let is_so = |status: &NodeStatus| {
            let mut known = status.shards[0].voters.clone();
            known.sort_unstable();
            known == voters && status.shards[0].empty.is_empty()
        };
        self.until("the voters are others", NodeId(5), is_so).await;
    }
}

/// Two shards on the nodes 0 to 2 and 3 to 5; the managers are with the second one. All replicas of the first move to the nodes
/// of the second: of a follower, of the leader, and of a node that is lost.
async fn a_shard_moves(protocol: Protocol) {
    let mut cluster = Cluster::start_with(2, 2, protocol, |config| {
        config.managers = [3, 4, 5].map(NodeId).to_vec();
    });
    let done = ToOperator::Replacing(ReplacementStage::Done);
    let keys: Vec<u8> = (0..16).collect();
    cluster.count(NodeId(3), &keys, 1).await;
    assert_eq!(cluster.replace(1, 3, 1).await, done);
    cluster.until_voted_by([0, 2, 3]).await;
    assert_eq!(cluster.replace(1, 3, 1).await, done, "it was asked for before");
    // It leads.
    assert_eq!(cluster.replace(0, 4, 2).await, done);
    cluster.until_voted_by([2, 3, 4]).await;
    cluster.until("it holds nothing", NodeId(0), |status| !holds(status)).await;
    cluster.count(NodeId(3), &keys, 2).await;
    cluster.kill(NodeId(2));
    assert_eq!(cluster.replace(2, 5, 3).await, done);
    cluster.until_voted_by([3, 4, 5]).await;
    // None of the first nodes is needed any more.
    cluster.kill(NodeId(0));
    cluster.kill(NodeId(1));
    cluster.count(NodeId(5), &keys, 3).await;
    let refused = cluster.replace(3, 4, 4).await;
    assert!(matches!(refused, ToOperator::Refused(OperatorRefusal::Failed(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_mako_moves() {
    a_shard_moves(Protocol::Mako).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_two_phase_commit_moves() {
    a_shard_moves(Protocol::TwoPhaseCommit).await;
}
