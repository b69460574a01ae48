//! The simulated engines: their configurations, drawn from the seed, and the bugs to plant in them. This is
//! the only file that names engines.

use crate::managers::ManagersPlan;
use crate::observed::Simulated;
use crate::run::{RunOptions, RunReport, run};
#[cfg(feature = "planted")]
use shoal_cluster::manager;
use shoal_cluster::topology::Partitioning;
use shoal_engine::PlantedBug;
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_engine::client::requests_table;
use shoal_engine::engine::Setup;
use shoal_engine::execution::Limits;
use shoal_mako::{Mako, MakoOptions, MakoPlantedBug, StampForm};
use shoal_store::CopyPart;
use shoal_two_phase_commit::{TwoPhaseCommit, TwoPhaseCommitOptions, TwoPhaseCommitPlantedBug};
use shoal_types::Random;
use std::time::Duration;

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyPlantedBug {
    /// A bug in the runtime that all engines share.
    Runtime(PlantedBug),
    /// A bug in the simulated engine, by its name there: see [`Subject::BUGS`].
    Own(&'static str),
    /// The leader of a stream counts what a learner accepted as a vote (M4).
    CountLearner,
    /// A replica forgets what it has promised (M4).
    ForgetPromise,
    /// A new leader adopts the shortest sequence of the lowest ballot (M4).
    AdoptShortest,
    /// A new leader adopts the longest sequence, of any ballot (M4).
    AdoptLongest,
    /// A new leader keeps undecided entries of its own in front of what it adopts (M4).
    AdoptOntoOwn,
    /// A replica moves to a ballot before it has all that its leader began with (M4).
    JoinEarly,
    /// A replica takes undecided entries of its own for those of the leader (M4).
    KeepUndecided,
    /// A replica without memory votes (M4).
    VoteWhileEmpty,
    /// What a replica acknowledged in a former process counts for what it has (M4).
    KeepFormerAcks,
    /// A replica without memory is reported as caught up before it is (M4).
    CaughtUpEarly,
    /// Another leader is appointed before the lease of the last has run out (M7).
    AppointEarly,
    /// Another leader is appointed one tick before the lease of the former one has run out (M7).
    AppointHasty,
    /// A node counts its lease from the arrival of the grant (M7).
    LeaseFromReply,
    /// A replica without memory is appointed to lead (M4).
    AppointEmpty,
    /// A restarted node continues to lead what its former process led (M4).
    KeepLeadership,
}

impl AnyPlantedBug {
    /// Bugs that can be planted in any engine, by their names on the command line.
    pub const NAMED: &[(&str, AnyPlantedBug)] = &[
        ("safe-clock-past-in-flight", AnyPlantedBug::Runtime(PlantedBug::SafeClockPastInFlight)),
        ("replay-in-arrival-order", AnyPlantedBug::Runtime(PlantedBug::ReplayInArrivalOrder)),
        ("ignore-request-rows", AnyPlantedBug::Runtime(PlantedBug::IgnoreRequestRows)),
        ("reuse-serials", AnyPlantedBug::Runtime(PlantedBug::ReuseSerials)),
        ("begin-again", AnyPlantedBug::Runtime(PlantedBug::BeginAgain)),
        ("commit-past-failed-write", AnyPlantedBug::Runtime(PlantedBug::CommitPastFailedWrite)),
        ("serve-forgotten-sessions", AnyPlantedBug::Runtime(PlantedBug::ServeForgottenSessions)),
        ("reuse-session-numbers", AnyPlantedBug::Runtime(PlantedBug::ReuseSessionNumbers)),
        ("serve-while-out", AnyPlantedBug::Runtime(PlantedBug::ServeWhileOut)),
        ("replay-below-floor", AnyPlantedBug::Runtime(PlantedBug::ReplayBelowFloor)),
        ("bury-unreached", AnyPlantedBug::Runtime(PlantedBug::BuryUnreached)),
        ("count-learner", AnyPlantedBug::CountLearner),
        ("forget-promise", AnyPlantedBug::ForgetPromise),
        ("adopt-shortest", AnyPlantedBug::AdoptShortest),
        ("adopt-longest", AnyPlantedBug::AdoptLongest),
        ("adopt-onto-own", AnyPlantedBug::AdoptOntoOwn),
        ("join-early", AnyPlantedBug::JoinEarly),
        ("keep-undecided", AnyPlantedBug::KeepUndecided),
        ("vote-while-empty", AnyPlantedBug::VoteWhileEmpty),
        ("keep-former-acks", AnyPlantedBug::KeepFormerAcks),
        ("caught-up-early", AnyPlantedBug::CaughtUpEarly),
        ("appoint-early", AnyPlantedBug::AppointEarly),
        ("appoint-hasty", AnyPlantedBug::AppointHasty),
        ("lease-from-reply", AnyPlantedBug::LeaseFromReply),
        ("appoint-empty", AnyPlantedBug::AppointEmpty),
        ("keep-leadership", AnyPlantedBug::KeepLeadership),
    ];

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

    /// Whether it can be planted in an engine that has the bugs `own`.
    pub fn is_in(self, own: &[&str]) -> bool {
        match self {
            AnyPlantedBug::Own(name) => own.contains(&name),
            _ => true,
        }
    }
}

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

/// The engines that can be simulated.
pub const ENGINES: [SimulatedEngine; 2] =
    [SimulatedEngine::of::<Mako>(), SimulatedEngine::of::<TwoPhaseCommit>()];

/// An engine that can be simulated.
pub trait Subject: Simulated {
    /// The engine's name on the command line.
    const NAME: &'static str;

    /// Whether the engine goes on after an operator has accepted the loss of a shard whose majority is lost
    /// for good.
    const OUTLIVES_MAJORITIES: bool = false;

    /// Whether a node without replicas can coordinate transactions.
    const COORDINATES_ANYWHERE: bool = false;

    /// Draws a configuration for a cluster whose longest round trip is about so long.
    fn draw(random: &mut Random, round_trip: Duration) -> Self::Options;

    /// The bugs that can be planted in it, by their names on the command line.
    const BUGS: &'static [(&'static str, Self::PlantedBug)];

    /// The part of its options that all engines share.
    fn limits(options: &mut Self::Options) -> &mut Limits;

    /// Plants a bug in the engine.
    #[cfg(feature = "planted")]
    fn plant(options: &mut Self::Options, faults: PlantedBugs<Self::PlantedBug>);

    /// Tables that the engine creates for its own use.
    fn tables(shards: u32) -> Vec<(String, Partitioning)> {
        let (name, partitioning) = requests_table(shards);
        vec![(name.to_owned(), partitioning)]
    }
}

