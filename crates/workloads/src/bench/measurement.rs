//! What a bench has measured, as it is written to JSON and shown in reports.
//!
//! Units come last in names. Latencies are nanoseconds from the moment that [`LatencyFrom`] defines to the
//! transaction's answer, its retries included.

use super::machine::Machine;
use super::processor_time::ProcessorTime;
use super::stages::StageTime;
use crate::workload::Check;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Everything about one call of the bench: one run or several alike.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The version of this structure; it grows when a field changes its meaning or goes.
    pub format: u32,
    /// The time at which the benchmark began, in UTC.
    pub started_at: String,
    /// The build that was measured.
    pub build: Build,
    /// The machine on which it ran.
    pub machine: Machine,
    /// The name by which the workload is chosen on the command line.
    pub workload: &'static str,
    /// The parameters of the workload, and of the cluster if it ran on one.
    pub parameters: Vec<Parameter>,
    /// How the load was generated.
    pub load: Load,
    /// The median of each number over the runs.
    pub summary: Summary,
    /// The runs, each on a database of its own.
    pub runs: Vec<Run>,
}

/// The format that this code writes.
pub const FORMAT: u32 = 1;

/// The program that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Build {
    /// The version of the package.
    pub version: &'static str,
    /// `optimized` or `debug`; a debug build's numbers are meaningless.
    pub profile: &'static str,
    /// The memory allocator that the program was built with.
    pub allocator: &'static str,
    /// The database: `embedded`, or a cluster in words.
    pub target: Cow<'static, str>,
}

/// A parameter of the workload.
#[derive(Debug, Clone, Serialize)]
pub struct Parameter {
    /// The name of the option that sets it.
    pub name: &'static str,
    /// The value in this measurement, the default included.
    pub value: String,
}

/// How the load was generated.
#[derive(Debug, Clone, Serialize)]
pub struct Load {
    /// Threads, each with one client and one transaction at a time.
    pub workers: usize,
    /// Time before the measurement, in which transactions run and do not count, in seconds.
    pub warm_up_s: f64,
    /// Time of the measurement of each run, in seconds.
    pub duration_s: f64,
    /// Transactions a second that were asked for; none means as many as the workers manage.
    pub rate_per_s: Option<f64>,
    /// The moment from which latencies are measured.
    pub latency_from: LatencyFrom,
    /// The first run's seed; each further run adds one.
    pub seed: u64,
    /// How many runs there were, each with a database of its own.
    pub runs: usize,
    /// Memory that each database took before its run.
    pub reserved_bytes: u64,
}

/// The moment from which latencies are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyFrom {
    /// When its client began it, right after the last one (closed loop).
    Start,
    /// When it was due, whether or not its client was free (open loop): waiting counts, so a stall
    /// is not hidden by the transactions it kept from starting.
    Schedule,
}

/// The median of each number over the runs.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Committed transactions a second, over the whole of each run.
    pub committed_per_s: f64,
    /// The same number of the slowest run.
    pub committed_per_s_min: f64,
    /// The same number of the fastest run.
    pub committed_per_s_max: f64,
    /// Committed transactions for each second that a worker had a processor: on a busy machine
    /// the better number.
    pub committed_per_cpu_s: Option<f64>,
    /// The part of all attempts that ended in a conflict: 0 to 1.
    pub conflict_rate: f64,
    /// Transactions that committed in the measured time of one run.
    pub committed: u64,
    /// Transactions the workload itself rolled back, as its specification demands.
    pub rolled_back: u64,
    /// Attempts that a conflict ended.
    pub conflicts: u64,
    /// Rows of the initial data.
    pub loaded_rows: u64,
    /// The time of loading, in seconds.
    pub load_s: f64,
    /// The memory of keys, values and index after loading, where the database reports it.
    pub loaded_bytes: Option<u64>,
    /// The most memory the process has held in any run.
    pub peak_resident_bytes: Option<u64>,
    /// Results by transaction type, in the workload's order.
    pub kinds: Vec<KindSummary>,
    /// Results by the region of the clients, where that is known.
    pub regions: Vec<RegionResult>,
}

/// The median of each number of one transaction type.
#[derive(Debug, Clone, Serialize)]
pub struct KindSummary {
    /// The transaction type, as the workload names it.
    pub name: &'static str,
    /// The type's part of all finished transactions: 0 to 1.
    pub share: f64,
    /// The type's latencies; `None` if no transaction of it finished.
    pub latency: Option<Latency>,
}

