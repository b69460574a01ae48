//! What the failure of one shard does to it and to the others (Mako, §7.6 and figure 13).
//!
//! The leader of a shard crashes for good while clients go on. Its lease runs out, another replica is
//! appointed, and the epoch ends. Meanwhile healthy shards certify and acknowledge transactions as before.
//! Only those that touch the failed shard wait, and those that have read from these, which are few where
//! there are many keys.
//!
//! Two other forms of stamps are shown beside it, as the paper shows *Mako-epoch*: one timestamp for all
//! shards, and groups that commit as one. With these no transaction that was certified after the failure can
//! be acknowledged, on any shard, and all of them are rolled back.

use super::options::{DemonstrationOptions, Size};
use super::outage::{
    self, FAILED, FAR, FAR_SUCCESSOR, GROUPS, MAKO, OutageCase, OutagePlan, SHARDS, TIMESTAMP,
};
use super::record::{BUCKET, FailureRecord, RecoveryStep, TransactionClass};
use super::results::{DemonstrationResults, ResultPlot};
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::RunResult;
use crate::cpu::Cpu;
use shoal_types::Time;
use shoal_workloads::report::words;
use std::time::Duration;

/// Throughput is judged over windows of this length.
const WINDOW: Duration = Duration::from_millis(100);

/// The part of their throughput that healthy shards keep through the outage.
const KEPT: f64 = 0.95;

/// The number of failures that are shown, each from a seed of its own.
const fn times(size: Size) -> u64 {
    match size {
        Size::Full => 8,
        Size::Small => 2,
    }
}

/// The failed shard serves again within this time.
const SERVES_WITHIN: Duration = Duration::from_secs(1);

fn plan(size: Size) -> OutagePlan {
    let cpu = |operation_ns| Cpu { operation: Duration::from_nanos(operation_ns), ..Cpu::MEASURED };
    let (cpu, clients, keys) = match size {
        Size::Full => (cpu(2_500), 10_000, 400_000),
        Size::Small => (cpu(10_000), 1_600, 40_000),
    };
    let (warm_up, before, after) = match size {
        Size::Full => (500, 2_000, 3_000),
        Size::Small => (300, 500, 1_500),
    };
    OutagePlan {
        cpu,
        clients,
        keys,
        cross_percent: 10,
        pause: Duration::from_millis(100),
        warm_up: Duration::from_millis(warm_up),
        before: Duration::from_millis(before),
        after: Duration::from_millis(after),
    }
}

/// Runs the demonstration.
///
/// # Errors
/// If a cluster did not work.
pub(super) fn show(options: &DemonstrationOptions) -> RunResult<DemonstrationResults> {
    let plan = plan(options.size);
    let mut results = DemonstrationResults {
        tables: vec![throughput_table(&plan), steps_table(), again_table()],
        plots: Vec::new(),
    };
    for case in [MAKO, FAR_SUCCESSOR, TIMESTAMP, GROUPS] {
        let OutageCase { name, .. } = case;
        let record = outage::run(options, plan, &format!("failure, {name}"), case)?;
        let is_mako = case.form == MAKO.form;
        let course = FailureCourse { plan: &plan, record: &record, is_mako };
        let [throughput, steps, again] = &mut results.tables[..] else {
            unreachable!("three tables")
        };
        throughput.lines.extend(TransactionClass::ALL.map(|class| course.throughput(name, class)));
        steps.lines.push(course.steps(name));
        if name == MAKO.name {
            again.lines.push(course.again(options.seed));
        }
        results.plots.push(course.plot(name));
    }
    for seed in options.seed + 1..options.seed + times(options.size) {
        let options = DemonstrationOptions { seed, ..options.clone() };
        let record = outage::run(&options, plan, &format!("failure, seed {seed}"), MAKO)?;
        let course = FailureCourse { plan: &plan, record: &record, is_mako: true };
        results.tables[2].lines.push(course.again(seed));
    }
    Ok(results)
}

