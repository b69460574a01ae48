//! `shoal get`: the values of keys.

use super::rows::{Row, RowFormat};
use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_bytes};
use crate::literal::{Form, Literal, show};
use bytes::Bytes;
use clap::Args;

/// Read the values of keys, all in one transaction
///
/// Of one key the value alone is printed, of several a table.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal get accounts alice
  shoal get accounts '(\"users\", 42)' '(\"users\", 43)' --json
  shoal get pictures logo --raw > logo.png
{}

Exit codes: 0 every key has a value, 1 one has none, 2 the command line is wrong, or there is no cluster", super::LITERALS))]
pub struct Get {
    /// Table to read from
    table: String,
    /// What is looked for
    #[arg(required = true, value_name = "KEY", value_parser = Literal::parse)]
    keys: Vec<Literal>,
    /// Print the bytes of the one value as they are
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    format: RowFormat,
}

impl DataCommand for Get {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        if self.raw && self.keys.len() > 1 {
            return Err(CommandError::Usage("--raw prints the value of one key; name one".into()));
        }
        let table = session.table(&self.table)?;
        let rows = session.transact(async |tx| {
            let wanted: Vec<_> = self.keys.iter().map(|key| (table, &key.0[..])).collect();
            tx.prefetch(&wanted);
            let mut rows: Vec<Row> = Vec::new();
            for Literal(key) in &self.keys {
                rows.push((key.clone(), tx.get(table, key).await?.map(Bytes::copy_from_slice)));
            }
            Ok(rows)
        });
        let rows = rows.await?;
        match &rows[..] {
            _ if self.format.is_json() => self.format.print_json(&rows)?,
            [(_, Some(value))] if self.raw => print_bytes(value)?,
            [(_, Some(value))] => print(&format!("{}\n", self.format.value(value)))?,
            [(key, None)] => {
                let key = show(key, Form::Auto);
                return Err(CommandError::Database(format!("{} has no {key}", self.table)));
            }
            _ => drop(self.format.print_table(&rows)?),
        }
        match rows.iter().all(|(_, value)| value.is_some()) {
            true => Ok(CommandOutcome::Holds),
            false => Ok(CommandOutcome::Fails),
        }
    }
}
