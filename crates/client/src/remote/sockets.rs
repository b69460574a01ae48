//! The surroundings of a client on a machine: tokio's clock and tasks, and connections over sockets.
//!
//! ```text
//!   Outgoing ──► encode ──► frames ──► writer ──► socket ──► reader ──► decode ──► Incoming
//! ```
//! Frames that wait to be sent are not bounded here but by what is under way: a session or a call has a
//! bounded number of them.

use super::environment::{
    ClientEnvironment, ConnectFailure, EnvironmentConnection, EnvironmentFuture, Incoming,
    MessageCarrier, Outgoing, WAIT_MAX,
};
use super::error::ConnectError;
use super::options::ClusterOptions;
use bytes::Bytes;
use shoal_engines::WorkerPlace;
use shoal_engines::client::{Directory, FromClient, ToClient};
use shoal_net::CloseReason;
use shoal_net::client::{Access, Receiver, SendError, Sender};
use shoal_types::wire::{decode, encode};
use shoal_types::{Cause, ClusterId, NodeId, Time};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// So long after one address the next is visited.
const NEXT_AFTER: Duration = Duration::from_millis(50);

/// Longest wait for a node that is visited to tell.
const VISIT_MAX: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(super) struct Sockets {
    access: Access,
    began: Instant,
    /// Connections live on it.
    runtime: Handle,
}

impl Sockets {
    /// To be called on the runtime on which connections are to live.
    pub(super) fn new(access: Access) -> Sockets {
        Sockets { access, began: Instant::now(), runtime: Handle::current() }
    }
}

impl ClientEnvironment for Sockets {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()> {
        Box::pin(sleep_until(self.began + Duration::from_nanos(at.0)))
    }

    fn spawn(&self, task: EnvironmentFuture<()>) {
        self.runtime.spawn(task);
    }

