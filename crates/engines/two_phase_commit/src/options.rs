//! The configuration of `two_phase_commit`.

use super::record::PartSize;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::limits::{Limits, at_least_one, not_zero};
use shoal_replication::codec::{PART_BYTES_MAX, PART_WRITES_MAX};
use shoal_replication::replay_budget::REPLAY_BYTES_MAX;
use std::time::Duration;

/// How `two_phase_commit` behaves. The default does the right thing.
#[derive(Debug, Clone)]
pub struct TwoPhaseCommitOptions {
    /// How transactions run until they commit. By default a replica allows 32 768 sessions instead of
    /// the usual number: a transaction keeps its own until its record is durable.
    pub limits: Limits,
    /// A batch closes with this many records. Default 400.
    pub batch_records_max: usize,
    /// A batch closes with this many bytes. Default 64 KiB.
    pub batch_bytes_max: usize,
    /// A transaction that writes more bytes of keys and values on a shard is appended in parts of about so many, an entry
    /// each. More costs fewer entries, which are longer on their way. Default 1 MiB.
    pub part_bytes_max: usize,
    /// The same for the keys that it writes. Default 4096.
    pub part_writes_max: usize,
    /// A step replays no more bytes than so, and one part: the rest is left for the next ones. Default 1 MiB.
    pub replay_bytes_max: usize,
    /// Between two batches lies at least this, unless the first was full. Less would send more messages
    /// with less in them where replicas are near. Default 50 µs.
    pub batch_gap: Duration,
    /// While one batch is on its way the next follows it after this, unless it is full before.
    /// Default 1 ms.
    pub batch_delay: Duration,
    /// A stream that has nothing to say says after this, once, how far it is safe: followers keep
    /// tombstones until they know. Default 100 ms.
    pub heartbeat: Duration,
    /// A participant asks again after this what became of a transaction whose coordinator is gone, and a decision is sent
    /// again after this until it is acknowledged. Default 100 ms.
    pub inquire_every: Duration,
    /// A participant asks what became of a transaction that has been prepared for so long, though its coordinator seems to
    /// be there: it may have given up, and the message was lost. Default 1 s.
    pub inquire_after: Duration,
    /// How much of a store one message of a copy takes, for a replica that lacks what the streams have no more: less
    /// keeps the worker for a shorter time. Default 256 records, 32 KiB.
    pub snapshot_part: shoal_store::CopyPart,
    /// Planted bugs. Default: none.
    pub faults: PlantedBugs<TwoPhaseCommitPlantedBug>,
}

impl TwoPhaseCommitOptions {
    /// How much of a transaction one entry takes.
    pub(super) fn part(&self) -> PartSize {
        PartSize { bytes_max: self.part_bytes_max, writes_max: self.part_writes_max }
    }

    /// Checks them.
    ///
    /// # Panics
    /// If one is out of its range; says which.
    pub(super) fn check(&self) {
        self.limits.check();
        at_least_one([
            ("batch_records_max", self.batch_records_max),
            ("batch_bytes_max", self.batch_bytes_max),
            ("part_bytes_max", self.part_bytes_max),
            ("part_writes_max", self.part_writes_max),
            ("replay_bytes_max", self.replay_bytes_max),
            ("snapshot_part", self.snapshot_part.records_max),
        ]);
        not_zero([
            ("heartbeat", self.heartbeat),
            ("inquire_every", self.inquire_every),
            ("inquire_after", self.inquire_after),
        ]);
    }
}

impl Default for TwoPhaseCommitOptions {
    fn default() -> TwoPhaseCommitOptions {
        TwoPhaseCommitOptions {
            limits: Limits { sessions_max: 1 << 15, ..Limits::default() },
            batch_records_max: 400,
            batch_bytes_max: 64 << 10,
            part_bytes_max: PART_BYTES_MAX,
            part_writes_max: PART_WRITES_MAX,
            replay_bytes_max: REPLAY_BYTES_MAX,
            batch_gap: Duration::from_micros(50),
            batch_delay: Duration::from_millis(1),
            heartbeat: Duration::from_millis(100),
            inquire_every: Duration::from_millis(100),
            inquire_after: Duration::from_secs(1),
            snapshot_part: shoal_replication::snapshot_transfer::PART,
            faults: PlantedBugs::NONE,
        }
    }
}
