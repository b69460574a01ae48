//! A majority of the managers is lost for good, and an operator accepts that.

use crate::cluster::{Cluster, counted, until_so};
use shoal_server::{
    FromOperator, NodeStatus, OperatorRefusal, Protocol, RememberedManagers, ToOperator,
};
use shoal_types::{NodeId, ShardId};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const S: ShardId = ShardId(0);
const T: ShardId = ShardId(1);

fn folder(place: &TempDir, node: NodeId) -> PathBuf {
    place.path().join(node.to_string())
}

/// Two shards of three replicas, on the nodes 0 to 2 and 3 to 5; managers on two of the first and one of the others.
fn start(place: &TempDir) -> Cluster {
    Cluster::start_with(2, 1, Protocol::Mako, |config| {
        config.managers = [0, 3, 4].map(NodeId).to_vec();
        let folder = folder(place, config.node);
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
    })
}

/// Waits until the manager has ended that this node hosted, which has come back. A process of the node that the lost managers
/// had admitted before they knew ends as well: then it begins another one, as its supervisor would have it.
async fn until_ended(cluster: &mut Cluster, node: NodeId) {
    let has_ended =
        |status: &NodeStatus| status.admitted && status.manager.is_none() && status.managers == [4];
    let mut silent = 0;
    for _ in 0..3000 {
        match cluster.status(node).await {
            Some(status) if has_ended(&status) => return,
            Some(_) => silent = 0,
            None if silent < 100 => silent += 1,
            None => {
                cluster.kill(node);
                cluster.restart(node);
                silent = 0;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{node} is {:?}", cluster.status(node).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_survives_goes_on_alone_and_the_others_do_not_come_back() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place);
    let keys: Vec<(ShardId, u8)> = (0..8).map(|key| (ShardId(u32::from(key % 2)), key)).collect();
    let mut before = Vec::new();
    for (shard, key) in &keys {
        before.push(counted(&cluster, 1, NodeId(1), *shard, *key).await);
    }
    let survivor = NodeId(4);
    let check = FromOperator::CheckRecovery;
    let majority = ToOperator::Refused(OperatorRefusal::MajorityLives);
    assert_eq!(cluster.ask(survivor, &check).await, majority);
    let refused = cluster.ask(NodeId(1), &check).await;
    assert!(
        matches!(refused, ToOperator::Refused(OperatorRefusal::NotManager { .. })),
        "{refused:?}"
    );
    let identity = cluster.status_of(survivor).await.cluster;
    let epoch = cluster.status_of(survivor).await.epoch;

    // Both shards keep a majority. What they hold is in memory, on nodes that stay up.
    let lost = [0, 3].map(NodeId);
    lost.iter().for_each(|node| cluster.kill(*node));
    let remembered = loop {
        match cluster.ask(survivor, &check).await {
            ToOperator::MayRecover(remembered) => break remembered,
            told => assert_eq!(told, majority, "it does not know yet"),
        }
    };
    let RememberedManagers { nodes, silent, lost: shards, .. } = remembered;
    assert_eq!((nodes, silent, shards), ([1, 2, 4, 5].map(NodeId).to_vec(), lost.to_vec(), vec![]));
    let wanted = |number, silent: &[NodeId]| {
        let (silent, lost) = (silent.to_vec(), Vec::new());
        FromOperator::RecoverManagers { number, silent, lost }
    };
    let more = OperatorRefusal::LosesMore { silent: vec![lost[1]], lost: vec![] };
    let told = cluster.ask(survivor, &wanted(8, &lost[..1])).await;
    assert_eq!(told, ToOperator::Refused(more), "only one was shown");

    // All managers come back, and the nodes that have pledged take nothing from them.
    lost.iter().for_each(|node| cluster.restart(*node));
    let follows = |status: &NodeStatus| {
        status.manager.as_ref().is_some_and(|manager| manager.leader.is_some())
    };
    cluster.until("the managers have a leader", survivor, follows).await;
    let told = cluster.ask(survivor, &check).await;
    assert!(
        matches!(told, ToOperator::MayRecover(RememberedManagers { pledged: true, .. })),
        "{told:?}"
    );
    lost.iter().for_each(|node| cluster.kill(*node));
    let done = ToOperator::Done { managers: vec![survivor] };
    assert_eq!(cluster.ask(survivor, &wanted(9, &lost)).await, done);
    assert_eq!(cluster.ask(survivor, &wanted(9, &lost)).await, done, "a repeat");

    for ((shard, key), before) in keys.iter().zip(&before) {
        let after = counted(&cluster, 2, NodeId(1), *shard, *key).await;
        assert_eq!(after, before + 1, "what was acknowledged stays");
    }
    let is_new = |status: &NodeStatus| status.epoch > epoch && status.cluster == identity;
    for node in cluster.running() {
        cluster.until("it is of the same cluster", node, is_new).await;
    }

    // They come back with their logs, and are a majority of what they were.
    lost.iter().for_each(|node| cluster.restart(*node));
    for node in lost {
        until_ended(&mut cluster, node).await;
        let log = folder(&place, node).join("manager.redb");
        until_so("its log is set aside", || !log.exists()).await;
    }
    let add = FromOperator::AddManagers { first: NodeId(0), second: NodeId(3) };
    let managers = [0, 3, 4].map(NodeId).to_vec();
    assert_eq!(cluster.ask(survivor, &add).await, ToOperator::Done { managers });
    cluster.until_managed([0, 3, 4]).await;
    // Their votes count.
    for node in lost {
        let votes = |status: &NodeStatus| {
            status.empty == 0 && status.manager.as_ref().is_some_and(|manager| manager.votes)
        };
        cluster.until("it votes, and is full", node, votes).await;
    }
    cluster.kill(survivor);
    counted(&cluster, 3, NodeId(5), S, 0).await;
    counted(&cluster, 3, NodeId(5), T, 1).await;
}
