//! The leaders and the addresses of nodes, by the directories that nodes have sent.
//!
//! The directory of one node may be older than that of another: only the newest configuration counts. It may also be
//! wrong or invalid; so it is checked before it is used, and a wrong leader is detected when it is asked.

use super::environment::ClientEnvironment;
use super::granule_routes::{GranuleName, GranuleRoutes, selected};
use super::lock;
use bytes::Bytes;
use shoal_cluster::manager::Outage;
use shoal_cluster::topology::{Home, Node, Partitioning, Topology};
use shoal_engine::client::{ClientRouting, Directory};
use shoal_types::{Aborted, Error, NodeId, ShardId, TableId, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How long a node that did not answer is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(1);

/// What this client knows of the cluster: its topology, and which node leads what.
#[derive(Debug)]
pub(super) struct DirectoryView {
    world: Arc<dyn ClientEnvironment>,
    known: Mutex<Arc<Directory>>,
    /// The addresses of nodes that have none in the topology.
    dialed_at: Mutex<BTreeMap<NodeId, Arc<str>>>,
    suspects: Mutex<BTreeMap<NodeId, Time>>,
    granules: Mutex<GranuleRoutes>,
    /// The number of directories that nodes have sent.
    updates: watch::Sender<u64>,
}

impl DirectoryView {
    pub(super) fn new(first: Directory, world: Arc<dyn ClientEnvironment>) -> DirectoryView {
        DirectoryView {
            world,
            known: Mutex::new(Arc::new(first)),
            dialed_at: Mutex::default(),
            suspects: Mutex::default(),
            granules: Mutex::default(),
            updates: watch::Sender::new(0),
        }
    }

    /// Takes a directory that a node has sent.
    pub(super) fn update(&self, received: Directory) {
        let mut known = lock(&self.known);
        if is_newer(&received, &known) {
            *known = Arc::new(received);
        }
        drop(known);
        self.updates.send_modify(|times| *times += 1);
    }

    /// The number of directories that nodes have sent.
    pub(super) fn updates(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    /// The newest directory.
    pub(super) fn directory(&self) -> Directory {
        Directory::clone(&self.known())
    }

    fn known(&self) -> Arc<Directory> {
        Arc::clone(&lock(&self.known))
    }

    /// Nodes, tables and the shard map.
    pub(super) fn topology(&self) -> Arc<Topology> {
        let known = self.known();
        let configured = known.configuration.as_ref().map(|configured| &configured.topology);
        Arc::clone(configured.unwrap_or(&known.topology))
    }

    /// The number of workers of each node.
    pub(super) fn workers(&self) -> usize {
        self.topology().workers().max(1) as usize
    }

    /// The shard of a key; any, where all have it. `None` where there is no such table.
    pub(super) fn home(&self, table: TableId, key: &[u8]) -> Option<Option<ShardId>> {
        match self.topology().home(table, key)? {
            Home::One(shard) => Some(Some(shard)),
            Home::Everywhere => Some(None),
        }
    }

    /// The leader of a shard; `None` if there is no such shard.
    pub(super) fn leader(&self, shard: ShardId) -> Option<NodeId> {
        let (known, topology) = (self.known(), self.topology());
        if shard.0 >= topology.shards() {
            return None;
        }
        let assigned = known.configuration.as_ref().and_then(|all| all.shard(shard));
        let leader = assigned.map_or_else(|| topology.leader(shard), |assigned| assigned.leader);
        topology.node(leader).map(|node| node.id)
    }

    /// The granule of a key, if granules move to the node that uses them, and the table is divided into granules.
    pub(super) fn granule(&self, table: TableId, key: &[u8]) -> Option<GranuleName> {
        if self.known().routing != ClientRouting::Owners {
            return None;
        }
        let topology = self.topology();
        let table = topology.tables().get(table)?;
        let is_divided = *table.partitioning() != Partitioning::Everywhere;
        let prefix = Bytes::copy_from_slice(table.granule_prefix(key));
        is_divided.then_some(GranuleName { family: table.granules().family, prefix })
    }

    /// The node that is to coordinate transactions of a granule: the owner that was named last, if it lives, or the node that
    /// the granule's name selects among the nearest that live. `None` if none is known to live.
    pub(super) fn coordinator(&self, granule: &GranuleName) -> Option<NodeId> {
        let owner = lock(&self.granules).owner(granule);
        let owner = owner.filter(|owner| self.lives(*owner));
        owner.or_else(|| selected(granule, self.nearest_live().into_iter()))
    }

    fn lives(&self, node: NodeId) -> bool {
        !self.is_dead(node) && !self.is_suspect(node)
    }

    /// The nodes that are as near as any, of those that live. Where the client is not known to be anywhere, these are all.
    fn nearest_live(&self) -> Vec<NodeId> {
        let topology = self.topology();
        let here = self.world.datacenter();
        let distance = |node: &Node| {
            here.map(|here| topology.distances().between(here, node.datacenter).delay)
        };
        let live = || topology.members().filter(|node| self.lives(node.id));
        let nearest = live().map(distance).min();
        let near = live().filter(|node| Some(distance(node)) == nearest);
        near.map(|node| node.id).collect()
    }

    /// Whether any node coordinates calls, so that they go to the nearest.
    pub(super) fn goes_to_nearest(&self) -> bool {
        self.known().routing == ClientRouting::Nearest
    }

    /// The nodes of which any may coordinate a transaction whose first key is on this shard, where clients go to the nearest: the
    /// shard's leader alone, if no node is nearer. Empty where clients do not, and if no node is known to live.
    pub(super) fn nearest(&self, first: Option<ShardId>) -> Vec<NodeId> {
        if !self.goes_to_nearest() {
            return Vec::new();
        }
        let near = self.nearest_live();
        let leader = first.and_then(|shard| self.leader(shard));
        match leader.filter(|leader| near.contains(leader)) {
            Some(leader) => vec![leader],
            None => near,
        }
    }

    /// A transaction that was sent where this granule says has failed: the error may name the owner.
    pub(super) fn learn_owner(&self, granule: Option<&GranuleName>, error: &Error) {
        if let (Error::Aborted(Aborted::Moved { owner }), Some(granule)) = (error, granule) {
            lock(&self.granules).learn(granule.clone(), *owner);
        }
    }

    /// A shard that the node leads: this one, if it does.
    pub(super) fn shard_led_by(&self, node: NodeId, preferred: ShardId) -> Option<ShardId> {
        let mut all = std::iter::once(preferred).chain(self.topology().shard_ids());
        all.find(|shard| self.leader(*shard) == Some(node))
    }

    /// Whether the shard has no majority of its replicas: then requests are not served, however often they
    /// are repeated.
    pub(super) fn has_no_majority(&self, shard: ShardId) -> bool {
        let known = self.known();
        let outage = known.configuration.as_ref().and_then(|configured| configured.outage(shard));
        matches!(outage, Some(Outage::Waiting { .. } | Outage::Lost { .. }))
    }

    /// The leaders that are not suspected; all leaders, if there are none.
    pub(super) fn leaders(&self) -> Vec<NodeId> {
        let mut all: Vec<NodeId> =
            self.topology().shard_ids().filter_map(|shard| self.leader(shard)).collect();
        all.sort_unstable();
        all.dedup();
        self.trusted_of(all)
    }

    /// All nodes that were not removed, first those that are alive and not suspected.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let topology = self.topology();
        let mut nodes: Vec<NodeId> = topology.members().map(|node| node.id).collect();
        nodes.sort_by_key(|node| (self.is_suspect(*node), self.is_dead(*node)));
        nodes
    }

    /// Whether the configuration says that the node is dead. The node may not know it.
    pub(super) fn is_dead(&self, node: NodeId) -> bool {
        let known = self.known();
        let nodes = known.configuration.as_ref().map(|configured| &configured.nodes);
        nodes.and_then(|nodes| nodes.get(node.0 as usize)).is_some_and(|node| !node.alive)
    }

    fn trusted_of(&self, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let trusted: Vec<NodeId> =
            nodes.iter().copied().filter(|node| !self.is_suspect(*node)).collect();
        if trusted.is_empty() { nodes } else { trusted }
    }

    /// The address of a node.
    pub(super) fn address(&self, node: NodeId) -> Option<Arc<str>> {
        let topology = self.topology();
        let written = topology.node(node)?.address.as_deref().map(Arc::from);
        written.or_else(|| lock(&self.dialed_at).get(&node).cloned())
    }

    /// A node was reached at this address.
    pub(super) fn reached(&self, node: NodeId, address: &str) {
        lock(&self.dialed_at).insert(node, address.into());
    }

    /// The node did not answer, or does not serve: others are asked first for a while.
    pub(super) fn suspect(&self, node: NodeId) {
        lock(&self.suspects).insert(node, self.world.now() + SUSPECT_FOR);
    }

    /// The node has answered.
    pub(super) fn trust(&self, node: NodeId) {
        lock(&self.suspects).remove(&node);
    }

    pub(super) fn is_suspect(&self, node: NodeId) -> bool {
        lock(&self.suspects).get(&node).is_some_and(|until| self.world.now() < *until)
    }
}

fn is_newer(received: &Directory, known: &Directory) -> bool {
    match (&received.configuration, &known.configuration) {
        (Some(received), Some(known)) => received.revision > known.revision,
        (Some(_), None) => true,
        (None, Some(_) | None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sockets::Sockets;
    use super::*;
    use crate::Access;
    use shoal_cluster::manager::{Configuration, ManagerOptions, Revision, StateMachine};

    fn world() -> Arc<dyn ClientEnvironment> {
        Arc::new(Sockets::new(Access::open("reef"), None))
    }

    fn unconfigured(topology: &Arc<Topology>) -> Directory {
        let routing = ClientRouting::Leaders;
        Directory { topology: Arc::clone(topology), configuration: None, routing }
    }

    fn configured(topology: &Arc<Topology>, revision: u64, leader: u32) -> Directory {
        let machine = StateMachine::new(Arc::clone(topology), ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.revision = Revision(revision);
        configuration.shards[0].leader = NodeId(leader);
        let configuration = Some(Arc::new(configuration));
        Directory { topology: Arc::clone(topology), configuration, routing: ClientRouting::Leaders }
    }

    #[tokio::test(start_paused = true)]
    async fn only_newer_configurations_and_valid_leaders_count() {
        let topology = Arc::new(Topology::compact(1, 2, 3, 0, 1));
        let view = DirectoryView::new(unconfigured(&topology), world());
        assert_eq!(view.leader(ShardId(0)), Some(NodeId(0)));
        view.update(configured(&topology, 7, 2));
        assert_eq!(view.leader(ShardId(0)), Some(NodeId(2)));
        view.update(configured(&topology, 6, 1));
        view.update(unconfigured(&topology));
        assert_eq!(view.leader(ShardId(0)), Some(NodeId(2)), "an older revision");
        view.update(configured(&topology, 8, 99));
        assert_eq!(view.leader(ShardId(0)), None);
        assert_eq!(view.leader(ShardId(2)), None);
        assert_eq!(*view.updates().borrow(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn transactions_of_a_granule_go_to_its_owner_while_it_lives() {
        let hashed = Partitioning::Hash { prefix_bytes: 2 };
        let topology = Topology::compact(1, 3, 3, 0, 1).with_tables([("t", hashed)]);
        let topology = Arc::new(topology.expect("a valid topology"));
        let table = TableId(0);
        let view = DirectoryView::new(unconfigured(&topology), world());
        assert_eq!(view.granule(table, b"c17"), None, "leaders coordinate");
        let directory = Directory { routing: ClientRouting::Owners, ..unconfigured(&topology) };
        let view = DirectoryView::new(directory, world());
        let granule = view.granule(table, b"c17").expect("it is divided");
        assert_eq!(view.granule(table, b"c1/x"), Some(granule.clone()), "of the same granule");
        let selected = view.coordinator(&granule).expect("three nodes");
        let owner = NodeId((selected.0 + 1) % 3);
        view.learn_owner(Some(&granule), &Aborted::Moved { owner }.into());
        assert_eq!(view.coordinator(&granule), Some(owner));
        view.suspect(owner);
        assert_eq!(view.coordinator(&granule), Some(selected));
        view.suspect(selected);
        let third = view.coordinator(&granule).expect("one that is not suspected");
        assert!(third != owner && third != selected);
        assert_eq!(view.shard_led_by(NodeId(0), ShardId(0)), Some(ShardId(0)));
        assert_eq!(
            view.shard_led_by(NodeId(1), ShardId(0)),
            Some(ShardId(1)),
            "not the preferred one"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn suspects_are_asked_last_for_a_while() {
        let topology = Arc::new(Topology::compact(1, 3, 3, 0, 1));
        let view = DirectoryView::new(unconfigured(&topology), world());
        let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        assert_eq!(view.nodes(), nodes(&[0, 1, 2]));
        view.suspect(NodeId(0));
        assert_eq!(view.nodes(), nodes(&[1, 2, 0]));
        assert_eq!(view.leaders(), nodes(&[1, 2]));
        tokio::time::advance(SUSPECT_FOR).await;
        assert_eq!(view.nodes(), nodes(&[0, 1, 2]));
        view.suspect(NodeId(1));
        view.trust(NodeId(1));
        assert!(!view.is_suspect(NodeId(1)));
    }
}