/// The result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The seed of all random draws of the run.
    pub seed: u64,
    /// Rows of the initial data.
    pub loaded_rows: u64,
    /// The time of loading, in seconds.
    pub load_s: f64,
    /// The memory of keys, values and index then, where the database reports it.
    pub loaded_bytes: Option<u64>,
    /// The most memory the process has held so far.
    pub peak_resident_bytes: Option<u64>,
    /// The time of the measurement, in seconds.
    pub measured_s: f64,
    /// Transactions that committed in the measured time.
    pub committed: u64,
    /// Transactions the workload itself rolled back, as its specification demands.
    pub rolled_back: u64,
    /// Attempts that a conflict ended.
    pub conflicts: u64,
    /// Transactions given up after their retry budget.
    pub given_up: u64,
    /// Transactions that had met conflicts when time was up, and were not tried again.
    pub cut: u64,
    /// Transactions of which it is not known whether they committed: a leader failed meanwhile.
    pub unknown: u64,
    /// Open loop: transactions due before the end that no worker had begun.
    pub overdue: u64,
    /// How long the workers had a processor, all together; to within a tick of the scheduler.
    pub running_s: Option<f64>,
    /// How long they wanted one and others had them all.
    pub waiting_s: Option<f64>,
    /// The processor time of the threads of this process meanwhile, by what they do.
    pub processor_times: Vec<ProcessorTime>,
    /// What the database counted meanwhile, where it reports that.
    pub counted: BTreeMap<String, u64>,
    /// Where the time of an average transaction that wrote went, where the database reports that.
    pub stages: Vec<StageTime>,
    /// Committed transactions a second, with what they varied between.
    pub throughput: Throughput,
    /// Results by transaction type, in the workload's order.
    pub kinds: Vec<Kind>,
    /// Results by the region of the clients, where that is known.
    pub regions: Vec<RegionResult>,
    /// Throughput over the measured time, interval by interval.
    pub timeline: Vec<Interval>,
    /// The results of the workload's checks after the run.
    pub checks: Vec<CheckResult>,
}

/// The results of the clients in one region, of all transaction types; or the median of each number over the runs.
#[derive(Debug, Clone, Serialize)]
pub struct RegionResult {
    /// The name of the region.
    pub name: String,
    /// Transactions that committed in the measured time.
    pub committed: u64,
    /// Their latencies, those of rolled back ones included; none where there was no transaction.
    pub latency: Option<Latency>,
}

/// Committed transactions a second: on average, and in the intervals of [`Run::timeline`].
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Throughput {
    /// The mean rate of all transactions over the whole time, per second.
    pub mean_per_s: f64,
    /// The rate of the median interval, per second.
    pub median_per_s: f64,
    /// The rate of the slowest interval, per second.
    pub min_per_s: f64,
    /// The rate of the fastest interval, per second.
    pub max_per_s: f64,
}

/// The results of one transaction type in one run.
#[derive(Debug, Clone, Serialize)]
pub struct Kind {
    /// The transaction type, as the workload names it.
    pub name: &'static str,
    /// Transactions of this type that committed in the measured time.
    pub committed: u64,
    /// Transactions rolled back as demanded.
    pub rolled_back: u64,
    /// Attempts that a conflict ended, before those succeeded.
    pub conflicts: u64,
    /// How long the threads had a processor that ran no transaction of another type; none if there was no such thread.
    pub running_s: Option<f64>,
    /// Latencies of both; none where there was no such transaction.
    pub latency: Option<Latency>,
    /// The latency under which each part of the transactions stays, towards the slowest.
    pub curve: Vec<CurvePoint>,
}

/// How long transactions took, in nanoseconds: the percentiles that are compared.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// The sum of all latencies, divided by their number.
    pub mean_ns: u64,
    /// 1 of 10 is faster.
    pub p10_ns: u64,
    /// 1 of 2 is faster.
    pub p50_ns: u64,
    /// 9 of 10 are faster.
    pub p90_ns: u64,
    /// 95 of 100 are faster.
    pub p95_ns: u64,
    /// 99 of 100 are faster.
    pub p99_ns: u64,
    /// 999 of 1000 are faster.
    pub p99_9_ns: u64,
    /// No transaction took longer.
    pub max_ns: u64,
}

/// A point of a percentile curve.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CurvePoint {
    /// Part of the transactions, 0 to 1.
    pub quantile: f64,
    /// The latency they stay under.
    pub latency_ns: u64,
}

