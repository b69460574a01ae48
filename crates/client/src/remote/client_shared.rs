//! What the connections of a client share with each other, and with its transactions.

use super::answers::PendingAnswers;
use super::cluster_identity::ClusterIdentity;
use super::directory::DirectoryView;
use super::environment::ClientEnvironment;
use bytes::Bytes;
use shoal_cluster::manager::Ask;
use shoal_engine::client::Directory;
use shoal_types::{CallSession, NodeId, Rejected, RequestId, Result, TableId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What connections need of the client; it does not own them.
#[derive(Debug)]
pub(super) struct ClientShared {
    pub(super) world: Arc<dyn ClientEnvironment>,
    pub(super) view: DirectoryView,
    pub(super) founding: ClusterIdentity,
    pub(super) answers: PendingAnswers<RequestId, Result<Bytes>>,
    /// Requests for call sessions, by their tokens.
    pub(super) opened: PendingAnswers<u64, Result<CallSession>>,
    /// By the numbers of requests for changes of tables.
    pub(super) tables: PendingAnswers<Ask, Result<TableId>>,
    /// Malformed frames.
    malformed: AtomicU64,
}

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
            tables: PendingAnswers::default(),
            malformed: AtomicU64::new(0),
        }
    }

    /// Takes a directory that a node has sent. Returns whether the node is of this client's cluster:
    /// directories of others are ignored.
    pub(super) fn on_directory(&self, node: NodeId, directory: Directory) -> bool {
        let cluster = directory.configuration.as_ref().and_then(|configured| configured.cluster);
        let is_ours = self.founding.meet(node, cluster);
        if is_ours {
            self.view.update(directory);
        }
        is_ours
    }

    /// The error of every request, if the cluster was founded again.
    pub(super) fn founded_again(&self) -> Option<Rejected> {
        self.founding.founded_again(self.view.topology().nodes().len())
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of connections that were closed because of a malformed frame.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }
}
