//! Documents that list what the code has are complete, and say the same values.

use shoal_cluster::topology;
use shoal_engine::execution::Limits;
use shoal_net::{CloseReason, NetworkLimits};
use shoal_types::limits;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Enums of errors and refusals that users or operators meet, and the crates that have them.
const ERRORS: [(&str, &str); 23] = [
    ("types", "Aborted"),
    ("types", "Conflict"),
    ("types", "Rejected"),
    ("types", "Unknown"),
    ("types", "Awaited"),
    ("types", "Cause"),
    ("net", "ConnectError"),
    ("net", "Closed"),
    ("net", "SecretError"),
    ("net", "TlsError"),
    ("net", "StartError"),
    ("net", "NetworkConfigError"),
    ("server", "ConfigError"),
    ("server", "ValueError"),
    ("server", "ServerStartError"),
    ("server", "ServerEnd"),
    ("server", "OperatorRefusal"),
    ("server", "DisksError"),
    ("client", "OpenError"),
    ("disk", "OpenFolderError"),
    ("wal", "LogError"),
    ("cluster", "ChangeRefusal"),
    ("cluster", "NotRecovered"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    let path = root().join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The source of a crate.
fn source(house: &str) -> String {
    let mut text = String::new();
    let mut folders = vec![root().join("crates").join(house).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the crate") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(&path).expect("text");
                text += "\n";
            }
        }
    }
    text
}

/// The variants of an enum that is declared at the margin of a file.
fn variants<'s>(source: &'s str, name: &str) -> Vec<&'s str> {
    let head = format!("\npub enum {name} {{\n");
    let (_, body) = source.split_once(&head).unwrap_or_else(|| panic!("there is no enum {name}"));
    let body = body.split("\n}\n").next().expect("it has an end");
    let declared = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = declared.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names.filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next()).collect()
}

