//! The command `shoal`. Its subcommands are in [`commands`], one file each.

mod ask;
mod chaos;
mod clock;
mod commands;
mod duration;
mod literal;
mod local;
mod loss_sentence;
mod losses;
mod managers;
mod membership;
mod nodes;
mod operator;
mod procedures;
mod profile;
mod progress;
mod recovery;
mod report;
mod reproduce;
mod size;
mod terminal;
mod top;
mod trial;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(&commands::Shoal::parse())
}
