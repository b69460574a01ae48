//! The database as code on a worker sees it, and how it runs a transaction.

use super::admission::AdmissionPermit;
use super::limits::Limits;
use super::procedure_run::{Executed, ProcedureRun};
use super::transaction::CoordinatorTransaction;
use super::transaction_trace::TransactionTrace;
use super::worker_context::{BodyEnd, WorkerContext};
use crate::hot_keys::{HotKey, KeyUse};
use crate::latency::Latencies;
use crate::request_table::REQUESTS_TABLE;
use crate::slow::Kind;
use bytes::Bytes;
use shoal_types::{
    Aborted, Backoff, Call, Conflict, Database, Error, Result, TableId, Time, backoff,
};
use std::rc::Rc;
use std::time::Duration;

/// The longest pause where no lock is held on what is wanted: what is waited for is over at some moment, for all at once.
const PASSING_PAUSE_MAX: Duration = Duration::from_millis(10);

/// A handle for procedures, sessions and tasks: it stays on its worker. Transactions are coordinated
/// there.
#[derive(Clone)]
pub struct LocalDatabase {
    pub(super) worker_context: Rc<WorkerContext>,
}

impl LocalDatabase {
    /// The database as tasks of this worker see it.
    pub fn new(worker_context: &Rc<WorkerContext>) -> LocalDatabase {
        LocalDatabase { worker_context: Rc::clone(worker_context) }
    }

    /// Has the stages of transactions timed by `clock`, which shows the worker's time, within steps too: see
    /// [`StageMarks`](super::stage_times::StageMarks). For hosts that run in real time; the first clock stays.
    pub fn time_stages(&self, clock: impl Fn() -> Time + 'static) {
        self.worker_context.set_stage_clock(Box::new(clock));
    }

    /// The worker's time.
    pub fn now(&self) -> Time {
        self.worker_context.now.get()
    }

    /// How long the transactions took that this worker coordinated.
    pub fn latencies(&self) -> Latencies {
        *self.worker_context.latencies.borrow()
    }

    /// The keys that the transactions use most that this worker coordinates, for each [`KeyUse`] in order. The rows of
    /// requests are left out: each transaction of a client uses one, and it says nothing of what programs do.
    pub fn hot_keys(&self) -> [Vec<HotKey>; KeyUse::ALL.len()] {
        let requests = self.worker_context.table(REQUESTS_TABLE).ok();
        self.worker_context.hot_keys.report(self.now(), requests)
    }

    /// Pauses the task, in the worker's time.
    pub async fn sleep(&self, span: Duration) {
        self.worker_context.sleep(span).await;
    }

    /// Waits until there is room for a transaction.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`]; [`Aborted::NotServing`] where this node leads nothing meanwhile.
    async fn enter(&self) -> Result<AdmissionPermit<'_>> {
        self.worker_context.admission.enter(self.worker_context.now.get()).await
    }

    /// Pauses before another attempt, for less than this, and never as long as a rival.
    async fn pause(&self, longest: Duration) {
        let pause = backoff::below(longest, &mut self.worker_context.random.borrow_mut());
        self.worker_context.sleep(pause).await;
    }
}

impl Database for LocalDatabase {
    type Transaction<'db> = CoordinatorTransaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        self.worker_context.table(name)
    }

    async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&CoordinatorTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let (began, mut trace) = (self.now(), TransactionTrace::default());
        let result = self.run(&mut trace, body).await;
        trace.end(&self.worker_context, began, &result, || Kind::Task);
        result
    }

    /// This worker coordinates it, wherever its home is. No message of it can be lost between a task and its worker.
    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        let run = ProcedureRun::new(&self.worker_context, call.procedure, call.arguments)?;
        self.transact(async |tx| match run.attempt(tx, None).await? {
            Executed::ByEngine { result, .. } | Executed::Here(result) => Ok(result),
        })
        .await
    }
}

