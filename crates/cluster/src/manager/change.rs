//! Changes of the cluster: replacements of replicas, and the shard map. Those of tables are in `tables.rs`, those of nodes in
//! `nodes.rs`.
//!
//! ```text
//!  a voter is replaced:   learner, empty ─ caught up ─► new epoch: voter, empty ─ caught up ─► voter
//!  it lost its memory:                       voter, empty ─ ready ─► new epoch ─ caught up ─► voter
//! ```
//! Both need a new epoch, with the same leader under a new ballot. That can wait a while: for the next epoch
//! that begins anyway, until all former ones are settled, or until the open one is as old as a lease; the new
//! epoch serves all shards that are ready by then. If the incoming voter leads as a learner meanwhile, it
//! continues to lead, and reports itself as caught up when it has prepared.
//!
//! A shard whose majority was lost, which an operator has accepted, has fewer voters than it had. A replica that was set aside is
//! replaced like a voter: there is one voter more then, up to as many as the topology has.
//!
//! A voter that leads hands over first (`appoint.rs`): no process leads from the next configuration on. Another replica is
//! appointed when a heartbeat of the node shows that it has received that configuration, or its lease has run out.

use super::command::{ClusterChange, LeadershipClaim};
use super::configuration::{Assignment, Move};
use super::ids::{Ask, Incarnation};
use super::loss::LossStage;
use super::options::ManagerOptions;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, NodeState, Replacement, ShardState, StateMachine};
use crate::topology::{Partitioning, REPLICAS_MAX, Table, TableDefinition, Topology};
use shoal_types::wire::Coded;
use shoal_types::{NodeId, ShardId, TableId, Time};
use std::sync::Arc;

/// How far the replacement of a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum ReplacementStage {
    /// Another node is to lead the shard in the place of the one that is replaced.
    #[coded(tag = 0)]
    HandingOver,
    /// The new replica takes a copy.
    #[coded(tag = 1)]
    Copying,
    /// The new replica has a copy, and is to vote.
    #[coded(tag = 2)]
    Promoting,
    /// The new replica has the role of the former one, which has left.
    #[coded(tag = 3)]
    Done,
}

impl StateMachine {
    pub(super) fn on_change(
        &mut self,
        ask: Ask,
        change: &ClusterChange,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        match change {
            ClusterChange::ReplaceReplica { shard, outgoing, incoming } => {
                self.on_replace(*shard, *outgoing, *incoming)
            }
            ClusterChange::KeepReplicas { shard } => {
                let kept =
                    self.shards.get_mut(shard.0 as usize).ok_or(ChangeRefusal::NoShard(*shard))?;
                self.changed |= kept.cancel_replacement();
                Ok(())
            }
            ClusterChange::AcceptLoss { shard, number, at_s } => {
                self.on_accept_loss(*shard, *number, *at_s, effects)
            }
            ClusterChange::Table(change) => self.on_table_change(ask, change, effects),
            ClusterChange::AddNode { name, datacenter, address } => {
                self.on_add_node(name, datacenter, address.as_deref(), effects)
            }
            ClusterChange::RemoveNode { node } => self.on_remove_node(*node, effects),
            ClusterChange::BeginMove { table, partitioning } => {
                self.on_begin_move(*table, partitioning, effects)
            }
            ClusterChange::EndMove { table } => self.on_end_move(*table),
            ClusterChange::CancelMove { table } => {
                self.check_moving(*table)?;
                self.moving = None;
                self.changed = true;
                Ok(())
            }
        }
    }