fn throughput_table(plan: &OutagePlan) -> ResultTable {
    ResultTable {
        title: "A shard that fails: transactions told a second",
        notes: vec![format!(
            "{SHARDS} shards, {} ms between datacenters, {} clients of the micro-benchmark ({} keys \
             on a shard; {} % of the clients always touch one other shard), which pause up to {} ms after \
             every transaction. The leader of {FAILED} crashes for good. Managers and engine have their \
             default options. The outage lasts until {FAILED} tells a transaction that began after the \
             failure. Worst: the worst {} ms in it, and the part of the rate before that it is.",
            FAR.as_millis(),
            words::count(plan.clients as u64),
            words::count(plan.keys.into()),
            plan.cross_percent,
            plan.pause.as_millis(),
            WINDOW.as_millis(),
        )],
        heads: vec!["stamps", "touches", "before", "outage", "kept", "worst", "kept", "after"],
        words: 2,
        lines: Vec::new(),
    }
}

fn steps_table() -> ResultTable {
    let heads =
        std::iter::once("ms after the failure").chain(RecoveryStep::ALL.map(RecoveryStep::name));
    let heads = heads.chain(["left hanging"]);
    ResultTable {
        title: "A shard that fails: its recovery",
        notes: vec![
            "Lease out: the managers take the leader for dead. Appointed: they have chosen another \
             replica, and the next epoch begins. Prepared: it has all that the dead leader may have told. \
             End durable: its last word on the old epoch is reported. FVW: the managers know that of all \
             shards. Settled: the new leader knows what counts of the old epoch. Serves: it has replayed \
             that. First commit: of a transaction on the shard that began after the failure. Left hanging: healthy shards on which the dead leader had \
             drawn a clock for a transaction and not resolved it; the watermark of such a shard stands \
             still until its leader has had the epoch ended (rule M3)."
                .to_owned(),
            "Far successor: without learners a follower takes over, in another datacenter. From there it \
             holds the clocks that it draws on other shards for a round trip between datacenters, which \
             delays those shards from then on."
                .to_owned(),
        ],
        heads: heads.collect(),
        words: 1,
        lines: Vec::new(),
    }
}

fn again_table() -> ResultTable {
    ResultTable {
        title: "A shard that fails, at other moments",
        notes: vec![
            "The same failure of mako, each from a seed of its own: what is told on healthy shards. \
             Whether something is left hanging is chance: it takes a transaction of the dead leader \
             that was between its clock and its end. A shard on which it is stands still until its \
             leader has not learned the dead one for a while, has had the epoch ended for that, and has \
             that end durable: what it certified meanwhile is lost."
                .to_owned(),
        ],
        heads: vec!["seed", "left hanging", "kept", "kept at worst", "first commit"],
        words: 0,
        lines: Vec::new(),
    }
}

/// Acknowledged transactions per second, before, during and after the failure.
#[derive(Debug, Clone, Copy)]
struct FailureRates {
    usual: f64,
    outage: f64,
    worst: f64,
    later: f64,
}

impl FailureRates {
    /// The rates as parts of the usual rate.
    fn part(self, rate: f64) -> f64 {
        rate / self.usual.max(1.0)
    }
}

/// The record of one run, with one form of stamps.
struct FailureCourse<'a> {
    plan: &'a OutagePlan,
    record: &'a FailureRecord,
    is_mako: bool,
}

