//! Damage at rest: no flipped bit makes a record of what was none, and none is taken for a torn end where something later
//! proves that it is not.

use crate::testbed::{IDENTITY, Process, SMALL, record, records_of, sealed};
use shoal_types::{ClusterId, NodeId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    Folder, HEADER_BYTES, LogError, LogIdentity, LogWriter, Record, SECTOR, SegmentFile,
    WriterOptions, recover,
};

fn three_segments() -> (VirtualDisk, Vec<Record>) {
    let records: Vec<_> = [10, 2000, 3000, 1, 900].iter().enumerate().collect::<Vec<_>>();
    let records: Vec<_> = records.into_iter().map(|(n, bytes)| record(n, *bytes)).collect();
    (sealed(&records), records)
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (disk, records) = three_segments();
    let (mut found, mut harmless) = (0, 0);
    for file in 0..3 {
        let name = SegmentFile(file).to_string();
        for bit in 0..8 * SMALL.segment_bytes {
            // Of payloads, some.
            if bit / 8 % SECTOR > 80 && bit % 13 != 0 {
                continue;
            }
            let mut damaged = disk.clone();
            assert!(damaged.flip(&name, bit), "a bit of {name}");
            match records_of(&mut damaged, 1) {
                Ok((_, read)) if read == records => harmless += 1,
                Ok((_, read)) => panic!("{name}, bit {bit}: {} records are left", read.len()),
                Err(LogError::Damaged { .. }) => found += 1,
                Err(other) => panic!("{name}, bit {bit}: {other}"),
            }
        }
    }
    assert!(found > 5000 && harmless > 5000, "found {found}, harmless {harmless}");
}

#[test]
fn the_error_names_file_and_place() {
    let (mut disk, _) = three_segments();
    let at = HEADER_BYTES + SECTOR + 50;
    assert!(disk.flip("log-000000", 8 * at));
    let error = records_of(&mut disk, 1).unwrap_err();
    let text =
        "log-000000 is damaged at byte 1564: it ends before the next segment says that it does";
    assert_eq!(error.to_string(), text);
}

/// Without a seal, nothing is known of the last group: it is cut, and that is reported.
#[test]
fn a_torn_end_is_reported_with_its_place() {
    let (mut process, _) = Process::start(VirtualDisk::new(), SMALL, 1);
    process.append(record(0, 100));
    process.finish();
    process.append(record(1, 1000));
    process.finish();
    assert!(process.folder.flip("log-000000", 8 * (HEADER_BYTES + 3 * SECTOR)));
    let (recovered, found) = records_of(&mut process.folder, 1).unwrap();
    assert_eq!(found, [record(0, 100)]);
    let torn = recovered.torn.expect("a torn end");
    assert_eq!((torn.file, torn.offset), (SegmentFile(0), HEADER_BYTES + SECTOR + 28));
}

#[test]
fn a_missing_segment_is_named() {
    let (mut disk, _) = three_segments();
    disk.remove("log-000001").unwrap();
    let error = records_of(&mut disk, 1).unwrap_err();
    assert!(matches!(error, LogError::Missing { serial: 2, found: 3 }), "{error}");
    let (mut disk, _) = three_segments();
    let error = records_of(&mut disk, 9).unwrap_err();
    assert!(matches!(error, LogError::Missing { serial: 9, .. }), "{error}");
}

#[test]
fn folders_of_others_and_newer_formats_are_refused() {
    let (mut disk, _) = three_segments();
    let others = [
        (LogIdentity { node: NodeId(4), ..IDENTITY }, "node", 3, 4),
        (LogIdentity { volume: 1, ..IDENTITY }, "volume", 0x5eed, 1),
    ];
    for (other, field, in_file, asked) in others {
        let error = recover(&mut disk, Some(other), 1, &mut |_| {}).unwrap_err();
        let LogError::Foreign { what, found, expected, .. } = error else { panic!("{error}") };
        assert_eq!((what, found, expected), (field, in_file, asked));
    }
    recover(&mut disk, None, 1, &mut |_| {}).expect("any owner will do");
    // A node that has not joined its cluster yet makes files that name none.
    let of_five = LogIdentity { cluster: ClusterId::new(5), ..IDENTITY };
    recover(&mut disk, Some(of_five), 1, &mut |_| {}).expect("they name no cluster");
    change_headers(&mut disk, "log-000001", |header| header[16] = 4);
    let error = recover(&mut disk, Some(of_five), 1, &mut |_| {}).unwrap_err();
    assert!(matches!(error, LogError::Foreign { what: "cluster", found: 4, expected: 5, .. }));
    change_headers(&mut disk, "log-000001", |header| header[16] = 0);
    // Both copies say version 2, with a checksum that fits.
    change_headers(&mut disk, "log-000000", |header| header[8] = 2);
    let error = records_of(&mut disk, 1).unwrap_err();
    assert!(matches!(error, LogError::Newer { found: 2, expected: 1, .. }), "{error}");
}

