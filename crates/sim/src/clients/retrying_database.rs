//! A database that repeats aborted transactions, for loading the data with which a run begins, and for checks at its end.

use shoal_engine::LocalDatabase;
use shoal_types::{Call, Database, Error, Result, TableId, Unknown};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Limit on how often a transaction is repeated. With [`PAUSE`] between repeats this is longer than any
/// recovery.
const REPEATS_MAX: usize = 1000;

/// Virtual time between two repeats.
const PAUSE: Duration = Duration::from_millis(5);

/// The database of a worker, for loaders and checks. A worker gives up a transaction whose shard is being recovered, or
/// while its own node serves none. A client would then ask another worker; loaders and checks have no other, and a run
/// without its data judges nothing. Transactions of both may take effect twice: what they write is the same each time. So they are
/// repeated as well where the outcome is unknown, as a lossy network over a long distance makes it at times. One that inserts rows is
/// rejected then, if it has taken effect (seed 71113066): what it loads may be there, or not all of it.
#[derive(Clone)]
pub struct RetryingDatabase {
    database: LocalDatabase,
    /// The last unknown outcome of one that was repeated.
    unknown: Rc<Cell<Option<Unknown>>>,
}

impl RetryingDatabase {
    /// Repeats transactions of `database` that are aborted, or whose outcome is unknown.
    pub fn new(database: LocalDatabase) -> RetryingDatabase {
        RetryingDatabase { database, unknown: Rc::default() }
    }

    /// Why a transaction was rejected: for what an earlier attempt of unknown outcome may have done, if there was one.
    pub fn reason(&self, error: Error) -> Error {
        match (error, self.unknown.take()) {
            (Error::Rejected(_), Some(unknown)) => unknown.into(),
            (error, _) => error,
        }
    }

    /// Pauses if `result` is to be repeated and one of the `left` repeats remains; returns whether to repeat.
    async fn repeats<T>(&self, result: &Result<T>, is_repeatable: bool, left: &mut usize) -> bool {
        let repeats = match result {
            Err(Error::Aborted(_)) => *left > 0,
            Err(Error::Unknown(_)) => is_repeatable && *left > 0,
            Ok(_) | Err(Error::Rejected(_)) => false,
        };
        if let Err(Error::Unknown(unknown)) = result {
            self.unknown.set(Some(*unknown));
        }
        if repeats {
            *left -= 1;
            self.database.sleep(PAUSE).await;
        }
        repeats
    }
}

impl Database for RetryingDatabase {
    type Transaction<'db> = <LocalDatabase as Database>::Transaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        self.database.table(name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut left = REPEATS_MAX;
        loop {
            let result = self.database.transact(&mut body).await;
            if !self.repeats(&result, true, &mut left).await {
                return result;
            }
        }
    }

    async fn call(&self, call: &Call<'_>) -> Result<bytes::Bytes> {
        let mut left = REPEATS_MAX;
        loop {
            let result = self.database.call(call).await;
            if !self.repeats(&result, false, &mut left).await {
                return result;
            }
        }
    }
}
