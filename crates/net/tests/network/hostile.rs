//! Connections that are hostile, or of another protocol: each is closed for a reason that is counted, and the node goes
//! on as if nothing had been.

use crate::clients::block_on;
use crate::common::{Node, PATIENCE, SECRET, WORKER, config, peer, wait_until};
use bytes::Bytes;
use shoal_net::client::{Access, connect};
use shoal_net::{
    CloseReason, CoreInput, FrameHeader, FrameKind, Network, NetworkConfig, NetworkLimits, Outbox,
    Secret, VERSION,
};
use shoal_types::{NodeId, Random, Time, WorkerId};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use zerocopy::IntoBytes;

const PEER: u8 = 1;
const CLIENT: u8 = 2;

/// A hello without the name of a cluster.
const HELLO_BYTES: usize = 64;

fn preamble(role: u8, worker: u16) -> Vec<u8> {
    [b"SHOL", &[VERSION, role][..], &worker.to_le_bytes()].concat()
}

fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    [FrameHeader::new(kind, payload.len()).as_bytes(), payload].concat()
}

fn dial(node: &Node) -> TcpStream {
    let socket = TcpStream::connect(node.address()).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket.set_nodelay(true).expect("set");
    socket
}

/// What the node says until it closes the connection.
fn answer(socket: &mut TcpStream) -> Vec<u8> {
    let mut told = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return told,
            Ok(count) => told.extend_from_slice(&buffer[..count]),
            // A reset says the same as an end.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return told,
            Err(error) => panic!("not closed: {error}"),
        }
    }
}

/// The node still lets clients in and answers them.
fn is_well(node: &Node) {
    block_on(async {
        let address = node.address().to_string();
        let connection = connect(&address, &Access::open("reef"), None).await.expect("let in");
        connection.sender.send(Bytes::from_static(b"well?")).await.expect("sent");
        assert_eq!(node.wait_frame().1, "well?");
    });
}

#[test]
fn a_malformed_preamble_is_closed_for_a_reason() {
    let node = Node::alone(NetworkConfig { peers: vec![], ..config(0) });
    let hello = frame(FrameKind::Hello, &[0; HELLO_BYTES]);
    let mut long = frame(FrameKind::Hello, &[]);
    long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases = [
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec(), CloseReason::WrongMagic),
        ("another version", [&b"SHOL"[..], &[99, 1, 0, 0]].concat(), CloseReason::WrongVersion),
        ("no role", preamble(7, 0), CloseReason::Malformed),
        ("TLS where it is off", preamble(PEER | 0x80, 0), CloseReason::WrongTls),
        ("a worker that is not", preamble(PEER, 9), CloseReason::WrongWorker),
        ("half a preamble", b"SHO".to_vec(), CloseReason::Truncated),
        ("nothing", vec![], CloseReason::Left),
        ("no hello", preamble(CLIENT, 0), CloseReason::Left),
        (
            "half a hello",
            [preamble(CLIENT, 0), hello[..9].to_vec()].concat(),
            CloseReason::Truncated,
        ),
        (
            "a short hello",
            [preamble(CLIENT, 0), frame(FrameKind::Hello, b"me")].concat(),
            CloseReason::Malformed,
        ),
        ("a hello of 4 GiB", [preamble(CLIENT, 0), long].concat(), CloseReason::TooLong),
        ("no cluster", [preamble(CLIENT, 0), hello.clone()].concat(), CloseReason::WrongCluster),
        (
            "data before the proof",
            [preamble(CLIENT, 0), frame(FrameKind::Data, b"put x 1")].concat(),
            CloseReason::Unexpected,
        ),
        ("garbage", [preamble(PEER, 0), vec![0xa5; 500]].concat(), CloseReason::Malformed),
    ];
    for (case, bytes, reason) in cases {
        let before = node.counters().closes(reason);
        let mut socket = dial(&node);
        socket.write_all(&bytes).expect("written");
        // The node may have closed it by now.
        let _ = socket.shutdown(Shutdown::Write);
        answer(&mut socket);
        node.wait_count(|totals| totals.closes(reason) == before + 1);
        assert_eq!(node.counters().admitted, 0, "{case}");
    }
    assert!(node.happened.try_iter().all(|happened| happened.input == CoreInput::Started));
    is_well(&node);
}

