//! The time at which a leader last led for certain, by what others have acknowledged lately.
//!
//! A replica that accepts a leader's request follows that leader at that moment, by its vote. If a majority
//! accepted requests that were *sent* at a time t or later, then the leader of a later term was elected after
//! t: one of its voters is in that majority, and would have refused the former leader after that vote. The
//! leader itself counts while its stored vote is for itself. A read through the leader needs this evidence
//! (Ongaro, *Consensus*, §6.4), and the regular heartbeats provide it.
//!
//! The majority is one of the member list that the library has when the times are read, or of both lists
//! during a change. The next list is made only when the one before is committed, and the library has reported
//! it by then: so majorities of two consecutive lists intersect. A replica that answers that the logs do not
//! match has accepted the leader too.
//!
//! All times here are of one clock, [`Transport::now`](crate::Transport::now), which continues while the
//! machine is suspended. A clock that stops meanwhile would make an old acknowledgement look recent, and the
//! leader certain of a time at which another one led.

use crate::config::{Membership, Vote};
use crate::member::Number;
use openraft::LeaderId;
use shoal_types::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// State shared by the network paths, the storage and the replica. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LeadershipEvidence {
    state: Arc<Mutex<EvidenceState>>,
    /// Notified when a replica has acknowledged a request.
    pub news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct EvidenceState {
    /// The stored vote: the leader that this replica follows, or the candidate that it has voted for.
    vote: Option<LeaderId<Number>>,
    /// The number of acknowledgements so far.
    count: u64,
    /// For the last leadership of this replica: when the last acknowledged request to each other replica was
    /// sent.
    acknowledged: Option<(LeaderId<Number>, BTreeMap<Number, Time>)>,
}

impl LeadershipEvidence {
    fn state(&self) -> MutexGuard<'_, EvidenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This vote is about to be stored, and no other replica has learned of it yet.
    pub fn votes(&self, vote: &Vote) {
        self.state().vote = Some(vote.leader_id);
    }

    /// Another replica has accepted a request of this one, which was sent at `sent` under `vote`.
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

    /// The number of acknowledgements so far.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// The last time at which the replica `me` led for certain under its current vote, as far as is known
    /// `now`.
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
