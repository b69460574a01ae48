//! The index beside ordered concurrent maps from libraries: one run, rounds interleaved, medians.
//!
//! ```text
//! cargo bench -p shoal-store --features bare --bench index -- [--large] [--rounds N] [--only CASE] [--map NAME]
//! ```
//! Every map holds a pointer to a record on the heap, which reads follow. Two threads insert all keys
//! in random order, then look up keys drawn uniformly, keys drawn by Zipf's law, and scan 20 rows from
//! random keys on. What the maps answer is compared, too.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod keys;
mod maps;

use keys::{Batch, Keys, Queries};
use maps::{Map, Worker};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const THREADS: usize = 2;
/// Lookups of each kind, of a thread, in a round.
const LOOKUPS: usize = 500_000;
const SCANS: usize = 100_000;
const SCAN_ROWS: usize = 20;
const ZIPF_THETA: f64 = 0.99;

/// The operation that a measurement repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Insert,
    Get,
    ZipfGet,
    Scan,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Insert, Phase::Get, Phase::ZipfGet, Phase::Scan];

    fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Get => "get",
            Phase::ZipfGet => "zipf get",
            Phase::Scan => "scan of 20",
        }
    }
}

/// One set of keys with all that the threads do on it.
struct Case {
    name: &'static str,
    phases: &'static [Phase],
    /// By thread, as all that follow.
    inserts: Vec<Queries>,
    gets: Vec<Queries>,
    zipf_gets: Vec<Queries>,
    scans: Vec<Queries>,
}

impl Case {
    /// Keys inserted in random order, by all threads all over.
    fn random(name: &'static str, keys: &Keys) -> Case {
        let order = keys.shuffled();
        let share = order.len().div_ceil(THREADS);
        let drawn = |draw: &dyn Fn(u64) -> Queries| (0..THREADS as u64).map(draw).collect();
        Case {
            name,
            phases: &Phase::ALL,
            inserts: order.chunks(share).map(|share| keys.queries(share)).collect(),
            gets: drawn(&|seed| keys.uniform(LOOKUPS, seed)),
            zipf_gets: drawn(&|seed| keys.zipf(LOOKUPS, ZIPF_THETA, seed)),
            scans: drawn(&|seed| keys.uniform(SCANS, 100 + seed)),
        }
    }

    /// Keys inserted in their order, each thread in a part of its own.
    fn sequential(name: &'static str, keys: &Keys) -> Case {
        let order: Vec<u32> = (0..keys.len() as u32).collect();
        let share = order.len().div_ceil(THREADS);
        let inserts = order.chunks(share).map(|share| keys.queries(share)).collect();
        let none = Vec::new;
        let phases = &Phase::ALL[..1];
        Case { name, phases, inserts, gets: none(), zipf_gets: none(), scans: none() }
    }

    fn queries(&self, phase: Phase) -> &[Queries] {
        match phase {
            Phase::Insert => &self.inserts,
            Phase::Get => &self.gets,
            Phase::ZipfGet => &self.zipf_gets,
            Phase::Scan => &self.scans,
        }
    }
}

/// Millions of operations a second, and what they answered in sum.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    answer: u64,
}

