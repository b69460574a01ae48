//! How large stamps are: in the full form, which keeps all that a transaction depends on, and in the sparse
//! form, which keeps only what is not durable yet.
//!
//! A version keeps the stamp of its writer, and so does every stream that the writer wrote to. In the full
//! form a stamp has an entry for every shard that the transaction depends on, directly or through what it
//! read, and no entry is ever dropped: in the end every shard has one. So clients warm up until every key has
//! been written several times. The sparse form leaves out durable entries (Mako §6.1), which no longer
//! constrain anything.
//!
//! The share of durable versions depends on how often a key is written. Few keys and slow processors give the
//! same share as many keys and fast processors, and take less time to simulate.
//!
//! Virtual processors charge for operations and messages, and not for bytes. So rates and latencies cannot
//! distinguish the forms: they show that both forms do the same work.

use super::latency::in_ms;
use super::options::{DemonstrationOptions, Promise, Size};
use super::placed;
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::{ArrivalPace, EngineForm, RunResult, Setting, Shown, Testbed, limits};
use super::watched::Touched;
use crate::cpu::Cpu;
use shoal_workloads::catalog::Catalog;
use shoal_workloads::placed::Placed;
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// The round trip between any two datacenters.
const FAR: Duration = Duration::from_millis(50);

/// Percentages of transactions of the micro-benchmark that touch another shard.
const CROSS_PERCENT: [u32; 2] = [10, 50];

/// The sizes of the demonstration.
struct StampsSize {
    shards: &'static [u32],
    micro: StampsLoad,
    keys: u32,
    tpcc: StampsLoad,
    warehouses: u16,
    items: u32,
    customers: u16,
}

/// The variable that changes between the lines of the demonstration.
#[derive(Clone, Copy)]
struct StampsLoad {
    operation: Duration,
    clients_of_shard: usize,
    warm_up: Duration,
    span: Duration,
}

impl StampsSize {
    fn of(size: Size) -> StampsSize {
        let load = |operation_ns, clients_of_shard, warm_up_ms, span_ms| StampsLoad {
            operation: Duration::from_nanos(operation_ns),
            clients_of_shard,
            warm_up: Duration::from_millis(warm_up_ms),
            span: Duration::from_millis(span_ms),
        };
        match size {
            Size::Full => StampsSize {
                shards: &[3, 12],
                micro: load(20_000, 500, 6_000, 1_000),
                keys: 20_000,
                tpcc: load(1_000, 1_500, 300, 200),
                warehouses: 16,
                items: 300,
                customers: 30,
            },
            Size::Small => StampsSize {
                shards: &[10],
                micro: load(100_000, 100, 1_500, 500),
                keys: 1_000,
                tpcc: load(20_000, 80, 200, 100),
                warehouses: 2,
                items: 50,
                customers: 6,
            },
        }
    }
}

pub(super) fn table(options: &DemonstrationOptions) -> ResultTable {
    let StampsSize { micro, keys, tpcc, warehouses, .. } = StampsSize::of(options.size);
    let Cpu { event, message, .. } = Cpu::MEASURED;
    let notes = vec![
        format!(
            "{} ms between datacenters. On each shard {} clients of the micro-benchmark ({} keys), or {} \
             of TPC-C ({warehouses} warehouses), begin whenever the worker lets them. Prices: {event:?} \
             an event, {message:?} a message, {:?} an operation ({:?} in TPC-C). Bytes cost nothing \
             here, so rates and latencies say nothing of the forms.",
            FAR.as_millis(),
            words::count(micro.clients_of_shard as u64),
            words::count(keys.into()),
            words::count(tpcc.clients_of_shard as u64),
            micro.operation,
            tpcc.operation,
        ),
        "cross-shard: of the transactions that wrote, those that wrote several shards. entries: for \
         other shards, in a stamp as versions keep it. bytes: in all streams together, for each \
         transaction that wrote; an entry takes 12. p50: of transactions that write."
            .to_owned(),
    ];
    ResultTable {
        title: "Stamps in full, and sparse",
        notes,
        heads: "form|workload|shards|cross-shard|entries|bytes|certified/s|p50"
            .split('|')
            .collect(),
        words: 2,
        lines: Vec::new(),
    }
}

/// Measures an engine: a line for each form in which it can keep stamps.
///
/// # Errors
/// If the cluster did not work.
pub fn lines<E: Shown>(
    options: &DemonstrationOptions,
    _promise: Promise,
) -> RunResult<Vec<ResultLine>> {
    let measure = StampsSize::of(options.size);
    let StampsSize { micro, keys, tpcc, warehouses, items, customers, .. } = measure;
    let mut lines = Vec::new();
    for cross_percent in CROSS_PERCENT {
        for shards in measure.shards {
            let make = |catalog: &Catalog| placed::micro(catalog, *shards, keys, cross_percent);
            lines.extend(forms::<E, _>(options, *shards, micro, make)?);
        }
    }
    for shards in measure.shards {
        let make = |catalog: &Catalog| placed::tpcc(catalog, *shards, warehouses, items, customers);
        lines.extend(forms::<E, _>(options, *shards, tpcc, make)?);
    }
    Ok(lines)
}

fn forms<E: Shown, W: Placed>(
    options: &DemonstrationOptions,
    shards: u32,
    load: StampsLoad,
    make: impl Fn(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<Vec<ResultLine>> {
    let forms = E::STAMP_FORMS.iter();
    forms.map(|form| line::<E, W>(options, shards, load, *form, &make)).collect()
}

fn line<E: Shown, W: Placed>(
    options: &DemonstrationOptions,
    shards: u32,
    load: StampsLoad,
    (form, configure): EngineForm<E>,
    make: &impl Fn(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<ResultLine> {
    let cpu = Cpu { operation: load.operation, ..Cpu::MEASURED };
    let open_max = 2 * load.clients_of_shard;
    let setting =
        Setting { seed: options.seed, shards, learners: 0, far: FAR, workers: 1, cpu, open_max };
    let engine_options = configure(limits::<E>(&setting));
    let tick = options.tick(format!("{form} stamps on {shards} shards"));
    let classify = Rc::new(|touched: Touched| usize::from(!touched.wrote));
    let mut testbed: Testbed<E, W> =
        Testbed::with_options(setting, engine_options, make, classify, tick)?;
    testbed.admit(shards as usize * load.clients_of_shard, ArrivalPace::Eager);
    testbed.run(load.warm_up)?;
    testbed.turn();
    testbed.run(load.span)?;
    let counted = testbed.turn();
    // Runs until the last transactions have completed.
    testbed.run(2 * FAR)?;
    let times = testbed.times(1, 0);
    let mut cells = vec![form.to_owned(), testbed.name().to_owned(), shards.to_string()];
    cells.extend([
        words::percent(counted.wrote_cross_part),
        format!("{:.2}", counted.stamp_remotes),
        format!("{:.1}", counted.bytes_each),
        words::rate(counted.certified_per_s),
        in_ms(&times, 50.0),
    ]);
    Ok(ResultLine { cells, target: String::new(), verdict: TargetVerdict::Shown })
}
