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

/// The way to one worker.
pub(super) type PoolEntry = watch::Sender<ConnectionState>;

/// How far the connection to one worker is.
#[derive(Debug, Clone, Default)]
pub(super) enum ConnectionState {
    /// It was not tried yet.
    #[default]
    Idle,
    /// A task tries.
    Dialing,
    /// It stands, or stood.
    Open(Arc<NodeConnection>),
    /// It could not be made.
    Failed(Time, Cause),
}

impl ConnectionPool {
    /// The way to a worker, for the tasks that wait for it.
    pub(super) fn line(&self, place: WorkerPlace) -> Arc<PoolEntry> {
        Arc::clone(lock(&self.lines).entry(place).or_default())
    }

    /// A connection was made without being asked for.
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
