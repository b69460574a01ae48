//! Ballots: appointments, promises, and the start and final records that voters accept.

use super::Tiga;
use super::release::At;
use super::rules::Rule;
use super::scenario::{CANDIDATE_LISTS, FAULTS};
use super::state::{Ballot, Entry, Leader, LeaderPhase, Promise, Record, State, Tentative};
use crate::Violation;

impl Tiga {
    /// Another leader is appointed, which begins to prepare. The old one crashes, or is alive and does not know it.
    pub(super) fn appoint(
        &self,
        state: &mut State,
        at: At,
        old_crashes: bool,
    ) -> Result<(), Violation> {
        let shard = at.0;
        let old = state.shards[shard].leader();
        let of = &mut state.shards[shard];
        of.ballots.push(Ballot::default());
        of.appointments_left -= 1;
        if let Some(old) = old.filter(|_| old_crashes) {
            of.crashes_left -= 1;
            let old = &mut of.replicas[old];
            (old.is_alive, old.leader) = (false, None);
            old.tentative.clear();
        }
        let mut known = [0; 3];
        known[shard] = of.latest();
        let leader = Leader {
            phase: LeaderPhase::Preparing,
            known,
            answers: [None, None, None],
            queue: Vec::new(),
            unanswered: 0,
        };
        self.promise(state, at, Some(leader))
    }

    /// A recovery without this replica is possible.
    pub(super) fn can_miss(&self, state: &State, (shard, replica): At) -> bool {
        let others =
            state.shards[shard].replicas.iter().enumerate().filter(|(at, _)| *at != replica);
        others.filter(|(_, other)| other.is_alive && other.has_memory).count() > FAULTS
    }

    pub(super) fn can_restart(&self, state: &State, at: At) -> bool {
        let of = &state.shards[at.0];
        let leads = of.replicas[at.1].leader.is_some();
        of.restarts_left > 0 && of.leader().is_some() && !leads && self.can_miss(state, at)
    }

    /// A voter crashes and returns without its memory, which its new incarnation knows.
    pub(super) fn restart(&self, state: &mut State, at: At) -> Result<(), Violation> {
        let (shard, replica) = at;
        let of = &mut state.shards[shard];
        of.restarts_left -= 1;
        let leader = of.leader().expect("a leader serves or recovers");
        let forces_ballot = self.holds(Rule::RestartBallot);
        if forces_ballot {
            of.ballots.push(Ballot::default());
        }
        let latest = of.latest();
        let is_first = latest == 0;
        let returned = &mut of.replicas[replica];
        (returned.is_alive, returned.has_memory) = (true, !forces_ballot);
        (returned.promised, returned.length) = (latest, 0);
        returned.accepted = (0, if is_first { Record::Final } else { Record::Start });
        returned.tentative.clear();
        if !forces_ballot {
            return Ok(());
        }
        let mut known = self.leader_mut(state, (shard, leader)).known;
        known[shard] = latest;
        let unanswered = self.leader_mut(state, (shard, leader)).unanswered;
        let phase = LeaderPhase::Preparing;
        let answers = [None, None, None];
        let again = Leader { phase, known, answers, queue: Vec::new(), unanswered };
        self.promise(state, (shard, leader), Some(again))
    }

    pub(super) fn can_promise(&self, state: &State, (shard, replica): At) -> bool {
        let of = &state.shards[shard];
        let latest = of.latest();
        let replica = &of.replicas[replica];
        replica.is_alive
            && replica.has_memory
            && replica.promised < latest
            && of.ballots[latest as usize].start.is_none()
    }

    /// A voter promises the latest ballot, and gives what it has to its leader. The last promise of f + 1 makes the start
    /// record.
    pub(super) fn promise(
        &self,
        state: &mut State,
        at: At,
        leader: Option<Leader>,
    ) -> Result<(), Violation> {
        let (shard, replica) = at;
        let mut tentative = self.tentative_list(state, at);
        if !self.holds(Rule::T7) {
            tentative.clear();
        }
        let latest = state.shards[shard].latest();
        let of = &mut state.shards[shard].replicas[replica];
        let promise =
            Promise { accepted: of.accepted, length: of.length, tentative: tentative.clone() };
        of.promised = latest;
        of.leader = leader;
        of.tentative = tentative;
        let ballot = &mut state.shards[shard].ballots[latest as usize];
        ballot.promises.push(promise);
        ballot.promises.sort();
        if ballot.promises.len() == FAULTS + 1 {
            return self.make_start_record(state, shard);
        }
        Ok(())
    }

