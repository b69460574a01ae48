//! `shoal serve`: one node of a cluster.

use super::{CommandError, CommandOutcome};
use crate::local::Interrupts;
use crate::{ask, procedures};
use clap::Args;
use shoal_server::{NodeConfig, Server};
use std::env::{self, VarError};
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{process, thread};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged where SHOAL_LOG does not say. The library under the managers' log warns of usual things: peers that it
/// cannot reach, answers that no task waits for. What ends a manager is logged by the manager itself.
const LOGS: &str = "info,openraft=off";

/// How long a node that is asked to end may take to end its logs in order: with durability `async` it flushes all that the kernel has
/// first. systemd waits for 90 s by default.
const STOP_MAX: Duration = Duration::from_secs(80);

/// The help below the options.
const HELP: &str = "\
Example:
  shoal serve --config node.toml

node.toml of one of three nodes; paths begin where the file is (docs/operating.md has all keys):
  cluster = \"bank\"
  node = \"n0\"
  topology = \"topology.toml\"
  managers = [\"n0\", \"n1\", \"n2\"]
  data = \"data\"
  secret = \"secret\"                  # openssl rand -hex 32 > secret; chmod 600 secret

topology.toml, the same on every node (docs/topology.md has all keys):
  workers = 2
  datacenter = [{ name = \"here\" }]
  node = [
      { name = \"n0\", datacenter = \"here\", address = \"10.0.0.1:7000\" },
      { name = \"n1\", datacenter = \"here\", address = \"10.0.0.2:7000\" },
      { name = \"n2\", datacenter = \"here\", address = \"10.0.0.3:7000\" },
  ]
  shard = [{ leader = \"n0\", voters = [\"n0\", \"n1\", \"n2\"] }]
  table = [{ name = \"accounts\", partitioning = \"hash\" }]

Exit codes: 0 ended as asked, 1 ended since something is broken: start it again, 2 the configuration is wrong";

/// Run one node of a cluster
///
/// The file names the node, the topology and the secret of the cluster. Logs go to standard error; SHOAL_LOG
/// sets their level: error, warn, info, debug.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// End when standard input does: with the process that started this one
    #[arg(long, hide = true)]
    with_input: bool,
}

impl Serve {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let filter = filter(env::var("SHOAL_LOG")).map_err(CommandError::Usage)?;
        let colours = io::stderr().is_terminal();
        let logs = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(io::stderr);
        tracing_subscriber::registry().with(logs).with(filter).init();
        let config = NodeConfig::read(&self.config)
            .map_err(|error| CommandError::Usage(error.to_string()))?;
        let started = Server::start(&config, Arc::new(procedures::known()), None);
        let server = started.map_err(|error| match error.may_pass() {
            true => CommandError::Database(error.to_string()),
            false => CommandError::Usage(error.to_string()),
        })?;
        for warning in config.warnings() {
            tracing::warn!(node = %config.node, "{warning}");
        }
        tracing::info!(node = %config.node, address = %server.address(), "it listens");
        let handle = server.handle().clone();
        stop_when_asked({
            let handle = handle.clone();
            move || handle.stop()
        })
        .map_err(|error| CommandError::Database(format!("cannot listen to signals: {error}")))?;
        if self.with_input {
            thread::spawn(move || {
                // Its input is ignored; only its end counts.
                let _ = io::stdin().read_to_end(&mut Vec::new());
                handle.stop();
            });
        }
        match server.join() {
            Ok(()) => Ok(CommandOutcome::Holds),
            Err(ended) => Err(CommandError::Database(ended.to_string())),
        }
    }
}

/// Has SIGTERM and Ctrl-C stop the node in order: its logs are flushed and sealed. A second one, or 80 s, ends it at once, with exit
/// code 1: what its logs have not flushed by then is lost only with the machine.
fn stop_when_asked(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut interrupts = Interrupts::listen(STOP_MAX, end_at_once)?;
    let runtime = ask::runtime()?;
    thread::Builder::new().name("stop".to_owned()).spawn(move || {
        runtime.block_on(interrupts.received());
        stop();
    })?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the node does not end in time, or is asked a second time"
)]
fn end_at_once() {
    process::exit(1)
}

/// What is logged where SHOAL_LOG has this value.
fn filter(value: Result<String, VarError>) -> Result<Targets, String> {
    let value = match value {
        Err(VarError::NotPresent) => LOGS.to_owned(),
        Err(error @ VarError::NotUnicode(_)) => return Err(format!("SHOAL_LOG: {error}")),
        Ok(value) if value.trim().is_empty() => LOGS.to_owned(),
        Ok(value) => value,
    };
    let wrong = |why: &str| {
        format!(
            "SHOAL_LOG is '{value}': {why}; write a level (error, warn, info, debug, trace, off), or TARGET=LEVEL, \
             separated by commas"
        )
    };
    // By itself, the library takes a misspelled level for the name of a target, and an empty part for a level.
    let is_level = |part: &str| part.parse::<LevelFilter>().is_ok();
    let parts: Vec<_> = value.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if let Some(word) = parts.iter().find(|part| !part.contains(['=', '[']) && !is_level(part)) {
        return Err(wrong(&format!("'{word}' is no level")));
    }
    parts.join(",").parse().map_err(|error: ParseError| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Topology;

    #[test]
    fn the_topology_of_the_help_is_one() {
        let (_, text) = HELP.split_once("has all keys):\n  workers").expect("an example");
        let (text, _) = text.split_once("\n\n").expect("an end");
        let topology = Topology::parse(&format!("workers{text}")).expect("a topology");
        assert_eq!((topology.nodes().len(), topology.shards()), (3, 1));
    }

    #[test]
    fn what_is_to_be_logged_is_understood_or_refused() {
        for (value, shown) in [
            ("debug", "debug"),
            ("warn,shoal::slow=off", "shoal::slow=off,warn"),
            (" info,, shoal::slow=off ,", "shoal::slow=off,info"),
            ("", "openraft=off,info"),
        ] {
            let filter = filter(Ok(value.to_owned())).expect("a filter");
            assert_eq!(filter.to_string(), shown, "{value}");
        }
        assert_eq!(
            filter(Err(VarError::NotPresent)).expect("a filter").to_string(),
            "openraft=off,info"
        );
        for value in ["wran", "info,debg", "shoal=loud", "shoal=="] {
            let error = filter(Ok(value.to_owned())).expect_err("refused");
            assert!(error.starts_with(&format!("SHOAL_LOG is '{value}': ")), "{error}");
            assert!(error.contains("write a level"), "{error}");
        }
    }
}
