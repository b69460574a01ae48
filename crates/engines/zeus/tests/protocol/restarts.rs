//! Restarts of nodes with disks, at moments that random runs seldom meet.

use crate::cluster::{Cluster, T, granule};
use bytes::Bytes;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_types::{NodeId, Random, WorkerId};
use shoal_zeus::message::GranuleWrites;
use shoal_zeus::rows::RowWrite;
use shoal_zeus::{Level, LocalCommit, Ticket, Want, ZeusOptions, ZeusPlantedBug};
use std::time::Duration;

/// Delivers all messages, and flushes all that is written.
fn settle(cluster: &mut Cluster) {
    for _ in 0..1000 {
        cluster
            .nodes
            .keys()
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|node| cluster.flush(node));
        match cluster.deliveries.is_empty() {
            true => return,
            false => {
                let first = cluster.deliveries.remove(0);
                cluster.deliver(first);
            }
        }
    }
    panic!("messages go on for ever");
}

fn want(cluster: &mut Cluster, node: NodeId, number: u64) {
    let want =
        Want { granules: [(granule("a"), Level::Owner)].into(), born: cluster.clock_of(node) };
    cluster.step(node, |node, now| node.want(now, Ticket(number), want));
}

fn put(cluster: &mut Cluster, node: NodeId, value: &'static str) {
    let key = Bytes::from_static(b"a/x");
    let row = RowWrite { table: T, key, value: Some(Bytes::from_static(value.as_bytes())) };
    let writes = vec![GranuleWrites { granule: granule("a"), rows: vec![row] }];
    let born = cluster.clock_of(node);
    let (reads, scans) = (Vec::new(), Vec::new());
    let commit = LocalCommit { worker: WorkerId(0), born, tag: 1, reads, scans, writes };
    let committed = cluster.step(node, |node, now| node.commit(now, commit));
    committed.expect("it is up").expect("it owns the granule");
}

/// So many nodes with disks, one of which has written the row; all messages are delivered.
fn cluster_with_a_row(nodes: u32, owner: NodeId, bugs: PlantedBugs<ZeusPlantedBug>) -> Cluster {
    let mut cluster = Cluster::new(nodes, 1, ZeusOptions { bugs, ..ZeusOptions::default() });
    cluster.keep_on_disks();
    (0..nodes).for_each(|node| cluster.hear(NodeId(node)));
    settle(&mut cluster);
    want(&mut cluster, owner, 1);
    settle(&mut cluster);
    put(&mut cluster, owner, "1");
    settle(&mut cluster);
    cluster
}

/// A granule comes to a node that had nothing of it, which writes it at once. Both are recorded, and not written yet, when the first part
/// of a checkpoint is taken, which has both. Returns what the node has after a restart.
pub fn value_behind_a_checkpoint(bugs: PlantedBugs<ZeusPlantedBug>) -> String {
    let (first, second) = (NodeId(0), NodeId(3));
    let mut cluster = cluster_with_a_row(4, first, bugs);
    cluster.step(first, |node, now| node.release(now, Ticket(1)));
    want(&mut cluster, second, 2);
    let owns = |cluster: &Cluster| {
        let up = cluster.up(second).expect("it is up");
        up.ownership().level(second, &granule("a")) == Level::Owner
    };
    for _ in 0..1000 {
        if owns(&cluster) {
            break;
        }
        match cluster.deliveries.is_empty() {
            true => cluster.wait(Duration::from_millis(1)),
            false => {
                let next = cluster.deliveries.remove(0);
                cluster.deliver(next);
            }
        }
        // What the node records last is not flushed.
        let others = if owns(&cluster) { 0..3 } else { 0..4 };
        others.for_each(|node| cluster.flush(NodeId(node)));
    }
    put(&mut cluster, second, "2");
    cluster.advance_checkpoint(second);
    settle(&mut cluster);
    (0..3).for_each(|_| cluster.advance_checkpoint(second));
    cluster.bounce(second, &mut Random::new(1));
    cluster.hear(second);
    settle(&mut cluster);
    value_at(&cluster, second)
}

/// The value of the row that all of this is about, which is valid.
fn value_at(cluster: &Cluster, node: NodeId) -> String {
    let row = cluster.up(node).and_then(|up| {
        let row = up.rows().get(&granule("a"), &(T, Bytes::from_static(b"a/x")))?;
        assert!(row.is_valid);
        row.value.clone()
    });
    row.map_or(String::new(), |value| value.escape_ascii().to_string())
}

/// A reader comes back with its disk and has not learned of the configuration, while the owner writes. Returns what the reader has
/// of it: its disk may be an older one, with which it must not acknowledge anything.
pub fn value_before_admission(bugs: PlantedBugs<ZeusPlantedBug>) -> String {
    let (owner, reader) = (NodeId(0), NodeId(1));
    let mut cluster = cluster_with_a_row(3, owner, bugs);
    cluster.bounce(reader, &mut Random::new(1));
    put(&mut cluster, owner, "2");
    settle(&mut cluster);
    value_at(&cluster, reader)
}

#[test]
fn a_node_takes_nothing_before_it_is_admitted() {
    assert_eq!(value_before_admission(PlantedBugs::NONE), "1");
}

#[test]
fn a_checkpoint_has_what_was_recorded_before_it() {
    assert_eq!(value_behind_a_checkpoint(PlantedBugs::NONE), "2");
}
