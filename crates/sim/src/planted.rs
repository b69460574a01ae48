//! Planted bugs: each disables one rule, and a simulation that does not notice proves nothing. The table
//! states within how many seeds each has to be caught. `caught.txt` has a seed that catches it, so that a
//! test runs that one seed. A change to the random draws or to an engine may make a recorded seed catch
//! nothing: then a search records another.

use crate::seed_ranges::{
    ACCEPTED_LOSS_SEEDS, BAD_DISKS_FROM, COMMIT_IDS_FROM, COORDINATORS_FROM, DISK_SEEDS,
    FULL_SEEDS, NODES_FROM, OLDER_DISKS_FROM, REPLACEMENTS_FROM, TABLES_FROM,
};
use crate::subject::AnyPlantedBug;

/// Whether this build has planted bugs: only with the feature `planted`, which released binaries do not have.
pub const PLANTED: bool = cfg!(feature = "planted");

/// A planted bug and what is expected of the checkers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedBugCase {
    /// The engine it is planted in.
    pub engine: &'static str,
    /// Its name, as on the command line.
    pub name: &'static str,
    /// The switch that plants it in the engine's workers.
    pub bug: AnyPlantedBug,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The rules whose checkers may catch it. Another failure, such as a crash, does not prove that the
    /// checkers work.
    pub caught_by: &'static [&'static str],
    /// A seed that catches it, if one is recorded in `caught.txt`.
    pub seed: Option<u64>,
    /// The first seed of a search: those before do not have what it needs.
    pub first: u64,
    /// The number of consecutive seeds of which at least one has to catch it.
    pub within: u64,
}

