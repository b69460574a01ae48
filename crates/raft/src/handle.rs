//! The replica's side for everybody but the manager's owner: sockets and operators.

use crate::code::{self, Request, Response};
use crate::config::{self, Member, Raft};
use crate::replica::{Counters, Stopped, Tally};
use bytes::Bytes;
use consensus::manager::Term;
use openraft::ChangeMembers;
use openraft::error::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;
use types::NodeId;
use types::wire::Malformed;

/// A learner votes when so few entries are missing.
const LEARNER_LAG_MAX: u64 = 64;

/// Why a request from another replica has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// No correct replica sends that.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It was for somebody else: addresses have changed.
    #[error("a request for {to} came to {here}")]
    Misdirected {
        /// For whom it was.
        to: NodeId,
        /// Who got it.
        here: NodeId,
    },
    /// This replica has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why the members are not changed, or not for certain. To ask again is harmless.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// Only a cluster of 1, 3 or 5 survives as many failures as it can.
    #[error("1, 3 or 5 managers, not {0}")]
    Count(usize),
    /// Ask the leader.
    #[error("this manager does not lead; {}", known(*leader))]
    NotLeading {
        /// The leader, if it is known.
        leader: Option<NodeId>,
    },
    /// Another change is not finished. It will be, while a majority lives.
    #[error("the members are changing already; ask again later")]
    InProgress,
    /// This replica is to begin a cluster that it is no member of.
    #[error("{0} is not among the first managers")]
    NotMember(NodeId),
    /// The library refuses, for a reason of its own.
    #[error("the members cannot change: {0}")]
    Refused(String),
    /// This replica has stopped. What it was asked may still happen.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

fn known(leader: Option<NodeId>) -> String {
    leader.map_or_else(|| "nobody is known to".to_owned(), |leader| format!("{leader} does"))
}

/// What a replica knows of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Who leads, as far as is known here.
    pub leader: Option<NodeId>,
    /// And in which term.
    pub term: Option<Term>,
    /// Who votes.
    pub voters: BTreeSet<NodeId>,
    /// Who only learns, on the way to a vote.
    pub learners: BTreeSet<NodeId>,
}

/// A handle of a replica; its clones are the same.
#[derive(Clone)]
pub struct Handle {
    node: NodeId,
    raft: Raft,
    tally: Arc<Tally>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("node", &self.node).field("status", &self.status()).finish()
    }
}

impl Handle {
    pub(crate) fn new(node: NodeId, raft: Raft, tally: Arc<Tally>) -> Handle {
        Handle { node, raft, tally }
    }

