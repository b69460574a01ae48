//! The commands of `docs/quickstart.md`, run as they stand there.

use crate::local::{Background, run_line_in, until};
use std::net::TcpListener;
use std::path::Path;

const DOCUMENT: &str = include_str!("../../../../docs/quickstart.md");

/// The blocks of this language below a heading.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.expect("the heading is there");
    let fence = format!("\n```{language}\n");
    let opened = section.split(&fence).skip(1);
    opened.map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// Runs the commands of a session, which stand behind `$`, and compares what they print with what stands there. A line
/// `…` stands for any lines.
fn session(folder: &Path, text: &str) {
    for command in format!("\n{text}").split("\n$ ").skip(1) {
        let (command, expected) = command.split_once('\n').unwrap_or((command, ""));
        if command.starts_with("shoal status") {
            // A node that was killed is started again after a while.
            until("every node answers", || run_line_in(folder, command).0 == Some(0));
        }
        let (code, said, error) = run_line_in(folder, command);
        assert_eq!(code, Some(0), "{command}:\n{said}\n{error}");
        let mut printed = said.lines().map(str::trim_end);
        let mut skips = false;
        for line in expected.lines() {
            if line == "…" {
                skips = true;
                continue;
            }
            let found = match skips {
                true => printed.any(|it| it == line.trim_end()),
                false => printed.next() == Some(line.trim_end()),
            };
            assert!(found, "{command} does not print {line:?} there:\n{said}\n{error}");
            skips = false;
        }
        assert!(skips || printed.next().is_none(), "{command} prints more:\n{said}");
    }
}

#[test]
fn the_local_cluster_of_the_quickstart_does_what_it_says() {
    let heading = "2. A cluster on this machine";
    let folder = tempfile::tempdir().expect("a folder");
    let started = &blocks(heading, "sh")[0];
    let mut local = Background::start(folder.path(), &format!("{started} --port 0"));
    local.printed_until("Ctrl-C stops");
    for block in blocks(heading, "console") {
        session(folder.path(), &block);
    }
    local.end();
}

#[test]
fn the_three_machines_of_the_quickstart_serve() {
    let heading = "3. Three machines with TLS";
    let folder = tempfile::tempdir().expect("a folder");
    // The machines are this one, at three ports.
    let held: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let ports: Vec<_> = held.iter().map(|it| it.local_addr().expect("bound").port()).collect();
    drop(held);
    let here = |text: &str| {
        (1..=3).fold(text.to_owned(), |text, machine| {
            let port = ports[machine - 1];
            text.replace(&format!("10.0.0.{machine}:7000"), &format!("127.0.0.1:{port}"))
        })
    };
    for block in blocks(heading, "sh") {
        let (code, said, error) = run_line_in(folder.path(), &format!("set -e\n{}", here(&block)));
        assert_eq!(code, Some(0), "{block}:\n{said}\n{error}");
    }
    let start = |node: &str| {
        let command = format!("shoal serve --config {node}/node.toml 2> {node}/log");
        assert!(DOCUMENT.contains("\nshoal serve --config n0/node.toml "), "it says how");
        Background::start(folder.path(), &command)
    };
    let nodes = ["n0", "n1", "n2"].map(start);
    for block in blocks(heading, "console") {
        session(folder.path(), &here(&block));
    }
    drop(nodes);
}
