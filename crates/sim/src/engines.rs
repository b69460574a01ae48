//! The engines that can be simulated. This is the only file that names them.

use crate::draw::one_of;
use crate::fault_schedule::FaultWeights;
use crate::run::{RunOptions, RunReport, run};
use crate::scenario::{ClientWork, Scenario, partitioning};
use crate::subject::{AnyPlantedBug, Subject, limits, not_tiny};
use shoal_cluster::topology::{Partitioning, TableDefinition};
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_engine::execution::Limits;
use shoal_mako::{Mako, MakoOptions, MakoPlantedBug, StampForm};
use shoal_two_phase_commit::{TwoPhaseCommit, TwoPhaseCommitOptions, TwoPhaseCommitPlantedBug};
use shoal_types::{Random, ShardId};
use shoal_zeus::{Zeus, ZeusEngineOptions, ZeusPlantedBug};
use std::time::Duration;

/// Where a round trip takes so long, a stream decides a hundred entries a second in some seeds.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(200);

/// A function that runs a seed.
pub type Runner = fn(u64, RunOptions) -> RunReport;

/// An engine that the command line can simulate.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedEngine {
    /// The engine's name on the command line.
    pub name: &'static str,
    /// Runs a seed on the engine.
    pub run: Runner,
    /// The names of the bugs that can be planted in this engine only.
    pub bugs: fn() -> Vec<&'static str>,
}

impl SimulatedEngine {
    const fn of<E: Subject>() -> SimulatedEngine {
        let bugs = || E::BUGS.iter().map(|(name, _)| *name).collect();
        SimulatedEngine { name: E::NAME, run: run::<E>, bugs }
    }
}

/// The engines that can be simulated. Not a constant: each crate that uses a constant compiles what it refers to anew, which
/// here is all of the simulator.
pub static ENGINES: [SimulatedEngine; 3] = [
    SimulatedEngine::of::<Mako>(),
    SimulatedEngine::of::<TwoPhaseCommit>(),
    SimulatedEngine::of::<Zeus>(),
];

impl AnyPlantedBug {
    /// The bug of this name, in the shared runtime or in some engine.
    pub fn named(name: &str) -> Option<AnyPlantedBug> {
        let shared = AnyPlantedBug::NAMED.iter().find(|(other, _)| *other == name);
        let mut own = ENGINES.iter().flat_map(|engine| (engine.bugs)());
        shared.map(|(_, bug)| *bug).or_else(|| own.find(|own| *own == name).map(AnyPlantedBug::Own))
    }

    /// The names of all bugs, each once.
    pub fn names() -> Vec<&'static str> {
        let own = ENGINES.iter().flat_map(|engine| (engine.bugs)());
        let mut names: Vec<_> =
            AnyPlantedBug::NAMED.iter().map(|(name, _)| *name).chain(own).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Subject for Mako {
    const NAME: &'static str = "mako";

    const OUTLIVES_MAJORITIES: bool = true;
    const COORDINATES_ANYWHERE: bool = true;

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
    ];

    fn limits(options: &mut MakoOptions) -> &mut Limits {
        &mut options.limits
    }

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
        options.hang_after =
            (round_trip * one_of(random, &[1, 2, 8])).max(Duration::from_millis(1));
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
        not_tiny(&mut options.snapshot_part, round_trip);
        options
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut MakoOptions, faults: PlantedBugs<MakoPlantedBug>) {
        options.faults = faults;
    }
}

impl Subject for TwoPhaseCommit {
    const NAME: &'static str = "two-phase-commit";

