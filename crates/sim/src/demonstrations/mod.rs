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
//! a latency is from the first operation to the moment at which the client may be told.
//! `shoal_workloads::placed` has the workloads, `watched.rs` records which shards a transaction touches,
//! `latency_recorder.rs` the latencies that clients measure, `table.rs` and `results.rs` hold the results, and
//! `report.rs` makes a page of them. `outage.rs` is a cluster in which a shard fails, `record.rs` the record
//! of that run.

pub mod distance;
mod failure;
pub mod latency;
mod latency_recorder;
mod outage;
mod record;
pub mod report;
mod results;
mod rollback;
pub mod slow_shard;
pub mod stamps;
pub mod table;
mod testbed;
pub mod watched;

pub use results::{DemonstrationResults, ResultPlot};
pub use table::{ResultLine, ResultTable, TargetVerdict};
pub use testbed::{EngineForm, RunResult, Shown};

use shoal_engine::execution::Limits;
use shoal_mako::{Mako, StampForm};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::Database;
use shoal_workloads::placed::PlacedMicro;
use shoal_workloads::tpcc::{Scale, TpcC};
use std::rc::Rc;
use std::time::Duration;

/// The size of a demonstration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For reports: processors as fast as measured, thousands of clients.
    Full,
    /// For tests: slow processors, few clients, short periods, in the same proportions.
    Small,
}

/// What a demonstration is doing, for a line on the terminal.
#[derive(Debug, Clone)]
pub struct DemonstrationProgress {
    /// The part of the demonstration that is running.
    pub what: String,
    /// How much of that part is done, from 0 to 1.
    pub done: f64,
}

/// Called with the progress of a demonstration.
pub type ProgressWatcher = Rc<dyn Fn(DemonstrationProgress)>;

/// The options that all demonstrations share.
#[derive(Clone)]
pub struct DemonstrationOptions {
    /// The seed of all random draws.
    pub seed: u64,
    /// The size of the demonstration.
    pub size: Size,
    /// Called as the demonstration progresses.
    pub watcher: ProgressWatcher,
}

impl DemonstrationOptions {
    /// Options of a demonstration whose progress is not shown.
    pub fn new(seed: u64, size: Size) -> DemonstrationOptions {
        DemonstrationOptions { seed, size, watcher: Rc::new(|_| {}) }
    }

    /// Returns a function that reports to the watcher how much of `what` is done.
    fn tick(&self, what: String) -> Box<dyn FnMut(f64)> {
        let watcher = Rc::clone(&self.watcher);
        Box::new(move |done| watcher(DemonstrationProgress { what: what.clone(), done }))
    }
}

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

/// The role of an engine in the demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It has to meet the targets that each demonstration names.
    Targets,
    /// It is shown for comparison only.
    Nothing,
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

/// The micro-benchmark with `keys` keys on each of `shards` shards.
fn micro<D: Database>(
    db: &D,
    shards: u32,
    keys_of_shard: u32,
    cross_percent: u32,
) -> shoal_types::Result<PlacedMicro> {
    PlacedMicro::new(db, shards, keys_of_shard, cross_percent)
}

/// TPC-C with this many warehouses on each shard, and this many items and customers of a district.
fn tpcc<D: Database>(
    db: &D,
    shards: u32,
    warehouses: u16,
    items: u32,
    customers: u16,
) -> shoal_types::Result<TpcC> {
    let scale = Scale {
        items,
        customers,
        undelivered: customers / 3,
        warehouses: warehouses * shards as u16,
    };
    TpcC::new(db, scale)
}
