//! Who is simulated: the engines, their configurations drawn from the seed, and bugs to plant in them.
//! The only place that knows engines by name.

use crate::checks::Rules;
use crate::managers::ManagersPlan;
use crate::run::{RunOptions, RunReport, run};
#[cfg(feature = "planted")]
use shoal_cluster::manager;
use shoal_cluster::topology::Partitioning;
#[cfg(feature = "planted")]
use shoal_engines::PlantedBugs;
use shoal_engines::client::requests_table;
use shoal_engines::engine::Setup;
use shoal_engines::execution::Limits;
use shoal_engines::mako::{self, Mako, StampForm};
use shoal_engines::two_phase_commit::{self, TwoPhaseCommit};
use shoal_engines::{Engine, PlantedBug};
use shoal_types::Random;
use std::time::Duration;

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyPlantedBug {
    /// In an engine.
    Engine(PlantedBug),
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
    /// A replica without memory is called full before it is (M4).
    CaughtUpEarly,
    /// Another leader is appointed before the lease of the last has run out (M7).
    AppointEarly,
    /// Another leader is appointed a tick before the lease of the last has run out (M7).
    AppointHasty,
    /// A node counts its lease from when the grant came (M7).
    LeaseFromReply,
    /// A replica without memory is appointed to lead (M4).
    AppointEmpty,
    /// A node that restarted takes up what it led in its former process (M4).
    KeepLeadership,
}

