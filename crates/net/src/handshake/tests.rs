//! Handshakes over a pipe: those that succeed, and each way in which one must not.

use super::*;
use crate::frame::HEADER_BYTES;
use proptest::prelude::*;
use std::future::Future;
use tokio::io::{DuplexStream, duplex};

const HOST: AcceptingEnd = AcceptingEnd { node: NodeId(2), worker: WorkerId(1), instance: 9 };
const PEER_ONE: DialingEnd = DialingEnd::Peer { node: NodeId(1), worker: WorkerId(1), instance: 5 };

/// Knows node 1, and not in its first four lives.
struct Porter;

impl AdmissionPolicy for Porter {
    fn knows(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { node: NodeId(1), .. }
            | DialingEnd::Client
            | DialingEnd::Operator => Ok(()),
            DialingEnd::Peer { .. } => Err(CloseReason::UnknownNode),
        }
    }

    fn admits(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { instance: ..5, .. } => Err(CloseReason::StaleLife),
            DialingEnd::Peer { .. } | DialingEnd::Client | DialingEnd::Operator => Ok(()),
        }
    }
}

#[derive(Clone)]
struct Side {
    cluster: &'static str,
    secret: Secret,
    binding: Binding,
    caller: DialingEnd,
    wanted: Option<NodeId>,
    identity: Option<ClusterId>,
}

fn side() -> Side {
    Side {
        cluster: "reef",
        secret: Secret::new([1; 32]),
        binding: [0; 32],
        caller: PEER_ONE,
        wanted: Some(NodeId(2)),
        identity: None,
    }
}

