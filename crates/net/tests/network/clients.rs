//! Clients: what they send and get, and what happens when they do not read.

use crate::common::{Node, PATIENCE, config, port, wait_until};
use bytes::Bytes;
use shoal_net::client::{Access, ClientConnection, Closed, ConnectError, Role, SendError, connect};
use shoal_net::{
    CloseReason, ConnectedClient, Core, CoreInput, DropReason, Network, NetworkConfig,
    NetworkLimits, Outbox, Secret, SharedClusterId,
};
use shoal_types::wire::{MessageVersion, MessageVersions};
use shoal_types::{ClusterId, NodeId, Time, WorkerId};
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;
use tokio::time::timeout;

/// The connection's tasks go on while the test waits for the node.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let patient = async { timeout(PATIENCE, future).await.expect("it never ends") };
    runtime.expect("a runtime").block_on(patient)
}

async fn enter(node: &Node, access: &Access) -> Result<ClientConnection, ConnectError> {
    connect(&node.address().to_string(), access, None).await
}

fn received(node: &Node) -> (ConnectedClient, Bytes) {
    node.wait(|happened| match &happened.input {
        CoreInput::FromClient { client, frame, .. } => Some((*client, frame.clone())),
        _ => None,
    })
}

fn gone(node: &Node) -> ConnectedClient {
    node.wait(|happened| match happened.input {
        CoreInput::ClientGone { client } => Some(client),
        _ => None,
    })
}

#[test]
fn a_client_asks_and_is_answered_until_it_leaves() {
    let node = Node::alone(NetworkConfig { instance: 3, ..config(5) });
    let client = block_on(async {
        let mut connection = enter(&node, &Access::open("reef")).await.expect("let in");
        assert_eq!((connection.node, connection.instance), (NodeId(5), 3));
        connection.sender.send(Bytes::from_static(b"what?")).await.expect("sent");
        let (client, frame) = received(&node);
        assert_eq!(frame, "what?");
        node.order(move |_, out| out.to_client(client, Bytes::from_static(b"that")));
        assert_eq!(connection.receiver.receive().await, Ok(Bytes::from_static(b"that")));
        let long = Bytes::from(vec![0; NetworkLimits::default().frame_bytes_max + 1]);
        let refused = connection.sender.send(long.clone()).await;
        assert_eq!(refused, Err(SendError::TooLong(long.len())));
        client
    });
    assert_eq!(gone(&node), client);
    node.order(move |_, out| out.to_client(client, Bytes::from_static(b"too late")));
    node.wait_count(|totals| totals.drops(DropReason::UnknownClient) == 1);
    assert_eq!(node.counters().closes(CloseReason::Left), 1);
}

#[test]
fn a_client_that_is_closed_gets_what_was_sent_before_and_why() {
    let node = Node::alone(config(0));
    block_on(async {
        let mut connection = enter(&node, &Access::open("reef")).await.expect("let in");
        connection.sender.send(Bytes::from_static(b"hello")).await.expect("sent");
        let (client, _) = received(&node);
        let last = Bytes::from(vec![1; 5_000_000]);
        let sent = last.clone();
        node.order(move |_, out| {
            out.to_client(client, sent);
            out.close_client(client, "moved to n2");
            out.to_client(client, Bytes::from_static(b"after the end"));
        });
        assert_eq!(connection.receiver.receive().await, Ok(last));
        let bye = Closed::Bye("moved to n2".to_owned());
        assert_eq!(connection.receiver.receive().await, Err(bye));
        assert_eq!(
            connection.receiver.receive().await,
            Err(Closed::Ended(CloseReason::Left)),
            "and it stays so"
        );
        assert_eq!(gone(&node), client);
    });
    node.wait_count(|totals| totals.closes(CloseReason::Asked) == 1);
    assert_eq!(node.counters().drops(DropReason::UnknownClient), 1);
}

/// Answers all that a client says with much.
struct Talkative(Bytes);

impl Core for Talkative {
    type Command = ();

    fn step(&mut self, _: Time, input: CoreInput<()>, out: &mut Outbox) {
        if let CoreInput::FromClient { client, .. } = input {
            out.to_client(client, self.0.clone());
        }
    }
}

