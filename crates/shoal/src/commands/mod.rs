//! The commands, one file each, and how they end.
//!
//! | exit code | means |
//! |---|---|
//! | 0 | done, and all that was checked holds |
//! | 1 | a check failed, or the database did |
//! | 2 | the command line, or a file it names, is wrong |

mod bench;
mod chaos;
mod check;
mod local;
mod managers;
mod reproduce;
mod serve;
mod shape;
mod shards;
mod sim;
mod status;
mod target;

use clap::{Parser, Subcommand};
use serde::Serialize;
use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// A transactional key-value store: strictly serializable, in memory, many cores.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  shoal bench tpcc --workers 2 --html tpcc.html")]
pub struct Shoal {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    Chaos(chaos::Chaos),
    Check(check::Check),
    Local(local::Local),
    Managers(managers::Managers),
    Reproduce(reproduce::Reproduce),
    Serve(serve::Serve),
    Shards(shards::Shards),
    Sim(sim::Sim),
    Status(status::Status),
}

/// How a command ended that could do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    Fails,
    /// The checker of histories reached its bounds: neither of the two.
    Undecided,
}

impl Verdict {
    /// The verdict on a history.
    fn of(verdict: workloads::history::Verdict) -> Verdict {
        match verdict {
            workloads::history::Verdict::Consistent => Verdict::Holds,
            workloads::history::Verdict::Undecided => Verdict::Undecided,
            workloads::history::Verdict::Violated => Verdict::Fails,
        }
    }
}

/// Why a command could not.
#[derive(Debug)]
enum Trouble {
    /// The command line, or a file it names, is wrong.
    Usage(String),
    /// The database failed.
    Database(String),
}

impl Trouble {
    /// That `what` cannot be done with the file at `path`.
    fn file(what: &str, path: &Path, error: impl Display) -> Trouble {
        Trouble::Usage(format!("cannot {what} {}: {error}", path.display()))
    }
}

/// Runs the command and says how it ended.
pub fn run(shoal: &Shoal) -> ExitCode {
    let ended = match &shoal.command {
        Command::Bench(bench) => bench.run(),
        Command::Chaos(chaos) => chaos.run(),
        Command::Check(check) => check.run(),
        Command::Local(local) => local.run(),
        Command::Managers(managers) => managers.run(),
        Command::Reproduce(reproduce) => reproduce.run(),
        Command::Serve(serve) => serve.run(),
        Command::Shards(shards) => shards.run(),
        Command::Sim(sim) => sim.run(),
        Command::Status(status) => status.run(),
    };
    match ended {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Fails) => ExitCode::from(1),
        Ok(Verdict::Undecided) => ExitCode::from(3),
        Err(Trouble::Database(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
        Err(Trouble::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Writes `text` to standard output. Its reader may have closed it: that is no error.
fn print(text: &str) -> Result<(), Trouble> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Trouble::Usage(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Has the operator say the name of what is about to be changed: typed, or as `--confirm`.
fn confirm(wanted: &str, said: Option<&str>, say: impl Fn(&str)) -> Result<(), Trouble> {
    let mut line = String::new();
    let said = match said {
        Some(said) => said,
        None if io::stdin().is_terminal() => {
            say(&format!("Type {wanted} to accept this: "));
            let read = io::stdin().lock().read_line(&mut line);
            read.map_err(|error| Trouble::Usage(format!("cannot read the answer: {error}")))?;
            line.trim()
        }
        None => {
            let missing = format!("nothing is changed: say `--confirm {wanted}` to accept this");
            return Err(Trouble::Usage(missing));
        }
    };
    match said.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(Trouble::Usage(format!("nothing is changed: that is not {wanted}"))),
    }
}

/// Writes what is only text, names and numbers to standard output, as JSON.
fn print_json(value: &impl Serialize) -> Result<(), Trouble> {
    let json = serde_json::to_string_pretty(value).expect("it has only text keys and numbers");
    print(&(json + "\n"))
}

/// Makes sure that a result can be written to `path`, before time is spent on it.
fn reserve(path: &Path) -> Result<(), Trouble> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| Trouble::file("write", path, error))
}

fn write(path: &Path, text: &str) -> Result<(), Trouble> {
    fs::write(path, text).map_err(|error| Trouble::file("write", path, error))
}
