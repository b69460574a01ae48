//! Nodes come and go as an operator says, by commands and processes.

use crate::local::{Background, Local, until};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;

/// The rows with which the cluster begins; the shards share them.
const ROWS: usize = 40;

/// The nodes that hold the shard, by the status of the nodes that live.
fn voters(local: &Local, shard: usize) -> Vec<String> {
    let nodes = local.status();
    let name = |number: &Value| {
        let of_number = nodes.iter().find(|node| node["node"] == *number);
        of_number
            .map_or_else(|| number.to_string(), |it| it["name"].as_str().expect("one").to_owned())
    };
    let newest = nodes.iter().max_by_key(|node| node["revision"].as_u64()).expect("nodes");
    newest["shards"][shard]["voters"].as_array().expect("voters").iter().map(name).collect()
}

/// An address that no process listens at.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").to_string()
}

/// Starts the process of a node that the local cluster does not start, with the file of another node.
fn serve(local: &Local, name: &str, like: &str, topology: &str) -> Background {
    let path = local.file(name);
    let folder = Path::new(&path);
    std::fs::create_dir(folder).expect("a folder");
    std::fs::write(folder.join("topology.toml"), topology).expect("written");
    let file = std::fs::read_to_string(local.file(&format!("{like}/node.toml"))).expect("a file");
    let file = file.replace(like, name).replace("../topology.toml", "topology.toml");
    std::fs::write(folder.join("node.toml"), file).expect("written");
    Background::start(folder, "shoal serve --config node.toml")
}

#[test]
fn a_lost_node_is_replaced_by_a_new_one_and_others_are_drained_and_removed() {
    let mut local = Local::start(&["--shards", "2", "--no-restart"]);
    let rows: Vec<String> =
        (0..ROWS).flat_map(|row| [format!("key{row}"), format!("i64({row})")]).collect();
    let put: Vec<&str> = ["put", "kv"].into_iter().chain(rows.iter().map(String::as_str)).collect();
    local.run_well(&put);
    let before = local.run_well(&["scan", "kv", "--json"]);

    // A node that no file knew.
    let address = free_address();
    let (code, _, error) = local.run(&["nodes", "add", "n7", "--at", &address]);
    assert!(code == Some(2) && error.contains("name that of n7, by `--datacenter`"), "{error}");
    let add =
        |name, at: &str| local.run(&["nodes", "add", name, "--at", at, "--datacenter", "dc1"]);
    let again = [add("n7", &address), add("n7", &address)];
    assert!(again.iter().all(|(code, _, _)| *code == Some(0)), "{again:?}");
    let (code, _, error) = add("s0v1", &free_address());
    assert!(code != Some(0) && error.contains("s0v1"), "{error}");
    let topology = local.run_well(&["nodes", "topology"]);
    assert!(topology.contains("name = \"n7\"") && topology.contains(&address), "{topology}");
    let added = serve(&local, "n7", "s1v2", &topology);
    let knows = |node: &Value| node["name"] == "n7" && node["admitted"] == true;
    until("the new node is admitted", || local.status().iter().any(knows));

    // It takes the place of one that is lost.
    local.kill(5);
    local.run_well(&["nodes", "replace", "s1v2", "n7"]);
    until("the new node votes", || {
        let voters = voters(&local, 1);
        voters.iter().any(|it| it == "n7") && voters.len() == 3
    });
    local.run_well(&["nodes", "remove", "s1v2"]);
    let (code, _, error) = local.run(&["nodes", "drain", "s1v2"]);
    assert!(code != Some(0) && error.contains("s1v2"), "{error}");

    // One that leads, and hosts a manager.
    let (code, _, error) = local.run(&["nodes", "remove", "s0v0"]);
    assert!(code != Some(0) && error.contains("drain it first"), "{error}");
    local.run_well(&["nodes", "drain", "s0v0"]);
    until("it holds nothing", || {
        let holders = [voters(&local, 0), voters(&local, 1)];
        holders.iter().all(|it| it.len() == 3 && !it.iter().any(|name| name == "s0v0"))
    });
    local.kill(0);
    local.run_well(&["nodes", "remove", "s0v0"]);

    assert_eq!(local.run_well(&["scan", "kv", "--json"]), before, "rows were lost");
    local.run_well(&["put", "kv", "key0", "i64(7)"]);
    assert_eq!(local.run_well(&["get", "kv", "key0"]), "i64(7)\n");
    drop(added);
    local.end();
}