/// The client asks for many times of what it may be behind, and more than fits on the way; were it served while it
/// does not read, it would be closed for that.
#[test]
fn a_client_that_does_not_read_is_not_served() {
    const REQUESTS: usize = 2000;
    let limits = NetworkLimits {
        client_queue_bytes: 256 << 10,
        client_queue_bytes_max: 4 << 20,
        unread_frames_max: 16,
        ..NetworkLimits::default()
    };
    let answer = Bytes::from(vec![9; 64 << 10]);
    let said = answer.clone();
    let core = move |_, _: &_| Talkative(said.clone());
    let node = Network::start(NetworkConfig { limits, ..config(0) }, port(), core).expect("a node");
    block_on(async {
        let address = node.address().to_string();
        let connected = connect(&address, &Access::open("reef"), None).await;
        let ClientConnection { sender, mut receiver, .. } = connected.expect("let in");
        let request = Bytes::from(vec![1; 64 << 10]);
        let sending = tokio::spawn(async move {
            for _ in 0..REQUESTS {
                sender.send(request.clone()).await.expect("sent");
            }
            sender
        });
        // Soon nothing moves any more.
        let (_never, pause) = mpsc::channel::<()>();
        let stuck = wait_until(|| {
            let before = node.handle().counters();
            let _ = pause.recv_timeout(Duration::from_millis(100));
            let after = node.handle().counters();
            (before.frames_in > 0 && before == after).then_some(after)
        });
        assert!(stuck.frames_in < REQUESTS as u64, "all was heard though nothing was read");
        // Now it reads, and all goes on.
        for _ in 0..REQUESTS {
            assert_eq!(receiver.receive().await, Ok(answer.clone()));
        }
        drop(sending.await.expect("sent"));
    });
    assert_eq!(node.handle().counters().closes(CloseReason::FellBehind), 0);
}

#[test]
fn a_client_that_is_sent_more_than_it_may_be_behind_is_closed() {
    let limits = NetworkLimits { client_queue_bytes_max: 1 << 20, ..NetworkLimits::default() };
    let node = Node::alone(NetworkConfig { limits, ..config(0) });
    block_on(async {
        let connection = enter(&node, &Access::open("reef")).await.expect("let in");
        connection.sender.send(Bytes::from_static(b"all of it")).await.expect("sent");
        let (client, _) = received(&node);
        node.order(move |_, out| {
            (0..100).for_each(|_| out.to_client(client, Bytes::from(vec![0; 64 << 10])));
        });
        assert_eq!(gone(&node), client);
    });
    assert_eq!(node.counters().closes(CloseReason::FellBehind), 1);
}

#[test]
fn clients_may_have_a_secret_and_are_limited_in_number() {
    let limits = NetworkLimits { clients_max: 2, ..NetworkLimits::default() };
    let secret = Secret::new(*b"open sesame");
    let node = Node::alone(NetworkConfig { client_secret: secret.clone(), limits, ..config(0) });
    let access = Access { secret, ..Access::open("reef") };
    block_on(async {
        let unauthenticated = enter(&node, &Access::open("reef")).await;
        assert_eq!(unauthenticated.err(), Some(ConnectError::Refused(CloseReason::WrongSecret)));
        let wrong = enter(&node, &Access { cluster: "atoll".to_owned(), ..access.clone() }).await;
        assert_eq!(wrong.err(), Some(ConnectError::Refused(CloseReason::WrongCluster)));
        let peers = Access { secret: Secret::new(crate::common::SECRET), ..access.clone() };
        let peer = enter(&node, &peers).await;
        assert_eq!(peer.err(), Some(ConnectError::Refused(CloseReason::WrongSecret)));

        let _two = [enter(&node, &access).await, enter(&node, &access).await];
        assert!(_two.iter().all(Result::is_ok));
        node.wait_count(|totals| totals.admitted == 2);
        let third = enter(&node, &access).await;
        assert_eq!(third.err(), Some(ConnectError::Refused(CloseReason::TooManyClients)));
    });
}

#[test]
fn operators_know_the_secret_of_nodes_and_are_told_from_clients() {
    let limits = NetworkLimits { clients_max: 0, ..NetworkLimits::default() };
    let secret = Secret::new(*b"open sesame");
    let node = Node::alone(NetworkConfig { client_secret: secret.clone(), limits, ..config(0) });
    let role = Role::Operator;
    let client = Access { secret, ..Access::open("reef") };
    let operator = Access { role, secret: Secret::new(crate::common::SECRET), ..client.clone() };
    let operator = block_on(async {
        let pretends = enter(&node, &Access { role, ..client }).await;
        assert_eq!(pretends.err(), Some(ConnectError::Refused(CloseReason::WrongSecret)));
        let mut connection = enter(&node, &operator).await.expect("let in, where no client is");
        connection.sender.send(Bytes::from_static(b"change")).await.expect("sent");
        let client = node.wait(|happened| match &happened.input {
            CoreInput::FromOperator { client, frame } if frame == "change" => Some(*client),
            _ => None,
        });
        node.order(move |_, out| out.to_client(client, Bytes::from_static(b"done")));
        assert_eq!(connection.receiver.receive().await, Ok(Bytes::from_static(b"done")));
        client
    });
    assert_eq!(gone(&node), operator);
}

