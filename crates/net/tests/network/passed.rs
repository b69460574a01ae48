//! Frames to workers of other numbers, of other nodes and of the same one.

use crate::common::{Happened, Node, Order, PATIENCE, WORKER, cluster, wait_until};
use bytes::Bytes;
use shoal_net::{CoreInput, DropReason, LinkFaults, NetworkLimits};
use shoal_types::{NodeId, WorkerId, WorkerPlace};
use std::sync::mpsc;

fn place(node: u32, worker: u32) -> WorkerPlace {
    WorkerPlace { node: NodeId(node), worker: WorkerId(worker) }
}

/// Has a worker do something, as soon as its connection to the other node stands.
fn order(node: &Node, worker: u32, order: Order) {
    let worker = WorkerId(worker);
    wait_until(|| (node.handle().counters_of(worker).connects == 1).then_some(()));
    assert!(node.handle().command(worker, order).is_ok(), "{worker} has ended");
}

/// The next frame of another worker: its receiver, its sender, and the frame.
#[track_caller]
fn wait_passed(node: &Node) -> (WorkerId, WorkerPlace, Bytes) {
    node.wait(|happened: &Happened| match &happened.input {
        CoreInput::FromPeer { from, frame, .. } => Some((happened.worker, *from, frame.clone())),
        _ => None,
    })
}

/// Holds up a worker until the sender that is returned is dropped. It has begun to wait.
fn hold_up(node: &Node, worker: u32) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    order(
        node,
        worker,
        Box::new(move |_, _| {
            begun.send(()).expect("the test waits");
            let _ = released.recv();
        }),
    );
    begins.recv_timeout(PATIENCE).expect("it begins");
    release
}

#[test]
fn any_worker_reaches_any_other_of_any_node() {
    let nodes = cluster(2, |config| config.workers = 3);
    for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))) {
        if from == to {
            continue;
        }
        let (from, to) = (place(from / 3, from % 3), place(to / 3, to % 3));
        let said = Bytes::from(format!("{from} to {to}"));
        let frame = said.clone();
        let node = &nodes[from.node.0 as usize];
        order(node, from.worker.0, Box::new(move |_, out| out.to_worker(to, frame)));
        assert_eq!(wait_passed(&nodes[to.node.0 as usize]), (to.worker, from, said));
    }
}

#[test]
fn frames_of_one_sender_keep_their_order_large_ones_too() {
    let nodes = cluster(2, |config| config.workers = 2);
    let sizes = [1, 3_000_000, 2, 300_000, 3];
    for to in [place(1, 1), place(0, 1)] {
        order(
            &nodes[0],
            0,
            Box::new(move |_, out| {
                sizes.iter().for_each(|size| out.to_worker(to, Bytes::from(vec![7; *size])));
            }),
        );
        for size in sizes {
            let (receiver, from, frame) = wait_passed(&nodes[to.node.0 as usize]);
            assert_eq!((receiver, from, frame.len()), (to.worker, place(0, 0), size));
        }
    }
}

#[test]
fn what_finds_no_room_is_lost_and_counted() {
    let limits = NetworkLimits { passed_frames_max: 10, ..NetworkLimits::default() };
    let nodes = cluster(2, move |config| {
        config.workers = 2;
        config.limits = limits.clone();
    });
    for to in [place(1, 1), place(0, 1)] {
        let receiver = &nodes[to.node.0 as usize];
        let release = hold_up(receiver, 1);
        order(
            &nodes[0],
            0,
            Box::new(move |_, out| {
                (0..13).for_each(|number| out.to_worker(to, Bytes::from(vec![number])));
            }),
        );
        receiver.wait_count(|totals| totals.drops(DropReason::MailboxFull) == 3);
        drop(release);
        for number in 0..10 {
            assert_eq!(
                wait_passed(receiver),
                (WorkerId(1), place(0, 0), Bytes::from(vec![number]))
            );
        }
    }
}

#[test]
fn what_is_for_a_worker_that_is_not_is_dropped_and_the_connection_stands() {
    // Node 0 believes that nodes have three workers.
    let nodes = cluster(2, |config| config.workers = if config.node == NodeId(0) { 3 } else { 2 });
    let frames = [(place(1, 2), "nowhere"), (place(1, 1), "there"), (place(1, 0), "straight")];
    nodes[0].order(move |_, out| {
        for (to, frame) in frames {
            out.to_worker(to, Bytes::from_static(frame.as_bytes()));
        }
    });
    let mut received = [wait_passed(&nodes[1]), wait_passed(&nodes[1])];
    received.sort_by_key(|(receiver, ..)| *receiver);
    let [(_, from, straight), (_, also_from, there)] = received;
    assert_eq!((from, also_from), (place(0, 0), place(0, 0)));
    assert_eq!((&straight[..], &there[..]), (&b"straight"[..], &b"there"[..]));
    let totals = nodes[1].wait_count(|totals| totals.drops(DropReason::UnknownWorker) == 1);
    assert_eq!(totals.drops(DropReason::MailboxFull), 0);
}

#[test]
fn a_node_that_is_cut_off_reaches_none_of_the_workers() {
    let nodes = cluster(2, |config| config.workers = 2);
    nodes[1]
        .handle()
        .set_link_faults(NodeId(0), LinkFaults { cut_from: true, ..LinkFaults::default() });
    let say = |frame: &'static str| {
        nodes[0]
            .order(move |_, out| out.to_worker(place(1, 1), Bytes::from_static(frame.as_bytes())));
    };
    say("lost");
    nodes[1].wait_count(|totals| totals.drops(DropReason::Cut) == 1);
    nodes[1].handle().heal();
    // When a loop has learned of the command, it has healed.
    let (healed, heals) = mpsc::channel();
    let told = move |_, _: &mut shoal_net::Outbox| healed.send(()).expect("the test waits");
    assert!(nodes[1].handle().command(WORKER, Box::new(told)).is_ok());
    heals.recv_timeout(PATIENCE).expect("it has heard");
    say("heard");
    assert_eq!(wait_passed(&nodes[1]).2, "heard");
}
