//! Clusters that keep logs on disk: all of their processes are killed at once, and they are started again in their folders.

use crate::HOLDS;
use crate::local::{Local, is_alive, run_line_in, until};
use rustix::process::Signal;
use shoal::{ClusterOptions, Db};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One shard of three replicas, whose processes lose what they have not flushed when they are killed.
const SHAPE: [&str; 7] =
    ["--shards", "1", "--durability", "fsync", "--lose-unflushed", "--restart-after", "500ms"];

#[test]
fn all_processes_are_killed_at_once_and_nothing_is_lost() {
    let mut local = Local::start(&SHAPE);
    local.run_well(&["put", "kv", "alice", "i64(7)"]);
    until("it is led", || local.is_whole());
    let killed = local.run_well(&["chaos", "kill-all"]);
    assert_eq!(killed.matches("is killed").count(), 3, "{killed}");
    HOLDS.iter().for_each(|words| assert!(killed.contains(words), "{killed}"));
    until("every replica votes", || local.is_whole());
    let rounds = ["chaos", "loop", "--rounds", "2", "--fault", "kill-majority", "--seed", "5"];
    let looped = local.run_well(&rounds);
    assert!(looped.contains("kill-majority"), "{looped}");
    assert!(local.run_well(&["get", "kv", "alice"]).contains("i64(7)"));

    // The command itself is killed, and its nodes with it: it cannot say that it has ended.
    assert_eq!(local.end_by(Signal::KILL), None);
    local.start_again(&[]);
    assert!(local.run_well(&["get", "kv", "alice"]).contains("i64(7)"));
    local.end();
    let of_node = |command: &str| {
        let line = format!("shoal {command} {}", local.file("s0v1"));
        let (code, said, error) = local.run_line(&line);
        assert_eq!(code, Some(0), "{said}{error}");
        said
    };
    assert!(of_node("doctor").contains("The node may be started, and has its memory."));
    assert!(of_node("log inspect").contains("s0  promised e"), "its stream");
    let inspected: serde_json::Value =
        serde_json::from_str(&of_node("log inspect --json")).expect("JSON");
    let stream = &inspected["logs"][0]["streams"][0];
    assert_eq!((&stream["shard"], &stream["void"]), (&0.into(), &false.into()), "{stream}");
    assert_eq!(stream["promised"], stream["accepted"], "it follows one leader");
    assert!(stream["decided"].as_u64() > Some(0), "{stream}");
    let folder = local.file("");
    let other = format!("shoal local --port 0 --durability fsync --shards 2 --folder {folder}");
    let (code, _, error) = local.run_line(&other);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("a cluster of another shape"), "{error}");
    local.start_again(&SHAPE);
    assert!(local.run_well(&["get", "kv", "alice"]).contains("i64(7)"));
    local.end();
}

/// As a supervisor ends nodes, before the machine is started anew.
#[test]
fn a_node_that_is_asked_to_end_ends_its_logs_in_order() {
    let mut local = Local::start(&["--shards", "1", "--durability", "async", "--no-restart"]);
    local.run_well(&["put", "kv", "alice", "i64(7)"]);
    let processes: Vec<i32> = local.processes().collect();
    local.signal_node(1, Signal::TERM);
    local.kill(2);
    until("both have ended", || !processes[1..].iter().any(|process| is_alive(*process)));
    let after_reboot = |node: &str| {
        let volume = local.file(&format!("{node}/log/volume"));
        let text = std::fs::read_to_string(&volume).expect("a node's");
        let lines = text.lines().filter(|line| !line.starts_with("boot "));
        let text: String = lines.chain(["boot another"]).map(|line| format!("{line}\n")).collect();
        std::fs::write(&volume, text).expect("written");
        let (code, said, error) = local.run_line(&format!("shoal doctor {}", local.file(node)));
        (code, format!("{said}{error}"))
    };
    let (code, ended) = after_reboot("s0v1");
    assert!(ended.contains("The node may be started, and has its memory."), "{ended}");
    assert_eq!(code, Some(0), "{ended}");
    let (code, killed) = after_reboot("s0v2");
    let advice = "with durability `async`: it sets its logs aside, begins without memory";
    assert!(killed.contains(advice), "{killed}");
    assert_eq!(code, Some(1), "its logs are lost: {killed}");
    local.end();
}

/// Where the disk of the cluster in the inner process of the next test is.
const SMALL_DISK: &str = "SHOAL_TEST_SMALL_DISK";

