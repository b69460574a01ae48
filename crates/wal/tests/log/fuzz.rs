//! The readers of logs and checkpoints take any bytes: no panic, and no more memory than the file is long.

use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{Folder, SegmentFile, checkpoint_name, read_checkpoint, recover};

fn disk_with(name: &str, bytes: &[u8]) -> VirtualDisk {
    let mut disk = VirtualDisk::new();
    disk.create(name).unwrap();
    disk.write(name, 0, bytes).unwrap();
    disk
}

#[test]
fn any_bytes_are_read_as_a_segment() {
    shoal_fuzz::fuzz!("segment", |bytes: &[u8]| {
        let mut disk = disk_with(&SegmentFile(0).to_string(), bytes);
        let mut shown = 0;
        let recovered = recover(&mut disk, None, 1, &mut |record| shown += record.payload.len());
        assert!(shown <= bytes.len(), "{shown} bytes of records");
        if let Ok(recovered) = recovered {
            assert!(recovered.end.offset <= bytes.len() as u64, "{recovered:?}");
        }
    });
}

#[test]
fn any_bytes_are_read_as_a_checkpoint() {
    shoal_fuzz::fuzz!("checkpoint", |bytes: &[u8]| {
        let mut disk = disk_with(&checkpoint_name(1), bytes);
        let mut shown = 0;
        let mut visit = |_, payload: &[u8]| {
            shown += payload.len();
            Ok(())
        };
        // What is whole was written by a build of ours.
        let _ = read_checkpoint(&mut disk, 1, None, &mut visit);
        assert!(shown <= bytes.len(), "{shown} bytes of blocks");
    });
}
