//! Authentication of both ends of a connection, before any frame is handled.
//!
//! ```text
//! dialer                                            acceptor
//!   preamble: magic, version, role, worker   ──►      8 bytes, plain; leads to the worker
//!   (TLS, if it is on)                       ◄─►
//!   Hello: cluster, identity, ids, process, versions, nonce ──►
//!                                            ◄──      Challenge: identity, ids, process, versions, nonce
//!                                                     or Refused
//!   Proof:   HMAC(secret, "dialer",   all)   ──►
//!                                            ◄──      Welcome: HMAC(secret, "acceptor", all)
//! ```
//! *All* is every byte sent so far, and what TLS has agreed on. Both nonces are in it, so that a proof cannot be
//! replayed; the side is, so that it cannot be reflected; the role is, and peers and clients have different secrets, so
//! that a client cannot pass for a peer. An operator is a client that proves to know the secret of peers. The dialer
//! proves first: an unauthenticated end receives nothing with which it could try secrets. Ends of different clusters
//! disconnect, but not before both have proved their identity: so a client that learns that its cluster was founded
//! again can rely on it. So do nodes with different engines.
//!
//! Both ends send the versions of messages that they support, with nodes or with clients as the role is, and use the newest
//! one that both know. The versions are in the proofs, so that no third party can have them use an older one. If there
//! is no common version, the acceptor refuses, and sends its own versions with that. The version in the preamble is
//! another one: of the frames and of this handshake, which have to be understood before anything can be agreed on.
//!
//! Without TLS this authenticates the connection, not the bytes that follow: switch TLS on where others have access to
//! the network.
//!
//! No message is longer than [`MESSAGE_BYTES_MAX`], and the caller limits the time.

use crate::cluster_id::{CLUSTER_BYTES_MAX, number};
use crate::frame::{Frame, FrameError, FrameHeader, FrameKind, FrameReader};
use crate::reason::CloseReason;
use crate::secret::Secret;
use crate::stream::Binding;
use bytes::Bytes;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use shoal_types::wire::{MessageVersion, MessageVersions};
use shoal_types::{ClusterId, NodeId, WorkerId};
use std::io;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of the frames and of the handshake.
pub const VERSION: u8 = 2;

/// Longest message of the handshake, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"SHOL";
const PEER: u8 = 1;
const CLIENT: u8 = 2;
const OPERATOR: u8 = 3;
const TLS: u8 = 0x80;
/// Stands for any worker, in the preamble of a client; and for any node, in the hello of a dialer.
const ANY_WORKER: u16 = u16::MAX;
const ANY_NODE: u32 = u32::MAX;

// The longest message is within the limit.
const _: () = assert!(size_of::<HelloLayout>() + CLUSTER_BYTES_MAX <= MESSAGE_BYTES_MAX);

/// The first bytes of a connection. Plain even where TLS follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Preamble {
    magic: [u8; 4],
    version: u8,
    role: u8,
    worker: U16,
}

impl Preamble {
    pub const BYTES: usize = size_of::<Preamble>();

    pub fn new(caller: &DialingEnd, worker: Option<WorkerId>, tls: bool) -> Preamble {
        let role = match caller {
            DialingEnd::Peer { .. } => PEER,
            DialingEnd::Client => CLIENT,
            DialingEnd::Operator => OPERATOR,
        };
        let worker = worker.and_then(|worker| u16::try_from(worker.0).ok()).unwrap_or(ANY_WORKER);
        let role = role | if tls { TLS } else { 0 };
        Preamble { magic: MAGIC, version: VERSION, role, worker: U16::new(worker) }
    }

    /// Checks it for an acceptor with or without TLS.
    pub fn check(&self, tls: bool) -> Result<(), CloseReason> {
        if self.magic != MAGIC {
            Err(CloseReason::WrongMagic)
        } else if self.version != VERSION {
            Err(CloseReason::WrongVersion)
        } else if ![PEER, CLIENT, OPERATOR].contains(&(self.role & !TLS)) {
            Err(CloseReason::Malformed)
        } else if self.wants_tls() != tls {
            Err(CloseReason::WrongTls)
        } else {
            Ok(())
        }
    }