/// The first cells of a document's tables, without their marks.
fn first_cells(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_error_and_refusal_is_in_the_document() {
    let known = first_cells(&document("errors.md"));
    let mut expected: BTreeSet<String> =
        ["Aborted", "Rejected", "Unknown"].map(|outcome| format!("Error::{outcome}")).into();
    let in_command = variants(&source("shoal"), "ChangeError")
        .into_iter()
        .map(|variant| format!("ChangeError::{variant}"))
        .collect::<Vec<_>>();
    expected.extend(in_command);
    for (house, name) in ERRORS {
        let source = source(house);
        let found = variants(&source, name);
        assert!(!found.is_empty(), "no variant of {name} was found");
        expected.extend(found.into_iter().map(|variant| format!("{name}::{variant}")));
    }
    expected.extend(CloseReason::ALL.iter().map(|reason| reason.name().to_owned()));
    let missing: Vec<_> = expected.difference(&known).collect();
    assert!(missing.is_empty(), "docs/errors.md does not say what to do about {missing:?}");
    let stale: Vec<_> = known.difference(&expected).collect();
    assert!(stale.is_empty(), "docs/errors.md lists what is no error: {stale:?}");
}

/// A number as people read it: 65,536.
fn number(value: usize) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(value: usize) -> String {
    match value {
        usize::MAX => "none".to_owned(),
        value => format!("{} bytes", number(value)),
    }
}

fn seconds(value: Duration) -> String {
    format!("{} s", value.as_secs_f64())
}

/// Constants, with their values in words.
fn constants() -> Vec<(String, String)> {
    let counts = [
        ("TRANSACTION_WRITES_MAX", limits::TRANSACTION_WRITES_MAX),
        ("TRANSACTION_READS_MAX", limits::TRANSACTION_READS_MAX),
        ("TRANSACTIONS_OPEN_MAX", limits::TRANSACTIONS_OPEN_MAX),
        ("TABLES_MAX", limits::TABLES_MAX),
        ("TABLE_IDS_MAX", limits::TABLE_IDS_MAX),
        ("DATACENTERS_MAX", topology::DATACENTERS_MAX),
        ("NODES_MAX", topology::NODES_MAX),
        ("SHARDS_MAX", topology::SHARDS_MAX),
        ("REPLICAS_MAX", topology::REPLICAS_MAX),
        ("RANGES_MAX", topology::RANGES_MAX),
        ("WORKERS_MAX", topology::WORKERS_MAX as usize),
    ];
    let lengths = [
        ("KEY_BYTES_MAX", limits::KEY_BYTES_MAX),
        ("VALUE_BYTES_MAX", limits::VALUE_BYTES_MAX),
        ("TRANSACTION_BYTES_MAX", limits::TRANSACTION_BYTES_MAX),
        ("TRANSACTION_MESSAGE_BYTES_MAX", limits::TRANSACTION_MESSAGE_BYTES_MAX),
        ("TABLE_NAME_BYTES_MAX", limits::TABLE_NAME_BYTES_MAX),
        ("NAME_BYTES_MAX", topology::NAME_BYTES_MAX),
        ("CLUSTER_BYTES_MAX", shoal_net::CLUSTER_BYTES_MAX),
        ("SECRET_BYTES_MIN", shoal_net::SECRET_BYTES_MIN),
    ];
    let counts = counts.into_iter().map(|(name, value)| (name, number(value)));
    let lengths = lengths.into_iter().map(|(name, value)| (name, bytes(value)));
    let texts = [("RESERVED_TABLES", limits::RESERVED_TABLES.to_owned())];
    let all = counts.chain(lengths).chain(texts);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Options that are limits, with their defaults in words.
fn options() -> Vec<(String, String)> {
    let (embedded, client) = (shoal::Options::default(), shoal::ClusterOptions::default());
    let (node, net) = (Limits::default(), NetworkLimits::default());
    let all = [
        ("Options", "transactions_max", number(embedded.transactions_max)),
        ("Options", "memory_bytes_max", bytes(embedded.memory_bytes_max)),
        ("Options", "attempts_max", number(embedded.attempts_max as usize)),
        ("Options", "log_segment_bytes", bytes(embedded.log_segment_bytes as usize)),
        ("Options", "checkpoint_log_bytes", bytes(embedded.checkpoint_log_bytes as usize)),
        ("ClusterOptions", "transactions_max", number(client.transactions_max)),
        ("ClusterOptions", "attempts_max", number(client.attempts_max as usize)),
        ("ClusterOptions", "deadline", seconds(client.deadline)),
        ("ClusterOptions", "silence_max", seconds(client.silence_max)),
        ("Limits", "open_max", number(node.open_max)),
        ("Limits", "queue_max", number(node.queue_max)),
        ("Limits", "queue_wait_max", seconds(node.queue_wait_max)),
        ("Limits", "attempts_max", number(node.attempts_max as usize)),
        ("Limits", "attempts_span_max", seconds(node.attempts_span_max)),
        ("Limits", "shard_wait_max", seconds(node.shard_wait_max)),
        ("Limits", "session_idle_max", seconds(node.session_idle_max)),
        ("Limits", "session_open_max", seconds(node.session_open_max)),
        ("Limits", "call_sessions_max", number(node.call_sessions_max)),
        ("Limits", "call_rows_kept", seconds(node.call_rows_kept)),
        ("Limits", "memory_bytes_max", bytes(node.memory_bytes_max)),
        ("NetworkLimits", "frame_bytes_max", bytes(net.frame_bytes_max)),
        ("NetworkLimits", "clients_max", number(net.clients_max)),
        ("NetworkLimits", "unauthenticated_max", number(net.unauthenticated_max)),
        ("NetworkLimits", "handshake_max", seconds(net.handshake_max)),
        ("NetworkLimits", "silence_max", seconds(net.silence_max)),
        ("NetworkLimits", "client_queue_bytes_max", bytes(net.client_queue_bytes_max)),
        ("NetworkLimits", "peer_queue_bytes_max", bytes(net.peer_queue_bytes_max)),
    ];
    all.map(|(of, name, value)| (format!("{of}::{name}"), value)).into()
}

#[test]
fn limits_in_the_document_are_those_of_the_code() {
    let text = document("limits.md");
    let expected: Vec<_> = constants().into_iter().chain(options()).collect();
    for (name, value) in &expected {
        let row = format!("| `{name}` | {value} |");
        assert!(text.contains(&row), "docs/limits.md has to say: {row}");
    }
    let named: BTreeSet<String> = expected.into_iter().map(|(name, _)| name).collect();
    let stale: Vec<_> = first_cells(&text).into_iter().filter(|it| !named.contains(it)).collect();
    assert!(stale.is_empty(), "docs/limits.md lists what this test does not know: {stale:?}");
    let source = fs::read_to_string(root().join("crates/types/src/limits.rs")).expect("limits");
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    for name in declared.filter_map(|line| line.split(':').next()) {
        assert!(named.contains(name), "docs/limits.md does not have {name}");
    }
    // What comes beyond a limit is in the document of errors.
    let errors = first_cells(&document("errors.md"));
    let mut words = text.split('`').filter(|word| word.contains("::"));
    let unknown = words.find(|word| !errors.contains(*word) && !named.contains(*word));
    assert_eq!(unknown, None, "docs/errors.md does not have it");
}

#[test]
fn variants_are_found_in_source() {
    let source = "\npub enum A {\n    /// Doc.\n    #[error(\"x\")]\n    One(u8),\n    Two {\n        Not: u8,\n    },\n    Three,\n}\n";
    assert_eq!(variants(source, "A"), ["One", "Two", "Three"]);
    assert_eq!(number(33_554_432), "33,554,432");
    assert_eq!(seconds(Duration::from_millis(2500)), "2.5 s");
}
