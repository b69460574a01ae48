//! The loss of a shard's majority, as an operator accepts it: shows what may be lost before, and what is missing after
//! it.

use crate::ask::{self, Unanswered};
use crate::clock::now;
use crate::managers::ChangeError;
use crate::report::StatusReport;
use crate::terminal::listed;
use serde::Serialize;
use shoal_cluster::manager::{EpochEnd, Loss, LossStage};
use shoal_cluster::topology::Topology;
use shoal_net::CloseReason;
use shoal_net::client::Access;
use shoal_server::{FromOperator, NodeStatus, ToOperator};
use shoal_types::{NodeId, ShardId};
use shoal_workloads::report::words;
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval between two requests.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Accepts the loss of a shard's majority.
#[derive(Debug)]
pub struct Acceptance {
    /// Where nodes are.
    pub addresses: Vec<String>,
    /// What lets clients in.
    pub access: Access,
    /// What lets operators in.
    pub operator: Access,
    /// The shard whose majority is lost.
    pub shard: ShardId,
    /// How long it may take.
    pub within: Duration,
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
        let reply = self.settle(&topology, wanted, |_| {}, Some).await?;
        let ToOperator::MayLose { survivors, aside, silent } = reply else {
            return Err(ChangeError::Refused("the managers sent an unexpected reply".to_owned()));
        };
        let mut workers = Vec::new();
        for node in topology.nodes() {
            let Some(address) = &node.address else { continue };
            for worker in 0..topology.workers() {
                workers.extend(ask::status(address, &self.access, worker).await);
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
        let over = |reply| match reply {
            ToOperator::Lost(loss) if loss.stage != LossStage::Over => None,
            reply => Some(reply),
        };
        let ToOperator::Lost(loss) = self.settle(&topology, wanted, say, over).await? else {
            return Err(ChangeError::Refused("the managers sent an unexpected reply".to_owned()));
        };
        let gap = |(epoch, lost): (&shoal_types::Epoch, &shoal_cluster::manager::LostEnd)| {
            let (held, end) = (lost.held.as_ref()?, lost.end.as_ref()?);
            let number = |end: &EpochEnd| end.number().unwrap_or_default();
            (end > held).then(|| EpochGap {
                epoch: epoch.0,
                held: number(held),
                durable: number(end),
            })
        };
        let report = StatusReport::gather(&self.addresses, &self.access).await;
        let report = report.map_err(ChangeError::NoCluster)?;
        let voters = report.voters(self.shard.0);
        Ok(AcceptedLoss {
            shard: format!("S{}", self.shard.0),
            voters: voters.into_iter().map(|node| name(&topology, NodeId(node))).collect(),
            aside: loss.void.keys().map(|node| name(&topology, *node)).collect(),
            gaps: loss.ends.iter().filter_map(gap).collect(),
        })
    }

    async fn topology(&self) -> Result<Topology, ChangeError> {
        let topology = ask::topology(&self.addresses, &self.access).await;
        let topology = topology.map_err(ChangeError::NoCluster)?;
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

    /// Asks the manager that leads until its answer is the last one.
    async fn settle(
        &self,
        topology: &Topology,
        wanted: FromOperator,
        mut say: impl FnMut(&str),
        last: impl Fn(ToOperator) -> Option<ToOperator>,
    ) -> Result<ToOperator, ChangeError> {
        let (began, mut said, mut leader) = (now(), String::new(), None);
        let mut stage = "no manager has answered yet".to_owned();
        while began.elapsed() < self.within {
            if leader.is_none() {
                let report = StatusReport::gather(&self.addresses, &self.access).await.ok();
                leader = report.and_then(|report| report.managers_leader()).map(NodeId);
            }
            match self.ask(topology, leader, &wanted).await? {
                Some(ToOperator::NotLeading { leader: other }) => {
                    leader = other;
                    stage = "the managers choose which of them leads".to_owned();
                }
                Some(ToOperator::Refused(why)) => return Err(refused(&why)),
                Some(ToOperator::UnderWay(_)) => {
                    stage = "the managers write the loss into their log".to_owned();
                }
                Some(reply) => {
                    stage = step_of(&reply, topology);
                    if let Some(reply) = last(reply) {
                        return Ok(reply);
                    }
                }
                None => {
                    leader = None;
                    stage = "waiting for a manager that leads: a majority of them has to live"
                        .to_owned();
                }
            }
            if stage != said {
                say(&stage);
                said.clone_from(&stage);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Err(ChangeError::Late { after: self.within, stage })
    }

    async fn ask(
        &self,
        topology: &Topology,
        leader: Option<NodeId>,
        wanted: &FromOperator,
    ) -> Result<Option<ToOperator>, ChangeError> {
        let leader = leader.and_then(|leader| topology.node(leader));
        let Some(address) = leader.and_then(|leader| leader.address.as_deref()) else {
            return Ok(None);
        };
        match ask::operate(address, &self.operator, wanted).await {
            Ok(reply) => Ok(Some(reply)),
            Err(error @ Unanswered::Refused { why: CloseReason::WrongSecret, .. }) => {
                Err(ChangeError::Secret(error))
            }
            Err(Unanswered::Refused { .. } | Unanswered::Broken(_)) => Ok(None),
        }
    }
}

fn refused(why: &shoal_server::OperatorRefusal) -> ChangeError {
    match why {
        shoal_server::OperatorRefusal::NoManagers => ChangeError::Cannot(
            "the cluster has no managers: its shards never change their leaders".to_owned(),
        ),
        shoal_server::OperatorRefusal::Failed(why) => ChangeError::Refused(why.clone()),
        other => ChangeError::Refused(format!("{other:?}")),
    }
}

fn name(topology: &Topology, node: NodeId) -> String {
    topology.node(node).map_or_else(|| node.to_string(), |node| node.name.clone())
}

/// How far an accepted loss is, in a sentence.
fn step_of(reply: &ToOperator, topology: &Topology) -> String {
    let ToOperator::Lost(Loss { stage, reported, .. }) = reply else { return String::new() };
    match stage {
        LossStage::Asking => {
            let reported: Vec<String> = reported.keys().map(|node| name(topology, *node)).collect();
            format!("live nodes report what they know of the shard; so far {}", listed(&reported))
        }
        LossStage::Preparing => "the survivors are prepared, all of them".to_owned(),
        LossStage::Over => "the ends of the lost epochs are final".to_owned(),
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
