//! Calls: asked for until the answer is definite, and answered once.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use engines::client::{Reply, Request};
use shoal_client::{
    Aborted, Awaited, Cause, ClusterOptions, Error, NodeId, Rejected, RequestId, ShardId, Unknown,
};
use std::time::Duration;
use types::{Epoch, Result};

const HOME: ShardId = ShardId(0);

const HASTE: Duration = Duration::from_millis(600);

fn call(asked: &Asked) -> (RequestId, Epoch) {
    match &asked.what {
        Request::Call { id, epoch, .. } => (*id, *epoch),
        other => panic!("{other:?} is no call"),
    }
}

/// The answer to a copy that named `epoch`.
fn called(asked: &Asked, epoch: Epoch, result: Result<&'static str>) -> Do {
    let (id, result) = (call(asked).0, result.map(Into::into));
    Do::Reply(Reply::Called { id, epoch, result })
}

fn client(id: RequestId) -> u64 {
    (id.0 >> 64) as u64
}

fn quick() -> ClusterOptions {
    ClusterOptions { patience: Duration::from_millis(5), ..options() }
}

#[test]
fn lost_answers_are_asked_for_again_elsewhere_and_under_the_same_id() {
    let mut times = 0;
    let cluster = Scripted::start(3, move |_| {
        times += 1;
        if times < 5 { Do::Nothing } else { Do::Naturally }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
    });
    let asked = cluster.asked();
    assert!(asked.len() >= 5, "{asked:?}");
    assert_eq!(asked[0].node, NodeId(0), "first its leader");
    assert!(asked.iter().any(|asked| asked.node != NodeId(0)), "and then others");
    assert!(asked.iter().all(|other| call(other) == call(&asked[0])), "{asked:?}");
}

#[test]
fn a_number_makes_one_request_at_a_time_and_goes_on_when_it_is_answered() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        for _ in 0..3 {
            db.call(HOME, "p", "x").await.expect("called");
        }
        let (one, other) = tokio::join!(db.call(HOME, "p", "x"), db.call(HOME, "p", "y"));
        assert!(one.is_ok() && other.is_ok());
    });
    let ids: Vec<RequestId> = cluster.asked().iter().map(|asked| call(asked).0).collect();
    let first = ids[0].0;
    assert_eq!(ids[..3], [first, first + 1, first + 2].map(RequestId));
    assert_eq!(first as u64, 1);
    assert_ne!(client(ids[3]), client(ids[4]));
}

#[test]
fn who_is_fenced_names_that_epoch_from_then_on() {
    let fence = Epoch(7);
    let cluster = Scripted::start(1, move |asked| match call(asked) {
        (request, epoch) if epoch < fence => {
            called(asked, epoch, Err(Unknown::Fenced { request, epoch: fence }.into()))
        }
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect().await;
        db.call(HOME, "p", "x").await.expect("called");
        db.call(HOME, "p", "x").await.expect("called");
    });
    let epochs: Vec<Epoch> = cluster.asked().iter().map(|asked| call(asked).1).collect();
    assert_eq!(epochs, [Epoch(0), fence, fence]);
}

#[test]
fn an_error_of_an_old_copy_does_not_count_and_a_result_does() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        let (request, epoch) = call(asked);
        match times {
            1 => called(asked, epoch, Err(Unknown::Fenced { request, epoch: Epoch(7) }.into())),
            // What an old leader still says.
            2 => called(asked, Epoch(6), Err(Error::reject("late"))),
            3 => called(asked, Epoch(0), Ok("early")),
            4 => called(asked, Epoch(7), Err(Error::reject("in time"))),
            _ => Do::Nothing,
        }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("early".into()), "done is done");
        assert_eq!(db.call(HOME, "p", "x").await, Err(Error::reject("in time")));
    });
}

#[test]
fn what_is_unsettled_is_asked_for_until_it_is_not() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        let (request, epoch) = call(asked);
        match times {
            1..4 => called(asked, epoch, Err(Unknown::Unsettled { request }.into())),
            _ => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect().await;
        db.call(HOME, "p", "x").await.expect("called");
    });
    let asked = cluster.asked();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|other| call(other) == call(&asked[0])));
}

