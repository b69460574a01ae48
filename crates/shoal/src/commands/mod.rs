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
mod explore;
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
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Bench(bench::Bench),
    Chaos(chaos::Chaos),
    Check(check::Check),
    Explore(explore::Explore),
    Local(local::LocalCommand),
    Managers(managers::Managers),
    Reproduce(reproduce::Reproduce),
    Serve(serve::Serve),
    Shards(shards::Shards),
    Sim(sim::Sim),
    Status(status::Status),
}

/// How a command ended that could do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandOutcome {
    Holds,
    Fails,
    /// The checker of histories reached its bounds: neither of the two.
    Undecided,
}

impl CommandOutcome {
    /// The verdict on a history.
    fn of(verdict: shoal_workloads::history::Verdict) -> CommandOutcome {
        match verdict {
            shoal_workloads::history::Verdict::Consistent => CommandOutcome::Holds,
            shoal_workloads::history::Verdict::Undecided => CommandOutcome::Undecided,
            shoal_workloads::history::Verdict::Violated => CommandOutcome::Fails,
        }
    }
}

/// Why a command could not.
#[derive(Debug)]
enum CommandError {
    /// The command line, or a file it names, is wrong.
    Usage(String),
    /// The database failed.
    Database(String),
}

impl CommandError {
    /// That `what` cannot be done with the file at `path`.
    fn file(what: &str, path: &Path, error: impl Display) -> CommandError {
        CommandError::Usage(format!("cannot {what} {}: {error}", path.display()))
    }
}

/// Runs the command and says how it ended.
pub fn run(shoal: &Shoal) -> ExitCode {
    let ended = match &shoal.command {
        Subcommands::Bench(bench) => bench.run(),
        Subcommands::Chaos(chaos) => chaos.run(),
        Subcommands::Check(check) => check.run(),
        Subcommands::Explore(explore) => explore.run(),
        Subcommands::Local(local) => local.run(),
        Subcommands::Managers(managers) => managers.run(),
        Subcommands::Reproduce(reproduce) => reproduce.run(),
        Subcommands::Serve(serve) => serve.run(),
        Subcommands::Shards(shards) => shards.run(),
        Subcommands::Sim(sim) => sim.run(),
        Subcommands::Status(status) => status.run(),
    };
    match ended {
        Ok(CommandOutcome::Holds) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Fails) => ExitCode::from(1),
        Ok(CommandOutcome::Undecided) => ExitCode::from(3),
        Err(CommandError::Database(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
        Err(CommandError::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Writes `text` to standard output. Its reader may have closed it: that is no error.
fn print(text: &str) -> Result<(), CommandError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::Usage(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Has the operator say the name of what is about to be changed: typed, or as `--confirm`.
fn confirm(wanted: &str, said: Option<&str>, say: impl Fn(&str)) -> Result<(), CommandError> {
    let mut line = String::new();
    let said = match said {
        Some(said) => said,
        None if io::stdin().is_terminal() => {
            say(&format!("Type {wanted} to accept this: "));
            let read = io::stdin().lock().read_line(&mut line);
            read.map_err(|error| CommandError::Usage(format!("cannot read the answer: {error}")))?;
            line.trim()
        }
        None => {
            let missing = format!("nothing is changed: say `--confirm {wanted}` to accept this");
            return Err(CommandError::Usage(missing));
        }
    };
    match said.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(CommandError::Usage(format!("nothing is changed: that is not {wanted}"))),
    }
}

/// Writes what is only text, names and numbers to standard output, as JSON.
fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(value).expect("it has only text keys and numbers");
    print(&(json + "\n"))
}

/// Makes sure that a result can be written to `path`, before time is spent on it.
fn reserve(path: &Path) -> Result<(), CommandError> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| CommandError::file("write", path, error))
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    fs::write(path, text).map_err(|error| CommandError::file("write", path, error))
}
