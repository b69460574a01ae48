//! Which cluster this client belongs to, and which nodes were met as members of another.
//!
//! A cluster has an identity, drawn when it is founded. The client takes that of the cluster it connects to, says it in
//! every handshake, and talks with no node of another one: what it knows, and the ids of its requests, mean nothing there.
//! One such node may be a stray. Once most nodes are of another cluster, that one was founded in the place of ours, and
//! what is asked for ends with an error that says so.

use super::lock;
use shoal_net::SharedClusterId;
use shoal_types::{ClusterId, NodeId, Rejected};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The identity of the cluster that this client reached first.
#[derive(Debug, Default)]
pub(super) struct ClusterIdentity {
    own: SharedClusterId,
    /// Nodes that were of another cluster when they were reached last.
    elsewhere: Mutex<BTreeMap<NodeId, ClusterId>>,
}

impl ClusterIdentity {
    /// Of a client that belongs to this cluster, if it knows one.
    pub(super) fn of(cluster: Option<ClusterId>) -> ClusterIdentity {
        ClusterIdentity { own: SharedClusterId::of(cluster), elsewhere: Mutex::default() }
    }

    /// The cluster, as soon as it is known.
    pub(super) fn own(&self) -> Option<ClusterId> {
        self.own.get()
    }

    /// A node has told to which cluster it belongs, if it knows. Says whether it may be talked to.
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
