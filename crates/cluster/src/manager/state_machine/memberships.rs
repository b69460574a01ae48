//! The memberships of nodes: a node is a member from when it is admitted or revived until it dies. Where the engine asks for
//! that, an epoch begins with each death and each return.
//!
//! While as many epochs are closed as may be, an epoch that is due cannot begin. A node that dies is dead all the same, since its
//! shards need other leaders. Until an epoch can begin, no node returns: its membership would have no epoch of its own.
//!
//! Where memberships have epochs, a node that is declared dead forgets what it had, even if it only was silent. A machine that
//! stands still for longer than a lease makes all nodes silent at once, and if all were declared dead, what they have would be
//! lost. So a node stays a member, though its lease has run out, while without it a shard would have no majority of voters that
//! live and have their memory; it is declared dead all the same after [`SILENCE_MAX`] leases, as after a crash of several nodes.
//! And a node that returns has no memory until leaders report that it has caught up.
//!
//! Where nodes keep their memory on disks, a process that has the memory of the former one, of a node that was not declared dead, goes
//! on as the same member: no epoch begins, and other nodes see a pause. And a node is declared dead only where other copies of all
//! data are left (`departures.rs`), however long it is silent: so no data is lost by a crash of all nodes.
//!
//! A process that is started while the lease of the former one runs is not admitted before that lease is over. The former process may
//! still run, and the epoch that would begin with the admission is the first one in which its node has other replicas.
//!
//! Invariants: a live node is a member since an epoch that has begun. With
//! [`membership_epochs`](crate::manager::ManagerOptions::membership_epochs), a node and the epoch since which it is a member
//! name one membership, and no configuration of that epoch or a later one has an earlier membership of the node.

use super::{APPOINTMENT_EPOCHS, Applied, CLOSING_MAX, JoiningProcess, NodeState, StateMachine};
use crate::manager::command::{HeartbeatRecord, LeadershipClaim};
use crate::manager::ids::{Incarnation, Revision};
use shoal_types::{Epoch, NodeId, ShardId, Time};

/// A node that a shard cannot do without is declared dead after so many leases without a heartbeat.
const SILENCE_MAX: u32 = 16;

impl StateMachine {
    /// Declares the nodes dead whose leases have run out at `at`.
    pub(super) fn declare_silent_dead(&mut self, at: Time, effects: &mut Vec<Applied>) {
        let silence = self.options.lease_at_manager() * (SILENCE_MAX - 1);
        let may_depart = !self.has_durable_members() || self.may_depart(at);
        for place in 0..self.nodes.len() {
            let (id, node) = (NodeId(place as u32), self.nodes[place]);
            let lease_end = self.lease_end(&node);
            let may_leave = match self.has_durable_members() {
                true => !self.is_last_of_majority(id, at) && may_depart,
                false => !self.is_last_of_majority(id, at) || lease_end + silence <= at,
            };
            if node.alive && lease_end <= at && may_leave {
                self.declare_dead(id, at, effects);
            }
        }
    }

    /// Whether other copies of all data are left without the nodes that are silent at `at`: that were so for half a lease. A power
    /// failure ends all leases, one soon after the other, and the first ones must not leave as if they were alone.
    fn may_depart(&self, at: Time) -> bool {
        let soon = at + self.options.lease_at_manager() / 2;
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        let silent = nodes.filter(|(_, node)| {
            let has_joined = node.incarnation > Incarnation(0);
            node.alive && has_joined && self.lease_end(node) <= soon
        });
        let any = self.options.faults.depart_with_copies;
        any || self.departures.allow(silent.map(|(id, _)| id))
    }

    /// What a node had is void from this epoch on.
    pub(in crate::manager) fn note_departure(&mut self, id: NodeId, since: Epoch) {
        if self.has_durable_members() {
            let shards = (0..self.shards.len() as u32).map(ShardId);
            self.departures.add(id, since, shards);
        }
    }

    /// Whether no data lacks copies since a node has left, as far as leaders have reported.
    #[must_use]
    pub fn has_all_copies(&self) -> bool {
        self.departures.is_empty()
    }

    /// Whether it is awaited that the data of the shard is whole.
    pub(in crate::manager) fn awaits_whole(&self, shard: ShardId) -> bool {
        self.departures.await_shard(shard)
    }

