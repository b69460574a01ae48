//! The handle of a cluster.

use super::attempts::Attempts;
use super::call::CalledProcedure;
use super::client_shared::ClientShared;
use super::client_thread::ClientThread;
use super::cluster_identity::ClusterIdentity;
use super::connection::NodeConnection;
use super::environment::ClientEnvironment;
use super::error::ConnectError;
use super::options::ClusterOptions;
use super::shared::ClusterInner;
use super::sockets::{FirstNode, Sockets, first};
use super::transaction::{ClusterTransaction, OperationTimeout};
use crate::attempts::{self, Place};
use crate::future::TransactionFuture;
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use shoal_cluster::topology::Topology;
use shoal_engine::WorkerPlace;
use shoal_engine::client::Directory;
use shoal_types::bulk_load::LoadRow;
use shoal_types::{
    Call, ClusterId, Database, Error, NodeId, Random, Rejected, RequestId, Result, ShardId,
    TableId, Time,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A connected database: what it has in common with an embedded one is [`Db`](crate::Db), which
/// [holds](crate::Db::cluster) one of these. Here is in addition what only a cluster has: shards and their leaders, calls with
/// a home, and calls that are asked for again.
///
/// Cheap to clone; all clones share their connections, and any number of tasks may use it at once.
#[derive(Clone)]
pub struct Cluster {
    pub(super) inner: Arc<ClusterInner>,
    pub(super) deadline: Duration,
    /// The thread that drives the connections, if the client has one of its own.
    pub(super) thread: Option<Arc<ClientThread>>,
}

impl Cluster {
    /// Connects to a cluster; see [`Db::connect_with`](crate::Db::connect_with).
    ///
    /// # Errors
    /// See there.
    ///
    /// # Panics
    /// If the system has no randomness, and outside of a tokio runtime.
    pub async fn connect_with<A: AsRef<str>>(
        addresses: &[A],
        options: ClusterOptions,
    ) -> Result<Cluster, ConnectError> {
        options.validate()?;
        let mut options = options.with_least_patience();
        let addresses: Vec<Arc<str>> =
            addresses.iter().map(|address| address.as_ref().into()).collect();
        let random = chance();
        let FirstNode { address, connection, directory, region } =
            first(&options, &addresses, &random).await?;
        if let Some(region) = &region {
            options = options.at_distance(region.round_trip_max());
        }
        let own = options.access.identity.or(connection.identity);
        let world = Arc::new(Sockets::new(options.access.clone(), region));
        let cluster = Cluster::new(world, options, addresses, directory, own, random);
        let ClusterInner { client_shared, lines, .. } = &*cluster.inner;
        let place = WorkerPlace { node: connection.node, worker: connection.worker };
        client_shared.view.reached(place.node, &address);
        lines.adopt(place, &NodeConnection::start(connection, client_shared));
        Ok(cluster)
    }
}

/// The source of randomness of this client, different from that of any other: the tokens of its requests for
/// sessions are drawn from it.
fn chance() -> Random {
    let mut seed = [0; 8];
    SystemRandom::new().fill(&mut seed).expect("the system has randomness");
    Random::new(u64::from_le_bytes(seed))
}

impl Cluster {
    /// A client in an environment of the caller, such as a simulator, with an initial directory. All that it
    /// does is determined by them and by `random`.
    ///
    /// # Panics
    /// If the options are not [valid](ClusterOptions::validate).
    pub fn in_world(
        world: Arc<dyn ClientEnvironment>,
        options: ClusterOptions,
        directory: Directory,
        random: Random,
    ) -> Cluster {
        options.validate().expect("the caller has valid options");
        let own = options.access.identity;
        Cluster::new(world, options.with_least_patience(), Vec::new(), directory, own, random)
    }

    fn new(
        world: Arc<dyn ClientEnvironment>,
        options: ClusterOptions,
        addresses: Vec<Arc<str>>,
        directory: Directory,
        own: Option<ClusterId>,
        random: Random,
    ) -> Cluster {
        let named = directory.configuration.as_ref().and_then(|configured| configured.cluster);
        let client_shared =
            Arc::new(ClientShared::new(world, directory, ClusterIdentity::of(own.or(named))));
        let deadline = options.deadline;
        Cluster {
            inner: Arc::new(ClusterInner::new(options, addresses, client_shared, random)),
            deadline,
            thread: None,
        }
    }

    /// The same, with another deadline than that of the [options](ClusterOptions::deadline): for a single
    /// call, or for as many as are made with what is returned.
    ///
    /// ```no_run
    /// # use shoal_client::{Cluster, Error, ShardId};
    /// # use std::time::Duration;
    /// # async fn example(db: Cluster) -> Result<(), Error> {
    /// let quick = db.with_deadline(Duration::from_millis(200));
    /// quick.call(ShardId(0), "restock", "screws").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Cluster {
        Cluster { deadline, ..self.clone() }
    }

    /// Nodes, shards and tables, by the directory that the nodes have sent.
    pub fn topology(&self) -> Arc<Topology> {
        self.inner.client_shared.view.topology()
    }

    /// The shard on which `key` lives: the best home for a call that works with it. Of a table that every
    /// shard has a copy of, the first.
    ///
    /// # Errors
    /// [`Rejected::UnknownTable`].
    pub fn home(&self, table: TableId, key: &[u8]) -> Result<ShardId> {
        let home = self.inner.client_shared.view.home(table, key);
        Ok(home.ok_or(Rejected::UnknownTable { table })?.unwrap_or_default())
    }

    /// Calls a procedure where its home lives; one that names none is executed on a shard that is drawn at random.
    ///
    /// # Errors
    /// As for [`call`](Cluster::call), and [`Rejected::UnknownTable`].
    pub(crate) async fn call_at_home(&self, call: &Call<'_>) -> Result<Bytes> {
        let (home, granule) = match call.home {
            Some((table, key)) => {
                (self.home(table, key)?, self.inner.client_shared.view.granule(table, key))
            }
            None => (self.inner.any_shard(), None),
        };
        let (procedure, arguments) =
            (call.procedure.into(), Bytes::copy_from_slice(call.arguments));
        let called = CalledProcedure { home, granule, procedure, arguments };
        self.inner.call(&called, self.deadline).await
    }

    /// The leader of a shard, by the directory that the nodes have sent.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.inner.client_shared.view.leader(shard)
    }

    /// The identity of the cluster, drawn when it was founded; `None` until a node has sent it, and without
    /// managers. With it in [`Access::identity`](crate::Access::identity) a later client makes sure that it
    /// connects to the same cluster.
    pub fn identity(&self) -> Option<ClusterId> {
        self.inner.client_shared.founding.own()
    }

    /// The number of connections that were closed because of malformed frames.
    pub fn malformed(&self) -> u64 {
        self.inner.client_shared.malformed()
    }

    /// Runs `body` as one strictly serializable transaction and commits it.
    ///
    /// Where nothing has happened, after a conflict or since a node failed, `body` runs again, after a
    /// short random pause, up to [`ClusterOptions::attempts_max`] times and until the deadline: it should do
    /// nothing that must not be done twice. An error that it returns rolls the transaction back and is
    /// returned here, but only once what it read has proved to be consistent; otherwise it runs again. If
    /// the future is dropped, or `body` panics, nothing happened, unless it was about to commit.
    ///
    /// Where the answer to the commit was lost, the client finds out what became of it, by way of any node, and `body` runs
    /// again only if it has not committed and never will ([`ClusterOptions::commit_ids`]).
    ///
    /// # Errors
    /// What `body` returns; [`Aborted`](shoal_types::Error::Aborted) where all attempts or all the time are used up;
    /// [`Unknown`](shoal_types::Error::Unknown) where the deadline passed before it was known what became of the commit;
    /// [`Rejected::TooManyTransactions`].
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut ClusterTransaction) -> Result<T>,
    ) -> Result<T> {
        attempts::run(self, body).await
    }

    /// Begins an interactive transaction. The caller ends it, and retries it where it likes. Each of its
    /// operations may take as long as the deadline says. Nothing is sent before its first operation that has
    /// an answer.
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`].
    pub fn begin(&self) -> Result<ClusterTransaction> {
        let permit = self.inner.enter()?;
        let timeout = OperationTimeout::Each(self.deadline);
        Ok(ClusterTransaction::new(&self.inner, Some(permit), timeout))
    }

    /// An attempt of a transaction that is over until then, and has its permit.
    pub(crate) fn begin_until(&self, until: Time) -> ClusterTransaction {
        ClusterTransaction::new(&self.inner, None, OperationTimeout::Until(until))
    }

    /// Calls a procedure that the nodes know by name, in one message. It runs at the leader of `home`, as
    /// one transaction, and takes effect once, with any losses on the way and whichever nodes fail. Where it was aborted,
    /// and so nothing has happened, it is called again, up to [`ClusterOptions::attempts_max`] times and until the deadline.
    ///
    /// ```no_run
    /// # use shoal_client::{Cluster, Error};
    /// # async fn example(db: Cluster) -> Result<(), Error> {
    /// let orders = db.table("orders")?;
    /// let home = db.home(orders, b"alice")?;
    /// let receipt = db.call(home, "order", "alice: 3 screws").await?;
    /// # let _ = receipt;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the procedure. [`Unknown::Call`](shoal_types::Unknown::Call) where the deadline passed: then
    /// [`call_again`](Cluster::call_again) shows it. [`Aborted`](shoal_types::Error::Aborted) where all attempts or all the time
    /// are used up and nothing has happened.
    pub async fn call(
        &self,
        home: ShardId,
        procedure: &str,
        arguments: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let (procedure, arguments) = (procedure.into(), arguments.into());
        let call = CalledProcedure { home, granule: None, procedure, arguments };
        self.inner.call(&call, self.deadline).await
    }

    /// Asks for a call whose fate is open, by the id that its error named and with all that it was made
    /// with. If it has not taken effect, and now never will under that id, it is called anew; so in the end it has taken
    /// effect once.
    ///
    /// # Errors
    /// As for [`call`](Cluster::call). [`Unknown::Forgotten`](shoal_types::Unknown::Forgotten) where it was asked for so late that
    /// its outcome is not kept any more.
    pub async fn call_again(
        &self,
        request: RequestId,
        procedure: &str,
        arguments: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let home = request.session.home;
        let (procedure, arguments) = (procedure.into(), arguments.into());
        let call = CalledProcedure { home, granule: None, procedure, arguments };
        self.inner.call_again(request, &call, self.deadline).await
    }
}

impl Place for Cluster {
    type Transaction<'p> = ClusterTransaction;
    type Retries = Attempts;

    fn retries(&self) -> Result<Attempts> {
        Attempts::new(&self.inner, self.deadline)
    }

    fn attempt(&self, attempts: &Attempts) -> Result<ClusterTransaction> {
        Ok(self.begin_until(attempts.until()))
    }

    fn end<'p>(&'p self, tx: ClusterTransaction) -> TransactionFuture<'p, ()> {
        TransactionFuture::waits(tx.commit())
    }

    async fn confirm_failure(&self, tx: ClusterTransaction, error: Error) -> Error {
        tx.confirm_failure(error).await
    }

    async fn pause(&self, attempts: &mut Attempts, error: Error) -> Result<()> {
        attempts.pause(error).await
    }
}

impl Database for Cluster {
    type Transaction<'db> = ClusterTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        Cluster::table(self, name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&ClusterTransaction) -> Result<T>,
    ) -> Result<T> {
        Cluster::transact(self, async |tx: &mut ClusterTransaction| body(tx).await).await
    }

    async fn load(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        Cluster::load(self, rows, loaded).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.call_at_home(call).await
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("addresses", &self.inner.addresses)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
