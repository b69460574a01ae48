//! Planted anomalies: for every kind the checker names there are histories in `histories/` that
//! have it. Each must be caught under its name, alone, with a witness that shows what happened; the
//! clean ones beside them must pass. A checker that misses one counts for nothing.

use shoal_workloads::history::{AnomalyKind, History, Report, check, check_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// File, the anomaly in it, how long its cycle is (0 for none), words of the evidence.
const PLANTED: [(&str, AnomalyKind, usize, &str); 43] = {
    use AnomalyKind::*;
    [
        ("g0", G0, 2, "T2 appended 2 to x right after T1 appended 1"),
        ("g0-interleaved", G0, 2, "T1 appended 3 to x right after T2 appended 2"),
        ("g1a-list", G1a, 0, "T2 read 1 from x, written by T1, which aborted"),
        ("g1a-register", G1a, 0, "T2 read 1 from x, written by T1, which aborted"),
        ("g1b-list", G1b, 0, "T2 read x as of 1, but T1, which wrote that, went on to write 2"),
        ("g1b-register", G1b, 0, "T1, which wrote that, went on to write 2"),
        ("g1c-list", G1c, 2, "T2 read x up to 1, which T1 appended"),
        ("g1c-register", G1c, 2, "T1 read 1 from y, which T2 wrote"),
        ("g1c-write-and-read", G1c, 3, "T3 read z up to 1, which T2 appended"),
        ("lost-update-list", LostUpdate, 2, "both found nothing as the newest of x"),
        ("lost-update-unread", LostUpdate, 2, "T1 found x empty, without the 2 that T2 appended"),
        ("lost-update-register", LostUpdate, 2, "T3 found 7 in x, which T2 replaced by 8"),
        ("g-single-list", GSingle, 2, "T2 found x empty, without the 1 that T1 appended"),
        ("g-single-register", GSingle, 2, "T2 found nothing in x, which T1 replaced by 1"),
        ("g-single-rewrite", GSingle, 2, "T3 found 1 in x, which T2 replaced by 2"),
        ("g-single-version-order", GSingle, 2, "1 came before 2, for a path leads from T1 to T2"),
        ("g-single-first-version", GSingle, 2, "1 came before 2, for a path leads from T1 to T2"),
        ("g2-item-write-skew", G2Item, 2, "T2 found 1 in y, which T3 replaced by 2"),
        ("g2-item-phantom", G2Item, 2, "T1 found k2 empty, without the 1 that T2 appended"),
        ("g2-item-long-fork", G2Item, 4, "T4 found nothing in x, which T1 replaced by 1"),
        ("internal-own-append", Internal, 0, "T1 read [] from x after appending [1]"),
        ("internal-own-write", Internal, 0, "T1 read 1 from x where 2 was due"),
        ("internal-second-read", Internal, 0, "T2 read [1] from x where [] was due"),
        ("internal-second-read-register", Internal, 0, "T2 read 1 from x where nothing was due"),
        ("internal-own-future-list", Internal, 0, "with its own 1 where it had not appended that"),
        (
            "internal-own-future-register",
            Internal,
            0,
            "T1 read 1 from x before it wrote that itself",
        ),
        ("incompatible-order", IncompatibleOrder, 0, "T3 saw 1 and T4 saw 2"),
        ("incompatible-order-within", IncompatibleOrder, 0, "reads show 2 first"),
        ("duplicate-element", DuplicateElement, 0, "T2 read [1, 1] from x: 1 is in it twice"),
        ("garbage-read-list", GarbageRead, 0, "T2 read 9 from x, which no transaction wrote"),
        ("garbage-read-register", GarbageRead, 0, "T2 read 9 from x, which no transaction wrote"),
        ("g0-realtime", G0Realtime, 2, "T1 ended at 10 ns, before T2 began at 20 ns"),
        (
            "g0-realtime-versions",
            G0Realtime,
            2,
            "1 came before 2, for T1, which had the one, ended",
        ),
        ("g1c-realtime-versions", G1cRealtime, 2, "T1 read 3 from z, which T2 wrote"),
        ("g1c-realtime", G1cRealtime, 2, "T1 ended at 10 ns, before T2 began at 20 ns"),
        ("g1c-realtime-register", G1cRealtime, 2, "T1 read 1 from x, which T2 wrote"),
        ("g-single-realtime-list", GSingleRealtime, 2, "T1 ended at 10 ns, before T2 began"),
        ("g-single-realtime-unread", GSingleRealtime, 2, "T2 found x empty"),
        ("g-single-realtime-null", GSingleRealtime, 2, "T2 found nothing in x"),
        ("g-single-realtime-register", GSingleRealtime, 2, "in x, which"),
        ("g-single-realtime-reads", GSingleRealtime, 3, "came before"),
        ("no-order", NoOrder, 0, "all orders of 8 transactions were tried"),
        ("g2-item-realtime", G2ItemRealtime, 3, "T2 ended at 20 ns, before T3 began at 30 ns"),
    ]
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories")
}

fn judge(name: &str) -> Report {
    let path = folder().join(format!("{name}.jsonl"));
    check_file(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_planted_anomaly_is_caught_under_its_name() {
    for (name, kind, length, words) in PLANTED {
        let report = judge(name);
        assert_eq!(report.found, BTreeMap::from([(kind, 1)]), "{name}: {report}");
        assert_eq!(report.anomalies[0].cycle.len(), length, "{name}: {report}");
        let text = report.to_string();
        assert!(text.contains(words), "{name} lacks \"{words}\":\n{text}");
        assert!(text.contains("NOT strictly serializable"), "{name}:\n{text}");
    }
}

#[test]
fn a_witness_is_a_closed_cycle_and_shows_its_transactions() {
    for (name, ..) in PLANTED {
        let report = judge(name);
        let anomaly = &report.anomalies[0];
        for (step, next) in anomaly.cycle.iter().zip(anomaly.cycle.iter().cycle().skip(1)) {
            assert_eq!(step.to, next.from, "{name}: {report}");
            assert!(anomaly.transactions.contains_key(&step.from), "{name}: {report}");
            assert!(step.others.iter().all(|id| anomaly.transactions.contains_key(id)), "{report}");
        }
        assert!(!anomaly.transactions.is_empty(), "{name}: {report}");
    }
}

#[test]
fn an_unknown_outcome_counts_as_committed_once_it_is_read() {
    let report = judge("g-single-realtime-unknown");
    assert_eq!(report.found, BTreeMap::from([(AnomalyKind::GSingleRealtime, 1)]), "{report}");
    assert_eq!((report.committed, report.committed_unknown), (3, 1));
    assert_eq!(report.anomalies[0].cycle.len(), 3, "{report}");
}

#[test]
fn every_kind_is_planted_and_every_file_is_used() {
    use AnomalyKind::*;
    let planted: BTreeSet<AnomalyKind> = PLANTED.iter().map(|(_, kind, ..)| *kind).collect();
    for kind in [
        GarbageRead,
        DuplicateElement,
        Internal,
        IncompatibleOrder,
        G1a,
        G1b,
        G0,
        G1c,
        LostUpdate,
        GSingle,
        G2Item,
        G0Realtime,
        G1cRealtime,
        GSingleRealtime,
        G2ItemRealtime,
        NoOrder,
    ] {
        assert!(planted.contains(&kind), "no history is planted with {kind}");
    }
    let names: BTreeSet<&str> = PLANTED.iter().map(|(name, ..)| *name).collect();
    for name in files() {
        let used = names.contains(&*name) || name.starts_with("clean-");
        assert!(used || name == "g-single-realtime-unknown", "{name} is tested by nothing");
    }
}

#[test]
fn clean_histories_pass() {
    let clean: Vec<String> =
        files().into_iter().filter(|name| name.starts_with("clean-")).collect();
    assert!(!clean.is_empty());
    for name in clean {
        let report = judge(&name);
        assert!(report.is_clean(), "{name}: {report}");
    }
}

#[test]
fn a_report_can_be_written_as_json() {
    for (name, kind, length, _) in PLANTED {
        let json = serde_json::to_value(judge(name)).expect("plain data");
        assert_eq!(json["found"][kind.name()], 1, "{name}: {json}");
        assert_eq!(json["anomalies"][0]["kind"], kind.name(), "{name}: {json}");
        let steps = json["anomalies"][0]["cycle"].as_array().expect("steps");
        assert_eq!(steps.len(), length, "{name}: {json}");
        assert!(steps.iter().all(|step| step["why"].is_string()), "{name}: {json}");
    }
}

#[test]
fn the_documented_example_is_what_the_checker_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/history-format.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let block = |language: &str| {
        let (_, rest) = text.split_once(&format!("```{language}\n")).expect("a block of it");
        rest.split_once("```").expect("its end").0
    };
    let history = History::read(block("json").as_bytes()).expect("well formed");
    assert_eq!(check(&history).to_string(), block("report"));
}

fn files() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of histories");
    entries
        .map(|entry| entry.expect("its entries").path())
        .map(|path| path.file_stem().expect("a file").to_string_lossy().into_owned())
        .collect()
}
