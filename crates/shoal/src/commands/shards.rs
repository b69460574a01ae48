//! `shoal shards`: what an operator decides of a shard.

use super::asking::Asking;
use super::{CommandError, CommandOutcome, print, print_json};
use crate::ask;
use crate::losses::Acceptance;
use clap::{Args, Subcommand};
use shoal_types::ShardId;

/// Accept the loss of a shard's majority
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal shards accept-loss S0")]
pub struct Shards {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    AcceptLoss(AcceptLoss),
}

/// Let a shard go on with what is left, when a majority of its voters is lost for good
///
/// Refused while a majority is alive with its memory. Data may be lost: the command shows what, and asks for
/// the shard's name before it changes anything. The live replicas with memory become the voters; the others
/// are set aside, even if they come back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal shards accept-loss S0
  shoal shards accept-loss S0 --confirm S0 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 the shard goes on, 1 it does not, 2 it may not, or there is no cluster")]
#[command(mut_arg("within", |within| within.default_value("2m")))]
struct AcceptLoss {
    /// The shard, as `shoal status` names it
    #[arg(value_name = "SHARD", value_parser = shard)]
    shard: ShardId,
    /// Do not ask: the shard's name, once more
    #[arg(long, value_name = "SHARD", value_parser = shard)]
    confirm: Option<ShardId>,
    #[command(flatten)]
    asking: Asking,
}

/// `S0`, or `0`.
pub(super) fn shard(text: &str) -> Result<ShardId, String> {
    let number = text.strip_prefix(['S', 's']).unwrap_or(text);
    number
        .parse()
        .map(ShardId)
        .map_err(|_| format!("'{text}' is no shard; they are called S0, S1, …"))
}

impl Shards {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        match &self.what {
            What::AcceptLoss(accept) => runtime.block_on(accept.run()),
        }
    }
}

impl AcceptLoss {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let asking = &self.asking;
        let acceptance = Acceptance { operator: asking.operator()?, shard: self.shard };
        let survey = acceptance.survey().await?;
        asking.say(&survey.text());
        let name = |shard: ShardId| format!("S{}", shard.0);
        let said = self.confirm.map(name);
        super::confirm(&name(self.shard), said.as_deref(), |text| asking.say(text))?;
        let now = shoal_net::SystemClock::new().now().0;
        // Two operators do not send requests within the same nanosecond; and if they do, the requests are the
        // same.
        let at_s = now / 1_000_000_000;
        let accepted =
            acceptance.accept(now, at_s, |stage| asking.say(&format!("{stage}\n"))).await?;
        match asking.json {
            true => print_json(&accepted)?,
            false => print(&accepted.text())?,
        }
        Ok(CommandOutcome::Holds)
    }
}
