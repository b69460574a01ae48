//! What the folder of a database on disk holds, for operators.

use super::open_error::OpenError;
use super::restore::{Restored, restore, store_to_look_at};
use shoal_disk::DiskFolder;
use shoal_store::{CopyPart, Store, WalkPlace};
use shoal_types::{Clock, TableId};
use shoal_wal::{ExaminedCheckpoint, LogIdentity, SegmentSummary, Torn, examine_checkpoints};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What a table has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedTable {
    /// The name by which programs open it.
    pub name: Box<str>,
    /// The number by which the log names it.
    pub id: TableId,
    /// The rows, as they would be restored.
    pub rows: u64,
}

/// What the folder of a database on disk holds, and would be restored from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examination {
    /// The owner that its files name; `None` where nothing was written yet.
    pub identity: Option<LogIdentity>,
    /// How many processes have written to it.
    pub incarnation: u64,
    /// The segments of the log that would be read, in order.
    pub segments: Vec<SegmentSummary>,
    /// Where the end of the log is torn, if it is.
    pub torn: Option<Torn>,
    /// The newest first.
    pub checkpoints: Vec<ExaminedCheckpoint>,
    /// The clock of the last transaction.
    pub clock: Clock,
    /// By name.
    pub tables: Vec<ExaminedTable>,
}

impl Examination {
    /// Reads all files of a folder, and restores the database in memory to see that it can be. Nothing is changed. Of a folder
    /// that is in use, the end of the log may look torn.
    ///
    /// # Errors
    /// Those that [`Db::open`](crate::Db::open) would have, but for a folder that is in use.
    pub fn of(path: &Path) -> Result<Examination, OpenError> {
        let mut folder = DiskFolder::view(path)?;
        let checkpoints = examine_checkpoints(&mut folder)?;
        let Restored { store, identity, recovered, .. } = restore(&mut folder, store_to_look_at)?;
        let tables = examine_tables(&store)?;
        Ok(Examination {
            identity,
            incarnation: recovered.incarnation,
            segments: recovered.summaries,
            torn: recovered.torn,
            checkpoints,
            clock: store.clock(),
            tables,
        })
    }

    /// Whether a process uses the folder, or has died while the system still holds its lock.
    ///
    /// # Errors
    /// [`OpenError::Folder`], which names the process.
    pub fn check_free(path: &Path) -> Result<(), OpenError> {
        Ok(DiskFolder::check_free(path)?)
    }
}

fn examine_tables(store: &Arc<Store>) -> Result<Vec<ExaminedTable>, OpenError> {
    let mut rows = BTreeMap::<TableId, u64>::new();
    let mut session = store.session()?;
    let part = CopyPart { records_max: usize::MAX, bytes_max: usize::MAX };
    let mut next = Some(WalkPlace::default());
    while let Some(from) = next {
        next = session.copy(
            &from,
            part,
            |_| true,
            |_| false,
            |row| {
                *rows.entry(row.table).or_default() += 1;
            },
        );
    }
    let tables = store.named_tables().into_iter();
    let table = |(name, id)| ExaminedTable { name, id, rows: rows.get(&id).copied().unwrap_or(0) };
    Ok(tables.map(table).collect())
}
