//! A client's end of a connection to one worker of a node: frames out, frames in.
//!
//! Two tasks on the runtime of the caller move the frames, but for those that a sender can write to a plain socket at
//! once (`direct_writes.rs`). Both directions are bounded: a client that sends faster than the node reads has to wait,
//! and a client that does not receive is not sent more.
//!
//! A client that is to be far from the node has two more tasks, which delay the frames of each direction
//! ([`ClientConnection::at_distance`]). Nodes do not know of it. The runtime's timers are exact to a millisecond, and
//! so are these delays: never shorter, and at most a millisecond longer while the machine is not busy.

use crate::config::NetworkLimits;
use crate::dial::{DialedConnection, Dialer};
use crate::direct_writes::{DirectWrites, Unwritten};
use crate::distance::DelayedPath;
use crate::frame::{FrameKind, FrameReader};
use crate::handshake::{DialOutcome, DialingEnd, HandshakeError, broken, ended};
use crate::queue::{OutQueue, SLICES_MAX};
use crate::reason::CloseReason;
use crate::secret::Secret;
use crate::stream::SocketStream;
use crate::tls::ClientTls;
use bytes::Bytes;
use shoal_types::wire::{CLIENT_MESSAGES, MessageVersion, MessageVersions};
use shoal_types::{ClusterId, Distance, NodeId, Random, Time, WorkerId};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The most frames that wait on this side to be sent; as many leave in one system call.
const SENDING_MAX: usize = 1024;

/// The most frames that wait on this side to be received; beyond, the node has to wait.
const RECEIVED_MAX: usize = 256;

/// The most frames on the emulated part of one direction; others wait in front of it.
const HELD_MAX: usize = 1 << 16;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// An ordinary client.
    #[default]
    Client,
    /// A client that may change the cluster. It has to know the secret of the nodes.
    Operator,
}

/// The credentials of a client, and its limits.
#[derive(Debug, Clone)]
pub struct Access {
    /// The cluster's name.
    pub cluster: String,
    /// The identity of the cluster, if the client has connected before: nodes of another cluster are refused.
    pub identity: Option<ClusterId>,
    /// The versions of messages that the client uses. Default: those of this build.
    pub versions: MessageVersions,
    /// The role of the client.
    pub role: Role,
    /// The secret of clients, [`Secret::none`] where there is none; for operators that of the nodes.
    pub secret: Secret,
    /// TLS, if the cluster has it on.
    pub tls: Option<ClientTls>,
    /// The limits; those on frames, times and silence apply.
    pub limits: NetworkLimits,
}

impl Access {
    /// Access to a cluster without TLS that asks clients for no secret.
    pub fn open(cluster: impl Into<String>) -> Access {
        Access {
            cluster: cluster.into(),
            identity: None,
            versions: CLIENT_MESSAGES,
            role: Role::Client,
            secret: Secret::none(),
            tls: None,
            limits: NetworkLimits::default(),
        }
    }
}

/// Why a node did not admit the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The node was not reached, or did not prove its identity.
    #[error("cannot connect: {}", in_words(*.0))]
    Failed(CloseReason),
    /// The node refused.
    #[error("the node refuses: {}", refusal(*.0))]
    Refused(CloseReason),
    /// The node belongs to another cluster than the client: one that was founded again.
    #[error(
        "the node belongs to cluster {found}, which was founded in the place of the one this client belongs to"
    )]
    FoundedAgain {
        /// The cluster that the node belongs to.
        found: ClusterId,
    },
    /// The node and the client have no version of messages in common.
    #[error(
        "the node speaks {theirs} of the messages of clients, and this client speaks {ours}; upgrade the older of the two"
    )]
    NoCommonVersion {
        /// The versions of the client.
        ours: MessageVersions,
        /// The versions of the node.
        theirs: MessageVersions,
    },
}

