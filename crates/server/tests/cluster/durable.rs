//! Clusters whose streams are on disk: what was acknowledged outlives the processes of all nodes.

use crate::cluster::{Cluster, counted};
use shoal_cluster::topology::Topology;
use shoal_server::{DisksError, ExaminedLog, NodeExamination, Protocol};
use shoal_types::{Durability, NodeId, ShardId};
use std::sync::Arc;
use tempfile::TempDir;

const S: ShardId = ShardId(0);

/// A shard of three replicas, whose nodes have folders below `place`.
fn start(place: &TempDir, protocol: Protocol, workers: u32) -> Cluster {
    Cluster::start_with(1, workers, protocol, |config| {
        let folder = place.path().join(config.node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
        let topology = Topology::clone(&config.topology);
        config.topology = Arc::new(topology.with_durability(Durability::Fsync));
    })
}

/// All nodes end at once, and begin again with what their disks have.
async fn nothing_is_lost(protocol: Protocol, workers: u32) {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, protocol, workers);
    let mut number = 0;
    for round in 1..=2 {
        for key in 0..3 {
            number += 1;
            let sum = counted(&cluster, number, NodeId(number as u32 % 3), S, key).await;
            assert_eq!(sum, round, "key {key}");
        }
        (0..3).map(NodeId).for_each(|node| cluster.kill(node));
        (0..3).map(NodeId).for_each(|node| cluster.restart(node));
    }
    let data = place.path().join(NodeId(0).to_string());
    let in_use = NodeExamination::check_free(&data);
    assert!(matches!(in_use, Err(DisksError::Folder(_))), "it runs: {in_use:?}");
    cluster.kill(NodeId(0));
    NodeExamination::check_free(&data).expect("it has ended");
    let found = NodeExamination::of(&data).expect("it can be read").expect("a node's");
    assert_eq!((found.node, found.logs.len()), (NodeId(0), workers as usize));
    assert!(!found.is_void && found.set_aside.is_empty(), "{found:?}");
    for ExaminedLog { log, .. } in &found.logs {
        let log = log.as_ref().expect("it is whole");
        assert_eq!(log.incarnation, 3, "as many processes have used it");
        assert!(log.streams.iter().all(|stream| stream.length > 0 && !stream.is_void), "{log:?}");
    }
}

#[tokio::test]
async fn all_nodes_of_mako_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::Mako, 2).await;
}

#[tokio::test]
async fn all_nodes_of_two_phase_commit_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::TwoPhaseCommit, 1).await;
}
