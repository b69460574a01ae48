//! The command, as a user meets it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn shoal(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shoal")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that a user got wrong, and returns the answer.
fn refused(arguments: &[&str]) -> String {
    let output = shoal(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    message
}

const EXPERIMENTS: [&str; 25] = [
    "mako-fig6",
    "mako-fig7",
    "mako-fig8",
    "mako-fig9",
    "mako-fig11",
    "mako-fig12",
    "mako-fig13",
    "table-factor",
    "tiga-table1",
    "tiga-table2",
    "tiga-table3",
    "tiga-fig7",
    "tiga-fig8",
    "tiga-fig9",
    "tiga-fig10",
    "tiga-fig11",
    "tiga-fig12",
    "tiga-fig13",
    "tiga-fig14",
    "zeus-fig7",
    "zeus-fig8",
    "zeus-fig9",
    "zeus-fig10",
    "zeus-fig11",
    "zeus-fig12",
];

#[test]
fn help_has_an_example_for_every_command() {
    let mut commands: Vec<Vec<&str>> = vec![
        vec![],
        vec!["bench"],
        vec!["check"],
        vec!["reproduce"],
        vec!["managers"],
        vec!["explore"],
        vec!["doctor"],
        vec!["log"],
        vec!["log", "inspect"],
    ];
    for data in ["get", "put", "delete", "scan", "tables", "call", "shell", "completions", "man"] {
        commands.push(vec![data]);
    }
    for what in ["list", "replace", "recover", "add"] {
        commands.push(vec!["managers", what]);
    }
    for experiment in EXPERIMENTS {
        commands.push(vec!["reproduce", experiment]);
    }
    for workload in
        ["tpcc", "micro", "increments", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"]
    {
        commands.push(vec!["bench", workload]);
    }
    for mut command in commands {
        command.push("--help");
        let output = shoal(&command);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("Example"), "{command:?} has no example:\n{help}");
    }
}

#[test]
fn mistakes_are_named() {
    let cases: [(&[&str], &str); 37] = [
        (&["bench", "tpcx"], "tpcc"),
        (&["get", "kv", "(\"users\", 42"], "character 1: the tuple has no end: write )"),
        (&["put", "kv", "x00ff", "1"], "whose quotes the shell has removed"),
        (&["scan", "kv", "--prefix", "a", "--from", "b"], "--from"),
        (&["get", "kv", "--keys", "base64", "a"], "auto"),
        (&["get", "kv", "a", "--local", "/no/such/folder"], "start one with `shoal local`"),
        (&["get", "kv", "a", "--connect", "127.0.0.1:1"], "cannot connect"),
        (&["bench", "micro", "--warehouses", "2"], "--warehouses"),
        (&["bench", "tpcc", "--warehouses", "0"], "1..=65535"),
        (&["bench", "micro", "--workers", "0"], "1..=16384"),
        (&["bench", "micro", "--workers", "1025"], "1024 threads"),
        (&["bench", "micro", "--inside"], "--local"),
        (&["bench", "micro", "--local", "--durability", "fsync"], "go together"),
        (&["bench", "micro", "--durability", "fsync"], "--local"),
        (&["bench", "micro", "--local", "--regions", "/no/such/file"], "`three` nor `tiga`"),
        (&["bench", "micro", "--local", "--regions", "/dev/null"], "there is no datacenter"),
        (&["bench", "micro", "--local", "--regions", "tiga", "--wan", "5ms"], "--wan: these"),
        (&["bench", "micro", "--region", "finland"], "--local or --connect"),
        (&["bench", "micro", "--authorities", "ca.pem"], "--connect; add its address"),
        (&["local", "--table", "a:list"], "NAME:hash or NAME:range"),
        (&["bench", "micro", "--duration", "10"], "a unit is missing"),
        (&["bench", "micro", "--duration", "0s"], "longer than nothing"),
        (&["bench", "micro", "--rate", "-5"], "-5"),
        (&["bench", "ycsb-a", "--value-bytes", "1"], "from 24 to"),
        (&["bench", "ycsb-a", "--distribution", "zipfian:1"], "at most 0.999"),
        (&["bench", "ycsb-a", "--distribution", "normal"], "zipfian:SKEW"),
        (&["bench", "micro", "--json", "/no/such/folder/x.json"], "/no/such/folder/x.json"),
        (&["check", "/no/such/history"], "/no/such/history"),
        (&["managers", "list", "--local", "/no/such/folder"], "start one with `shoal local`"),
        (&["managers", "replace", "a", "b", "--connect", "127.0.0.1:1"], "--secret is missing"),
        (&["status", "--connect", "a:1", "--client-secret", "/dev/null"], "--client-secret names"),
        (&["managers", "replace", "a", "--connect", "127.0.0.1:1"], "<NEW>"),
        (&["managers", "recover", "a", "--connect", "127.0.0.1:1"], "--secret is missing"),
        (&["managers", "recover", "--connect", "127.0.0.1:1"], "<NODE>"),
        (&["reproduce", "mako-fig10"], "mako-fig11"),
        (&["reproduce", "mako-fig13", "--duration", "1s"], "--duration"),
        (&["reproduce", "mako-fig8", "--html", "/no/such/folder/x.html"], "/no/such/folder/x.html"),
    ];
    for (arguments, named) in cases {
        let message = refused(arguments);
        assert!(message.contains(named), "{arguments:?} should name {named}:\n{message}");
    }
}

#[test]
fn a_cluster_on_disk_is_measured_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display().to_string();
    let arguments = "bench micro --local --durability fsync --flush-delay 100us --keys 1000 --warm-up 0s --duration 300ms \
                     --no-progress --disk";
    let arguments: Vec<&str> = arguments.split_whitespace().chain([&disk[..]]).collect();
    let output = shoal(&arguments);
    let (measured, message) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{measured}{message}");
    assert!(measured.contains("durability fsync, each flush 100 µs longer"), "{measured}");
    assert!(measured.contains("a second on all nodes"), "{measured}");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0, "the nodes' folders are removed");
}