    /// A leader reports that in an epoch all data of its shard had as many copies as it is to have. Returns false if another node leads
    /// the shard.
    pub(super) fn on_whole(&mut self, claim: LeadershipClaim, epoch: Epoch) -> bool {
        let leads = self.claimed(&claim).is_some();
        if leads {
            self.departures.end(claim.shard, epoch);
        }
        leads
    }

    /// Whether a process of a node is the same member as the one before it, if it has its memory.
    fn has_durable_members(&self) -> bool {
        self.options.membership_epochs && self.options.keeps_memory
    }

    /// Whether a membership of this node ends with what a majority of some shard's voters has. With disks, a voter that is silent does not
    /// count for another one that is: it may come back without its memory.
    fn is_last_of_majority(&self, id: NodeId, at: Time) -> bool {
        if !self.options.membership_epochs {
            return false;
        }
        self.shards.iter().any(|shard| {
            let assignment = &shard.assignment;
            let is_there = |node: &NodeState| {
                node.alive && (!self.has_durable_members() || self.lease_end(node) > at)
            };
            let is_other = |node: &NodeId| *node != id && is_there(&self.nodes[node.0 as usize]);
            let others = assignment.full_voters().filter(is_other).count();
            assignment.full_voters().any(|node| node == id) && others <= assignment.voters.len() / 2
        })
    }

    /// Records a heartbeat. It revives a node that was declared dead, if its lease runs by this heartbeat, and the epoch that
    /// begins with the return can begin; else a later heartbeat does.
    pub(super) fn renew(
        &mut self,
        now: Time,
        ticked_at: Time,
        heartbeat: &HeartbeatRecord,
        effects: &mut Vec<Applied>,
    ) {
        let HeartbeatRecord { node: id, incarnation, round, at, known } = *heartbeat;
        let (lease, known) = (self.options.lease_at_manager(), known.min(self.revision));
        let (at, next_membership) = (at.min(ticked_at), self.next_membership());
        let is_removed = self.is_removed(id);
        let Some(node) = self.nodes.get_mut(id.0 as usize) else {
            self.void += 1;
            return;
        };
        let is_former = node.incarnation != incarnation || is_removed;
        if incarnation == Incarnation(0) || is_former || round < node.round {
            self.void += 1; // Of a former process, or overtaken.
            return;
        }
        let is_repeat = round == node.round;
        (node.round, node.known) = (round, node.known.max(known));
        if !node.alive && (is_repeat || at + lease <= now) {
            return; // Its lease had run out by this heartbeat's time: that revives no node.
        }
        if !node.alive {
            let Some(since) = next_membership else { return };
            (node.alive, node.since, node.is_first) = (true, since, false);
            (self.changed, self.members_changed) = (true, true);
            effects.push(Applied::Revived(id));
            let (epoch, forgets) = (self.epoch, self.options.membership_epochs);
            for shard in &mut self.shards {
                let assignment = &shard.assignment;
                if forgets && assignment.holds(id) {
                    shard.lose_memory(id, epoch);
                } else if (assignment.leader, assignment.incarnation) == (id, incarnation) {
                    // No successor was found for its shards, and it is the same incarnation: it continues to lead.
                    shard.vacant = None;
                }
            }
        }
        node.last_heartbeat = node.last_heartbeat.max(at);
    }

    /// Whether a process of a node has to wait until the lease of the former one has run out, of which the last heartbeat has arrived
    /// then: where memberships have epochs, the new one begins with an epoch of its own, in which the former process would still show
    /// what it has under its lease. A node that is dead has no lease any more.
    pub(in crate::manager) fn awaits_lease_end(
        &self,
        now: Time,
        id: NodeId,
        lost: bool,
        last_heartbeat: Time,
    ) -> bool {
        let Some(node) = self.nodes.get(id.0 as usize) else { return false };
        let has_former = node.incarnation > Incarnation(0) && node.alive;
        self.options.membership_epochs
            && !self.remains_member(node, lost)
            && has_former
            && self.lease_end(&node.with_heartbeat(last_heartbeat.min(now))) > now
    }

    /// Whether a process that is admitted is the same member as the former one of its node. That one runs no more: one process at a time
    /// uses the disks.
    fn remains_member(&self, node: &NodeState, lost: bool) -> bool {
        let has_former = node.incarnation > Incarnation(0) && node.alive;
        self.has_durable_members() && has_former && !lost
    }