    fn on_replace(
        &mut self,
        id: ShardId,
        outgoing: NodeId,
        incoming: NodeId,
    ) -> Result<(), ChangeRefusal> {
        let shard = self.shards.get(id.0 as usize).ok_or(ChangeRefusal::NoShard(id))?;
        for node in [outgoing, incoming] {
            if node.0 as usize >= self.nodes.len() {
                return Err(ChangeRefusal::NoNode(node));
            }
        }
        if self.is_removed(incoming) {
            return Err(ChangeRefusal::NodeRemoved(incoming));
        }
        let others_lead = self.candidates(shard).any(|node| node != outgoing);
        let shard = &mut self.shards[id.0 as usize];
        let assignment = &shard.assignment;
        let votes = |node| assignment.voters.contains(&node);
        let asked = |it: &Replacement| (it.outgoing, it.incoming) == (outgoing, incoming);
        let is_held = assignment.holds(outgoing);
        let returns = !is_held && assignment.is_set_aside(outgoing);
        let done = assignment.holds(incoming)
            && (!is_held || outgoing == incoming && assignment.is_set_aside(outgoing));
        if done || shard.replacement.as_ref().is_some_and(asked) {
            return Ok(());
        }
        let is_short = assignment.voters.len() < self.topology.voters(id).len();
        if !(is_held || returns && is_short) {
            return Err(ChangeRefusal::HoldsNone { shard: id, node: outgoing });
        }
        let leads = assignment.leader == outgoing;
        if leads && !(votes(outgoing) && others_lead) {
            return Err(ChangeRefusal::Leads { shard: id, node: outgoing });
        }
        let held = assignment.holds(incoming);
        let is_voter = votes(outgoing) || returns;
        if votes(incoming) || (held && !is_voter) {
            return Err(ChangeRefusal::Holds { shard: id, node: incoming });
        }
        if assignment.left.contains(&incoming) {
            return Err(ChangeRefusal::HeldBefore { shard: id, node: incoming });
        }
        let replicas = assignment.voters.len() + assignment.learners.len();
        if is_voter && !held && replicas >= REPLICAS_MAX {
            return Err(ChangeRefusal::TooManyReplicas(id));
        }
        shard.cancel_replacement();
        self.changed = true;
        // A former replacement may have added the incoming node, and removed it again just now.
        let added = !shard.assignment.holds(incoming);
        if added {
            shard.assignment.left.remove(&incoming);
            shard.assignment.learners.push(incoming);
            shard.assignment.empty.insert(incoming, self.epoch);
        }
        if is_voter {
            shard.replacement = Some(Replacement { outgoing, incoming, added });
        } else {
            shard.assignment.release(outgoing);
        }
        if leads {
            self.begin_handover(id);
        }
        Ok(())
    }

