//! Names for transactions, unlike all others.

use shoal_types::wire::Coded;
use shoal_types::{NodeId, WorkerId, WorkerPlace};
use std::fmt;

/// One attempt at a transaction. A retry is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct TransactionId {
    /// The node that coordinates it.
    #[coded(short)]
    pub node: NodeId,
    /// On which worker.
    #[coded(short)]
    pub worker: WorkerId,
    /// The number of the attempt among those of its worker.
    #[coded(short)]
    pub sequence: u64,
}

impl TransactionId {
    /// The worker that coordinates it.
    pub fn coordinator(&self) -> WorkerPlace {
        WorkerPlace { node: self.node, worker: self.worker }
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.worker, self.sequence)
    }
}
