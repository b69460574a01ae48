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
        // Also behind the name of a subcommand.
        let target = Target::augment_args(command).mut_args(|argument| argument.global(true));
        C::augment_args(target.next_help_heading(None))
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

/// A client of a cluster.
pub struct Session {
    cluster: Cluster,
}

impl Session {
    /// Connects to the cluster that is meant.
    pub async fn connect(target: &Target) -> Result<Session, CommandError> {
        let options = ClusterOptions { access: target.access()?, ..ClusterOptions::default() };
        let cluster = Db::connect_with(&target.addresses()?, options).await;
        let cluster = cluster.map_err(|error| CommandError::Usage(error.to_string()))?;
        Ok(Session { cluster })
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

    /// Runs `body` in a transaction.
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&ClusterTransaction) -> Result<T, Error>,
    ) -> Result<T, CommandError> {
        let done = Database::transact(&self.cluster, body).await;
        done.map_err(|error| CommandError::Database(error.to_string()))
    }
}
