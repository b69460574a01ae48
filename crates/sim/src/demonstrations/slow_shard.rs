//! Which clients a shard delays that becomes slow: those that depend on it, and which others.
//!
//! Some nodes of one shard become ten times slower while clients go on. What touches that shard has to
//! wait for it. What does not touch it may still depend on it, by reading what a transaction of both
//! wrote and is not durable yet; with many keys that is rare.
//!
//! | slow | what happens |
//! |---|---|
//! | replicas | they replicate less than what is certified; the shard's watermark falls behind |
//! | leader, with room to spare | each step takes longer, and no queue forms |
//! | leader, overloaded | new work waits in a queue, for ever longer |
//!
//! The last is the hard one for `mako`: a transaction of the slow node that has drawn a clock on a quick
//! shard holds back the safe clock of the quick shard (rule M3) until its coordinator has heard of that
//! and decided. So a worker finishes before it begins: what delays others is a step or two of the slow
//! worker, and not its queue.

use super::latency::in_ms;
use super::rig::{Pace, Result, Rig, SHARDS, Setting, Shown};
use super::table::{Line, Table, Verdict};
use super::watched::Touched;
use super::{Orders, Promise, Size};
use crate::cpu::Cpu;
use std::rc::Rc;
use std::time::Duration;
use types::ShardId;
use workloads::report::words;

/// The one that becomes slow.
const SLOW: ShardId = ShardId(SHARDS - 1);

/// In hundredths of the time it should take.
const SLOWDOWN_PERCENT: u64 = 1000;

/// Between datacenters, there and back.
const FAR: Duration = Duration::from_millis(50);

/// What does not touch the slow shard may take so much longer than before: a step of the slow worker.
const fn tolerance(size: Size) -> Duration {
    match size {
        Size::Full => Duration::from_micros(500),
        // Records cost four times as much.
        Size::Small => Duration::from_millis(3),
    }
}

/// Which nodes of the shard become slow, and under which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    leader: bool,
    followers: bool,
    /// Otherwise a tenth of the clients.
    busy: bool,
}

const CASES: [Case; 3] = [
    Case { name: "replicas", leader: false, followers: true, busy: true },
    Case { name: "leader", leader: true, followers: true, busy: false },
    Case { name: "leader, overloaded", leader: true, followers: true, busy: true },
];

/// How large the demonstration is.
struct Measure {
    cpu: Cpu,
    clients: usize,
    keys: u32,
    span: Duration,
}

impl Measure {
    fn of(size: Size) -> Measure {
        let cpu =
            |operation_ns| Cpu { operation: Duration::from_nanos(operation_ns), ..Cpu::MEASURED };
        let (cpu, clients, keys, span) = match size {
            Size::Full => (cpu(2_500), 6_600, 200_000, Duration::from_millis(1500)),
            Size::Small => (cpu(10_000), 1_800, 20_000, Duration::from_millis(500)),
        };
        Measure { cpu, clients, keys, span }
    }
}

pub(super) fn table(orders: &Orders) -> Table {
    let Measure { cpu, clients, keys, .. } = Measure::of(orders.size);
    Table {
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

/// What an engine shows.
///
/// # Errors
/// Where the cluster did not work.
pub fn lines<E: Shown>(orders: &Orders, promise: Promise) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for case in CASES {
        lines.extend(measure::<E>(orders, promise, case)?);
    }
    Ok(lines)
}

fn measure<E: Shown>(orders: &Orders, promise: Promise, case: Case) -> Result<Vec<Line>> {
    let Measure { cpu, clients, keys, span } = Measure::of(orders.size);
    let open_max = E::OPEN_MAX[0];
    let seed = orders.seed;
    let setting =
        Setting { seed, shards: SHARDS, learners: 0, far: FAR, workers: 1, cpu, open_max };
    let tick = orders.tick(format!("{}, slow: {}", E::NAME, case.name));
    let classify = Rc::new(|touched: Touched| match touched.wrote {
        true => usize::from(touched.shards.has(SLOW)),
        false => 2,
    });
    let make = |catalog: &_| super::micro(catalog, SHARDS, keys, 10);
    let mut rig: Rig<E, _> = Rig::new(setting, make, classify, tick)?;
    let (clients, spans) = if case.busy { (clients, 1) } else { (clients / 10, 4) };
    rig.admit(clients, Pace::Thinking(Duration::from_millis(100)));
    rig.run(6 * FAR)?;
    rig.turn();
    rig.run(span * spans)?;
    // What begins now is told later, and counts for neither.
    rig.turn();
    rig.run(2 * FAR)?;
    rig.slow_down(SLOW, case.leader, case.followers, SLOWDOWN_PERCENT);
    rig.turn();
    rig.run(span * spans)?;
    rig.slow_down(SLOW, true, true, 100);
    rig.turn();
    rig.finish()?;
    let line = |class: usize| {
        let (before, during) = (rig.times(1, class), rig.times(3, class));
        let most = before.percentile(99.0) + tolerance(orders.size);
        let holds = during.count() > 0 && during.percentile(99.0) <= most;
        let (target, verdict) = match (promise, class) {
            (Promise::Mako, 0) => {
                (format!("p99 ≤ before + {:?}", tolerance(orders.size)), Verdict::of(holds))
            }
            _ => (String::new(), Verdict::Shown),
        };
        let touches = ["no", "yes"][class];
        let mut cells: Vec<String> = [E::NAME, case.name, touches].map(str::to_owned).into();
        for times in [before, during] {
            cells.push(words::count(times.count()));
            cells.extend([50.0, 99.0].map(|percent| in_ms(&times, percent)));
        }
        Line { cells, target, verdict }
    };
    Ok((0..2).map(line).collect())
}
