//! Replaces a manager, or adds two, on the manager that leads: a task that goes on for as long as an operator repeats
//! the request.

use super::operator::{OperatorRefusal, RecoveryStage, ToOperator};
use super::rpc::Rpc;
use crate::envelope::{Envelope, RpcReply};
use shoal_raft::{LogMember, LogMembers};
use shoal_types::{NodeId, Time};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A change is given up if its request was not repeated for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A task that ends when this is dropped.
pub(super) struct ChangeTask<T>(pub(super) JoinHandle<T>);

impl<T> Drop for ChangeTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a change needs.
pub(super) struct ChangeContext {
    pub(super) log: shoal_raft::RaftHandle,
    pub(super) rpc: Rpc,
    /// Longest wait for a reply.
    pub(super) patience: Duration,
    /// Whether this manager's log is on disk, so that others have to be, too.
    pub(super) on_disk: bool,
}

/// What an operator wants to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedChange {
    /// One manager is replaced by another, on the same node or another one.
    Replace { outgoing: NodeId, incoming: NodeId },
    /// Two more managers are added.
    Add([NodeId; 2]),
}

impl RequestedChange {
    pub(super) fn incoming(&self) -> &[NodeId] {
        match self {
            RequestedChange::Replace { incoming, .. } => std::slice::from_ref(incoming),
            RequestedChange::Add(nodes) => nodes,
        }
    }

    fn outgoing(&self) -> Option<NodeId> {
        match self {
            RequestedChange::Replace { outgoing, .. } => Some(*outgoing),
            RequestedChange::Add(_) => None,
        }
    }

    /// The answer if it is done already or impossible; `None` if there is something to do.
    pub(super) fn foregone(&self, members: &LogMembers) -> Option<ToOperator> {
        let nodes = members.nodes();
        let managers = || nodes.iter().copied().collect();
        let refused = |why| Some(ToOperator::Refused(why));
        match self {
            RequestedChange::Replace { outgoing, incoming } => {
                match (nodes.contains(outgoing), nodes.contains(incoming)) {
                    (false, true) => Some(ToOperator::Done { managers: managers() }),
                    (false, false) => refused(OperatorRefusal::NotManager { managers: managers() }),
                    (true, true) if outgoing != incoming => refused(OperatorRefusal::IsManager),
                    (true, _) => None,
                }
            }
            RequestedChange::Add([first, second]) => {
                match (nodes.contains(first), nodes.contains(second)) {
                    (false, false) if first != second => None,
                    (true, true) if first != second => {
                        Some(ToOperator::Done { managers: managers() })
                    }
                    _ => refused(OperatorRefusal::IsManager),
                }
            }
        }
    }

    /// Whether these members, which have voters on the incoming nodes, are the requested ones.
    fn is_so(&self, members: &LogMembers, incoming: &[LogMember]) -> bool {
        let is_former =
            |voter: &LogMember| Some(voter.node) == self.outgoing() && !incoming.contains(voter);
        incoming.iter().all(|manager_client| members.voters.contains(manager_client))
            && !members.voters.iter().any(is_former)
    }
}

/// A change in progress.
pub(super) struct PendingChange {
    wanted: RequestedChange,
    /// The volumes of the incoming managers, when they are known.
    learners: Arc<OnceLock<Vec<LogMember>>>,
    task: ChangeTask<ToOperator>,
    asked: Time,
}

impl PendingChange {
    pub(super) fn begin(way: ChangeContext, wanted: RequestedChange, now: Time) -> PendingChange {
        let learners = Arc::new(OnceLock::new());
        let task = tokio::spawn(change(way, wanted, Arc::clone(&learners)));
        PendingChange { wanted, learners, task: ChangeTask(task), asked: now }
    }

    pub(super) fn is(&self, wanted: RequestedChange) -> bool {
        self.wanted == wanted
    }

    pub(super) fn is_forgotten(&self, now: Time) -> bool {
        now - self.asked > PATIENCE
    }

    /// Whether the next answer is the last.
    pub(super) fn is_over(&self) -> bool {
        self.task.0.is_finished()
    }

