//! Agreement among leaders: `Propose`, `Ready`, and the votes of detective leaders.

use super::Tiga;
use super::order::Digest;
use super::release::At;
use super::rules::Rule;
use super::state::{Entry, Origin, Propose, Queued, Ready, Stamp, State, Vote};

impl Tiga {
    /// A leader accepts a transaction of several shards.
    pub(super) fn enqueue(&self, state: &mut State, at: At, id: u8, t: u8) {
        let leader = self.leader_mut(state, at);
        leader.queue.push(Queued { t, id, promised: None, origin: Origin::Accepted });
        leader.queue.sort();
        if self.holds(Rule::ProposeOnAcceptance) {
            self.propose(state, at, id, t);
        }
    }

    pub(super) fn propose(&self, state: &mut State, at: At, id: u8, t: u8) {
        let ballot = self.ballot_of(state, at);
        state.proposes.insert(Propose { id, shard: at.0 as u8, ballot, t });
    }

    /// Hole 5: a leader of the published protocol proposes at the head of its queue.
    pub(super) fn can_propose_at_head(&self, state: &State, at: At, id: u8) -> bool {
        let Some(leader) =
            self.serving(state, at).filter(|_| !self.holds(Rule::ProposeOnAcceptance))
        else {
            return false;
        };
        let (shard, ballot) = (at.0 as u8, self.ballot_of(state, at));
        let is_proposed =
            |queued: &Queued| state.proposes.contains(&Propose { id, shard, ballot, t: queued.t });
        let mut queue =
            leader.queue.iter().filter(|queued| queued.id == id && !queued.is_imported());
        queue.any(|queued| !is_proposed(queued) && self.is_head(at.0, leader, queued.stamp()))
    }

    pub(super) fn propose_at_head(&self, state: &mut State, at: At, id: u8) {
        let leader = self.leader_mut(state, at);
        let t = leader.queue.iter().find(|queued| queued.id == id).expect("is queued").t;
        self.propose(state, at, id, t);
    }

    /// A `Propose` of another shard would change something at this leader.
    pub(super) fn can_receive(&self, state: &State, at: At, propose: &Propose) -> bool {
        let Some(leader) = self.serving(state, at) else { return false };
        let known = leader.known[propose.shard as usize];
        let is_addressed =
            propose.shard as usize != at.0 && self.access(propose.id, at.0).is_some();
        let is_taken = leader.takes_from(propose.shard as usize);
        if !is_addressed || !is_taken || propose.ballot < known {
            return false;
        }
        if let Some(queued) = leader.queue.iter().find(|queued| queued.id == propose.id) {
            return propose.ballot > known || propose.t > queued.t && !queued.is_imported();
        }
        if !self.holds_transaction(state, at, propose.id) {
            return true;
        }
        let mut current = leader.known;
        current[propose.shard as usize] = propose.ballot;
        propose.ballot > known
            || self
                .ready_of_entry(state, at, propose.id, current)
                .is_some_and(|ready| !state.readies.contains(&ready))
    }

    pub(super) fn receive(&self, state: &mut State, at: At, propose: &Propose) {
        self.leader_mut(state, at).known[propose.shard as usize] = propose.ballot;
        if !self.holds_transaction(state, at, propose.id) {
            let t = self.raised(state, at, propose.id, propose.t);
            self.enqueue(state, at, propose.id, t);
            return;
        }
        let known = self.leader_mut(state, at).known;
        if let Some(ready) = self.ready_of_entry(state, at, propose.id, known) {
            self.propose(state, at, ready.id, ready.t);
            state.readies.insert(ready);
            return;
        }
        let leader = self.leader_mut(state, at);
        let queued =
            leader.queue.iter_mut().find(|queued| queued.id == propose.id).expect("is queued");
        if propose.t > queued.t && !queued.is_imported() {
            queued.t = propose.t;
            leader.queue.sort();
            if self.holds(Rule::ProposeOnAcceptance) {
                self.propose(state, at, propose.id, propose.t);
            }
        }
    }

    /// What a leader answers that has released the transaction already.
    fn ready_of_entry(&self, state: &State, at: At, id: u8, ballots: [u8; 3]) -> Option<Ready> {
        let log = state.shards[at.0].log_of(at.1);
        let entry = log.iter().find(|entry| entry.id == id)?;
        let reads = if self.is_whole(id) { entry.reads[at.0] } else { 0 };
        let in_front = self.in_front(at.0, entry.stamp(), log);
        Some(Ready { id, shard: at.0 as u8, t: entry.t, ballots, reads, in_front })
    }

