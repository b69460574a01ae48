//! A cluster of processes on this machine, as a user starts it, lets it fail and ends it.

mod dashboard;
mod data;
mod durable;
mod local;
mod nodes;
mod package;
mod quickstart;
mod shell;
mod starting;

use local::{Local, until};
use std::collections::BTreeSet;
use std::time::Duration;

/// What a command says that counted and judged what it saw.
const HOLDS: [&str; 2] =
    ["Every acknowledged write is there, once.", "transactions is strictly serializable"];

/// Hundreds of rounds may take so long on a machine that has something else to do.
const HOURS: Duration = Duration::from_secs(3 * 3600);

#[test]
fn leaders_of_a_cluster_fail_and_nothing_is_left_of_it_in_the_end() {
    let mut local = Local::start(&["--shards", "2", "--restart-after", "1s"]);
    let nodes = local.status();
    assert_eq!(nodes.len(), 6, "three copies of two shards");
    let mut processes: BTreeSet<i32> = local.processes().collect();
    assert_eq!(processes.len(), 6, "a process each");

    let top = local.run_well(&["top", "--once", "--every", "100ms", "--json"]);
    let top: serde_json::Value = serde_json::from_str(&top).expect("figures");
    assert_eq!(top["nodes"].as_array().map(Vec::len), Some(6), "{top}");
    assert_eq!(top["shards"].as_array().map(Vec::len), Some(2), "{top}");

    let killed = local.run_well(&["chaos", "kill-leader", "0"]);
    assert!(killed.contains("is killed, which leads S0"), "{killed}");
    HOLDS.iter().for_each(|words| assert!(killed.contains(words), "{killed}"));
    assert!(!killed.contains(" 0 of them touch several shards"), "{killed}");
    until("the killed node is back, and every replica votes", || {
        let gone = processes.iter().filter(|process| !local.processes().any(|it| it == **process));
        gone.count() == 1 && local.is_whole()
    });
    processes.extend(local.processes());
    assert_eq!(processes.len(), 7, "another process for one of them");

    let cut = local.run_well(&["chaos", "partition", "1", "--for", "2s"]);
    assert!(cut.contains("is cut off, which leads S1"), "{cut}");
    HOLDS.iter().for_each(|words| assert!(cut.contains(words), "{cut}"));
    until("every replica votes", || local.is_whole());

    let rounds = ["chaos", "loop", "--rounds", "2", "--fault", "kill", "--seed", "3"];
    let looped = local.run_well(&rounds);
    assert!(looped.contains("2 rounds from seed 3") && looped.contains("anomalies"), "{looped}");
    processes.extend(local.processes());

    local.end();
    until("no process is left", || processes.iter().all(|process| !local::is_alive(*process)));
    let (code, _, error) = local.run(&["status"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("start one with `shoal local`"), "{error}");
}

#[test]
fn a_manager_that_is_gone_is_replaced_by_another_node() {
    let mut local = Local::start(&["--shards", "2", "--no-restart"]);
    let names = |json: &str| {
        let overview: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let rows = overview["managers"].as_array().expect("managers").clone();
        let name = |row: &serde_json::Value| row["name"].as_str().expect("a name").to_owned();
        rows.iter().map(name).collect::<Vec<String>>()
    };
    let all = ["s0v0", "s0v1", "s0v2"];
    until("the managers are in step", || {
        let (code, listed, _) = local.run(&["managers", "list", "--json"]);
        code == Some(0) && names(&listed) == all
    });

    local.kill(2);
    let (code, listed, _) = local.run(&["managers", "list"]);
    assert_eq!(code, Some(1), "{listed}");
    assert!(listed.contains("s0v2 does not answer: if it is lost, `shoal managers"), "{listed}");

    // Only a client that knows the nodes' secret changes anything.
    let replace = |old: &str, new: &str, more: &[&str]| {
        local.run(&[&["managers", "replace", old, new], more].concat())
    };
    let other = local.file("other-secret");
    let bytes: Vec<u8> = (0..16_u8).map(|at| at.wrapping_mul(37) ^ 0xa5).collect();
    shoal_net::Secret::new(bytes).write_hex(other.as_ref()).expect("written");
    let (code, _, error) = replace("s0v2", "s1v1", &["--secret", &other]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("refuses") && error.contains("take the file"), "{error}");
    let (code, _, error) = replace("s0v2", "s9v1", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("'s9v1' is no node") && error.contains("s1v1"), "{error}");
    let (code, _, error) = replace("s1v2", "s1v1", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("s1v2 has no manager; replace one of s0v0, s0v1, s0v2"), "{error}");
    let (code, _, error) = replace("s0v0", "s0v2", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("s0v2 has a manager already"), "{error}");

    let (code, said, error) = replace("s0v2", "s1v1", &[]);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains(r#"managers = ["s0v0", "s0v1", "s1v1"]"#), "{said}");
    let (code, said, error) = replace("s0v2", "s1v1", &["--json"]);
    assert_eq!(code, Some(0), "again: {said}{error}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said).expect("JSON")["managers"][2],
        "s1v1"
    );
    until("all that run know it", || local.run(&["managers", "list"]).0 == Some(0));

    let killed = local.run_well(&["chaos", "kill-leader", "1"]);
    HOLDS.iter().for_each(|words| assert!(killed.contains(words), "{killed}"));
    local.end();
}

/// Two nodes are gone for good: most of the managers, and most of a shard.
#[test]
fn the_manager_that_is_left_goes_on_and_the_loss_of_a_shard_is_accepted_then() {
    let mut local = Local::start(&["--shards", "2", "--no-restart"]);
    let recover =
        |node: &str, more: &[&str]| local.run(&[&["managers", "recover", node], more].concat());
    let (code, _, error) = recover("s0v2", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("3 of 3 managers answer, which is a majority"), "{error}");
    let cluster = local.status()[0]["cluster"].as_str().expect("an identity").to_owned();
    local.kill(0);
    local.kill(1);
    let recover =
        |node: &str, more: &[&str]| local.run(&[&["managers", "recover", node], more].concat());
    let (code, _, error) = recover("s1v0", &[]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("s1v0 has no manager that votes; name one of s0v2"), "{error}");
    until("the manager knows that it is alone", || {
        let (code, said, error) = recover("s0v2", &[]);
        assert!(code == Some(1) || code == Some(2), "{said}{error}");
        code == Some(2) && error.contains(&format!("nothing is changed: say `--confirm {cluster}`"))
    });
    let (code, said, error) = recover("s0v2", &["--confirm", "0123456789abcdef"]);
    assert_eq!(code, Some(2), "{said}{error}");
    for told in [
        "s0v0, s0v1 does not answer",
        "S0 has no majority with memory then",
        "are set aside for good",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let (code, said, error) = recover("s0v2", &["--confirm", &cluster]);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains(r#"managers = ["s0v2"]"#), "{said}");

    let accept = ["shards", "accept-loss", "S0", "--confirm", "S0"];
    let (code, said, error) = local.run(&accept);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains("S0 goes on: its voters are s0v2"), "{said}");
    let (code, said, error) = local.run(&["managers", "add", "s1v0", "s1v1"]);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains(r#"managers = ["s0v2", "s1v0", "s1v1"]"#), "{said}");
    until("all that run know it", || local.run(&["managers", "list"]).0 == Some(0));
    let killed = local.run_well(&["chaos", "kill-leader", "1"]);
    HOLDS.iter().for_each(|words| assert!(killed.contains(words), "{killed}"));
    local.end();
}

/// Both nodes begin anew, empty, with the managers' log that they host.
#[test]
fn a_shard_whose_majority_began_anew_goes_on_when_that_is_accepted() {
    let mut local = Local::start(&["--shards", "2", "--restart-after", "100ms"]);
    let accept = |more: &[&str]| local.run(&[&["shards", "accept-loss", "S0"], more].concat());
    let (code, _, error) = accept(&["--confirm", "S0"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("there is no loss to accept"), "{error}");
    let (code, _, error) = local.run(&["shards", "accept-loss", "S5"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("there is no shard S5; name one of S0, S1"), "{error}");

    until("every replica votes", || local.is_whole());
    local.kill(0);
    local.kill(1);
    let said = |words: &str| local.run(&["status"]).1.contains(words);
    until("the loss is seen", || said("S0 has lost its majority: s0v0, s0v1 began anew"));
    let (code, said, error) = accept(&[]);
    assert_eq!(code, Some(2), "{said}{error}");
    let told = "it goes on with what s0v2 has in memory";
    assert!(said.contains(told) && said.contains("replicas on s0v0, s0v1 are"), "{said}");
    assert!(error.contains("nothing is changed: say `--confirm S0`"), "{error}");
    let (code, _, error) = accept(&["--confirm", "S1"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("that is not S0"), "{error}");
    assert_eq!(local.status()[0]["shards"][0]["loss"], serde_json::Value::Null);

    let (code, said, error) = accept(&["--confirm", "S0"]);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains("S0 goes on: its voters are s0v2; s0v0, s0v1 are set aside"), "{said}");
    until("it is led", || local.run(&["status"]).0 == Some(0));
    let (_, text, _) = local.run(&["status"]);
    assert!(text.contains("the loss of S0's majority was accepted"), "{text}");
    let killed = local.run_well(&["chaos", "kill-leader", "1"]);
    HOLDS.iter().for_each(|words| assert!(killed.contains(words), "{killed}"));
    local.end();
}

#[test]
fn who_lets_nothing_fail_is_told_why() {
    let mut local = Local::start(&["--shards", "1", "--replicas", "1", "--in-process"]);
    let (code, _, error) = local.run(&["chaos", "kill-leader", "0"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("without --in-process"), "{error}");
    let (code, _, error) = local.run(&["chaos", "pause", "5"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("no node leads S5"), "{error}");
    let (code, _, error) = local.run(&["chaos", "one-way", "0"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("shoal local --namespaces"), "{error}");
    local.end();
}

#[test]
fn leaders_whose_packets_are_lost_one_way_are_replaced() {
    if let Err(why) = local::try_namespaces() {
        println!("skipped: network namespaces are not possible here: {why}");
        return;
    }
    let mut local = Local::start(&["--shards", "2", "--namespaces"]);
    for (shard, lost, words) in
        [("0", "in", "receives nothing of other"), ("1", "out", "reaches no other")]
    {
        let lost = ["chaos", "one-way", shard, "--lost", lost, "--for", "2s"];
        let seen = local.run_well(&lost);
        assert!(seen.contains(words), "{seen}");
        HOLDS.iter().for_each(|words| assert!(seen.contains(words), "{seen}"));
        until("every replica votes", || local.is_whole());
    }
    let epochs = local.status().into_iter().map(|node| node["epoch"].as_u64().expect("a number"));
    assert!(epochs.min() >= Some(3), "each of them costs its node the lead");
    let rounds = ["chaos", "loop", "--rounds", "1", "--fault", "one-way", "--seed", "5"];
    let looped = local.run_well(&rounds);
    assert!(looped.contains("one-way"), "{looped}");
    local.end();
}

#[test]
#[ignore = "half an hour: `cargo test -p shoal --test cluster -- --ignored`"]
fn hundreds_of_leaders_fail_one_after_the_other() {
    let mut local = Local::start(&["--shards", "2", "--restart-after", "500ms"]);
    let rounds = ["chaos", "loop", "--rounds", "300", "--seed", "1", "--no-progress"];
    let (code, said, error) = local.run_for(&rounds, HOURS);
    assert_eq!(code, Some(0), "{said}\n{error}");
    println!("{said}");
    local.end();
}
