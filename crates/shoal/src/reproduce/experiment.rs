//! What an experiment is: data.

use super::run::ExperimentRun;
use crate::duration::span;
use serde::Serialize;
use shoal_workloads::bench::Measurement;
use shoal_workloads::bench::measurement::{self, Latency};
use shoal_workloads::report::words;
use std::time::Duration;

/// What has to be known of an experiment, before and after it.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// The name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper did, and what it says came out.
    pub paper: &'static str,
    /// How it was scaled, a sentence each.
    pub scaled: Vec<String>,
}

/// An experiment that is measured.
#[derive(Debug, Serialize)]
pub struct Experiment {
    #[serde(flatten)]
    pub about: About,
    /// What is run, in this order.
    #[serde(skip)]
    pub runs: Vec<ExperimentRun>,
    /// Where their results stand.
    pub charts: Vec<Chart>,
}

/// The number of a run among those of its experiment.
pub type RunNumber = usize;

/// One more run of an experiment that is being made up.
pub fn add(runs: &mut Vec<ExperimentRun>, run: ExperimentRun) -> RunNumber {
    runs.push(run);
    runs.len() - 1
}

/// A table, and the plots of what stands in it.
#[derive(Debug, Serialize)]
pub struct Chart {
    pub title: &'static str,
    /// The quantity that differs from row to row.
    pub axis: &'static str,
    /// The unit of `axis`.
    pub unit: &'static str,
    /// What is shown of each run.
    pub quantities: Vec<Quantity>,
    pub plots: Plots,
    pub curves: Vec<Curve>,
    /// What has to be known to read it.
    pub notes: Vec<String>,
}

/// What plots of a chart show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plots {
    /// Each quantity along the axis.
    AlongAxis,
    /// The same, and the throughput of each row over the time of its first run.
    AlongAxisAndTime,
    /// Each row along its percentiles.
    Percentiles,
}

/// A line of a plot: rows that are compared with each other.
#[derive(Debug, Serialize)]
pub struct Curve {
    pub name: String,
    /// The row to which the others are compared, in what is ours as in what is the paper's.
    pub base: usize,
    pub rows: Vec<ExperimentRow>,
}

/// One place on a curve.
#[derive(Debug, Serialize)]
pub struct ExperimentRow {
    pub label: String,
    /// Where it is along the axis.
    pub x: f64,
    /// What was run here; what the paper has and we have not has none.
    pub run: Option<RunNumber>,
    /// What the paper says of it.
    pub published: Vec<Published>,
    /// The part of the base's throughput, or of another quantity, that has to be kept, where something was promised.
    pub kept_min: Option<(Quantity, f64)>,
    /// The least that a quantity may be, where something was promised.
    pub least: Vec<(Quantity, f64)>,
    /// The most that a quantity may be, where something was promised.
    pub most: Vec<(Quantity, f64)>,
}

/// A number of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    pub quantity: Quantity,
    pub number: PublishedNumber,
}

/// How the paper says it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedNumber {
    /// As it was measured.
    Absolute(f64),
    /// Compared with the base.
    Relative(f64),
}

