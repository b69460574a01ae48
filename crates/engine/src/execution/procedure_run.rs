//! A procedure, through all attempts of its transaction: executed by the engine by what it touches, or run here.
//!
//! What a procedure touches it declares, or it is found out (*reconnaissance*, of Calvin, SIGMOD'12, §3.2.1): its body is run here, and if
//! that attempt conflicts with others, the next one is executed by the engine by what this one has touched.
//!
//! ```text
//!   what it declares ── more is read than could be gathered ──► its body is run here ── conflict ──► what that has touched
//!        ▲ nothing                                                    ▲    ▲                                    │
//!        └── begins                                                 begins └──────── touches something else ────┘
//! ```

use super::transaction::CoordinatorTransaction;
use super::worker_context::{DeclaredRow, WorkerContext};
use bytes::Bytes;
use shoal_types::procedure::{
    DynProcedure, Footprint, FootprintRecorder, ProcedureTransaction, Shape,
};
use shoal_types::{Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, TableId};
use std::cell::RefCell;

/// A procedure that is called, through all attempts of its transaction.
pub(super) struct ProcedureRun<'c> {
    name: &'c str,
    arguments: &'c [u8],
    procedure: &'c dyn DynProcedure,
    /// Whether the engine executes procedures by what they touch.
    is_by_footprint: bool,
    next: RefCell<Plan>,
}

/// How an attempt is made.
enum Plan {
    /// By what the procedure declares, if it declares something.
    Declared,
    /// Its body is run here.
    Here,
    /// By what the last attempt has touched.
    Touched(Footprint),
}

/// What an attempt has returned.
pub(super) enum Executed {
    /// The engine has executed it, and written the row of its request.
    ByEngine {
        /// What the procedure returned.
        result: Bytes,
        /// Several shards have contributed to it.
        is_split: bool,
    },
    /// The body was run on the transaction, which is to be committed.
    Here(Bytes),
}

impl<'c> ProcedureRun<'c> {
    /// # Errors
    /// [`Rejected::UnknownProcedure`].
    pub(super) fn new(
        worker_context: &'c WorkerContext,
        name: &'c str,
        arguments: &'c [u8],
    ) -> Result<ProcedureRun<'c>> {
        let procedure = worker_context.procedures.get(name)?;
        let (is_by_footprint, next) = (worker_context.takes_declared.get(), Plan::Declared.into());
        Ok(ProcedureRun { name, arguments, procedure, is_by_footprint, next })
    }

    /// Makes an attempt, in a transaction that has done nothing yet. `request`: the row of the call, if it has an id.
    ///
    /// # Errors
    /// Those of the procedure, and of the transaction.
    pub(super) async fn attempt(
        &self,
        tx: &CoordinatorTransaction<'_>,
        request: Option<DeclaredRow>,
    ) -> Result<Executed> {
        let ProcedureRun { name, arguments, procedure, .. } = *self;
        if !self.is_by_footprint {
            return procedure
                .run(&ProcedureTransaction::new(tx), arguments)
                .await
                .map(Executed::Here);
        }
        let plan = self.next.replace(Plan::Declared);
        let mut guess = None;
        let footprint = match plan {
            Plan::Declared => procedure.footprint(arguments)?,
            Plan::Here => Footprint::unknown(),
            Plan::Touched(footprint) => {
                guess = Some(first_touched(&footprint));
                footprint
            }
        };
        if footprint.shape != Shape::Unknown {
            let results = tx.execute_declared(name, arguments, footprint, request).await;
            match results.map_err(|error| match &guess {
                Some(touched) => as_conflict(error, *touched),
                None => error,
            }) {
                Ok(Some(results)) => {
                    let is_split = results.len() > 1;
                    let result = procedure.combine(arguments, results)?;
                    return Ok(Executed::ByEngine { result, is_split });
                }
                Ok(None) => {}
                Err(error) => {
                    if is_change(&error) {
                        self.next.replace(Plan::Here);
                    }
                    return Err(error);
                }
            }
        }
        let recorder = FootprintRecorder::new(tx);
        let result = procedure.run(&ProcedureTransaction::new(&recorder), arguments).await;
        if matches!(result, Ok(_) | Err(Error::Rejected(_))) {
            self.next.replace(Plan::Touched(recorder.into_footprint()));
        }
        result.map(Executed::Here)
    }
}

/// The first that is touched.
fn first_touched(footprint: &Footprint) -> (TableId, KeyExcerpt) {
    let key = footprint.reads.iter().chain(&footprint.writes).next();
    let key = key.map(|it| (it.table, KeyExcerpt::new(&it.key)));
    let range = || footprint.ranges.first().map(|it| (it.table, KeyExcerpt::new(&it.start)));
    key.or_else(range).unwrap_or((TableId(0), KeyExcerpt::new(b"")))
}

/// What was touched, this first, was a guess: what it has read now led the procedure elsewhere, or made it larger than the engine
/// executes. What it does when it is run here may be smaller.
fn as_conflict(error: Error, touched: (TableId, KeyExcerpt)) -> Error {
    let (table, key) = match error {
        Error::Rejected(Rejected::Undeclared { table, key }) => (table, key),
        Error::Rejected(Rejected::TransactionBytes { .. }) => touched,
        error => return error,
    };
    Aborted::from(Conflict::ReadChanged { table, key }).into()
}

/// Whether the engine could not execute it by this footprint.
fn is_change(error: &Error) -> bool {
    use Conflict::{RangeChanged, ReadChanged};
    matches!(error, Error::Aborted(Aborted::Conflict(ReadChanged { .. } | RangeChanged { .. })))
}