#[test]
fn one_disk_may_be_slow_and_clients_may_share_threads() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display().to_string();
    let bench = |arguments: &str| {
        let common = "--keys 1000 --warm-up 0s --duration 300ms --no-progress --disk";
        let arguments = arguments.split_whitespace().chain(common.split_whitespace());
        let output = shoal(&arguments.chain([&disk[..]]).collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let slow =
        "bench micro --local --shards 1 --durability fsync --flush-delay 2ms --flush-delay-at";
    let (code, measured, message) = bench(&format!("{slow} 1"));
    assert_eq!(code, Some(0), "{measured}{message}");
    assert!(measured.contains("each flush of n1 2.00 ms longer"), "{measured}");
    let (code, _, message) = bench(&format!("{slow} 3"));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("--flush-delay-at: a node from 0 to 2"), "{message}");
    let (code, measured, message) = bench("bench micro --threads 2 --workers 16");
    assert_eq!(code, Some(0), "{measured}{message}");
}

#[test]
fn a_cluster_that_is_not_there_is_no_transaction_that_was_rejected() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = shoal(&["bench", "micro", "--connect", &free.to_string(), "--no-progress"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("error: cannot connect to the cluster"), "{message}");
    assert!(message.contains("nothing listens at this port"), "{message}");
    assert!(!message.contains("rejected") && !message.contains("gave up"), "{message}");
}

#[test]
fn a_log_filter_that_says_no_level_is_refused() {
    let serve = ["serve", "--config", "/no/such/node.toml"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    let output = command.args(serve).env("SHOAL_LOG", "wran").output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("SHOAL_LOG is 'wran': 'wran' is no level"), "{message}");
}

