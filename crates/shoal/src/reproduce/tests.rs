//! What is published is what the paper says, and stands where it belongs.

use super::experiment::{
    Chart, Experiment, ExperimentRow, Percentile, Published, PublishedNumber, Quantity,
};
use super::run::On;
use super::{Budget, ExperimentOutcome, Measured};
use shoal_workloads::bench::measurement::{
    Build, FORMAT, Interval, Kind, KindSummary, Latency, LatencyFrom, Load, RegionResult, Run,
    Summary, Throughput,
};
use shoal_workloads::bench::{Machine, Measurement};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Every transaction takes so long.
fn latency(ms: u64) -> Latency {
    let ns = ms * 1_000_000;
    Latency {
        mean_ns: ns,
        p10_ns: ns,
        p50_ns: ns,
        p90_ns: ns,
        p95_ns: ns,
        p99_ns: ns,
        p99_9_ns: ns,
        max_ns: ns,
    }
}

/// One run of several.
fn run(committed_per_s: f64, p50_ms: u64) -> Run {
    let per_s = committed_per_s;
    Run {
        seed: 1,
        loaded_rows: 0,
        load_s: 0.0,
        loaded_bytes: None,
        peak_resident_bytes: None,
        measured_s: 1.0,
        committed: committed_per_s as u64,
        rolled_back: 0,
        conflicts: 0,
        given_up: 0,
        cut: 0,
        unknown: 0,
        overdue: 0,
        running_s: None,
        waiting_s: None,
        processor_times: Vec::new(),
        counted: BTreeMap::new(),
        stages: Vec::new(),
        throughput: Throughput {
            mean_per_s: per_s,
            median_per_s: per_s,
            min_per_s: per_s,
            max_per_s: per_s,
        },
        kinds: vec![Kind {
            name: "read-modify-write",
            committed: committed_per_s as u64,
            rolled_back: 0,
            conflicts: 0,
            running_s: None,
            latency: Some(latency(p50_ms)),
            curve: Vec::new(),
        }],
        regions: Vec::new(),
        timeline: Vec::new(),
        checks: Vec::new(),
    }
}

/// What would have come out of a run that commits so much.
fn measurement(committed_per_s: f64, p50_ms: u64) -> Measurement {
    let latency = latency(p50_ms);
    let kind = |name| KindSummary { name, share: 0.5, latency: Some(latency) };
    Measurement {
        format: FORMAT,
        started_at: "2026-01-31 12:00 UTC".into(),
        build: Build {
            version: "1",
            profile: "optimized",
            allocator: "one",
            target: "here".into(),
        },
        machine: Machine::read(),
        workload: "any",
        parameters: Vec::new(),
        load: Load {
            workers: 1,
            warm_up_s: 0.0,
            duration_s: 1.0,
            rate_per_s: None,
            latency_from: LatencyFrom::Start,
            seed: 1,
            runs: 1,
            reserved_bytes: 0,
        },
        summary: Summary {
            committed_per_s,
            committed_per_s_min: committed_per_s,
            committed_per_s_max: committed_per_s,
            committed_per_cpu_s: Some(committed_per_s),
            conflict_rate: 0.25,
            committed: committed_per_s as u64,
            rolled_back: 0,
            conflicts: 0,
            loaded_rows: 0,
            load_s: 0.0,
            loaded_bytes: None,
            peak_resident_bytes: None,
            kinds: vec![kind("new-order"), kind("read-modify-write")],
            regions: Vec::new(),
        },
        runs: Vec::new(),
    }
}

/// The time of an experiment whose runs are measured for so long, so often.
fn budget(duration_s: u64, times: u16) -> Budget {
    let (warm_up, duration) = (Duration::from_secs(1), Duration::from_secs(duration_s));
    Budget { warm_up, duration, times, seed: 1 }
}

/// The outcome of an experiment whose runs commit so much, one after the other, and then the last of these.
fn outcome(measured: Measured, committed: &[f64], p50_ms: u64) -> ExperimentOutcome {
    let experiment = measured.experiment();
    let all = committed.iter().chain(std::iter::repeat(&committed[committed.len() - 1]));
    let measured = all.take(experiment.runs.len()).map(|per_s| Ok(measurement(*per_s, p50_ms)));
    let measured = measured.collect();
    ExperimentOutcome::measured(experiment, measured, 1)
}

