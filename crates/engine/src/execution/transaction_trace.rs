//! What is remembered of a transaction while it runs, should it prove to be slow.

use super::remote_branches::RemoteBranches;
use super::worker_context::WorkerContext;
use crate::latency::Outcome;
use crate::slow::{Kind, Slow};
use crate::transaction_id::TransactionId;
use shoal_types::{Result, ShardId, Time};
use std::rc::Rc;
use std::time::Duration;

/// Where the time of one transaction went, for the log of slow ones. Of a transaction with several attempts, it is
/// about the last one.
#[derive(Debug, Default)]
pub(super) struct TransactionTrace {
    pub(super) attempts: u32,
    /// The time in which it waited for its client.
    pub(super) client: Duration,
    /// The client asked for its end without a commit.
    pub(super) undone: bool,
    pub(super) last: Option<AttemptTrace>,
}

/// What an attempt has done.
#[derive(Debug)]
pub(super) struct AttemptTrace {
    pub(super) id: TransactionId,
    /// Its branches on other shards, if it has some.
    pub(super) remote_branches: Option<Rc<RemoteBranches>>,
    /// The shards of this node that it touched, a bit for each of the first 64 of [`WorkerContext::own`].
    pub(super) own: u64,
    pub(super) operations: u32,
}

impl TransactionTrace {
    /// The body of an attempt is done; `attempt` says what it has done, and is only called if slow transactions are kept.
    pub(super) fn see(
        &mut self,
        worker_context: &WorkerContext,
        attempt: impl FnOnce() -> AttemptTrace,
    ) {
        if worker_context.slows.is_on() {
            self.last = Some(attempt());
        }
    }

    /// The transaction, asked for at `began`, has ended like this.
    pub(super) fn end<T>(
        self,
        worker_context: &WorkerContext,
        began: Time,
        result: &Result<T>,
        kind: impl FnOnce() -> Kind,
    ) {
        let outcome = match Outcome::of(result) {
            Outcome::Committed if self.undone => Outcome::Undone,
            outcome => outcome,
        };
        let now = worker_context.now.get();
        let took_ns = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
        worker_context.latencies.borrow_mut().add_outcome(outcome, took_ns);
        worker_context.slows.note(began, now, |took| Slow {
            kind: kind(),
            transaction: self.last.as_ref().map(|last| last.id),
            attempts: self.attempts,
            shards: self.last.as_ref().map(|last| last.shards(worker_context)).unwrap_or_default(),
            operations: self.last.as_ref().map_or(0, |last| last.operations),
            took,
            client: self.client,
            outcome,
        });
    }
}

impl AttemptTrace {
    fn shards(&self, worker_context: &WorkerContext) -> Vec<ShardId> {
        let own = worker_context.own.iter().take(64).enumerate();
        let own = own.filter(|(at, _)| self.own >> at & 1 == 1).map(|(_, own)| own.shard);
        let mut shards: Vec<ShardId> = own.collect();
        let remotes = self
            .remote_branches
            .iter()
            .flat_map(|it| it.remotes().iter().map(|remote| remote.shard).collect::<Vec<_>>());
        shards.extend(remotes);
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}
