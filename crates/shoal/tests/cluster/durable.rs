//! Clusters that keep logs on disk: all of their processes are killed at once, and they are started again in their folders.

use crate::HOLDS;
use crate::local::{Local, run_line_in, until};
use rustix::process::Signal;

/// One shard of three replicas, whose processes lose what they have not flushed when they are killed.
const SHAPE: [&str; 7] =
    ["--shards", "1", "--durability", "fsync", "--lose-unflushed", "--restart-after", "500ms"];

#[test]
fn all_processes_are_killed_at_once_and_nothing_is_lost() {
    let mut local = Local::start(&SHAPE);
    local.run_well(&["put", "kv", "alice", "i64(7)"]);
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
    let folder = local.file("");
    let other = format!("shoal local --port 0 --durability fsync --shards 2 --folder {folder}");
    let (code, _, error) = local.run_line(&other);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("a cluster of another shape"), "{error}");
    local.start_again(&SHAPE);
    assert!(local.run_well(&["get", "kv", "alice"]).contains("i64(7)"));
    local.end();
}

#[test]
fn several_nodes_are_killed_at_once_only_where_something_is_left() {
    let mut local = Local::start(&["--shards", "1"]);
    for failure in [&["chaos", "kill-all"][..], &["chaos", "kill-majority", "0"]] {
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