fn rows(experiment: &Experiment) -> impl Iterator<Item = &ExperimentRow> {
    let curves = experiment.charts.iter().flat_map(|chart: &Chart| &chart.curves);
    curves.flat_map(|curve| &curve.rows)
}

/// The line of a text that begins so, without its blanks.
#[track_caller]
fn line(text: &str, start: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = text.lines().map(words).find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line begins with {start}:\n{text}"))
}

#[test]
fn every_run_stands_in_a_row_and_every_row_says_something() {
    let mut names = BTreeSet::new();
    for experiment in Measured::ALL.map(Measured::experiment) {
        let name = experiment.about.name;
        assert!(names.insert(name), "{name} is there twice");
        let shown: BTreeSet<usize> = rows(&experiment).filter_map(|row| row.run).collect();
        assert_eq!(shown, (0..experiment.runs.len()).collect(), "{name}");
        assert!(rows(&experiment).all(ExperimentRow::is_there), "{name} has a row of nothing");
        assert!(experiment.about.scaled.iter().all(|sentence| sentence.ends_with('.')), "{name}");
        for curve in experiment.charts.iter().flat_map(|chart| &chart.curves) {
            let is_ours = curve.rows.iter().any(|row| row.run.is_some());
            let is_compared = curve.rows[curve.base].run.is_some();
            assert!(is_compared || !is_ours, "{name}: nothing to compare with");
        }
    }
}

#[test]
fn numbers_of_the_paper_agree_with_what_it_says_of_them() {
    let published = |measured: Measured| -> Vec<f64> {
        let experiment = measured.experiment();
        let numbers = rows(&experiment).flat_map(|row| &row.published);
        let throughput = numbers.filter(|it| it.quantity == Quantity::Throughput);
        throughput
            .map(
                |Published {
                     number: PublishedNumber::Absolute(it) | PublishedNumber::Relative(it),
                     ..
                 }| *it,
            )
            .collect()
    };
    let falls = |from: f64, to: f64| 100.0 * (1.0 - to / from);
    let [none, all] = published(Measured::Figure9)[..] else { panic!("two shares") };
    assert!((falls(none, all) - 98.2).abs() < 0.1, "98.2 % less where all leave their shard");
    let [silo, versions, distributed, replicated, replayed] = published(Measured::Factors)[..]
    else {
        panic!("five factors")
    };
    assert!((falls(silo, versions) - 11.1).abs() < 0.5);
    assert!((falls(versions, distributed) - 68.1).abs() < 0.5);
    // Its table is rounded to two digits.
    assert!((falls(distributed, replicated) - 22.5).abs() < 1.5);
    assert_eq!(replicated, replayed);
    assert_eq!(published(Measured::Figure6), [0.96e6, 3.66e6, 16.7e6]);
    assert_eq!(published(Measured::Figure7), [1.0, 1.158]);
    assert_eq!(published(Measured::Figure12), [0.0; 0]);
}

#[test]
fn ours_stands_beside_the_papers_and_is_judged_where_something_was_promised() {
    let text = outcome(Measured::Figure9, &[1000.0, 900.0, 700.0, 400.0, 200.0, 120.0], 51).text();
    let first = line(&text, "0 %");
    assert!(first.starts_with("0 % 1,000 1.00 × 60,300,000 1.00 ×"), "{first}");
    let last = line(&text, "100 %");
    assert!(last.starts_with("100 % 120 0.12 × 1,100,000 0.018 ×"), "{last}");
    assert!(last.ends_with("relative ≥ 0.10 × met"), "{last}");
    assert_eq!(line(&text, "50 %"), "50 % 400 0.40 × – – 400 0.40 × 51.0 ms");
    assert!(text.ends_with("every target was met\n"), "{text}");
    let text = outcome(Measured::Figure9, &[1000.0, 90.0], 51).text();
    assert!(line(&text, "100 %").ends_with("MISSED") && text.contains("a target was missed"));
}

