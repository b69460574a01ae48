//! A shard loses its majority for good, and an operator accepts that.

use crate::cluster::{Cluster, counted};
use shoal_cluster::topology::Topology;
use shoal_server::{FromOperator, NodeStatus, OperatorRefusal, Protocol, ToOperator};
use shoal_types::{Aborted, Durability, Error, NodeId, ShardId, Unknown};
use std::sync::Arc;

const S: ShardId = ShardId(0);

fn is_definite(told: &ToOperator) -> bool {
    !matches!(told, ToOperator::NotLeading { .. } | ToOperator::UnderWay(_))
}

/// A majority whose loss was accepted comes back with its disks, and what these have counts for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_that_returns_with_its_disks_does_not_vote() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start_with(2, 1, Protocol::Mako, |config| {
        config.managers = [3, 4, 5].map(NodeId).to_vec();
        let folder = place.path().join(config.node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
        let topology = Topology::clone(&config.topology);
        config.topology = Arc::new(topology.with_durability(Durability::Fsync));
    });
    assert_eq!(counted(&cluster, 1, NodeId(0), S, 7).await, 1);
    let lost = [NodeId(1), NodeId(2)];
    lost.iter().for_each(|node| cluster.kill(*node));
    let is_out = |status: &NodeStatus| status.shards[0].outage.is_some();
    cluster.until("the loss is seen", NodeId(4), is_out).await;
    let accept = FromOperator::AcceptLoss { shard: S, number: 7, at_s: 5 };
    cluster.decide(accept, |told| matches!(told, ToOperator::Lost(_))).await;
    let is_over = |status: &NodeStatus| {
        let loss = status.shards[0].loss.as_ref();
        loss.is_some_and(|loss| loss.is_over) && status.shards[0].outage.is_none()
    };
    cluster.until("the loss is over", NodeId(4), is_over).await;
    assert_eq!(counted(&cluster, 2, NodeId(4), S, 7).await, 2);
    lost.iter().for_each(|node| cluster.restart(*node));
    for node in lost {
        cluster.until("it takes part", node, |status| status.shards[0].voters == [0]).await;
    }
    // They are a majority of the former voters, and the survivor is alone.
    assert_eq!(counted(&cluster, 3, NodeId(1), S, 7).await, 3, "what was acknowledged since stays");
    cluster.kill(NodeId(0));
    cluster.until("they do not go on without it", NodeId(4), is_out).await;
    cluster.restart(NodeId(0));
    assert_eq!(counted(&cluster, 4, NodeId(2), S, 7).await, 4);
}

/// Two shards on the nodes 0 to 2 and 3 to 5; the managers are with the second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_goes_on_with_what_its_survivor_holds() {
    let mut cluster = Cluster::start_with(2, 1, Protocol::Mako, |config| {
        config.managers = [3, 4, 5].map(NodeId).to_vec();
    });
    let sum = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let keys: Vec<u8> = (0..16).collect();
    let mut told = Vec::new();
    for key in &keys {
        let result = cluster.client(1).call(NodeId(0), S, "count", &[*key]).await;
        told.push(result.expect("counted"));
    }
    let old = cluster.open_session(NodeId(0), S).await;
    let refused = |told: ToOperator| match told {
        ToOperator::Refused(OperatorRefusal::Failed(why)) => why,
        told => panic!("{told:?}"),
    };
    let check = FromOperator::CheckLoss { shard: S };
    let why = refused(cluster.decide(check.clone(), is_definite).await);
    assert!(why.contains("there is no loss to accept"), "{why}");

    let lost = [NodeId(1), NodeId(2)];
    // The survivor has all that was acknowledged: nothing is under way.
    let settled = |status: &NodeStatus| {
        let streams = status.streams.iter().filter(|stream| stream.leading);
        streams.flat_map(|stream| &stream.followers).all(|follower| follower.behind == 0)
    };
    cluster.until("its followers have all", NodeId(0), settled).await;
    lost.iter().for_each(|node| cluster.kill(*node));
    lost.iter().for_each(|node| cluster.restart(*node));
    let is_lost = |status: &NodeStatus| {
        status.shards[0].outage.as_deref().is_some_and(|why| why.contains("lost its majority"))
    };
    cluster.until("the loss is seen", NodeId(4), is_lost).await;
    let survivors = cluster.decide(check.clone(), is_definite).await;
    let (aside, silent) = (lost.to_vec(), Vec::new());
    assert_eq!(survivors, ToOperator::MayLose { survivors: vec![NodeId(0)], aside, silent });
    let other = FromOperator::AcceptLoss { shard: ShardId(1), number: 4, at_s: 5 };
    assert!(refused(cluster.decide(other, is_definite).await).contains("no loss to accept"));

    let accept = FromOperator::AcceptLoss { shard: S, number: 7, at_s: 5 };
    let is_over = |status: &NodeStatus| {
        let loss = status.shards[0].loss.as_ref();
        loss.is_some_and(|loss| loss.is_over && loss.aside == [1, 2])
            && status.shards[0].voters == [0]
            && status.shards[0].outage.is_none()
    };
    cluster.decide(accept, |told| matches!(told, ToOperator::Lost(_))).await;
    cluster.until("the loss is over", NodeId(4), is_over).await;
    for (key, before) in keys.iter().zip(&told) {
        let mut client = cluster.client(2);
        let again = loop {
            match client.call(NodeId(4), S, "count", &[*key]).await {
                // It takes part again with the next epoch.
                Err(Error::Aborted(Aborted::ShardOut { .. })) => {}
                again => break again.expect("counted"),
            }
        };
        assert_eq!(sum(&again), sum(before) + 1, "what was acknowledged stays");
    }
    // Whether it had committed was known to the lost majority.
    let asked = cluster.ask_in(old, NodeId(0), "count").await;
    assert!(matches!(asked, Err(Error::Unknown(Unknown::Lost { .. }))), "{asked:?}");
}
