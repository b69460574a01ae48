//! What the connections of a client share with each other, and with its transactions.

use super::answers::PendingAnswers;
use super::cluster_identity::ClusterIdentity;
use super::directory::DirectoryView;
use super::environment::ClientEnvironment;
use bytes::Bytes;
use shoal_engine::client::Directory;
use shoal_types::{CallSession, NodeId, Rejected, RequestId, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
