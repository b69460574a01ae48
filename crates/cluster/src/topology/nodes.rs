//! Nodes that are added to a topology and removed from it, while its cluster runs.

use super::cluster::{Node, Topology};
use super::draft::{NodeDraft, unplaced};
use super::error::TopologyError;
use super::validate;
use shoal_types::NodeId;

impl Topology {
    /// The same cluster with one more node, which holds no replica and has the next number.
    ///
    /// # Errors
    /// Where the node could not stand in a topology's text: its name or its address belongs to another node, or there is no
    /// such datacenter.
    pub fn with_added_node(
        self,
        name: &str,
        datacenter: &str,
        address: Option<&str>,
    ) -> Result<Topology, TopologyError> {
        let draft = |node: &Node| NodeDraft {
            name: unplaced(node.name.clone()),
            datacenter: unplaced(self.datacenters()[node.datacenter.0 as usize].name.clone()),
            address: node.address.clone().map(unplaced),
            removed: node.removed,
        };
        let mut nodes: Vec<NodeDraft> = self.nodes().iter().map(draft).collect();
        nodes.push(NodeDraft {
            name: unplaced(name.to_owned()),
            datacenter: unplaced(datacenter.to_owned()),
            address: address.map(|address| unplaced(address.to_owned())),
            removed: false,
        });
        let added = validate::added_node(nodes, self.datacenters());
        Ok(self.set_node(added.map_err(TopologyError::nowhere)?))
    }

    /// The same cluster, from which a node is removed: its number and its name stay taken, its address is free.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn without_node(self, node: NodeId) -> Topology {
        let removed = self.node(node).unwrap_or_else(|| panic!("there is no node {node}")).clone();
        self.set_node(Node { address: None, removed: true, ..removed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown() -> Topology {
        let topology = Topology::symmetric(2, 1, 1, 0, 1);
        topology.with_added_node("more", "dc1", Some("10.0.0.9:7000")).expect("another one")
    }

    #[test]
    fn an_added_node_has_the_next_number_and_no_replica() {
        let topology = grown();
        let added = topology.node(NodeId(1)).expect("it is there");
        assert_eq!((&*added.name, added.datacenter.0, added.removed), ("more", 1, false));
        assert_eq!(topology.shards_of(NodeId(1)).len(), 0);
        let again = Topology::parse(&topology.to_toml()).expect("it is valid");
        assert_eq!(again, topology);
    }

    #[test]
    fn a_removed_node_keeps_its_number_and_its_name_and_leaves_its_address() {
        let topology = grown().without_node(NodeId(1));
        let added = |name, address| {
            let grown = topology.clone().with_added_node(name, "dc0", Some(address));
            grown.map(|grown| grown.nodes().len()).map_err(|error| error.what)
        };
        assert_eq!(added("other", "10.0.0.9:7000"), Ok(3));
        let taken = r#"another node is named "more" already; rename one of them"#;
        assert_eq!(added("more", "10.0.0.8:7000"), Err(taken.to_owned()));
        assert_eq!(topology.members().count(), 1);
        assert_eq!(Topology::parse(&topology.to_toml()), Ok(topology));
    }

    #[test]
    fn a_node_that_could_not_stand_in_a_file_is_refused() {
        let refused = |name: &str, datacenter: &str, address: &str| {
            let grown = grown().with_added_node(name, datacenter, Some(address));
            grown.expect_err("it cannot be added").what
        };
        assert!(refused("", "dc0", "a:1").contains("needs a name"));
        assert!(refused("x", "nowhere", "a:1").contains("there is no datacenter"));
        assert!(refused("x", "dc0", "10.0.0.9:7000").contains("has this address already"));
    }
}
