//! The progress of each shard's recovery, as an observer of the whole cluster sees it: so that a second
//! failure can be placed within a recovery, and counted as such.

use shoal_cluster::manager::{Applied, Configuration};
use shoal_engine::WorkerPlace;
use shoal_types::{Ballot, NodeId, ShardId};

/// A step of a recovery that is done, so that the next one is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardRecoveryStage {
    /// The leader's lease has run out.
    LeaseOut,
    /// The managers have appointed another leader.
    Appointed,
    /// The new leader has learned of its appointment and prepares its streams.
    Preparing,
    /// The new leader has prepared a stream.
    Prepared,
    /// The new leader has appended the end of an epoch.
    Ended,
    /// The new leader has reported how an epoch ended.
    Reported,
    /// The ends of the epoch are final; the shard does not serve yet.
    Final,
}

#[derive(Debug, Clone, Default)]
struct ShardRecovery {
    ballot: Ballot,
    /// The last stage that was reached; `None` if no recovery is under way.
    stage: Option<ShardRecoveryStage>,
    /// How many workers serve under the ballot.
    serving: u32,
}

/// What an observation shows about the recovery of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryFact {
    /// A worker of the shard's leader has reached this stage.
    Reached(ShardId, ShardRecoveryStage),
    /// A worker serves the shard, as its leader under this ballot.
    Serves(ShardId, Ballot),
}

/// The stage of each shard's recovery.
#[derive(Debug)]
pub(crate) struct Recoveries {
    workers: u32,
    shards: Vec<ShardRecovery>,
    /// Whether a worker has reported that it serves: only engines that recover do.
    reports_serving: bool,
}

impl Recoveries {
    pub(crate) fn new(shards: u32, workers: u32) -> Recoveries {
        Recoveries {
            workers,
            shards: vec![ShardRecovery::default(); shards as usize],
            reports_serving: false,
        }
    }

    /// The managers have applied a command. Returns the stages that were reached, each with its shard's leader.
    pub(crate) fn applied(
        &mut self,
        applied: &Applied,
        truth: &Configuration,
    ) -> Vec<(ShardRecoveryStage, NodeId)> {
        let mut steps = Vec::new();
        match applied {
            Applied::Died(node) => {
                for (recovery, assignment) in self.shards.iter_mut().zip(&truth.shards) {
                    if assignment.leader == *node {
                        recovery.stage = Some(ShardRecoveryStage::LeaseOut);
                        steps.push((ShardRecoveryStage::LeaseOut, *node));
                    }
                }
            }
            Applied::Appointed { shard, ballot } => {
                let recovery = &mut self.shards[shard.0 as usize];
                let leadership = truth.shard(*shard).map(|assignment| assignment.since);
                if recovery.ballot.node == ballot.node && leadership < Some(ballot.epoch) {
                    // The leader continues under another ballot.
                    recovery.ballot = *ballot;
                    return steps;
                }
                *recovery = ShardRecovery {
                    ballot: *ballot,
                    stage: Some(ShardRecoveryStage::Appointed),
                    serving: 0,
                };
                steps.push((ShardRecoveryStage::Appointed, ballot.node));
            }
            Applied::Final(ends) => {
                for recovery in &mut self.shards {
                    let last = ends.epoch().0 + 1 >= recovery.ballot.epoch.0;
                    if last && recovery.stage >= Some(ShardRecoveryStage::Prepared) {
                        steps.extend(recovery.reach(ShardRecoveryStage::Final));
                    }
                }
            }
            Applied::Founded(_)
            | Applied::Took(_)
            | Applied::Joined { .. }
            | Applied::Revived(_)
            | Applied::Raised(_)
            | Applied::Reported { .. }
            | Applied::Ended { .. }
            | Applied::Out { .. }
            | Applied::Loss { .. }
            | Applied::CaughtUp { .. }
            | Applied::Answered { .. }
            | Applied::TableCreated { .. }
            | Applied::TableDropped { .. }
            | Applied::NodeAdded { .. }
            | Applied::NodeRemoved { .. }
            | Applied::Changed(_) => {}
        }
        steps
    }

    /// A worker has moved its stream of `shard` to this ballot.
    pub(crate) fn prepares(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
    ) -> Option<(ShardRecoveryStage, NodeId)> {
        let recovery = &mut self.shards[shard.0 as usize];
        let news =
            recovery.stage == Some(ShardRecoveryStage::Appointed) && recovery.ballot == ballot;
        if news { recovery.reach(ShardRecoveryStage::Preparing) } else { None }
    }

    /// Whether `shard` has a new leader that is not known to have begun its recovery.
    pub(crate) fn awaits(&self, shard: ShardId) -> bool {
        self.shards[shard.0 as usize].stage == Some(ShardRecoveryStage::Appointed)
    }

    /// An engine has made an observation.
    pub(crate) fn observe(
        &mut self,
        place: WorkerPlace,
        fact: RecoveryFact,
    ) -> Option<(ShardRecoveryStage, NodeId)> {
        let (shard, stage) = match fact {
            RecoveryFact::Reached(shard, stage) => (shard, stage),
            RecoveryFact::Serves(shard, ballot) => {
                self.reports_serving = true;
                let recovery = &mut self.shards[shard.0 as usize];
                if ballot > recovery.ballot {
                    // The first leaders serve without an appointment.
                    *recovery = ShardRecovery { ballot, stage: None, serving: 0 };
                }
                if ballot.node == recovery.ballot.node {
                    recovery.serving += 1;
                    if recovery.serving >= self.workers {
                        recovery.stage = None;
                    }
                }
                return None;
            }
        };
        let recovery = &mut self.shards[shard.0 as usize];
        let is_new = recovery.ballot.node == place.node && recovery.stage < Some(stage);
        if is_new && recovery.stage.is_some() { recovery.reach(stage) } else { None }
    }

    /// Whether every shard but the lost one serves under the ballot that the managers assigned last. True for
    /// engines that do not report whether they serve.
    pub(crate) fn all_serve(&self, truth: &Configuration, lost: Option<ShardId>) -> bool {
        let pairs = (0..).map(ShardId).zip(self.shards.iter().zip(&truth.shards));
        let mut pairs = pairs.filter(|(shard, _)| Some(*shard) != lost);
        !self.reports_serving
            || pairs.all(|(_, (recovery, assignment))| {
                recovery.serving >= self.workers && recovery.ballot.node == assignment.leader
            })
    }

    /// The stages of the unfinished recoveries of the shards that `node` holds.
    pub(crate) fn interrupted(
        &self,
        node: NodeId,
        truth: &Configuration,
    ) -> Vec<ShardRecoveryStage> {
        let pairs = self.shards.iter().zip(&truth.shards);
        let held = pairs.filter(|(_, assignment)| assignment.holds(node));
        held.filter_map(|(recovery, _)| recovery.stage).collect()
    }
}

impl ShardRecovery {
    fn reach(&mut self, stage: ShardRecoveryStage) -> Option<(ShardRecoveryStage, NodeId)> {
        if self.stage >= Some(stage) {
            return None;
        }
        self.stage = Some(stage);
        Some((stage, self.ballot.node))
    }
}
