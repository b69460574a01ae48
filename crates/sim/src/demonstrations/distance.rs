//! How the rate of certified transactions depends on the distance between datacenters.
//!
//! Clients keep the leaders' processors busy. `mako` certifies without waiting for replication, so a greater
//! distance means more open transactions and no lower rate. An engine that holds its locks until a remote
//! replica has answered certifies less the greater the distance is.

use super::latency::in_ms;
use super::latency_recorder::Times;
use super::options::{DemonstrationOptions, Promise, Size};
use super::placed;
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::{ArrivalPace, PeriodCounts, RunResult, SHARDS, Setting, Shown, Testbed};
use crate::cpu::Cpu;
use shoal_workloads::catalog::Catalog;
use shoal_workloads::placed::Placed;
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// Of 100 transactions of the micro-benchmark, how many touch another shard.
const CROSS_PERCENT: u32 = 10;

/// How much lower than without distance `mako`'s rate may be: it varies by this much in a short period with
/// few transactions, some of which meet conflicts.
const fn tolerance(size: Size) -> f64 {
    match size {
        Size::Full => 0.03,
        Size::Small => 0.05,
    }
}

/// The sizes of the demonstration.
struct DistanceSize {
    /// Round trips between datacenters, in milliseconds.
    distances_ms: &'static [u64],
    micro: DistanceLoad,
    keys: u32,
    tpcc: DistanceLoad,
    warehouses: u16,
    items: u32,
    customers: u16,
}

/// The variable that changes between the lines of the demonstration.
#[derive(Clone, Copy)]
struct DistanceLoad {
    operation: Duration,
    clients: usize,
    span: Duration,
}

impl DistanceLoad {
    fn cpu(self) -> Cpu {
        Cpu { operation: self.operation, ..Cpu::MEASURED }
    }
}

impl DistanceSize {
    fn of(size: Size) -> DistanceSize {
        let load = |operation, clients, span_ms| {
            let span = Duration::from_millis(span_ms);
            DistanceLoad { operation, clients, span }
        };
        match size {
            Size::Full => DistanceSize {
                distances_ms: &[0, 50, 150],
                micro: load(Cpu::MEASURED.operation, 190_000, 250),
                keys: 100_000,
                tpcc: load(Cpu::MEASURED.operation, 40_000, 250),
                warehouses: 32,
                items: 1_000,
                customers: 60,
            },
            // With a higher price of operations the same processors run fewer transactions, which takes less
            // time to simulate.
            Size::Small => DistanceSize {
                distances_ms: &[0, 150],
                micro: load(Duration::from_micros(4), 20_000, 100),
                keys: 20_000,
                tpcc: load(Duration::from_nanos(1500), 9_000, 450),
                warehouses: 32,
                items: 100,
                customers: 12,
            },
        }
    }
}

pub(super) fn table(options: &DemonstrationOptions) -> ResultTable {
    let DistanceSize { micro, keys, tpcc, warehouses, .. } = DistanceSize::of(options.size);
    let Cpu { event, message, .. } = Cpu::MEASURED;
    let (micro_clients, tpcc_clients) = (micro.clients as u64, tpcc.clients as u64);
    let notes = vec![
        format!(
            "As many clients for every distance and engine, who begin whenever the worker lets them: \
             {} for the micro-benchmark ({} keys on a shard, {CROSS_PERCENT} % of the transactions touch \
             another shard), {} for TPC-C ({warehouses} warehouses on a shard).",
            words::count(micro_clients),
            words::count(keys.into()),
            words::count(tpcc_clients),
        ),
        format!(
            "Prices: {event:?} an event, {message:?} a message, {:?} an operation ({:?} in TPC-C).",
            micro.operation, tpcc.operation
        ),
        "open ≤: transactions that a worker may have open; of several numbers tried, the one with the \
         most throughput. aborted: attempts that met a conflict. busy: how much of the time the leaders \
         worked; where that is 100 %, processors are the limit. p50, p99: from the first attempt on, of \
         transactions that write."
            .to_owned(),
    ];
    let heads = "engine|workload|distance|open ≤|certified/s|of 0 ms|committed/s|cross-shard|aborted|busy|p50|p99";
    ResultTable {
        title: "Throughput and the distance between datacenters",
        notes,
        heads: heads.split('|').collect(),
        words: 2,
        lines: Vec::new(),
    }
}

