//! How far the recovery of each shard is, as an observer of the whole cluster knows: so that the next
//! failure can be put right into it, and so that it is known that this was done.

use shoal_cluster::manager::{Applied, Configuration};
use shoal_engine::WorkerPlace;
use shoal_types::{Ballot, NodeId, ShardId};

/// A step of a recovery that is done, so that the next one is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardRecoveryStage {
    /// The leader's lease has run out.
    LeaseOut,
    /// Another is appointed.
    Appointed,
    /// It knows, and prepares its streams.
    Preparing,
    /// A stream is prepared.
    Prepared,
    /// The end of an epoch is appended.
    Ended,
    /// How an epoch ended is reported.
    Reported,
    /// The final vector watermark is known; the shard does not serve yet.
    Final,
}

/// The recovery of a shard.
#[derive(Debug, Clone, Default)]
struct ShardRecovery {
    ballot: Ballot,
    /// `None` where all is well.
    stage: Option<ShardRecoveryStage>,
    /// How many workers serve under the ballot.
    serving: u32,
}

/// What an engine lets be seen of the recovery of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryFact {
    /// A worker of its leader has come so far.
    Reached(ShardId, ShardRecoveryStage),
    /// A worker serves the shard, as its leader under this ballot.
    Serves(ShardId, Ballot),
}

/// In which step of its recovery each shard is, so that failures can strike there.
#[derive(Debug)]
pub(crate) struct Recoveries {
    workers: u32,
    shards: Vec<ShardRecovery>,
    /// A worker has said that it serves: engines that recover do.
    speaks: bool,
}

impl Recoveries {
    pub(crate) fn new(shards: u32, workers: u32) -> Recoveries {
        Recoveries {
            workers,
            shards: vec![ShardRecovery::default(); shards as usize],
            speaks: false,
        }
    }

    /// The managers have done something. Returns who leads what has come a step further.
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
                    // It leads on, under another ballot.
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
            Applied::Final(watermark) => {
                for recovery in &mut self.shards {
                    let last = watermark.epoch().0 + 1 >= recovery.ballot.epoch.0;
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
            | Applied::Changed(_) => {}
        }
        steps
    }

    /// A worker's stream of `shard` goes by this ballot.
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

    /// Is it known that `shard` waits for its leader to begin?
    pub(crate) fn awaits(&self, shard: ShardId) -> bool {
        self.shards[shard.0 as usize].stage == Some(ShardRecoveryStage::Appointed)
    }

    /// An engine has done something.
    pub(crate) fn observe(
        &mut self,
        place: WorkerPlace,
        fact: RecoveryFact,
    ) -> Option<(ShardRecoveryStage, NodeId)> {
        let (shard, stage) = match fact {
            RecoveryFact::Reached(shard, stage) => (shard, stage),
            RecoveryFact::Serves(shard, ballot) => {
                self.speaks = true;
                let recovery = &mut self.shards[shard.0 as usize];
                if ballot > recovery.ballot {
                    // The first leaders were not appointed.
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

    /// Does every shard but the lost one serve under the ballot that the managers have given out last? Where engines do
    /// not say whether they serve, it is not known, and so they do.
    pub(crate) fn all_serve(&self, truth: &Configuration, lost: Option<ShardId>) -> bool {
        let pairs = (0..).map(ShardId).zip(self.shards.iter().zip(&truth.shards));
        let mut pairs = pairs.filter(|(shard, _)| Some(*shard) != lost);
        !self.speaks
            || pairs.all(|(_, (recovery, assignment))| {
                recovery.serving >= self.workers && recovery.ballot.node == assignment.leader
            })
    }

    /// How far those are that are not done and that `node` has to do with: the shards it holds.
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
