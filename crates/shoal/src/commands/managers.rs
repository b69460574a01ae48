//! `shoal managers`: shows the configuration managers of a cluster, replaces one, and recovers them when a majority of
//! them is lost.

use super::asking::Asking;
use super::target::Target;
use super::{CommandError, CommandOutcome, confirm, print, print_json};
use crate::ask;
use crate::managers::{self, ManagersOverview, ReplacementEnd, WantedManagers};
use crate::recovery::ManagersRecovery;
use crate::report::StatusReport;
use clap::{Args, Subcommand};

/// Show the configuration managers of a cluster, replace one that is lost, or go on without a majority that is
///
/// They grant leases, appoint leaders and begin epochs; a majority of them has to live.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers list
  shoal managers replace s0v2 s1v0 --connect 10.0.0.1:7000 --secret secret
  shoal managers recover s0v1")]
pub struct Managers {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(List),
    Replace(Replace),
    Recover(Recover),
    Add(Add),
}

/// Show which nodes have managers, which of those leads their log, and how far each is
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers list
  shoal managers list --connect 10.0.0.1:7000 --json

Exit codes: 0 one leads and all vote, 1 not so, 2 there is no cluster")]
struct List {
    #[command(flatten)]
    target: Target,
    /// Print the statuses of the nodes as JSON
    #[arg(long)]
    json: bool,
}

/// Have a node host a manager instead of another node, which may be lost for good
///
/// The new one receives the managers' log before it votes, and the old one ends if it is alive. All running
/// nodes learn of it. A node that has lost its disk is replaced by itself: name it twice. Repeating the
/// command after a failure goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers replace s0v2 s1v0
  shoal managers replace s0v2 s0v2 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it is replaced, 1 it is not, 2 it cannot be, or there is no cluster")]
struct Replace {
    /// The node whose manager is removed
    #[arg(value_name = "OLD")]
    outgoing: String,
    /// The node that hosts the new manager
    #[arg(value_name = "NEW")]
    incoming: String,
    #[command(flatten)]
    asking: Asking,
}

/// Have two more nodes host managers, as after a recovery: there are 1, 3 or 5
///
/// They receive the managers' log before they vote. Repeating the command after a failure goes on where it
/// stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers add s0v2 s1v0
  shoal managers add s0v2 s1v0 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 they vote, 1 they do not, 2 they cannot, or there is no cluster")]
struct Add {
    /// One node
    first: String,
    /// The other
    second: String,
    #[command(flatten)]
    asking: Asking,
}

/// Let a manager go on alone, when a majority of the managers is lost for good
///
/// Refused while a majority answers. Its node stays up meanwhile, since what it has in memory counts. What the lost
/// managers had decided last is taken from nodes that know it; the rest may be lost: the command says what, and
/// wants the cluster's identity before it changes anything. The lost managers are set aside, even if they come back. Add two
/// others afterwards: `shoal managers add`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers recover s0v1
  shoal managers recover s0v1 --confirm 5f0c2a91d3e87b64 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it goes on, 1 it does not, 2 it may not, or there is no cluster")]
struct Recover {
    /// The node whose manager survives; of several, the one that knows most entries of the log
    #[arg(value_name = "NODE")]
    survivor: String,
    /// Do not ask: the cluster's identity, as `shoal status` shows it
    #[arg(long, value_name = "IDENTITY")]
    confirm: Option<String>,
    #[command(flatten)]
    asking: Asking,
}

impl Managers {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        match &self.what {
            What::List(list) => runtime.block_on(list.run()),
            What::Replace(replace) => runtime.block_on(replace.run()),
            What::Recover(recover) => runtime.block_on(recover.run()),
            What::Add(add) => runtime.block_on(add.run()),
        }
    }
}

impl List {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let report = StatusReport::gather(&self.target.addresses()?, &self.target.access()?).await;
        let overview = ManagersOverview::of(&report.map_err(CommandError::Usage)?);
        if self.json {
            print_json(&overview)?;
        } else {
            print(&(overview.text() + "\n"))?;
            for missing in overview.missing() {
                print(&format!("warning: {missing}\n"))?;
            }
        }
        Ok(if overview.missing().is_empty() {
            CommandOutcome::Holds
        } else {
            CommandOutcome::Fails
        })
    }
}

impl Replace {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (outgoing, incoming) = (self.outgoing.clone(), self.incoming.clone());
        change(&self.asking, &WantedManagers::Replace { outgoing, incoming }).await
    }
}

impl Add {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        change(&self.asking, &WantedManagers::Add([self.first.clone(), self.second.clone()])).await
    }
}

/// Has other nodes host managers, and reports the progress.
async fn change(asking: &Asking, wanted: &WantedManagers) -> Result<CommandOutcome, CommandError> {
    let operator = asking.operator()?;
    let say = |stage: &str| asking.say(&format!("{stage}\n"));
    tell(asking, &managers::replace(&operator, wanted, say).await?)
}

/// The managers from now on.
fn tell(asking: &Asking, replaced: &ReplacementEnd) -> Result<CommandOutcome, CommandError> {
    let ReplacementEnd { managers } = replaced;
    if asking.json {
        print_json(replaced)?;
    } else {
        let named: Vec<String> = managers.iter().map(|name| format!("\"{name}\"")).collect();
        let verb = if managers.len() == 1 { "The manager is" } else { "The managers are" };
        print(&format!(
            "{verb} {}. Running nodes know it; for those that begin anew, write it into the file of \
             each node:\n\n  managers = [{}]\n",
            managers.join(", "),
            named.join(", "),
        ))?;
    }
    Ok(CommandOutcome::Holds)
}

impl Recover {
    async fn run(&self) -> Result<CommandOutcome, CommandError> {
        let recovery = ManagersRecovery { operator: self.asking.operator()? };
        let survey = recovery.survey(&self.survivor).await?;
        self.asking.say(&survey.text());
        confirm(survey.cluster(), self.confirm.as_deref(), |text| self.asking.say(text))?;
        let number = shoal_net::SystemClock::new().now().0;
        let say = |stage: &str| self.asking.say(&format!("{stage}\n"));
        let recovered = recovery.recover(&survey, number, say).await?;
        let verdict = tell(&self.asking, &recovered)?;
        self.asking.say(
            "This log is all there is of the managers now: have two more at once, by `shoal managers add`.\n",
        );
        Ok(verdict)
    }
}
