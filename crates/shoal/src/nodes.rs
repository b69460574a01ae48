//! The replicas and the manager of a node, as an operator moves them to other nodes.

use crate::managers::{self, WantedManagers};
use crate::operator::{ChangeError, Operator, Stage, find, name, refused, unexpected};
use crate::report::StatusReport;
use crate::terminal::{listed, table};
use serde::Serialize;
use shoal_cluster::manager::ReplacementStage;
use shoal_cluster::topology::Topology;
use shoal_server::{AddedVoterStatus, FromOperator, NodeStatus, ShardStatus, ToOperator};
use shoal_types::{NodeId, ShardId};

/// Moves replicas of one node to others.
#[derive(Debug)]
pub struct NodeChange {
    /// The access to the managers of the cluster.
    pub operator: Operator,
    /// The node that is to hold nothing any more.
    pub outgoing: String,
    /// The node that takes its replicas; where there is none, the nodes that hold least.
    pub incoming: Option<String>,
    /// The shard whose replica is moved; all, where there is none.
    pub shard: Option<ShardId>,
    /// Drawn by the operator, for the first of the replicas; the next ones have the numbers that follow.
    pub number: u64,
}

/// A replica that has moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MovedReplica {
    shard: String,
    from: String,
    to: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeChangeEnd {
    moved: Vec<MovedReplica>,
    from: String,
    /// The node that hosts a manager in place of this one, if it did.
    manager: Option<String>,
    /// The shards of which the node still holds a replica.
    left: Vec<String>,
}

impl NodeChange {
    /// Moves the node's manager, if it hosts one and the change is not about one shard, and then the replicas, one after the
    /// other. Reports the progress.
    ///
    /// # Errors
    /// Why not all are moved, or not for certain. Repeated, it goes on where it stopped.
    pub async fn run(&self, mut say: impl FnMut(&str)) -> Result<NodeChangeEnd, ChangeError> {
        let topology = self.operator.topology().await?;
        let outgoing = find(&topology, &self.outgoing)?;
        let wanted = self.incoming.as_ref();
        let wanted = wanted.map(|name| find(&topology, name)).transpose()?;
        let mut moved = Vec::new();
        let manager = match self.shard {
            Some(_) => None,
            None => self.move_manager(&topology, outgoing, wanted, &mut say).await?,
        };
        let shards = Placement::of(&self.operator.report().await?).shards_of(outgoing);
        let shards = shards.into_iter().filter(|shard| self.shard.is_none_or(|it| it == *shard));
        for (shard, number) in shards.zip(self.number..) {
            let placement = Placement::of(&self.operator.report().await?);
            let incoming = match wanted {
                Some(incoming) if placement.has_left(shard, incoming) => {
                    let to = name(&topology, incoming);
                    let what =
                        "restart it first, without its logs if it has some, or name another node";
                    let why = format!("{to} held a replica of S{} before; {what}", shard.0);
                    return Err(ChangeError::Cannot(why));
                }
                Some(incoming) => incoming,
                // A command that was interrupted is given again.
                None if let Some(added) = placement.added(shard, outgoing) => added,
                None => placement.receiver(&topology, shard, outgoing).ok_or_else(|| {
                    let why = placement.without_receiver(&topology, shard, outgoing);
                    ChangeError::Cannot(format!(
                        "S{} cannot leave {}: {why}",
                        shard.0, self.outgoing
                    ))
                })?,
            };
            let to = name(&topology, incoming);
            let request = FromOperator::ReplaceReplica { shard, outgoing, incoming, number };
            let say =
                |stage: &str| say(&format!("S{}, {} → {to}: {stage}", shard.0, self.outgoing));
            let reply = self.operator.settle(&topology, &request, say, stage_of(&topology)).await?;
            if reply != ToOperator::Replacing(ReplacementStage::Done) {
                return Err(unexpected());
            }
            moved.push(MovedReplica {
                shard: format!("S{}", shard.0),
                from: self.outgoing.clone(),
                to,
            });
        }
        let left = Placement::of(&self.operator.report().await?).shards_of(outgoing);
        let left = left.into_iter().map(|shard| format!("S{}", shard.0)).collect();
        Ok(NodeChangeEnd { moved, from: self.outgoing.clone(), manager, left })
    }

