//! The replicated state machine: it applies commands in the order of the log, and returns their effects.
//!
//! This file dispatches the commands, and keeps the time. The other parts of the state are in `memberships.rs` (nodes:
//! which are admitted, alive, and dead), `appoint.rs` (vacant shards, epochs), `closing.rs` (reports, final ends) and
//! `replacement.rs` (replicas), `change.rs` (tables, the shard map).
//!
//! It reads no clock and draws nothing at random: managers that applied the same commands have the same
//! state. A command that is invalid, or comes too late, is counted and changes nothing.

mod departures;
mod final_ends;
mod image;
mod invariants;
mod memberships;
mod shard_leader;

use super::command::{Action, Command, HeartbeatRecord, LeadershipClaim};
use super::configuration::{Assignment, Configuration, Move, NodeStanding};
use super::epoch_end::{EpochEnd, FinalEnds};
use super::ids::{Ask, Generation, Incarnation, ProcessInstance, Revision, Term};
use super::loss::Loss;
use super::options::ManagerOptions;
use super::refusal::ChangeRefusal;
use super::table_changes::TableChanges;
use crate::topology::Topology;
use departures::Departures;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The epoch in which a cluster begins, and the leaders that its topology names are appointed.
const FIRST_EPOCH: Epoch = Epoch(1);

/// Most closed epochs whose ends are not final. Beyond that, no leader is appointed: some shard is lost, and an
/// operator has to act.
pub(super) const CLOSING_MAX: usize = 1024;

/// How many of these are left to appointments: other epochs that may wait do not begin when only so many are left.
/// Appointments let leaders report how closed epochs ended, which makes room again.
pub(super) const APPOINTMENT_EPOCHS: usize = 64;

/// The effect of a command: for the leading manager to send to nodes, and for observers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The cluster is founded, in the first term of its log.
    Founded(ClusterId),
    /// A manager leads under a new term of the log; commands of earlier ones are void from here on.
    Took(Term),
    /// A node's process is admitted.
    Joined {
        /// The node whose process is admitted.
        node: NodeId,
        /// The process of the node that is admitted.
        instance: ProcessInstance,
        /// The incarnation under which it is admitted.
        incarnation: Incarnation,
    },
    /// A node's lease has run out.
    Died(NodeId),
    /// A heartbeat of a node that was declared dead has arrived.
    Revived(NodeId),
    /// An epoch begins; the one before is closed.
    Raised(Epoch),
    /// A shard has a new leader, or the same under a new ballot.
    Appointed {
        /// The shard that has a leader from here on.
        shard: ShardId,
        /// The ballot of the leadership, which names its node.
        ballot: Ballot,
    },
    /// A report is accepted, now or earlier.
    Reported {
        /// The leadership that had sent it.
        claim: LeadershipClaim,
        /// The epoch that it is about.
        epoch: Epoch,
    },
    /// How a closed epoch ended on a shard: final.
    Ended {
        /// The shard on which the epoch ended.
        shard: ShardId,
        /// The epoch that ended; it was closed before.
        epoch: Epoch,
        /// How it ended, in the engine's form.
        end: EpochEnd,
    },
    /// A shard is out from an epoch on, or in again.
    Out {
        /// The shard that changes.
        shard: ShardId,
        /// The epoch that begins with this.
        epoch: Epoch,
        /// The first epoch in which it is out; `None` if it is in again.
        since: Option<Epoch>,
    },
    /// The loss of a shard's majority is accepted, or has reached its next stage.
    Loss {
        /// The shard whose loss it is.
        shard: ShardId,
        /// The state of the loss.
        loss: Loss,
    },
    /// The ends of an epoch, which are final.
    Final(FinalEnds),
    /// An empty replica has caught up.
    CaughtUp {
        /// The shard of the replica.
        shard: ShardId,
        /// The node of the replica.
        replica: NodeId,
        /// The incarnation of that node.
        incarnation: Incarnation,
    },
    /// A request has created a table.
    TableCreated {
        /// The request.
        ask: Ask,
        /// The id of the table, which no other has or had.
        table: TableId,
        /// The name of the table.
        name: String,
    },
    /// A node is added. Its process may join.
    NodeAdded {
        /// The number of the node, which no other has or had.
        node: NodeId,
    },
    /// A node is removed. None of its processes joins again.
    NodeRemoved {
        /// The node that is no more.
        node: NodeId,
    },
    /// A table is dropped, with all its rows.
    TableDropped {
        /// The table that is no more.
        table: TableId,
    },
    /// The answer to a request.
    Answered {
        /// The request that is answered.
        ask: Ask,
        /// Whether the change is granted, or why not.
        result: Result<(), ChangeRefusal>,
    },
    /// The configuration has this revision now.
    Changed(Revision),
}