impl AnyPlantedBug {
    /// Bugs by the names that the command line knows.
    pub const NAMED: &[(&str, AnyPlantedBug)] = &[
        ("skip-remote-validation", AnyPlantedBug::Engine(PlantedBug::SkipRemoteValidation)),
        ("clock-before-lock", AnyPlantedBug::Engine(PlantedBug::ClockBeforeLock)),
        ("safe-clock-past-in-flight", AnyPlantedBug::Engine(PlantedBug::SafeClockPastInFlight)),
        (
            "acknowledge-at-certification",
            AnyPlantedBug::Engine(PlantedBug::AcknowledgeAtCertification),
        ),
        ("ignore-tombstone-stamp", AnyPlantedBug::Engine(PlantedBug::IgnoreTombstoneStamp)),
        ("apply-above-watermark", AnyPlantedBug::Engine(PlantedBug::ApplyAboveWatermark)),
        ("replay-in-arrival-order", AnyPlantedBug::Engine(PlantedBug::ReplayInArrivalOrder)),
        ("validate-before-locks", AnyPlantedBug::Engine(PlantedBug::ValidateBeforeLocks)),
        ("install-own-clock-only", AnyPlantedBug::Engine(PlantedBug::InstallOwnClockOnly)),
        ("reveal-at-once", AnyPlantedBug::Engine(PlantedBug::RevealAtOnce)),
        ("ignore-request-rows", AnyPlantedBug::Engine(PlantedBug::IgnoreRequestRows)),
        ("reuse-serials", AnyPlantedBug::Engine(PlantedBug::ReuseSerials)),
        ("begin-again", AnyPlantedBug::Engine(PlantedBug::BeginAgain)),
        ("commit-past-failed-write", AnyPlantedBug::Engine(PlantedBug::CommitPastFailedWrite)),
        ("serve-forgotten-sessions", AnyPlantedBug::Engine(PlantedBug::ServeForgottenSessions)),
        ("reuse-session-numbers", AnyPlantedBug::Engine(PlantedBug::ReuseSessionNumbers)),
        ("read-unsettled-epoch", AnyPlantedBug::Engine(PlantedBug::ReadUnsettledEpoch)),
        ("end-epoch-in-flight", AnyPlantedBug::Engine(PlantedBug::EndEpochInFlight)),
        ("end-whole-while-hanging", AnyPlantedBug::Engine(PlantedBug::EndWholeWhileHanging)),
        ("report-before-durable", AnyPlantedBug::Engine(PlantedBug::ReportBeforeDurable)),
        ("act-without-lease", AnyPlantedBug::Engine(PlantedBug::ActWithoutLease)),
        ("roll-back-by-clock", AnyPlantedBug::Engine(PlantedBug::RollBackByClock)),
        ("keep-dead-locks", AnyPlantedBug::Engine(PlantedBug::KeepDeadLocks)),
        ("silence-resolves", AnyPlantedBug::Engine(PlantedBug::SilenceResolves)),
        ("cut-unstable", AnyPlantedBug::Engine(PlantedBug::CutUnstable)),
        ("copy-uncommitted", AnyPlantedBug::Engine(PlantedBug::CopyUncommitted)),
        ("copy-keeps-deleted", AnyPlantedBug::Engine(PlantedBug::CopyKeepsDeleted)),
        ("copy-by-clock", AnyPlantedBug::Engine(PlantedBug::CopyByClock)),
        ("copy-without-watermarks", AnyPlantedBug::Engine(PlantedBug::CopyWithoutWatermarks)),
        ("copy-without-undecided", AnyPlantedBug::Engine(PlantedBug::CopyWithoutUndecided)),
        ("install-undecided-above", AnyPlantedBug::Engine(PlantedBug::InstallUndecidedAbove)),
        ("wait-forever", AnyPlantedBug::Engine(PlantedBug::WaitForever)),
        ("certify-while-stalled", AnyPlantedBug::Engine(PlantedBug::CertifyWhileStalled)),
        ("serve-while-out", AnyPlantedBug::Engine(PlantedBug::ServeWhileOut)),
        ("cut-covered", AnyPlantedBug::Engine(PlantedBug::CutCovered)),
        ("snapshot-without-finals", AnyPlantedBug::Engine(PlantedBug::SnapshotWithoutFinals)),
        ("replay-below-floor", AnyPlantedBug::Engine(PlantedBug::ReplayBelowFloor)),
        ("sweep-unreached", AnyPlantedBug::Engine(PlantedBug::SweepUnreached)),
        ("sweep-uncommitted", AnyPlantedBug::Engine(PlantedBug::SweepUncommitted)),
        ("bury-unreached", AnyPlantedBug::Engine(PlantedBug::BuryUnreached)),
        ("sweep-led-only", AnyPlantedBug::Engine(PlantedBug::SweepLedOnly)),
        ("sweep-settled", AnyPlantedBug::Engine(PlantedBug::SweepSettled)),
        ("install-after-close", AnyPlantedBug::Engine(PlantedBug::InstallAfterClose)),
        ("lock-after-close", AnyPlantedBug::Engine(PlantedBug::LockAfterClose)),
        ("certify-after-close", AnyPlantedBug::Engine(PlantedBug::CertifyAfterClose)),
        ("safe-clock-past-parts", AnyPlantedBug::Engine(PlantedBug::SafeClockPastParts)),
        ("end-between-parts", AnyPlantedBug::Engine(PlantedBug::EndBetweenParts)),
        ("stable-while-blocked", AnyPlantedBug::Engine(PlantedBug::StableWhileBlocked)),
        ("stable-alone", AnyPlantedBug::Engine(PlantedBug::StableAlone)),
        ("copy-from-one-stream", AnyPlantedBug::Engine(PlantedBug::CopyFromOneStream)),
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

    /// The bug of this name.
    pub fn named(name: &str) -> Option<AnyPlantedBug> {
        AnyPlantedBug::NAMED.iter().find(|(other, _)| *other == name).map(|(_, bug)| *bug)
    }
}

/// Runs a seed.
pub type Runner = fn(u64, RunOptions) -> RunReport;

/// The engines, by the names that the command line knows.
pub const ENGINES: [(&str, Runner); 2] =
    [(Mako::NAME, run::<Mako>), (TwoPhaseCommit::NAME, run::<TwoPhaseCommit>)];

/// An engine that can be simulated.
pub trait Subject: Engine + 'static {
    /// Its name, as on the command line.
    const NAME: &'static str;

    /// What its observations are judged by.
    const RULES: Rules = Rules::Watermark;

    /// It follows epochs as they change.
    const FOLLOWS_EPOCHS: bool = false;

