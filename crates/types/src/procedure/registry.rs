//! What a procedure is, and how it is registered under a name.

use super::footprint::Footprint;
use super::transaction::{DynTransaction, ProcedureTransaction};
use crate::error::{Error, Rejected, Result};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A transaction that a database knows by name. It may run several times before it commits, on several nodes, and must do
/// nothing but work with the transaction: all that it writes and returns follows from its arguments and from what it reads.
///
/// An `async fn` of a transaction and arguments is a procedure, whose footprint is unknown:
///
/// ```
/// use bytes::Bytes;
/// use shoal_types::procedure::{ProcedureTransaction, Procedures};
/// use shoal_types::{Result, Transaction};
///
/// async fn deposit(tx: &ProcedureTransaction<'_>, account: &[u8]) -> Result<Bytes> {
///     let balance = tx.add(tx.table("accounts")?, account, 1).await?;
///     Ok(Bytes::copy_from_slice(&balance.to_le_bytes()))
/// }
/// let procedures = Procedures::new().with("deposit", deposit);
/// assert!(procedures.get("deposit").is_ok());
/// ```
pub trait Procedure: Send + Sync {
    /// Runs the body once.
    ///
    /// A procedure of shape [`Pieces`](super::Shape::Pieces) asks [`ProcedureTransaction::covers`] of each key, and leaves
    /// out those that are not covered: other pieces work with them.
    ///
    /// # Errors
    /// Those of the transaction, and what the procedure refuses to do.
    fn run(
        &self,
        tx: &ProcedureTransaction<'_>,
        arguments: &[u8],
    ) -> impl Future<Output = Result<Bytes>>;

    /// What it will touch if it is called with these arguments.
    ///
    /// # Errors
    /// A rejection where the arguments make no sense.
    fn footprint(&self, arguments: &[u8]) -> Result<Footprint> {
        let _ = arguments;
        Ok(Footprint::unknown())
    }

    /// Makes one result of those of the pieces, which come in the order of their shards. Combining the result of a whole
    /// execution alone gives that result.
    ///
    /// # Errors
    /// A rejection where the results are not what pieces return.
    fn combine(&self, arguments: &[u8], results: Vec<Bytes>) -> Result<Bytes> {
        let _ = arguments;
        let count = results.len();
        let mut results = results.into_iter();
        match (results.next(), results.next()) {
            (Some(result), None) => Ok(result),
            _ => Err(Error::reject(format!(
                "a procedure that is no set of pieces was executed in {count} of them"
            ))),
        }
    }
}

impl<F> Procedure for F
where
    F: AsyncFn(&ProcedureTransaction<'_>, &[u8]) -> Result<Bytes> + Send + Sync,
{
    async fn run(&self, tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
        self(tx, arguments).await
    }
}

/// A run of a procedure's body.
pub type ProcedureFuture<'t> = Pin<Box<dyn Future<Output = Result<Bytes>> + 't>>;

/// A registered [`Procedure`], whichever it is.
pub trait DynProcedure: Send + Sync {
    /// See [`Procedure::run`].
    fn run<'t>(
        &'t self,
        tx: &'t ProcedureTransaction<'t>,
        arguments: &'t [u8],
    ) -> ProcedureFuture<'t>;

    /// See [`Procedure::footprint`].
    ///
    /// # Errors
    /// As for [`Procedure::footprint`].
    fn footprint(&self, arguments: &[u8]) -> Result<Footprint>;

    /// See [`Procedure::combine`].
    ///
    /// # Errors
    /// As for [`Procedure::combine`].
    fn combine(&self, arguments: &[u8], results: Vec<Bytes>) -> Result<Bytes>;
}

impl<P: Procedure> DynProcedure for P {
    fn run<'t>(
        &'t self,
        tx: &'t ProcedureTransaction<'t>,
        arguments: &'t [u8],
    ) -> ProcedureFuture<'t> {
        Box::pin(Procedure::run(self, tx, arguments))
    }

    fn footprint(&self, arguments: &[u8]) -> Result<Footprint> {
        Procedure::footprint(self, arguments)
    }

    fn combine(&self, arguments: &[u8], results: Vec<Bytes>) -> Result<Bytes> {
        Procedure::combine(self, arguments, results)
    }
}

