//! The replicated state machine: it applies commands in the order of the log, and returns their effects.
//!
//! This file dispatches the commands, and keeps the time and the nodes: which are admitted, alive, and dead.
//! The other parts of the state are in `appoint.rs` (vacant shards, epochs), `closing.rs` (reports, FVWs) and
//! `change.rs` (replicas, tables, the shard map).
//!
//! It reads no clock and draws nothing at random: managers that applied the same commands have the same
//! state. A command that is invalid, or comes too late, is counted and changes nothing.

mod final_ends;
mod image;
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
use shoal_types::wire::Coded;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, ShardId, TableId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The epoch in which a cluster begins, and the leaders that its topology names are appointed.
const FIRST_EPOCH: Epoch = Epoch(1);

/// Most closed epochs without an FVW. Beyond that, no leader is appointed: some shard is lost, and an
/// operator has to act.
pub(super) const CLOSING_MAX: usize = 1024;

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
    /// The FVW of an epoch: final.
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
    /// The epoch up to which all FVWs are final; some of later epochs may be final too.
    pub(super) settled: Epoch,
    /// The epoch up to which FVWs may be dropped that do not cover all of their epoch.
    pub(super) forgotten: Epoch,
    /// FVWs of later epochs, each with the revision of the first configuration that has it.
    #[coded(with = final_ends)]
    pub(super) finals: Vec<(Revision, FinalEnds)>,
    pub(super) moving: Option<Move>,
    pub(super) table_changes: TableChanges,
    void: u64,
    configuration: Arc<Configuration>,
}