    pub fn is_peer(&self) -> bool {
        self.role & !TLS == PEER
    }

    pub fn is_operator(&self) -> bool {
        self.role & !TLS == OPERATOR
    }

    pub fn wants_tls(&self) -> bool {
        self.role & TLS != 0
    }

    /// The worker that the dialer wants; `None` for any.
    pub fn worker(&self) -> Option<WorkerId> {
        let worker = self.worker.get();
        (worker != ANY_WORKER).then_some(WorkerId(u32::from(worker)))
    }
}

/// The identity of the end that dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialingEnd {
    /// The same worker of another node.
    Peer { node: NodeId, worker: WorkerId, instance: u64 },
    /// A client of the cluster.
    Client,
    /// A client that may change the cluster.
    Operator,
}

/// The identity of the end that accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptingEnd {
    pub node: NodeId,
    pub worker: WorkerId,
    pub instance: u64,
}

/// What an end knows before the handshake begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeTerms<'a> {
    pub cluster: &'a str,
    /// The identity of this end's cluster, as far as it knows.
    pub identity: Option<ClusterId>,
    /// The digest of this end's engine ([`crate::NetworkConfig::engine_digest`]); 0 for clients.
    pub engine_digest: u16,
    /// The versions of messages that this end uses in this role.
    pub versions: MessageVersions,
    /// The secret of peers, which is the operators' too, or of clients, as the role is.
    pub secret: &'a Secret,
    pub preamble: Preamble,
    pub binding: Binding,
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum HandshakeError {
    /// This end closed it.
    #[error("{0}")]
    Here(CloseReason),
    /// The other end refused, for this reason; not authenticated.
    #[error("refused by the other end: {0}")]
    There(CloseReason),
    /// Both ends are authenticated, and belong to different clusters.
    #[error("it belongs to cluster {0}, which was founded apart from ours")]
    Other(ClusterId),
    /// The ends have no version of messages in common.
    #[error("it speaks {theirs} of messages, and we speak {ours}")]
    NoCommonVersion {
        /// The versions of this end.
        ours: MessageVersions,
        /// The versions of the other end; not authenticated.
        theirs: MessageVersions,
    },
}

/// The result of a handshake for the dialer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DialOutcome {
    pub host: AcceptingEnd,
    /// The identity of its cluster, as far as it knows.
    pub identity: Option<ClusterId>,
    /// The version of messages that both use.
    pub version: MessageVersion,
}

/// The result of a handshake for the acceptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptOutcome {
    pub caller: DialingEnd,
    /// The version of messages that both use.
    pub version: MessageVersion,
}

impl HandshakeError {
    pub fn reason(self) -> CloseReason {
        match self {
            HandshakeError::Here(reason) => reason,
            HandshakeError::There(_) => CloseReason::Refused,
            HandshakeError::Other(_) => CloseReason::OtherFounding,
            HandshakeError::NoCommonVersion { .. } => CloseReason::NoCommonVersion,
        }
    }

    /// The payload of a refusal: the reason; and the versions that this end uses, if there is none in
    /// common.
    fn told(self) -> Vec<u8> {
        let code = self.reason().code();
        match self {
            HandshakeError::NoCommonVersion { ours, .. } => {
                [&[code], VersionsLayout::of(ours).as_bytes()].concat()
            }
            HandshakeError::Here(_) | HandshakeError::There(_) | HandshakeError::Other(_) => {
                vec![code]
            }
        }
    }

    /// The error of this end, which supports `ours`, for the payload of a refusal.
    fn read(told: &[u8], ours: MessageVersions) -> HandshakeError {
        let reason = told.first().and_then(|code| CloseReason::from_code(*code));
        let theirs = told.get(1..).and_then(|rest| VersionsLayout::ref_from_bytes(rest).ok());
        match (reason, theirs.and_then(VersionsLayout::read)) {
            (Some(CloseReason::NoCommonVersion), Some(theirs)) => {
                HandshakeError::NoCommonVersion { ours, theirs }
            }
            (reason, _) => HandshakeError::There(reason.unwrap_or(CloseReason::Malformed)),
        }
    }
}

