//! Changes of the cluster that an operator asks for, and those of the shard map. Replacements of replicas are in
//! `replacement.rs`, changes of tables in `tables.rs`, of nodes in `nodes.rs`.

use super::command::ClusterChange;
use super::configuration::Move;
use super::ids::Ask;
use super::refusal::ChangeRefusal;
use super::state_machine::{Applied, StateMachine};
use crate::topology::{Partitioning, Table, TableDefinition, Topology};
use shoal_types::TableId;
use std::sync::Arc;

impl StateMachine {
    pub(super) fn on_change(
        &mut self,
        ask: Ask,
        change: &ClusterChange,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        match change {
            ClusterChange::ReplaceReplica { shard, outgoing, incoming } => {
                self.on_replace(*shard, *outgoing, *incoming)
            }
            ClusterChange::KeepReplicas { shard } => {
                let kept =
                    self.shards.get_mut(shard.0 as usize).ok_or(ChangeRefusal::NoShard(*shard))?;
                self.changed |= kept.cancel_replacement();
                Ok(())
            }
            ClusterChange::AcceptLoss { shard, number, at_s } => {
                self.on_accept_loss(*shard, *number, *at_s, effects)
            }
            ClusterChange::Table(change) => self.on_table_change(ask, change, effects),
            ClusterChange::AddNode { name, datacenter, address } => {
                self.on_add_node(name, datacenter, address.as_deref(), effects)
            }
            ClusterChange::RemoveNode { node } => self.on_remove_node(*node, effects),
            ClusterChange::BeginMove { table, partitioning } => {
                self.on_begin_move(*table, partitioning, effects)
            }
            ClusterChange::EndMove { table } => self.on_end_move(*table),
            ClusterChange::CancelMove { table } => {
                self.check_moving(*table)?;
                self.moving = None;
                self.changed = true;
                Ok(())
            }
        }
    }

    fn on_begin_move(
        &mut self,
        table: TableId,
        partitioning: &Partitioning,
        effects: &mut Vec<Applied>,
    ) -> Result<(), ChangeRefusal> {
        if let Some(moving) = &self.moving {
            let same = moving.table == table && moving.partitioning == *partitioning;
            return if same { Ok(()) } else { Err(ChangeRefusal::MoveUnderWay(moving.table)) };
        }
        self.with_partitioning(table, partitioning)?;
        if !self.closing.is_empty() {
            return Err(ChangeRefusal::Unsettled);
        }
        self.raise_epoch(&[], effects);
        self.moving = Some(Move { table, partitioning: partitioning.clone(), begun: self.epoch });
        Ok(())
    }

    fn on_end_move(&mut self, table: TableId) -> Result<(), ChangeRefusal> {
        self.check_moving(table)?;
        let Some(moving) = self.moving.clone() else { return Err(ChangeRefusal::NoMove(table)) };
        if self.settled.0 + 1 < moving.begun.0 {
            return Err(ChangeRefusal::Unsettled);
        }
        self.topology = Arc::new(self.with_partitioning(table, &moving.partitioning)?);
        self.moving = None;
        self.changed = true;
        Ok(())
    }

    fn check_moving(&self, table: TableId) -> Result<(), ChangeRefusal> {
        let moves = self.moving.as_ref().is_some_and(|moving| moving.table == table);
        if moves { Ok(()) } else { Err(ChangeRefusal::NoMove(table)) }
    }

    /// The tables, by their ids.
    pub(super) fn tables(&self) -> Vec<(TableId, (String, TableDefinition))> {
        let plan = |table: &Table| (table.id(), (table.name().to_owned(), table.definition()));
        self.topology.tables().iter().map(plan).collect()
    }

    /// The topology, with one of its tables divided otherwise, if that is valid.
    fn with_partitioning(
        &self,
        table: TableId,
        partitioning: &Partitioning,
    ) -> Result<Topology, ChangeRefusal> {
        let mut tables = self.tables();
        let moved = tables.iter_mut().find(|(id, _)| *id == table);
        let (_, (_, moved)) = moved.ok_or(ChangeRefusal::NoTable(table))?;
        moved.partitioning.clone_from(partitioning);
        let next = self.topology.tables().next();
        Ok((*self.topology).clone().with_numbered_tables(tables, next)?)
    }
}