impl Side {
    /// Both sides look at the preamble that the dialer sent.
    fn terms(&self, preamble: Preamble) -> HandshakeTerms<'_> {
        let Side { cluster, secret, binding, identity, .. } = self;
        HandshakeTerms { cluster, identity: *identity, secret, preamble, binding: *binding }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

async fn dial_on(stream: &mut DuplexStream, side: &Side) -> Result<AcceptingEnd, HandshakeError> {
    let preamble = Preamble::new(&side.caller, Some(WorkerId(1)), false);
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    let terms = side.terms(preamble);
    Ok(dial(stream, &mut reader, &terms, &side.caller, side.wanted).await?.0)
}

async fn accept_on(stream: &mut DuplexStream, side: &Side) -> Result<DialingEnd, HandshakeError> {
    let preamble = Preamble::new(&side.caller, Some(WorkerId(1)), false);
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    accept(stream, &mut reader, &side.terms(preamble), &HOST, &Porter).await
}

/// Plays bytes to one side, in pieces, until it ends or all is said, and then hangs up.
async fn play(mut wire: DuplexStream, heard: &[u8], piece_bytes: usize) {
    for piece in heard.chunks(piece_bytes) {
        if wire.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// The acceptor hears these bytes. They cannot hold a proof, since they do not answer its nonce.
pub(crate) fn hear_as_acceptor(heard: &[u8], piece_bytes: usize) {
    let (wire, mut far) = duplex(1 << 16);
    let side = side();
    let met = block_on(async {
        tokio::join!(play(wire, heard, piece_bytes), accept_on(&mut far, &side)).1
    });
    assert!(met.is_err(), "accepted {met:?}");
}

/// The dialer hears these bytes.
pub(crate) fn hear_as_dialer(heard: &[u8], piece_bytes: usize) {
    let (wire, mut near) = duplex(1 << 16);
    let side = side();
    let met = block_on(async {
        tokio::join!(play(wire, heard, piece_bytes), dial_on(&mut near, &side)).1
    });
    assert!(met.is_err(), "dialed {met:?}");
}

fn shake(
    dialer: &Side,
    acceptor: &Side,
) -> (Result<AcceptingEnd, HandshakeError>, Result<DialingEnd, HandshakeError>) {
    let (mut near, mut far) = duplex(4096);
    block_on(async { tokio::join!(dial_on(&mut near, dialer), accept_on(&mut far, acceptor)) })
}

#[test]
fn both_learn_who_the_other_is() {
    assert_eq!(shake(&side(), &side()), (Ok(HOST), Ok(PEER_ONE)));
    let client =
        Side { caller: DialingEnd::Client, wanted: None, secret: Secret::none(), ..side() };
    assert_eq!(shake(&client, &client), (Ok(HOST), Ok(DialingEnd::Client)));
}

#[test]
fn ends_that_know_of_different_foundings_go_apart_once_both_are_proved() {
    let of = |number| Side { identity: ClusterId::new(number), ..side() };
    for (dialer, acceptor) in [(0, 0), (0, 5), (5, 0), (5, 5)] {
        assert_eq!(shake(&of(dialer), &of(acceptor)), (Ok(HOST), Ok(PEER_ONE)));
    }
    let other = |number| HandshakeError::Other(ClusterId::new(number).expect("not 0"));
    assert_eq!(shake(&of(5), &of(6)), (Err(other(6)), Err(other(5))));
    assert_eq!(other(6).reason(), CloseReason::OtherFounding);
    // What is said without the secret is not believed.
    let stranger = Side { secret: Secret::new([2; 32]), ..of(6) };
    let refused = CloseReason::WrongSecret;
    assert_eq!(shake(&of(5), &stranger).0, Err(HandshakeError::There(refused)));
}

#[test]
fn each_refusal_is_told() {
    let peer = |node, worker, instance| DialingEnd::Peer {
        node: NodeId(node),
        worker: WorkerId(worker),
        instance,
    };
    let cases = [
        (Side { secret: Secret::new([2; 32]), ..side() }, CloseReason::WrongSecret),
        (Side { cluster: "atoll", ..side() }, CloseReason::WrongCluster),
        (Side { cluster: "", ..side() }, CloseReason::WrongCluster),
        (Side { wanted: Some(NodeId(3)), ..side() }, CloseReason::WrongNode),
        (Side { caller: peer(7, 1, 5), ..side() }, CloseReason::UnknownNode),
        (Side { caller: peer(1, 0, 5), ..side() }, CloseReason::WrongWorker),
        (Side { caller: peer(1, 1, 4), ..side() }, CloseReason::StaleLife),
        // An attacker between the two, with a TLS session to each.
        (Side { binding: [3; 32], ..side() }, CloseReason::WrongSecret),
    ];
    for (dialer, reason) in cases {
        let (dialed, accepted) = shake(&dialer, &side());
        assert_eq!(accepted, Err(HandshakeError::Here(reason)));
        assert_eq!(dialed, Err(HandshakeError::There(reason)));
    }
}

#[test]
fn a_client_cannot_pass_for_a_peer() {
    // It knows its own secret, and says in the hello anything.
    let client = Side { secret: Secret::none(), ..side() };
    assert_eq!(shake(&client, &side()).1, Err(HandshakeError::Here(CloseReason::WrongSecret)));
}

/// Records what one side says, or plays it to the other.
async fn take(stream: &mut DuplexStream, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + payload];
    stream.read_exact(&mut bytes).await.expect("a message");
    bytes
}

const HELLO: usize = size_of::<HelloLayout>() + 4;
const CHALLENGE: usize = size_of::<ChallengeLayout>();

#[test]
fn a_proof_is_worth_nothing_the_next_time() {
    block_on(async {
        // A whole handshake, overheard.
        let ((mut near, mut wire), (mut tap, mut far)) = (duplex(4096), duplex(4096));
        let overheard = async {
            let hello = take(&mut wire, HELLO).await;
            tap.write_all(&hello).await.expect("passed on");
            let challenge = take(&mut tap, CHALLENGE).await;
            wire.write_all(&challenge).await.expect("passed on");
            let proof = take(&mut wire, 32).await;
            tap.write_all(&proof).await.expect("passed on");
            let welcome = take(&mut tap, 32).await;
            wire.write_all(&welcome).await.expect("passed on");
            [hello, proof]
        };
        let (us, we) = (side(), side());
        let (dialed, accepted, said) =
            tokio::join!(dial_on(&mut near, &us), accept_on(&mut far, &we), overheard);
        assert!(dialed.is_ok() && accepted.is_ok());

        let (mut replayed, mut far) = duplex(4096);
        replayed.write_all(&said.concat()).await.expect("room");
        let accepted = accept_on(&mut far, &we).await;
        assert_eq!(accepted, Err(HandshakeError::Here(CloseReason::WrongSecret)));
    });
}

#[test]
fn a_proof_is_not_taken_back_as_an_answer() {
    block_on(async {
        let (mut near, mut mirror) = duplex(4096);
        let us = side();
        let reflect = async {
            // Says hello back as a challenge, and the proof as a welcome.
            take(&mut mirror, HELLO).await;
            let layout = ChallengeLayout {
                node: U32::new(2),
                worker: U16::new(1),
                zero: U16::ZERO,
                instance: U64::new(9),
                identity: U64::ZERO,
                nonce: [0; 32],
            };
            write(&mut mirror, FrameKind::Challenge, layout.as_bytes()).await.expect("room");
            let proof = take(&mut mirror, 32).await;
            write(&mut mirror, FrameKind::Welcome, &proof[HEADER_BYTES..]).await.expect("room");
        };
        let (dialed, ()) = tokio::join!(dial_on(&mut near, &us), reflect);
        assert_eq!(dialed, Err(HandshakeError::Here(CloseReason::WrongSecret)));
    });
}

/// What an acceptor makes of these bytes and then the end.
fn accepted_of(bytes: &[u8]) -> Result<DialingEnd, HandshakeError> {
    block_on(async {
        let (mut near, mut far) = duplex(1 << 20);
        near.write_all(bytes).await.expect("room");
        near.shutdown().await.expect("ended");
        accept_on(&mut far, &side()).await
    })
}

#[test]
fn messages_out_of_place_are_refused() {
    let frame =
        |kind, payload: &[u8]| [FrameHeader::new(kind, payload.len()).as_bytes(), payload].concat();
    let cases = [
        (vec![], CloseReason::Left),
        (frame(FrameKind::Hello, b"")[..5].to_vec(), CloseReason::Truncated),
        (frame(FrameKind::Hello, b"short"), CloseReason::Malformed),
        (frame(FrameKind::Data, b"too early"), CloseReason::Unexpected),
        (frame(FrameKind::Proof, &[0; 32]), CloseReason::Unexpected),
        (frame(FrameKind::Hello, &[0; MESSAGE_BYTES_MAX + 1]), CloseReason::TooLong),
        (vec![0xff; 100], CloseReason::Malformed),
    ];
    for (bytes, reason) in cases {
        assert_eq!(accepted_of(&bytes), Err(HandshakeError::Here(reason)));
    }
}

#[test]
fn a_preamble_says_what_is_wrong_with_it() {
    let good = Preamble::new(&PEER_ONE, Some(WorkerId(3)), false);
    assert_eq!(good.check(false), Ok(()));
    assert_eq!((good.worker(), good.is_peer()), (Some(WorkerId(3)), true));
    assert_eq!(good.check(true), Err(CloseReason::WrongTls));
    assert_eq!(Preamble::new(&DialingEnd::Client, None, true).check(true), Ok(()));
    assert_eq!(Preamble::new(&DialingEnd::Client, None, true).worker(), None);
    let operator = Preamble::new(&DialingEnd::Operator, None, false);
    assert_eq!((operator.check(false), operator.is_operator()), (Ok(()), true));
    assert!(!operator.is_peer());
    let http = Preamble::read_from_bytes(b"GET / HT").expect("8 bytes");
    assert_eq!(http.check(false), Err(CloseReason::WrongMagic));
    assert_eq!(Preamble { version: 2, ..good }.check(false), Err(CloseReason::WrongVersion));
    assert_eq!(Preamble { role: 4, ..good }.check(false), Err(CloseReason::Malformed));
}

proptest! {
    #[test]
    fn garbage_is_refused_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(accepted_of(&bytes).is_err());
    }

    #[test]
    fn a_hello_with_damage_gets_no_further(at in 0..HELLO, byte in any::<u8>()) {
        let layout = HelloLayout {
            node: U32::new(1),
            worker: U16::new(1),
            zero: U16::ZERO,
            instance: U64::new(5),
            wanted: U32::new(2),
            identity: U64::ZERO,
            nonce: [4; 32],
        };
        let mut hello = [layout.as_bytes(), b"reef"].concat();
        hello[at] = byte;
        let bytes = [FrameHeader::new(FrameKind::Hello, hello.len()).as_bytes(), &hello].concat();
        prop_assert!(accepted_of(&bytes).is_err());
    }
}
