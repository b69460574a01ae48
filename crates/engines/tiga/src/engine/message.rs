//! What workers of `tiga` say to each other.

use crate::message::Message;
use shoal_engine::client::Relay;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_types::wire::Coded;
use std::convert::Infallible;

/// A message between two workers.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum TigaEngineMessage {
    /// What nodes say to each other as coordinators and replicas.
    #[coded(tag = 0)]
    Protocol(Message),
    /// Between the node that a client asked and the one that serves its call.
    #[coded(tag = 1)]
    Relay(Relay),
}

impl RuntimeMessage for TigaEngineMessage {
    /// Operations are part of the protocol's own reads and certificates.
    type Request = Infallible;

    fn request(_: BranchHeader, request: Infallible) -> TigaEngineMessage {
        match request {}
    }

    fn relay(relay: Relay) -> TigaEngineMessage {
        TigaEngineMessage::Relay(relay)
    }
}
