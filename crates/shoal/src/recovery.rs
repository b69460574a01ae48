//! The loss of a majority of the managers, as an operator accepts it: shows before what may be lost.

use crate::managers::ReplacementEnd;
use crate::operator::{ChangeError, Operator, Stage, name, with_node_names};
use crate::report::StatusReport;
use crate::terminal::listed;
use serde::Serialize;
use shoal_cluster::topology::Topology;
use shoal_server::{
    FromOperator, NodeStatus, OperatorRefusal, RecoveryStage, RememberedManagers, ToOperator,
};
use shoal_types::{NodeId, ShardId};
use shoal_workloads::report::words;

/// Recovers the managers of a cluster.
#[derive(Debug)]
pub struct ManagersRecovery {
    /// The access to the managers of the cluster.
    pub operator: Operator,
}

/// What is left, and what may be lost: shown before anything is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManagersSurvey {
    cluster: String,
    /// The node whose manager goes on.
    survivor: String,
    /// The other nodes that had managers.
    aside: Vec<String>,
    /// Nodes that do not answer: what they have in memory counts no more.
    silent: Vec<String>,
    /// Shards that have lost their majority then.
    lost: Vec<String>,
    /// The number of configurations that nodes have and the survivor's log lacks.
    lacking: u64,
    /// The newest epoch that is known with its configuration, and the newest that a node knows of.
    epochs: (u32, u32),
    /// A recovery was begun before, so that a majority of the managers is of no use.
    pledged: bool,
    #[serde(skip)]
    address: String,
    /// What is accepted, for the node.
    #[serde(skip)]
    shown: (Vec<NodeId>, Vec<ShardId>),
}

impl ManagersRecovery {
    /// What is left if the manager of this node goes on alone.
    ///
    /// # Errors
    /// Why it may not, or why that is not known.
    pub async fn survey(&self, survivor: &str) -> Result<ManagersSurvey, ChangeError> {
        let report = self.operator.report().await?;
        let SurvivorChoice { node, cluster, managers, answering } = choose(&report, survivor)?;
        let has_majority = answering * 2 > managers.len();
        let topology = &report.topology;
        let address = topology.node(node).and_then(|node| node.address.clone());
        let address = address.unwrap_or_default();
        let reply = self.settle(&address, FromOperator::CheckRecovery, |_| {}).await?;
        let remembered = match reply {
            ToOperator::MayRecover(remembered) if remembered.pledged || !has_majority => remembered,
            ToOperator::MayRecover(_) | ToOperator::Refused(OperatorRefusal::MajorityLives)
                if has_majority =>
            {
                return Err(ChangeError::Cannot(format!(
                    "{answering} of {} managers answer, which is a majority: there is nothing to recover; replace those that \
                     are lost, by `shoal managers replace`",
                    managers.len()
                )));
            }
            reply => return Err(unexpected(&reply, topology)),
        };
        let names = |nodes: &[NodeId]| nodes.iter().map(|node| name(topology, *node)).collect();
        let RememberedManagers { silent, lost, lacking, epoch, open, pledged, .. } = remembered;
        let aside: Vec<NodeId> = managers.into_iter().filter(|other| *other != node).collect();
        Ok(ManagersSurvey {
            cluster,
            survivor: name(topology, node),
            aside: names(&aside),
            silent: names(&silent),
            lost: lost.iter().map(|shard| format!("S{}", shard.0)).collect(),
            lacking,
            epochs: (epoch.0, open.0),
            pledged,
            address,
            shown: (silent, lost),
        })
    }

    /// Recovers the managers, as the request with this number, and reports the progress.
    ///
    /// # Errors
    /// Why it is not done, or not for certain.
    pub async fn recover(
        &self,
        survey: &ManagersSurvey,
        number: u64,
        say: impl FnMut(&str),
    ) -> Result<ReplacementEnd, ChangeError> {
        let topology = self.operator.topology().await?;
        let (silent, lost) = survey.shown.clone();
        let wanted = FromOperator::RecoverManagers { number, silent, lost };
        match self.settle(&survey.address, wanted, say).await? {
            ToOperator::Done { managers } => {
                let managers = managers.iter().map(|node| name(&topology, *node)).collect();
                Ok(ReplacementEnd { managers })
            }
            reply => Err(unexpected(&reply, &topology)),
        }
    }

    /// Asks the survivor until its answer is the last one.
    async fn settle(
        &self,
        address: &str,
        wanted: FromOperator,
        say: impl FnMut(&str),
    ) -> Result<ToOperator, ChangeError> {
        let ask = async || {
            Ok(match self.operator.ask(address, &wanted).await? {
                Ok(ToOperator::UnderWay(RecoveryStage::Asking { answered, of })) => {
                    Stage::GoesOn(format!("nodes report their state: {answered} of {of}"))
                }
                Ok(reply) => Stage::Over(reply),
                Err(error) => Stage::GoesOn(error.to_string()),
            })
        };
        self.operator.repeat("the manager has not answered yet", say, ask).await
    }
}