/// What is shown of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Committed transactions a second.
    Throughput,
    /// The same for each shard.
    PerShard,
    /// Committed transactions for each second that the leaders' threads had a processor.
    PerLeaderSecond,
    /// Milliseconds that a part of the transactions of one kind stay under.
    Latency(Percentile, &'static str),
    /// Milliseconds that transactions of one kind take on average.
    MeanLatency(&'static str),
    /// Of all attempts, how many a conflict ended: 0 to 1.
    Aborted,
    /// Granules that have moved to the measured nodes, a second.
    Moves,
    /// The same for each second that threads had a processor which ran transactions of this kind only: those that move.
    MovesPerRequesterSecond(&'static str),
    /// Committed transactions of this kind for each second that threads had a processor which ran no others.
    PerKindSecond(&'static str),
}

/// Of a hundred transactions, how many are faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Percentile {
    P10,
    P50,
    P90,
    P95,
    P99,
    P99_9,
}

impl Percentile {
    /// Those that the paper on Mako has, from the fastest.
    pub const UP_TO_P99: [Percentile; 5] =
        [Percentile::P10, Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99];

    /// As a number.
    pub fn percent(self) -> f64 {
        match self {
            Percentile::P10 => 10.0,
            Percentile::P50 => 50.0,
            Percentile::P90 => 90.0,
            Percentile::P95 => 95.0,
            Percentile::P99 => 99.0,
            Percentile::P99_9 => 99.9,
        }
    }

    /// Of these latencies, in milliseconds.
    fn ms(self, latency: &Latency) -> f64 {
        let ns = match self {
            Percentile::P10 => latency.p10_ns,
            Percentile::P50 => latency.p50_ns,
            Percentile::P90 => latency.p90_ns,
            Percentile::P95 => latency.p95_ns,
            Percentile::P99 => latency.p99_ns,
            Percentile::P99_9 => latency.p99_9_ns,
        };
        ns as f64 / 1e6
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Percentile::P10 => "p10",
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P95 => "p95",
            Percentile::P99 => "p99",
            Percentile::P99_9 => "p99.9",
        }
    }
}

impl Experiment {
    /// What is going to happen, and about how long it takes if each run takes so long.
    pub fn opening(&self, each: Duration, times: u32) -> String {
        let count = self.runs.len() as u32;
        let again = if times > 1 { format!(", each {times} times") } else { String::new() };
        let all = span(each * count * times);
        format!(
            "{}{count} runs{again}: about {all}, and longer where much is loaded\n\n",
            self.about.opening()
        )
    }
}

impl About {
    /// The title, the paper's experiment and how ours is scaled.
    pub fn opening(&self) -> String {
        let scaled = self.scaled.join(" ");
        format!("{}\n\nThe paper: {}\nScaled: {scaled}\n\n", self.title, self.paper)
    }
}

impl Quantity {
    /// At the head of its column.
    pub fn head(self) -> &'static str {
        match self {
            Quantity::Throughput => "committed/s",
            Quantity::PerShard => "per shard",
            Quantity::PerLeaderSecond => "per leader CPU s",
            Quantity::Latency(percentile, _) => percentile.name(),
            Quantity::MeanLatency(_) => "mean",
            Quantity::Aborted => "aborted",
            Quantity::Moves => "moves/s",
            Quantity::MovesPerRequesterSecond(_) => "moves per requester CPU s",
            Quantity::PerKindSecond(_) => "per own CPU s",
        }
    }

    /// In the title of a plot.
    pub fn title(self) -> String {
        match self {
            Quantity::Throughput => "Committed transactions a second".to_owned(),
            Quantity::PerShard => "Committed transactions a second, for each shard".to_owned(),
            Quantity::PerLeaderSecond => {
                "Committed transactions for each second of the leaders’ processors".to_owned()
            }
            Quantity::Latency(percentile, kind) => {
                format!("Latency of {kind} transactions, {}", percentile.name())
            }
            Quantity::MeanLatency(kind) => format!("Latency of {kind} transactions, mean"),
            Quantity::Aborted => "Attempts that a conflict ended".to_owned(),
            Quantity::Moves => "Objects that move to another node, a second".to_owned(),
            Quantity::MovesPerRequesterSecond(_) => {
                "Objects that move, for each second of the processors that take them".to_owned()
            }
            Quantity::PerKindSecond(kind) => {
                format!("Committed {kind} transactions for each second of their processors")
            }
        }
    }

    /// Whether rows are compared by it.
    pub fn is_compared(self) -> bool {
        matches!(
            self,
            Quantity::Throughput | Quantity::PerLeaderSecond | Quantity::PerKindSecond(_)
        )
    }

    /// Whether it says the same on machines that differ: then the paper's numbers may stand in one plot
    /// with ours.
    pub fn is_of_any_machine(self) -> bool {
        matches!(self, Quantity::Latency(..) | Quantity::MeanLatency(_) | Quantity::Aborted)
    }

    /// What came out of a run on so many shards, if it did.
    pub fn of(self, measurement: &Measurement, shards: u32) -> Option<f64> {
        let summary = &measurement.summary;
        match self {
            Quantity::Throughput => Some(summary.committed_per_s),
            Quantity::PerShard => Some(summary.committed_per_s / f64::from(shards)),
            Quantity::PerLeaderSecond => summary.committed_per_cpu_s,
            Quantity::Latency(percentile, kind) => {
                let kind = summary.kinds.iter().find(|it| it.name == kind)?;
                Some(percentile.ms(&kind.latency?))
            }
            Quantity::MeanLatency(kind) => {
                let kind = summary.kinds.iter().find(|it| it.name == kind)?;
                Some(kind.latency?.mean_ns as f64 / 1e6)
            }
            Quantity::Aborted => Some(summary.conflict_rate),
            Quantity::Moves => {
                median(measurement, &|run| Some(counted_moves(run)? / run.measured_s))
            }
            Quantity::MovesPerRequesterSecond(kind) => median(measurement, &|run| {
                Some(counted_moves(run)? / of_kind(run, kind)?.running_s?)
            }),
            Quantity::PerKindSecond(kind) => median(measurement, &|run| {
                let kind = of_kind(run, kind)?;
                Some(kind.committed as f64 / kind.running_s?)
            }),
        }
    }

    /// The lowest and the highest of several measurements, for the quantities that are read most:
    /// throughput, and latencies at the median and at the 99th percentile.
    pub fn range(self, measurement: &Measurement) -> Option<(f64, f64)> {
        if measurement.runs.len() < 2 {
            return None;
        }
        let of_run = |run: &measurement::Run| match self {
            Quantity::Throughput => Some(run.throughput.mean_per_s),
            Quantity::Latency(percentile @ (Percentile::P50 | Percentile::P99), kind) => {
                let kind = run.kinds.iter().find(|it| it.name == kind)?;
                Some(percentile.ms(&kind.latency?))
            }
            Quantity::PerShard
            | Quantity::PerLeaderSecond
            | Quantity::Latency(..)
            | Quantity::MeanLatency(_)
            | Quantity::Aborted
            | Quantity::Moves
            | Quantity::MovesPerRequesterSecond(_)
            | Quantity::PerKindSecond(_) => None,
        };
        let values = measurement.runs.iter().filter_map(of_run);
        values
            .map(|value| (value, value))
            .reduce(|(low, high), (value, _)| (f64::min(low, value), f64::max(high, value)))
    }

    /// In a table.
    pub fn words(self, value: f64) -> String {
        match self {
            Quantity::Throughput
            | Quantity::PerShard
            | Quantity::PerLeaderSecond
            | Quantity::Moves
            | Quantity::MovesPerRequesterSecond(_)
            | Quantity::PerKindSecond(_) => words::rate(value),
            Quantity::Latency(..) | Quantity::MeanLatency(_) => {
                words::latency((value * 1e6).round() as u64)
            }
            Quantity::Aborted => words::percent(value),
        }
    }

    /// In a plot, and in which unit.
    pub fn plotted(self, value: f64) -> (f64, &'static str) {
        match self {
            Quantity::Throughput
            | Quantity::PerShard
            | Quantity::PerLeaderSecond
            | Quantity::Moves
            | Quantity::MovesPerRequesterSecond(_)
            | Quantity::PerKindSecond(_) => (value, ""),
            Quantity::Latency(..) | Quantity::MeanLatency(_) => (value, "ms"),
            Quantity::Aborted => (value * 100.0, "%"),
        }
    }
}

