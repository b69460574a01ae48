//! How a cluster begins: once, when all managers that its nodes' files name have nothing.
//!
//! The first of them asks all others, again and again until each has answered in one go that its volume is new;
//! then it writes who they are into its log, and the log tells the others. A majority is not enough: those of
//! it might have lost what the rest still has.
//!
//! Not seen is only a cluster that lives on with none of the named managers, where no node that knows it can be
//! reached: its managers were replaced, all of them, and these have been emptied, and their files never changed.

use super::rpc::Rpc;
use super::shared_status::SharedStatus;
use crate::envelope::{Envelope, RpcReply};
use shoal_raft::LogMember;
use shoal_types::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What founding needs.
pub(super) struct Bootstrap {
    pub(super) log: shoal_raft::RaftHandle,
    pub(super) rpc: Rpc,
    pub(super) shared_status: Arc<SharedStatus>,
    /// All nodes but this one.
    pub(super) others: Vec<NodeId>,
    /// So long an answer may take.
    pub(super) patience: Duration,
}

/// Why it is not begun now.
enum NotBootstrapped {
    /// Some node does not answer.
    Yet,
    /// There is a cluster.
    Ever,
}

impl Bootstrap {
    /// Begins a cluster, if there is none: when all named managers are there.
    pub(super) async fn found(self) {
        let node = self.log.me().node;
        loop {
            match self.gather().await {
                Ok(bootstrap_nodes) => {
                    if let Err(error) = self.log.initialise(&bootstrap_nodes).await {
                        tracing::error!(%node, %error, "the managers do not begin");
                    }
                    return;
                }
                Err(NotBootstrapped::Yet) => tokio::time::sleep(self.patience).await,
                Err(NotBootstrapped::Ever) => return,
            }
        }
    }

    /// All named managers, each with a new volume.
    async fn gather(&self) -> Result<BTreeSet<LogMember>, NotBootstrapped> {
        let me = self.log.me();
        // Who has a log founds nothing, and has no other node make one for it.
        if !self.is_new().await {
            return Err(NotBootstrapped::Ever);
        }
        // A node that knows of a cluster says so.
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
                        "another manager has a log and this one has none: if it was lost, replace it by itself"
                    );
                    return Err(NotBootstrapped::Ever);
                }
                Some(RpcReply::CannotHost(why)) => {
                    tracing::warn!(node = %me.node, other = %node, why, "a manager does not begin");
                    return Err(NotBootstrapped::Yet);
                }
                Some(RpcReply::Log(_) | RpcReply::InMemory) | None => {
                    return Err(NotBootstrapped::Yet);
                }
            }
        }
        if self.is_new().await { Ok(bootstrap_nodes) } else { Err(NotBootstrapped::Ever) }
    }

    /// Neither has the log here been told anything, nor is a cluster known.
    async fn is_new(&self) -> bool {
        self.log.is_new().await == Ok(true) && self.shared_status.version() == 0
    }
}