/// A node, as the manager knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub(super) struct NodeState {
    pub(super) instance: ProcessInstance,
    /// The node's newest incarnation; 0 if it never joined.
    pub(super) incarnation: Incarnation,
    pub(super) alive: bool,
    /// See [`NodeStanding::since`].
    pub(super) since: Epoch,
    /// See [`NodeStanding::is_first`].
    pub(super) is_first: bool,
    /// When its last recorded heartbeat arrived, or its lease began anew; without meaning if it is dead.
    pub(super) last_heartbeat: Time,
    round: u64,
    pub(super) known: Revision,
}

/// A voter that another node is to replace.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(super) struct Replacement {
    pub(super) outgoing: NodeId,
    pub(super) incoming: NodeId,
    /// Whether the incoming node is a learner only for this replacement.
    pub(super) added: bool,
}

/// A shard, as the manager knows it.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(super) struct ShardState {
    pub(super) assignment: Assignment,
    /// If another leader is to be appointed: when the last lease of the old one has run out.
    pub(super) vacant: Option<Time>,
    pub(super) replacement: Option<Replacement>,
    /// If another node is to lead in the place of a live one: the first configuration by which that one does not lead.
    pub(super) handover: Option<Revision>,
    /// Empty voters that would have caught up, if the leader's appointment were not older than their loss.
    pub(super) ready: BTreeSet<NodeId>,
}

/// The manager's state. See the [module](super).
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct StateMachine {
    #[coded(skip)]
    pub(super) options: ManagerOptions,
    pub(super) topology: Arc<Topology>,
    /// Drawn by the first manager that led; `None` before that.
    cluster: Option<ClusterId>,
    /// The generation of the managers.
    pub(super) generation: Generation,
    term: Term,
    /// The latest time in a command of this term, on its manager's clock.
    pub(super) now: Option<Time>,
    /// When the open epoch began, or the first time of this term, if that is later.
    pub(super) began: Option<Time>,
    revision: Revision,
    #[coded(skip)]
    pub(super) changed: bool,
    /// A node has died or returned, and the epoch that begins with that has yet to begin.
    members_changed: bool,
    pub(super) epoch: Epoch,
    pub(super) nodes: Vec<NodeState>,
    pub(super) shards: Vec<ShardState>,
    /// For each closed epoch that is not final, the ends that shards have reported.
    pub(super) closing: BTreeMap<Epoch, Vec<Option<EpochEnd>>>,
    /// Since when each of these is closed, as far as this term knows.
    pub(super) closed_at: BTreeMap<Epoch, Time>,
    /// Whether an end was accepted since the last configuration.
    pub(super) unpublished_ends: bool,
    /// The epoch up to which all ends are final; those of some later epochs may be final too.
    pub(super) settled: Epoch,
    /// The epoch up to which final ends may be dropped that do not cover all of their epoch.
    pub(super) forgotten: Epoch,
    /// Final ends of later epochs, each with the revision of the first configuration that has it.
    #[coded(with = final_ends)]
    pub(super) finals: Vec<(Revision, FinalEnds)>,
    pub(super) moving: Option<Move>,
    pub(super) table_changes: TableChanges,
    /// The first configuration with all nodes that were added, and without all that were removed.
    pub(super) nodes_changed: Revision,
    void: u64,
    configuration: Arc<Configuration>,
    /// See [`departures`].
    #[coded(with = departures)]
    departures: Departures,
}

/// A process of a node that is to be admitted.
#[derive(Clone, Copy)]
struct JoiningProcess {
    instance: ProcessInstance,
    /// The process of the node that was admitted before it.
    after: Incarnation,
    /// The process has lost what the one before it had promised and accepted.
    lost: bool,
    /// When the last heartbeat of the process before it arrived.
    last_heartbeat: Time,
}

