//! Who is a member, and how that changes.

use crate::world::{World, nodes};
use raft::ChangeError;
use std::collections::BTreeSet;
use std::time::Duration;
use types::NodeId;

#[tokio::test(start_paused = true)]
async fn a_dead_member_is_replaced() {
    let mut world = World::of(1, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let dead = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    let other = *nodes([1, 2, 3]).iter().find(|node| **node != leader && **node != dead).unwrap();
    world.stop(dead).await;
    world.start(NodeId(4)).await;
    let handle = world.site(leader).handle.clone();
    world.during(async move { handle.replace(dead, NodeId(4)).await }).await.expect("replaced");
    let status = world.site(leader).handle.status();
    assert_eq!(status.voters, BTreeSet::from([leader, other, NodeId(4)]));
    world.until("it was told", |world| world.has_table(NodeId(4), "a")).await;

    // It votes: without one more, there still is a majority.
    world.stop(other).await;
    world.create("b").await;
    world.agree().await;

    // The dead one comes back and does not disturb.
    world.start(dead).await;
    world.run(Duration::from_secs(3)).await;
    let leader = world.leader().expect("two of three");
    assert_ne!(leader, dead);
    world.ask(leader, "c");
    world.until("they work", |world| world.has_table(leader, "c")).await;
    assert!(!world.has_table(dead, "c"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_replaced() {
    let mut world = World::of(2, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    world.start(NodeId(4)).await;
    let handle = world.site(leader).handle.clone();
    world.during(async move { handle.replace(leader, NodeId(4)).await }).await.expect("replaced");
    world.until("another leads", |world| world.leader().is_some_and(|node| node != leader)).await;
    world.stop(leader).await;
    world.create("b").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_memory_comes_back_as_a_new_one() {
    let mut world = World::of(3, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let empty = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    world.stop(empty).await;
    world.forget(empty);
    world.start(NodeId(4)).await;
    let handle = world.site(leader).handle.clone();
    world.during(async move { handle.replace(empty, NodeId(4)).await }).await.expect("replaced");
    world.start(empty).await;
    let leader = world.leader().expect("undisturbed");
    let handle = world.site(leader).handle.clone();
    world.during(async move { handle.replace(NodeId(4), empty).await }).await.expect("replaced");
    world.stop(NodeId(4)).await;
    world.create("b").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn one_grows_to_three_and_back() {
    let mut world = World::of(4, [1]).await;
    world.create("a").await;
    world.start(NodeId(2)).await;
    world.start(NodeId(3)).await;
    let handle = world.site(NodeId(1)).handle.clone();
    let grown = world.during(async move { handle.change_members(&nodes([1, 2, 3])).await }).await;
    grown.expect("three");
    world.create("b").await;
    world.agree().await;

    let leader = world.leader().expect("undisturbed");
    let handle = world.site(leader).handle.clone();
    let alone = BTreeSet::from([leader]);
    let members = alone.clone();
    world.during(async move { handle.change_members(&members).await }).await.expect("one");
    assert_eq!(world.site(leader).handle.status().voters, alone);
    for other in nodes([1, 2, 3]).difference(&alone) {
        world.stop(*other).await;
    }
    world.create("c").await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_given_up_leaves_nothing_behind() {
    let mut world = World::of(5, [1, 2, 3]).await;
    let leader = world.leader().expect("undisturbed");
    let other = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    let handle = world.site(leader).handle.clone();
    // Nobody is there to learn.
    let replaced = world
        .during(async move {
            let replaced = handle.replace(other, NodeId(4));
            tokio::time::timeout(Duration::from_secs(5), replaced).await
        })
        .await;
    assert!(replaced.is_err(), "{replaced:?}");
    let status = world.site(leader).handle.status();
    assert_eq!((status.voters, status.learners), (nodes([1, 2, 3]), nodes([4])));

    let handle = world.site(leader).handle.clone();
    let kept = world.during(async move { handle.change_members(&nodes([1, 2, 3])).await }).await;
    kept.expect("as before");
    world
        .until("nobody learns", |world| world.site(leader).handle.status().learners.is_empty())
        .await;
    world.create("a").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused() {
    let mut world = World::of(6, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let follower = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    let handle = world.site(follower).handle.clone();
    let refused = world.during(async move { handle.replace(follower, NodeId(4)).await }).await;
    assert_eq!(refused, Err(ChangeError::NotLeading { leader: Some(leader) }));

    let handle = world.site(leader).handle.clone();
    for members in [nodes([]), nodes([1, 2])] {
        let refused = handle.change_members(&members).await;
        assert_eq!(refused, Err(ChangeError::Count(members.len())));
    }
    let again = handle.initialise(&nodes([leader.0, 8, 9])).await;
    assert_eq!(again, Ok(()), "it has begun already");
    assert_eq!(handle.status().voters, nodes([1, 2, 3]));

    world.start(NodeId(5)).await;
    let handle = &world.site(NodeId(5)).handle;
    assert_eq!(handle.initialise(&nodes([4])).await, Err(ChangeError::NotMember(NodeId(5))));
}
