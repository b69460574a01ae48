//! A transaction from its first operation until it is answered.

use super::metrics::OWNING;
use super::shared::{SharedNode, WorkerNews, ticket};
use super::transaction::{Obstacle, ZeusTransaction};
use super::transaction_fact::TransactionFact;
use super::{Zeus, ZeusEffects};
use crate::commit::{CommitRefusal, LocalCommit, ReadCommit};
use crate::granule::GranuleId;
use crate::node::ZeusNode;
use crate::ownership::Want;
use crate::read_only::ReadStanding;
use crate::record::Level;
use shoal_engine::EngineEffect;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::slot::ResultSlot;
use shoal_engine::execution::worker_context::Submission;
use shoal_types::limits::TRANSACTION_MESSAGE_BYTES_MAX;
use shoal_types::{
    Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, Time, Unknown, WorkerId,
};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Waits are looked at so often within the longest one.
const WAIT_LOOKS: u32 = 16;

/// What has come of a transaction that asks to commit.
enum CommitProgress {
    /// Its outcome may be revealed.
    Told(Result<()>),
    /// It is committed locally, and answered once it is validated.
    Committed,
    /// It waits.
    Waits(Obstacle),
}

/// What comes of a transaction that writes nothing. One that has read what this node has committed locally only is validated
/// with that (rule Z7); all others are checked.
fn read_only(
    now: Time,
    shared: &mut SharedNode,
    transaction: &ZeusTransaction,
    worker: WorkerId,
) -> CommitProgress {
    let (node, reads) = (&mut shared.node, transaction.reads());
    let told = |is_same: bool| match is_same {
        true => CommitProgress::Told(Ok(())),
        false => CommitProgress::Told(Err(transaction.changed(None))),
    };
    if !reads.saw_pending() {
        return told(node.reader(now).check(reads));
    }
    let commit = transaction.local_commit(worker);
    match node.commit_read(now, &commit) {
        Ok(ReadCommit::Validated) => {
            let touched = levels(node, &commit);
            shared.note(worker, || TransactionFact::ReadsValidated { touched });
            CommitProgress::Told(Ok(()))
        }
        Ok(ReadCommit::Pending) => {
            let (number, touched) = (commit.tag, levels(node, &commit));
            shared.note(worker, || TransactionFact::Committed { number, touched });
            CommitProgress::Committed
        }
        Err(CommitRefusal::Changed(_)) => told(false),
        // Not all of it is owned here, or other workers have touched it: it is checked once all of it is validated.
        Err(_) => match node.reader(now).standing(reads) {
            ReadStanding::Pending => CommitProgress::Waits(Obstacle::Slots),
            ReadStanding::Validated => told(node.reader(now).check(reads)),
            ReadStanding::Changed => told(false),
        },
    }
}

/// What a commit has touched, with the levels of the node; nothing, unless a checker looks on.
fn levels(node: &ZeusNode, commit: &LocalCommit) -> Vec<(GranuleId, Level)> {
    let touched = if node.rows().is_watched() { commit.touched() } else { BTreeSet::new() };
    let level = |granule: &GranuleId| node.ownership().level(node.id(), granule);
    touched.into_iter().map(|granule| (granule.clone(), level(&granule))).collect()
}

impl Zeus {
    /// Operations of a transaction have gathered.
    pub(super) fn perform(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut ZeusEffects,
    ) {
        let sequence = remote_branches.id.sequence;
        let operations = remote_branches.take_operations();
        if operations.is_empty() {
            return;
        }
        let transaction = self.transactions.entry(sequence);
        let transaction = transaction
            .or_insert_with(|| ZeusTransaction::boxed(remote_branches, &self.prediction));
        for (shard, operations) in operations {
            self.runtime.counters.operations += operations.len() as u64;
            transaction.take(shard, operations);
        }
        self.advance(sequence, effects);
    }

    /// The body of a transaction is done.
    pub(super) fn submit(&mut self, submission: Submission, effects: &mut ZeusEffects) {
        let Submission { remote_branches, branches, ending } = submission;
        assert!(branches.is_empty(), "no operation is done in a store");
        let sequence = remote_branches.id.sequence;
        self.runtime.worker_context.submit(&remote_branches.marks);
        let rest = remote_branches.take_rest();
        let transaction = self.transactions.entry(sequence);
        let transaction = transaction
            .or_insert_with(|| ZeusTransaction::boxed(&remote_branches, &self.prediction));
        for (shard, operations) in rest {
            self.runtime.counters.operations += operations.len() as u64;
            transaction.take(shard, operations);
        }
        transaction.ending = Some(ending);
        self.advance(sequence, effects);
    }

