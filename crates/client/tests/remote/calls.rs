//! Calls: asked for until the answer is definite, and answered once.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use shoal_client::{
    Aborted, Awaited, Cause, ClusterOptions, Error, NodeId, Rejected, RequestId, ShardId, Unknown,
};
use shoal_engine::client::{ClientReply, ClientRequest};
use shoal_types::{Epoch, Result};
use std::time::Duration;

const HOME: ShardId = ShardId(0);

const HASTE: Duration = Duration::from_millis(600);

fn call(asked: &Asked) -> RequestId {
    match &asked.what {
        ClientRequest::Call { id, .. } => *id,
        other => panic!("{other:?} is no call"),
    }
}

fn called(asked: &Asked, result: Result<&'static str>) -> Do {
    let (id, result) = (call(asked), result.map(Into::into));
    Do::Reply(ClientReply::Called { id, result })
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
fn a_session_makes_one_call_at_a_time_and_goes_on_when_it_is_answered() {
    let cluster = Scripted::start(1, |_| Do::Naturally);
    block_on(async {
        let db = cluster.connect().await;
        for _ in 0..3 {
            db.call(HOME, "p", "x").await.expect("called");
        }
        let (one, other) = tokio::join!(db.call(HOME, "p", "x"), db.call(HOME, "p", "y"));
        assert!(one.is_ok() && other.is_ok());
    });
    let ids: Vec<RequestId> = cluster.asked().iter().map(call).collect();
    let session = ids[0].session;
    assert_eq!(ids[..3], [1, 2, 3].map(|number| RequestId { session, number }));
    assert_ne!(ids[3].session, ids[4].session);
    assert_eq!(cluster.opened().len(), 2, "as many sessions as calls at once");
}

#[test]
fn a_grant_that_is_lost_is_asked_for_again_elsewhere() {
    let cluster = Scripted::start(3, |_| Do::Naturally);
    cluster.lose_opens(3);
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
    });
    let opened = cluster.opened();
    assert!(opened.len() >= 4 && opened.iter().any(|asked| asked.node != NodeId(0)), "{opened:?}");
    let tokens = opened.iter().map(|asked| format!("{:?}", asked.what));
    assert!(tokens.collect::<std::collections::BTreeSet<_>>().len() == 1, "{opened:?}");
}

#[test]
fn a_session_that_is_over_is_left_for_another_and_the_call_made_in_that() {
    let cluster = Scripted::start(1, |asked| match call(asked) {
        request if request.session.serial == 1 && request.number == 2 => {
            called(asked, Err(Aborted::CallSessionOver { request }.into()))
        }
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect().await;
        for _ in 0..3 {
            db.call(HOME, "p", "x").await.expect("called");
        }
    });
    let asked = cluster.asked();
    let ids = asked.iter().map(call).map(|id| (id.session.serial, id.number));
    assert_eq!(ids.collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn what_is_aborted_is_called_again_under_another_id_within_the_budget() {
    let conflict = || Error::from(Aborted::RolledBack { epoch: Epoch(3) });
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        if times % 3 == 0 { Do::Naturally } else { called(asked, Err(conflict())) }
    });
    block_on(async {
        let db = cluster.connect().await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
        let twice = ClusterOptions { attempts_max: 2, ..options() };
        let twice = cluster.connect_with(twice).await;
        assert_eq!(twice.call(HOME, "p", "x").await, Err(conflict()));
    });
    let ids: Vec<RequestId> = cluster.asked().iter().map(call).collect();
    let first = ids[0].session;
    assert_eq!(ids[..3], [1, 2, 3].map(|number| RequestId { session: first, number }));
    assert_eq!(ids.len(), 5, "{ids:?}");
}

#[test]
fn what_is_unsettled_is_asked_for_until_it_is_not() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        let request = call(asked);
        match times {
            1..4 => called(asked, Err(Unknown::Unsettled { request, shard: HOME }.into())),
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
        // The second session is answered, and what is asked for after that.
        answers |=
            matches!(&asked.what, ClientRequest::Call { arguments, .. } if **arguments == *b"y");
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
        let last = call(cluster.asked().last().expect("asked"));
        assert_ne!(last.session, request.session, "its session is never used again");
        assert_eq!(db.call_again(request, "p", "x").await, Ok("done".into()));
        assert_eq!(call(cluster.asked().last().expect("asked")), request);
    });
}

#[test]
fn a_call_that_is_asked_for_again_is_made_anew_where_it_never_will_take_effect() {
    let mut answers = false;
    let cluster = Scripted::start(1, move |asked| {
        answers |=
            matches!(&asked.what, ClientRequest::Call { arguments, .. } if **arguments == *b"y");
        match call(asked) {
            _ if !answers => Do::Nothing,
            request if request.session.serial == 1 => {
                called(asked, Err(Aborted::CallSessionOver { request }.into()))
            }
            _ => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let unknown = db.with_deadline(HASTE).call(HOME, "p", "x").await;
        let Err(Error::Unknown(Unknown::Call { request, .. })) = unknown else {
            panic!("{unknown:?}");
        };
        db.call(HOME, "p", "y").await.expect("called");
        assert_eq!(db.call_again(request, "p", "x").await, Ok("done".into()));
        let last = cluster.asked();
        let last: Vec<RequestId> = last[last.len() - 2..].iter().map(call).collect();
        assert_eq!(last[0], request);
        assert_eq!((last[1].session.serial, last[1].number), (2, 2));
    });
}

#[test]
fn where_nobody_can_be_asked_the_fate_of_a_former_call_stays_open() {
    let mut cluster = Scripted::start(1, |_| Do::Nothing);
    block_on(async {
        let db = cluster.connect_with(quick()).await.with_deadline(HASTE);
        let unknown = db.call(HOME, "p", "x").await;
        let Err(Error::Unknown(Unknown::Call { request, .. })) = unknown else {
            panic!("{unknown:?}");
        };
        cluster.kill(NodeId(0));
        let again = db.call_again(request, "p", "x").await;
        let is_open = matches!(again, Err(Error::Unknown(Unknown::Call { request: of, .. })) if of == request);
        assert!(is_open, "{again:?}");
    });
}

#[test]
fn a_call_that_nobody_waits_for_any_more_leaves_its_session() {
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
    assert_ne!(call(&asked[0]).session, call(&asked[1]).session);
}

#[test]
fn who_does_not_serve_refuses_an_id_for_good_so_another_is_asked_for() {
    let cluster = Scripted::start(3, |asked| match asked.node {
        NodeId(0) => {
            let error = Aborted::NotServing { node: NodeId(0) };
            called(asked, Err(error.into()))
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
    assert_ne!(call(first), call(last));
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
        assert_eq!((wait.node, wait.cause), (Some(NodeId(0)), Cause::NotListening));
    });
}

#[test]
fn the_wrong_worker_is_not_believed() {
    let mut times = 0;
    let cluster = Scripted::start(1, move |asked| {
        times += 1;
        let error = Rejected::OtherWorker { worker: asked.worker };
        match times {
            1 => called(asked, Err(error.into())),
            _ => Do::Naturally,
        }
    });
    block_on(async {
        let db = cluster.connect().await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
    });
}
