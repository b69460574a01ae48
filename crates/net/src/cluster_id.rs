//! Which cluster this node belongs to, shared by its workers and by what learns it.
//!
//! In every handshake both ends send the identity of their cluster, if they know it. Ends with different identities
//! disconnect. A connection whose handshake was made before this node knew its cluster carries nothing after it does:
//! it is closed, and the next handshake sends the identity. So no frame passes between nodes of different clusters, nor
//! between a client of one cluster and a node of another, however old the connection is.

use shoal_types::ClusterId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest name of a cluster, in bytes.
pub const CLUSTER_BYTES_MAX: usize = 64;

/// The identity of this node's cluster, once the node has learned it. Its clones are the same.
#[derive(Debug, Clone, Default)]
pub struct SharedClusterId(Arc<AtomicU64>);

impl SharedClusterId {
    /// The identity of a node whose cluster is `cluster`, if that is known.
    #[must_use]
    pub fn of(cluster: Option<ClusterId>) -> SharedClusterId {
        SharedClusterId(Arc::new(AtomicU64::new(number(cluster))))
    }

    /// The cluster, as soon as it is known.
    #[must_use]
    pub fn get(&self) -> Option<ClusterId> {
        ClusterId::new(self.0.load(Ordering::Acquire))
    }

    /// The node has joined this cluster. Returns false, and changes nothing, if it belongs to another.
    #[must_use]
    pub fn learn(&self, cluster: ClusterId) -> bool {
        let learnt = self.0.compare_exchange(0, cluster.get(), Ordering::AcqRel, Ordering::Acquire);
        learnt.is_ok() || learnt == Err(cluster.get())
    }
}

/// The number that is stored and sent: 0 for none.
pub(crate) fn number(cluster: Option<ClusterId>) -> u64 {
    cluster.map_or(0, ClusterId::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_belongs_to_one_cluster() {
        let cluster = |number| ClusterId::new(number).expect("not 0");
        let identity = SharedClusterId::default();
        assert_eq!(identity.get(), None);
        assert!(identity.clone().learn(cluster(5)));
        assert!(identity.learn(cluster(5)) && !identity.learn(cluster(6)));
        assert_eq!(identity.get(), Some(cluster(5)));
        assert_eq!(SharedClusterId::of(Some(cluster(7))).get(), Some(cluster(7)));
    }
}
