//! `shoal doctor` and `shoal log inspect`, on folders of databases and of nodes.

use shoal::{Db, Options};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the command; returns its exit code and what it printed.
fn shoal(arguments: &[&str], folder: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(arguments)
        .arg(folder)
        .output()
        .expect("the command");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ended"), String::from_utf8(text).expect("text"))
}

/// A database of some rows, with small segments.
fn database(path: &Path) -> Db {
    let options = Options {
        log_segment_bytes: 16 << 10,
        checkpoint_log_bytes: 64 << 10,
        ..Options::default()
    };
    let db = Db::open_with(path, options).unwrap();
    let table = db.table("rows").unwrap();
    let rows = (0..3000_u32).map(|n| (n.to_be_bytes(), [7; 20]));
    db.load_blocking(table, rows, |_| ()).unwrap();
    db
}

#[test]
fn a_database_is_whole_in_use_or_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = database(&path);
    let (code, text) = shoal(&["doctor"], &path);
    let process = format!("is in use by process {}", std::process::id());
    assert!(code == 1 && text.contains(&process), "{code}: {text}");
    drop(db);

    let (code, text) = shoal(&["doctor"], &path);
    assert!(code == 0 && text.contains("whole; 3000 rows in 1 tables"), "{code}: {text}");
    let (code, text) = shoal(&["log", "inspect", "--json"], &path);
    assert_eq!(code, 0, "{text}");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["tables"][0]["rows"], 3000);
    assert_eq!(
        (&found["torn"], found["incarnation"].as_u64()),
        (&serde_json::Value::Null, Some(1))
    );
    let (code, text) = shoal(&["log", "inspect"], &path);
    assert!(code == 0 && text.contains("3000 rows  rows"), "{text}");

    // The second group of a segment that another follows.
    let segment = &found["segments"][0];
    let file = path.join(segment["file"].as_str().unwrap());
    let mut bytes = fs::read(&file).unwrap();
    bytes[1100] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let (code, text) = shoal(&["doctor"], &path);
    assert!(code == 1 && text.contains("It may not be opened"), "{code}: {text}");
    assert!(text.contains(&format!("{} is damaged at byte", segment["file"].as_str().unwrap())));
    assert_eq!(shoal(&["log", "inspect"], &path).0, 1);
}

/// The folder is as a node leaves it that has ended before it wrote anything.
#[test]
fn logs_of_a_node_are_whole_damaged_or_void() {
    let folder = tempfile::tempdir().unwrap();
    let (path, logs) = (folder.path(), folder.path().join("log"));
    let worker = logs.join("worker-0");
    fs::create_dir_all(&worker).unwrap();
    fs::write(logs.join("volume"), "node 3\nworkers 1\nvolume 00000000000000ff\nboot none\n")
        .unwrap();
    let (code, text) = shoal(&["doctor"], path);
    assert!(code == 0 && text.contains("logs of n3, volume 00000000000000ff"), "{code}: {text}");
    assert!(text.contains("The node may be started."), "{text}");
    let (code, text) = shoal(&["log", "inspect", "--json"], path);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &found["node"], &found["logs"][0]["incarnation"]), (0, &3.into(), &0.into()));
    let (code, text) = shoal(&["log", "inspect"], path);
    assert!(code == 0 && text.contains("worker 0, incarnation 0"), "{code}: {text}");

    let checkpoint = worker.join("checkpoint-000000000001");
    fs::write(&checkpoint, "none").unwrap();
    let (code, text) = shoal(&["doctor"], path);
    assert!(code == 1 && text.contains("begins without memory"), "{code}: {text}");
    assert_eq!(shoal(&["log", "inspect"], path).0, 1);
    fs::remove_file(&checkpoint).unwrap();

    fs::write(logs.join("void"), "").unwrap();
    fs::create_dir(path.join("log.damaged-1")).unwrap();
    let (code, text) = shoal(&["doctor"], path);
    assert!(code == 1 && text.contains("The cluster has given up"), "{code}: {text}");
    assert!(text.contains("log.damaged-1"), "{text}");
}

#[test]
fn what_is_no_database_is_a_wrong_argument() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["doctor"][..], &["log", "inspect"]] {
        let (code, text) = shoal(command, folder.path());
        assert!(code == 2 && text.contains("holds no database"), "{code}: {text}");
        let (code, text) = shoal(command, &folder.path().join("none"));
        assert!(code == 2 && text.contains("No such file"), "{code}: {text}");
    }
}