    /// Fills the slot once all that an open transaction has read is validated, or never will be (rule Z7).
    pub(super) fn reveal(
        &mut self,
        sequence: u64,
        slot: Rc<ResultSlot<Result<()>>>,
        effects: &mut ZeusEffects,
    ) {
        let transaction = self.transactions.get_mut(&sequence);
        match transaction.filter(|transaction| transaction.reads().saw_pending()) {
            None => slot.fill(Ok(())),
            Some(transaction) => {
                transaction.revealing = Some(slot);
                self.advance(sequence, effects);
            }
        }
    }

    /// Receives which transactions can go on, until there is no news.
    pub(super) fn hear(&mut self, effects: &mut ZeusEffects) {
        loop {
            let worker = self.runtime.worker_context.place.worker;
            let WorkerNews { ready, validated, has_copied } = self.shared.lock().take_news(worker);
            if has_copied {
                let led = self.led.keys().map(|shard| EngineEffect::CaughtUp { shard: *shard });
                effects.effects.extend(led);
            }
            if ready.is_empty() && validated.is_empty() {
                return;
            }
            for sequence in validated {
                self.tell(sequence, Ok(()), effects);
            }
            for sequence in ready {
                self.advance(sequence, effects);
            }
        }
    }

    /// Looks at transactions that wait for something that no event shows, and at those whose waits are over.
    pub(super) fn look_at_watched(&mut self, effects: &mut ZeusEffects) {
        let now = self.now();
        let over = |transaction: &ZeusTransaction| {
            transaction.waits_until.is_some_and(|until| until <= now)
        };
        let mut due: Vec<u64> = self.watched.iter().copied().collect();
        if self.waits_due <= now {
            let limits = &self.runtime.worker_context.limits;
            self.waits_due = now + limits.shard_wait_max / WAIT_LOOKS;
            let all = self.transactions.iter().filter(|(_, transaction)| over(transaction));
            due.extend(all.map(|(sequence, _)| *sequence));
        }
        due.sort_unstable();
        due.dedup();
        for sequence in due {
            match self.transactions.get(&sequence) {
                Some(transaction) if transaction.is_committed && over(transaction) => {
                    self.lose(sequence, effects);
                }
                Some(_) => self.advance(sequence, effects),
                None => drop(self.watched.remove(&sequence)),
            }
        }
    }

    /// Goes on with a transaction as far as it can.
    fn advance(&mut self, sequence: u64, effects: &mut ZeusEffects) {
        let now = self.now();
        let Some(mut transaction) = self.transactions.remove(&sequence) else { return };
        if transaction.is_committed {
            self.transactions.insert(sequence, transaction);
            return;
        }
        if let Some(failure) = transaction.remote_branches.failure() {
            let is_done = transaction.ending.is_some();
            if let Some(slot) = transaction.revealing.take() {
                slot.fill(Err(failure.clone()));
            }
            self.transactions.insert(sequence, transaction);
            if is_done {
                self.tell(sequence, Err(failure), effects);
            }
            return;
        }
        let progress = self.with_node(effects, |shared| {
            let node = &shared.node;
            let mut obstacles = transaction.advance(now, node);
            while obstacles.is_empty() {
                let more = transaction.remote_branches.take_operations();
                if more.is_empty() {
                    break;
                }
                more.into_iter().for_each(|(shard, more)| transaction.take(shard, more));
                obstacles = transaction.advance(now, node);
            }
            if obstacles.is_empty() {
                obstacles.extend(transaction.reveal(now, node));
            }
            obstacles
        });
        let mut obstacles = progress;
        if obstacles.is_empty() && transaction.ending.is_some() {
            match self.try_commit(&mut transaction, effects) {
                CommitProgress::Waits(obstacle) => obstacles.push(obstacle),
                CommitProgress::Told(result) => {
                    self.transactions.insert(sequence, transaction);
                    return self.tell(sequence, result, effects);
                }
                CommitProgress::Committed => {
                    transaction.is_committed = true;
                    transaction.waits_until = Some(now + self.wait_max(&transaction));
                    transaction.pending_until = None;
                    self.watched.remove(&sequence);
                    self.transactions.insert(sequence, transaction);
                    return;
                }
            }
        }
        self.wait(sequence, transaction, &obstacles, effects);
    }

