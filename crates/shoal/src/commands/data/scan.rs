//! `shoal scan`: the rows of a table, in the order of their keys.

use super::rows::{Row, RowFormat, count};
use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print};
use crate::literal::Literal;
use crate::terminal;
use bytes::Bytes;
use clap::Args;
use shoal_client::Scan;
use std::ops::Bound;

/// Show the rows of a table in the order of their keys, read in one transaction
///
/// On a terminal, what is too wide is cut; elsewhere nothing is.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal scan accounts
  shoal scan people --prefix '(\"users\")' --limit 10
  shoal scan people --after '(\"users\", 42)' --reverse --json
{}

Exit codes: 0 shown, 1 the database failed, 2 the command line is wrong, or there is no cluster", super::LITERALS))]
pub struct ScanTable {
    /// Table whose rows are listed
    table: String,
    /// Only keys that begin with this: with these elements, if it is a tuple
    #[arg(long, value_name = "KEY", value_parser = Literal::parse, conflicts_with_all = ["from", "after", "to"])]
    prefix: Option<Literal>,
    /// Only keys from this on
    #[arg(long, value_name = "KEY", value_parser = Literal::parse)]
    from: Option<Literal>,
    /// Only keys beyond this
    #[arg(long, value_name = "KEY", value_parser = Literal::parse, conflicts_with = "from")]
    after: Option<Literal>,
    /// Only keys below this
    #[arg(long, value_name = "KEY", value_parser = Literal::parse)]
    to: Option<Literal>,
    /// From the greatest key to the least
    #[arg(long)]
    reverse: bool,
    /// At most so many rows
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    format: RowFormat,
}

impl ScanTable {
    /// The requested rows, and one more, which shows whether there are others.
    fn range(&self) -> Scan<'_> {
        let start = match (&self.from, &self.after) {
            (Some(Literal(from)), _) => Bound::Included(&from[..]),
            (None, Some(Literal(after))) => Bound::Excluded(&after[..]),
            (None, None) => Bound::Unbounded,
        };
        let end = self.to.as_ref().map_or(Bound::Unbounded, |Literal(to)| Bound::Excluded(&to[..]));
        let scan = match &self.prefix {
            Some(Literal(prefix)) => Scan::prefix(prefix),
            None => Scan::range((start, end)),
        };
        let scan = if self.reverse { scan.reverse() } else { scan };
        scan.limit(self.limit.saturating_add(1))
    }
}

impl DataCommand for ScanTable {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let table = session.table(&self.table)?;
        let rows = session.transact(async |tx| {
            let rows = tx.scan(table, self.range()).await?;
            let copied = rows.iter().map(|(key, value)| {
                (Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(value)))
            });
            Ok(copied.collect::<Vec<Row>>())
        });
        let mut rows = rows.await?;
        let has_more = rows.len() > self.limit;
        rows.truncate(self.limit);
        if self.format.is_json() {
            self.format.print_json(&rows)?;
            return Ok(CommandOutcome::Holds);
        }
        let mut cut = 0;
        if !rows.is_empty() {
            cut = self.format.print_table(&rows)?;
            print("\n")?;
        }
        print(&count(rows.len()))?;
        if cut > 0 {
            print(&format!(", {cut} cut to the terminal's width (--json shows all)"))?;
        }
        if let (true, Some(last)) = (has_more, self.format.keys(&rows).last()) {
            let beyond = if self.reverse { "--to" } else { "--after" };
            print(&format!(
                ", and there are more: go on with {beyond} {}",
                terminal::argument(&last)
            ))?;
        }
        print("\n")?;
        Ok(CommandOutcome::Holds)
    }
}