/// Which manager goes on.
#[derive(Debug, PartialEq, Eq)]
struct SurvivorChoice {
    node: NodeId,
    cluster: String,
    /// The nodes with managers, by the latest list.
    managers: Vec<NodeId>,
    /// How many of them answer. Whether a majority of them is of use, they know.
    answering: usize,
}

/// The manager of this node goes on, if no other that answers has a longer log.
fn choose(report: &StatusReport, survivor: &str) -> Result<SurvivorChoice, ChangeError> {
    let answered = || report.nodes.iter().flatten();
    let latest = answered().max_by_key(|status| status.managers_version);
    let managers = latest.map(|status| status.managers.clone()).unwrap_or_default();
    let votes = |status: &&NodeStatus| status.manager.as_ref().is_some_and(|it| it.votes);
    let left: Vec<&NodeStatus> = answered().filter(votes).collect();
    let names: Vec<String> = left.iter().map(|status| status.name.clone()).collect();
    if managers.is_empty() {
        return Err(ChangeError::Cannot("the cluster has no managers".to_owned()));
    }
    let Some(chosen) = left.iter().find(|status| status.name == survivor) else {
        return Err(ChangeError::Cannot(match names.is_empty() {
            true => "no manager that answers has kept its log; start one of those that were, with its folder `data`"
                .to_owned(),
            false => format!("{survivor} has no manager that votes; name one of {}", listed(&names)),
        }));
    };
    let committed =
        |status: &NodeStatus| status.manager.as_ref().map_or(0, |manager| manager.committed);
    let longest = left.iter().max_by_key(|status| committed(status)).unwrap_or(chosen);
    if committed(longest) > committed(chosen) {
        return Err(ChangeError::Cannot(format!(
            "the manager of {} knows more entries of the log than that of {survivor}; recover from {}",
            longest.name, longest.name
        )));
    }
    let cluster = chosen.cluster.clone().or_else(|| answered().find_map(|it| it.cluster.clone()));
    let cluster = cluster.ok_or_else(|| {
        ChangeError::Cannot("no node that answers has joined a cluster; found it anew".to_owned())
    })?;
    let managers = managers.into_iter().map(NodeId).collect();
    Ok(SurvivorChoice { node: NodeId(chosen.node), cluster, managers, answering: left.len() })
}

/// An answer that is none of those that are wanted.
fn unexpected(reply: &ToOperator, topology: &Topology) -> ChangeError {
    match reply {
        ToOperator::Refused(why) => refused(why, topology),
        reply => ChangeError::Refused(format!("the manager sent an unexpected reply: {reply:?}")),
    }
}

fn refused(why: &OperatorRefusal, topology: &Topology) -> ChangeError {
    match why {
        OperatorRefusal::NoManagers => ChangeError::Cannot("the cluster has no managers".to_owned()),
        OperatorRefusal::NotManager { managers } => {
            let names: Vec<String> = managers.iter().map(|node| name(topology, *node)).collect();
            ChangeError::Cannot(format!("that node has no manager; name one of {}", listed(&names)))
        }
        OperatorRefusal::MajorityLives => ChangeError::Refused(
            "a majority of the managers lives, or did a moment ago: there is nothing to recover; if it is lost, ask again"
                .to_owned(),
        ),
        OperatorRefusal::LosesMore { silent, lost } => {
            let nodes = silent.iter().map(|node| name(topology, *node));
            let more: Vec<String> = nodes.chain(lost.iter().map(ToString::to_string)).collect();
            ChangeError::Refused(format!(
                "it would cost {} as well, which was not shown; nodes have pledged, and are not served before it is done: \
                 ask again",
                listed(&more)
            ))
        }
        OperatorRefusal::Failed(why) => ChangeError::Refused(with_node_names(topology, why)),
        other => ChangeError::Refused(format!("{other:?}")),
    }
}

