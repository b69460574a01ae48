//! The checker against executions whose verdict is known: serial ones are clean whatever the
//! clients' calls overlap, and what is changed in them afterwards is caught.

use shoal_workloads::history::generator::{Client, Generator, Parameters};
use shoal_workloads::history::{
    AnomalyKind, Attempt, History, Operation, Outcome, Report, Seen, check,
};
use shoal_workloads::model::Model;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use types::Random;

/// Time between two transactions' taking effect.
const SPACING_NS: u64 = 100;

/// A random serial execution.
struct Shape {
    transactions: u64,
    /// Lists, and as many registers, of one generation of keys.
    keys: u64,
    /// Transactions on one generation.
    generation: u64,
    /// How far a transaction's call and answer may lie from the instant it takes effect.
    reach_ns: u64,
    /// Of a hundred transactions, how many abort, and how many end in an unknown outcome.
    aborted_percent: u64,
    unknown_percent: u64,
}

const OVERLAPPING: Shape = Shape {
    transactions: 120,
    keys: 3,
    generation: 40,
    reach_ns: 5 * SPACING_NS,
    aborted_percent: 10,
    unknown_percent: 10,
};

/// Nothing overlaps, so real time gives away the whole order.
const APART: Shape = Shape { reach_ns: SPACING_NS / 2 - 1, unknown_percent: 0, ..OVERLAPPING };

#[derive(Default)]
struct State {
    lists: BTreeMap<String, Vec<u64>>,
    registers: BTreeMap<String, u64>,
}

fn serial_execution(shape: &Shape, seed: u64) -> Vec<Attempt> {
    let mut random = Random::new(seed);
    let mut state = State::default();
    let mut next_value = 0;
    let mut attempts = Vec::new();
    for number in 0..shape.transactions {
        if number % shape.generation == 0 {
            state = State::default();
        }
        let luck = random.below(100);
        let aborted = luck < shape.aborted_percent;
        let unknown = !aborted && luck < shape.aborted_percent + shape.unknown_percent;
        let undo = aborted || (unknown && random.below(2) == 0);
        let before = undo.then(|| (state.lists.clone(), state.registers.clone()));
        let operations = (0..1 + random.below(4))
            .map(|_| operate(&mut state, &mut random, &mut next_value, shape, number))
            .collect();
        if let Some((lists, registers)) = before {
            state = State { lists, registers };
        }
        let instant = (number + 10) * SPACING_NS;
        attempts.push(Attempt {
            client: random.below(8),
            start_ns: instant - random.below(shape.reach_ns + 1),
            end_ns: (!unknown).then(|| instant + random.below(shape.reach_ns + 1)),
            outcome: match (aborted, unknown) {
                (true, _) => Outcome::Aborted,
                (false, true) => Outcome::Unknown,
                (false, false) => Outcome::Ok,
            },
            operations,
        });
    }
    attempts
}

fn operate(
    state: &mut State,
    random: &mut Random,
    next_value: &mut u64,
    shape: &Shape,
    number: u64,
) -> Operation {
    let key = format!("{}-{}", number / shape.generation, random.below(shape.keys));
    *next_value += 1;
    match random.below(4) {
        0 => {
            state.lists.entry(format!("l{key}")).or_default().push(*next_value);
            Operation::Append(format!("l{key}"), *next_value)
        }
        1 => {
            state.registers.insert(format!("r{key}"), *next_value);
            Operation::Write(format!("r{key}"), *next_value)
        }
        2 => {
            let key = format!("l{key}");
            let seen = state.lists.get(&key).cloned().map_or(Seen::Absent, Seen::List);
            Operation::Read(key, seen)
        }
        _ => {
            let key = format!("r{key}");
            let seen = state.registers.get(&key).map_or(Seen::Absent, |value| Seen::Value(*value));
            Operation::Read(key, seen)
        }
    }
}

fn judge(attempts: Vec<Attempt>) -> Report {
    check(&History::new(attempts).expect("well formed"))
}

#[test]
fn serial_executions_are_clean_however_the_calls_overlap() {
    for seed in 0..300 {
        let reach_ns = [0, SPACING_NS / 2 - 1, 3 * SPACING_NS, 9 * SPACING_NS][seed as usize % 4];
        let report = judge(serial_execution(&Shape { reach_ns, ..OVERLAPPING }, seed));
        assert!(report.is_clean(), "seed {seed}: {report}");
    }
}