    /// The progress, for the operator that asks now; the result, if it [is over](PendingChange::is_over).
    pub(super) async fn ask(&mut self, log: &shoal_raft::RaftHandle, now: Time) -> ToOperator {
        self.asked = now;
        if self.is_over() {
            let failed = |error: tokio::task::JoinError| {
                ToOperator::Refused(OperatorRefusal::Failed(error.to_string()))
            };
            return (&mut self.task.0).await.unwrap_or_else(failed);
        }
        let status = log.status();
        let Some(learners) = self.learners.get() else {
            return ToOperator::UnderWay(RecoveryStage::Reaching);
        };
        let learns = learners.iter().find(|it| !status.members.voters.contains(it));
        ToOperator::UnderWay(match learns {
            None => RecoveryStage::Voting,
            Some(learner) => {
                let has = log.learned_by(*learner).unwrap_or_default();
                RecoveryStage::Learning { has, of: status.entries }
            }
        })
    }
}

async fn change(
    way: ChangeContext,
    wanted: RequestedChange,
    learners: Arc<OnceLock<Vec<LogMember>>>,
) -> ToOperator {
    let log = way.log.clone();
    let mut incoming = Vec::new();
    for node in wanted.incoming() {
        match way.host(*node).await {
            Ok(manager_client) => incoming.push(manager_client),
            Err(why) => return ToOperator::Refused(why),
        }
    }
    learners.get_or_init(|| incoming.clone());
    let is_so = |log: &shoal_raft::RaftHandle| {
        let members = log.members().filter(|members| wanted.is_so(members, &incoming))?;
        Some(ToOperator::Done { managers: members.nodes().into_iter().collect() })
    };
    if let Some(done) = is_so(&log) {
        return done;
    }
    let changed = match wanted {
        RequestedChange::Replace { outgoing, .. } => log.replace(outgoing, incoming[0]).await,
        RequestedChange::Add(_) => {
            let voters = log.status().members.voters.into_iter();
            log.change_members(&voters.chain(incoming.iter().copied()).collect()).await
        }
    };
    match changed {
        // The commit may be reported a little later.
        Ok(()) => is_so(&log).unwrap_or(ToOperator::UnderWay(RecoveryStage::Voting)),
        Err(error) => error.into(),
    }
}

impl ChangeContext {
    /// Asks a node to host a manager, and returns its volume.
    async fn host(&self, node: NodeId) -> Result<LogMember, OperatorRefusal> {
        if node == self.log.me().node {
            return Ok(self.log.me());
        }
        let answer = loop {
            // A former manager that comes back with its log ends that first.
            if let Some(members) = self.log.members() {
                self.rpc.send(node, &Envelope::Members(members));
            }
            if let Some(answer) = self.rpc.host(node, self.on_disk, self.patience).await {
                break answer;
            }
        };
        match answer {
            RpcReply::Hosts(hosting) => Ok(LogMember { node, volume: hosting.volume }),
            RpcReply::InMemory => Err(OperatorRefusal::InMemory),
            RpcReply::CannotHost(why) => Err(OperatorRefusal::CannotHost(why)),
            RpcReply::Log(_) => {
                Err(OperatorRefusal::CannotHost("it answers something else".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_raft::Volume;

    #[test]
    fn what_is_so_is_done_and_what_cannot_be_is_refused() {
        let manager_client = |node| LogMember { node: NodeId(node), volume: Volume(node) };
        let voters = vec![manager_client(0), manager_client(1), manager_client(2)];
        let members = LogMembers { version: 3, voters, learners: vec![manager_client(5)] };
        let foregone = |outgoing, incoming| {
            let (outgoing, incoming) = (NodeId(outgoing), NodeId(incoming));
            RequestedChange::Replace { outgoing, incoming }.foregone(&members)
        };
        let managers = vec![NodeId(0), NodeId(1), NodeId(2)];
        assert_eq!(foregone(1, 4), None);
        assert_eq!(foregone(1, 5), None, "it learns already");
        assert_eq!(foregone(1, 1), None, "another volume of it");
        assert_eq!(foregone(4, 1), Some(ToOperator::Done { managers: managers.clone() }));
        let is_manager = Some(ToOperator::Refused(OperatorRefusal::IsManager));
        assert_eq!(foregone(1, 2), is_manager.clone());
        let not_manager = Some(ToOperator::Refused(OperatorRefusal::NotManager { managers }));
        assert_eq!(foregone(4, 5), not_manager);
        assert_eq!(foregone(4, 4), not_manager);

        let add =
            |first, second| RequestedChange::Add([first, second].map(NodeId)).foregone(&members);
        assert_eq!(add(3, 5), None);
        assert_eq!(
            (add(1, 4), add(4, 1), add(4, 4)),
            (is_manager.clone(), is_manager.clone(), is_manager.clone())
        );
        assert!(matches!(add(0, 2), Some(ToOperator::Done { .. })));
    }
}
