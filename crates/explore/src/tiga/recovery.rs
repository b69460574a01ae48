//! Recovery of a shard whose leader was replaced: promises, start record, answers of other shards, final record.

use super::Tiga;
use super::order::Digest;
use super::release::At;
use super::rules::Rule;
use super::scenario::{CANDIDATE_LISTS, FAULTS, REPLICAS};
use super::state::{
    Answer, Ballot, Entry, Item, Leader, LeaderPhase, Origin, Promise, Queued, Record, State,
    Tentative,
};
use crate::Violation;

impl Tiga {
    /// Another leader is appointed, who begins to prepare. The old one crashes, or is alive and does not know it.
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
        };
        self.promise(state, at, Some(leader))
    }

    pub(super) fn can_promise(&self, state: &State, (shard, replica): At) -> bool {
        let of = &state.shards[shard];
        let latest = of.latest();
        let replica = &of.replicas[replica];
        replica.is_alive && replica.promised < latest && of.ballots[latest as usize].start.is_none()
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
        replica.leader = None;
        if accepted.1 == Record::Final {
            self.report_synced(state, at);
        }
    }

    /// Whether a leader has its start record at a majority, and is the one that was appointed last.
    fn has_durable_start(&self, state: &State, (shard, replica): At) -> bool {
        let of = &state.shards[shard];
        let latest = of.latest();
        let accepted = of.replicas.iter().filter(|other| other.accepted.0 == latest).count();
        let is_durable = accepted > REPLICAS / 2 || !self.holds(Rule::E4);
        of.leader() == Some(replica) && is_durable
    }

    /// Steps 2 and 3: the leader of `shard` asks the leader of `other`, which answers.
    pub(super) fn can_answer(&self, state: &State, shard: usize, other: usize) -> bool {
        let (Some(asker), Some(answerer)) =
            (state.shards[shard].leader(), state.shards[other].leader())
        else {
            return false;
        };
        let leader = |shard: usize, replica: usize| {
            state.shards[shard].replicas[replica].leader.as_ref().expect("leads")
        };
        let (asking, answering) = (leader(shard, asker), leader(other, answerer));
        let may_answer = match answering.phase {
            LeaderPhase::Preparing => false,
            LeaderPhase::Recovering => self.has_durable_start(state, (other, answerer)),
            LeaderPhase::Serving => true,
        };
        let latest = state.shards[other].latest();
        let is_answered =
            asking.answers[other].as_ref().is_some_and(|answer| answer.ballot == latest);
        asking.phase == LeaderPhase::Recovering
            && self.has_durable_start(state, (shard, asker))
            && may_answer
            && !is_answered
            && answering.known[shard] <= state.shards[shard].latest()
    }

    pub(super) fn answer(&self, state: &mut State, shard: usize, other: usize) {
        let answerer = state.shards[other].leader().expect("answers");
        let asker = state.shards[shard].leader().expect("asks");
        let (ballot, asking) = (state.shards[other].latest(), state.shards[shard].latest());
        let items = self.items(state, (other, answerer), shard);
        if self.holds(Rule::E9) {
            let leader = state.shards[other].replicas[answerer].leader.as_mut().expect("leads");
            leader.known[shard] = asking;
        }
        let leader = state.shards[shard].replicas[asker].leader.as_mut().expect("leads");
        leader.answers[other] = Some(Answer { ballot, items });
    }

    /// All that a leader knows of transactions that it shares with `shard`.
    fn items(&self, state: &State, at: At, shard: usize) -> Vec<Item> {
        let of = &state.shards[at.0].replicas[at.1];
        let leader = of.leader.as_ref().expect("leads");
        let nothing = ([0; 3], [0; 3]);
        let item = |id, t, is_agreed, (reads, ballots)| Item { id, t, is_agreed, reads, ballots };
        let log = state.shards[at.0].log_of(at.1).iter();
        let log = log.map(|entry| item(entry.id, entry.t, true, (entry.reads, entry.ballots)));
        let queue = leader.queue.iter().map(|queued| match queued.origin {
            Origin::Imported { reads, ballots } => {
                item(queued.id, queued.t, true, (reads, ballots))
            }
            Origin::Accepted | Origin::Kept => item(queued.id, queued.t, false, nothing),
        });
        let is_recovering = leader.phase == LeaderPhase::Recovering;
        let candidates = of.tentative.iter().filter(|_| is_recovering);
        let candidates = candidates.map(|entry| item(entry.id, entry.t, false, nothing));
        let concerns =
            |item: &Item| self.is_multi(item.id) && self.access(item.id, shard).is_some();
        let mut items: Vec<Item> = log.chain(queue).chain(candidates).filter(concerns).collect();
        items.sort();
        items
    }

    /// The answers of a recovering leader, by shard, once all are there and none is void.
    fn answers<'a>(
        &self,
        state: &'a State,
        (shard, replica): At,
    ) -> Option<Vec<(usize, &'a Answer)>> {
        let of = &state.shards[shard].replicas[replica];
        let leader = of
            .leader
            .as_ref()
            .filter(|leader| of.is_alive && leader.phase == LeaderPhase::Recovering)?;
        let others = (0..self.scenario.shards).filter(|other| *other != shard);
        let valid = |other: usize| {
            let answer = leader.answers[other].as_ref()?;
            (answer.ballot >= leader.known[other]).then_some((other, answer))
        };
        others.map(valid).collect()
    }

    pub(super) fn can_finish(&self, state: &State, at: At) -> bool {
        self.answers(state, at).is_some()
    }

    /// Steps 3 and 4: the leader decides what is imported and kept, and sends its final record.
    pub(super) fn finish(&self, state: &mut State, at: At) -> Result<(), Violation> {
        let (shard, replica) = at;
        let answers: Vec<(usize, Answer)> = self
            .answers(state, at)
            .expect("all have answered")
            .into_iter()
            .map(|(other, answer)| (other, answer.clone()))
            .collect();
        let imports = self.imports(state, at, &answers);
        let kept = self.kept(state, at, &answers, &imports);
        let of = &mut state.shards[shard].replicas[replica];
        let leader = of.leader.as_mut().expect("leads");
        for (other, answer) in &answers {
            leader.known[*other] = leader.known[*other].max(answer.ballot);
        }
        (leader.phase, leader.answers) = (LeaderPhase::Serving, [None, None, None]);
        leader.queue = imports
            .into_iter()
            .map(|item| Queued {
                t: item.t,
                id: item.id,
                promised: Some(item.t),
                origin: Origin::Imported { reads: item.reads, ballots: item.ballots },
            })
            .collect();
        leader.queue.extend(kept.iter().map(|entry| Queued {
            t: entry.t,
            id: entry.id,
            promised: Some(entry.t),
            origin: Origin::Kept,
        }));
        leader.queue.sort();
        let ballot = of.promised;
        of.accepted = (ballot, Record::Final);
        let candidates = std::mem::replace(&mut of.tentative, kept.clone());
        state.shards[shard].ballots[ballot as usize].finished = Some(kept.clone());
        if !self.holds(Rule::ImportsBehind) {
            self.sort_everything(state, at, &candidates, &answers);
        }
        for entry in kept.iter().filter(|entry| self.is_multi(entry.id)) {
            if self.holds(Rule::ProposeOnAcceptance) && self.holds(Rule::ImportsBehind) {
                self.propose(state, at, entry.id, entry.t);
            }
        }
        self.check_stable_prefix(state, shard, ballot)
    }

    /// What is agreed, and missing here.
    fn imports(
        &self,
        state: &State,
        (shard, replica): At,
        answers: &[(usize, Answer)],
    ) -> Vec<Item> {
        let log = state.shards[shard].log_of(replica);
        let mut imports: Vec<Item> = Vec::new();
        for item in
            answers.iter().flat_map(|(_, answer)| &answer.items).filter(|item| item.is_agreed)
        {
            let is_here = log.iter().any(|entry| entry.id == item.id)
                || imports.iter().any(|other| other.id == item.id);
            if !is_here {
                imports.push(item.clone());
            }
        }
        imports
    }

    /// The candidates that are kept at their timestamps.
    fn kept(
        &self,
        state: &State,
        (shard, replica): At,
        answers: &[(usize, Answer)],
        imports: &[Item],
    ) -> Vec<Tentative> {
        let log = state.shards[shard].log_of(replica);
        let mut kept: Vec<Tentative> = Vec::new();
        for candidate in &state.shards[shard].replicas[replica].tentative {
            let is_safe = |before: &u8| {
                let is_kept = kept.iter().any(|entry| entry.id == *before);
                log.iter().any(|entry| entry.id == *before) || !self.is_multi(*before) && is_kept
            };
            let mut predecessors = (0..8).filter(|id| candidate.predecessors >> id & 1 != 0);
            let has_everywhere = |other: usize| {
                let (_, answer) =
                    answers.iter().find(|(shard, _)| *shard == other).expect("has answered");
                answer.items.iter().any(|item| (item.t, item.id) == candidate.stamp())
            };
            let mut others = self.participants(candidate.id).filter(|other| *other != shard);
            let writes_before = |item: &Item| {
                let writes = self.access(candidate.id, shard).writes;
                self.is_whole(item.id)
                    && (item.t, item.id) > candidate.stamp()
                    && writes & self.access(item.id, shard).reads != 0
            };
            let is_imported = imports.iter().any(|item| item.id == candidate.id);
            let hides_reads = self.holds(Rule::E3) && imports.iter().any(writes_before);
            if !is_imported
                && !hides_reads
                && predecessors.all(|id| is_safe(&id))
                && others.all(has_everywhere)
            {
                kept.push(candidate.clone());
            }
        }
        kept
    }

    /// Hole 3: the published protocol rebuilds the log from all that is known, sorted by timestamp.
    fn sort_everything(
        &self,
        state: &mut State,
        (shard, replica): At,
        candidates: &[Tentative],
        answers: &[(usize, Answer)],
    ) {
        let log = state.shards[shard].log_of(replica).to_vec();
        let known = log.iter().map(|entry| Item {
            id: entry.id,
            t: entry.t,
            is_agreed: true,
            reads: entry.reads,
            ballots: entry.ballots,
        });
        let found = candidates.iter().map(|entry| Item {
            id: entry.id,
            t: entry.t,
            is_agreed: false,
            reads: [0; 3],
            ballots: [0; 3],
        });
        let theirs = answers.iter().flat_map(|(_, answer)| answer.items.clone());
        let mut all: Vec<Item> = Vec::new();
        for item in known.chain(found).chain(theirs) {
            match all.iter_mut().find(|other| other.id == item.id) {
                Some(other) => other.t = other.t.max(item.t),
                None => all.push(item),
            }
        }
        all.sort_by_key(|item| (item.t, item.id));
        let mut log: Vec<Entry> = Vec::new();
        for Item { id, t, mut reads, ballots, .. } in all {
            let Digest { digest, history, .. } = self.digest_in_log(shard, (t, id), &log);
            reads[shard] = self.reads(shard, id, &log);
            log.push(Entry { id, t, digest, history, reads, ballots });
        }
        let of = &mut state.shards[shard];
        of.replicas[replica].length = log.len() as u8;
        of.replicas[replica].tentative.clear();
        of.replicas[replica].leader.as_mut().expect("leads").queue.clear();
        let ballot = of.replicas[replica].promised as usize;
        let ballot = &mut of.ballots[ballot];
        (ballot.adopted, ballot.log, ballot.finished) = (log.len() as u8, log, Some(Vec::new()));
    }
}
