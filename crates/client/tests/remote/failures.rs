//! Nodes that hang, go, lose their leadership, or send malformed messages.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use bytes::Bytes;
use shoal_client::{
    Aborted, Awaited, Cause, Cluster, ClusterOptions, Error, NodeId, ShardId, Unknown, Wait,
};
use shoal_engine::client::{ClientReply, ClientRequest, SessionEnd};
use std::time::Duration;

const HASTE: Duration = Duration::from_millis(600);

fn quick() -> ClusterOptions {
    ClusterOptions { patience: Duration::from_millis(5), ..options() }
}

fn is_end(asked: &Asked, wanted: SessionEnd) -> bool {
    asked.ending() == Some(wanted)
}

fn is_step(asked: &Asked) -> bool {
    asked.has_operations()
}

fn named(wait: Wait) -> (Option<NodeId>, Awaited, Cause) {
    (wait.node, wait.awaited, wait.cause)
}

#[test]
fn a_node_that_hangs_is_named_by_the_deadline() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        let hasty = db.with_deadline(HASTE);
        let tx = hasty.begin().expect("room");
        tx.get(people, b"a").await.expect("read");
        let committing = hasty.begin().expect("room");
        committing.get(people, b"a").await.expect("read");
        cluster.hang(NodeId(0));
        let read = tx.get(people, b"b").await;
        let Err(Error::Aborted(Aborted::Unanswered(wait))) = read else { panic!("{read:?}") };
        assert_eq!(named(wait), (Some(NodeId(0)), Awaited::Operation, Cause::Silent));
        // Not all of the time until the deadline: part of it had passed when the wait began.
        assert!(wait.waited > Duration::ZERO, "{wait}");
        assert_eq!(tx.commit().await, Err(Aborted::Unanswered(wait).into()), "and it is over");
        let outcome = committing.commit().await;
        let Err(Error::Unknown(Unknown::Commit { wait, .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(named(wait), (Some(NodeId(0)), Awaited::Commit, Cause::Silent));
        let outcome = hasty.transact(async |tx| tx.get(people, b"a").await.map(drop)).await;
        let Err(Error::Aborted(Aborted::Unanswered(wait))) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(wait.node, Some(NodeId(0)));
    });
}

#[test]
fn a_deadline_tells_the_wait_of_all_attempts() {
    let mut steps = 0;
    let cluster = Scripted::start(1, move |asked| {
        steps += u32::from(is_step(asked));
        match (is_step(asked), steps) {
            (true, 1) => Do::Close,
            (true, _) => Do::Nothing,
            (false, _) => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await.with_deadline(HASTE);
        let people = db.table("people").expect("a table");
        let outcome = db.transact(async |tx| tx.get(people, b"a").await.map(drop)).await;
        let Err(Error::Aborted(Aborted::Unanswered(wait))) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(named(wait), (Some(NodeId(0)), Awaited::Operation, Cause::Silent));
        assert!(wait.waited >= HASTE, "the first attempt's time is missing: {wait}");
    });
}

#[test]
fn who_says_nothing_for_too_long_is_left_before_the_deadline() {
    let cluster = Scripted::start(3, |_| Do::Naturally);
    block_on(async {
        let impatient = ClusterOptions { silence_max: HASTE, ..quick() };
        let db = cluster.connect_with(impatient).await;
        let people = db.table("people").expect("a table");
        let key = (0..u8::MAX).find(|key| db.home(people, &[*key]) == Ok(ShardId(0)));
        let key = [key.expect("a key there")];
        db.transact(async |tx| tx.get(people, &key).await.map(drop)).await.expect("read");
        cluster.hang(NodeId(0));
        db.transact(async |tx| tx.get(people, &key).await.map(drop)).await.expect("elsewhere");
        assert_ne!(cluster.asked().last().expect("asked").node, NodeId(0));
    });
}

#[test]
fn who_is_cut_off_and_still_tells_where_everything_was_is_left_before_the_deadline() {
    let cluster = Scripted::start(3, |_| Do::Naturally);
    block_on(async {
        // However long it is silent: it is not.
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        let key = (0..u8::MAX).find(|key| db.home(people, &[*key]) == Ok(ShardId(0)));
        let key = [key.expect("a key there")];
        let mut runs = 0;
        let outcome = db.transact(async |tx| {
            runs += 1;
            tx.get(people, &key).await?;
            if runs == 1 {
                cluster.cut_off(NodeId(0), NodeId(2));
            }
            tx.get(people, b"other").await.map(drop)
        });
        outcome.await.expect("elsewhere");
        assert_eq!(cluster.asked().last().expect("asked").node, NodeId(2), "its successor");
    });
}

#[test]
fn a_connection_that_is_cut_before_the_commit_costs_another_attempt() {
    let mut steps = 0;
    let cluster = Scripted::start(1, move |asked| {
        steps += u32::from(is_step(asked));
        if steps == 2 && is_step(asked) { Do::Close } else { Do::Naturally }
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.get(people, b"a").await.expect("read");
        let cut = tx.get(people, b"b").await;
        let Err(Error::Aborted(Aborted::Unanswered(wait))) = cut else { panic!("{cut:?}") };
        assert_eq!(named(wait), (Some(NodeId(0)), Awaited::Operation, Cause::Disconnected));
    });

    let mut steps = 0;
    let cluster = Scripted::start(1, move |asked| {
        steps += u32::from(is_step(asked));
        if steps == 1 && is_step(asked) { Do::Close } else { Do::Naturally }
    });
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let mut runs = 0;
        let outcome = db
            .transact(async |tx| {
                runs += 1;
                tx.get(people, b"a").await.map(drop)
            })
            .await;
        assert_eq!((outcome, runs), (Ok(()), 2));
    });
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_a_commit_leaves_it_unknown_and_once() {
    let commits = |asked: &Asked| is_end(asked, SessionEnd::Commit);
    let script = move |asked: &Asked| if commits(asked) { Do::Close } else { Do::Naturally };
    let cluster = Scripted::start(1, script);
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        let mut runs = 0;
        let outcome = db
            .transact(async |tx| {
                runs += 1;
                tx.put(people, b"a", b"1")
            })
            .await;
        assert!(matches!(outcome, Err(Error::Unknown(Unknown::Session { .. }))), "{outcome:?}");
        assert_eq!(runs, 1);
        let asked = cluster.asked().iter().filter(|asked| commits(asked)).count();
        assert_eq!(asked, 1);
    });
}