    /// E11: what is released or voted for and not synced; of a leader, what it has kept or voted for and not appended.
    fn tentative_list(&self, state: &State, (shard, replica): At) -> Vec<Tentative> {
        let of = &state.shards[shard].replicas[replica];
        let mut list = of.tentative.clone();
        let Some(leader) = of.leader.as_ref().filter(|_| self.holds(Rule::E11)) else {
            return list;
        };
        let early = &state.shards[shard].ballots[of.promised as usize].early;
        for (vote, _, _) in early {
            let is_open = leader.queue.iter().any(|queued| queued.stamp() == (vote.t, vote.id));
            if is_open && !list.iter().any(|entry| entry.id == vote.id) {
                list.push(Tentative {
                    id: vote.id,
                    t: vote.t,
                    digest: vote.digest,
                    history: vote.history,
                    predecessors: 0,
                    is_voted: true,
                    is_recorded: false,
                });
            }
        }
        list.sort_by_key(Tentative::stamp);
        list
    }

    /// Step 1: the new leader adopts the best log, and collects candidates.
    fn make_start_record(&self, state: &mut State, shard: usize) -> Result<(), Violation> {
        let latest = state.shards[shard].latest();
        let of = &mut state.shards[shard];
        let promises = std::mem::take(&mut of.ballots[latest as usize].promises);
        let best = promises.iter().max_by_key(|promise| (promise.accepted, promise.length));
        let best = best.expect("f + 1 promises");
        let log = of.ballots[best.accepted.0 as usize].log[..best.length as usize].to_vec();
        let lists: Vec<&Promise> =
            promises.iter().filter(|promise| promise.accepted == best.accepted).collect();
        let mut candidates: Vec<Tentative> = Vec::new();
        for entry in lists.iter().flat_map(|promise| &promise.tentative) {
            let equal =
                |other: &Tentative| other.stamp() == entry.stamp() && other.digest == entry.digest;
            let count = lists.iter().filter(|list| list.tentative.iter().any(equal)).count();
            let is_known = log.iter().any(|other| other.id == entry.id)
                || candidates.iter().any(|other| other.id == entry.id);
            let stands = count >= CANDIDATE_LISTS || entry.is_recorded;
            if stands && !is_known && self.may_be_candidate(shard, entry, &log) {
                candidates.push(Tentative { is_voted: true, is_recorded: true, ..entry.clone() });
            }
        }
        candidates.sort_by_key(Tentative::stamp);
        let leader = state.shards[shard].leader().expect("collects promises");
        let of = &mut state.shards[shard];
        let replica = &mut of.replicas[leader];
        replica.accepted = (latest, Record::Start);
        replica.length = log.len() as u8;
        replica.tentative.clone_from(&candidates);
        replica.leader.as_mut().expect("leads").phase = LeaderPhase::Recovering;
        let ballot = &mut of.ballots[latest as usize];
        (ballot.adopted, ballot.start, ballot.log) = (log.len() as u8, Some(candidates), log);
        self.check_stable_prefix(state, shard, latest)
    }

    /// E1, and the bound of hole 2.
    fn may_be_candidate(&self, shard: usize, entry: &Tentative, log: &[Entry]) -> bool {
        let is_behind = |other: &Entry| {
            other.stamp() > entry.stamp() && self.conflict(shard, other.id, entry.id)
        };
        let is_late = |other: &Entry| other.t > entry.t;
        (!self.holds(Rule::E1) || !log.iter().any(is_behind))
            && (self.holds(Rule::DigestsDecide) || !log.iter().any(is_late))
    }

    pub(super) fn can_accept(
        &self,
        state: &State,
        (shard, replica): At,
        accepted: (u8, Record),
    ) -> bool {
        let of = &state.shards[shard].replicas[replica];
        let ballot = &state.shards[shard].ballots[accepted.0 as usize];
        let exists = match accepted.1 {
            Record::Start => ballot.start.is_some(),
            Record::Final => ballot.finished.is_some(),
        };
        let leads = of.leader.is_some() && of.promised == accepted.0;
        accepted.0 > 0
            && of.is_alive
            && exists
            && !leads
            && accepted.0 >= of.promised
            && accepted > of.accepted
    }

    /// A voter accepts a record: it takes the adopted log, and the record instead of its tentative list.
    pub(super) fn accept(&self, state: &mut State, at: At, accepted: (u8, Record)) {
        let (shard, replica) = at;
        let of = &mut state.shards[shard];
        let ballot = &of.ballots[accepted.0 as usize];
        let list = match accepted.1 {
            Record::Start => &ballot.start,
            Record::Final => &ballot.finished,
        };
        let replica = &mut of.replicas[replica];
        replica.tentative.clone_from(list.as_ref().expect("exists"));
        (replica.promised, replica.accepted, replica.length) =
            (accepted.0, accepted, ballot.adopted);
        (replica.leader, replica.has_memory) = (None, true);
        if accepted.1 == Record::Final {
            self.report_synced(state, at);
        }
    }
}
