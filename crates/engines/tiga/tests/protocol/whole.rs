//! Procedures of shape `Whole` on several shards: leaders send each other what is read, and execute alike.

use super::cluster::{Cluster, HEADROOM, TABLE};
use shoal_tiga::coordinator::Outcome;
use shoal_tiga::message::Message;
use shoal_tiga::observation::Path;
use shoal_types::{Conflict, NodeId, Rejected, ShardId};

/// Key 1, of shard 0, is one, and key 101, of shard 1, is two.
fn one_and_two() -> Cluster {
    let mut cluster = Cluster::new();
    for _ in 0..2 {
        cluster.increment(&[101]);
    }
    cluster.increment(&[1]);
    cluster.settle();
    cluster
}

#[test]
fn what_is_read_on_one_shard_is_written_on_another() {
    let mut cluster = one_and_two();
    let swapping = cluster.swapping([1, 101]);
    let id = swapping.id;
    cluster.begin(swapping);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    assert_eq!(cluster.sums(id), Some(vec![1, 2, 1, 2]), "each leader has found the same");
    let path = cluster.path(id);
    assert_eq!(path, Some(Path::Fast), "in one round trip");
    cluster.settle();
    assert_eq!((cluster.value(NodeId(2), 1), cluster.value(NodeId(4), 101)), (Some(2), Some(1)));
}

/// Rule T18.
#[test]
fn what_is_not_decided_is_not_sent() {
    let mut cluster = one_and_two();
    let is_ready = |message: &&Message| matches!(message, Message::Ready { shard: ShardId(0), .. });
    cluster.increment(&[1]);
    cluster.deliver(|_, to, _| to == NodeId(0));
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    let swapping = cluster.swapping([1, 101]);
    let id = swapping.id;
    cluster.begin(swapping);
    cluster.deliver(|_, to, _| to == NodeId(0) || to == NodeId(3));
    cluster.pass(HEADROOM);
    assert_eq!(cluster.messages().filter(is_ready).count(), 0, "its row is not decided");
    cluster.settle();
    assert_eq!(cluster.sums(id), Some(vec![2, 2, 2, 2]));
}

/// The record of the shard that has released it says what was read on the other, whose leader is lost.
#[test]
fn what_another_shard_has_executed_is_imported_with_what_it_read() {
    let mut cluster = one_and_two();
    let swapping = cluster.swapping([1, 101]);
    let id = swapping.id;
    cluster.begin(swapping);
    cluster.release_on_one_shard();
    assert_eq!(cluster.sums(id), Some(vec![1, 2, 1, 2]));
    assert_eq!((cluster.value(NodeId(2), 1), cluster.value(NodeId(4), 101)), (Some(2), Some(1)));
}

/// Rule T13, at all participants alike.
#[test]
fn what_touches_more_than_it_declares_has_no_effect() {
    let mut cluster = one_and_two();
    let mut swapping = cluster.swapping([1, 101]);
    swapping.parts[1].reads.clear();
    let id = swapping.id;
    cluster.begin(swapping);
    cluster.settle();
    let Some(Outcome::Committed(results)) = cluster.ended(id).map(|ended| &ended.outcome) else {
        panic!("it is over")
    };
    let is_undeclared = |error: &shoal_types::Error| {
        matches!(error, shoal_types::Error::Rejected(Rejected::Undeclared { .. }))
    };
    assert!(results.iter().all(|result| result.as_ref().is_err_and(is_undeclared)), "{results:?}");
    assert_eq!((cluster.value(NodeId(2), 1), cluster.value(NodeId(4), 101)), (Some(1), Some(2)));
}

/// Of a range that is also written, only its end is sent: what is appended finds that nothing is there.
#[test]
fn what_is_appended_to_a_range_is_executed_and_what_is_inserted_before_its_end_is_not() {
    let mut cluster = one_and_two();
    let ended = [(101, 5), (101, 7), (101, 6)].map(|(prefix, last)| {
        let appending = cluster.appending(1, prefix, last);
        let id = appending.id;
        cluster.begin(appending);
        cluster.settle();
        let ended = cluster.ended(id).map(|ended| ended.outcome.clone());
        let Some(Outcome::Committed(results)) = ended else { panic!("it is over") };
        results.into_iter().map(|result| result.err()).collect::<Vec<_>>()
    });
    let range_changed = shoal_types::Aborted::from(Conflict::RangeChanged { table: TABLE });
    let refused = Some(range_changed.into());
    assert_eq!(ended, [vec![None; 2], vec![None; 2], vec![refused; 2]]);
    let values = [5, 6, 7].map(|last| cluster.value_of(NodeId(4), &[101, last]));
    assert_eq!(values, [Some(1), None, Some(1)]);
}

/// A range may have rows on several shards: what is written into it, one of them has.
#[test]
fn what_is_written_into_a_range_of_several_shards_is_written_at_its_home() {
    let mut cluster = one_and_two();
    let appending = cluster.appending_anywhere(1, 101, 5);
    let id = appending.id;
    cluster.begin(appending);
    cluster.settle();
    assert_eq!(cluster.sums(id), Some(vec![]));
    let of = |node: u32, shard| {
        let replica = cluster.node(NodeId(node)).replica(ShardId(shard)).expect("has it");
        replica.ledger().rows.get(TABLE, &[101, 5]).is_some()
    };
    assert_eq!([of(0, 0), of(3, 1)], [false, true]);
}