impl dyn DynProcedure + '_ {
    /// Runs the body once, on a transaction whose operations never wait.
    ///
    /// # Errors
    /// Those of the body, and a rejection where it waits for something.
    pub fn run_at_once(&self, tx: &dyn DynTransaction, arguments: &[u8]) -> Result<Bytes> {
        let tx = ProcedureTransaction::new(tx);
        let body = pin!(self.run(&tx, arguments));
        match body.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(Error::reject(
                "the procedure waits for something else than its transaction; it must not",
            )),
        }
    }
}

/// The procedures of a database: of a cluster the same on every node.
#[derive(Default)]
pub struct Procedures {
    by_name: BTreeMap<Box<str>, Box<dyn DynProcedure>>,
}

impl Procedures {
    /// A registry without procedures.
    pub const fn new() -> Procedures {
        Procedures { by_name: BTreeMap::new() }
    }

    /// Adds a procedure under a name.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn with(mut self, name: &str, procedure: impl Procedure + 'static) -> Procedures {
        let taken = self.by_name.insert(name.into(), Box::new(procedure));
        assert!(taken.is_none(), "two procedures are called {name}");
        self
    }

    /// The procedure of this name.
    ///
    /// # Errors
    /// [`Rejected::UnknownProcedure`].
    pub fn get(&self, name: &str) -> Result<&dyn DynProcedure> {
        let procedure = self.by_name.get(name).map(|procedure| &**procedure);
        Ok(procedure.ok_or_else(|| Rejected::UnknownProcedure { name: name.into() })?)
    }

    /// The names of all registered procedures, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }
}

impl fmt::Debug for Procedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::transaction::OperationFuture;
    use super::*;
    use crate::id::TableId;
    use crate::transaction::{Rows, Scan};
    use std::future::pending;

    async fn echo(_: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(arguments))
    }

    async fn wait(_: &ProcedureTransaction<'_>, _: &[u8]) -> Result<Bytes> {
        pending().await
    }

    /// A transaction that is handed to procedures that do not touch it.
    struct Untouched;

    impl DynTransaction for Untouched {
        fn table(&self, _: &str) -> Result<TableId> {
            unreachable!("no table is looked for")
        }
        fn get<'t: 'f, 'f>(
            &'t self,
            _: TableId,
            _: &'f [u8],
        ) -> OperationFuture<'f, Option<&'t [u8]>> {
            unreachable!("nothing is read")
        }
        fn scan<'t: 'f, 'f>(&'t self, _: TableId, _: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
            unreachable!("nothing is scanned")
        }
        fn put(&self, _: TableId, _: &[u8], _: &[u8]) -> Result<()> {
            unreachable!("nothing is written")
        }
        fn insert<'f>(&'f self, _: TableId, _: &'f [u8], _: &'f [u8]) -> OperationFuture<'f, ()> {
            unreachable!("nothing is inserted")
        }
        fn delete(&self, _: TableId, _: &[u8]) -> Result<()> {
            unreachable!("nothing is deleted")
        }
        fn add<'f>(&'f self, _: TableId, _: &'f [u8], _: i64) -> OperationFuture<'f, i64> {
            unreachable!("nothing is added")
        }
    }

    #[test]
    fn a_function_is_a_procedure_without_a_declaration() {
        let procedures = Procedures::new().with("echo", echo).with("wait", wait);
        let procedure = procedures.get("echo").unwrap();
        assert_eq!(procedure.run_at_once(&Untouched, b"a").unwrap(), "a");
        assert_eq!(procedure.footprint(b"a").unwrap(), Footprint::unknown());
        assert_eq!(procedure.combine(b"", vec!["a".into()]).unwrap(), "a");
        assert!(procedure.combine(b"", vec!["a".into(), "b".into()]).is_err());
        assert!(procedures.names().eq(["echo", "wait"]));
    }

    #[test]
    fn what_is_not_there_and_what_waits_are_refused() {
        let procedures = Procedures::new().with("wait", wait);
        let unknown = Rejected::UnknownProcedure { name: "sing".into() };
        assert_eq!(procedures.get("sing").err(), Some(unknown.into()));
        let waits = procedures.get("wait").unwrap().run_at_once(&Untouched, b"");
        assert!(waits.unwrap_err().to_string().contains("waits for something else"));
    }
}