#[test]
fn a_change_of_leaders_is_followed() {
    let cluster = Scripted::start(3, |asked| match (asked.node, &asked.what) {
        (NodeId(0), ClientRequest::Steps { session, number, .. }) => {
            let result = Err(Aborted::NotServing { node: NodeId(0) }.into());
            Do::Reply(ClientReply::Done { session: *session, number: *number, result })
        }
        (NodeId(0), _) => Do::Nothing,
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        for shard in (0..3).map(ShardId) {
            cluster.appoint(shard, NodeId(1));
        }
        for key in 0..10_u8 {
            db.transact(async |tx| tx.put(people, &[key], b"")).await.expect("committed");
        }
        assert_eq!(db.leader(ShardId(0)), Some(NodeId(1)));
    });
    let refused = cluster.asked().iter().filter(|asked| asked.node == NodeId(0)).count();
    assert!(refused <= 2, "it asked n0 {refused} times, though it was told of n1");
}

#[test]
fn a_node_that_is_killed_is_left_for_others() {
    let mut cluster = Scripted::start(3, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let people = db.table("people").expect("a table");
        for key in 0..10_u8 {
            db.transact(async |tx| tx.put(people, &[key], b"")).await.expect("committed");
        }
        cluster.kill(NodeId(1));
        for key in 0..10_u8 {
            let outcome = db.transact(async |tx| tx.get(people, &[key]).await.map(drop)).await;
            // A commit that was under way as it went may be unknown.
            assert!(matches!(outcome, Ok(()) | Err(Error::Unknown(_))), "{outcome:?}");
        }
    });
}

#[test]
fn what_makes_no_sense_ends_the_connection_and_is_counted() {
    let nonsense = [
        Do::Say(Bytes::new()),
        Do::Say(Bytes::from_static(b"\xff\xff\xff\xff")),
        Do::Say(Bytes::from_static(b"\0\x01\x01\0\0\0\0\0\0\0\0\x01\x02\x03")),
        // What was not asked for.
        Do::Reply(ClientReply::Done {
            session: 1,
            number: 7,
            result: Ok(shoal_engine::operation::OperationResult::Done),
        }),
    ];
    for what in nonsense {
        let mut times = 0;
        let cluster = Scripted::start(1, {
            let what = what.clone();
            move |asked| {
                times += u32::from(is_step(asked));
                if times == 1 && is_step(asked) { what.clone() } else { Do::Naturally }
            }
        });
        block_on(async {
            let db = cluster.connect().await;
            let people = db.table("people").expect("a table");
            let mut causes = Vec::new();
            db.transact(async |tx| match tx.get(people, b"a").await {
                Err(Error::Aborted(Aborted::Unanswered(wait))) => {
                    causes.push(wait.cause);
                    Err(Aborted::Unanswered(wait).into())
                }
                other => other.map(drop),
            })
            .await
            .expect("at the second attempt");
            assert_eq!((causes, db.malformed()), (vec![Cause::Malformed], 1), "{what:?}");
        });
    }
}

#[test]
fn an_address_where_nobody_speaks_holds_nobody_up() {
    let mute = shoal_net::listen("127.0.0.1:0").expect("a port");
    let address = mute.local_addr().expect("an address").to_string();
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let addresses = [address.clone(), cluster.addresses()[0].clone()];
        Cluster::connect_with(&addresses, quick()).await.expect("by way of the second");
        let hasty = ClusterOptions { deadline: HASTE, ..quick() };
        let error = Cluster::connect_with(&addresses[..1], hasty).await.expect_err("no node");
        let what = error.to_string();
        assert!(what.contains("no answer within") && what.contains(&address), "{what}");
    });
}

#[test]
fn any_patience_will_do() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        for span in [Duration::ZERO, Duration::MAX] {
            let odd = ClusterOptions {
                deadline: Duration::MAX,
                patience: span,
                silence_max: Duration::MAX,
                ..options()
            };
            let db = cluster.connect_with(odd).await;
            let people = db.table("people").expect("a table");
            db.transact(async |tx| tx.get(people, b"a").await.map(drop)).await.expect("read");
            db.call(ShardId(0), "p", "x").await.expect("called");
        }
    });
}