#[test]
fn rows_of_the_paper_stand_below_ours_where_there_are_none_to_compare() {
    let text = outcome(Measured::Figure8, &[100.0], 51).text();
    let ours = line(&text, "mako, 1 shard");
    assert!(ours.ends_with("p50 ≤ 52.0 ms, p99 ≤ 60.0 ms met"), "{ours}");
    let papers = line(&text, "the paper: Calvin");
    assert_eq!(papers, "the paper: Calvin 146 ms 166 ms 202 ms 206 ms 212 ms");
    let text = outcome(Measured::Figure8, &[100.0], 53).text();
    assert!(line(&text, "mako, 1 shard").ends_with("MISSED"));
    assert!(!line(&text, "two-phase-commit, 1 shard").ends_with("MISSED"));
}

#[test]
fn table_2_of_tiga_agrees_with_what_it_says_of_table_1() {
    let experiment = Measured::TigaTable2.experiment();
    let curves = &experiment.charts[0].curves;
    let lost = |name: &str| {
        let curve = curves.iter().find(|curve| curve.name == name).expect("a system of the paper");
        let per_s = curve.rows.iter().map(|row| match row.published[0].number {
            PublishedNumber::Absolute(per_s) => per_s,
            PublishedNumber::Relative(_) => panic!("{name}: it has rates"),
        });
        let [together, apart] = per_s.collect::<Vec<_>>()[..] else { panic!("{name}: two rows") };
        100.0 * (apart / together - 1.0)
    };
    // NCC is left out: the paper says 16.5 % less, and its two rates are 14.1 % apart.
    let said = [
        ("tiga, four regions", -9.7),
        ("the paper: 2PL+Paxos", -18.8),
        ("the paper: OCC+Paxos", -17.4),
        ("the paper: Tapir", 1.1),
        ("the paper: Janus", -7.5),
        ("the paper: Calvin+", 0.3),
    ];
    for (name, percent) in said {
        assert!((lost(name) - percent).abs() < 0.15, "{name}: {} and {percent}", lost(name));
    }
}

#[test]
fn systems_of_the_paper_stand_below_ours_relative_to_the_same() {
    let text = outcome(Measured::TigaTable1, &[1000.0, 2500.0, 500.0], 51).text();
    let tiga = line(&text, "four regions tiga");
    assert!(tiga.starts_with("four regions tiga 1,000 1.00 × 157,300 1.00 ×"), "{tiga}");
    let mako = line(&text, "four regions mako");
    assert!(mako.starts_with("four regions mako 2,500 2.50 × – –"), "{mako}");
    let papers = line(&text, "four regions the paper: Janus");
    assert!(papers.starts_with("four regions the paper: Janus – – 77,800 0.49 ×"), "{papers}");
}

/// What comes of a run in which a leader stops at 2 s of 6, and nothing commits for half a second; `lost` of the rate is
/// lost for good.
fn around_stop(lost: f64) -> Measurement {
    let interval = |at: u32| {
        let end_s = f64::from(at + 1) / 10.0;
        let (rate, latency_ms) = match at {
            0..20 => (1000.0, Some(130)),
            20..25 => (0.0, None),
            _ => (1000.0 * (1.0 - lost), Some(190)),
        };
        let mean_latency_ns = latency_ms.map(|ms: u64| ms * 1_000_000);
        Interval { end_s, committed_per_s: rate, mean_latency_ns }
    };
    let run = Run { measured_s: 6.0, timeline: (0..60).map(interval).collect(), ..run(1000.0, 1) };
    Measurement { runs: vec![run], ..measurement(1000.0, 1) }
}

#[test]
fn what_a_stopped_leader_costs_stands_beside_the_paper() {
    let experiment = Measured::TigaFigure11.experiment();
    let measured = experiment.runs.iter().map(|_| Ok(around_stop(0.1))).collect();
    let outcome = ExperimentOutcome::measured(experiment, measured, 1);
    let shown = line(&outcome.text(), "tiga four regions");
    assert_eq!(shown, "tiga four regions 1,000 500 ms 3.80 s 900 130 ms 190 ms");
    assert!(outcome.html().contains("Mean latency, over time"));
    let experiment = Measured::TigaFigure11.experiment();
    let measured = experiment.runs.iter().map(|_| Ok(around_stop(0.6))).collect();
    let never = ExperimentOutcome::measured(experiment, measured, 1).text();
    assert!(line(&never, "tiga 50 ms").contains("4.00 s"), "it is not back: {never}");
}

