//! What is shown of a run: quantities, and how they are read from a measurement.

use serde::Serialize;
use shoal_workloads::bench::Measurement;
use shoal_workloads::bench::measurement::{self, Interval, Latency};
use shoal_workloads::report::words;

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
    /// Milliseconds that a part of the transactions stay under which clients in the region of the row began.
    RegionLatency(Percentile),
    /// Of all attempts that nodes have run, how many a conflict ended, those of calls included: 0 to 1.
    AbortedByNodes,
    /// How transactions were committed whose order clocks decide: of each of them, 0 to 1 or more.
    Committed(CommitPath),
    /// What the stop of a leader changed, a third of the measured time after its beginning.
    Around(LeaderStop),
    /// By how much clocks differed, in milliseconds: only the paper says it.
    ClockError,
}

/// What is counted of the commits of an engine that orders transactions by clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitPath {
    /// In one wide-area round trip: fast on all shards.
    OneRoundTrip,
    /// On the slow path: by the log of some shard.
    Slow,
    /// Transactions that came too late at a replica.
    Late,
    /// Votes that a follower withheld at first.
    Withheld,
    /// Entries that followers had released and dropped.
    Dropped,
    /// Executions that leaders discarded, since they had voted before all agreed.
    Discarded,
}

impl CommitPath {
    /// All of them.
    pub const ALL: [CommitPath; 6] = [
        CommitPath::OneRoundTrip,
        CommitPath::Slow,
        CommitPath::Late,
        CommitPath::Withheld,
        CommitPath::Dropped,
        CommitPath::Discarded,
    ];

    fn head(self) -> &'static str {
        match self {
            CommitPath::OneRoundTrip => "1 WRTT",
            CommitPath::Slow => "slow",
            CommitPath::Late => "late",
            CommitPath::Withheld => "withheld",
            CommitPath::Dropped => "dropped",
            CommitPath::Discarded => "discarded",
        }
    }

    fn title(self) -> &'static str {
        match self {
            CommitPath::OneRoundTrip => "Commits in one wide-area round trip",
            CommitPath::Slow => "Commits on the slow path",
            CommitPath::Late => "Late arrivals at replicas, of a hundred commits",
            CommitPath::Withheld => "Votes that were withheld at first, of a hundred commits",
            CommitPath::Dropped => "Released entries that followers dropped, of a hundred commits",
            CommitPath::Discarded => "Executions that were discarded, of a hundred commits",
        }
    }

    /// Of each commit of a run, where the engine counts that.
    fn of(self, run: &measurement::Run) -> Option<f64> {
        let count = |name| run.counted.get(name).map(|count| *count as f64);
        // Where a majority is near, nothing is voted for, and the log decides too.
        let without_votes = count("without_votes").unwrap_or_default();
        let (fast, slow) = (count("one_round_trip")?, count("by_log")? + without_votes);
        let counted = match self {
            CommitPath::OneRoundTrip => fast,
            CommitPath::Slow => slow,
            CommitPath::Late => count("late_arrivals")?,
            CommitPath::Withheld => count("votes_withheld")?,
            CommitPath::Dropped => count("dropped_tentative")?,
            CommitPath::Discarded => count("discarded_executions")?,
        };
        (fast + slow > 0.0).then(|| counted / (fast + slow))
    }
}

/// What is compared where a leader is stopped: the third of the time before with the last third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaderStop {
    /// Committed transactions a second, before.
    ThroughputBefore,
    /// Seconds until no interval has less than half of the throughput before.
    Outage,
    /// Committed transactions a second, at the end.
    ThroughputAfter,
    /// The mean latency in milliseconds, before.
    LatencyBefore,
    /// The mean latency in milliseconds, at the end.
    LatencyAfter,
}

impl LeaderStop {
    fn head(self) -> &'static str {
        match self {
            LeaderStop::ThroughputBefore => "before",
            LeaderStop::Outage => "outage",
            LeaderStop::ThroughputAfter => "after",
            LeaderStop::LatencyBefore => "mean before",
            LeaderStop::LatencyAfter => "mean after",
        }
    }

    fn of(self, run: &measurement::Run) -> Option<f64> {
        let stop_s = stop_s(run);
        let before = || run.timeline.iter().filter(|at| at.end_s <= stop_s);
        let after = || run.timeline.iter().filter(|at| at.end_s > 2.0 * stop_s);
        match self {
            LeaderStop::ThroughputBefore => mean_rate(before()),
            LeaderStop::ThroughputAfter => mean_rate(after()),
            LeaderStop::LatencyBefore => mean_ms(before()),
            LeaderStop::LatencyAfter => mean_ms(after()),
            LeaderStop::Outage => {
                let half = mean_rate(before())? / 2.0;
                let mut late = run.timeline.iter().filter(|at| at.end_s > stop_s);
                let last = late.rfind(|at| at.committed_per_s < half);
                Some(last.map_or(0.0, |last| last.end_s - stop_s))
            }
        }
    }
}

/// When a leader is stopped, in a run in which one is: in seconds of the measurement.
pub fn stop_s(run: &measurement::Run) -> f64 {
    run.measured_s / 3.0
}

