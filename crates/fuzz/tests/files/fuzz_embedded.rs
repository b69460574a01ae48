//! Fuzz target: records of a log and blocks of a checkpoint, whole by their checksums, as those of an embedded database.

use crate::parts::{self, Part, disk_of};
use shoal_client::{Examination, OpenError};
use shoal_types::NodeId;
use shoal_wal::{Folder, LogIdentity, WriterOptions};
use std::fs;
use std::path::Path;

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(0), volume: 5 };

const OPTIONS: WriterOptions =
    WriterOptions { segment_bytes: 64 << 10, group_bytes_max: 64 << 10, page_bytes: 1 << 10 };

/// Restores a database from a log, and a checkpoint, of these parts. What `folder` had is removed.
pub fn restore(folder: &Path, parts: &[Part]) -> Result<Examination, OpenError> {
    let mut disk = disk_of(parts, IDENTITY, OPTIONS);
    for entry in fs::read_dir(folder).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("it is there");
    }
    for name in &disk.names().expect("no fault") {
        let mut bytes = vec![0; disk.length(name).expect("no fault") as usize];
        disk.read(name, 0, &mut bytes).expect("no fault");
        fs::write(folder.join(name), bytes).expect("room");
    }
    Examination::of(folder)
}

#[test]
fn any_records_and_blocks_are_read_as_those_of_an_embedded_database() {
    let folder = tempfile::tempdir().expect("a folder");
    shoal_fuzz::fuzz!("embedded", |bytes: &[u8]| {
        drop(restore(folder.path(), &parts::decode(bytes)));
    });
}
