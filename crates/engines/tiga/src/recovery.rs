//! Recovery of a shard by a new leader.
//!
//! ```text
//!   appointed ──► log prepared and adopted, lists of a majority ──► start record ── decided ──►
//!   other shards asked ── all have answered ──► final record: what is imported and kept ──► serves
//! ```
//! A list counts if its votes were given under the base that the adopted log names; if that is a start record, its candidates
//! alone count. A candidate stands in as many of the lists as a fast commit leaves in any majority.

use crate::answer::{Answer, AnswerPart, in_parts};
use crate::leading::{Leading, Phase};
use crate::locks::LockIndex;
use crate::message::Message;
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::{Origin, Waiting};
use crate::record::{Base, Candidate, Entry, Item, Record, TentativeList};
use crate::repetition::Repetition;
use crate::replica::Replica;
use crate::stamp::{ArrivalTimes, Stamp};
use crate::step::Step;
use crate::transaction::Work;
use crate::view::{Quorums, ShardView};
use shoal_engine::TransactionId;
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many lists of the base's voters a recovery takes: a majority of those, or, where fewer are a majority of the present
/// voters, so many. Voters change one by one, so that these see as much of what was committed. None where the base is no final
/// record: then nothing was voted for, and the start record has all candidates.
fn lists_needed(base: &Base, view: &ShardView) -> usize {
    if !base.is_final {
        return 0;
    }
    let majority = |voters: &[NodeId]| Quorums::of(voters.len()).majority;
    let needed = majority(&base.voters).min(majority(&view.voters));
    let least = Quorums::lists_min(base.voters.len());
    assert!(needed >= least, "{needed} lists do not show what {base:?} has committed: {view:?}");
    needed
}

impl Replica {
    /// This node is appointed to lead the shard, or again.
    pub fn appoint(&mut self, step: &mut Step<'_>, ballot: Ballot, since: Epoch) {
        let continues = self.leading.as_ref().is_some_and(|leading| leading.since == since);
        if self.leading.as_ref().is_some_and(|leading| leading.ballot == ballot) {
            return;
        }
        match continues {
            // What it has appended is still on its way into the log.
            true => {
                self.flush(step, true);
                self.clear_queue();
            }
            false => self.step_down(step),
        }
        self.promised = ballot.max(self.promised);
        let repetition = Repetition::at_once(step.now, step.options.recovery_backoff());
        self.leading = Some(Leading::new(ballot, since, step.now, repetition));
    }

    /// The log is prepared under the ballot of this node: it has `length` entries, or more that this node has proposed.
    pub fn prepared(&mut self, ballot: Ballot, length: u64) {
        let own = self.ledger.length();
        let Some(leading) = self.leading.as_mut().filter(|it| it.ballot == ballot) else { return };
        if let Phase::Preparing { length: known, .. } = &mut leading.phase {
            *known = Some(length.max(own));
        }
    }

    /// A voter gives its tentative list.
    pub fn listed(&mut self, from: NodeId, ballot: Ballot, list: TentativeList) {
        let Some(leading) = self.leading.as_mut().filter(|it| it.ballot == ballot) else { return };
        if let Phase::Preparing { lists, .. } = &mut leading.phase {
            lists.insert(from, list);
        }
    }

    /// Goes on with a recovery as far as it can.
    pub fn recover(&mut self, step: &mut Step<'_>) {
        match self.leading.as_ref().map(|leading| &leading.phase) {
            Some(Phase::Preparing { .. }) => self.collect(step),
            Some(Phase::Asking { .. }) => self.ask(step),
            Some(Phase::Serving) | None => {}
        }
    }

