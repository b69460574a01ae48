//! What every engine's worker does alike: it runs tasks, talks with other workers about branches, and
//! counts.
//!
//! ```text
//!   tasks ──► worker context ── asks ──► engine ── requests ──► outbox ──► other workers
//!                               ▲                       │
//!                               └────── replies ────────┘
//! ```
//! An engine says what a request and a reply are, and what happens at commit; how they travel is here.

use super::attempt::Attempt;
use super::participant_table::BranchHeader;
use super::procedure_calls::ProcedureCalls;
use super::remote_branches::{NextRequest, RemoteBranches};
use super::request_retransmission::{BranchKey, RequestRetransmission, SentRequest};
use super::session_pool::StoreBranch;
use super::slot::ResultSlot;
use super::stage_times::StageTimes;
use super::tasks::Tasks;
use super::timers::Timers;
use super::worker_context::{EngineRequest, LocalCommand, WorkerContext};
use crate::client::{Relay, RequestFromClient};
use crate::events::{EngineEffect, EngineEffects, EngineEvent};
use crate::metrics::{COMMIT_STAGES_MAX, EngineCounters, RuntimeCounters, TransitTimes};
use crate::operation::{ANSWER, Operation, OperationResult};
use crate::transaction_id::TransactionId;
use shoal_types::{
    Aborted, Conflict, Epoch, Error, NodeId, Result, ShardId, Time, WorkerId, WorkerPlace,
};
use std::collections::BTreeMap;
use std::rc::Rc;

/// An engine's messages, as far as execution has to make them.
pub trait RuntimeMessage: Clone {
    /// What a coordinator asks of a participant.
    type Request;

    /// A request to a branch.
    fn request(header: BranchHeader, request: Self::Request) -> Self;

    /// Between the node that a client asked and the one that serves it.
    fn relay(relay: Relay) -> Self;
}

/// The part of a worker that is the same in every engine. `M` is what the engine's workers say to each other.
pub struct Runtime<M> {
    /// What the engine shares with the futures of its worker.
    pub worker_context: Rc<WorkerContext>,
    /// The futures of this worker.
    pub tasks: Tasks,
    /// What this worker has counted.
    pub counters: RuntimeCounters,
    /// How long the transactions that wrote were in the engine's stages.
    stages_ns: [u64; COMMIT_STAGES_MAX],
    calls: ProcedureCalls,
    outbox: RequestRetransmission<M>,
    sleeping: Timers<Rc<ResultSlot<()>>>,
    /// How many participants of a transaction that is decided have not confirmed it yet.
    unresolved: BTreeMap<u64, usize>,
}

/// What names a request to a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestName {
    /// Whose branch.
    pub transaction: TransactionId,
    /// The shard of the branch.
    pub shard: ShardId,
    /// Which request of the branch; from 1.
    pub step: u32,
}

/// The requests that have waited for too long and were given up: their transactions and the shards that were asked.
#[derive(Debug)]
pub struct ExpiredRequests {
    /// Of transactions that wait for the answer.
    pub undecided: Vec<BranchKey>,
    /// Of transactions that are decided or given up, which are not sent to their participants again.
    pub decided: Vec<BranchKey>,
    /// The shard that one of them, or of those that were kept, has asked in the open epoch: its end resolves what participants
    /// keep.
    pub in_open_epoch: Option<ShardId>,
}

impl<M: RuntimeMessage> Runtime<M> {
    /// The runtime of a worker with this context.
    pub fn new(worker_context: Rc<WorkerContext>) -> Runtime<M> {
        Runtime {
            tasks: Tasks::new(&worker_context.wakeups),
            calls: ProcedureCalls::new(&worker_context),
            outbox: RequestRetransmission::new(
                worker_context.limits.retry_after,
                worker_context.limits.shard_wait_max,
            ),
            counters: RuntimeCounters::default(),
            stages_ns: [0; COMMIT_STAGES_MAX],
            sleeping: Timers::default(),
            unresolved: BTreeMap::new(),
            worker_context,
        }
    }

    /// The worker of another node that has the number of this one.
    pub fn peer(&self, node: NodeId) -> WorkerPlace {
        WorkerPlace { node, ..self.worker_context.place }
    }

