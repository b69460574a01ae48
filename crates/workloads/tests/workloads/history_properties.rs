//! The checker against executions whose verdict is known: serial ones are clean however the
//! clients' calls overlap, and what is changed in them afterwards is caught.

use crate::history_common::{OVERLAPPING, SPACING_NS, Shape, age_a_read, serial_execution};
use shoal_types::Random;
use shoal_workloads::history::generator::{Client, Generator, Parameters};
use shoal_workloads::history::{
    AnomalyKind, Attempt, History, Operation, Outcome, Report, Seen, check,
};
use shoal_workloads::model::Model;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing overlaps, so real time gives away the whole order.
const APART: Shape = Shape { reach_ns: SPACING_NS / 2 - 1, unknown_percent: 0, ..OVERLAPPING };

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
fn damaged_text_is_refused_or_judged_but_never_a_panic() {
    let history = History::new(serial_execution(&OVERLAPPING, 2)).expect("well formed");
    let mut text = Vec::new();
    history.write(&mut text).expect("memory takes everything");
    let mut random = Random::new(4);
    let (mut refused, mut judged) = (0, 0);
    for _ in 0..3000 {
        let mut damaged = text.clone();
        for _ in 0..1 + random.below(3) {
            let place = random.below(damaged.len() as u64) as usize;
            match random.below(3) {
                0 => damaged[place] = b"0123456789,\":[]{}x\n\xff"[random.below(20) as usize],
                1 => drop(damaged.remove(place)),
                _ => damaged.truncate(place.max(1)),
            }
        }
        match History::read(damaged.as_slice()) {
            Ok(history) => {
                check(&history);
                judged += 1;
            }
            Err(error) => {
                assert!(error.to_string().starts_with("line "), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && judged > 100, "{refused} refused, {judged} judged");
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
    let report = judge(attempts);
    assert!(report.is_clean(), "who starts early may take effect late: {report}");
}

/// An anomaly in an otherwise clean history.
#[derive(Debug, Clone, Copy)]
enum Planted {
    /// A register is overwritten at once, and its first value read at last: all transactions between
    /// are entangled with that.
    StaleRead,
    /// In the middle, three concurrent transactions whose order follows only from that of versions.
    VersionOrder,
}

fn execution_with(planted: Planted, transactions: u64) -> Vec<Attempt> {
    let shape = Shape { transactions, keys: 8, generation: 200, ..OVERLAPPING };
    let mut attempts = serial_execution(&shape, 5);
    let mut add = |start_ns, end_ns, operations| {
        let outcome = Outcome::Ok;
        attempts.push(Attempt { client: 9, start_ns, end_ns: Some(end_ns), outcome, operations });
    };
    let write = |key: &str, value| Operation::Write(key.to_owned(), value);
    let read = |key: &str, value| Operation::Read(key.to_owned(), Seen::Value(value));
    let end = (transactions + 10) * SPACING_NS;
    match planted {
        Planted::StaleRead => {
            add(1, 2, vec![write("x", 1)]);
            add(3, 4, vec![write("x", 2)]);
            add(end, end + 1, vec![read("x", 1)]);
        }
        Planted::VersionOrder => {
            let (start, end) = (end / 2, end / 2 + SPACING_NS);
            add(start, end, vec![write("x", 1), write("y", 1)]);
            add(start, end, vec![read("y", 1), write("x", 2), write("z", 1)]);
            add(start, end, vec![read("z", 1), read("x", 1)]);
        }
    }
    attempts
}

/// Work, not time: a history twice as long takes twice as much.
#[test]
fn one_anomaly_among_many_transactions_takes_work_in_proportion() {
    for (planted, kind) in [
        (Planted::StaleRead, AnomalyKind::GSingleRealtime),
        (Planted::VersionOrder, AnomalyKind::GSingle),
    ] {
        let steps = [5000, 10_000].map(|transactions| {
            let report = judge(execution_with(planted, transactions));
            assert_eq!(report.found.into_iter().collect::<Vec<_>>(), [(kind, 1)], "{planted:?}");
            assert!(report.steps < 2000 * report.attempts, "{planted:?}: {} steps", report.steps);
            report.steps
        });
        println!("{planted:?}: {steps:?}");
        assert!(steps[1] < 3 * steps[0], "{planted:?}: {steps:?}");
    }
}

/// Sizes for `cargo test --release -- --ignored --nocapture million`: prints how long each takes.
#[test]
#[ignore = "measures; run in the release profile"]
#[expect(clippy::disallowed_methods, reason = "it measures, with a real clock")]
fn a_million_transactions_with_one_anomaly_take_seconds() {
    for planted in [Planted::StaleRead, Planted::VersionOrder] {
        let attempts = execution_with(planted, 1_000_000);
        let mut text = Vec::new();
        let history = History::new(attempts).expect("well formed");
        history.write(&mut text).expect("memory takes everything");
        drop(history);
        let started = std::time::Instant::now();
        let history = History::read(text.as_slice()).expect("what was written");
        let read = started.elapsed();
        let report = check(&history);
        println!("{planted:?}: read in {read:?}, with the check {:?}", started.elapsed());
        println!("{} steps: {:?}", report.steps, report.found);
        assert_eq!(report.found.len(), 1, "{report}");
    }
    let attempts = execution_with(Planted::StaleRead, 1_000_000);
    let history = History::new(attempts[..1_000_000].to_vec()).expect("well formed");
    let started = std::time::Instant::now();
    let report = check(&history);
    println!("clean: judged in {:?}, {} steps", started.elapsed(), report.steps);
    assert!(report.is_clean(), "{report}");
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
    assert!(time("appends without reads", appends).is_clean());
    let writes = one_key(&|number| Operation::Write("x".into(), number));
    assert!(time("writes without reads", writes).is_clean());
    let backwards = one_key(&|number| match number % 2 {
        0 => Operation::Write("x".into(), number),
        _ => Operation::Read("x".into(), Seen::Value(99_999 - number)),
    });
    assert!(!time("reads of what is yet to be written", backwards).is_clean());
}