/// A process of a node that is to be admitted.
#[derive(Clone, Copy)]
struct JoiningProcess {
    instance: ProcessInstance,
    /// The process of the node that was admitted before it.
    after: Incarnation,
    /// It has lost what that one had promised and accepted.
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
        let first = |shard| {
            let leader = topology.leader(shard);
            let assignment = Assignment {
                leader,
                incarnation: Incarnation(1),
                ballot: Ballot { epoch: FIRST_EPOCH, node: leader },
                since: FIRST_EPOCH,
                voters: topology.voters(shard).to_vec(),
                learners: topology.learners(shard).to_vec(),
                out: None,
                empty: BTreeMap::new(),
                loss: None,
                left: BTreeSet::new(),
            };
            let (vacant, replacement, handover) = (None, None, None);
            ShardState { assignment, vacant, replacement, handover, ready: BTreeSet::new() }
        };
        let node = NodeState {
            instance: ProcessInstance::default(),
            incarnation: Incarnation(0),
            // Assumed alive: a node that does not join in time is dead.
            alive: true,
            since: FIRST_EPOCH,
            last_heartbeat: Time::ZERO,
            round: 0,
            known: Revision(0),
        };
        let shards: Vec<ShardState> = topology.shard_ids().map(first).collect();
        let nodes = vec![node; topology.nodes().len()];
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
            void: 0,
            configuration: Arc::new(configuration),
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
            ("final watermarks", self.finals.len()),
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
        if let Action::Take { drawn } = command.action {
            if command.term <= self.term {
                self.void += 1;
                return None;
            }
            self.found(drawn, effects);
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
    fn found(&mut self, drawn: ClusterId, effects: &mut Vec<Applied>) {
        if self.cluster.is_none() {
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
            Action::Take { .. } => unreachable!("a term has begun: {command:?}"),
            Action::Tick { heartbeats } => {
                self.on_tick(now, command.at, heartbeats, effects);
                true
            }
            Action::Join { node, instance, after, lost, last_heartbeat } => self.on_join(
                now,
                *node,
                JoiningProcess {
                    instance: *instance,
                    after: *after,
                    lost: *lost,
                    last_heartbeat: *last_heartbeat,
                },
                effects,
            ),
            Action::Report { claim, epoch, end } => self.on_report(*claim, *epoch, end, effects),
            Action::Close { claim, epoch } => self.on_close(now, *claim, *epoch, effects),
            Action::CaughtUp { claim, replica, incarnation } => {
                self.on_caught_up(*claim, *replica, *incarnation, effects)
            }
            Action::Known { node, incarnation, shard, begun, knowledge } => {
                self.on_known(*node, *incarnation, *shard, *begun, knowledge)
            }
            Action::Held { claim, held } => self.on_held(*claim, held, effects),
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
        for place in 0..self.nodes.len() {
            let node = &self.nodes[place];
            if node.alive && self.lease_end(node) <= at {
                self.declare_dead(NodeId(place as u32), at, effects);
            }
        }
        self.began.get_or_insert(at);
        self.note_closed(at);
        self.hand_over(at);
        self.appoint_leaders(at, effects);
        self.begin_promotions(at, effects);
        self.turn_shards(at, effects);
        self.restore_shards(at, effects);
        self.changed |= self.unpublished_ends;
        self.forget_finals();
        self.forget_table_changes();
    }

    fn renew(
        &mut self,
        now: Time,
        ticked_at: Time,
        heartbeat: &HeartbeatRecord,
        effects: &mut Vec<Applied>,
    ) {
        let HeartbeatRecord { node: id, incarnation, round, at, known } = *heartbeat;
        let (lease, known) = (self.options.lease_at_manager(), known.min(self.revision));
        let (at, since) = (at.min(ticked_at), self.next_membership());
        let Some(node) = self.nodes.get_mut(id.0 as usize) else {
            self.void += 1;
            return;
        };
        if incarnation == Incarnation(0) || node.incarnation != incarnation || round < node.round {
            self.void += 1; // Of a former process, or overtaken.
            return;
        }
        let is_repeat = round == node.round;
        (node.round, node.known) = (round, node.known.max(known));
        if !node.alive && (is_repeat || at + lease <= now) {
            return; // Its lease had run out by this heartbeat's time: that revives no node.
        }
        node.last_heartbeat = node.last_heartbeat.max(at);
        if !node.alive {
            (node.alive, node.since) = (true, since);
            self.members_changed = true;
            self.changed = true;
            effects.push(Applied::Revived(id));
            // No successor was found for its shards, and it is the same incarnation: it continues to lead.
            for shard in &mut self.shards {
                let assignment = &shard.assignment;
                if (assignment.leader, assignment.incarnation) == (id, incarnation) {
                    shard.vacant = None;
                }
            }
        }
    }

    fn on_join(
        &mut self,
        now: Time,
        id: NodeId,
        joining: JoiningProcess,
        effects: &mut Vec<Applied>,
    ) -> bool {
        let JoiningProcess { instance, after, lost, last_heartbeat } = joining;
        let Some(node) = self.nodes.get(id.0 as usize).copied() else { return false };
        if node.incarnation != after {
            return false; // Another process was admitted since.
        }
        let incarnation = Incarnation(after.0 + 1);
        // The former process may act until then, if it still runs.
        let last =
            NodeState { last_heartbeat: node.last_heartbeat.max(last_heartbeat.min(now)), ..node };
        let lease_end = if node.alive { self.lease_end(&last) } else { now };
        let known = Revision(0);
        // A node that joins in time, in its first process, was alive from the beginning.
        let is_new = after > Incarnation(0) || !node.alive;
        let since = if is_new { self.next_membership() } else { node.since };
        self.members_changed |= is_new;
        self.nodes[id.0 as usize] = NodeState {
            instance,
            incarnation,
            alive: true,
            since,
            last_heartbeat: now,
            round: 0,
            known,
        };
        self.changed = true;
        if lost {
            self.shards.iter_mut().for_each(|shard| _ = shard.assignment.left.remove(&id));
        }
        // In its first process a node has no memory to lose, and holds what the topology gave it.
        if after > Incarnation(0) {
            for shard in &mut self.shards {
                shard.on_new_instance(id, incarnation, lease_end, &self.options);
                if lost && shard.assignment.holds(id) {
                    shard.assignment.empty.insert(id, self.epoch);
                    shard.ready.remove(&id);
                }
            }
        }
        effects.push(Applied::Joined { node: id, instance, incarnation });
        true
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
            let NodeState { incarnation, alive, since, .. } = *node;
            NodeStanding { incarnation, alive, since }
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

    /// Whether the configuration has the same numbers of nodes and shards, and is complete.
    pub(super) fn is_alike(&self, configuration: &Configuration) -> bool {
        let (nodes, shards) = (self.nodes.len(), self.shards.len());
        let fits = configuration.topology.nodes().len() == nodes
            && configuration.topology.shards() as usize == shards
            && configuration.nodes.len() == nodes
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
        for (node, standing) in self.nodes.iter_mut().zip(&configuration.nodes) {
            (node.incarnation, node.alive) = (standing.incarnation, standing.alive);
            node.since = standing.since;
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
        self.configuration = Arc::new(configuration.clone());
    }

    /// The revision that will contain a change made now.
    pub(super) fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    fn assert_invariants(&self) {
        if let Some(fault) = self.fault() {
            panic!("{fault}: {self:?}");
        }
    }

    /// The first invariant that does not hold, if there is one.
    fn fault(&self) -> Option<&'static str> {
        let first = self.closing.keys().next().copied().unwrap_or(self.epoch);
        let last = self.closing.keys().next_back().copied();
        let early = |last: &FinalEnds| {
            last.epoch() >= self.epoch || self.closing.contains_key(&last.epoch())
        };
        let rules = [
            (self.cluster.is_some() || self.term == Term(0), "not founded"),
            (self.settled.0.checked_add(1) == Some(first.0), "M12: the first that is not settled"),
            (last.is_none_or(|last| last < self.epoch), "closed an open epoch"),
            (!self.finals.iter().any(|(_, last)| early(last)), "an FVW is too early"),
            (self.forgotten <= self.settled, "M9: an FVW was forgotten before it was final"),
            (self.finals.iter().all(|(_, it)| it.epoch() > self.forgotten), "an FVW is too late"),
            (self.finals.is_sorted_by_key(|(_, last)| last.epoch()), "FVWs are unsorted"),
        ];
        let of_shards = self.shards.iter().flat_map(|shard| {
            let Assignment { leader, ballot, voters, learners, empty, .. } = &shard.assignment;
            [
                (ballot.epoch <= self.epoch, "appointed in the future"),
                (ballot.node == *leader, "the ballot of another"),
                (shard.assignment.holds(*leader), "leads without a replica"),
                (!voters.iter().any(|node| learners.contains(node)), "two roles"),
                (empty.keys().all(|node| shard.assignment.holds(*node)), "strays"),
                (
                    !shard.assignment.left.iter().any(|node| shard.assignment.holds(*node)),
                    "is back",
                ),
                (shard.ready.iter().all(|node| empty.contains_key(node)), "full"),
            ]
        });
        rules.into_iter().chain(of_shards).find(|(holds, _)| !holds).map(|(_, fault)| fault)
    }
}

impl NodeState {
    /// Accepts the node's heartbeats from number 0 on.
    pub(super) fn restart_rounds(&mut self) {
        self.round = 0;
    }
}