fn run_phase<M: Map>(map: &M, case: &Case, phase: Phase) -> Measured {
    let start = Barrier::new(THREADS);
    let work = |queries: &Queries| {
        let mut worker = map.worker();
        start.wait();
        let began = Instant::now();
        let mut answer = 0u64;
        for batch in queries.batches() {
            answer = answer.wrapping_add(run_batch(&mut worker, &batch, phase));
        }
        (began.elapsed(), answer)
    };
    let done: Vec<(Duration, u64)> = thread::scope(|scope| {
        let threads: Vec<_> =
            case.queries(phase).iter().map(|queries| scope.spawn(|| work(queries))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let operations: usize = case.queries(phase).iter().map(Queries::len).sum();
    let slowest = done.iter().map(|(time, _)| *time).max().unwrap_or_default();
    let answer = done.iter().fold(0u64, |sum, (_, answer)| sum.wrapping_add(*answer));
    Measured { rate: operations as f64 / slowest.as_secs_f64() / 1e6, answer }
}

fn run_batch(worker: &mut impl Worker, batch: &Batch<'_>, phase: Phase) -> u64 {
    match phase {
        Phase::Insert => worker.insert(batch),
        Phase::Get | Phase::ZipfGet => worker.get(batch),
        Phase::Scan => worker.scan(batch, SCAN_ROWS),
    }
}

/// One round of one map: all phases on a fresh one.
fn run_round<M: Map>(case: &Case) -> Vec<Measured> {
    let map = M::empty();
    case.phases.iter().map(|phase| run_phase(&map, case, *phase)).collect()
}

/// A contestant: its name, and its round.
type Contestant = (&'static str, fn(&Case) -> Vec<Measured>);

const CONTESTANTS: &[Contestant] = &[
    ("shoal", run_round::<maps::Shoal>),
    ("artmap", run_round::<maps::Art>),
    ("scc TreeIndex", run_round::<maps::Tree>),
    ("crossbeam-skiplist", run_round::<maps::Skip>),
    ("RwLock<BTreeMap>", run_round::<maps::Locked>),
];

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn measure(case: &Case, contestants: &[Contestant], rounds: usize) {
    let mut all: Vec<Vec<Vec<Measured>>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            // Each begins a round in its turn.
            let place = (round + turn) % contestants.len();
            all[place].push(contestants[place].1(case));
        }
    }
    for (place, phase) in case.phases.iter().enumerate() {
        let answers = all.iter().flatten().map(|round| round[place].answer);
        assert!(answers.clone().all(|a| a == all[0][0][place].answer), "{} differ", phase.name());
    }
    let heads: Vec<_> =
        case.phases.iter().map(|phase| format!(" {:>10} |", phase.name())).collect();
    println!("\n| {:<38} |{}", case.name, heads.concat());
    println!("|{}|{}", "-".repeat(40), "-----------:|".repeat(case.phases.len()));
    for ((name, _), rounds) in contestants.iter().zip(&all) {
        let cells: Vec<String> = (0..case.phases.len())
            .map(|place| median(rounds.iter().map(|round| round[place].rate).collect()))
            .map(|rate| format!(" {rate:>10.2} |"))
            .collect();
        println!("| {name:<38} |{}", cells.concat());
    }
}

/// What the command line asks for.
struct Arguments {
    rounds: usize,
    large: bool,
    /// Only cases whose name has this in it.
    only: String,
    /// Only this one, for a profiler.
    map: Option<String>,
}

impl Arguments {
    fn read() -> Arguments {
        let mut arguments = Arguments { rounds: 5, large: false, only: String::new(), map: None };
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--large" => arguments.large = true,
                "--rounds" => {
                    let rounds = given.next().and_then(|rounds| rounds.parse().ok());
                    arguments.rounds = rounds.filter(|rounds| *rounds > 0).unwrap_or(1);
                }
                "--only" => arguments.only = given.next().unwrap_or_default(),
                "--map" => arguments.map = given.next(),
                // The argument with which cargo runs benchmarks.
                _ => {}
            }
        }
        arguments
    }
}

fn main() {
    const MILLION: usize = 1_000_000;
    type Make = fn(&'static str, usize) -> Case;
    let users: Make = |name, count| Case::random(name, &Keys::users(count));
    let composite: Make = |name, count| Case::random(name, &Keys::composite(count));
    let in_order: Make = |name, count| Case::sequential(name, &Keys::composite(count));
    let cases = [
        ("1 M user keys, 16-40 bytes", users, MILLION),
        ("1 M composite keys, 22 bytes", composite, MILLION),
        ("1 M composite keys, in order", in_order, MILLION),
        ("10 M user keys, 16-40 bytes", users, 10 * MILLION),
        ("10 M composite keys, 22 bytes", composite, 10 * MILLION),
    ];
    let arguments = Arguments::read();
    let is_asked = |name: &str| arguments.map.as_ref().is_none_or(|map| map == name);
    let contestants: Vec<Contestant> =
        CONTESTANTS.iter().copied().filter(|(name, _)| is_asked(name)).collect();
    println!(
        "millions of operations a second, {THREADS} threads, medians of {} rounds",
        arguments.rounds
    );
    for (name, make, count) in cases {
        if name.contains(&arguments.only) && (count <= MILLION || arguments.large) {
            measure(&make(name, count), &contestants, arguments.rounds);
        }
    }
}
