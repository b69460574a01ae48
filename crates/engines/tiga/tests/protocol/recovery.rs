//! Leaders that are lost, and what their successors keep.

use super::cluster::{CLIENT, Cluster, HEADROOM, voters};
use shoal_engine::{PlantedBugs, TransactionId};
use shoal_tiga::coordinator::Outcome;
use shoal_tiga::message::Message;
use shoal_tiga::observation::Path;
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{Ballot, Epoch, NodeId, ShardId};
use std::time::Duration;

/// A transaction commits by votes, and its leader is lost before any other replica has its log. The value afterwards.
fn fast_and_lost(options: TigaOptions) -> Option<i64> {
    let mut cluster = Cluster::with(options);
    let id = cluster.increment(&[1]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    let path = cluster.path(id);
    assert_eq!(path, Some(Path::Fast));
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    cluster.value(NodeId(2), 1)
}

/// Rule T7.
#[test]
fn what_votes_have_committed_is_kept() {
    assert_eq!(fast_and_lost(TigaOptions::default()), Some(1));
    let bugs = PlantedBugs::only(TigaPlantedBug::ForgetTentative);
    assert_eq!(fast_and_lost(TigaOptions { bugs, ..TigaOptions::default() }), None);
}

/// A transaction is released by one shard; the leader of the other is lost before it has appended it. The other's value.
fn released_elsewhere(options: TigaOptions) -> Option<i64> {
    let mut cluster = Cluster::with(options);
    let id = cluster.increment(&[1, 101]);
    cluster.release_on_one_shard();
    assert_eq!(cluster.value(NodeId(4), 101), Some(1), "it is released on shard 1");
    let committed = cluster.sums(id).is_some();
    let value = cluster.value(NodeId(2), 1);
    assert_eq!(committed, value.is_some());
    value
}

/// Rule T8.
#[test]
fn what_another_shard_has_released_is_imported() {
    assert_eq!(released_elsewhere(TigaOptions::default()), Some(1));
    let bugs = PlantedBugs::only(TigaPlantedBug::ForgetImports);
    assert_eq!(released_elsewhere(TigaOptions { bugs, ..TigaOptions::default() }), None);
}

#[test]
fn what_only_a_lost_leader_had_is_gone_and_said_to_be() {
    let mut cluster = Cluster::new();
    let id = cluster.increment(&[1, 101]);
    cluster.deliver(|_, to, _| to == NodeId(0));
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    let outcome = cluster.ended(id).map(|ended| ended.outcome.clone());
    assert!(matches!(outcome, Some(Outcome::Gone(_))), "{outcome:?}");
    assert_eq!([cluster.value(NodeId(2), 1), cluster.value(NodeId(4), 101)], [None; 2]);
}

/// The followers of a shard vote for a transaction that its leader refuses, for its timestamp is far ahead of that clock.
fn refused_by_the_leader(options: TigaOptions) -> (Cluster, TransactionId) {
    let mut cluster = Cluster::with(options);
    for node in [CLIENT, NodeId(1), NodeId(2)] {
        cluster.set_ahead(node, Duration::from_secs(2));
    }
    let id = cluster.increment(&[1]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    (cluster, id)
}

/// The leader is lost before another replica has its refusal. Whether the coordinator reports it, and the value.
fn refused_and_lost(options: TigaOptions) -> (bool, Option<i64>) {
    let (mut cluster, id) = refused_by_the_leader(options);
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    let outcome = cluster.ended(id).map(|ended| ended.outcome.clone());
    (matches!(outcome, Some(Outcome::Gone(_))), cluster.value(NodeId(2), 1))
}

/// Rule T21.
#[test]
fn a_refusal_is_reported_only_once_no_successor_can_keep_the_transaction() {
    assert_eq!(refused_and_lost(TigaOptions::default()), (false, Some(1)), "it is committed");
    let bugs = PlantedBugs::only(TigaPlantedBug::RefuseBeforeRecord);
    let options = TigaOptions { bugs, ..TigaOptions::default() };
    assert_eq!(refused_and_lost(options), (true, Some(1)), "the client received another answer");
}

#[test]
fn no_successor_keeps_what_is_refused_by_a_decided_entry() {
    let (mut cluster, id) = refused_by_the_leader(TigaOptions::default());
    assert!(cluster.ended(id).is_none(), "its refusal is not decided");
    cluster.sync(0, NodeId(1));
    cluster.decide(0);
    cluster.deliver(|_, _, _| true);
    let outcome = cluster.ended(id).map(|ended| ended.outcome.clone());
    assert_eq!(outcome, Some(Outcome::Gone(ShardId(0))));
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(2), 2);
    cluster.settle();
    assert_eq!([NodeId(1), NodeId(2)].map(|node| cluster.value(node, 1)), [None; 2]);
}

#[test]
fn all_leaders_are_lost_and_the_survivors_go_on() {
    let mut cluster = Cluster::new();
    let first = cluster.increment(&[1, 101]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(first), Some(vec![1, 1]), "committed by votes alone");
    cluster.crash(NodeId(0));
    cluster.crash(NodeId(3));
    cluster.appoint(0, NodeId(1), 2);
    cluster.appoint(1, NodeId(4), 2);
    cluster.settle();
    assert_eq!([cluster.value(NodeId(2), 1), cluster.value(NodeId(5), 101)], [Some(1); 2]);
    let second = cluster.increment(&[1, 101]);
    cluster.settle();
    assert_eq!(cluster.sums(second), Some(vec![2, 2]));
}

/// The same leader gets another ballot, as when a voter has lost its memory.
#[test]
fn a_leader_recovers_its_own_shard_under_another_ballot() {
    let mut cluster = Cluster::new();
    let first = cluster.increment(&[1]);
    cluster.settle();
    cluster.appoint(0, NodeId(0), 2);
    let second = cluster.increment(&[1, 101]);
    cluster.settle();
    assert_eq!((cluster.sums(first), cluster.sums(second)), (Some(vec![1]), Some(vec![2, 1])));
    assert!(voters(0).into_iter().all(|node| cluster.value(node, 1) == Some(2)));
}

/// T is released by shard 1 alone, and A behind it there is committed. Then B begins, on shard 0, with a timestamp below that of T.
/// Its followers, which lack T, vote for B, and its leader, which is ready for T, is lost. B, with what it found, or nothing.
fn begun_after_what_is_imported(options: TigaOptions) -> Option<Vec<u8>> {
    let mut cluster = Cluster::with(options);
    let leaders = [CLIENT, NodeId(0), NodeId(3), NodeId(4), NodeId(5)];
    for node in leaders {
        cluster.set_ahead(node, Duration::from_millis(100));
    }
    let both = cluster.increment(&[1, 101]);
    cluster.deliver(|_, to, _| !(NodeId(1)..=NodeId(2)).contains(&to));
    cluster.pass(HEADROOM);
    cluster.deliver(|from, to, _| (from, to) != (NodeId(3), NodeId(0)));
    let behind = cluster.increment(&[101]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    voters(1).into_iter().for_each(|voter| cluster.sync(1, voter));
    cluster.decide(1);
    cluster.deliver(|_, _, _| true);
    assert_eq!((cluster.sums(both), cluster.sums(behind)), (None, Some(vec![2])));

    cluster.set_ahead(CLIENT, Duration::ZERO);
    let late = cluster.increment(&[1]);
    cluster.deliver(|_, to, _| to != NodeId(0));
    cluster.pass(HEADROOM);
    cluster.deliver(|_, to, _| to != NodeId(0));
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    assert_eq!(cluster.sums(both).map(|sums| sums.len()), Some(2));
    cluster.sums(late)
}

#[test]
fn nothing_is_kept_in_front_of_an_import_that_began_after_what_is_behind_it() {
    assert_eq!(begun_after_what_is_imported(TigaOptions::default()), None);
    let bugs = PlantedBugs::only(TigaPlantedBug::KeepInFront);
    let options = TigaOptions { bugs, ..TigaOptions::default() };
    assert_eq!(begun_after_what_is_imported(options), Some(vec![1]), "A ended before B began");
}

/// Shard 1 has decided a transaction, and waits until shard 0 has. Returns it.
fn decided_on_both(cluster: &mut Cluster) -> TransactionId {
    let id = cluster.increment(&[1, 101]);
    let lets =
        |_: NodeId, _: NodeId, message: &Message| !matches!(message, Message::Settled { .. });
    cluster.deliver(lets);
    cluster.pass(HEADROOM);
    cluster.deliver(lets);
    for shard in 0..2 {
        voters(shard).into_iter().for_each(|voter| cluster.sync(shard, voter));
        cluster.decide(shard);
    }
    cluster.deliver(lets);
    assert_eq!(cluster.sums(id), Some(vec![1, 1]));
    id
}

fn settled(id: TransactionId, to: u32, again: bool) -> Message {
    let (to, shard) = (ShardId(to), ShardId(1 - to));
    let node = voters(shard.0)[0];
    let ballot = Ballot { epoch: Epoch(1), node };
    Message::Settled { ids: vec![id], to, shard, ballot, again }
}

/// The leader that shard 0 had before says that it has decided a transaction. Whether shard 1 takes its word.
fn settled_by_a_former_leader(options: TigaOptions) -> bool {
    let mut cluster = Cluster::with(options);
    let id = decided_on_both(&mut cluster);
    cluster.appoint(0, NodeId(1), 2);
    cluster.repeat(NodeId(0), NodeId(3), settled(id, 1, false));
    cluster.deliver_last();
    let replica = cluster.node(NodeId(3)).replica(ShardId(1)).expect("has it");
    replica.ledger().unsettled[&id].waits_for.is_empty()
}

/// Rule T20: the next leader may have to import it from here.
#[test]
fn what_a_former_leader_says_settles_nothing() {
    assert!(!settled_by_a_former_leader(TigaOptions::default()));
    let bugs = PlantedBugs::only(TigaPlantedBug::SettleByFormerLeader);
    assert!(settled_by_a_former_leader(TigaOptions { bugs, ..TigaOptions::default() }));
}

/// A leader does not know of a transaction, and is asked whether it has decided it. Under a lease it has, and has forgotten it;
/// without one, another leader may have released it, which this one has not learned of.
#[test]
fn what_is_unknown_is_settled_only_under_a_lease() {
    for has_lease in [true, false] {
        let mut cluster = Cluster::new();
        let id = cluster.next_id();
        if !has_lease {
            cluster.end_lease(NodeId(0));
        }
        cluster.repeat(NodeId(3), NodeId(0), settled(id, 0, true));
        cluster.deliver_last();
        let is_answer = |message: &&Message| matches!(message, Message::Settled { .. });
        assert_eq!(cluster.messages().filter(is_answer).count(), usize::from(has_lease));
    }
}

/// Votes have committed an increment of key 1, which is not decided.
fn committed_by_votes() -> Cluster {
    let mut cluster = Cluster::new();
    let first = cluster.increment(&[1]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.path(first), Some(Path::Fast));
    cluster
}

/// Rule T23, its other half: a `Ready` names what may be committed in front of it.
#[test]
fn what_votes_have_committed_in_front_of_an_import_stays_there() {
    let mut cluster = committed_by_votes();
    let both = cluster.increment(&[1, 101]);
    cluster.release_on_one_shard();
    assert_eq!(cluster.sums(both), Some(vec![2, 1]));
    assert_eq!(cluster.value(NodeId(2), 1), Some(2), "what was committed first is there");
}

/// The same, where the other leader has imported the transaction from the one that is lost: it has only the record of that one.
#[test]
fn what_votes_have_committed_in_front_of_an_import_stays_there_when_it_is_imported_back() {
    let mut cluster = committed_by_votes();
    let both = cluster.increment(&[1, 101]);
    let lets = |_: NodeId, to: NodeId, _: &Message| !(NodeId(1)..=NodeId(2)).contains(&to);
    cluster.deliver(lets);
    cluster.pass(HEADROOM);
    cluster.deliver(lets);
    cluster.appoint_from(1, NodeId(4), 2, &voters(1)[1..]);
    for _ in 0..4 {
        cluster.deliver(lets);
        voters(1).into_iter().skip(1).for_each(|voter| cluster.sync(1, voter));
        cluster.decide(1);
        cluster.pass(HEADROOM);
    }
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    assert_eq!(cluster.sums(both), Some(vec![2, 1]));
    assert_eq!(cluster.value(NodeId(2), 1), Some(2), "what was committed first is there");
}
