//! A client outside, as the simulation keeps it: its process, and the connections that nodes have accepted.

use crate::clients::process::{ClientProcess, ConnectionNumber};
use shoal_engine::client::ClientRequest;
use shoal_types::{RequestId, Time};
use std::collections::BTreeMap;

/// The process of a client outside, with the frames that have arrived for it.
pub(super) struct ConnectedProcess {
    pub(super) process: ClientProcess,
    /// When it is polled next, even if no message arrives.
    pub(super) wake_at: Time,
    pub(super) connections: BTreeMap<ConnectionNumber, AcceptedConnection>,
    /// The last call that it sent.
    pub(super) last_call: Option<RequestId>,
    /// How often it repeated a request.
    pub(super) asked_again: u64,
}

/// A connection that the node has accepted.
pub(super) struct AcceptedConnection {
    pub(super) simulated_worker: u32,
    /// The number of the node's process that accepted it.
    pub(super) instance: u32,
    /// Whether its end is on its way to the client: then no message is delivered any more.
    pub(super) is_lost: bool,
    /// The last step that was sent, and its session.
    pub(super) last_step: (u64, u32),
}

impl ConnectedProcess {
    /// Counts requests that are repeated.
    pub(super) fn count(&mut self, number: ConnectionNumber, request: &ClientRequest) {
        let is_again = match request {
            ClientRequest::OpenCalls { .. }
            | ClientRequest::Register
            | ClientRequest::Resolve { .. }
            | ClientRequest::ChangeTable { .. } => false,
            ClientRequest::Call { id, .. } => self.last_call.replace(*id) == Some(*id),
            ClientRequest::Steps { session, number: first, operations, ending, .. } => {
                let Some(connected) = self.connections.get_mut(&number) else { return };
                let is_again = (*session, *first + 1) <= connected.last_step;
                let steps = operations.len() as u32 + u32::from(ending.is_some());
                connected.last_step = connected.last_step.max((*session, *first + steps));
                is_again
            }
        };
        self.asked_again += u64::from(is_again);
    }
}
