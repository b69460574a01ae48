//! What the five transactions have in common: an input that is drawn once, a body that may run
//! more than once, an output that is what a terminal would show.

use super::schema::Tables;
use shoal_types::{Result, Transaction};
use std::future::Future;

/// A transaction with its input, ready to run.
pub trait Procedure {
    /// What a terminal shows of it. Passed in, so that a client can use the same one again and
    /// again; what it holds is meaningful only once the transaction committed.
    type Output;

    /// Runs the body in `tx`. Every run does the same, independent of what an earlier one left in `output`.
    ///
    /// # Errors
    /// Those of the database, and a rejection if the data is not a TPC-C population.
    fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Self::Output,
    ) -> impl Future<Output = Result<()>>;
}