    /// For how long a transaction waits for one thing.
    fn wait_max(&self, transaction: &ZeusTransaction) -> std::time::Duration {
        let worker_context = &self.runtime.worker_context;
        let keys = transaction.remote_branches.keys();
        worker_context.limits.shard_wait_max + worker_context.extra_wait(keys)
    }

    /// Keeps a transaction that these obstacles hold up; without any, its body goes on.
    fn wait(
        &mut self,
        sequence: u64,
        mut transaction: Box<ZeusTransaction>,
        obstacles: &[Obstacle],
        effects: &mut ZeusEffects,
    ) {
        let now = self.now();
        self.watched.remove(&sequence);
        if obstacles.is_empty() {
            (transaction.waits_until, transaction.pending_until) = (None, None);
            self.transactions.insert(sequence, transaction);
            return;
        }
        let until = *transaction.waits_until.get_or_insert(now + self.wait_max(&transaction));
        let is_pending = obstacles.contains(&Obstacle::Pending);
        let pending_max = self.shared.setup.options.pending_wait_max;
        transaction.pending_until = match transaction.pending_until {
            _ if !is_pending => None,
            Some(until) => Some(until),
            None => Some(now + pending_max),
        };
        let worker = self.runtime.worker_context.place.worker;
        let ticket = ticket(worker, sequence);
        let error = if until <= now {
            let shard = transaction.shard();
            Some(Aborted::from(Conflict::NoAnswer { shard }).into())
        } else if transaction.pending_until.is_some_and(|until| until <= now) {
            Some(transaction.changed(None))
        } else {
            None
        };
        let wants = obstacles.iter().any(|it| matches!(it, Obstacle::Granule(..)));
        let refusal = self.with_node(effects, |shared| {
            shared.waits_for_moves += u64::from(wants && error.is_none());
            let wanted = shared.node.ownership().wants();
            let is_said = wanted.is_waiting(ticket)
                && wanted.get(ticket).is_some_and(|it| it.granules == transaction.granules);
            if wants && !is_said && error.is_none() {
                if transaction.remote_branches.may_move
                    && let Some(owner) = shared.owner_to_go_to(now, &transaction.granules)
                {
                    shared.sent_to_owners += 1;
                    return Some(Aborted::Moved { owner }.into());
                }
                let granules = transaction.granules.clone();
                let born = transaction.remote_branches.asked_at();
                shared.node.want(now, ticket, Want { granules, born });
            }
            let lost = shared.node.ownership().lost(ticket).cloned();
            if let Some(granule) = lost.clone() {
                let epoch = shared.node.view().epoch;
                shared.note(worker, || TransactionFact::Lost { granule, epoch });
            }
            shared.refused_as_lost += u64::from(lost.is_some());
            lost.map(|granule| {
                let key = KeyExcerpt::new(&granule.prefix);
                Rejected::DataLost { table: granule.family, key }.into()
            })
        });
        let error = error.or(refusal);
        if obstacles.iter().any(|it| !matches!(it, Obstacle::Granule(..))) {
            self.watched.insert(sequence);
        }
        self.transactions.insert(sequence, transaction);
        if let Some(error) = error {
            self.fail(sequence, error, effects);
        }
    }

