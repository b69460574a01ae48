//! `shoal doctor`: whether the folder of a database is whole.

use super::{CommandError, CommandOutcome, print};
use clap::Args;
use shoal_client::{Examination, LogError, OpenError};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Say whether a database on disk is whole, whether it may be opened, and what to do if not
///
/// All its files are read, and the database is restored in memory as `Db::open` would. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal doctor /var/lib/accounts

Exit codes: 0 it is whole and may be opened, 1 it is damaged, in use, or may not be opened, 2 the folder holds no database")]
pub struct Doctor {
    /// The folder that a program passes to `Db::open`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        if let Err(error) = Examination::check_free(&self.folder) {
            return self.refuse(&error);
        }
        match Examination::of(&self.folder) {
            Ok(found) => {
                check_database(&self.folder, &found)?;
                let (text, outcome) = verdict(&found);
                print(&format!("{}: {text}", self.folder.display()))?;
                Ok(outcome)
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&self, error: &OpenError) -> Result<CommandOutcome, CommandError> {
        let advice = match error {
            OpenError::Folder(shoal_client::OpenFolderError::InUse { .. }) => {
                "Nothing was examined. Close the database there, then ask again."
            }
            OpenError::Folder(_) => return Err(CommandError::Usage(error.to_string())),
            OpenError::Log(LogError::Newer { .. }) => "It may not be opened by this build.",
            OpenError::Log(LogError::Foreign { .. }) => {
                "It may not be opened as a database of its own: files of two owners are mixed, or it is a node's."
            }
            OpenError::Log(LogError::Folder(_)) => {
                "It may not be opened while the system cannot read it: look at the disk."
            }
            OpenError::Log(_) => {
                "It may not be opened: transactions that were confirmed would be missing. Keep these files aside, and go on \
                 from a backup (`Db::backup`)."
            }
            _ => "It may not be opened.",
        };
        print(&format!("{}: {error}\n{advice}\n", self.folder.display()))?;
        Ok(CommandOutcome::Fails)
    }
}

/// A folder without a database is a wrong argument.
pub fn check_database(folder: &Path, found: &Examination) -> Result<(), CommandError> {
    match found.identity {
        Some(_) => Ok(()),
        None => {
            let message = format!("{} holds no database: name the folder of one", folder.display());
            Err(CommandError::Usage(message))
        }
    }
}

/// What is to be said of a database that may be opened.
fn verdict(found: &Examination) -> (String, CommandOutcome) {
    let rows: u64 = found.tables.iter().map(|table| table.rows).sum();
    let damaged: Vec<_> =
        found.checkpoints.iter().filter_map(|it| it.first.as_ref().err()).collect();
    let mut text = String::from(if damaged.is_empty() { "whole" } else { "damaged in part" });
    let (segments, checkpoints) = (found.segments.len(), found.checkpoints.len());
    let _ = writeln!(
        text,
        "; {rows} rows in {} tables, transactions up to {}, {segments} segments, {checkpoints} checkpoints",
        found.tables.len(),
        found.clock.0
    );
    if let Some(torn) = &found.torn {
        let _ = writeln!(
            text,
            "The end of the log is torn, in {} at byte {}: a crash cut off what was never confirmed.",
            torn.file, torn.offset
        );
    }
    for error in &damaged {
        let _ = writeln!(text, "{error}.");
    }
    if damaged.is_empty() {
        text += "It may be opened.\n";
        return (text, CommandOutcome::Holds);
    }
    text += "It may be opened: all is in an older checkpoint and the log. Look at the disk, and take a backup (`Db::backup`).\n";
    (text, CommandOutcome::Fails)
}
