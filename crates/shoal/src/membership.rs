//! The nodes of a cluster, as an operator adds and removes them.

use crate::ask;
use crate::operator::{ChangeError, Operator, Stage, find, refused, unexpected};
use serde::Serialize;
use shoal_cluster::topology::Topology;
use shoal_net::client::Access;
use shoal_server::{FromOperator, OperatorRefusal, RecoveryStage, ToOperator};

/// Adds a node to a cluster.
#[derive(Debug)]
pub struct NodeAddition {
    /// The access to the managers of the cluster.
    pub operator: Operator,
    /// The name of the node.
    pub name: String,
    /// The datacenter; the only one, where there is none.
    pub datacenter: Option<String>,
    /// The address at which it will listen.
    pub address: String,
    /// Drawn by the operator.
    pub number: u64,
}

/// Removes a node from a cluster.
#[derive(Debug)]
pub struct NodeRemoval {
    /// The access to the managers of the cluster.
    pub operator: Operator,
    /// The name of the node.
    pub name: String,
    /// Drawn by the operator.
    pub number: u64,
}

/// A node that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddedNode {
    /// The name of the node.
    pub name: String,
    /// The number that the managers have given to it.
    pub number: u32,
}

impl NodeAddition {
    /// Adds the node, and reports the progress until all nodes that live know of it.
    ///
    /// # Errors
    /// Why it is not added, or not for certain. Repeated, it goes on where it stopped.
    pub async fn run(&self, say: impl FnMut(&str)) -> Result<AddedNode, ChangeError> {
        let topology = self.operator.topology().await?;
        let request = FromOperator::AddNode {
            name: self.name.clone(),
            datacenter: self.datacenter(&topology)?,
            address: self.address.clone(),
            number: self.number,
        };
        match self.operator.settle(&topology, &request, say, stage_of(&topology)).await? {
            ToOperator::NodeAdded { node, .. } => {
                Ok(AddedNode { name: self.name.clone(), number: node.0 })
            }
            _ => Err(unexpected()),
        }
    }

    fn datacenter(&self, topology: &Topology) -> Result<String, ChangeError> {
        match (&self.datacenter, topology.datacenters()) {
            (Some(name), _) => Ok(name.clone()),
            (None, [only]) => Ok(only.name.clone()),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|it| &*it.name).collect();
                let names = names.join(", ");
                Err(ChangeError::Cannot(format!(
                    "the cluster has several datacenters: name that of {}, by `--datacenter`; they are {names}",
                    self.name
                )))
            }
        }
    }
}

impl AddedNode {
    /// What to do with it, in words.
    pub fn text(&self) -> String {
        let AddedNode { name, number } = self;
        format!(
            "{name} is N{number}, and holds no replica. Write its topology file (`shoal nodes topology`), start it, and give it \
             replicas: `shoal nodes replace OLD {name}`.\n"
        )
    }
}

impl NodeRemoval {
    /// Removes the node, and reports the progress until all nodes that live know of it.
    ///
    /// # Errors
    /// Why it is not removed, or not for certain. Repeated, it goes on where it stopped.
    pub async fn run(&self, say: impl FnMut(&str)) -> Result<(), ChangeError> {
        let topology = self.operator.topology().await?;
        let was_removed =
            topology.nodes().iter().any(|node| node.removed && node.name == self.name);
        if was_removed {
            return Ok(());
        }
        let node = find(&topology, &self.name)?;
        let request = FromOperator::RemoveNode { node, number: self.number };
        match self.operator.settle(&topology, &request, say, stage_of(&topology)).await? {
            ToOperator::NodeRemoved { .. } => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// The topology file of a node that begins when these are the nodes of its cluster. It has no tables: the managers know them.
///
/// # Errors
/// If no node answers.
pub async fn topology_file(addresses: &[String], access: &Access) -> Result<String, ChangeError> {
    let topology = ask::topology(addresses, access).await.map_err(ChangeError::NoCluster)?;
    let none: [(&str, shoal_cluster::topology::TableDefinition); 0] = [];
    let without_tables = topology.with_tables(none).expect("no table is invalid");
    Ok(without_tables.to_toml())
}

fn stage_of(topology: &Topology) -> impl Fn(ToOperator) -> Result<Stage, ChangeError> + '_ {
    |reply| {
        Ok(Stage::GoesOn(match reply {
            ToOperator::NodeAdded { is_known: false, .. }
            | ToOperator::NodeRemoved { is_known: false } => {
                "it is in the managers' log, and nodes learn of it".to_owned()
            }
            ToOperator::UnderWay(RecoveryStage::Living) => {
                "its process is alive: stop it; the node is dead when its lease has run out"
                    .to_owned()
            }
            ToOperator::UnderWay(_) => "the managers write the change into their log".to_owned(),
            ToOperator::Refused(OperatorRefusal::HostsManager(_)) => {
                return Err(ChangeError::Cannot(
                    "it hosts a manager; drain it first, or have another node host that, by `shoal managers replace`"
                        .to_owned(),
                ));
            }
            ToOperator::Refused(why) => return Err(refused(topology, &why)),
            reply => return Ok(Stage::Over(reply)),
        }))
    }
}