    fn connect(
        &self,
        place: WorkerPlace,
        address: Option<Arc<str>>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Result<EnvironmentConnection, ConnectFailure>> {
        let access = Access { identity, ..self.access.clone() };
        Box::pin(async move {
            let unreached = |cause| ConnectFailure { cause, found: None };
            let address = address.ok_or(unreached(Cause::Unreachable))?;
            let connected = shoal_net::client::connect(&address, &access, Some(place.worker)).await;
            connected.map(EnvironmentConnection::from).map_err(|error| ConnectFailure {
                cause: cause_of(error),
                found: match error {
                    shoal_net::client::ConnectError::FoundedAgain { found } => Some(found),
                    shoal_net::client::ConnectError::Failed(_)
                    | shoal_net::client::ConnectError::Refused(_)
                    | shoal_net::client::ConnectError::NoCommonVersion { .. } => None,
                },
            })
        })
    }

    fn visit(
        &self,
        address: Arc<str>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Option<(NodeId, Option<ClusterId>, Directory)>> {
        let access = Access { identity, ..self.access.clone() };
        Box::pin(async move {
            let visited = timeout(VISIT_MAX, visit(&access, &address)).await;
            let (connection, directory) = visited.ok()?.ok()?;
            Some((connection.node, connection.identity, directory))
        })
    }
}

impl From<shoal_net::client::ClientConnection> for EnvironmentConnection {
    fn from(connection: shoal_net::client::ClientConnection) -> EnvironmentConnection {
        let shoal_net::client::ClientConnection {
            node,
            worker,
            instance: _,
            identity,
            // There is one version so far, and nothing to choose.
            version: _,
            sender,
            receiver,
        } = connection;
        EnvironmentConnection {
            node,
            worker,
            identity,
            carrier: Box::new(SocketFrames { sender, receiver }),
        }
    }
}

/// Both ways of a connection.
#[derive(Debug)]
struct SocketFrames {
    sender: Sender,
    receiver: Receiver,
}

impl MessageCarrier for SocketFrames {
    fn start(self: Box<Self>, incoming: Incoming) -> Box<dyn Outgoing> {
        let (frames, outgoing) = mpsc::unbounded_channel();
        tokio::spawn(write(self.sender, outgoing, incoming.clone()));
        tokio::spawn(read(self.receiver, incoming));
        Box::new(WriteQueue(frames))
    }
}

/// Frames for the writer.
#[derive(Debug)]
struct WriteQueue(mpsc::UnboundedSender<Bytes>);

impl Outgoing for WriteQueue {
    fn send(&self, what: FromClient) {
        // If the writer has gone, the reader will say why.
        let _ = self.0.send(encode(&what));
    }
}

/// Sends frames until there are no more, or the connection has ended.
async fn write(sender: Sender, mut frames: mpsc::UnboundedReceiver<Bytes>, incoming: Incoming) {
    while let Some(frame) = frames.recv().await {
        match sender.send(frame).await {
            Ok(()) => {}
            // The reader says why.
            Err(SendError::Ended) => return,
            Err(SendError::TooLong(bytes)) => {
                incoming.lose();
                panic!("a frame of {bytes} bytes was to be sent, and no limit had refused it");
            }
        }
    }
}

/// Takes frames until the connection ends.
async fn read(mut receiver: Receiver, incoming: Incoming) {
    while !incoming.has_ended() {
        let received = tokio::select! {
            biased;
            received = receiver.receive() => received,
            // Ended on our side: when the receiver goes, so does the connection.
            () = incoming.ended() => return,
        };
        match received.map(|frame| decode::<ToClient>(&frame)) {
            Ok(Ok(said)) => incoming.receive(said),
            Ok(Err(_)) => incoming.malformed(),
            Err(_) => incoming.lose(),
        }
    }
}

/// Connects to the node that listens at an address, and asks where everything is.
async fn visit(
    access: &Access,
    address: &str,
) -> Result<(shoal_net::client::ClientConnection, Directory), String> {
    let connected = shoal_net::client::connect(address, access, None).await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let asked = connection.sender.send(encode(&FromClient::Directory)).await;
    asked.map_err(|error| error.to_string())?;
    loop {
        let frame = connection.receiver.receive().await.map_err(|closed| closed.to_string())?;
        let said = decode::<ToClient>(&frame);
        match said.map_err(|malformed| malformed.to_string())? {
            ToClient::Directory(directory) => return Ok((connection, directory)),
            ToClient::Reply(_) | ToClient::Status(_) | ToClient::Isolated(_) => {}
        }
    }
}

/// What the first node told that answered, its address, and the connection to it.
pub(super) async fn first(
    options: &ClusterOptions,
    addresses: &[Arc<str>],
) -> Result<(Arc<str>, EnvironmentConnection, Directory), ConnectError> {
    let until = Instant::now() + options.deadline.min(WAIT_MAX);
    let (tell, mut told) = mpsc::channel(addresses.len().max(1));
    for (address, place) in addresses.iter().zip(0_u32..) {
        let (address, options, tell) = (Arc::clone(address), options.clone(), tell.clone());
        tokio::spawn(async move {
            sleep(NEXT_AFTER * place).await;
            let visited = tokio::select! {
                biased;
                // Another was faster.
                () = tell.closed() => return,
                visited = timeout_at(until, visit(&options.access, &address)) => visited,
            };
            let silent = |_| Err(format!("no answer within {:.1?}", options.deadline));
            let visited = visited.unwrap_or_else(silent);
            // Another may have been faster.
            let _ = tell.send((address, visited)).await;
        });
    }
    drop(tell);
    let mut tried = Vec::new();
    while let Some((address, visited)) = told.recv().await {
        match visited {
            Ok((connection, directory)) => return Ok((address, connection.into(), directory)),
            Err(what) => tried.push((address.as_ref().to_owned(), what)),
        }
    }
    Err(ConnectError { tried })
}

/// Why a node could not be asked.
fn cause_of(error: shoal_net::client::ConnectError) -> Cause {
    match error {
        shoal_net::client::ConnectError::FoundedAgain { .. }
        | shoal_net::client::ConnectError::Refused(CloseReason::OtherFounding)
        | shoal_net::client::ConnectError::Failed(CloseReason::OtherFounding) => {
            Cause::FoundedAgain
        }
        shoal_net::client::ConnectError::NoCommonVersion { .. }
        | shoal_net::client::ConnectError::Refused(
            CloseReason::WrongVersion | CloseReason::NoCommonVersion,
        )
        | shoal_net::client::ConnectError::Failed(
            CloseReason::WrongVersion | CloseReason::NoCommonVersion,
        ) => Cause::OtherVersion,
        shoal_net::client::ConnectError::Refused(_) => Cause::Refused,
        shoal_net::client::ConnectError::Failed(CloseReason::NotListening) => Cause::NotListening,
        shoal_net::client::ConnectError::Failed(CloseReason::UnknownHost) => Cause::UnknownHost,
        shoal_net::client::ConnectError::Failed(CloseReason::BadAddress) => Cause::BadAddress,
        shoal_net::client::ConnectError::Failed(CloseReason::SlowHandshake) => Cause::Silent,
        shoal_net::client::ConnectError::Failed(
            CloseReason::Malformed
            | CloseReason::TooLong
            | CloseReason::Unexpected
            | CloseReason::WrongMagic
            | CloseReason::Truncated,
        ) => Cause::Malformed,
        shoal_net::client::ConnectError::Failed(
            CloseReason::WrongTls
            | CloseReason::TlsFailed
            | CloseReason::WrongCluster
            | CloseReason::WrongNode
            | CloseReason::UnknownNode
            | CloseReason::WrongWorker
            | CloseReason::WrongSecret
            | CloseReason::StaleLife
            | CloseReason::Crowded
            | CloseReason::TooManyClients
            | CloseReason::Refused,
        ) => Cause::Refused,
        shoal_net::client::ConnectError::Failed(
            CloseReason::Left
            | CloseReason::Vanished
            | CloseReason::Superseded
            | CloseReason::FellBehind
            | CloseReason::Asked
            | CloseReason::Unreachable
            | CloseReason::Removed
            | CloseReason::Identified,
        ) => Cause::Unreachable,
    }
}
