//! The environment of a cluster's client: time, tasks, and connections to nodes.
//!
//! ```text
//!   the client ──► World ──┬── Sockets: tokio, TCP or TLS, frames of bytes
//!              ◄── Incoming└── the simulator: virtual time, messages as values, one thread
//! ```
//! All decisions of the client are made above this interface, so a simulation runs the client that is shipped. It draws
//! from a [`Random`](shoal_types::Random) that it is given, and waits for nothing but this environment and its own
//! tasks.
//!
//! What always holds:
//!
//! - A connection carries messages in order, each once. It may end at any time, and messages in flight are lost then: a
//!   prefix of what was sent has arrived.
//! - Messages of a connection are delivered before its end is.

use shoal_engine::WorkerPlace;
use shoal_engine::client::{Directory, FromClient, ToClient};
use shoal_types::{Cause, ClusterId, DatacenterId, NodeId, Time, WorkerId};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Longer waits than this, a year, need no deadline.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Something that a client waits for, on any thread.
pub type EnvironmentFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The time, the tasks and the connections of a client.
pub trait ClientEnvironment: fmt::Debug + Send + Sync {
    /// The time, which never goes back.
    fn now(&self) -> Time;

    /// The datacenter in which the client is, if it is known.
    fn datacenter(&self) -> Option<DatacenterId> {
        None
    }

    /// Completes at that time.
    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()>;

    /// Spawns a task.
    fn spawn(&self, task: EnvironmentFuture<()>);

    /// Connects to a worker. The node listens at `address`, if that is known, and is refused if its cluster
    /// has another identity than `identity`.
    fn connect(
        &self,
        place: WorkerPlace,
        address: Option<Arc<str>>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Result<EnvironmentConnection, ConnectFailure>>;

    /// Requests the directory from the node at an address: returns that node, the identity of its cluster as
    /// far as it knows, and the directory. `None` if there is no answer.
    fn visit(
        &self,
        address: Arc<str>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Option<(NodeId, Option<ClusterId>, Directory)>>;
}

/// Why a node could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFailure {
    /// The obstacle.
    pub cause: Cause,
    /// The identity of the node's cluster, if it is another than the client's.
    pub found: Option<ClusterId>,
}

/// An established connection.
#[derive(Debug)]
pub struct EnvironmentConnection {
    /// The node at the other end.
    pub node: NodeId,
    /// The worker of the node that serves the connection.
    pub worker: WorkerId,
    /// The identity of the node's cluster, as far as it knew when it admitted the client.
    pub identity: Option<ClusterId>,
    /// The carrier of messages.
    pub carrier: Box<dyn MessageCarrier>,
}

/// Carries the messages of a connection.
pub trait MessageCarrier: fmt::Debug + Send {
    /// Delivers messages to `incoming` from now on, but not before it returns. Returns the sending half.
    fn start(self: Box<Self>, incoming: Arc<dyn Incoming>) -> Box<dyn Outgoing>;
}

/// The sending half of a connection. When it is dropped, the connection ends after what was sent.
pub trait Outgoing: fmt::Debug + Send {
    /// Sends a message, without waiting for room.
    fn send(&self, what: FromClient);
}

/// The receiving half of a connection, at the client.
pub trait Incoming: fmt::Debug + Send + Sync {
    /// A message has arrived.
    fn receive(&self, said: ToClient);

    /// A malformed message has arrived: the connection ends.
    fn malformed(&self);

    /// The connection has ended at the other end, or was lost.
    fn lose(&self);

    /// Whether the connection has ended, as the client sees it.
    fn has_ended(&self) -> bool;

    /// Waits until the connection has ended, as the client sees it.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The time after `span`.
pub(super) fn after(world: &dyn ClientEnvironment, span: Duration) -> Time {
    world.now() + span.min(WAIT_MAX)
}

/// The output of `future`, if that completes before `until`.
pub(super) async fn timeout_at<T>(
    world: &dyn ClientEnvironment,
    until: Time,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = world.sleep_until(until) => None,
    }
}
