//! The command `shoal`. Its subcommands are in [`commands`], one file each.

mod ask;
mod chaos;
mod clock;
mod commands;
mod duration;
mod inside;
mod literal;
mod local;
mod loss_sentence;
mod losses;
mod managers;
mod membership;
mod nodes;
mod operator;
mod procedures;
mod progress;
mod recovery;
mod remote;
mod report;
mod reproduce;
mod size;
mod terminal;
mod top;
mod trial;

use clap::Parser;
use std::process::ExitCode;

// Every write allocates a version, from any worker.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run(&commands::Shoal::parse())
}
