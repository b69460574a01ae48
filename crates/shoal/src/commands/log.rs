//! `shoal log`: what the log and the checkpoints of a database on disk hold.

use super::doctor::check_database;
use super::{CommandError, CommandOutcome, print, print_json};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shoal_client::{Examination, OpenError};
use std::fmt::Write;
use std::path::PathBuf;

/// Show what the log and the checkpoints of a database on disk hold
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  shoal log inspect /var/lib/accounts --json")]
pub struct Log {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Inspect(Inspect),
}

/// List segments, checkpoints and tables of a database on disk
///
/// Nothing is changed, and the database may be in use: then the end of its log may look torn.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal log inspect /var/lib/accounts
  shoal log inspect /var/lib/accounts --json

Exit codes: 0 shown, 1 files cannot be read or are damaged, 2 the folder holds no database")]
struct Inspect {
    /// The folder that a program passes to `Db::open`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Log {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let What::Inspect(inspect) = &self.what;
        inspect.run()
    }
}

impl Inspect {
    fn run(&self) -> Result<CommandOutcome, CommandError> {
        let found = Examination::of(&self.folder).map_err(|error| match error {
            OpenError::Folder(error) => CommandError::Usage(error.to_string()),
            error => CommandError::Database(format!("{}: {error}", self.folder.display())),
        })?;
        check_database(&self.folder, &found)?;
        match self.json {
            true => print_json(&as_json(&found))?,
            false => print(&as_text(&found))?,
        }
        Ok(CommandOutcome::Holds)
    }
}

fn as_json(found: &Examination) -> Value {
    let segments = found.segments.iter().map(|segment| {
        json!({
            "serial": segment.serial,
            "file": segment.file.to_string(),
            "incarnation": segment.incarnation,
            "groups": segment.groups,
            "records": segment.records,
            "end": segment.end,
        })
    });
    let checkpoints = found.checkpoints.iter().map(|checkpoint| {
        json!({
            "file": checkpoint.file,
            "bytes": checkpoint.bytes,
            "first_segment": checkpoint.first.as_ref().ok(),
            "damage": checkpoint.first.as_ref().err().map(ToString::to_string),
        })
    });
    let tables = found
        .tables
        .iter()
        .map(|table| json!({ "name": table.name, "id": table.id.0, "rows": table.rows }));
    let torn = found.torn.as_ref();
    json!({
        "volume": found.identity.map(|identity| format!("{:016x}", identity.volume)),
        "incarnation": found.incarnation,
        "clock": found.clock.0,
        "segments": segments.collect::<Vec<_>>(),
        "torn": torn.map(|torn| json!({ "file": torn.file.to_string(), "offset": torn.offset })),
        "checkpoints": checkpoints.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
    })
}

fn as_text(found: &Examination) -> String {
    let mut text = String::new();
    let volume = found.identity.map_or(0, |identity| identity.volume);
    let _ = writeln!(text, "volume {volume:016x}, incarnation {}", found.incarnation);
    let _ = writeln!(text, "transactions up to {}", found.clock.0);
    for checkpoint in &found.checkpoints {
        let state = match &checkpoint.first {
            Ok(first) => format!("needs the log from segment {first} on"),
            Err(error) => error.to_string(),
        };
        let _ = writeln!(text, "{}  {:>12} bytes  {state}", checkpoint.file, checkpoint.bytes);
    }
    for segment in &found.segments {
        let _ = writeln!(
            text,
            "segment {:<6} {}  incarnation {:<4} {:>8} groups  {:>10} records  ends at {}",
            segment.serial,
            segment.file,
            segment.incarnation,
            segment.groups,
            segment.records,
            segment.end
        );
    }
    if let Some(torn) = &found.torn {
        let _ = writeln!(text, "torn end: {} at byte {}", torn.file, torn.offset);
    }
    for table in &found.tables {
        let _ = writeln!(text, "table {:<6} {:>12} rows  {}", table.id.0, table.rows, table.name);
    }
    text
}
