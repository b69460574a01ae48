//! What a transaction has to say to other shards, and what they answer.

use super::admission::AdmissionPermit;
use super::leaderships::ShardLeader;
use super::slot::ResultSlot;
use super::stage_times::StageMarks;
use crate::operation::{Operation, OperationResult};
use crate::transaction_id::TransactionId;
use shoal_types::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_WRITES_MAX};
use shoal_types::{Epoch, Error, Rejected, Result, ShardId, Time};
use std::any::Any;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;

/// A request of a branch carries no more operations, and no more bytes but for one operation: what gathers beyond is
/// sent ahead of the commit. More in one message would save round trips, and hold up what comes behind it.
const REQUEST_OPERATIONS_MAX: usize = 1 << 12;
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Where an answer will be.
pub(crate) type ReplySlot = Rc<ResultSlot<Result<OperationResult>>>;

/// Shared by a transaction and the engine of its worker.
#[derive(Debug)]
pub struct RemoteBranches {
    /// The name of this attempt.
    pub id: TransactionId,
    /// The epoch that was open when it began.
    pub epoch: Epoch,
    /// As long as it is known, it is not over.
    pub(crate) permit: Rc<AdmissionPermit>,
    /// When it came to which stage.
    pub marks: StageMarks,
    /// How many keys it writes on own shards.
    pub own_keys: Cell<usize>,
    /// The outcome, once it may be told.
    pub outcome: ResultSlot<Result<()>>,
    remotes: RefCell<Vec<RemoteBranch>>,
    /// What the engine keeps of the transaction beside this.
    engine_state: OnceCell<Box<dyn Any>>,
    /// Why no operation can succeed any more.
    failure: RefCell<Option<Error>>,
}

/// A transaction's branch on a shard that another node leads, as its coordinator sees it.
#[derive(Debug)]
pub struct RemoteBranch {
    /// The shard.
    pub shard: ShardId,
    /// Its leader when the branch began; what a later leadership is told of the branch is nothing to it.
    pub leader: ShardLeader,
    /// The last request that was sent; they count from 1.
    pub step: u32,
    /// It has looked at something there.
    pub reads: bool,
    /// It will change something there.
    pub writes: bool,
    /// The participant has ended it.
    pub over: bool,
    /// Keys it has written there.
    written_keys: usize,
    /// Bytes it has written there.
    written_bytes: usize,
    /// Not sent yet.
    outgoing: Vec<Operation>,
    /// How many bytes that is.
    outgoing_bytes: usize,
    waiting: Vec<ReplySlot>,
    /// The tickets of the request that is under way.
    asked: Option<Vec<ReplySlot>>,
}

/// A request to a branch that is about to be sent: its number, and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextRequest {
    pub(crate) shard: ShardId,
    pub(crate) leader: ShardLeader,
    pub(crate) step: u32,
}

impl RemoteBranches {
    /// Of an attempt that begins now.
    pub fn new(
        now: Time,
        id: TransactionId,
        epoch: Epoch,
        permit: Rc<AdmissionPermit>,
    ) -> Rc<RemoteBranches> {
        Rc::new(RemoteBranches {
            id,
            epoch,
            permit,
            marks: StageMarks::begin(now),
            own_keys: Cell::default(),
            outcome: ResultSlot::default(),
            remotes: RefCell::default(),
            engine_state: OnceCell::new(),
            failure: RefCell::default(),
        })
    }

