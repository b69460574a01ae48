//! A transaction from its first operation until its outcome is reported.

use super::metrics::PREPARING;
use super::transaction::{OpenTransaction, PendingRead};
use super::{Tiga, TigaEffects};
use crate::coordinator::{Coordinator, Ended, Outcome};
use crate::message::{Found, Message};
use crate::repetition::Repetition;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::worker_context::{BodyEnd, Submission, WorkerContext, recovering};
use shoal_engine::operation::Operation;
use shoal_types::{Aborted, Conflict, Error, Result, ShardId, Unknown, WorkerPlace};
use std::rc::Rc;
use std::time::Duration;

impl Tiga {
    /// Operations of a transaction have gathered.
    pub(super) fn perform(
        &mut self,
        remote_branches: &Rc<RemoteBranches>,
        effects: &mut TigaEffects,
    ) {
        let batches = remote_branches.take_operations();
        if batches.is_empty() {
            return;
        }
        let sequence = remote_branches.id.sequence;
        self.transactions.entry(sequence).or_insert_with(|| OpenTransaction::new(remote_branches));
        for (shard, operations) in batches {
            self.begin_batch(sequence, shard, operations, effects);
        }
    }

    /// Does the operations of a batch at once, or asks the shard's leader for what they read.
    fn begin_batch(
        &mut self,
        sequence: u64,
        shard: ShardId,
        operations: Vec<Operation>,
        effects: &mut TigaEffects,
    ) {
        self.runtime.counters.operations += operations.len() as u64;
        let tables = self.runtime.worker_context.known_tables();
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        let reads = transaction.needed(&tables, shard, &operations);
        if reads.is_empty() {
            return transaction.perform(shard, operations, std::collections::VecDeque::new());
        }
        transaction.requests += 1;
        transaction.awaited += 1;
        let now = self.runtime.worker_context.now.get();
        let repetition = Repetition::later(now, self.shared.setup.options.protocol.backoff());
        let repeat_at = repetition.at();
        let give_up_at = now + self.runtime.worker_context.limits.shard_wait_max;
        let number = self.next_read;
        self.next_read += 1;
        if self.reads.is_empty() || self.reads_due > repeat_at {
            self.reads_due = repeat_at;
        }
        let found = Vec::new();
        let read =
            PendingRead { sequence, shard, operations, reads, found, repetition, give_up_at };
        let message = read.message(number);
        self.reads.insert(number, read);
        self.send_to_leader(shard, message, effects);
    }

    fn send_to_leader(&mut self, shard: ShardId, message: Message, effects: &mut TigaEffects) {
        self.with_node(effects, |node, now, library| {
            if let Some(leader) = node.view().leader(shard) {
                node.send(now, library, leader, message);
            }
        });
    }

    /// Takes the answers to reads that have come.
    pub(super) fn take_answers(&mut self, effects: &mut TigaEffects) {
        for (_, message) in self.node.take_answers() {
            if let Message::ReadsDone { number, found } = message {
                self.read_done(number, found, effects);
            }
        }
    }

    fn read_done(&mut self, number: u64, found: Vec<Found>, effects: &mut TigaEffects) {
        let fits = |read: &PendingRead| {
            !found.is_empty() && read.found.len() + found.len() <= read.reads.len()
        };
        if !self.reads.get(&number).is_some_and(fits) {
            self.runtime.counters.dropped += 1;
            return;
        }
        let Some(mut read) = self.reads.remove(&number) else { return };
        read.found.extend(found);
        let Some(transaction) = self.transactions.get_mut(&read.sequence) else { return };
        if read.found.len() < read.reads.len() {
            // One message does not take all of it.
            transaction.requests += 1;
            let (shard, number) = (read.shard, self.next_read);
            self.next_read += 1;
            let message = read.message(number);
            self.reads.insert(number, read);
            return self.send_to_leader(shard, message, effects);
        }
        let PendingRead { sequence, shard, operations, reads, found, .. } = read;
        transaction.awaited -= 1;
        match transaction.take(shard, &reads, found) {
            Ok(scanned) => transaction.perform(shard, operations, scanned),
            Err(error) => transaction.remote_branches.spoil(&error),
        }
        // More may have gathered meanwhile for that shard.
        let remote_branches = Rc::clone(&transaction.remote_branches);
        self.perform(&remote_branches, effects);
        self.try_commit(sequence, effects);
    }

    /// Sends reads again that were not answered in time, and gives up those that have waited for too long.
    pub(super) fn look_at_reads(&mut self, effects: &mut TigaEffects) {
        let now = self.runtime.worker_context.now.get();
        if self.reads.is_empty() || self.reads_due > now {
            return;
        }
        let repeat_after = self.shared.setup.options.protocol.repeat_after;
        self.reads_due = now + repeat_after;
        let numbers: Vec<u64> = self.reads.keys().copied().collect();
        for number in numbers {
            let Some(read) = self.reads.get_mut(&number) else { continue };
            let (sequence, shard) = (read.sequence, read.shard);
            let Some(transaction) = self.transactions.get_mut(&sequence) else {
                self.reads.remove(&number);
                continue;
            };
            if read.give_up_at <= now {
                self.reads.remove(&number);
                transaction.awaited -= 1;
                let error = Error::from(Aborted::from(Conflict::NoAnswer { shard }));
                transaction.remote_branches.spoil(&error);
                self.try_commit(sequence, effects);
            } else if read.repetition.take_due(now) {
                let message = read.message(number);
                self.runtime.counters.resent += 1;
                self.send_to_leader(shard, message, effects);
            }
        }
    }

