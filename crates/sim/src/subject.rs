//! What the simulator needs of an engine: its configuration, drawn from the seed, and the bugs to plant in it.

use crate::draw::one_of;
use crate::observed::Simulated;
use crate::scenario::{FAR_ROUND_TRIP, Scenario, partitioning};
use crate::simulation::SimulationWorld;
#[cfg(feature = "planted")]
use shoal_cluster::manager;
use shoal_cluster::topology::TableDefinition;
use shoal_engine::PlantedBug;
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_engine::client::requests_table;
use shoal_engine::engine::Setup;
use shoal_engine::execution::Limits;
use shoal_registry::RegisteredEngine;
use shoal_store::{CopyPart, DeltaUse};
use shoal_types::Random;
#[cfg(feature = "planted")]
use shoal_wal::DiskPlantedBugs;
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
    /// Voters that were replaced go on to vote (M4).
    KeepFormerVoters,
    /// A node takes an older image of its disks for its memory (M4).
    BelieveOlderDisks,
    /// A replica acknowledges what its disk does not have yet (M4).
    AcknowledgeUnpersisted,
    /// A replica promises before its disk has the promise (M4).
    PromiseUnpersisted,
    /// A node asks to be admitted while its workers read what its disks have (M9).
    JoinBeforeBegun,
    /// Where the loss of a majority is accepted, its voters stay voters (M12).
    CountVoidVoters,
    /// A snapshot from a peer counts as durable before a checkpoint has its rows (M4).
    CountSnapshotEarly,
    /// A flush is answered before it is done, and never done: a disk that lies.
    SkipFlush,
    /// Disks of a majority report flushes that they have not done, and have an earlier state after a loss of power.
    LieAboutFlushes,
    /// A flush that failed is tried again.
    RetryFailedFlush,
    /// What recovery has read counts as durable, and is not flushed.
    TrustUnflushed,
    /// Damage in front of what was flushed is cut like a torn end.
    CutDamage,
    /// Checksums on disk are not compared.
    SkipChecksums,
    /// What an earlier segment left in a file is read as records.
    AcceptFormerUse,
    /// What follows a record that is not whole is read.
    ReadPastGap,
    /// A checkpoint gets its name before it is flushed.
    RenameUnflushed,
    /// Segments are freed before the checkpoint is durable that stands for them.
    TruncateEarly,
    /// A voter that is replaced leaves before the added one has caught up (M4).
    LeaveEarly,
    /// A process of a node that was removed is admitted.
    AdmitRemoved,
    /// A request that has created a table creates another one when it comes again (exactly once).
    CreateAgain,
    /// Changes of tables are answered before all nodes have learned of them.
    AnswerUntold,
    /// A node is declared dead with the last copy of something, which its disks still have.
    DepartWithCopies,
}

impl AnyPlantedBug {
    /// Bugs that can be planted in any engine, by their names on the command line.
    pub const NAMED: &[(&str, AnyPlantedBug)] = &[
        ("safe-clock-past-in-flight", AnyPlantedBug::Runtime(PlantedBug::SafeClockPastInFlight)),
        ("replay-in-arrival-order", AnyPlantedBug::Runtime(PlantedBug::ReplayInArrivalOrder)),
        ("ignore-request-rows", AnyPlantedBug::Runtime(PlantedBug::IgnoreRequestRows)),
        ("resolve-without-row", AnyPlantedBug::Runtime(PlantedBug::ResolveWithoutRow)),
        ("reuse-serials", AnyPlantedBug::Runtime(PlantedBug::ReuseSerials)),
        ("begin-again", AnyPlantedBug::Runtime(PlantedBug::BeginAgain)),
        ("commit-past-failed-write", AnyPlantedBug::Runtime(PlantedBug::CommitPastFailedWrite)),
        ("serve-forgotten-sessions", AnyPlantedBug::Runtime(PlantedBug::ServeForgottenSessions)),
        ("reuse-session-numbers", AnyPlantedBug::Runtime(PlantedBug::ReuseSessionNumbers)),
        ("serve-while-out", AnyPlantedBug::Runtime(PlantedBug::ServeWhileOut)),
        ("patch-any-base", AnyPlantedBug::Runtime(PlantedBug::PatchAnyBase)),
        ("patch-newer", AnyPlantedBug::Runtime(PlantedBug::PatchNewer)),
        ("replay-below-floor", AnyPlantedBug::Runtime(PlantedBug::ReplayBelowFloor)),
        ("drop-unreached-tombstones", AnyPlantedBug::Runtime(PlantedBug::DropUnreachedTombstones)),
        ("serve-unknown-tables", AnyPlantedBug::Runtime(PlantedBug::ServeUnknownTables)),
        ("serve-dropped-tables", AnyPlantedBug::Runtime(PlantedBug::ServeDroppedTables)),
        ("share-slots", AnyPlantedBug::Runtime(PlantedBug::ShareSlots)),
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
        ("keep-former-voters", AnyPlantedBug::KeepFormerVoters),
        ("believe-older-disks", AnyPlantedBug::BelieveOlderDisks),
        ("acknowledge-unpersisted", AnyPlantedBug::AcknowledgeUnpersisted),
        ("promise-unpersisted", AnyPlantedBug::PromiseUnpersisted),
        ("join-before-begun", AnyPlantedBug::JoinBeforeBegun),
        ("count-void-voters", AnyPlantedBug::CountVoidVoters),
        ("count-snapshot-early", AnyPlantedBug::CountSnapshotEarly),
        ("skip-flush", AnyPlantedBug::SkipFlush),
        ("lie-about-flushes", AnyPlantedBug::LieAboutFlushes),
        ("retry-failed-flush", AnyPlantedBug::RetryFailedFlush),
        ("trust-unflushed", AnyPlantedBug::TrustUnflushed),
        ("cut-damage", AnyPlantedBug::CutDamage),
        ("skip-checksums", AnyPlantedBug::SkipChecksums),
        ("accept-former-use", AnyPlantedBug::AcceptFormerUse),
        ("read-past-gap", AnyPlantedBug::ReadPastGap),
        ("rename-unflushed", AnyPlantedBug::RenameUnflushed),
        ("truncate-early", AnyPlantedBug::TruncateEarly),
        ("leave-early", AnyPlantedBug::LeaveEarly),
        ("admit-removed", AnyPlantedBug::AdmitRemoved),
        ("create-again", AnyPlantedBug::CreateAgain),
        ("answer-untold", AnyPlantedBug::AnswerUntold),
        ("depart-with-copies", AnyPlantedBug::DepartWithCopies),
    ];

