//! `shoal log`: what the log and the checkpoints of a database on disk hold, or those of a node.

use super::doctor::{check_database, node_logs};
use super::{CommandError, CommandOutcome, print, print_json};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shoal_client::{Examination, ExaminedCheckpoint, OpenError, SegmentSummary, Torn};
use shoal_server::{ExaminedLog, ExaminedStream, NodeExamination};
use std::fmt::Write;
use std::path::PathBuf;

/// Show what the logs and the checkpoints of a database on disk, or of a node, hold
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

/// List segments, checkpoints and tables of a database on disk, or the segments, checkpoints and streams of a node
///
/// Nothing is changed, and the folder may be in use: then the end of a log may look torn.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal log inspect /var/lib/accounts
  shoal log inspect /var/lib/shoal --json

Exit codes: 0 shown, 1 files cannot be read or are damaged, 2 the folder holds neither")]
struct Inspect {
    /// The folder that a program passes to `Db::open`, or the `data` of a node's file
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
        if let Some(found) = node_logs(&self.folder)? {
            match self.json {
                true => print_json(&node_as_json(&found))?,
                false => print(&node_as_text(&found))?,
            }
            let is_read = found.logs.iter().all(|of| of.log.is_ok());
            return Ok(if is_read { CommandOutcome::Holds } else { CommandOutcome::Fails });
        }
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

fn segment_as_json(segment: &SegmentSummary) -> Value {
    json!({
        "serial": segment.serial,
        "file": segment.file.to_string(),
        "incarnation": segment.incarnation,
        "groups": segment.groups,
        "records": segment.records,
        "end": segment.end,
    })
}

fn checkpoint_as_json(checkpoint: &ExaminedCheckpoint) -> Value {
    json!({
        "file": checkpoint.file,
        "bytes": checkpoint.bytes,
        "first_segment": checkpoint.first.as_ref().ok(),
        "damage": checkpoint.first.as_ref().err().map(ToString::to_string),
    })
}

fn torn_as_json(torn: Option<&Torn>) -> Value {
    json!(torn.map(|torn| json!({ "file": torn.file.to_string(), "offset": torn.offset })))
}

fn node_as_json(found: &NodeExamination) -> Value {
    let stream = |stream: &ExaminedStream| {
        json!({
            "shard": stream.shard.0,
            "promised": stream.promised.to_string(),
            "accepted": stream.accepted.to_string(),
            "first": stream.first,
            "length": stream.length,
            "decided": stream.decided,
            "void": stream.is_void,
        })
    };
    let logs = found.logs.iter().map(|ExaminedLog { worker, log }| match log {
        Ok(log) => json!({
            "worker": worker.0,
            "incarnation": log.incarnation,
            "segments": log.segments.iter().map(segment_as_json).collect::<Vec<_>>(),
            "torn": torn_as_json(log.torn.as_ref()),
            "checkpoints": log.checkpoints.iter().map(checkpoint_as_json).collect::<Vec<_>>(),
            "streams": log.streams.iter().map(stream).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "worker": worker.0, "damage": error.to_string() }),
    });
    json!({
        "node": found.node.0,
        "volume": format!("{:016x}", found.volume),
        "void": found.is_void,
        "set_aside": found.set_aside,
        "logs": logs.collect::<Vec<_>>(),
    })
}

fn as_json(found: &Examination) -> Value {
    let segments = found.segments.iter().map(segment_as_json);
    let checkpoints = found.checkpoints.iter().map(checkpoint_as_json);
    let tables = found
        .tables
        .iter()
        .map(|table| json!({ "name": table.name, "id": table.id.0, "rows": table.rows }));
    json!({
        "volume": found.identity.map(|identity| format!("{:016x}", identity.volume)),
        "incarnation": found.incarnation,
        "clock": found.clock.0,
        "segments": segments.collect::<Vec<_>>(),
        "torn": torn_as_json(found.torn.as_ref()),
        "checkpoints": checkpoints.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
    })
}

/// The lines of checkpoints, segments and a torn end.
fn files_as_text(
    checkpoints: &[ExaminedCheckpoint],
    segments: &[SegmentSummary],
    torn: Option<&Torn>,
) -> String {
    let mut text = String::new();
    for checkpoint in checkpoints {
        let state = match &checkpoint.first {
            Ok(first) => format!("needs the log from segment {first} on"),
            Err(error) => error.to_string(),
        };
        let _ = writeln!(text, "{}  {:>12} bytes  {state}", checkpoint.file, checkpoint.bytes);
    }
    for segment in segments {
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
    if let Some(torn) = torn {
        let _ = writeln!(text, "torn end: {} at byte {}", torn.file, torn.offset);
    }
    text
}

fn node_as_text(found: &NodeExamination) -> String {
    let mut text = format!("logs of {}, volume {:016x}\n", found.node, found.volume);
    if found.is_void {
        text += "void: the cluster has given up what they hold\n";
    }
    for name in &found.set_aside {
        let _ = writeln!(text, "set aside: {name}");
    }
    for ExaminedLog { worker, log } in &found.logs {
        let log = match log {
            Ok(log) => log,
            Err(error) => {
                let _ = writeln!(text, "\nworker {}: {error}", worker.0);
                continue;
            }
        };
        let _ = writeln!(text, "\nworker {}, incarnation {}", worker.0, log.incarnation);
        text += &files_as_text(&log.checkpoints, &log.segments, log.torn.as_ref());
        for stream in &log.streams {
            let _ = writeln!(
                text,
                "{}  promised {}, accepted under {}  entries {} to {}, decided {}{}",
                stream.shard,
                stream.promised,
                stream.accepted,
                stream.first,
                stream.length,
                stream.decided,
                if stream.is_void { ", the last records are void" } else { "" }
            );
        }
    }
    text
}

fn as_text(found: &Examination) -> String {
    let mut text = String::new();
    let volume = found.identity.map_or(0, |identity| identity.volume);
    let _ = writeln!(text, "volume {volume:016x}, incarnation {}", found.incarnation);
    let _ = writeln!(text, "transactions up to {}", found.clock.0);
    text += &files_as_text(&found.checkpoints, &found.segments, found.torn.as_ref());
    for table in &found.tables {
        let _ = writeln!(text, "table {:<6} {:>12} rows  {}", table.id.0, table.rows, table.name);
    }
    text
}