#[test]
fn random_bytes_cost_nothing_else() {
    let node = Node::alone(config(0));
    let mut random = Random::new(11);
    let refused = |totals: &shoal_net::CounterTotals| -> u64 {
        CloseReason::ALL.iter().map(|reason| totals.closes(*reason)).sum()
    };
    for round in 1..=200 {
        let role = if random.chance(1, 2) { PEER } else { CLIENT };
        let mut bytes = if random.chance(3, 4) { preamble(role, 0) } else { Vec::new() };
        bytes.extend((0..random.below(300)).map(|_| random.next_u64() as u8));
        let mut socket = dial(&node);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        answer(&mut socket);
        node.wait_count(|totals| refused(totals) == round);
    }
    assert_eq!(node.counters().admitted, 0);
    is_well(&node);
}

#[test]
fn whoever_dawdles_is_closed_and_the_crowd_makes_room() {
    let limits = NetworkLimits {
        handshake_max: Duration::from_millis(200),
        unauthenticated_max: 8,
        ..NetworkLimits::default()
    };
    let node = Node::alone(NetworkConfig { limits, ..config(0) });
    // One that says nothing, and one that says a byte of its hello now and then.
    let mut silent = dial(&node);
    let mut slow = dial(&node);
    slow.write_all(&preamble(CLIENT, 0)).expect("written");
    let hello = frame(FrameKind::Hello, &[0; HELLO_BYTES]);
    for byte in &hello[..hello.len() - 1] {
        if node.counters().closes(CloseReason::SlowHandshake) == 2 {
            break;
        }
        let _ = slow.write_all(&[*byte]);
    }
    answer(&mut silent);
    node.wait_count(|totals| totals.closes(CloseReason::SlowHandshake) == 2);

    // More unauthenticated connections than allowed: the oldest are closed, and others are admitted.
    let _crowd: Vec<_> = (0..50).map(|_| dial(&node)).collect();
    node.wait_count(|totals| {
        totals.accepted >= 52
            && totals.closes(CloseReason::TooManyUnauthenticated)
                + totals.closes(CloseReason::SlowHandshake)
                >= 44
    });
    is_well(&node);
}

/// A client that proves itself, spoken by hand.
fn enter(node: &Node) -> TcpStream {
    use ring::hmac;
    let mut socket = dial(node);
    let start = preamble(CLIENT, 0);
    let mut hello = [0; HELLO_BYTES].to_vec();
    hello[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    hello[28..32].copy_from_slice(&[1, 0, 1, 0]);
    hello.extend_from_slice(b"reef");
    socket.write_all(&[start.clone(), frame(FrameKind::Hello, &hello)].concat()).expect("written");
    let mut challenge = [0; 8 + 60];
    socket.read_exact(&mut challenge).expect("a challenge");
    // As the documentation of the handshake says it, with an empty secret.
    let parts: [&[u8]; 6] =
        [b"shoal handshake", b"dialer", &start, &hello, &challenge[8..], &[0; 32]];
    let said: Vec<u8> = parts
        .iter()
        .flat_map(|part| [&(part.len() as u64).to_le_bytes(), *part].concat())
        .collect();
    let proof = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[]), &said);
    socket.write_all(&frame(FrameKind::Proof, proof.as_ref())).expect("written");
    let mut welcome = [0; 8 + 32];
    socket.read_exact(&mut welcome).expect("a welcome");
    socket
}

/// One that then goes mad.
fn mad_client(node: &Node, bytes: &[u8]) {
    let mut socket = enter(node);
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    answer(&mut socket);
}

#[test]
fn whoever_goes_mad_after_the_proof_is_closed_and_forgotten() {
    let limits = NetworkLimits { frame_bytes_max: 1000, ..NetworkLimits::default() };
    let node = Node::alone(NetworkConfig { limits, ..config(0) });
    let mut broken = frame(FrameKind::Data, b"abc");
    broken[5] = 1;
    let passed = FrameHeader::new(FrameKind::Data, 0).passed_to(WorkerId(0)).as_bytes().to_vec();
    let cases = [
        (frame(FrameKind::Data, &[0; 1001]), CloseReason::TooLong),
        (broken, CloseReason::Malformed),
        // Only nodes send what is to be passed to another worker.
        (passed, CloseReason::Malformed),
        (frame(FrameKind::Hello, b"again"), CloseReason::Unexpected),
        (frame(FrameKind::Data, b"abc")[..9].to_vec(), CloseReason::Truncated),
        (vec![0xff; 64], CloseReason::Malformed),
        (frame(FrameKind::Bye, b""), CloseReason::Left),
        (frame(FrameKind::Data, b"abc"), CloseReason::Left),
    ];
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        let before = node.counters().closes(reason);
        mad_client(&node, &bytes);
        node.wait_count(|totals| totals.closes(reason) == before + 1);
        assert_eq!(node.counters().clients_gone, number as u64 + 1);
    }
    for _ in 0..8 {
        node.wait(|happened| match &happened.input {
            CoreInput::FromClient { frame, .. } => {
                assert_eq!(frame, "abc", "only what was whole");
                None
            }
            input => matches!(input, CoreInput::ClientGone { .. }).then_some(()),
        });
    }
    is_well(&node);
}

