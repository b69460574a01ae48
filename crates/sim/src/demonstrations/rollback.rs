//! How much is rolled back when one shard fails.
//!
//! With a clock for each shard only transactions that depend on the failed shard are lost. With one timestamp
//! for all shards, or with groups that commit as one, all transactions certified since the failure are.

use super::options::{DemonstrationOptions, Size};
use super::outage::{self, FAILED, FAR, GROUPS, MAKO, OutagePlan, SHARDS, TIMESTAMP};
use super::record::{FailureRecord, Fates, RecoveryStep};
use super::results::{DemonstrationResults, ResultPlot};
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::RunResult;
use crate::cpu::Cpu;
use shoal_workloads::report::words;
use std::time::Duration;

/// Percentages of clients whose transactions touch another shard.
const CROSS_PERCENT: [u32; 5] = [0, 10, 25, 50, 100];

fn plan(size: Size, cross_percent: u32) -> OutagePlan {
    let cpu = |operation_ns| Cpu { operation: Duration::from_nanos(operation_ns), ..Cpu::MEASURED };
    let (cpu, clients, keys) = match size {
        Size::Full => (cpu(2_500), 10_000, 400_000),
        Size::Small => (cpu(10_000), 800, 20_000),
    };
    OutagePlan {
        cpu,
        clients,
        keys,
        cross_percent,
        pause: Duration::from_millis(100),
        warm_up: Duration::from_millis(300),
        before: Duration::from_millis(200),
        after: Duration::from_millis(1_300),
    }
}

/// The parts that were rolled back: of transactions certified in the outage, and of those in flight at the
/// failure.
#[derive(Debug, Clone, Copy)]
struct RolledBackParts {
    certified: f64,
    in_flight: f64,
}

impl RolledBackParts {
    fn of(fates: Fates) -> RolledBackParts {
        let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        RolledBackParts {
            certified: part(fates.certified_rolled, fates.certified),
            in_flight: part(fates.in_flight_rolled, fates.in_flight),
        }
    }
}

/// Runs the demonstration.
///
/// # Errors
/// If a cluster did not work.
pub(super) fn show(options: &DemonstrationOptions) -> RunResult<DemonstrationResults> {
    let mut table = table(options);
    let cases = [MAKO, TIMESTAMP, GROUPS];
    let mut series = vec![Vec::new(); cases.len()];
    for cross_percent in CROSS_PERCENT {
        let mut found = Vec::new();
        for case in cases {
            let what = format!("rollback, {}, {cross_percent} % cross-shard", case.name);
            let record = outage::run(options, plan(options.size, cross_percent), &what, case)?;
            found.push((case.name, record));
        }
        let parts: Vec<RolledBackParts> =
            found.iter().map(|(_, record)| RolledBackParts::of(record.fates())).collect();
        let least = parts[1..].iter().map(|it| it.certified).fold(1.0, f64::min);
        for (at, (name, record)) in found.iter().enumerate() {
            let limit = (at == 0).then_some(least);
            table.lines.push(line(name, cross_percent, record, parts[at], limit));
            series[at].push((f64::from(cross_percent), 100.0 * parts[at].certified));
        }
    }
    let names = cases.map(|case| case.name.to_owned()).into();
    Ok(DemonstrationResults { tables: vec![table], plots: vec![plot(names, series)] })
}

fn table(options: &DemonstrationOptions) -> ResultTable {
    let OutagePlan { clients, keys, .. } = plan(options.size, 0);
    ResultTable {
        title: "What is rolled back when a shard fails",
        notes: vec![format!(
            "{SHARDS} shards, {} ms between datacenters, {} clients of the micro-benchmark ({} keys \
             on a shard); the given share of them always touch one other shard. The leader of {FAILED} \
             crashes for good. Certified: by all other coordinators, from the failure until {FAILED} \
             serves again. In flight: certified by them before the failure and told to no client by then. \
             What the dead leader had certified and told to no client is in neither: no client is told of it. \
             Left hanging: healthy shards on which the dead leader had drawn a clock and not resolved it; \
             what was certified there since is lost, too.",
            FAR.as_millis(),
            words::count(clients as u64),
            words::count(keys.into()),
        )],
        heads: vec![
            "stamps",
            "cross-shard",
            "certified",
            "rolled back",
            "share",
            "in flight",
            "rolled back",
            "share",
            "out for",
            "left hanging",
        ],
        words: 1,
        lines: Vec::new(),
    }
}

/// A line of the table. `limit` is the part that another form rolls back: the target is to roll back less.
fn line(
    name: &str,
    percent: u32,
    record: &FailureRecord,
    parts: RolledBackParts,
    limit: Option<f64>,
) -> ResultLine {
    let fates = record.fates();
    let out = record.step(RecoveryStep::Serves);
    let cells = vec![
        name.to_owned(),
        format!("{percent} %"),
        words::count(fates.certified),
        words::count(fates.certified_rolled),
        words::percent(parts.certified),
        words::count(fates.in_flight),
        words::count(fates.in_flight_rolled),
        words::percent(parts.in_flight),
        out.map_or("ever".to_owned(), |it| format!("{} ms", it.as_millis())),
        format!("on {} of {}", record.hung(), SHARDS - 1),
    ];
    let (target, verdict) = match limit {
        Some(least) => (
            format!("share < {}", words::percent(least)),
            TargetVerdict::of(parts.certified < least),
        ),
        None => (String::new(), TargetVerdict::Shown),
    };
    ResultLine { cells, target, verdict }
}

fn plot(names: Vec<String>, series: Vec<Vec<(f64, f64)>>) -> ResultPlot {
    ResultPlot {
        title: "Rolled back, by the share of cross-shard clients".to_owned(),
        lead: format!(
            "Of what healthy shards certified from the failure until {FAILED} served again, in percent."
        ),
        names,
        series,
        marks: Vec::new(),
        x: "%",
        y: "%",
    }
}
