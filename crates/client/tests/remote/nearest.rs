//! Calls that any node coordinates: they go to the nearest, once, and an answer that is lost is asked for by their id.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use shoal_client::{Aborted, ClusterOptions, NodeId, RequestId, ShardId};
use shoal_engine::client::{ClientReply, ClientRequest, ClientRouting, SessionEnd};
use std::time::Duration;

const HOME: ShardId = ShardId(1);

fn quick() -> ClusterOptions {
    ClusterOptions { patience: Duration::from_millis(5), ..options() }
}

/// The id of a call.
fn call(asked: &Asked) -> Option<RequestId> {
    match asked.ending() {
        Some(SessionEnd::Call { id, .. }) => Some(id),
        _ => None,
    }
}

/// Three nodes, one of which closes the connection instead of answering the first call, and what they do when they are asked about
/// that.
fn cluster(mut resolve: impl FnMut(RequestId) -> Do + Send + 'static) -> Scripted {
    let mut is_first = true;
    let cluster = Scripted::start(3, move |asked| match asked.what {
        ClientRequest::Resolve { id } => resolve(id),
        _ if call(asked).is_some() && std::mem::take(&mut is_first) => Do::Close,
        _ => Do::Naturally,
    });
    cluster.route(ClientRouting::Nearest);
    cluster
}

fn called(id: RequestId, result: shoal_types::Result<&'static str>) -> Do {
    Do::Reply(ClientReply::Called { id, result: result.map(Into::into) })
}

#[test]
fn of_nodes_that_are_as_near_the_leader_of_the_home_coordinates() {
    let cluster = Scripted::start(3, |_| Do::Naturally);
    cluster.route(ClientRouting::Nearest);
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        for _ in 0..3 {
            assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
        }
    });
    let asked = cluster.asked();
    let ids: Vec<RequestId> = asked.iter().filter_map(call).collect();
    assert_eq!(ids.iter().map(|id| id.number).collect::<Vec<_>>(), [1, 2, 3], "{asked:?}");
    assert!(asked.iter().all(|asked| asked.node == NodeId(1)), "{asked:?}");
}

#[test]
fn a_call_that_has_committed_returns_what_its_row_has() {
    let cluster = cluster(|id| called(id, Ok("kept")));
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("kept".into()));
    });
    let calls = cluster.asked().iter().filter_map(call).count();
    assert_eq!(calls, 1, "no node is asked to execute it again");
}

#[test]
fn a_call_that_never_takes_effect_is_made_again_under_another_session() {
    let cluster = cluster(|id| called(id, Err(Aborted::CallSessionOver { request: id }.into())));
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        assert_eq!(db.call(HOME, "p", "x").await, Ok("done".into()));
    });
    let mut ids: Vec<RequestId> = cluster.asked().iter().filter_map(call).collect();
    // A request is repeated where its answer takes long.
    ids.dedup();
    assert!(matches!(ids[..], [first, second] if first.session != second.session), "{ids:?}");
}

#[test]
fn an_open_call_is_asked_for_and_not_executed() {
    let cluster = cluster(|id| called(id, Ok("kept")));
    block_on(async {
        let db = cluster.connect_with(quick()).await;
        let request = RequestId::default();
        let result = db.call_again(request, "p", "x").await;
        assert_eq!(result, Ok("kept".into()));
    });
    assert!(cluster.asked().iter().all(|asked| call(asked).is_none()), "it is not executed");
}
