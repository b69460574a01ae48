//! The loss of a shard's majority, accepted by an operator (`docs/recovery.md`).
//!
//! ```text
//!  accepted           all live nodes have reported   the leader has prepared at all survivors
//!  ──► Asking ────────────────► Preparing ──────────────────────────► Over
//!   epoch E, the shard is out    epoch E+1, survivors vote            ends forced: in again with the next epoch
//! ```
//! *Asking.* The shard is out of a new epoch. Each live node stops to apply reports about the shard in the
//! epochs before it, and reports what it knows of them: up to where the shard was durable, and where it
//! ended. So the reports cover everything on which a live node has acted, or ever will.
//!
//! *Preparing.* The survivors, which are the live replicas with memory, voters and learners, become the
//! voters, under a leader of a new leadership. It prepares at all of them, since only one may hold what the
//! lost majority had decided; has their entries decided by their majority; and reports how far these go in
//! each epoch.
//!
//! *Over.* Each epoch whose end the shard lacked ends where a live node has learned that it ended; else at
//! the greater of what the survivors hold and of what a live node knew. The end is committed once, by
//! [`accept_end`](StateMachine::accept_end), and marked as forced in [`Loss::ends`]. Where it exceeds what
//! the survivors hold, transactions up to it count as committed, and their writes on this shard are missing.
//!
//! The former other replicas are *void* for the shard: they are no replicas of it any more, so their votes do
//! not count, not even if they are a majority. A node that was away meanwhile and knows more of the shard
//! than its forced ends drops its memory (`node/src/worker.rs`).

use super::appoint::Gathering;
use super::command::LeadershipClaim;
use super::epoch_end::EpochEnd;
use super::ids::Incarnation;
use super::loss::{Knowledge, Loss, LossStage, LostEnd};
use super::outage::Outage;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, NodeState, StateMachine};
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;