#[test]
fn commits_in_one_round_trip_and_latencies_by_region_are_shown() {
    let experiment = Measured::TigaFigure8.experiment();
    let measured = || {
        let counts = [
            ("one_round_trip", 90),
            ("by_log", 10),
            ("late_arrivals", 3),
            ("votes_withheld", 120),
            ("dropped_tentative", 0),
            ("committed", 300),
            ("conflicts", 100),
        ];
        let counted = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let region = |(name, ms): (&str, u64)| RegionResult {
            name: name.to_owned(),
            committed: 10,
            latency: Some(latency(ms)),
        };
        let regions = [("south-carolina", 132), ("hong-kong", 331), ("dc3", 107)].map(region);
        let of_all = measurement(500.0, 1);
        let summary = Summary { regions: regions.into(), ..of_all.summary };
        Measurement { runs: vec![Run { counted, ..run(500.0, 1) }], summary, ..of_all }
    };
    let measured = experiment.runs.iter().map(|_| Ok(measured())).collect();
    let text = ExperimentOutcome::measured(experiment, measured, 1).text();
    let over_rates = line(&text, "tiga 500 ");
    assert_eq!(over_rates, "tiga 500 500 1.00 × 331 ms 331 ms 331 ms 25.0 %");
    let by_region = line(&text, "tiga, 500, south-carolina");
    assert_eq!(by_region, "tiga, 500, south-carolina 132 ms 132 ms 132 ms");
    assert_eq!(line(&text, "tiga, 500, finland"), "tiga, 500, finland – – –");
    assert!(line(&text, "tiga, uniform 150 ms").contains("107 ms"));
    let paths = text.split("How tiga committed").nth(1).expect("a table of them");
    assert_eq!(line(paths, "tiga 1000"), "tiga 1000 90.0 % 10.0 % 3.00 % 120.0 % 0 % –");
}

#[test]
fn clocks_are_as_wrong_as_those_of_the_paper_and_one_by_seconds() {
    for measured in [Measured::TigaTable3, Measured::TigaFigure14] {
        let experiment = measured.experiment();
        let errors = experiment.runs.iter().map(|run| match &run.on {
            On::Regions(plan, _) => plan.clock_errors.iter().map(|error| error.0).collect(),
            on => panic!("{on:?}"),
        });
        let errors: Vec<Vec<i64>> = errors.collect();
        assert_eq!(errors[3][..4], [62_550_000, -62_550_000, 0, 62_550_000]);
        assert_eq!(errors[9][..5], [0, 0, 0, 5_000_000_000, 0]);
        let measured = experiment.runs.iter().map(|_| Ok(measurement(500.0, 1))).collect();
        let text = ExperimentOutcome::measured(experiment, measured, 1).text();
        assert!(line(&text, "tiga, all clocks Huygens").contains("158,100"), "{text}");
    }
}

#[test]
fn moves_are_judged_by_the_time_of_those_that_take() {
    let text = |moves: u64| {
        let taking = || {
            let run = run(10.0, 1);
            let of_kind = |kind| Kind { name: "move", running_s: Some(2.0), ..kind };
            let kinds = run.kinds.into_iter().map(of_kind).collect();
            let counted = BTreeMap::from([("moves".to_owned(), moves)]);
            Measurement { runs: vec![Run { kinds, counted, ..run }], ..measurement(10.0, 1) }
        };
        let experiment = Measured::BulkMoves.experiment();
        let measured = experiment.runs.iter().map(|_| Ok(taking())).collect();
        ExperimentOutcome::measured(experiment, measured, 1).text()
    };
    let together = "zeus, 3 nodes 64";
    let met = line(&text(60_000), together);
    assert!(met.contains(" 64 60,000 30,000 25,000 10"), "{met}");
    assert!(met.ends_with("moves per requester CPU s ≥ 25,000 met"), "{met}");
    assert!(line(&text(40_000), together).ends_with("MISSED"));
}