    /// Adds an operation for `shard`, which has that leader. The ticket says where its answer will be, if
    /// it has one.
    ///
    /// # Errors
    /// Where the branch would grow beyond a transaction's limits.
    pub(crate) fn issue(
        &self,
        shard: ShardId,
        leader: ShardLeader,
        operation: Operation,
    ) -> Result<ReplySlot> {
        let ticket = ReplySlot::default();
        if let Some(failure) = &*self.failure.borrow() {
            ticket.fill(Err(failure.clone()));
            return Ok(ticket);
        }
        let mut remotes = self.remotes.borrow_mut();
        let at = remotes.iter().position(|remote| remote.shard == shard).unwrap_or_else(|| {
            remotes.push(RemoteBranch::new(shard, leader));
            remotes.len() - 1
        });
        let remote = &mut remotes[at];
        remote.grow(operation.bytes_written())?;
        remote.reads |= operation.reads();
        remote.writes |= operation.writes();
        if operation.wants_answer() {
            remote.waiting.push(Rc::clone(&ticket));
        }
        remote.outgoing_bytes += operation.bytes();
        remote.outgoing.push(operation);
        Ok(ticket)
    }

    /// Has more gathered for some shard than one request carries?
    pub fn is_full(&self) -> bool {
        self.remotes.borrow().iter().any(RemoteBranch::is_full)
    }

    /// Takes the next batch of operations for each shard that has no request under way, and some operations whose answer
    /// is waited for or more than one request carries.
    pub(crate) fn take_batches(&self, mut send: impl FnMut(NextRequest, Vec<Operation>)) {
        for remote in self.remotes.borrow_mut().iter_mut() {
            if remote.asked.is_none() && (!remote.waiting.is_empty() || remote.is_full()) {
                let operations = remote.take_batch();
                send(remote.last_request(), operations);
            }
        }
    }

    /// Takes the writes that have gathered for `shard`, for the next request of the branch.
    ///
    /// # Panics
    /// If there is no branch on it.
    pub(crate) fn take_next(&self, shard: ShardId) -> (NextRequest, Vec<Operation>) {
        self.with_remote(shard, |remote| {
            remote.step += 1;
            let operations = remote.take_writes();
            (remote.last_request(), operations)
        })
    }

    /// Takes the next operations of each shard, for an engine that does them itself: its answers are handed out by
    /// [`answer`](RemoteBranches::answer).
    pub fn take_operations(&self) -> Vec<(ShardId, Vec<Operation>)> {
        let mut taken = Vec::new();
        self.take_batches(|next, operations| taken.push((next.shard, operations)));
        taken
    }

    /// Takes what is left of all shards when the body is done, for an engine that does operations itself: writes, since no
    /// task waits for reads any more.
    pub fn take_rest(&self) -> Vec<(ShardId, Vec<Operation>)> {
        let mut remotes = self.remotes.borrow_mut();
        remotes.iter_mut().map(|remote| (remote.shard, remote.take_writes())).collect()
    }

    /// When the transaction asked to be let in, which all its attempts have in common.
    pub fn asked_at(&self) -> Time {
        self.permit.asked
    }

