//! Bugs planted in the replies of a database on disk: each gives some of them before what they say is durable.

use shoal_types::planted;

planted! {
    /// Bugs planted on purpose: each must be caught by a check.
    pub struct EmbeddedPlantedBugs {
        /// A transaction that only read is answered before what it read is durable.
        pub reply_before_reads: bool,
        /// A transaction that wrote is answered before its record is flushed.
        pub reply_before_flush: bool,
        /// Tombstones leave the index before they are durable: a transaction that found a key absent does not learn what it has
        /// to wait for.
        pub forget_tombstones: bool,
    }
}
