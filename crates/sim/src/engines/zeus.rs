//! Engine `zeus` in the simulator: its options, drawn from the seed, the scenarios that it can take, and the bugs that can be
//! planted in it.

use crate::clients::tables::CreatedTables;
use crate::coverage::{NO_LOSS, OF_STREAMS};
use crate::draw::one_of;
use crate::fault_schedule::FaultWeights;
use crate::scenario::{ClientWork, FAR_ROUND_TRIP, Scenario, partitioning};
use crate::subject::{Subject, limits};
use shoal_cluster::topology::{Partitioning, TableDefinition};
#[cfg(feature = "planted")]
use shoal_engine::PlantedBugs;
use shoal_types::{Random, ShardId};
use shoal_workloads::placed::family;
use shoal_zeus::{Zeus, ZeusEngineOptions, ZeusPlantedBug};
use std::time::Duration;

/// So many times fewer messages are late where `zeus` runs and nodes fail.
const LATE_LESS: u32 = 50;

/// A node handles at least so many messages in a lease, where nodes fail. A load has some thousand under way, and heartbeats
/// wait behind them: on slower nodes leases end by the load alone, and one after the other is out before the copies of the one
/// before are restored. That all copies of a granule are out is beyond what the protocol survives.
const MESSAGES_OF_A_LEASE: u32 = 4000;

/// How the names of tables begin whose objects have rows in several of them, which are a granule.
const FAMILY_TABLES: [&str; 2] = ["small_bank.", "tatp."];

/// So many bytes of their keys name the object.
const OBJECT_BYTES: usize = size_of::<u32>();

/// How the names of tables begin whose rows are read and written by their keys alone.
const HOME_TABLES: [&str; 4] = ["small_bank.", "tatp.", "voter.", "handovers."];

impl Subject for Zeus {
    /// Its streams are empty, and its scenarios have few of the faults that take several copies at once ([`Subject::fit`]).
    const NOT_REACHED: &'static [&'static [&'static str]] = &[
        OF_STREAMS,
        NO_LOSS,
        &[
            "append refused, disk behind",
            "clock beyond its bounds",
            "database full",
            "datacenter lost",
            "forgets what few have",
            "leader fails while a copy begins",
            "node gone for good",
            "one leader back, the next cut off",
            "records void without a snapshot",
            "second failure: appointed",
            "second failure: preparing",
            "step interrupted",
            "stream begun behind a snapshot",
        ],
    ];

