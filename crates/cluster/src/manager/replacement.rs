//! Replacements of replicas.
//!
//! ```text
//!  a voter is replaced:   learner, empty ─ caught up ─► new epoch: one voter more ─ caught up ─► new epoch: the other has left
//!  it lost its memory:    voter, empty ─ ready ─► new epoch ─ caught up ─► voter
//! ```
//! The incoming voter counts from the epoch on in which it joins, beside the one that it replaces: majorities of the voters
//! with it and without it have a member in common, as with all sets of voters that differ in one (Ongaro's thesis on Raft,
//! §4.1). The outgoing one leaves when a leader that was appointed in that epoch or later has reported that the incoming one
//! has caught up: it has then all that a majority decided without it, so that each majority of the voters that stay has a
//! member with each decided entry. At each step as many voters may fail as before: where the added one cannot vote, and there
//! is no majority without it, the replacement is given up, and the former voters go on by themselves.
//!
//! Each step needs a new epoch, mostly with the same leader under a new ballot. That can wait a while: for the next epoch
//! that begins anyway, until all former ones are settled, or until the open one is as old as a lease; the new
//! epoch serves all shards that are ready by then. If the incoming voter leads meanwhile, it
//! continues to lead, and reports itself as caught up when it has prepared.
//!
//! A shard whose majority was lost, which an operator has accepted, has fewer voters than it had. A replica that was set aside is
//! replaced like a voter: there is one voter more then, up to as many as the topology has.
//!
//! A voter that leads hands over first (`appoint.rs`): no process leads from the next configuration on. Another replica is
//! appointed when a heartbeat of the node shows that it has received that configuration, or its lease has run out.

use super::command::LeadershipClaim;
use super::configuration::{AddedVoter, Assignment};
use super::ids::Incarnation;
use super::loss::LossStage;
use super::options::ManagerOptions;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, NodeState, Replacement, ShardState, StateMachine};
use crate::topology::REPLICAS_MAX;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId, ShardId, Time};

/// How far the replacement of a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum ReplacementStage {
    /// Another node is to lead the shard in the place of the one that is replaced.
    #[coded(tag = 0)]
    HandingOver,
    /// The new replica takes a copy.
    #[coded(tag = 1)]
    Copying,
    /// The new replica has a copy. It is to vote, and the former one is to leave.
    #[coded(tag = 2)]
    Promoting,
    /// The new replica has the role of the former one, which has left.
    #[coded(tag = 3)]
    Done,
}

