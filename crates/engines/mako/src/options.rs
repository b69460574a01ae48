//! The configuration of `mako`.

use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::limits::{Limits, at_least_one, not_zero};
use shoal_replication::codec::{PART_BYTES_MAX, PART_WRITES_MAX};
use shoal_replication::replay_budget::REPLAY_BYTES_MAX;
use shoal_types::REMOTE_CLOCKS_MAX;
use std::time::Duration;

/// A version counts the entries of its stamp in seven bits.
pub(super) const ENTRIES_MAX: usize = 127;

/// How `mako` behaves. The default does the right thing.
#[derive(Debug, Clone)]
pub struct MakoOptions {
    /// How transactions run until they commit.
    pub limits: Limits,
    /// How stamps are kept. Default: sparse.
    pub stamps: StampForm,
    /// A batch closes with this many transactions. Default 400 (Mako §4.3).
    pub batch_transactions_max: usize,
    /// A batch closes with this many bytes. Default 64 KiB.
    pub batch_bytes_max: usize,
    /// A transaction that writes more bytes of keys and values on a shard is appended in parts of about so many, one a
    /// step and an entry each. More costs fewer steps, which last longer. Default 1 MiB.
    pub part_bytes_max: usize,
    /// The same for the keys that it writes. Default 4096.
    pub part_writes_max: usize,
    /// A step replays no more bytes than so, and one piece: the rest is left for the next ones. Default 1 MiB.
    pub replay_bytes_max: usize,
    /// Between two batches lies at least this, unless the first was full. Less would send more messages
    /// with less in them where replicas are near. Default 50 µs.
    pub batch_gap: Duration,
    /// While one batch is on its way the next follows it after this, unless it is full before.
    /// Default 1 ms.
    pub batch_delay: Duration,
    /// The least time between two messages of greater watermarks to a node. More saves
    /// messages under load and costs as much latency. Default 100 µs.
    pub gossip_gap: Duration,
    /// The watermark is sent again after this, in case it was lost; and so often while others wait for what a
    /// worker coordinates. Where there is nothing new, the pause grows to sixteen times as much. Default 15 ms.
    pub gossip_again: Duration,
    /// How long after the end of an epoch a worker waits for what is in flight of it: then its coordinator
    /// is taken for dead, and the transaction is lost. Above the round trip between nodes. Default 100 ms.
    pub hang_after: Duration,
    /// A leader that says nothing for so long is taken for gone by nodes that its transactions hold up: they
    /// ask for the end of the epoch. Some times `gossip_again`. Default 40 ms.
    pub silent_after: Duration,
    /// A leader whose stream decides nothing for so long, though something is proposed, certifies nothing until it does:
    /// a majority of its voters does not answer. Longer outlasts longer outages of the network between replicas; what is
    /// certified meanwhile may never be answered. Default 600 ms, a lease.
    pub stalled_after: Duration,
    /// How much of a store one message of a copy takes, for a replica that lacks what the streams have no more: less
    /// keeps the worker for a shorter time. Default 256 records, 32 KiB.
    pub snapshot_part: shoal_store::CopyPart,
    /// Planted bugs. Default: none.
    pub faults: PlantedBugs<MakoPlantedBug>,
}

/// How much of its dependencies a version keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampForm {
    /// Shards that are not durable yet, and at most `remote_max` of them: beyond it they merge
    /// conservatively (Mako §6.1).
    Sparse {
        /// From 1 to [`REMOTE_MAX`]: a participant's own clock may come on top.
        remote_max: usize,
    },
    /// Every shard the transaction depends on, durable or not: the full-sized form of the paper, to
    /// compare with. For clusters of up to 128 shards.
    Full,
    /// One clock for all shards, to compare with: a transaction waits for all of them, and if one fails,
    /// everything above a single timestamp is rolled back.
    Timestamp,
    /// As in the paper's Mako-epoch, to compare with: transactions are committed in groups, one after the
    /// other, when all shards have them; if one fails, all of the open group is rolled back.
    Group {
        /// How long a group is open.
        every: Duration,
    },
}

/// A group has so many clocks, which are not used up while it is open.
pub(super) const GROUP_CLOCKS: u64 = 1 << 24;

/// Most entries that a bounded stamp may be allowed to have.
pub const REMOTE_MAX: usize = ENTRIES_MAX - 1;

/// Most shards of a cluster that keeps full stamps.
pub const FULL_SHARDS_MAX: u32 = ENTRIES_MAX as u32 + 1;

impl MakoOptions {
    /// Checks them for a cluster of `shards`.
    ///
    /// # Panics
    /// If one is out of its range; says which.
    pub(super) fn check(&self, shards: u32) {
        self.limits.check();
        match self.stamps {
            StampForm::Sparse { remote_max } => assert!(
                (1..=REMOTE_MAX).contains(&remote_max),
                "the option remote_max is {remote_max}; it goes from 1 to {REMOTE_MAX}"
            ),
            StampForm::Timestamp | StampForm::Group { .. } => {}
            StampForm::Full => assert!(
                shards <= FULL_SHARDS_MAX,
                "the option stamps is Full, for up to {FULL_SHARDS_MAX} shards; there are {shards}"
            ),
        }
        at_least_one([
            ("batch_transactions_max", self.batch_transactions_max),
            ("batch_bytes_max", self.batch_bytes_max),
            ("part_bytes_max", self.part_bytes_max),
            ("part_writes_max", self.part_writes_max),
            ("replay_bytes_max", self.replay_bytes_max),
            ("snapshot_part", self.snapshot_part.records_max),
        ]);
        not_zero([
            ("gossip_again", self.gossip_again),
            ("hang_after", self.hang_after),
            ("silent_after", self.silent_after),
            ("stalled_after", self.stalled_after),
        ]);
    }
}

impl Default for MakoOptions {
    fn default() -> MakoOptions {
        MakoOptions {
            limits: Limits::default(),
            stamps: StampForm::Sparse { remote_max: REMOTE_CLOCKS_MAX },
            batch_transactions_max: 400,
            batch_bytes_max: 64 << 10,
            part_bytes_max: PART_BYTES_MAX,
            part_writes_max: PART_WRITES_MAX,
            replay_bytes_max: REPLAY_BYTES_MAX,
            batch_gap: Duration::from_micros(50),
            batch_delay: Duration::from_millis(1),
            gossip_gap: Duration::from_micros(100),
            gossip_again: Duration::from_millis(15),
            hang_after: Duration::from_millis(100),
            silent_after: Duration::from_millis(40),
            stalled_after: Duration::from_millis(600),
            snapshot_part: shoal_replication::snapshot_transfer::PART,
            faults: PlantedBugs::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(stamps: StampForm, shards: u32) -> bool {
        let options = MakoOptions { stamps, ..MakoOptions::default() };
        std::panic::catch_unwind(|| options.check(shards)).is_err()
    }

    #[test]
    fn options_out_of_range_are_refused_at_the_start() {
        for remote_max in [0, REMOTE_MAX + 1] {
            assert!(refused(StampForm::Sparse { remote_max }, 3));
        }
        for remote_max in [1, REMOTE_MAX] {
            assert!(!refused(StampForm::Sparse { remote_max }, 3));
        }
        assert!(!refused(StampForm::Full, FULL_SHARDS_MAX));
        assert!(refused(StampForm::Full, FULL_SHARDS_MAX + 1));
    }
}
