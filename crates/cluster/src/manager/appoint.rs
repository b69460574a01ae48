//! Vacant shards get leaders, and an epoch ends with each round of appointments.
//!
//! The candidates, best first: a learner in the dead leader's datacenter, since it keeps the leaders together
//! and has the data (Mako §6.3), if the engine lets learners lead; then a replica in the datacenter where most leaders are, or
//! can be. Leaders exchange messages in every transaction, so all should move to the same place if one fails.

use super::ids::Incarnation;
use super::options::LeaderCandidates;
use super::state_machine::{Applied, CLOSING_MAX, NodeState, ShardState, StateMachine};
use shoal_types::{Ballot, DatacenterId, Epoch, NodeId, ShardId, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The number of shards that are led from each datacenter, or could be.
pub(super) type Gathering = BTreeMap<DatacenterId, usize>;

impl StateMachine {
    /// Whether a shard has no leader, and can have one, now or later.
    pub(super) fn is_vacancy_waiting(&self) -> bool {
        let can_be_led = |shard: &ShardState| self.candidates(shard).next().is_some();
        let mut vacant = self.shards.iter().filter(|shard| shard.vacant.is_some());
        self.closing.len() < CLOSING_MAX && vacant.any(can_be_led)
    }

    /// Shards that have waited long enough, and that some node can lead.
    fn due(&self, now: Time) -> impl Iterator<Item = ShardId> + '_ {
        // Leaders that went together get their successors together, in one epoch; their last heartbeats came
        // within the time between two, and by the next tick the log knows.
        let patience = self.options.heartbeat_every + self.options.tick_every;
        let others = self.is_leader_dying(now, now + patience);
        let waited = move |until: Time| if others { until + patience } else { until };
        let possible = self.closing.len() < CLOSING_MAX;
        self.shards
            .iter()
            .zip((0..).map(ShardId))
            .filter(move |_| possible)
            .filter(move |(shard, _)| shard.vacant.is_some_and(|until| waited(until) <= now))
            .filter(|(shard, _)| self.candidates(shard).next().is_some())
            .map(|(_, id)| id)
    }

    /// Whether a leader has sent no heartbeat lately, and its lease ends by then.
    fn is_leader_dying(&self, now: Time, by: Time) -> bool {
        let led = self.shards.iter().filter(|shard| shard.vacant.is_none());
        let mut leaders = led.map(|shard| shard.assignment.leader);
        leaders.any(|leader| {
            let node = &self.nodes[leader.0 as usize];
            node.alive && !self.is_fresh(leader, now) && self.lease_end(node) <= by
        })
    }

    /// Appoints a leader to each shard that can have one, all in one new epoch.
    pub(super) fn appoint_leaders(&mut self, now: Time, effects: &mut Vec<Applied>) {
        let due: Vec<ShardId> = self.due(now).collect();
        if due.is_empty() {
            return;
        }
        let gathering = self.gathering(now, &due);
        let mut chosen = Vec::with_capacity(due.len());
        let mut load = self.load();
        for id in due {
            let candidates = self.candidates(&self.shards[id.0 as usize]);
            let leader = self.choose(now, id, candidates, &gathering, &load);
            load[leader.0 as usize] += 1;
            chosen.push((id, leader));
        }
        // Replicas that wait for a new epoch change their roles in it.
        chosen.extend(self.promote_replicas());
        self.raise_epoch(&chosen, effects);
    }

    /// The nodes that may be appointed to lead the shard: those of its [survivors](Self::live_replicas) that the engine lets
    /// lead.
    pub(super) fn candidates<'a>(
        &'a self,
        shard: &'a ShardState,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let (appoints_all, lets) =
            (self.options.faults.appoint_learner, self.options.leader_candidates);
        let may_lead = move |node: &NodeId| appoints_all || lets.may_lead(&shard.assignment, *node);
        self.live_replicas(shard).filter(may_lead)
    }

    /// The nodes that hold the shard, are alive, and have their memory.
    pub(super) fn live_replicas<'a>(
        &'a self,
        shard: &'a ShardState,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let assignment = &shard.assignment;
        let is_whole = move |node: &NodeId| {
            let NodeState { alive, incarnation, .. } = self.nodes[node.0 as usize];
            let joined = incarnation.0 > 0;
            let full = !assignment.empty.contains_key(node) || self.options.faults.appoint_empty;
            alive && joined && full
        };
        assignment.holders().filter(is_whole)
    }

    /// The leader of this shard is to make room for another node: from the next configuration on it leads no more, though it
    /// lives. A grant counts only on a node that has the configuration at which it was given, so this one acts as the
    /// leader no longer than until it has that configuration, or until its lease has run out.
    pub(super) fn begin_handover(&mut self, id: ShardId) {
        let revision = self.next_revision();
        let shard = &mut self.shards[id.0 as usize];
        if shard.vacant.is_none() && shard.handover.is_none() {
            shard.assignment.incarnation = Incarnation(0);
            shard.handover = Some(revision);
            shard.ready.clear();
            self.changed = true;
        }
    }

    /// Leaders that are to be replaced, or that the engine does not let lead any more, hand over as soon as another node can
    /// lead that has sent a heartbeat lately: also one that leads again since no other could when it had handed over.
    pub(super) fn begin_handovers(&mut self, now: Time) {
        let can_begin = |shard: &ShardState| {
            let leader = shard.assignment.leader;
            let is_replaced = shard.outgoing(&self.nodes) == Some(leader);
            let stays = self.options.leader_candidates.may_lead(&shard.assignment, leader);
            let mut others = self.candidates(shard).filter(|node| *node != leader);
            (is_replaced || !stays) && others.any(|node| self.is_fresh(node, now))
        };
        let shards = (0..).map(ShardId).zip(&self.shards);
        let due: Vec<_> = shards.filter(|(_, shard)| can_begin(shard)).map(|(id, _)| id).collect();
        due.into_iter().for_each(|id| self.begin_handover(id));
    }

    /// Shards whose leaders have made room can get others.
    pub(super) fn hand_over(&mut self, now: Time) {
        for shard in &mut self.shards {
            let known = self.nodes[shard.assignment.leader.0 as usize].known;
            if shard.vacant.is_none() && shard.handover.is_some_and(|revision| revision <= known) {
                shard.vacant = Some(now);
            }
        }
    }

    /// Whether a heartbeat of the node has arrived lately.
    fn is_fresh(&self, node: NodeId, now: Time) -> bool {
        now - self.nodes[node.0 as usize].last_heartbeat <= self.options.suspect_after
    }

    fn datacenter(&self, node: NodeId) -> DatacenterId {
        self.topology.nodes()[node.0 as usize].datacenter
    }

    /// For each datacenter, the shards that are led from there, or could be after these appointments.
    pub(super) fn gathering(&self, now: Time, due: &[ShardId]) -> Gathering {
        let mut gathering = Gathering::new();
        for shard in self.shards.iter().filter(|shard| shard.vacant.is_none()) {
            *gathering.entry(self.datacenter(shard.assignment.leader)).or_default() += 1;
        }
        for id in due {
            let fresh = self
                .candidates(&self.shards[id.0 as usize])
                .filter(|node| self.is_fresh(*node, now));
            let mut places: Vec<_> = fresh.map(|node| self.datacenter(node)).collect();
            places.sort_unstable();
            places.dedup();
            for place in places {
                *gathering.entry(place).or_default() += 1;
            }
        }
        gathering
    }

    /// For each node, the number of shards that it leads.
    pub(super) fn load(&self) -> Vec<usize> {
        let mut load = vec![0; self.nodes.len()];
        for shard in self.shards.iter().filter(|shard| shard.vacant.is_none()) {
            load[shard.assignment.leader.0 as usize] += 1;
        }
        load
    }

    /// The best of the candidates to lead this shard.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn choose(
        &self,
        now: Time,
        id: ShardId,
        candidates: impl Iterator<Item = NodeId>,
        gathering: &Gathering,
        load: &[usize],
    ) -> NodeId {
        let shard = &self.shards[id.0 as usize];
        let home = self.datacenter(shard.assignment.leader);
        let outgoing = shard.outgoing(&self.nodes);
        // A leader that hands over leads again only if no other node can.
        let former = shard.handover.map(|_| shard.assignment.leader);
        let prefers_learners = self.options.leader_candidates == LeaderCandidates::LearnersFirst;
        let merit = |node: &NodeId| {
            let place = self.datacenter(*node);
            let votes = shard.assignment.voters.contains(node);
            let learner_at_home = prefers_learners && place == home && !votes;
            let gathered = gathering.get(&place).copied().unwrap_or_default();
            let stays = outgoing != Some(*node) && former != Some(*node);
            let likely = (self.is_fresh(*node, now), stays);
            let alone = Reverse(load[node.0 as usize]);
            (likely, learner_at_home, gathered, votes, alone, Reverse(*node))
        };
        candidates.max_by_key(merit).expect("appointments are for shards that can be led")
    }

    /// Closes the epoch and begins the next, with these appointments.
    pub(super) fn raise_epoch(&mut self, chosen: &[(ShardId, NodeId)], effects: &mut Vec<Applied>) {
        let closed = self.epoch;
        self.close_epoch();
        self.epoch = Epoch(self.epoch.0.checked_add(1).expect("an epoch a second lasts a century"));
        (self.changed, self.began) = (true, self.now);
        effects.push(Applied::Raised(self.epoch));
        self.list_out(effects);
        self.settle(closed, effects); // All shards may have been out.
        for (id, leader) in chosen {
            let ballot = Ballot { epoch: self.epoch, node: *leader };
            assert!(
                self.options
                    .leader_candidates
                    .may_lead(&self.shards[id.0 as usize].assignment, *leader),
                "{leader} leads {id}, and the engine does not let it: {self:?}"
            );
            let shard = &mut self.shards[id.0 as usize];
            let instance = self.nodes[leader.0 as usize].incarnation;
            if (shard.assignment.leader, shard.assignment.incarnation) != (*leader, instance) {
                shard.assignment.since = self.epoch;
            }
            shard.assignment.leader = *leader;
            shard.assignment.incarnation = instance;
            shard.assignment.ballot = ballot;
            (shard.vacant, shard.handover) = (None, None);
            shard.ready.clear();
            if self.options.faults.erase_ends {
                self.closing.values_mut().for_each(|ends| ends[id.0 as usize] = None);
            }
            effects.push(Applied::Appointed { shard: *id, ballot });
        }
    }
}
