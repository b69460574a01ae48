//! Requests of an operator, which are repeated to the manager that leads until they are done.

use crate::ask::{self, Unanswered};
use crate::clock::now;
use crate::managers::ChangeError;
use crate::report::StatusReport;
use shoal_cluster::topology::Topology;
use shoal_net::CloseReason;
use shoal_net::client::Access;
use shoal_server::{FromOperator, OperatorRefusal, ToOperator};
use shoal_types::NodeId;
use std::time::Duration;

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

/// How far a request is.
#[derive(Debug)]
pub enum Stage {
    /// This is the last answer.
    Over(ToOperator),
    /// It goes on, in this sentence.
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
    /// Why it is not done, or not for certain.
    pub async fn settle(
        &self,
        topology: &Topology,
        wanted: &FromOperator,
        mut say: impl FnMut(&str),
        stage_of: impl Fn(ToOperator) -> Stage,
    ) -> Result<ToOperator, ChangeError> {
        let (began, mut said, mut leader) = (now(), String::new(), None);
        let mut stage = "no manager has answered yet".to_owned();
        while began.elapsed() < self.within {
            if leader.is_none() {
                let report = self.report().await.ok();
                leader = report.and_then(|report| report.managers_leader()).map(NodeId);
            }
            stage = match self.ask(topology, leader, wanted).await? {
                Some(ToOperator::NotLeading { leader: other }) => {
                    leader = other;
                    "the managers choose which of them leads".to_owned()
                }
                Some(ToOperator::Refused(why)) => return Err(refused(&why)),
                Some(told) => match stage_of(told) {
                    Stage::Over(told) => return Ok(told),
                    Stage::GoesOn(stage) => stage,
                },
                None => {
                    leader = None;
                    "waiting for a manager that leads: a majority of them has to live".to_owned()
                }
            };
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
            Ok(told) => Ok(Some(told)),
            Err(error @ Unanswered::Refused { why: CloseReason::WrongSecret, .. }) => {
                Err(ChangeError::Secret(error))
            }
            Err(Unanswered::Refused { .. } | Unanswered::Broken(_)) => Ok(None),
        }
    }
}

/// The error of an answer that belongs to another request.
pub fn unexpected() -> ChangeError {
    ChangeError::Refused("the managers sent an unexpected reply".to_owned())
}

fn refused(why: &OperatorRefusal) -> ChangeError {
    match why {
        OperatorRefusal::NoManagers => ChangeError::Cannot(
            "the cluster has no managers: its shards never change their leaders".to_owned(),
        ),
        OperatorRefusal::Failed(why) => ChangeError::Refused(why.clone()),
        other => ChangeError::Refused(format!("{other:?}")),
    }
}
