//! The tables of a cluster: by id, and by name.
//!
//! Ids are given in ascending order, and each once: a table that is dropped leaves a hole. So an id below
//! [`TableMap::next`] that no table has belongs to a dropped one, for ever, and one that is not below it may belong to a
//! table that a later topology has.

use super::granules::{TableDefinition, TableGranules};
use super::partitioning::{Home, Homes, Partitioning, Router};
use shoal_types::{Scan, TableId};
use std::collections::BTreeMap;

/// A table and where its keys live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    id: TableId,
    name: String,
    router: Router,
    granules: TableGranules,
    /// What of the granules was defined, and did not come by default.
    granule_bytes: Option<usize>,
    family: Option<String>,
}

impl Table {
    /// A table whose definition was validated for `shards` shards, and has these granules.
    pub(super) fn new(
        id: TableId,
        name: String,
        definition: TableDefinition,
        granules: TableGranules,
        shards: u32,
    ) -> Table {
        let TableDefinition { partitioning, granule_bytes, family } = definition;
        let router = Router::new(partitioning, shards);
        Table { id, name, router, granules, granule_bytes, family }
    }

    /// The table's id, which no other table has or had.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The table's name, which no other table has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the table's keys are distributed.
    pub fn partitioning(&self) -> &Partitioning {
        self.router.partitioning()
    }

    /// How the table's keys are divided into granules.
    pub fn granules(&self) -> TableGranules {
        self.granules
    }

    /// What names the key's granule within its family: the prefix that all its keys share, or the first key of the range that
    /// is the granule.
    pub fn granule_prefix<'k>(&'k self, key: &'k [u8]) -> &'k [u8] {
        match self.partitioning() {
            Partitioning::Range { splits } if self.granules.granule_bytes == 0 => {
                // The first range begins with the empty key, which is above none.
                &splits[splits.partition_point(|(first, _)| **first <= *key) - 1].0
            }
            _ => &key[..key.len().min(self.granules.granule_bytes)],
        }
    }

    /// What the table was created with.
    pub fn definition(&self) -> TableDefinition {
        let (partitioning, family) = (self.partitioning().clone(), self.family.clone());
        TableDefinition { partitioning, granule_bytes: self.granule_bytes, family }
    }
}

/// What is known of an id of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableStanding {
    /// A table has the id.
    Live,
    /// A table had the id, and was dropped.
    Dropped,
    /// The id has not been given yet.
    NotGiven,
}

/// The tables of a cluster. It does not change: share it in an `Arc`.
///
/// Invariant: names and ids are distinct, and lead to the same tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableMap {
    /// By id; `None` where the table was dropped.
    slots: Vec<Option<Table>>,
    names: BTreeMap<String, TableId>,
}

impl TableMap {
    /// A map of tables with distinct names and ids, all of them below `next`.
    pub(super) fn new(tables: Vec<Table>, next: TableId) -> TableMap {
        let names = tables.iter().map(|table| (table.name.clone(), table.id)).collect();
        let mut slots = vec![None; next.0 as usize];
        for table in tables {
            let place = table.id.0 as usize;
            assert!(slots[place].is_none(), "two tables have the id of {:?}", table.name);
            slots[place] = Some(table);
        }
        TableMap { slots, names }
    }

    /// The tables, ascending by id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Table> + Clone {
        self.slots.iter().flatten()
    }

    /// How many tables there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The id that the next table gets.
    pub fn next(&self) -> TableId {
        TableId(self.slots.len() as u32)
    }

    /// The ids that were given, ascending, and whether a table has them.
    pub fn ids(&self) -> impl Iterator<Item = (TableId, bool)> {
        (0..).map(TableId).zip(self.slots.iter().map(Option::is_some))
    }

    /// The table with this id.
    #[inline]
    pub fn get(&self, table: TableId) -> Option<&Table> {
        self.slots.get(table.0 as usize)?.as_ref()
    }

    /// The table with this name.
    pub fn named(&self, name: &str) -> Option<TableId> {
        self.names.get(name).copied()
    }

    /// What is known of an id, which may come from outside.
    pub fn standing(&self, table: TableId) -> TableStanding {
        match self.slots.get(table.0 as usize) {
            Some(Some(_)) => TableStanding::Live,
            Some(None) => TableStanding::Dropped,
            None => TableStanding::NotGiven,
        }
    }

    /// The shard or shards of `key`; `None` if there is no such table.
    #[inline]
    pub fn home(&self, table: TableId, key: &[u8]) -> Option<Home> {
        Some(self.get(table)?.router.home(key))
    }

    /// How many leading bytes of a key of this table determine its shard by themselves, for keys that have so many. `None`
    /// where that is not so, where each shard has every key, and where there is no such table.
    pub fn deciding_prefix(&self, table: TableId) -> Option<usize> {
        self.get(table)?.router.deciding_prefix()
    }

    /// The shards that `scan` has to ask; `None` where there is no such table.
    pub fn homes(&self, table: TableId, scan: &Scan<'_>) -> Option<Homes> {
        Some(self.get(table)?.router.homes(scan))
    }
}