/// Changes both copies of a segment's header, and their checksums with them.
fn change_headers(disk: &mut VirtualDisk, file: &str, change: impl Fn(&mut [u8; 68])) {
    for copy in [0, SECTOR] {
        let mut header = [0; 68];
        disk.read(file, copy, &mut header).unwrap();
        change(&mut header);
        let checksum = crc32fast::hash(&header[..64]);
        header[64..].copy_from_slice(&checksum.to_le_bytes());
        disk.write(file, copy, &header).unwrap();
    }
}

/// The file of a segment of another use, or of another disk, has no record of this one.
#[test]
fn remains_of_a_former_use_are_no_records() {
    let (mut process, _) = Process::start(VirtualDisk::new(), SMALL, 1);
    for number in 0..3 {
        process.append(record(number, 2900));
        process.finish();
    }
    let first = process.writer.serial();
    process.change(|writer, effects| writer.truncate(first, effects));
    for number in 3..6 {
        process.append(record(number, 2900));
        process.finish();
    }
    process.append(record(6, 10));
    process.finish();
    let (recovered, found) = records_of(&mut process.folder, first).unwrap();
    let expected: Vec<_> = (2..6).map(|number| record(number, 2900)).collect();
    assert_eq!(found, [expected, vec![record(6, 10)]].concat());
    assert_eq!(recovered.torn, None);
    let mut files = recovered.summaries.iter().map(|summary| summary.file);
    assert!(files.any(|file| file < SegmentFile(2)), "a file was used again: {recovered:?}");
}

/// Segments of another size are read, and their files are not used again.
#[test]
fn the_size_of_segments_may_change() {
    let records: Vec<_> = (0..4).map(|number| record(number, 2900)).collect();
    let mut disk = sealed(&records[..2]);
    let larger = WriterOptions { segment_bytes: 8192, ..SMALL };
    for (options, count) in [(larger, 3), (SMALL, 4)] {
        let (mut process, found) = Process::start(disk, options, 1);
        assert_eq!(found, records[..count - 1]);
        process.append(records[count - 1].clone());
        process.seal();
        disk = process.folder;
    }
    let (mut process, _) = Process::start(disk, larger, 1);
    process.finish();
    let first = process.writer.serial();
    process.change(|writer, effects| writer.truncate(first, effects));
    for number in 4..9 {
        process.append(record(number, 7000));
    }
    process.seal();
    let (_, found) = records_of(&mut process.folder, first).unwrap();
    assert_eq!(found, (4..9).map(|number| record(number, 7000)).collect::<Vec<_>>());
}

/// An older checkpoint needs segments that the newest one does not.
#[test]
fn what_is_kept_is_not_used_again() {
    let (disk, records) = three_segments();
    for (kept, first) in [(1, 3), (2, 3), (3, 3)] {
        let mut disk = disk.clone();
        let (mut recovered, _) = records_of(&mut disk, first).unwrap();
        recovered.keep_from(kept);
        let mut effects = Vec::new();
        let writer = LogWriter::begin(IDENTITY, SMALL, recovered, &mut effects);
        let mut process = Process { folder: disk, writer, effects: effects.into() };
        process.append(record(5, 9000));
        process.seal();
        let oldest = records_of(&mut process.folder, kept).map(|(_, found)| found);
        let expected = [&records[..], &[record(5, 9000)]].concat();
        assert!(expected.ends_with(&oldest.unwrap()), "kept from {kept}");
        let is_used_again = records_of(&mut process.folder, 1).is_err();
        assert_eq!(is_used_again, kept > 1);
    }
}
