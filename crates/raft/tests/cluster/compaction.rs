//! The log is compacted: it stays short, and so does what a new process has to read.

use crate::world::{World, nodes};
use shoal_raft::RaftStorage;
use shoal_types::NodeId;
use std::time::Duration;

const EVERY: u64 = 30;
const KEPT: u64 = 5;

fn options() -> shoal_raft::RaftOptions {
    shoal_raft::RaftOptions {
        snapshot_every: EVERY,
        entries_kept: KEPT,
        ..shoal_raft::RaftOptions::default()
    }
}

/// The most entries that any replica has stored.
fn longest_log(world: &World) -> u64 {
    let length = |node: &NodeId| world.disk(*node).read(0..u64::MAX).expect("memory").len() as u64;
    world.test_replicas.keys().map(length).max().expect("a manager runs")
}

/// Managers tick all the time, so every log grows; with compaction it stays as long as at first.
#[tokio::test(start_paused = true)]
async fn a_log_stops_growing() {
    let mut world = World::with(options(), 1, [1, 2, 3]).await;
    let mut entries = 0;
    for number in 0..30 {
        world.create(&format!("t{number}")).await;
        world.run(Duration::from_secs(10)).await;
        assert!(longest_log(&world) < 3 * EVERY + KEPT, "{} entries", longest_log(&world));
        entries = world.test_replica(NodeId(1)).handle.status().entries;
    }
    assert!(entries > 10 * EVERY, "too little to compact: {entries} entries");
    world.agree().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_replays_no_more_than_what_follows_the_snapshot() {
    let mut world = World::with(options(), 2, [1, 2, 3]).await;
    world.create("a").await;
    world.run(Duration::from_secs(60)).await;
    for node in nodes([1, 2, 3]) {
        world.stop(node).await;
        world.run(Duration::from_millis(200)).await;
        world.start(node).await;
        world.until("it knows the table", |world| world.has_table(node, "a")).await;
        let told = world.test_replica(node).told_singly as u64;
        assert!(told < 3 * EVERY, "{node} was told {told} commands");
    }
    world.create("b").await;
    world.agree().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn all_restart_from_their_snapshots() {
    let mut world = World::with(options(), 3, [1, 2, 3]).await;
    world.create("a").await;
    world.run(Duration::from_secs(60)).await;
    for node in nodes([1, 2, 3]) {
        world.stop(node).await;
    }
    for node in nodes([1, 2, 3]) {
        world.start(node).await;
    }
    world.create("b").await;
    assert!(world.all_have("a"));
    world.agree().await;
    world.end().await;
}

/// The entries that it lacks are in no log any more.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_far_behind_gets_the_snapshot() {
    let mut world = World::with(options(), 4, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let behind = nodes([1, 2, 3]).into_iter().find(|node| *node != leader).expect("three");
    world.network.isolate(behind, nodes([1, 2, 3]));
    world.run(Duration::from_secs(60)).await;
    let before = world.test_replica(behind).handle.status().entries;
    let ahead = world.leader().map(|leader| world.test_replica(leader).handle.status().entries);
    assert!(ahead > Some(before + 2 * EVERY), "{before} and {ahead:?} entries");
    world.network.heal();
    world.create("b").await;
    let told = world.test_replica(behind).told_singly as u64;
    assert!(told < 3 * EVERY, "it was told {told} commands");
    world.agree().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_member_gets_the_snapshot() {
    let mut world = World::with(options(), 5, [1, 2, 3]).await;
    world.create("a").await;
    world.run(Duration::from_secs(60)).await;
    let leader = world.leader().expect("undisturbed");
    let outgoing = nodes([1, 2, 3]).into_iter().find(|node| *node != leader).expect("three");
    world.stop(outgoing).await;
    world.start(NodeId(4)).await;
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(NodeId(4));
    world.during(async move { handle.replace(outgoing, incoming).await }).await.expect("replaced");
    world.until("it was told", |world| world.has_table(NodeId(4), "a")).await;
    let told = world.test_replica(NodeId(4)).told_singly as u64;
    assert!(told < 3 * EVERY, "it was told {told} commands");
    world.create("b").await;
    world.agree().await;
    world.end().await;
}
