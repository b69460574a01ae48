//! The configuration managers of a cluster, as its nodes see them; and how one is replaced, as an operator does it.

use crate::operator::{ChangeError, Operator, Stage, find, name, with_node_names};
use crate::report::StatusReport;
use crate::terminal::table;
use serde::Serialize;
use shoal_cluster::topology::Topology;
use shoal_server::{
    FromOperator, ManagerStatus, NodeStatus, OperatorRefusal, RecoveryStage, ToOperator,
};
use shoal_types::NodeId;
use shoal_workloads::report::words;

/// What a node is to the managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ManagerRole {
    /// The manager leads the log.
    Leads,
    /// The manager votes.
    Votes,
    /// The manager is on its way to a vote, or waits for one.
    Learns,
    /// The node is to have a manager that votes, and has lost the log of that.
    Lost,
    /// The node is to have a manager, and does not answer.
    Silent,
}

/// A node that has a manager, or is to have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ManagerRow {
    name: String,
    place: String,
    role: ManagerRole,
    manager: Option<ManagerStatus>,
}

/// The managers of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManagersOverview {
    /// The latest list of them that a node knows.
    version: u64,
    managers: Vec<ManagerRow>,
    /// Nodes that know an older list.
    behind: Vec<String>,
}

impl ManagersOverview {
    /// The overview from the statuses of all nodes.
    pub fn of(report: &StatusReport) -> ManagersOverview {
        let answered = || report.nodes.iter().flatten();
        let latest = answered().max_by_key(|status| status.managers_version);
        let version = latest.map_or(0, |status| status.managers_version);
        let members = latest.map(|status| status.managers.clone()).unwrap_or_default();
        let leader = report.managers_leader();
        let rows = report.topology.members().zip(&report.nodes).filter_map(|(node, status)| {
            let is_member = members.contains(&node.id.0);
            let manager = status.as_ref().ok().and_then(|status| status.manager.clone());
            let role = match &manager {
                Some(it) if it.votes && leader == Some(node.id.0) => ManagerRole::Leads,
                Some(it) if it.votes => ManagerRole::Votes,
                // A node with an older list does not know which volume votes.
                Some(_) | None if is_member && is_up_to_date(status, version) => ManagerRole::Lost,
                Some(_) => ManagerRole::Learns,
                None if is_member => ManagerRole::Silent,
                None => return None,
            };
            Some(ManagerRow { name: node.name.clone(), place: report.place(node), role, manager })
        });
        let old = answered().filter(|status| status.managers_version < version);
        ManagersOverview {
            version,
            managers: rows.collect(),
            behind: old.map(|status| status.name.clone()).collect(),
        }
    }

    /// The report as a table for the terminal.
    pub fn text(&self) -> String {
        let none = || "–".to_owned();
        let rows = self.managers.iter().map(|row| {
            let ManagerRow { name, place, role, manager } = row;
            let number = |of: fn(&ManagerStatus) -> u64| {
                manager.as_ref().map_or_else(none, |manager| words::count(of(manager)))
            };
            let role = match role {
                ManagerRole::Leads => "leads",
                ManagerRole::Votes => "votes",
                ManagerRole::Learns => "learns",
                ManagerRole::Lost => "lost its log",
                ManagerRole::Silent => "does not answer",
            };
            let volume = manager.as_ref().map_or_else(none, |it| format!("{:08x}", it.volume));
            let (entries, committed) = (number(|it| it.entries), number(|it| it.committed));
            [name.clone(), place.clone(), role.to_owned(), entries, committed, volume]
        });
        table(["manager", "datacenter", "role", "entries", "committed", "volume"], rows)
    }

    /// What is not as it should be, and what to do: sentences.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.managers.is_empty() {
            missing.push("the cluster has no managers: leaders never change".to_owned());
        } else if !self.managers.iter().any(|row| row.role == ManagerRole::Leads) {
            missing.push(
                "no manager leads: a majority of them has to live; if it is lost for good, `shoal managers recover`"
                    .to_owned(),
            );
        }
        for ManagerRow { name, role, .. } in &self.managers {
            missing.extend(match role {
                ManagerRole::Leads | ManagerRole::Votes => None,
                ManagerRole::Learns => Some(format!("{name} has a manager that does not vote")),
                ManagerRole::Lost => Some(format!(
                    "{name} has lost its manager's log: `shoal managers replace {name} {name}`"
                )),
                ManagerRole::Silent => Some(format!(
                    "{name} does not answer: if it is lost, `shoal managers replace {name} NEW`"
                )),
            });
        }
        missing.extend(self.behind.iter().map(|name| format!("{name} knows an older list")));
        missing
    }
}

