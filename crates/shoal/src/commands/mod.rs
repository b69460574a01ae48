//! The commands, one file each, and how they end.
//!
//! | exit code | means |
//! |---|---|
//! | 0 | done, and all that was checked holds |
//! | 1 | a check failed, or the database did |
//! | 2 | the command line, or a file it names, is wrong |

mod asking;
mod bench;
mod chaos;
mod check;
mod completions;
mod data;
mod doctor;
mod ending;
mod explore;
mod local;
mod log;
mod man;
mod managers;
mod nodes;
mod output;
mod reproduce;
mod serve;
mod shape;
mod shards;
mod shell;
mod sim;
mod status;
mod target;
mod top;

use clap::{CommandFactory, Parser, Subcommand};
use data::{CallProcedure, Delete, Get, OnCluster, Put, ScanTable, Tables};
use ending::{CommandError, CommandOutcome};
use output::{confirm, print, print_bytes, print_json, reserve, write};
use std::process::ExitCode;

/// A transactional key-value store: strictly serializable, in memory, many cores.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  shoal bench tpcc --workers 2 --html tpcc.html")]
pub struct Shoal {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Bench(Box<bench::Bench>),
    Call(OnCluster<CallProcedure>),
    Chaos(chaos::Chaos),
    Check(check::Check),
    Completions(completions::Completions),
    Delete(OnCluster<Delete>),
    Doctor(doctor::Doctor),
    Explore(explore::Explore),
    Get(OnCluster<Get>),
    Local(local::LocalCommand),
    Log(log::Log),
    Man(man::Man),
    Managers(managers::Managers),
    Nodes(nodes::Nodes),
    Put(OnCluster<Put>),
    Reproduce(reproduce::Reproduce),
    Scan(OnCluster<ScanTable>),
    Serve(serve::Serve),
    Shards(shards::Shards),
    Shell(OnCluster<shell::Shell>),
    Sim(sim::Sim),
    Status(status::Status),
    Tables(OnCluster<Tables>),
    Top(top::Top),
}

/// Runs the command and returns its result.
pub fn run(shoal: &Shoal) -> ExitCode {
    let ended = match &shoal.command {
        Subcommands::Bench(bench) => bench.run(),
        Subcommands::Call(call) => call.run(),
        Subcommands::Chaos(chaos) => chaos.run(),
        Subcommands::Check(check) => check.run(),
        Subcommands::Completions(completions) => completions.run(Shoal::command()),
        Subcommands::Delete(delete) => delete.run(),
        Subcommands::Doctor(doctor) => doctor.run(),
        Subcommands::Explore(explore) => explore.run(),
        Subcommands::Get(get) => get.run(),
        Subcommands::Local(local) => local.run(),
        Subcommands::Log(log) => log.run(),
        Subcommands::Man(man) => man.run(Shoal::command()),
        Subcommands::Managers(managers) => managers.run(),
        Subcommands::Nodes(nodes) => nodes.run(),
        Subcommands::Put(put) => put.run(),
        Subcommands::Reproduce(reproduce) => reproduce.run(),
        Subcommands::Scan(scan) => scan.run(),
        Subcommands::Serve(serve) => serve.run(),
        Subcommands::Shards(shards) => shards.run(),
        Subcommands::Shell(shell) => shell.run(),
        Subcommands::Sim(sim) => sim.run(),
        Subcommands::Status(status) => status.run(),
        Subcommands::Tables(tables) => tables.run(),
        Subcommands::Top(top) => top.run(),
    };
    match ended {
        Ok(CommandOutcome::Holds) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Fails) => ExitCode::from(1),
        Ok(CommandOutcome::Undecided) => ExitCode::from(3),
        Err(CommandError::Database(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
        Err(CommandError::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
