//! `shoal status`: how a cluster is.

use super::target::Target;
use super::{CommandError, CommandOutcome, print, print_json};
use crate::ask;
use crate::report::{ClockSkew, StatusReport};
use clap::Args;
use serde::Serialize;
use shoal_server::NodeStatus;

/// Show how the nodes of a cluster are: leaders, epochs, leases, clocks, streams, watermarks, memory
///
/// Of nodes with several workers, the first one says how it is. Clocks are compared with that of this machine;
/// nothing depends on how they are set, only on their speed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal status
  shoal status --connect 10.0.0.1:7000 --json

Exit codes: 0 every node answers and every shard is led, 1 not so, 2 there is no cluster")]
pub struct Status {
    #[command(flatten)]
    target: Target,
    /// Print the statuses of the nodes as JSON
    #[arg(long)]
    json: bool,
}

/// What is known of a node.
#[derive(Serialize)]
struct NodeAnswer<'a> {
    #[serde(flatten)]
    node: &'a NodeStatus,
    clock: Option<ClockSkew>,
}

impl Status {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (addresses, access) = (self.target.addresses()?, self.target.access()?);
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        let report = runtime.block_on(StatusReport::gather(&addresses, &access));
        let report = report.map_err(CommandError::Usage)?;
        if self.json {
            let nodes = report.nodes.iter().zip(&report.skews);
            let known: Vec<NodeAnswer<'_>> = nodes
                .filter_map(|(node, clock)| {
                    Some(NodeAnswer { node: node.as_ref().ok()?, clock: *clock })
                })
                .collect();
            print_json(&known)?;
        } else {
            print(&(report.text() + "\n"))?;
            for silent in report.nodes.iter().filter_map(|node| node.as_ref().err()) {
                print(&format!("warning: {silent}\n"))?;
            }
            for missing in report.outages().into_iter().chain(report.empty()) {
                print(&format!("warning: {missing}\n"))?;
            }
            for behind in report.versions() {
                print(&format!("note: {behind}\n"))?;
            }
            for lost in report.losses() {
                print(&format!("note: {lost}\n"))?;
            }
        }
        Ok(if report.is_well() { CommandOutcome::Holds } else { CommandOutcome::Fails })
    }
}