/// The obstacle before a node answered; for other reasons, their name.
fn in_words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::NotListening => "connection refused, nothing listens at this port",
        CloseReason::UnknownHost => "the name of the host cannot be resolved (DNS)",
        CloseReason::BadAddress => "this is no address, write HOST:PORT",
        CloseReason::Unreachable => "the host cannot be reached",
        CloseReason::TlsFailed => {
            "tls_failed: none of the authorities vouches for the node's certificate, or it does not say the name of the cluster"
        }
        other => other.name(),
    }
}

/// The name of the reason, and what it asks of the client where that can be said.
fn refusal(reason: CloseReason) -> String {
    let more = match reason {
        CloseReason::WrongSecret => {
            ": it asks for a secret, and the client has none or another; take the file that the nodes' `client_secret` \
             names, or for operators `secret`"
        }
        CloseReason::WrongTls => {
            ": one end has TLS on and the other has not; a client with TLS is given the authorities that it trusts"
        }
        CloseReason::WrongCluster => ": it belongs to a cluster of another name than the client's",
        _ => "",
    };
    format!("{reason}{more}")
}

impl From<HandshakeError> for ConnectError {
    fn from(failure: HandshakeError) -> ConnectError {
        match failure {
            HandshakeError::Here(reason) => ConnectError::Failed(reason),
            HandshakeError::There(reason) => ConnectError::Refused(reason),
            HandshakeError::Other(found) => ConnectError::FoundedAgain { found },
            HandshakeError::NoCommonVersion { ours, theirs } => {
                ConnectError::NoCommonVersion { ours, theirs }
            }
        }
    }
}

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Closed {
    /// The node has closed it, for this reason.
    #[error("closed by the node: {0}")]
    Bye(String),
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Ended(CloseReason),
}

/// Sends frames. Cheap to clone; when the last is dropped, the connection ends.
#[derive(Debug, Clone)]
pub struct Sender {
    /// To the writer.
    frames: mpsc::Sender<Unwritten>,
    /// To a plain socket, past the writer.
    direct: Option<Arc<DirectWrites>>,
    frame_bytes_max: usize,
}

/// The sending half of a socket, as its writer has it.
enum WriteEnd {
    Plain(Arc<DirectWrites>),
    Secured(WriteHalf<SocketStream>),
}

/// The receiving half of a connection: frames in order, and then why it was closed.
#[derive(Debug)]
pub struct Receiver(mpsc::Receiver<Result<Bytes, Closed>>);

/// An established connection.
#[derive(Debug)]
pub struct ClientConnection {
    /// The node at the other end.
    pub node: NodeId,
    /// The worker of the node that serves this connection.
    pub worker: WorkerId,
    /// The number of the node's process.
    pub instance: u64,
    /// The identity of the node's cluster, as far as the node knew it when it admitted the client.
    pub identity: Option<ClusterId>,
    /// The version of messages that both use.
    pub version: MessageVersion,
    /// The sending half.
    pub sender: Sender,
    /// The receiving half.
    pub receiver: Receiver,
}

/// Why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SendError {
    /// The frame is longer than the limit.
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// The connection has ended; the receiver knows why.
    #[error("the connection has ended")]
    Ended,
}

