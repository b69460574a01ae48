//! Objects that move to the node that uses them, and clients that go to the owner.

use crate::cluster::Cluster;
use shoal_server::{EngineOptions, Protocol};
use shoal_types::{Aborted, Error, NodeId, ShardId};
use std::time::Duration;

/// The leader of a shard executes its calls: it is the first node of the shard.
fn leader(home: ShardId) -> NodeId {
    NodeId(3 * home.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_granule_that_moves_too_often_stays_and_its_clients_are_sent_to_the_owner() {
    let cluster = Cluster::start_with(2, 1, Protocol::Zeus, |config| {
        let EngineOptions::Zeus(options) = &mut config.engine else { panic!("it is zeus") };
        options.moves_within = Duration::from_secs(3600);
    });
    let mut client = cluster.client(1);
    let mut counted = 0_i64;
    let mut sent_on = None;
    for attempt in 0..8 {
        let home = ShardId(attempt % 2);
        match client.call(leader(home), home, "count", &[7]).await {
            Ok(_) => counted += 1,
            Err(Error::Aborted(Aborted::Moved { owner })) => {
                assert_ne!(owner, leader(home), "it is elsewhere");
                sent_on = Some((attempt, owner));
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let (attempt, owner) = sent_on.expect("the granule moves no more");
    assert!(attempt >= 4, "it has come to each of the leaders twice: {attempt}");
    let home = ShardId(owner.0 / 3);
    let count = client.call(leader(home), home, "count", &[7]).await;
    assert_eq!(
        count.as_deref(),
        Ok(&(counted + 1).to_le_bytes()[..]),
        "nothing happened elsewhere"
    );
}
