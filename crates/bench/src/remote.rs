//! A cluster as a database for threads that are not those of a runtime, and clients with a connection of their own.
//!
//! A client that waits on its own thread for what a connection on another thread receives is woken twice for each answer:
//! first that thread, then its own. Where each client has a runtime and a connection to itself ([`ConnectedClients`]), the
//! thread that waits for an answer reads it from the socket.

use crate::cluster::{MeasuredCluster, table_definition};
use bytes::Bytes;
use shoal_client::{Cluster, ClusterOptions, ClusterTransaction};
use shoal_cluster::topology::Regions;
use shoal_types::bulk_load::LoadRow;
use shoal_types::{Call, Counted, Database, Durability, Error, Rejected, Result, Scan, TableId};
use shoal_workloads::bench::{BenchPlace, BenchRole, Work};
use shoal_workloads::placed::unplaced_division;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::runtime::{Builder, Runtime};

/// A client, the runtime of its connections, and the cluster's counters.
#[derive(Clone)]
pub struct RemoteDatabase {
    cluster: Cluster,
    runtime: Arc<Runtime>,
    measured: Arc<dyn MeasuredCluster>,
    addresses: Vec<String>,
    /// Whether a table that is opened is dropped first, and created anew.
    empties: bool,
    /// The tables that were opened.
    opened: Arc<Mutex<Vec<(String, TableId)>>>,
}

impl RemoteDatabase {
    /// A client of the cluster at these addresses, with a thread for its connections. `measured` is that cluster, and
    /// lives as long as the client.
    ///
    /// # Errors
    /// A sentence, if there is none.
    pub fn connect(
        addresses: &[String],
        options: ClusterOptions,
        measured: Arc<dyn MeasuredCluster>,
    ) -> std::result::Result<RemoteDatabase, String> {
        let (cluster, runtime) =
            connect(Builder::new_multi_thread().worker_threads(1), addresses, options)?;
        Ok(RemoteDatabase {
            cluster,
            runtime: Arc::new(runtime),
            measured,
            addresses: addresses.to_vec(),
            empties: false,
            opened: Arc::default(),
        })
    }

    /// The same database, which drops each table that is opened, and creates it anew with the same partitioning.
    #[must_use]
    pub fn emptied(self) -> RemoteDatabase {
        RemoteDatabase { empties: true, ..self }
    }

    /// The name of an opened table that has rows. Tables whose engine refuses to scan them are passed over.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn table_with_rows(&self) -> Result<Option<String>> {
        for (name, table) in self.opened().clone() {
            let first = Scan::all().limit(1);
            let found = Cluster::transact(&self.cluster, async |tx: &mut ClusterTransaction| {
                Ok(!tx.scan(table, first).await?.is_empty())
            });
            match self.runtime.block_on(found) {
                Ok(true) => return Ok(Some(name)),
                // An engine that moves granules scans none of a table that has several: it may have rows.
                Ok(false) | Err(Error::Rejected(Rejected::ScanTooWide { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(String, TableId)>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a table as workloads want it divided. Others may have created it meanwhile, and otherwise.
    fn create(&self, name: &str) -> Result<TableId> {
        let definition = table_definition(name, unplaced_division(name));
        match self.runtime.block_on(self.cluster.create_table(name, definition)) {
            Err(Error::Rejected(Rejected::TableExists { .. })) => self.cluster.table(name),
            created => created,
        }
    }

    /// Drops a table, if it is there, and creates it anew. Others of its family are dropped before: they are created when the
    /// workload asks for them.
    fn empty(&self, name: &str) -> Result<()> {
        let topology = self.cluster.topology();
        let tables = topology.tables();
        let Some(table) = tables.named(name).and_then(|table| tables.get(table)) else {
            return Ok(());
        };
        let others = tables.iter().filter(|of| of.definition().family.as_deref() == Some(name));
        self.runtime.block_on(async {
            for other in others {
                self.cluster.drop_table(other.name()).await?;
            }
            self.cluster.drop_table(name).await?;
            self.cluster.create_table(name, table.definition()).await.map(drop)
        })
    }

    /// Awaits what waits with a deadline, and so has to know of which runtime.
    async fn within<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _here = self.runtime.enter();
            future.as_mut().poll(context)
        })
        .await
    }

    /// When the cluster's replicas acknowledge what they store.
    pub fn durability(&self) -> Durability {
        self.cluster.topology().durability()
    }

    /// The datacenters of the cluster, and how far they are from each other.
    pub fn regions(&self) -> Regions {
        Regions::of(&self.cluster.topology())
    }
}

/// A client of the cluster at these addresses, and the runtime of its connections.
pub(crate) fn connect(
    runtime: &mut Builder,
    addresses: &[String],
    options: ClusterOptions,
) -> std::result::Result<(Cluster, Runtime), String> {
    let runtime = runtime.enable_all().build().map_err(|error| error.to_string())?;
    let cluster = runtime.block_on(Cluster::connect_with(addresses, options));
    Ok((cluster.map_err(|error| error.to_string())?, runtime))
}

impl fmt::Debug for RemoteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster at {}", self.addresses.join(", "))
    }
}