    /// Whether that is a worker of the number of this one: the only ones whose messages count for an engine whose workers exchange messages with
    /// their like alone.
    pub fn is_peer(&self, from: WorkerPlace) -> bool {
        from == self.peer(from.node)
    }

    /// A client asks for something.
    pub fn request(&mut self, request: RequestFromClient) {
        self.tasks.extend(self.calls.request(request));
    }

    /// Another node passes something on.
    pub fn relayed(&mut self, from: NodeId, relay: Relay) {
        self.tasks.extend(self.calls.relayed(from, relay));
    }

    /// Sends again what was not answered in time.
    pub(crate) fn repeat<O>(&mut self, now: Time, effects: &mut EngineEffects<M, O>) {
        let place = self.worker_context.place;
        let resent = &mut self.counters.resent;
        self.outbox.overdue(now, |node, message| {
            *resent += 1;
            let to = WorkerPlace { node, ..place };
            effects.push(EngineEffect::Send { to, message: message.clone() });
        });
    }

    /// How much each table of what all engines share holds.
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let [sessions, registered, calls_known, calls_running] = self.calls.sizes();
        let [requests, requests_due] = self.outbox.sizes();
        vec![
            ("tasks", self.tasks.size()),
            ("sleeping tasks", self.sleeping.len()),
            ("transactions that wait for room", self.worker_context.admission.queued()),
            ("transactions that wait for their outcome", self.worker_context.outcomes.len()),
            ("requests without an answer", requests),
            ("times at which to repeat requests", requests_due),
            ("transactions not confirmed by participants", self.unresolved.len()),
            ("numbers of transactions not over", self.worker_context.sequences.borrow().len()),
            ("interactive transactions", sessions),
            ("registered connections", registered),
            ("call sessions", calls_known),
            ("calls that run", calls_running),
        ]
    }

    /// A step begins, with this event.
    pub fn begin_step(&self, now: Time, event: &EngineEvent<M>) {
        self.worker_context.begin_step(now);
        self.worker_context.end_some();
        self.worker_context.free_some();
        self.worker_context.admission.step(matches!(event, EngineEvent::Timer));
    }

    /// Begins a round of the tasks that can go on now.
    pub(crate) fn begin_round(&mut self, now: Time) {
        self.sleeping.due(now, |slot| slot.fill(()));
        let swept = self.calls.collection(now);
        self.tasks.extend(swept);
        self.worker_context.admission.turn(now);
        self.tasks.begin_round();
    }

    /// Does what tasks want of any engine, and gives the first of what they ask of this one.
    pub(crate) fn next_ask<O>(
        &mut self,
        effects: &mut EngineEffects<M, O>,
    ) -> Option<EngineRequest> {
        while let Some(local_command) = self.worker_context.next_local_command() {
            match local_command {
                LocalCommand::Sleep { until, slot } => self.sleeping.add(until, slot),
                LocalCommand::Reply(reply) => effects.push(EngineEffect::Reply(reply)),
                LocalCommand::Relay { to, relay } => {
                    let to = self.peer(to);
                    effects.push(EngineEffect::Send { to, message: M::relay(relay) });
                }
            }
        }
        self.worker_context.next_ask()
    }

    /// Is the request for a branch here, at a shard that `led` says is served? Otherwise it is counted:
    /// its coordinator asks again, and by then things may be different.
    pub fn is_ours(&mut self, from: WorkerPlace, header: &BranchHeader, led: bool) -> bool {
        let ours = led
            && self.worker_context.leaderships.leader(header.shard).since == header.leadership
            && header.is_of(from);
        self.counters.dropped += u64::from(!ours);
        ours
    }

    /// When there will be something to do.
    pub fn next_due(&mut self) -> Option<Time> {
        let due = [
            self.outbox.next_due(),
            self.sleeping.next_due(),
            self.worker_context.admission.next_due(self.worker_context.now.get()),
            self.calls.next_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// When to go on with what is rolled back in slices, which needs no lease.
    pub fn next_ending(&self) -> Option<Time> {
        Some(self.worker_context.now.get() + self.worker_context.next_ending()?)
    }

    /// How many transactions and requests are under way.
    pub fn pending(&self) -> usize {
        let admission = &self.worker_context.admission;
        admission.open() + admission.queued() + self.outbox.len() + self.worker_context.ending()
    }

    /// Are requests to other workers under way?
    pub fn awaits_answers(&self) -> bool {
        self.outbox.len() > 0
    }

    /// An answer to a request came. The branch, if that was waited for and `fits` the request: it
    /// may be a repetition, or not matter any more, or be nonsense.
    pub fn answered(
        &mut self,
        from: NodeId,
        answered: &RequestName,
        fits: impl FnOnce(&M) -> bool,
    ) -> Option<BranchKey> {
        let RequestName { transaction, shard, step } = *answered;
        let place = self.worker_context.place;
        let own = (transaction.node, transaction.worker) == (place.node, place.worker);
        let key = (transaction.sequence, shard);
        if own && self.outbox.answered(from, key, step, fits) {
            return Some(key);
        }
        self.counters.dropped += 1;
        None
    }

    /// Sends the operations that have gathered in the remote branches. Says whether there were any.
    pub fn send_batches<O>(
        &mut self,
        remote_branches: &RemoteBranches,
        execute: impl Fn(Vec<Operation>) -> M::Request,
        effects: &mut EngineEffects<M, O>,
    ) -> bool {
        let mut batches = Vec::new();
        remote_branches.take_batches(|next, operations| batches.push((next, operations)));
        let any = !batches.is_empty();
        for (next, operations) in batches {
            self.send(remote_branches, next, execute(operations), effects);
        }
        any
    }

    /// Sends the next request of a branch, made of the writes that have gathered.
    pub fn send_next<O>(
        &mut self,
        remote_branches: &RemoteBranches,
        shard: ShardId,
        request: impl FnOnce(Vec<Operation>) -> M::Request,
        effects: &mut EngineEffects<M, O>,
    ) {
        let (next, operations) = remote_branches.take_next(shard);
        self.send(remote_branches, next, request(operations), effects);
    }

    /// Sends a request, again and again until it is answered.
    fn send<O>(
        &mut self,
        remote_branches: &RemoteBranches,
        next: NextRequest,
        request: M::Request,
        effects: &mut EngineEffects<M, O>,
    ) {
        let oldest = self.worker_context.sequences.borrow().oldest();
        let (transaction, epoch) = (remote_branches.id, remote_branches.epoch);
        let NextRequest { shard, leader, step } = next;
        let leadership = leader.since;
        let header = BranchHeader { transaction, shard, step, oldest, epoch, leadership };
        let message = M::request(header, request);
        let sent = SentRequest {
            key: (transaction.sequence, shard),
            step,
            epoch,
            to: leader.node,
            extra_wait: self.worker_context.extra_wait(remote_branches.keys()),
        };
        self.outbox.send(self.worker_context.now.get(), sent, message.clone());
        effects.push(EngineEffect::Send { to: self.peer(leader.node), message });
    }

    /// Requests of the participants that have not ended their branches to undo them, and reports it to nothing
    /// else.
    pub fn give_up<O>(
        &mut self,
        remote_branches: &RemoteBranches,
        abort: impl Fn() -> M::Request,
        effects: &mut EngineEffects<M, O>,
    ) {
        let sequence = remote_branches.id.sequence;
        let open = remote_branches.open_branches();
        for shard in &open {
            self.outbox.forget((sequence, *shard));
            self.send_next(remote_branches, *shard, |_| abort(), effects);
        }
        self.expect_resolved(sequence, open.len());
    }

    /// The leader of `shard` is gone, and with it all that it was asked: nothing of that will be answered.
    /// Says which transactions had asked.
    pub fn lose_participant(&mut self, shard: ShardId) -> Vec<u64> {
        let asked = self.outbox.forget_shard(shard);
        let (ended, open) =
            asked.into_iter().partition(|sequence| self.unresolved.contains_key(sequence));
        let ended: Vec<u64> = ended;
        ended.into_iter().for_each(|sequence| self.resolved(sequence));
        open
    }

    /// Gives up the requests that were not answered for as long as a transaction waits for another shard. What is
    /// decided is said again until it is confirmed, or it is `over`, by its transaction and its epoch: what participants keep
    /// is resolved otherwise.
    pub fn expire(
        &mut self,
        now: Time,
        over: impl Fn(BranchKey, Epoch) -> bool,
    ) -> ExpiredRequests {
        let unresolved = &self.unresolved;
        let kept = |key: BranchKey, epoch| unresolved.contains_key(&key.0) && !over(key, epoch);
        let expired = self.outbox.expire(now, kept);
        let open = self.worker_context.epoch.get();
        let in_open_epoch = expired.iter().find(|request| request.epoch == open);
        let in_open_epoch = in_open_epoch.map(|request| request.key.1);
        let gone = expired.into_iter().filter(|request| request.is_given_up);
        let gone = gone.map(|request| request.key);
        let (decided, undecided): (Vec<_>, Vec<_>) =
            gone.partition(|(sequence, _)| self.unresolved.contains_key(sequence));
        decided.iter().for_each(|(sequence, _)| self.resolved(*sequence));
        ExpiredRequests { undecided, decided, in_open_epoch }
    }

    /// The requests that are not answered: whose they are, which node was asked, and when each was sent first.
    pub fn unanswered(&self) -> impl Iterator<Item = (BranchKey, NodeId, Time)> + '_ {
        self.outbox.waiting()
    }

    /// When the next request may have to be given up.
    pub fn next_expiry(&self) -> Option<Time> {
        self.outbox.next_expiry()
    }

    /// A transaction is decided; so many participants have to confirm it.
    pub fn expect_resolved(&mut self, sequence: u64, participants: usize) {
        match participants {
            0 => self.worker_context.sequences.borrow_mut().finish(sequence),
            _ => assert!(
                self.unresolved.insert(sequence, participants).is_none(),
                "{sequence} was decided twice"
            ),
        }
    }

    /// A transaction that is decided is reported by another worker: participants are asked no more to confirm it.
    pub fn forget_participants(&mut self, sequence: u64) {
        if self.unresolved.remove(&sequence).is_some() {
            self.outbox.forget_transaction(sequence);
            self.worker_context.sequences.borrow_mut().finish(sequence);
        }
    }

    /// A participant has ended its branch, as requested.
    pub fn resolved(&mut self, sequence: u64) {
        let Some(left) = self.unresolved.get_mut(&sequence) else {
            self.counters.dropped += 1;
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.unresolved.remove(&sequence);
            self.worker_context.sequences.borrow_mut().finish(sequence);
        }
    }

    /// Answers a transaction that it has committed.
    pub fn commit(&mut self, attempt: &Attempt) {
        self.counters.committed += 1;
        let now = self.worker_context.stage_time(&attempt.marks);
        let stages = attempt.marks.answer(attempt.times, now);
        if let Some(stages) = stages {
            self.add_stages(&stages);
        }
        self.finish(attempt, Ok(()));
    }

    fn add_stages(&mut self, stages: &StageTimes) {
        self.counters.writers += 1;
        let RuntimeCounters { entering_ns, retrying_ns, executing_ns, .. } = &mut self.counters;
        let own = [entering_ns, retrying_ns, executing_ns].into_iter().chain(&mut self.stages_ns);
        let StageTimes { entering_ns, retrying_ns, executing_ns, commit_ns } = *stages;
        let more = [entering_ns, retrying_ns, executing_ns].into_iter().chain(commit_ns);
        self.worker_context.latencies.borrow_mut().add_stages(more.clone());
        own.zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
    }

    /// A transaction goes on to commit, and has written on so many shards.
    pub fn count_writes(&mut self, attempt: &Attempt, shards: usize) {
        self.counters.wrote += u64::from(shards > 0);
        self.counters.cross_shard += u64::from(shards > 1);
        if shards > 0 {
            attempt.marks.write();
        }
    }

    /// Counts the times of transactions that are decided in streams led here.
    pub fn count_transit(&mut self, times: TransitTimes) {
        let TransitTimes { replicated, batching_ns, replicating_ns } = times;
        let sum = &mut self.counters;
        sum.replicated += replicated;
        sum.batching_ns = sum.batching_ns.wrapping_add(batching_ns);
        sum.replicating_ns = sum.replicating_ns.wrapping_add(replicating_ns);
    }

    /// A batch of so many bytes is appended to a stream.
    pub fn count_batch(&mut self, bytes: usize) {
        self.counters.batches += 1;
        self.counters.batch_bytes += bytes as u64;
    }

    /// What this worker has counted, and `own`, which its engine has.
    pub fn counted<C>(&self, own: C) -> EngineCounters<C> {
        let (step_keys, step_keys_most) = self.worker_context.keys_worked();
        let slow = self.worker_context.slows.count();
        let runtime = RuntimeCounters { slow, step_keys, step_keys_most, ..self.counters };
        EngineCounters { runtime, stages_ns: self.stages_ns, own }
    }

    /// Answers a transaction with its outcome.
    ///
    /// # Panics
    /// If its body is not done, or it was answered before.
    pub fn finish(&mut self, attempt: &Attempt, outcome: Result<()>) {
        if let Err(Error::Aborted(Aborted::Conflict(conflict))) = &outcome {
            self.count_conflict(conflict);
        }
        let of = attempt.outcome.get().expect("only what was submitted has an outcome");
        self.worker_context.outcomes.fill(of, outcome);
    }

    fn count_conflict(&mut self, conflict: &Conflict) {
        let WorkerContext { hot_keys, now, .. } = &*self.worker_context;
        hot_keys.note_conflict(now.get(), conflict);
        let counters = &mut self.counters;
        counters.conflicts += 1;
        *match conflict {
            Conflict::ReadChanged { .. } => &mut counters.conflicts_read_changed,
            Conflict::Locked { .. } => &mut counters.conflicts_locked,
            Conflict::RangeChanged { .. } => &mut counters.conflicts_range_changed,
            Conflict::OtherEpoch { .. }
            | Conflict::EpochNotOpen { .. }
            | Conflict::Undecided { .. } => &mut counters.conflicts_epoch,
            Conflict::Recovering { .. }
            | Conflict::NoAnswer { .. }
            | Conflict::NoMajority { .. } => &mut counters.conflicts_unavailable,
            Conflict::Overtaken { .. }
            | Conflict::TableNotKnown { .. }
            | Conflict::TableDropped { .. } => &mut counters.conflicts_other,
        } += 1;
    }

    /// Does a participant's operations in order. An error of one that has an answer is that answer. Once the answers
    /// bring as much as one message may, those that would bring more are left for another request.
    pub fn perform(
        &mut self,
        branch: &StoreBranch,
        operations: &[Operation],
    ) -> Result<Vec<Result<OperationResult>>> {
        self.counters.operations += operations.len() as u64;
        let (mut answers, mut room) = (Vec::new(), ANSWER);
        for operation in operations {
            if operation.brings_rows() && room.is_used_up() {
                answers.push(Ok(OperationResult::Later));
                continue;
            }
            let known = self.worker_context.tables.check(operation.table());
            match known.and_then(|()| operation.perform(branch, room)) {
                answer if operation.wants_answer() => {
                    room = answer.as_ref().map_or(room, |answer| room.after(answer));
                    answers.push(answer);
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    /// Has the other workers of this node look at what they share.
    pub fn nudge_others<O>(&self, effects: &mut EngineEffects<M, O>) {
        let own = self.worker_context.place.worker;
        let workers = (0..self.worker_context.topology.workers()).map(WorkerId);
        for worker in workers.filter(|worker| *worker != own) {
            effects.push(EngineEffect::Nudge { worker });
        }
    }
}

/// Can these be the answers to these operations?
pub fn answers_fit(operations: &[Operation], answers: &[Result<OperationResult>]) -> bool {
    let mut asked = operations.iter().filter(|operation| operation.wants_answer());
    answers.len() == asked.clone().count()
        && answers.iter().all(|answer| match (asked.next(), answer) {
            (None, _) => false,
            (Some(_), Err(_)) => true,
            (Some(Operation::Get { .. }), Ok(answer)) => {
                matches!(answer, OperationResult::Value(_) | OperationResult::Later)
            }
            (Some(Operation::Scan { .. }), Ok(answer)) => match answer {
                OperationResult::Rows(_) | OperationResult::Later => true,
                OperationResult::Page(rows) => !rows.is_empty(),
                OperationResult::Value(_) | OperationResult::Done => false,
            },
            (Some(_), Ok(answer)) => *answer == OperationResult::Done,
        })
}