    /// Uses what the engine keeps over all attempts of the transaction; it begins as the default.
    ///
    /// # Panics
    /// If the engine has kept something of another type.
    pub fn over_attempts<S: Default + 'static, T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let mut kept = self.permit.kept.borrow_mut();
        let kept = kept.get_or_insert_with(|| Box::new(S::default()));
        change(kept.downcast_mut().expect("an engine keeps values of one type"))
    }

    /// No task waits for reads any more: those that were not sent are forgotten.
    pub fn forget_reads(&self) {
        self.remotes.borrow_mut().iter_mut().for_each(RemoteBranch::forget_reads);
    }

    /// Hands out the answers to the request that is under way, in its order.
    pub fn answer(&self, shard: ShardId, answers: Vec<Result<OperationResult>>) {
        let mut remotes = self.remotes.borrow_mut();
        let remote = remotes.iter_mut().find(|remote| remote.shard == shard);
        let asked = remote.and_then(|remote| remote.asked.take()).unwrap_or_default();
        for (ticket, answer) in asked.into_iter().zip(answers) {
            ticket.fill(answer);
        }
    }

    /// The participant of `shard` has given up: nothing can succeed any more.
    pub fn fail(&self, shard: ShardId, error: &Error) {
        self.spoil(error);
        let mut remotes = self.remotes.borrow_mut();
        if let Some(remote) = remotes.iter_mut().find(|remote| remote.shard == shard) {
            (remote.over, remote.asked) = (true, None);
        }
    }

    /// Nothing can succeed any more.
    pub fn spoil(&self, error: &Error) {
        self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        for remote in self.remotes.borrow_mut().iter_mut() {
            // Nor is there any use in waiting for other shards.
            remote.asked.iter().flatten().for_each(|ticket| ticket.fill(Err(error.clone())));
            remote.outgoing.clear();
            remote.outgoing_bytes = 0;
            for ticket in remote.waiting.drain(..) {
                ticket.fill(Err(error.clone()));
            }
        }
    }

    /// The participant of `shard` is gone, if there was one: nothing can succeed any more.
    pub fn lose(&self, shard: ShardId, error: &Error) {
        if self.remotes.borrow().iter().any(|remote| remote.shard == shard) {
            self.fail(shard, error);
        }
    }

    /// The participant of `shard` does not answer: nothing can succeed any more. It may have the branch, and is told to
    /// undo it.
    pub fn time_out(&self, shard: ShardId, error: &Error) {
        self.fail(shard, error);
        self.with_remote(shard, |remote| remote.over = false);
    }

    /// Why no operation can succeed any more, if that is so.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Is a request under way?
    pub fn is_busy(&self) -> bool {
        self.remotes.borrow().iter().any(|remote| remote.asked.is_some())
    }

    /// Its branches on other nodes' shards that are begun and not over.
    pub fn open_branches(&self) -> Vec<ShardId> {
        let remotes = self.remotes.borrow();
        let open = remotes.iter().filter(|remote| !remote.over && remote.step > 0);
        open.map(|remote| remote.shard).collect()
    }

    /// Its branches on other nodes' shards.
    pub fn remotes(&self) -> Ref<'_, Vec<RemoteBranch>> {
        self.remotes.borrow()
    }

    /// Changes the branch on `shard`.
    ///
    /// # Panics
    /// If there is none.
    pub fn with_remote<T>(&self, shard: ShardId, change: impl FnOnce(&mut RemoteBranch) -> T) -> T {
        let mut remotes = self.remotes.borrow_mut();
        let remote = remotes.iter_mut().find(|remote| remote.shard == shard);
        change(remote.expect("a branch on this shard"))
    }

    /// What the engine keeps of the transaction, which `begin` makes when it is needed first: a transaction of which the
    /// engine keeps nothing costs no allocation.
    ///
    /// # Panics
    /// If the engine has kept something of another type.
    pub fn engine_state<S: 'static>(&self, begin: impl FnOnce() -> S) -> &S {
        let state = self.engine_state.get_or_init(|| Box::new(begin()));
        state.downcast_ref().expect("an engine keeps values of one type")
    }

    /// What the engine keeps of the transaction, if it has begun to keep something.
    ///
    /// # Panics
    /// If that is of another type.
    pub fn known_engine_state<S: 'static>(&self) -> Option<&S> {
        let state = self.engine_state.get()?;
        Some(state.downcast_ref().expect("an engine keeps values of one type"))
    }

    /// How many keys it writes, as far as its coordinator knows.
    pub fn keys(&self) -> usize {
        let remotes = self.remotes.borrow();
        self.own_keys.get() + remotes.iter().map(|remote| remote.written_keys).sum::<usize>()
    }
}

impl RemoteBranch {
    fn new(shard: ShardId, leader: ShardLeader) -> RemoteBranch {
        RemoteBranch {
            shard,
            leader,
            step: 0,
            reads: false,
            writes: false,
            over: false,
            written_keys: 0,
            written_bytes: 0,
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            waiting: Vec::new(),
            asked: None,
        }
    }

