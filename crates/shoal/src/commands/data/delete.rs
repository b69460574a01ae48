//! `shoal delete`: keys that go.

use super::rows::count;
use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_json};
use crate::literal::Literal;
use clap::Args;

/// Delete keys, all in one transaction
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal delete accounts alice bob
  shoal delete people '(\"users\", 42)'
{}

Exit codes: 0 none of them has a value now, 1 not deleted, 2 the command line is wrong, or there is no cluster", super::LITERALS))]
pub struct Delete {
    /// Table that holds the key
    table: String,
    /// What goes; keys without a value are counted
    #[arg(required = true, value_name = "KEY", value_parser = Literal::parse)]
    keys: Vec<Literal>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl DataCommand for Delete {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let table = session.table(&self.table)?;
        let deleted = session.transact(async |tx| {
            let wanted: Vec<_> = self.keys.iter().map(|key| (table, &key.0[..])).collect();
            tx.prefetch(&wanted);
            let mut deleted = 0;
            for Literal(key) in &self.keys {
                if tx.get_for_update(table, key).await?.is_some() {
                    tx.delete(table, key)?;
                    deleted += 1;
                }
            }
            Ok(deleted)
        });
        let deleted = deleted.await?;
        let missing = self.keys.len() - deleted;
        if self.json {
            print_json(&serde_json::json!({ "deleted": deleted, "missing": missing }))?;
            return Ok(CommandOutcome::Holds);
        }
        let there_was = match missing {
            0 => String::new(),
            missing => format!("; {} of the keys had no value", missing),
        };
        print(&format!("{} deleted{there_was}\n", count(deleted)))?;
        Ok(CommandOutcome::Holds)
    }
}