    /// Checks whether a replica may be replaced.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_replacement(
        &self,
        shard: ShardId,
        outgoing: NodeId,
        incoming: NodeId,
    ) -> Result<(), ChangeRefusal> {
        self.clone().on_replace(shard, outgoing, incoming)
    }

    /// How far the replacement of a replica is; `None` if none is under way or done.
    #[must_use]
    pub fn replacement_stage(
        &self,
        shard: ShardId,
        outgoing: NodeId,
        incoming: NodeId,
    ) -> Option<ReplacementStage> {
        let ShardState { assignment, replacement, handover, .. } =
            self.shards.get(shard.0 as usize)?;
        let asked = |it: &Replacement| (it.outgoing, it.incoming) == (outgoing, incoming);
        let is_under_way = replacement.as_ref().is_some_and(asked);
        let is_gone = !assignment.holds(outgoing) || assignment.is_set_aside(outgoing);
        let is_taken = !is_under_way && is_gone && assignment.holds(incoming);
        if !is_taken && !is_under_way {
            return None;
        }
        let is_empty = assignment.empty.contains_key(&incoming);
        Some(match (is_taken, is_empty) {
            (true, false) => ReplacementStage::Done,
            _ if is_empty && assignment.learners.contains(&incoming) => ReplacementStage::Copying,
            (false, _) if handover.is_some() || assignment.leader == outgoing => {
                ReplacementStage::HandingOver
            }
            (true | false, _) => ReplacementStage::Promoting,
        })
    }

    /// A leader reports that a replica has caught up. Returns false if that is known already or void.
    pub(super) fn on_caught_up(
        &mut self,
        claim: LeadershipClaim,
        replica: NodeId,
        incarnation: Incarnation,
        effects: &mut Vec<Applied>,
    ) -> bool {
        let same_life =
            self.nodes.get(replica.0 as usize).is_some_and(|it| it.incarnation == incarnation);
        let Some(shard) = self.claimed(&claim).filter(|_| same_life) else { return false };
        let assignment = &mut shard.assignment;
        let Some(since) = assignment.empty.get(&replica).copied() else { return false };
        if assignment.voters.contains(&replica) && assignment.ballot.epoch <= since {
            return shard.ready.insert(replica);
        }
        assignment.empty.remove(&replica);
        self.changed = true;
        effects.push(Applied::CaughtUp { shard: claim.shard, replica, incarnation });
        true
    }

    /// Whether an epoch should begin for the sake of replicas.
    pub(super) fn is_promotion_due(&self, now: Time) -> bool {
        self.may_begin_epoch(now)
            && self.shards.iter().any(|shard| shard.is_promotable(&self.nodes, &self.options))
    }

    /// Begins such an epoch. Nothing waits for that: leaders continue, under their new ballots.
    pub(super) fn begin_promotions(&mut self, now: Time, effects: &mut Vec<Applied>) {
        if self.is_promotion_due(now) {
            let chosen = self.promote_replicas();
            self.raise_epoch(&chosen, effects);
        }
    }

    /// Completes the replacements that are ready, and returns the leaders that need a new ballot, to be
    /// appointed in the same step.
    pub(super) fn promote_replicas(&mut self) -> Vec<(ShardId, NodeId)> {
        let mut chosen = Vec::new();
        let counts_incoming = self.options.faults.count_incoming;
        for (id, shard) in (0..).map(ShardId).zip(&mut self.shards) {
            if !shard.is_promotable(&self.nodes, &self.options) {
                continue;
            }
            let replaces = shard.is_replaceable(&self.nodes);
            let replacement = shard.replacement.take_if(|_| replaces);
            if let Some(Replacement { outgoing, incoming, .. }) = replacement {
                let assignment = &mut shard.assignment;
                let counts = assignment.counts_at_once(outgoing) || counts_incoming;
                if assignment.voters.contains(&outgoing) {
                    shard.ready.remove(&outgoing);
                    assignment.release(outgoing);
                }
                assignment.remove(incoming);
                assignment.voters.push(incoming);
                if !counts {
                    assignment.empty.insert(incoming, self.epoch);
                }
            }
            chosen.push((id, shard.assignment.leader));
        }
        chosen
    }

    fn on_begin_move(
        &mut self,
        table: TableId,
        partitioning: &Partitioning,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        if let Some(moving) = &self.moving {
            let same = moving.table == table && moving.partitioning == *partitioning;
            return if same { Ok(()) } else { Err(ChangeRefusal::MoveUnderWay(moving.table)) };
        }
        self.with_partitioning(table, partitioning)?;
        if !self.closing.is_empty() {
            return Err(ChangeRefusal::Unsettled);
        }
        self.raise_epoch(&[], effects);
        self.moving = Some(Move { table, partitioning: partitioning.clone(), begun: self.epoch });
        Ok(())
    }

    fn on_end_move(&mut self, table: TableId) -> Result<(), ChangeRefusal> {
        self.check_moving(table)?;
        let Some(moving) = self.moving.clone() else { return Err(ChangeRefusal::NoMove(table)) };
        if self.settled.0 + 1 < moving.begun.0 {
            return Err(ChangeRefusal::Unsettled);
        }
        self.topology = Arc::new(self.with_partitioning(table, &moving.partitioning)?);
        self.moving = None;
        self.changed = true;
        Ok(())
    }

    fn check_moving(&self, table: TableId) -> Result<(), ChangeRefusal> {
        let moves = self.moving.as_ref().is_some_and(|moving| moving.table == table);
        if moves { Ok(()) } else { Err(ChangeRefusal::NoMove(table)) }
    }

    /// The tables, by their ids.
    pub(super) fn tables(&self) -> Vec<(TableId, (String, TableDefinition))> {
        let plan = |table: &Table| (table.id(), (table.name().to_owned(), table.definition()));
        self.topology.tables().iter().map(plan).collect()
    }

    /// The topology, with one of its tables divided otherwise, if that is valid.
    fn with_partitioning(
        &self,
        table: TableId,
        partitioning: &Partitioning,
    ) -> Result<Topology, ChangeRefusal> {
        let mut tables = self.tables();
        let moved = tables.iter_mut().find(|(id, _)| *id == table);
        let (_, (_, moved)) = moved.ok_or(ChangeRefusal::NoTable(table))?;
        moved.partitioning.clone_from(partitioning);
        let next = self.topology.tables().next();
        Ok((*self.topology).clone().with_numbered_tables(tables, next)?)
    }
}

