//! Which command a line is.

use super::words::words;
use crate::commands::data::{
    CallProcedure, DataCommand, Delete, Get, Put, ScanTable, Session, Tables,
};
use crate::commands::{CommandError, CommandOutcome, print, print_json};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// Each line is a command
#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    disable_version_flag = true,
    override_usage = "COMMAND [ARGUMENTS]",
    help_template = "{about}:\n\n{subcommands}\n\nhelp COMMAND tells more of one."
)]
struct Line {
    #[command(subcommand)]
    command: LineCommand,
}

#[derive(Debug, Subcommand)]
pub enum LineCommand {
    Get(Get),
    Put(Put),
    Delete(Delete),
    Scan(ScanTable),
    Tables(Tables),
    Call(CallProcedure),
    /// Begin a transaction: what follows runs in it
    Begin,
    /// Commit the transaction: all it wrote takes effect at one instant
    Commit,
    /// Abort the transaction: nothing it wrote takes effect
    #[command(alias = "rollback")]
    Abort,
    /// End the session
    #[command(alias = "quit")]
    Exit,
}

/// What a line says.
pub enum LineMeaning {
    /// No command.
    Nothing,
    Command(Box<LineCommand>),
    /// The user asks how to use this.
    Help(String),
    /// A sentence that says why the line is no command.
    Wrong(String),
    /// The session is over.
    End,
}

/// Commands that print JSON if they are asked to.
const WITH_JSON: [&str; 6] = ["get", "put", "delete", "scan", "tables", "call"];

/// Options beside which `--json` has no place.
const INSTEAD_OF_JSON: [&str; 4] = ["--json", "--raw", "--help", "-h"];

/// Understands a line. Commands print JSON if the session does, unless the line says otherwise.
pub fn meaning(line: &str, json: bool) -> LineMeaning {
    let mut words = match words(line) {
        Ok(words) => words,
        Err(error) => return LineMeaning::Wrong(error),
    };
    // A command as it stands in a terminal or in a document.
    if words.first().is_some_and(|word| word == "shoal") {
        words.remove(0);
    }
    let Some(first) = words.first().filter(|word| !word.starts_with('#')) else {
        return LineMeaning::Nothing;
    };
    let has_form = words.iter().any(|word| INSTEAD_OF_JSON.contains(&&**word));
    if json && !has_form && WITH_JSON.contains(&&**first) {
        words.insert(1, "--json".to_owned());
    }
    match Line::try_parse_from(words) {
        Ok(Line { command: LineCommand::Exit }) => LineMeaning::End,
        Ok(Line { command }) => LineMeaning::Command(Box::new(command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => LineMeaning::Help(error.render().to_string()),
            _ => {
                let text = error.render().to_string();
                LineMeaning::Wrong(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
            }
        },
    }
}

/// The commands and their options, by their names.
pub fn vocabulary() -> Vec<(String, Vec<String>)> {
    let options = |command: &clap::Command| {
        let long = command.get_arguments().filter_map(|argument| argument.get_long());
        long.map(|name| format!("--{name}")).collect()
    };
    let mut line = Line::command();
    line.build();
    let named = line.get_subcommands().map(|it| (it.get_name().to_owned(), options(it)));
    named.collect()
}

impl LineCommand {
    /// Runs it, and prints what comes of it.
    pub async fn run(&self, session: &Session, json: bool) -> Result<CommandOutcome, CommandError> {
        let said = match self {
            LineCommand::Get(get) => return get.run(session).await,
            LineCommand::Put(put) => return put.run(session).await,
            LineCommand::Delete(delete) => return delete.run(session).await,
            LineCommand::Scan(scan) => return scan.run(session).await,
            LineCommand::Tables(tables) => return tables.run(session).await,
            LineCommand::Call(call) => return call.run(session).await,
            LineCommand::Begin => session.begin().map(|()| "begun")?,
            LineCommand::Commit => session.commit().await.map(|()| "committed")?,
            LineCommand::Abort => session.abort().map(|()| "aborted")?,
            LineCommand::Exit => return Ok(CommandOutcome::Holds),
        };
        match json {
            true => print_json(&serde_json::json!({ "transaction": said }))?,
            false => print(&format!("{said}\n"))?,
        }
        Ok(CommandOutcome::Holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_help_or_mistakes() {
        for nothing in ["", "  ", "# a comment", "shoal"] {
            assert!(matches!(meaning(nothing, true), LineMeaning::Nothing), "{nothing}");
        }
        for command in ["get kv a", "shoal get kv a", "begin", "rollback", "tables --all"] {
            assert!(matches!(meaning(command, false), LineMeaning::Command(_)), "{command}");
            assert!(matches!(meaning(command, true), LineMeaning::Command(_)), "{command}");
        }
        for end in ["exit", "quit"] {
            assert!(matches!(meaning(end, false), LineMeaning::End), "{end}");
        }
        for (help, told) in
            [("help", "commit"), ("help get", "Examples"), ("scan --help", "--limit")]
        {
            let LineMeaning::Help(text) = meaning(help, true) else { panic!("{help}") };
            assert!(text.contains(told), "{help}:\n{text}");
        }
        for (wrong, told) in [
            ("got kv a", "got"),
            ("get", "<TABLE>"),
            ("get kv (a", "has no end"),
            ("commit x", "x"),
        ] {
            let LineMeaning::Wrong(text) = meaning(wrong, false) else { panic!("{wrong}") };
            assert!(text.contains(told), "{wrong}:\n{text}");
        }
    }
}