/// Throughput and latency from the last interval's end to `end_s`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Interval {
    /// Seconds since the measurement began.
    pub end_s: f64,
    /// Committed transactions a second, within this interval alone.
    pub committed_per_s: f64,
    /// How long these took on average; none where there are none.
    pub mean_latency_ns: Option<u64>,
}

/// A [`Check`], as it is written.
#[derive(Debug, Clone, Serialize)]
pub struct CheckResult {
    /// The condition that was checked, in words.
    pub name: String,
    /// Whether the condition holds.
    pub passed: bool,
    /// Where the condition does not hold; `None` if it does.
    pub detail: Option<String>,
}

impl From<Check> for CheckResult {
    fn from(check: Check) -> CheckResult {
        CheckResult { name: check.name, passed: check.verdict.is_ok(), detail: check.verdict.err() }
    }
}

impl Measurement {
    /// Whether every check of every run holds.
    pub fn passed(&self) -> bool {
        self.runs.iter().flat_map(|run| &run.checks).all(|check| check.passed)
    }
}

impl Throughput {
    /// Of `committed` transactions in `measured_s`, and of the intervals between.
    pub(super) fn new(committed: u64, measured_s: f64, timeline: &[Interval]) -> Throughput {
        let mean_per_s = committed as f64 / measured_s;
        let mut rates: Vec<f64> = timeline.iter().map(|at| at.committed_per_s).collect();
        rates.sort_by(f64::total_cmp);
        Throughput {
            mean_per_s,
            median_per_s: median(&rates).unwrap_or(mean_per_s),
            min_per_s: rates.first().copied().unwrap_or(mean_per_s),
            max_per_s: rates.last().copied().unwrap_or(mean_per_s),
        }
    }
}

impl Latency {
    /// The percentiles of `histogram`, if there is anything in it.
    pub(super) fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| Latency {
            mean_ns: histogram.mean() as u64,
            p10_ns: at(0.1),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: histogram.max(),
        })
    }

    /// Mean, p50, p90, p99, p99.9, max: the columns of a table.
    pub fn columns(&self) -> [u64; 6] {
        [self.mean_ns, self.p50_ns, self.p90_ns, self.p99_ns, self.p99_9_ns, self.max_ns]
    }

    /// The median of each percentile.
    fn median(latencies: &[Latency]) -> Option<Latency> {
        let middle = |number: fn(&Latency) -> u64| {
            let mut numbers: Vec<f64> = latencies.iter().map(|l| number(l) as f64).collect();
            numbers.sort_by(f64::total_cmp);
            median(&numbers).map(|number| number as u64)
        };
        Some(Latency {
            mean_ns: middle(|l| l.mean_ns)?,
            p10_ns: middle(|l| l.p10_ns)?,
            p50_ns: middle(|l| l.p50_ns)?,
            p90_ns: middle(|l| l.p90_ns)?,
            p95_ns: middle(|l| l.p95_ns)?,
            p99_ns: middle(|l| l.p99_ns)?,
            p99_9_ns: middle(|l| l.p99_9_ns)?,
            max_ns: middle(|l| l.max_ns)?,
        })
    }
}

/// Steps of a curve for each factor of ten towards the slowest.
const CURVE_STEPS: u32 = 20;

/// The percentile curve of `histogram`, as far as its count supports it.
pub(super) fn curve(histogram: &Histogram<u64>) -> Vec<CurvePoint> {
    let nines = (histogram.len() as f64).log10();
    (0u32..)
        .map(|step| f64::from(step) / f64::from(CURVE_STEPS))
        .take_while(|&at| !histogram.is_empty() && at <= nines)
        .map(|at| 1.0 - 10f64.powf(-at))
        .map(|quantile| CurvePoint { quantile, latency_ns: histogram.value_at_quantile(quantile) })
        .collect()
}