impl StateMachine {
    /// Checks whether the loss of the shard's majority may be accepted.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_loss(&self, id: ShardId) -> Result<(), ChangeRefusal> {
        let shard = self.shards.get(id.0 as usize).ok_or(ChangeRefusal::NoShard(id))?;
        match self.configuration().outage(id) {
            None | Some(Outage::Appointing) => Err(ChangeRefusal::HasMajority(id)),
            Some(_) if !self.options.accepts_losses => Err(ChangeRefusal::LossUnsupported(id)),
            Some(_) if self.live_replicas(shard).next().is_none() => {
                Err(ChangeRefusal::NoSurvivor(id))
            }
            Some(Outage::Waiting { .. } | Outage::Lost { .. }) => Ok(()),
        }
    }

    /// The replicas of a shard that are alive and have their memory.
    #[must_use]
    pub fn survivors(&self, id: ShardId) -> Vec<NodeId> {
        let shard = self.shards.get(id.0 as usize);
        shard.into_iter().flat_map(|shard| self.live_replicas(shard)).collect()
    }

    /// An operator accepts the loss: the shard is out of a new epoch, and nodes are asked for their knowledge
    /// of it.
    pub(super) fn on_accept_loss(
        &mut self,
        id: ShardId,
        number: u64,
        at_s: u64,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        let at = id.0 as usize;
        let shard = self.shards.get(at).ok_or(ChangeRefusal::NoShard(id))?;
        if shard.assignment.loss.as_ref().is_some_and(|loss| loss.number == number) {
            return Ok(());
        }
        self.check_loss(id)?;
        let before = self.shards[at].assignment.loss.take();
        let loss = Loss {
            number,
            at_s,
            stage: LossStage::Asking,
            begun: Epoch(self.epoch.0 + 1),
            reported: BTreeMap::new(),
            void: before.as_ref().map(|before| before.void.clone()).unwrap_or_default(),
            calls_before: before.as_ref().map(|before| before.calls_before).unwrap_or_default(),
            ends: BTreeMap::new(),
        };
        self.shards[at].assignment.loss = Some(loss);
        self.shards[at].cancel_replacement();
        let chosen = self.promote_replicas();
        self.raise_epoch(&chosen, effects);
        // Earlier forced ends are kept, and so are reports about epochs that still lack their end.
        let mut ends = before.map(|before| before.ends).unwrap_or_default();
        let lacks = |epoch: &Epoch| self.closing.get(epoch).is_some_and(|ends| ends[at].is_none());
        ends.retain(|epoch, lost| lost.end.is_some() || lacks(epoch));
        for (epoch, _) in self.closing.iter().filter(|(_, ends)| ends[at].is_none()) {
            ends.entry(*epoch).or_default();
        }
        let loss = self.shards[at].assignment.loss.as_mut().expect("it was just accepted");
        loss.ends = ends;
        effects.push(Applied::Loss { shard: id, loss: loss.clone() });
        Ok(())
    }

    /// Whether this incarnation of a node still has to report what it knows of a shard, for the loss with
    /// which this epoch began.
    pub(super) fn asks(
        &self,
        shard: ShardId,
        begun: Epoch,
        node: NodeId,
        incarnation: Incarnation,
    ) -> bool {
        let is_newest = self.node(node).is_some_and(|(_, newest)| newest == incarnation);
        let shard = self.shards.get(shard.0 as usize);
        let loss = shard.and_then(|shard| shard.assignment.loss.as_ref());
        let is_asked = |loss: &Loss| {
            let asks = loss.stage == LossStage::Asking && loss.begun == begun;
            asks && !loss.has_reported(node, incarnation)
        };
        is_newest && loss.is_some_and(is_asked)
    }

    /// A node reports what it knows of a shard whose majority is lost. Returns false if no such report is
    /// expected.
    pub(super) fn on_known(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        shard: ShardId,
        begun: Epoch,
        knowledge: &Knowledge,
    ) -> bool {
        if !self.asks(shard, begun, node, incarnation) {
            return false;
        }
        let Some(loss) = self.loss_mut(shard) else { return false };
        loss.learn(knowledge);
        loss.reported.insert(node, incarnation);
        self.changed = true;
        true
    }

    fn loss_mut(&mut self, shard: ShardId) -> Option<&mut Loss> {
        self.shards.get_mut(shard.0 as usize)?.assignment.loss.as_mut()
    }

    /// Whether the loss of this shard is accepted and its ends are not forced yet.
    pub(super) fn is_losing(&self, at: usize) -> bool {
        let loss = self.shards[at].assignment.loss.as_ref();
        loss.is_some_and(|loss| loss.stage != LossStage::Over)
    }

    /// Whether the survivors of this shard can become its voters: all live nodes have reported what they
    /// know, and the leader is one of the survivors, or its lease has run out.
    fn is_restorable(&self, at: usize, now: Time) -> bool {
        let shard = &self.shards[at];
        let Some(loss) = &shard.assignment.loss else { return false };
        let has_reported = |(id, node): (NodeId, &NodeState)| {
            let asked = node.alive && node.incarnation > Incarnation(0);
            !asked || loss.has_reported(id, node.incarnation)
        };
        let mut nodes = (0..).map(NodeId).zip(&self.nodes);
        let leader = shard.assignment.leader;
        loss.stage == LossStage::Asking
            && nodes.all(has_reported)
            && self.live_replicas(shard).next().is_some()
            && match shard.vacant {
                Some(until) => until <= now,
                None => self.live_replicas(shard).any(|node| node == leader),
            }
    }

    /// Whether the survivors of a shard can become its voters.
    pub(super) fn is_restore_due(&self, now: Time) -> bool {
        (0..self.shards.len()).any(|at| self.is_restorable(at, now))
    }

    /// Makes the survivors of such shards their voters.
    pub(super) fn restore_shards(&mut self, now: Time, effects: &mut Vec<Applied>) {
        for at in 0..self.shards.len() {
            if self.is_restorable(at, now) {
                self.restore(at, now, effects);
            }
        }
    }

    fn restore(&mut self, at: usize, now: Time, effects: &mut Vec<Applied>) {
        let (id, shard) = (ShardId(at as u32), &self.shards[at]);
        let survivors = self.survivors(id);
        let leader = match shard.vacant {
            Some(_) => {
                let (gathering, load): (Gathering, _) = (self.gathering(now, &[id]), self.load());
                // All survivors vote from now on, so each of them may lead.
                self.choose(now, id, self.live_replicas(shard), &gathering, &load)
            }
            None => shard.assignment.leader,
        };
        let former: Vec<NodeId> = shard.assignment.holders().collect();
        let aside = former.into_iter().filter(|node| !survivors.contains(node));
        let void: Vec<_> =
            aside.map(|node| (node, self.nodes[node.0 as usize].incarnation)).collect();
        let shard = &mut self.shards[at];
        shard.ready.clear();
        let assignment = &mut shard.assignment;
        if !self.options.faults.count_void_voters {
            assignment.voting_since.retain(|node, _| survivors.contains(node));
            assignment.voters = survivors;
            assignment.learners.clear();
            assignment.empty.clear();
            assignment.added = None;
            assignment.left.extend(void.iter().map(|(node, _)| *node));
        }
        let loss = assignment.loss.as_mut().expect("it is accepted");
        loss.void.extend(void);
        loss.stage = LossStage::Preparing;
        let mut chosen = self.promote_replicas();
        chosen.retain(|(other, _)| *other != id);
        chosen.push((id, leader));
        self.raise_epoch(&chosen, effects);
        // Nothing in progress on the leader continues: it prepares like any new leader.
        let epoch = self.epoch;
        let assignment = &mut self.shards[at].assignment;
        assignment.since = epoch;
        let loss = assignment.loss.as_mut().expect("it is accepted");
        loss.calls_before = epoch;
        effects.push(Applied::Loss { shard: id, loss: loss.clone() });
    }

    /// The leader of the survivors has prepared at all of them, and reports up to where they hold the epochs
    /// that lack their end: these end.
    pub(super) fn on_held(
        &mut self,
        claim: LeadershipClaim,
        held: &BTreeMap<Epoch, EpochEnd>,
        effects: &mut Vec<Applied>,
    ) -> bool {
        let (id, at) = (claim.shard, claim.shard.0 as usize);
        let ignores_known = self.options.faults.force_below_known;
        if self.claimed(&claim).is_none() {
            return false;
        }
        let lacking: Vec<Epoch> =
            self.closing.iter().filter(|(_, ends)| ends[at].is_none()).map(|(it, _)| *it).collect();
        let behind = self.survivors_behind(at, held);
        let Some(loss) = self.loss_mut(id) else { return false };
        // A late report of a former leader is as valid.
        loss.ends.retain(|epoch, lost| lost.end.is_some() || lacking.contains(epoch));
        let all = lacking.iter().all(|epoch| held.contains_key(epoch));
        if loss.stage != LossStage::Preparing || !all {
            return false;
        }
        loss.ends.extend(behind);
        let mut ends = Vec::new();
        for (epoch, lost) in loss.ends.iter_mut().filter(|(_, lost)| lost.end.is_none()) {
            let (held, known) = (held[epoch].clone(), lost.known.clone());
            let forced = if ignores_known { held.clone() } else { held.clone().max(known.clone()) };
            let end = if lost.has_ended { known } else { forced };
            (lost.held, lost.end) = (Some(held), Some(end.clone()));
            ends.push((*epoch, end));
        }
        loss.stage = LossStage::Over;
        effects.push(Applied::Loss { shard: id, loss: loss.clone() });
        for (epoch, end) in ends {
            self.accept_end(id, epoch, &end, effects);
        }
        self.changed = true;
        true
    }

    /// The first epoch that this shard had ended of which its survivors hold no end, and up to where they
    /// hold it. In an epoch in which the shard was out there is nothing to hold.
    fn survivors_behind(
        &self,
        at: usize,
        held: &BTreeMap<Epoch, EpochEnd>,
    ) -> Option<(Epoch, LostEnd)> {
        let assignment = &self.shards[at].assignment;
        let out = assignment.out.unwrap_or(self.epoch);
        let is_forced = |epoch: &Epoch| {
            let lost = assignment.loss.as_ref().and_then(|loss| loss.ends.get(epoch));
            lost.is_some_and(|lost| lost.end.is_some())
        };
        let has_ended = |epoch: Epoch| match self.closing.get(&epoch) {
            Some(ends) => ends[at].clone(),
            None => {
                self.configuration().last(epoch).map(|last| last.of(ShardId(at as u32)).clone())
            }
        };
        let asked = held
            .iter()
            .filter(|(epoch, _)| **epoch < out && **epoch > self.forgotten && !is_forced(epoch));
        let mut ended =
            asked.filter_map(|(epoch, held)| Some((*epoch, held.clone(), has_ended(*epoch)?)));
        let (epoch, held, end) = ended.find(|(_, held, end)| held < end)?;
        let lost =
            LostEnd { known: end.clone(), has_ended: true, held: Some(held), end: Some(end) };
        Some((epoch, lost))
    }
}
