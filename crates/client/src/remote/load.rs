//! Loading many rows into a cluster.
//!
//! ```text
//!   rows ──┬─► batch of shard 0 ──► transactions in flight, a message or few each
//!          └─► batch of shard 1 ──►       "
//! ```
//! Rows are collected by the shard that they live on, so that no transaction crosses shards. A batch that is full becomes a
//! transaction, of which several are in flight on each shard: while one waits until it is durable, others are executed. Rows
//! are taken from the caller as batches have room, and never faster than the cluster makes them durable.

use super::cluster::Cluster;
use super::transaction::ClusterTransaction;
use shoal_types::bulk_load::{LoadBatch, LoadRow};
use shoal_types::{Rejected, Result, ShardId};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Transactions in flight on one shard. More hide longer round trips; all of their rows may wait at the shard's leader.
const IN_FLIGHT_MAX: usize = 4;

/// The shard of a row; `None` of a table that every shard has a copy of.
type Home = Option<ShardId>;

/// A load in progress.
struct BulkLoad<'l, L: ?Sized> {
    cluster: &'l Cluster,
    /// The batches that are not full, by shard.
    filling: BTreeMap<Home, LoadBatch>,
    in_flight: Vec<InFlight>,
    loaded: &'l mut L,
    /// The first error, after which no transaction begins.
    failed: Result<()>,
}

/// A transaction that writes a batch.
struct InFlight {
    home: Home,
    rows: u64,
    transaction: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
}

impl Cluster {
    /// Writes rows, many in a transaction and several transactions at once. Each that becomes durable is reported to
    /// `loaded`, with its number of rows; see [`Db::load`](crate::Db::load).
    ///
    /// # Errors
    /// See [`Db::load`](crate::Db::load).
    pub async fn load<L: FnMut(u64) + ?Sized>(
        &self,
        rows: impl IntoIterator<Item = LoadRow>,
        loaded: &mut L,
    ) -> Result<()> {
        let (filling, in_flight) = (BTreeMap::new(), Vec::new());
        let mut load = BulkLoad { cluster: self, filling, in_flight, loaded, failed: Ok(()) };
        for row in rows {
            if let Err(error) = load.add(row).await {
                load.fail(error);
            }
            if load.failed.is_err() {
                break;
            }
        }
        load.end().await
    }
}

impl<L: FnMut(u64) + ?Sized> BulkLoad<'_, L> {
    async fn add(&mut self, row: LoadRow) -> Result<()> {
        let view = &self.cluster.inner.client_shared.view;
        let unknown = Rejected::UnknownTable { table: row.table };
        let home = view.home(row.table, &row.key).ok_or(unknown)?;
        if let Some(full) = self.filling.entry(home).or_default().add(row) {
            while self.in_flight.iter().filter(|it| it.home == home).count() >= IN_FLIGHT_MAX {
                self.wait_for_one().await;
            }
            self.begin(home, full);
            // Sends it.
            poll_fn(|context| {
                self.poll(context);
                Poll::Ready(())
            })
            .await;
        }
        Ok(())
    }

    fn begin(&mut self, home: Home, batch: LoadBatch) {
        if self.failed.is_err() {
            return;
        }
        let (cluster, rows) = (self.cluster.clone(), batch.rows().len() as u64);
        let transaction = Box::pin(async move {
            let write = async move |tx: &mut ClusterTransaction| {
                batch.rows().iter().try_for_each(|row| tx.put_row(row))
            };
            cluster.transact(write).await
        });
        self.in_flight.push(InFlight { home, rows, transaction });
    }

    /// Begins what is left, and waits for the end of all that is in flight.
    async fn end(mut self) -> Result<()> {
        for (home, batch) in std::mem::take(&mut self.filling) {
            if !batch.rows().is_empty() {
                self.begin(home, batch);
            }
        }
        while !self.in_flight.is_empty() {
            self.wait_for_one().await;
        }
        self.failed
    }

    async fn wait_for_one(&mut self) {
        poll_fn(|context| match self.poll(context) {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Polls all transactions in flight, and returns how many have ended.
    fn poll(&mut self, context: &mut Context<'_>) -> usize {
        let before = self.in_flight.len();
        let mut failed = Ok(());
        let loaded = &mut *self.loaded;
        self.in_flight.retain_mut(|it| match it.transaction.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => {
                loaded(it.rows);
                false
            }
            Poll::Ready(Err(error)) => {
                failed = Err(error);
                false
            }
        });
        if let Err(error) = failed {
            self.fail(error);
        }
        before - self.in_flight.len()
    }

    fn fail(&mut self, error: shoal_types::Error) {
        if self.failed.is_ok() {
            self.failed = Err(error);
        }
    }
}