impl Summary {
    /// The medians over `runs`.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn of(runs: &[Run]) -> Summary {
        let sorted = |number: &dyn Fn(&Run) -> f64| {
            let mut numbers: Vec<f64> = runs.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers
        };
        let middle = |numbers: &[f64]| median(numbers).expect("there is a run");
        let count = |number: fn(&Run) -> u64| middle(&sorted(&|run| number(run) as f64)) as u64;
        let mut loaded_bytes: Vec<f64> =
            runs.iter().filter_map(|run| run.loaded_bytes).map(|bytes| bytes as f64).collect();
        loaded_bytes.sort_by(f64::total_cmp);
        let rates = sorted(&|run| run.throughput.mean_per_s);
        let mut per_cpu_s: Vec<f64> = runs.iter().filter_map(Run::committed_per_cpu_s).collect();
        per_cpu_s.sort_by(f64::total_cmp);
        let kinds = runs[0].kinds.iter().enumerate().map(|(at, kind)| {
            let latencies: Vec<Latency> =
                runs.iter().filter_map(|run| run.kinds[at].latency).collect();
            KindSummary {
                name: kind.name,
                share: middle(&sorted(&|run| run.kinds[at].finished() / run.finished())),
                latency: Latency::median(&latencies),
            }
        });
        let regions = runs[0].regions.iter().enumerate().map(|(at, region)| {
            let latencies: Vec<Latency> =
                runs.iter().filter_map(|run| run.regions[at].latency).collect();
            RegionResult {
                name: region.name.clone(),
                committed: middle(&sorted(&|run| run.regions[at].committed as f64)) as u64,
                latency: Latency::median(&latencies),
            }
        });
        Summary {
            regions: regions.collect(),
            committed_per_s: middle(&rates),
            committed_per_s_min: rates[0],
            committed_per_s_max: rates[rates.len() - 1],
            committed_per_cpu_s: median(&per_cpu_s),
            conflict_rate: middle(&sorted(&Run::conflict_rate)),
            committed: count(|run| run.committed),
            rolled_back: count(|run| run.rolled_back),
            conflicts: count(|run| run.conflicts),
            loaded_rows: count(|run| run.loaded_rows),
            load_s: middle(&sorted(&|run| run.load_s)),
            loaded_bytes: median(&loaded_bytes).map(|bytes| bytes as u64),
            peak_resident_bytes: runs.iter().filter_map(|run| run.peak_resident_bytes).max(),
            kinds: kinds.collect(),
        }
    }
}

impl Run {
    fn finished(&self) -> f64 {
        ((self.committed + self.rolled_back) as f64).max(1.0)
    }

    /// Of the time in which the workers wanted a processor, how much they had none: 0 to 1. Where
    /// it is much, the machine was busy with other work, and the throughput means little.
    pub fn starvation(&self) -> Option<f64> {
        let (running, waiting) = self.running_s.zip(self.waiting_s)?;
        (running > 0.0).then(|| waiting / (running + waiting))
    }

    /// Committed transactions for each second that a worker had a processor.
    pub fn committed_per_cpu_s(&self) -> Option<f64> {
        self.running_s.filter(|running| *running > 0.0).map(|s| self.committed as f64 / s)
    }

    /// The processor time in nanoseconds that the threads of a kind took for each committed transaction, and the part of it
    /// in the kernel.
    pub fn cost_ns(&self, time: &ProcessorTime) -> (f64, f64) {
        let committed = (self.committed as f64).max(1.0);
        (time.total_ns as f64 / committed, time.kernel_ns as f64 / committed)
    }

    /// The same of all threads of this process.
    pub fn total_cost_ns(&self) -> (f64, f64) {
        let costs = self.processor_times.iter().map(|time| self.cost_ns(time));
        costs.fold((0.0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1))
    }

    /// The number of attempts, whether they finished or met a conflict.
    pub fn attempts(&self) -> u64 {
        self.committed + self.rolled_back + self.conflicts
    }

    /// The part of all attempts that ended in a conflict: 0 to 1.
    pub fn conflict_rate(&self) -> f64 {
        self.conflicts as f64 / (self.attempts() as f64).max(1.0)
    }
}

impl Kind {
    fn finished(&self) -> f64 {
        (self.committed + self.rolled_back) as f64
    }
}

/// The median of sorted numbers.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) =
        (sorted.get(sorted.len().wrapping_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
    }

    #[test]
    fn curves_end_where_the_count_does() {
        let mut histogram = Histogram::new(3).unwrap();
        assert!(curve(&histogram).is_empty());
        assert!(Latency::of(&histogram).is_none());
        for latency in 1..=1000 {
            histogram.record(latency).unwrap();
        }
        let curve = curve(&histogram);
        assert_eq!(curve.first().unwrap().latency_ns, 1);
        assert!((curve.last().unwrap().quantile - 0.999).abs() < 1e-9);
        let latency = Latency::of(&histogram).unwrap();
        assert_eq!((latency.p10_ns, latency.p50_ns, latency.p95_ns), (100, 500, 950));
        assert_eq!((latency.p99_ns, latency.max_ns), (990, 1000));
    }
}