    /// Step 1: the log is adopted, and candidates are collected.
    fn collect(&mut self, step: &mut Step<'_>) {
        let applied = self.ledger.applied;
        let is_whole = self.ledger.length() == applied;
        let Some(view) = step.view.shard(self.shard).cloned() else { return };
        let Some(leading) = &self.leading else { return };
        let (me, ballot) = (step.view.me, leading.ballot);
        let Phase::Preparing { length, lists, .. } = &leading.phase else { return };
        let is_adopted = length.is_some_and(|length| applied >= length) && is_whole;
        let may_count = is_adopted && self.has_votes(step);
        if !may_count || !view.full.contains(&me) || view.ballot != ballot {
            return;
        }
        let own_list = (!lists.contains_key(&me)).then(|| self.own_list(step));
        let leading = self.leading.as_mut().expect("prepares");
        let Phase::Preparing { lists, repetition, .. } = &mut leading.phase else { return };
        // What was committed by votes was counted among the voters of the base. One that was added since, or that has lost its
        // memory and has nothing of the base, knows nothing of that.
        let base = &self.ledger.base;
        lists.extend(own_list.map(|list| (me, list)));
        lists.retain(|node, _| view.full.contains(node) && base.voters.contains(node));
        let needed = lists_needed(base, &view);
        if lists.len() < needed {
            if repetition.take_due(step.now) {
                for voter in view.full.iter().filter(|it| !lists.contains_key(it)) {
                    step.send(*voter, Message::ListWanted { shard: self.shard, ballot });
                }
            }
            return;
        }
        let lists: Vec<_> = std::mem::take(lists).into_values().take(needed).collect();
        let candidates = self.candidates(step, &lists);
        let entry = Entry::Start { ballot, candidates };
        step.propose(self.shard, &entry);
        let start = self.ledger.length();
        self.ledger.append(entry);
        let leading = self.leading.as_mut().expect("recovers");
        let repetition = Repetition::at_once(step.now, step.options.recovery_backoff());
        leading.phase = Phase::Asking { start, answers: BTreeMap::new(), repetition };
    }

    /// What may have been committed by votes and is not in the adopted log.
    fn candidates(&self, step: &Step<'_>, lists: &[TentativeList]) -> Vec<Candidate> {
        let base = &self.ledger.base;
        // A voter with another base has given no vote under this one, and will give none.
        let of_base = lists.iter().filter(|list| list.base == base.ballot);
        let mut counted: BTreeMap<(Stamp, u128), (usize, &Candidate)> = BTreeMap::new();
        for candidate in of_base.flat_map(|list| &list.entries) {
            let key = (candidate.stamp(), candidate.digest.0);
            counted.entry(key).or_insert((0, candidate)).0 += 1;
        }
        let least = Quorums::candidate(base.voters.len(), lists.len());
        let found = counted.into_values().filter(|(count, _)| *count >= least);
        // What is refused stays so (rule T21). What is over may come: a new process of its coordinator does not know what the
        // one before has acknowledged by votes alone.
        let drops_over = step.options.bugs.has(TigaPlantedBug::DropWhatIsOver);
        let is_excluded = |candidate: &Candidate| {
            let id = candidate.transaction.id;
            self.ledger.is_refused(id) || drops_over && self.ledger.is_over(id)
        };
        let found = found.map(|(_, candidate)| candidate.clone()).filter(|it| !is_excluded(it));
        let by_timestamp = step.options.bugs.has(TigaPlantedBug::KeepByTimestamp);
        let last = self.ledger.recent.last_key_value().filter(|_| by_timestamp);
        let last = last.map_or(Time::ZERO, |(stamp, _)| stamp.t);
        let found = found.filter(|candidate| candidate.t > last);
        let recorded = self.ledger.recorded.values().cloned();
        let mut candidates: BTreeMap<TransactionId, Candidate> = BTreeMap::new();
        for candidate in recorded.chain(found) {
            let id = candidate.transaction.id;
            let is_known = self.ledger.has_recent(id) || candidate.t <= self.ledger.seal;
            if !is_known
                && (!self.is_behind(&candidate)
                    || step.options.bugs.has(TigaPlantedBug::KeepBehindSynced))
            {
                candidates.entry(id).or_insert(candidate);
            }
        }
        let mut candidates: Vec<Candidate> = candidates.into_values().collect();
        candidates.sort_by_key(Candidate::stamp);
        candidates
    }

    /// Whether the adopted log has something that conflicts with a greater stamp (E1).
    fn is_behind(&self, candidate: &Candidate) -> bool {
        let Some(work) = Work::new(&candidate.transaction, self.shard) else { return true };
        let mut index = LockIndex::default();
        index.add(candidate.stamp(), &work.locks);
        let mut after = self.ledger.recent.range(candidate.stamp()..).map(|(_, record)| record);
        after.any(|record| {
            let other = Work::new(&record.transaction, self.shard);
            other.is_some_and(|other| index.rivals(&other.locks).next().is_some())
        })
    }

