//! `shoal completions`: a script with which a shell completes the command line.

use super::{CommandError, CommandOutcome, print_bytes};
use clap::{Args, Command};
use clap_complete::Shell;

/// Print a script with which a shell completes the commands and options of shoal
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal completions bash > ~/.local/share/bash-completion/completions/shoal
  shoal completions zsh > ~/.zfunc/_shoal
  shoal completions fish > ~/.config/fish/completions/shoal.fish

Exit codes: 0 printed, 2 the command line is wrong")]
pub struct Completions {
    /// The shell that is to complete
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script for the command line `shoal`.
    pub(super) fn run(&self, mut shoal: Command) -> Result<CommandOutcome, CommandError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shoal, "shoal", &mut script);
        print_bytes(&script)?;
        Ok(CommandOutcome::Holds)
    }
}
