//! How `shoal local` starts, how its clusters authenticate clients, and how it ends.

use crate::local::{self, Local, until};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// What is added to a bench so that it is short.
const SHORT: &str = " --duration 300ms --warm-up 0s --workers 2 --no-progress";

/// The commands that `shoal local` prints when it is ready, without the numbers of keys that take long to load.
fn told(local: &Local) -> Vec<String> {
    local.printed_until("ready after");
    let printed = local.printed_until("Ctrl-C stops");
    let commands = printed.iter().filter_map(|line| line.strip_prefix("  shoal "));
    commands.map(|rest| format!("shoal {}", rest.replace("10000", "500"))).collect()
}

#[test]
fn what_a_secured_cluster_says_of_itself_works_and_unauthenticated_clients_are_refused() {
    let mut local = Local::begin(&["--shards", "2", "--tls", "--secret", "--restart-after", "1s"]);
    let commands = told(&local);
    assert_eq!(commands.len(), 7, "{commands:?}");
    for command in &commands {
        let short = if command.contains("bench") { SHORT } else { "" };
        let (code, said, error) = local.run_line(&format!("{command}{short}"));
        assert_eq!(code, Some(0), "{command}:\n{said}\n{error}");
        let expected = match command.split_whitespace().nth(1) {
            Some("status") => "leads",
            Some("put") => "1 row written",
            Some("get") => "i64(100)",
            Some("chaos") => "is killed, which leads S0",
            Some("bench") => "hold",
            other => panic!("{other:?}"),
        };
        assert!(said.contains(expected), "{command}: {said}");
    }
    // The node that was killed has come back, with its certificate.
    until("every replica votes", || local.is_whole());
    local.run_well(&["managers", "list"]);

    let [secret, authorities] = ["client-secret", "ca.pem"].map(|name| local.file(name));
    let address = commands[4].split(' ').nth(3).expect("shoal status --connect ADDRESS");
    let (trusting, knowing) =
        (format!("--authorities {authorities}"), format!("--client-secret {secret}"));
    let unauthenticated = [
        (trusting.clone(), "refuses: wrong_secret: it asks for a secret"),
        (knowing.clone(), "refuses: wrong_tls: one end has TLS on"),
        (
            format!("{trusting} {knowing} --cluster other"),
            "or it does not say the name of the cluster",
        ),
    ];
    for (options, why) in unauthenticated {
        for command in ["status", "get kv alice", "managers list"] {
            let line = format!("shoal {command} --connect {address} {options}");
            let (code, _, error) = local.run_line(&line);
            assert_eq!(code, Some(2), "{line}: {error}");
            assert!(error.contains(why), "{line}: {error}");
        }
        let line = format!("shoal bench micro --connect {address} {options}{SHORT}");
        let (code, _, error) = local.run_line(&line);
        assert_eq!(code, Some(1), "{line}: {error}");
        assert!(error.contains(why), "{line}: {error}");
    }
    for name in ["secret", "client-secret", "ca.pem", "s0v0/node.key", "s1v2/node.pem"] {
        let mode = fs::metadata(local.file(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "others can read {name}");
    }
    local.end();
}

#[test]
fn tables_and_ports_are_those_that_were_asked_for() {
    let shape = ["--shards", "2", "--replicas", "1", "--in-process"];
    let tables = ["--table", "accounts:hash", "--table", "events:range"];
    let mut local = Local::start(&[&shape[..], &tables].concat());
    let listed = local.run_well(&["tables"]);
    let division = |table: &str| {
        let row = listed.lines().find(|line| line.contains(table)).expect("a row").to_owned();
        row.split_once(table).expect("its name").1.trim().to_owned()
    };
    assert_eq!(division("accounts"), "by a hash of the key");
    assert_eq!(division("events"), "in 2 ranges, split at x'80'");
    local.end();

    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let place = folder.path().display();
    let refused = local.run_line(&format!("shoal local --port {port} --folder {place}"));
    assert_eq!(refused.0, Some(2), "{}", refused.2);
    assert!(refused.2.contains(&format!("port {port}: ")), "{}", refused.2);
    assert!(refused.2.contains("--port 0"), "{}", refused.2);
    let refused = local.run_line(&format!("shoal local --port 0 --table a --folder {place}"));
    assert_eq!(refused.0, Some(2), "{}", refused.2);
    assert!(refused.2.contains("NAME:hash or NAME:range"), "{}", refused.2);
}

/// A process that stands still does not end when it is asked to.
#[test]
fn a_signal_ends_a_cluster_whose_node_hangs_also_while_it_starts() {
    let mut local = Local::start(&["--shards", "1"]);
    let processes: Vec<i32> = local.processes().collect();
    local.signal_node(1, Signal::STOP);
    assert_eq!(local.end_by(Signal::INT), Some(0));
    until("no process is left", || processes.iter().all(|process| !local::is_alive(*process)));
    assert!(!local.is_known(), "its folder says that it runs");

    let mut local = Local::begin(&["--shards", "1"]);
    until("the processes run", || local.is_known());
    let processes: Vec<i32> = local.processes().collect();
    local.signal_node(0, Signal::STOP);
    // A signal at this time finds it ready or not; both ways it ends, and all of it.
    let code = local.end_by(Signal::INT);
    assert!(code == Some(0) || code == Some(1), "{code:?}");
    until("no process is left", || processes.iter().all(|process| !local::is_alive(*process)));
}
