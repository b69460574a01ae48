//! Interactive transactions: what travels, in which order, and what is asked again.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use shoal_client::{Aborted, ClusterOptions, Error, NodeId, Rejected, ShardId, Unknown};
use shoal_engine::client::{ClientReply, ClientRequest, SessionEnd};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::Random;
use std::time::Duration;

fn quick() -> ClusterOptions {
    ClusterOptions { patience: Duration::from_millis(5), ..options() }
}

/// What was asked, in short.
fn short(asked: &[Asked]) -> Vec<String> {
    let operation = |operation: &Operation| match operation {
        Operation::Get { key, .. } => format!("get {}", key.escape_ascii()),
        Operation::Put { key, value: Some(_), .. } => format!("put {}", key.escape_ascii()),
        Operation::Put { key, value: None, .. } => format!("delete {}", key.escape_ascii()),
        Operation::Scan { .. } => "scan".to_owned(),
        Operation::Insert { key, .. } => format!("insert {}", key.escape_ascii()),
    };
    let text = |asked: &Asked| match &asked.what {
        ClientRequest::Steps { number, operations, ending, .. } => {
            let steps = operations.iter().map(operation);
            let steps = steps.chain(ending.as_ref().map(|ending| format!("{ending:?}")));
            format!("{number}: {}", steps.collect::<Vec<_>>().join(", "))
        }
        ClientRequest::Call { .. }
        | ClientRequest::Resolve { .. }
        | ClientRequest::OpenCalls { .. }
        | ClientRequest::ChangeTable { .. }
        | ClientRequest::Register => "call".to_owned(),
    };
    asked.iter().map(text).collect()
}

/// A reply to the first step of a message.
fn refuse(asked: &Asked, error: impl Into<Error>) -> Do {
    let ClientRequest::Steps { session, number, .. } = asked.what else { return Do::Nothing };
    Do::Reply(ClientReply::Done { session, number, result: Err(error.into()) })
}

#[test]
fn writes_travel_with_the_next_operation_that_has_an_answer() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.put(people, b"a", b"1").expect("put");
        tx.delete(people, b"b").expect("deleted");
        tx.put(people, b"a", b"2").expect("put");
        assert!(cluster.asked().is_empty(), "nothing has to be sent yet");
        tx.get(people, b"c").await.expect("read");
        tx.put(people, b"d", b"3").expect("put");
        tx.commit().await.expect("committed");
        let empty = db.begin().expect("room");
        empty.commit().await.expect("nothing to commit");
    });
    let asked = short(&cluster.asked());
    assert_eq!(asked, ["0: put a, delete b, get c", "3: put d, Commit"]);
}

#[test]
fn a_transaction_that_only_writes_is_one_message_and_one_with_a_read_two() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        db.transact(async |tx| tx.put(people, b"a", b"1")).await.expect("committed");
        db.transact(async |tx| tx.add(people, b"b", 1).await.map(drop)).await.expect("committed");
    });
    let asked = short(&cluster.asked());
    assert_eq!(asked, ["0: put a, Commit", "0: get b", "1: put b, Commit"]);
}

#[test]
fn reads_that_were_announced_travel_together() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.prefetch(&[
            (people, b"a"),
            (people, b"b"),
            (people, b""),
            (people, b"c"),
            (people, b"d"),
        ]);
        assert!(cluster.asked().is_empty(), "nothing has to be sent yet");
        tx.put(people, b"d", b"1").expect("put");
        assert_eq!(tx.get(people, b"b").await, Ok(None));
        assert_eq!(tx.get(people, b"a").await, Ok(None));
        tx.put(people, b"c", b"1").expect("put");
        assert_eq!(tx.get(people, b"c").await, Ok(None), "asked anew, as the nodes have no memory");
        tx.commit().await.expect("committed");
    });
    let asked = short(&cluster.asked());
    assert_eq!(asked, ["0: put d, get b, get a, get c", "4: put c, get c", "6: Commit"]);
}