/// Makes one read of a committed transaction return what it might have returned earlier.
fn age_a_read(attempts: &mut [Attempt], random: &mut Random) -> bool {
    let mut written: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut reads = Vec::new();
    for (number, attempt) in attempts.iter().enumerate().filter(|(_, a)| a.outcome == Outcome::Ok) {
        for (place, operation) in attempt.operations.iter().enumerate() {
            match operation {
                Operation::Write(key, value) => {
                    written.entry(key.clone()).or_default().push(*value);
                }
                Operation::Read(key, Seen::Value(value)) => {
                    let older = written.get(key).into_iter().flatten().copied();
                    let older = older.take_while(|v| v != value).map(Seen::Value);
                    let choices: Vec<Seen> = older.chain([Seen::Absent]).collect();
                    let choice = random.below(choices.len() as u64) as usize;
                    reads.push((number, place, key.clone(), choices[choice].clone()));
                }
                Operation::Read(key, Seen::List(elements)) if !elements.is_empty() => {
                    let length = random.below(elements.len() as u64) as usize;
                    let older = Seen::List(elements[..length].to_vec());
                    reads.push((number, place, key.clone(), older));
                }
                Operation::Append(..) | Operation::Read(..) => {}
            }
        }
    }
    if reads.is_empty() {
        return false;
    }
    let chosen = random.below(reads.len() as u64) as usize;
    let (number, place, key, seen) = reads.swap_remove(chosen);
    attempts[number].operations[place] = Operation::Read(key, seen);
    true
}

#[test]
fn without_overlap_every_aged_read_is_caught() {
    for seed in 0..300 {
        let mut attempts = serial_execution(&APART, seed);
        if age_a_read(&mut attempts, &mut Random::new(!seed)) {
            let report = judge(attempts);
            assert!(!report.is_clean(), "seed {seed}: {report}");
        }
    }
}

#[test]
fn with_overlap_most_aged_reads_are_caught() {
    let (mut aged, mut caught) = (0, 0);
    for seed in 0..300 {
        let mut attempts = serial_execution(&OVERLAPPING, seed);
        if age_a_read(&mut attempts, &mut Random::new(!seed)) {
            aged += 1;
            caught += u32::from(!judge(attempts).is_clean());
        }
    }
    assert!(aged > 250 && caught * 10 > aged * 8, "{caught} caught of {aged}");
}

#[test]
fn two_elements_swapped_in_a_read_are_caught() {
    for seed in 0..100 {
        let mut attempts = serial_execution(&OVERLAPPING, seed);
        let lists = attempts.iter_mut().filter(|attempt| attempt.outcome == Outcome::Ok).flat_map(
            |attempt| {
                attempt.operations.iter_mut().filter_map(|operation| match operation {
                    Operation::Read(_, Seen::List(elements)) if elements.len() > 1 => {
                        Some(elements)
                    }
                    _ => None,
                })
            },
        );
        if let Some(elements) = lists.last() {
            elements.swap(0, 1);
            let report = judge(attempts);
            assert!(!report.is_clean(), "seed {seed}: {report}");
        }
    }
}

#[test]
fn reads_of_what_aborted_are_caught() {
    let mut dirty = 0;
    for seed in 0..100 {
        let mut attempts = serial_execution(&OVERLAPPING, seed);
        for attempt in attempts.iter_mut().filter(|attempt| attempt.outcome == Outcome::Ok) {
            if attempt.operations.iter().any(writes) {
                attempt.outcome = Outcome::Aborted;
            }
        }
        dirty += u32::from(judge(attempts).found.contains_key(&AnomalyKind::G1a));
    }
    assert!(dirty > 90, "only {dirty} of 100");
}

fn writes(operation: &Operation) -> bool {
    matches!(operation, Operation::Append(..) | Operation::Write(..))
}

fn sees(operation: &Operation) -> bool {
    matches!(operation, Operation::Read(_, Seen::List(_) | Seen::Value(_)))
}

#[test]
fn a_transaction_moved_before_what_it_saw_is_a_realtime_violation() {
    let mut violations = 0;
    for seed in 0..100 {
        let mut attempts = serial_execution(&APART, seed);
        // The last committed reader of something, called and answered before anything happened.
        let reads = |attempt: &Attempt| {
            let operations = &attempt.operations;
            attempt.outcome == Outcome::Ok
                && operations.iter().any(sees)
                && !operations.iter().any(writes)
        };
        let Some(reader) = attempts.iter_mut().rfind(|attempt| reads(attempt)) else { continue };
        (reader.start_ns, reader.end_ns) = (0, Some(1));
        let report = judge(attempts);
        let kinds: Vec<AnomalyKind> = report.found.into_keys().collect();
        assert_eq!(kinds, [AnomalyKind::G1cRealtime], "seed {seed}");
        violations += 1;
    }
    assert!(violations > 90, "only {violations} seeds had a reader to move");
}

