//! How a cluster is founded: once, when all managers that its nodes' files name have empty logs.
//!
//! The first of them asks all others, repeatedly, until each has replied in one round that its volume is new; then it
//! writes the list of managers into its log, and the log brings it to the others. A majority is not enough: its members
//! might have lost what the others still have.
//!
//! Not detected is only a cluster whose managers are none of the named ones any more, while no node of it can be
//! reached: all its managers were replaced, the former ones were emptied, and their files never changed.

use super::rpc::Rpc;
use super::shared_status::SharedStatus;
use crate::envelope::{Envelope, RpcReply};
use shoal_raft::LogMember;
use shoal_types::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What the bootstrap needs.
pub(super) struct Bootstrap {
    pub(super) log: shoal_raft::RaftHandle,
    pub(super) rpc: Rpc,
    pub(super) shared_status: Arc<SharedStatus>,
    /// All nodes but this one.
    pub(super) others: Vec<NodeId>,
    /// Longest wait for a reply.
    pub(super) patience: Duration,
}

/// Why the cluster is not founded now.
enum NotBootstrapped {
    /// Some node does not answer.
    Yet,
    /// There is a cluster already.
    Ever,
}

impl Bootstrap {
    /// Founds a cluster, if there is none: when all named managers are up.
    pub(super) async fn found(self) {
        let node = self.log.me().node;
        loop {
            match self.gather().await {
                Ok(bootstrap_nodes) => {
                    if let Err(error) = self.log.initialise(&bootstrap_nodes).await {
                        tracing::error!(%node, %error, "the managers' log cannot be initialised");
                    }
                    return;
                }
                Err(NotBootstrapped::Yet) => tokio::time::sleep(self.patience).await,
                Err(NotBootstrapped::Ever) => return,
            }
        }
    }

    /// All named managers, each with its new volume.
    async fn gather(&self) -> Result<BTreeSet<LogMember>, NotBootstrapped> {
        let me = self.log.me();
        // A node that has a log does not found a cluster, nor ask others to host managers for one.
        if !self.is_new().await {
            return Err(NotBootstrapped::Ever);
        }
        // A node that knows of a cluster answers with its list of managers.
        for other in &self.others {
            self.rpc.send(*other, &Envelope::Members(self.shared_status.known()));
        }
        let mut bootstrap_nodes = BTreeSet::from([me]);
        for node in self.shared_status.named.iter().copied().filter(|node| *node != me.node) {
            match self.rpc.host(node, false, self.patience).await {
                Some(RpcReply::Hosts(hosting)) if hosting.is_new => {
                    bootstrap_nodes.insert(LogMember { node, volume: hosting.volume });
                }
                Some(RpcReply::Hosts(_)) => {
                    tracing::warn!(
                        node = %me.node, other = %node,
                        "another manager has a log and this one has none: if this one was lost, replace it by itself"
                    );
                    return Err(NotBootstrapped::Ever);
                }
                Some(RpcReply::CannotHost(why)) => {
                    tracing::warn!(node = %me.node, other = %node, why, "a node cannot host a manager");
                    return Err(NotBootstrapped::Yet);
                }
                Some(RpcReply::Log(_) | RpcReply::InMemory) | None => {
                    return Err(NotBootstrapped::Yet);
                }
            }
        }
        if self.is_new().await { Ok(bootstrap_nodes) } else { Err(NotBootstrapped::Ever) }
    }

    /// Whether the log here is empty and no cluster is known.
    async fn is_new(&self) -> bool {
        self.log.is_new().await == Ok(true) && self.shared_status.version() == 0
    }
}
