//! Which tables workloads use. A cluster knows its tables before it starts, so workloads are made once
//! against a catalogue, which only takes down names, and then the cluster is made to fit.

use bytes::Bytes;
use shoal_types::{Call, Database, Error, Rejected, Result, TableId};
use shoal_workloads::model::ModelTransaction;
use std::cell::RefCell;
use std::rc::Rc;

/// A database that only takes down the names of the tables that workloads ask for.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    names: Rc<RefCell<Vec<String>>>,
}

impl Catalog {
    /// One without tables.
    pub fn new() -> Catalog {
        Catalog::default()
    }

    /// The tables, in the order of their numbers.
    pub fn names(&self) -> Vec<String> {
        self.names.borrow().clone()
    }
}

impl Database for Catalog {
    type Transaction<'db> = ModelTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        let mut names = self.names.borrow_mut();
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        Ok(TableId(at as u32))
    }

    async fn transact<T>(
        &self,
        _body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        Err(Error::reject("a catalogue knows the names of tables and nothing that is in them"))
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Err(Rejected::UnknownProcedure { name: call.procedure.into() }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_the_order_of_their_coming() {
        let catalog = Catalog::new();
        let numbers = ["a", "b", "a", "c"].map(|name| catalog.table(name).unwrap().0);
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(catalog.names(), ["a", "b", "c"]);
    }
}
