//! A client's end of a connection to one worker of a node: frames out, frames in.
//!
//! Two tasks on the runtime of the caller move the frames, but for those that a sender can write to a plain socket at
//! once (`direct_writes.rs`). Both ways are bounded: who sends faster than the node reads has to wait, and who does not
//! receive is not sent more.
//!
//! A client that is to be far from the node has two more tasks, which hold the frames of each way
//! ([`ClientConnection::at_distance`]). Nodes know nothing of it. The runtime's timers are exact to a millisecond, and so
//! are these delays: never shorter, and a millisecond longer at most while the machine is not busy.

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

/// Frames that may wait on this side to be sent: as many leave in one system call.
const SENDING_MAX: usize = 1024;

/// Frames that may wait on this side to be received; for others the node has to wait.
const RECEIVED_MAX: usize = 256;

/// Frames that may be on the emulated part of one way; others have to wait in front of it.
const HELD_MAX: usize = 1 << 16;

/// As what a client comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// As one among many.
    #[default]
    Client,
    /// To change the cluster. It has to know the secret of its nodes.
    Operator,
}

/// What a client has to know to be let in.
#[derive(Debug, Clone)]
pub struct Access {
    /// The cluster's name.
    pub cluster: String,
    /// Which founding of it the client belongs to, if it has connected before: nodes of another are refused.
    pub identity: Option<ClusterId>,
    /// The versions of messages that the client speaks. Default: those of this build.
    pub versions: MessageVersions,
    /// As what it comes.
    pub role: Role,
    /// The secret of clients, [`Secret::none`] where there is none; for operators that of the nodes.
    pub secret: Secret,
    /// TLS, if the cluster has it on.
    pub tls: Option<ClientTls>,
    /// Those of frames, time and silence count.
    pub limits: NetworkLimits,
}

impl Access {
    /// To a cluster without TLS that asks clients for no secret.
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

/// Why a node did not let us in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// It did not come so far, or we did not trust it.
    #[error("cannot connect: {}", in_words(*.0))]
    Failed(CloseReason),
    /// The node refused.
    #[error("the node refuses: {0}")]
    Refused(CloseReason),
    /// The node belongs to another founding of the cluster than the client.
    #[error(
        "the node belongs to cluster {found}, which was founded in the place of the one this client belongs to"
    )]
    FoundedAgain {
        /// The cluster that the node belongs to.
        found: ClusterId,
    },
    /// The node and the client speak no version of messages in common.
    #[error(
        "the node speaks {theirs} of the messages of clients, and this client speaks {ours}; upgrade the older of the two"
    )]
    NoCommonVersion {
        /// What the client speaks.
        ours: MessageVersions,
        /// What the node speaks.
        theirs: MessageVersions,
    },
}

/// What stood in the way before a node answered; for other reasons, their name.
fn in_words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::NotListening => "connection refused, nothing listens at this port",
        CloseReason::UnknownHost => "the name of the host cannot be resolved (DNS)",
        CloseReason::BadAddress => "this is no address, write HOST:PORT",
        CloseReason::Unreachable => "the host cannot be reached",
        other => other.name(),
    }
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

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Closed {
    /// The node said so, and why.
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

/// A connection that stands.
#[derive(Debug)]
pub struct ClientConnection {
    /// The node at the other end.
    pub node: NodeId,
    /// The worker of the node that serves this connection.
    pub worker: WorkerId,
    /// In which of its processes it is.
    pub instance: u64,
    /// Which founding of the cluster it belongs to, as far as it knew when it let us in.
    pub identity: Option<ClusterId>,
    /// The version of messages that both speak.
    pub version: MessageVersion,
    /// The way there.
    pub sender: Sender,
    /// The way back.
    pub receiver: Receiver,
}

/// Why a frame is not on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SendError {
    /// It is longer than the limit.
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
    /// The same, from afar: what is sent is held for the distance `there`, and what is received for the distance `back`.
    /// Jitter is drawn from `random`. To be called on the runtime on which it was connected.
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

/// Passes on what comes, in order, each when it has passed the emulated part of the way; until no more comes, or it is
/// wanted no more at the other end.
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
    /// The next frame. After the connection has ended it goes on saying so.
    pub async fn receive(&mut self) -> Result<Bytes, Closed> {
        let over = Closed::Ended(CloseReason::Left);
        self.0.recv().await.unwrap_or(Err(over))
    }
}

/// Writes frames, as many as there are in one system call, until there are no more or the other
/// end is gone: that is for the reader to tell.
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
    // The other end sees that nothing more comes, and ends it.
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
            Err(error) => break Closed::Ended(broken(&error)),
        }
    };
    // If the receiver was dropped, this is not needed.
    let _ = incoming.send(Err(closed)).await;
}