#[test]
fn nodes_on_a_full_disk_answer_reads_and_take_writes_again_when_there_is_room() {
    on_a_full_disk(
        "mako",
        "durable::nodes_on_a_full_disk_answer_reads_and_take_writes_again_when_there_is_room",
    );
}

#[test]
fn nodes_of_tiga_on_a_full_disk_answer_reads_and_take_writes_again_when_there_is_room() {
    on_a_full_disk(
        "tiga",
        "durable::nodes_of_tiga_on_a_full_disk_answer_reads_and_take_writes_again_when_there_is_room",
    );
}

/// The reserve that nodes write to, and the managers' logs, which have room of their own, are enough for reads to go on, for nodes to
/// die and for tables to be made. The disk is in memory, mounted for a process of its own, in which this `test` runs once more.
fn on_a_full_disk(engine: &str, test: &str) {
    let Some(disk) = std::env::var_os(SMALL_DISK).map(PathBuf::from) else {
        return on_a_small_disk(test);
    };
    let durability = ["--durability", "fsync", "--restart-after", "500ms"];
    let mut local =
        Local::start(&[&["--shards", "1", "--engine", engine], &durability[..]].concat());
    local.run_well(&["put", "kv", "alice", "i64(7)"]);
    let ballast = fill(&disk);
    let addresses: Vec<String> = local.addresses().collect();
    let db = Db::connect_blocking(&addresses, ClusterOptions::default()).expect("connected");
    let kv = db.table("kv").expect("there is one");
    let mut rows = 0_u32;
    // A leader may change meanwhile, where the machine is busy: such errors are no refusals.
    let no_room = "the disk has no room for the next segment of the log";
    let mut others = 0;
    loop {
        let put = db.transact_blocking(|tx| {
            (0..16_u32).try_for_each(|at| tx.put(kv, &(rows + at).to_be_bytes(), &[7; 16 << 10]))
        });
        match put {
            Ok(()) => rows += 16,
            Err(error) if error.to_string().contains(no_room) => break,
            Err(error) => {
                others += 1;
                assert!(others < 20, "{error}");
            }
        }
        assert!(rows < 100_000, "it has room for ever");
    }
    let reads = || local.run(&["get", "kv", "alice"]).1.contains("i64(7)");
    until("reads go on", reads);
    local.run_well(&["tables", "create", "others"]);
    local.signal_node(1, Signal::TERM);
    until("the others go on without it", || reads() && !local.is_whole());
    let said = std::fs::read_to_string(local.file("s0v1/node.log")).expect("a node's");
    assert!(!said.contains("could not be ended in order"), "its segment has room: {said}");
    local.kill(2);
    std::fs::remove_file(ballast).expect("removed");
    until("it is back, and writes are taken", || {
        local.is_whole() && local.run(&["put", "kv", "bob", "i64(8)"]).0 == Some(0)
    });
    let last = (rows - 1).to_be_bytes();
    let length = || db.transact_blocking(|tx| Ok(tx.get(kv, &last)?.map(<[u8]>::len)));
    until("the last row is read", || length().is_ok_and(|length| length == Some(16 << 10)));
    until("reads go on", reads);
    local.end();
}

/// Runs a test of this program in a process that has a disk of its own, with room for a few segments of three nodes.
fn on_a_small_disk(test: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = "mount -t tmpfs -o size=896m shoal \"$0\" && exec \"$@\"";
    let mut trial = Command::new("unshare");
    let tried =
        trial.args(["--mount", "mount", "-t", "tmpfs", "shoal"]).arg(folder.path()).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: mounts are not possible here");
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", mount])
        .arg(folder.path())
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    let has_run = output.status.success() && said.contains("1 passed");
    assert!(has_run, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Takes all room of a disk that is left, and returns the file that has it.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut file = File::create(&path).expect("a file");
    while file.write_all(&[1; 64 << 10]).is_ok() {}
    path
}

#[test]
fn several_nodes_are_killed_at_once_only_where_something_is_left() {
    let mut local = Local::start(&["--shards", "1"]);
    for failure in [&["chaos", "kill-all"][..], &["chaos", "kill-majority", "0"]] {
        until("it is led", || local.is_whole());
        let (code, _, error) = local.run(failure);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("--durability fsync"), "{error}");
    }
    local.end();
}

#[test]
fn a_process_with_an_embedded_database_is_killed_over_and_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "shoal chaos embedded --rounds 3 --seed 5 --no-progress --folder db";
    for _ in 0..2 {
        let (code, said, error) = run_line_in(folder.path(), line);
        assert_eq!(code, Some(0), "{said}{error}");
        assert!(said.contains("exactly those up to one clock"), "{said}");
    }
}
