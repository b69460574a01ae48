//! `shoal nodes`: moves the replicas of a node to others.

use super::asking::Asking;
use super::{CommandError, CommandOutcome, print, print_json};
use crate::ask;
use crate::nodes::NodeChange;
use clap::{Args, Subcommand};
use shoal_types::ShardId;

/// Move the replicas of a node, which may be lost, to other nodes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal nodes drain s0v2
  shoal nodes replace s0v2 spare --connect 10.0.0.1:7000 --secret secret")]
pub struct Nodes {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Drain(Drain),
    Replace(Replace),
}

/// Move all replicas of a node to those nodes that hold least, so that it can be stopped
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

/// Move the replicas of a node, which may be lost for good, to another one
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
        // No two operators ask within the same nanosecond.
        number: shoal_net::SystemClock::new().now().0,
    };
    let end = change.run(|stage| asking.say(&format!("{stage}\n"))).await?;
    match asking.json {
        true => print_json(&end)?,
        false => print(&end.text())?,
    }
    Ok(CommandOutcome::Holds)
}