impl ManagersSurvey {
    /// The cluster's identity: what an operator confirms with.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What the operator has to know before confirming it.
    pub fn text(&self) -> String {
        let ManagersSurvey {
            cluster, survivor, aside, silent, lost, lacking, epochs, pledged, ..
        } = self;
        let mut text = format!(
            "If a majority of the managers of cluster {cluster} is lost for good, that of {survivor} goes on alone, with what \
             its log and the nodes that answer remember.\n\
             - The managers of {aside} are set aside for good. Make sure that those nodes are stopped: where one still runs, \
             cut off from here, it goes on to serve the nodes it reaches, and what those acknowledge is lost.\n\
             - Until two others are added this log is all there is of the cluster's managers: add them at once, by `shoal \
             managers add`.\n\
             - Changes of the cluster that were acknowledged and that no node that answers knows of are lost: tables, \
             replaced replicas, accepted losses.\n\
             - All shards get new leaders: what is under way is aborted, or its outcome is unknown for a while.\n",
            aside = listed(aside),
        );
        if *pledged {
            text += "- A recovery was begun before, and nodes take nothing from the managers that they had: that holds until \
                     this one is done.\n";
        }
        if *lacking > 0 {
            text += &format!(
                "- The log of {survivor} lacks {} configurations that nodes have; the newest of those holds.\n",
                words::count(*lacking)
            );
        }
        if !silent.is_empty() {
            text += &format!(
                "- {} does not answer: what it has in memory is lost, even if it comes back. Bring back before what you can, \
                 without a restart.\n",
                listed(silent)
            );
        }
        if !lost.is_empty() {
            text += &format!(
                "- {} has no majority with memory then: accept that afterwards, by `shoal shards accept-loss`.\n",
                listed(lost)
            );
        }
        let (epoch, open) = epochs;
        if open > epoch {
            text += &format!(
                "- TORN: nodes know of epoch e{open}, and none that answers has a configuration later than that of \
                 e{epoch}. If it gave a shard other voters, transactions of that shard may be lost in part.\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_server::ManagerStatus;

    /// Five nodes, of which the first three have managers with so many entries, where these answer.
    fn report(committed: [Option<u64>; 3]) -> StatusReport {
        let builder = Topology::builder().workers(1).datacenter("here");
        let builder = (0..5).fold(builder, |builder, node| {
            builder.node_at(format!("n{node}"), "here", format!("127.0.0.1:{}", 7000 + node))
        });
        let topology = builder.shard("n0", ["n0", "n1", "n2"], []).build().expect("a topology");
        let node = |node: u32| {
            let committed = committed.get(node as usize).copied();
            let manager = committed.flatten().map(|committed| ManagerStatus {
                votes: true,
                committed,
                ..Default::default()
            });
            match committed {
                Some(None) => Err("gone".to_owned()),
                Some(Some(_)) | None => Ok(NodeStatus {
                    node,
                    name: format!("n{node}"),
                    cluster: Some("00000000000000ab".to_owned()),
                    managers: vec![0, 1, 2],
                    manager,
                    ..NodeStatus::default()
                }),
            }
        };
        StatusReport { topology, nodes: (0..5).map(node).collect(), skews: vec![None; 5] }
    }

    #[test]
    fn only_the_longest_log_goes_on() {
        let refused = |committed, name: &str| {
            choose(&report(committed), name).expect_err("refused").to_string()
        };
        let majority = choose(&report([Some(3), Some(3), None]), "n0").expect("its use they know");
        assert_eq!(majority.answering, 2);
        let none = refused([None, None, None], "n0");
        assert!(none.contains("start one of those"), "{none}");
        let other = refused([None, Some(3), None], "n4");
        assert!(other.contains("name one of n1"), "{other}");
        let chosen = choose(&report([None, Some(3), None]), "n1").expect("it may");
        let managers = [0, 1, 2].map(NodeId).to_vec();
        let cluster = "00000000000000ab".to_owned();
        assert_eq!(chosen, SurvivorChoice { node: NodeId(1), cluster, managers, answering: 1 });

        // Of five managers two are left.
        let mut five = report([Some(3), Some(4), None]);
        five.nodes.iter_mut().flatten().for_each(|status| status.managers = vec![0, 1, 2, 3, 4]);
        let shorter = choose(&five, "n0").expect_err("refused").to_string();
        assert!(shorter.contains("recover from n1"), "{shorter}");
        choose(&five, "n1").expect("it may");
    }

    #[test]
    fn what_may_be_lost_is_said() {
        let mut survey = ManagersSurvey {
            cluster: "ab".to_owned(),
            survivor: "n1".to_owned(),
            aside: vec!["n0".to_owned(), "n2".to_owned()],
            silent: Vec::new(),
            lost: Vec::new(),
            lacking: 0,
            epochs: (7, 7),
            pledged: false,
            address: String::new(),
            shown: (Vec::new(), Vec::new()),
        };
        let text = survey.text();
        assert!(text.contains("managers of n0, n2 are set aside") && !text.contains("TORN"));
        survey =
            ManagersSurvey { lacking: 2, epochs: (7, 8), lost: vec!["S0".to_owned()], ..survey };
        let text = survey.text();
        assert!(text.contains("lacks 2 configurations") && text.contains("epoch e8"), "{text}");
        assert!(text.contains("S0 has no majority"), "{text}");
    }
}
