//! A handle of a replica, for the server's sockets and for operators' commands.

use crate::code::{self, RaftRequest, RaftResponse};
use crate::config::{self, Raft};
use crate::counters::{CounterCells, RaftCounters};
use crate::member::{LogMember, LogMembers, Number};
use crate::stopped::Stopped;
use crate::store::Committed;
use bytes::Bytes;
use openraft::error::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError};
use openraft::{ChangeMembers, Snapshot};
use shoal_cluster::manager::{ManagerOptions, StateMachine, Term};
use shoal_types::NodeId;
use shoal_types::wire::Malformed;
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;
use tokio::sync::watch;

/// A learner becomes a voter when it lacks at most this many entries.
const LEARNER_LAG_MAX: u64 = 64;

/// Why a replica does not answer a request of another.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestRefusal {
    /// The request is malformed: no correct replica sends it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The request was for another replica: addresses have changed, or a volume was lost.
    #[error("a request for {to} came to {here}")]
    Misdirected {
        /// The replica that it was for.
        to: LogMember,
        /// The replica that received it.
        here: LogMember,
    },
    /// This replica has stopped, and answers nothing more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why the members are not changed, or it is unknown whether they are. Repeating the request is harmless.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// Only 1, 3 or 5 members make the best use of their number.
    #[error("1, 3 or 5 managers, not {0}")]
    Count(usize),
    /// This replica does not lead: the leader has to be asked.
    #[error("this manager does not lead; {}", known(*leader))]
    NotLeading {
        /// The leader, if it is known.
        leader: Option<NodeId>,
    },
    /// Another change is in progress. It completes while a majority is up.
    #[error("the members are changing already; ask again later")]
    InProgress,
    /// This replica cannot begin a cluster of which it is no member.
    #[error("{0} is not among the first managers")]
    NotMember(LogMember),
    /// The library refuses, for a reason of its own.
    #[error("the members cannot change: {0}")]
    Refused(String),
    /// This replica has stopped. The change may still happen.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

fn known(leader: Option<NodeId>) -> String {
    leader.map_or_else(|| "no leader is known".to_owned(), |leader| format!("{leader} does"))
}

/// The state of a replica, and what it knows of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaftStatus {
    /// The leader, as far as this replica knows.
    pub leader: Option<NodeId>,
    /// The term of `leader`; `None` where no leader is known.
    pub term: Option<Term>,
    /// The members by the last list that this replica has received; it may not be committed yet.
    pub members: LogMembers,
    /// The number of entries that this replica has.
    pub entries: u64,
    /// The number of those that it knows to be committed.
    pub committed: u64,
}

/// A handle of a replica. Clones refer to the same replica.
#[derive(Clone)]
pub struct RaftHandle {
    me: LogMember,
    raft: Raft,
    committed: watch::Receiver<Committed>,
    /// Whether some member list in this process had this replica as a member.
    was_member: Arc<AtomicBool>,
    /// The options of the manager's state machine, which snapshots are decoded with.
    options: ManagerOptions,
    tally: Arc<CounterCells>,
}

impl fmt::Debug for RaftHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("me", &self.me).field("status", &self.status()).finish()
    }
}

impl RaftHandle {
    pub(crate) fn new(
        me: LogMember,
        raft: Raft,
        committed: watch::Receiver<Committed>,
        options: ManagerOptions,
        tally: Arc<CounterCells>,
    ) -> RaftHandle {
        RaftHandle { me, raft, committed, was_member: Arc::default(), options, tally }
    }

    /// The volume and the node of this replica.
    #[must_use]
    pub fn me(&self) -> LogMember {
        self.me
    }

    /// Whether this replica has neither log nor vote: its volume is as it was made.
    ///
    /// # Errors
    /// [`Stopped`] if the replica has stopped.
    pub async fn is_new(&self) -> Result<bool, Stopped> {
        let begun = self.raft.is_initialized().await.map_err(|error| self.stopped(&error))?;
        Ok(!begun)
    }

    /// Answers a request that another replica has sent over its [`Transport`](crate::Transport).
    ///
    /// Senders have to be authenticated already. A sender that lies in well-formed bytes may break anything,
    /// as in every Raft.
    ///
    /// # Errors
    /// [`RequestRefusal`] if there is no answer. The caller may drop the request.
    pub async fn serve(&self, request: &[u8]) -> Result<Bytes, RequestRefusal> {
        let (to, request) =
            code::decode::<(LogMember, RaftRequest)>(request).inspect_err(|_| {
                self.tally.malformed.fetch_add(1, Ordering::Relaxed);
            })?;
        if to != self.me {
            self.tally.misdirected.fetch_add(1, Ordering::Relaxed);
            return Err(RequestRefusal::Misdirected { to, here: self.me });
        }
        let response = match request {
            RaftRequest::Append(append) => {
                self.raft.append_entries(append).await.map(RaftResponse::Append)
            }
            RaftRequest::Vote(vote) => self.raft.vote(vote).await.map(RaftResponse::Vote),
            RaftRequest::Snapshot(vote, image) => {
                if StateMachine::from_image(&image.machine, self.options.clone()).is_err() {
                    self.tally.malformed.fetch_add(1, Ordering::Relaxed);
                    return Err(Malformed { what: "no image of a machine", at: 0 }.into());
                }
                let snapshot = Snapshot { meta: image.meta, snapshot: Box::new(image.machine) };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                let response = installed.map(|response| RaftResponse::Snapshot(response.vote));
                return Ok(code::encode(&response.map_err(|error| self.stopped(&error))?));
            }
        };
        Ok(code::encode(&response.map_err(|error| self.stopped(&error))?))
    }

