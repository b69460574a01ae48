//! Which clients a slow shard delays: those that depend on it, and which others.
//!
//! Some nodes of one shard become ten times slower while clients go on. A transaction that touches that shard
//! has to wait for it. One that does not may still depend on it, by reading a version of a transaction on
//! both shards that is not durable yet; with many keys that is rare.
//!
//! | slow | what happens |
//! |---|---|
//! | replicas | they replicate less than what is certified; the shard's watermark falls behind |
//! | leader, with room to spare | each step takes longer, and no queue forms |
//! | leader, overloaded | new work waits in a growing queue |
//!
//! The last case is the hard one for `mako`: a transaction of the slow node that has drawn a clock on a fast
//! shard holds back the safe clock of the fast shard (rule M3) until its coordinator has received that clock
//! and decided. So a worker finishes open transactions before it begins new ones: then other shards wait for
//! a step or two of the slow worker, and not for its queue.

use super::latency::in_ms;
use super::options::{DemonstrationOptions, Promise, Size};
use super::placed;
use super::table::{ResultLine, ResultTable, TargetVerdict};
use super::testbed::{ArrivalPace, RunResult, SHARDS, Setting, Shown, Testbed};
use super::watched::Touched;
use crate::cpu::Cpu;
use shoal_types::ShardId;
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// The shard that becomes slow.
const SLOW: ShardId = ShardId(SHARDS - 1);

/// The time that the slow nodes need, in percent of the usual time.
const SLOWDOWN_PERCENT: u64 = 1000;

/// The round trip between any two datacenters.
const FAR: Duration = Duration::from_millis(50);

/// How much longer than before a transaction may take that does not touch the slow shard: a step of the slow
/// worker.
const fn tolerance(size: Size) -> Duration {
    match size {
        Size::Full => Duration::from_micros(500),
        // The price of an operation is four times as high.
        Size::Small => Duration::from_millis(3),
    }
}

/// The nodes of the shard that become slow, and the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlowCase {
    name: &'static str,
    leader: bool,
    followers: bool,
    /// Whether all clients run; otherwise a tenth of them.
    busy: bool,
}

const CASES: [SlowCase; 3] = [
    SlowCase { name: "replicas", leader: false, followers: true, busy: true },
    SlowCase { name: "leader", leader: true, followers: true, busy: false },
    SlowCase { name: "leader, overloaded", leader: true, followers: true, busy: true },
];

/// The sizes of the demonstration.
struct SlowShardSize {
    cpu: Cpu,
    clients: usize,
    keys: u32,
    span: Duration,
}

impl SlowShardSize {
    fn of(size: Size) -> SlowShardSize {
        let cpu =
            |operation_ns| Cpu { operation: Duration::from_nanos(operation_ns), ..Cpu::MEASURED };
        let (cpu, clients, keys, span) = match size {
            Size::Full => (cpu(2_500), 6_600, 200_000, Duration::from_millis(1500)),
            Size::Small => (cpu(10_000), 1_800, 20_000, Duration::from_millis(500)),
        };
        SlowShardSize { cpu, clients, keys, span }
    }
}

pub(super) fn table(options: &DemonstrationOptions) -> ResultTable {
    let SlowShardSize { cpu, clients, keys, .. } = SlowShardSize::of(options.size);
    ResultTable {
        title: "A shard that becomes slow",
        notes: vec![
            format!(
                "{} clients of the micro-benchmark ({} keys on a shard, 10 % of the transactions touch \
                 another shard) pause up to 100 ms after every transaction, which keeps leaders half \
                 busy; a tenth of them where the leader is slow and not overloaded. Then nodes of \
                 {SLOW} become 10 times slower. Transactions that write; by whether they touch {SLOW}.",
                words::count(clients as u64),
                words::count(keys.into()),
            ),
            format!(
                "Prices: {:?} an event, {:?} a message, {:?} an operation, so that records outweigh \
                 everything else. {} ms between datacenters.",
                cpu.event,
                cpu.message,
                cpu.operation,
                FAR.as_millis()
            ),
        ],
        heads: vec![
            "engine",
            "slow",
            "touches it",
            "before: how many",
            "p50",
            "p99",
            "during: how many",
            "p50",
            "p99",
        ],
        words: 3,
        lines: Vec::new(),
    }
}

/// Measures an engine in each of the cases.
///
/// # Errors
/// If the cluster did not work.
pub fn lines<E: Shown>(
    options: &DemonstrationOptions,
    promise: Promise,
) -> RunResult<Vec<ResultLine>> {
    let mut lines = Vec::new();
    for case in CASES {
        lines.extend(measure::<E>(options, promise, case)?);
    }
    Ok(lines)
}

fn measure<E: Shown>(
    options: &DemonstrationOptions,
    promise: Promise,
    case: SlowCase,
) -> RunResult<Vec<ResultLine>> {
    let SlowShardSize { cpu, clients, keys, span } = SlowShardSize::of(options.size);
    let open_max = E::OPEN_MAX[0];
    let seed = options.seed;
    let setting =
        Setting { seed, shards: SHARDS, learners: 0, far: FAR, workers: 1, cpu, open_max };
    let tick = options.tick(format!("{}, slow: {}", E::PROTOCOL.name(), case.name));
    let classify = Rc::new(|touched: Touched| match touched.wrote {
        true => usize::from(touched.shards.has(SLOW)),
        false => 2,
    });
    let make = |catalog: &_| placed::micro(catalog, SHARDS, keys, 10);
    let mut testbed: Testbed<E, _> = Testbed::new(setting, make, classify, tick)?;
    let (clients, spans) = if case.busy { (clients, 1) } else { (clients / 10, 4) };
    testbed.admit(clients, ArrivalPace::Thinking(Duration::from_millis(100)));
    testbed.run(6 * FAR)?;
    testbed.turn();
    testbed.run(span * spans)?;
    // Transactions that begin before the next period are acknowledged later, and count for neither period.
    testbed.turn();
    testbed.run(2 * FAR)?;
    testbed.slow_down(SLOW, case.leader, case.followers, SLOWDOWN_PERCENT);
    testbed.turn();
    testbed.run(span * spans)?;
    testbed.slow_down(SLOW, true, true, 100);
    testbed.turn();
    testbed.finish()?;
    let line = |class: usize| {
        let (before, during) = (testbed.times(1, class), testbed.times(3, class));
        let most = before.percentile(99.0) + tolerance(options.size);
        let holds = during.count() > 0 && during.percentile(99.0) <= most;
        let (target, verdict) = match (promise, class) {
            (Promise::Targets, 0) => {
                (format!("p99 ≤ before + {:?}", tolerance(options.size)), TargetVerdict::of(holds))
            }
            _ => (String::new(), TargetVerdict::Shown),
        };
        let touches = ["no", "yes"][class];
        let mut cells: Vec<String> =
            [E::PROTOCOL.name(), case.name, touches].map(str::to_owned).into();
        for times in [before, during] {
            cells.push(words::count(times.count()));
            cells.extend([50.0, 99.0].map(|percent| in_ms(&times, percent)));
        }
        ResultLine { cells, target, verdict }
    };
    Ok((0..2).map(line).collect())
}