/// Measures an engine on both workloads.
///
/// # Errors
/// If the cluster did not work.
pub fn lines<E: Shown>(
    options: &DemonstrationOptions,
    promise: Promise,
) -> RunResult<Vec<ResultLine>> {
    let measure = DistanceSize::of(options.size);
    let DistanceSize { micro, keys, tpcc, warehouses, items, customers, .. } = measure;
    let make = |catalog: &Catalog| placed::micro(catalog, SHARDS, keys, CROSS_PERCENT);
    let mut lines = at_distances::<E, _>(options, promise, micro, make)?;
    let make = |catalog: &Catalog| placed::tpcc(catalog, SHARDS, warehouses, items, customers);
    lines.extend(at_distances::<E, _>(options, promise, tpcc, make)?);
    Ok(lines)
}

fn at_distances<E: Shown, W: Placed>(
    options: &DemonstrationOptions,
    promise: Promise,
    load: DistanceLoad,
    make: impl Fn(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<Vec<ResultLine>> {
    let mut lines = Vec::new();
    let mut first: Option<f64> = None;
    for distance_ms in DistanceSize::of(options.size).distances_ms {
        let candidates = match options.size {
            Size::Full => E::OPEN_MAX,
            Size::Small => &E::OPEN_MAX[..1],
        };
        let mut best: Option<DistanceMeasurement> = None;
        for open_max in candidates {
            let measured = measure::<E, W>(options, load, &make, *distance_ms, *open_max)?;
            let rate = measured.counted.certified_per_s;
            if best.as_ref().is_none_or(|best| rate > best.counted.certified_per_s) {
                best = Some(measured);
            }
        }
        let measured = best.expect("there is a candidate");
        let rate = measured.counted.certified_per_s;
        let part = rate / *first.get_or_insert(rate);
        let (target, verdict) = match promise {
            Promise::Targets if *distance_ms > 0 => {
                let least = 1.0 - tolerance(options.size);
                (format!("≥ {:.0} % of 0 ms", least * 100.0), TargetVerdict::of(part >= least))
            }
            Promise::Targets | Promise::Nothing => (String::new(), TargetVerdict::Shown),
        };
        let mut cells = vec![E::PROTOCOL.name().to_owned(), measured.workload.to_owned()];
        cells.extend([format!("{distance_ms} ms"), words::count(measured.open_max as u64)]);
        cells.extend(numbers(&measured.counted, part, &measured.times));
        lines.push(ResultLine { cells, target, verdict });
    }
    Ok(lines)
}

/// What was measured at one distance, with at most `open_max` open transactions on a worker.
struct DistanceMeasurement {
    workload: &'static str,
    open_max: usize,
    counted: PeriodCounts,
    times: Times,
}

fn measure<E: Shown, W: Placed>(
    options: &DemonstrationOptions,
    load: DistanceLoad,
    make: &impl Fn(&Catalog) -> shoal_types::Result<W>,
    distance_ms: u64,
    open_max: usize,
) -> RunResult<DistanceMeasurement> {
    let far = Duration::from_millis(distance_ms);
    let (seed, cpu) = (options.seed, load.cpu());
    let setting = Setting { seed, shards: SHARDS, learners: 0, far, workers: 1, cpu, open_max };
    let tick = options.tick(format!("throughput of {} at {distance_ms} ms", E::PROTOCOL.name()));
    let classify = Rc::new(|touched: super::watched::Touched| usize::from(!touched.wrote));
    let mut testbed: Testbed<E, W> = Testbed::new(setting, make, classify, tick)?;
    testbed.admit(load.clients, ArrivalPace::Eager);
    // Runs until the first transactions have completed, and longer.
    testbed.run(Duration::from_millis(100) + far * 5 / 2)?;
    testbed.turn();
    testbed.run(load.span)?;
    let counted = testbed.turn();
    // Runs until the last transactions have completed.
    testbed.run(far + far / 2)?;
    Ok(DistanceMeasurement {
        workload: testbed.name(),
        open_max,
        counted,
        times: testbed.times(1, 0),
    })
}

fn numbers(counted: &PeriodCounts, part: f64, times: &Times) -> [String; 8] {
    [
        words::rate(counted.certified_per_s),
        format!("{:.1} %", part * 100.0),
        words::rate(counted.committed_per_s),
        words::percent(counted.cross_part),
        words::percent(counted.abort_part),
        words::percent(counted.busy_part),
        in_ms(times, 50.0),
        in_ms(times, 99.0),
    ]
}
