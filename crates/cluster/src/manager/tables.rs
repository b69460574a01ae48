//! Tables that are created and dropped while the cluster runs.
//!
//! ```text
//!   node ── ChangeTable ──► manager ── command ──► log ──► configuration ──► all nodes
//!     ◄──────────────── TableChanged ──────────────────────────┘ when all that live have it
//! ```
//! 1. *An id is given once.* The next table gets the next id, also after the last one was dropped.
//! 2. *A request creates once.* The client draws a number for a request and repeats it until it is answered. The
//!    manager keeps which table each of the last [`CREATED_MAX`](super::table_changes::CREATED_MAX) requests has
//!    created, also if it was dropped since. A drop names the table by its id, and so does not affect a later table of
//!    the same name. A request that was refused stays refused, for as many requests: its client was answered that nothing
//!    happened, and a late copy comes when it could be granted.
//! 3. *A table exists before a node serves it.* A leader serves the tables of its configuration, which is from the
//!    manager's log. So every entry of a stream is of a table whose creation is committed, and a replica that does not
//!    know the table yet opens it for the entry. A node that leads knows it: the configuration by which it was
//!    appointed is later than all by which its predecessors served.
//! 4. *Every node knows what is answered.* The answer waits until all nodes that live have the configuration with it.
//!    One that does not live has no lease, and gets a new one with the last configuration only. So a table is served
//!    everywhere once its creation is answered, and nowhere once its drop is.

use super::command::TableChange;
use super::ids::Ask;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, StateMachine};
use crate::topology::{Table, TableDefinition, TableStanding, TopologyError};
use shoal_types::limits::{RESERVED_TABLES, TABLE_IDS_MAX, TABLE_NAME_BYTES_MAX, TABLES_MAX};
use shoal_types::{Rejected, TableId};
use std::sync::Arc;

impl StateMachine {
    pub(super) fn on_table_change(
        &mut self,
        ask: Ask,
        change: &TableChange,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        if let Some(reason) = self.table_changes.refused(ask) {
            return Err(reason.clone())?;
        }
        let changed = match change {
            TableChange::Create { name, definition } => {
                self.on_create(ask, name, definition, effects)
            }
            TableChange::Drop { table } => self.on_drop(*table, effects),
        };
        if let Err(ChangeRefusal::Table(reason)) = &changed {
            self.table_changes.refuse(ask, reason.clone());
        }
        changed
    }

    fn on_create(
        &mut self,
        ask: Ask,
        name: &str,
        definition: &TableDefinition,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        let forgets = self.options.faults.create_again;
        if self.table_changes.created(ask).is_some() && !forgets {
            return Ok(());
        }
        let tables = Arc::clone(self.topology.tables());
        if let Some(table) = tables.named(name).and_then(|table| tables.get(table)) {
            let same = table.definition() == *definition;
            return if same { Ok(()) } else { Err(Rejected::TableExists { name: name.into() })? };
        }
        let (bytes, max) = (name.len(), TABLE_NAME_BYTES_MAX);
        if !(1..=max).contains(&bytes) {
            return Err(Rejected::TableName { bytes, max })?;
        }
        if name.starts_with(RESERVED_TABLES) {
            return Err(Rejected::TableReserved { name: name.into() })?;
        }
        if tables.len() >= TABLES_MAX {
            return Err(Rejected::TooManyTables { max: TABLES_MAX })?;
        }
        let id = tables.next();
        if id.0 as usize >= TABLE_IDS_MAX {
            return Err(Rejected::TooManyTableIds { max: TABLE_IDS_MAX })?;
        }
        let mut planned = self.tables();
        planned.push((id, (name.to_owned(), definition.clone())));
        let topology = (*self.topology).clone();
        let topology = topology.with_numbered_tables(planned, TableId(id.0 + 1));
        let invalid =
            |error: TopologyError| Rejected::TablePartitioning { reason: error.what.into() };
        self.topology = Arc::new(topology.map_err(invalid)?);
        self.changed = true;
        self.table_changes.create(ask, id);
        self.table_changes.unpublished.insert(id, self.next_revision());
        effects.push(Applied::TableCreated { ask, table: id, name: name.to_owned() });
        Ok(())
    }

    fn on_drop(&mut self, table: TableId, effects: &mut Vec<Applied>) -> Result<(), ChangeRefusal> {
        let tables = self.topology.tables();
        let name = match (tables.standing(table), tables.get(table)) {
            (TableStanding::NotGiven, _) => return Err(Rejected::UnknownTable { table })?,
            (_, None) => return Ok(()),
            (_, Some(table)) => table.name(),
        };
        if name.starts_with(RESERVED_TABLES) {
            return Err(Rejected::TableReserved { name: name.into() })?;
        }
        if self.moving.as_ref().is_some_and(|moving| moving.table == table) {
            return Err(Rejected::TableMoving { table })?;
        }
        let in_family = |other: &Table| other.id() != table && other.granules().family == table;
        if tables.iter().any(in_family) {
            return Err(Rejected::TableFamily { table })?;
        }
        let next = tables.next();
        let mut kept = self.tables();
        kept.retain(|(id, _)| *id != table);
        self.topology = Arc::new((*self.topology).clone().with_numbered_tables(kept, next)?);
        self.changed = true;
        self.table_changes.unpublished.insert(table, self.next_revision());
        effects.push(Applied::TableDropped { table });
        Ok(())
    }

    /// The table of which a granted request is answered: that which it has created, or the one that has the name, or was
    /// dropped.
    pub(super) fn changed_table(&self, ask: Ask, change: &TableChange) -> Option<TableId> {
        match change {
            TableChange::Create { name, .. } => {
                self.table_changes.created(ask).or_else(|| self.topology.table(name))
            }
            TableChange::Drop { table } => Some(*table),
        }
    }

    /// Whether all nodes that live have learned that the table was created, or dropped.
    pub(super) fn is_table_change_known(&self, table: TableId) -> bool {
        let revision = self.table_changes.unpublished.get(&table);
        revision.is_none_or(|revision| self.is_known_by_living(*revision))
            || self.options.faults.answer_untold
    }

    /// Forgets changes of which all nodes that live have learned.
    pub(super) fn forget_table_changes(&mut self) {
        let mut unpublished = std::mem::take(&mut self.table_changes.unpublished);
        unpublished.retain(|_, revision| !self.is_known_by_living(*revision));
        self.table_changes.unpublished = unpublished;
    }
}