fn mean_rate<'i>(intervals: impl Iterator<Item = &'i Interval>) -> Option<f64> {
    let (count, sum) =
        intervals.fold((0.0, 0.0), |(count, sum), at| (count + 1.0, sum + at.committed_per_s));
    (count > 0.0).then(|| sum / count)
}

/// The mean latency of the transactions of these intervals, which are as long as each other.
fn mean_ms<'i>(intervals: impl Iterator<Item = &'i Interval>) -> Option<f64> {
    let known = intervals.filter_map(|at| Some((at.committed_per_s, at.mean_latency_ns?)));
    let (weight, sum) = known.fold((0.0, 0.0), |(weight, sum), (rate, latency_ns)| {
        (weight + rate, sum + rate * latency_ns as f64 / 1e6)
    });
    (weight > 0.0).then(|| sum / weight)
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

impl Quantity {
    /// At the head of its column.
    pub fn head(self) -> &'static str {
        match self {
            Quantity::Throughput => "committed/s",
            Quantity::PerShard => "per shard",
            Quantity::PerLeaderSecond => "per leader CPU s",
            Quantity::Latency(percentile, _) | Quantity::RegionLatency(percentile) => {
                percentile.name()
            }
            Quantity::MeanLatency(_) => "mean",
            Quantity::Aborted | Quantity::AbortedByNodes => "aborted",
            Quantity::Moves => "moves/s",
            Quantity::MovesPerRequesterSecond(_) => "moves per requester CPU s",
            Quantity::PerKindSecond(_) => "per own CPU s",
            Quantity::Committed(path) => path.head(),
            Quantity::Around(stop) => stop.head(),
            Quantity::ClockError => "clock error",
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
            Quantity::Aborted | Quantity::AbortedByNodes => {
                "Attempts that a conflict ended".to_owned()
            }
            Quantity::RegionLatency(percentile) => format!("Latency, {}", percentile.name()),
            Quantity::Committed(path) => path.title().to_owned(),
            Quantity::Around(stop) => format!("Around the stop of a leader: {}", stop.head()),
            Quantity::ClockError => "Errors of clocks".to_owned(),
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
        self.unit() != Unit::Rate
    }

    /// What came out of a run on so many shards, for the clients in this region if it is about those of one, if it did.
    pub fn of(self, measurement: &Measurement, shards: u32, region: Option<&str>) -> Option<f64> {
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
            Quantity::RegionLatency(percentile) => {
                let region = summary.regions.iter().find(|it| Some(&*it.name) == region)?;
                Some(percentile.ms(&region.latency?))
            }
            Quantity::AbortedByNodes => median(measurement, &|run| {
                let count = |name| run.counted.get(name).map(|count| *count as f64);
                let (aborted, committed) = (count("conflicts")?, count("committed")?);
                (aborted + committed > 0.0).then(|| aborted / (aborted + committed))
            }),
            Quantity::Committed(path) => median(measurement, &|run| path.of(run)),
            Quantity::Around(stop) => median(measurement, &|run| stop.of(run)),
            Quantity::ClockError => None,
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
            | Quantity::PerKindSecond(_)
            | Quantity::RegionLatency(_)
            | Quantity::AbortedByNodes
            | Quantity::Committed(_)
            | Quantity::Around(_)
            | Quantity::ClockError => None,
        };
        let values = measurement.runs.iter().filter_map(of_run);
        values
            .map(|value| (value, value))
            .reduce(|(low, high), (value, _)| (f64::min(low, value), f64::max(high, value)))
    }

    /// What its values are.
    fn unit(self) -> Unit {
        match self {
            Quantity::Throughput
            | Quantity::PerShard
            | Quantity::PerLeaderSecond
            | Quantity::Moves
            | Quantity::MovesPerRequesterSecond(_)
            | Quantity::PerKindSecond(_)
            | Quantity::Around(LeaderStop::ThroughputBefore | LeaderStop::ThroughputAfter) => {
                Unit::Rate
            }
            Quantity::Latency(..)
            | Quantity::MeanLatency(_)
            | Quantity::RegionLatency(_)
            | Quantity::Around(LeaderStop::LatencyBefore | LeaderStop::LatencyAfter)
            | Quantity::ClockError => Unit::Milliseconds,
            Quantity::Around(LeaderStop::Outage) => Unit::Seconds,
            Quantity::Aborted | Quantity::AbortedByNodes | Quantity::Committed(_) => Unit::Share,
        }
    }

    /// In a table.
    pub fn words(self, value: f64) -> String {
        match self.unit() {
            Unit::Rate => words::rate(value),
            Unit::Milliseconds => words::latency((value * 1e6).round() as u64),
            Unit::Seconds => words::seconds(value),
            Unit::Share => words::percent(value),
        }
    }

    /// In a plot, and in which unit.
    pub fn plotted(self, value: f64) -> (f64, &'static str) {
        match self.unit() {
            Unit::Rate => (value, ""),
            Unit::Milliseconds => (value, "ms"),
            Unit::Seconds => (value, "s"),
            Unit::Share => (value * 100.0, "%"),
        }
    }
}

/// What the values of a quantity are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many a second, of the clock or of a processor: it depends on the machine.
    Rate,
    Milliseconds,
    Seconds,
    /// From 0 to 1, or more.
    Share,
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
