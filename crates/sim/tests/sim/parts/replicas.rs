//! Replicas are compared with the model of their shard.

use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::TransactionId;
use shoal_sim::checks::{Installed, InstalledRow, replicas};
use shoal_store::Store;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Stamp, TableId, WorkerId};
use std::sync::Arc;

fn model(rows: &[(&str, Option<&str>)]) -> Installed {
    let mut installed = Installed::new(1);
    for ((key, value), clock) in rows.iter().zip(1..) {
        let transaction = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: clock };
        let stamp = Stamp::local(Epoch(0), Clock(clock));
        let key = key.as_bytes();
        let row = InstalledRow { transaction, stamp: &stamp, table: TableId(0), key };
        let value = value.map(str::as_bytes);
        installed.install(NodeId(0), ShardId(0), row, value, false).unwrap();
    }
    installed
}

#[test]
fn differences_are_seen() {
    let partitioning = Partitioning::Hash { prefix_bytes: 0 };
    let topology = Topology::compact(1, 1, 1, 0, 1).with_tables([("t".to_owned(), partitioning)]);
    let topology = topology.unwrap();
    let store = Arc::new(Store::new(shoal_store::Options::default()));
    let table = store.table("t").unwrap();
    assert_eq!(table, TableId(0), "as in the topology");
    for (key, value) in [("a", "1"), ("b", "2")] {
        let mut session = store.session().unwrap();
        let transaction = session.begin();
        transaction.put(table, key.as_bytes(), value.as_bytes()).unwrap();
        transaction.commit().unwrap();
    }
    let verdict = |rows: &[(&str, Option<&str>)]| {
        replicas::check(
            &topology,
            &model(rows),
            None,
            |_| vec![NodeId(0)],
            |_, _| Some(Arc::clone(&store)),
            |_| false,
            |_, _| false,
        )
    };
    assert_eq!(verdict(&[("a", Some("1")), ("b", Some("2"))]), Ok(()));
    assert!(verdict(&[("a", Some("1"))]).unwrap_err().contains("'b' should be absent"));
    assert!(verdict(&[("a", Some("1")), ("b", Some("3"))]).unwrap_err().contains("'3'"));
    assert!(verdict(&[("a", Some("1")), ("b", None)]).unwrap_err().contains("'b'"));
    assert!(verdict(&[("b", Some("2")), ("a", Some("1"))]).unwrap_err().contains("clock"));
    let more = [("a", Some("1")), ("b", Some("2")), ("c", Some("3"))];
    assert!(verdict(&more).unwrap_err().contains("but is absent"));
}
