//! Rows as people and programs read them.

use crate::commands::{CommandError, print};
use crate::literal::{Form, hex_digits, show};
use crate::terminal;
use bytes::Bytes;
use clap::Args;
use serde::Serialize;

/// A key, and its value if it has one.
pub type Row = (Bytes, Option<Bytes>);

/// How keys and values are printed.
#[derive(Debug, Args)]
pub struct RowFormat {
    /// How keys are written
    #[arg(
        id = "keys_form",
        long = "keys",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "auto|text|tuple|number|hex"
    )]
    keys: Form,
    /// How values are written
    #[arg(
        id = "values_form",
        long = "values",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "auto|text|tuple|number|hex"
    )]
    values: Form,
    /// Print JSON: of each key and value the literal, and all bytes in hexadecimal digits
    #[arg(long)]
    json: bool,
}

/// A row in JSON. A missing value is `null`.
#[derive(Serialize)]
struct JsonRow {
    key: String,
    key_hex: String,
    value: Option<String>,
    value_hex: Option<String>,
}

impl RowFormat {
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The literal for a value.
    pub fn value(&self, bytes: &[u8]) -> String {
        show(bytes, self.values)
    }

    /// Literals for keys, which look alike where they can.
    pub fn keys<'r>(&self, rows: &'r [Row]) -> impl Iterator<Item = String> + use<'r> {
        let form = self.keys.of_all(rows.iter().map(|(key, _)| &key[..]));
        rows.iter().map(move |(key, _)| show(key, form))
    }

    /// Prints rows as a table. Returns how many of them the terminal is too narrow for.
    pub fn print_table(&self, rows: &[Row]) -> Result<usize, CommandError> {
        let value = |(_, value): &Row| match value {
            Some(bytes) => self.value(bytes),
            None => "–".to_owned(),
        };
        let cells: Vec<[String; 2]> =
            self.keys(rows).zip(rows).map(|(key, row)| [key, value(row)]).collect();
        let listing = terminal::listing(["key", "value"], &cells, terminal::columns());
        print(&format!("{}\n", listing.text))?;
        Ok(listing.cut)
    }

    /// Prints rows as JSON.
    pub fn print_json(&self, rows: &[Row]) -> Result<(), CommandError> {
        let row = |(key, (bytes, value)): (String, &Row)| JsonRow {
            key,
            key_hex: hex_digits(bytes),
            value: value.as_ref().map(|value| self.value(value)),
            value_hex: value.as_ref().map(|value| hex_digits(value)),
        };
        let rows: Vec<JsonRow> = self.keys(rows).zip(rows).map(row).collect();
        crate::commands::print_json(&rows)
    }
}

/// `1 row`, `2 rows`.
pub fn count(rows: usize) -> String {
    format!("{rows} row{}", if rows == 1 { "" } else { "s" })
}