impl StateMachine {
    /// The state of a new cluster: in its first epoch, with the leaders of the topology.
    ///
    /// # Panics
    /// If the options contradict each other, or the topology has a learner lead where [only voters
    /// may](super::LeaderCandidates::check).
    #[must_use]
    pub fn new(topology: Arc<Topology>, options: ManagerOptions) -> StateMachine {
        options.check();
        options.leader_candidates.check(&topology).unwrap_or_else(|error| panic!("{error}"));
        StateMachine::of_topology(topology, options)
    }

    /// The state of a new cluster, whose topology may have a learner lead where only voters may: that one hands over.
    fn of_topology(topology: Arc<Topology>, options: ManagerOptions) -> StateMachine {
        let first = |shard| {
            let leader = topology.leader(shard);
            let assignment = Assignment {
                leader,
                incarnation: Incarnation(1),
                ballot: Ballot { epoch: FIRST_EPOCH, node: leader },
                since: FIRST_EPOCH,
                voters: topology.voters(shard).to_vec(),
                voting_since: BTreeMap::new(),
                learners: topology.learners(shard).to_vec(),
                out: None,
                empty: BTreeMap::new(),
                added: None,
                loss: None,
                left: BTreeSet::new(),
            };
            let (vacant, replacement, handover) = (None, None, None);
            ShardState { assignment, vacant, replacement, handover, ready: BTreeSet::new() }
        };
        let shards: Vec<ShardState> = topology.shard_ids().map(first).collect();
        // Assumed alive: a node that does not join in time is dead.
        let node = |removed: bool| NodeState { alive: !removed, ..NodeState::to_join(FIRST_EPOCH) };
        let nodes = topology.nodes().iter().map(|it| node(it.removed)).collect();
        let settled = Epoch(FIRST_EPOCH.0 - 1);
        let configuration = Configuration {
            cluster: None,
            generation: Generation(0),
            revision: Revision(0),
            epoch: FIRST_EPOCH,
            topology: Arc::clone(&topology),
            nodes: Vec::new(),
            shards: Vec::new(),
            settled,
            forgotten: settled,
            finals: Vec::new(),
            ends: BTreeMap::new(),
            moving: None,
        };
        let mut machine = StateMachine {
            options,
            topology,
            cluster: None,
            generation: Generation(0),
            term: Term(0),
            now: None,
            began: None,
            revision: Revision(0),
            changed: true,
            members_changed: false,
            epoch: FIRST_EPOCH,
            nodes,
            shards,
            closing: BTreeMap::new(),
            closed_at: BTreeMap::new(),
            unpublished_ends: false,
            settled,
            forgotten: settled,
            finals: Vec::new(),
            moving: None,
            table_changes: TableChanges::default(),
            nodes_changed: Revision(0),
            void: 0,
            configuration: Arc::new(configuration),
            departures: Departures::default(),
        };
        machine.publish(&mut Vec::new());
        machine
    }

    /// Applies the next command of the log and appends its effects to `effects`. Deterministic.
    pub fn apply(&mut self, command: &Command, effects: &mut Vec<Applied>) {
        let before = (self.epoch, self.settled, self.revision);
        if let Some(now) = self.admit(command, effects) {
            self.act(now, command, effects);
            self.begin_membership_epoch(before.0, effects);
        }
        self.publish(effects);
        assert!(before <= (self.epoch, self.settled, self.revision), "went back: {self:?}");
        self.assert_invariants();
    }

    /// The options of the managers and nodes.
    #[must_use]
    pub fn options(&self) -> &ManagerOptions {
        &self.options
    }

    /// The configuration that all commands applied so far make.
    #[must_use]
    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// The nodes, shards and tables of the cluster, as of the commands applied so far.
    pub(super) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    /// The identity of the cluster; `None` before it is founded.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// The term of the manager whose commands count.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The number of commands that changed nothing, since they were late or invalid.
    #[must_use]
    pub fn void_commands(&self) -> u64 {
        self.void
    }

