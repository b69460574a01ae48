//! Objects that move to the node that uses them, and clients that go to the owner.

use crate::cluster::Cluster;
use shoal_cluster::topology::Partitioning;
use shoal_server::{EngineOptions, Protocol};
use shoal_types::{Aborted, Error, KeyExcerpt, NodeId, Rejected, Scan, ShardId};
use std::time::Duration;

/// What a granule may have, in bytes.
const GRANULE_BYTES_MAX: usize = 1 << 20;

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

/// What the engine does not do, it refuses with an error that says what to do instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_refusals() {
    let cluster = Cluster::start(1, 1, Protocol::Zeus);
    let db = cluster.connect_client().await;
    let counters = db.table("counters").expect("a table of the topology");
    let scanned = db.transact(async |tx| tx.scan(counters, Scan::all()).await.map(drop)).await;
    let too_wide = Rejected::ScanTooWide { table: counters, prefix_bytes: 0 };
    assert_eq!(scanned, Err(too_wide.into()), "each key is a granule");

    let copied = db.create_table("copied", Partitioning::Everywhere).await.expect("a table");
    let written = db.transact(async |tx| tx.put(copied, b"key", b"value")).await;
    assert_eq!(written, Err(Rejected::TableEverywhere { table: copied }.into()));

    let orders = db.create_table("orders", Partitioning::Hash { prefix_bytes: 1 }).await;
    let orders = orders.expect("a table");
    let half = vec![7; GRANULE_BYTES_MAX / 2];
    let put = async |key: &[u8]| db.transact(async |tx| tx.put(orders, key, &half)).await;
    assert_eq!(put(b"a1").await, Ok(()));
    let (key, max) = (KeyExcerpt::new(b"a"), GRANULE_BYTES_MAX);
    let full = Rejected::GranuleFull { table: orders, key, max };
    assert_eq!(put(b"a2").await, Err(full.into()), "keys count, too");
    assert_eq!(put(b"b1").await, Ok(()), "that is another granule");
}
