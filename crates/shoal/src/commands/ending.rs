//! How commands end.

use shoal_workloads::history::Verdict;
use std::fmt::Display;
use std::path::Path;

/// The result of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    Holds,
    Fails,
    /// The checker of histories reached its bounds: neither of the two.
    Undecided,
}

impl CommandOutcome {
    /// The verdict on a history.
    pub fn of(verdict: Verdict) -> CommandOutcome {
        match verdict {
            Verdict::Consistent => CommandOutcome::Holds,
            Verdict::Undecided => CommandOutcome::Undecided,
            Verdict::Violated => CommandOutcome::Fails,
        }
    }
}

/// Why a command could not.
#[derive(Debug)]
pub enum CommandError {
    /// The command line, or a file it names, is wrong.
    Usage(String),
    /// The database failed.
    Database(String),
}

impl CommandError {
    /// The error that `what` cannot be done with the file at `path`.
    pub fn file(what: &str, path: &Path, error: impl Display) -> CommandError {
        CommandError::Usage(format!("cannot {what} {}: {error}", path.display()))
    }
}
