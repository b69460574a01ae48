//! Files that are larger than a corpus has them, and what memory their readers take. Of a small file the bound says little beside
//! what does not grow with it.

use crate::fuzz_worker::within_twice_and_entries;
use crate::parts::write_log;
use bytes::Bytes;
use shoal_cluster::manager::ProcessInstance;
use shoal_fuzz::memory::within_twice;
use shoal_log::{MemoryStorage, StreamRecord, StreamStorage};
use shoal_node::{WorkerLog, WorkerLogOptions};
use shoal_types::{NodeId, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    CheckpointHead, CheckpointWriter, LogIdentity, Record, WriterOptions, read_checkpoint, recover,
};

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(1), volume: 77 };

const LONG_SEGMENTS: WriterOptions =
    WriterOptions { segment_bytes: 1 << 20, group_bytes_max: 4 << 10, page_bytes: 4 << 10 };
const SHORT_SEGMENTS: WriterOptions = WriterOptions { segment_bytes: 64 << 10, ..LONG_SEGMENTS };

fn log_of(records: Vec<Record>, options: WriterOptions) -> VirtualDisk {
    let mut disk = VirtualDisk::new();
    write_log(&mut disk, records, IDENTITY, options);
    disk
}

fn read_log(records: usize, record_bytes: usize, options: WriterOptions) {
    let record = Record { kind: 1, shard: ShardId(0), payload: vec![7; record_bytes] };
    let mut disk = log_of(vec![record; records], options);
    let mut shown = 0;
    let visit = &mut |record: shoal_wal::RecordRef<'_>| shown += record.payload.len();
    let recovered = within_twice(disk.bytes(), || recover(&mut disk, None, 1, visit));
    assert!(recovered.expect("it is whole").torn.is_none());
    assert_eq!(shown, records * record_bytes);
}

#[test]
fn a_log_takes_at_most_twice_its_files() {
    for (records, record_bytes) in [(9_000, 16), (100, 4_000), (1, 700_000)] {
        read_log(records, record_bytes, LONG_SEGMENTS);
    }
    for (records, record_bytes) in [(9_000, 16), (100, 4_000), (20, 60_000)] {
        read_log(records, record_bytes, SHORT_SEGMENTS);
    }
}

/// The last segment is in memory while the parts of the record are put together.
#[test]
fn a_log_of_one_record_over_many_segments_takes_at_most_twice_its_files() {
    read_log(1, 530_000, SHORT_SEGMENTS);
}

#[test]
fn a_checkpoint_takes_at_most_twice_its_file() {
    // A block that is longer than the one before it makes the reader's block grow.
    let lists = [vec![1_000_000], vec![10; 50_000], vec![300_000, 300_001], vec![1 << 18, 1 << 19]];
    for blocks in lists {
        let mut disk = VirtualDisk::new();
        let head = CheckpointHead { identity: IDENTITY, number: 1, first: 1 };
        let mut writer = CheckpointWriter::begin(&mut disk, head).expect("room");
        for bytes in &blocks {
            writer.block(&mut disk, 1, &vec![3; *bytes]).expect("room");
        }
        let file_bytes = writer.finish(&mut disk).expect("room");
        let mut shown = 0;
        let visit = &mut |_, payload: &[u8]| {
            shown += payload.len();
            Ok(())
        };
        within_twice(file_bytes, || read_checkpoint(&mut disk, 1, None, visit))
            .expect("it is whole");
        assert_eq!(shown, blocks.iter().sum::<usize>());
    }
}

#[test]
fn a_workers_log_takes_at_most_twice_its_files_and_something_for_each_entry() {
    for (entries, entry_bytes) in [(20_000, 0), (20_000, 1), (20_000, 30), (5_000, 1_000)] {
        let mut storage = MemoryStorage::recorded();
        (0..entries).for_each(|_| storage.append(Bytes::from(vec![3; entry_bytes])));
        let records = storage.take_records().into_iter().map(|it| Record {
            kind: StreamRecord::KIND,
            shard: ShardId(3),
            payload: it.record.encode(),
        });
        let mut disk = log_of(records.collect(), SHORT_SEGMENTS);
        let options = WorkerLogOptions { writer: SHORT_SEGMENTS, checkpoint_bytes: 8 << 10 };
        let opened = within_twice_and_entries(disk.bytes(), entries, || {
            WorkerLog::open(&mut disk, IDENTITY, options, ProcessInstance(9), &mut Vec::new())
        });
        assert!(!opened.expect("it is whole").is_new);
    }
}
