//! Engine `mako` in the simulator: its options, drawn from the seed, and the bugs that can be planted in it.

use crate::draw::one_of;
use crate::scenario::FAR_ROUND_TRIP;
use crate::subject::{Subject, limits, not_tiny};
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_mako::{Mako, MakoOptions, MakoPlantedBug, StampForm};
use shoal_types::Random;
use std::time::Duration;

impl Subject for Mako {
    const BUGS: &'static [(&'static str, MakoPlantedBug)] = &[
        ("skip-remote-validation", MakoPlantedBug::SkipRemoteValidation),
        ("clock-before-lock", MakoPlantedBug::ClockBeforeLock),
        ("acknowledge-at-certification", MakoPlantedBug::AcknowledgeAtCertification),
        ("ignore-tombstone-stamp", MakoPlantedBug::IgnoreTombstoneStamp),
        ("apply-above-watermark", MakoPlantedBug::ApplyAboveWatermark),
        ("validate-before-locks", MakoPlantedBug::ValidateBeforeLocks),
        ("install-own-clock-only", MakoPlantedBug::InstallOwnClockOnly),
        ("reveal-at-once", MakoPlantedBug::RevealAtOnce),
        ("read-unsettled-epoch", MakoPlantedBug::ReadUnsettledEpoch),
        ("end-epoch-in-flight", MakoPlantedBug::EndEpochInFlight),
        ("end-whole-while-hanging", MakoPlantedBug::EndWholeWhileHanging),
        ("report-before-durable", MakoPlantedBug::ReportBeforeDurable),
        ("act-without-lease", MakoPlantedBug::ActWithoutLease),
        ("roll-back-by-clock", MakoPlantedBug::RollBackByClock),
        ("keep-dead-locks", MakoPlantedBug::KeepDeadLocks),
        ("silence-resolves", MakoPlantedBug::SilenceResolves),
        ("cut-unstable", MakoPlantedBug::CutUnstable),
        ("copy-uncommitted", MakoPlantedBug::CopyUncommitted),
        ("copy-keeps-deleted", MakoPlantedBug::CopyKeepsDeleted),
        ("copy-by-clock", MakoPlantedBug::CopyByClock),
        ("copy-without-watermarks", MakoPlantedBug::CopyWithoutWatermarks),
        ("copy-watermarks-of-rows", MakoPlantedBug::CopyWatermarksOfRows),
        ("copy-without-undecided", MakoPlantedBug::CopyWithoutUndecided),
        ("install-undecided-above", MakoPlantedBug::InstallUndecidedAbove),
        ("wait-forever", MakoPlantedBug::WaitForever),
        ("certify-while-stalled", MakoPlantedBug::CertifyWhileStalled),
        ("cut-covered", MakoPlantedBug::CutCovered),
        ("snapshot-without-finals", MakoPlantedBug::SnapshotWithoutFinals),
        ("collect-unreached", MakoPlantedBug::CollectUnreached),
        ("collect-uncommitted", MakoPlantedBug::CollectUncommitted),
        ("collect-led-only", MakoPlantedBug::CollectLedOnly),
        ("collect-settled", MakoPlantedBug::CollectSettled),
        ("install-after-close", MakoPlantedBug::InstallAfterClose),
        ("lock-after-close", MakoPlantedBug::LockAfterClose),
        ("certify-after-close", MakoPlantedBug::CertifyAfterClose),
        ("safe-clock-past-parts", MakoPlantedBug::SafeClockPastParts),
        ("end-between-parts", MakoPlantedBug::EndBetweenParts),
        ("stable-while-blocked", MakoPlantedBug::StableWhileBlocked),
        ("stable-alone", MakoPlantedBug::StableAlone),
        ("copy-from-one-stream", MakoPlantedBug::CopyFromOneStream),
        ("compare-clocks-of-epochs", MakoPlantedBug::CompareClocksOfEpochs),
        ("trim-uncovered", MakoPlantedBug::TrimUncovered),
    ];

    fn draw(random: &mut Random, round_trip: Duration) -> MakoOptions {
        let mut options = MakoOptions::default();
        limits(&mut options.limits, random, round_trip);
        options.stamps = match random.below(5) {
            0 => StampForm::Full,
            1 => StampForm::Sparse { remote_max: 20 },
            _ => StampForm::Sparse { remote_max: random.range_inclusive(1, 3) as usize },
        };
        options.batch_transactions_max = one_of(random, &[1, 2, 10, 400]);
        options.batch_bytes_max = one_of(random, &[64, 1 << 10, 64 << 10]);
        options.batch_delay = Duration::from_micros(one_of(random, &[10, 200, 1000, 5000]));
        options.batch_gap = Duration::from_micros(one_of(random, &[0, 0, 50, 500]));
        options.gossip_gap = Duration::from_micros(one_of(random, &[1, 100, 1000]));
        options.gossip_again = Duration::from_millis(random.range_inclusive(1, 40));
        options.silent_after = options.gossip_again * random.range_inclusive(2, 8) as u32;
        // Longer than a step on the slowest processor that locks all that a loader writes at once (seed 8449415): where a
        // transaction hangs as soon as it is locked, the loader begins again for ever.
        options.hang_after =
            (round_trip * one_of(random, &[1, 2, 8])).max(Duration::from_millis(5));
        let mut apart = random.fork(1);
        let mut parts = random.fork(2);
        options.part_bytes_max = one_of(&mut parts, &[1, 100, 1 << 20]);
        options.part_writes_max = one_of(&mut parts, &[1, 2, 1 << 12]);
        options.replay_bytes_max = one_of(&mut parts, &[1, 1000, 1 << 20]);
        // In most seeds no transaction is long enough to need slices.
        if parts.below(16) == 0 {
            options.limits.step_keys_max = one_of(&mut parts, &[1, 3]);
        }
        options.snapshot_part.records_max = one_of(&mut apart, &[1, 3, 20, 1000]);
        options.snapshot_part.bytes_max = one_of(&mut apart, &[1, 100, 100_000]);
        let mut waits = random.fork(4);
        options.stalled_after = (round_trip * one_of(&mut waits, &[8, 40, 1000]))
            .clamp(Duration::from_millis(20), Duration::from_millis(600));
        options.limits.shard_wait_max = (round_trip * one_of(&mut waits, &[40, 400, 1000]))
            .clamp(Duration::from_millis(300), Duration::from_millis(2500));
        not_tiny(&mut options.snapshot_part, round_trip, FAR_ROUND_TRIP);
        options
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut MakoOptions, faults: PlantedBugs<MakoPlantedBug>) {
        options.faults = faults;
    }
}
