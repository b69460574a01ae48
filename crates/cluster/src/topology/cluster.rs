//! The topology, and what can be asked of it.

use super::partitioning::{Home, Homes};
use super::tables::TableMap;
use shoal_types::wire::Coded;
use shoal_types::{DatacenterId, DistanceMatrix, Durability, NodeId, Scan, ShardId, TableId};
use std::sync::Arc;

/// A group of nodes near each other, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datacenter {
    /// The datacenter's index in the topology.
    pub id: DatacenterId,
    /// The datacenter's name, which no other has.
    pub name: String,
}

/// A process that holds replicas, or may come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The node's index in the topology.
    pub id: NodeId,
    /// The node's name, which no other has.
    pub name: String,
    /// The datacenter in which it runs.
    pub datacenter: DatacenterId,
    /// The address at which it listens, if the topology has one; no other node does there.
    pub address: Option<String>,
    /// Whether it was taken out of the cluster for good. Its number and its name are not given again.
    pub removed: bool,
}

/// What a node does for a shard. A leader is one or the other as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A replica whose acceptance of an entry counts.
    Voter,
    /// A replica that receives the streams and does not vote.
    Learner,
}

/// The replicas of a shard. Invariant: voters and learners are distinct, the leader is one of them, and
/// the number of voters is odd.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(super) struct Shard {
    pub(super) leader: NodeId,
    pub(super) voters: Vec<NodeId>,
    pub(super) learners: Vec<NodeId>,
}

/// A cluster's shape. It has been validated and does not change: share it in an `Arc`. Where nodes are added or removed, a
/// later configuration has another one.
///
/// Ids are dense and count from 0 in the order of the text, so that they index plain arrays. A
/// method that takes a node or a shard panics if there is no such one: those that get an id from
/// outside compares it with [`nodes`](Topology::nodes) or [`shards`](Topology::shards) first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    workers: u32,
    durability: Durability,
    datacenters: Vec<Datacenter>,
    distances: DistanceMatrix,
    nodes: Vec<Node>,
    shards: Vec<Shard>,
    /// For each node, the shards it has a replica of, ascending.
    hosted: Vec<Vec<ShardId>>,
    tables: Arc<TableMap>,
}

impl Topology {
    /// A topology of validated parts, without tables.
    pub(super) fn new(
        workers: u32,
        datacenters: Vec<Datacenter>,
        distances: DistanceMatrix,
        nodes: Vec<Node>,
        shards: Vec<Shard>,
    ) -> Topology {
        let mut hosted = vec![Vec::new(); nodes.len()];
        for (shard, id) in shards.iter().zip((0..).map(ShardId)) {
            for node in shard.voters.iter().chain(&shard.learners) {
                hosted[node.0 as usize].push(id);
            }
        }
        let tables = Arc::default();
        let durability = Durability::default();
        Topology { workers, durability, datacenters, distances, nodes, shards, hosted, tables }
    }

    /// The same cluster with one more node, which holds no replica. It can coordinate transactions.
    #[must_use]
    pub fn with_node(self, name: impl Into<String>, datacenter: DatacenterId) -> Topology {
        let id = NodeId(self.nodes.len() as u32);
        self.set_node(Node { id, name: name.into(), datacenter, address: None, removed: false })
    }

    /// The same cluster with this node, which was validated, in the place of its number: a new one holds no replica.
    pub(super) fn set_node(mut self, node: Node) -> Topology {
        let place = node.id.0 as usize;
        match self.nodes.get_mut(place) {
            Some(known) => *known = node,
            None => {
                assert_eq!(place, self.nodes.len(), "numbers of nodes have no gaps: {node:?}");
                self.nodes.push(node);
                self.hosted.push(Vec::new());
            }
        }
        self
    }

    /// The same cluster with these tables, which were validated.
    pub(super) fn set_tables(self, tables: TableMap) -> Topology {
        Topology { tables: Arc::new(tables), ..self }
    }

    /// The same cluster with these distances, which were validated.
    pub(super) fn set_distances(self, distances: DistanceMatrix) -> Topology {
        Topology { distances, ..self }
    }

    /// The same cluster with this durability.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Topology {
        Topology { durability, ..self }
    }

    /// When replicas acknowledge what they store.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// How many workers each node has; all have as many.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// The datacenters; a datacenter's id is its place.
    pub fn datacenters(&self) -> &[Datacenter] {
        &self.datacenters
    }

    /// The datacenter of this name.
    pub fn datacenter(&self, name: &str) -> Option<DatacenterId> {
        let named = self.datacenters.iter().find(|datacenter| datacenter.name == name);
        named.map(|datacenter| datacenter.id)
    }

    /// How far the datacenters are from each other, where that is emulated.
    pub fn distances(&self) -> &DistanceMatrix {
        &self.distances
    }

    /// The nodes; a node's id is its place.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes that were not removed.
    pub fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.removed)
    }

    /// The node with this id, which may come from outside.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    /// The number of shards; ids are below it.
    pub fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    /// The ids of all shards, ascending.
    pub fn shard_ids(&self) -> impl ExactSizeIterator<Item = ShardId> + use<> {
        (0..self.shards()).map(ShardId)
    }

    fn shard(&self, shard: ShardId) -> &Shard {
        assert!(shard.0 < self.shards(), "there is no shard {shard}, only {}", self.shards());
        &self.shards[shard.0 as usize]
    }

    /// The shard's first leader: a voter or a learner of it.
    pub fn leader(&self, shard: ShardId) -> NodeId {
        self.shard(shard).leader
    }

    /// The replicas whose acceptance of an entry counts: an odd number.
    pub fn voters(&self, shard: ShardId) -> &[NodeId] {
        &self.shard(shard).voters
    }

    /// The replicas that receive the streams and do not vote.
    pub fn learners(&self, shard: ShardId) -> &[NodeId] {
        &self.shard(shard).learners
    }

    /// All replicas of the shard, voters first.
    pub fn replicas(&self, shard: ShardId) -> impl Iterator<Item = NodeId> {
        let shard = self.shard(shard);
        shard.voters.iter().chain(&shard.learners).copied()
    }

    /// The node's role in the shard, if it holds a replica.
    pub fn role(&self, shard: ShardId, node: NodeId) -> Option<Role> {
        let shard = self.shard(shard);
        if shard.voters.contains(&node) {
            Some(Role::Voter)
        } else {
            shard.learners.contains(&node).then_some(Role::Learner)
        }
    }

    /// The shards that the node holds a replica of, ascending.
    pub fn shards_of(&self, node: NodeId) -> impl ExactSizeIterator<Item = ShardId> {
        let shards = self.hosted.get(node.0 as usize);
        shards.unwrap_or_else(|| panic!("there is no node {node}")).iter().copied()
    }

    /// The tables by id and by name, with the ids of those that were dropped.
    pub fn tables(&self) -> &Arc<TableMap> {
        &self.tables
    }

    /// The table with this name.
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.tables.named(name)
    }

    /// The shard or shards of `key`; `None` if there is no such table.
    #[inline]
    pub fn home(&self, table: TableId, key: &[u8]) -> Option<Home> {
        self.tables.home(table, key)
    }

    /// The shards that `scan` has to ask; `None` where there is no such table.
    pub fn homes(&self, table: TableId, scan: &Scan<'_>) -> Option<Homes> {
        self.tables.homes(table, scan)
    }
}
