//! Procedures: transactions that the server knows by name.

use crate::execution::CoordinatorTransaction;
use bytes::Bytes;
use shoal_types::Result;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A transaction that clients call by name, in one message. It may run several times before it
/// commits, and should do nothing but work with the transaction.
pub trait Procedure: Send + Sync {
    /// Runs the body once.
    fn call<'t>(
        &'t self,
        tx: &'t CoordinatorTransaction,
        arguments: &'t [u8],
    ) -> Pin<Box<dyn Future<Output = Result<Bytes>> + 't>>;
}

impl<F> Procedure for F
where
    F: AsyncFn(&CoordinatorTransaction, &[u8]) -> Result<Bytes> + Send + Sync,
{
    fn call<'t>(
        &'t self,
        tx: &'t CoordinatorTransaction,
        arguments: &'t [u8],
    ) -> Pin<Box<dyn Future<Output = Result<Bytes>> + 't>> {
        Box::pin(async move { self(tx, arguments).await })
    }
}

/// The procedures of a cluster: the same on every node.
#[derive(Default)]
pub struct Procedures {
    by_name: BTreeMap<Box<str>, Box<dyn Procedure>>,
}

impl Procedures {
    /// None.
    pub fn new() -> Procedures {
        Procedures::default()
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
    pub fn get(&self, name: &str) -> Option<&dyn Procedure> {
        Some(&**self.by_name.get(name)?)
    }
}

impl fmt::Debug for Procedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}