    /// Step 3: the other shards are asked.
    fn ask(&mut self, step: &mut Step<'_>) {
        let applied = self.ledger.applied;
        let asks_early = step.options.bugs.has(TigaPlantedBug::AskBeforeRecord);
        let Some(leading) = &mut self.leading else { return };
        let ballot = leading.ballot;
        let Phase::Asking { start, answers, repetition } = &mut leading.phase else { return };
        if applied <= *start && !asks_early {
            return;
        }
        answers.retain(|shard, answer| answer.ballot >= step.view.known(*shard));
        let all = (0..step.view.shards.len() as u32).map(ShardId);
        let is_missing = |shard: &ShardId| !answers.get(shard).is_some_and(Answer::is_whole);
        let others = all.filter(|shard| *shard != self.shard);
        let missing: Vec<ShardId> = others.filter(is_missing).collect();
        if missing.is_empty() {
            return self.finish(step);
        }
        if repetition.take_due(step.now) {
            for to in missing {
                step.send_to_leader(to, Message::Query { to, shard: self.shard, ballot });
            }
        }
    }

    /// Another shard recovers under `ballot`, and asks what it shares with this one.
    pub fn query(&mut self, step: &mut Step<'_>, shard: ShardId, asked: Ballot) {
        let Some(leading) = self.leading.as_ref().filter(|_| step.has_lease) else { return };
        let may_answer = match &leading.phase {
            Phase::Preparing { .. } => false,
            Phase::Asking { start, .. } => self.ledger.applied > *start,
            Phase::Serving => true,
        };
        let ballot = leading.ballot;
        if !may_answer || ballot != step.view.known(self.shard) || !step.view.hear(shard, asked) {
            return;
        }
        let unsettled = self.ledger.unsettled.values().map(|it| &it.record);
        let undecided = self.ledger.undecided();
        let agreed = unsettled.chain(undecided).chain(leading.batch.iter());
        let agreed = agreed.map(|record| Item::Agreed { record: Arc::clone(record) });
        let queued = self.queue.iter().map(|(stamp, waiting)| match &waiting.origin {
            Origin::Imported(record) => Item::Agreed { record: Arc::clone(record) },
            Origin::Accepted | Origin::Kept => Item::Waiting { stamp },
        });
        let recorded = self.ledger.recorded.values();
        let recorded = recorded.map(|it| Item::Waiting { stamp: it.stamp() });
        let concerns = |item: &Item| self.concerns(item, shard);
        let items: Vec<Item> = agreed.chain(queued).chain(recorded).filter(concerns).collect();
        let (to, shard) = (shard, self.shard);
        let leading = self.leading.as_mut().expect("answers as a leader");
        leading.answers += 1;
        for (part, items) in in_parts(leading.answers, items, step.options.window_bytes) {
            let message = Message::Answer { to, asked, shard, ballot, part, items };
            step.send(asked.node, message);
        }
    }

    fn concerns(&self, item: &Item, shard: ShardId) -> bool {
        let transaction = match item {
            Item::Agreed { record } => &record.transaction,
            Item::Waiting { stamp } => {
                let waiting = self.queue.get(stamp.id).map(|(_, it)| &it.work.transaction);
                let recorded = self.ledger.recorded.get(&stamp.id).map(|it| &it.transaction);
                match waiting.or(recorded) {
                    Some(transaction) => transaction,
                    None => return false,
                }
            }
        };
        transaction.place(shard).is_some()
    }

    /// Another shard has answered.
    pub fn answered(
        &mut self,
        step: &mut Step<'_>,
        asked: Ballot,
        shard: ShardId,
        ballot: Ballot,
        part: AnswerPart,
        items: Vec<Item>,
    ) {
        let is_current = step.view.hear(shard, ballot);
        let Some(leading) = self.leading.as_mut().filter(|it| it.ballot == asked) else { return };
        if let Phase::Asking { answers, .. } = &mut leading.phase
            && is_current
        {
            answers.entry(shard).or_default().receive(ballot, part, items);
        }
    }

