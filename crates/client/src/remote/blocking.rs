//! Callers that wait on their own threads.
//!
//! ```text
//!   caller's thread                        thread `shoal-client`
//!   block_on(operation) ── frames ───────► runtime: connections, timers
//!        parked ◄───────── wakes ────────────┘
//! ```
//! Connections live on a runtime, which some thread has to drive. A client that was connected on the caller's runtime cannot
//! wait for an answer on a thread of that runtime, which may be the only one. So what blocks goes through a client with a
//! thread, a runtime and connections of its own, made when it is first needed.

use super::client_thread::ClientThread;
use super::cluster::Cluster;
use super::error::ConnectError;
use super::lock;
use super::options::ClusterOptions;
use super::shared::ClusterInner;
use super::transaction::ClusterTransaction;
use shoal_types::{Aborted, Awaited, Cause, Error, Result, Rows, Scan, TableId, Wait};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Connects a client with a thread of its own. The calling thread waits for that.
pub(crate) fn connect(
    addresses: Vec<Arc<str>>,
    options: ClusterOptions,
) -> Result<Cluster, ConnectError> {
    let (client, thread) = connect_with_thread(addresses, options)?;
    Ok(Cluster { thread: Some(thread), ..client })
}

fn connect_with_thread(
    addresses: Vec<Arc<str>>,
    options: ClusterOptions,
) -> Result<(Cluster, Arc<ClientThread>), ConnectError> {
    let (tell, told) = mpsc::channel();
    let (alive, gone) = oneshot::channel::<()>();
    let no_thread = |error: std::io::Error| ConnectError::Thread { error: error.to_string() };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let handle = runtime.handle().clone();
    let drive = move || {
        runtime.block_on(async {
            let connected = Cluster::connect_with(&addresses, options).await;
            // The other end waits for it.
            let _ = tell.send(connected);
            // Nothing is ever sent: it ends when the client is dropped.
            let _ = gone.await;
        });
    };
    thread::Builder::new().name("shoal-client".to_owned()).spawn(drive).map_err(no_thread)?;
    let connected = told.recv().expect("the thread sends what came of it");
    Ok((connected?, Arc::new(ClientThread::new(handle, alive))))
}

impl Cluster {
    /// A client of the same cluster with a thread of its own, and the thread.
    ///
    /// # Errors
    /// [`Aborted::Unanswered`] where no node could be reached.
    pub(crate) fn blocking(&self) -> Result<(Cluster, Arc<ClientThread>)> {
        if let Some(thread) = &self.thread {
            return Ok((self.clone(), Arc::clone(thread)));
        }
        let mut beside = lock(&self.inner.beside);
        let (inner, thread) = match &*beside {
            Some(client) => client,
            None => beside.insert(self.connect_beside()?),
        };
        let (inner, thread) = (Arc::clone(inner), Arc::clone(thread));
        let client = Cluster { inner, deadline: self.deadline, thread: Some(Arc::clone(&thread)) };
        Ok((client, thread))
    }

    fn connect_beside(&self) -> Result<(Arc<ClusterInner>, Arc<ClientThread>)> {
        let view = &self.inner.client_shared.view;
        if self.inner.addresses.is_empty() {
            return Err(unanswered(Duration::ZERO));
        }
        let known = view.nodes().into_iter().filter_map(|node| view.address(node));
        let addresses: Vec<Arc<str>> = known.chain(self.inner.addresses.iter().cloned()).collect();
        let mut options = ClusterOptions { deadline: self.deadline, ..self.inner.options.clone() };
        options.access.identity = self.inner.client_shared.founding.own();
        let connected = connect_with_thread(addresses, options);
        let (client, thread) = connected.map_err(|_| unanswered(self.deadline))?;
        Ok((client.inner, thread))
    }
}

fn unanswered(waited: Duration) -> Error {
    let (node, awaited, cause) = (None, Awaited::Connection, Cause::Unreachable);
    Aborted::Unanswered(Wait { node, awaited, cause, waited }).into()
}

/// A transaction on a cluster whose caller waits on its own thread for each operation.
#[derive(Debug)]
pub(crate) struct WaitingTransaction {
    tx: ClusterTransaction,
    thread: Arc<ClientThread>,
}

impl WaitingTransaction {
    pub(crate) fn new(tx: ClusterTransaction, thread: Arc<ClientThread>) -> WaitingTransaction {
        WaitingTransaction { tx, thread }
    }

    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.thread.block_on(self.tx.get(table, key))
    }

    pub(crate) fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        self.tx.prefetch(keys);
    }

    pub(crate) fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.thread.block_on(self.tx.scan(table, scan))
    }

    pub(crate) fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.put(table, key, value)
    }

    pub(crate) fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.thread.block_on(self.tx.insert(table, key, value))
    }

    pub(crate) fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.tx.delete(table, key)
    }

    pub(crate) fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.thread.block_on(self.tx.add(table, key, delta))
    }

    pub(crate) fn commit(self) -> Result<()> {
        let WaitingTransaction { tx, thread } = self;
        thread.block_on(tx.commit())
    }

    /// `error`, which a body returned, if the body's reads are valid; otherwise the conflict.
    pub(crate) fn confirm_failure(self, error: Error) -> Error {
        self.thread.block_on(self.tx.confirm_failure(error))
    }
}