#[test]
fn reads_that_are_awaited_together_are_sent_together() {
    // None is answered before all have come.
    let mut held = Vec::new();
    let cluster = Scripted::start(1, move |asked| {
        let ClientRequest::Steps { session, number, ending: None, .. } = asked.what else {
            return Do::Naturally;
        };
        let result = Ok(OperationResult::Value(None));
        held.push(ClientReply::Done { session, number, result });
        if held.len() < 3 && session > 1 { Do::Nothing } else { Do::Replies(held.split_off(0)) }
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        // The connection is registered then.
        let first = db.begin().expect("room");
        assert!(first.get(people, b"0").await.is_ok());
        let tx = db.begin().expect("room");
        let (a, b, c) =
            tokio::join!(tx.get(people, b"a"), tx.get(people, b"b"), tx.get(people, b"c"));
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
    });
    let asked = short(&cluster.asked());
    let together: Vec<&String> = asked.iter().filter(|it| !it.contains("get 0")).collect();
    assert_eq!(together[..3], ["0: get a", "1: get b", "2: get c"]);
}

#[test]
fn dropping_rolls_back_without_waiting() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.get(people, b"a").await.expect("read");
        tx.put(people, b"b", b"1").expect("put");
        drop(tx);
        cluster.until(|asked| asked.ending() == Some(SessionEnd::Rollback)).await;
    });
    assert_eq!(short(&cluster.asked()), ["0: get a", "1: Rollback"]);
}

#[test]
fn a_transaction_that_is_gone_with_the_client_is_rolled_back_too() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.get(people, b"a").await.expect("read");
        drop((db, tx));
        cluster.until(|asked| asked.ending().is_some()).await;
    });
}

#[test]
fn what_a_node_without_a_lease_passed_over_is_asked_again() {
    // It receives nothing at first, and has forgotten the connection then.
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        match (times, &asked.what) {
            (1 | 2, _) => Do::Nothing,
            (3, ClientRequest::Steps { session, .. }) => {
                refuse(asked, Aborted::UnknownSession { session: *session })
            }
            _ => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        assert_eq!(tx.get(people, b"a").await, Ok(None));
        tx.commit().await.expect("committed");
    });
    let asked = cluster.asked();
    let begun = asked.iter().filter_map(|asked| match asked.what {
        ClientRequest::Steps { session, number: 0, .. } => Some(session),
        _ => None,
    });
    let begun: Vec<u64> = begun.collect();
    assert!(begun.is_sorted() && begun.first() < begun.last(), "under a new number: {begun:?}");
}

#[test]
fn a_commit_that_a_node_does_not_know_is_sent_once_more_under_another_name() {
    // It has forgotten the connection when it is asked for the first time.
    let cluster = Scripted::start(1, |asked| match asked.what {
        ClientRequest::Steps { session: session @ 1, .. } => {
            refuse(asked, Unknown::Session { session })
        }
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let mut runs = 0;
        let outcome = db.transact(async |tx| {
            runs += 1;
            tx.put(people, b"a", b"1")
        });
        assert_eq!(outcome.await, Ok(()));
        assert_eq!(runs, 1);
    });
    assert_eq!(short(&cluster.asked()), ["0: put a, Commit"; 2]);
}

#[test]
fn a_commit_that_was_sent_again_and_is_not_known_is_unknown_and_not_run_again() {
    // It has passed over the first message, or has committed and forgotten that.
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        match asked.what {
            ClientRequest::Steps { session, .. } if times > 1 => {
                refuse(asked, Unknown::Session { session })
            }
            _ => Do::Nothing,
        }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        let outcome = db.transact(async |tx| tx.put(people, b"a", b"1")).await;
        assert_eq!(outcome, Err(Unknown::Session { session: 1 }.into()));
    });
    let is_first = |asked: &Asked| matches!(asked.what, ClientRequest::Steps { session: 1, .. });
    assert!(cluster.asked().iter().all(is_first), "nothing is asked for anew");
}

#[test]
fn a_write_that_is_refused_spoils_the_transaction() {
    let full = Error::from(Rejected::MemoryFull { bytes: 9, max: 9 });
    let refusal = full.clone();
    let cluster = Scripted::start(1, move |asked| refuse(asked, refusal.clone()));
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.put(people, b"a", b"1").expect("put");
        assert_eq!(tx.commit().await, Err(full.clone()));
        let outcome = db.transact(async |tx| tx.put(people, b"a", b"1")).await;
        assert_eq!(outcome, Err(full.clone()));
    });
    assert_eq!(short(&cluster.asked()), ["0: put a, Commit", "0: put a, Commit"], "and not again");
}