#[test]
fn a_history_survives_being_written_and_read() {
    let history = History::new(serial_execution(&OVERLAPPING, 1)).expect("well formed");
    let mut text = Vec::new();
    history.write(&mut text).expect("memory takes everything");
    let again = History::read(text.as_slice()).expect("what was written");
    assert_eq!(again.attempts(), history.attempts());
    assert_eq!(check(&again), check(&history));
}

#[test]
fn generated_clients_on_a_serial_database_make_clean_histories() {
    let db = Model::new();
    let clock = AtomicU64::new(0);
    let parameters = Parameters { scans_percent: 20, ..Parameters::default() };
    let generator = Generator::new(&db, parameters, 4).expect("two tables");
    let run = |number| {
        let mut client: Client = generator.client(number, 7);
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        for _ in 0..500 {
            let next = client.next(&db, &tick);
            futures_executor::block_on(next).expect("a serial database refuses nothing");
        }
        client.into_recorder()
    };
    let recorders: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let history = History::merge(recorders).expect("well formed");
    let report = check(&history);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.committed, 2000);
    assert!(report.edges.wr > 200 && report.edges.rw > 200, "too little contact: {report}");

    let mut attempts = history.attempts().to_vec();
    assert!(age_a_read(&mut attempts, &mut Random::new(3)));
    assert!(!judge(attempts).is_clean(), "an aged read passed");
}

#[test]
fn twenty_thousand_transactions_are_checked_at_once() {
    let shape = Shape { transactions: 20_000, keys: 8, generation: 200, ..OVERLAPPING };
    let mut attempts = serial_execution(&shape, 5);
    let report = judge(attempts.clone());
    assert!(report.is_clean(), "{report}");
    attempts.iter_mut().for_each(|attempt| attempt.start_ns = attempt.start_ns.min(1000));
    assert!(judge(attempts).is_clean(), "who starts early may take effect late");
}

/// Sizes for `cargo test --release -- --ignored`: prints how long each takes.
#[test]
#[ignore = "measures; run in the release profile"]
#[expect(clippy::disallowed_methods, reason = "it measures, with a real clock")]
fn a_hundred_thousand_transactions_take_seconds() {
    let shape = Shape { transactions: 100_000, keys: 8, generation: 200, ..OVERLAPPING };
    let started = std::time::Instant::now();
    let mut attempts = serial_execution(&shape, 5);
    println!("made in {:?}", started.elapsed());
    let time = |what: &str, attempts: Vec<Attempt>| {
        let started = std::time::Instant::now();
        let history = History::new(attempts).expect("well formed");
        let indexed = started.elapsed();
        let report = check(&history);
        println!("{what}: indexed in {indexed:?}, with the check {:?}", started.elapsed());
        println!("{}", report.to_string().lines().take(3).collect::<Vec<_>>().join("\n"));
        report
    };
    assert!(time("clean", attempts.clone()).is_clean());
    let mut random = Random::new(9);
    let mut age = |reads: usize| {
        for _ in 0..reads {
            let from = random.below(99_900) as usize;
            age_a_read(&mut attempts[from..from + 100], &mut random);
        }
        attempts.clone()
    };
    assert!(!time("with a thousand aged reads", age(1000)).is_clean());
    assert!(!time("with most reads aged", age(50_000)).is_clean());

    let one_key = |operation: &dyn Fn(u64) -> Operation| {
        let attempt = |number| Attempt {
            client: 0,
            start_ns: number,
            end_ns: Some(number + 50),
            outcome: Outcome::Ok,
            operations: vec![operation(number)],
        };
        (0..100_000).map(attempt).collect::<Vec<_>>()
    };
    let appends = one_key(&|number| Operation::Append("x".into(), number));
    assert!(time("appends nobody reads", appends).is_clean());
    let writes = one_key(&|number| Operation::Write("x".into(), number));
    assert!(time("writes nobody reads", writes).is_clean());
    let backwards = one_key(&|number| match number % 2 {
        0 => Operation::Write("x".into(), number),
        _ => Operation::Read("x".into(), Seen::Value(99_999 - number)),
    });
    assert!(!time("reads of what is yet to be written", backwards).is_clean());
}
