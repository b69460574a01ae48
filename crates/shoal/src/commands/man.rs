//! `shoal man`: pages of the manual.

use super::{CommandError, CommandOutcome, print_bytes};
use clap::{Args, Command};
use clap_mangen::Man as Page;
use std::fs;
use std::path::{Path, PathBuf};

/// Print the page of the manual on shoal, or write the pages on all its commands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal man | man -l -
  shoal man --folder ~/.local/share/man/man1

Exit codes: 0 printed or written, 2 the command line is wrong")]
pub struct Man {
    /// Write a page for each command into this folder, instead
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Man {
    /// Prints the page of the command line `shoal`, or writes the pages of all its commands.
    pub(super) fn run(&self, mut shoal: Command) -> Result<CommandOutcome, CommandError> {
        shoal.build();
        match &self.folder {
            Some(folder) => write_pages(&shoal, "shoal", folder)?,
            None => print_bytes(&page(shoal, "shoal")?)?,
        }
        Ok(CommandOutcome::Holds)
    }
}

fn page(command: Command, name: &str) -> Result<Vec<u8>, CommandError> {
    let mut page = Vec::new();
    let rendered = Page::new(command).title(name.to_uppercase()).render(&mut page);
    rendered.map_err(|error| CommandError::Usage(format!("cannot make the page: {error}")))?;
    Ok(page)
}

/// Writes the page of this command, and those of the commands below it.
fn write_pages(command: &Command, name: &str, folder: &Path) -> Result<(), CommandError> {
    let path = folder.join(format!("{name}.1"));
    let page = page(command.clone(), name)?;
    fs::write(&path, page).map_err(|error| CommandError::file("write", &path, error))?;
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    for below in below.filter(|below| !below.is_hide_set()) {
        write_pages(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}
