//! A shard loses a majority of its voters at once, for good, until the healing, or until an operator has accepted the loss; and what
//! is required of a cluster in which a shard is lost (rules M11 and M12).

use super::{Simulation, SimulationEvent};
use crate::fault_schedule::{Isolation, LostDirection, ScheduledFault};
use crate::majority_loss::{AcceptedLoss, Fate, MajorityLoss};
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_cluster::manager::ClusterChange;
use shoal_types::{NodeId, ShardId, Time};

/// How long after it was to happen a loss is tried again, while no voter has all that is durable.
const AGAIN_NS: u64 = 5_000_000;

impl<E: Simulated> Simulation<E> {
    /// Plans the loss of a majority of a shard's voters.
    pub fn plan_loss(&mut self, loss: MajorityLoss) {
        let at = Time(self.now.0 + loss.after_ns);
        let scheduled_fault = ScheduledFault::Lose(loss.shard, loss.fate);
        self.queue.push(at, SimulationEvent::Planned { scheduled_fault, until: Time::MAX });
    }

    /// The shard that is lost for good.
    pub fn lost(&self) -> Option<ShardId> {
        self.lost
    }

    /// Fails a majority of the shard's voters at once, usually with its leader.
    pub(super) fn lose_majority(&mut self, shard: ShardId, fate: Fate) {
        let assignment = self.configuration().and_then(|truth| truth.shard(shard)).cloned();
        let Some(assignment) = assignment else { return };
        if fate == Fate::Accepted {
            return self.lose_until_accepted(shard, &assignment.voters);
        }
        let mut voters = assignment.voters;
        self.random.shuffle(&mut voters);
        if self.random.chance(2, 3) {
            voters.sort_by_key(|voter| *voter != assignment.leader);
        }
        voters.truncate(voters.len() / 2 + 1);
        self.work.majorities_lost += 1;
        let lease = self.lease().as_nanos() as u64;
        for voter in voters {
            match fate {
                Fate::Emptied => {
                    let back_at = Time(self.now.0 + 1 + self.random.below(4 * lease));
                    self.take_memory(voter, Some(back_at));
                }
                Fate::Gone => self.take_memory(voter, None),
                Fate::CutOff => {
                    self.part(voter.0 as usize, Isolation::All, LostDirection::Both, Time::MAX);
                }
                Fate::Accepted => unreachable!("see above"),
            }
        }
        if matches!(fate, Fate::Emptied | Fate::Gone) {
            self.lost = Some(shard);
            if let Some(checks) = &mut self.checks {
                checks.loses(shard);
            }
        }
    }

    /// All voters but one that has all that is durable lose power, and an operator accepts that. So nothing may be missing.
    fn lose_until_accepted(&mut self, shard: ShardId, voters: &[NodeId]) {
        let has_all = |voter: &NodeId| {
            let checks = self.checks.as_ref();
            self.cluster.is_up(*voter) && checks.is_some_and(|it| it.holds_all(shard, *voter))
        };
        let whole: Vec<NodeId> = voters.iter().copied().filter(has_all).collect();
        let Some(survivor) = self.random.pick(&whole).copied() else {
            let scheduled_fault = ScheduledFault::Lose(shard, Fate::Accepted);
            let planned = SimulationEvent::Planned { scheduled_fault, until: Time::MAX };
            return self.queue.push(Time(self.now.0 + AGAIN_NS), planned);
        };
        self.work.majorities_lost += 1;
        let down: Vec<NodeId> = voters.iter().copied().filter(|it| *it != survivor).collect();
        for voter in &down {
            if self.cluster.is_up(*voter) {
                self.end_instance(*voter, Time::MAX, false);
            }
        }
        self.accepted_loss = Some(AcceptedLoss { shard, down });
        self.plan_acceptance();
    }

    fn plan_acceptance(&mut self) {
        let lease_ns = self.lease().as_nanos() as u64;
        self.plan_request(lease_ns, SimulationEvent::AcceptLoss);
    }

    /// Whether the node is down until the loss of a majority is accepted.
    pub(super) fn stays_down(&self, node: NodeId) -> bool {
        self.accepted_loss.as_ref().is_some_and(|loss| loss.down.contains(&node))
    }

    /// Asks for the acceptance of the loss, again and again until it is over: managers refuse it while they do not know of the loss, or
    /// the survivor is down.
    pub(super) fn accept_loss(&mut self) -> Result<(), Violation> {
        let Some(AcceptedLoss { shard, .. }) = self.accepted_loss else { return Ok(()) };
        let Some(managers) = &mut self.managers else { return Ok(()) };
        let change = ClusterChange::AcceptLoss { shard, number: 1, at_s: 0 };
        let ask = managers.next_ask();
        self.ask_managers(ask, &change)?;
        self.plan_acceptance();
        Ok(())
    }

    /// The loss of a majority is over: its voters return, each with its disks.
    pub(super) fn loss_is_over(&mut self) {
        let Some(AcceptedLoss { down, .. }) = self.accepted_loss.take() else { return };
        self.work.majorities_returned += 1;
        let lease_ns = self.lease().as_nanos() as u64;
        for node in down {
            let at = Time(self.now.0 + 1 + self.random.below(2 * lease_ns));
            self.restart_at(node, at);
        }
    }

    /// A node loses its memory, even if its shards cannot bear that, and restarts at `back_at` or never.
    fn take_memory(&mut self, node: NodeId, back_at: Option<Time>) {
        self.forgetful.insert(node, false);
        let was_up = self.cluster.is_up(node);
        if was_up {
            self.end_instance(node, back_at.unwrap_or(Time::MAX), true);
        }
        match back_at {
            None => {
                self.work.gone += 1;
                self.gone.insert(node);
            }
            Some(at) if was_up => {
                let instance = self.cluster.instances[node.0 as usize];
                self.queue.push(at, SimulationEvent::Restart { node, instance, lost: true });
            }
            // The node restarts at an earlier planned time.
            Some(_) => {}
        }
    }

    /// The number of transactions that hold something open, on all workers; without a lost shard, all that
    /// are under way.
    pub fn held(&self) -> usize {
        match self.lost {
            None => self.pending(),
            Some(_) => {
                let workers = self
                    .cluster
                    .simulated_workers
                    .iter()
                    .filter_map(|simulated_worker| simulated_worker.worker.as_ref());
                workers.map(|worker| worker.engine().held()).sum()
            }
        }
    }

    /// The run has ended while a shard is lost: reports that to the checkers.
    pub fn end_without_lost(&mut self) {
        let Some(lost) = self.lost else { return };
        let ends = self.configuration().map(|truth| truth.ends.iter()).into_iter().flatten();
        let unreported = ends.filter(|(_, ends)| ends[lost.0 as usize].is_none());
        let unreported = unreported.map(|(epoch, _)| *epoch).collect();
        if let Some(checks) = &mut self.checks {
            checks.end_without(lost, unreported);
        }
    }

    /// Whether, while a shard is lost, all other shards have reported how each closed epoch ended.
    pub(super) fn others_have_ended(&self, lost: ShardId) -> bool {
        let Some(truth) = self.configuration() else { return true };
        truth.ends.values().all(|ends| {
            let mut others = (0..).map(ShardId).zip(ends).filter(|(shard, _)| *shard != lost);
            others.all(|(_, end)| end.is_some())
        })
    }
}
