//! Names for transactions, unlike all others.

use shoal_types::wire::Coded;
use shoal_types::{NodeId, WorkerId};
use std::fmt;

/// One attempt at a transaction. A retry is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct TransactionId {
    /// Who coordinates it.
    #[coded(short)]
    pub node: NodeId,
    /// On which worker; the same worker of every other node serves it.
    #[coded(short)]
    pub worker: WorkerId,
    /// The how-manieth of that worker.
    #[coded(short)]
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.worker, self.sequence)
    }
}
