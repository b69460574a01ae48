//! The emulated wide area, against the real clock: a lower bound only.

use crate::clients::block_on;
use crate::common::{Node, cluster, config};
use bytes::{BufMut, Bytes};
use shoal_net::client::{Access, Closed, connect};
use shoal_net::{CoreInput, DropReason, LinkFaults, PeerConfig};
use shoal_types::{DatacenterId, Distance, DistanceMatrix, NodeId, Random, Time, Way};
use std::sync::mpsc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);

const DELAY_BACK: Duration = Duration::from_millis(35);

fn far_apart() -> Vec<Node> {
    let jitter = Duration::from_millis(5);
    let elsewhere =
        |peer: PeerConfig| PeerConfig { datacenter: DatacenterId(peer.node.0 / 2), ..peer };
    cluster(3, move |config| {
        config.datacenter = DatacenterId(config.node.0 / 2);
        config.peers = std::mem::take(&mut config.peers).into_iter().map(elsewhere).collect();
        // The way back from the second datacenter takes longer.
        config.distances = DistanceMatrix::uniform(Distance { delay: DELAY, jitter });
        let (from, to) = (DatacenterId(1), DatacenterId(0));
        config.distances.set(Way { from, to, distance: Distance { delay: DELAY_BACK, jitter } });
    })
}

/// Has a node send numbered frames, one with each order, and says when each went off.
fn send(node: &Node, to: NodeId, count: u64) -> Vec<Time> {
    let (tell, sent) = mpsc::channel();
    for number in 0..count {
        let tell = tell.clone();
        node.order(move |now, out| {
            let frame = out.encode(|to| to.put_u64(number));
            out.to_peer(to, frame);
            tell.send(now).expect("the test waits");
        });
    }
    sent.into_iter().take(count as usize).collect()
}

/// Clocks of nodes in one process differ by as much as the wall's was set meanwhile: compares spans on
/// both, from a first frame there and back.
#[test]
fn both_sides_see_at_least_the_delay_and_the_order() {
    let nodes = far_apart();
    for (from, to) in [(0, 2), (2, 1)] {
        let sent = send(&nodes[from], NodeId(to as u32), 200);
        for number in 0..200_u64 {
            let (_, frame) = nodes[to].wait_frame();
            assert_eq!(frame, Bytes::copy_from_slice(&number.to_be_bytes()), "overtaken");
        }
        // There and back, on the clock of the one that began.
        nodes[to].send(NodeId(from as u32), "back");
        let (back, _) = nodes[from].wait_frame();
        assert!(back - sent[199] >= DELAY + DELAY_BACK, "{:?}", back - sent[199]);
        assert_eq!(nodes[from].counters().drops(DropReason::QueueFull), 0);
    }
}

#[test]
fn held_frames_are_lost_when_the_way_is_cut_and_slow_ways_are_slower() {
    let nodes = far_apart();
    // The connection that is dialed from here, far away as well, is up; nothing is held before this.
    nodes[0].order(|_, out| out.to_peer(NodeId(2), Bytes::from_static(b"held")));
    nodes[0].handle().set_link_faults(NodeId(2), LinkFaults::CUT);
    nodes[0].wait_count(|totals| totals.drops(DropReason::Cut) == 1);
    nodes[0].handle().heal();

    let slow = Duration::from_millis(30);
    // Within the datacenter there is no distance but this.
    nodes[0].handle().set_link_faults(NodeId(1), LinkFaults { slow, ..LinkFaults::default() });
    let sent = send(&nodes[0], NodeId(1), 1);
    nodes[1].wait_frame();
    nodes[1].send(NodeId(0), "back");
    let (back, _) = nodes[0].wait_frame();
    assert!(back - sent[0] >= slow, "{:?}", back - sent[0]);
}

#[test]
fn a_client_that_is_far_away_holds_the_frames_of_both_ways_in_order() {
    block_on(talk_from_afar());
}

async fn talk_from_afar() {
    let node = Node::alone(config(0));
    let far = |delay| Distance { delay, jitter: Duration::from_millis(2) };
    let connected = connect(&node.address().to_string(), &Access::open("reef"), None).await;
    let near = connected.expect("connected");
    let mut connection = near.at_distance(far(DELAY), far(DELAY_BACK), &Random::new(1));
    let began = tokio::time::Instant::now();
    for number in 0..100_u64 {
        let frame = Bytes::copy_from_slice(&number.to_be_bytes());
        connection.sender.send(frame).await.expect("sent");
    }
    let (client, first) = node.wait(|happened| match &happened.input {
        CoreInput::FromClient { client, frame, .. } => Some((*client, frame.clone())),
        _ => None,
    });
    assert!(began.elapsed() >= DELAY, "{:?}", began.elapsed());
    assert_eq!(first, Bytes::copy_from_slice(&0_u64.to_be_bytes()));
    for number in 1..100_u64 {
        let (_, frame) = node.wait_frame();
        assert_eq!(frame, Bytes::copy_from_slice(&number.to_be_bytes()), "overtaken");
    }
    let asked = tokio::time::Instant::now();
    node.order(move |_, out| {
        out.to_client(client, Bytes::from_static(b"one"));
        out.to_client(client, Bytes::from_static(b"two"));
        out.close_client(client, "enough");
    });
    let mut received = Vec::new();
    let closed = loop {
        match connection.receiver.receive().await {
            Ok(frame) => received.push(frame),
            Err(closed) => break closed,
        }
    };
    assert!(asked.elapsed() >= DELAY_BACK, "{:?}", asked.elapsed());
    assert_eq!(received, [&b"one"[..], b"two"]);
    assert_eq!(closed, Closed::Bye("enough".into()));
    assert!(connection.receiver.receive().await.is_err(), "it goes on saying so");
}
