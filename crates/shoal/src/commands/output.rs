//! Output of commands to standard output and to files, and questions to the operator.

use super::ending::CommandError;
use serde::Serialize;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

/// Writes `text` to standard output. Its reader may have closed it: that is no error.
pub fn print(text: &str) -> Result<(), CommandError> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output as they are.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::Usage(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Has the operator confirm the name of what is about to be changed: typed, or as `--confirm`.
pub fn confirm(wanted: &str, said: Option<&str>, say: impl Fn(&str)) -> Result<(), CommandError> {
    let mut line = String::new();
    let said = match said {
        Some(said) => said,
        None if io::stdin().is_terminal() => {
            say(&format!("Type {wanted} to accept this: "));
            let read = io::stdin().lock().read_line(&mut line);
            read.map_err(|error| CommandError::Usage(format!("cannot read the answer: {error}")))?;
            line.trim()
        }
        None => {
            let missing = format!("nothing is changed: say `--confirm {wanted}` to accept this");
            return Err(CommandError::Usage(missing));
        }
    };
    match said.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(CommandError::Usage(format!("nothing is changed: that is not {wanted}"))),
    }
}

/// Writes what is only text, names and numbers to standard output, as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(value).expect("it has only text keys and numbers");
    print(&(json + "\n"))
}

/// Makes sure that a result can be written to `path`, before time is spent on it.
pub fn reserve(path: &Path) -> Result<(), CommandError> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| CommandError::file("write", path, error))
}

pub fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    fs::write(path, text).map_err(|error| CommandError::file("write", path, error))
}
