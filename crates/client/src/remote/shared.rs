//! What the clones of a cluster, its transactions and its connections share.

use super::answers::PendingAnswers;
use super::cluster_identity::ClusterIdentity;
use super::connection_pool::ConnectionPool;
use super::directory::DirectoryView;
use super::environment::{ClientEnvironment, after};
use super::lock;
use super::options::ClusterOptions;
use super::request_ids::RequestIds;
use bytes::Bytes;
use shoal_engine::client::Directory;
use shoal_types::{CallSession, Cause, NodeId, Random, Rejected, RequestId, Result, Time, backoff};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What connections need of the client; it does not keep them.
#[derive(Debug)]
pub(super) struct ClientShared {
    pub(super) world: Arc<dyn ClientEnvironment>,
    pub(super) view: DirectoryView,
    pub(super) founding: ClusterIdentity,
    pub(super) answers: PendingAnswers<RequestId, Result<Bytes>>,
    /// By the tokens of those who ask for sessions for calls.
    pub(super) opened: PendingAnswers<u64, Result<CallSession>>,
    /// Frames that made no sense.
    malformed: AtomicU64,
}

/// What the clones of a connected database share.
#[derive(Debug)]
pub(super) struct ClusterInner {
    pub(super) options: ClusterOptions,
    pub(super) client_shared: Arc<ClientShared>,
    pub(super) lines: ConnectionPool,
    pub(super) numbers: RequestIds,
    /// Where we first asked.
    pub(super) addresses: Vec<Arc<str>>,
    /// Held by the task that asks for the directory.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    pub(super) random: Mutex<Random>,
    under_way: AtomicUsize,
}

/// Room for one transaction or call.
#[derive(Debug)]
pub(super) struct TransactionPermit(Arc<ClusterInner>);

impl ClientShared {
    pub(super) fn new(
        world: Arc<dyn ClientEnvironment>,
        first: Directory,
        founding: ClusterIdentity,
    ) -> ClientShared {
        ClientShared {
            view: DirectoryView::new(first, Arc::clone(&world)),
            world,
            founding,
            answers: PendingAnswers::default(),
            opened: PendingAnswers::default(),
            malformed: AtomicU64::new(0),
        }
    }

    /// A node tells where everything is. Says whether it is of our cluster: others are not believed.
    pub(super) fn hear_directory(&self, node: NodeId, told: Directory) -> bool {
        let cluster = told.configuration.as_ref().and_then(|configured| configured.cluster);
        let is_ours = self.founding.meet(node, cluster);
        if is_ours {
            self.view.update(told);
        }
        is_ours
    }

    /// The error of every request, if another cluster was founded in the place of ours.
    pub(super) fn founded_again(&self) -> Option<Rejected> {
        self.founding.founded_again(self.view.topology().nodes().len())
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections were ended since a frame made no sense.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }
}

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
            under_way: AtomicUsize::new(0),
        }
    }

    /// The environment: clock, connections and tasks.
    pub(super) fn world(&self) -> &dyn ClientEnvironment {
        &*self.client_shared.world
    }

    /// When so long will have passed from now.
    pub(super) fn after(&self, span: Duration) -> Time {
        after(self.world(), span)
    }

    /// Room for one more.
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

    /// Pauses for as long as `longest` at most, by chance; not beyond `until`.
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
