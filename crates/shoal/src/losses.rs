//! The loss of a shard's majority, as an operator accepts it: shows what may be lost before, and what is missing after
//! it.

use crate::ask;
use crate::operator::{ChangeError, Operator, Stage, name, refused, unexpected};
use crate::terminal::listed;
use serde::Serialize;
use shoal_cluster::manager::{EpochEnd, Loss, LossStage};
use shoal_cluster::topology::Topology;
use shoal_server::{FromOperator, NodeStatus, ToOperator};
use shoal_types::{NodeId, ShardId};
use shoal_workloads::report::words;
use std::collections::BTreeMap;

/// Accepts the loss of a shard's majority.
#[derive(Debug)]
pub struct Acceptance {
    /// The access to the managers of the cluster.
    pub operator: Operator,
    /// The shard whose majority is lost.
    pub shard: ShardId,
}

/// What is left of a shard, and what may be missing: shown before anything is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LossSurvey {
    shard: String,
    /// The nodes whose replicas become the voters.
    survivors: Vec<String>,
    /// The nodes whose replicas are set aside.
    aside: Vec<String>,
    /// Nodes that do not answer: what they know of the shard counts no more.
    silent: Vec<String>,
    gaps: Vec<EpochGap>,
}

/// What live nodes know of an epoch, and survivors do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EpochGap {
    epoch: u32,
    /// The clock up to which the survivors hold all of the epoch.
    held: u64,
    /// The clock up to which some node knows it to be durable; the greatest of all where the shard had ended the
    /// epoch.
    durable: u64,
}

/// The result of an accepted loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedLoss {
    shard: String,
    voters: Vec<String>,
    aside: Vec<String>,
    gaps: Vec<EpochGap>,
}

impl Acceptance {
    /// What is left, and what may be missing.
    ///
    /// # Errors
    /// Why the loss may not be accepted, or why that is not known.
    pub async fn survey(&self) -> Result<LossSurvey, ChangeError> {
        let topology = self.topology().await?;
        let wanted = FromOperator::CheckLoss { shard: self.shard };
        let reply = self.operator.settle(&topology, &wanted, |_| {}, stage_of(&topology)).await?;
        let ToOperator::MayLose { survivors, aside, silent } = reply else {
            return Err(unexpected());
        };
        let mut workers = Vec::new();
        for node in topology.members() {
            let Some(address) = &node.address else { continue };
            for worker in 0..topology.workers() {
                workers.extend(ask::status(address, &self.operator.access, worker).await);
            }
        }
        let names = |nodes: &[NodeId]| nodes.iter().map(|node| name(&topology, *node)).collect();
        Ok(LossSurvey {
            shard: format!("S{}", self.shard.0),
            survivors: names(&survivors),
            aside: names(&aside),
            silent: names(&silent),
            gaps: gaps(self.shard, &survivors, &workers),
        })
    }

    /// Accepts the loss, as the request with this number, and reports the progress.
    ///
    /// # Errors
    /// Why it is not done, or not for certain.
    pub async fn accept(
        &self,
        number: u64,
        at_s: u64,
        say: impl FnMut(&str),
    ) -> Result<AcceptedLoss, ChangeError> {
        let topology = self.topology().await?;
        let wanted = FromOperator::AcceptLoss { shard: self.shard, number, at_s };
        let reply = self.operator.settle(&topology, &wanted, say, stage_of(&topology)).await?;
        let ToOperator::Lost(loss) = reply else { return Err(unexpected()) };
        let gap = |(epoch, lost): (&shoal_types::Epoch, &shoal_cluster::manager::LostEnd)| {
            let (held, end) = (lost.held.as_ref()?, lost.end.as_ref()?);
            let number = |end: &EpochEnd| end.number().unwrap_or_default();
            (end > held).then(|| EpochGap {
                epoch: epoch.0,
                held: number(held),
                durable: number(end),
            })
        };
        let report = self.operator.report().await?;
        let voters = report.voters(self.shard.0);
        Ok(AcceptedLoss {
            shard: format!("S{}", self.shard.0),
            voters: voters.into_iter().map(|node| name(&topology, NodeId(node))).collect(),
            aside: loss.void.keys().map(|node| name(&topology, *node)).collect(),
            gaps: loss.ends.iter().filter_map(gap).collect(),
        })
    }

    async fn topology(&self) -> Result<Topology, ChangeError> {
        let topology = self.operator.topology().await?;
        let shards = topology.shards();
        if self.shard.0 >= shards {
            let known: Vec<String> = (0..shards).map(|shard| format!("S{shard}")).collect();
            let (wrong, known) = (self.shard.0, known.join(", "));
            return Err(ChangeError::Cannot(format!(
                "there is no shard S{wrong}; name one of {known}"
            )));
        }
        Ok(topology)
    }
}