    /// Has another node host a manager in place of the outgoing one, if that does. Returns its name.
    async fn move_manager(
        &self,
        topology: &Topology,
        outgoing: NodeId,
        wanted: Option<NodeId>,
        mut say: impl FnMut(&str),
    ) -> Result<Option<String>, ChangeError> {
        let placement = Placement::of(&self.operator.report().await?);
        if !placement.managers.contains(&outgoing) {
            return Ok(None);
        }
        let wanted = wanted.filter(|node| !placement.managers.contains(node));
        let incoming = wanted.or_else(|| placement.manager_host(topology, outgoing));
        let incoming = incoming.ok_or_else(|| {
            let why = "all other live nodes host one; add a node";
            ChangeError::Cannot(format!("the manager cannot leave {}: {why}", self.outgoing))
        })?;
        let incoming = name(topology, incoming);
        let change =
            WantedManagers::Replace { outgoing: self.outgoing.clone(), incoming: incoming.clone() };
        let say = |stage: &str| say(&format!("manager, {} → {incoming}: {stage}", self.outgoing));
        managers::replace(&self.operator, &change, say).await?;
        Ok(Some(incoming))
    }
}

impl NodeChangeEnd {
    /// Whether a replica has moved.
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// The result, in words.
    pub fn text(&self) -> String {
        let NodeChangeEnd { moved, from, manager, left } = self;
        let rows = moved.iter().map(|it| [it.shard.clone(), it.from.clone(), it.to.clone()]);
        let mut text = match moved.is_empty() {
            true => String::new(),
            false => table(["shard", "from", "to"], rows) + "\n",
        };
        if let Some(host) = manager {
            text += &format!(
                "{host} hosts a manager in its place: write that into `managers` of the nodes' files.\n"
            );
        }
        text += &match left.is_empty() {
            true => format!("{from} holds no replica; it can be stopped.\n"),
            false => format!("{from} still holds {}.\n", listed(left)),
        };
        text
    }
}

fn stage_of(topology: &Topology) -> impl Fn(ToOperator) -> Result<Stage, ChangeError> + '_ {
    |reply| {
        Ok(Stage::GoesOn(match reply {
            ToOperator::Replacing(stage) => match stage {
                ReplacementStage::Done => return Ok(Stage::Over(reply)),
                ReplacementStage::HandingOver => "another replica takes over the lead".to_owned(),
                ReplacementStage::Copying => "the new replica takes a copy".to_owned(),
                ReplacementStage::Promoting => {
                    "the new replica becomes a voter, and the old one leaves".to_owned()
                }
            },
            ToOperator::UnderWay(_) => "the managers write the change into their log".to_owned(),
            ToOperator::Refused(why) => return Err(refused(topology, &why)),
            reply => return Ok(Stage::Over(reply)),
        }))
    }
}

/// Which nodes hold which shards, by the node that knows the latest configuration.
struct Placement {
    /// The nodes that answer.
    alive: Vec<NodeId>,
    /// The nodes that host managers, by the latest list that one of them knows.
    managers: Vec<NodeId>,
    shards: Vec<ShardPlacement>,
}

/// The nodes that hold a shard.
struct ShardPlacement {
    shard: ShardId,
    holders: Vec<NodeId>,
    /// The nodes that held it, and take no replica of it again before they have begun anew.
    left: Vec<NodeId>,
    /// The voter that is taking the place of another one.
    added: Option<AddedVoterStatus>,
}

impl Placement {
    fn of(report: &StatusReport) -> Placement {
        let answered = || report.nodes.iter().flatten();
        let latest = answered().max_by_key(|status| status.revision);
        let holders = |shard: &ShardStatus| {
            let holders = shard.voters.iter().chain(&shard.learners).copied().map(NodeId);
            let left = shard.left.iter().copied().map(NodeId).collect();
            let (holders, added) = (holders.collect(), shard.added);
            ShardPlacement { shard: ShardId(shard.shard), holders, left, added }
        };
        let managers = answered().max_by_key(|status| status.managers_version);
        let managers = managers.into_iter().flat_map(|status| &status.managers);
        Placement {
            managers: managers.copied().map(NodeId).collect(),
            alive: answered().map(|status: &NodeStatus| NodeId(status.node)).collect(),
            shards: latest.into_iter().flat_map(|status| &status.shards).map(holders).collect(),
        }
    }

    /// The shards of which a node holds a replica.
    fn shards_of(&self, node: NodeId) -> Vec<ShardId> {
        let held = self.shards.iter().filter(|it| it.holders.contains(&node));
        held.map(|it| it.shard).collect()
    }

    /// The node that is taking the place of another one in a shard already.
    fn added(&self, shard: ShardId, outgoing: NodeId) -> Option<NodeId> {
        let added = self.shards.iter().find(|it| it.shard == shard)?.added?;
        (added.in_place_of == outgoing.0).then_some(NodeId(added.node))
    }

