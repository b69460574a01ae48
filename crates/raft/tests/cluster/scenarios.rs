//! Typical sequences of events.

use crate::world::{World, first, nodes};
use shoal_cluster::manager::{CarriedLog, Term};
use shoal_raft::{DiskStorage, InMemoryDisk, RaftOptions, Volume};
use shoal_types::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn three_managers_agree() {
    let mut world = World::of(1, [1, 2, 3]).await;
    for table in ["a", "b", "c"] {
        world.create(table).await;
    }
    world.run(Duration::from_secs(2)).await;
    world.agree().await;
    for table in ["a", "b", "c"] {
        assert_eq!(world.commanded(table), 1);
    }
    let leader = world.leader().expect("undisturbed");
    let status = world.test_replica(leader).handle.status();
    assert_eq!(status.leader, Some(leader));
    assert_eq!(status.term, world.test_replica(leader).manager.leads());
    let members = status.members;
    assert_eq!((members.nodes(), members.learners), (nodes([1, 2, 3]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn five_managers_survive_two() {
    let mut world = World::of(2, [1, 2, 3, 4, 5]).await;
    world.create("a").await;
    for _ in 0..2 {
        let leader = world.leader().expect("undisturbed");
        world.stop(leader).await;
        world.create("b").await;
    }
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn one_manager_is_enough_for_itself() {
    let mut world = World::of(3, [7]).await;
    world.create("a").await;
    let before = world.test_replica(NodeId(7)).manager.leads().expect("who else");
    world.stop(NodeId(7)).await;
    world.start(NodeId(7)).await;
    world.create("b").await;
    assert!(world.has_table(NodeId(7), "a"));
    assert!(world.test_replica(NodeId(7)).manager.leads().expect("who else") > before);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_is_followed_by_another() {
    for seed in 0..5 {
        let mut world = World::of(seed, [1, 2, 3]).await;
        world.create("before").await;
        let old = world.leader().expect("undisturbed");
        let term = world.test_replica(old).manager.leads().expect("it leads");
        world.network.isolate(old, nodes([1, 2, 3]));
        world.ask(old, "lost");
        world
            .until("another leads", |world| {
                let test_replica =
                    world.leader().filter(|node| *node != old).map(|node| world.test_replica(node));
                test_replica.is_some_and(|test_replica| test_replica.manager.leads() > Some(term))
            })
            .await;
        let new = world.leader().expect("just seen");
        world.ask(new, "after");
        world.until("it works", |world| world.has_table(new, "after")).await;
        assert!(!world.has_table(old, "after"));
        assert!(!world.has_table(old, "lost") && !world.has_table(new, "lost"));
        world.network.heal();
        world.create("healed").await;
        world.agree().await;
        // It had no majority, so another leader's entries replaced its own.
        assert_eq!(world.commanded("lost"), 0);
        assert_eq!(world.commanded("after"), 1);
        world.end().await;
    }
}

/// A leader that is cut off, and whose machine is suspended, was certain of its lead before that, and is not
/// afterwards.
#[tokio::test(start_paused = true)]
async fn a_leader_is_not_sure_of_the_time_for_which_it_was_suspended() {
    let mut world = World::of(5, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    world.network.isolate(leader, nodes([1, 2, 3]));
    let last = world.network.now();
    world.network.suspend(Duration::from_secs(60));
    let now = world.network.now();
    let test_replica = world.test_replicas.get_mut(&leader).expect("it runs");
    test_replica.replica.exchange(now, test_replica.manager.log_mut()).expect("it runs");
    assert!(test_replica.manager.leads().is_some(), "it has learned nothing else");
    let led = test_replica.manager.log_mut().led.expect("it led for certain before");
    assert!(led <= last, "at {led} it was suspended, since {last}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_proposal_whose_answer_is_lost_is_committed_once_or_never() {
    let mut committed = 0;
    for seed in 0..12 {
        let mut world = World::of(seed, [1, 2, 3]).await;
        let old = world.leader().expect("undisturbed");
        world.ask(old, "maybe");
        // Followers receive the proposal, or do not; the leader receives no answer.
        for other in nodes([1, 2, 3]) {
            world.network.cut(other, old);
        }
        world.run(Duration::from_millis(20 * (seed % 6))).await;
        world.network.isolate(old, nodes([1, 2, 3]));
        let others = |world: &World| world.leader().is_some_and(|leader| leader != old);
        world.until("another leads", |world| others(world)).await;
        world.network.heal();
        world.create("healed").await;
        world.agree().await;
        assert!(world.commanded("maybe") <= 1);
        assert!(world.commanded("maybe") == 1 || !world.has_table(old, "maybe"));
        committed += world.commanded("maybe");
        world.end().await;
    }
    assert!(0 < committed && committed < 12, "always the same: {committed} of 12");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_member_is_told_everything_again() {
    let mut world = World::of(4, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let follower = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    world.stop(follower).await;
    world.create("b").await;
    world.start(follower).await;
    world.until("it catches up", |world| world.has_table(follower, "b")).await;
    assert!(world.has_table(follower, "a"));
    world.agree().await;

    // The leader, too: it may lead again, but not in that term.
    let leader = world.leader().expect("undisturbed");
    world.stop(leader).await;
    world.start(leader).await;
    world.create("c").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn all_restart_at_once() {
    let mut world = World::of(5, [1, 2, 3]).await;
    world.create("a").await;
    for node in nodes([1, 2, 3]) {
        world.stop(node).await;
    }
    for node in nodes([1, 2, 3]) {
        world.start(node).await;
    }
    world.create("b").await;
    assert!(world.all_have("a"));
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_says_so() {
    let mut world = World::of(6, [1]).await;
    world.create("a").await;
    let mut test_replica = world.test_replicas.remove(&NodeId(1)).expect("it runs");
    test_replica.handle.stop().await;
    test_replica.replica.news().await;
    let mailbox = test_replica.manager.log_mut();
    assert!(mailbox.term.is_some());
    let stopped = test_replica
        .replica
        .exchange(shoal_types::Time(1), mailbox)
        .expect_err("nothing more will come");
    assert_eq!((stopped.node, mailbox.term), (NodeId(1), None));
    assert!(test_replica.handle.serve(&[]).await.is_err());
}

/// Runs until a replica leads and has committed something; returns its term and the number of commands
/// delivered meanwhile.
async fn commit_one(storage: DiskStorage) -> (Term, usize) {
    let network = crate::network::Network::new(0);
    let node = NodeId(1);
    let (mut replica, handle) = shoal_raft::start(
        node,
        Volume(9),
        &RaftOptions::default(),
        first(),
        storage,
        network.access(node),
    )
    .await
    .expect("a file");
    handle.initialise(&BTreeSet::from([handle.me()])).await.expect("a cluster");
    let mut mailbox = CarriedLog::default();
    let mut proposed = None;
    loop {
        replica.news().await;
        replica.exchange(shoal_types::Time(1), &mut mailbox).expect("it runs");
        let Some(term) = mailbox.term else { continue };
        let command = proposed.get_or_insert_with(|| {
            let drawn = shoal_types::ClusterId::new(1).expect("not 0");
            let action = shoal_cluster::manager::Action::Take { drawn };
            let command =
                shoal_cluster::manager::Command { term, at: shoal_types::Time(5), action };
            mailbox.proposed.push_back(command.clone());
            command
        });
        replica.exchange(shoal_types::Time(1), &mut mailbox).expect("it runs");
        if mailbox.decided.back() == Some(command) {
            handle.stop().await;
            return (term, mailbox.decided.len());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_keeps_what_was_committed() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut last = Term(0);
    for instance in 1..=3 {
        let storage = DiskStorage::open(&folder.path().join("log")).expect("a file");
        let (term, told) = commit_one(storage).await;
        assert!(term > last, "{term} after {last}");
        assert_eq!(told, instance);
        last = term;
    }
}

#[tokio::test(start_paused = true)]
async fn a_purged_log_without_a_snapshot_is_refused() {
    use shoal_raft::{Cell, RaftStorage};
    let storage = InMemoryDisk::new();
    let committed = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    storage.set_cell(Cell::Purged, &committed).expect("memory");
    let network = crate::network::Network::new(0);
    let access = network.access(NodeId(1));
    let options = RaftOptions::default();
    let started = shoal_raft::start(NodeId(1), Volume(9), &options, first(), storage, access).await;
    let stopped = started.expect_err("no first command");
    assert_eq!(stopped.reason, "its log is gone up to a place that no snapshot covers");
}
