//! The identity of the client's cluster, and the nodes that belong to another one.
//!
//! A cluster has an identity, drawn when it is founded. The client adopts that of the cluster it connects to, sends it
//! in every handshake, and exchanges no messages with nodes of another cluster, for which its directory and its request
//! ids mean nothing. A single such node may be misconfigured. Once most nodes are of another cluster, the cluster was
//! founded again, and requests end with an error that says so.

use super::lock;
use shoal_net::SharedClusterId;
use shoal_types::{ClusterId, NodeId, Rejected};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The identity of the cluster that this client reached first.
#[derive(Debug, Default)]
pub(super) struct ClusterIdentity {
    own: SharedClusterId,
    /// Nodes that belonged to another cluster when they were reached last.
    elsewhere: Mutex<BTreeMap<NodeId, ClusterId>>,
}

impl ClusterIdentity {
    /// The identity of a client's cluster, if it knows one.
    pub(super) fn of(cluster: Option<ClusterId>) -> ClusterIdentity {
        ClusterIdentity { own: SharedClusterId::of(cluster), elsewhere: Mutex::default() }
    }

    /// The cluster, as soon as it is known.
    pub(super) fn own(&self) -> Option<ClusterId> {
        self.own.get()
    }

    /// A node has sent the identity of its cluster, if it knows it. Returns whether the client may exchange
    /// messages with it.
    pub(super) fn meet(&self, node: NodeId, cluster: Option<ClusterId>) -> bool {
        let mut elsewhere = lock(&self.elsewhere);
        match cluster {
            Some(other) if !self.own.learn(other) => {
                elsewhere.insert(node, other);
                false
            }
            Some(_) | None => {
                elsewhere.remove(&node);
                true
            }
        }
    }

    /// The error of every request, if most of so many nodes are of another cluster.
    pub(super) fn founded_again(&self, nodes: usize) -> Option<Rejected> {
        let elsewhere = lock(&self.elsewhere);
        let found = *elsewhere.values().next().filter(|_| 2 * elsewhere.len() > nodes)?;
        Some(Rejected::FoundedAgain { known: self.own()?, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_is_left_alone_and_most_nodes_are_believed() {
        let cluster = |number| ClusterId::new(number).expect("not 0");
        let (known, found) = (cluster(1), cluster(2));
        let founding = ClusterIdentity::default();
        assert!(founding.meet(NodeId(0), None) && founding.own().is_none());
        assert!(founding.meet(NodeId(0), Some(known)));
        assert_eq!(founding.own(), Some(known));
        assert!(!founding.meet(NodeId(1), Some(found)));
        assert_eq!(founding.founded_again(3), None);
        assert!(!founding.meet(NodeId(2), Some(found)));
        assert_eq!(founding.founded_again(3), Some(Rejected::FoundedAgain { known, found }));
        assert!(founding.meet(NodeId(1), Some(known)), "it was a mistake");
        assert_eq!(founding.founded_again(3), None);
    }
}
