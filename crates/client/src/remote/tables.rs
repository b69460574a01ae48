//! Tables that a client creates and drops.
//!
//! The managers do it: any node passes the request on to them, and answers when all live nodes have it.
//! The request has a number, so that it takes effect once; see `shoal_cluster::manager::TableChange`. Afterwards the client
//! requests the directory until that has the change, too.

use super::attempts::{Attempts, CallSpan};
use super::cluster::Cluster;
use super::shared::ClusterInner;
use shoal_cluster::manager::TableChange;
use shoal_cluster::topology::{Partitioning, TableDefinition, TableStanding};
use shoal_types::{Error, Rejected, Result, TableId};
use std::sync::Arc;
use std::time::Duration;

/// The default partitioning: over all shards, by a hash of the whole key.
const DEFAULT_PARTITIONING: Partitioning = Partitioning::Hash { prefix_bytes: 0 };

impl Cluster {
    /// The table of this name; creates it if there is none, partitioned by a hash over all shards.
    ///
    /// A table that this client does not know is requested, and the calling thread waits for the answer, which takes some
    /// tenths of a second if the table is created; [`open_table`](Cluster::open_table) is the same without holding a thread.
    ///
    /// # Errors
    /// As for [`open_table`](Cluster::open_table); [`Rejected::UnknownTableName`] in a runtime in which no thread can block.
    pub fn table(&self, name: &str) -> Result<TableId> {
        match self.topology().table(name) {
            Some(table) => Ok(table),
            None => self.open_blocking(name),
        }
    }

    /// Opens a table, while the calling thread waits.
    fn open_blocking(&self, name: &str) -> Result<TableId> {
        if self.inner.addresses.is_empty() {
            return Err(Rejected::UnknownTableName { name: name.into() }.into());
        }
        let (client, thread) = self.blocking()?;
        let table = thread.block_on(client.open_table(name))?;
        self.inner.client_shared.view.update(client.inner.client_shared.view.directory());
        Ok(table)
    }

    /// The table of this name; creates it if there is none, partitioned by a hash over all shards.
    ///
    /// # Errors
    /// As for [`create_table`](Cluster::create_table), but for [`Rejected::TableExists`].
    pub async fn open_table(&self, name: &str) -> Result<TableId> {
        if let Some(table) = self.topology().table(name) {
            return Ok(table);
        }
        match self.create_table(name, DEFAULT_PARTITIONING).await {
            Err(Error::Rejected(Rejected::TableExists { .. })) => {
                self.inner.fetch_table(name, self.deadline).await
            }
            result => result,
        }
    }

    /// Creates a table. All nodes that live serve it when this returns. Where it exists and is divided like that,
    /// this is the table that exists.
    ///
    /// ```no_run
    /// # use shoal_client::{Cluster, Error, Partitioning};
    /// # async fn example(db: Cluster) -> Result<(), Error> {
    /// // The orders of a customer, whose number takes eight bytes, live on one shard.
    /// let orders = db.create_table("orders", Partitioning::Hash { prefix_bytes: 8 }).await?;
    /// # let _ = orders;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Rejected::TableExists`] where it is partitioned otherwise; [`Rejected::TableName`], [`Rejected::TableReserved`],
    /// [`Rejected::TablePartitioning`], [`Rejected::TooManyTables`], [`Rejected::TooManyTableIds`];
    /// [`Rejected::TablesFixed`] in a cluster without managers. [`Unknown::Table`](shoal_types::Unknown::Table) where the
    /// deadline passed: ask again, which creates no second one.
    pub async fn create_table(
        &self,
        name: &str,
        definition: impl Into<TableDefinition>,
    ) -> Result<TableId> {
        let change = TableChange::Create { name: name.to_owned(), definition: definition.into() };
        self.inner.change_table_and_wait(change, self.deadline).await
    }

    /// Drops the table of this name, with all its rows, and returns the id that it had. No node serves it any more then: all
    /// that uses the id fails with [`Rejected::TableDropped`]. A table that is created later under the name is another one.
    ///
    /// # Errors
    /// [`Rejected::UnknownTableName`], [`Rejected::TableReserved`], [`Rejected::TableMoving`], [`Rejected::TableFamily`],
    /// [`Rejected::TablesFixed`]; [`Unknown::Table`](shoal_types::Unknown::Table) where the deadline passed.
    pub async fn drop_table(&self, name: &str) -> Result<TableId> {
        let table = self.inner.fetch_table(name, self.deadline).await?;
        let change = TableChange::Drop { table };
        self.inner.change_table_and_wait(change, self.deadline).await
    }
}

impl ClusterInner {
    async fn change_table_and_wait(
        self: &Arc<Self>,
        change: TableChange,
        deadline: Duration,
    ) -> Result<TableId> {
        let attempts = Attempts::new(self, deadline)?;
        let CallSpan { until, .. } = attempts.span();
        let table = self.change_table(change.clone(), attempts.span()).await?;
        let is_in = || change.is_contained_in(table, self.client_shared.view.topology().tables());
        while !is_in() && self.world().now() < until {
            self.refresh(until).await;
        }
        Ok(table)
    }

    /// The table of this name, in the newest directory of a node.
    ///
    /// # Errors
    /// [`Rejected::UnknownTableName`].
    async fn fetch_table(self: &Arc<Self>, name: &str, deadline: Duration) -> Result<TableId> {
        self.refresh(self.after(deadline)).await;
        let topology = self.client_shared.view.topology();
        Ok(topology.table(name).ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    /// Requests the directory if `error` shows that this client's view has a dropped table or lacks an existing one.
    pub(super) fn refresh_if_outdated(self: &Arc<Self>, error: &Error) {
        if let Error::Rejected(Rejected::TableDropped { table } | Rejected::UnknownTable { table }) =
            error
            && self.client_shared.view.topology().tables().standing(*table)
                != TableStanding::Dropped
        {
            self.refresh_in_background();
        }
    }
}
