//! `shoal shell`: the commands on data, in one session.
//!
//! | file | holds |
//! |---|---|
//! | `input.rs` | lines of a terminal, with history and completion, or of a pipe |
//! | `words.rs` | a line, divided into words |
//! | `line.rs` | which command the words are |
//! | `completion.rs` | what a word that is being typed can become |

mod completion;
mod input;
mod line;
mod words;

use super::data::{DataCommand, Session};
use super::{CommandError, CommandOutcome, print};
use clap::Args;
use input::{Entry, Input};
use line::LineMeaning;
use std::io::IsTerminal;

/// Read and change data in one session, with history and completion
///
/// Each line is a command: get, put, delete, scan, tables or call, as on the command line. `begin` opens a transaction, in
/// which all that follows runs until `commit` or `abort`; the cluster gives it up after 10 s without a command, and after 30 s
/// in all. Literals need no further quotes here. `help` lists the
/// commands. An error leaves the session as it is; but one of the database within a transaction aborts that.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal shell
  shoal shell --connect 10.0.0.1:7000 --client-secret client-secret --authorities ca.pem
  echo 'put accounts alice i64(100)' | shoal shell --json

In it:
  shoal> put people (\"users\", 42) \"Ada Lovelace\"
  shoal> begin
  shoal*> get people (\"users\", 42)
  shoal*> delete people (\"users\", 42)
  shoal*> commit

On a terminal, what was typed is kept in ~/.shoal_history, which only you can read.

Exit codes: 0 ended, 1 a command of a pipe failed (those after it were run), 2 the command line is wrong, or there is no cluster")]
pub struct Shell {
    /// Print what commands print as JSON
    #[arg(long)]
    json: bool,
}

impl DataCommand for Shell {
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError> {
        let is_terminal = std::io::stdin().is_terminal();
        let input = Input::start(is_terminal);
        let mut input = input.map_err(|error| CommandError::Usage(error.to_string()))?;
        if is_terminal {
            print("help lists the commands; exit, or Ctrl-D, ends the session.\n")?;
        }
        let mut outcome = CommandOutcome::Holds;
        loop {
            let prompt = if session.is_open() { "shoal*> " } else { "shoal> " };
            let line = match input.next(prompt, session.tables()).await {
                Entry::Line(line) => line,
                Entry::Discarded => continue,
                Entry::End => break,
                Entry::Broken(error) => return Err(CommandError::Usage(error)),
            };
            let done = match line::meaning(&line, self.json) {
                LineMeaning::Nothing => continue,
                LineMeaning::End => break,
                LineMeaning::Help(text) => print(&text).map(|()| CommandOutcome::Holds),
                LineMeaning::Wrong(text) => Err(CommandError::Usage(text)),
                LineMeaning::Command(command) => {
                    self.interruptible(is_terminal, command.run(session, self.json), session).await
                }
            };
            let failed = match done {
                Ok(CommandOutcome::Holds) => false,
                Ok(CommandOutcome::Fails | CommandOutcome::Undecided) => true,
                Err(CommandError::Database(message) | CommandError::Usage(message)) => {
                    eprintln!("error: {}", message.trim_end());
                    true
                }
            };
            if failed && !is_terminal {
                outcome = CommandOutcome::Fails;
            }
        }
        if session.is_open() {
            session.abort()?;
            eprintln!("note: the open transaction is aborted");
        }
        Ok(outcome)
    }
}

impl Shell {
    /// Runs a command; on a terminal, Ctrl-C gives it up, and the session goes on.
    async fn interruptible(
        &self,
        is_terminal: bool,
        command: impl Future<Output = Result<CommandOutcome, CommandError>>,
        session: &Session,
    ) -> Result<CommandOutcome, CommandError> {
        if !is_terminal {
            return command.await;
        }
        let had_open = session.is_open();
        tokio::select! {
            done = command => done,
            _ = tokio::signal::ctrl_c() => {
                let given_up = match had_open {
                    true => "interrupted; the transaction is given up, and only a commit of it may have taken effect",
                    false => "interrupted; whether it took effect is not known",
                };
                Err(CommandError::Database(given_up.to_owned()))
            }
        }
    }
}