    /// Only scripts of nodes rebuild directories and refuse what is lost: faults come one after the other here.
    const PATHS: &'static [&'static str] = &[
        "waits_for_moves",
        "sent_to_owners",
        "moves",
        "reads_gained",
        "requests_refused",
        "replays",
        "slots_replayed",
        "parts_received",
        "readers_dropped",
        "directories_copied",
        "foreign_epochs",
    ];

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
        ("split-dependent", ZeusPlantedBug::SplitDependent),
        ("read-pending", ZeusPlantedBug::ReadPending),
        ("owner-reads-own", ZeusPlantedBug::OwnerReadsOwn),
        ("answer-before-reads", ZeusPlantedBug::AnswerBeforeReads),
        ("reply-at-local-commit", ZeusPlantedBug::ReplyAtLocalCommit),
        ("check-while-reading", ZeusPlantedBug::CheckWhileReading),
        ("read-without-lease", ZeusPlantedBug::ReadWithoutLease),
        ("write-as-reader", ZeusPlantedBug::WriteAsReader),
        ("absence-unowned", ZeusPlantedBug::AbsenceUnowned),
        ("replay-unapplied", ZeusPlantedBug::ReplayUnapplied),
        ("wait-while-holding", ZeusPlantedBug::WaitWhileHolding),
        ("no-replaced-record", ZeusPlantedBug::NoReplacedRecord),
        ("timestamp-without-epoch", ZeusPlantedBug::TimestampWithoutEpoch),
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
        ("added-without-copy", ZeusPlantedBug::AddedWithoutCopy),
        ("copy-without-pending", ZeusPlantedBug::CopyWithoutPending),
        ("count-unacknowledged", ZeusPlantedBug::CountUnacknowledged),
        ("create-what-was-lost", ZeusPlantedBug::CreateWhatWasLost),
        ("serve-while-dropped", ZeusPlantedBug::ServeWhileDropped),
        ("apply-first-part", ZeusPlantedBug::ApplyFirstPart),
        ("structure-unchecked", ZeusPlantedBug::StructureUnchecked),
        ("send-unrecorded", ZeusPlantedBug::SendUnrecorded),
        ("forget-touched", ZeusPlantedBug::ForgetTouched),
        ("count-requests-anew", ZeusPlantedBug::CountRequestsAnew),
        ("act-unadmitted", ZeusPlantedBug::ActUnadmitted),
        ("repeat-before-checkpoint", ZeusPlantedBug::RepeatBeforeCheckpoint),
    ];

    fn draw(random: &mut Random, round_trip: Duration) -> ZeusEngineOptions {
        let mut options = ZeusEngineOptions::default();
        limits(&mut options.limits, random, round_trip);
        let mut waits = random.fork(4);
        let protocol = &mut options.protocol;
        let span = |random: &mut Random, parts: &[u32]| {
            (round_trip * one_of(random, parts) / 4).max(Duration::from_micros(200))
        };
        // A move takes one round trip and a half.
        protocol.hold = span(&mut waits, &[6, 8, 16]);
        protocol.replay_after = span(&mut waits, &[6, 8, 40]).max(Duration::from_millis(5));
        protocol.repeat_after = span(&mut waits, &[6, 8, 40]).max(Duration::from_millis(5));
        protocol.backoff_least = span(&mut waits, &[1, 2]);
        protocol.backoff_most = protocol.backoff_least * 8;
        protocol.favour = 4 * protocol.backoff_most + 4 * round_trip;
        protocol.slots_pending_max = one_of(&mut waits, &[1, 4, 4096]);
        protocol.copied_records_max = one_of(&mut waits, &[1, 5, 1024]);
        // A part is a round trip. Directories may have a thousand records (seed 9392274), and granules thousands of rows.
        if round_trip > FAR_ROUND_TRIP {
            protocol.copied_records_max = protocol.copied_records_max.max(20);
        }
        let parts = match round_trip {
            near if near <= Duration::from_millis(2) => [1 << 8, 4 << 10, 64 << 10],
            far if far < FAR_ROUND_TRIP => [4 << 10, 4 << 10, 64 << 10],
            _ => [64 << 10; 3],
        };
        protocol.part_bytes = one_of(&mut random.fork(5), &parts);
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
        let on_disk = scenario.disks;
        let lease = scenario.failures.options.lease.as_nanos() as u64;
        let faults = &mut scenario.fault_schedule;
        let weights = FaultWeights { forget: 0, diverge: 0, ..faults.weights };
        let datacenter = if on_disk { weights.datacenter } else { 0 };
        (faults.weights, faults.wild_clocks) = (FaultWeights { datacenter, ..weights }, false);
        (faults.struck_percent, faults.gone_percent, faults.interrupted_ppm) = (0, 0, 0);
        if scenario.failures.fails {
            // What is on disks outlives any number of crashes.
            faults.apart_ns = if on_disk { 0 } else { 4 * lease + 40 * scenario.round_trip_ns };
            if scenario.node_changes_every_ns > 0 {
                // A node that is removed takes its copies along.
                let apart = scenario.node_changes_every_ns.max(faults.apart_ns);
                scenario.node_changes_every_ns = apart;
            }
            let message = scenario.failures.options.lease / MESSAGES_OF_A_LEASE;
            scenario.cpu.message = scenario.cpu.message.min(message);
            // A late message holds up all behind it on its connection: heartbeats, too, and so puts nodes out.
            faults.troubles.tail_ppm /= LATE_LESS;
        }
        // In most runs the tables of histories have many granules, which no scan crosses.
        let scans = random.chance(1, 4);
        for group in &mut scenario.groups {
            match &mut group.work {
                ClientWork::Histories(mix) => mix.scans_percent *= u32::from(scans),
                // Its clients scan whole tables.
                ClientWork::Tables(created) => *created = CreatedTables::OneRange,
                _ => {}
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
        if FAMILY_TABLES.iter().any(|workload| table.starts_with(workload)) {
            let hashed = TableDefinition::from(Partitioning::Hash { prefix_bytes: OBJECT_BYTES });
            return TableDefinition { family: family(table).map(str::to_owned), ..hashed };
        }
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
