//! A process with an embedded database that is killed over and over, as if its machine lost power, and what it then has.
//!
//! ```text
//! parent   starts ─► child: opens, checks ─ "restored" ─► writers ─ "wrote", "saw" ─► kills it ─► compares ─► the next round
//! ```
//! All writers draw the next number of one sequence, and keep what they have drawn: so what is restored has to be the first
//! numbers of it, without a gap, which are the transactions up to one clock. Each also writes a row of its own, with what it read in
//! the row of another: so what it read has to be there, too. Some only read, and what they were answered has to stay.

use shoal_client::{Db, Error, Options, Result as DbResult, Scan, TableId};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

/// Small, so that the log goes over many segments, and checkpoints are frequent.
const SEGMENT_BYTES: u64 = 16 << 10;

/// The growth of the log between two checkpoints.
const CHECKPOINT_BYTES: u64 = 128 << 10;

/// Of the rows that are written over and over.
const ROW_BYTES: usize = 200;

/// What a line of the child says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So much of a writer was restored, or found by one that only read: draws of the sequence, and writes of its own row.
    Restored(u32, [u64; 2]),
    /// A writer's transaction is acknowledged: see [`Line::Restored`].
    Wrote(u32, [u64; 2]),
    /// What one that only read was answered of a writer's own row.
    Saw(u32, u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Restored(writer, [drawn, own]) => write!(f, "restored {writer} {drawn} {own}"),
            Line::Wrote(writer, [drawn, own]) => write!(f, "wrote {writer} {drawn} {own}"),
            Line::Saw(writer, own) => write!(f, "saw {writer} {own}"),
        }
    }
}

impl Line {
    fn parse(line: &str) -> Option<Line> {
        let mut words = line.split_whitespace();
        let what = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let mut writer = || number().and_then(|it| u32::try_from(it).ok());
        match what {
            "saw" => Some(Line::Saw(writer()?, number()?)),
            "wrote" => Some(Line::Wrote(writer()?, [number()?, number()?])),
            "restored" => Some(Line::Restored(writer()?, [number()?, number()?])),
            _ => None,
        }
    }
}

/// What became of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddedRound {
    /// Transactions that were acknowledged in it.
    pub acknowledged: u64,
    /// Of the last transactions of the round before, of which no answer had come, so many were there.
    pub kept_unacknowledged: u64,
    /// What cannot be, in words.
    pub wrong: Vec<String>,
}

/// A process with an embedded database, started over and over in one folder.
#[derive(Debug)]
pub struct EmbeddedProcess {
    /// What has to be there of each writer: draws, and writes of its own row. `None` before the first round: the folder may have a
    /// database.
    acknowledged: Vec<Option<[u64; 2]>>,
}

impl EmbeddedProcess {
    /// One that was not started yet, with so many writers.
    #[must_use]
    pub fn new(writers: u32) -> EmbeddedProcess {
        EmbeddedProcess { acknowledged: vec![None; writers as usize] }
    }

