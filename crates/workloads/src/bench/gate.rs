//! When workers begin, and when they end: also those that meet one conflict after another.

use crate::tally::Padded;
use bytes::Bytes;
use shoal_types::{Call, Database, Error, Rejected, Result, TableId};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Why an attempt is not made any more.
const OVER: &str = "the time of the bench is up";

/// What the workers are to do, set by the runner and read before every transaction.
#[derive(Debug, Default)]
pub(super) struct Gate(Padded<AtomicU8>);

/// A state of the [`Gate`], in the order in which they follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    WarmUp,
    Measure,
    Stop,
}

impl Gate {
    pub(super) fn set(&self, phase: Phase) {
        self.0.0.store(phase as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        match self.0.0.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Measure,
            _ => Phase::Stop,
        }
    }
}

/// A database for as long as the gate is open: a transaction that is under way when it closes ends with its attempt.
/// Under contention another could take minutes to succeed.
#[derive(Debug, Clone)]
pub(super) struct Gated<D> {
    db: D,
    gate: Arc<Gate>,
    /// The number of attempts at the last transaction.
    runs: Rc<Cell<u64>>,
}

impl<D> Gated<D> {
    pub(super) fn new(db: D, gate: Arc<Gate>) -> Gated<D> {
        Gated { db, gate, runs: Rc::default() }
    }

    /// The number of attempts at the last transaction.
    pub(super) fn runs(&self) -> u64 {
        self.runs.get()
    }
}

/// Whether this is how a [`Gated`] database ends a transaction.
pub(super) fn is_over(error: &Error) -> bool {
    matches!(error, Error::Rejected(Rejected::Procedure { reason }) if **reason == *OVER)
}

impl<D: Database> Database for Gated<D> {
    type Transaction<'db> = D::Transaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        self.db.table(name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.runs.set(0);
        self.db
            .transact(async |transaction| {
                if self.runs.get() > 0 && self.gate.phase() == Phase::Stop {
                    return Err(Error::reject(OVER));
                }
                self.runs.set(self.runs.get() + 1);
                body(transaction).await
            })
            .await
    }

    /// The number of attempts is not known here: a call counts as one.
    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.runs.set(1);
        self.db.call(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use futures_executor::block_on;
    use shoal_types::{Aborted, Conflict};

    /// Runs a body again as often as it meets a conflict.
    #[derive(Clone)]
    struct Stubborn(Model);

    impl Database for Stubborn {
        type Transaction<'db> = <Model as Database>::Transaction<'db>;

        fn table(&self, name: &str) -> Result<TableId> {
            self.0.table(name)
        }

        async fn transact<T>(
            &self,
            mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
        ) -> Result<T> {
            loop {
                let result = self.0.transact(&mut body).await;
                if !matches!(result, Err(Error::Aborted(_))) {
                    return result;
                }
            }
        }

        async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
            self.0.call(call).await
        }
    }

    #[test]
    fn whoever_meets_conflicts_when_time_is_up_is_cut_off() {
        let gated = Gated::new(Stubborn(Model::new()), Arc::new(Gate::default()));
        let mut runs = 0;
        let cut: Result<()> = block_on(gated.transact(async |_| {
            runs += 1;
            if runs == 3 {
                gated.gate.set(Phase::Stop);
            }
            let shard = shoal_types::ShardId(0);
            Err(Aborted::from(Conflict::Recovering { shard }).into())
        }));
        assert!(cut.is_err_and(|error| is_over(&error)));
        assert_eq!((runs, gated.runs()), (3, 3));
        assert_eq!(block_on(gated.transact(async |_| Ok(7))), Ok(7), "one attempt always is");
    }
}
