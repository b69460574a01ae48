//! Engine `two_phase_commit` in the simulator: its options, drawn from the seed, and the bugs that can be planted in it.

use crate::coverage::NO_LOSS;
use crate::draw::one_of;
use crate::scenario::FAR_ROUND_TRIP;
use crate::subject::{Subject, limits, not_tiny};
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_two_phase_commit::{TwoPhaseCommit, TwoPhaseCommitOptions, TwoPhaseCommitPlantedBug};
use shoal_types::Random;
use std::time::Duration;

/// Where a round trip takes so long, a stream decides a few hundred entries a second in some seeds.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(100);
/// From this round trip on, a thousand attempts with small parts would keep a stream busy for a minute and more.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(8);
/// Parts of fewer bytes or fewer writes are small.
const SMALL_PART: (usize, usize) = (16 << 10, 1 << 10);

impl Subject for TwoPhaseCommit {
    /// It has no stamps, and its epochs are not settled; no majority is lost.
    const NOT_REACHED: &'static [&'static [&'static str]] = &[
        NO_LOSS,
        &[
            "depends on a foreign shard",
            "epoch settled",
            "held up by silence",
            "lost where a shard ended",
            "rolled back with its epoch",
            "second failure: end appended",
            "second failure: reported",
            "stamp collapsed",
            "undecided version in a copy",
            "undecided version installed",
            "undecided version met",
            "worker acts within a step",
        ],
    ];

    const BUGS: &'static [(&'static str, TwoPhaseCommitPlantedBug)] = &[
        ("skip-remote-validation", TwoPhaseCommitPlantedBug::SkipRemoteValidation),
        ("acknowledge-at-certification", TwoPhaseCommitPlantedBug::AcknowledgeAtCertification),
        ("validate-before-locks", TwoPhaseCommitPlantedBug::ValidateBeforeLocks),
        ("act-without-lease", TwoPhaseCommitPlantedBug::ActWithoutLease),
        ("serve-without-recovered-locks", TwoPhaseCommitPlantedBug::ServeWithoutRecoveredLocks),
        ("serve-unsealed", TwoPhaseCommitPlantedBug::ServeUnsealed),
        ("presume-abort-early", TwoPhaseCommitPlantedBug::PresumeAbortEarly),
        ("presume-abort-unended", TwoPhaseCommitPlantedBug::PresumeAbortUnended),
        ("abort-while-deciding", TwoPhaseCommitPlantedBug::AbortWhileDeciding),
        ("leave-last-agent", TwoPhaseCommitPlantedBug::LeaveLastAgent),
        ("patch-undurable", TwoPhaseCommitPlantedBug::PatchUndurable),
        ("end-unacknowledged", TwoPhaseCommitPlantedBug::EndUnacknowledged),
        ("copy-keeps-deleted", TwoPhaseCommitPlantedBug::CopyKeepsDeleted),
        ("copy-unreached", TwoPhaseCommitPlantedBug::CopyUnreached),
        ("copy-without-tombstones", TwoPhaseCommitPlantedBug::CopyWithoutTombstones),
        ("copy-with-one-cut", TwoPhaseCommitPlantedBug::CopyWithOneCut),
        ("forget-tombstones-at-once", TwoPhaseCommitPlantedBug::ForgetTombstonesAtOnce),
        ("forget-tombstones-while-copied", TwoPhaseCommitPlantedBug::ForgetTombstonesWhileCopied),
        ("snapshot-without-prepared", TwoPhaseCommitPlantedBug::SnapshotWithoutPrepared),
        ("snapshot-without-later-writes", TwoPhaseCommitPlantedBug::SnapshotWithoutLaterWrites),
    ];

    fn draw(random: &mut Random, round_trip: Duration) -> TwoPhaseCommitOptions {
        let mut options = TwoPhaseCommitOptions::default();
        options.limits.sessions_max = 1 << 12; // Enough for a few clients, and quick to set up.
        limits(&mut options.limits, random, round_trip);
        options.batch_records_max = one_of(random, &[1, 2, 10, 400]);
        options.batch_bytes_max = one_of(random, &[64, 1 << 10, 64 << 10]);
        options.batch_gap = Duration::from_micros(one_of(random, &[0, 50, 500]));
        options.batch_delay = Duration::from_micros(one_of(random, &[10, 200, 1000, 5000]));
        options.heartbeat = Duration::from_millis(one_of(random, &[1, 10, 100, 1000]));
        let mut waits = random.fork(4);
        options.inquire_every =
            (round_trip * one_of(&mut waits, &[1, 4, 20])).max(Duration::from_millis(1));
        options.inquire_after =
            (round_trip * one_of(&mut waits, &[2, 10, 50])).max(Duration::from_millis(5));
        options.limits.shard_wait_max = (round_trip * one_of(&mut waits, &[40, 400, 1000]))
            .clamp(Duration::from_millis(300), Duration::from_millis(2500));
        let mut apart = random.fork(1);
        options.snapshot_part.records_max = one_of(&mut apart, &[1, 3, 20, 1000]);
        options.snapshot_part.bytes_max = one_of(&mut apart, &[1, 100, 100_000]);
        not_tiny(&mut options.snapshot_part, round_trip, FAR_ROUND_TRIP);
        let mut parts = random.fork(2);
        options.part_bytes_max = one_of(&mut parts, &[1, 100, 1 << 20]);
        options.part_writes_max = one_of(&mut parts, &[1, 2, 1 << 12]);
        let (bytes, writes) = SMALL_PART;
        if round_trip >= LONG_ROUND_TRIP {
            // Each part is an entry: what clients write would take a slow stream longer than the run may last (seed 33865351).
            options.part_bytes_max = options.part_bytes_max.max(bytes);
            options.part_writes_max = options.part_writes_max.max(writes);
        }
        let is_small = options.part_bytes_max < bytes || options.part_writes_max < writes;
        if is_small && round_trip >= SLOW_ROUND_TRIP {
            // The stream gets the parts of each attempt, also of one that is given up (seed 538875565).
            options.limits.attempts_max = options.limits.attempts_max.min(20);
        }
        options.replay_bytes_max = one_of(&mut parts, &[1, 1000, 1 << 20]);
        // In most seeds no transaction is long enough to need slices.
        if parts.below(16) == 0 {
            options.limits.step_keys_max = one_of(&mut parts, &[1, 3]);
        }
        options
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut TwoPhaseCommitOptions, faults: PlantedBugs<TwoPhaseCommitPlantedBug>) {
        options.faults = faults;
    }
}