    /// Steps 3 and 4: decides what is imported and what is kept, and says so in the final record.
    fn finish(&mut self, step: &mut Step<'_>) {
        let Some(leading) = &mut self.leading else { return };
        let ballot = leading.ballot;
        let Phase::Asking { answers, .. } = &mut leading.phase else { return };
        // Those of another ballot would be counted in another configuration.
        let Some(view) = step.view.shard(self.shard).filter(|view| view.ballot == ballot) else {
            return;
        };
        let voters = view.voters.clone();
        let answers = std::mem::take(answers);
        leading.phase = Phase::Serving;
        let imports = match step.options.bugs.has(TigaPlantedBug::ForgetImports) {
            true => BTreeMap::new(),
            false => self.imports(&answers),
        };
        let kept = self.kept(step, &answers, &imports);
        let entry = Entry::Final { ballot, voters, kept: kept.clone() };
        step.propose(self.shard, &entry);
        self.ledger.append(entry);
        self.tentative.clear();
        self.base = ballot;
        let leading = self.leading.as_mut().expect("recovers");
        let kept_ids = kept.iter().map(|candidate| candidate.transaction.id);
        leading.inherited = imports.keys().copied().chain(kept_ids).collect();
        // An entry that said so may be lost.
        let settled = self.ledger.unsettled.iter().filter(|(_, it)| it.waits_for.is_empty());
        leading.settled.extend(settled.map(|(id, _)| *id));
        let times = ArrivalTimes::default();
        for record in imports.into_values() {
            let Some(work) = Work::new(&record.transaction, self.shard) else { continue };
            self.conflicts.note(&work.locks, record.t);
            self.enqueue(step, record.t, Waiting::new(work, Origin::Imported(record), times));
        }
        for Candidate { t, transaction, .. } in kept {
            let Some(work) = Work::new(&transaction, self.shard) else { continue };
            self.conflicts.note(&work.locks, t);
            self.enqueue(step, t, Waiting::new(work, Origin::Kept, times));
        }
    }

    /// What is agreed elsewhere, and missing here.
    fn imports(&self, answers: &BTreeMap<ShardId, Answer>) -> BTreeMap<TransactionId, Arc<Record>> {
        let items = answers.values().flat_map(Answer::items);
        let agreed = items.filter_map(|item| match item {
            Item::Agreed { record } => Some(record),
            Item::Waiting { .. } => None,
        });
        // What waited here for its release when it was sealed is in the log, or was not agreed.
        let is_missing = |record: &&Arc<Record>| {
            record.t > self.ledger.seal && !self.ledger.has_recent(record.id())
        };
        agreed.filter(is_missing).map(|record| (record.id(), Arc::clone(record))).collect()
    }

    /// The candidates that are kept at their timestamps.
    fn kept(
        &self,
        step: &Step<'_>,
        answers: &BTreeMap<ShardId, Answer>,
        imports: &BTreeMap<TransactionId, Arc<Record>>,
    ) -> Vec<Candidate> {
        let has = |shard: ShardId, stamp: Stamp| {
            let mut items = answers.get(&shard).into_iter().flat_map(Answer::items);
            items.any(|item| match item {
                Item::Agreed { record } => record.stamp() == stamp,
                Item::Waiting { stamp: other } => *other == stamp,
            })
        };
        let mut kept: Vec<Candidate> = Vec::new();
        let mut kept_ids: BTreeSet<TransactionId> = BTreeSet::new();
        let mut candidates: Vec<&Candidate> = self.ledger.recorded.values().collect();
        candidates.sort_by_key(|candidate| candidate.stamp());
        for candidate in candidates {
            let id = candidate.transaction.id;
            let is_safe = |before: &crate::transaction::Predecessor| {
                let Stamp { t, id } = before.stamp;
                t <= self.ledger.seal
                    || self.ledger.has_recent(id)
                    || (!before.is_multi && kept_ids.contains(&id))
            };
            let mut others = crate::record::others(&candidate.transaction, self.shard);
            if !imports.contains_key(&id)
                && candidate.predecessors.iter().all(is_safe)
                && others.all(|shard| has(shard, candidate.stamp()))
                && !self.is_excluded(step, candidate, imports)
            {
                kept_ids.insert(id);
                kept.push(candidate.clone());
            }
        }
        kept
    }
}