    /// The body of a transaction is done.
    pub(super) fn submit(&mut self, submission: Submission, effects: &mut TigaEffects) {
        let Submission { remote_branches, branches, ending } = submission;
        assert!(branches.is_empty(), "no operation is done in a store");
        let sequence = remote_branches.id.sequence;
        self.runtime.worker_context.submit(&remote_branches.marks);
        let rest = remote_branches.take_rest();
        let transaction = self.transactions.entry(sequence);
        let transaction = transaction.or_insert_with(|| OpenTransaction::new(&remote_branches));
        transaction.ending = Some(ending);
        for (shard, operations) in rest {
            self.begin_batch(sequence, shard, operations, effects);
        }
        self.try_commit(sequence, effects);
    }

    /// Hands a transaction to the protocol, if its body is done and all that it reads is here.
    fn try_commit(&mut self, sequence: u64, effects: &mut TigaEffects) {
        let now = self.runtime.worker_context.now.get();
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        let Some(ending) = transaction.ending else { return };
        if transaction.handed_at.is_some() {
            return;
        }
        if let Some(failure) = transaction.remote_branches.failure() {
            return self.tell(sequence, Err(failure));
        }
        if transaction.awaited > 0 {
            return;
        }
        let writes = transaction.writes() && ending == BodyEnd::Commit;
        if !writes && transaction.has_read_at_once() {
            return self.tell(sequence, Ok(()));
        }
        if writes && let Err(full) = self.shared.check_room() {
            return self.tell(sequence, Err(full));
        }
        let tables = self.runtime.worker_context.known_tables();
        let oldest = oldest(&self.runtime.worker_context, self.node.coordinator());
        let certificate = transaction.certificate(self.node.view(), &tables, oldest, ending);
        let Some(certificate) = certificate else { return self.tell(sequence, Ok(())) };
        if let Err(error) = certificate.check_bytes() {
            return self.tell(sequence, Err(error));
        }
        transaction.handed_at = Some(now);
        let remote_branches = Rc::clone(&transaction.remote_branches);
        let size = transaction.size();
        let shards = certificate.parts.iter().filter(|part| !part.writes.is_empty()).count();
        self.runtime.count_writes(&remote_branches, shards);
        self.runtime.worker_context.end_stage(&remote_branches.marks, PREPARING);
        let patience = self.patience(size);
        self.with_node(effects, |node, now, library| {
            node.begin(now, library, certificate, patience);
        });
    }

    /// For how long the outcome of a transaction of so many keys is waited for.
    pub(super) fn patience(&self, keys: usize) -> Duration {
        let worker_context = &self.runtime.worker_context;
        worker_context.limits.shard_wait_max + worker_context.extra_wait(keys)
    }

    /// Reports the outcomes of transactions that have ended.
    pub(super) fn tell_ended(&mut self) {
        for Ended { id, outcome, .. } in self.node.take_ended() {
            let sequence = id.sequence;
            if self.calls.contains_key(&sequence) {
                self.call_ended(sequence, outcome);
                continue;
            }
            let writes = self.transactions.get(&sequence).is_some_and(OpenTransaction::writes);
            let result = match outcome {
                Outcome::Committed(results) => {
                    results.into_iter().try_for_each(|result| result.map(drop))
                }
                Outcome::Gone(shard) => Err(recovering(shard)),
                // It has no effect in any case.
                Outcome::Unknown(shard) if !writes => Err(recovering(shard)),
                Outcome::Unknown(shard) => Err(Unknown::Participant { shard }.into()),
            };
            self.tell(sequence, result);
        }
    }

    /// Reports the outcome of a transaction.
    fn tell(&mut self, sequence: u64, outcome: Result<()>) {
        let Some(transaction) = self.transactions.get(&sequence) else { return };
        let remote_branches = Rc::clone(&transaction.remote_branches);
        self.forget(sequence);
        match outcome {
            Ok(()) => self.runtime.commit(&remote_branches),
            Err(_) => self.runtime.finish(&remote_branches, outcome),
        }
    }

    /// Nothing is kept of a transaction any more.
    pub(super) fn forget(&mut self, sequence: u64) {
        self.transactions.remove(&sequence);
        self.runtime.expect_resolved(sequence, 0);
    }
}

/// The number of the worker's oldest transaction that is not over. One that is committed is not before all participants have it
/// decided, though its client has the outcome: a recovery drops what is over and not in the log.
pub(super) fn oldest(worker_context: &WorkerContext, coordinator: &Coordinator) -> u64 {
    let of_clients = worker_context.sequences.borrow().oldest();
    let WorkerPlace { node, worker } = worker_context.place;
    let open = coordinator.oldest(node, worker);
    open.map_or(of_clients, |open| open.min(of_clients))
}
