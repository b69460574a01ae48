//! A cluster as a database for threads that are not those of a runtime.

use crate::local::InProcessCluster;
use crate::report;
use bytes::Bytes;
use shoal_client::{Access, Cluster, ClusterOptions, ClusterTransaction, Db};
use shoal_cluster::topology::Regions;
use shoal_types::{Call, Counted, Database, Result, Scan, TableId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Runtime;

/// A client, the runtime of its connections, and, if it has one to itself, the cluster.
#[derive(Clone)]
pub struct RemoteDatabase {
    cluster: Cluster,
    runtime: Arc<Runtime>,
    own: Option<Arc<InProcessCluster>>,
    addresses: Vec<String>,
    access: Access,
    /// Whether a table that is opened is dropped first, and created anew.
    empties: bool,
    /// The tables that were opened.
    opened: Arc<Mutex<Vec<(String, TableId)>>>,
}

impl RemoteDatabase {
    /// A client of the cluster at these addresses, with a thread for its connections. `own` lives as long
    /// as the client.
    ///
    /// # Errors
    /// A sentence, if there is none.
    pub fn connect(
        addresses: &[String],
        options: ClusterOptions,
        own: Option<Arc<InProcessCluster>>,
    ) -> std::result::Result<RemoteDatabase, String> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let access = options.access.clone();
        let cluster = runtime.block_on(Db::connect_with(addresses, options));
        let cluster = cluster.map_err(|error| error.to_string())?;
        Ok(RemoteDatabase {
            cluster,
            runtime: Arc::new(runtime),
            own,
            addresses: addresses.to_vec(),
            access,
            empties: false,
            opened: Arc::default(),
        })
    }

    /// The same database, which drops each table that is opened, and creates it anew with the same partitioning.
    #[must_use]
    pub fn emptied(self) -> RemoteDatabase {
        RemoteDatabase { empties: true, ..self }
    }

    /// The name of an opened table that has rows.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn table_with_rows(&self) -> Result<Option<String>> {
        for (name, table) in self.opened().clone() {
            let first = Scan::all().limit(1);
            let found = Cluster::transact(&self.cluster, async |tx: &mut ClusterTransaction| {
                Ok(!tx.scan(table, first).await?.is_empty())
            });
            if self.runtime.block_on(found)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(String, TableId)>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a table, if it is there, and creates it anew.
    fn empty(&self, name: &str) -> Result<()> {
        let topology = self.cluster.topology();
        let tables = topology.tables();
        let Some(table) = tables.named(name).and_then(|table| tables.get(table)) else {
            return Ok(());
        };
        self.runtime.block_on(async {
            self.cluster.drop_table(name).await?;
            self.cluster.create_table(name, table.partitioning().clone()).await.map(drop)
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

    /// The datacenters of the cluster, and how far they are from each other.
    pub fn regions(&self) -> Regions {
        Regions::of(&self.cluster.topology())
    }
}

impl Database for RemoteDatabase {
    type Transaction<'db> = ClusterTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        if self.empties {
            self.empty(name)?;
        }
        let table = self.cluster.table(name)?;
        self.opened().push((name.to_owned(), table));
        Ok(table)
    }

    /// The sum over all workers that report it.
    fn counted(&self) -> Counted {
        match &self.own {
            Some(own) => own.counted(),
            None => self.runtime.block_on(report::counted(&self.addresses, &self.access)),
        }
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&ClusterTransaction) -> Result<T>,
    ) -> Result<T> {
        let transaction =
            Database::transact(&self.cluster, async |tx: &ClusterTransaction| body(tx).await);
        self.within(transaction).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.within(Database::call(&self.cluster, call)).await
    }
}
