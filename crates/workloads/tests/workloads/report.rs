//! Reports hold what was measured, and the page stands alone.

use shoal_workloads::bench::{self, BenchSettings, Build, Measurement, Threads};
use shoal_workloads::model::Model;
use shoal_workloads::report;
use shoal_workloads::ycsb::{Distribution, Letter, Ycsb};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

fn measured(runs: usize) -> Measurement {
    let settings = BenchSettings {
        workers: 1,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(50),
        rate_per_s: None,
        seed: 1,
        runs,
        check: true,
        reserved_bytes: 0,
    };
    let build = Build {
        version: "0",
        profile: "debug",
        allocator: "<system>",
        target: Cow::Borrowed("model"),
    };
    let make = || {
        let db = Model::new();
        let ycsb = Ycsb::new(&db, Letter::F, 100, 100, Distribution::Zipfian(0.99))?;
        Ok((Threads(db), Arc::new(ycsb)))
    };
    bench::run(&settings, build, make, &mut |_| ()).unwrap()
}

#[test]
fn the_json_can_be_read_back() {
    let measurement = measured(2);
    let json: serde_json::Value = serde_json::from_str(&report::json(&measurement)).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["workload"], "ycsb-f");
    assert_eq!(json["load"]["latency_from"], "start");
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    assert_eq!(json["runs"][0]["committed"], measurement.runs[0].committed);
    assert_eq!(json["runs"][0]["checks"][0]["passed"], true);
    assert!(json["summary"]["kinds"][1]["latency"]["p99_9_ns"].as_u64().unwrap() > 0);
}

#[test]
fn the_summary_holds_medians_over_the_runs() {
    let measurement = measured(3);
    let middle = |count: fn(&bench::measurement::Run) -> u64| {
        let mut counts: Vec<u64> = measurement.runs.iter().map(count).collect();
        counts.sort_unstable();
        counts[1]
    };
    let summary = &measurement.summary;
    assert_eq!(summary.committed, middle(|run| run.committed));
    assert_eq!(summary.conflicts, middle(|run| run.conflicts));
    assert_eq!(summary.loaded_rows, 100);
}

#[test]
fn the_page_stands_alone_and_says_everything() {
    let mut measurement = measured(1);
    let page = report::html(&measurement);
    for fetches in ["<script", "<link", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(fetches), "the page fetches something: {fetches}");
    }
    assert_eq!(page.matches("<svg").count(), 2);
    for said in ["ycsb-f", "read-modify-write", "zipfian 0.99", "all checks hold", "p99.9"] {
        assert!(page.contains(said), "the page does not say {said}");
    }
    assert!(page.contains("debug build") && page.contains("&lt;system&gt;"));
    measurement.runs[0].checks[0].passed = false;
    measurement.runs[0].checks[0].detail = Some("found 1 < 2".into());
    let page = report::html(&measurement);
    assert!(page.contains("checks failed") && page.contains("found 1 &lt; 2"));
}

#[test]
fn several_measurements_stand_side_by_side() {
    let mut other = measured(2);
    other.build.target = Cow::Borrowed("<other>");
    let mut both = [measured(1), other];
    let json: serde_json::Value = serde_json::from_str(&report::json_list(&both)).unwrap();
    assert_eq!(json[1]["build"]["target"], "<other>");
    let page = report::comparison::html(&both);
    assert_eq!(page.matches("<svg").count(), 3, "one of throughput, and percentiles of each");
    for said in ["ycsb-f", "model", "&lt;other&gt;", "1.00 ×", "all checks hold", "debug build"] {
        assert!(page.contains(said), "the page does not say {said}");
    }
    both[1].runs[1].checks[0].passed = false;
    assert!(report::comparison::html(&both).contains("checks failed"));
}

#[test]
fn a_workload_that_never_ran_a_kind_is_shown_all_the_same() {
    let mut measurement = measured(1);
    for kind in &mut measurement.runs[0].kinds {
        kind.latency = None;
        kind.curve.clear();
    }
    measurement.summary.kinds[0].latency = None;
    measurement.runs[0].timeline.clear();
    assert!(report::html(&measurement).contains("</html>"));
}