    /// Starts the process in the folder, has it write until `writes` transactions are acknowledged, and kills it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn round(&mut self, folder: &Path, writes: u64) -> std::io::Result<EmbeddedRound> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["chaos", "embedded-writer", "--writers", &self.acknowledged.len().to_string()])
            .arg("--folder")
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut round = EmbeddedRound::default();
        let is_alive = self.follow(lines, writes, &mut round, &mut child)?;
        let status = child.wait()?;
        if !is_alive {
            let mut said = String::new();
            if let Some(stderr) = child.stderr.take() {
                BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| {
                    said.push_str(&line);
                    said.push('\n');
                });
            }
            round.wrong.push(format!("the process ended by itself ({status}): {said}"));
        }
        Ok(round)
    }

    /// Reads what the process says, kills it when enough is acknowledged, and reads the rest. Returns false where it ended by itself.
    fn follow(
        &mut self,
        lines: BufReader<ChildStdout>,
        writes: u64,
        round: &mut EmbeddedRound,
        child: &mut Child,
    ) -> std::io::Result<bool> {
        let mut is_killed = false;
        for line in lines.lines() {
            // The last line may be cut.
            let Some(line) = Line::parse(&line?) else { continue };
            self.take(line, round);
            if round.acknowledged >= writes && !is_killed {
                child.kill()?;
                is_killed = true;
            }
        }
        Ok(is_killed)
    }

    fn take(&mut self, line: Line, round: &mut EmbeddedRound) {
        let (Line::Restored(writer, _) | Line::Wrote(writer, _) | Line::Saw(writer, _)) = line;
        let Some(acknowledged) = self.acknowledged.get_mut(writer as usize) else { return };
        match line {
            Line::Restored(_, restored) => {
                let before = acknowledged.replace(restored).unwrap_or(restored);
                for (what, (restored, before)) in
                    ["draws", "rows"].iter().zip(restored.into_iter().zip(before))
                {
                    // A writer has one transaction in flight.
                    match restored.checked_sub(before) {
                        Some(more @ (0 | 1)) => round.kept_unacknowledged += more,
                        _ => round.wrong.push(format!(
                            "writer {writer} has {restored} {what}, {before} were acknowledged"
                        )),
                    }
                }
            }
            Line::Wrote(_, counts) => *acknowledged = Some(counts),
            Line::Saw(_, own) => {
                let known = acknowledged.get_or_insert_default();
                known[1] = known[1].max(own);
            }
        }
        round.acknowledged += u64::from(!matches!(line, Line::Restored(..)));
    }
}

/// The tables of the writers.
#[derive(Clone, Copy)]
struct Tables {
    /// By the number that was drawn: the writer, and how many it had drawn with that.
    drawn: TableId,
    /// Under one key: the last number that was drawn.
    last: TableId,
    /// By writer: how often its own row was written, the writer whose row was read for that, and what that had.
    own: TableId,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|it| u64::from_be_bytes(it.try_into().expect("eight"))).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// As [`bytes`], with so much behind them that the log has deltas of a row that is written again.
fn row(words: &[u64]) -> Vec<u8> {
    let mut row = bytes(words);
    row.resize(ROW_BYTES, 0);
    row
}

/// Where the parent has gone, this fails.
fn say(line: Line) -> Result<(), String> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(|error| error.to_string())
}

/// What the child does: opens the database, checks what it has, and writes until it is killed.
///
/// # Errors
/// What is wrong with the database.
pub fn write_until_killed(folder: &Path, writers: u32) -> Result<(), String> {
    let options = Options {
        log_segment_bytes: SEGMENT_BYTES,
        checkpoint_log_bytes: CHECKPOINT_BYTES,
        loses_unflushed: true,
        ..Options::default()
    };
    let db = Db::open_with(folder, options).map_err(|error| error.to_string())?;
    let table = |name| db.table(name).map_err(|error| error.to_string());
    let tables = Tables { drawn: table("drawn")?, last: table("last")?, own: table("own")? };
    let restored = db.transact_blocking(|tx| restored(tx, tables, writers));
    let restored = restored.map_err(|error| error.to_string())?;
    for (writer, counts) in (0..).zip(restored?) {
        say(Line::Restored(writer, counts))?;
    }
    let failed = thread::scope(|scope| {
        let all = (0..writers).map(|writer| {
            let db = &db;
            scope.spawn(move || write(db, tables, writer, writers))
        });
        let all: Vec<_> = all.collect();
        all.into_iter().find_map(|it| it.join().ok().and_then(Result::err))
    });
    failed.map_or(Ok(()), Err)
}

