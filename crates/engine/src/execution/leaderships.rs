//! The leader of each shard, as one worker knows: its one record of that.
//!
//! ```text
//!   configuration ── follow ──► leader, since, holders, out ──► where operations go, which requests are taken
//!   engine ──────── serve ────► serves ────────────────────► which shards are read and written in place
//! ```
//! Before the first configuration it is as the topology says. A shard that this node leads is *served* from when the
//! engine has recovered it until the leadership ends; the engine says both, for each worker at its own time.
//!
//! Invariant: no leadership of a shard begins in an earlier epoch than the one before it, and what is served is a shard
//! of which the node has a replica.

use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_cluster::topology::Topology;
use shoal_types::{CallSession, Epoch, NodeId, ShardId};
use std::cell::{Cell, RefCell};

/// The leadership of a shard by this process, without interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The epoch in which it began.
    pub since: Epoch,
    /// The incarnation of this node.
    pub incarnation: Incarnation,
}

impl Leadership {
    /// No process has led the shard before.
    pub fn is_first(&self) -> bool {
        self.since <= Epoch(1) && self.incarnation <= Incarnation(1)
    }
}

/// The leader of a shard, and what names its leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLeader {
    /// The leader.
    pub node: NodeId,
    /// The epoch in which its leadership began: what was said before that, it cannot know.
    pub since: Epoch,
}

/// The leaders of all shards. Belongs to one worker.
#[derive(Debug)]
pub struct Leaderships {
    node: NodeId,
    shards: Box<[ShardRecord]>,
    /// The epoch of the last configuration.
    configured: Cell<Epoch>,
    /// The incarnation of this node, by the configuration; 0 until there is one.
    incarnation: Cell<Incarnation>,
    /// The nodes whose leases have run out, by the configuration.
    dead: RefCell<Vec<NodeId>>,
}

#[derive(Debug)]
struct ShardRecord {
    leader: Cell<ShardLeader>,
    /// The leader is this process of the node, as the configuration says.
    is_appointed: Cell<bool>,
    /// The place of the shard on this node.
    own: Option<usize>,
    serves: Cell<bool>,
    /// The shard takes no part in the epoch of the configuration.
    is_out: Cell<bool>,
    /// The outcomes of calls in its sessions from before this epoch are lost, where no row has them.
    calls_lost_before: Cell<Option<Epoch>>,
    holders: RefCell<Vec<NodeId>>,
}

impl Leaderships {
    /// As the topology says; the node has places for the shards of `own`, in this order.
    pub fn new(node: NodeId, topology: &Topology, epoch: Epoch, own: &[ShardId]) -> Leaderships {
        let shards = topology.shard_ids().map(|shard| ShardRecord {
            leader: Cell::new(ShardLeader { node: topology.leader(shard), since: epoch }),
            is_appointed: Cell::new(false),
            own: own.iter().position(|own| *own == shard),
            serves: Cell::new(false),
            is_out: Cell::new(false),
            calls_lost_before: Cell::new(None),
            holders: RefCell::new(topology.replicas(shard).collect()),
        });
        Leaderships {
            node,
            shards: shards.collect(),
            configured: Cell::new(epoch),
            incarnation: Cell::default(),
            dead: RefCell::default(),
        }
    }

    /// Takes over a configuration, in which this node has that incarnation. Returns the shards in which another leadership has
    /// begun.
    pub fn follow(&self, configuration: &Configuration, incarnation: Incarnation) -> Vec<ShardId> {
        self.configured.set(configuration.epoch);
        self.incarnation.set(incarnation);
        let nodes = (0..).map(NodeId).zip(&configuration.nodes);
        *self.dead.borrow_mut() =
            nodes.filter(|(_, standing)| !standing.alive).map(|(node, _)| node).collect();
        let mut moved = Vec::new();
        for ((shard, record), assignment) in
            (0..).map(ShardId).zip(&self.shards).zip(&configuration.shards)
        {
            let now = ShardLeader { node: assignment.leader, since: assignment.since };
            let before = record.leader.replace(now);
            assert!(
                before.since <= now.since,
                "the leadership of {shard} since {} follows one since {}",
                now.since,
                before.since
            );
            if before != now {
                moved.push(shard);
            }
            record.is_appointed.set(assignment.is_led_by(self.node, incarnation));
            record.is_out.set(assignment.out.is_some());
            record.calls_lost_before.set(assignment.loss.as_ref().map(|loss| loss.calls_before));
            *record.holders.borrow_mut() = assignment.holders().collect();
        }
        moved
    }

    fn record(&self, shard: ShardId) -> &ShardRecord {
        &self.shards[shard.0 as usize]
    }

    /// The epoch of the last configuration.
    pub fn configured(&self) -> Epoch {
        self.configured.get()
    }

