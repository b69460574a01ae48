//! Making connections: each when it is first needed, and again when it has ended.
//!
//! A connection is dialed by a task of its own, so that a caller that gives up does not cancel what others wait for.
//! After a failure it is not dialed again for a moment.

use super::client_shared::ClientShared;
use super::connection::NodeConnection;
use super::connection_pool::{ConnectionState, PoolEntry};
use super::environment::ConnectFailure;
use super::shared::ClusterInner;
use shoal_engine::WorkerPlace;
use shoal_types::Cause;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failure.
const REDIAL_AFTER: Duration = Duration::from_millis(50);

impl ClusterInner {
    /// The connection to a worker, as soon as it is established.
    ///
    /// # Errors
    /// The reason for which it cannot be established now.
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

/// Dials, and publishes the result.
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
        // The address belongs to another node now.
        return Err(Cause::Unreachable);
    }
    if !founding.meet(place.node, connection.identity) {
        return Err(Cause::FoundedAgain);
    }
    Ok(NodeConnection::start(connection, &inner.client_shared))
}