/// A client, and a runtime that runs only while that client does.
struct ConnectedClient {
    cluster: Cluster,
    runtime: Runtime,
}

/// Loaders outside the cluster. Each has several transactions in flight: more loaders would have each of them wait until it is
/// sent again.
pub(crate) const LOADERS_MAX: usize = 4;

/// Clients of a bench outside the cluster: a thread, a runtime and a connection to each worker in use for each of them.
pub struct ConnectedClients {
    judge: RemoteDatabase,
    /// By the number of the client; a loader uses those of the client of the same number, before that begins.
    clients: Vec<Arc<Mutex<ConnectedClient>>>,
}

impl ConnectedClients {
    /// So many clients of the cluster that `judge` is connected to, from where the data is judged.
    ///
    /// # Errors
    /// A sentence, if one cannot connect.
    pub fn connect(
        judge: RemoteDatabase,
        options: &ClusterOptions,
        clients: usize,
    ) -> std::result::Result<ConnectedClients, String> {
        let client = |_| {
            let mut runtime = Builder::new_current_thread();
            let (cluster, runtime) = connect(&mut runtime, &judge.addresses, options.clone())?;
            Ok(Arc::new(Mutex::new(ConnectedClient { cluster, runtime })))
        };
        let clients: std::result::Result<Vec<_>, String> = (0..clients).map(client).collect();
        Ok(ConnectedClients { clients: clients?, judge })
    }
}

impl fmt::Debug for ConnectedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connected clients", self.clients.len())
    }
}

impl BenchPlace for ConnectedClients {
    type Database = RemoteDatabase;

    fn database(&self) -> &RemoteDatabase {
        &self.judge
    }

    fn thread_group(&self, _client: usize) -> Option<usize> {
        None
    }

    fn loaders_max(&self) -> usize {
        LOADERS_MAX
    }

    fn spawn(&self, role: BenchRole, work: impl Work) {
        let (BenchRole::Client(number) | BenchRole::Loader(number)) = role;
        let client = Arc::clone(&self.clients[number]);
        thread::spawn(move || {
            // A loader that has said that it is done may not have left yet.
            let client = client.lock().unwrap_or_else(PoisonError::into_inner);
            client.runtime.block_on(work.run(client.cluster.clone()));
        });
    }
}

impl Database for RemoteDatabase {
    type Transaction<'db> = ClusterTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        if self.empties {
            self.empty(name)?;
        }
        let known = self.cluster.topology().table(name);
        let table = match known {
            Some(table) => table,
            None => self.create(name)?,
        };
        self.opened().push((name.to_owned(), table));
        Ok(table)
    }

    /// The sum over all workers that report it.
    fn counted(&self) -> Counted {
        self.measured.counted(&self.runtime)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&ClusterTransaction) -> Result<T>,
    ) -> Result<T> {
        let transaction =
            Database::transact(&self.cluster, async |tx: &ClusterTransaction| body(tx).await);
        self.within(transaction).await
    }

    async fn load(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.within(Database::load(&self.cluster, rows, loaded)).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.within(Database::call(&self.cluster, call)).await
    }
}
