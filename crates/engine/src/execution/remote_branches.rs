//! The branches of a transaction on shards of other nodes: requests to them, and their answers.

use super::admission::SharedPermit;
use super::attempt::Attempt;
use super::leaderships::ShardLeader;
use super::slot::ResultSlot;
use crate::operation::{Operation, OperationResult};
use shoal_types::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_WRITES_MAX};
use shoal_types::{Error, Rejected, Result, ShardId};
use std::any::Any;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Deref;
use std::rc::Rc;

/// The most operations of one request, and its most bytes beside those of one operation: operations beyond them are sent
/// before the commit. More in one message would save round trips, and delay the messages behind it.
const REQUEST_OPERATIONS_MAX: usize = 1 << 12;
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Identifies the slot of an answer.
pub(crate) type ReplySlot = Rc<ResultSlot<Result<OperationResult>>>;

/// An [`Attempt`] and its branches, shared by the transaction and the engine of its worker: from the first operation on
/// another shard on, or from the commit, if the engine does not take the attempt [alone](super::worker_context::LocalSubmission).
#[derive(Debug)]
pub struct RemoteBranches {
    attempt: Attempt,
    /// Counts the transaction as open until it is dropped.
    permit: Rc<SharedPermit>,
    /// The number of keys that the transaction writes on own shards.
    pub own_keys: Cell<usize>,
    remotes: RefCell<Vec<RemoteBranch>>,
    /// The engine's own state of the transaction.
    engine_state: OnceCell<Box<dyn Any>>,
    /// The error of all further operations, once they fail.
    failure: RefCell<Option<Error>>,
}