#[test]
fn a_deadline_names_the_node_and_the_id_can_be_asked_for_again() {
    let mut answers = false;
    let cluster = Scripted::start(1, move |asked| {
        // The second number is answered, and what is asked for after that.
        answers |= matches!(&asked.what, Request::Call { arguments, .. } if **arguments == *b"y");
        if answers { Do::Naturally } else { Do::Nothing }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let hasty = db.with_deadline(HASTE);
        let unknown = hasty.call(HOME, "p", "x").await;
        let Err(Error::Unknown(Unknown::Call { request, wait })) = unknown else {
            panic!("{unknown:?}");
        };
        let named = (wait.node, wait.awaited, wait.cause);
        assert_eq!(named, (Some(NodeId(0)), Awaited::Call, Cause::Silent));
        assert!(wait.waited >= HASTE);
        db.call(HOME, "p", "y").await.expect("called");
        let last = call(cluster.asked().last().expect("asked")).0;
        assert_ne!(client(last), client(request), "its number is never used again");
        assert_eq!(db.call_again(request, HOME, "p", "x").await, Ok("done".into()));
        assert_eq!(call(cluster.asked().last().expect("asked")).0, request);
    });
}

#[test]
fn a_call_that_nobody_waits_for_any_more_leaves_its_number() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |_| {
        times += 1;
        if times == 1 { Do::Nothing } else { Do::Naturally }
    });
    block_on(async {
        let db = cluster.connect().await;
        tokio::select! {
            biased;
            answer = db.call(HOME, "p", "x") => panic!("{answer:?}"),
            () = cluster.until(|_| true) => {}
        }
        db.call(HOME, "p", "x").await.expect("called");
    });
    let asked = cluster.asked();
    assert_ne!(client(call(&asked[0]).0), client(call(&asked[1]).0));
}

#[test]
fn who_does_not_serve_refuses_an_id_for_good_so_another_is_asked_for() {
    let cluster = Scripted::start(3, |asked| match asked.node {
        NodeId(0) => {
            let error = Aborted::NotServing { node: NodeId(0) };
            called(asked, call(asked).1, Err(error.into()))
        }
        _ => Do::Naturally,
    });
    cluster.appoint(HOME, NodeId(0));
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        cluster.appoint(HOME, NodeId(1));
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
        assert_eq!(db.leader(HOME), Some(NodeId(1)), "and the directory was asked for");
    });
    let asked = cluster.asked();
    let (first, last) = (&asked[0], asked.last().expect("asked"));
    assert_eq!((first.node, last.node), (NodeId(0), NodeId(1)));
    assert_ne!(call(first).0, call(last).0);
}

#[test]
fn a_leader_that_is_gone_is_left_for_the_next() {
    let mut cluster = Scripted::start(3, |_| Do::Naturally);
    cluster.appoint(HOME, NodeId(0));
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        db.call(HOME, "p", "x").await.expect("called");
        cluster.kill(NodeId(0));
        cluster.appoint(HOME, NodeId(1));
        db.call(HOME, "p", "x").await.expect("called");
    });
    // By way of whomever.
    assert_ne!(cluster.asked().last().expect("asked").node, NodeId(0));
}

#[test]
fn where_nobody_can_be_asked_nothing_has_happened() {
    let mut cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        db.call(HOME, "p", "x").await.expect("called");
        cluster.kill(NodeId(0));
        // A first call may still be lost with the connection.
        let gone = async || match db.with_deadline(HASTE).call(HOME, "p", "x").await {
            Err(Error::Aborted(Aborted::Unanswered(wait))) => Some(wait),
            Err(Error::Unknown(Unknown::Call { .. })) => None,
            other => panic!("{other:?}"),
        };
        let wait = loop {
            if let Some(wait) = gone().await {
                break wait;
            }
        };
        let named = (wait.node, wait.awaited, wait.cause);
        assert_eq!(named, (Some(NodeId(0)), Awaited::Call, Cause::Unreachable));
    });
}

#[test]
fn the_wrong_worker_is_not_believed() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        let error = Rejected::OtherWorker { worker: asked.worker };
        match times {
            1 => called(asked, call(asked).1, Err(error.into())),
            _ => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect().await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
    });
}