impl FailureCourse<'_> {
    /// When the outage ended; the end of the run, if it never did.
    fn end(&self) -> Time {
        self.record.failed_at()
            + self.record.step(RecoveryStep::FirstCommit).unwrap_or(self.plan.after)
    }

    /// The rate of acknowledged transactions, on average and in the worst window.
    fn rates(&self, class: TransactionClass, from: Time, until: Time) -> (f64, f64) {
        let buckets = self.record.buckets(class, from, until);
        let per_s = |count: u64, buckets: usize| {
            count as f64 / (buckets.max(1) as f64 * BUCKET.as_secs_f64())
        };
        let wide = (WINDOW.as_nanos() / BUCKET.as_nanos()) as usize;
        let worst = buckets.windows(wide.min(buckets.len()).max(1)).map(|it| it.iter().sum());
        let worst = worst.min().unwrap_or(0);
        (per_s(buckets.iter().sum(), buckets.len()), per_s(worst, wide))
    }

    /// The rate before the failure, in the outage, in its worst window, and after it.
    fn phases(&self, class: TransactionClass) -> FailureRates {
        let OutagePlan { before, after, .. } = *self.plan;
        let (failed, served) = (self.record.failed_at(), self.end());
        let began = Time(failed.0 - before.as_nanos() as u64);
        let (usual, _) = self.rates(class, began, failed);
        let (outage, worst) = self.rates(class, failed, served);
        let (later, _) = self.rates(class, served, failed + after);
        FailureRates { usual, outage, worst, later }
    }

    /// Whether healthy shards keep the required part of their throughput.
    fn keeps(phases: FailureRates) -> (String, TargetVerdict) {
        let holds = phases.part(phases.outage) >= KEPT;
        (format!("≥ {:.0} %", KEPT * 100.0), TargetVerdict::of(holds))
    }

    fn throughput(&self, name: &str, class: TransactionClass) -> ResultLine {
        let phases = self.phases(class);
        let FailureRates { usual, outage, worst, later } = phases;
        let touches = match class {
            TransactionClass::Healthy => "healthy shards".to_owned(),
            TransactionClass::Failed => FAILED.to_string(),
            TransactionClass::Across => format!("{FAILED} and another"),
        };
        let cells = vec![
            name.to_owned(),
            touches,
            words::rate(usual),
            words::rate(outage),
            words::percent(phases.part(outage)),
            words::rate(worst),
            words::percent(phases.part(worst)),
            words::rate(later),
        ];
        let (target, verdict) = match (class, self.is_mako) {
            (TransactionClass::Healthy, true) => FailureCourse::keeps(phases),
            (TransactionClass::Healthy, false) => {
                ("worst 0 %".to_owned(), TargetVerdict::of(worst == 0.0))
            }
            (TransactionClass::Failed | TransactionClass::Across, _) => {
                (String::new(), TargetVerdict::Shown)
            }
        };
        ResultLine { cells, target, verdict }
    }

    fn steps(&self, name: &str) -> ResultLine {
        let in_ms = |step| {
            let after = self.record.step(step);
            after.map_or("never".to_owned(), |it| format!("{:.0}", it.as_secs_f64() * 1e3))
        };
        let cells = std::iter::once(name.to_owned()).chain(RecoveryStep::ALL.map(in_ms));
        let hung = format!("on {} of {}", self.record.hung(), SHARDS - 1);
        let cells = cells.chain([hung]).collect();
        let told = self.record.step(RecoveryStep::FirstCommit);
        let (target, verdict) = match self.is_mako {
            true => (
                format!("≤ {} ms", SERVES_WITHIN.as_millis()),
                TargetVerdict::of(told.is_some_and(|it| it <= SERVES_WITHIN)),
            ),
            false => (String::new(), TargetVerdict::Shown),
        };
        ResultLine { cells, target, verdict }
    }

    fn again(&self, seed: u64) -> ResultLine {
        let phases = self.phases(TransactionClass::Healthy);
        let told = self.record.step(RecoveryStep::FirstCommit);
        let cells = vec![
            seed.to_string(),
            format!("on {} of {}", self.record.hung(), SHARDS - 1),
            words::percent(phases.part(phases.outage)),
            words::percent(phases.part(phases.worst)),
            told.map_or("never".to_owned(), |it| format!("{} ms", it.as_millis())),
        ];
        let (target, verdict) = FailureCourse::keeps(phases);
        ResultLine { cells, target, verdict }
    }

    fn plot(&self, name: &str) -> ResultPlot {
        let OutagePlan { before, after, .. } = *self.plan;
        let failed = self.record.failed_at();
        let began = Time(failed.0 - before.as_nanos() as u64);
        let series = |class| {
            let buckets = self.record.buckets(class, began, failed + after);
            let at = |index: usize| (index as f64 + 0.5) * BUCKET.as_secs_f64();
            let points = buckets.iter().enumerate().map(|(index, count)| {
                (at(index) - before.as_secs_f64(), *count as f64 / BUCKET.as_secs_f64())
            });
            points.collect()
        };
        ResultPlot {
            title: format!("Throughput over time: {name}"),
            lead: format!(
                "Transactions told a second, over {} ms each. The leader of {FAILED} crashes at 0; the \
                 second line is where {FAILED} tells the first transaction that began after that.",
                BUCKET.as_millis()
            ),
            names: vec![
                "on healthy shards only".to_owned(),
                format!("on {FAILED} only"),
                format!("on {FAILED} and another"),
            ],
            series: TransactionClass::ALL.map(series).into(),
            marks: vec![0.0, (self.end() - failed).as_secs_f64()],
            x: "s",
            y: "",
        }
    }
}
