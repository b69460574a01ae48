//! Nodes among themselves: order, loss, coming back, and what other threads may ask.

use crate::common::{Node, Order, PATIENCE, WORKER, cluster, config, peer, port, wait_until};
use bytes::{BufMut, Bytes};
use shoal_net::{
    CloseReason, Core, CoreInput, DropReason, Handle, LinkFaults, Network, NetworkConfig,
    NetworkLimits, Outbox, Panicked,
};
use shoal_types::wire::{MessageVersion, MessageVersions};
use shoal_types::{NodeId, Time, WorkerId};
use std::sync::mpsc;
use std::time::Duration;

/// Sends numbered frames as the other end takes them, and checks the order of those it gets.
struct Counting {
    peer: NodeId,
    sent: u64,
    got: u64,
    answered: u64,
    done: mpsc::Sender<u64>,
}

const FRAMES: u64 = 1_000_000;
const WINDOW: u64 = 10_000;

impl Counting {
    fn send(&mut self, out: &mut Outbox) {
        while self.sent < FRAMES && self.sent - self.answered < WINDOW {
            let frame = out.encode(|to| to.put_u64(self.sent));
            out.to_peer(self.peer, frame);
            self.sent += 1;
        }
    }
}

impl Core for Counting {
    /// Begin: the other end is up, too.
    type Command = ();

