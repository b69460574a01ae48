//! `shoal managers`: who the configuration managers of a cluster are, and one instead of another.

use super::target::Target;
use super::{Trouble, Verdict, print, print_json};
use crate::managers::{Overview, Replaced, Replacement};
use crate::report::Report;
use crate::{ask, duration};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Show the configuration managers of a cluster, or replace one that is lost
///
/// They grant leases, appoint leaders and begin epochs; a majority of them has to live.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers list
  shoal managers replace s0v2 s1v0 --connect 10.0.0.1:7000 --secret secret")]
pub struct Managers {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(List),
    Replace(Replace),
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
    /// Print what the nodes say as JSON
    #[arg(long)]
    json: bool,
}

/// Have a node host a manager instead of another node, which may be lost for good
///
/// The new one learns the managers' log before it votes, and the old one ends if it lives. All running nodes learn
/// of it. A node that has lost its disk is replaced by itself: name it twice. To ask again after a failure goes on
/// where it stood.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal managers replace s0v2 s1v0
  shoal managers replace s0v2 s0v2 --connect 10.0.0.1:7000 --secret secret

Exit codes: 0 it is replaced, 1 it is not, 2 it cannot be, or there is no cluster")]
struct Replace {
    /// The node that goes
    #[arg(value_name = "OLD")]
    outgoing: String,
    /// The node that comes
    #[arg(value_name = "NEW")]
    incoming: String,
    #[command(flatten)]
    target: Target,
    /// The file with the secret of the nodes; by default that in the folder of a local cluster
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Give up if it takes longer
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse_positive)]
    within: Duration,
    /// Print what came of it as JSON, and how it goes to standard error
    #[arg(long)]
    json: bool,
}

impl Managers {
    pub(super) fn run(&self) -> Result<Verdict, Trouble> {
        let runtime = ask::runtime().map_err(|error| Trouble::Usage(error.to_string()))?;
        match &self.what {
            What::List(list) => runtime.block_on(list.run()),
            What::Replace(replace) => runtime.block_on(replace.run()),
        }
    }
}

impl List {
    async fn run(&self) -> Result<Verdict, Trouble> {
        let report = Report::gather(&self.target.addresses()?, &self.target.access()?).await;
        let overview = Overview::of(&report.map_err(Trouble::Usage)?);
        if self.json {
            print_json(&overview)?;
        } else {
            print(&(overview.text() + "\n"))?;
            for missing in overview.missing() {
                print(&format!("warning: {missing}\n"))?;
            }
        }
        Ok(if overview.missing().is_empty() { Verdict::Holds } else { Verdict::Fails })
    }
}

impl Replace {
    async fn run(&self) -> Result<Verdict, Trouble> {
        let replacement = Replacement {
            addresses: self.target.addresses()?,
            access: self.target.access()?,
            operator: self.target.operator(self.secret.as_deref())?,
            within: self.within,
        };
        let say = |sentence: &str| match self.json {
            true => eprintln!("{sentence}"),
            // Who does not read it any more misses nothing that counts.
            false => drop(print(&format!("{sentence}\n"))),
        };
        let replaced = replacement.run(&self.outgoing, &self.incoming, say).await?;
        let Replaced { managers } = &replaced;
        if self.json {
            print_json(&replaced)?;
        } else {
            let named: Vec<String> = managers.iter().map(|name| format!("\"{name}\"")).collect();
            print(&format!(
                "The managers are {}. Running nodes know it; for those that begin anew, write it into the file of \
                 each node:\n\n  managers = [{}]\n",
                managers.join(", "),
                named.join(", "),
            ))?;
        }
        Ok(Verdict::Holds)
    }
}

impl From<crate::managers::Trouble> for Trouble {
    fn from(trouble: crate::managers::Trouble) -> Trouble {
        use crate::managers::Trouble as Other;
        match trouble {
            Other::NoCluster(_) | Other::NoNode { .. } | Other::Secret(_) | Other::Cannot(_) => {
                Trouble::Usage(trouble.to_string())
            }
            Other::Refused(_) | Other::Late { .. } => Trouble::Database(trouble.to_string()),
        }
    }
}