    /// Answers a request that another replica has sent over its [`Transport`](crate::Transport).
    ///
    /// That others are who they say has to be known already. One that lies in well-formed bytes may
    /// break anything, as in every Raft.
    ///
    /// # Errors
    /// [`Refused`] if there is no answer. The request may be dropped.
    pub async fn serve(&self, request: &[u8]) -> Result<Bytes, Refused> {
        let (to, request) = code::decode::<(NodeId, Request)>(request).inspect_err(|_| {
            self.tally.malformed.fetch_add(1, Ordering::Relaxed);
        })?;
        if to != self.node {
            self.tally.misdirected.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Misdirected { to, here: self.node });
        }
        let response = match request {
            Request::Append(append) => self.raft.append_entries(append).await.map(Response::Append),
            Request::Vote(vote) => self.raft.vote(vote).await.map(Response::Vote),
        };
        Ok(code::encode(&response.map_err(|error| self.stopped(&error))?))
    }

    /// Begins a cluster of these members. Ask one or more of them, and always for the same; one that
    /// has begun already keeps what it has.
    ///
    /// # Errors
    /// [`ChangeError`] if they cannot be a cluster, or this replica has stopped.
    pub async fn initialise(&self, members: &BTreeSet<NodeId>) -> Result<(), ChangeError> {
        check(members)?;
        let begun = self.raft.initialize(numbers(members)).await;
        match begun.map_err(RaftError::into_api_error) {
            Ok(()) | Err(Some(InitializeError::NotAllowed(_))) => Ok(()),
            Err(Some(InitializeError::NotInMembers(_))) => Err(ChangeError::NotMember(self.node)),
            Err(None) => Err(self.stopped(&"it does not answer").into()),
        }
    }

    /// Makes these the members, and nobody else. Who is new has to run with empty storage; it learns
    /// the log first, and votes after that. Who is no member any more may be stopped.
    ///
    /// Waits for as long as a new one cannot be reached; giving up and asking again, for the same or
    /// something else, is harmless.
    ///
    /// # Errors
    /// [`ChangeError`] if the change was not seen to be made.
    pub async fn change_members(&self, members: &BTreeSet<NodeId>) -> Result<(), ChangeError> {
        check(members)?;
        for member in numbers(members) {
            if !self.status().voters.contains(&config::node_id(member)) {
                let learns = self.raft.add_learner(member, (), false).await;
                learns.map_err(|error| self.unchanged(error))?;
                self.learned(member).await?;
            }
        }
        let votes = self.raft.change_membership(numbers(members), false).await;
        let now = votes.map_err(|error| self.unchanged(error))?.membership;
        let learners: BTreeSet<_> =
            now.iter().flat_map(openraft::Membership::learner_ids).collect();
        if !learners.is_empty() {
            // Left over from changes that were given up.
            let goes = ChangeMembers::RemoveNodes(learners);
            let gone = self.raft.change_membership(goes, false).await;
            gone.map_err(|error| self.unchanged(error))?;
        }
        Ok(())
    }

    /// Waits until a learner has nearly all there is. (The library would wait for one that is only a
    /// bounded number of entries behind, and so not at all while there are few.)
    async fn learned(&self, member: Member) -> Result<(), ChangeError> {
        let mut metrics = self.raft.metrics();
        let done = metrics.wait_for(|metrics| {
            let Some(replication) = &metrics.replication else { return true };
            let has = replication.get(&member).and_then(|has| has.as_ref());
            has.is_some_and(|has| metrics.last_log_index <= Some(has.index + LEARNER_LAG_MAX))
        });
        let leads = done.await.map_err(|error| self.stopped(&error))?.replication.is_some();
        let leader = self.status().leader;
        if leads { Ok(()) } else { Err(ChangeError::NotLeading { leader }) }
    }

    /// [Changes](Handle::change_members) one member for another. `outgoing` may be dead.
    ///
    /// # Errors
    /// [`ChangeError`] if the change was not seen to be made.
    pub async fn replace(&self, outgoing: NodeId, incoming: NodeId) -> Result<(), ChangeError> {
        let mut members = self.status().voters;
        members.remove(&outgoing);
        members.insert(incoming);
        self.change_members(&members).await
    }

    /// What this replica knows of the others, which may be late.
    #[must_use]
    pub fn status(&self) -> Status {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let members = metrics.membership_config.membership();
        let leader = metrics.current_leader.map(config::node_id);
        Status {
            leader,
            term: leader.map(|_| config::term(metrics.vote.leader_id)),
            voters: members.voter_ids().map(config::node_id).collect(),
            learners: members.learner_ids().map(config::node_id).collect(),
        }
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.tally.counters()
    }

    /// Ends this life of the replica, and waits for that.
    pub async fn stop(&self) {
        // An error says that a task has panicked; then it has stopped, too.
        let _ = self.raft.shutdown().await;
    }

    fn stopped(&self, reason: &dyn Display) -> Stopped {
        Stopped::new(self.node, reason)
    }

    fn unchanged(&self, error: RaftError<Member, ClientWriteError<Member, ()>>) -> ChangeError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
                ChangeError::NotLeading { leader: forward.leader_id.map(config::node_id) }
            }
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
                ChangeMembershipError::InProgress(_) => ChangeError::InProgress,
                error @ (ChangeMembershipError::EmptyMembership(_)
                | ChangeMembershipError::LearnerNotFound(_)) => {
                    ChangeError::Refused(error.to_string())
                }
            },
            RaftError::Fatal(error) => self.stopped(&error).into(),
        }
    }
}

fn check(members: &BTreeSet<NodeId>) -> Result<(), ChangeError> {
    match members.len() {
        1 | 3 | 5 => Ok(()),
        count => Err(ChangeError::Count(count)),
    }
}

fn numbers(members: &BTreeSet<NodeId>) -> BTreeSet<Member> {
    members.iter().map(|node| node.0.into()).collect()
}