/// A branch on a shard that another node leads, at its coordinator.
#[derive(Debug)]
pub struct RemoteBranch {
    /// The shard on which it reads and writes.
    pub shard: ShardId,
    /// The leader when the branch began; later leaderships do not know the branch.
    pub leader: ShardLeader,
    /// The number of the last request that was sent, counted from 1.
    pub step: u32,
    /// The transaction has read there.
    pub reads: bool,
    /// The transaction writes there.
    pub writes: bool,
    /// The participant has ended the branch.
    pub over: bool,
    /// The number of keys that the transaction writes there.
    written_keys: usize,
    /// The number of bytes that the transaction writes there.
    written_bytes: usize,
    /// The operations that are not sent yet.
    outgoing: Vec<Operation>,
    /// The bytes of those operations.
    outgoing_bytes: usize,
    waiting: Vec<ReplySlot>,
    /// The tickets of the outstanding request.
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
    /// An attempt that has no branches yet.
    pub(crate) fn new(attempt: Attempt, permit: Rc<SharedPermit>) -> Rc<RemoteBranches> {
        Rc::new(RemoteBranches {
            attempt,
            permit,
            own_keys: Cell::default(),
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

    /// Whether the transaction writes something, as far as its body has got: also what the engine has not taken yet.
    pub fn writes(&self) -> bool {
        self.remotes.borrow().iter().any(|remote| remote.writes)
    }

    /// Whether more operations wait for some shard than one request carries.
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

    /// Uses what the engine keeps over all attempts of the transaction; it begins as the default.
    ///
    /// # Panics
    /// If the engine has kept something of another type.
    pub fn over_attempts<S: Default + 'static, T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let mut kept = self.permit.kept.borrow_mut();
        let kept = kept.get_or_insert_with(|| Box::new(S::default()));
        change(kept.downcast_mut().expect("an engine keeps values of one type"))
    }

    /// No task waits for reads any more: drops those that are not sent.
    pub fn forget_reads(&self) {
        self.remotes.borrow_mut().iter_mut().for_each(RemoteBranch::forget_reads);
    }

    /// Passes the answers to the outstanding request to their tickets, in order.
    pub fn answer(&self, shard: ShardId, answers: Vec<Result<OperationResult>>) {
        let mut remotes = self.remotes.borrow_mut();
        let remote = remotes.iter_mut().find(|remote| remote.shard == shard);
        let asked = remote.and_then(|remote| remote.asked.take()).unwrap_or_default();
        for (ticket, answer) in asked.into_iter().zip(answers) {
            ticket.fill(answer);
        }
    }

    /// The participant of `shard` has aborted: all further operations fail.
    pub fn fail(&self, shard: ShardId, error: &Error) {
        self.spoil(error);
        let mut remotes = self.remotes.borrow_mut();
        if let Some(remote) = remotes.iter_mut().find(|remote| remote.shard == shard) {
            (remote.over, remote.asked) = (true, None);
        }
    }

    /// All further operations fail.
    pub fn spoil(&self, error: &Error) {
        self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        for remote in self.remotes.borrow_mut().iter_mut() {
            // Answers of other shards are not waited for either.
            remote.asked.iter().flatten().for_each(|ticket| ticket.fill(Err(error.clone())));
            remote.outgoing.clear();
            remote.outgoing_bytes = 0;
            for ticket in remote.waiting.drain(..) {
                ticket.fill(Err(error.clone()));
            }
        }
    }

    /// The participant of `shard` is gone, if there was one: all further operations fail.
    pub fn lose(&self, shard: ShardId, error: &Error) {
        if self.remotes.borrow().iter().any(|remote| remote.shard == shard) {
            self.fail(shard, error);
        }
    }

    /// The participant of `shard` does not answer: all further operations fail. It may have the branch, and is requested to
    /// abort it.
    pub fn time_out(&self, shard: ShardId, error: &Error) {
        self.fail(shard, error);
        self.with_remote(shard, |remote| remote.over = false);
    }

    /// Checks that further operations do not fail.
    ///
    /// # Errors
    /// That of all of them.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failure.borrow() {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// The error of all further operations, if they fail.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Whether a request is outstanding.
    pub fn is_busy(&self) -> bool {
        self.remotes.borrow().iter().any(|remote| remote.asked.is_some())
    }

    /// The branches on other nodes' shards that have begun and not ended.
    pub fn open_branches(&self) -> Vec<ShardId> {
        let remotes = self.remotes.borrow();
        let open = remotes.iter().filter(|remote| !remote.over && remote.step > 0);
        open.map(|remote| remote.shard).collect()
    }

    /// The branches on other nodes' shards.
    pub fn remotes(&self) -> Ref<'_, Vec<RemoteBranch>> {
        self.remotes.borrow()
    }

    /// Changes the branch on `shard`.
    ///
    /// # Panics
    /// If there is no branch on the shard.
    pub fn with_remote<T>(&self, shard: ShardId, change: impl FnOnce(&mut RemoteBranch) -> T) -> T {
        let mut remotes = self.remotes.borrow_mut();
        let remote = remotes.iter_mut().find(|remote| remote.shard == shard);
        change(remote.expect("a branch on this shard"))
    }

    /// The engine's own state of the transaction, which `begin` makes when it is first needed: a transaction without such a
    /// state costs no allocation.
    ///
    /// # Panics
    /// If the engine has kept something of another type.
    pub fn engine_state<S: 'static>(&self, begin: impl FnOnce() -> S) -> &S {
        let state = self.engine_state.get_or_init(|| Box::new(begin()));
        state.downcast_ref().expect("an engine keeps values of one type")
    }

    /// The engine's own state of the transaction, if it was made.
    ///
    /// # Panics
    /// If that is of another type.
    pub fn known_engine_state<S: 'static>(&self) -> Option<&S> {
        let state = self.engine_state.get()?;
        Some(state.downcast_ref().expect("an engine keeps values of one type"))
    }

    /// The number of keys that the transaction writes, as far as the coordinator knows.
    pub fn keys(&self) -> usize {
        let remotes = self.remotes.borrow();
        self.own_keys.get() + remotes.iter().map(|remote| remote.written_keys).sum::<usize>()
    }
}

impl Deref for RemoteBranches {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        &self.attempt
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

    /// The operations of the next request, and the waiters for their answers.
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

    /// Takes the writes that are not sent. Reads that no task waits for are dropped.
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
    use crate::transaction_id::TransactionId;
    use bytes::Bytes;
    use shoal_types::{Epoch, NodeId, TableId, Time, WorkerId};

    #[test]
    fn a_branch_does_not_outgrow_a_transaction() {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 0 };
        let attempt = Attempt::begun(id, Epoch(1), Time::ZERO);
        let remote_branches = RemoteBranches::new(attempt, SharedPermit::alone());
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
        let attempt = Attempt::begun(id, Epoch(1), Time::ZERO);
        let remote_branches = RemoteBranches::new(attempt, SharedPermit::alone());
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
