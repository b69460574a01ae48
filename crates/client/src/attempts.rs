//! How a transaction is run until it has committed, wherever it runs.

use crate::future::TransactionFuture;
use shoal_types::{Error, Result};

/// Where transactions run: in this process, on a cluster, or on either of them.
pub(crate) trait Place {
    /// A transaction there.
    type Transaction<'p>
    where
        Self: 'p;

    /// The attempts of one transaction, which decide whether there is another.
    type Retries;

    /// The attempts of a transaction that has not begun.
    fn retries(&self) -> Result<Self::Retries>;

    /// Begins an attempt.
    fn attempt(&self, retries: &Self::Retries) -> Result<Self::Transaction<'_>>;

    /// Commits an attempt: at once, where nothing has to be waited for.
    fn end<'p>(&'p self, tx: Self::Transaction<'p>) -> TransactionFuture<'p, ()>;

    /// `error`, which the body of an attempt returned, if the body's reads are valid; otherwise the conflict.
    async fn confirm_failure<'p>(&'p self, tx: Self::Transaction<'p>, error: Error) -> Error;

    /// Pauses after an attempt that `error` ended; an error where there is no other.
    async fn pause(&self, retries: &mut Self::Retries, error: Error) -> Result<()>;
}

/// Runs `body` as a transaction: again, after a pause, where nothing has happened and another attempt may succeed.
pub(crate) async fn run<P: Place, T>(
    place: &P,
    mut body: impl AsyncFnMut(&mut P::Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let mut retries = place.retries()?;
    loop {
        let mut tx = place.attempt(&retries)?;
        let error = match body(&mut tx).await {
            Ok(value) => match place.end(tx).await {
                Ok(()) => return Ok(value),
                Err(error) => error,
            },
            Err(error) => place.confirm_failure(tx, error).await,
        };
        place.pause(&mut retries, error).await?;
    }
}
