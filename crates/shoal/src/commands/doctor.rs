//! `shoal doctor`: whether the folder of a database, or of a node, is whole.

use super::{CommandError, CommandOutcome, print};
use clap::Args;
use shoal_client::{Examination, LogError, OpenError};
use shoal_server::{DisksError, ExaminedLog, ExaminedWorkerLog, NodeExamination, RebootLoss};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Say whether a database on disk, or the logs of a node, are whole, whether they may be used, and what to do if not
///
/// All files are read. A database is restored in memory as `Db::open` would, the logs of a node as `shoal serve` would. Nothing is
/// changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal doctor /var/lib/accounts
  shoal doctor /var/lib/shoal

Exit codes: 0 it is whole and may be used, 1 it is damaged, in use, or may not be used, 2 the folder holds neither")]
pub struct Doctor {
    /// The folder that a program passes to `Db::open`, or the `data` of a node's file
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        // Another error is that of `node_logs` too, which says what it means.
        if let Err(error @ DisksError::Folder(_)) = NodeExamination::check_free(&self.folder) {
            let advice = "Nothing was examined. Stop the node, then ask again.";
            print(&format!("{}: {error}\n{advice}\n", self.folder.display()))?;
            return Ok(CommandOutcome::Fails);
        }
        if let Some(found) = node_logs(&self.folder)? {
            let (text, outcome) = node_verdict(&found);
            print(&format!("{}: {text}", self.folder.display()))?;
            return Ok(outcome);
        }
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

/// What a node has written in the folder, if one has.
pub fn node_logs(folder: &Path) -> Result<Option<NodeExamination>, CommandError> {
    NodeExamination::of(folder).map_err(|error| match error {
        DisksError::Folder(error) => CommandError::Usage(error.to_string()),
        error => CommandError::Database(format!("{}: {error}", folder.display())),
    })
}

/// What is to be said of the logs of a node.
fn node_verdict(found: &NodeExamination) -> (String, CommandOutcome) {
    let mut text = format!("logs of {}, volume {:016x}\n", found.node, found.volume);
    let (mut is_whole, mut may_start) = (true, true);
    // Where some logs are empty, and others are not, files are gone, or were never written.
    let mut loses_memory = found.is_void
        || found.reboot_loss == RebootLoss::All
        || found.logs.iter().any(is_empty) && !is_new(found);
    for ExaminedLog { worker, log } in &found.logs {
        let what = match log {
            Ok(log) => {
                is_whole &= damaged_checkpoints(log) == 0;
                describe_log(log)
            }
            Err(error) => {
                let is_damage = error.is_damage();
                (is_whole, may_start) = (false, may_start && is_damage);
                loses_memory |= is_damage;
                error.to_string()
            }
        };
        let _ = writeln!(text, "worker {}: {what}", worker.0);
    }
    if !found.set_aside.is_empty() {
        let _ = writeln!(text, "Set aside before: {}.", found.set_aside.join(", "));
    }
    let _ = writeln!(text, "{}", start_advice(found, may_start, loses_memory));
    let holds = is_whole && may_start && !loses_memory;
    (text, if holds { CommandOutcome::Holds } else { CommandOutcome::Fails })
}

/// Nothing was ever written there, or it is gone.
fn is_empty(examined: &ExaminedLog) -> bool {
    examined.log.as_ref().is_ok_and(|log| log.incarnation == 0)
}

/// No process has written to any of the logs.
fn is_new(found: &NodeExamination) -> bool {
    found.logs.iter().all(is_empty)
}

fn damaged_checkpoints(log: &ExaminedWorkerLog) -> usize {
    log.checkpoints.iter().filter(|it| it.first.is_err()).count()
}

/// What a log holds that can be used.
fn describe_log(log: &ExaminedWorkerLog) -> String {
    let mut text = format!(
        "{} streams, {} segments, {} checkpoints, {} of them damaged",
        log.streams.len(),
        log.segments.len(),
        log.checkpoints.len(),
        damaged_checkpoints(log)
    );
    if let Some(torn) = &log.torn {
        let _ = write!(text, "; its end is torn, in {} at byte {}", torn.file, torn.offset);
    }
    text
}

/// Whether the node may be started with its logs, and what it does then.
fn start_advice(found: &NodeExamination, may_start: bool, loses_memory: bool) -> &'static str {
    match (may_start, loses_memory) {
        (false, _) => {
            "The node may not be started with these files: they are another's, of a newer build, or cannot be read."
        }
        (true, true) if found.is_void => {
            "The cluster has given up what the logs hold: the node may be started, and begins without memory."
        }
        (true, true) if found.reboot_loss == RebootLoss::All => {
            "The node may be started. It had not stopped in order, and the machine was started anew since, with durability `async`: it \
             sets its logs aside, begins without memory, and copies its shards from other nodes. Start it while those are up."
        }
        (true, true) => {
            "The node may be started: it sets its logs aside, begins without memory, and copies its shards from other nodes. \
             Start it while those are up, and look at the disk."
        }
        (true, false) if is_new(found) => {
            "The node may be started. Nothing was written to its logs: it begins without memory."
        }
        (true, false) if found.reboot_loss == RebootLoss::AllIfAsync => {
            "The node may be started. It had not stopped in order, and the machine was started anew since: with durability `async` it \
             begins without memory."
        }
        (true, false) => "The node may be started, and has its memory.",
    }
}

/// A folder without a database is a wrong argument.
pub fn check_database(folder: &Path, found: &Examination) -> Result<(), CommandError> {
    match found.identity {
        Some(_) => Ok(()),
        None => {
            let message = format!(
                "{} holds no database and no logs of a node: name the folder of one",
                folder.display()
            );
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