/// A build without the feature `planted` has no bugs to plant.
#[cfg(not(feature = "planted"))]
pub fn plant<E: Subject>(
    _: &mut Setup<E::Options>,
    _: &mut Option<ManagersPlan>,
    bug: AnyPlantedBug,
) {
    panic!("{bug:?} cannot be planted: this was built without the feature `planted`");
}

/// Plants a bug in a cluster that is about to be made.
#[cfg(feature = "planted")]
pub fn plant<E: Subject>(
    setup: &mut Setup<E::Options>,
    managers: &mut Option<ManagersPlan>,
    bug: AnyPlantedBug,
) {
    let mut unmanaged = manager::ManagerPlantedBugs::default();
    let manager = managers.as_mut().map_or(&mut unmanaged, |managed| &mut managed.options.faults);
    let streams = &mut setup.streams.faults;
    match bug {
        AnyPlantedBug::Runtime(fault) => {
            E::limits(&mut setup.options).faults = PlantedBugs::only(fault);
        }
        AnyPlantedBug::Own(name) => {
            let found = E::BUGS.iter().find(|(other, _)| *other == name);
            let (_, fault) = found.unwrap_or_else(|| panic!("{} has no bug {name}", E::NAME));
            E::plant(&mut setup.options, PlantedBugs::only(*fault));
        }
        AnyPlantedBug::CountLearner => streams.count_learner = true,
        AnyPlantedBug::ForgetPromise => streams.forget_promise = true,
        AnyPlantedBug::AdoptShortest => streams.adopt_shortest = true,
        AnyPlantedBug::AdoptLongest => streams.adopt_longest = true,
        AnyPlantedBug::AdoptOntoOwn => streams.adopt_onto_own = true,
        AnyPlantedBug::JoinEarly => streams.join_early = true,
        AnyPlantedBug::KeepUndecided => streams.keep_undecided = true,
        AnyPlantedBug::VoteWhileEmpty => streams.vote_while_empty = true,
        AnyPlantedBug::KeepFormerAcks => streams.keep_former_acks = true,
        AnyPlantedBug::CaughtUpEarly => streams.caught_up_early = true,
        AnyPlantedBug::AppointEarly => manager.appoint_early = true,
        AnyPlantedBug::AppointHasty => manager.appoint_hasty = true,
        AnyPlantedBug::LeaseFromReply => manager.lease_from_reply = true,
        AnyPlantedBug::AppointEmpty => manager.appoint_empty = true,
        AnyPlantedBug::KeepLeadership => manager.keep_leadership = true,
    }
}

