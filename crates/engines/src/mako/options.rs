//! The configuration of `mako`.

use crate::execution::hub::Limits;
use crate::faults::Faults;
use std::time::Duration;
use types::REMOTE_CLOCKS_MAX;

/// How `mako` behaves. The default does the right thing.
#[derive(Debug, Clone)]
pub struct Options {
    /// How transactions run until they commit.
    pub limits: Limits,
    /// How stamps are kept. Default: sparse.
    pub stamps: StampForm,
    /// A batch closes with this many transactions. Default 400 (Mako §4.3).
    pub batch_transactions_max: usize,
    /// A batch closes with this many bytes. Default 64 KiB.
    pub batch_bytes_max: usize,
    /// Between two batches lies at least this, unless the first was full. Less would send more messages
    /// with less in them where replicas are near. Default 50 µs.
    pub batch_gap: Duration,
    /// While one batch is on its way the next follows it after this, unless it is full before.
    /// Default 1 ms.
    pub batch_delay: Duration,
    /// Between two messages that tell a node of a greater watermark lies at least this. More saves
    /// messages under load and costs as much latency. Default 100 µs.
    pub gossip_gap: Duration,
    /// The watermark is told again after this, in case it was lost. Default 20 ms.
    pub gossip_again: Duration,
    /// Bytes of keys, versions and index that a replica may hold. Default: no limit.
    pub memory_bytes_max: usize,
    /// Planted bugs. Default: none.
    pub faults: Faults,
}

/// How much of its dependencies a version keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampForm {
    /// Shards that are not durable yet, and at most `remote_max` of them: beyond it they merge
    /// conservatively (Mako §6.1).
    Sparse {
        /// From 1 to 126: a participant's own clock may come on top.
        remote_max: usize,
    },
    /// Every shard the transaction depends on, durable or not: the full-sized form of the paper, to
    /// compare with. For clusters of up to 128 shards.
    Full,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            stamps: StampForm::Sparse { remote_max: REMOTE_CLOCKS_MAX },
            batch_transactions_max: 400,
            batch_bytes_max: 64 << 10,
            batch_gap: Duration::from_micros(50),
            batch_delay: Duration::from_millis(1),
            gossip_gap: Duration::from_micros(100),
            gossip_again: Duration::from_millis(20),
            memory_bytes_max: usize::MAX,
            faults: Faults::NONE,
        }
    }
}