#[test]
fn a_client_that_never_reads_again_is_given_up() {
    let limits =
        NetworkLimits { silence_max: Duration::from_millis(500), ..NetworkLimits::default() };
    let node = Node::alone(NetworkConfig { limits, ..config(0) });
    let mut socket = enter(&node);
    socket.write_all(&frame(FrameKind::Data, b"all of it")).expect("written");
    let client = node.wait(|happened| match happened.input {
        CoreInput::FromClient { client, .. } => Some(client),
        _ => None,
    });
    // More than buffers take, less than it may be behind.
    node.order(move |_, out| {
        (0..30).for_each(|_| out.to_client(client, Bytes::from(vec![0; 1 << 20])));
    });
    node.wait_count(|totals| totals.closes(CloseReason::Vanished) == 1);
    is_well(&node);
}

#[test]
fn who_floods_does_not_keep_others_waiting() {
    let limits =
        NetworkLimits { turn_frames_max: 8, unread_frames_max: 16, ..NetworkLimits::default() };
    let node = Node::alone(NetworkConfig { limits, ..config(0) });
    let mut socket = enter(&node);
    let flood = frame(FrameKind::Data, b"me").repeat(10_000);
    socket.write_all(&flood).expect("written");
    is_well_amid(&node, 10_000);
    assert!(node.counters().turns >= 10_000 / 8, "{:?}", node.counters());
}

/// All of a flood is received, and another client as well.
fn is_well_amid(node: &Node, flood: usize) {
    block_on(async {
        let address = node.address().to_string();
        let connection = connect(&address, &Access::open("reef"), None).await.expect("let in");
        connection.sender.send(Bytes::from_static(b"well?")).await.expect("sent");
        let mut received: Vec<_> = (0..=flood).map(|_| node.wait_frame().1).collect();
        received.retain(|frame| frame == "well?");
        assert_eq!(received.len(), 1);
    });
}

#[test]
fn a_peer_with_another_secret_or_in_a_former_process_stays_out() {
    let node = Node::alone(NetworkConfig { peers: vec![], ..config(0) });
    let at_node = vec![peer(0, node.address())];
    let unauthenticated = Node::alone(NetworkConfig {
        peers: at_node.clone(),
        ..NetworkConfig::new("reef", NodeId(1), Secret::new([8; 32]))
    });
    node.handle().set_peer(&peer(1, unauthenticated.address()));
    node.wait_count(|totals| totals.closes(CloseReason::WrongSecret) > 0);
    unauthenticated.wait_count(|totals| totals.closes(CloseReason::Refused) > 0);
    assert_eq!((node.counters().admitted, unauthenticated.counters().admitted), (0, 0));
    drop(unauthenticated);

    // The same node twice: the later process stays.
    let config_of = |instance| NetworkConfig {
        instance,
        peers: at_node.clone(),
        ..NetworkConfig::new("reef", NodeId(1), Secret::new(SECRET))
    };
    let first = Node::alone(config_of(1));
    first.wait_up(NodeId(0));
    let second = Node::alone(config_of(2));
    second.wait_up(NodeId(0));
    node.wait_count(|totals| totals.closes(CloseReason::Superseded) == 1);
    node.wait_count(|totals| totals.closes(CloseReason::FormerProcess) > 0);
    second.send(NodeId(0), "I am the one");
    assert_eq!(node.wait_frame().1, "I am the one");
    // When the later one is gone, the former may come back: no node is locked out for good.
    drop(second);
    first.wait_up(NodeId(0));
}

/// A core that does nothing with its inputs.
struct Deaf;

impl shoal_net::Core for Deaf {
    type Command = ();

    fn step(&mut self, _: Time, _: CoreInput<()>, _: &mut Outbox) {}
}

#[test]
fn a_peer_that_is_not_who_was_dialed_is_left_alone() {
    let other = Node::alone(config(7));
    // Dials node 1 where node 7 is.
    let peers = vec![peer(1, other.address())];
    let node =
        Network::start(NetworkConfig { peers, ..config(0) }, crate::common::port(), |_, _: &_| {
            Deaf
        })
        .expect("a node");
    other.handle().set_peer(&peer(0, node.address()));
    other.wait_count(|totals| totals.closes(CloseReason::WrongNode) > 0);
    wait_until(|| (node.handle().counters().closes(CloseReason::Refused) > 0).then_some(()));
    assert_eq!(node.handle().counters_of(WORKER).connects, 0);
}