    /// Counts a write; a branch is within the same limits as any transaction on one shard.
    fn grow(&mut self, written: Option<usize>) -> Result<()> {
        let Some(more) = written else { return Ok(()) };
        let (writes, bytes) = (self.written_keys + 1, self.written_bytes + more);
        if bytes > TRANSACTION_BYTES_MAX {
            Err(Rejected::TransactionBytes { bytes, max: TRANSACTION_BYTES_MAX })?;
        }
        if writes > TRANSACTION_WRITES_MAX {
            Err(Rejected::TransactionWrites { max: TRANSACTION_WRITES_MAX })?;
        }
        (self.written_keys, self.written_bytes) = (writes, bytes);
        Ok(())
    }

    fn last_request(&self) -> NextRequest {
        NextRequest { shard: self.shard, leader: self.leader, step: self.step }
    }

    fn is_full(&self) -> bool {
        self.outgoing.len() > REQUEST_OPERATIONS_MAX || self.outgoing_bytes > REQUEST_BYTES_MAX
    }

    /// The operations of the next request, and who waits for their answers.
    fn take_batch(&mut self) -> Vec<Operation> {
        let (mut count, mut bytes, mut answers) = (0, 0, 0);
        for operation in self.outgoing.iter().take(REQUEST_OPERATIONS_MAX) {
            if count > 0 && bytes + operation.bytes() > REQUEST_BYTES_MAX {
                break;
            }
            count += 1;
            bytes += operation.bytes();
            answers += usize::from(operation.wants_answer());
        }
        self.outgoing_bytes -= bytes;
        let rest = self.outgoing.split_off(count);
        let waiting = self.waiting.split_off(answers);
        self.asked = Some(std::mem::replace(&mut self.waiting, waiting));
        self.step += 1;
        std::mem::replace(&mut self.outgoing, rest)
    }

    fn forget_reads(&mut self) {
        self.waiting.clear();
        self.outgoing.retain(Operation::writes);
        self.outgoing_bytes = self.outgoing.iter().map(Operation::bytes).sum();
    }

    /// The writes that have gathered. Reads that no task waited for are forgotten.
    fn take_writes(&mut self) -> Vec<Operation> {
        self.forget_reads();
        self.outgoing_bytes = 0;
        std::mem::take(&mut self.outgoing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::worker_context::recovering;
    use bytes::Bytes;
    use shoal_types::{NodeId, TableId, WorkerId};

    #[test]
    fn a_branch_does_not_outgrow_a_transaction() {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 0 };
        let remote_branches =
            RemoteBranches::new(Time::ZERO, id, Epoch(1), AdmissionPermit::alone());
        let value = Bytes::from(vec![0; TRANSACTION_BYTES_MAX / 4]);
        let put = |key: u8| {
            let (table, key) = (TableId(0), Bytes::from(vec![key]));
            let operation = Operation::Put { table, key, value: Some(value.clone()) };
            let leader = ShardLeader { node: NodeId(1), since: Epoch(1) };
            remote_branches.issue(ShardId(1), leader, operation)
        };
        (0..3).for_each(|key| drop(put(key).expect("within the limit")));
        let error = put(3).expect_err("four quarters and their keys");
        assert!(matches!(error, Error::Rejected(Rejected::TransactionBytes { .. })), "{error}");
        assert_eq!(remote_branches.remotes()[0].outgoing.len(), 3);
    }

    #[test]
    fn what_cannot_succeed_waits_for_no_shard() {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 0 };
        let remote_branches =
            RemoteBranches::new(Time::ZERO, id, Epoch(1), AdmissionPermit::alone());
        let get = || Operation::Get { table: TableId(0), key: Bytes::from_static(b"k") };
        let asked = [ShardId(1), ShardId(2)].map(|shard| {
            let leader = ShardLeader { node: NodeId(shard.0), since: Epoch(1) };
            remote_branches.issue(shard, leader, get()).expect("within the limits")
        });
        remote_branches.take_batches(|_, _| {});
        remote_branches.fail(ShardId(1), &recovering(ShardId(1)));
        assert!(asked.iter().all(|ticket| ticket.is_filled()));
        assert!(remote_branches.is_busy(), "the other shard will answer");
    }
}