impl From<CloseReason> for HandshakeError {
    fn from(reason: CloseReason) -> HandshakeError {
        HandshakeError::Here(reason)
    }
}

impl From<FrameError> for CloseReason {
    fn from(error: FrameError) -> CloseReason {
        match error {
            FrameError::TooLong { .. } => CloseReason::TooLong,
            FrameError::Malformed { .. } => CloseReason::Malformed,
        }
    }
}

/// Which ends are admitted: judged first by the identity that they claim, then, when they have proved it, by
/// that.
pub(crate) trait AdmissionPolicy {
    fn knows(&self, caller: &DialingEnd) -> Result<(), CloseReason>;
    fn admits(&self, caller: &DialingEnd) -> Result<(), CloseReason>;
}

#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct VersionsLayout {
    oldest: U16,
    newest: U16,
}

impl VersionsLayout {
    fn of(versions: MessageVersions) -> VersionsLayout {
        let (oldest, newest) = (versions.oldest().0, versions.newest().0);
        VersionsLayout { oldest: U16::new(oldest), newest: U16::new(newest) }
    }

    fn read(&self) -> Option<MessageVersions> {
        MessageVersions::said(self.oldest.get(), self.newest.get())
    }

    /// The version that this end, which uses `ours`, and the sender have in common.
    fn common(&self, ours: MessageVersions) -> Result<MessageVersion, HandshakeError> {
        let theirs = self.read().ok_or(CloseReason::Malformed)?;
        ours.common(theirs).ok_or(HandshakeError::NoCommonVersion { ours, theirs })
    }
}

#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HelloLayout {
    node: U32,
    worker: U16,
    engine_digest: U16,
    instance: U64,
    /// The node that the dialer wants.
    wanted: U32,
    identity: U64,
    versions: VersionsLayout,
    nonce: [u8; 32],
    // The cluster's name follows.
}

#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChallengeLayout {
    node: U32,
    worker: U16,
    engine_digest: U16,
    instance: U64,
    identity: U64,
    versions: VersionsLayout,
    nonce: [u8; 32],
}

/// Checks that two ends do not belong to different clusters, and do not run different engines. What is 0 is not known.
fn go_together(
    ours: &HandshakeTerms<'_>,
    identity: u64,
    engine_digest: u16,
) -> Result<(), HandshakeError> {
    if let (Some(ours), Some(theirs)) = (ours.identity, ClusterId::new(identity))
        && ours != theirs
    {
        return Err(HandshakeError::Other(theirs));
    }
    let digests = [ours.engine_digest, engine_digest];
    match digests.contains(&0) || digests[0] == digests[1] {
        true => Ok(()),
        false => Err(CloseReason::OtherEngine.into()),
    }
}

fn nonce() -> Result<[u8; 32], CloseReason> {
    let mut nonce = [0; 32];
    // Without randomness nothing can be proved.
    SystemRandom::new().fill(&mut nonce).map_err(|_| CloseReason::WrongSecret)?;
    Ok(nonce)
}

/// The bytes that a proof covers.
struct Transcript<'a> {
    terms: &'a HandshakeTerms<'a>,
    hello: &'a [u8],
    challenge: &'a [u8],
}

impl Transcript<'_> {
    /// Each part with its length before it, so that no two transcripts are the same bytes.
    fn said_by(&self, side: &str) -> Vec<u8> {
        let preamble = self.terms.preamble.as_bytes();
        let parts: [&[u8]; 6] = [
            b"shoal handshake",
            side.as_bytes(),
            preamble,
            self.hello,
            self.challenge,
            &self.terms.binding,
        ];
        let with_length = |part: &&[u8]| [&(part.len() as u64).to_le_bytes(), *part].concat();
        parts.iter().flat_map(with_length).collect()
    }

    fn prove(&self, side: &str) -> hmac::Tag {
        hmac::sign(&self.key(), &self.said_by(side))
    }

    fn verify(&self, side: &str, proof: &[u8]) -> Result<(), CloseReason> {
        // In constant time.
        hmac::verify(&self.key(), &self.said_by(side), proof).map_err(|_| CloseReason::WrongSecret)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.terms.secret.bytes())
    }
}

