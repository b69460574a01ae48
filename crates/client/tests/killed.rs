//! A process that writes is killed; what it had acknowledged, also to readers, is there when its folder is opened again.
//!
//! In a test binary of its own: a process that is being started has copies of all files that are open in this one, also of a
//! folder's lock, which another test may just have given up.

use shoal_client::{Db, EmbeddedPlantedBugs, Options, Scan};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Informs this test binary that it is the process to be killed, and where it writes.
const CHILD: &str = "SHOAL_DISK_CHILD";

/// What the process loses, and which bug it has.
const ENDS: &str = "SHOAL_DISK_ENDS";

/// As if its machine lost power: without what is not flushed.
const WITHOUT_POWER: &str = "without power";

/// The same, with a planted bug.
const WITH_EARLY_REPLIES: &str = "with early replies";

/// One test starts processes at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small segments, and a checkpoint after each of them.
fn small() -> Options {
    Options { log_segment_bytes: 32 << 10, checkpoint_log_bytes: 32 << 10, ..Options::default() }
}

/// The rows of a table.
fn rows(db: &Db, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table(table).unwrap();
    let rows = db.transact_blocking(|tx| {
        let rows = tx.scan(table, Scan::all())?;
        Ok(rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>())
    });
    rows.unwrap()
}

/// The options of the process to be killed.
fn options() -> Options {
    let ends = std::env::var(ENDS).unwrap_or_default();
    let planted = EmbeddedPlantedBugs {
        reply_before_reads: ends == WITH_EARLY_REPLIES,
        ..EmbeddedPlantedBugs::default()
    };
    Options { loses_unflushed: !ends.is_empty(), planted, ..small() }
}

/// This test binary, to be run as `child` in a folder.
fn command(child: &str, path: &Path, ends: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let arguments = ["--exact", child, "--nocapture", "--test-threads=1"];
    command.args(arguments).env(CHILD, path).env(ENDS, ends);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

const WRITERS: u8 = 3;
const ROUNDS: usize = 6;

/// Every writer counts its own counter up, and puts a row for each step into one table that all share. A reader reads all
/// counters. Both print what they received.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let db = Db::open_with(path, options()).unwrap();
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
fn run_and_kill(path: &Path, ends: &str, after: usize) -> BTreeMap<u8, i64> {
    let mut child = command("child", path, ends).spawn().unwrap();
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
    let _one = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let mut all_before = 0;
    for round in 0..ROUNDS {
        let ends = if round % 2 == 0 { "" } else { WITHOUT_POWER };
        let told = run_and_kill(folder.path(), ends, 100 + 300 * round);
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

/// One thread puts a row, and another reads it. As soon as that has its reply, the process ends. Flushes take long, so that
/// there is time to read what is not durable yet, also where the disk is quick or a thread waits for its core.
#[test]
#[expect(clippy::disallowed_methods, reason = "it ends without closing its database")]
fn reading_child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let slow = Options { flush_delay: Duration::from_millis(20), ..options() };
    let db = Db::open_with(path, slow).unwrap();
    let counters = db.table("counters").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| db.transact_blocking(|tx| tx.add(counters, &[0], 1)).unwrap());
        while !db.transact_blocking(|tx| Ok(tx.get(counters, &[0])?.is_some())).unwrap() {}
        say("read", 0, 1);
        std::process::exit(0);
    });
}

/// Whether the row that a process has read is there in the next one.
fn outlives_its_reader(ends: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let output = command("reading_child", folder.path(), ends).output().unwrap();
    assert!(output.stdout.ends_with(b"read 0 1\n"), "it ended before it had read the row");
    let db = Db::open_with(folder.path(), small()).unwrap();
    !rows(&db, "counters").is_empty()
}

#[test]
fn what_was_read_is_durable() {
    let _one = one_at_a_time();
    assert!((0..10).all(|_| outlives_its_reader(WITHOUT_POWER)));
}

#[test]
fn a_reply_before_what_was_read_is_durable_is_noticed() {
    let _one = one_at_a_time();
    assert!((0..50).any(|_| !outlives_its_reader(WITH_EARLY_REPLIES)));
}
