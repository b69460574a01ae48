//! `shoal check`: judges a history.

use super::{CommandError, CommandOutcome, print, print_json};
use clap::Args;
use shoal_workloads::history::{self, HistoryError};
use std::path::PathBuf;

/// Judge whether a history of transactions is strictly serializable
///
/// A history is a file of JSON lines, one transaction attempt a line, as docs/history-format.md
/// describes it. Anomalies are named, each with a small set of transactions that shows it. Where the
/// history is consistent, the checker has found an order of the transactions that explains it. Where it
/// finds neither within its bounds, the history is undecided, which is not a pass.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal check history.jsonl

Exit codes: 0 consistent, 1 an anomaly was found, 2 the file cannot be read or is no history,
3 undecided: neither an anomaly nor an order was found within the bounds of the search")]
pub struct Check {
    /// The history
    file: PathBuf,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let report = history::check_file(&self.file).map_err(|error| match error {
            // This one names the file itself.
            HistoryError::Open { .. } => CommandError::Usage(error.to_string()),
            error => CommandError::Usage(format!("{}: {error}", self.file.display())),
        })?;
        if self.json {
            print_json(&report)?;
        } else {
            print(&report.to_string())?;
        }
        Ok(CommandOutcome::of(report.verdict))
    }
}
