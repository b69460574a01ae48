//! The order in which conflicting transactions are released, and the times of a message.

use shoal_engine::TransactionId;
use shoal_types::Time;
use shoal_types::wire::Coded;

/// The order in which conflicting transactions are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Coded)]
pub struct Stamp {
    /// The timestamp, on the transaction clocks.
    pub t: Time,
    /// Decides between equal timestamps.
    pub id: TransactionId,
}

/// When a message was sent and when it arrived, each on the transaction clock of that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArrivalTimes {
    /// Zero where that is not known, as of what is repeated.
    pub sent: Time,
    /// Before it was processed.
    pub arrived: Time,
}
