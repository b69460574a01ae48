//! What is on its way and not decided fits into the messages that a recovery sends; and what a leader has to know before it
//! executes.

use super::cluster::{CLIENT, Cluster, HEADROOM, TABLE, voters};
use bytes::Bytes;
use shoal_tiga::TigaOptions;
use shoal_tiga::message::{Message, Read};
use shoal_tiga::observation::Path;
use shoal_types::procedure::{Access, FootprintRange};
use shoal_types::{NodeId, Scan, ShardId, TableId};
use std::cell::Cell;

/// Room for one transaction at most.
fn small() -> TigaOptions {
    TigaOptions { window_bytes: 1, ..TigaOptions::default() }
}

#[test]
fn a_leader_appends_no_more_until_what_it_has_appended_is_decided() {
    let mut cluster = Cluster::with(small());
    for key in [1, 2, 3] {
        cluster.increment(&[key]);
    }
    let before = cluster.counters(NodeId(0)).released;
    cluster.deliver(|_, to, _| to == NodeId(0));
    cluster.pass(HEADROOM);
    for released in 1..=3 {
        assert_eq!(cluster.counters(NodeId(0)).released - before, released);
        cluster.sync(0, NodeId(1));
        cluster.decide(0);
        cluster.deliver(|_, _, _| true);
    }
    cluster.settle();
    assert_eq!([1, 2, 3].map(|key| cluster.value(NodeId(1), key)), [Some(1); 3]);
}

#[test]
fn a_follower_without_room_leaves_it_to_the_log() {
    let mut cluster = Cluster::with(small());
    let id = cluster.increment(&[1]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    let followers = [NodeId(1), NodeId(2)].map(|node| cluster.counters(node));
    assert_eq!(followers.map(|of| (of.without_room, of.votes)), [(1, 0); 2]);
    cluster.settle();
    assert_eq!((cluster.sums(id), cluster.path(id)), (Some(vec![1]), Some(Path::Slow)));
}

/// Shard 1 has released two transactions that the lost leader of shard 0 had promised: its answer has both, in two messages.
#[test]
fn a_recovery_waits_for_all_messages_of_an_answer() {
    let mut cluster = Cluster::with(small());
    for key in [1, 2] {
        cluster.increment(&[key, 100 + key]);
        cluster.deliver(|_, to, _| ![NodeId(1), NodeId(2)].contains(&to));
        cluster.pass(HEADROOM);
        cluster.deliver(|from, to, _| {
            (from, to) != (NodeId(3), NodeId(0)) && ![NodeId(1), NodeId(2), CLIENT].contains(&to)
        });
        cluster.sync(1, NodeId(4));
        cluster.decide(1);
    }
    cluster.crash(NodeId(0));
    cluster.appoint(0, NodeId(1), 2);
    let is_answer = |message: &Message| matches!(message, Message::Answer { .. });
    let is_last = |message: &Message| match message {
        Message::Answer { part, .. } => part.place == 1 && part.parts == 2,
        _ => false,
    };
    let lost = Cell::new(0);
    for _ in 0..4 {
        cluster.deliver(|_, _, message| !is_answer(message));
        cluster.sync(0, NodeId(2));
        cluster.decide(0);
        // The last message of each answer is lost.
        cluster.pass(TigaOptions::default().repeat_after);
        cluster.deliver(|_, _, message| {
            lost.set(lost.get() + u32::from(is_last(message)));
            !is_last(message)
        });
    }
    assert!(lost.get() > 0);
    assert_eq!(cluster.node(NodeId(1)).replica(ShardId(0)).map(|it| it.serves()), Some(None));
    cluster.settle();
    assert_eq!([1, 2].map(|key| cluster.value(NodeId(2), key)), [Some(1); 2]);
    assert_eq!([101, 102].map(|key| cluster.value(NodeId(5), key)), [Some(1); 2]);
}

/// A leader that does not know a table yet would take rows of other shards for its own.
#[test]
fn a_range_waits_for_the_configuration_that_has_its_table() {
    let mut cluster = Cluster::new();
    let mut counting = cluster.counting(1);
    let id = counting.id;
    let range = FootprintRange::of(TableId(1), &Scan::all(), Access::Read);
    counting.parts[0].declared_ranges.push(range);
    cluster.begin(counting);
    cluster.settle();
    assert!(cluster.ended(id).is_none());
    cluster.create_table();
    cluster.settle();
    assert_eq!(cluster.sums(id), Some(vec![0]));
    assert!(voters(0).into_iter().all(|node| cluster.value(node, 1) == Some(0)));
}

/// The coordinator asks for the others.
#[test]
fn reads_that_find_more_than_a_message_takes_are_answered_in_part() {
    let mut cluster = Cluster::with(small());
    for key in [1, 2] {
        cluster.increment(&[key]);
    }
    cluster.settle();
    let read = |key: u8| Read::Key { table: TABLE, key: Bytes::copy_from_slice(&[key]) };
    let reads = vec![read(1), read(2)];
    cluster.repeat(CLIENT, NodeId(0), Message::Reads { shard: ShardId(0), number: 1, reads });
    cluster.deliver_last();
    let found = cluster.messages().find_map(|message| match message {
        Message::ReadsDone { found, .. } => Some(found.len()),
        _ => None,
    });
    assert_eq!(found, Some(1));
}
