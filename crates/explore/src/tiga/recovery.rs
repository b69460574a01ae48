//! Recovery of a shard whose leader was replaced: promises, start record, answers of other shards, final record.

use super::Tiga;
use super::order::Digest;
use super::release::At;
use super::rules::Rule;
use super::scenario::REPLICAS;
use super::state::{
    Answer, Entry, Item, Leader, LeaderPhase, Origin, Queued, Record, State, Tentative,
};
use crate::Violation;

impl Tiga {
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
        let nothing = ([0; 3], [0; 3], [0; 3]);
        let item = |id, t, is_agreed, (reads, ballots, named)| Item {
            id,
            t,
            is_agreed,
            reads,
            ballots,
            named,
        };
        let log = state.shards[at.0].log_of(at.1).iter();
        let log = log
            .map(|entry| item(entry.id, entry.t, true, (entry.reads, entry.ballots, entry.named)));
        let queue = leader.queue.iter().map(|queued| match queued.origin {
            Origin::Imported { reads, ballots, named } => {
                item(queued.id, queued.t, true, (reads, ballots, named))
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

    /// The answers of a recovering leader, by shard, once all are there and none is void. There may be none of the shard
    /// that others do not wait for.
    fn answers(&self, state: &State, (shard, replica): At) -> Option<Vec<(usize, Answer)>> {
        let of = &state.shards[shard].replicas[replica];
        let recovers = |leader: &&Leader| of.is_alive && leader.phase == LeaderPhase::Recovering;
        let leader = of.leader.as_ref().filter(recovers)?;
        let others = (0..self.scenario.shards).filter(|other| *other != shard);
        let valid = |other: usize| {
            let known = leader.known[other];
            match leader.answers[other].clone().filter(|answer| answer.ballot >= known) {
                Some(answer) => Some((other, answer)),
                None if self.is_unreachable(other)
                    && self.has_durable_start(state, (shard, replica)) =>
                {
                    Some((other, Answer { ballot: known, items: Vec::new() }))
                }
                None => None,
            }
        };
        others.map(valid).collect()
    }

    /// Other shards recover without it.
    fn is_unreachable(&self, shard: usize) -> bool {
        self.scenario.unreachable == Some(shard)
    }

    /// The shard that a leader did not wait for has a leader that can answer now.
    pub(super) fn can_import_late(&self, state: &State, at: At) -> bool {
        let unreachable = self.scenario.unreachable;
        let is_open = |other: &usize| {
            self.serving(state, at).is_some_and(|leader| !leader.takes_from(*other))
        };
        let other = unreachable
            .filter(is_open)
            .and_then(|other| Some((other, state.shards[other].leader()?)));
        other.is_some_and(|other| self.serving(state, other).is_some())
    }

    /// A leader is answered after it has ended its recovery, and imports what is agreed behind all that it has.
    pub(super) fn import_late(&self, state: &mut State, at: At) {
        let other = self.scenario.unreachable.expect("is answered late");
        let answerer = (other, state.shards[other].leader().expect("answers"));
        let items = self.items(state, answerer, at.0);
        let ballot = state.shards[other].latest();
        let own = self.ballot_of(state, at);
        let imports = self.imports(state, at, &[(other, Answer { ballot, items })]);
        self.leader_mut(state, answerer).known[at.0] = own;
        let leader = self.leader_mut(state, at);
        leader.unanswered &= !(1 << other);
        leader.known[other] = ballot;
        leader.queue.retain(|queued| !imports.iter().any(|item| item.id == queued.id));
        leader.queue.extend(imports.iter().map(queued_import));
        leader.queue.sort();
    }

    pub(super) fn can_finish(&self, state: &State, at: At) -> bool {
        self.answers(state, at).is_some()
    }

    /// Steps 3 and 4: the leader decides what is imported and kept, and sends its final record.
    pub(super) fn finish(&self, state: &mut State, at: At) -> Result<(), Violation> {
        let (shard, replica) = at;
        let answers = self.answers(state, at).expect("all have answered");
        let imports = self.imports(state, at, &answers);
        let kept = self.kept(state, at, &answers, &imports);
        let of = &mut state.shards[shard].replicas[replica];
        let leader = of.leader.as_mut().expect("leads");
        for (other, answer) in &answers {
            leader.known[*other] = leader.known[*other].max(answer.ballot);
        }
        let silent = |other: &(usize, Answer)| leader.answers[other.0].is_none();
        leader.unanswered = answers
            .iter()
            .filter(|other| silent(other))
            .fold(0, |bits, (other, _)| bits | 1 << other);
        (leader.phase, leader.answers) = (LeaderPhase::Serving, [None, None, None]);
        leader.queue = imports.iter().map(queued_import).collect();
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
                let is_there = |item: &Item| (item.t, item.id) == candidate.stamp();
                self.is_unreachable(other) || answer.items.iter().any(is_there)
            };
            let mut others = self.participants(candidate.id).filter(|other| *other != shard);
            let writes_before = |item: &Item| {
                let writes = self.access(candidate.id, shard).writes;
                self.is_whole(item.id)
                    && (item.t, item.id) > candidate.stamp()
                    && writes & self.access(item.id, shard).reads != 0
            };
            let is_unnamed = |item: &Item| {
                (item.t, item.id) > candidate.stamp()
                    && self.conflict(shard, item.id, candidate.id)
                    && item.named[shard] >> candidate.id & 1 == 0
            };
            let is_unnamed = self.holds(Rule::T23) && imports.iter().any(is_unnamed);
            let is_imported = imports.iter().any(|item| item.id == candidate.id);
            let hides_reads = self.holds(Rule::E3) && imports.iter().any(writes_before);
            if !is_imported
                && !hides_reads
                && !is_unnamed
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
            named: entry.named,
        });
        let found = candidates.iter().map(|entry| Item {
            id: entry.id,
            t: entry.t,
            is_agreed: false,
            reads: [0; 3],
            ballots: [0; 3],
            named: [0; 3],
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
        for Item { id, t, mut reads, ballots, named, .. } in all {
            let Digest { digest, history, .. } = self.digest_in_log(shard, (t, id), &log);
            reads[shard] = self.reads(shard, id, &log);
            log.push(Entry { id, t, digest, history, reads, ballots, named });
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

fn queued_import(item: &Item) -> Queued {
    let &Item { id, t, reads, ballots, named, .. } = item;
    Queued { t, id, promised: Some(t), origin: Origin::Imported { reads, ballots, named } }
}