fn is_up_to_date(status: &Result<NodeStatus, String>, version: u64) -> bool {
    status.as_ref().is_ok_and(|status| status.managers_version == version)
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplacementEnd {
    /// The nodes that have managers now.
    pub managers: Vec<String>,
}

/// Which nodes are to have managers.
#[derive(Debug, Clone)]
pub enum WantedManagers {
    /// Another one instead of this one.
    Replace {
        /// The node whose manager is removed.
        outgoing: String,
        /// The node that will host a manager in its place.
        incoming: String,
    },
    /// Two more managers.
    Add([String; 2]),
}

/// The request, and the names of nodes.
struct ManagersRequest<'t> {
    topology: &'t Topology,
    wanted: FromOperator,
    outgoing: String,
    incoming: String,
}

/// Has other nodes host managers, and reports the progress.
///
/// # Errors
/// Why it is not done, or not for certain.
pub async fn replace(
    operator: &Operator,
    wanted: &WantedManagers,
    say: impl FnMut(&str),
) -> Result<ReplacementEnd, ChangeError> {
    let topology = operator.topology().await?;
    let request = ManagersRequest::new(&topology, wanted)?;
    let stage_of = |reply| match reply {
        ToOperator::UnderWay(stage) => Ok(Stage::GoesOn(request.stage(stage))),
        ToOperator::Refused(why) => Err(request.refused(&why)),
        reply => Ok(Stage::Over(reply)),
    };
    match operator.settle(&topology, &request.wanted, say, stage_of).await? {
        ToOperator::Done { managers } => {
            let managers = managers.iter().map(|node| name(&topology, *node)).collect();
            Ok(ReplacementEnd { managers })
        }
        reply => {
            Err(ChangeError::Refused(format!("the managers sent an unexpected reply: {reply:?}")))
        }
    }
}

