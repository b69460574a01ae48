//! Fuzz target: records of a log and blocks of a checkpoint, whole by their checksums, as those of a worker.
//!
//! A worker keeps what it reads, entry by entry, so that the bound of memory of its files alone does not hold for many short
//! entries: each of them takes [`ENTRY_BYTES`] more.

use crate::parts::{self, Part, disk_of};
use shoal_cluster::manager::ProcessInstance;
use shoal_fuzz::memory::{FIXED_BYTES, peak_bytes};
use shoal_node::{
    ExaminedWorkerLog, OpenedLog, WorkerEvent, WorkerLog, WorkerLogError, WorkerLogOptions,
    read_parts,
};
use shoal_types::NodeId;
use shoal_wal::{LogIdentity, WriterOptions};

/// What a recovered entry takes beside its bytes, at most. It is in two lists, the one of what is durable and the one of all
/// (`log/src/memory_storage.rs`), each with 40 bytes of it and as many of room to grow, and half as many more while a list moves. Both
/// share its bytes by a block of 24.
const ENTRY_BYTES: u64 = 224;

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(1), volume: 77 };

/// Small, so that logs go over segments, and records over groups.
pub const OPTIONS: WriterOptions =
    WriterOptions { segment_bytes: 4 << 10, group_bytes_max: 1 << 10, page_bytes: 1 << 10 };

/// Runs the reader of a log with so many parts. Beside the segment that is read it holds entries.
///
/// # Panics
/// If it takes more memory than twice the files, what does not grow with them, and [`ENTRY_BYTES`] for each part.
pub fn within_twice_and_entries<T>(file_bytes: u64, parts: usize, read: impl FnOnce() -> T) -> T {
    let (result, peak) = peak_bytes(read);
    let most = 2 * file_bytes + FIXED_BYTES + ENTRY_BYTES * parts as u64;
    assert!(peak <= most, "{peak} bytes of memory for {parts} parts in {file_bytes}");
    result
}

/// What an operator is shown of a log, and a checkpoint, of these parts.
pub fn examine(parts: &[Part]) -> Result<ExaminedWorkerLog, WorkerLogError> {
    ExaminedWorkerLog::of(&mut disk_of(parts, IDENTITY, OPTIONS), Some(IDENTITY))
}

/// What a log, and a checkpoint, of these parts is for a worker that begins with it, as the operator's view of it says, too.
pub fn open(parts: &[Part]) -> Result<OpenedLog, WorkerLogError> {
    let mut disk = disk_of(parts, IDENTITY, OPTIONS);
    let examined = examine(parts);
    let options = WorkerLogOptions { writer: OPTIONS, checkpoint_bytes: 8 << 10 };
    let file_bytes = disk.bytes();
    let opened = within_twice_and_entries(file_bytes, parts.len(), || {
        WorkerLog::open(&mut disk, IDENTITY, options, ProcessInstance(9), &mut Vec::new())
    });
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            assert!(error.is_damage(), "the files are this worker's: {error}");
            assert_eq!(examined.expect_err("as it is opened"), error);
            return Err(error);
        }
    };
    let examined = examined.expect("it is opened");
    // A stream that begins with a snapshot is void without being there.
    let void = examined.streams.iter().filter(|stream| stream.is_void).count();
    assert!(void <= opened.void, "{void} streams are shown as void, {} are", opened.void);
    if let Some(checkpoint) = &opened.checkpoint {
        let pass = |event: WorkerEvent<()>| match event {
            WorkerEvent::CheckpointRead { shard, .. } => {
                assert!(checkpoint.shards.contains(&shard), "a part of {shard}");
            }
            other => panic!("not a part: {other:?}"),
        };
        read_parts(&mut disk, IDENTITY, checkpoint, pass).expect("it was read before");
    }
    Ok(opened)
}

#[test]
fn any_records_and_blocks_are_read_as_those_of_a_worker() {
    shoal_fuzz::fuzz!("worker", |bytes: &[u8]| {
        drop(open(&parts::decode(bytes)));
    });
}
