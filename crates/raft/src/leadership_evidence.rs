//! Since when a leader is sure that it led: what others have acknowledged lately.
//!
//! A replica that accepts a leader's request follows it in that moment, by its vote. If a majority accepted requests
//! that were *sent* at a time t or later, then the leader of a later term was elected after t: one of its voters is
//! in that majority, and would have refused a former leader after that vote. The leader itself counts while its own
//! vote, as it is kept, is for itself. This is what a read through the leader asks for (Ongaro, *Consensus*, §6.4);
//! the heartbeats that are sent anyway answer it.
//!
//! The majority is one of the members that the library says when the times are read, or of both lists during a change. A
//! list that follows is made only when the one before is committed, and the library has said so by then: so the
//! majorities of two lists in a row meet. Who answers that the logs do not match has accepted the leader as well.
//!
//! All times here are of one clock, [`Transport::now`](crate::Transport::now), which goes on while the machine is
//! suspended. A clock that stood still meanwhile would make an old acknowledgement look recent, and the leader sure of
//! a time at which another one led.

use crate::config::{Membership, Number, Vote};
use openraft::LeaderId;
use shoal_types::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What the ways to others, the storage and the replica share. A copy is the same.
#[derive(Debug, Clone, Default)]
pub struct LeadershipEvidence {
    state: Arc<Mutex<EvidenceState>>,
    /// A replica has acknowledged something.
    pub news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct EvidenceState {
    /// The vote as it is kept: the leader that this replica follows, or the candidate it has voted for.
    vote: Option<LeaderId<Number>>,
    /// How many acknowledgements there were.
    count: u64,
    /// Of the leader that this replica was last: who acknowledged requests, and when the last of those was sent.
    acknowledged: Option<(LeaderId<Number>, BTreeMap<Number, Time>)>,
}

impl LeadershipEvidence {
    fn state(&self) -> MutexGuard<'_, EvidenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is about to be kept, and no other knows of it yet.
    pub fn votes(&self, vote: &Vote) {
        self.state().vote = Some(vote.leader_id);
    }

    /// A request of this replica was accepted by another, sent at that time under that vote.
    pub fn acknowledges(&self, by: Number, vote: &Vote, sent: Time) {
        let mut state = self.state();
        let leader = vote.leader_id;
        state.count += 1;
        match &mut state.acknowledged {
            Some((other, acknowledged)) if *other == leader => {
                let last = acknowledged.entry(by).or_insert(sent);
                *last = sent.max(*last);
            }
            Some((other, _)) if *other > leader => return, // Of a former term.
            acknowledged => *acknowledged = Some((leader, BTreeMap::from([(by, sent)]))),
        }
        drop(state);
        self.news.notify_one();
    }

    /// How many acknowledgements there were.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// When the replica `me` led for certain under the vote that it leads by, as far as is known `now`.
    pub fn since(
        &self,
        me: Number,
        leader: LeaderId<Number>,
        members: &Membership,
        now: Time,
    ) -> Option<Time> {
        let state = self.state();
        let of = state.acknowledged.as_ref().filter(|(other, _)| *other == leader);
        let own = (state.vote == Some(leader)).then_some(now);
        let when = |member: &Number| match *member == me {
            true => own,
            false => of.and_then(|(_, acknowledged)| acknowledged.get(member).copied()),
        };
        let majority = |voters: &BTreeSet<Number>| {
            let mut times: Vec<_> = voters.iter().map(when).collect();
            times.sort_unstable_by(|one, other| other.cmp(one));
            times.get(voters.len() / 2).copied().flatten()
        };
        members.get_joint_config().iter().map(majority).min().flatten()
    }
}