/// What the database has of each writer; or what no crash explains.
fn restored(
    tx: &shoal_client::BlockingTransaction<'_>,
    tables: Tables,
    writers: u32,
) -> DbResult<Result<Vec<[u64; 2]>, String>> {
    let last = tx.get(tables.last, b"last")?.map_or(0, |last| words(last)[0]);
    let mut counts = vec![[0; 2]; writers as usize];
    let mut expected = 1;
    for (key, value) in tx.scan(tables.drawn, Scan::all())? {
        let (number, drawn) = (words(key)[0], words(value));
        let Some([count, _]) = counts.get_mut(drawn[0] as usize) else {
            return Ok(Err(format!("{writers} writers, and there were more: name another folder")));
        };
        *count += 1;
        if number != expected || *count != drawn[1] {
            return Ok(Err(format!("number {number} follows {}, of {drawn:?}", expected - 1)));
        }
        expected += 1;
    }
    if expected != last + 1 {
        return Ok(Err(format!("the last number is {last}, and {} are there", expected - 1)));
    }
    let mut rows = Vec::new();
    for writer in 0..writers {
        let row = tx.get(tables.own, &writer.to_be_bytes())?.map(words);
        rows.push(row.unwrap_or_else(|| vec![0, 0, 0]));
    }
    for (writer, row) in rows.iter().enumerate() {
        let [own, other, seen, ..] = row[..] else { return Ok(Err(format!("a row is {row:?}"))) };
        counts[writer][1] = own;
        let there = rows[other as usize][0];
        if there < seen {
            return Ok(Err(format!(
                "writer {writer} had read {seen} of {other}, which has {there}"
            )));
        }
    }
    Ok(Ok(counts))
}

/// A writer, until it is killed.
fn write(db: &Db, tables: Tables, writer: u32, writers: u32) -> Result<(), String> {
    let key = writer.to_be_bytes();
    for turn in 0_u32.. {
        let other = (writer + 1 + turn % writers.max(2).saturating_sub(1)) % writers;
        let own_of = |tx: &shoal_client::BlockingTransaction<'_>, of: u32| -> DbResult<u64> {
            Ok(tx.get(tables.own, &of.to_be_bytes())?.map_or(0, |row| words(row)[0]))
        };
        if turn % 4 == 3 {
            let seen = db.transact_blocking(|tx| own_of(tx, other));
            say(Line::Saw(other, seen.map_err(|error| error.to_string())?))?;
            continue;
        }
        let counts = db.transact_blocking(|tx| {
            let own = own_of(tx, writer)? + 1;
            let seen = own_of(tx, other)?;
            tx.put(tables.own, &key, &row(&[own, u64::from(other), seen]))?;
            let mut drawn = tx.get(tables.last, &key)?.map_or(0, |drawn| words(drawn)[0]);
            if turn % 2 == 0 {
                let last = tx.get(tables.last, b"last")?.map_or(0, |last| words(last)[0]) + 1;
                drawn += 1;
                tx.put(tables.last, b"last", &row(&[last]))?;
                tx.put(tables.last, &key, &row(&[drawn]))?;
                tx.put(tables.drawn, &bytes(&[last]), &bytes(&[u64::from(writer), drawn]))?;
            }
            Ok([drawn, own])
        });
        match counts {
            Ok(counts) => say(Line::Wrote(writer, counts))?,
            // Others were quicker, over and over.
            Err(Error::Aborted(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_and_what_is_cut_is_passed_over() {
        for line in [Line::Saw(2, 9), Line::Wrote(1, [4, 5]), Line::Restored(0, [7, 8])] {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        for line in ["", "wrote 1", "saw x 1", "restored 5000000000 1 1"] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_lost_or_appears_is_said() {
        let mut process = EmbeddedProcess::new(2);
        let mut round = EmbeddedRound::default();
        for line in [Line::Wrote(0, [3, 4]), Line::Saw(1, 6), Line::Wrote(1, [0, 6])] {
            process.take(line, &mut round);
        }
        assert_eq!((round.acknowledged, round.wrong.len()), (3, 0));
        let mut next = EmbeddedRound::default();
        process.take(Line::Restored(0, [3, 5]), &mut next);
        assert_eq!((next.kept_unacknowledged, next.wrong.len()), (1, 0));
        process.take(Line::Restored(1, [0, 5]), &mut next);
        assert_eq!(next.wrong, ["writer 1 has 5 rows, 6 were acknowledged"]);
        process.take(Line::Restored(0, [6, 5]), &mut next);
        assert_eq!(next.wrong.len(), 2, "{:?}", next.wrong);
        let mut first = EmbeddedRound::default();
        EmbeddedProcess::new(1).take(Line::Restored(0, [70, 80]), &mut first);
        assert_eq!(first, EmbeddedRound::default(), "the folder had a database");
    }
}
