//! Every program of `examples/`, and those of the README, on an embedded database and on a cluster: each does what it says,
//! on both.

#![allow(dead_code, reason = "the examples have a `main`, for those who run them")]

#[path = "../../examples/accounts.rs"]
mod accounts;
#[path = "../../examples/bank.rs"]
mod bank;
mod cluster;
#[path = "../../examples/inventory.rs"]
mod inventory;
#[path = "../../examples/procedures.rs"]
mod procedures;
#[path = "../../examples/queue.rs"]
mod queue;

use cluster::LoopbackCluster;
use shoal::{ClusterOptions, Db, Error, Rejected};
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs a program on both. It may run on the thread of a runtime.
fn on_both(program: &impl AsyncFn(&Db)) {
    let cluster = LoopbackCluster::start();
    let addresses = [&cluster.address];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        program(&Db::memory().with_procedures(procedures::known())).await;
        program(&Db::connect(&addresses).await.expect("a cluster")).await;
    });
}

#[test]
fn the_programs_of_the_readme() {
    on_both(&async |db| {
        assert_eq!(accounts::open_and_move(db), Ok(90));
        assert_eq!(accounts::pay_back(db).await, Ok(100));
    });
    // As its `main` connects.
    let cluster = LoopbackCluster::start();
    let db = Db::connect_blocking(&[&cluster.address], ClusterOptions::default());
    assert_eq!(accounts::open_and_move(&db.expect("a cluster")), Ok(90));
}

#[test]
fn bank() {
    on_both(&async |db| bank::run(db).await.expect("nothing is made or lost"));
}

#[test]
fn queue() {
    on_both(&async |db| queue::run(db).await.expect("each job is done once"));
}

#[test]
fn inventory() {
    on_both(&async |db| inventory::run(db).await.expect("what there is is sold"));
}

#[test]
fn procedures() {
    on_both(&async |db| {
        let call = async |procedure, arguments| procedures::call(db, procedure, arguments).await;
        assert_eq!(call("deposit", "alice 100").await, Ok("100".to_owned()));
        assert_eq!(call("transfer", "alice bob 30").await, Ok("70".to_owned()));
        assert_eq!(call("deposit", "bob 1").await, Ok("31".to_owned()));
        let refused = call("transfer", "alice bob 71").await;
        assert_eq!(refused, Err(Error::reject("insufficient funds")));
        assert_eq!(call("deposit", "alice 1").await, Ok("71".to_owned()));
        let unknown = Rejected::UnknownProcedure { name: "steal".into() };
        assert_eq!(call("steal", "alice").await, Err(unknown.into()));
    });
}

#[test]
fn tables() {
    on_both(&async |db| {
        let hashed = shoal::Partitioning::Hash { prefix_bytes: 0 };
        let made = db.create_table("made", hashed).await.expect("a table");
        assert_eq!(db.table("made"), Ok(made));
        db.transact(async |tx| tx.put(made, b"key", b"")).await.expect("committed");
        assert_eq!(db.drop_table("made").await, Ok(made));
        let gone = db.transact(async |tx| tx.put(made, b"key", b"")).await;
        let is_gone = matches!(
            gone,
            Err(Error::Rejected(Rejected::TableDropped { .. } | Rejected::UnknownTable { .. }))
        );
        assert!(is_gone, "{gone:?}");
        let unknown = Rejected::UnknownTableName { name: "made".into() };
        assert_eq!(db.drop_table("made").await, Err(unknown.into()));
        assert_ne!(db.table("made"), Ok(made), "another one");
    });
}

#[test]
fn no_program_is_left_out() {
    let folder = fs::read_dir(Path::new(ROOT).join("crates/shoal/examples")).expect("a folder");
    let mut names: Vec<String> = folder
        .map(|file| file.expect("a file").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, ["accounts.rs", "bank.rs", "inventory.rs", "procedures.rs", "queue.rs"]);
    let others = fs::read_dir(Path::new(ROOT).join("crates")).expect("a folder");
    let others = others.map(|krate| krate.expect("a folder").path().join("examples"));
    assert_eq!(others.filter(|path| path.exists()).count(), 1, "users have one crate");
    // The blocks of the README are parts of the first.
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect("a file");
    let (readme, program) = (read("README.md"), read("crates/shoal/examples/accounts.rs"));
    let blocks = readme.split("\n```rust\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("\n```").next()).collect();
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        assert!(
            program.ends_with(&format!("{block}\n")),
            "the README has another program:\n{block}"
        );
    }
}
