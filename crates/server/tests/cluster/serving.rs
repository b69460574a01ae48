//! Clusters that nothing happens to.

use crate::cluster::Cluster;
use shoal_engine::client::FromClient;
use shoal_net::client::{Access, Closed, connect};
use shoal_server::{EngineOptions, Protocol};
use shoal_types::wire::encode;
use shoal_types::{NodeId, ShardId};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shard_serves_calls_by_way_of_any_node() {
    for (protocol, workers) in [
        (Protocol::Mako, 2),
        (Protocol::TwoPhaseCommit, 1),
        (Protocol::Zeus, 2),
        (Protocol::Tiga, 1),
    ] {
        let cluster = Cluster::start_with(3, workers, protocol, |config| {
            // Calls move what they count to each of the leaders, as often as they like.
            if let EngineOptions::Zeus(options) = &mut config.engine {
                options.moves_within = Duration::ZERO;
            }
        });
        for number in 1..=4 {
            let mut client = cluster.client(number);
            for home in (0..3).map(ShardId) {
                let via = NodeId(((number as u32) * 2 + home.0) % 9);
                let called = client.call(via, home, "count_ten", &[]).await;
                assert_eq!(called.as_deref(), Ok(&[][..]), "{protocol:?}");
            }
        }
        let count = cluster.client(9).call(NodeId(0), ShardId(0), "count", &[3]).await;
        assert_eq!(count.as_deref(), Ok(&13_i64.to_le_bytes()[..]), "{protocol:?}");
        let status = cluster.status_of(NodeId(0)).await;
        assert_eq!((status.node, &*status.name, status.workers), (0, "n0", workers));
        assert_eq!(status.malformed, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_talks_nonsense_is_closed_and_costs_nothing_else() {
    let cluster = Cluster::start(1, 1, Protocol::Mako);
    let address = cluster.configs[0].topology.nodes()[0].address.clone().expect("an address");
    let mut connection = connect(&address, &Access::open("shoal"), None).await.expect("let in");
    let good = encode(&FromClient::Status);
    connection.sender.send(good).await.expect("sent");
    connection.receiver.receive().await.expect("an answer");
    connection.sender.send(vec![0xff; 100].into()).await.expect("sent");
    let closed = connection.receiver.receive().await.expect_err("it is closed");
    assert!(matches!(closed, Closed::Bye(_)), "{closed}");
    let called = cluster.client(1).call(NodeId(0), ShardId(0), "count", &[1]).await;
    assert_eq!(called.as_deref(), Ok(&1_i64.to_le_bytes()[..]));
    assert_eq!(cluster.status_of(NodeId(0)).await.malformed, 1);
}