impl<'t> ManagersRequest<'t> {
    fn new(
        topology: &'t Topology,
        wanted: &WantedManagers,
    ) -> Result<ManagersRequest<'t>, ChangeError> {
        Ok(match wanted {
            WantedManagers::Replace { outgoing: former, incoming: next } => {
                let (outgoing, incoming) = (find(topology, former)?, find(topology, next)?);
                let wanted = FromOperator::ReplaceManager { outgoing, incoming };
                ManagersRequest {
                    topology,
                    wanted,
                    outgoing: former.clone(),
                    incoming: next.clone(),
                }
            }
            WantedManagers::Add(names) => {
                let (first, second) = (find(topology, &names[0])?, find(topology, &names[1])?);
                let wanted = FromOperator::AddManagers { first, second };
                let incoming = names.join(" or ");
                ManagersRequest { topology, wanted, outgoing: String::new(), incoming }
            }
        })
    }

    fn stage(&self, stage: RecoveryStage) -> String {
        let incoming = &self.incoming;
        match stage {
            RecoveryStage::Reaching => format!("{incoming} is asked to host a manager"),
            RecoveryStage::Learning { has, of } => {
                let (has, of) = (words::count(has), words::count(of));
                format!("{incoming} learns the log: it has {has} of {of} entries")
            }
            RecoveryStage::Accepting | RecoveryStage::Asking { .. } | RecoveryStage::Living => {
                "the managers write into their log".to_owned()
            }
            RecoveryStage::Voting => match self.outgoing.is_empty() {
                true => "they are about to vote".to_owned(),
                false => {
                    format!("{incoming} votes, and the vote of the former one is taken back")
                }
            },
        }
    }

    fn refused(&self, why: &OperatorRefusal) -> ChangeError {
        let (outgoing, incoming) = (&self.outgoing, &self.incoming);
        let names = |nodes: &[NodeId]| {
            nodes.iter().map(|node| name(self.topology, *node)).collect::<Vec<_>>().join(", ")
        };
        match why {
            OperatorRefusal::NoManagers => ChangeError::Cannot(
                "the cluster has no managers: there is none to replace".to_owned(),
            ),
            OperatorRefusal::NoNode(node) => {
                ChangeError::Cannot(format!("there is no node {node}"))
            }
            OperatorRefusal::NotManager { managers } => ChangeError::Cannot(format!(
                "{outgoing} has no manager; replace one of {}",
                names(managers)
            )),
            OperatorRefusal::IsManager => ChangeError::Cannot(format!(
                "{incoming} has a manager already; take a node that has none"
            )),
            OperatorRefusal::InMemory => ChangeError::Refused(format!(
                "{incoming} would keep the managers' log in memory; give it `data` in its file, and start it again"
            )),
            OperatorRefusal::CannotHost(why) => ChangeError::Refused(format!(
                "{incoming} cannot host a manager: {why}; look at its folder `data`, or take another node"
            )),
            OperatorRefusal::Failed(why) => {
                let why = with_node_names(self.topology, why);
                ChangeError::Refused(format!("the managers refuse: {why}"))
            }
            OperatorRefusal::MajorityLives
            | OperatorRefusal::LosesMore { .. }
            | OperatorRefusal::HostsManager(_) => {
                ChangeError::Refused("a majority of the managers is alive".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five nodes, of which the first three have managers, by the latest list; the first one's leads.
    fn report() -> StatusReport {
        let builder = Topology::builder().workers(1).datacenter("here");
        let builder = (0..5).fold(builder, |builder, node| {
            builder.node_at(format!("n{node}"), "here", format!("127.0.0.1:{}", 7000 + node))
        });
        let topology = builder.shard("n0", ["n0", "n1", "n2"], []).build().expect("a topology");
        let node = |node: u32| {
            let leader = Some(0);
            let manager =
                ManagerStatus { votes: true, leader, entries: 1200, ..Default::default() };
            Ok(NodeStatus {
                node,
                name: format!("n{node}"),
                managers: vec![0, 1, 2],
                managers_version: 9,
                manager: (node < 3).then_some(manager),
                ..NodeStatus::default()
            })
        };
        StatusReport { topology, nodes: (0..5).map(node).collect(), skews: vec![None; 5] }
    }

    fn damaged(
        damage: impl FnOnce(&mut [Result<NodeStatus, String>]),
    ) -> (Vec<ManagerRole>, Vec<String>) {
        let mut report = report();
        damage(&mut report.nodes);
        let overview = ManagersOverview::of(&report);
        let roles = overview.managers.iter().map(|row| row.role).collect();
        (roles, overview.missing())
    }

    fn of(status: &mut Result<NodeStatus, String>) -> &mut NodeStatus {
        status.as_mut().expect("it answers")
    }

    #[test]
    fn managers_are_what_the_latest_list_says() {
        use ManagerRole::{Leads, Learns, Lost, Silent, Votes};
        assert_eq!(damaged(|_| {}), (vec![Leads, Votes, Votes], vec![]));
        let text = ManagersOverview::of(&report()).text();
        assert!(text.contains("leads") && text.contains("1,200"), "{text}");

        let (roles, missing) = damaged(|nodes| nodes[2] = Err("gone".to_owned()));
        assert_eq!(roles, [Leads, Votes, Silent]);
        assert!(missing[0].contains("`shoal managers replace n2 NEW`"), "{missing:?}");

        let (roles, missing) = damaged(|nodes| of(&mut nodes[1]).manager = None);
        assert_eq!(roles, [Leads, Lost, Votes]);
        assert!(missing[0].contains("`shoal managers replace n1 n1`"), "{missing:?}");

        // One that comes: it learns, and then others know of it before it does.
        let learns = Some(ManagerStatus { entries: 3, ..ManagerStatus::default() });
        let (roles, missing) = damaged(|nodes| of(&mut nodes[4]).manager = learns.clone());
        assert_eq!((roles, missing.len()), (vec![Leads, Votes, Votes, Learns], 1));
        let (roles, missing) = damaged(|nodes| {
            (0..4).for_each(|at| of(&mut nodes[at]).managers = vec![0, 1, 4]);
            of(&mut nodes[2]).manager = None;
            let late = of(&mut nodes[4]);
            (late.manager, late.managers_version) = (learns, 7);
        });
        assert_eq!(roles, [Leads, Votes, Learns]);
        assert!(missing.iter().any(|it| it == "n4 knows an older list"), "{missing:?}");

        let (_, missing) = damaged(|nodes| {
            let managers = nodes.iter_mut().filter_map(|node| of(node).manager.as_mut());
            managers.for_each(|manager| manager.leader = None);
        });
        assert!(missing[0].starts_with("no manager leads"), "{missing:?}");
        let (roles, missing) = damaged(|nodes| {
            let nothing = |node: &mut NodeStatus| (node.managers, node.manager) = (vec![], None);
            nodes.iter_mut().for_each(|node| nothing(of(node)));
        });
        assert_eq!(roles, []);
        assert!(missing[0].starts_with("the cluster has no managers"), "{missing:?}");
    }
}
