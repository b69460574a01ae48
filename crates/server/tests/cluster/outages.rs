//! Shards that cannot be served: what nodes say of them.

use crate::cluster::Cluster;
use crate::http::until_health;
use shoal_client::{Aborted, Cause, ClusterOptions, Error, Unknown};
use shoal_server::{NodeStatus, Protocol};
use shoal_types::{NodeId, ShardId};
use std::time::Duration;

/// The answer to a call that nothing serves.
async fn cause_of_a_call(cluster: &Cluster) -> Cause {
    let options = ClusterOptions { deadline: Duration::from_secs(2), ..ClusterOptions::default() };
    let address = cluster.address(NodeId(0));
    let db = shoal_client::Cluster::connect_with(&[address], options).await.expect("connected");
    match db.call(ShardId(0), "count", &b"key"[..]).await {
        Err(
            Error::Aborted(Aborted::Unanswered(wait)) | Error::Unknown(Unknown::Call { wait, .. }),
        ) => wait.cause,
        // Once the manager has left the shard out of an epoch, its leader says the same at once.
        Err(Error::Aborted(Aborted::ShardOut { .. })) => Cause::NoMajority,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_majority_began_anew_says_so_everywhere() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start_with(1, 1, Protocol::Mako, |config| {
        let folder = place.path().join(config.node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
    });
    cluster.client(1).call(NodeId(0), ShardId(0), "count", &[1]).await.expect("counted");
    let emptied = [NodeId(1), NodeId(2)];
    emptied.iter().for_each(|node| cluster.kill(*node));
    emptied.iter().for_each(|node| cluster.restart(*node));
    let why = "S0 has lost its majority: n1, n2 began anew, empty; only n0 has what is left";
    let says = |status: &NodeStatus| status.shards[0].outage.as_deref() == Some(why);
    for node in (0..3).map(NodeId) {
        cluster.until("it says what is lost", node, says).await;
        until_health(&cluster, node.0 as usize, 503, why).await;
    }
    let status = cluster.status_of(NodeId(1)).await;
    assert_eq!(
        (&*status.shards[0].voters, &*status.shards[0].empty),
        (&[0, 1, 2][..], &[1, 2][..])
    );
    assert_eq!(cause_of_a_call(&cluster).await, Cause::NoMajority);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_empty_is_not_well_until_it_has_caught_up() {
    let mut cluster = Cluster::start(2, 1, Protocol::Mako);
    cluster.client(1).call(NodeId(0), ShardId(1), "count", &[1]).await.expect("counted");
    cluster.kill(NodeId(4));
    cluster.restart(NodeId(4));
    let full = |status: &NodeStatus| status.admitted && status.empty == 0;
    cluster.until("it counts again", NodeId(4), full).await;
    until_health(&cluster, 4, 200, "ok").await;
}
