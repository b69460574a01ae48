//! What a worker of any engine counts.

use std::ops::AddAssign;

/// What a worker has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Transactions that this worker coordinated and certified, read-only ones included.
    pub certified: u64,
    /// Those of them whose outcome was told.
    pub committed: u64,
    /// Those of them that wrote.
    pub wrote: u64,
    /// Those of them that wrote more than one shard.
    pub cross_shard: u64,
    /// Those of them that were rolled back, since a shard failed.
    pub rolled_back: u64,
    /// Versions that were dropped, since what had written them was rolled back.
    pub discarded: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Transactions that took longer than
    /// [`Limits::slow_after`](crate::execution::Limits::slow_after), with any outcome.
    pub slow: u64,
    /// Requests to other workers that were sent again since no answer came.
    pub resent: u64,
    /// Messages that made no sense here, or none any more, and were dropped.
    pub dropped: u64,
    /// Operations on records: read, written, scanned, replayed.
    pub operations: u64,
    /// Stamps that were kept with versions here, one for each shard that a transaction wrote.
    pub stamps: u64,
    /// The entries of those stamps, the shard's own included, all added up.
    pub stamp_entries: u64,
    /// Keys that were locked, installed or rolled back here for transactions, and of reads that were validated one in
    /// sixteen.
    pub step_keys: u64,
    /// The most of them in one step.
    pub step_keys_most: u64,
    /// Batches appended to streams, heartbeats included.
    pub batches: u64,
    /// Bytes of those batches.
    pub batch_bytes: u64,
    /// Bytes of writes that were replayed where this node follows.
    pub replayed_bytes: u64,
    /// Where the time of transactions went.
    pub stages: StageTimes,
}

/// Where the time went of the transactions that a worker has coordinated, that wrote and whose outcome was told; and
/// of what all transactions left in streams that it leads. Nanoseconds in its own time, all added up, which wrap around
/// after days under load: a stage within one step takes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Those transactions.
    pub writers: u64,
    /// They waited to be let in.
    pub entering_ns: u64,
    /// They made attempts that met conflicts, and paused.
    pub retrying_ns: u64,
    /// They ran, for the last time; of interactive ones, their clients' time between steps as well.
    pub executing_ns: u64,
    /// They took their locks. Where one participant did all the rest, this is all of it.
    pub locking_ns: u64,
    /// What they had read was validated; and prepared, in an engine that prepares.
    pub validating_ns: u64,
    /// They were certified, and waited until they could be told. That is for their pieces to be durable, and then for
    /// what they depend on.
    pub awaiting_ns: u64,
    /// Pieces of transactions in streams that this worker leads, and that are decided: one for each shard a
    /// transaction writes, or for each record of it.
    pub pieces: u64,
    /// They gathered in a batch.
    pub batching_ns: u64,
    /// Their batch was in the stream, and not decided.
    pub replicating_ns: u64,
}

impl StageTimes {
    /// Each number with its name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("writers", self.writers),
            ("entering_ns", self.entering_ns),
            ("retrying_ns", self.retrying_ns),
            ("executing_ns", self.executing_ns),
            ("locking_ns", self.locking_ns),
            ("validating_ns", self.validating_ns),
            ("awaiting_ns", self.awaiting_ns),
            ("pieces", self.pieces),
            ("batching_ns", self.batching_ns),
            ("replicating_ns", self.replicating_ns),
        ]
    }
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, more: StageTimes) {
        self.writers = self.writers.wrapping_add(more.writers);
        self.entering_ns = self.entering_ns.wrapping_add(more.entering_ns);
        self.retrying_ns = self.retrying_ns.wrapping_add(more.retrying_ns);
        self.executing_ns = self.executing_ns.wrapping_add(more.executing_ns);
        self.locking_ns = self.locking_ns.wrapping_add(more.locking_ns);
        self.validating_ns = self.validating_ns.wrapping_add(more.validating_ns);
        self.awaiting_ns = self.awaiting_ns.wrapping_add(more.awaiting_ns);
        self.pieces = self.pieces.wrapping_add(more.pieces);
        self.batching_ns = self.batching_ns.wrapping_add(more.batching_ns);
        self.replicating_ns = self.replicating_ns.wrapping_add(more.replicating_ns);
    }
}
