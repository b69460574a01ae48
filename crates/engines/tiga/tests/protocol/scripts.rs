//! Agreement, votes and commits, without failures; and holes of the published protocol that show there.

use super::cluster::{CLIENT, Cluster, HEADROOM, MS, submit, voters};
use shoal_engine::PlantedBugs;
use shoal_tiga::message::Message;
use shoal_tiga::observation::Path;
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{NodeId, ShardId, Time};
use std::time::Duration;

#[test]
fn a_transaction_of_two_shards_commits_in_one_round_trip() {
    let mut cluster = Cluster::new();
    let id = cluster.increment(&[1, 101]);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), None, "its timestamp has not come");
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), Some(vec![1, 1]));
    assert_eq!(cluster.path(id), Some(Path::Fast), "nothing was synced");
}

#[test]
fn without_a_vote_the_log_decides() {
    let mut cluster = Cluster::new();
    let id = cluster.increment_without_a_vote();
    cluster.sync(0, NodeId(1));
    cluster.decide(0);
    cluster.deliver(|_, _, _| true);
    assert_eq!((cluster.sums(id), cluster.path(id)), (Some(vec![1]), Some(Path::Slow)));
    cluster.settle();
    assert!(voters(0).into_iter().all(|node| cluster.value(node, 1) == Some(1)));
}

#[test]
fn late_transactions_are_raised_and_followers_wait_for_the_log() {
    let mut cluster = Cluster::new();
    let first = cluster.incrementing(&[1]);
    let second = cluster.incrementing(&[1]);
    let now = cluster.time();
    for voter in voters(0) {
        cluster.repeat(CLIENT, voter, submit(Time(now.0 + 2 * MS), &first));
    }
    cluster.deliver(|_, _, _| true);
    cluster.pass(Duration::from_millis(3));
    for voter in voters(0) {
        cluster.repeat(CLIENT, voter, submit(Time(now.0 + MS), &second));
    }
    cluster.deliver(|_, _, _| true);
    cluster.settle();
    let counters = |node| cluster.node(node).replica(ShardId(0)).expect("has it").counters();
    assert_eq!((counters(NodeId(0)).raised, counters(NodeId(1)).late), (1, 1));
    assert!(voters(0).into_iter().all(|node| cluster.value(node, 1) == Some(2)));
}

/// Hole 5: leaders that have two transactions in opposite order do not wait for each other.
#[test]
fn leaders_agree_on_transactions_that_came_in_opposite_order() {
    let mut cluster = Cluster::new();
    let (one, other) = (cluster.incrementing(&[1, 101]), cluster.incrementing(&[1, 101]));
    let now = cluster.time().0;
    for (leader, ones, others) in [(NodeId(0), 1, 2), (NodeId(3), 2, 1)] {
        cluster.repeat(CLIENT, leader, submit(Time(now + ones * MS), &one));
        cluster.repeat(CLIENT, leader, submit(Time(now + others * MS), &other));
    }
    cluster.settle();
    assert_eq!([cluster.value(NodeId(0), 1), cluster.value(NodeId(3), 101)], [Some(2); 2]);
}

/// Hole 1: a follower that lacks a predecessor's predecessor votes otherwise.
fn votes_over_a_missing_predecessor(options: TigaOptions) -> Option<Path> {
    let mut cluster = Cluster::with(options);
    let [lost, last] = cluster.rest_on_what_followers_lack();
    assert_eq!(cluster.sums(lost), None);
    cluster.path(last)
}

#[test]
fn digests_cover_predecessors_of_predecessors() {
    assert_eq!(votes_over_a_missing_predecessor(TigaOptions::default()), None);
    let bugs = PlantedBugs::only(TigaPlantedBug::DigestWithoutHistory);
    let options = TigaOptions { bugs, ..TigaOptions::default() };
    assert_eq!(votes_over_a_missing_predecessor(options), Some(Path::Fast));
}

/// Hole 4, rule T5: nothing is voted for behind a transaction of several shards that is not synced.
#[test]
fn votes_are_withheld_behind_what_is_not_synced() {
    let repeat_after = Duration::from_millis(20);
    let mut cluster = Cluster::with(TigaOptions { repeat_after, ..TigaOptions::default() });
    let before = cluster.increment(&[1, 101]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.path(before), Some(Path::Fast));
    let behind = cluster.increment(&[1]);
    cluster.deliver(|_, to, _| to != NodeId(0));
    cluster.pass(HEADROOM);
    let votes = |cluster: &Cluster| cluster.messages().count();
    assert_eq!(votes(&cluster), 0, "both followers withhold their votes");
    for voter in [NodeId(1), NodeId(2)] {
        cluster.sync(0, voter);
    }
    assert_eq!(votes(&cluster), 2, "what it rests on is synced");
    cluster.deliver(|_, _, _| true);
    cluster.pass(2 * repeat_after);
    cluster.deliver(|_, _, _| true);
    assert_eq!((cluster.sums(behind), cluster.path(behind)), (Some(vec![2]), Some(Path::Fast)));
}

#[test]
fn leaders_finish_what_a_coordinator_has_left() {
    let mut cluster = Cluster::new();
    cluster.increment(&[1, 101]);
    cluster.deliver(|_, to, _| to == NodeId(0));
    cluster.crash(CLIENT);
    cluster.settle();
    assert_eq!([cluster.value(NodeId(0), 1), cluster.value(NodeId(4), 101)], [Some(1); 2]);
}

#[test]
fn a_repeated_transaction_takes_effect_once() {
    let mut cluster = Cluster::new();
    let id = cluster.increment(&[1]);
    let sent: Vec<Message> = cluster.messages().cloned().collect();
    cluster.settle();
    for message in sent {
        voters(0).into_iter().for_each(|it| cluster.repeat(CLIENT, it, message.clone()));
    }
    cluster.settle();
    assert_eq!((cluster.sums(id), cluster.value(NodeId(1), 1)), (Some(vec![1]), Some(1)));
}

#[test]
fn a_timestamp_far_ahead_is_refused_for_good() {
    let mut cluster = Cluster::new();
    let wild = cluster.incrementing(&[1]);
    let far = Time(cluster.time().0 + 5000 * MS);
    cluster.repeat(CLIENT, NodeId(0), submit(far, &wild));
    cluster.settle();
    let near = cluster.time();
    cluster.repeat(CLIENT, NodeId(0), submit(near, &wild));
    cluster.settle();
    assert_eq!(cluster.value(NodeId(0), 1), None);
}

/// Rule T4: what is read in a range that is also written belongs to what a vote is about.
#[test]
fn votes_differ_where_a_range_that_is_read_and_written_does() {
    let mut cluster = Cluster::new();
    // Followers lack it.
    cluster.increment(&[1]);
    cluster.deliver(|_, to, _| to == NodeId(0));
    cluster.pass(HEADROOM);
    let counting = cluster.counting(1);
    let id = counting.id;
    cluster.begin(counting);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), None, "the leader has counted a row that followers do not have");
    cluster.settle();
    assert_eq!((cluster.sums(id), cluster.path(id)), (Some(vec![1]), Some(Path::Slow)));
}
