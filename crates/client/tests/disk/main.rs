//! Databases on disk: what is found when they are opened again, after they were closed, damaged or copied.

mod checkpoints;
mod opening;

use shoal_client::{Db, Options, Scan};
use std::path::Path;

/// Small segments, and a checkpoint after each of them.
fn small() -> Options {
    Options { log_segment_bytes: 32 << 10, checkpoint_log_bytes: 32 << 10, ..Options::default() }
}

/// The rows of a table.
fn rows(db: &Db, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table(table).unwrap();
    let rows = db.transact_blocking(|tx| {
        let rows = tx.scan(table, Scan::all())?;
        Ok(rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>())
    });
    rows.unwrap()
}

/// How many files of a folder begin like this.
fn files(path: &Path, prefix: &str) -> usize {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with(prefix)).count()
}
