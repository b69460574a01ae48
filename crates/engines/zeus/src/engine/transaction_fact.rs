//! What becomes of transactions, as a checker sees it.

use crate::granule::GranuleId;
use crate::record::Level;
use shoal_types::Epoch;

/// What has become of a transaction, for a checker.
#[derive(Debug, Clone, PartialEq)]
pub enum TransactionFact {
    /// The transaction is committed locally, or reads behind what is.
    Committed {
        /// The place among the transactions of the worker.
        number: u64,
        /// What it has read or written, with the level that the node had then.
        touched: Vec<(GranuleId, Level)>,
    },
    /// The transaction is validated: its outcome may be revealed.
    Validated {
        /// The place among the transactions of the worker.
        number: u64,
    },
    /// The transaction has only read, some of it when that was committed locally only, and is answered at once.
    ReadsValidated {
        /// What it has read.
        touched: Vec<(GranuleId, Level)>,
    },
    /// A transaction fails, since no live node has a granule that it wants.
    Lost {
        /// The granule that it wants.
        granule: GranuleId,
        /// The epoch that the node knows.
        epoch: Epoch,
    },
}