/// How far an accepted loss is.
fn stage_of(topology: &Topology) -> impl Fn(ToOperator) -> Result<Stage, ChangeError> + '_ {
    |reply| {
        Ok(Stage::GoesOn(match &reply {
            ToOperator::UnderWay(_) => "the managers write the loss into their log".to_owned(),
            ToOperator::Lost(Loss { stage: LossStage::Asking, reported, .. }) => {
                let reported: Vec<_> = reported.keys().map(|node| name(topology, *node)).collect();
                let reported = listed(&reported);
                format!("live nodes report what they know of the shard; so far {reported}")
            }
            ToOperator::Lost(Loss { stage: LossStage::Preparing, .. }) => {
                "the survivors are prepared, all of them".to_owned()
            }
            ToOperator::Refused(why) => return Err(refused(topology, why)),
            _ => return Ok(Stage::Over(reply)),
        }))
    }
}

/// What any node knows to be durable, and no survivor has: of each stream the best survivor counts, and of a shard its
/// worst stream.
fn gaps(shard: ShardId, survivors: &[NodeId], workers: &[NodeStatus]) -> Vec<EpochGap> {
    let mut durable: BTreeMap<u32, u64> = BTreeMap::new();
    let mut held: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for status in workers {
        let of_shard = status.shards.iter().find(|it| it.shard == shard.0);
        for lacking in of_shard.into_iter().flat_map(|it| &it.lacking) {
            let known = durable.entry(lacking.epoch).or_default();
            *known = lacking.durable.max(*known);
            if let Some(clock) = lacking.held.filter(|_| survivors.contains(&NodeId(status.node))) {
                let best = held.entry((lacking.epoch, status.worker)).or_default();
                *best = clock.max(*best);
            }
        }
    }
    let gap = |(epoch, durable): (u32, u64)| {
        let streams = held.range((epoch, 0)..=(epoch, u32::MAX)).map(|(_, clock)| *clock);
        let held = streams.min().unwrap_or_default();
        (durable > held).then_some(EpochGap { epoch, held, durable })
    };
    durable.into_iter().filter_map(gap).collect()
}

impl LossSurvey {
    /// What the operator has to know before confirming it.
    pub fn text(&self) -> String {
        let LossSurvey { shard, survivors, aside, silent, gaps } = self;
        let mut text = format!(
            "If {shard} has lost its majority for good, it goes on with what {} has in memory.\n\
             - The replicas on {} are set aside: what only they have is lost, even if they come back.\n\
             - Transactions of {shard} that were acknowledged and reached none of these survivors are lost.\n\
             - Calls on {shard} that were not answered yet may stay unknown for ever.\n",
            listed(survivors),
            listed(aside),
        );
        if !silent.is_empty() {
            text += &format!(
                "- {} does not answer: what it knows of {shard} does not count, and if it knows more than the others, it \
                 has to begin anew without memory.\n",
                listed(silent)
            );
        }
        for gap in gaps {
            text += &format!(
                "- TORN: in epoch e{} other nodes have seen {shard} durable up to clock {}, and survivors are known to \
                 have it up to {}: transactions between count as committed, and what they wrote on {shard} may be missing.\n",
                gap.epoch,
                words::count(gap.durable),
                words::count(gap.held)
            );
        }
        text
    }
}

impl AcceptedLoss {
    /// The result, and what is missing.
    pub fn text(&self) -> String {
        let AcceptedLoss { shard, voters, aside, gaps } = self;
        let mut text = format!(
            "{shard} goes on: its voters are {}; {} set aside.\n",
            listed(voters),
            if aside.len() == 1 {
                format!("{} is", aside[0])
            } else {
                format!("{} are", listed(aside))
            },
        );
        for gap in gaps {
            text += &match gap.durable {
                u64::MAX => format!(
                    "TORN: {shard} had ended epoch e{}, and the survivors lack its end: all after clock {} may be missing, \
                     also of later epochs.\n",
                    gap.epoch,
                    words::count(gap.held)
                ),
                durable => format!(
                    "Missing in epoch e{}: clocks {} to {}.\n",
                    gap.epoch,
                    words::count(gap.held + 1),
                    words::count(durable)
                ),
            };
        }
        if gaps.is_empty() {
            text += "Nothing is missing that a live node knew to be durable.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_server::{LackingStatus, ShardStatus};

    fn worker(node: u32, worker: u32, durable: u64, held: Option<u64>) -> NodeStatus {
        let lacking = vec![LackingStatus { epoch: 3, durable, held }];
        let shards = vec![ShardStatus { lacking, ..ShardStatus::default() }];
        NodeStatus { node, worker, shards, ..NodeStatus::default() }
    }

    #[test]
    fn what_no_survivor_has_is_torn() {
        let gaps = |known| {
            let workers = [
                worker(0, 0, 5, Some(10)),
                worker(0, 1, 5, Some(7)),
                worker(1, 1, 5, Some(8)),
                // Another shard's node, and a replica that is set aside.
                worker(4, 0, known, None),
                worker(2, 1, 5, Some(99)),
            ];
            gaps(ShardId(0), &[NodeId(0), NodeId(1)], &workers)
        };
        assert_eq!(gaps(8), []);
        assert_eq!(gaps(9), [EpochGap { epoch: 3, held: 8, durable: 9 }]);
    }
}