impl LocalDatabase {
    /// Runs a transaction until it is over, and leaves a trace of it.
    pub(super) async fn run<T>(
        &self,
        trace: &mut TransactionTrace,
        mut body: impl AsyncFnMut(&CoordinatorTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let (began, mut conflicts) =
            (self.now(), AttemptConflicts::new(&self.worker_context.limits));
        let permit = self.enter().await?;
        loop {
            let is_again = trace.attempts > 0;
            let tx = CoordinatorTransaction::begin(&self.worker_context, &permit, is_again);
            let returned = body(&tx).await;
            trace.attempts += 1;
            trace.see(&self.worker_context, || tx.done());
            let outcome = match returned {
                Ok(value) => tx.end(BodyEnd::Commit).await.map(|()| value),
                Err(error @ (Error::Rejected(_) | Error::Unknown(_))) => {
                    // What it concluded counts only if what it read was so, and may be revealed.
                    tx.end(BodyEnd::Confirm).await.and(Err(error))
                }
                Err(error) => {
                    drop(tx);
                    Err(error)
                }
            };
            let Err(Error::Aborted(Aborted::Conflict(last))) = outcome else { return outcome };
            let longest = conflicts.longest_pause(&last);
            self.count(began, trace.attempts, last)?;
            self.pause(longest).await;
            self.worker_context.admission.again().await;
        }
    }

    fn count(&self, began: Time, attempts: u32, last: Conflict) -> Result<()> {
        let limits = &self.worker_context.limits;
        if attempts >= limits.attempts_max || self.now() - began >= limits.attempts_span_max {
            Err(Aborted::RetriesExhausted { attempts, last })?;
        }
        Ok(())
    }
}

/// The pauses after the conflicts that have stopped the attempts of a transaction so far.
struct AttemptConflicts {
    /// After a conflict with another transaction, which holds what is wanted.
    rivals: Backoff,
    /// While a shard is recovered, or an epoch ends.
    passing: Backoff,
}

impl AttemptConflicts {
    fn new(limits: &Limits) -> AttemptConflicts {
        let rivals = Backoff::new(limits.pause, limits.pause_max);
        let passing = Backoff::new(limits.pause, limits.pause_max.min(PASSING_PAUSE_MAX));
        AttemptConflicts { rivals, passing }
    }

    /// The bound of the pause after a conflict: it doubles with every conflict of the same kind.
    fn longest_pause(&mut self, conflict: &Conflict) -> Duration {
        match conflict {
            Conflict::ReadChanged { .. }
            | Conflict::Locked { .. }
            | Conflict::Overtaken { .. }
            | Conflict::RangeChanged { .. } => self.rivals.advance(),
            Conflict::OtherEpoch { .. }
            | Conflict::Recovering { .. }
            | Conflict::NoAnswer { .. }
            | Conflict::Undecided { .. }
            | Conflict::NoMajority { .. }
            | Conflict::EpochNotOpen { .. }
            | Conflict::TableNotKnown { .. }
            | Conflict::TableDropped { .. } => self.passing.advance(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::ShardId;

    #[test]
    fn pauses_grow_while_others_hold_what_is_wanted_and_stay_short_while_nobody_does() {
        let limits = Limits::default();
        let mut conflicts = AttemptConflicts::new(&limits);
        let recovering = Conflict::Recovering { shard: ShardId(0) };
        let changed = Conflict::RangeChanged { table: TableId(0) };
        let mut longest = |conflict| conflicts.longest_pause(conflict);
        assert_eq!(longest(&recovering), limits.pause);
        for _ in 0..100 {
            assert!(longest(&recovering) <= PASSING_PAUSE_MAX);
        }
        assert_eq!(longest(&recovering), PASSING_PAUSE_MAX);
        assert_eq!(longest(&changed), limits.pause, "the first rival");
        assert_eq!(longest(&changed), 2 * limits.pause);
        assert!((0..100).all(|_| longest(&changed) <= limits.pause_max));
        assert_eq!(longest(&changed), limits.pause_max);
        assert_eq!(longest(&recovering), PASSING_PAUSE_MAX);
    }
}
