//! A call of a procedure: its name, its arguments, and where it is best executed.

use crate::id::TableId;

/// A call of a procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'c> {
    /// The name under which the procedure is registered at the servers.
    pub procedure: &'c str,
    /// What it is called with.
    pub arguments: &'c [u8],
    /// A key that it works with, if the caller knows one: the call is best executed where that key lives.
    pub home: Option<(TableId, &'c [u8])>,
}

impl<'c> Call<'c> {
    /// A call that is executed anywhere.
    pub fn new(procedure: &'c str, arguments: &'c [u8]) -> Call<'c> {
        Call { procedure, arguments, home: None }
    }

    /// The same, executed near the key.
    #[must_use]
    pub fn near(self, table: TableId, key: &'c [u8]) -> Call<'c> {
        Call { home: Some((table, key)), ..self }
    }
}
