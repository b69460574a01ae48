//! `shoal call`: a procedure, by its name.

use super::session::{DataCommand, Session};
use crate::commands::{CommandError, CommandOutcome, print, print_bytes, print_json};
use crate::literal::{Form, Literal, hex_digits, show};
use clap::Args;
use shoal_types::{Call, Database};

/// Call a procedure that the nodes know by name, and print what it returns
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal call restock '(\"screws\", 12)'
  shoal call order '\"alice: 3 screws\"' --near orders alice
{}

Exit codes: 0 it took effect, 1 it did not, or that is not known, 2 the command line is wrong, or there is no cluster", super::LITERALS))]
pub struct CallProcedure {
    /// The procedure's name
    procedure: String,
    /// What it is called with [default: nothing]
    #[arg(value_parser = Literal::parse)]
    argument: Option<Literal>,
    /// Run it where this key lives: fastest if it works with that
    #[arg(long, num_args = 2, value_names = ["TABLE", "KEY"])]
    near: Option<Vec<String>>,
    /// How the result is written
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "auto|text|tuple|number|hex"
    )]
    values: Form,
    /// Print the bytes of the result as they are
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print the result as JSON: the literal, and all bytes in hexadecimal digits
    #[arg(long)]
    json: bool,
}

impl DataCommand for CallProcedure {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        if session.is_open() {
            let own = "a procedure is a transaction of its own; commit or abort the open one first";
            return Err(CommandError::Usage(own.into()));
        }
        let near = match self.near.as_deref() {
            Some([table, key]) => {
                let key = Literal::parse(key);
                let key = key.map_err(|error| CommandError::Usage(format!("--near: {error}")))?;
                Some((session.table(table)?, key.0))
            }
            _ => None,
        };
        let arguments = self.argument.as_ref().map(|Literal(bytes)| &bytes[..]);
        let call = Call::new(&self.procedure, arguments.unwrap_or_default());
        let call = match &near {
            Some((table, key)) => call.near(*table, key),
            None => call,
        };
        let result = Database::call(session.cluster(), &call).await;
        let result = result.map_err(|error| session.failed(&error))?;
        let literal = show(&result, self.values);
        match (self.raw, self.json) {
            (true, _) => print_bytes(&result)?,
            (_, true) => {
                print_json(
                    &serde_json::json!({ "result": literal, "result_hex": hex_digits(&result) }),
                )?;
            }
            _ => print(&format!("{literal}\n"))?,
        }
        Ok(CommandOutcome::Holds)
    }
}
