//! Commit latency under light load: of a transaction on one shard, and of one on several.
//!
//! A commit needs one round trip to the nearest other datacenter, independent of local processing; waiting
//! for a batch, messages between leaders, and the watermark come on top.

use super::latency_recorder::Times;
use super::options::{DemonstrationOptions, Promise, Size};
use super::placed;
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::{ArrivalPace, RunResult, SHARDS, Setting, Shown, Testbed};
use super::watched::Touched;
use crate::cpu::Cpu;
use shoal_workloads::catalog::Catalog;
use shoal_workloads::placed::Placed;
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// The round trip between any two datacenters.
const FAR: Duration = Duration::from_millis(50);

/// Classes of transactions, and what each may take on top of a round trip, where there is a target.
const CLASSES: [(&str, Option<Duration>); 3] = [
    ("writes one shard", Some(Duration::from_millis(1))),
    ("writes, several", Some(Duration::from_millis(2))),
    ("only reads", None),
];

fn classify(touched: Touched) -> usize {
    match (touched.wrote, touched.shards.len() > 1) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    }
}

pub(super) fn table(_orders: &DemonstrationOptions) -> ResultTable {
    ResultTable {
        title: "Commit latency under light load",
        notes: vec![format!(
            "Three datacenters, {} ms there and back between them, 0.1 ms within; 3 shards × 3 voters, \
             leaders and clients in the first. 4 clients on each worker pause up to 100 ms after every \
             transaction; of those of the micro-benchmark half touch another shard. What only reads, and \
             only what is durable, waits for nothing.",
            FAR.as_millis()
        )],
        heads: vec!["engine", "workload", "transaction", "how many", "p50", "p99", "max"],
        words: 3,
        lines: Vec::new(),
    }
}

/// Measures an engine on the workloads.
///
/// # Errors
/// If the cluster did not work.
pub fn lines<E: Shown>(
    options: &DemonstrationOptions,
    promise: Promise,
) -> RunResult<Vec<ResultLine>> {
    let mut lines =
        measure::<E, _>(options, promise, |catalog| placed::micro(catalog, SHARDS, 10_000, 50))?;
    lines.extend(measure::<E, _>(options, promise, |catalog| {
        placed::tpcc(catalog, SHARDS, 4, 200, 30)
    })?);
    Ok(lines)
}

fn measure<E: Shown, W: Placed>(
    options: &DemonstrationOptions,
    promise: Promise,
    make: impl FnOnce(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<Vec<ResultLine>> {
    let span = Duration::from_secs(match options.size {
        Size::Full => 60,
        Size::Small => 3,
    });
    let open_max = E::OPEN_MAX[0];
    let (seed, cpu) = (options.seed, Cpu::MEASURED);
    let setting =
        Setting { seed, shards: SHARDS, learners: 0, far: FAR, workers: 2, cpu, open_max };
    let tick = options.tick(format!("latency of {}", E::PROTOCOL.name()));
    let mut testbed: Testbed<E, W> = Testbed::new(setting, make, Rc::new(classify), tick)?;
    testbed.admit(24, ArrivalPace::Thinking(Duration::from_millis(100)));
    testbed.run(10 * FAR)?;
    testbed.turn();
    testbed.run(span)?;
    testbed.turn();
    testbed.finish()?;
    let line = |class: usize| {
        let (what, allowed) = CLASSES[class];
        let times = testbed.times(1, class);
        let (target, verdict) = match (promise, allowed) {
            (Promise::Targets, Some(allowed)) => {
                let most = FAR + allowed;
                let holds = times.count() > 0 && times.percentile(50.0) <= most;
                (format!("p50 ≤ {} ms", most.as_millis()), TargetVerdict::of(holds))
            }
            (Promise::Targets | Promise::Nothing, _) => (String::new(), TargetVerdict::Shown),
        };
        let mut cells: Vec<String> =
            [E::PROTOCOL.name(), testbed.name(), what].map(str::to_owned).into();
        cells.push(words::count(times.count()));
        cells.extend([50.0, 99.0, 100.0].map(|percent| in_ms(&times, percent)));
        ResultLine { cells, target, verdict }
    };
    Ok((0..CLASSES.len()).map(line).collect())
}

/// A percentile of the latencies, in milliseconds.
pub(super) fn in_ms(times: &Times, percent: f64) -> String {
    if times.count() == 0 {
        return "–".to_owned();
    }
    format!("{:.2} ms", times.percentile(percent).as_secs_f64() * 1e3)
}