    /// The incarnation of this node, by the last configuration; 0 until there is one.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation.get()
    }

    /// The leader of a shard; perhaps this node, and it recovers the shard.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn leader(&self, shard: ShardId) -> ShardLeader {
        self.record(shard).leader.get()
    }

    /// Is the node a leader of any shard?
    pub fn is_leader(&self, node: NodeId) -> bool {
        self.shards.iter().any(|record| record.leader.get().node == node)
    }

    /// The leadership of this node over a shard, if it leads the shard; it may have to recover it first.
    pub fn own_leadership(&self, shard: ShardId) -> Option<Leadership> {
        let (leader, incarnation) = (self.leader(shard), self.incarnation());
        let leads = leader.node == self.node && incarnation > Incarnation(0);
        leads.then_some(Leadership { since: leader.since, incarnation })
    }

    /// The epoch in which the leadership began that this process was appointed to, if it was, by the last configuration.
    pub fn appointed_since(&self, shard: ShardId) -> Option<Epoch> {
        let record = self.record(shard);
        record.is_appointed.get().then(|| record.leader.get().since)
    }

    /// From now on, or no longer, this worker serves the shard.
    ///
    /// # Panics
    /// If the node has no replica of it.
    pub(super) fn serve(&self, shard: ShardId, serves: bool) {
        let record = self.record(shard);
        assert!(
            record.own.is_some() && (self.holds(shard) || !serves),
            "{shard} is served without a replica"
        );
        record.serves.set(serves);
    }

    /// The place of a shard on this node, if it is served.
    #[inline]
    pub(super) fn served(&self, shard: ShardId) -> Option<usize> {
        let record = self.shards.get(shard.0 as usize)?;
        record.own.filter(|_| record.serves.get())
    }

    /// May this worker begin transactions? Any node coordinates transactions on the shards of others, as soon as it knows
    /// their leaders. One that has been appointed to lead first recovers a shard: most of what it is asked for needs that.
    pub(super) fn coordinates(&self) -> bool {
        let serves_any = self.shards.iter().any(|record| record.serves.get());
        let is_appointed = self.shards.iter().any(|record| record.is_appointed.get());
        serves_any || (self.incarnation() > Incarnation(0) && !is_appointed)
    }

    /// Is the shard out of the epoch of the configuration?
    #[inline]
    pub(super) fn is_out(&self, shard: ShardId) -> bool {
        self.shards.get(shard.0 as usize).is_some_and(|record| record.is_out.get())
    }

    /// Has this node a replica of the shard?
    pub fn holds(&self, shard: ShardId) -> bool {
        self.record(shard).holders.borrow().contains(&self.node)
    }

    /// Which nodes hold a shard.
    pub fn holders(&self, shard: ShardId) -> Vec<NodeId> {
        self.record(shard).holders.borrow().clone()
    }

    /// Is it for `sender_node` to give `receiver` a copy of a shard? A leader gives to other replicas, and they to one that is
    /// about to lead. A node that was replaced is none: it drops what it gets.
    fn gives(&self, shard: ShardId, sender_node: NodeId, receiver: NodeId) -> bool {
        let record = self.record(shard);
        let (leader, holders) = (record.leader.get().node, record.holders.borrow());
        let is_between_replicas = holders.contains(&sender_node) && holders.contains(&receiver);
        is_between_replicas && (leader == sender_node || leader == receiver)
    }

    /// Is it for this node to send `receiver` a copy of a shard now? Not while that node is dead: entries are kept for as long
    /// as a copy is sent that stands for those before them. When it is back it asks for a copy.
    pub fn sends(&self, shard: ShardId, receiver: NodeId) -> bool {
        self.gives(shard, self.node, receiver) && !self.dead.borrow().contains(&receiver)
    }

    /// Is it for this node to take a copy of a shard that `sender_node` sends? Not before it knows which process of the node it
    /// is: the copy may be for a former one, which held the shard (seed 134277988 of `two_phase_commit`).
    pub fn takes(&self, shard: ShardId, sender_node: NodeId) -> bool {
        self.incarnation() != Incarnation::default() && self.gives(shard, sender_node, self.node)
    }

    /// Does an absent row prove nothing about the calls of a session, since the rows of its time may be lost with a majority
    /// of its shard?
    pub(super) fn are_calls_lost(&self, session: &CallSession) -> bool {
        let record = self.shards.get(session.home.0 as usize);
        let before = record.and_then(|record| record.calls_lost_before.get());
        before.is_some_and(|before| session.since < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{Assignment, ManagerOptions, StateMachine};
    use std::sync::Arc;

    const OWN: NodeId = NodeId(0);

    /// Node 0 leads shard 0, which node 1 holds as well, and node 3 leads shard 1.
    fn leaderships() -> (Leaderships, Configuration) {
        let topology = Arc::new(Topology::symmetric(2, 2, 3, 0, 1));
        let machine = StateMachine::new(Arc::clone(&topology), ManagerOptions::default());
        let configuration = Configuration::clone(machine.configuration());
        let own: Vec<ShardId> = topology.shards_of(OWN).collect();
        (Leaderships::new(OWN, &topology, Epoch(1), &own), configuration)
    }

    #[test]
    fn another_leadership_is_told_once() {
        let (leaderships, mut configuration) = leaderships();
        let shard = ShardId(0);
        let follow =
            |configuration: &Configuration| leaderships.follow(configuration, Incarnation(1));
        configuration.shards[0].incarnation = Incarnation(1);
        assert!(follow(&configuration).is_empty());
        assert_eq!(leaderships.appointed_since(shard), Some(leaderships.leader(shard).since));
        configuration.shards[0].since = Epoch(4);
        assert_eq!(follow(&configuration), [shard]);
        assert!(follow(&configuration).is_empty());
        let own = Leadership { since: Epoch(4), incarnation: Incarnation(1) };
        assert_eq!(leaderships.own_leadership(shard), Some(own));
        configuration.shards[0].leader = NodeId(1);
        configuration.shards[0].since = Epoch(5);
        assert_eq!(follow(&configuration), [shard]);
        let now = (leaderships.own_leadership(shard), leaderships.appointed_since(shard));
        assert_eq!(now, (None, None));
    }

    #[test]
    fn a_process_is_not_appointed_by_what_its_node_led_before() {
        let (leaderships, mut configuration) = leaderships();
        configuration.shards[0].incarnation = Incarnation(1);
        leaderships.follow(&configuration, Incarnation(2));
        assert_eq!(leaderships.appointed_since(ShardId(0)), None);
        assert_eq!(leaderships.leader(ShardId(0)).node, OWN);
    }

    #[test]
    #[should_panic(expected = "follows one since")]
    fn leaderships_do_not_go_back() {
        let (leaderships, mut configuration) = leaderships();
        configuration.shards[0].since = Epoch(4);
        leaderships.follow(&configuration, Incarnation(1));
        configuration.shards[0].since = Epoch(3);
        leaderships.follow(&configuration, Incarnation(1));
    }

    #[test]
    fn a_process_takes_no_copy_before_it_is_admitted() {
        let (leaderships, mut configuration) = leaderships();
        configuration.shards[0].leader = NodeId(1);
        assert!(!leaderships.takes(ShardId(0), NodeId(1)), "it may be for a former process");
        leaderships.follow(&configuration, Incarnation(2));
        assert!(leaderships.takes(ShardId(0), NodeId(1)));
    }

    #[test]
    fn a_copy_is_sent_by_the_leader_to_one_that_is_alive() {
        let (leaderships, mut configuration) = leaderships();
        let (own, receiver) = (ShardId(0), NodeId(1));
        leaderships.follow(&configuration, Incarnation(1));
        assert!(leaderships.sends(own, receiver) && leaderships.gives(own, OWN, receiver));
        assert!(!leaderships.gives(own, NodeId(3), receiver), "it holds no copy");
        assert!(!leaderships.gives(own, OWN, NodeId(3)), "nor is it sent one");
        configuration.nodes[1].alive = false;
        leaderships.follow(&configuration, Incarnation(1));
        assert!(!leaderships.sends(own, receiver) && leaderships.gives(own, OWN, receiver));
        configuration.nodes[1].alive = true;
        leaderships.follow(&configuration, Incarnation(1));
        assert!(leaderships.sends(own, receiver));
    }

    #[test]
    fn what_is_served_is_served_until_it_is_said_otherwise() {
        let (leaderships, _) = leaderships();
        assert!(leaderships.served(ShardId(0)).is_none());
        leaderships.serve(ShardId(0), true);
        assert_eq!(leaderships.served(ShardId(0)), Some(0));
        assert_eq!(leaderships.served(ShardId(7)), None, "there is no such shard");
        leaderships.serve(ShardId(0), false);
        assert!(leaderships.served(ShardId(0)).is_none());
    }

    #[test]
    fn a_node_coordinates_unless_it_recovers_all_that_it_is_to_lead() {
        let (leaderships, mut configuration) = leaderships();
        assert!(!leaderships.coordinates(), "it knows no leaders");
        let others = Assignment { leader: NodeId(1), ..configuration.shards[0].clone() };
        let own = std::mem::replace(&mut configuration.shards[0], others);
        leaderships.follow(&configuration, Incarnation(1));
        assert!(leaderships.coordinates(), "it holds a replica, and leads nothing");
        configuration.shards[0] = Assignment { since: Epoch(9), ..own };
        leaderships.follow(&configuration, Incarnation(1));
        assert!(!leaderships.coordinates(), "it recovers the shard first");
        leaderships.serve(ShardId(0), true);
        assert!(leaderships.coordinates());
    }
}