    fn step(&mut self, _: Time, input: CoreInput<()>, out: &mut Outbox) {
        match input {
            CoreInput::Command(()) => self.send(out),
            CoreInput::PeerUp { .. } => self.done.send(0).expect("the test waits"),
            CoreInput::FromPeer { frame, .. } if frame.len() == 8 => {
                let number = u64::from_be_bytes(frame[..].try_into().expect("8 bytes"));
                assert_eq!(number, self.got, "lost, repeated or overtaken");
                self.got += 1;
                if self.got.is_multiple_of(1000) {
                    out.to_peer(self.peer, Bytes::from_static(b"a thousand"));
                }
                if self.got == FRAMES {
                    self.done.send(self.got).expect("the test waits");
                }
            }
            CoreInput::FromPeer { .. } => {
                self.answered += 1000;
                self.send(out);
            }
            CoreInput::Started | CoreInput::PeerDown { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
}

#[test]
fn a_million_frames_each_way_arrive_in_order() {
    let listeners = [port(), port()];
    let addresses = listeners.each_ref().map(|one| one.local_addr().expect("an address"));
    let (done, wait) = mpsc::channel();
    let nodes: Vec<_> = (0..)
        .zip(listeners)
        .map(|(own, listener)| {
            let other = 1 - own;
            let peers = vec![peer(other, addresses[other as usize])];
            let done = done.clone();
            let core = move |_, _: &_| Counting {
                peer: NodeId(other),
                sent: 0,
                got: 0,
                answered: 0,
                done: done.clone(),
            };
            Network::start(NetworkConfig { peers, ..config(own) }, listener, core).expect("a node")
        })
        .collect();
    for _ in 0..2 {
        assert_eq!(wait.recv_timeout(PATIENCE), Ok(0), "up");
    }
    for node in &nodes {
        assert_eq!(node.handle().command(WORKER, ()), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(wait.recv_timeout(PATIENCE), Ok(FRAMES));
    }
    for node in nodes {
        let totals = node.handle().counters();
        assert!(totals.frames_in >= FRAMES, "{totals:?}");
        assert!(totals.system_calls_per_frame() < 0.2, "not batched: {totals:?}");
        assert!(DropReason::ALL.iter().all(|reason| totals.drops(*reason) == 0), "{totals:?}");
    }
}

#[test]
fn large_frames_and_small_ones_keep_their_order() {
    let nodes = cluster(2, |_| {});
    let sizes = [1, 4095, 4096, 100, 0, 9_000_000, 3, 70_000, 70_000, 5];
    nodes[0].order(move |_, out| {
        for (number, size) in sizes.into_iter().enumerate() {
            out.to_peer(NodeId(1), Bytes::from(vec![number as u8; size]));
        }
    });
    for (number, size) in sizes.into_iter().enumerate() {
        let (_, frame) = nodes[1].wait_frame();
        assert_eq!(frame.len(), size);
        assert!(frame.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn a_node_that_is_restarted_is_connected_again() {
    let mut nodes = cluster(2, |config| config.instance = 1);
    for instance in 2..5 {
        let gone = nodes.pop().expect("two nodes");
        let address = gone.address();
        drop(gone);
        let down = nodes[0].wait(|happened| match happened.input {
            CoreInput::PeerDown { node } => Some(node),
            _ => None,
        });
        assert_eq!(down, NodeId(1));
        // To no peer: counted.
        nodes[0].send(NodeId(1), "lost");
        nodes[0].wait_count(|totals| totals.drops(DropReason::NotConnected) == instance - 1);

        let listener = wait_until(|| shoal_net::listen(address).ok());
        let peers = vec![peer(0, nodes[0].address())];
        let back = Node::start(NetworkConfig { instance, peers, ..config(1) }, listener);
        assert_eq!(nodes[0].wait_up(NodeId(1)), instance);
        assert_eq!(back.wait_up(NodeId(0)), 1);
        nodes[0].send(NodeId(1), "hello again");
        assert_eq!(back.wait_frame().1, "hello again");
        back.send(NodeId(0), "here I am");
        assert_eq!(nodes[0].wait_frame().1, "here I am");
        assert_eq!(nodes[0].counters().reconnects, instance - 1);
        nodes.push(back);
    }
}

#[test]
fn peers_come_move_and_go_while_all_runs() {
    let nodes = cluster(2, |_| {});
    let newcomer =
        Node::alone(NetworkConfig { peers: vec![peer(0, nodes[0].address())], ..config(2) });
    // Unknown until the node learns of it.
    nodes[0].wait_count(|totals| totals.closes(CloseReason::UnknownNode) > 0);
    nodes[0].handle().set_peer(&peer(2, newcomer.address()));
    nodes[0].wait_up(NodeId(2));
    newcomer.wait_up(NodeId(0));
    nodes[0].send(NodeId(2), "welcome");
    assert_eq!(newcomer.wait_frame().1, "welcome");

    nodes[0].handle().remove_peer(NodeId(2));
    let down = |happened: &crate::common::Happened| match happened.input {
        CoreInput::PeerDown { node } => Some(node),
        _ => None,
    };
    assert_eq!(nodes[0].wait(down), NodeId(2));
    assert_eq!(newcomer.wait(down), NodeId(0));
    nodes[0].send(NodeId(2), "gone");
    nodes[0].wait_count(|totals| totals.drops(DropReason::UnknownPeer) == 1);
    // To itself, neither.
    nodes[0].send(NodeId(0), "me");
    nodes[0].wait_count(|totals| totals.drops(DropReason::UnknownPeer) == 2);
}

#[test]
fn a_cut_way_loses_frames_and_keeps_the_connection() {
    let nodes = cluster(2, |_| {});
    nodes[0].handle().set_link_faults(NodeId(1), LinkFaults::CUT);
    nodes[0].send(NodeId(1), "into the void");
    nodes[0].wait_count(|totals| totals.drops(DropReason::Cut) == 1);
    nodes[1].send(NodeId(0), "out of the void");
    nodes[0].wait_count(|totals| totals.drops(DropReason::Cut) == 2);
    nodes[0].handle().heal();
    nodes[0].send(NodeId(1), "hello");
    assert_eq!(nodes[1].wait_frame().1, "hello", "the first that passed");
    nodes[1].send(NodeId(0), "good day");
    assert_eq!(nodes[0].wait_frame().1, "good day", "the first that passed");
    assert_eq!(nodes[0].counters().reconnects, 0);
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let limits = NetworkLimits {
        peer_queue_frames_max: 10,
        peer_queue_bytes_max: 5000,
        frame_bytes_max: 10_000,
        ..NetworkLimits::default()
    };
    let nodes = cluster(2, move |config| config.limits = limits.clone());
    nodes[0].order(|_, out| {
        out.to_peer(NodeId(1), Bytes::from(vec![0; 10_001]));
        out.to_peer(NodeId(1), Bytes::from(vec![0; 5000]));
        (0..15).for_each(|number| out.to_peer(NodeId(1), Bytes::from(vec![number])));
    });
    nodes[0].wait_count(|totals| totals.drops(DropReason::TooLong) == 1);
    nodes[0].wait_count(|totals| totals.drops(DropReason::QueueFull) == 6);
    for number in 0..10 {
        assert_eq!(nodes[1].wait_frame().1, vec![number]);
    }
}

#[test]
fn workers_talk_to_their_like_and_nudge_each_other() {
    let nodes = cluster(2, |config| config.workers = 3);
    for worker in (0..3).map(WorkerId) {
        wait_until(|| (nodes[0].handle().counters_of(worker).connects == 1).then_some(()));
        let order: Order =
            Box::new(move |_, out| out.to_peer(NodeId(1), Bytes::from(vec![worker.0 as u8])));
        assert!(nodes[0].handle().command(worker, order).is_ok());
        let (at, frame) = nodes[1].wait(|happened| match &happened.input {
            CoreInput::FromPeer { frame, .. } => Some((happened.worker, frame.clone())),
            _ => None,
        });
        assert_eq!((at, &frame[..]), (worker, &[worker.0 as u8][..]));
    }
    nodes[0].order(|_, out| out.nudge(WorkerId(2)));
    let nudged = |happened: &crate::common::Happened| {
        (happened.input == CoreInput::Nudged).then_some(happened.worker)
    };
    assert_eq!(nodes[0].wait(nudged), WorkerId(2));
    nodes[0].handle().nudge(WorkerId(1));
    assert_eq!(nodes[0].wait(nudged), WorkerId(1));
}

#[test]
fn timers_go_off_and_not_early() {
    let node = Node::alone(config(0));
    let (asked, at) = mpsc::channel();
    node.order(move |now, out| {
        out.timer(now + Duration::from_secs(3600));
        out.timer(now + Duration::from_millis(5));
        asked.send(now + Duration::from_millis(5)).expect("the test waits");
    });
    let wanted = at.recv_timeout(PATIENCE).expect("asked");
    let timer = |happened: &crate::common::Happened| {
        (happened.input == CoreInput::Timer).then_some(happened.at)
    };
    assert!(node.wait(timer) >= wanted);
    // A time that has passed is now.
    node.order(|_, out| out.timer(Time(1)));
    node.wait(timer);
}

#[test]
fn a_core_that_stops_ends_the_node_and_one_that_panics_too() {
    let node = Node::alone(NetworkConfig { workers: 2, ..config(0) });
    node.order(|_, out| out.stop());
    assert_eq!(node.network.join(), Ok(()));

    let node = Node::alone(NetworkConfig { workers: 2, ..config(0) });
    let order: Order = Box::new(|_, _| panic!("on purpose"));
    assert!(node.handle().command(WorkerId(1), order).is_ok());
    assert_eq!(node.network.join(), Err(Panicked(WorkerId(1))));
}

/// A core that says what is to be sent only when a turn ends.
struct Late(Vec<(NodeId, Bytes)>);

impl Core for Late {
    type Command = (NodeId, Bytes);

    fn step(&mut self, _: Time, input: CoreInput<(NodeId, Bytes)>, _: &mut Outbox) {
        if let CoreInput::Command(later) = input {
            self.0.push(later);
        }
    }

    fn end_turn(&mut self, _: Time, out: &mut Outbox) {
        self.0.drain(..).for_each(|(node, frame)| out.to_peer(node, frame));
    }
}

#[test]
fn what_is_said_at_the_end_of_a_turn_is_sent_with_it() {
    let other = Node::alone(config(1));
    let peers = vec![peer(1, other.address())];
    let node = Network::start(
        NetworkConfig { peers, ..config(0) },
        port(),
        |_, _: &Handle<(NodeId, Bytes)>| Late(Vec::new()),
    )
    .expect("a node");
    other.handle().set_peer(&peer(0, node.address()));
    wait_until(|| (node.handle().counters().connects == 1).then_some(()));
    node.handle().command(WORKER, (NodeId(1), Bytes::from_static(b"late"))).expect("heard");
    assert_eq!(other.wait_frame().1, "late");
}

#[test]
fn an_idle_node_does_nothing() {
    let nodes = cluster(3, |_| {});
    let (_never, pause) = mpsc::channel::<()>();
    // Soon there is a while in which nothing at all is done.
    wait_until(|| {
        let before: Vec<_> = nodes.iter().map(Node::counters).collect();
        let _ = pause.recv_timeout(Duration::from_millis(300));
        let after: Vec<_> = nodes.iter().map(Node::counters).collect();
        (before == after).then_some(())
    });
}

/// Node 0 is of an older release than node 1, as in the midst of an upgrade.
#[test]
fn nodes_of_two_releases_speak_the_newest_version_that_both_know() {
    let versions = |node: NodeId| match node {
        NodeId(0) => MessageVersions::new(1, 2),
        _ => MessageVersions::new(2, 3),
    };
    let listeners = [port(), port()];
    let addresses = [0, 1].map(|at: usize| listeners[at].local_addr().expect("an address"));
    let nodes: Vec<Node> = (0..)
        .zip(listeners)
        .map(|(own, listener)| {
            let other = 1 - own;
            let peers = vec![peer(other, addresses[other as usize])];
            let peer_versions = versions(NodeId(own));
            Node::start(NetworkConfig { peers, peer_versions, ..config(own) }, listener)
        })
        .collect();
    for node in &nodes {
        let version = node.wait(|happened| match happened.input {
            CoreInput::PeerUp { version, .. } => Some(version),
            _ => None,
        });
        assert_eq!(version, MessageVersion(2));
    }
    nodes[0].send(NodeId(1), "hello");
    assert_eq!(nodes[1].wait_frame().1, "hello");
}

/// A release was skipped: the nodes have no version in common, report it, and try again; no frame passes.
#[test]
fn nodes_without_a_common_version_stay_apart() {
    let listeners = [port(), port()];
    let addresses = [0, 1].map(|at: usize| listeners[at].local_addr().expect("an address"));
    let nodes: Vec<Node> = (0..)
        .zip(listeners)
        .map(|(own, listener)| {
            let other = 1 - own;
            let peers = vec![peer(other, addresses[other as usize])];
            let peer_versions = match own {
                0 => MessageVersions::new(1, 1),
                _ => MessageVersions::new(2, 3),
            };
            Node::start(NetworkConfig { peers, peer_versions, ..config(own) }, listener)
        })
        .collect();
    for node in &nodes {
        let totals = node.wait_count(|totals| totals.closes(CloseReason::NoCommonVersion) > 1);
        assert_eq!((totals.connects, totals.admitted), (0, 0));
    }
}
