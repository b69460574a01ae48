//! Engine `tiga` in the simulator: its options, drawn from the seed, the scenarios that it can take, and the bugs that can be
//! planted in it.

use crate::coverage::{NO_LOSS, OF_STREAMS};
use crate::draw::one_of;
use crate::scenario::{ClientWork, Scenario};
use crate::subject::{Subject, limits, not_tiny};
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_tiga::{Tiga, TigaEngineOptions, TigaPlantedBug};
use shoal_types::Random;
use std::time::Duration;

/// In so many scenarios, transactions are agreed on by the clocks (ε mode).
const CLOCKS_ONE_IN: u64 = 5;

/// A node handles at least so many bytes in a lease, where nodes fail. A new leader sends all that may have been committed and is
/// not in the log as one record to each replica (docs/tiga.md); where that takes longer than a lease, no leader is ever ready, and
/// each that follows has the same to send (seed 8428785). The lease of a real node, 600 ms, is enough for 20 MB at the slowest
/// price of a byte that is drawn.
const BYTES_OF_A_LEASE: u32 = 4 << 20;

/// In these, local clocks drift by no more than this.
const DRIFT_PPM_FOLLOWED: i64 = 200;

impl Subject for Tiga {
    /// It certifies without stamps, and its epochs are not settled; no majority is lost.
    const NOT_REACHED: &'static [&'static [&'static str]] =
        &[OF_STREAMS, NO_LOSS, &["database full", "tombstone read"]];

    const PATHS: &'static [&'static str] = &[
        "one_round_trip",
        "without_votes",
        "by_log",
        "by_log_raised",
        "by_log_mismatch",
        "by_log_missing",
        "not_taken",
        "sent_again",
        "late_arrivals",
        "without_room",
        "votes_withheld",
        "dropped_tentative",
        "optimistic_votes",
        "discarded_executions",
    ];

