//! The database as code on a worker sees it, and how it runs a transaction.

use super::admission::Permit;
use super::hub::{Ending, Hub};
use super::trace::Trace;
use super::transaction::Transaction;
use crate::slow::Kind;
use std::rc::Rc;
use std::time::Duration;
use types::{Aborted, Conflict, Database, Error, Rejected, Result, TableId, Time};

/// A handle for procedures, sessions and tasks: it stays on its worker. Transactions are coordinated
/// there.
#[derive(Clone)]
pub struct Local {
    pub(super) hub: Rc<Hub>,
}

impl Local {
    pub(crate) fn new(hub: &Rc<Hub>) -> Local {
        Local { hub: Rc::clone(hub) }
    }

    /// The worker's time.
    pub fn now(&self) -> Time {
        self.hub.now.get()
    }

    /// Pauses the task, in the worker's time.
    pub async fn sleep(&self, span: Duration) {
        self.hub.sleep(span).await;
    }

    /// Waits until there is room for a transaction.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`]; [`Aborted::NotServing`] where this node leads nothing meanwhile.
    async fn enter(&self) -> Result<Rc<Permit>> {
        self.hub.admission.enter(self.hub.now.get()).await
    }

    /// Waits until there is room, and begins a transaction.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`]; [`Aborted::NotServing`] where this node leads nothing meanwhile.
    pub(super) async fn begin(&self) -> Result<Transaction> {
        Ok(Transaction::begin(&self.hub, self.enter().await?, false))
    }

    /// Pauses before another attempt, longer and longer, and never as long as a rival.
    async fn pause(&self, attempts: u32) {
        let limits = &self.hub.limits;
        let longest = limits.pause * (1 << (attempts - 1).min(16));
        let longest = longest.min(limits.pause_max).as_nanos() as u64;
        let nanos = self.hub.random.borrow_mut().below(longest.max(1));
        self.hub.sleep(Duration::from_nanos(nanos)).await;
    }
}

impl Database for Local {
    type Transaction<'db> = Transaction;

    fn table(&self, name: &str) -> Result<TableId> {
        let table = self.hub.topology.table(name);
        Ok(table.ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    async fn transact<T>(&self, body: impl AsyncFnMut(&Transaction) -> Result<T>) -> Result<T> {
        let (began, mut trace) = (self.now(), Trace::default());
        let result = self.run(&mut trace, body).await;
        trace.end(&self.hub, began, &result, || Kind::Task);
        result
    }
}

impl Local {
    /// Runs a transaction until it is over, and leaves a trace of it.
    pub(super) async fn run<T>(
        &self,
        trace: &mut Trace,
        mut body: impl AsyncFnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let permit = self.enter().await?;
        loop {
            let tx = Transaction::begin(&self.hub, Rc::clone(&permit), trace.attempts > 0);
            let returned = body(&tx).await;
            trace.attempts += 1;
            trace.see(&self.hub, &tx);
            let outcome = match returned {
                Ok(value) => tx.end(Ending::Commit).await.map(|()| value),
                Err(error @ (Error::Rejected(_) | Error::Unknown(_))) => {
                    // What it concluded counts only if what it read was so, and may be told.
                    tx.end(Ending::Confirm).await.and(Err(error))
                }
                Err(error) => {
                    drop(tx);
                    Err(error)
                }
            };
            let Err(Error::Aborted(Aborted::Conflict(last))) = outcome else { return outcome };
            self.count(trace.attempts, last)?;
            self.pause(trace.attempts).await;
            self.hub.admission.again().await;
        }
    }

    fn count(&self, attempts: u32, last: Conflict) -> Result<()> {
        if attempts >= self.hub.limits.attempts_max {
            Err(Aborted::RetriesExhausted { attempts, last })?;
        }
        Ok(())
    }
}