/// Connects to `worker` of the node at `address`, or to any. To be called on a tokio runtime that goes
/// on as long as the connection.
pub async fn connect(
    address: &str,
    access: &Access,
    worker: Option<WorkerId>,
) -> Result<ClientConnection, ConnectError> {
    let dialing = Dialer {
        cluster: &access.cluster,
        identity: access.identity,
        engine_digest: 0,
        versions: access.versions,
        secret: &access.secret,
        tls: access.tls.as_ref(),
        limits: &access.limits,
        caller: match access.role {
            Role::Client => DialingEnd::Client,
            Role::Operator => DialingEnd::Operator,
        },
        worker,
        wanted: None,
    };
    let DialedConnection { stream, mut reader, outcome } = dialing.dial(address).await?;
    let DialOutcome { host, identity, version } = outcome;
    reader.allow(access.limits.frame_bytes_max);
    let (sender, outgoing) = mpsc::channel(SENDING_MAX);
    let (incoming, receiver) = mpsc::channel(RECEIVED_MAX);
    let direct = match stream {
        SocketStream::Plain(stream) => {
            let (near, far) = stream.into_split();
            let direct = Arc::new(DirectWrites::new(far));
            tokio::spawn(write(WriteEnd::Plain(Arc::clone(&direct)), outgoing));
            tokio::spawn(read(near, Some(Arc::clone(&direct)), reader, incoming));
            Some(direct)
        }
        secured @ SocketStream::Secured(_) => {
            let (near, far) = tokio::io::split(secured);
            tokio::spawn(write(WriteEnd::Secured(far), outgoing));
            tokio::spawn(read(near, None, reader, incoming));
            None
        }
    };
    Ok(ClientConnection {
        node: host.node,
        worker: host.worker,
        instance: host.instance,
        identity,
        version,
        sender: Sender { frames: sender, direct, frame_bytes_max: access.limits.frame_bytes_max },
        receiver: Receiver(receiver),
    })
}

impl ClientConnection {
    /// The same connection from a distance: frames that are sent are delayed by the distance `there`, and
    /// received ones by the distance `back`. Jitter is drawn from `random`. To be called on the runtime on
    /// which it was connected.
    #[must_use]
    pub fn at_distance(self, there: Distance, back: Distance, random: &Random) -> ClientConnection {
        let ClientConnection { node, sender, receiver, .. } = self;
        let (frames, sent) = mpsc::channel(SENDING_MAX);
        let way = DelayedPath::new(there, node, &random.fork(0));
        tokio::spawn(hold(sent, sender.frames, way));
        let (arrived, received) = mpsc::channel(RECEIVED_MAX);
        let way = DelayedPath::new(back, node, &random.fork(1));
        tokio::spawn(hold(receiver.0, arrived, way));
        ClientConnection {
            sender: Sender { frames, direct: None, ..sender },
            receiver: Receiver(received),
            ..self
        }
    }
}

/// Passes on frames in order, each when it has passed the emulated part of the way; until no more arrive, or
/// the other half was dropped.
async fn hold<T>(mut from: mpsc::Receiver<T>, to: mpsc::Sender<T>, mut way: DelayedPath) {
    let began = Instant::now();
    let mut held = VecDeque::new();
    let mut has_more = true;
    while has_more || !held.is_empty() {
        let due = held.front().map_or(began, |(due, _)| *due);
        tokio::select! {
            biased;
            () = to.closed() => return,
            () = sleep_until(due), if !held.is_empty() => {
                let (_, frame) = held.pop_front().expect("it is due");
                if to.send(frame).await.is_err() {
                    return;
                }
            }
            frame = from.recv(), if has_more && held.len() < HELD_MAX => match frame {
                None => has_more = false,
                Some(frame) => {
                    let now = Time::ZERO + began.elapsed();
                    let due = way.release(now).unwrap_or(now);
                    held.push_back((began + (due - Time::ZERO), frame));
                }
            },
        }
    }
}

impl Sender {
    /// Sends a frame, when there is room for it.
    pub async fn send(&self, frame: Bytes) -> Result<(), SendError> {
        if frame.len() > self.frame_bytes_max {
            return Err(SendError::TooLong(frame.len()));
        }
        match &self.direct {
            Some(direct) => direct.send(frame, &self.frames).await.map_err(|_| SendError::Ended),
            None => {
                let sent = self.frames.send(Unwritten::Frame(frame)).await;
                sent.map_err(|_| SendError::Ended)
            }
        }
    }

