//! Requests of an operator, which are repeated to the manager that leads until they are done.

use crate::ask::{self, Unanswered};
use crate::clock::now;
use crate::duration::span;
use crate::report::StatusReport;
use shoal_cluster::topology::Topology;
use shoal_net::CloseReason;
use shoal_net::client::Access;
use shoal_server::{FromOperator, OperatorRefusal, ToOperator};
use shoal_types::NodeId;
use std::time::Duration;
use thiserror::Error;

/// The interval between two requests.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Where a cluster is, and what lets an operator in.
#[derive(Debug)]
pub struct Operator {
    /// Where nodes are.
    pub addresses: Vec<String>,
    /// What lets clients in.
    pub access: Access,
    /// What lets operators in.
    pub operator: Access,
    /// How long a request may take.
    pub within: Duration,
}

/// Why a request of an operator is not done: what happened, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// No node answers at all.
    #[error("{0}")]
    NoCluster(String),
    /// There is no such node.
    #[error("'{name}' is no node of the cluster; its nodes are {known}")]
    NoNode {
        /// What it was called.
        name: String,
        /// The names of the nodes that there are.
        known: String,
    },
    /// The secret is not that of the nodes.
    #[error("{0}; take the file that `secret` in a node's file names")]
    Secret(Unanswered),
    /// The request is impossible.
    #[error("{0}")]
    Cannot(String),
    /// A node or the managers' log does not do it.
    #[error("{0}")]
    Refused(String),
    /// The request takes too long.
    #[error("it is not done after {}: {stage}; ask again to go on, or with another node", span(*.after))]
    Late {
        /// After so long.
        after: Duration,
        /// The progress so far.
        stage: String,
    },
}

/// How far a request is, which ends with a `T`.
#[derive(Debug)]
pub enum Stage<T = ToOperator> {
    /// The last answer.
    Over(T),
    /// The request goes on; a sentence says how far it is.
    GoesOn(String),
}

impl Operator {
    /// The nodes and shards of the cluster.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn topology(&self) -> Result<Topology, ChangeError> {
        ask::topology(&self.addresses, &self.access).await.map_err(ChangeError::NoCluster)
    }

    /// The statuses of all nodes.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn report(&self) -> Result<StatusReport, ChangeError> {
        let report = StatusReport::gather(&self.addresses, &self.access).await;
        report.map_err(ChangeError::NoCluster)
    }

    /// Asks the manager that leads until its answer is the last one, and reports the progress.
    ///
    /// # Errors
    /// Why it is not done, or not for certain; and the error that `stage_of` makes of an answer.
    pub async fn settle(
        &self,
        topology: &Topology,
        wanted: &FromOperator,
        say: impl FnMut(&str),
        stage_of: impl Fn(ToOperator) -> Result<Stage, ChangeError>,
    ) -> Result<ToOperator, ChangeError> {
        let mut leader = None;
        let ask = async || {
            if leader.is_none() {
                let report = self.report().await.ok();
                leader = report.and_then(|report| report.managers_leader()).map(NodeId);
            }
            let node = leader.and_then(|leader| topology.node(leader));
            let reply = match node.and_then(|node| node.address.as_deref()) {
                Some(address) => self.ask(address, wanted).await?.ok(),
                None => None,
            };
            match reply {
                Some(ToOperator::NotLeading { leader: other }) => {
                    leader = other;
                    Ok(Stage::GoesOn("the managers elect a leader".to_owned()))
                }
                Some(reply) => stage_of(reply),
                None => {
                    leader = None;
                    let stage = "waiting for a manager that leads: a majority of them has to live";
                    Ok(Stage::GoesOn(stage.to_owned()))
                }
            }
        };
        self.repeat("no manager has answered yet", say, ask).await
    }

    /// Repeats a request until it is over, and reports the progress. `unanswered` is the stage before the first answer.
    ///
    /// # Errors
    /// Those of `ask`, and [`ChangeError::Late`].
    pub async fn repeat<T>(
        &self,
        unanswered: &str,
        mut say: impl FnMut(&str),
        mut ask: impl AsyncFnMut() -> Result<Stage<T>, ChangeError>,
    ) -> Result<T, ChangeError> {
        let (began, mut said) = (now(), String::new());
        let mut stage = unanswered.to_owned();
        while began.elapsed() < self.within {
            stage = match ask().await? {
                Stage::Over(end) => return Ok(end),
                Stage::GoesOn(stage) => stage,
            };
            if stage != said {
                say(&stage);
                said.clone_from(&stage);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Err(ChangeError::Late { after: self.within, stage })
    }

    /// Sends a request to the node at an address. The inner error means that it may be repeated.
    ///
    /// # Errors
    /// [`ChangeError::Secret`].
    pub async fn ask(
        &self,
        address: &str,
        wanted: &FromOperator,
    ) -> Result<Result<ToOperator, Unanswered>, ChangeError> {
        match ask::operate(address, &self.operator, wanted).await {
            Err(error @ Unanswered::Refused { why: CloseReason::WrongSecret, .. }) => {
                Err(ChangeError::Secret(error))
            }
            answer => Ok(answer),
        }
    }
}

/// The node of this name.
///
/// # Errors
/// If there is none, or it was removed.
pub fn find(topology: &Topology, name: &str) -> Result<NodeId, ChangeError> {
    if let Some(node) = topology.members().find(|node| node.name == name) {
        return Ok(node.id);
    }
    let known: Vec<&str> = topology.members().map(|node| &*node.name).collect();
    Err(ChangeError::NoNode { name: name.to_owned(), known: known.join(", ") })
}

/// The name of a node, or its number if it is not in the topology.
pub fn name(topology: &Topology, node: NodeId) -> String {
    topology.node(node).map_or_else(|| node.to_string(), |node| node.name.clone())
}

/// The sentence with the names of nodes for their numbers, such as `n2`.
pub fn with_node_names(topology: &Topology, sentence: &str) -> String {
    let is_end = |c: char| !c.is_alphanumeric();
    let named = |word: &str| {
        let (number, rest) = word.split_at(word.find(is_end).unwrap_or(word.len()));
        let node = number.strip_prefix('n').and_then(|it| it.parse().ok()).map(NodeId);
        match node {
            Some(node) => name(topology, node) + rest,
            None => word.to_owned(),
        }
    };
    sentence.split_inclusive(' ').map(named).collect()
}

/// The error of an answer that belongs to another request.
pub fn unexpected() -> ChangeError {
    ChangeError::Refused("the managers sent an unexpected reply".to_owned())
}

/// The error of a refusal. The managers name nodes by their numbers.
pub fn refused(topology: &Topology, why: &OperatorRefusal) -> ChangeError {
    match why {
        OperatorRefusal::NoManagers => ChangeError::Cannot(
            "the cluster has no managers: its shards never change their leaders".to_owned(),
        ),
        OperatorRefusal::Failed(why) => ChangeError::Refused(with_node_names(topology, why)),
        other => ChangeError::Refused(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_nodes_as_users_do() {
        let builder = Topology::builder().workers(1).datacenter("here");
        let builder = builder.node("paris", "here").node("rome", "here");
        let topology = builder.shard("paris", ["paris"], []).build().expect("a topology");
        let named =
            with_node_names(&topology, "n1 leads s0, and no other can; stop n1, or n7: not n0");
        assert_eq!(named, "rome leads s0, and no other can; stop rome, or n7: not paris");
    }
}
