//! `shoal nodes`: adds nodes, moves the replicas of a node to others, and removes nodes.

use super::asking::Asking;
use super::target::Target;
use super::{CommandError, CommandOutcome, print, print_json};
use crate::ask;
use crate::membership::{self, NodeAddition, NodeRemoval};
use crate::nodes::NodeChange;
use clap::{Args, Subcommand};
use shoal_types::ShardId;

/// Add nodes, move the replicas of a node, which may be lost, to other nodes, and remove nodes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes add n7 --at 10.0.0.7:7000 --connect 10.0.0.1:7000 --secret secret
  shoal nodes replace s0v2 n7 --connect 10.0.0.1:7000 --secret secret
  shoal nodes drain s0v2
  shoal nodes remove s0v2")]
pub struct Nodes {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Add(Add),
    Topology(TopologyFile),
    Drain(Drain),
    Replace(Replace),
    Remove(Remove),
}

/// Add a node to the cluster, without replicas
///
/// All nodes and clients learn of it. Its process is started with the topology file that `shoal nodes topology` writes then;
/// replicas come by `shoal nodes replace` and `shoal nodes drain`. Repeating the command is harmless.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes add n7 --at 10.0.0.7:7000
  shoal nodes add n7 --at 10.0.0.7:7000 --datacenter iowa --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it is added, 1 it is not, 2 it cannot be, or there is no cluster")]
struct Add {
    /// The name of the node, which no other has or had
    #[arg(value_name = "NODE")]
    name: String,
    /// Where it will listen, and where other nodes and clients find it
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    at: String,
    /// Where it is; may be left out where there is one datacenter
    #[arg(long, value_name = "NAME")]
    datacenter: Option<String>,
    #[command(flatten)]
    asking: Asking,
}

/// Write the topology file of a node that was added: all nodes as they are now, and no tables, which the managers know
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes topology > topology.toml
  shoal nodes topology --connect 10.0.0.1:7000 > topology.toml

Exit codes: 0 it is written, 2 there is no cluster")]
struct TopologyFile {
    #[command(flatten)]
    target: Target,
}

/// Remove a node that holds no replica and whose process has ended, for good
///
/// Its number and its name are not given again; its address is free. A process of it is refused from then on. Drain the node
/// first, and stop it. Repeating the command is harmless.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes remove s0v2
  shoal nodes remove s0v2 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it is removed, 1 it is not, 2 it cannot be, or there is no cluster")]
struct Remove {
    /// The node that leaves the cluster
    #[arg(value_name = "NODE")]
    name: String,
    #[command(flatten)]
    asking: Asking,
}

/// Move all replicas of a node to those nodes that hold least, and its manager, so that it can be stopped
///
/// Of each shard that it leads another node takes the lead first. A new replica takes a copy, and votes when it has all
/// of it; only then does the old one leave. Repeating the command after a failure goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes drain s0v2
  shoal nodes drain s0v2 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it holds nothing, 1 it does, 2 it cannot be drained, or there is no cluster")]
#[command(mut_arg("within", |within| within.default_value("1h").help("Give up a replica if it takes longer")))]
struct Drain {
    /// The node that is to hold nothing
    #[arg(value_name = "NODE")]
    outgoing: String,
    #[command(flatten)]
    asking: Asking,
}

/// Move the replicas of a node, which may be lost for good, and its manager to another one
///
/// The new one takes copies, and votes when it has all of them; only then does the old one leave. Repeating the command
/// after a failure goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes replace s0v2 spare
  shoal nodes replace s0v2 spare --shard S0 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it is replaced, 1 it is not, 2 it cannot be, or there is no cluster")]
#[command(mut_arg("within", |within| within.default_value("1h").help("Give up a replica if it takes longer")))]
struct Replace {
    /// The node whose replicas leave
    #[arg(value_name = "OLD")]
    outgoing: String,
    /// The node that takes them
    #[arg(value_name = "NEW")]
    incoming: String,
    /// Only the replica of this shard, as `shoal status` names it
    #[arg(long, value_name = "SHARD", value_parser = super::shards::shard)]
    shard: Option<ShardId>,
    #[command(flatten)]
    asking: Asking,
}

impl Nodes {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        runtime.block_on(async {
            match &self.what {
                What::Add(add) => add.run().await,
                What::Topology(TopologyFile { target }) => {
                    let (addresses, access) = (target.addresses()?, target.access()?);
                    print(&membership::topology_file(&addresses, &access).await?)?;
                    Ok(CommandOutcome::Holds)
                }
                What::Remove(remove) => remove.run().await,
                What::Drain(Drain { outgoing, asking }) => {
                    change(asking, outgoing, None, None).await
                }
                What::Replace(Replace { outgoing, incoming, shard, asking }) => {
                    change(asking, outgoing, Some(incoming), *shard).await
                }
            }
        })
    }
}

/// An address that all nodes and clients will use. The managers keep it as it is, so what is none is refused here.
fn host_and_port(text: &str) -> Result<String, String> {
    let port = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("HOST:PORT is expected, with a port from 1 to 65535".to_owned()),
    }
}

/// No two operators ask within the same nanosecond.
fn draw_number() -> u64 {
    shoal_net::SystemClock::new().now().0
}

impl Add {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let addition = NodeAddition {
            operator: self.asking.operator()?,
            name: self.name.clone(),
            datacenter: self.datacenter.clone(),
            address: self.at.clone(),
            number: draw_number(),
        };
        let added = addition.run(|stage| self.asking.say(&format!("{stage}\n"))).await?;
        match self.asking.json {
            true => print_json(&added)?,
            false => print(&added.text())?,
        }
        Ok(CommandOutcome::Holds)
    }
}

impl Remove {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (operator, name) = (self.asking.operator()?, self.name.clone());
        let removal = NodeRemoval { operator, name, number: draw_number() };
        removal.run(|stage| self.asking.say(&format!("{stage}\n"))).await?;
        self.asking.say(&format!("{} is removed.\n", self.name));
        Ok(CommandOutcome::Holds)
    }
}

async fn change(
    asking: &Asking,
    outgoing: &str,
    incoming: Option<&String>,
    shard: Option<ShardId>,
) -> Result<CommandOutcome, CommandError> {
    let change = NodeChange {
        operator: asking.operator()?,
        outgoing: outgoing.to_owned(),
        incoming: incoming.cloned(),
        shard,
        number: draw_number(),
    };
    let end = change.run(|stage| asking.say(&format!("{stage}\n"))).await?;
    match asking.json {
        true => print_json(&end)?,
        false => print(&end.text())?,
    }
    Ok(CommandOutcome::Holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["10.0.0.7:7000", "node.example:65535", "[::1]:1"] {
            assert_eq!(host_and_port(good), Ok(good.to_owned()));
        }
        for bad in ["", "node.example", ":7000", "10.0.0.7:", "10.0.0.7:0", "10.0.0.7:65536", "a:b"]
        {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
