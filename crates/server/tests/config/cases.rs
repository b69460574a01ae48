//! Runs the files of `cases/`: each is a node's file with what is said of it in its first line.
//!
//! `CONFIG_CASES=refresh cargo test -p shoal-server --test config cases` writes those lines anew; read the
//! difference before you commit it.

use crate::folder::Folder;
use shoal_types::NodeId;
use shoal_types::limits::TABLES_MAX;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

/// The files, in the order of their names.
pub fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cases");
    let entries = fs::read_dir(&folder).expect("the cases");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("readable");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn cases_say_what_is_wrong_and_what_to_do() {
    let refresh = env::var("CONFIG_CASES").is_ok_and(|value| value == "refresh");
    let folder = Folder::new();
    let mut seen = 0;
    for (path, text) in files() {
        let (_, rest) = text.split_once('\n').expect("a first line");
        let said = match folder.read(rest) {
            Ok(_) => "good".to_owned(),
            Err(error) => error,
        };
        let now = format!("# {said}\n{rest}");
        if refresh {
            fs::write(&path, now).expect("written");
        } else {
            assert_eq!(text, now, "{}", path.display());
        }
        seen += 1;
    }
    assert!(seen > 30, "{seen} cases");
}

#[test]
fn a_file_that_is_none_is_named() {
    let folder = Folder::new();
    let missing = shoal_server::NodeConfig::read(&folder.file("nowhere.toml"));
    let missing = missing.expect_err("no file").to_string();
    assert!(missing.contains("nowhere.toml: No such file"), "{missing}");
    assert!(missing.ends_with("it has to be a node's configuration"), "{missing}");
    let bytes = folder.read([0xff; 9]).expect_err("no text");
    assert!(bytes.starts_with("cannot read node.toml: ") && bytes.contains("UTF-8"), "{bytes}");
}

#[test]
fn a_topology_without_room_for_the_table_of_requests_is_refused() {
    let folder = Folder::new();
    let table =
        |number| format!("[[table]]\nname = \"t{number}\"\npartitioning = \"everywhere\"\n");
    let tables = |count| (1..count).map(table).collect::<String>();
    let least = files().into_iter().find(|(path, _)| path.ends_with("good-least.toml"));
    let least = least.expect("a case").1;
    // One stands there already.
    folder.write("topology.toml", folder.topology() + &tables(TABLES_MAX - 1));
    assert!(folder.read(&least).is_ok());
    folder.write("topology.toml", folder.topology() + &table(TABLES_MAX));
    let error = folder.read(&least).expect_err("no room");
    assert!(error.starts_with("topology.toml: there are 1025 tables"), "{error}");
}

#[test]
fn all_keys_are_taken_for_what_they_say() {
    let folder = Folder::new();
    let all = files().into_iter().find(|(path, _)| path.ends_with("good-all.toml"));
    let config = folder.read(all.expect("a case").1).expect("it is good");
    assert_eq!((&*config.cluster, config.node), ("reef", NodeId(1)));
    assert_eq!(config.managers, [NodeId(0), NodeId(2), NodeId(1)]);
    assert_eq!(config.data, Some(folder.file("data")));
    assert!(config.pin && config.chaos && config.tls.is_some());
    assert_eq!(config.distance.delay, Duration::from_millis(25));
    assert_eq!(config.distance.jitter, Duration::from_micros(2500));
    let least = files().into_iter().find(|(path, _)| path.ends_with("good-least.toml"));
    let config = folder.read(least.expect("a case").1).expect("it is good");
    assert!(config.managers.is_empty() && config.tls.is_none() && config.data.is_none());
    assert!(!config.pin && !config.chaos);
}