impl ShardState {
    /// Whether a replica waits only for a new ballot of the leader, which continues to lead. One that the engine does not let
    /// lead any more hands over first.
    fn is_promotable(&self, nodes: &[NodeState], options: &ManagerOptions) -> bool {
        let Assignment { leader, incarnation, .. } = self.assignment;
        // A leader that the topology named and that has never joined does not count.
        let leads_on = self.vacant.is_none() && nodes[leader.0 as usize].incarnation == incarnation;
        let may_lead = options.leader_candidates.may_lead(&self.assignment, leader);
        leads_on && may_lead && (!self.ready.is_empty() || self.is_replaceable(nodes))
    }

    /// Whether the incoming voter may take its place: it has caught up, and the other voters that live and have their
    /// memory are a majority without it. If no other node could lead, the outgoing one does, and stays until another
    /// can.
    fn is_replaceable(&self, nodes: &[NodeState]) -> bool {
        let Some(Replacement { outgoing, incoming, .. }) = &self.replacement else { return false };
        let assignment = &self.assignment;
        let others = assignment.full_voters().filter(|node| node != outgoing);
        let remembering = others.filter(|node| nodes[node.0 as usize].alive).count();
        let replaces = assignment.voters.contains(outgoing);
        let voters = assignment.voters.len() + usize::from(!replaces);
        let voting = remembering + usize::from(assignment.counts_at_once(*outgoing));
        (assignment.leader != *outgoing || !replaces)
            && !assignment.empty.contains_key(incoming)
            && voting > voters / 2
    }

    /// Drops an unfinished replacement, and the learner that was added for it. Returns whether there was one.
    pub(super) fn cancel_replacement(&mut self) -> bool {
        let Some(replacement) = self.replacement.take() else { return false };
        if replacement.added && self.assignment.leader != replacement.incoming {
            self.assignment.release(replacement.incoming);
        }
        true
    }
}

impl Assignment {
    fn remove(&mut self, node: NodeId) {
        self.voters.retain(|other| *other != node);
        self.learners.retain(|other| *other != node);
        self.empty.remove(&node);
    }

    /// Was the node's replica set aside when the loss of the shard's majority was accepted?
    fn is_set_aside(&self, node: NodeId) -> bool {
        let loss = self.loss.as_ref().filter(|loss| loss.stage == LossStage::Over);
        loss.is_some_and(|loss| loss.void.contains_key(&node))
    }

    /// Does the voter that comes in the place of this node count as soon as it has a copy? Where that node is no voter any
    /// more, there is one voter more; if they were an odd number, so is a majority, and without the new one it is still a
    /// majority of the former voters.
    fn counts_at_once(&self, outgoing: NodeId) -> bool {
        !self.voters.contains(&outgoing) && self.voters.len() % 2 == 1
    }

    /// The node holds the shard no more.
    pub(super) fn release(&mut self, node: NodeId) {
        self.remove(node);
        self.left.insert(node);
    }
}
