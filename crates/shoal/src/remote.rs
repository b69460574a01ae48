//! A cluster as a database for threads that are not those of a runtime.

use crate::local::InProcessCluster;
use crate::report;
use bytes::Bytes;
use shoal_client::{Access, Cluster, ClusterOptions, ClusterTransaction, Db};
use shoal_cluster::topology::Regions;
use shoal_types::{Call, Counted, Database, Result, TableId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A client, the runtime of its connections, and, if it has one to itself, the cluster.
#[derive(Clone)]
pub struct RemoteDatabase {
    cluster: Cluster,
    runtime: Arc<Runtime>,
    own: Option<Arc<InProcessCluster>>,
    addresses: Vec<String>,
    access: Access,
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
        self.cluster.table(name)
    }

    /// The sum over all workers that say so.
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