#[test]
fn several_runs_show_how_far_they_lie_apart() {
    let experiment = Measured::Figure9.experiment();
    let runs = [(900.0, 50), (1300.0, 53), (1000.0, 51)];
    let several = || Measurement {
        runs: runs.map(|(per_s, p50_ms)| run(per_s, p50_ms)).into(),
        ..measurement(1000.0, 51)
    };
    let measured = experiment.runs.iter().map(|_| Ok(several())).collect();
    let text = ExperimentOutcome::measured(experiment, measured, 1).text();
    assert_eq!(
        line(&text, "50 %"),
        "50 % 1,000 900 to 1,300 1.00 × – – 1,000 1.00 × 51.0 ms 50.0 ms to 53.0 ms"
    );
    // Of one run there is nothing to say.
    assert!(!outcome(Measured::Figure9, &[1000.0], 51).text().contains("range"));
}

#[test]
fn pages_have_plots_and_json_has_everything() {
    for measured in Measured::ALL {
        let runs = measured.experiment().runs.len();
        let outcome = outcome(measured, &[1000.0, 500.0], 51);
        let html = outcome.html();
        // These measurements have no intervals, of which the plots of figure 11 of Tiga are.
        let has_points = html.contains("<circle") || measured == Measured::TigaFigure11;
        assert!(html.contains("<svg") && has_points, "{measured:?}");
        assert!(html.contains("Scaled: "), "{measured:?}");
        let json: serde_json::Value = serde_json::from_str(&outcome.json()).expect("it is JSON");
        assert_eq!(json["runs"].as_array().map(Vec::len), Some(runs), "{measured:?}");
        assert!(json["charts"][0]["curves"][0]["rows"][0]["label"].is_string());
        assert!(json["tables"][0]["rows"][0].is_array() && json["scaled"][0].is_string());
    }
}

#[test]
fn an_opening_says_how_long_it_takes() {
    let experiment = Measured::Figure9.experiment();
    let opening = experiment.opening(&budget(5, 1));
    assert!(opening.contains("6 runs: about 54.0 s"), "{opening}");
    let opening = experiment.opening(&budget(6, 3));
    assert!(opening.contains("6 runs, each 3 times: about 3.0 min"), "{opening}");
}

#[test]
fn a_run_that_came_to_nothing_leaves_the_others_standing() {
    let experiment = Measured::Figure9.experiment();
    let mut measured: Vec<_> =
        experiment.runs.iter().map(|_| Ok(measurement(1000.0, 51))).collect();
    measured[2] = Err("no node leads S1".to_owned());
    let outcome = ExperimentOutcome::measured(experiment, measured, 1);
    let text = outcome.text();
    assert_eq!(outcome.failures(), 1);
    assert_eq!(line(&text, "25 %"), "25 % – – – – – – –");
    assert_eq!(line(&text, "warning: 25 %"), "warning: 25 % leave their shard: no node leads S1");
    assert!(line(&text, "50 %").starts_with("50 % 1,000 1.00 ×"));
    assert!(outcome.json().contains("no node leads S1"));
}

#[test]
fn percentiles_are_in_order() {
    assert!(Percentile::UP_TO_P99.map(Percentile::percent).is_sorted());
}

#[test]
fn a_curve_breaks_even_where_it_falls_below_the_other() {
    use super::view::{BreakEven, break_even};
    let falling = [(0.0, 100.0), (5.0, 80.0), (25.0, 40.0)];
    let flat = |y| [(0.7, y), (100.0, y)];
    assert_eq!(break_even(&falling, &flat(60.0)), Some(BreakEven::At(15.0)));
    assert_eq!(break_even(&falling, &flat(40.0)), Some(BreakEven::Above));
    assert_eq!(break_even(&falling, &flat(101.0)), Some(BreakEven::Below));
    assert_eq!(break_even(&falling, &[]), None);
}