/// Engine, bug, the rule it breaks, the rules it may be caught by, and the number of seeds within which it
/// has to be caught: at least three times the longest run of seeds, of two hundred, that missed it when that
/// was measured.
pub type CatchBound = (&'static str, &'static str, &'static str, &'static [&'static str], u64);

/// The planted bugs of all engines, and within how many seeds each has to be caught.
pub const BOUNDS: &[CatchBound] = &[
    ("mako", "skip-remote-validation", "serializability", CLIENTS, 40),
    // The clock of an idle branch holds the shard back, mostly before it is used.
    ("mako", "clock-before-lock", "M2", &["M2", "assertion", "liveness"], 50),
    ("mako", "safe-clock-past-in-flight", "M3", &["M3"], 30),
    ("mako", "safe-clock-past-parts", "M3", &["M3"], 100),
    ("mako", "end-between-parts", "M9", &["M9", "assertion"], 300),
    ("mako", "acknowledge-at-certification", "M5", &["M5"], 10),
    ("mako", "reveal-at-once", "M5", &["M5"], 40),
    ("mako", "ignore-tombstone-stamp", "M1", &["M1"], 100),
    ("mako", "install-own-clock-only", "M1", &["M1"], 30),
    ("mako", "apply-above-watermark", "M6", &["M6"], 30),
    ("mako", "replay-in-arrival-order", "M6", &["M6"], 40),
    ("mako", "validate-before-locks", "serializability", CLIENTS, 430),
    ("mako", "ignore-request-rows", "exactly once", &["exactly once", "client"], 300),
    ("mako", "resolve-without-row", "exactly once", FORGOTTEN, 600),
    ("mako", "serve-forgotten-sessions", "exactly once", FORGOTTEN, 300),
    ("mako", "reuse-serials", "one transaction", &["one transaction", "client"], 300),
    // It shows where a put of a client outside fails for lack of memory.
    ("mako", "commit-past-failed-write", "atomicity", &["M5", "client"], 150),
    ("mako", "begin-again", "exactly once", &["one transaction", "client"], 300),
    ("mako", "reuse-session-numbers", "exactly once", FORGOTTEN, 300),
    ("mako", "read-unsettled-epoch", "M8", &["M8"], 100),
    ("mako", "trim-uncovered", "M10", COPIES, 300),
    ("mako", "compare-clocks-of-epochs", "M8", &["M8"], 2_500),
    ("mako", "end-epoch-in-flight", "M9", &["M9", "assertion"], 100),
    ("mako", "end-whole-while-hanging", "M9", LOST, 60),
    ("mako", "report-before-durable", "M9", &["M9", "assertion"], 30),
    ("mako", "act-without-lease", "M7", &["M7"], 150),
    ("mako", "roll-back-by-clock", "M9", &["M5", "M6", "M9", "atomicity", "replicas"], 60),
    ("mako", "keep-dead-locks", "liveness", &["liveness", "assertion"], 60),
    ("mako", "silence-resolves", "M3", LOST, 300),
    ("mako", "cut-unstable", "M6", COPIES, 200),
    ("mako", "copy-uncommitted", "M6", COPIES, 100),
    ("mako", "copy-keeps-deleted", "M6", COPIES, 400),
    ("mako", "copy-by-clock", "M10", COPIES, 300),
    // It shows only where a shard loses its majority: in one seed of 26.
    ("mako", "wait-forever", "M11", &["liveness"], 450),
    ("mako", "certify-while-stalled", "M11", &["assertion"], 60),
    ("mako", "serve-while-out", "M12", &["assertion"], 60),
    ("mako", "count-learner", "M4", &["M4"], 60),
    ("mako", "forget-promise", "M4", &["M4", "M9", "assertion", "liveness"], 700),
    ("mako", "appoint-early", "M7", &["M7"], 60),
    ("mako", "appoint-hasty", "M7", &["M7"], 60),
    ("mako", "lease-from-reply", "M7", &["M7"], 150),
    ("mako", "vote-while-empty", "M4", STREAMS, 60),
    ("mako", "keep-leadership", "M4", STREAMS, 90),
    ("mako", "adopt-longest", "M4", STREAMS, 200),
    ("mako", "adopt-shortest", "M4", STREAMS, 100),
    ("mako", "adopt-onto-own", "M4", STREAMS, 200),
    ("mako", "keep-undecided", "M4", STREAMS, 300),
    ("mako", "patch-any-base", "M6", COPIES, 300),
    ("mako", "patch-newer", "M6", COPIES, 300),
    ("mako", "replay-below-floor", "M6", COPIES, 2_400),
    ("mako", "drop-unreached-tombstones", "M6", COPIES, 60),
    ("mako", "collect-led-only", "M9", COPIES, 300),
    ("mako", "keep-former-acks", "M4", STREAMS, 6_000),
    ("mako", "caught-up-early", "M4", STREAMS, 60),
    ("mako", "appoint-empty", "M4", STREAMS, 60),
    ("mako", "join-early", "M4", STREAMS, 60),
    ("mako", "copy-without-watermarks", "M10", COPIES, 60),
    ("mako", "copy-watermarks-of-rows", "M10", &["M10"], 60),
    // A version has to be undecided while a copy is sent or a leader takes over: mostly where a shard loses
    // its majority.
    ("mako", "copy-without-undecided", "M12", COPIES, 600),
    ("mako", "install-undecided-above", "M12", COPIES, 450),
    ("mako", "cut-covered", "M6", COPIES, 60),
    ("mako", "stable-while-blocked", "M6", COPIES, 60),
    ("mako", "stable-alone", "M6", COPIES, 60),
    ("mako", "copy-from-one-stream", "M10", COPIES, 60),
    ("mako", "snapshot-without-finals", "M9", &["M9"], 60),
    ("mako", "install-after-close", "M8", &["M8"], 600),
    ("mako", "lock-after-close", "M8", &["M8"], 1_200),
    ("mako", "certify-after-close", "M8", &["M8"], 1_500),
    // Tables are created and dropped in half of the seeds from 2^25 on.
    ("mako", "create-again", "exactly once", TABLES, 1_000),
    ("mako", "serve-dropped-tables", "tables", TABLES, 1_000),
    ("mako", "share-slots", "one transaction", &["assertion"], 30),
    // Replicas are replaced in the seeds from 2^26 on.
    ("mako", "keep-former-voters", "M4", STREAMS, 300),
    ("mako", "leave-early", "M4", STREAMS, 12_000),
    // Nodes are added and removed in the seeds from 2^28 on.
    ("mako", "admit-removed", "membership", &["assertion"], 400),
    // Streams are on disks, and all nodes lose power, in the seeds from 2^29 on.
    ("mako", "acknowledge-unpersisted", "M4", STREAMS, 60),
    ("mako", "count-snapshot-early", "M4", STREAMS, 450),
    ("mako", "skip-flush", "M4", STREAMS, 60),
    ("mako", "lie-about-flushes", "M4", STREAMS, 60),
    ("mako", "trust-unflushed", "M4", STREAMS, 300),
    ("mako", "accept-former-use", "M4", STREAMS, 300),
    ("mako", "rename-unflushed", "M4", STREAMS, 60),
    ("mako", "truncate-early", "M4", STREAMS, 300),
    // Disks fail, and are damaged, in the seeds from 7 · 2^27 on.
    ("mako", "retry-failed-flush", "M4", STREAMS, 60),
    ("mako", "cut-damage", "M4", STREAMS, 1_000),
    ("mako", "skip-checksums", "M4", STREAMS, 60),
    // Disks are put back in the seeds from 15 · 2^26 on.
    ("mako", "believe-older-disks", "M4", STREAMS, 300),
    // A majority whose loss is accepted returns with its disks in the seeds from 2^30 on.
    ("mako", "join-before-begun", "M9", &["M3", "M9", "M10", "assertion"], 600),
    ("mako", "count-void-voters", "M12", &["liveness"], 60),
    ("two-phase-commit", "resolve-without-row", "exactly once", FORGOTTEN, 1_000),
    ("two-phase-commit", "create-again", "exactly once", TABLES, 1_000),
    ("two-phase-commit", "serve-dropped-tables", "tables", TABLES, 800),
    ("two-phase-commit", "skip-remote-validation", "serializability", CLIENTS, 30),
    ("two-phase-commit", "safe-clock-past-in-flight", "P5", &["P5"], 10),
    ("two-phase-commit", "acknowledge-at-certification", "P4", &["P4"], 10),
    ("two-phase-commit", "validate-before-locks", "P1", CLIENTS, 300),
    ("two-phase-commit", "replay-in-arrival-order", "M6", &["P5"], 40),
    ("two-phase-commit", "count-learner", "P4", &["P4"], 60),
    ("two-phase-commit", "act-without-lease", "P6", &["P6"], 150),
    ("two-phase-commit", "serve-without-recovered-locks", "P7", UNLOCKED, 1_500),
    ("two-phase-commit", "serve-unsealed", "P7", &["P7"], 60),
    ("two-phase-commit", "presume-abort-early", "P8", RECOVERY, 300),
    // Only one seed of four from 10,000,000 on has a coordinator without replicas.
    ("two-phase-commit", "presume-abort-unended", "P8", UNLOCKED, 1_000),
    ("two-phase-commit", "abort-while-deciding", "P8", UNLOCKED, 1_000),
    ("two-phase-commit", "end-unacknowledged", "P9", RECOVERY, 300),
    ("two-phase-commit", "patch-any-base", "M6", COPIES, 300),
    ("two-phase-commit", "patch-newer", "M6", &["P5"], 300),
    ("two-phase-commit", "patch-undurable", "P5", &["replicas", "liveness"], 4_000),
    ("two-phase-commit", "copy-keeps-deleted", "P10", COPIES, 300),
    ("two-phase-commit", "copy-without-tombstones", "P10", COPIES, 3_000),
    ("two-phase-commit", "snapshot-without-prepared", "P10", COPIES, 100),
    ("two-phase-commit", "snapshot-without-later-writes", "P10", COPIES, 1_000),
    ("two-phase-commit", "serve-forgotten-sessions", "exactly once", FORGOTTEN, 300),
    ("zeus", "ignore-request-rows", "Z13", &["exactly once", "client"], 300),
    ("zeus", "serve-forgotten-sessions", "exactly once", FORGOTTEN, 300),
    ("zeus", "reuse-serials", "one transaction", &["one transaction", "client"], 300),
    ("zeus", "begin-again", "exactly once", &["one transaction", "client"], 300),
    ("zeus", "own-before-all-acks", "Z1", MOVES, 30),
    ("zeus", "lesser-wins", "Z1", MOVES, 100),
    ("zeus", "arbiters-apply-first", "Z2", MOVES, 30),
    ("zeus", "apply-first-part", "Z2", ROWS, 300),
    ("zeus", "replay-changes-record", "Z3", MOVES, 30),
    ("zeus", "grant-while-pending", "Z4", MOVES, 30),
    ("zeus", "grant-after-writes", "Z4", MOVES, 60),
    ("zeus", "first-ack-validates", "Z6", SLOTS, 30),
    ("zeus", "ack-unapplied", "Z6", SLOTS, 60),
    ("zeus", "skip-slot", "Z6", SLOTS, 30),
    ("zeus", "split-dependent", "Z6", SLOTS, 60),
    ("zeus", "read-pending", "Z7", SHOWN, 30),
    ("zeus", "owner-reads-own", "Z7", SHOWN, 60),
    ("zeus", "reply-at-local-commit", "Z7", SHOWN, 300),
    ("zeus", "answer-before-reads", "Z7", SHOWN, 60),
    ("zeus", "check-while-reading", "Z8", SHOWN, 300),
    ("zeus", "write-as-reader", "Z9", &["Z9"], 60),
    ("zeus", "absence-unowned", "Z9", &["Z9"], 250),
    ("zeus", "keep-after-removal", "Z10", MOVES, 450),
    ("zeus", "wait-while-holding", "Z14", &["liveness"], 300),
    ("zeus", "clock-without-granule", "Z15", SLOTS, 30),
    ("zeus", "drive-on-pending", "Z16", MOVES, 30),
    ("zeus", "unacknowledge", "Z17", MOVES, 30),
    ("zeus", "added-without-copy", "Z18", &["Z1", "Z3", "Z21"], 100),
    // On disks, in the seeds from 2^29 on.
    ("zeus", "send-unrecorded", "Z22", SLOTS, 60),
    ("zeus", "forget-touched", "Z4", MOVES, 60),
    ("zeus", "count-requests-anew", "Z5", &["liveness", "Z14"], 60),
    ("zeus", "depart-with-copies", "Z14", LOST_COPIES, 300),
    ("tiga", "accept-late", "T1", LOGS, 30),
    ("tiga", "ignore-read-timestamps", "T1", LOGS, 30),
    ("tiga", "release-before-ready", "T2", LOGS, 30),
    ("tiga", "ready-without-promise", "T2", LOGS, 60),
    ("tiga", "count-mismatch", "T4", LOGS, 30),
    ("tiga", "simple-quorum", "T4", LOGS, 30),
    ("tiga", "commit-by-one-vote", "T5", LOGS, 60),
    ("tiga", "maximum-sync-point", "T6", LOGS, 30),
    ("tiga", "forget-tentative", "T7", LOGS, 400),
    ("tiga", "forget-imports", "T8", LOGS, 30),
    ("tiga", "duplicate-executes", "T10", LOGS, 300),
    ("tiga", "read-unstable", "T11", LOGS, 60),
    ("tiga", "touch-undeclared", "T13", LOGS, 300),
    ("tiga", "seal-open", "T15", LOGS, 100),
    ("tiga", "ready-of-old-ballot", "T20", LOGS, 60),
    ("tiga", "refuse-before-record", "T21", LOGS, 1_300),
    ("tiga", "snapshot-without-changes", "T22", LOGS, 200),
    ("tiga", "snapshot-without-records", "T22", LOGS, 300),
    ("tiga", "send-unrecorded", "T24", LOGS, 100),
];

/// Bugs that no seed catches below this one.
const SEARCHED_FROM: &[(&str, u64)] = &[
    ("commit-past-failed-write", FULL_SEEDS.start),
    // Commits have ids in half of the seeds from 2^27 on.
    ("resolve-without-row", COMMIT_IDS_FROM),
    ("presume-abort-unended", COORDINATORS_FROM),
    ("abort-while-deciding", COORDINATORS_FROM),
    ("create-again", TABLES_FROM),
    ("serve-dropped-tables", TABLES_FROM),
    ("keep-former-voters", REPLACEMENTS_FROM),
    ("leave-early", REPLACEMENTS_FROM),
    ("added-without-copy", REPLACEMENTS_FROM),
    ("admit-removed", NODES_FROM),
    ("acknowledge-unpersisted", DISK_SEEDS.start),
    ("count-snapshot-early", DISK_SEEDS.start),
    ("skip-flush", DISK_SEEDS.start),
    ("lie-about-flushes", DISK_SEEDS.start),
    ("trust-unflushed", DISK_SEEDS.start),
    ("accept-former-use", DISK_SEEDS.start),
    ("rename-unflushed", DISK_SEEDS.start),
    ("truncate-early", DISK_SEEDS.start),
    ("send-unrecorded", DISK_SEEDS.start),
    ("forget-touched", DISK_SEEDS.start),
    ("count-requests-anew", DISK_SEEDS.start),
    ("depart-with-copies", DISK_SEEDS.start),
    ("retry-failed-flush", BAD_DISKS_FROM),
    ("cut-damage", BAD_DISKS_FROM),
    ("skip-checksums", BAD_DISKS_FROM),
    ("believe-older-disks", OLDER_DISKS_FROM),
    ("join-before-begun", ACCEPTED_LOSS_SEEDS.start),
    ("count-void-voters", ACCEPTED_LOSS_SEEDS.start),
];

/// A new leader recovers prepared transactions, or decisions, that differ from what was decided.
const RECOVERY: &[&str] =
    &["P2", "P8", "assertion", "lost acknowledgement", "client", "replicas", "exactly once"];

/// As [`RECOVERY`]; or a transaction has taken a lock that belongs to one in doubt, and both wait for ever; or a home shard
/// announces for ever a commit that a participant has aborted and does not confirm.
const UNLOCKED: &[&str] = &[
    "P2",
    "P8",
    "assertion",
    "lost acknowledgement",
    "client",
    "replicas",
    "exactly once",
    "liveness",
];

/// A table is created twice, served before it is known, or found after it was dropped.
const TABLES: &[&str] = &["tables", "client", "replicas"];

/// The end of an epoch covers too much: more than was reported, or more than its loss allows.
const LOST: &[&str] = &["M9", "assertion", "lost acknowledgement", "atomicity"];

/// A replica has versions that it should not have, or lacks some.
const COPIES: &[&str] = &["M6", "M10", "replicas", "assertion", "M2", "lost acknowledgement"];

/// A decided sequence of a stream is lost or replaced; or its log on disk cannot be read, which no loss of power explains.
const STREAMS: &[&str] =
    &["M4", "M9", "M6", "assertion", "liveness", "lost acknowledgement", "replicas", "atomicity"];

/// Bugs that can be planted and that no seed has caught yet, by area.
pub const UNCAUGHT: &[&str] = &[
    // A branch has to stay in doubt while a row is written and deleted, and a replica that has seen the write gets a copy; for
    // the second bug it has to be resolved while that is sent.
    "forget-tombstones-at-once",
    "forget-tombstones-while-copied",
    // It shows only where a shard is lost for good, a former leader has a version that another shard rejects,
    // and the key is not read: in one seed of some thousand.
    "collect-settled",
];

/// Bugs that no seed has caught yet, and that a test fails with, or shows in a trace: the file of the test, below `crates/`.
pub const SHOWN_BY_TESTS: &[(&str, &str)] = &[
    // Garbage collection of tombstones: one has to come to light under a version that is rolled back, while another worker
    // is behind it, or while it is not committed.
    ("collect-unreached", "engines/mako/src/steps/rollback.rs"),
    ("collect-uncommitted", "engines/mako/src/steps/rollback.rs"),
    // Locks that stay longer than they need break no rule that is judged.
    ("leave-last-agent", "engines/two_phase_commit/src/tests/last_agent.rs"),
    // A client has to use a table within the moments between its creation and the configuration that has it.
    ("answer-untold", "cluster/tests/manager/tables.rs"),
    ("serve-unknown-tables", "engine/src/execution/tables.rs"),
    // A stream has to be cut at a checkpoint that is not reached, and a copy to begin before it is.
    ("copy-unreached", "engines/two_phase_commit/src/tests/recovery.rs"),
    // A voter has to lose power before its promise is flushed, and to accept entries of the former leader after that, which has mostly
    // lost its lease.
    ("promise-unpersisted", "log/tests/stream/random.rs"),
    // A group has to be torn in its middle, and what is behind that to fit to what is in front of it.
    ("read-past-gap", "wal/tests/log/crashes.rs"),
    // A replica with half a copy, and the stream of which another worker is not behind, has to give one.
    ("copy-with-one-cut", "engines/two_phase_commit/src/tests/copies.rs"),
    // Scripts: the bug makes a line that is not there without it.
    ("read-without-lease", ZEUS_TESTS),
    ("move-before-replayed", ZEUS_TESTS),
    ("replay-nothing", ZEUS_TESTS),
    ("keep-received", ZEUS_TESTS),
    // No node asks to leave in a simulation, and owners drop readers only where there are too many.
    ("drop-last-reader", ZEUS_TESTS),
    ("serve-while-dropped", ZEUS_TESTS),
    ("structure-unchecked", ZEUS_TESTS),
    // An owner has to write between two acknowledgements of a move, or a driver to return before an `Inv` of its own is sent again.
    ("no-replaced-record", ZEUS_TESTS),
    ("timestamp-without-epoch", ZEUS_TESTS),
    ("count-unacknowledged", ZEUS_TESTS),
    ("create-what-was-lost", ZEUS_TESTS),
    // A node has to record between the mark of a checkpoint in its log and the first part of it.
    ("repeat-before-checkpoint", ZEUS_TESTS),
    // An older disk has to be put back, and its node to be asked before it learns of the configuration.
    ("act-unadmitted", ZEUS_TESTS),
    // Random runs of nodes alone, each with a seed that finds the bug.
    ("hear-old-epoch", ZEUS_TESTS),
    ("validate-newer", ZEUS_TESTS),
    ("answer-before-copy", ZEUS_TESTS),
    ("copy-without-pending", ZEUS_TESTS),
    ("replay-unapplied", ZEUS_TESTS),
    // A second grant of one request is refused, as a message that no correct node sends.
    ("stale-request-moves", ZEUS_TESTS),
    // Scripts of nodes and logs without a network.
    ("keep-by-timestamp", TIGA_PLANTED),
    ("vote-over-unagreed", TIGA_PLANTED),
    ("vote-before-final", TIGA_PLANTED),
    ("ask-before-record", TIGA_PLANTED),
    ("mix-ballots", TIGA_PLANTED),
    ("export-unstable", TIGA_PLANTED),
    ("keep-behind-synced", TIGA_PLANTED),
    ("keep-in-front", TIGA_PLANTED),
    ("trust-far-clock", TIGA_PLANTED),
    ("read-over-ready", TIGA_PLANTED),
    ("blind-write-without-history", TIGA_PLANTED),
    // A node has to vote, take a checkpoint and restart before the vote is agreed upon, and the vote to be needed.
    ("checkpoint-without-votes", "engines/tiga/tests/protocol/vote_log.rs"),
    ("digest-without-readers", TIGA_PLANTED),
    ("small-epsilon", "engines/tiga/tests/protocol/clocks.rs"),
    ("keep-revoked", TIGA_DISTANCES),
    ("drop-what-is-over", TIGA_DISTANCES),
    ("digest-without-history", "engines/tiga/tests/protocol/scripts.rs"),
    ("settle-by-former-leader", TIGA_RECOVERY),
    // What a fast quorum has voted for is in the leader's log, too: power has to fail, and the leader to stay away.
    ("forget-records", "engines/tiga/tests/protocol/vote_log.rs"),
];

const TIGA_PLANTED: &str = "engines/tiga/tests/protocol/planted.rs";
const TIGA_DISTANCES: &str = "engines/tiga/tests/protocol/distances.rs";
const TIGA_RECOVERY: &str = "engines/tiga/tests/protocol/recovery.rs";
const ZEUS_TESTS: &str = "engines/zeus/tests/protocol/planted.rs";

/// A call ran twice, or after its client was answered that it did not run.
const FORGOTTEN: &[&str] = &["exactly once", "client"];

/// A granule moves as it must not: two owners, records that differ, rows that are pending.
const MOVES: &[&str] = &["Z1", "Z3", "Z4", "Z6", "assertion"];

/// A granule moves without some of its rows.
const ROWS: &[&str] = &["Z6", "client", "assertion"];

/// A row is validated that a node which serves it has not applied.
const SLOTS: &[&str] = &["Z6", "assertion"];

/// Granules are lost, and clients are refused.
const LOST_COPIES: &[&str] = &["client", "Z14", "Z21", "liveness"];

/// A reply shows what is not validated, or what no order explains.
const SHOWN: &[&str] = &["Z7", "client"];

/// A transaction of `tiga` is released or answered though the logs of some shard may lack it, or have it elsewhere.
const LOGS: &[&str] = &[
    "T1",
    "T4",
    "T6",
    "T7",
    "T9",
    "T10",
    "T11",
    "T15",
    "T16",
    "T21",
    "client",
    "assertion",
    "exactly once",
    "lost acknowledgement",
    "replicas",
];

/// Only clients see the violation.
const CLIENTS: &[&str] = &["client"];

impl PlantedBugCase {
    /// Whether a failure of this rule catches the bug.
    pub fn is_caught_by(&self, rule: &str) -> bool {
        self.caught_by.contains(&rule)
    }
}

/// The recorded lines: an engine, a bug and a seed that catches it.
const CAUGHT: &str = include_str!("caught.txt");

/// The engines, bugs and seeds of `caught.txt`.
///
/// # Panics
/// If a line of it is malformed.
pub fn recorded() -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    CAUGHT.lines().map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("caught.txt: '{line}' is short"));
        let (engine, bug, seed) = (word(), word(), word());
        let seed = seed.parse().unwrap_or_else(|_| panic!("caught.txt: {seed} is no seed"));
        (engine, bug, seed)
    })
}

/// The bugs that are planted in an engine.
///
/// # Panics
/// If the table or `caught.txt` has a bug that does not exist, or a line of it is malformed.
pub fn all(engine: &str) -> Vec<PlantedBugCase> {
    let of_engine = BOUNDS.iter().filter(|(other, ..)| *other == engine);
    let planted = of_engine.map(|(engine, name, rule, caught_by, within)| {
        let bug = AnyPlantedBug::named(name).unwrap_or_else(|| panic!("{name} is no bug"));
        let seed = recorded().find(|of| (of.0, of.1) == (*engine, *name)).map(|of| of.2);
        let first = SEARCHED_FROM.iter().find(|(other, _)| other == name).map_or(0, |it| it.1);
        PlantedBugCase { engine, name, bug, rule, caught_by, seed, first, within: *within }
    });
    planted.collect()
}