    /// What conflicts with a transaction, of the entries in front of it.
    fn in_front(&self, shard: usize, stamp: Stamp, log: &[Entry]) -> u8 {
        let before = log.iter().filter(|entry| entry.stamp() < stamp);
        let conflicting = before.filter(|entry| self.conflict(shard, entry.id, stamp.1));
        conflicting.fold(0, |bits, entry| bits | 1 << entry.id)
    }

    /// The `Ready` that a leader would send now for what stands at the head of its queue.
    pub(super) fn next_ready(&self, state: &State, at: At, id: u8) -> Option<Ready> {
        let leader = self.serving(state, at)?;
        let queued = leader.queue.iter().find(|queued| queued.id == id && !queued.is_imported())?;
        let mut others = self.participants(id).filter(|other| *other != at.0);
        let has_proposed = |other: usize| {
            let current = |propose: &&Propose| {
                propose.id == id
                    && propose.shard as usize == other
                    && propose.ballot == leader.known[other]
            };
            leader.takes_from(other)
                && state.proposes.iter().filter(current).any(|propose| propose.t <= queued.t)
        };
        let is_head = self.is_multi(id) && self.is_head(at.0, leader, queued.stamp());
        if !is_head || !others.all(has_proposed) || !self.reads_are_stable(state, at, id) {
            return None;
        }
        let log = state.shards[at.0].log_of(at.1);
        let reads = if self.is_whole(id) { self.reads(at.0, id, log) } else { 0 };
        let in_front = self.in_front(at.0, queued.stamp(), log);
        let (shard, ballots) = (at.0 as u8, leader.known);
        let ready = Ready { id, shard, t: queued.t, ballots, reads, in_front };
        (!state.readies.contains(&ready)).then_some(ready)
    }

    /// E3: what the reads rest on is at a majority.
    fn reads_are_stable(&self, state: &State, at: At, id: u8) -> bool {
        if !self.is_whole(id) || !self.holds(Rule::E3) {
            return true;
        }
        let log = state.shards[at.0].log_of(at.1);
        let read = self.access(id, at.0).reads;
        let last = log.iter().rposition(|entry| self.access(entry.id, at.0).writes & read != 0);
        last.is_none_or(|last| last < self.stable(state, at.0, self.ballot_of(state, at)))
    }

    pub(super) fn send_ready(&self, state: &mut State, at: At, ready: Ready) {
        if self.holds(Rule::T2Promise) {
            self.promise_stamp(state, at, ready.id, ready.t);
        }
        state.readies.insert(ready);
    }

    fn promise_stamp(&self, state: &mut State, at: At, id: u8, t: u8) {
        let leader = self.leader_mut(state, at);
        let queued = leader.queue.iter_mut().find(|queued| queued.id == id).expect("is queued");
        queued.promised = queued.promised.max(Some(t));
    }

    /// The vote of a detective leader for what stands at the head of its queue.
    pub(super) fn can_vote_early(&self, state: &State, at: At, id: u8) -> bool {
        let Some(leader) = self.serving(state, at).filter(|_| self.scenario.detective) else {
            return false;
        };
        let Some(queued) = leader.queue.iter().find(|queued| queued.id == id) else { return false };
        let early = &state.shards[at.0].ballots[self.ballot_of(state, at) as usize].early;
        let has_voted = early.iter().any(|(vote, ballots, _)| {
            (vote.t, vote.id) == queued.stamp() && *ballots == leader.known
        });
        let is_head = self.is_multi(id) && self.is_head(at.0, leader, queued.stamp());
        let all_answered = self.participants(id).all(|shard| leader.takes_from(shard));
        is_head && all_answered && !has_voted && !queued.is_imported()
    }

    pub(super) fn vote_early(&self, state: &mut State, at: At, id: u8) {
        let leader = self.leader_mut(state, at);
        let (known, t) = (
            leader.known,
            leader.queue.iter().find(|queued| queued.id == id).expect("is queued").t,
        );
        self.promise_stamp(state, at, id, t);
        let ballot = self.ballot_of(state, at);
        let log = state.shards[at.0].log_of(at.1);
        let Digest { digest, history, .. } = self.digest_in_log(at.0, (t, id), log);
        let mut reads = [0; 3];
        reads[at.0] = self.reads(at.0, id, log);
        let vote = Vote { ballot, id, t, digest, history };
        state.shards[at.0].ballots[ballot as usize].early.insert((vote, known, reads));
    }
}
