//! The environment of a client in production: tokio's clock and tasks, and connections over sockets.
//!
//! ```text
//!   Outgoing ──► encode ──────────────────► socket ──► reader ──► decode ──► Incoming
//!                  └─► frames ──► writer ──►
//! ```
//! The writer sends frames for which the socket has no room at once; while there are some, later frames queue behind
//! them.
//!
//! The queue of frames is not bounded here: a session or a call has a bounded number of frames.

use super::environment::{
    ClientEnvironment, ConnectFailure, EnvironmentConnection, EnvironmentFuture, Incoming,
    MessageCarrier, Outgoing, WAIT_MAX,
};
use super::error::ConnectError;
use super::options::ClusterOptions;
use super::region::ClientRegion;
use super::timers::Timers;
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::WorkerPlace;
use shoal_engine::client::{Directory, FromClient, ToClient};
use shoal_net::CloseReason;
use shoal_net::client::{Access, ClientConnection, Receiver, SendError, Sender};
use shoal_types::wire::{decode, encode};
use shoal_types::{Cause, ClusterId, DatacenterId, NodeId, Random, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The time after which the next address is asked.
const NEXT_AFTER: Duration = Duration::from_millis(50);

/// Longest wait for the directory of a node.
const VISIT_MAX: Duration = Duration::from_millis(500);

/// The client's environment in production: sockets, time and tasks of its runtime.
#[derive(Debug)]
pub(super) struct Sockets {
    access: Access,
    /// The region of the client, if it has one.
    region: Option<ClientRegion>,
    began: Instant,
    /// The runtime of the tasks of connections.
    runtime: Handle,
    timers: Arc<Timers>,
}

impl Sockets {
    /// To be called on the runtime that runs the tasks of connections.
    pub(super) fn new(access: Access, region: Option<ClientRegion>) -> Sockets {
        let runtime = Handle::current();
        let timers = Timers::start(&runtime);
        Sockets { access, region, began: Instant::now(), runtime, timers }
    }
}

impl ClientEnvironment for Sockets {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn datacenter(&self) -> Option<DatacenterId> {
        self.region.as_ref().map(ClientRegion::datacenter)
    }

    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()> {
        Box::pin(self.timers.sleep_until(self.began + Duration::from_nanos(at.0)))
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
        let region = self.region.clone();
        Box::pin(async move {
            let unreached = |cause| ConnectFailure { cause, found: None };
            let address = address.ok_or(unreached(Cause::Unreachable))?;
            let connected = shoal_net::client::connect(&address, &access, Some(place.worker)).await;
            let connected = connected.map(|connection| held(connection, region.as_ref()));
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
        let region = self.region.clone();
        Box::pin(async move {
            let round_trip = region.as_ref().map_or(Duration::ZERO, ClientRegion::round_trip_max);
            let asked = visit(&access, &address, region.as_ref());
            let visited = timeout(VISIT_MAX + round_trip, asked).await;
            let (connection, directory) = visited.ok()?.ok()?;
            Some((connection.node, connection.identity, directory))
        })
    }
}

impl From<ClientConnection> for EnvironmentConnection {
    fn from(connection: ClientConnection) -> EnvironmentConnection {
        let ClientConnection {
            node,
            worker,
            instance: _,
            identity,
            // There is one version so far.
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

/// Both halves of a connection.
#[derive(Debug)]
struct SocketFrames {
    sender: Sender,
    receiver: Receiver,
}

impl MessageCarrier for SocketFrames {
    fn start(self: Box<Self>, incoming: Arc<dyn Incoming>) -> Box<dyn Outgoing> {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let (sender, waiting) = (self.sender.clone(), Arc::<AtomicUsize>::default());
        let writer = write(self.sender, outgoing, Arc::clone(&waiting), Arc::clone(&incoming));
        tokio::spawn(writer);
        tokio::spawn(read(self.receiver, incoming));
        Box::new(WriteQueue { sender, frames, waiting })
    }
}

/// The queue of a socket, used by one thread at a time.
#[derive(Debug)]
struct WriteQueue {
    sender: Sender,
    /// For the writer.
    frames: mpsc::UnboundedSender<Bytes>,
    /// Frames that the writer has not handed over.
    waiting: Arc<AtomicUsize>,
}

impl Outgoing for WriteQueue {
    fn send(&self, what: FromClient) {
        let mut frame = encode(&what);
        if self.waiting.load(Ordering::Acquire) == 0 {
            match self.sender.try_send(frame) {
                Ok(()) => return,
                Err(refused) => frame = refused,
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // If the writer has ended, the reader reports why.
        let _ = self.frames.send(frame);
    }
}

/// Sends frames until there are no more, or the connection has ended.
async fn write(
    sender: Sender,
    mut frames: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<AtomicUsize>,
    incoming: Arc<dyn Incoming>,
) {
    while let Some(frame) = frames.recv().await {
        match sender.send(frame).await {
            Ok(()) => waiting.fetch_sub(1, Ordering::Release),
            // The reader reports why.
            Err(SendError::Ended) => return,
            Err(SendError::TooLong(bytes)) => {
                incoming.lose();
                panic!("a frame of {bytes} bytes was to be sent, and no limit had refused it");
            }
        };
    }
}

/// Takes frames until the connection ends.
async fn read(mut receiver: Receiver, incoming: Arc<dyn Incoming>) {
    let mut ended = incoming.ended();
    while !incoming.has_ended() {
        let received = tokio::select! {
            biased;
            received = receiver.receive() => received,
            // Ended by the client: dropping the receiver ends the connection.
            () = &mut ended => return,
        };
        match received.map(|frame| decode::<ToClient>(&frame)) {
            Ok(Ok(said)) => incoming.receive(said),
            Ok(Err(_)) => incoming.malformed(),
            Err(_) => incoming.lose(),
        }
    }
}

/// The connection, with the delays of the region.
fn held(connection: ClientConnection, region: Option<&ClientRegion>) -> ClientConnection {
    match region {
        None => connection,
        Some(region) => region.hold(connection),
    }
}

/// Connects to the node at an address, and requests the directory.
async fn visit(
    access: &Access,
    address: &str,
    region: Option<&ClientRegion>,
) -> Result<(ClientConnection, Directory), String> {
    let connected = shoal_net::client::connect(address, access, None).await;
    let connection = connected.map_err(|error| error.to_string())?;
    let mut connection = held(connection, region);
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

/// The first node that has sent a directory.
#[derive(Debug)]
pub(super) struct FirstNode {
    pub(super) address: Arc<str>,
    pub(super) connection: EnvironmentConnection,
    pub(super) directory: Directory,
    /// The region of the client, if its options name one.
    pub(super) region: Option<ClientRegion>,
}

/// Asks the nodes at these addresses until one has sent a directory. This is not delayed: a region only
/// delays what comes later.
pub(super) async fn first(
    options: &ClusterOptions,
    addresses: &[Arc<str>],
    random: &Random,
) -> Result<FirstNode, ConnectError> {
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
                visited = timeout_at(until, visit(&options.access, &address, None)) => visited,
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
        let region = |topology: &Arc<Topology>| {
            let named = options.region.as_deref();
            named.map(|name| ClientRegion::named(name, topology, random.fork(u64::MAX))).transpose()
        };
        let placed = visited.and_then(|(connection, directory)| {
            let region = region(&directory.topology)?;
            let connection = held(connection, region.as_ref()).into();
            Ok(FirstNode { address: Arc::clone(&address), connection, directory, region })
        });
        match placed {
            Ok(first) => return Ok(first),
            Err(what) => tried.push((address.as_ref().to_owned(), what)),
        }
    }
    Err(ConnectError::Unreached { tried })
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
            | CloseReason::RemovedNode
            | CloseReason::OtherEngine
            | CloseReason::WrongWorker
            | CloseReason::WrongSecret
            | CloseReason::FormerProcess
            | CloseReason::TooManyUnauthenticated
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
