//! What the commands of an operator have in common: which cluster, by which secret, and for how long.

use super::target::Target;
use super::{CommandError, print};
use crate::duration;
use crate::operator::{ChangeError, Operator};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// How a change is requested, and for how long.
#[derive(Debug, Args)]
pub struct Asking {
    #[command(flatten)]
    target: Target,
    /// The file with the secret of the nodes; by default that in the folder of a local cluster
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Give up if it takes longer
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse_positive)]
    within: Duration,
    /// Print the result as JSON, and all else to standard error
    #[arg(long)]
    pub json: bool,
}

impl Asking {
    /// The access to the managers of the cluster.
    ///
    /// # Errors
    /// If the addresses or the secrets are not known.
    pub fn operator(&self) -> Result<Operator, CommandError> {
        Ok(Operator {
            addresses: self.target.addresses()?,
            access: self.target.access()?,
            operator: self.target.operator(self.secret.as_deref())?,
            within: self.within,
        })
    }

    /// Prints what is no result: to standard error, if the result is JSON.
    pub fn say(&self, text: &str) {
        match self.json {
            true => eprint!("{text}"),
            // An error means that the output is not read any more.
            false => drop(print(text)),
        }
    }
}

impl From<ChangeError> for CommandError {
    fn from(trouble: ChangeError) -> CommandError {
        match trouble {
            ChangeError::NoCluster(_)
            | ChangeError::NoNode { .. }
            | ChangeError::Secret(_)
            | ChangeError::Cannot(_) => CommandError::Usage(trouble.to_string()),
            ChangeError::Refused(_) | ChangeError::Late { .. } => {
                CommandError::Database(trouble.to_string())
            }
        }
    }
}
