//! Nodes are added to a cluster that serves, and removed from it.

use crate::cluster::{Cluster, until_so};
use crate::replacing::holds;
use shoal_cluster::manager::ReplacementStage;
use shoal_net::CloseReason;
use shoal_server::{
    FromOperator, NodeStatus, OperatorRefusal, Protocol, RecoveryStage, ToOperator,
};
use shoal_types::NodeId;

const DONE: ToOperator = ToOperator::Replacing(ReplacementStage::Done);

/// Two shards on the nodes 0 to 2 and 3 to 5; the managers are with the second one. A node is added, and takes the replica of
/// the node that leads the first one, which is removed.
async fn a_cluster_changes_its_nodes(protocol: Protocol) {
    let mut cluster = Cluster::start_with(2, 2, protocol, |config| {
        config.managers = [3, 4, 5].map(NodeId).to_vec();
    });
    let keys: Vec<u8> = (0..16).collect();
    cluster.count(NodeId(3), &keys, 1).await;
    let added = cluster.add_node("more", 1).await;
    cluster.until("it joins", added, |status| status.admitted).await;
    // It coordinates.
    cluster.count(added, &keys, 2).await;
    assert_eq!(cluster.replace(0, added.0, 2).await, DONE);
    cluster.until_voted_by([1, 2, added.0]).await;
    cluster.until("it holds nothing", NodeId(0), |status| !holds(status)).await;

    let refused = cluster.remove_node(NodeId(1), 3).await;
    let failed =
        |told: &ToOperator| matches!(told, ToOperator::Refused(OperatorRefusal::Failed(_)));
    assert!(failed(&refused), "it holds a replica: {refused:?}");
    let hosts = ToOperator::Refused(OperatorRefusal::HostsManager(NodeId(4)));
    assert_eq!(cluster.remove_node(NodeId(4), 4).await, hosts);
    let wanted = FromOperator::RemoveNode { node: NodeId(0), number: 5 };
    let lives = ToOperator::UnderWay(RecoveryStage::Living);
    let is_told = |told: &ToOperator| !matches!(told, ToOperator::NotLeading { .. });
    assert_eq!(cluster.decide(wanted, is_told).await, lives);
    cluster.kill(NodeId(0));
    let removed = ToOperator::NodeRemoved { is_known: true };
    assert_eq!(cluster.remove_node(NodeId(0), 5).await, removed);
    assert_eq!(cluster.remove_node(NodeId(0), 5).await, removed, "it was asked for before");
    cluster.restart(NodeId(0));
    let refusals = || {
        let server = cluster.servers[3].as_ref().expect("it runs");
        server.handle().counters().closes(CloseReason::RemovedNode)
    };
    until_so("its process is refused", || refusals() > 0).await;
    assert!(!cluster.status(NodeId(0)).await.expect("it runs").admitted);
    cluster.kill(NodeId(0));

    // It begins with a file without the node that was added, and takes a copy, perhaps from that.
    cluster.kill(NodeId(2));
    cluster.restart(NodeId(2));
    let is_full = |status: &NodeStatus| status.admitted && status.shards[0].empty.is_empty();
    cluster.until("it has a copy again", NodeId(2), is_full).await;
    cluster.kill(NodeId(1));
    cluster.count(NodeId(5), &keys, 3).await;
    let again = cluster.add_node("another", 6).await;
    assert_eq!(cluster.replace(1, again.0, 7).await, DONE);
    cluster.until_voted_by([2, added.0, again.0]).await;
    cluster.kill(added);
    cluster.count(again, &keys, 4).await;
}

/// A node is added, and takes the manager and the replica of another one, which is removed. Then it is needed for a majority of
/// the managers, whose log it has read from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_node_hosts_a_manager() {
    let mut cluster = Cluster::start(1, 1, Protocol::Mako);
    let keys: Vec<u8> = (0..4).collect();
    cluster.count(NodeId(0), &keys, 1).await;
    let added = cluster.add_node("more", 1).await;
    cluster.until("it joins", added, |status| status.admitted).await;
    assert_eq!(cluster.replace(1, added.0, 2).await, DONE);
    let managers = cluster.replace_manager(NodeId(1), added).await;
    assert_eq!(managers, [0, 2, 3].map(NodeId));
    cluster.until_managed([0, 2, 3]).await;
    let votes = |status: &NodeStatus| status.manager.as_ref().is_some_and(|it| it.votes);
    cluster.until("its manager votes", added, votes).await;
    cluster.kill(NodeId(1));
    let removed = ToOperator::NodeRemoved { is_known: true };
    assert_eq!(cluster.remove_node(NodeId(1), 3).await, removed);
    // It leads the shard, and had a manager from the beginning.
    cluster.kill(NodeId(0));
    cluster.count(added, &keys, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_mako_changes_its_nodes() {
    a_cluster_changes_its_nodes(Protocol::Mako).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_two_phase_commit_changes_its_nodes() {
    a_cluster_changes_its_nodes(Protocol::TwoPhaseCommit).await;
}