/// When streams are trimmed in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCuts {
    /// When every replica has the entries.
    Everywhere,
    /// Never: nodes restart with their disks, and read their streams from the beginning.
    Never,
    /// Early: nodes restart without memory, and receive snapshots.
    Early,
}

/// Where the round trip is longer, the chunks of copies are not tiny.
const TINY_PARTS_MAX: Duration = Duration::from_millis(50);

/// A few chunks are under way at a time: over a long distance, a copy of one record per chunk would exceed every time limit.
fn not_tiny(part: &mut CopyPart, round_trip: Duration) {
    if round_trip > TINY_PARTS_MAX {
        part.records_max = part.records_max.max(20);
        part.bytes_max = part.bytes_max.max(100_000);
    }
}

/// Draws the pace of streams.
pub fn streams(
    random: &mut Random,
    round_trip: Duration,
    cuts: StreamCuts,
) -> shoal_log::StreamOptions {
    let window_entries = one_of(random, &[16, 256, 4096]);
    let window_bytes = one_of(random, &[4 << 10, 64 << 10, 8 << 20]);
    let message_bytes_max = one_of(random, &[1 << 10, 16 << 10, 1 << 20]);
    let retry_after = retry_after(random, round_trip);
    let faults = shoal_log::StreamPlantedBugs::default();
    let mut apart = random.fork(1);
    let retain_bytes = one_of(&mut apart, &[0, 1 << 10, 64 << 10]);
    let trim_entries = match cuts {
        StreamCuts::Everywhere => one_of(random, &[4, 64, 256]),
        StreamCuts::Never => u64::MAX,
        // More than a step appends: checkers read entries after the step.
        StreamCuts::Early => one_of(&mut apart, &[8, 16, 64]),
    };
    shoal_log::StreamOptions {
        window_entries,
        window_bytes,
        window_bytes_max: 4 * window_bytes,
        message_bytes_max,
        retry_after,
        trim_entries,
        retain_bytes,
        faults,
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
        ("sweep-unreached", MakoPlantedBug::SweepUnreached),
        ("sweep-uncommitted", MakoPlantedBug::SweepUncommitted),
        ("sweep-led-only", MakoPlantedBug::SweepLedOnly),
        ("sweep-settled", MakoPlantedBug::SweepSettled),
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

/// Draws the limits of transactions, alike for all engines.
fn limits(limits: &mut Limits, random: &mut Random, round_trip: Duration) {
    limits.open_max = one_of(random, &[2, 8, 64, 1 << 14]);
    limits.queue_max = one_of(random, &[2, 64, 1 << 14]);
    limits.begins_max = one_of(random, &[1, 4, 1 << 14]);
    limits.queue_wait_max = round_trip * one_of(random, &[1, 5, 50]);
    limits.attempts_max = one_of(random, &[3, 20, 1000]);
    limits.pause = Duration::from_micros(one_of(random, &[1, 50, 1000]));
    limits.retry_after = retry_after(random, round_trip);
    limits.answers_remembered = one_of(random, &[1, 2, 1 << 14]);
    limits.attempts_span_max = (round_trip * one_of(random, &[20, 100, 1000]))
        .clamp(Duration::from_millis(20), Duration::from_secs(7));
    limits.pause_max = limits.pause.max(Duration::from_millis(one_of(random, &[1, 10, 100])));
    let patient = Duration::from_secs(10);
    limits.session_idle_max = (round_trip * one_of(random, &[20, 200, 100_000])).min(patient);
    limits.session_open_max = (limits.session_idle_max * one_of(random, &[2, 10])).min(3 * patient);
    limits.sessions_max = limits.sessions_max.min(one_of(random, &[512, 4096]));
    limits.memory_bytes_reserved = one_of(random, &[0, 0, 1 << 20]);
    limits.slow_after = one_of(random, &[None, Some(round_trip)]);
    let mut apart = random.fork(3);
    // With fewer, clients that call at the same time would evict each other's sessions for ever.
    limits.call_sessions_max = one_of(&mut apart, &[4, 8, 1 << 15]);
    limits.call_rows_kept = round_trip * one_of(&mut apart, &[20, 200, 1_000_000]);
    // Room for the loaded data, and in some seeds for little more.
    limits.memory_bytes_max = match apart.chance(1, 8) {
        true => one_of(&mut apart, &[128 << 10, 256 << 10, 512 << 10]),
        false => usize::MAX,
    };
}

fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    *random.pick(items).expect("something to choose from")
}

/// Mostly above the round trip, as it should be; sometimes below, so that every request is sent twice.
fn retry_after(random: &mut Random, round_trip: Duration) -> Duration {
    let quarters = one_of(random, &[2, 5, 8, 8, 20, 40]);
    (round_trip * quarters / 4).max(Duration::from_micros(200))
}