#[test]
fn nothing_counts_that_was_said_before_the_node_knew_its_cluster() {
    let cluster = |number| ClusterId::new(number).expect("not 0");
    let (identity, ours, other) = (SharedClusterId::default(), cluster(5), cluster(6));
    let node = Node::alone(NetworkConfig { identity: identity.clone(), ..config(0) });
    block_on(async {
        let access = |identity| Access { identity, ..Access::open("reef") };
        let mut early = enter(&node, &access(Some(other))).await.expect("the node knows none");
        assert_eq!(early.identity, None);
        early.sender.send(Bytes::from_static(b"before")).await.expect("sent");
        assert_eq!(received(&node).1, "before");
        assert!(identity.learn(ours));
        early.sender.send(Bytes::from_static(b"after")).await.expect("sent");
        assert!(early.receiver.receive().await.is_err(), "its connection ends");
        let again = enter(&node, &access(Some(other))).await;
        assert_eq!(again.err(), Some(ConnectError::FoundedAgain { found: ours }));
        for known in [None, Some(ours)] {
            assert_eq!(enter(&node, &access(known)).await.expect("let in").identity, Some(ours));
        }
    });
    let totals = node.wait_count(|totals| totals.closes(CloseReason::OtherFounding) == 1);
    assert_eq!(totals.closes(CloseReason::Identified), 1);
    assert_eq!(totals.drops(DropReason::Unidentified), 1);
}

#[test]
fn a_client_and_a_node_speak_the_newest_version_that_both_know_or_part() {
    let (of_node, newer) = (MessageVersions::new(2, 3), MessageVersions::new(4, 5));
    let node = Node::alone(NetworkConfig { client_versions: of_node, ..config(0) });
    block_on(async {
        let access = |versions| Access { versions, ..Access::open("reef") };
        for (oldest, newest, common) in [(1, 2, 2), (2, 9, 3), (3, 3, 3)] {
            let versions = MessageVersions::new(oldest, newest);
            let connection = enter(&node, &access(versions)).await.expect("let in");
            assert_eq!(connection.version, MessageVersion(common));
        }
        let error = enter(&node, &access(newer)).await.expect_err("nothing in common");
        assert_eq!(error, ConnectError::NoCommonVersion { ours: newer, theirs: of_node });
        let text = error.to_string();
        assert!(
            text.contains("speaks versions 2 to 3") && text.contains("versions 4 to 5"),
            "{text}"
        );
    });
    node.wait_count(|totals| totals.closes(CloseReason::NoCommonVersion) == 1);
}

#[test]
fn clients_are_dealt_out_among_workers_or_go_where_they_want() {
    let node = Node::alone(NetworkConfig { workers: 3, ..config(0) });
    block_on(async {
        let access = Access::open("reef");
        let mut dealt = Vec::new();
        for _ in 0..6 {
            dealt.push(enter(&node, &access).await.expect("let in").worker);
        }
        dealt.sort_unstable();
        assert_eq!(dealt, [0, 0, 1, 1, 2, 2].map(WorkerId));
        let address = node.address().to_string();
        let there = connect(&address, &access, Some(WorkerId(2))).await.expect("let in");
        assert_eq!(there.worker, WorkerId(2));
        let nowhere = connect(&address, &access, Some(WorkerId(3))).await;
        assert_eq!(nowhere.err(), Some(ConnectError::Refused(CloseReason::WrongWorker)));
    });
}

#[test]
fn where_nobody_listens_nobody_is_reached() {
    let address = crate::common::port().local_addr().expect("an address").to_string();
    let refused = block_on(connect(&address, &Access::open("reef"), None));
    let refused = refused.expect_err("nothing listens");
    assert_eq!(refused, ConnectError::Failed(CloseReason::NotListening));
    assert!(refused.to_string().contains("nothing listens at this port"), "{refused}");
}

#[test]
fn an_address_that_cannot_be_one_is_told_from_a_host_that_is_not_known() {
    for (address, reason, words) in [
        ("127.0.0.1", CloseReason::BadAddress, "HOST:PORT"),
        ("127.0.0.1:port", CloseReason::BadAddress, "HOST:PORT"),
        ("no-such-host.invalid:7000", CloseReason::UnknownHost, "DNS"),
    ] {
        let error = block_on(connect(address, &Access::open("reef"), None));
        let error = error.expect_err("no address");
        assert_eq!(error, ConnectError::Failed(reason), "{address}");
        assert!(error.to_string().contains(words), "{address}: {error}");
    }
}
