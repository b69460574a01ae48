//! `shoal tables`: which tables there are; creating and dropping them.

use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_json};
use crate::literal::{Form, Literal, show};
use crate::terminal;
use clap::{Args, Subcommand};
use serde::Serialize;
use shoal_cluster::topology::{Partitioning, Table, TableDefinition, TableMap};
use shoal_types::ShardId;
use shoal_types::limits::RESERVED_TABLES;

/// Of so many ranges a listing shows where they begin.
const SPLITS_SHOWN: usize = 4;

/// Show the tables of a cluster, and how their keys are divided among its shards; create and drop tables
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal tables
  shoal tables --connect 10.0.0.1:7000 --json
  shoal tables create orders --prefix-bytes 8
  shoal tables create people --range m --range t
  shoal tables create lines --prefix-bytes 8 --granule-bytes 8 --family orders
  shoal tables drop orders

Exit codes: 0 shown or done, 1 refused, 2 the command line is wrong, or there is no cluster")]
pub struct Tables {
    #[command(subcommand)]
    change: Option<TablesChange>,
    /// Also those that Shoal keeps for itself
    #[arg(long)]
    all: bool,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// What is to be done to a table.
#[derive(Debug, Subcommand)]
enum TablesChange {
    /// Create a table, by default divided by a hash of the whole key over all shards
    Create(CreateArgs),
    /// Drop a table, with all its rows
    Drop {
        /// Name of the table
        name: String,
    },
}

/// How a new table is divided.
#[derive(Debug, Args)]
struct CreateArgs {
    /// Name of the table
    name: String,
    /// Divide it by a hash of so many bytes of the key; keys that agree in them live on one shard
    #[arg(long, default_value_t = 0, conflicts_with_all = ["range", "everywhere"])]
    prefix_bytes: usize,
    /// Begin another range at this key; the ranges go to the shards in turn
    #[arg(long, value_name = "KEY", value_parser = Literal::parse)]
    range: Vec<Literal>,
    /// Keep a copy of the whole table on each shard
    #[arg(long, conflicts_with = "range")]
    everywhere: bool,
    /// Where the engine moves rows between nodes, move those together whose keys agree in so many bytes
    #[arg(long, value_name = "BYTES")]
    granule_bytes: Option<usize>,
    /// Move them together with the rows of this table that have the same bytes; it is divided like this one
    #[arg(long, value_name = "TABLE")]
    family: Option<String>,
}

impl CreateArgs {
    fn definition(&self, shards: u32) -> TableDefinition {
        TableDefinition {
            partitioning: self.partitioning(shards),
            granule_bytes: self.granule_bytes,
            family: self.family.clone(),
        }
    }

    fn partitioning(&self, shards: u32) -> Partitioning {
        if self.everywhere {
            return Partitioning::Everywhere;
        }
        if self.range.is_empty() {
            return Partitioning::Hash { prefix_bytes: self.prefix_bytes };
        }
        let firsts =
            std::iter::once(Box::default()).chain(self.range.iter().map(|it| it.0[..].into()));
        let shards = (0..shards).map(ShardId).cycle();
        Partitioning::Range { splits: firsts.zip(shards).collect() }
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    granule_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
}

impl DataCommand for Tables {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let cluster = session.cluster();
        let refused = |error: shoal_client::Error| session.failed(&error);
        match &self.change {
            None => self.list(cluster.topology().tables()),
            Some(TablesChange::Create(create)) => {
                let definition = create.definition(cluster.topology().shards());
                let created = cluster.create_table(&create.name, definition).await;
                let id = created.map_err(refused)?;
                print(&format!("{} is there, as {id}\n", create.name))?;
                Ok(CommandOutcome::Holds)
            }
            Some(TablesChange::Drop { name }) => {
                cluster.drop_table(name).await.map_err(refused)?;
                print(&format!("{name} is dropped\n"))?;
                Ok(CommandOutcome::Holds)
            }
        }
    }
}

impl Tables {
    fn list(&self, tables: &TableMap) -> Result<CommandOutcome, CommandError> {
        let listed =
            tables.iter().filter(|table| self.all || !table.name().starts_with(RESERVED_TABLES));
        if self.json {
            let tables: Vec<JsonTable> = listed.map(json).collect();
            print_json(&tables)?;
            return Ok(CommandOutcome::Holds);
        }
        let cells: Vec<[String; 2]> =
            listed.map(|table| [table.name().to_owned(), words(&table.definition())]).collect();
        if cells.is_empty() {
            print("There is no table.\n")?;
            return Ok(CommandOutcome::Holds);
        }
        let heads = ["table", "how its keys are divided"];
        print(&format!("{}\n", terminal::listing(heads, &cells, terminal::columns()).text))?;
        Ok(CommandOutcome::Holds)
    }
}

fn words(definition: &TableDefinition) -> String {
    let divided = match &definition.partitioning {
        Partitioning::Hash { prefix_bytes: 0 } => "by a hash of the key".to_owned(),
        Partitioning::Hash { prefix_bytes: 1 } => "by a hash of the first byte".to_owned(),
        Partitioning::Hash { prefix_bytes } => {
            format!("by a hash of the first {prefix_bytes} bytes")
        }
        Partitioning::Range { splits } => match splits.len() {
            1 => "in one range".to_owned(),
            ranges => format!("in {ranges} ranges, split at {}", split_keys(splits)),
        },
        Partitioning::Everywhere => "not at all: each shard has a copy".to_owned(),
    };
    let granules = definition.granule_bytes.map(|bytes| format!(", granules of {bytes} bytes"));
    let family = definition.family.as_ref().map(|family| format!(", in the family of {family}"));
    [Some(divided), granules, family].into_iter().flatten().collect()
}

/// The keys at which ranges begin but for the first, as text or in hex; of many the first few.
fn split_keys(splits: &[(Box<[u8]>, ShardId)]) -> String {
    let keys = splits[1..].iter().take(SPLITS_SHOWN);
    let mut shown: Vec<String> = keys.map(|(from, _)| show(from, Form::Text)).collect();
    if splits.len() > SPLITS_SHOWN + 1 {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

fn json(table: &Table) -> JsonTable {
    let TableDefinition { partitioning, granule_bytes, family } = table.definition();
    let (partitioning, prefix_bytes, ranges) = match &partitioning {
        Partitioning::Hash { prefix_bytes } => ("hash", Some(*prefix_bytes), None),
        Partitioning::Range { splits } => ("range", None, Some(splits.len())),
        Partitioning::Everywhere => ("everywhere", None, None),
    };
    let (name, id) = (table.name().to_owned(), table.id().0);
    JsonTable { name, id, partitioning, prefix_bytes, ranges, granule_bytes, family }
}
