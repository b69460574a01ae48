//! Changes of the members.

use crate::world::{World, members, nodes};
use shoal_raft::{ChangeError, LogMember, Volume};
use shoal_types::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_dead_member_is_replaced() {
    let mut world = World::of(1, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let dead = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    let other = *nodes([1, 2, 3]).iter().find(|node| **node != leader && **node != dead).unwrap();
    world.stop(dead).await;
    world.start(NodeId(4)).await;
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(NodeId(4));
    world.during(async move { handle.replace(dead, incoming).await }).await.expect("replaced");
    let members = world.test_replica(leader).handle.members().expect("there are some");
    assert_eq!(members.nodes(), BTreeSet::from([leader, other, NodeId(4)]));
    world.until("it was told", |world| world.has_table(NodeId(4), "a")).await;

    // It votes: without one more, there still is a majority.
    world.stop(other).await;
    world.create("b").await;
    world.agree().await;

    // The dead one restarts and does not disturb the others.
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
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(NodeId(4));
    world.during(async move { handle.replace(leader, incoming).await }).await.expect("replaced");
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
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(NodeId(4));
    world.during(async move { handle.replace(empty, incoming).await }).await.expect("replaced");
    world.start(empty).await;
    let leader = world.leader().expect("undisturbed");
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(empty);
    world.during(async move { handle.replace(NodeId(4), incoming).await }).await.expect("replaced");
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
    let handle = world.test_replica(NodeId(1)).handle.clone();
    let all = world.members();
    let grown = world.during(async move { handle.change_members(&all).await }).await;
    grown.expect("three");
    world.create("b").await;
    world.agree().await;

    let leader = world.leader().expect("undisturbed");
    let handle = world.test_replica(leader).handle.clone();
    let alone = BTreeSet::from([world.member(leader)]);
    let members = alone.clone();
    world.during(async move { handle.change_members(&members).await }).await.expect("one");
    let members = world.test_replica(leader).handle.members().expect("there are some");
    assert_eq!(members.nodes(), BTreeSet::from([leader]));
    for other in nodes([1, 2, 3]).iter().filter(|node| **node != leader) {
        world.stop(*other).await;
    }
    world.create("c").await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_given_up_leaves_nothing_behind() {
    let mut world = World::of(5, [1, 2, 3]).await;
    let leader = world.leader().expect("undisturbed");
    let other = *nodes([1, 2, 3]).iter().find(|node| **node != leader).expect("three");
    let handle = world.test_replica(leader).handle.clone();
    // No replica runs that could learn.
    let absent = LogMember { node: NodeId(4), volume: Volume(9) };
    let before = world.members();
    let replaced = world
        .during(async move {
            let replaced = handle.replace(other, absent);
            tokio::time::timeout(Duration::from_secs(5), replaced).await
        })
        .await;
    assert!(replaced.is_err(), "{replaced:?}");
    let members = world.test_replica(leader).handle.status().members;
    assert_eq!((members.nodes(), members.learners), (nodes([1, 2, 3]), vec![absent]));

    let handle = world.test_replica(leader).handle.clone();
    let kept = world.during(async move { handle.change_members(&before).await }).await;
    kept.expect("as before");
    world
        .until("no learner is left", |world| {
            world.test_replica(leader).handle.status().members.learners.is_empty()
        })
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
    let handle = world.test_replica(follower).handle.clone();
    let incoming = LogMember { node: NodeId(4), volume: Volume(9) };
    let refused = world.during(async move { handle.replace(follower, incoming).await }).await;
    assert_eq!(refused, Err(ChangeError::NotLeading { leader: Some(leader) }));

    let handle = world.test_replica(leader).handle.clone();
    for members in [members([]), members([1, 2])] {
        let refused = handle.change_members(&members).await;
        assert_eq!(refused, Err(ChangeError::Count(members.len())));
    }
    let mut others = members([8, 9]);
    others.insert(handle.me());
    let again = handle.initialise(&others).await;
    assert_eq!(again, Ok(()), "it has begun already");
    assert_eq!(handle.status().members.nodes(), nodes([1, 2, 3]));

    world.start(NodeId(5)).await;
    let handle = &world.test_replica(NodeId(5)).handle;
    let refused = handle.initialise(&members([4])).await;
    assert_eq!(refused, Err(ChangeError::NotMember(handle.me())));
}

#[tokio::test(start_paused = true)]
async fn who_lost_its_volume_does_not_vote() {
    let mut world = World::of(7, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let others: Vec<NodeId> = nodes([1, 2, 3]).into_iter().filter(|node| *node != leader).collect();
    let (wiped, late) = (others[0], others[1]);
    // One does not receive what the two others decide.
    world.network.isolate(late, [leader, wiped]);
    world.ask(leader, "b");
    world.until("two have it", |world| world.has_table(wiped, "b")).await;
    let lost = world.member(wiped);
    world.stop(wiped).await;
    world.forget(wiped);
    world.stop(leader).await;
    world.network.heal();
    world.start(wiped).await;
    assert_ne!(world.member(wiped), lost);
    world.run(Duration::from_secs(5)).await;
    assert_eq!(world.leader(), None, "two of three, of which one has forgotten");
    assert!(
        world.test_replica(wiped).handle.counters().misdirected > 0,
        "it was asked as the lost member"
    );

    // With the one that has the log there is a majority again, and the lost volume is replaced by the new
    // one.
    world.start(leader).await;
    world.until("a leader", |world| world.leader().is_some()).await;
    let handle = world.test_replica(world.leader().expect("a manager runs")).handle.clone();
    let incoming = world.member(wiped);
    world.during(async move { handle.replace(wiped, incoming).await }).await.expect("replaced");
    world.until("it was told", |world| world.has_table(wiped, "b")).await;
    let members = world.test_replica(wiped).handle.status().members;
    assert!(members.voters.contains(&incoming) && !members.contains(lost), "{members:?}");
    world.create("c").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_learns_that_it_was_dropped_and_a_new_one_does_not_think_so() {
    let mut world = World::of(8, [1, 2, 3]).await;
    world.create("a").await;
    let leader = world.leader().expect("undisturbed");
    let others: Vec<NodeId> = nodes([1, 2, 3]).into_iter().filter(|node| *node != leader).collect();
    let outgoing = others[0];
    let before = world.test_replica(leader).handle.members().expect("there are some");
    world.stop(outgoing).await;
    world.start(NodeId(4)).await;
    let handle = world.test_replica(leader).handle.clone();
    let incoming = world.member(NodeId(4));
    let test_replica = |world: &World, node| world.test_replica(node).handle.clone();
    assert!(!test_replica(&world, NodeId(4)).is_dropped(&before), "it has received nothing");
    world.during(async move { handle.replace(outgoing, incoming).await }).await.expect("replaced");
    let after = world.test_replica(leader).handle.members().expect("there are some");
    assert!(after.version > before.version);
    assert!(!test_replica(&world, NodeId(4)).is_dropped(&before), "an old list");
    assert!(!test_replica(&world, NodeId(4)).is_dropped(&after));
    assert!(!test_replica(&world, leader).is_dropped(&after));

    // A manager that restarts with its volume gets no answer, and can learn why.
    world.start(outgoing).await;
    assert!(!test_replica(&world, outgoing).is_dropped(&before));
    world.run(Duration::from_secs(1)).await;
    assert!(test_replica(&world, outgoing).is_dropped(&after));
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_new_until_it_receives_something() {
    let mut world = World::new(9);
    for node in nodes([1, 2, 3]) {
        world.start(node).await;
    }
    let handles: Vec<_> =
        world.test_replicas.values().map(|test_replica| test_replica.handle.clone()).collect();
    for handle in &handles {
        assert_eq!(handle.is_new().await, Ok(true));
        assert_eq!(handle.members(), None);
    }
    handles[2].initialise(&world.members()).await.expect("a cluster");
    assert_eq!(handles[2].is_new().await, Ok(false));
    world.until("all have members", |_| handles.iter().all(|it| it.members().is_some())).await;
    for handle in &handles {
        assert_eq!(handle.is_new().await, Ok(false));
        assert_eq!(handle.members().expect("some").nodes(), nodes([1, 2, 3]));
    }
}