    /// The process and the incarnation of a node, whose id may come from outside.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<(ProcessInstance, Incarnation)> {
        self.nodes.get(node.0 as usize).map(|node| (node.instance, node.incarnation))
    }

    /// The number of entries of each table, by the table's name, and the size of the image in bytes.
    #[must_use]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let of_shards = |count: fn(&ShardState) -> usize| self.shards.iter().map(count).sum();
        vec![
            ("nodes", self.nodes.len()),
            ("replicas", of_shards(|it| it.assignment.voters.len() + it.assignment.learners.len())),
            ("empty replicas", of_shards(|it| it.assignment.empty.len() + it.ready.len())),
            ("epochs that are closed and not settled", self.closing.len()),
            ("times of closed epochs", self.closed_at.len()),
            ("final ends", self.finals.len()),
            ("bytes of the machine", self.image().len()),
        ]
    }

    /// The revision of the configuration that the node is known to have.
    pub(super) fn known(&self, node: NodeId) -> Revision {
        self.nodes.get(node.0 as usize).map_or(Revision(0), |node| node.known)
    }

    /// Whether the claim's leadership is that of the configuration.
    #[must_use]
    pub fn counts(&self, claim: &LeadershipClaim) -> bool {
        let faults = self.options.faults;
        let any_node = faults.deposed_reports || faults.late_report_overwrites;
        let Some(shard) = self.shards.get(claim.shard.0 as usize) else { return false };
        any_node || shard.is_led_by(claim)
    }

    /// Whether the claim is made by the process of a node that is alive by the log's record; it may lead nothing.
    pub(super) fn is_process(&self, claim: &LeadershipClaim) -> bool {
        let newest = self.node(claim.node).map(|(_, newest)| newest);
        self.is_alive(claim.node) && newest == Some(claim.incarnation)
    }

    /// Whether the node is alive by the log's record.
    pub(super) fn is_alive(&self, node: NodeId) -> bool {
        self.nodes.get(node.0 as usize).is_some_and(|node| node.alive)
    }

    /// Whether no command of this term has carried a time yet: then all leases have still to begin.
    pub(super) fn is_timeless(&self) -> bool {
        self.now.is_none()
    }

    /// Whether the node's lease runs at this time of the manager's clock, by the log's record.
    pub(super) fn lease_runs(&self, node: NodeId, now: Time) -> bool {
        let lease = self.options.lease_at_manager();
        let node = self.nodes.get(node.0 as usize).filter(|node| node.alive);
        !self.is_timeless() && node.is_some_and(|node| node.last_heartbeat + lease > now)
    }

    /// Whether a tick at this time of the manager's clock may do something.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.now.is_none()
            || self.is_vacancy_waiting()
            || self.nodes.iter().any(|node| node.alive && self.lease_end(node) <= now)
            || self.is_promotion_due(now)
            || self.is_turn_due(now)
            || self.is_restore_due(now)
            || self.unpublished_ends
    }

    /// Accepts commands of the current term, and returns the time of its manager.
    fn admit(&mut self, command: &Command, effects: &mut Vec<Applied>) -> Option<Time> {
        let taken = match &command.action {
            Action::Take { drawn } => Some((*drawn, None)),
            Action::Found { drawn, topology } => Some((*drawn, Some(topology))),
            _ => None,
        };
        if let Some((drawn, topology)) = taken {
            if command.term <= self.term {
                self.void += 1;
                return None;
            }
            self.found(drawn, topology, effects);
            self.term = command.term;
            self.forget_time();
            if self.options.faults.rebase_at_take {
                self.begin_leases(command.at);
            }
            effects.push(Applied::Took(self.term));
            return None;
        }
        if command.term != self.term {
            self.void += 1;
            return None;
        }
        if self.now.is_none() && !self.options.faults.rebase_at_take {
            self.begin_leases(command.at);
        }
        // Commands of one manager may be reordered; time does not go back.
        let now = self.now.map_or(command.at, |now| now.max(command.at));
        self.now = Some(now);
        Some(now)
    }

    /// The first manager that leads founds the cluster, whose identity never changes.
    fn found(
        &mut self,
        drawn: ClusterId,
        topology: Option<&Arc<Topology>>,
        effects: &mut Vec<Applied>,
    ) {
        if self.cluster.is_none() {
            // Nothing has changed before it, since no correct manager proposes anything else first.
            let is_first = self.revision == Revision(1);
            if let Some(topology) = topology.filter(|it| is_first && **it != self.topology) {
                let (options, void) = (self.options.clone(), self.void);
                let founded = StateMachine::of_topology(Arc::clone(topology), options);
                *self = StateMachine { void, ..founded };
            }
            // Nodes receive it with the next revision: none of them has joined before that.
            self.cluster = Some(drawn);
            effects.push(Applied::Founded(drawn));
        }
    }

    /// The next manager has another clock. Leases that had run out by the old one have run out.
    fn forget_time(&mut self) {
        self.began = None;
        self.closed_at.clear();
        let Some(now) = self.now.take() else { return };
        for until in self.shards.iter_mut().filter_map(|shard| shard.vacant.as_mut()) {
            if *until <= now {
                *until = Time::ZERO;
            }
        }
    }

    /// A new manager's clock: any lease may have been renewed just before it was read.
    fn begin_leases(&mut self, now: Time) {
        if self.options.faults.trust_former_clocks {
            return;
        }
        let end = now + self.options.lease_at_manager();
        for node in &mut self.nodes {
            node.last_heartbeat = now;
        }
        for until in self.shards.iter_mut().filter_map(|shard| shard.vacant.as_mut()) {
            if *until > Time::ZERO {
                *until = end;
            }
        }
    }

    fn act(&mut self, now: Time, command: &Command, effects: &mut Vec<Applied>) {
        let counts = match &command.action {
            Action::Take { .. } | Action::Found { .. } => {
                unreachable!("a term has begun: {command:?}")
            }
            Action::Tick { heartbeats } => {
                self.on_tick(now, command.at, heartbeats, effects);
                true
            }
            Action::Join { node, instance, after, lost, last_heartbeat } => {
                let (instance, after, lost) = (*instance, *after, *lost);
                let last_heartbeat = *last_heartbeat;
                let joining = JoiningProcess { instance, after, lost, last_heartbeat };
                self.on_join(now, *node, joining, effects)
            }
            Action::Report { claim, epoch, end } => self.on_report(*claim, *epoch, end, effects),
            Action::Close { claim, epoch } => self.on_close(now, *claim, *epoch, effects),
            Action::CaughtUp { claim, replica, incarnation } => {
                self.on_caught_up(*claim, *replica, *incarnation, effects)
            }
            Action::Known { node, incarnation, shard, begun, knowledge } => {
                self.on_known(*node, *incarnation, *shard, *begun, knowledge)
            }
            Action::Held { claim, held } => self.on_held(*claim, held, effects),
            Action::Whole { claim, epoch } => self.on_whole(*claim, *epoch),
            Action::Change { ask, change } => {
                let result = self.on_change(*ask, change, effects);
                effects.push(Applied::Answered { ask: *ask, result });
                true
            }
        };
        self.void += u64::from(!counts);
    }

    /// A tick may have been overtaken by commands of a later time, and contains the heartbeats up to its own
    /// time `at`: so leases run out by that.
    fn on_tick(
        &mut self,
        now: Time,
        at: Time,
        heartbeats: &[HeartbeatRecord],
        effects: &mut Vec<Applied>,
    ) {
        for heartbeat in heartbeats {
            self.renew(now, at, heartbeat, effects);
        }
        self.declare_silent_dead(at, effects);
        self.began.get_or_insert(at);
        self.note_closed(at);
        self.begin_handovers(at);
        self.hand_over(at);
        self.appoint_leaders(at, effects);
        self.begin_promotions(at, effects);
        self.turn_shards(at, effects);
        self.restore_shards(at, effects);
        self.changed |= self.unpublished_ends;
        self.forget_finals();
        self.forget_table_changes();
    }

    /// When the lease of a live node has run out by every clock.
    pub(super) fn lease_end(&self, node: &NodeState) -> Time {
        let lease = self.options.lease_at_manager();
        let faults = &self.options.faults;
        let early = match faults.appoint_early {
            true => lease / 2,
            false if faults.appoint_hasty => self.options.tick_every.min(lease),
            false => Duration::ZERO,
        };
        node.last_heartbeat + (lease - early)
    }

    /// The number of the node's last heartbeat in the log.
    pub(super) fn round(&self, node: NodeId) -> u64 {
        self.nodes.get(node.0 as usize).map_or(0, |node| node.round)
    }

    /// The shard of a claim, if the claim's leadership is that of the configuration.
    pub(super) fn claimed(&mut self, claim: &LeadershipClaim) -> Option<&mut ShardState> {
        let any_node = self.options.faults.deposed_reports;
        let shard = self.shards.get_mut(claim.shard.0 as usize)?;
        (any_node || shard.is_led_by(claim)).then_some(shard)
    }

    /// Publishes the next configuration, if anything in it has changed.
    fn publish(&mut self, effects: &mut Vec<Applied>) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        self.revision.0 += 1;
        self.unpublished_ends = false;
        let standing = |node: &NodeState| {
            let NodeState { incarnation, alive, since, is_first, .. } = *node;
            NodeStanding { incarnation, alive, since, is_first }
        };
        self.configuration = Arc::new(Configuration {
            cluster: self.cluster,
            generation: self.generation,
            revision: self.revision,
            epoch: self.epoch,
            topology: Arc::clone(&self.topology),
            nodes: self.nodes.iter().map(standing).collect(),
            shards: self.shards.iter().map(|shard| shard.assignment.clone()).collect(),
            settled: self.settled,
            forgotten: self.forgotten,
            finals: self.finals.iter().map(|(_, last)| last.clone()).collect(),
            ends: self.closing.clone(),
            moving: self.moving.clone(),
        });
        effects.push(Applied::Changed(self.revision));
    }

    /// The following commands are of another manager's clock, and none of its times is known.
    pub(super) fn restart_clock(&mut self) {
        (self.now, self.began) = (None, None);
        self.closed_at.clear();
    }

    /// Publishes a configuration whose revision is higher by `count`.
    pub(super) fn jump_revision(&mut self, count: u64) {
        self.revision.0 += count;
        self.finals.iter_mut().for_each(|(revision, _)| *revision = self.revision);
        self.changed = true;
        self.publish(&mut Vec::new());
        self.assert_invariants();
    }

    /// Whether the configuration may be an earlier or a later one of the same cluster, and is complete.
    pub(super) fn is_alike(&self, configuration: &Configuration) -> bool {
        let (nodes, shards) = (configuration.nodes.len(), self.shards.len());
        let mut names = self.topology.nodes().iter().zip(configuration.topology.nodes());
        let fits = names.all(|(own, other)| own.name == other.name)
            && configuration.topology.shards() as usize == shards
            && configuration.topology.nodes().len() == nodes
            && configuration.shards.len() == shards
            && configuration.finals.iter().all(|last| last.shards() == shards);
        fits && {
            let mut machine = self.clone();
            machine.replace_by(configuration);
            machine.is_whole() && machine.fault().is_none()
        }
    }

    /// Continues from a later configuration. State that is not part of it is dropped: unfinished replacements
    /// of replicas, the times of heartbeats, and which requests have created tables.
    pub(super) fn replace_by(&mut self, configuration: &Configuration) {
        self.topology = Arc::clone(&configuration.topology);
        self.cluster = configuration.cluster;
        self.generation = configuration.generation;
        (self.revision, self.epoch) = (configuration.revision, configuration.epoch);
        self.nodes_changed = self.revision;
        self.nodes.resize(configuration.nodes.len(), NodeState::to_join(self.epoch));
        for (node, standing) in self.nodes.iter_mut().zip(&configuration.nodes) {
            (node.incarnation, node.alive) = (standing.incarnation, standing.alive);
            (node.since, node.is_first) = (standing.since, standing.is_first);
        }
        for (shard, assignment) in self.shards.iter_mut().zip(&configuration.shards) {
            shard.assignment = assignment.clone();
            (shard.vacant, shard.replacement, shard.handover) = (None, None, None);
            shard.ready.clear();
        }
        self.closing.clone_from(&configuration.ends);
        (self.settled, self.forgotten) = (configuration.settled, configuration.forgotten);
        let with_revision = |last: &FinalEnds| (configuration.revision, last.clone());
        self.finals = configuration.finals.iter().map(with_revision).collect();
        self.moving.clone_from(&configuration.moving);
        self.table_changes = TableChanges::default();
        self.departures.clear();
        self.configuration = Arc::new(configuration.clone());
    }

    /// The revision that will contain a change made now.
    pub(super) fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }
}

impl NodeState {
    /// A node of which no process was admitted yet, and that is not alive.
    pub(super) fn to_join(since: Epoch) -> NodeState {
        NodeState {
            instance: ProcessInstance::default(),
            incarnation: Incarnation(0),
            alive: false,
            since,
            is_first: true,
            last_heartbeat: Time::ZERO,
            round: 0,
            known: Revision(0),
        }
    }

    /// Accepts the node's heartbeats from number 0 on.
    pub(super) fn restart_rounds(&mut self) {
        self.round = 0;
    }
}
