//! Fuzz targets: bytes as a segment of a log, and as a checkpoint. The readers panic on none, show no more than the file has, and
//! take at most twice as much memory as it has bytes.
//!
//! Each input is read twice, the second time without the checksums of groups, records and blocks: otherwise no change of an input
//! would come to the lengths and parts behind them.

use shoal_fuzz::memory::within_twice;
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    DiskPlantedBugs, Folder, SegmentFile, checkpoint_name, examine_checkpoints, read_checkpoint,
    recover,
};

/// A disk with one durable file, on which checksums count or not.
fn disk_with(name: &str, bytes: &[u8], skip_checksums: bool) -> VirtualDisk {
    let planted = DiskPlantedBugs { skip_checksums, ..DiskPlantedBugs::default() };
    let mut disk = VirtualDisk::new().with_planted(planted);
    disk.create(name).expect("room");
    disk.write(name, 0, bytes).expect("room");
    // Before memory is counted: the virtual disk makes a copy when it is flushed.
    disk.flush(name).expect("no fault");
    disk.flush_folder().expect("no fault");
    disk
}

pub fn read_segment(bytes: &[u8], skip_checksums: bool) -> bool {
    let name = SegmentFile(0).to_string();
    let mut disk = disk_with(&name, bytes, skip_checksums);
    let mut shown = 0;
    let visit = &mut |record: shoal_wal::RecordRef<'_>| shown += record.payload.len();
    let recovered = within_twice(bytes.len() as u64, || recover(&mut disk, None, 1, visit));
    assert!(shown <= bytes.len(), "{shown} bytes of records");
    if let Ok(recovered) = &recovered {
        assert!(recovered.end.offset <= bytes.len() as u64, "{recovered:?}");
    }
    recovered.is_ok_and(|recovered| recovered.torn.is_none())
}

pub fn read_whole_checkpoint(bytes: &[u8], skip_checksums: bool) -> bool {
    let mut disk = disk_with(&checkpoint_name(1), bytes, skip_checksums);
    let mut shown = 0;
    let mut visit = |_, payload: &[u8]| {
        shown += payload.len();
        Ok(())
    };
    let file_bytes = bytes.len() as u64;
    let read = within_twice(file_bytes, || read_checkpoint(&mut disk, 1, None, &mut visit));
    assert!(shown <= bytes.len(), "{shown} bytes of blocks");
    let examined = within_twice(file_bytes, || examine_checkpoints(&mut disk)).expect("no fault");
    let first = read.as_ref().map(|head| head.first);
    assert_eq!(examined[0].first.as_ref().map(|first| *first), first, "examined and read");
    read.is_ok()
}

#[test]
fn any_bytes_are_read_as_a_segment() {
    shoal_fuzz::fuzz!("segment", |bytes: &[u8]| {
        read_segment(bytes, false);
        read_segment(bytes, true);
    });
}

#[test]
fn any_bytes_are_read_as_a_checkpoint() {
    shoal_fuzz::fuzz!("checkpoint", |bytes: &[u8]| {
        read_whole_checkpoint(bytes, false);
        read_whole_checkpoint(bytes, true);
    });
}