/// Runs a short bench that writes both its files, and returns what it printed and its JSON.
fn bench(workload: &[&str]) -> (String, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("out.json"), folder.path().join("out.html"));
    let common = ["--workers", "2", "--duration", "200ms", "--warm-up", "20ms", "--json"];
    let arguments = [&["bench"], workload, &common, &[path(&json), "--html", path(&html)]].concat();
    let output = shoal(&arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "a progress bar went to a file: {}", text(&output.stderr));
    assert!(fs::read_to_string(html).unwrap().contains("<svg"));
    let json = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    (text(&output.stdout), json)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_bench_measures_checks_and_writes() {
    let (printed, json) = bench(&["micro", "--keys", "1000", "--runs", "2"]);
    assert_eq!(json["workload"], "micro");
    assert_eq!(json["load"]["workers"], 2);
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    for run in json["runs"].as_array().unwrap() {
        assert!(run["committed"].as_u64().unwrap() > 0);
        assert!(run["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
    }
    assert!(printed.contains("micro: ") && printed.contains("6 of 6 hold"), "{printed}");
}

#[test]
fn engines_are_measured_side_by_side_into_one_document() {
    let engines = ["--local", "--shards", "1", "--replicas", "1", "--engines"];
    let (printed, json) =
        bench(&[&["micro", "--keys", "1000"], &engines[..], &["mako,two-phase-commit"]].concat());
    let both = json.as_array().unwrap();
    let targets: Vec<&str> = both.iter().filter_map(|it| it["build"]["target"].as_str()).collect();
    assert!(targets[0].starts_with("mako") && targets[1].starts_with("two-phase-commit"));
    assert!(printed.contains("to the first"), "{printed}");
}

#[test]
fn every_ycsb_workload_runs_on_the_embedded_database() {
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let workload = format!("ycsb-{letter}");
        let (printed, json) = bench(&[&workload, "--keys", "1000", "--value-bytes", "32"]);
        assert_eq!(json["workload"], workload);
        assert!(printed.contains("3 of 3 hold"), "{printed}");
    }
}

#[test]
fn an_experiment_stands_beside_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("out.json"), folder.path().join("out.html"));
    let short = ["reproduce", "mako-fig8", "--duration", "200ms", "--warm-up", "0s"];
    let files = ["--json", path(&json), "--html", path(&html)];
    let output = shoal(&[&short[..], &files].concat());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "a progress bar went to a file: {}", text(&output.stderr));
    for part in ["The paper: ", "Scaled: ", "4 runs: about", "mako, 1 shard", "the paper: Janus"] {
        assert!(printed.contains(part), "{part} is missing:\n{printed}");
    }
    assert!(fs::read_to_string(html).unwrap().contains("<svg"));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["name"], "mako-fig8");
    for run in json["runs"].as_array().unwrap() {
        assert!(run["measurement"]["summary"]["committed_per_s"].as_f64().unwrap() > 0.0, "{run}");
    }
}

#[test]
fn completions_and_pages_of_the_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = shoal(&["completions", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        for word in ["accept-loss", "shell", "ycsb-a"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let output = shoal(&["man"]);
    assert!(output.status.success() && text(&output.stdout).contains(".TH SHOAL 1"));
    let folder = tempfile::tempdir().unwrap();
    let output = shoal(&["man", "--folder", path(folder.path())]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(folder.path().join("shoal-managers-replace.1")).unwrap();
    assert!(
        page.contains(".TH SHOAL\\-MANAGERS\\-REPLACE 1")
            || page.contains(".TH SHOAL-MANAGERS-REPLACE 1"),
        "{page}"
    );
    assert!(refused(&["man", "--folder", "/no/such/folder"]).contains("/no/such/folder/shoal"));
}

const CLEAN: &str = r#"{"client":1,"start_ns":0,"end_ns":9,"outcome":"ok","operations":[{"write":["x",1]}]}
{"client":2,"start_ns":10,"end_ns":19,"outcome":"ok","operations":[{"read":["x",1]}]}
"#;

#[test]
fn check_judges_histories() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, history: &str| {
        let file = folder.path().join(name);
        fs::write(&file, history).unwrap();
        file
    };
    let clean = file("clean.jsonl", CLEAN);
    let output = shoal(&["check", path(&clean)]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("verdict: consistent"));

    let stale =
        file("stale.jsonl", &CLEAN.replace(r#"{"read":["x",1]}"#, r#"{"read":["x",null]}"#));
    let output = shoal(&["check", path(&stale), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict["found"]["G-single-realtime"], 1, "{verdict}");

    let broken = file("broken.jsonl", &CLEAN.replace("ok", "fine"));
    let message = refused(&["check", path(&broken)]);
    assert!(message.contains("broken.jsonl") && message.contains("line 1"), "{message}");
}
