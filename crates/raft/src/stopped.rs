//! The end of a replica.

use shoal_types::NodeId;
use std::fmt::Display;
use thiserror::Error;

/// The replica has stopped: it was asked to, or cannot rely on its storage. To go on, start it again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the manager's log has stopped on {node}: {reason}")]
pub struct Stopped {
    /// The node that hosts the replica.
    pub node: NodeId,
    /// The failure of storage, or the error of the library, in words.
    pub reason: String,
}

impl Stopped {
    pub(crate) fn new(node: NodeId, reason: &dyn Display) -> Stopped {
        Stopped { node, reason: reason.to_string() }
    }
}