    /// Whether it can be planted in an engine that has the bugs `own`.
    pub fn is_in(self, own: &[&str]) -> bool {
        match self {
            AnyPlantedBug::Own(name) => own.contains(&name),
            _ => true,
        }
    }
}

/// An engine that can be simulated.
pub trait Subject: Simulated + RegisteredEngine {
    /// Changes a scenario where the engine does not have what it needs.
    fn fit(scenario: &mut Scenario, random: &mut Random) {
        let _ = (scenario, random);
    }

    /// Draws how a table of a workload is divided.
    fn definition(
        scenario: &Scenario,
        random: &mut Random,
        table: &str,
        shards: u32,
    ) -> TableDefinition {
        let _ = scenario;
        partitioning(random, table, shards).into()
    }

    /// Draws a configuration for a cluster whose longest round trip is about so long.
    fn draw(random: &mut Random, round_trip: Duration) -> Self::Options;

    /// Changes the configuration where the scenario has more than others.
    fn fit_options(options: &mut Self::Options, scenario: &Scenario) {
        let _ = (options, scenario);
    }

    /// Coverage points of the simulator that its seeds do not reach, since the engine has no such path, or its scenarios no such
    /// fault.
    const NOT_REACHED: &'static [&'static [&'static str]] = &[];

    /// Rare paths of its own that a long run has to reach: the counters of its workers that count them.
    const PATHS: &'static [&'static str] = &[];

    /// The bugs that can be planted in it, by their names on the command line.
    const BUGS: &'static [(&'static str, Self::PlantedBug)];

    /// Plants a bug in the engine.
    #[cfg(feature = "planted")]
    fn plant(options: &mut Self::Options, faults: PlantedBugs<Self::PlantedBug>);

    /// Tables that the engine creates for its own use.
    fn tables(shards: u32) -> Vec<(String, TableDefinition)> {
        let (name, partitioning) = requests_table(shards);
        vec![(name.to_owned(), partitioning.into())]
    }
}

/// A build without the feature `planted` has no bugs to plant.
#[cfg(not(feature = "planted"))]
pub fn plant<E: Subject>(_: &mut Setup<E::Options>, _: &mut SimulationWorld, bug: AnyPlantedBug) {
    panic!("{bug:?} cannot be planted: this was built without the feature `planted`");
}

