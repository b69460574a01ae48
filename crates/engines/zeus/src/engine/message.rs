//! What workers of `zeus` say to each other.

use crate::message::ZeusMessage;
use shoal_engine::client::Relay;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_types::wire::Coded;
use std::convert::Infallible;

/// A message between two workers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ZeusEngineMessage {
    /// Of the protocol, between nodes: any worker takes it.
    #[coded(tag = 0)]
    Protocol(ZeusMessage),
    /// Between the node that a client asked and the one that serves its call.
    #[coded(tag = 1)]
    Relay(Relay),
}

impl RuntimeMessage for ZeusEngineMessage {
    /// No operation is sent to another node: granules come here.
    type Request = Infallible;

    fn request(_: BranchHeader, request: Infallible) -> ZeusEngineMessage {
        match request {}
    }

    fn relay(relay: Relay) -> ZeusEngineMessage {
        ZeusEngineMessage::Relay(relay)
    }
}