const DIALER: &str = "dialer";
const ACCEPTOR: &str = "acceptor";

/// The dialer's side: authenticates as `caller`, asks for the node `wanted`, and authenticates the other end.
pub(crate) async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    reader: &mut FrameReader,
    terms: &HandshakeTerms<'_>,
    caller: &DialingEnd,
    wanted: Option<NodeId>,
) -> Result<DialOutcome, HandshakeError> {
    let (node, worker, instance) = match *caller {
        DialingEnd::Peer { node, worker, instance } => (node.0, worker.0, instance),
        DialingEnd::Client | DialingEnd::Operator => (0, 0, 0),
    };
    let layout = HelloLayout {
        node: U32::new(node),
        worker: U16::new(u16::try_from(worker).map_err(|_| CloseReason::WrongWorker)?),
        engine_digest: U16::new(terms.engine_digest),
        instance: U64::new(instance),
        wanted: U32::new(wanted.map_or(ANY_NODE, |node| node.0)),
        identity: U64::new(number(terms.identity)),
        versions: VersionsLayout::of(terms.versions),
        nonce: nonce()?,
    };
    let hello = [layout.as_bytes(), terms.cluster.as_bytes()].concat();
    write(stream, FrameKind::Hello, &hello).await?;
    let challenge = expect(stream, reader, FrameKind::Challenge, terms.versions).await?;
    let Ok(told) = ChallengeLayout::ref_from_bytes(&challenge) else {
        return Err(CloseReason::Malformed.into());
    };
    let host = AcceptingEnd {
        node: NodeId(told.node.get()),
        worker: WorkerId(u32::from(told.worker.get())),
        instance: told.instance.get(),
    };
    if wanted.is_some_and(|wanted| wanted != host.node) {
        return Err(CloseReason::WrongNode.into());
    }
    let version = told.versions.common(terms.versions)?;
    let transcript = Transcript { terms, hello: &hello, challenge: &challenge };
    write(stream, FrameKind::Proof, transcript.prove(DIALER).as_ref()).await?;
    let proof = expect(stream, reader, FrameKind::Welcome, terms.versions).await?;
    transcript.verify(ACCEPTOR, &proof)?;
    go_together(terms, told.identity.get(), told.engine_digest.get())?;
    Ok(DialOutcome { host, identity: ClusterId::new(told.identity.get()), version })
}

/// The acceptor's side: admits an authenticated end if `admission` does. Sends others the reason, as far as
/// they read it.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    reader: &mut FrameReader,
    terms: &HandshakeTerms<'_>,
    host: &AcceptingEnd,
    admission: &impl AdmissionPolicy,
) -> Result<AcceptOutcome, HandshakeError> {
    let met = meet(stream, reader, terms, host, admission).await;
    if let Err(failure) = &met {
        // Best effort.
        let _ = write(stream, FrameKind::Refused, &failure.told()).await;
    }
    met
}