    /// Whether a node held a replica of the shard, and takes none before it has begun anew.
    fn has_left(&self, shard: ShardId, node: NodeId) -> bool {
        self.shards.iter().any(|it| it.shard == shard && it.left.contains(&node))
    }

    /// The live nodes without a replica of the shard.
    fn others(&self, shard: ShardId, outgoing: NodeId) -> impl Iterator<Item = NodeId> {
        let holds = move |node: NodeId| self.shards_of(node).contains(&shard);
        self.alive.iter().copied().filter(move |node| !holds(*node) && *node != outgoing)
    }

    /// The live node that is to take a replica of the shard from another: in the same datacenter if there is one, and of
    /// those that which holds fewest.
    fn receiver(&self, topology: &Topology, shard: ShardId, outgoing: NodeId) -> Option<NodeId> {
        let datacenter = |node: NodeId| topology.node(node).map(|node| node.datacenter);
        let able = self.others(shard, outgoing).filter(|node| !self.has_left(shard, *node));
        able.min_by_key(|node| {
            let is_far = datacenter(*node) != datacenter(outgoing);
            (is_far, self.shards_of(*node).len(), *node)
        })
    }

    /// Why there is no such node, and what to do.
    fn without_receiver(&self, topology: &Topology, shard: ShardId, outgoing: NodeId) -> String {
        let former: Vec<String> =
            self.others(shard, outgoing).map(|node| name(topology, node)).collect();
        if former.is_empty() {
            return "no live node is without a replica of it; add one".to_owned();
        }
        let former = former.join(", ");
        format!(
            "the live nodes without a replica of it held one before; restart one of {former}, or add a node"
        )
    }

    /// The live node without a manager that is to host one in place of another: in the same datacenter if there is one.
    fn manager_host(&self, topology: &Topology, outgoing: NodeId) -> Option<NodeId> {
        let datacenter = |node: NodeId| topology.node(node).map(|node| node.datacenter);
        let others = self.alive.iter().copied().filter(|node| !self.managers.contains(node));
        others.min_by_key(|node| (datacenter(*node) != datacenter(outgoing), *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_goes_to_the_nearest_node_that_holds_least() {
        let topology = Topology::symmetric(2, 1, 3, 0, 1);
        let datacenter = |node: u32| topology.nodes()[node as usize].datacenter;
        let near = (1..3).find(|node| datacenter(*node) == datacenter(0)).expect("one of them");
        let shard = |holders: &[u32], added| ShardPlacement {
            shard: ShardId(0),
            holders: holders.iter().copied().map(NodeId).collect(),
            left: Vec::new(),
            added,
        };
        let shards = vec![shard(&[0], None)];
        let alive = [0, 1, 2].map(NodeId).to_vec();
        let managers = vec![NodeId(0), NodeId(near)];
        let placement = Placement { alive, managers, shards };
        let other = NodeId(3 - near);
        assert_eq!(placement.manager_host(&topology, NodeId(0)), Some(other));
        assert_eq!(placement.receiver(&topology, ShardId(0), NodeId(0)), Some(NodeId(near)));
        let added = AddedVoterStatus { node: 2, in_place_of: 0 };
        let shards = vec![shard(&[0, 1, 2], Some(added))];
        let placement = Placement { shards, ..placement };
        assert_eq!(placement.receiver(&topology, ShardId(0), NodeId(0)), None);
        assert_eq!(placement.added(ShardId(0), NodeId(0)), Some(NodeId(2)));
        assert_eq!(placement.added(ShardId(0), NodeId(1)), None);
        assert_eq!(placement.shards_of(NodeId(1)), [ShardId(0)]);
    }

    #[test]
    fn a_node_that_has_left_a_shard_takes_no_replica_of_it() {
        let topology = Topology::symmetric(2, 1, 3, 0, 1);
        let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let placement = |left: &[u32]| Placement {
            alive: nodes(&[0, 1, 2]),
            managers: Vec::new(),
            shards: vec![ShardPlacement {
                shard: ShardId(0),
                holders: nodes(&[0]),
                left: nodes(left),
                added: None,
            }],
        };
        let receiver = |left: &[u32]| placement(left).receiver(&topology, ShardId(0), NodeId(0));
        assert_eq!((receiver(&[1]), receiver(&[2])), (Some(NodeId(2)), Some(NodeId(1))));
        assert_eq!(receiver(&[1, 2]), None);
        let why = placement(&[1, 2]).without_receiver(&topology, ShardId(0), NodeId(0));
        let names = [1, 2].map(|node| name(&topology, NodeId(node))).join(", ");
        assert!(why.contains(&format!("restart one of {names}, or add a node")), "{why}");
        assert!(placement(&[1]).has_left(ShardId(0), NodeId(1)));
    }
}
