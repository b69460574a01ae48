//! The tables that workloads use. A cluster has its tables before it starts, so each workload is made once
//! against a catalogue, which only records names; then the cluster is made with these tables.

use crate::model::ModelTransaction;
use bytes::Bytes;
use shoal_types::{Call, Database, Error, Rejected, Result, TableId};
use std::cell::RefCell;
use std::rc::Rc;

/// A database that only records the names of the tables that workloads open.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    names: Rc<RefCell<Vec<String>>>,
}

impl Catalog {
    /// A catalogue without tables.
    pub fn new() -> Catalog {
        Catalog::default()
    }

    /// The names of the tables, in the order of their numbers.
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
        Err(Error::reject("a catalogue has the names of tables, and no data"))
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        Err(Rejected::UnknownProcedure { name: call.procedure.into() }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_the_order_of_their_first_use() {
        let catalog = Catalog::new();
        let numbers = ["a", "b", "a", "c"].map(|name| catalog.table(name).unwrap().0);
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(catalog.names(), ["a", "b", "c"]);
    }
}