    const BUGS: &'static [(&'static str, TigaPlantedBug)] = &[
        ("accept-late", TigaPlantedBug::AcceptLate),
        ("ignore-read-timestamps", TigaPlantedBug::IgnoreReadTimestamps),
        ("release-before-ready", TigaPlantedBug::ReleaseBeforeReady),
        ("ready-without-promise", TigaPlantedBug::ReadyWithoutPromise),
        ("keep-revoked", TigaPlantedBug::KeepRevoked),
        ("count-mismatch", TigaPlantedBug::CountMismatch),
        ("simple-quorum", TigaPlantedBug::SimpleQuorum),
        ("digest-without-history", TigaPlantedBug::DigestWithoutHistory),
        ("vote-over-unagreed", TigaPlantedBug::VoteOverUnagreed),
        ("commit-by-one-vote", TigaPlantedBug::CommitByOneVote),
        ("maximum-sync-point", TigaPlantedBug::MaximumSyncPoint),
        ("forget-tentative", TigaPlantedBug::ForgetTentative),
        ("keep-by-timestamp", TigaPlantedBug::KeepByTimestamp),
        ("forget-imports", TigaPlantedBug::ForgetImports),
        ("ready-of-old-ballot", TigaPlantedBug::ReadyOfOldBallot),
        ("touch-undeclared", TigaPlantedBug::TouchUndeclared),
        ("mix-ballots", TigaPlantedBug::MixBallots),
        ("ask-before-record", TigaPlantedBug::AskBeforeRecord),
        ("refuse-before-record", TigaPlantedBug::RefuseBeforeRecord),
        ("vote-before-final", TigaPlantedBug::VoteBeforeFinal),
        ("drop-what-is-over", TigaPlantedBug::DropWhatIsOver),
        ("settle-by-former-leader", TigaPlantedBug::SettleByFormerLeader),
        ("blind-write-without-history", TigaPlantedBug::BlindWriteWithoutHistory),
        ("digest-without-readers", TigaPlantedBug::DigestWithoutReaders),
        ("export-unstable", TigaPlantedBug::ExportUnstable),
        ("keep-behind-synced", TigaPlantedBug::KeepBehindSynced),
        ("keep-in-front", TigaPlantedBug::KeepInFront),
        ("duplicate-executes", TigaPlantedBug::DuplicateExecutes),
        ("small-epsilon", TigaPlantedBug::SmallEpsilon),
        ("trust-far-clock", TigaPlantedBug::TrustFarClock),
        ("seal-open", TigaPlantedBug::SealOpen),
        ("read-unstable", TigaPlantedBug::ReadUnstable),
        ("read-over-ready", TigaPlantedBug::ReadOverReady),
        ("snapshot-without-changes", TigaPlantedBug::SnapshotWithoutChanges),
        ("snapshot-without-records", TigaPlantedBug::SnapshotWithoutRecords),
        ("send-unrecorded", TigaPlantedBug::SendUnrecorded),
        ("forget-records", TigaPlantedBug::ForgetRecords),
        ("checkpoint-without-votes", TigaPlantedBug::CheckpointWithoutVotes),
    ];

    fn draw(random: &mut Random, round_trip: Duration) -> TigaEngineOptions {
        let mut options = TigaEngineOptions::default();
        limits(&mut options.limits, random, round_trip);
        let mut waits = random.fork(4);
        let protocol = &mut options.protocol;
        protocol.margin = Duration::from_micros(one_of(&mut waits, &[0, 200, 2000]));
        protocol.hold_max = round_trip + Duration::from_millis(one_of(&mut waits, &[1, 20]));
        protocol.seal_lag = Duration::from_millis(one_of(&mut waits, &[1, 10, 100]));
        protocol.seal_every = Duration::from_millis(one_of(&mut waits, &[1, 10, 100]));
        protocol.repeat_after =
            (round_trip * one_of(&mut waits, &[1, 2, 8])).max(Duration::from_millis(1));
        options.limits.shard_wait_max = (round_trip * one_of(&mut waits, &[40, 400, 1000]))
            .clamp(Duration::from_millis(300), Duration::from_millis(2500));
        let mut agreement = random.fork(7);
        protocol.detective_from =
            one_of(&mut agreement, &[Duration::ZERO, round_trip / 4, Duration::MAX]);
        protocol.by_log_within =
            one_of(&mut agreement, &[Duration::ZERO, round_trip / 4, Duration::from_secs(1)]);
        protocol.window_bytes =
            one_of(&mut random.fork(10), &[4 << 20, 4 << 20, 4 << 20, 4 << 20, 4000, 400]);
        let mut parts = random.fork(6);
        options.snapshot_part.records_max = one_of(&mut parts, &[1, 3, 20, 1000]);
        options.snapshot_part.bytes_max = one_of(&mut parts, &[1, 100, 100_000]);
        // Each part takes a round trip, and a leader gives one copy after another (seed 9389669).
        not_tiny(&mut options.snapshot_part, round_trip, Duration::from_millis(1));
        options
    }

    /// A node has one worker. Where nodes keep nothing on disk, a process that has ended has lost its votes, and begins without
    /// memory. A shard that is lost holds up the recovery of others, so no majority is lost. Some clients call procedures, which
    /// declare what they touch: the engine executes those in other ways than transactions that are run step by step.
    fn fit(scenario: &mut Scenario, random: &mut Random) {
        scenario.shape.workers = 1;
        scenario.loss = None;
        let mut calling = random.fork(8);
        for group in &mut scenario.groups {
            if let ClientWork::Micro { calls, .. } | ClientWork::TpcC { calls, .. } =
                &mut group.work
            {
                *calls = calling.chance(2, 3);
            }
        }
        let faults = &mut scenario.fault_schedule;
        let mut clocks = random.fork(9);
        if clocks.chance(1, CLOCKS_ONE_IN) {
            // A transaction clock follows its local one, and is slewed slowly: if that drifts faster, the bound grows for ever.
            (faults.wild_clocks, faults.weights.clock) = (false, 0);
            scenario.drift_ppm_max = scenario.drift_ppm_max.min(DRIFT_PPM_FOLLOWED);
            let managers = &mut scenario.failures.options;
            managers.drift_ppm = managers.drift_ppm.min(DRIFT_PPM_FOLLOWED as u32);
            let ms = one_of(&mut clocks, &[2, 5, 20]);
            scenario.clocks_within = Some(Duration::from_millis(ms));
        }
        if scenario.failures.fails {
            scenario.shape.voters = scenario.shape.voters.max(3);
            faults.forgets = !scenario.disks;
            let byte = scenario.failures.options.lease / BYTES_OF_A_LEASE;
            scenario.cpu.byte = scenario.cpu.byte.min(byte);
        }
    }

    fn fit_options(options: &mut TigaEngineOptions, scenario: &Scenario) {
        options.protocol.epsilon = scenario.clocks_within;
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut TigaEngineOptions, faults: PlantedBugs<TigaPlantedBug>) {
        options.protocol.bugs = faults;
    }
}
