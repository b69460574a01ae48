//! M2: on one key, the order in which versions are installed and the order of their clocks agree.
//!
//! The newest version of every key is kept, so that this is also the model of what each shard holds.

use engines::TransactionId;
use std::collections::BTreeMap;
use types::{Clock, Epoch, ShardId, Stamp, TableId};

/// What the leaders have installed.
#[derive(Debug)]
pub struct Installed {
    shards: Vec<BTreeMap<TableId, Rows>>,
}

/// A table's keys and their newest versions.
pub type Rows = BTreeMap<Vec<u8>, Newest>;

/// The newest version of a key.
#[derive(Debug, Clone)]
pub struct Newest {
    /// Its place in the order of the key's versions.
    pub order: (Epoch, Clock),
    /// Its value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Who wrote it.
    pub transaction: TransactionId,
}

/// A version that is installed.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// By whom.
    pub transaction: TransactionId,
    /// Its stamp as the shard keeps it.
    pub stamp: &'a Stamp,
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
}

impl Installed {
    /// Nothing.
    pub fn new(shards: usize) -> Installed {
        Installed { shards: vec![BTreeMap::new(); shards] }
    }

    /// What a shard holds of a table.
    pub fn rows(&self, shard: ShardId, table: TableId) -> Option<&Rows> {
        self.shards[shard.0 as usize].get(&table)
    }

    /// A leader installs a version.
    pub fn install(
        &mut self,
        shard: ShardId,
        row: Row<'_>,
        value: Option<&[u8]>,
    ) -> super::Verdict {
        let rows = self.shards[shard.0 as usize].entry(row.table).or_default();
        let order = (row.stamp.epoch, row.stamp.clock);
        let newest =
            Newest { order, value: value.map(<[u8]>::to_vec), transaction: row.transaction };
        let Some(before) = rows.get_mut(row.key) else {
            rows.insert(row.key.to_vec(), newest);
            return Ok(());
        };
        if order <= before.order {
            let table = row.table;
            return Err(format!(
                "{} installed {} {} of {table} '{}' on {shard} over {} {} of {}",
                row.transaction,
                order.0,
                order.1,
                row.key.escape_ascii(),
                before.order.0,
                before.order.1,
                before.transaction,
            ));
        }
        *before = newest;
        Ok(())
    }
}
