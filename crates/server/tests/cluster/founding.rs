//! Clusters that are founded again, and nodes that belong to the one before.

use crate::cluster::{Cluster, until_so};
use shoal_client::{ClusterId, Error, Rejected, Unknown};
use shoal_net::CloseReason;
use shoal_server::Protocol;
use shoal_types::{NodeId, ShardId};

fn identity(cluster: Option<ClusterId>) -> ClusterId {
    cluster.expect("a cluster with managers has an identity")
}

async fn count(db: &shoal_client::Cluster) -> Result<i64, Error> {
    let counted = db.call(ShardId(0), "count", &b"key"[..]).await?;
    Ok(i64::from_le_bytes(counted[..].try_into().expect("a number")))
}

/// All processes end, and begin anew at the same addresses with nothing that they had.
fn found_again(cluster: &mut Cluster) {
    let all = cluster.running();
    all.iter().for_each(|node| cluster.kill(*node));
    all.iter().for_each(|node| cluster.restart(*node));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_that_its_cluster_was_founded_again() {
    let mut cluster = Cluster::start(1, 2, Protocol::Mako);
    let db = cluster.connect_client().await;
    for expected in 1..=5 {
        assert_eq!(count(&db).await, Ok(expected));
    }
    let known = identity(db.identity());
    found_again(&mut cluster);
    let lost = count(&db).await.expect_err("the cluster is gone that counted");
    let found = match lost {
        Error::Rejected(Rejected::FoundedAgain { known: told, found })
        | Error::Unknown(Unknown::FoundedAgain { known: told, found, .. })
            if told == known =>
        {
            found
        }
        other => panic!("{other}"),
    };
    let again = cluster.connect_client().await;
    assert_eq!(identity(again.identity()), found);
    let wrote = db.transact(async |tx| tx.add(db.table("counters")?, b"key", 1).await).await;
    assert_eq!(wrote, Err(Rejected::FoundedAgain { known, found }.into()));
    assert!(count(&db).await.is_err(), "it goes on saying so");
    assert_eq!(
        count(&again).await,
        Ok(1),
        "nothing that the former client asked for was done here"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_cluster_before_joins_no_other() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start_with(2, 1, Protocol::Mako, |config| {
        let folder = place.path().join(config.node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
    });
    let stays = NodeId(5);
    cluster.until("it has joined", stays, |status| status.admitted).await;
    let before = cluster.status_of(stays).await.cluster;
    let kept = place.path().join(stays.to_string()).join("cluster");
    until_so("it is written down", || kept.exists()).await;
    cluster.running().into_iter().for_each(|node| cluster.kill(node));
    for node in (0..3).map(NodeId) {
        let folder = place.path().join(node.to_string());
        std::fs::remove_dir_all(&folder).expect("removed");
        std::fs::create_dir_all(&folder).expect("a folder");
        cluster.restart(node);
    }
    cluster.until("another is founded", NodeId(0), |status| status.admitted).await;
    let after = cluster.status_of(NodeId(0)).await.cluster;
    assert!(before.is_some() && after.is_some() && before != after, "{before:?} {after:?}");
    cluster.restart(stays);
    let refuses = |cluster: &Cluster, node: usize| {
        let server = cluster.servers[node].as_ref().expect("it runs");
        server.handle().counters().closes(CloseReason::OtherFounding) > 0
    };
    until_so("they part", || refuses(&cluster, 0) && refuses(&cluster, 5)).await;
    let status = cluster.status_of(stays).await;
    assert_eq!((status.admitted, status.cluster), (false, before));
}