    /// Draws a configuration for a cluster whose longest round trip is about so long.
    fn draw(random: &mut Random, round_trip: Duration) -> Self::Options;

    /// Plants a bug in the engine.
    #[cfg(feature = "planted")]
    fn plant(options: &mut Self::Options, faults: PlantedBugs);

    /// Tables that the engine keeps for itself.
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
    let mut nobody = manager::ManagerPlantedBugs::default();
    let manager = managers.as_mut().map_or(&mut nobody, |managed| &mut managed.options.faults);
    let streams = &mut setup.streams.faults;
    match bug {
        AnyPlantedBug::Engine(fault) => E::plant(&mut setup.options, PlantedBugs::only(fault)),
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

/// What becomes of streams in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCuts {
    /// They are cut when every replica has them.
    Everywhere,
    /// They are never cut: nodes come back with their disks, and read them from the beginning.
    Never,
    /// They are cut early: nodes come back without memory, and get snapshots.
    Early,
}

/// Where datacenters are farther apart, parts of copies are not tiny.
const TINY_PARTS_MAX: Duration = Duration::from_millis(50);

/// Draws how streams pace themselves.
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
        // More than a step appends: checkers look at entries when it is over.
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

    const FOLLOWS_EPOCHS: bool = true;

    fn draw(random: &mut Random, round_trip: Duration) -> mako::MakoOptions {
        let mut options = mako::MakoOptions::default();
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
        // In most seeds no transaction needs slices.
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
        // A few parts are on their way at a time: far apart, one record each, a copy would outlast every patience.
        if round_trip > TINY_PARTS_MAX {
            options.snapshot_part.records_max = options.snapshot_part.records_max.max(20);
            options.snapshot_part.bytes_max = options.snapshot_part.bytes_max.max(100_000);
        }
        options
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut mako::MakoOptions, faults: PlantedBugs) {
        options.faults = faults;
    }
}

impl Subject for TwoPhaseCommit {
    const NAME: &'static str = "two-phase-commit";

    const RULES: Rules = Rules::Records;

    fn draw(random: &mut Random, round_trip: Duration) -> two_phase_commit::TwoPhaseCommitOptions {
        let mut options = two_phase_commit::TwoPhaseCommitOptions::default();
        options.limits.sessions_max = 1 << 12; // Enough for a few clients, and quick to set up.
        limits(&mut options.limits, random, round_trip);
        options.batch_records_max = one_of(random, &[1, 2, 10, 400]);
        options.batch_bytes_max = one_of(random, &[64, 1 << 10, 64 << 10]);
        options.batch_gap = Duration::from_micros(one_of(random, &[0, 50, 500]));
        options.batch_delay = Duration::from_micros(one_of(random, &[10, 200, 1000, 5000]));
        options.heartbeat = Duration::from_millis(one_of(random, &[1, 10, 100, 1000]));
        options
    }

    #[cfg(feature = "planted")]
    fn plant(options: &mut two_phase_commit::TwoPhaseCommitOptions, faults: PlantedBugs) {
        options.faults = faults;
    }
}

/// Draws how transactions run, the same for all engines.
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
    // With fewer, clients that call at once would take their sessions from each other for ever.
    limits.call_sessions_max = one_of(&mut apart, &[4, 8, 1 << 15]);
    limits.call_rows_kept = round_trip * one_of(&mut apart, &[20, 200, 1_000_000]);
    // Room for what is loaded, and in some seeds for little more.
    limits.memory_bytes_max = match apart.chance(1, 8) {
        true => one_of(&mut apart, &[128 << 10, 256 << 10, 512 << 10]),
        false => usize::MAX,
    };
}

fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    *random.pick(items).expect("something to choose from")
}

/// Mostly above the round trip, as it should be; at times below, so that everything is sent twice.
fn retry_after(random: &mut Random, round_trip: Duration) -> Duration {
    let quarters = one_of(random, &[2, 5, 8, 8, 20, 40]);
    (round_trip * quarters / 4).max(Duration::from_micros(200))
}
