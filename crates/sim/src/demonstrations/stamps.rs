//! How large stamps are: those that keep all that a transaction depends on, and those that keep only
//! what is not durable yet.
//!
//! A version keeps the stamp of its writer, and so does every stream that the writer wrote to. In the
//! full form a stamp has an entry for every shard that the transaction depends on, directly or through
//! what it read, and nothing ever leaves it: sooner or later that is every shard. So clients warm up here
//! until every key has been written several times. The sparse form leaves out what is durable (Mako
//! §6.1), which constrains nothing any more.
//!
//! How much is durable depends on how often a key is written. Few keys and slow processors make it the
//! share that many keys and fast processors would have, and take less time to simulate.
//!
//! Virtual processors charge for operations and messages, and not for bytes. So rates and latencies
//! cannot tell the forms apart here: they show that both forms do the same work.

use super::latency::in_ms;
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::{ArrivalPace, EngineForm, RunResult, Setting, Shown, Testbed, limits};
use super::watched::Touched;
use super::{DemonstrationOptions, Promise, Size};
use crate::catalog::Catalog;
use crate::cpu::Cpu;
use shoal_workloads::placed::Placed;
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// Between datacenters, there and back.
const FAR: Duration = Duration::from_millis(50);

/// Of 100 transactions of the micro-benchmark, how many touch another shard.
const CROSS_PERCENT: [u32; 2] = [10, 50];

/// How large the demonstration is.
struct StampsSize {
    shards: &'static [u32],
    micro: StampsLoad,
    keys: u32,
    tpcc: StampsLoad,
    warehouses: u16,
    items: u32,
    customers: u16,
}

/// What is done to a cluster.
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

pub(super) fn table(orders: &DemonstrationOptions) -> ResultTable {
    let StampsSize { micro, keys, tpcc, warehouses, .. } = StampsSize::of(orders.size);
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

/// What an engine shows: a line for each form in which it can keep stamps.
///
/// # Errors
/// Where the cluster did not work.
pub fn lines<E: Shown>(
    orders: &DemonstrationOptions,
    _promise: Promise,
) -> RunResult<Vec<ResultLine>> {
    let measure = StampsSize::of(orders.size);
    let StampsSize { micro, keys, tpcc, warehouses, items, customers, .. } = measure;
    let mut lines = Vec::new();
    for cross_percent in CROSS_PERCENT {
        for shards in measure.shards {
            let make = |catalog: &Catalog| super::micro(catalog, *shards, keys, cross_percent);
            lines.extend(forms::<E, _>(orders, (*shards, micro), make)?);
        }
    }
    for shards in measure.shards {
        let make = |catalog: &Catalog| super::tpcc(catalog, *shards, warehouses, items, customers);
        lines.extend(forms::<E, _>(orders, (*shards, tpcc), make)?);
    }
    Ok(lines)
}

fn forms<E: Shown, W: Placed>(
    orders: &DemonstrationOptions,
    load: (u32, StampsLoad),
    make: impl Fn(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<Vec<ResultLine>> {
    let forms = E::STAMP_FORMS.iter();
    forms.map(|form| line::<E, W>(orders, load, *form, &make)).collect()
}

fn line<E: Shown, W: Placed>(
    orders: &DemonstrationOptions,
    (shards, load): (u32, StampsLoad),
    (form, configure): EngineForm<E>,
    make: &impl Fn(&Catalog) -> shoal_types::Result<W>,
) -> RunResult<ResultLine> {
    let cpu = Cpu { operation: load.operation, ..Cpu::MEASURED };
    let open_max = 2 * load.clients_of_shard;
    let setting =
        Setting { seed: orders.seed, shards, learners: 0, far: FAR, workers: 1, cpu, open_max };
    let options = configure(limits::<E>(&setting));
    let tick = orders.tick(format!("{form} stamps on {shards} shards"));
    let classify = Rc::new(|touched: Touched| usize::from(!touched.wrote));
    let mut testbed: Testbed<E, W> = Testbed::with_options(setting, options, make, classify, tick)?;
    testbed.admit(shards as usize * load.clients_of_shard, ArrivalPace::Eager);
    testbed.run(load.warm_up)?;
    testbed.turn();
    testbed.run(load.span)?;
    let counted = testbed.turn();
    // What was begun at last comes back as well.
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