    /// Begins a cluster of these members, of which this is one; the others receive the log from it. A member
    /// that has begun already keeps its log. To be called once for a cluster, with members that are
    /// [new](RaftHandle::is_new).
    ///
    /// # Errors
    /// [`ChangeError`] if they cannot form a cluster, or this replica has stopped.
    pub async fn initialise(&self, members: &BTreeSet<LogMember>) -> Result<(), ChangeError> {
        check(members)?;
        let begun = self.raft.initialize(numbers(members)).await;
        match begun.map_err(RaftError::into_api_error) {
            Ok(()) | Err(Some(InitializeError::NotAllowed(_))) => Ok(()),
            Err(Some(InitializeError::NotInMembers(_))) => Err(ChangeError::NotMember(self.me)),
            Err(None) => Err(self.stopped(&"it does not answer").into()),
        }
    }

    /// Makes these the only members. A new one has to run with empty storage; it receives the log first, and
    /// votes after that. A replica that is no member any more may be stopped.
    ///
    /// Waits as long as a new member cannot be reached. Dropping the future and asking again, for the same or
    /// other members, is harmless.
    ///
    /// # Errors
    /// [`ChangeError`] if the change is not known to be made.
    pub async fn change_members(&self, members: &BTreeSet<LogMember>) -> Result<(), ChangeError> {
        check(members)?;
        for member in members {
            if !self.status().members.voters.contains(member) {
                let learns = self.raft.add_learner(member.number(), (), false).await;
                learns.map_err(|error| self.unchanged(error))?;
                self.learned(member.number()).await?;
            }
        }
        let votes = self.raft.change_membership(numbers(members), false).await;
        let now = votes.map_err(|error| self.unchanged(error))?.membership;
        let learners: BTreeSet<_> =
            now.iter().flat_map(openraft::Membership::learner_ids).collect();
        if !learners.is_empty() {
            // Learners left over from earlier changes that were given up.
            let goes = ChangeMembers::RemoveNodes(learners);
            let gone = self.raft.change_membership(goes, false).await;
            gone.map_err(|error| self.unchanged(error))?;
        }
        Ok(())
    }

    /// Waits until a learner has nearly all entries. (The library would accept one that is behind by a fixed
    /// number of entries, and so would not wait at all while there are few.)
    async fn learned(&self, member: Number) -> Result<(), ChangeError> {
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

    /// The number of the leader's entries that a learner has, if this replica leads and the learner is known.
    #[must_use]
    pub fn learned_by(&self, learner: LogMember) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let has = metrics.replication.as_ref()?.get(&learner.number())?;
        Some(has.map_or(0, |last| last.index + 1))
    }

    /// [Changes](RaftHandle::change_members) the members: `incoming` takes the place of the member on
    /// `outgoing`, which may be down. Both are of the same node if that has lost a volume and made another.
    ///
    /// # Errors
    /// [`ChangeError`] if the change is not known to be made.
    pub async fn replace(&self, outgoing: NodeId, incoming: LogMember) -> Result<(), ChangeError> {
        let voters = self.status().members.voters.into_iter();
        let mut members: BTreeSet<LogMember> =
            voters.filter(|member| member.node != outgoing).collect();
        members.insert(incoming);
        self.change_members(&members).await
    }

    /// What this replica knows of itself and the others, which may be outdated.
    #[must_use]
    pub fn status(&self) -> RaftStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leader = metrics.current_leader.map(config::node_id);
        RaftStatus {
            leader,
            term: leader.map(|_| config::term(metrics.vote.leader_id)),
            members: LogMembers::of(&metrics.membership_config),
            entries: metrics.last_log_index.map_or(0, |last| last + 1),
            committed: metrics.last_applied.map_or(0, |last| last.index + 1),
        }
    }

    /// The members by the last list that is known here to be committed; `None` before the first.
    #[must_use]
    pub fn members(&self) -> Option<LogMembers> {
        let members = self.committed.borrow().members.clone();
        (members.version > 0).then_some(members)
    }

    /// Whether this replica was a member, and is none any more by `newest`, which is committed. The log does
    /// not report that to a dropped replica. To be called repeatedly: the lists of this process may be
    /// compacted away later.
    #[must_use]
    pub fn is_dropped(&self, newest: &LogMembers) -> bool {
        let own = self.status().members;
        if own.contains(self.me) {
            self.was_member.store(true, Ordering::Relaxed);
        }
        // A learning replica reads old lists first, which do not have it yet.
        own.version <= newest.version
            && !newest.contains(self.me)
            && self.was_member.load(Ordering::Relaxed)
    }

    /// Counts of what was dropped so far.
    #[must_use]
    pub fn counters(&self) -> RaftCounters {
        self.tally.counters()
    }

    /// Stops this process of the replica, and waits until it has stopped.
    pub async fn stop(&self) {
        // An error reports that a task has panicked; then the replica has stopped too.
        let _ = self.raft.shutdown().await;
    }

    fn stopped(&self, reason: &dyn Display) -> Stopped {
        Stopped::new(self.me.node, reason)
    }

    fn unchanged(&self, error: RaftError<Number, ClientWriteError<Number, ()>>) -> ChangeError {
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

fn check(members: &BTreeSet<LogMember>) -> Result<(), ChangeError> {
    match members.len() {
        1 | 3 | 5 => Ok(()),
        count => Err(ChangeError::Count(count)),
    }
}

fn numbers(members: &BTreeSet<LogMember>) -> BTreeSet<Number> {
    members.iter().map(|member| member.number()).collect()
}