#[test]
fn an_overloaded_node_is_left_in_peace() {
    let overloaded = Aborted::Overloaded { open: 9, limit: "open_max", max: 9 };
    let cluster = Scripted::start(1, move |asked| refuse(asked, overloaded));
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let outcome = db.transact(async |tx| tx.get(people, b"a").await.map(drop)).await;
        assert_eq!(outcome, Err(overloaded.into()));
    });
    assert_eq!(cluster.asked().len(), 1);
}

#[test]
fn it_runs_where_its_first_key_is_led() {
    let cluster = Scripted::start(3, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        for key in 0..20_u8 {
            let leader = db.leader(db.home(people, &[key]).expect("a home"));
            db.transact(async |tx| tx.put(people, &[key], b"")).await.expect("committed");
            assert_eq!(leader, Some(cluster.asked().last().expect("asked").node));
        }
        let nodes = cluster.asked().into_iter().map(|asked| asked.node);
        let nodes: std::collections::BTreeSet<NodeId> = nodes.collect();
        assert_eq!(nodes.len(), 3);
    });
}

/// Returns what it is asked.
fn echo(what: ClientRequest) -> Option<ClientReply> {
    match what {
        ClientRequest::Steps { session, number, operations, .. } => match operations.first() {
            Some(Operation::Get { key, .. }) => Some(ClientReply::Done {
                session,
                number,
                result: Ok(OperationResult::Value(Some(key.clone()))),
            }),
            _ => None,
        },
        ClientRequest::Call { id, arguments, .. } => {
            Some(ClientReply::Called { id, result: Ok(arguments) })
        }
        ClientRequest::OpenCalls { .. }
        | ClientRequest::Resolve { .. }
        | ClientRequest::ChangeTable { .. }
        | ClientRequest::Register => None,
    }
}

/// A transaction that ends before it would ask again leaves that to the next.
#[test]
fn a_registration_that_was_not_heard_is_asked_for_by_the_next_transaction() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    cluster.lose_registrations(2);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        for _ in 0..2 {
            let hasty = db.with_deadline(Duration::from_millis(20));
            let read = hasty.transact(async |tx| tx.get(people, b"a").await.map(drop)).await;
            let is_unanswered = matches!(read, Err(Error::Aborted(Aborted::Unanswered(_))));
            assert!(is_unanswered, "{read:?}");
        }
        db.transact(async |tx| tx.get(people, b"a").await.map(drop)).await.expect("registered");
    });
    assert_eq!(short(&cluster.asked()), ["0: get a", "1: Commit"]);
}

/// Over one connection, late, repeated, and in any order.
#[test]
fn every_answer_reaches_whoever_asked() {
    const EACH: u32 = 60;
    for seed in 0..4 {
        let (mut random, mut held) = (Random::new(seed), Vec::new());
        let cluster = Scripted::start(1, move |asked| {
            let Some(reply) = echo(asked.what.clone()) else { return Do::Naturally };
            held.push(reply);
            random.shuffle(&mut held);
            let least = held.len().saturating_sub(20);
            let count = random.range_inclusive(least as u64, held.len() as u64) as usize;
            let mut replies = held.split_off(held.len() - count);
            if random.chance(1, 3) {
                replies.extend(replies.clone());
            }
            Do::Replies(replies)
        });
        block_on(async {
            let db = cluster.connect_with(quick()).await;
            let people = db.table("people").expect("a table");
            let tasks = (0..EACH).map(|number| {
                let db = db.clone();
                tokio::spawn(async move {
                    let key = number.to_be_bytes();
                    if number % 2 == 0 {
                        let told = db.call(ShardId(0), "echo", key.to_vec()).await;
                        assert_eq!(told.as_deref(), Ok(&key[..]));
                        return;
                    }
                    let tx = db.begin().expect("room");
                    assert_eq!(tx.get(people, &key).await, Ok(Some(&key[..])));
                    assert_eq!(tx.get(people, &key[3..]).await, Ok(Some(&key[3..])));
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("told");
            }
        });
    }
}
