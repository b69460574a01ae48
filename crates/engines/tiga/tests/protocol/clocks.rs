//! Agreement by the clocks (ε mode, §6 of the paper): what is released without a `Ready`, what is not, and the bug that waits too
//! short.

use super::cluster::{CLIENT, Cluster, HEADROOM, MS, submit, voters};
use shoal_engine::PlantedBugs;
use shoal_tiga::message::Message;
use shoal_tiga::transaction::Transaction;
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{NodeId, Time};
use std::time::Duration;

/// The leaders of the two shards.
const LEADERS: [NodeId; 2] = [NodeId(0), NodeId(3)];

const EPSILON: Duration = Duration::from_millis(4);

fn options() -> TigaOptions {
    TigaOptions { epsilon: Some(EPSILON), ..TigaOptions::default() }
}

fn released(cluster: &Cluster) -> [u64; 2] {
    LEADERS.map(|leader| cluster.counters(leader).released)
}

/// All that is not a `Ready`.
fn is_no_ready(_: NodeId, _: NodeId, message: &Message) -> bool {
    !matches!(message, Message::Ready { .. })
}

/// A transaction of both shards begins, and `later` after its timestamp this is what its leaders have released.
fn released_after(options: TigaOptions, later: Duration) -> [u64; 2] {
    let mut cluster = Cluster::with(options);
    let transaction = cluster.incrementing(&[1, 101]);
    released_of(&mut cluster, transaction, later)
}

fn released_of(cluster: &mut Cluster, transaction: Transaction, later: Duration) -> [u64; 2] {
    cluster.begin(transaction);
    cluster.deliver(is_no_ready);
    cluster.pass(HEADROOM + later);
    cluster.deliver(is_no_ready);
    released(cluster)
}

#[test]
fn leaders_release_by_their_clocks() {
    assert_eq!(released_after(options(), EPSILON), [1, 1]);
    assert_eq!(released_after(options(), Duration::ZERO), [0, 0], "their clocks may differ");
    assert_eq!(released_after(TigaOptions::default(), EPSILON), [0, 0], "this is not that mode");
    let bugs = PlantedBugs::only(TigaPlantedBug::SmallEpsilon);
    assert_eq!(released_after(TigaOptions { bugs, ..options() }, Duration::ZERO), [1, 1]);
}

#[test]
fn what_is_behind_its_clock_a_leader_raises() {
    let mut cluster = Cluster::with(options());
    let transaction = cluster.incrementing(&[1]);
    let late = Time(cluster.time().0 - MS);
    for voter in voters(0) {
        cluster.repeat(CLIENT, voter, submit(late, &transaction));
    }
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.counters(NodeId(0)).raised, 1);
    assert_eq!(cluster.counters(NodeId(1)).late, 1, "its leader's log says where it belongs");
}

#[test]
fn a_node_whose_clock_is_inaccurate_takes_no_part() {
    let mut cluster = Cluster::with(options());
    cluster.set_accurate(NodeId(3), false);
    let transaction = cluster.incrementing(&[1, 101]);
    assert_eq!(released_of(&mut cluster, transaction, EPSILON), [0, 0], "it accepts nothing");
    cluster.set_accurate(NodeId(3), true);
    cluster.settle();
    let transaction = cluster.incrementing(&[2, 102]);
    let before = released(&cluster);
    cluster.begin(transaction);
    cluster.deliver(is_no_ready);
    cluster.set_accurate(NodeId(0), false);
    cluster.pass(HEADROOM + EPSILON);
    cluster.deliver(is_no_ready);
    assert_eq!(released(&cluster), [before[0], before[1] + 1], "it releases nothing");
}

/// Whether a call has an outcome, its home says, and no clock.
#[test]
fn others_wait_for_the_home_of_a_call() {
    let mut cluster = Cluster::with(options());
    let transaction = cluster.incrementing_once(&[1, 101]);
    assert_eq!(released_of(&mut cluster, transaction, EPSILON), [1, 0]);
}

#[test]
fn what_is_executed_as_a_whole_waits_for_all() {
    let mut cluster = Cluster::with(options());
    let transaction = cluster.swapping([1, 101]);
    assert_eq!(released_of(&mut cluster, transaction, EPSILON), [0, 0]);
}

/// Another leader may have released it, and what rests on it there may be committed.
#[test]
fn reads_wait_for_what_others_may_have_released() {
    let mut cluster = Cluster::with(options());
    cluster.increment(&[1, 101]);
    cluster
        .deliver(|_, to, message| to != NodeId(0) || !matches!(message, Message::Propose { .. }));
    cluster.pass(HEADROOM + EPSILON);
    cluster
        .deliver(|_, to, message| to != NodeId(0) || !matches!(message, Message::Propose { .. }));
    assert_eq!(released(&cluster), [0, 1]);
    assert_eq!(cluster.answers_to_read(NodeId(0)), 0);
}

#[test]
fn everything_goes_on_in_this_mode() {
    let mut cluster = Cluster::with(options());
    let ids = [&[1, 101][..], &[1], &[101], &[1, 101]].map(|keys| cluster.increment(keys));
    cluster.settle();
    assert!(ids.iter().all(|id| cluster.sums(*id).is_some()));
    assert_eq!(cluster.value(NodeId(0), 1), Some(3));
    assert_eq!(cluster.value(NodeId(3), 101), Some(3));
}
