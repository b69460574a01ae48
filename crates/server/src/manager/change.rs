//! One manager for another, at the one that leads: a task that goes on for as long as an operator asks for it.

use super::courier::Courier;
use super::operator::{Refusal, Stage, ToOperator};
use crate::envelope::Answer;
use raft::{Member, Members};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use types::{NodeId, Time};

/// A change that was not asked for in so long is given up: its operator may have gone home.
const PATIENCE: Duration = Duration::from_secs(10);

/// A task that ends when this is dropped.
pub(super) struct Task<T>(pub(super) JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a change needs.
pub(super) struct Way {
    pub(super) log: raft::Handle,
    pub(super) courier: Courier,
    /// So long an answer may take.
    pub(super) patience: Duration,
    /// Whether this manager's log is on disk, so that others have to be, too.
    pub(super) on_disk: bool,
}

/// A change under way.
pub(super) struct Change {
    outgoing: NodeId,
    incoming: NodeId,
    /// The incoming one's volume, when it is known.
    learner: Arc<OnceLock<Member>>,
    task: Task<ToOperator>,
    asked: Time,
}

/// What is so already, or cannot be; `None` if there is something to do.
pub(super) fn foregone(
    members: &Members,
    outgoing: NodeId,
    incoming: NodeId,
) -> Option<ToOperator> {
    let nodes = members.nodes();
    let managers = || nodes.iter().copied().collect();
    match (nodes.contains(&outgoing), nodes.contains(&incoming)) {
        (false, true) => Some(ToOperator::Done { managers: managers() }),
        (false, false) => Some(ToOperator::Refused(Refusal::NotManager { managers: managers() })),
        (true, true) if outgoing != incoming => Some(ToOperator::Refused(Refusal::IsManager)),
        (true, _) => None,
    }
}

impl Change {
    pub(super) fn begin(way: Way, outgoing: NodeId, incoming: NodeId, now: Time) -> Change {
        let learner = Arc::new(OnceLock::new());
        let task = tokio::spawn(replace(way, outgoing, incoming, Arc::clone(&learner)));
        Change { outgoing, incoming, learner, task: Task(task), asked: now }
    }

    pub(super) fn is(&self, outgoing: NodeId, incoming: NodeId) -> bool {
        (self.outgoing, self.incoming) == (outgoing, incoming)
    }

    pub(super) fn is_forgotten(&self, now: Time) -> bool {
        now - self.asked > PATIENCE
    }

    /// Whether the next answer is the last.
    pub(super) fn is_over(&self) -> bool {
        self.task.0.is_finished()
    }

    /// How far it is, for the operator that asks now; what came of it, if it [is over](Change::is_over).
    pub(super) async fn ask(&mut self, log: &raft::Handle, now: Time) -> ToOperator {
        self.asked = now;
        if self.is_over() {
            let failed = |error: tokio::task::JoinError| {
                ToOperator::Refused(Refusal::Failed(error.to_string()))
            };
            return (&mut self.task.0).await.unwrap_or_else(failed);
        }
        let status = log.status();
        ToOperator::UnderWay(match self.learner.get() {
            None => Stage::Reaching,
            Some(learner) if status.members.voters.contains(learner) => Stage::Voting,
            Some(learner) => {
                let has = log.learned_by(*learner).unwrap_or_default();
                Stage::Learning { has, of: status.entries }
            }
        })
    }
}

async fn replace(
    way: Way,
    outgoing: NodeId,
    incoming: NodeId,
    learner: Arc<OnceLock<Member>>,
) -> ToOperator {
    let Way { log, courier, patience, on_disk } = way;
    let member = if incoming == log.me().node {
        log.me()
    } else {
        let answer = loop {
            if let Some(answer) = courier.host(incoming, on_disk, patience).await {
                break answer;
            }
        };
        match answer {
            Answer::Hosts(hosting) => Member { node: incoming, volume: hosting.volume },
            Answer::InMemory => return ToOperator::Refused(Refusal::InMemory),
            Answer::CannotHost(why) => return ToOperator::Refused(Refusal::CannotHost(why)),
            Answer::Log(_) => {
                let why = "it answers something else".to_owned();
                return ToOperator::Refused(Refusal::CannotHost(why));
            }
        }
    };
    learner.get_or_init(|| member);
    let is_so = |log: &raft::Handle| {
        let members = log.members()?;
        let managers = members.nodes().into_iter().collect();
        let only = |voter: &&Member| voter.node == outgoing && **voter != member;
        let done = members.voters.contains(&member) && !members.voters.iter().any(|it| only(&it));
        done.then_some(ToOperator::Done { managers })
    };
    if let Some(done) = is_so(&log) {
        return done;
    }
    match log.replace(outgoing, member).await {
        // That it is committed may be told a little later.
        Ok(()) => is_so(&log).unwrap_or(ToOperator::UnderWay(Stage::Voting)),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft::Volume;

    #[test]
    fn what_is_so_is_done_and_what_cannot_be_is_refused() {
        let member = |node| Member { node: NodeId(node), volume: Volume(node) };
        let voters = vec![member(0), member(1), member(2)];
        let members = Members { version: 3, voters, learners: vec![member(5)] };
        let foregone = |outgoing, incoming| foregone(&members, NodeId(outgoing), NodeId(incoming));
        let managers = vec![NodeId(0), NodeId(1), NodeId(2)];
        assert_eq!(foregone(1, 4), None);
        assert_eq!(foregone(1, 5), None, "it learns already");
        assert_eq!(foregone(1, 1), None, "another volume of it");
        assert_eq!(foregone(4, 1), Some(ToOperator::Done { managers: managers.clone() }));
        let is_manager = Some(ToOperator::Refused(Refusal::IsManager));
        assert_eq!(foregone(1, 2), is_manager);
        let not_manager = Some(ToOperator::Refused(Refusal::NotManager { managers }));
        assert_eq!(foregone(4, 5), not_manager);
        assert_eq!(foregone(4, 4), not_manager);
    }
}
