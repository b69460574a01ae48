//! Interactive transactions: what travels, in which order, and what is asked again.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use shoal_client::{Aborted, ClusterOptions, Error, NodeId, Rejected, ShardId};
use shoal_engine::client::{ClientReply, ClientRequest, SessionEnd};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::Random;
use std::time::Duration;

fn quick() -> ClusterOptions {
    ClusterOptions { patience: Duration::from_millis(5), ..options() }
}

/// What was asked, in short.
fn short(asked: &[Asked]) -> Vec<String> {
    let text = |asked: &Asked| match &asked.what {
        ClientRequest::Begin { .. } => "begin".to_owned(),
        ClientRequest::Operation { number, operation, .. } => match operation {
            Operation::Get { key, .. } => format!("{number} get {}", key.escape_ascii()),
            Operation::Put { key, value: Some(_), .. } => {
                format!("{number} put {}", key.escape_ascii())
            }
            Operation::Put { key, value: None, .. } => {
                format!("{number} delete {}", key.escape_ascii())
            }
            Operation::Scan { .. } => format!("{number} scan"),
            Operation::Insert { key, .. } => format!("{number} insert {}", key.escape_ascii()),
        },
        ClientRequest::End { number, ending, .. } => format!("{number} {ending:?}"),
        ClientRequest::Call { .. } | ClientRequest::OpenCalls { .. } => "call".to_owned(),
    };
    asked.iter().map(text).collect()
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
    assert_eq!(asked, ["begin", "0 put a", "1 delete b", "2 get c", "3 put d", "4 Commit"]);
}

#[test]
fn reads_that_are_awaited_together_are_sent_together() {
    // None is done before all have come; then they are asked for again, and done in their order.
    let (mut seen, mut next) = (0, 0);
    let cluster = Scripted::start(1, move |asked| {
        let ClientRequest::Operation { number, .. } = asked.what else { return Do::Naturally };
        seen += 1;
        if seen <= 3 || number != next {
            return Do::Nothing;
        }
        next += 1;
        Do::Naturally
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        let (a, b, c) =
            tokio::join!(tx.get(people, b"a"), tx.get(people, b"b"), tx.get(people, b"c"));
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
    });
    let asked = short(&cluster.asked());
    assert_eq!(asked[..4], ["begin", "0 get a", "1 get b", "2 get c"]);
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
        let is_rollback = |asked: &Asked| {
            matches!(asked.what, ClientRequest::End { ending: SessionEnd::Rollback, .. })
        };
        cluster.until(is_rollback).await;
    });
    assert_eq!(short(&cluster.asked()), ["begin", "0 get a", "1 Rollback"]);
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
        cluster.until(|asked| matches!(asked.what, ClientRequest::End { .. })).await;
    });
}

#[test]
fn what_a_node_without_a_lease_passed_over_is_asked_again() {
    // It hears nothing at first, and knows a session only from its beginning.
    let (mut times, mut begun) = (0, None);
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        if times <= 2 {
            return Do::Nothing;
        }
        match asked.what {
            // As if a later one had begun meanwhile.
            ClientRequest::Begin { .. } if times == 3 => Do::Nothing,
            ClientRequest::Begin { session } => {
                begun = Some(session);
                Do::Naturally
            }
            ClientRequest::Operation { session, number, .. }
            | ClientRequest::End { session, number, .. }
                if begun != Some(session) =>
            {
                let result = Err(Aborted::UnknownSession { session }.into());
                Do::Reply(ClientReply::Done { session, serial: None, number, result })
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
        ClientRequest::Begin { session } => Some(session),
        _ => None,
    });
    let begun: Vec<u64> = begun.collect();
    assert!(begun.is_sorted() && begun.first() < begun.last(), "under a new number: {begun:?}");
}

#[test]
fn a_write_that_is_refused_spoils_the_transaction() {
    let full = Error::from(Rejected::MemoryFull { bytes: 9, max: 9 });
    let refusal = full.clone();
    let cluster = Scripted::start(1, move |asked| match &asked.what {
        ClientRequest::Operation { session, number, operation: Operation::Put { .. }, .. } => {
            let (session, number) = (*session, *number);
            Do::Reply(ClientReply::Done {
                session,
                serial: Some(session),
                number,
                result: Err(refusal.clone()),
            })
        }
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.put(people, b"a", b"1").expect("put");
        assert_eq!(tx.commit().await, Err(full.clone()));
        let outcome = db.transact(async |tx| tx.put(people, b"a", b"1")).await;
        assert_eq!(outcome, Err(full.clone()));
        cluster.until(|asked| matches!(asked.what, ClientRequest::End { .. })).await;
    });
    let asked = cluster.asked();
    let commits = |asked: &&Asked| {
        matches!(asked.what, ClientRequest::End { ending: SessionEnd::Commit, .. })
    };
    assert_eq!(asked.iter().find(commits).map(|asked| &asked.what), None);
}

#[test]
fn an_overloaded_node_is_left_in_peace() {
    let overloaded = Aborted::Overloaded { open: 9, limit: "open_max", max: 9 };
    let cluster = Scripted::start(1, move |asked| match asked.what {
        ClientRequest::Begin { session } => {
            Do::Reply(ClientReply::Began { session, result: Err(overloaded.into()) })
        }
        _ => Do::Nothing,
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let outcome = db.transact(async |tx| tx.get(people, b"a").await.map(drop)).await;
        assert_eq!(outcome, Err(overloaded.into()));
    });
    let begins = cluster
        .asked()
        .iter()
        .filter(|asked| matches!(asked.what, ClientRequest::Begin { .. }))
        .count();
    assert_eq!(begins, 1);
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

/// What it is asked, told back.
fn echo(what: ClientRequest) -> Option<ClientReply> {
    match what {
        ClientRequest::Operation {
            session, number, operation: Operation::Get { key, .. }, ..
        } => Some(ClientReply::Done {
            session,
            serial: Some(session),
            number,
            result: Ok(OperationResult::Value(Some(key))),
        }),
        ClientRequest::Call { id, arguments, .. } => {
            Some(ClientReply::Called { id, result: Ok(arguments) })
        }
        ClientRequest::Operation { .. }
        | ClientRequest::OpenCalls { .. }
        | ClientRequest::Begin { .. }
        | ClientRequest::End { .. } => None,
    }
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
