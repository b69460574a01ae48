//! What the clones of a cluster and its transactions share.

use super::client_shared::ClientShared;
use super::client_thread::ClientThread;
use super::connection_pool::ConnectionPool;
use super::environment::{ClientEnvironment, after};
use super::lock;
use super::options::ClusterOptions;
use super::request_ids::RequestIds;
use shoal_types::{Cause, Random, Rejected, Result, Time, backoff};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the clones of a connected database share.
#[derive(Debug)]
pub(super) struct ClusterInner {
    pub(super) options: ClusterOptions,
    pub(super) client_shared: Arc<ClientShared>,
    pub(super) lines: ConnectionPool,
    pub(super) numbers: RequestIds,
    /// The addresses that were given to connect.
    pub(super) addresses: Vec<Arc<str>>,
    /// Held by the task that requests the directory.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    pub(super) random: Mutex<Random>,
    /// A client of the same cluster with a thread of its own, once a caller has to wait on its thread.
    pub(super) beside: Mutex<Option<(Arc<ClusterInner>, Arc<ClientThread>)>>,
    under_way: AtomicUsize,
}

/// A permit for one transaction or call.
#[derive(Debug)]
pub(super) struct TransactionPermit(Arc<ClusterInner>);

impl ClusterInner {
    pub(super) fn new(
        options: ClusterOptions,
        addresses: Vec<Arc<str>>,
        client_shared: Arc<ClientShared>,
        random: Random,
    ) -> ClusterInner {
        ClusterInner {
            options,
            client_shared,
            lines: ConnectionPool::default(),
            numbers: RequestIds::default(),
            addresses,
            refreshing: tokio::sync::Mutex::default(),
            random: Mutex::new(random),
            beside: Mutex::default(),
            under_way: AtomicUsize::new(0),
        }
    }

    /// The environment: clock, connections and tasks.
    pub(super) fn world(&self) -> &dyn ClientEnvironment {
        &*self.client_shared.world
    }

    /// The time after `span`.
    pub(super) fn after(&self, span: Duration) -> Time {
        after(self.world(), span)
    }

    /// A permit for one more.
    ///
    /// # Errors
    /// [`Rejected::TooManyTransactions`].
    pub(super) fn enter(self: &Arc<Self>) -> Result<TransactionPermit> {
        let max = self.options.transactions_max;
        let room = |under_way| (under_way < max).then_some(under_way + 1);
        let entered = self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        entered.map_err(|_| Rejected::TooManyTransactions { max })?;
        Ok(TransactionPermit(Arc::clone(self)))
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: usize) -> usize {
        lock(&self.random).below(bound as u64) as usize
    }

    /// Pauses for a random time up to `longest`, but not beyond `until`.
    pub(super) async fn pause(&self, longest: Duration, until: Time) {
        let pause = backoff::below(longest, &mut lock(&self.random));
        self.world().sleep_until(until.min(self.after(pause))).await;
    }
}

impl TransactionPermit {
    pub(super) fn inner(&self) -> &Arc<ClusterInner> {
        &self.0
    }
}

impl Drop for TransactionPermit {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ClusterInner {
    fn drop(&mut self) {
        self.lines.end(Cause::Disconnected);
    }
}