/// The median of what the runs of a measurement say, of those that say something.
fn median(measurement: &Measurement, of: &dyn Fn(&measurement::Run) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = measurement.runs.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    measurement::median(&values)
}

/// The granules that have moved during a run, where the engine moves any.
fn counted_moves(run: &measurement::Run) -> Option<f64> {
    run.counted.get("moves").map(|moves| *moves as f64)
}

fn of_kind<'a>(run: &'a measurement::Run, kind: &str) -> Option<&'a measurement::Kind> {
    run.kinds.iter().find(|it| it.name == kind)
}

impl ExperimentRow {
    /// One at a number along the axis.
    pub fn at(x: u32) -> ExperimentRow {
        ExperimentRow::named(x, x.to_string())
    }

    /// One that has a name.
    pub fn named(x: u32, label: impl Into<String>) -> ExperimentRow {
        let (label, x) = (label.into(), f64::from(x));
        ExperimentRow {
            label,
            x,
            run: None,
            published: Vec::new(),
            kept_min: None,
            least: Vec::new(),
            most: Vec::new(),
        }
    }

    /// With this run.
    pub fn run(self, run: RunNumber) -> ExperimentRow {
        ExperimentRow { run: Some(run), ..self }
    }

    /// With what the paper has published of it, if there is anything, as it was measured.
    pub fn measured_there(self, quantity: Quantity, papers: &[(u32, f64)]) -> ExperimentRow {
        let here = self.x;
        let found = papers.iter().find(|(x, _)| f64::from(*x) == here);
        found.into_iter().fold(self, |row, (_, value)| {
            row.published(quantity, PublishedNumber::Absolute(*value))
        })
    }

    /// Is there anything to be shown?
    pub fn is_there(&self) -> bool {
        self.run.is_some() || !self.published.is_empty()
    }

    /// With a number that the paper has published.
    pub fn published(mut self, quantity: Quantity, number: PublishedNumber) -> ExperimentRow {
        self.published.push(Published { quantity, number });
        self
    }
}
