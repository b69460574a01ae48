//! The bench runs a workload on the model and counts what it did.

use shoal_workloads::bench::measurement::LatencyFrom;
use shoal_workloads::bench::{self, BenchSettings, Build, Measurement, Stage, Threads};
use shoal_workloads::micro::Micro;
use shoal_workloads::model::Model;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const BUILD: Build =
    Build { version: "0", profile: "debug", allocator: "system", target: Cow::Borrowed("model") };

fn settings() -> BenchSettings {
    BenchSettings {
        workers: 2,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(150),
        rate_per_s: None,
        seed: 1,
        runs: 1,
        check: true,
        reserved_bytes: 0,
    }
}

fn small() -> shoal_types::Result<(Threads<Model>, Arc<Micro>)> {
    let db = Model::new();
    let micro = Micro::new(&db, 100)?;
    Ok((Threads(db), Arc::new(micro)))
}

fn run(settings: &BenchSettings) -> Measurement {
    bench::run(settings, BUILD, small, &mut |_| ()).unwrap()
}

#[test]
fn a_closed_loop() {
    let mut stages = Vec::new();
    let mut progress = |at: bench::BenchProgress| {
        assert!(at.done <= at.of);
        stages.push((at.run, at.stage));
    };
    let settings = BenchSettings { runs: 2, ..settings() };
    let measurement = bench::run(&settings, BUILD, small, &mut progress).unwrap();
    for run in 0..2 {
        for stage in [Stage::WarmingUp, Stage::Measuring, Stage::Checking] {
            assert!(stages.contains(&(run, stage)), "{stage:?} of run {run} was not reported");
        }
    }
    assert!(measurement.passed());
    assert_eq!(measurement.runs.len(), 2);
    let run = &measurement.runs[1];
    assert_eq!((run.seed, run.loaded_rows, run.checks.len()), (2, 100, 3));
    assert!(run.committed > 0 && run.rolled_back == 0 && run.given_up == 0);
    assert_eq!(run.committed, run.kinds.iter().map(|kind| kind.committed).sum::<u64>());
    assert!(run.kinds.iter().all(|kind| kind.latency.is_some() && !kind.curve.is_empty()));
    let in_intervals: f64 = run
        .timeline
        .iter()
        .scan(0.0, |start, at| Some((at.end_s - std::mem::replace(start, at.end_s), at)))
        .map(|(seconds, at)| seconds * at.committed_per_s)
        .sum();
    let committed = run.committed as f64;
    assert!((in_intervals / committed - 1.0).abs() < 0.2, "{in_intervals} of {committed}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let settings = BenchSettings {
        rate_per_s: Some(1000.0),
        duration: Duration::from_millis(300),
        ..settings()
    };
    let measurement = run(&settings);
    assert_eq!(measurement.load.latency_from, LatencyFrom::Schedule);
    let run = &measurement.runs[0];
    // On a busy machine it may fall behind, but then it reports that.
    let (due, expected) = ((run.committed + run.overdue) as f64, 1000.0 * run.measured_s);
    assert!((due - expected).abs() < 100.0, "{due} transactions were due, {expected} expected");
}

#[test]
fn an_open_loop_that_cannot_keep_up_says_so() {
    let measurement = run(&BenchSettings { rate_per_s: Some(1e9), ..settings() });
    let run = &measurement.runs[0];
    assert!(run.overdue > 1_000_000);
    let slowest = run.kinds[0].latency.unwrap().max_ns;
    assert!(slowest > 50_000_000, "waiting counts as latency, but the slowest took {slowest} ns");
}

#[test]
fn a_broken_database_is_a_failure_and_ends_at_once() {
    // Loading meets a database without the table.
    let broken = || Ok((Threads(Model::new()), small()?.1));
    let settings = BenchSettings { duration: Duration::from_secs(3600), ..settings() };
    let failure = bench::run(&settings, BUILD, broken, &mut |_| ()).unwrap_err();
    assert!(failure.to_string().starts_with("while loading: rejected: t0"), "{failure}");
}
