//! How distances choose the path: leaders that are far apart vote before they have agreed, followers report what they have synced,
//! and what is near waits for the logs.

use super::cluster::{CLIENT, Cluster, HEADROOM, MS, submit, voters};
use shoal_engine::{PlantedBugs, TransactionId};
use shoal_tiga::message::Message;
use shoal_tiga::observation::Path;
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{NodeId, ShardId, Time};
use std::time::Duration;

/// A cluster whose leaders vote before they have agreed, from their second transaction on: by then they know how far they are.
fn detective(options: TigaOptions) -> Cluster {
    let mut cluster = Cluster::with(TigaOptions { detective_from: Duration::ZERO, ..options });
    cluster.increment(&[3, 103]);
    cluster.settle();
    cluster
}

fn is_between_leaders(from: NodeId, to: NodeId) -> bool {
    [(NodeId(0), NodeId(3)), (NodeId(3), NodeId(0))].contains(&(from, to))
}

/// A transaction of both shards is committed by votes, and no leader has received anything of the other.
fn commit_before_agreement(cluster: &mut Cluster) -> TransactionId {
    let id = cluster.increment(&[1, 101]);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.pass(HEADROOM);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    assert_eq!(cluster.sums(id), Some(vec![1, 1]));
    assert_eq!(cluster.path(id), Some(Path::Fast));
    id
}

#[test]
fn votes_commit_before_leaders_have_agreed() {
    let mut cluster = detective(TigaOptions::default());
    commit_before_agreement(&mut cluster);
    cluster.settle();
    assert!(voters(0).into_iter().all(|node| cluster.value(node, 1) == Some(1)));
    assert!(voters(1).into_iter().all(|node| cluster.value(node, 101) == Some(1)));
}

#[test]
fn near_leaders_agree_first() {
    let detective_from = Duration::from_millis(10);
    let mut cluster = Cluster::with(TigaOptions { detective_from, ..TigaOptions::default() });
    cluster.increment(&[3, 103]);
    cluster.settle();
    let id = cluster.increment(&[1, 101]);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.pass(HEADROOM);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    assert_eq!(cluster.sums(id), None);
}

/// What was committed by such votes survives the loss of a leader, and a leader that is appointed again (E11).
#[test]
fn what_was_committed_before_agreement_stays() {
    let mut cluster = detective(TigaOptions::default());
    commit_before_agreement(&mut cluster);
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    assert_eq!((cluster.value(NodeId(1), 1), cluster.value(NodeId(3), 101)), (Some(1), Some(1)));

    let mut cluster = detective(TigaOptions::default());
    commit_before_agreement(&mut cluster);
    cluster.appoint(0, NodeId(0), 2);
    cluster.settle();
    assert_eq!((cluster.value(NodeId(0), 1), cluster.value(NodeId(3), 101)), (Some(1), Some(1)));
}

/// What was committed among three voters is not lost among four: the one that was added knows nothing of it (rule T7).
#[test]
fn what_was_committed_stays_when_a_voter_is_added() {
    let mut cluster = detective(TigaOptions::default());
    commit_before_agreement(&mut cluster);
    cluster.add_voter(CLIENT);
    cluster.appoint_from(0, NodeId(0), 2, &[NodeId(0), NodeId(1), CLIENT]);
    cluster.settle();
    assert_eq!((cluster.value(NodeId(0), 1), cluster.value(NodeId(3), 101)), (Some(1), Some(1)));
}

/// Its coordinator does not say that such a transaction is over before all participants have it decided: a recovery drops what
/// is over and stands in no log.
#[test]
fn what_was_committed_before_agreement_is_not_over() {
    let mut cluster = detective(TigaOptions::default());
    let id = commit_before_agreement(&mut cluster);
    let oldest = |cluster: &Cluster| cluster.node(CLIENT).coordinator().oldest(CLIENT, id.worker);
    assert_eq!(oldest(&cluster), Some(id.sequence), "it stands in no log");
    let mut next = cluster.incrementing(&[2]);
    next.oldest = oldest(&cluster).unwrap_or(next.id.sequence);
    cluster.begin(next);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.pass(HEADROOM);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.decide(0);
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    assert_eq!((cluster.value(NodeId(1), 1), cluster.value(NodeId(3), 101)), (Some(1), Some(1)));
    assert_eq!(oldest(&cluster), None, "all participants have it");
}

