//! A client outside of the cluster: the one that is shipped, over connections that exist only here.
//!
//! ```text
//!   play ──► Outside ──► shoal_client::Cluster ──► Around ──► network ──► worker
//!                                              ▲                     │
//!                                              └────── replies ──────┘
//! ```

use super::process::ProcessEnvironment;
use bytes::Bytes;
use shoal_client::{Cluster, ClusterOptions, ClusterTransaction};
use shoal_engine::client::Directory;
use shoal_types::{Call, Database, Random, Result, TableId};
use std::sync::Arc;
use std::time::Duration;

/// The database as a client outside sees it. Clones share the client.
#[derive(Debug, Clone)]
pub struct OutsideClient {
    cluster: Cluster,
    around: ProcessEnvironment,
    options: ClusterOptions,
    heard: Directory,
    random: Random,
}

impl OutsideClient {
    /// A client that has heard this much of the cluster.
    pub fn new(
        around: ProcessEnvironment,
        options: ClusterOptions,
        heard: Directory,
        mut random: Random,
    ) -> OutsideClient {
        let cluster = connect(&around, &options, &heard, &mut random);
        OutsideClient { cluster, around, options, heard, random }
    }

    /// The client.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the client was told.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Drops the client, and with it its connections and sessions, and makes another.
    pub fn begin_anew(&mut self) {
        self.cluster = connect(&self.around, &self.options, &self.heard, &mut self.random);
    }

    /// Returns after this span of virtual time.
    pub async fn sleep(&self, span: Duration) {
        self.around.sleep(span).await;
    }
}

fn connect(
    around: &ProcessEnvironment,
    options: &ClusterOptions,
    heard: &Directory,
    random: &mut Random,
) -> Cluster {
    let (world, random) = (Arc::new(around.clone()), Random::new(random.next_u64()));
    Cluster::in_world(world, options.clone(), heard.clone(), random)
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

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Database::call(&self.cluster, call).await
    }
}
