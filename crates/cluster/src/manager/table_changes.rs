//! What the manager remembers of changes of tables, beside the tables.

use super::ids::{Ask, Revision};
use crate::topology::{TableMap, TableStanding};
use shoal_types::wire::Coded;
use shoal_types::{Rejected, TableId};
use std::collections::BTreeMap;

/// The most requests of which it is remembered which table they have created.
pub(super) const CREATED_MAX: usize = 1024;

/// The most requests of which it is remembered that they were refused.
pub(super) const REFUSED_MAX: usize = 1024;

/// The requests that have created tables or were refused, and the changes of which nodes may not have learned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub(super) struct TableChanges {
    /// The last requests that have created a table, in their order.
    created: Vec<(Ask, TableId)>,
    /// The last requests that were refused, in their order, and why.
    refused: Vec<(Ask, Rejected)>,
    /// Tables of whose creation or drop a node that lives may not have learned, and the first configuration that has it.
    pub(super) unpublished: BTreeMap<TableId, Revision>,
}

impl TableChanges {
    /// The table that a request has created.
    pub(super) fn created(&self, ask: Ask) -> Option<TableId> {
        // A planted bug may have created two.
        let created = self.created.iter().rev().find(|(created, _)| *created == ask);
        created.map(|(_, table)| *table)
    }

    /// A request has created a table.
    pub(super) fn create(&mut self, ask: Ask, table: TableId) {
        self.created.push((ask, table));
        let forgotten = self.created.len().saturating_sub(CREATED_MAX);
        self.created.drain(..forgotten);
    }

    /// Why a request was refused.
    pub(super) fn refused(&self, ask: Ask) -> Option<&Rejected> {
        let refused = self.refused.iter().rev().find(|(refused, _)| *refused == ask);
        refused.map(|(_, reason)| reason)
    }

    /// A request is refused.
    pub(super) fn refuse(&mut self, ask: Ask, reason: Rejected) {
        self.refused.push((ask, reason));
        let forgotten = self.refused.len().saturating_sub(REFUSED_MAX);
        self.refused.drain(..forgotten);
    }

    /// Whether all that is remembered is of tables that were given, or dropped.
    pub(super) fn is_whole(&self, tables: &TableMap) -> bool {
        self.created.len() <= CREATED_MAX
            && self.refused.len() <= REFUSED_MAX
            && self.created.iter().all(|(_, id)| tables.standing(*id) != TableStanding::NotGiven)
            && self.unpublished.keys().all(|id| tables.standing(*id) != TableStanding::NotGiven)
    }
}
