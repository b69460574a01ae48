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
            DialingEnd::Peer { instance: ..5, .. } => Err(CloseReason::FormerProcess),
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
    engine_digest: u16,
    versions: MessageVersions,
}

fn side() -> Side {
    Side {
        cluster: "reef",
        secret: Secret::new([1; 32]),
        binding: [0; 32],
        caller: PEER_ONE,
        wanted: Some(NodeId(2)),
        identity: None,
        engine_digest: 0,
        versions: MessageVersions::new(1, 1),
    }
}

impl Side {
    /// Both sides look at the preamble that the dialer sent.
    fn terms(&self, preamble: Preamble) -> HandshakeTerms<'_> {
        let Side { cluster, secret, .. } = self;
        let Side { binding, identity, engine_digest, versions, .. } = *self;
        HandshakeTerms { cluster, identity, engine_digest, versions, secret, preamble, binding }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

async fn dial_on(stream: &mut DuplexStream, side: &Side) -> Result<DialOutcome, HandshakeError> {
    let preamble = Preamble::new(&side.caller, Some(WorkerId(1)), false);
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    let terms = side.terms(preamble);
    dial(stream, &mut reader, &terms, &side.caller, side.wanted).await
}

async fn accept_on(
    stream: &mut DuplexStream,
    side: &Side,
) -> Result<AcceptOutcome, HandshakeError> {
    let preamble = Preamble::new(&side.caller, Some(WorkerId(1)), false);
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    accept(stream, &mut reader, &side.terms(preamble), &HOST, &Porter).await
}

/// Plays bytes to one side, in pieces, until it ends or all is said, and then hangs up.
async fn play(mut wire: DuplexStream, received: &[u8], piece_bytes: usize) {
    for piece in received.chunks(piece_bytes) {
        if wire.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// The acceptor receives these bytes. They cannot hold a proof, since they do not answer its nonce.
pub(crate) fn feed_acceptor(received: &[u8], piece_bytes: usize) {
    let (wire, mut far) = duplex(1 << 16);
    let side = side();
    let met = block_on(async {
        tokio::join!(play(wire, received, piece_bytes), accept_on(&mut far, &side)).1
    });
    assert!(met.is_err(), "accepted {met:?}");
}

/// The dialer receives these bytes.
pub(crate) fn feed_dialer(received: &[u8], piece_bytes: usize) {
    let (wire, mut near) = duplex(1 << 16);
    let side = side();
    let met = block_on(async {
        tokio::join!(play(wire, received, piece_bytes), dial_on(&mut near, &side)).1
    });
    assert!(met.is_err(), "dialed {met:?}");
}

type Outcomes = (Result<DialOutcome, HandshakeError>, Result<AcceptOutcome, HandshakeError>);

fn agree(dialer: &Side, acceptor: &Side) -> Outcomes {
    let (mut near, mut far) = duplex(4096);
    block_on(async { tokio::join!(dial_on(&mut near, dialer), accept_on(&mut far, acceptor)) })
}

/// The identity that each side takes the other for.
fn shake(
    dialer: &Side,
    acceptor: &Side,
) -> (Result<AcceptingEnd, HandshakeError>, Result<DialingEnd, HandshakeError>) {
    let (dialed, accepted) = agree(dialer, acceptor);
    (dialed.map(|outcome| outcome.host), accepted.map(|outcome| outcome.caller))
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
    let unauthenticated = Side { secret: Secret::new([2; 32]), ..of(6) };
    let refused = CloseReason::WrongSecret;
    assert_eq!(shake(&of(5), &unauthenticated).0, Err(HandshakeError::There(refused)));
}

#[test]
fn ends_with_different_engines_go_apart_once_both_are_proved() {
    let of = |engine_digest| Side { engine_digest, ..side() };
    for (dialer, acceptor) in [(0, 0), (0, 5), (5, 0), (5, 5)] {
        assert_eq!(shake(&of(dialer), &of(acceptor)), (Ok(HOST), Ok(PEER_ONE)));
    }
    let other = HandshakeError::Here(CloseReason::OtherEngine);
    assert_eq!(shake(&of(5), &of(6)), (Err(other), Err(other)));
}

/// Like [`side`], of a build that uses these versions.
fn speaks(oldest: u16, newest: u16) -> Side {
    Side { versions: MessageVersions::new(oldest, newest), ..side() }
}

#[test]
fn both_speak_the_newest_version_that_both_know() {
    for (dialer, acceptor, version) in
        [((1, 1), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 5), (1, 4), 4), ((1, 9), (3, 3), 3)]
    {
        let ends = (speaks(dialer.0, dialer.1), speaks(acceptor.0, acceptor.1));
        let (dialed, accepted) = agree(&ends.0, &ends.1);
        assert_eq!(dialed.expect("they agree").version, MessageVersion(version));
        assert_eq!(accepted.expect("they agree").version, MessageVersion(version));
    }
}

#[test]
fn ends_without_a_common_version_are_told_what_the_other_speaks() {
    for (old, new) in [((1, 1), (2, 3)), ((1, 3), (4, 4))] {
        let (old, new) = (speaks(old.0, old.1), speaks(new.0, new.1));
        for (dialer, acceptor) in [(&old, &new), (&new, &old)] {
            let error = |ours: &Side, theirs: &Side| HandshakeError::NoCommonVersion {
                ours: ours.versions,
                theirs: theirs.versions,
            };
            let expected = (Err(error(dialer, acceptor)), Err(error(acceptor, dialer)));
            assert_eq!(agree(dialer, acceptor), expected);
        }
    }
    let error = HandshakeError::NoCommonVersion {
        ours: speaks(1, 1).versions,
        theirs: speaks(2, 3).versions,
    };
    assert_eq!(error.to_string(), "it speaks versions 2 to 3 of messages, and we speak version 1");
    assert_eq!(error.reason(), CloseReason::NoCommonVersion);
}

/// What stands between the two cannot have them use an older version than both know.
#[test]
fn versions_are_proved() {
    block_on(async {
        let ((mut near, mut wire), (mut tap, mut far)) = (duplex(4096), duplex(4096));
        let between = async {
            let mut hello = take(&mut wire, HELLO).await;
            let newest = HEADER_BYTES + std::mem::offset_of!(HelloLayout, versions) + 2;
            assert_eq!(hello[newest], 2);
            hello[newest] = 1;
            tap.write_all(&hello).await.expect("passed on");
            let challenge = take(&mut tap, CHALLENGE).await;
            wire.write_all(&challenge).await.expect("passed on");
            let proof = take(&mut wire, 32).await;
            tap.write_all(&proof).await.expect("passed on");
        };
        let both = speaks(1, 2);
        let accepted = tokio::select! {
            biased;
            accepted = accept_on(&mut far, &both) => accepted,
            _ = async { tokio::join!(dial_on(&mut near, &both), between) } => unreachable!("no welcome"),
        };
        assert_eq!(accepted, Err(HandshakeError::Here(CloseReason::WrongSecret)));
    });
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
        (Side { caller: peer(1, 1, 4), ..side() }, CloseReason::FormerProcess),
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
        // A whole handshake, captured.
        let ((mut near, mut wire), (mut tap, mut far)) = (duplex(4096), duplex(4096));
        let captured = async {
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
            tokio::join!(dial_on(&mut near, &us), accept_on(&mut far, &we), captured);
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
                engine_digest: U16::ZERO,
                instance: U64::new(9),
                identity: U64::ZERO,
                versions: VersionsLayout::of(us.versions),
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
fn accepted_of(bytes: &[u8]) -> Result<AcceptOutcome, HandshakeError> {
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
    assert_eq!(
        Preamble { version: VERSION + 1, ..good }.check(false),
        Err(CloseReason::WrongVersion)
    );
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
            engine_digest: U16::ZERO,
            instance: U64::new(5),
            wanted: U32::new(2),
            identity: U64::ZERO,
            versions: VersionsLayout::of(side().versions),
            nonce: [4; 32],
        };
        let mut hello = [layout.as_bytes(), b"reef"].concat();
        hello[at] = byte;
        let bytes = [FrameHeader::new(FrameKind::Hello, hello.len()).as_bytes(), &hello].concat();
        prop_assert!(accepted_of(&bytes).is_err());
    }
}

/// The handshake of [`VERSION`] as it was recorded, byte for byte: the nonces and the secret are known. What is kept has to
/// be read as it was meant, and written as it was.
#[test]
fn the_handshake_keeps_its_form() {
    let us = Side { identity: ClusterId::new(77), versions: MessageVersions::new(1, 2), ..side() };
    let preamble = Preamble::new(&us.caller, Some(WorkerId(1)), false);
    let terms = us.terms(preamble);
    let hello = HelloLayout {
        node: U32::new(1),
        worker: U16::new(1),
        engine_digest: U16::ZERO,
        instance: U64::new(5),
        wanted: U32::new(2),
        identity: U64::new(number(us.identity)),
        versions: VersionsLayout::of(us.versions),
        nonce: [4; 32],
    };
    let hello = [hello.as_bytes(), us.cluster.as_bytes()].concat();
    let challenge = ChallengeLayout {
        node: U32::new(HOST.node.0),
        worker: U16::new(1),
        engine_digest: U16::ZERO,
        instance: U64::new(HOST.instance),
        identity: U64::new(number(us.identity)),
        versions: VersionsLayout::of(us.versions),
        nonce: [5; 32],
    };
    let transcript = Transcript { terms: &terms, hello: &hello, challenge: challenge.as_bytes() };
    let refused =
        HandshakeError::NoCommonVersion { ours: us.versions, theirs: MessageVersions::new(3, 4) };
    let messages = [
        ("Preamble", preamble.as_bytes().to_vec()),
        ("Hello", hello.clone()),
        ("Challenge", challenge.as_bytes().to_vec()),
        ("Proof", transcript.prove(DIALER).as_ref().to_vec()),
        ("Welcome", transcript.prove(ACCEPTOR).as_ref().to_vec()),
        ("Refused", HandshakeError::from(CloseReason::WrongCluster).told()),
        ("Refused", refused.told()),
    ];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = messages.iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes)));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/handshake/conversations/");
    let mut comparison = shoal_golden::Comparison::default();
    let path = std::path::PathBuf::from(format!("{path}{VERSION}.txt"));
    comparison.check(&path, &lines.collect::<String>());
    comparison.finish(
        "the handshake has another form than that of its version: ends of both releases must be able to tell them apart, so \
         raise VERSION in handshake.rs, and keep the file of the former version",
    );
    assert_eq!(read_hello(&hello, &terms, &HOST).expect("as it was").0, PEER_ONE);
    let theirs =
        HandshakeError::NoCommonVersion { ours: MessageVersions::new(3, 4), theirs: us.versions };
    assert_eq!(HandshakeError::read(&refused.told(), MessageVersions::new(3, 4)), theirs);
}