    const COORDINATES_ANYWHERE: bool = true;

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
        ("end-unacknowledged", TwoPhaseCommitPlantedBug::EndUnacknowledged),
        ("copy-keeps-deleted", TwoPhaseCommitPlantedBug::CopyKeepsDeleted),
        ("copy-unreached", TwoPhaseCommitPlantedBug::CopyUnreached),
        ("copy-without-tombstones", TwoPhaseCommitPlantedBug::CopyWithoutTombstones),
        ("forget-tombstones-at-once", TwoPhaseCommitPlantedBug::ForgetTombstonesAtOnce),
        ("forget-tombstones-while-copied", TwoPhaseCommitPlantedBug::ForgetTombstonesWhileCopied),
        ("snapshot-without-prepared", TwoPhaseCommitPlantedBug::SnapshotWithoutPrepared),
        ("snapshot-without-later-writes", TwoPhaseCommitPlantedBug::SnapshotWithoutLaterWrites),
    ];

    fn limits(options: &mut TwoPhaseCommitOptions) -> &mut Limits {
        &mut options.limits
    }

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
        not_tiny(&mut options.snapshot_part, round_trip);
        let mut parts = random.fork(2);
        options.part_bytes_max = one_of(&mut parts, &[1, 100, 1 << 20]);
        options.part_writes_max = one_of(&mut parts, &[1, 2, 1 << 12]);
        if round_trip >= LONG_ROUND_TRIP {
            // Each part is an entry: what one client writes would take a slow stream longer than the run may last.
            options.part_bytes_max = options.part_bytes_max.max(1 << 10);
            options.part_writes_max = options.part_writes_max.max(64);
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

/// So many times fewer messages are late where `zeus` runs and nodes fail.
const LATE_LESS: u32 = 50;

/// How the names of tables begin whose rows are read and written by their keys alone.
const HOME_TABLES: [&str; 4] = ["small_bank.", "tatp.", "voter.", "handovers."];

impl Subject for Zeus {
    const NAME: &'static str = "zeus";

    const COORDINATES_ANYWHERE: bool = true;
    const ROWS_IN_STORES: bool = false;

    const BUGS: &'static [(&'static str, ZeusPlantedBug)] = &[
        ("own-before-all-acks", ZeusPlantedBug::OwnBeforeAllAcks),
        ("lesser-wins", ZeusPlantedBug::LesserWins),
        ("arbiters-apply-first", ZeusPlantedBug::ArbitersApplyFirst),
        ("replay-changes-record", ZeusPlantedBug::ReplayChangesRecord),
        ("grant-while-pending", ZeusPlantedBug::GrantWhilePending),
        ("grant-after-writes", ZeusPlantedBug::GrantAfterWrites),
        ("stale-request-moves", ZeusPlantedBug::StaleRequestMoves),
        ("first-ack-validates", ZeusPlantedBug::FirstAckValidates),
        ("ack-unapplied", ZeusPlantedBug::AckUnapplied),
        ("skip-slot", ZeusPlantedBug::SkipSlot),
        ("read-pending", ZeusPlantedBug::ReadPending),
        ("owner-reads-own", ZeusPlantedBug::OwnerReadsOwn),
        ("answer-before-reads", ZeusPlantedBug::AnswerBeforeReads),
        ("reply-at-local-commit", ZeusPlantedBug::ReplyAtLocalCommit),
        ("skip-checks", ZeusPlantedBug::SkipChecks),
        ("read-without-lease", ZeusPlantedBug::ReadWithoutLease),
        ("write-as-reader", ZeusPlantedBug::WriteAsReader),
        ("hear-old-epoch", ZeusPlantedBug::HearOldEpoch),
        ("keep-after-removal", ZeusPlantedBug::KeepAfterRemoval),
        ("move-before-replayed", ZeusPlantedBug::MoveBeforeReplayed),
        ("replay-nothing", ZeusPlantedBug::ReplayNothing),
        ("keep-received", ZeusPlantedBug::KeepReceived),
        ("drop-last-reader", ZeusPlantedBug::DropLastReader),
        ("validate-newer", ZeusPlantedBug::ValidateNewer),
        ("clock-without-granule", ZeusPlantedBug::ClockWithoutGranule),
        ("drive-on-pending", ZeusPlantedBug::DriveOnPending),
        ("unacknowledge", ZeusPlantedBug::Unacknowledge),
        ("answer-before-copy", ZeusPlantedBug::AnswerBeforeCopy),
        ("copy-without-pending", ZeusPlantedBug::CopyWithoutPending),
        ("serve-while-dropped", ZeusPlantedBug::ServeWhileDropped),
        ("structure-unchecked", ZeusPlantedBug::StructureUnchecked),
    ];

    fn limits(options: &mut ZeusEngineOptions) -> &mut Limits {
        &mut options.limits
    }

    fn draw(random: &mut Random, round_trip: Duration) -> ZeusEngineOptions {
        let mut options = ZeusEngineOptions::default();
        limits(&mut options.limits, random, round_trip);
        let mut waits = random.fork(4);
        let protocol = &mut options.protocol;
        let span = |random: &mut Random, parts: &[u32]| {
            (round_trip * one_of(random, parts) / 4).max(Duration::from_micros(200))
        };
        protocol.hold = span(&mut waits, &[1, 4, 16]).min(Duration::from_millis(100));
        protocol.replay_after = span(&mut waits, &[6, 8, 40]).max(Duration::from_millis(5));
        protocol.repeat_after = span(&mut waits, &[6, 8, 40]).max(Duration::from_millis(5));
        protocol.backoff_least = span(&mut waits, &[1, 2]);
        protocol.backoff_most = protocol.backoff_least * 8;
        protocol.favour = 4 * protocol.backoff_most + 4 * round_trip;
        protocol.slots_pending_max = one_of(&mut waits, &[1, 4, 4096]);
        protocol.copied_records_max = one_of(&mut waits, &[1, 5, 1024]);
        options.pending_wait_max = (4 * round_trip).max(Duration::from_millis(10));
        options.limits.shard_wait_max = (round_trip * one_of(&mut waits, &[40, 400, 1000]))
            .clamp(Duration::from_millis(300), Duration::from_millis(2500));
        options
    }

    /// Copies are in memory, and a node that was out for any reason has lost all of it: a granule outlives faults that strike
    /// one node, until as many copies are there as before.
    fn fit(scenario: &mut Scenario, random: &mut Random) {
        scenario.shape.voters = scenario.shape.voters.max(3);
        scenario.loss = None;
        let lease = scenario.failures.options.lease.as_nanos() as u64;
        let faults = &mut scenario.fault_schedule;
        let weights = FaultWeights { datacenter: 0, forget: 0, diverge: 0, ..faults.weights };
        (faults.weights, faults.wild_clocks) = (weights, false);
        (faults.struck_percent, faults.gone_percent, faults.interrupted_ppm) = (0, 0, 0);
        if scenario.failures.fails {
            faults.apart_ns = 4 * lease + 40 * scenario.round_trip_ns;
            // A late message holds up all behind it on its connection: heartbeats, too, and so puts nodes out.
            faults.troubles.tail_ppm /= LATE_LESS;
        }
        // In most runs the tables of histories have many granules, which no scan crosses.
        let scans = random.chance(1, 4);
        for group in &mut scenario.groups {
            if let ClientWork::Histories(mix) = &mut group.work {
                mix.scans_percent *= u32::from(scans);
            }
        }
    }

    /// Where scans are wide, the table is one granule; else one that is divided by ranges may have many in each.
    fn definition(
        scenario: &Scenario,
        random: &mut Random,
        table: &str,
        shards: u32,
    ) -> TableDefinition {
        let scans = scenario.groups.iter().any(|group| match group.work {
            ClientWork::Histories(mix) => mix.scans_percent > 0,
            _ => false,
        });
        let is_scanned = match table {
            "history-lists" | "history-registers" => scans,
            "counters" | "skew" => false,
            _ => !HOME_TABLES.iter().any(|workload| table.starts_with(workload)),
        };
        if is_scanned {
            let shard = ShardId(random.below(shards.into()) as u32);
            return Partitioning::Range { splits: vec![(Box::default(), shard)] }.into();
        }
        match partitioning(random, table, shards) {
            Partitioning::Everywhere => Partitioning::Hash { prefix_bytes: 0 }.into(),
            Partitioning::Range { splits } => {
                let least = splits.iter().map(|(first, _)| first.len()).max().unwrap_or_default();
                let more = random.fork(1).below(4) as usize;
                let drawn = TableDefinition::from(Partitioning::Range { splits });
                // Of the others each range is a granule.
                if more == 0 { drawn } else { drawn.granule_bytes(least + more) }
            }
            hashed @ Partitioning::Hash { .. } => hashed.into(),
        }
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut ZeusEngineOptions, faults: PlantedBugs<ZeusPlantedBug>) {
        options.protocol.bugs = faults;
    }
}
