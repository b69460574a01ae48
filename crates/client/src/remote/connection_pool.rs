//! The connections to all workers in use; `dial.rs` makes them.

use super::connection::NodeConnection;
use super::lock;
use shoal_engine::WorkerPlace;
use shoal_types::{Cause, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The connections of a client, one for each worker of each node.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    lines: Mutex<BTreeMap<WorkerPlace, Arc<PoolEntry>>>,
}

/// The connection to one worker.
pub(super) type PoolEntry = watch::Sender<ConnectionState>;

/// The state of the connection to one worker.
#[derive(Debug, Clone, Default)]
pub(super) enum ConnectionState {
    /// The connection was not dialed yet.
    #[default]
    Idle,
    /// A task is dialing.
    Dialing,
    /// The connection is established, or has ended since.
    Open(Arc<NodeConnection>),
    /// Dialing failed.
    Failed(Time, Cause),
}

impl ConnectionPool {
    /// The entry of a worker, which tasks wait for.
    pub(super) fn line(&self, place: WorkerPlace) -> Arc<PoolEntry> {
        Arc::clone(lock(&self.lines).entry(place).or_default())
    }

    /// Adds a connection that was made elsewhere.
    pub(super) fn adopt(&self, place: WorkerPlace, link: &Arc<NodeConnection>) {
        self.line(place).send_replace(ConnectionState::Open(Arc::clone(link)));
    }

    /// Ends all connections.
    pub(super) fn end(&self, cause: Cause) {
        for line in lock(&self.lines).values() {
            if let ConnectionState::Open(link) = &*line.borrow() {
                link.end(cause);
            }
        }
    }
}