    /// Tries to commit a transaction all of whose operations are done.
    fn try_commit(
        &mut self,
        transaction: &mut ZeusTransaction,
        effects: &mut ZeusEffects,
    ) -> CommitProgress {
        let (now, worker) = (self.now(), self.runtime.worker_context.place.worker);
        let epoch = transaction.remote_branches.epoch;
        if self.shared.is_on_disk()
            && transaction.commits_writes()
            && let Err(full) = self.shared.room.check_logs()
        {
            return CommitProgress::Told(Err(full));
        }
        let old = Err(Aborted::from(Conflict::EpochNotOpen { epoch }).into());
        let writes = transaction.commits_writes();
        if writes {
            transaction.need_all_owned();
        }
        let shards = transaction.remote_branches.remotes();
        let shards = shards.iter().filter(|remote| remote.writes).count();
        let refusal = self.with_node(effects, |shared| {
            let node = &mut shared.node;
            if node.view().epoch != epoch {
                return Err(CommitRefusal::NotMember);
            }
            if !writes {
                return Ok(read_only(now, shared, transaction, worker));
            }
            let commit = transaction.local_commit(worker);
            let (number, touched) = (commit.tag, levels(node, &commit));
            node.commit(now, commit)?;
            shared.note(worker, || TransactionFact::Committed { number, touched });
            Ok(CommitProgress::Committed)
        });
        match refusal {
            Ok(progress) if writes => {
                self.counters.committed_locally += 1;
                self.runtime.count_writes(&transaction.remote_branches, shards);
                let marks = &transaction.remote_branches.marks;
                self.runtime.worker_context.end_stage(marks, OWNING);
                progress
            }
            Ok(progress) => progress,
            Err(CommitRefusal::NotOwned(granule)) => {
                CommitProgress::Waits(Obstacle::Granule(granule, Level::Owner))
            }
            Err(CommitRefusal::OtherPipeline(_) | CommitRefusal::PipelineFull) => {
                CommitProgress::Waits(Obstacle::Slots)
            }
            Err(CommitRefusal::Changed(granule)) => {
                CommitProgress::Told(Err(transaction.changed(Some(&granule))))
            }
            Err(CommitRefusal::GranuleFull(granule)) => {
                let key = KeyExcerpt::new(&granule.prefix);
                let max = crate::granule::GRANULE_BYTES_MAX;
                let full = Rejected::GranuleFull { table: granule.family, key, max };
                CommitProgress::Told(Err(full.into()))
            }
            Err(CommitRefusal::TooManyBytes(bytes)) => {
                let max = TRANSACTION_MESSAGE_BYTES_MAX;
                CommitProgress::Told(Err(Rejected::TransactionBytes { bytes, max }.into()))
            }
            Err(CommitRefusal::NotMember) => CommitProgress::Told(old),
        }
    }

    /// A transaction cannot go on: its body receives an error, or if that is done, its client.
    pub(super) fn fail(&mut self, sequence: u64, error: Error, effects: &mut ZeusEffects) {
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        if transaction.ending.is_some() {
            return self.tell(sequence, Err(error), effects);
        }
        if let Some(slot) = transaction.revealing.take() {
            slot.fill(Err(error.clone()));
        }
        transaction.remember();
        (transaction.waits_until, transaction.pending_until) = (None, None);
        transaction.remote_branches.spoil(&error);
        self.watched.remove(&sequence);
        self.release(sequence, effects);
    }

    /// A transaction that is committed locally was not validated in time, or the node was out since: whether it takes effect
    /// is not known here.
    pub(super) fn lose(&mut self, sequence: u64, effects: &mut ZeusEffects) {
        let Some(transaction) = self.transactions.get(&sequence) else { return };
        let error = match transaction.commits_writes() {
            true => Unknown::NotDurable { shard: transaction.shard() }.into(),
            false => transaction.changed(None),
        };
        self.tell(sequence, Err(error), effects);
    }

    /// Answers a transaction with its outcome.
    fn tell(&mut self, sequence: u64, outcome: Result<()>, effects: &mut ZeusEffects) {
        let Some(transaction) = self.transactions.get(&sequence) else { return };
        match &outcome {
            Ok(()) => transaction.teach(),
            Err(Error::Aborted(_)) => transaction.remember(),
            Err(_) => {}
        }
        let remote_branches = Rc::clone(&transaction.remote_branches);
        self.forget(sequence, effects);
        match outcome {
            Ok(()) => self.runtime.commit(&remote_branches),
            Err(_) => self.runtime.finish(&remote_branches, outcome),
        }
    }

    /// Nothing is kept of a transaction any more.
    pub(super) fn forget(&mut self, sequence: u64, effects: &mut ZeusEffects) {
        if let Some(transaction) = self.transactions.remove(&sequence) {
            transaction.remember();
        }
        self.watched.remove(&sequence);
        self.release(sequence, effects);
        self.runtime.expect_resolved(sequence, 0);
    }

    /// The transaction wants no granules any more.
    fn release(&mut self, sequence: u64, effects: &mut ZeusEffects) {
        let (now, worker) = (self.now(), self.runtime.worker_context.place.worker);
        self.with_node(effects, |shared| shared.node.release(now, ticket(worker, sequence)));
    }
}