/// A later process of the coordinator says that all transactions of the former one are over, which does not know what that one has
/// acknowledged. Then a leader is lost. The values afterwards.
fn over_by_a_later_process(options: TigaOptions) -> [Option<i64>; 2] {
    let mut cluster = detective(options);
    commit_before_agreement(&mut cluster);
    let mut next = cluster.incrementing(&[2]);
    next.oldest = next.id.sequence;
    cluster.begin(next);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.pass(HEADROOM);
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    voters(0).into_iter().for_each(|voter| cluster.sync(0, voter));
    cluster.decide(0);
    assert_eq!(cluster.value(NodeId(1), 2), Some(1), "the later process has committed");
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    [cluster.value(NodeId(1), 1), cluster.value(NodeId(3), 101)]
}

/// Rule T7.
#[test]
fn what_a_former_process_has_committed_is_kept() {
    assert_eq!(over_by_a_later_process(TigaOptions::default()), [Some(1); 2]);
    let bugs = PlantedBugs::only(TigaPlantedBug::DropWhatIsOver);
    assert_eq!(over_by_a_later_process(TigaOptions { bugs, ..TigaOptions::default() }), [None; 2]);
}

/// Reads do not miss what such a vote may have committed (rule T11).
#[test]
fn reads_wait_for_what_was_voted_for() {
    let mut cluster = detective(TigaOptions::default());
    commit_before_agreement(&mut cluster);
    assert_eq!(cluster.answers_to_read(NodeId(0)), 0, "it is not released here");
    cluster.settle();
    assert_eq!(cluster.answers_to_read(NodeId(0)), 1);
}

/// The leader of shard 0 votes for a transaction that the one of shard 1 raises, behind another transaction of shard 0. Returns
/// what is there in the end, and how many executions were discarded.
fn raised_after_a_vote(options: TigaOptions) -> (Option<i64>, u64) {
    let mut cluster = detective(options);
    let now = cluster.time().0;
    let (raised, between, later) =
        (cluster.incrementing(&[1, 101]), cluster.incrementing(&[1]), cluster.incrementing(&[101]));
    cluster.repeat(CLIENT, NodeId(3), submit(Time(now + 3 * MS), &later));
    cluster.deliver(|_, _, _| true);
    cluster.pass(Duration::from_millis(3));
    cluster.deliver(|_, _, _| true);
    for leader in [NodeId(0), NodeId(3)] {
        cluster.repeat(CLIENT, leader, submit(Time(now + MS), &raised));
    }
    cluster.repeat(CLIENT, NodeId(0), submit(Time(now + 2 * MS), &between));
    cluster.deliver(|from, to, _| !is_between_leaders(from, to));
    cluster.settle();
    let counters = cluster.node(NodeId(0)).replica(ShardId(0)).expect("has it").counters();
    (cluster.value(NodeId(0), 1), counters.discarded)
}

#[test]
fn an_execution_at_another_timestamp_leaves_nothing() {
    assert_eq!(raised_after_a_vote(TigaOptions::default()), (Some(2), 1));
    let bugs = PlantedBugs::only(TigaPlantedBug::KeepRevoked);
    assert_eq!(raised_after_a_vote(TigaOptions { bugs, ..TigaOptions::default() }), (Some(1), 1));
}

/// The coordinator does not wait for the leader's word where a follower that could not vote has synced.
#[test]
fn followers_report_what_they_have_synced() {
    let mut cluster = Cluster::new();
    let id = cluster.increment_without_a_vote();
    cluster.sync(0, NodeId(1));
    assert_eq!(cluster.messages().count(), 0, "its vote was as the leader's");
    cluster.sync(0, NodeId(2));
    assert!(matches!(cluster.messages().next(), Some(Message::Synced { .. })));
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), Some(vec![1]));
    assert_eq!(cluster.path(id), Some(Path::Slow));
}

/// Where a majority is near, only leaders receive a transaction, and its coordinator waits for their logs.
#[test]
fn what_is_near_is_not_voted_for() {
    let mut cluster = Cluster::of(TigaOptions::default());
    cluster.increment(&[1, 101]);
    cluster.settle();
    // From time to time something is voted for, which shows the delays.
    cluster.increment(&[2]);
    cluster.deliver(|_, _, _| true);
    let id = cluster.increment(&[1, 101]);
    let submitted = cluster.messages().filter(|message| matches!(message, Message::Submit { .. }));
    assert_eq!(submitted.count(), 2, "to its leaders");
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), None, "no log has it");
    for shard in 0..2 {
        cluster.sync(shard, voters(shard)[1]);
        assert_eq!(cluster.messages().count(), 0, "nothing waits for that follower");
        cluster.decide(shard);
        cluster.deliver(|_, _, _| true);
    }
    assert_eq!(cluster.sums(id), Some(vec![2, 2]));
    let counters = cluster.node(CLIENT).coordinator().counters;
    assert_eq!((counters.fast, counters.by_log, counters.slow), (2, 1, 0));
}
