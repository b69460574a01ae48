//! What the engines promise of speed, shown in virtual time: the code is the real one, distances and
//! processors are simulated, and a seed gives the same numbers on any machine.
//!
//! | demonstration | shows |
//! |---|---|
//! | [`latency`] | commit latency under light load |
//! | [`distance`] | how the rate of certified transactions depends on the distance between datacenters |
//! | [`slow_shard`] | which clients a shard that becomes slow delays |
//! | [`stamps`] | how large full and sparse stamps are |
//! | `failure.rs` | how the failure of a shard affects it and the others |
//! | `rollback.rs` | how much is rolled back by such a failure |
//!
//! They share `testbed.rs`, a cluster with clients. Its clients run on the leaders, as in the paper, so that
//! a latency is from the first operation to the moment at which the client may be answered.
//! `placed.rs` has the sizes of the workloads, `watched.rs` records which shards a transaction touches,
//! `latency_recorder.rs` the latencies that clients measure, `table.rs` and `results.rs` hold the results, and
//! `report.rs` makes a page of them. `outage.rs` is a cluster in which a shard fails, `record.rs` the record
//! of that run.

pub mod distance;
mod failure;
pub mod latency;
mod latency_recorder;
mod options;
mod outage;
mod placed;
mod record;
pub mod report;
mod results;
mod rollback;
pub mod slow_shard;
pub mod stamps;
pub mod table;
mod testbed;
pub mod watched;

pub use options::{DemonstrationOptions, DemonstrationProgress, ProgressWatcher, Promise, Size};
pub use results::{DemonstrationResults, ResultPlot};
pub use table::{ResultLine, ResultTable, TargetVerdict};
pub use testbed::{EngineForm, RunResult, Shown};

use shoal_engine::execution::Limits;
use shoal_mako::{Mako, StampForm};
use shoal_two_phase_commit::TwoPhaseCommit;
use std::time::Duration;

impl Shown for Mako {
    const OPEN_MAX: &'static [usize] = &[1 << 16];

    const STAMP_FORMS: &'static [EngineForm<Mako>] = &[
        ("full", |limits| shoal_mako::MakoOptions {
            stamps: StampForm::Full,
            ..Mako::with_limits(limits)
        }),
        ("sparse", Mako::with_limits),
    ];

    fn with_limits(limits: Limits) -> shoal_mako::MakoOptions {
        shoal_mako::MakoOptions { limits, ..shoal_mako::MakoOptions::default() }
    }
}

impl Shown for TwoPhaseCommit {
    const OPEN_MAX: &'static [usize] = &[1 << 16, 1 << 14, 1 << 12];

    const STAMP_FORMS: &'static [EngineForm<TwoPhaseCommit>] = &[];

    /// At least as long as locks are held: a client that retries earlier meets the same locks.
    fn pause_max(far: Duration) -> Duration {
        far.max(Limits::default().pause_max)
    }

    fn with_limits(limits: Limits) -> shoal_two_phase_commit::TwoPhaseCommitOptions {
        shoal_two_phase_commit::TwoPhaseCommitOptions {
            limits,
            ..shoal_two_phase_commit::TwoPhaseCommitOptions::default()
        }
    }
}

/// An engine with the demonstrations that it can run.
#[derive(Debug, Clone, Copy)]
struct DemonstratedEngine {
    latency: fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>,
    distance: fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>,
    slow_shard: fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>,
    stamps: fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>,
    promise: Promise,
}

impl DemonstratedEngine {
    const fn of<E: Shown>(promise: Promise) -> DemonstratedEngine {
        DemonstratedEngine {
            latency: latency::lines::<E>,
            distance: distance::lines::<E>,
            slow_shard: slow_shard::lines::<E>,
            stamps: stamps::lines::<E>,
            promise,
        }
    }
}

/// The engines of the demonstrations.
const ENGINES: [DemonstratedEngine; 2] = [
    DemonstratedEngine::of::<Mako>(Promise::Targets),
    DemonstratedEngine::of::<TwoPhaseCommit>(Promise::Nothing),
];

/// What can be shown: a cluster in virtual time, with prices for its work, measured against targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demonstration {
    /// Commit latency under light load: see [`latency`].
    Latency,
    /// Throughput over the distance between datacenters: see [`distance`].
    Distance,
    /// The effect of a shard that becomes slow: see [`slow_shard`].
    SlowShard,
    /// The sizes of stamps: see [`stamps`].
    Stamps,
    /// The effect of a shard that fails: see `failure.rs`.
    Failure,
    /// How much is rolled back when a shard fails: see `rollback.rs`.
    Rollback,
}

impl Demonstration {
    /// All of them, in the order of the report.
    pub const ALL: [Demonstration; 6] = [
        Demonstration::Latency,
        Demonstration::Distance,
        Demonstration::SlowShard,
        Demonstration::Stamps,
        Demonstration::Failure,
        Demonstration::Rollback,
    ];

    /// Runs the demonstration on every engine that takes part in it.
    ///
    /// # Errors
    /// If a cluster did not work at all.
    pub fn show(self, options: &DemonstrationOptions) -> RunResult<DemonstrationResults> {
        let (table, lines): (ResultTable, Lines) = match self {
            Demonstration::Latency => (latency::table(options), |exhibit| exhibit.latency),
            Demonstration::Distance => (distance::table(options), |exhibit| exhibit.distance),
            Demonstration::SlowShard => (slow_shard::table(options), |exhibit| exhibit.slow_shard),
            Demonstration::Stamps => (stamps::table(options), |exhibit| exhibit.stamps),
            Demonstration::Failure => return failure::show(options),
            Demonstration::Rollback => return rollback::show(options),
        };
        on_all_engines(options, table, lines)
    }
}

/// Measures one engine for a demonstration, and returns the lines of its tables.
type Lines =
    fn(&DemonstratedEngine) -> fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>;

fn on_all_engines(
    options: &DemonstrationOptions,
    mut table: ResultTable,
    lines: Lines,
) -> RunResult<DemonstrationResults> {
    for exhibit in &ENGINES {
        table.lines.extend(lines(exhibit)(options, exhibit.promise)?);
    }
    Ok(DemonstrationResults { tables: vec![table], plots: Vec::new() })
}
