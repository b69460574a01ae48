//! `shoal put`: values under keys.

use super::rows::count;
use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_json};
use crate::literal::Literal;
use bytes::Bytes;
use clap::Args;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Write values under keys, all in one transaction
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal put accounts alice 'i64(100)' bob 'i64(30)'
  shoal put people '(\"users\", 42)' 'Ada Lovelace' --insert
  shoal put pictures logo --from logo.png
{}

Exit codes: 0 written, 1 not written, 2 the command line is wrong, or there is no cluster", super::LITERALS))]
pub struct Put {
    /// Table to write into
    table: String,
    /// Keys, each with its value behind it
    #[arg(required = true, num_args = 1.., value_name = "KEY VALUE", value_parser = Literal::parse)]
    pairs: Vec<Literal>,
    /// Take the bytes of the value of the one key from this file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Refuse to write any if one of the keys has a value
    #[arg(long)]
    insert: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl Put {
    /// Keys and values.
    fn rows(&self) -> Result<Vec<(Bytes, Bytes)>, CommandError> {
        if let Some(path) = &self.from {
            return match &self.pairs[..] {
                [Literal(key)] => Ok(vec![(key.clone(), read(path)?)]),
                _ => Err(CommandError::Usage("--from is the value of one key; name one".into())),
            };
        }
        let (pairs, []) = self.pairs.as_chunks::<2>() else {
            return Err(CommandError::Usage(
                "the last key has no value: write KEY VALUE, and quote what has blanks".into(),
            ));
        };
        Ok(pairs.iter().map(|[key, value]| (key.0.clone(), value.0.clone())).collect())
    }
}

impl DataCommand for Put {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let (table, rows) = (session.table(&self.table)?, self.rows()?);
        let written = session.transact(async |tx| {
            for (key, value) in &rows {
                match self.insert {
                    true => tx.insert(table, key, value).await?,
                    false => tx.put(table, key, value)?,
                }
            }
            Ok(())
        });
        written.await?;
        match self.json {
            true => print_json(&serde_json::json!({ "written": rows.len() }))?,
            false => print(&format!("{} written\n", count(rows.len())))?,
        }
        Ok(CommandOutcome::Holds)
    }
}

fn read(path: &Path) -> Result<Bytes, CommandError> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    bytes.map(Bytes::from).map_err(|error| CommandError::file("read", path, error))
}
