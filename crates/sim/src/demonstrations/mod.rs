//! What the engines promise of speed, shown in virtual time: the code is the real one, distances and
//! processors are made up, and a seed brings out the same numbers anywhere.
//!
//! | demonstration | shows |
//! |---|---|
//! | [`latency`] | how long a commit takes where there is little to do |
//! | [`distance`] | how the rate of certified transactions depends on the distance between datacenters |
//! | [`slow_shard`] | which clients a shard that becomes slow delays |
//! | [`stamps`] | how large stamps are that keep everything, and those that keep what matters |
//! | `failure.rs` | what the failure of a shard does to it and to the others |
//! | `rollback.rs` | how much is rolled back then |
//!
//! They share `testbed.rs`, a cluster with clients. Its clients live on the leaders, as in the paper, so
//! that a latency is from the first operation to the moment at which the client may be told. `shoal_workloads::placed`
//! are the workloads, `watched.rs` sees which shards a transaction touches, `book.rs` is
//! where the clients write down what they met, `table.rs` and `results.rs` are what comes out, and
//! `report.rs` makes a page of it. `outage.rs` is a cluster in which a shard fails, `record.rs` what is
//! written down of that.

mod book;
pub mod distance;
mod failure;
pub mod latency;
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

/// How large a demonstration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For people: processors as fast as measured, thousands of clients.
    Full,
    /// For tests: slow processors, few clients, short periods. The same proportions.
    Small,
}

/// How far a demonstration has come.
#[derive(Debug, Clone)]
pub struct DemonstrationProgress {
    /// What it is at.
    pub what: String,
    /// The part of that which is done.
    pub done: f64,
}

/// Is shown how far a demonstration has come.
pub type ProgressWatcher = Rc<dyn Fn(DemonstrationProgress)>;

/// What every demonstration is told.
#[derive(Clone)]
pub struct DemonstrationOptions {
    /// Where all chance comes from.
    pub seed: u64,
    /// How large it is.
    pub size: Size,
    /// Who watches.
    pub watcher: ProgressWatcher,
}

impl DemonstrationOptions {
    /// Those of a demonstration that is not watched.
    pub fn new(seed: u64, size: Size) -> DemonstrationOptions {
        DemonstrationOptions { seed, size, watcher: Rc::new(|_| {}) }
    }

    /// What tells the watcher how far `what` is.
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

    /// At least as long as locks are held: who comes back earlier meets the same ones.
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

/// What the demonstrations ask of an engine, beyond showing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The targets that each demonstration names.
    Targets,
    /// It is there to compare with.
    Nothing,
}

/// An engine by what can be shown of it.
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

/// All engines that are shown.
const EXHIBITS: [DemonstratedEngine; 2] = [
    DemonstratedEngine::of::<Mako>(Promise::Targets),
    DemonstratedEngine::of::<TwoPhaseCommit>(Promise::Nothing),
];

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demonstration {
    /// See [`latency`].
    Latency,
    /// See [`distance`].
    Distance,
    /// See [`slow_shard`].
    SlowShard,
    /// See [`stamps`].
    Stamps,
    /// What the failure of a shard does to it and to the others: see `failure.rs`.
    Failure,
    /// How much is rolled back then: see `rollback.rs`.
    Rollback,
}

impl Demonstration {
    /// All of them.
    pub const ALL: [Demonstration; 6] = [
        Demonstration::Latency,
        Demonstration::Distance,
        Demonstration::SlowShard,
        Demonstration::Stamps,
        Demonstration::Failure,
        Demonstration::Rollback,
    ];

    /// Shows it, on every engine that promises something of the kind.
    ///
    /// # Errors
    /// Where a cluster did not work at all.
    pub fn show(self, orders: &DemonstrationOptions) -> RunResult<DemonstrationResults> {
        let (table, lines): (ResultTable, Lines) = match self {
            Demonstration::Latency => (latency::table(orders), |exhibit| exhibit.latency),
            Demonstration::Distance => (distance::table(orders), |exhibit| exhibit.distance),
            Demonstration::SlowShard => (slow_shard::table(orders), |exhibit| exhibit.slow_shard),
            Demonstration::Stamps => (stamps::table(orders), |exhibit| exhibit.stamps),
            Demonstration::Failure => return failure::show(orders),
            Demonstration::Rollback => return rollback::show(orders),
        };
        on_all_engines(orders, table, lines)
    }
}

/// What an exhibit shows of one thing.
type Lines =
    fn(&DemonstratedEngine) -> fn(&DemonstrationOptions, Promise) -> RunResult<Vec<ResultLine>>;

fn on_all_engines(
    orders: &DemonstrationOptions,
    mut table: ResultTable,
    lines: Lines,
) -> RunResult<DemonstrationResults> {
    for exhibit in &EXHIBITS {
        table.lines.extend(lines(exhibit)(orders, exhibit.promise)?);
    }
    Ok(DemonstrationResults { tables: vec![table], plots: Vec::new() })
}

/// The micro-benchmark with so many keys on each of so many shards.
fn micro<D: Database>(
    db: &D,
    shards: u32,
    keys_of_shard: u32,
    cross_percent: u32,
) -> shoal_types::Result<PlacedMicro> {
    PlacedMicro::new(db, shards, keys_of_shard, cross_percent)
}

/// TPC-C with so many warehouses on each of so many shards, and so many items and customers of a
/// district.
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
