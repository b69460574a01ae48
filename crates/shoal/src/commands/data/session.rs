//! What commands on data run on.

use crate::ask;
use crate::commands::target::Target;
use crate::commands::{CommandError, CommandOutcome};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use shoal_client::{Cluster, ClusterOptions, ClusterTransaction, Db, Error, TableId};
use shoal_types::Database;

/// A command that reads or changes data.
pub trait DataCommand {
    /// Does it, and prints what comes of it.
    async fn run(&self, session: &Session) -> Result<CommandOutcome, CommandError>;
}

/// A command on data, and the cluster that it is about.
#[derive(Debug)]
pub struct OnCluster<C> {
    target: Target,
    command: C,
}

// By hand, since what is derived describes every command by the words above.
impl<C: Args> Args for OnCluster<C> {
    fn augment_args(command: Command) -> Command {
        C::augment_args(Target::augment_args(command).next_help_heading(None))
    }

    fn augment_args_for_update(command: Command) -> Command {
        C::augment_args_for_update(Target::augment_args_for_update(command).next_help_heading(None))
    }
}

impl<C: Args> FromArgMatches for OnCluster<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OnCluster<C>, clap::Error> {
        let target = Target::from_arg_matches(matches)?;
        Ok(OnCluster { target, command: C::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.target.update_from_arg_matches(matches)?;
        self.command.update_from_arg_matches(matches)
    }
}

impl<C: Args + DataCommand> OnCluster<C> {
    /// Connects, and runs the command.
    pub fn run(&self) -> Result<CommandOutcome, CommandError> {
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        runtime.block_on(async { self.command.run(&Session::connect(&self.target).await?).await })
    }
}

/// A client of a cluster, and the transaction that is open on it, if one is.
pub struct Session {
    cluster: Cluster,
    open: Option<ClusterTransaction>,
}

impl Session {
    /// Connects to the cluster that is meant.
    pub async fn connect(target: &Target) -> Result<Session, CommandError> {
        let options = ClusterOptions { access: target.access()?, ..ClusterOptions::default() };
        let cluster = Db::connect_with(&target.addresses()?, options).await;
        let cluster = cluster.map_err(|error| CommandError::Usage(error.to_string()))?;
        Ok(Session { cluster, open: None })
    }

    /// The connected cluster whose tables the command uses.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<TableId, CommandError> {
        self.cluster.topology().table(name).ok_or_else(|| {
            CommandError::Usage(format!(
                "there is no table {name:?}; `shoal tables` shows those there are"
            ))
        })
    }

    /// Refuses what cannot be done within a transaction.
    pub fn check_no_transaction(&self, why: &str) -> Result<(), CommandError> {
        match &self.open {
            None => Ok(()),
            Some(_) => {
                let open = format!("a transaction is open, and {why}; commit or abort it first");
                Err(CommandError::Usage(open))
            }
        }
    }

    /// What a change is by now: done, or to be done by the commit of the transaction that is open.
    pub fn done(&self, done: &str) -> String {
        match &self.open {
            None => done.to_owned(),
            Some(_) => format!("to be {done}, when the transaction commits"),
        }
    }

    /// Runs `body` in the transaction that is open, or else in one of its own.
    pub async fn within<T>(
        &self,
        mut body: impl AsyncFnMut(&ClusterTransaction) -> Result<T, Error>,
    ) -> Result<T, CommandError> {
        let done = match &self.open {
            Some(open) => body(open).await,
            None => Database::transact(&self.cluster, body).await,
        };
        done.map_err(|error| CommandError::Database(error.to_string()))
    }
}
