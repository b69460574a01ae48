//! A process that writes is killed; what it had acknowledged, also to readers, is there when its folder is opened again.

use crate::{rows, small};
use shoal_client::{Db, Scan};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// Informs this test binary that it is the process to be killed, and where it writes.
const CHILD: &str = "SHOAL_DISK_CHILD";

const WRITERS: u8 = 3;
const ROUNDS: usize = 6;

/// Every writer counts its own counter up, and puts a row for each step into one table that all share. A reader reads all
/// counters. Both print what they received.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let db = Db::open_with(path, small()).unwrap();
    let (counters, steps) = (db.table("counters").unwrap(), db.table("steps").unwrap());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                loop {
                    let count = db.transact_blocking(|tx| {
                        let count = tx.add(counters, &[writer], 1)?;
                        let all = tx.add(counters, b"all", 1)?;
                        tx.put(steps, &all.to_be_bytes(), &[writer])?;
                        tx.delete(steps, &(all - 500).to_be_bytes())?;
                        Ok(count)
                    });
                    say("told", writer, count.unwrap());
                }
            });
        }
        loop {
            let read = db.transact_blocking(|tx| {
                let rows = tx.scan(counters, Scan::all())?;
                let count = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("a count"));
                let counts = rows.iter().filter(|(key, _)| key.len() == 1);
                Ok(counts.map(|(key, value)| (key[0], count(value))).collect::<Vec<_>>())
            });
            read.unwrap().into_iter().for_each(|(writer, count)| say("read", writer, count));
        }
    });
}

/// In one piece, so that lines of threads do not mix. The parent may have closed its end.
fn say(how: &str, writer: u8, count: i64) {
    let _ = std::io::stdout().lock().write_all(format!("{how} {writer} {count}\n").as_bytes());
}

/// Whether a writer said this line, and not the reader; which counter it is about, and the count.
fn said(line: &str) -> Option<(bool, u8, i64)> {
    let mut words = line.split(' ');
    let is_writer = match words.next()? {
        "told" => true,
        "read" => false,
        _ => return None,
    };
    Some((is_writer, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Runs the child until its writers have said so much; returns the greatest count of each writer that was acknowledged.
fn run_and_kill(path: &Path, after: usize) -> BTreeMap<u8, i64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut greatest = BTreeMap::<u8, i64>::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged = 0;
    // What was said before it was killed counts, too; the last line may be cut.
    for (is_writer, writer, count) in lines.filter_map(|line| said(&line)) {
        let known = greatest.entry(writer).or_default();
        *known = count.max(*known);
        acknowledged += usize::from(is_writer);
        if is_writer && acknowledged == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    greatest
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let mut all_before = 0;
    for round in 0..ROUNDS {
        let told = run_and_kill(folder.path(), 100 + 300 * round);
        let db = Db::open_with(folder.path(), small()).unwrap();
        let counters: BTreeMap<_, _> = rows(&db, "counters").into_iter().collect();
        let count = |key: &[u8]| {
            counters
                .get(key)
                .map_or(0, |bytes| i64::from_le_bytes((&bytes[..]).try_into().unwrap()))
        };
        for (writer, told) in &told {
            let found = count(&[*writer]);
            assert!(found >= *told, "round {round}: {found} of {told} of writer {writer}");
        }
        let all = count(b"all");
        assert_eq!(all, (0..WRITERS).map(|writer| count(&[writer])).sum::<i64>(), "round {round}");
        // The last 500 steps are there, and no others: each transaction is there as a whole.
        let steps: Vec<_> = rows(&db, "steps").into_iter().map(|(key, _)| key).collect();
        let expected = (1.max(all - 499)..=all).map(|step| step.to_be_bytes().to_vec());
        assert_eq!(steps, expected.collect::<Vec<_>>(), "round {round}");
        assert!(all >= all_before, "round {round}: {all} of {all_before}");
        all_before = all;
    }
    assert!(all_before > 1000, "only {all_before} transactions");
}