    /// Admits a process of a node. Returns false if it is not to be admitted, or not yet, since the lease of the former process
    /// runs or the epoch that begins with that cannot begin: the process asks again.
    pub(super) fn on_join(
        &mut self,
        now: Time,
        id: NodeId,
        joining: JoiningProcess,
        effects: &mut Vec<Applied>,
    ) -> bool {
        let JoiningProcess { instance, after, lost, last_heartbeat } = joining;
        let Some(node) = self.nodes.get(id.0 as usize).copied() else { return false };
        let is_over = self.is_removed(id) && !self.options.faults.admit_removed;
        if node.incarnation != after || is_over {
            return false; // Another process was admitted since, or none is any more.
        }
        if self.awaits_lease_end(now, id, lost, last_heartbeat) {
            return false;
        }
        let remains = self.remains_member(&node, lost);
        // A node that joins in time, in its first process, was alive from the beginning.
        let is_new = !remains && (after > Incarnation(0) || !node.alive);
        let since = if is_new { self.next_membership() } else { Some(node.since) };
        let Some(since) = since else { return false };
        let incarnation = Incarnation(after.0 + 1);
        // The former process may act until then, if it still runs.
        let last = node.with_heartbeat(last_heartbeat.min(now));
        let lease_end = if node.alive { self.lease_end(&last) } else { now };
        let known = Revision(0);
        self.members_changed |= is_new;
        self.nodes[id.0 as usize] = NodeState {
            instance,
            incarnation,
            alive: true,
            since,
            is_first: after == Incarnation(0) || remains && node.is_first,
            last_heartbeat: now,
            round: 0,
            known,
        };
        self.changed = true;
        if lost {
            self.shards.iter_mut().for_each(|shard| _ = shard.assignment.left.remove(&id));
        }
        // What it has of its former membership is void.
        let forgets = lost || self.has_durable_members() && !remains;
        if forgets && after > Incarnation(0) && node.alive {
            self.note_departure(id, since);
        }
        // In its first process a node has no memory to lose, and holds what the topology gave it.
        if after > Incarnation(0) {
            for shard in &mut self.shards {
                shard.on_new_instance(id, incarnation, lease_end, &self.options);
                if forgets && shard.assignment.holds(id) {
                    shard.lose_memory(id, self.epoch);
                }
            }
        }
        effects.push(Applied::Joined { node: id, instance, incarnation });
        true
    }

    /// Declares a node dead, whose lease has run out by every clock.
    fn declare_dead(&mut self, id: NodeId, now: Time, effects: &mut Vec<Applied>) {
        self.nodes[id.0 as usize].alive = false;
        (self.changed, self.members_changed) = (true, true);
        if self.nodes[id.0 as usize].incarnation > Incarnation(0) {
            self.note_departure(id, Epoch(self.epoch.0 + 1));
        }
        for shard in &mut self.shards {
            if shard.assignment.leader == id && shard.vacant.is_none() {
                shard.vacant = Some(now);
            }
        }
        effects.push(Applied::Died(id));
    }

    /// The epoch since which a node is a member that is admitted, or revived, now: the next one, where that begins an epoch;
    /// `None` if that one cannot begin yet.
    fn next_membership(&self) -> Option<Epoch> {
        if !self.options.membership_epochs {
            return Some(self.epoch);
        }
        let next = self.epoch.0.checked_add(1).map(Epoch);
        next.filter(|_| self.can_begin_membership_epoch())
    }

    /// Whether an epoch can begin for a death or a return, and appointments still can after it.
    fn can_begin_membership_epoch(&self) -> bool {
        self.closing.len() + APPOINTMENT_EPOCHS < CLOSING_MAX
    }

    /// Begins an epoch for the deaths and returns of the command that is applied, unless it has begun one: `before` was open.
    /// If it cannot begin yet, it begins when a closed one is settled, or with the next appointment.
    pub(super) fn begin_membership_epoch(&mut self, before: Epoch, effects: &mut Vec<Applied>) {
        if self.epoch != before || !self.options.membership_epochs {
            self.members_changed = false;
        }
        if self.members_changed && self.can_begin_membership_epoch() {
            self.members_changed = false;
            let chosen = self.promote_replicas();
            self.raise_epoch(&chosen, effects);
        }
    }
}

impl NodeState {
    /// The node, if a heartbeat of it has arrived then.
    fn with_heartbeat(self, at: Time) -> NodeState {
        NodeState { last_heartbeat: self.last_heartbeat.max(at), ..self }
    }
}