/// Plants a bug in a cluster that is about to be made.
#[cfg(feature = "planted")]
pub fn plant<E: Subject>(
    setup: &mut Setup<E::Options>,
    world: &mut SimulationWorld,
    bug: AnyPlantedBug,
) {
    let mut unmanaged = manager::ManagerPlantedBugs::default();
    let managers = world.managers.as_mut();
    let manager = managers.map_or(&mut unmanaged, |managed| &mut managed.options.faults);
    let mut no_disks = DiskPlantedBugs::default();
    let disks = world.disks.as_mut().unwrap_or(&mut no_disks);
    let streams = &mut setup.streams.faults;
    match bug {
        AnyPlantedBug::Runtime(fault) => {
            E::limits(&mut setup.options).faults = PlantedBugs::only(fault);
        }
        AnyPlantedBug::Own(name) => {
            let found = E::BUGS.iter().find(|(other, _)| *other == name);
            let (_, fault) =
                found.unwrap_or_else(|| panic!("{} has no bug {name}", E::PROTOCOL.name()));
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
        AnyPlantedBug::KeepFormerVoters => streams.keep_former_voters = true,
        AnyPlantedBug::BelieveOlderDisks => manager.believe_older_disks = true,
        AnyPlantedBug::AcknowledgeUnpersisted => streams.acknowledge_unpersisted = true,
        AnyPlantedBug::PromiseUnpersisted => streams.promise_unpersisted = true,
        AnyPlantedBug::JoinBeforeBegun => manager.join_before_begun = true,
        AnyPlantedBug::CountVoidVoters => manager.count_void_voters = true,
        AnyPlantedBug::CountSnapshotEarly => streams.count_snapshot_early = true,
        AnyPlantedBug::SkipFlush => disks.skip_flush = true,
        AnyPlantedBug::LieAboutFlushes => disks.lie_about_flushes = true,
        AnyPlantedBug::RetryFailedFlush => disks.retry_failed_flush = true,
        AnyPlantedBug::TrustUnflushed => disks.trust_unflushed = true,
        AnyPlantedBug::CutDamage => disks.cut_damage = true,
        AnyPlantedBug::SkipChecksums => disks.skip_checksums = true,
        AnyPlantedBug::AcceptFormerUse => disks.accept_former_use = true,
        AnyPlantedBug::ReadPastGap => disks.read_past_gap = true,
        AnyPlantedBug::RenameUnflushed => disks.rename_unflushed = true,
        AnyPlantedBug::TruncateEarly => disks.truncate_early = true,
        AnyPlantedBug::LeaveEarly => manager.leave_early = true,
        AnyPlantedBug::AdmitRemoved => manager.admit_removed = true,
        AnyPlantedBug::CreateAgain => manager.create_again = true,
        AnyPlantedBug::AnswerUntold => manager.answer_untold = true,
        AnyPlantedBug::DepartWithCopies => manager.depart_with_copies = true,
    }
}

/// When streams are trimmed in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCuts {
    /// When every replica has the entries.
    Everywhere,
    /// Never: nodes restart with what they had stored, and read their streams from the beginning.
    Never,
    /// Early: nodes restart without memory, or from checkpoints, and receive snapshots.
    Early,
}

/// A few parts of a copy are under way at a time: over distances from this on, a copy of one record a part would exceed every time
/// limit.
pub(crate) fn not_tiny(part: &mut CopyPart, round_trip: Duration, far: Duration) {
    if round_trip > far {
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
    let mut window_entries = one_of(random, &[16, 256, 4096]);
    let mut window_bytes = one_of(random, &[4 << 10, 64 << 10, 8 << 20]);
    // A replica that has missed thousands of entries gets all of them from a leader that cuts none, a window a round trip. What
    // other streams have changed since waits for them (seed 10005908).
    if cuts == StreamCuts::Never && round_trip > FAR_ROUND_TRIP {
        window_entries = window_entries.max(256);
        window_bytes = window_bytes.max(64 << 10);
    }
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
        unpersisted_bytes_max: one_of(&mut random.fork(2), &[1 << 10, 16 << 10, 1 << 30]),
        faults,
    }
}

/// Draws the limits of transactions, alike for all engines.
pub(crate) fn limits(limits: &mut Limits, random: &mut Random, round_trip: Duration) {
    limits.open_max = one_of(random, &[2, 8, 64, 1 << 14]);
    limits.queue_max = one_of(random, &[2, 64, 1 << 14]);
    limits.begins_max = one_of(random, &[1, 4, 1 << 14]);
    limits.queue_wait_max = round_trip * one_of(random, &[1, 5, 50]);
    limits.attempts_max = one_of(random, &[3, 20, 1000]);
    limits.pause = Duration::from_micros(one_of(random, &[1, 50, 1000]));
    limits.retry_after = retry_after(random, round_trip);
    limits.answers_remembered = one_of(random, &[1, 2, 1 << 14]);
    if round_trip > FAR_ROUND_TRIP {
        // With fewer, connections that are registered at the same time would evict each other before their first step
        // arrives, for ever (seed 33654847).
        limits.answers_remembered = limits.answers_remembered.max(8);
    }
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
        true => little_memory(&mut apart),
        false => usize::MAX,
    };
    // Rows are short here: mostly what differs is logged wherever it can be.
    let uses = [DeltaUse::Short, DeltaUse::Always, DeltaUse::Always, DeltaUse::Always];
    limits.deltas = one_of(&mut random.fork(5), &uses);
}

/// Room for the loaded data, and for little more.
pub(crate) fn little_memory(random: &mut Random) -> usize {
    one_of(random, &[128 << 10, 256 << 10, 512 << 10])
}

/// Mostly above the round trip, as it should be; sometimes below, so that every request is sent twice.
fn retry_after(random: &mut Random, round_trip: Duration) -> Duration {
    let quarters = one_of(random, &[2, 5, 8, 8, 20, 40]);
    (round_trip * quarters / 4).max(Duration::from_micros(200))
}