    /// Sends a frame if there is room for it now, and gives it back if there is none, or it is too long, or the
    /// connection has ended.
    ///
    /// # Errors
    /// The frame.
    pub fn try_send(&self, frame: Bytes) -> Result<(), Bytes> {
        if frame.len() > self.frame_bytes_max {
            return Err(frame);
        }
        match &self.direct {
            Some(direct) => direct.try_send(frame, &self.frames),
            None => {
                let Ok(room) = self.frames.try_reserve() else { return Err(frame) };
                room.send(Unwritten::Frame(frame));
                Ok(())
            }
        }
    }
}

impl Receiver {
    /// The next frame. After the connection has ended, every call returns the reason.
    pub async fn receive(&mut self) -> Result<Bytes, Closed> {
        let over = Closed::Ended(CloseReason::Left);
        self.0.recv().await.unwrap_or(Err(over))
    }
}

/// Writes frames, as many as there are in one system call, until there are no more or the connection has
/// ended, which the reader reports.
async fn write(mut end: WriteEnd, mut outgoing: mpsc::Receiver<Unwritten>) {
    let mut frames = Vec::new();
    let mut queue = OutQueue::new();
    while outgoing.recv_many(&mut frames, SENDING_MAX).await > 0 {
        for unwritten in frames.drain(..) {
            match unwritten {
                Unwritten::Frame(frame) => queue.push(FrameKind::Data, frame),
                Unwritten::Rest(rest) => queue.push_rest(rest),
            }
        }
        if end.write_all(&mut queue).await.is_err() {
            return;
        }
        if let WriteEnd::Plain(direct) = &end {
            direct.note_written(&outgoing);
        }
    }
    // The other end reads the end of the stream, and ends the connection.
    let _ = match end {
        WriteEnd::Plain(direct) => direct.shut_down(),
        WriteEnd::Secured(mut stream) => stream.shutdown().await,
    };
}

impl WriteEnd {
    async fn write_all(&mut self, queue: &mut OutQueue) -> io::Result<()> {
        while !queue.is_empty() {
            let written = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = queue.slices(&mut slices);
                match self {
                    WriteEnd::Plain(direct) => direct.write_some(&slices[..count]).await?,
                    WriteEnd::Secured(stream) => stream.write_vectored(&slices[..count]).await?,
                }
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            queue.advance(written);
        }
        match self {
            WriteEnd::Plain(_) => Ok(()),
            // TLS may hold back what it was given.
            WriteEnd::Secured(stream) => stream.flush().await,
        }
    }
}

/// Reads frames until the connection ends, or the receiver was dropped.
async fn read(
    mut stream: impl AsyncRead + Unpin,
    direct: Option<Arc<DirectWrites>>,
    mut reader: FrameReader,
    incoming: mpsc::Sender<Result<Bytes, Closed>>,
) {
    let closed = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => match frame.kind {
                FrameKind::Data => {
                    if incoming.send(Ok(frame.payload)).await.is_err() {
                        return;
                    }
                    continue;
                }
                FrameKind::Bye => {
                    break Closed::Bye(String::from_utf8_lossy(&frame.payload).into());
                }
                FrameKind::Part
                | FrameKind::Urgent
                | FrameKind::Hello
                | FrameKind::Challenge
                | FrameKind::Proof
                | FrameKind::Welcome
                | FrameKind::Refused => {
                    break Closed::Ended(CloseReason::Unexpected);
                }
            },
            Ok(None) => {}
            Err(error) => break Closed::Ended(error.into()),
        }
        let buffer = reader.room();
        let room = buffer.capacity() - buffer.len();
        let read = tokio::select! {
            read = stream.read_buf(buffer) => read,
            () = incoming.closed() => return,
        };
        match read {
            Ok(0) => break Closed::Ended(ended(&reader)),
            Ok(count) => {
                reader.note_read(count, room);
                if let Some(direct) = &direct {
                    direct.note_received();
                }
            }
            Err(error) => break Closed::Ended(broken(&error, &reader)),
        }
    };
    // If the receiver was dropped, this is not needed.
    let _ = incoming.send(Err(closed)).await;
}