impl StateMachine {
    pub(super) fn on_replace(
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
        if assignment.added.is_some() {
            let is_turned = shard.turn_replacement(id, outgoing, incoming)?;
            self.changed |= is_turned;
            return Ok(());
        }
        let is_short = assignment.voters.len() < self.topology.voters(id).len();
        if !(is_held || returns && is_short) {
            return Err(ChangeRefusal::HoldsNone { shard: id, node: outgoing });
        }
        let leads = assignment.leader == outgoing;
        if leads && !votes(outgoing) {
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
        if leads && others_lead {
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
        let shard = self.shards.get(shard.0 as usize)?;
        let ShardState { assignment, replacement, handover, .. } = shard;
        let asked = |it: &Replacement| (it.outgoing, it.incoming) == (outgoing, incoming);
        let adds = shard.leaving_and_staying(&self.nodes) == Some((outgoing, incoming));
        let is_under_way = adds || replacement.as_ref().is_some_and(asked);
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
        let Some(since) = assignment.catching_up().find(|it| it.node == replica) else {
            return false;
        };
        if assignment.voters.contains(&replica) && assignment.ballot.epoch <= since.after {
            return since.is_empty && shard.ready.insert(replica);
        }
        assignment.empty.remove(&replica);
        if let Some(added) = assignment.added.as_mut().filter(|added| added.node == replica) {
            added.catching_up_after = None;
        }
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

    /// Takes the next step of each replacement that is ready, and returns the leaders that need a new ballot, to be
    /// appointed in the same step.
    pub(super) fn promote_replicas(&mut self) -> Vec<(ShardId, NodeId)> {
        let mut chosen = Vec::new();
        for (id, shard) in (0..).map(ShardId).zip(&mut self.shards) {
            if !shard.is_promotable(&self.nodes, &self.options) {
                continue;
            }
            if shard.can_leave(&self.nodes) {
                shard.end_replacement(&self.nodes);
            } else if shard.can_join(&self.nodes) {
                shard.add_voter(self.epoch, &self.options);
            }
            chosen.push((id, shard.assignment.leader));
        }
        chosen
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
        let is_due = !self.ready.is_empty() || self.can_join(nodes) || self.can_leave(nodes);
        leads_on && may_lead && is_due
    }

    /// Whether the incoming replica can become a voter: it has a copy, is alive, and is with the voters that are alive and have
    /// their memory a majority of those that there are then.
    fn can_join(&self, nodes: &[NodeState]) -> bool {
        let Some(Replacement { incoming, .. }) = &self.replacement else { return false };
        let assignment = &self.assignment;
        let is_alive = |node: &NodeId| nodes[node.0 as usize].alive;
        let voting = assignment.full_voters().filter(is_alive).count() + 1;
        let voters = assignment.voters.len() + 1;
        is_alive(incoming) && !assignment.empty.contains_key(incoming) && voting > voters / 2
    }

    /// The incoming replica votes from the next epoch on.
    fn add_voter(&mut self, epoch: Epoch, options: &ManagerOptions) {
        let Some(replacement) = self.replacement.take() else { return };
        let Replacement { outgoing, incoming, added } = replacement;
        let assignment = &mut self.assignment;
        assignment.remove(incoming);
        if assignment.voters.contains(&outgoing) {
            assignment.added = Some(AddedVoter {
                node: incoming,
                in_place_of: outgoing,
                catching_up_after: (!options.faults.leave_early).then_some(epoch),
                was_learner: !added,
                is_given_up: false,
            });
        }
        assignment.voters.push(incoming);
        assignment.voting_since.insert(incoming, Epoch(epoch.0 + 1));
    }

    /// Of the two voters of a replacement the one that leaves, and the one that stays. The added one leaves where the
    /// replacement is given up, or where it cannot vote and there is no majority without it: the former voters then have one
    /// by themselves.
    fn leaving_and_staying(&self, nodes: &[NodeState]) -> Option<(NodeId, NodeId)> {
        let assignment = &self.assignment;
        let added = assignment.added.as_ref()?;
        let is_alive = |node: &NodeId| nodes[node.0 as usize].alive;
        let voting = assignment.full_voters().filter(is_alive);
        let others = voting.filter(|node| *node != added.node).count();
        let votes = is_alive(&added.node) && !assignment.empty.contains_key(&added.node);
        let is_missed = !votes && others <= assignment.voters.len() / 2;
        match added.is_given_up || is_missed {
            true => Some((added.node, added.in_place_of)),
            false => Some((added.in_place_of, added.node)),
        }
    }

    /// Whether one of the two voters of a replacement can leave: another one leads, those that stay and are alive have a
    /// majority, and the one that was added has caught up, if it is to stay.
    fn can_leave(&self, nodes: &[NodeState]) -> bool {
        let assignment = &self.assignment;
        let Some((leaving, _)) = self.leaving_and_staying(nodes) else { return false };
        let others = assignment.full_voters().filter(|node| *node != leaving);
        let voting = others.filter(|node| nodes[node.0 as usize].alive).count();
        let waits = assignment.added.is_some_and(|added| {
            let mut catching_up = assignment.catching_up();
            leaving != added.node && catching_up.any(|it| it.node == added.node)
        });
        assignment.leader != leaving && !waits && voting > (assignment.voters.len() - 1) / 2
    }

    /// The voter that leaves has left.
    fn end_replacement(&mut self, nodes: &[NodeState]) {
        let Some((leaving, _)) = self.leaving_and_staying(nodes) else { return };
        let added = self.assignment.added.take();
        self.ready.remove(&leaving);
        let becomes_learner = |added: AddedVoter| added.was_learner && added.node == leaving;
        if added.is_some_and(becomes_learner) {
            self.assignment.voters.retain(|node| *node != leaving);
            self.assignment.voting_since.remove(&leaving);
            self.assignment.learners.push(leaving);
        } else {
            self.assignment.release(leaving);
        }
    }

    /// A voter was added, and a replacement is asked for: the same goes on, the opposite one gives it up. Returns whether
    /// anything has changed.
    fn turn_replacement(
        &mut self,
        id: ShardId,
        outgoing: NodeId,
        incoming: NodeId,
    ) -> Result<bool, ChangeRefusal> {
        let Some(added) = &mut self.assignment.added else { return Ok(false) };
        let AddedVoter { node, in_place_of, .. } = *added;
        let is_given_up = match (outgoing, incoming) {
            asked if asked == (in_place_of, node) => false,
            asked if asked == (node, in_place_of) => true,
            _ => return Err(ChangeRefusal::Replacing { shard: id, node, in_place_of }),
        };
        Ok(std::mem::replace(&mut added.is_given_up, is_given_up) != is_given_up)
    }

    /// The replica that is to leave: it makes room for another leader.
    pub(super) fn outgoing(&self, nodes: &[NodeState]) -> Option<NodeId> {
        let leaving = self.leaving_and_staying(nodes).map(|(leaving, _)| leaving);
        leaving.or_else(|| self.replacement.as_ref().map(|replacement| replacement.outgoing))
    }

    /// Drops an unfinished replacement, and the learner that was added for it; a voter that was added is to leave again.
    /// Returns whether there was one.
    pub(super) fn cancel_replacement(&mut self) -> bool {
        if let Some(added) = &mut self.assignment.added {
            return !std::mem::replace(&mut added.is_given_up, true);
        }
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
        self.voting_since.remove(&node);
    }

    /// Was the node's replica set aside when the loss of the shard's majority was accepted?
    fn is_set_aside(&self, node: NodeId) -> bool {
        let loss = self.loss.as_ref().filter(|loss| loss.stage == LossStage::Over);
        loss.is_some_and(|loss| loss.void.contains_key(&node))
    }

    /// The node holds the shard no more.
    pub(super) fn release(&mut self, node: NodeId) {
        self.remove(node);
        self.left.insert(node);
    }
}
