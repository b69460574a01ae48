//! Which table an error is about.

use super::{Aborted, Conflict, Error, Rejected};
use crate::id::TableId;

impl Error {
    /// The table that the message shows by its id, if it shows one. The name is for the database to add.
    ///
    /// ```
    /// # use shoal_types::{Conflict, Error, TableId};
    /// let changed = Error::from(shoal_types::Aborted::from(Conflict::RangeChanged { table: TableId(3) }));
    /// assert_eq!(changed.table(), Some(TableId(3)));
    /// assert_eq!(Error::reject("insufficient funds").table(), None);
    /// ```
    pub fn table(&self) -> Option<TableId> {
        match self {
            Error::Aborted(
                Aborted::Conflict(conflict) | Aborted::RetriesExhausted { last: conflict, .. },
            ) => conflict.table(),
            Error::Rejected(rejected) => rejected.table(),
            Error::Aborted(_) | Error::Unknown(_) => None,
        }
    }
}

impl Conflict {
    fn table(&self) -> Option<TableId> {
        match self {
            Conflict::ReadChanged { table, .. }
            | Conflict::Locked { table, .. }
            | Conflict::RangeChanged { table }
            | Conflict::TableNotKnown { table }
            | Conflict::TableDropped { table } => Some(*table),
            Conflict::OtherEpoch { .. }
            | Conflict::Recovering { .. }
            | Conflict::EpochNotOpen { .. }
            | Conflict::Overtaken { .. }
            | Conflict::NoAnswer { .. }
            | Conflict::NoMajority { .. }
            | Conflict::Undecided { .. } => None,
        }
    }
}

impl Rejected {
    fn table(&self) -> Option<TableId> {
        match self {
            Rejected::KeyEmpty { table }
            | Rejected::KeyTooLong { table, .. }
            | Rejected::ValueTooLong { table, .. }
            | Rejected::UnknownTable { table }
            | Rejected::KeyExists { table, .. }
            | Rejected::WrongValue { table, .. }
            | Rejected::TableDropped { table }
            | Rejected::TableMoving { table }
            | Rejected::ScanTooWide { table, .. }
            | Rejected::GranuleFull { table, .. }
            | Rejected::DataLost { table, .. }
            | Rejected::TableEverywhere { table }
            | Rejected::Undeclared { table, .. }
            | Rejected::TableFamily { table } => Some(*table),
            _ => None,
        }
    }
}
