//! What commands on data run on.

use crate::ask;
use crate::commands::target::Target;
use crate::commands::{CommandError, CommandOutcome};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use shoal_client::{Cluster, ClusterOptions, ClusterTransaction, Error, TableId};
use shoal_types::Database;
use shoal_types::limits::RESERVED_TABLES;
use std::cell::Cell;

/// A command that reads or changes data.
pub trait DataCommand {
    /// Runs the command, and prints its result.
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

/// A client of a cluster, with an open transaction if one was begun.
pub struct Session {
    cluster: Cluster,
    /// Taken out while an operation is under way: one that is given up has ended it.
    open: Cell<Option<ClusterTransaction>>,
    is_open: Cell<bool>,
}

impl Session {
    /// Connects to the cluster that is meant.
    pub async fn connect(target: &Target) -> Result<Session, CommandError> {
        let options = ClusterOptions { access: target.access()?, ..ClusterOptions::default() };
        let cluster = Cluster::connect_with(&target.addresses()?, options).await;
        let cluster = cluster.map_err(|error| CommandError::Usage(error.to_string()))?;
        Ok(Session { cluster, open: Cell::default(), is_open: Cell::default() })
    }

    /// The connected cluster whose tables the command uses.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<TableId, CommandError> {
        self.cluster.topology().table(name).ok_or_else(|| {
            CommandError::Usage(format!(
                "there is no table {name:?}; `shoal tables` shows those there are, `shoal tables create` makes one"
            ))
        })
    }

    /// The names of the tables, without those that Shoal keeps for itself.
    pub fn tables(&self) -> Vec<String> {
        let topology = self.cluster.topology();
        let names = topology.tables().iter().map(|table| table.name().to_owned());
        names.filter(|name| !name.starts_with(RESERVED_TABLES)).collect()
    }

    /// Runs `body` in the open transaction; where there is none, in one of its own. An error aborts the open one: some of
    /// what was to be done in it is done, and some is not.
    pub async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&ClusterTransaction) -> Result<T, Error>,
    ) -> Result<T, CommandError> {
        if !self.is_open() {
            let done = Database::transact(&self.cluster, body).await;
            return done.map_err(|error| self.failed(&error));
        }
        let open = self.take()?;
        match body(&open).await {
            Ok(done) => {
                self.put_back(open);
                Ok(done)
            }
            Err(error) => Err(CommandError::Database(format!(
                "{}; the open transaction is aborted: nothing it wrote has taken effect",
                self.told(&error)
            ))),
        }
    }

    /// Whether a transaction was begun that has not ended.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Opens a transaction.
    pub fn begin(&self) -> Result<(), CommandError> {
        if self.is_open() {
            return Err(CommandError::Usage("a transaction is open; commit or abort it".into()));
        }
        let begun = self.cluster.begin();
        self.put_back(begun.map_err(|error| self.failed(&error))?);
        Ok(())
    }

    /// Commits the open transaction. It is over, also where that fails.
    pub async fn commit(&self) -> Result<(), CommandError> {
        let committed = self.take()?.commit().await;
        committed.map_err(|error| self.failed(&error))
    }

    /// Aborts the open transaction.
    pub fn abort(&self) -> Result<(), CommandError> {
        self.take()?.rollback();
        Ok(())
    }

    /// The error of an operation, with the name of the table that it is about.
    pub fn failed(&self, error: &Error) -> CommandError {
        CommandError::Database(self.told(error))
    }

    fn told(&self, error: &Error) -> String {
        let topology = self.cluster.topology();
        let named = |table| Some((table, topology.tables().get(table)?.name().to_owned()));
        match error.table().and_then(named) {
            Some((table, name)) => format!("{error} ({table} is {name:?})"),
            None => error.to_string(),
        }
    }

    fn put_back(&self, transaction: ClusterTransaction) {
        self.open.set(Some(transaction));
        self.is_open.set(true);
    }

    fn take(&self) -> Result<ClusterTransaction, CommandError> {
        self.is_open.set(false);
        let none = || CommandError::Usage("no transaction is open; begin one".into());
        self.open.take().ok_or_else(none)
    }
}
