//! Acceptance, release, votes and the synchronization of logs.

use super::Tiga;
use super::order::Digest;
use super::rules::Rule;
use super::state::{
    Entry, Leader, LeaderPhase, Named, Origin, Propose, Queued, Reads, Ready, Record, State,
    Tentative, Vote,
};
use crate::Violation;

/// A leader's place: shard and replica.
pub(super) type At = (usize, usize);

impl Tiga {
    /// The leader at this place, if one serves there: also one that was replaced and does not know it.
    pub(super) fn serving<'a>(&self, state: &'a State, (shard, replica): At) -> Option<&'a Leader> {
        let replica = &state.shards[shard].replicas[replica];
        let leader = replica.leader.as_ref().filter(|_| replica.is_alive)?;
        (leader.phase == LeaderPhase::Serving).then_some(leader)
    }

    pub(super) fn leader_mut<'a>(
        &self,
        state: &'a mut State,
        (shard, replica): At,
    ) -> &'a mut Leader {
        state.shards[shard].replicas[replica].leader.as_mut().expect("leads")
    }

    pub(super) fn ballot_of(&self, state: &State, (shard, replica): At) -> u8 {
        state.shards[shard].replicas[replica].promised
    }

    /// Whether a replica holds a transaction in its log, its tentative list or its queue.
    pub(super) fn holds_transaction(&self, state: &State, (shard, replica): At, id: u8) -> bool {
        let of = &state.shards[shard].replicas[replica];
        let queue = of.leader.iter().flat_map(|leader| &leader.queue);
        let is_tentative = of.leader.is_none() && of.tentative.iter().any(|entry| entry.id == id);
        is_tentative
            || state.shards[shard].log_of(replica).iter().any(|entry| entry.id == id)
            || queue.into_iter().any(|queued| queued.id == id)
    }

    /// Nothing in the queue that conflicts comes before this stamp.
    pub(super) fn is_head(&self, shard: usize, leader: &Leader, stamp: (u8, u8)) -> bool {
        let before = |queued: &&Queued| queued.stamp() < stamp && queued.id != stamp.1;
        !leader.queue.iter().filter(before).any(|queued| self.conflict(shard, queued.id, stamp.1))
    }

    /// The timestamp at which a leader accepts a transaction that asks for `t`.
    pub(super) fn raised(&self, state: &State, at: At, id: u8, t: u8) -> u8 {
        match self.table(state, at.0, at.1, id) {
            Some(greatest) if (t, id) <= greatest => greatest.0 + 1,
            _ => t,
        }
    }

    /// A transaction arrives from its coordinator, its timestamp is over, and it is released or queued.
    pub(super) fn can_deliver(&self, state: &State, at: At, id: u8) -> bool {
        let (shard, replica) = at;
        let of = &state.shards[shard].replicas[replica];
        if !of.is_alive
            || self.is_read(id)
            || !self.access(id, shard).is_some()
            || self.holds_transaction(state, at, id)
        {
            return false;
        }
        let t = self.scenario.transactions[id as usize].t;
        if let Some(leader) = &of.leader {
            let raised = self.raised(state, at, id, t);
            return leader.phase == LeaderPhase::Serving
                && (self.is_multi(id) || self.is_head(shard, leader, (raised, id)))
                && !self.is_undecided(state, at, id);
        }
        let is_late = self.holds(Rule::T1)
            && self.table(state, shard, replica, id).is_some_and(|greatest| (t, id) < greatest);
        of.lost >> id & 1 == 0
            && self.may_vote(state, at)
            && !is_late
            && !self.has_voted(state, at, id)
    }

    /// The transaction would stand behind an entry that touches a shard which has not answered: what that one stands behind is not known.
    fn is_undecided(&self, state: &State, at: At, id: u8) -> bool {
        let leader = self.serving(state, at).expect("serves");
        let is_open =
            |entry: &Entry| self.participants(entry.id).any(|shard| !leader.takes_from(shard));
        let mut log = state.shards[at.0].log_of(at.1).iter();
        log.any(|entry| self.conflict(at.0, entry.id, id) && is_open(entry))
    }

    fn has_voted(&self, state: &State, (shard, replica): At, id: u8) -> bool {
        let of = &state.shards[shard].replicas[replica];
        of.votes.iter().any(|vote| vote.id == id && vote.ballot == of.accepted.0)
    }

    pub(super) fn deliver(&self, state: &mut State, at: At, id: u8) -> Result<(), Violation> {
        if state.committed_before[id as usize].is_none() {
            state.committed_before[id as usize] = Some(state.committed);
        }
        let t = self.scenario.transactions[id as usize].t;
        if self.serving(state, at).is_some() {
            let t = self.raised(state, at, id, t);
            if self.is_multi(id) {
                self.enqueue(state, at, id, t);
                return Ok(());
            }
            let queued = Queued { t, id, promised: None, origin: Origin::Accepted };
            return self.append(state, at, &queued);
        }
        let Digest { digest, history, predecessors } = self.digest(state, at.0, at.1, (t, id));
        let entry =
            Tentative { id, t, digest, history, predecessors, is_voted: false, is_recorded: false };
        let tentative = &mut state.shards[at.0].replicas[at.1].tentative;
        tentative.push(entry);
        tentative.sort_by_key(Tentative::stamp);
        self.cast_votes(state, at);
        Ok(())
    }

    /// The entry of the queue that can be released, and for `Whole` the reads of the others.
    pub(super) fn releasable(&self, state: &State, at: At, id: u8) -> Option<Queued> {
        let leader = self.serving(state, at)?;
        let queued = leader.queue.iter().find(|queued| queued.id == id)?;
        if !self.is_head(at.0, leader, queued.stamp()) || self.is_undecided(state, at, id) {
            return None;
        }
        let needs_agreement = self.is_multi(id) && !queued.is_imported();
        let is_agreed = !needs_agreement || self.readies_of(state, at, queued).is_some();
        is_agreed.then(|| queued.clone())
    }

    /// The reads of all participants and what they name, if all are ready at this timestamp.
    fn readies_of(&self, state: &State, at: At, queued: &Queued) -> Option<(Reads, Named)> {
        let leader = self.serving(state, at)?;
        let own = |ready: &Ready| {
            (ready.t, ready.id) == queued.stamp()
                && ready.shard as usize == at.0
                && ready.ballots == leader.known
        };
        let own = state.readies.iter().find(|ready| own(ready))?;
        let (mut reads, mut named) = ([0; 3], [0; 3]);
        named[at.0] = own.in_front;
        for other in self.participants(queued.id).filter(|other| *other != at.0) {
            let matches = |ready: &&Ready| {
                let ballots_match = ready.ballots[other] == leader.known[other]
                    && ready.ballots[at.0] == leader.known[at.0];
                leader.takes_from(other)
                    && ready.id == queued.id
                    && ready.shard as usize == other
                    && ready.t == queued.t
                    && ballots_match
            };
            match state.readies.iter().find(matches) {
                Some(ready) => (reads[other], named[other]) = (ready.reads, ready.in_front),
                None if self.holds(Rule::T2Wait) => return None,
                None => {
                    let proposed = |propose: &Propose| {
                        propose.id == queued.id
                            && propose.shard as usize == other
                            && propose.t <= queued.t
                    };
                    state.proposes.iter().any(proposed).then_some(())?;
                }
            }
        }
        Some((reads, named))
    }

    /// A leader appends to its log, and so votes.
    pub(super) fn append(
        &self,
        state: &mut State,
        at: At,
        queued: &Queued,
    ) -> Result<(), Violation> {
        let (shard, replica) = at;
        let log = state.shards[shard].log_of(replica);
        let known = self.serving(state, at).expect("serves").known;
        let is_multi = self.is_multi(queued.id);
        let (mut reads, mut named) = match is_multi && !queued.is_imported() {
            true => self.readies_of(state, at, queued).expect("is agreed"),
            false => ([0; 3], [0; 3]),
        };
        let mut ballots = if is_multi { known } else { [0; 3] };
        let local = self.reads(shard, queued.id, log);
        if let Origin::Imported { reads: theirs, ballots: under, named: promised } = queued.origin {
            (reads, ballots, named) = (theirs, under, promised);
            if self.is_whole(queued.id) && reads[shard] != local {
                let what = format!("T{} is imported behind other versions than it read", queued.id);
                return Err(Violation { rule: "T18", what });
            }
        }
        reads[shard] = local;
        let Digest { digest, history, .. } = self.digest_in_log(shard, queued.stamp(), log);
        let (id, t) = (queued.id, queued.t);
        let entry = Entry { id, t, digest, history, reads, ballots, named };
        let of = &mut state.shards[shard].replicas[replica];
        let ballot = of.promised as usize;
        of.length += 1;
        of.tentative.retain(|entry| entry.id != queued.id);
        of.leader.as_mut().expect("leads").queue.retain(|other| other.id != queued.id);
        state.shards[shard].ballots[ballot].log.push(entry);
        Ok(())
    }

    /// Whether a follower releases and votes under the ballot it has accepted.
    fn may_vote(&self, state: &State, (shard, replica): At) -> bool {
        let of = &state.shards[shard].replicas[replica];
        let has_final = of.accepted.1 == Record::Final || !self.holds(Rule::E5);
        let is_current = of.promised == of.accepted.0 || !self.holds(Rule::T9);
        of.is_alive && of.leader.is_none() && has_final && is_current
    }

    /// A follower votes for all tentative entries that it may vote for.
    fn cast_votes(&self, state: &mut State, at: At) {
        let (shard, replica) = at;
        if !self.may_vote(state, at) {
            return;
        }
        for place in 0..state.shards[shard].replicas[replica].tentative.len() {
            let entry = &state.shards[shard].replicas[replica].tentative[place];
            if entry.is_voted {
                continue;
            }
            let (id, t) = (entry.id, entry.t);
            let Digest { digest, history, predecessors } =
                self.digest(state, shard, replica, (t, id));
            let log = state.shards[shard].log_of(replica);
            let is_unsynced = |other: &u8| !log.iter().any(|entry| entry.id == *other);
            let open = (0..8).filter(|other| predecessors >> other & 1 != 0).filter(is_unsynced);
            let is_withheld = self.holds(Rule::VoteOverSynced)
                && open.into_iter().any(|other| self.is_multi(other));
            let of = &mut state.shards[shard].replicas[replica];
            let ballot = of.accepted.0;
            let entry = &mut of.tentative[place];
            (entry.digest, entry.history, entry.predecessors) = (digest, history, predecessors);
            if !is_withheld {
                entry.is_voted = true;
                of.votes.insert(Vote { ballot, id, t, digest, history });
            }
        }
    }

    pub(super) fn can_sync(&self, state: &State, (shard, replica): At) -> bool {
        let of = &state.shards[shard].replicas[replica];
        let ballot = &state.shards[shard].ballots[of.accepted.0 as usize];
        let is_current = of.promised == of.accepted.0;
        of.is_alive
            && of.leader.is_none()
            && of.accepted.1 == Record::Final
            && is_current
            && (of.length as usize) < ballot.log.len()
    }

    /// A follower takes the next entry of the leader's log.
    pub(super) fn sync(&self, state: &mut State, at: At) {
        let (shard, replica) = at;
        let of = &mut state.shards[shard];
        let (ballots, of) = (&of.ballots, &mut of.replicas[replica]);
        let entry = ballots[of.accepted.0 as usize].log[of.length as usize].stamp();
        of.length += 1;
        of.tentative.retain(|other| other.id != entry.1);
        if self.holds(Rule::E1) {
            of.tentative
                .retain(|other| other.stamp() > entry || !self.conflict(shard, other.id, entry.1));
        }
        self.report_synced(state, at);
        self.cast_votes(state, at);
    }

    /// A follower votes with the slow vote for what is in its synced log.
    pub(super) fn report_synced(&self, state: &mut State, (shard, replica): At) {
        let ballots = state.shards[shard].ballots.len();
        let of = &mut state.shards[shard].replicas[replica];
        of.synced.resize(ballots, 0);
        let synced = &mut of.synced[of.accepted.0 as usize];
        *synced = (*synced).max(of.length);
    }
}
