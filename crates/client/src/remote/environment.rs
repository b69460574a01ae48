//! What a client of a cluster needs of its surroundings: the time, tasks, and connections to nodes.
//!
//! ```text
//!   the client ──► World ──┬── Sockets: tokio, TCP or TLS, frames of bytes
//!              ◄── Incoming└── the simulator: virtual time, messages as values, one thread
//! ```
//! All that the client decides is decided above this line, so what runs in a simulation is the client that is shipped. It
//! draws what is random from a [`Random`](shoal_types::Random) that it is given, and waits for nothing but what is here and
//! for its own tasks.
//!
//! What always holds:
//!
//! - A connection carries messages in order, each once. It may end at any time, and what was under way is lost then: a
//!   prefix of what was sent has arrived.
//! - What comes over a connection is handed over before its end is.

use shoal_engine::WorkerPlace;
use shoal_engine::client::{Directory, FromClient, ToClient};
use shoal_types::{Cause, ClusterId, NodeId, Time, WorkerId};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Longer waits than this, a year, need no deadline.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Something that a client waits for.
pub type EnvironmentFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The surroundings of a client; see the module.
pub trait ClientEnvironment: fmt::Debug + Send + Sync {
    /// The time, which never goes back.
    fn now(&self) -> Time;

    /// Is done at that time.
    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()>;

    /// Runs a task beside those that run.
    fn spawn(&self, task: EnvironmentFuture<()>);

    /// Connects to a worker. The node listens at `address`, if that is known, and is refused if it belongs to another
    /// founding of the cluster than `identity`.
    fn connect(
        &self,
        place: WorkerPlace,
        address: Option<Arc<str>>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Result<EnvironmentConnection, ConnectFailure>>;

    /// Asks the node that listens at an address where everything is: that node, the cluster it belongs to as far as it
    /// knows, and what it tells. `None` if it cannot be asked.
    fn visit(
        &self,
        address: Arc<str>,
        identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Option<(NodeId, Option<ClusterId>, Directory)>>;
}

/// Why a node could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFailure {
    /// What stood in the way.
    pub cause: Cause,
    /// The cluster that it belongs to, if that is another than the client's.
    pub found: Option<ClusterId>,
}

/// A connection that stands.
#[derive(Debug)]
pub struct EnvironmentConnection {
    /// The node at the other end.
    pub node: NodeId,
    /// The worker of the node that serves the connection.
    pub worker: WorkerId,
    /// Which founding of the cluster it belongs to, as far as it knew when it let the client in.
    pub identity: Option<ClusterId>,
    /// What carries messages.
    pub carrier: Box<dyn MessageCarrier>,
}

/// Carries the messages of a connection.
pub trait MessageCarrier: fmt::Debug + Send {
    /// Hands what comes to `incoming` from now on, but not before it returns. Returns the way to the node.
    fn start(self: Box<Self>, incoming: Arc<dyn Incoming>) -> Box<dyn Outgoing>;
}

/// The way to a node. When it is dropped, the connection ends after what was sent.
pub trait Outgoing: fmt::Debug + Send {
    /// Sends a message, without waiting for room.
    fn send(&self, what: FromClient);
}

/// The client's end of a connection, for what carries its messages.
pub trait Incoming: fmt::Debug + Send + Sync {
    /// A message has come.
    fn receive(&self, said: ToClient);

    /// What has come makes no sense: the connection ends.
    fn malformed(&self);

    /// The connection has ended at the other end, or on the way.
    fn lose(&self);

    /// Has the connection ended, as the client sees it?
    fn has_ended(&self) -> bool;

    /// Waits until the connection has ended, as the client sees it.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// When so long will have passed from now.
pub(super) fn after(world: &dyn ClientEnvironment, span: Duration) -> Time {
    world.now() + span.min(WAIT_MAX)
}

/// What `future` brings, if that is before `until`.
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