async fn meet<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    reader: &mut FrameReader,
    terms: &HandshakeTerms<'_>,
    host: &AcceptingEnd,
    admission: &impl AdmissionPolicy,
) -> Result<AcceptOutcome, HandshakeError> {
    let hello = expect(stream, reader, FrameKind::Hello, terms.versions).await?;
    let (caller, layout) = read_hello(&hello, terms, host)?;
    let (identity, engine_digest) = (layout.identity.get(), layout.engine_digest.get());
    admission.knows(&caller)?;
    let version = layout.versions.common(terms.versions)?;
    let layout = ChallengeLayout {
        node: U32::new(host.node.0),
        worker: U16::new(u16::try_from(host.worker.0).map_err(|_| CloseReason::WrongWorker)?),
        engine_digest: U16::new(terms.engine_digest),
        instance: U64::new(host.instance),
        identity: U64::new(number(terms.identity)),
        versions: VersionsLayout::of(terms.versions),
        nonce: nonce()?,
    };
    write(stream, FrameKind::Challenge, layout.as_bytes()).await?;
    let proof = expect(stream, reader, FrameKind::Proof, terms.versions).await?;
    let transcript = Transcript { terms, hello: &hello, challenge: layout.as_bytes() };
    transcript.verify(DIALER, &proof)?;
    admission.admits(&caller)?;
    write(stream, FrameKind::Welcome, transcript.prove(ACCEPTOR).as_ref()).await?;
    go_together(terms, identity, engine_digest)?;
    Ok(AcceptOutcome { caller, version })
}

/// The identity of the dialer, if it wants this end, and the rest of its hello.
fn read_hello<'a>(
    hello: &'a [u8],
    terms: &HandshakeTerms<'_>,
    host: &AcceptingEnd,
) -> Result<(DialingEnd, &'a HelloLayout), CloseReason> {
    let Ok((layout, cluster)) = HelloLayout::ref_from_prefix(hello) else {
        return Err(CloseReason::Malformed);
    };
    if cluster != terms.cluster.as_bytes() {
        return Err(CloseReason::WrongCluster);
    }
    if ![ANY_NODE, host.node.0].contains(&layout.wanted.get()) {
        return Err(CloseReason::WrongNode);
    }
    if terms.preamble.is_operator() {
        return Ok((DialingEnd::Operator, layout));
    }
    if !terms.preamble.is_peer() {
        return Ok((DialingEnd::Client, layout));
    }
    let worker = WorkerId(u32::from(layout.worker.get()));
    if worker != host.worker {
        return Err(CloseReason::WrongWorker);
    }
    let caller = DialingEnd::Peer {
        node: NodeId(layout.node.get()),
        worker,
        instance: layout.instance.get(),
    };
    Ok((caller, layout))
}

async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    kind: FrameKind,
    payload: &[u8],
) -> Result<(), CloseReason> {
    let frame = [FrameHeader::new(kind, payload.len()).as_bytes(), payload].concat();
    let written = async {
        stream.write_all(&frame).await?;
        stream.flush().await
    };
    written.await.map_err(|_| CloseReason::Vanished)
}

/// The next frame, if it is of that kind. This end uses `versions`.
async fn expect<S: AsyncRead + Unpin>(
    stream: &mut S,
    reader: &mut FrameReader,
    kind: FrameKind,
    versions: MessageVersions,
) -> Result<Bytes, HandshakeError> {
    let Frame { kind: found, payload, receiver: _ } = loop {
        if let Some(frame) = reader.next_frame().map_err(CloseReason::from)? {
            break frame;
        }
        let read = stream.read_buf(reader.room()).await;
        if read.map_err(|error| broken(&error, reader))? == 0 {
            return Err(ended(reader).into());
        }
    };
    if found == FrameKind::Refused {
        return Err(HandshakeError::read(&payload, versions));
    }
    if found == kind { Ok(payload) } else { Err(CloseReason::Unexpected.into()) }
}

/// The reason for the end of a stream.
pub(crate) fn ended(reader: &FrameReader) -> CloseReason {
    if reader.is_empty() { CloseReason::Left } else { CloseReason::Truncated }
}

/// The reason for an error of a stream.
pub(crate) fn broken(error: &io::Error, reader: &FrameReader) -> CloseReason {
    match error.kind() {
        // TLS that ended without a close notification, as with a process that ends. Frames say where they end, so this is
        // an end like that of a stream without TLS.
        io::ErrorKind::UnexpectedEof => ended(reader),
        // Malformed TLS.
        io::ErrorKind::InvalidData => CloseReason::TlsFailed,
        _ => CloseReason::Vanished,
    }
}

#[cfg(test)]
#[path = "handshake/tests.rs"]
pub(crate) mod tests;
