//! The connections to all workers in use: each is made when it is first needed, and again when it has ended.
//!
//! A connection is made on a task of its own, so that a caller that loses patience does not undo what others wait
//! for. For a moment after it could not be made it is not tried again.

use super::connection::NodeConnection;
use super::environment::ConnectFailure;
use super::lock;
use super::shared::{ClientShared, ClusterInner};
use shoal_engine::WorkerPlace;
use shoal_types::{Cause, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// So long it is not tried again.
const REDIAL_AFTER: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    lines: Mutex<BTreeMap<WorkerPlace, Arc<PoolEntry>>>,
}

/// The way to one worker.
type PoolEntry = watch::Sender<ConnectionState>;

#[derive(Debug, Clone, Default)]
enum ConnectionState {
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
    fn line(&self, place: WorkerPlace) -> Arc<PoolEntry> {
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

impl ClusterInner {
    /// The connection to a worker, as soon as it stands.
    ///
    /// # Errors
    /// Why it cannot be made now.
    pub(super) async fn link(
        self: &Arc<Self>,
        place: WorkerPlace,
    ) -> Result<Arc<NodeConnection>, Cause> {
        let line = self.lines.line(place);
        let mut seen = line.subscribe();
        loop {
            match &*seen.borrow_and_update() {
                ConnectionState::Open(link) if !link.has_ended() => return Ok(Arc::clone(link)),
                ConnectionState::Failed(at, cause) if *at + REDIAL_AFTER > self.world().now() => {
                    return Err(*cause);
                }
                ConnectionState::Dialing
                | ConnectionState::Idle
                | ConnectionState::Open(_)
                | ConnectionState::Failed(..) => {}
            }
            let dials = line.send_if_modified(|state| {
                let dials = match state {
                    ConnectionState::Idle => true,
                    ConnectionState::Dialing => false,
                    ConnectionState::Open(link) => link.has_ended(),
                    ConnectionState::Failed(at, _) => *at + REDIAL_AFTER <= self.world().now(),
                };
                if dials {
                    *state = ConnectionState::Dialing;
                }
                dials
            });
            if dials {
                self.world().spawn(Box::pin(dial(Arc::clone(self), place, Arc::clone(&line))));
                seen.mark_unchanged();
            }
            let stands = seen.wait_for(|state| !matches!(state, ConnectionState::Dialing)).await;
            match &*stands.expect("we hold the line") {
                ConnectionState::Open(link) => return Ok(Arc::clone(link)),
                ConnectionState::Failed(_, cause) => return Err(*cause),
                ConnectionState::Idle | ConnectionState::Dialing => {}
            }
        }
    }
}

/// Makes a connection, and says what came of it.
async fn dial(inner: Arc<ClusterInner>, place: WorkerPlace, line: Arc<PoolEntry>) {
    let state = match reach(&inner, place).await {
        Ok(link) => ConnectionState::Open(link),
        Err(cause) => ConnectionState::Failed(inner.world().now(), cause),
    };
    line.send_replace(state);
}

async fn reach(
    inner: &Arc<ClusterInner>,
    place: WorkerPlace,
) -> Result<Arc<NodeConnection>, Cause> {
    let ClientShared { view, founding, world, .. } = &*inner.client_shared;
    let connected = world.connect(place, view.address(place.node), founding.own()).await;
    let connection = connected.map_err(|ConnectFailure { cause, found }| {
        if found.is_some() {
            founding.meet(place.node, found);
        }
        cause
    })?;
    if connection.node != place.node {
        // Another node has that address now.
        return Err(Cause::Unreachable);
    }
    if !founding.meet(place.node, connection.identity) {
        return Err(Cause::FoundedAgain);
    }
    Ok(NodeConnection::start(connection, &inner.client_shared))
}
