//! The format: the example in `docs/log-format.md` is what the writer writes, and files of each version are read.

use crate::testbed::{Process, SMALL};
use shoal_types::{NodeId, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    CheckpointHead, CheckpointWriter, Folder, LogIdentity, LogWriter, Record, RecordRef,
    checkpoint_name, perform, read_checkpoint, recover,
};
use std::collections::VecDeque;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(3), volume: 0x0123_4567 };

fn example_records() -> [Record; 2] {
    let record =
        |kind, payload: &[u8]| Record { kind, shard: ShardId(5), payload: payload.to_vec() };
    [record(1, b"first"), record(2, b"second")]
}

/// A log of two records in one group, sealed, in one file.
fn example_log() -> Vec<u8> {
    let mut disk = VirtualDisk::new();
    let recovered = recover(&mut disk, Some(IDENTITY), 1, &mut |_| {}).unwrap();
    let mut effects = Vec::new();
    let mut writer = LogWriter::begin(IDENTITY, SMALL, recovered, &mut effects);
    for record in example_records() {
        writer.append(record);
    }
    let mut queue = VecDeque::from(std::mem::take(&mut effects));
    for is_sealing in [false, true] {
        if is_sealing {
            writer.seal(&mut effects);
            queue.extend(effects.drain(..));
        }
        while let Some(effect) = queue.pop_front() {
            writer.step(perform(&mut disk, &effect), &mut effects);
            queue.extend(effects.drain(..));
        }
    }
    read(&mut disk, "log-000000")
}

fn example_checkpoint() -> Vec<u8> {
    let mut disk = VirtualDisk::new();
    let head = CheckpointHead { identity: IDENTITY, number: 1, first: 4 };
    let mut writer = CheckpointWriter::begin(&mut disk, head).unwrap();
    writer.block(&mut disk, 2, b"rows").unwrap();
    writer.finish(&mut disk).unwrap();
    read(&mut disk, &checkpoint_name(1))
}

fn read(disk: &mut VirtualDisk, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; disk.length(name).unwrap() as usize];
    disk.read(name, 0, &mut bytes).unwrap();
    bytes
}

/// Lines of sixteen bytes; those of zeros only are left out.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(text, "{:04x} ", line * 16).unwrap();
        for (at, byte) in bytes.iter().enumerate() {
            write!(text, "{}{byte:02x}", if at == 8 { "  " } else { " " }).unwrap();
        }
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let shown: String = bytes.iter().map(shown).collect();
        let gap = " ".repeat(3 * (16 - bytes.len()) + usize::from(bytes.len() <= 8));
        writeln!(text, "{gap}  {shown}").unwrap();
    }
    text
}

/// Compares the dump behind a mark of the page with `text`, or writes it there.
fn check_example(mark: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/log-format.md");
    let page = fs::read_to_string(&path).expect("the page");
    let fence = "```text\n";
    let begin = page.find(mark).unwrap_or_else(|| panic!("no mark {mark}")) + mark.len();
    let begin = begin + page[begin..].find(fence).expect("a block") + fence.len();
    let end = begin + page[begin..].find("```").expect("the end of the block");
    if shoal_golden::is_refreshing() && &page[begin..end] != text {
        fs::write(&path, [&page[..begin], text, &page[end..]].concat()).expect("the page");
        return;
    }
    assert_eq!(&page[begin..end], text, "GOLDEN=refresh writes the example anew");
}

#[test]
fn the_examples_of_the_page_are_what_is_written() {
    check_example("<!-- example: log -->", &dump(&example_log()));
    check_example("<!-- example: checkpoint -->", &dump(&example_checkpoint()));
}

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/log/formats").join(name)
}

/// Files as version 1 wrote them.
#[test]
fn files_of_version_1_are_read() {
    if shoal_golden::is_refreshing() {
        fs::write(kept("log.1"), example_log()).unwrap();
        fs::write(kept("checkpoint.1"), example_checkpoint()).unwrap();
    }
    let mut disk = VirtualDisk::new();
    for (file, name) in [("log.1", "log-000000"), ("checkpoint.1", &checkpoint_name(1))] {
        disk.create(name).unwrap();
        disk.write(name, 0, &fs::read(kept(file)).unwrap()).unwrap();
    }
    let mut records = Vec::new();
    let mut visit = |record: RecordRef<'_>| {
        let payload = record.payload.to_vec();
        records.push(Record { kind: record.kind, shard: record.shard, payload });
    };
    let recovered = recover(&mut disk, Some(IDENTITY), 1, &mut visit).unwrap();
    assert_eq!((recovered.incarnation, recovered.torn), (1, None));
    assert_eq!(records, example_records());
    let mut blocks = Vec::new();
    let head = read_checkpoint(&mut disk, 1, Some(IDENTITY), &mut |kind, payload| {
        blocks.push((kind, payload.to_vec()));
        Ok(())
    });
    assert_eq!(head.unwrap().first, 4);
    assert_eq!(blocks, [(2, b"rows".to_vec())]);
}

/// A process that goes on from files of version 1 keeps their records.
#[test]
fn the_example_goes_on() {
    let mut disk = VirtualDisk::new();
    disk.create("log-000000").unwrap();
    disk.write("log-000000", 0, &example_log()).unwrap();
    let recovered = recover(&mut disk, Some(IDENTITY), 1, &mut |_| {}).unwrap();
    let mut effects = Vec::new();
    let writer = LogWriter::begin(IDENTITY, SMALL, recovered, &mut effects);
    assert_eq!(writer.incarnation(), 2);
    let mut process = Process { folder: disk, writer, effects: effects.into() };
    process.append(Record { kind: 3, shard: ShardId(5), payload: b"third".to_vec() });
    process.seal();
    let mut kinds = Vec::new();
    recover(&mut process.folder, None, 1, &mut |record| kinds.push(record.kind)).unwrap();
    assert_eq!(kinds, [1, 2, 3]);
}
