//! A client outside of the cluster: the shipped client, over simulated connections.
//!
//! ```text
//!   group of clients ──► OutsideClient ──► shoal_client::Cluster ──► environment ──► network ──► worker
//!                                                                      ▲                         │
//!                                                                      └──────── replies ────────┘
//! ```

use super::process::ProcessEnvironment;
use bytes::Bytes;
use shoal_client::{Cluster, ClusterOptions, ClusterTransaction};
use shoal_engine::client::Directory;
use shoal_types::bulk_load::LoadRow;
use shoal_types::{Call, Database, Random, Result, TableId};
use std::sync::Arc;
use std::time::Duration;

/// The database as a client outside uses it. Clones share the client.
#[derive(Debug, Clone)]
pub struct OutsideClient {
    cluster: Cluster,
    environment: ProcessEnvironment,
    options: ClusterOptions,
    directory: Directory,
    random: Random,
}

impl OutsideClient {
    /// A client that begins with this knowledge of the cluster.
    pub fn new(
        environment: ProcessEnvironment,
        options: ClusterOptions,
        directory: Directory,
        mut random: Random,
    ) -> OutsideClient {
        let cluster = connect(&environment, &options, &directory, &mut random);
        OutsideClient { cluster, environment, options, directory, random }
    }

    /// The client, as programs use it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The options that the client was made with.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Drops the client, and with it its connections and sessions, and makes another.
    pub fn begin_anew(&mut self) {
        self.cluster = connect(&self.environment, &self.options, &self.directory, &mut self.random);
    }

    /// Returns after `span` of virtual time.
    pub async fn sleep(&self, span: Duration) {
        self.environment.sleep(span).await;
    }
}

fn connect(
    environment: &ProcessEnvironment,
    options: &ClusterOptions,
    directory: &Directory,
    random: &mut Random,
) -> Cluster {
    let (world, random) = (Arc::new(environment.clone()), Random::new(random.next_u64()));
    Cluster::in_world(world, options.clone(), directory.clone(), random)
}

impl Database for OutsideClient {
    type Transaction<'db> = ClusterTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        self.cluster.table(name)
    }

    async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&ClusterTransaction) -> Result<T>,
    ) -> Result<T> {
        Database::transact(&self.cluster, body).await
    }

    async fn load(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        Database::load(&self.cluster, rows, loaded).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Database::call(&self.cluster, call).await
    }
}
