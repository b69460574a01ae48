//! What becomes of transactions, as a checker sees it.

use crate::granule::GranuleId;
use crate::record::Level;

/// What has become of a transaction, for a checker.
#[derive(Debug, Clone, PartialEq)]
pub enum TransactionFact {
    /// It is committed locally, or reads behind what is.
    Committed {
        /// Its place among the transactions of the worker.
        number: u64,
        /// What it has read or written, with the level that the node had then.
        touched: Vec<(GranuleId, Level)>,
    },
    /// It is validated: its outcome may be revealed.
    Validated {
        /// Its place among the transactions of the worker.
        number: u64,
    },
    /// It has only read, some of it when that was committed locally only, and is answered at once.
    ReadsValidated {
        /// What it has read.
        touched: Vec<(GranuleId, Level)>,
    },
}
