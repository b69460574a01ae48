//! `shoal serve`: one node of a cluster.

use super::{Trouble, Verdict};
use crate::procedures;
use clap::Args;
use server::{NodeConfig, Server};
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use tracing_subscriber::EnvFilter;

/// What is logged where SHOAL_LOG does not say. The library under the managers' log warns of what is as it should
/// be: whom it cannot reach, and that nobody waits for an answer. What ends a manager we log ourselves.
const LOGS: &str = "info,openraft=off";

/// Run one node of a cluster
///
/// The file says which node it is, and where the topology and the secret of the cluster are. Logs go to
/// standard error; SHOAL_LOG says which: error, warn, info, debug.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal serve --config node.toml

Exit codes: 0 ended as asked, 1 ended since something is broken, 2 the configuration is wrong")]
pub struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// End when standard input does: with the process that started this one
    #[arg(long, hide = true)]
    with_input: bool,
}

impl Serve {
    pub(super) fn run(&self) -> Result<Verdict, Trouble> {
        let filter = EnvFilter::try_from_env("SHOAL_LOG").unwrap_or_else(|_| EnvFilter::new(LOGS));
        let colours = io::stderr().is_terminal();
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
        logs.with_writer(io::stderr).init();
        let config =
            NodeConfig::read(&self.config).map_err(|error| Trouble::Usage(error.to_string()))?;
        let server = Server::start(&config, Arc::new(procedures::known()), None)
            .map_err(|error| Trouble::Usage(error.to_string()))?;
        tracing::info!(node = %config.node, address = %server.address(), "it listens");
        if self.with_input {
            let handle = server.handle().clone();
            thread::spawn(move || {
                // Whatever comes, only its end counts.
                let _ = io::stdin().read_to_end(&mut Vec::new());
                handle.stop();
            });
        }
        match server.join() {
            Ok(()) => Ok(Verdict::Holds),
            Err(ended) => Err(Trouble::Database(ended.to_string())),
        }
    }
}
