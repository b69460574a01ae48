//! `shoal tables`: which tables there are.

use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_json};
use crate::terminal;
use clap::Args;
use serde::Serialize;
use shoal_cluster::topology::Partitioning;

/// Tables of the store itself begin with this.
const OWN: &str = "shoal.";

/// Show the tables of a cluster, and how their keys are divided among its shards
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal tables
  shoal tables --connect 10.0.0.1:7000 --json

Exit codes: 0 shown, 2 the command line is wrong, or there is no cluster")]
pub struct Tables {
    /// Also those that Shoal keeps for itself
    #[arg(long)]
    all: bool,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// A table in JSON.
#[derive(Serialize)]
struct JsonTable {
    name: String,
    id: u32,
    partitioning: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<usize>,
}

impl DataCommand for Tables {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let topology = session.cluster().topology();
        let listed =
            topology.tables().iter().filter(|table| self.all || !table.name().starts_with(OWN));
        if self.json {
            let tables: Vec<JsonTable> = listed
                .map(|table| json(table.name(), table.id().0, table.partitioning()))
                .collect();
            print_json(&tables)?;
            return Ok(CommandOutcome::Holds);
        }
        let cells: Vec<[String; 2]> =
            listed.map(|table| [table.name().to_owned(), words(table.partitioning())]).collect();
        if cells.is_empty() {
            print("There is no table.\n")?;
            return Ok(CommandOutcome::Holds);
        }
        let heads = ["table", "how its keys are divided"];
        print(&format!("{}\n", terminal::listing(heads, &cells, terminal::columns()).text))?;
        Ok(CommandOutcome::Holds)
    }
}

fn words(partitioning: &Partitioning) -> String {
    match partitioning {
        Partitioning::Hash { prefix_bytes: 0 } => "by a hash of the key".to_owned(),
        Partitioning::Hash { prefix_bytes: 1 } => "by a hash of the first byte".to_owned(),
        Partitioning::Hash { prefix_bytes } => {
            format!("by a hash of the first {prefix_bytes} bytes")
        }
        Partitioning::Range { splits } => match splits.len() {
            1 => "in one range".to_owned(),
            ranges => format!("in {ranges} ranges"),
        },
        Partitioning::Everywhere => "not at all: each shard has a copy".to_owned(),
    }
}

fn json(name: &str, id: u32, partitioning: &Partitioning) -> JsonTable {
    let (partitioning, prefix_bytes, ranges) = match partitioning {
        Partitioning::Hash { prefix_bytes } => ("hash", Some(*prefix_bytes), None),
        Partitioning::Range { splits } => ("range", None, Some(splits.len())),
        Partitioning::Everywhere => ("everywhere", None, None),
    };
    JsonTable { name: name.to_owned(), id, partitioning, prefix_bytes, ranges }
}
