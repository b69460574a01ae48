//! The kept inputs: files as they are written, and damaged ones.
//!
//! `cargo test -p shoal-fuzz -- --ignored write_the_kept_inputs` writes them anew, after a change of a format that keeps no older
//! form. Inputs that a run has found stay.

use crate::parts::{self, Part, disk_of};
use crate::{fuzz_embedded, fuzz_wal, fuzz_worker};
use bytes::Bytes;
use shoal_client::{Db, Options};
use shoal_log::{LogLength, MemoryStorage, StreamHead, StreamRecord, StreamStorage};
use shoal_node::{CheckpointBlock, WorkerRecovery};
use shoal_types::wire::encode;
use shoal_types::{Ballot, Epoch, NodeId, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    CheckpointHead, CheckpointWriter, Folder, LogIdentity, SegmentFile, WriterOptions,
    checkpoint_name, recover,
};
use std::fs;
use std::path::{Path, PathBuf};

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(1), volume: 77 };

/// The longest kept input, in bytes.
const INPUT_BYTES_MAX: usize = 20_000;

/// The kinds of a worker's blocks, and of its engine's records.
const BLOCK: u8 = 16;
const ENGINE: u8 = 20;
const ENGINE_FIRST: u8 = 21;

/// An input, by the name of its file.
type Input = (&'static str, Vec<u8>);

fn corpus(target: &str) -> PathBuf {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/__fuzz__");
    files.join(target).join("corpus")
}

fn file(disk: &mut VirtualDisk, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; disk.length(name).expect("it is there") as usize];
    disk.read(name, 0, &mut bytes).expect("no fault");
    bytes
}

fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    bytes
}

fn segments() -> Vec<Input> {
    let options = |group_bytes_max| WriterOptions {
        segment_bytes: 8 << 10,
        group_bytes_max,
        page_bytes: 512,
    };
    let segment = |records: &[Part], group_bytes_max| {
        let mut disk = disk_of(records, IDENTITY, options(group_bytes_max));
        file(&mut disk, &SegmentFile(0).to_string())
    };
    let records: Vec<Part> = (0..6).map(|at| Part::record(at, 3, vec![at; 200])).collect();
    let groups = segment(&records, 400);
    // Headers take two sectors; groups begin at sectors.
    let second =
        groups[1024 + 512..].chunks(512).position(|sector| sector[..4] == groups[1024..][..4]);
    let second = 1024 + 512 * (1 + second.expect("there are several groups"));
    vec![
        ("whole-nothing-written", vec![0; 4096]),
        ("whole-one-group", segment(&records, 4096)),
        ("whole-several-groups", groups.clone()),
        ("whole-sealed", include_bytes!("../../../wal/tests/log/formats/log.1").to_vec()),
        ("whole-long-record", segment(&[Part::record(1, 0, vec![9; 3000])], 256)),
        ("whole-empty-records", segment(&vec![Part::record(2, 1, []); 20], 4096)),
        ("damaged-empty-file", changed(groups.clone(), |it| it.truncate(70))),
        ("damaged-cut-file", changed(groups.clone(), |it| it.truncate(3000))),
        (
            "damaged-torn-group",
            changed(groups.clone(), |it| {
                let end = it.iter().rposition(|byte| *byte != 0).expect("records");
                it[end - 4] ^= 1;
            }),
        ),
        ("damaged-first-record", changed(groups.clone(), |it| it[1024 + 60] ^= 0x40)),
        ("damaged-group-is-gone", changed(groups.clone(), |it| it[second..][..28].fill(0))),
        (
            "damaged-both-headers",
            changed(groups, |it| {
                it[9] ^= 1;
                it[521] ^= 1;
            }),
        ),
    ]
}

fn checkpoint_of(blocks: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut disk = VirtualDisk::new();
    let head = CheckpointHead { identity: IDENTITY, number: 1, first: 4 };
    let mut writer = CheckpointWriter::begin(&mut disk, head).expect("room");
    for (kind, payload) in blocks {
        writer.block(&mut disk, *kind, payload).expect("room");
    }
    writer.finish(&mut disk).expect("room");
    file(&mut disk, &checkpoint_name(1))
}

fn checkpoints() -> Vec<Input> {
    let blocks = [(1, vec![5; 40]), (2, vec![6; 300]), (2, vec![]), (3, vec![7; 90])];
    let whole = checkpoint_of(&blocks);
    let header = 68;
    let end = whole.len() - 20;
    vec![
        ("whole-no-block", checkpoint_of(&[])),
        ("whole-four-blocks", whole.clone()),
        ("whole-long-block", checkpoint_of(&[(1, vec![1; 5000])])),
        ("whole-many-blocks", checkpoint_of(&vec![(9, vec![2]); 200])),
        ("damaged-empty-file", vec![]),
        ("damaged-header", changed(whole.clone(), |it| it[33] ^= 1)),
        ("damaged-payload", changed(whole.clone(), |it| it[header + 20] ^= 8)),
        ("damaged-length", changed(whole.clone(), |it| it[header + 3] = 0x7f)),
        ("damaged-no-end", changed(whole.clone(), |it| it.truncate(end))),
        ("damaged-cut-block", changed(whole.clone(), |it| it.truncate(header + 80))),
        ("damaged-left-over", changed(whole, |it| it.push(0))),
    ]
}

fn ballot(epoch: u32) -> Ballot {
    Ballot { epoch: Epoch(epoch), node: NodeId(2) }
}

fn records_of(storage: &mut MemoryStorage, shard: u8) -> Vec<Part> {
    let records = storage.take_records().into_iter();
    records.map(|it| Part::record(StreamRecord::KIND, shard, it.record.encode())).collect()
}

/// A stream of six entries, of which five are decided.
fn stream() -> MemoryStorage {
    let mut storage = MemoryStorage::recorded();
    let entry = |at: u8| Bytes::from(vec![at; 10 + usize::from(at) * 30]);
    storage.promise(ballot(1));
    storage.replace(ballot(1), LogLength(0), vec![entry(0), entry(1)]);
    (2..6).for_each(|at| storage.append(entry(at)));
    storage.decide(LogLength(5));
    storage
}

fn block(block: &CheckpointBlock) -> Part {
    Part::block(BLOCK, encode(block))
}

/// A checkpoint of a stream of the shard 3, whose rows stand for so many entries.
fn worker_checkpoint(storage: &MemoryStorage, length: u64) -> Vec<Part> {
    let (shard, length) = (ShardId(3), LogLength(length));
    let head = storage.head(length);
    let state = Bytes::from_static(b"state");
    vec![
        block(&CheckpointBlock::Head { shard, head }),
        block(&CheckpointBlock::Part { shard, part: Bytes::from(vec![7; 600]) }),
        block(&CheckpointBlock::Part { shard, part: Bytes::from(vec![8; 50]) }),
        block(&CheckpointBlock::Snapshot { shard, length, state }),
    ]
}

fn workers() -> Vec<Input> {
    let process = |number: u64| Part::record(WorkerRecovery::PROCESS, 0, number.to_le_bytes());
    let mark = |number: u64| {
        let numbers = [number, 7, 8].into_iter().flat_map(u64::to_le_bytes);
        Part::record(WorkerRecovery::MARK, 0, numbers.collect::<Vec<u8>>())
    };
    let mut storage = stream();
    let first = records_of(&mut storage, 3);
    let blocks = worker_checkpoint(&storage, 4);
    storage.append(Bytes::from_static(b"behind the mark"));
    storage.promise(ballot(4));
    storage.replace(ballot(4), LogLength(6), vec![Bytes::from_static(b"another leader")]);
    let later = records_of(&mut storage, 3);
    let mut other = stream();
    let of_other = records_of(&mut other, 4);
    other.persist(usize::MAX);
    other.restore(LogLength(40));
    other.append(Bytes::from_static(b"void"));
    let restored = records_of(&mut other, 4);
    let engine = [
        Part::record(ENGINE, 3, *b"one"),
        Part::record(ENGINE_FIRST, 3, *b"two"),
        Part::record(ENGINE, 3, vec![3; 2500]),
    ];
    let list = |parts: &[&[Part]]| parts::encode(&parts.concat());
    let with_checkpoint = [&blocks[..], &first, &[process(8), mark(1)], &later];
    let cut = |part: &Part| Part {
        payload: part.payload[..part.payload.len() - 1].into(),
        ..part.clone()
    };
    let head_only = [&blocks[..1], &[mark(1)]];
    let shard = ShardId(3);
    let head = |head| block(&CheckpointBlock::Head { shard, head });
    let snapshot = |length| {
        let (length, state) = (LogLength(length), Bytes::new());
        block(&CheckpointBlock::Snapshot { shard, length, state })
    };
    let (storage, greatest) = (stream(), LogLength(u64::MAX));
    let from_fourth = storage.head(LogLength(4));
    let at_greatest = StreamHead { start: greatest, decided: greatest, ..from_fourth.clone() };
    let before_its_head = [head(from_fourth), snapshot(2), mark(1)];
    let beyond_all = [head(at_greatest), snapshot(9), mark(1)];
    vec![
        ("whole-empty", vec![]),
        ("whole-two-streams", list(&[&[process(7)], &first, &of_other, &later])),
        ("whole-checkpoint", list(&with_checkpoint)),
        ("whole-snapshot-without-rows", list(&[&of_other, &restored])),
        (
            "whole-void-is-named",
            list(&[
                &of_other,
                &restored,
                &[Part::record(WorkerRecovery::VOID, 4, [])],
                &[Part::record(ENGINE, 4, *b"counts")],
            ]),
        ),
        ("whole-engine-records", list(&[&first, &engine])),
        ("whole-stream-begins-again", list(&[&first, &of_other, &records_of(&mut stream(), 3)])),
        ("damaged-record-is-cut", list(&[&first, &[cut(&later[0])]])),
        ("damaged-promise-twice", list(&[&first, &first[1..]])),
        ("damaged-head-is-cut", list(&[&[cut(&blocks[0])], &blocks[1..], &[mark(1)]])),
        ("damaged-head-twice", list(&[&blocks[..1], &blocks, &[mark(1)]])),
        ("damaged-no-snapshot", list(&head_only)),
        ("damaged-mark-of-another", list(&[&blocks, &first, &[mark(2)], &later])),
        ("damaged-no-mark", list(&[&blocks, &first, &later])),
        ("damaged-snapshot-before-its-head", list(&[&before_its_head])),
        ("damaged-head-at-the-greatest-length", list(&[&beyond_all])),
        ("damaged-unknown-block", list(&[&[Part::block(9, [1, 2])], &blocks, &[mark(1)]])),
    ]
}

/// The records, and the blocks of the newest checkpoint, that a folder has.
fn parts_in(folder: &Path) -> Vec<Part> {
    let mut disk = VirtualDisk::new();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        disk.create(&name).expect("room");
        disk.write(&name, 0, &fs::read(entry.path()).expect("a file")).expect("room");
    }
    let numbers = shoal_wal::checkpoints(&mut disk).expect("no fault");
    let mut first = 1;
    if let Some(number) = numbers.first() {
        let head = shoal_wal::read_checkpoint(&mut disk, *number, None, &mut |kind, block| {
            found.push(Part::block(kind, block));
            Ok(())
        });
        first = head.expect("it is whole").first;
    }
    let visit = &mut |record: shoal_wal::RecordRef<'_>| {
        let shard = u8::try_from(record.shard.0).expect("an embedded database has one");
        found.push(Part::record(record.kind, shard, record.payload));
    };
    recover(&mut disk, None, first, visit).expect("it is whole");
    found
}

fn embedded() -> Vec<Input> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("database");
    let options = Options { log_segment_bytes: 4 << 10, ..Options::default() };
    let db = Db::open_with(&path, options).expect("a new database");
    let accounts = db.table("accounts").expect("a table");
    for at in 0..8_u8 {
        let row = vec![at; 200];
        db.transact_blocking(|tx| tx.put(accounts, &[at], &row)).expect("no conflict");
    }
    // Short changes of long rows: their records are deltas.
    for at in 0..4_u8 {
        let row = [&[9][..], &[at; 199]].concat();
        db.transact_blocking(|tx| tx.put(accounts, &[at], &row)).expect("no conflict");
    }
    db.transact_blocking(|tx| tx.delete(accounts, &[5])).expect("no conflict");
    let names = db.table("names").expect("a table");
    db.transact_blocking(|tx| {
        tx.put(names, b"a", b"1")?;
        tx.put(accounts, b"b", b"2")
    })
    .expect("no conflict");
    db.embedded().expect("it is").drop_table("names").expect("it is there");
    db.close();
    let log = parts_in(&path);
    let options = Options { checkpoint_log_bytes: 4 << 10, ..options };
    let db = Db::open_with(&path, options).expect("it was closed");
    // The thread of the log takes a checkpoint beside these.
    while db.embedded().expect("it is").checkpoints() == 0 {
        db.transact_blocking(|tx| tx.add(accounts, b"sum", 1)).expect("no conflict");
        db.flush().expect("no fault");
    }
    db.transact_blocking(|tx| tx.put(accounts, &[7], b"behind")).expect("no conflict");
    db.close();
    let with_checkpoint = parts_in(&path);
    let list = |parts: &[&[Part]]| parts::encode(&parts.concat());
    let is_block = |part: &&Part| part.place == parts::Place::Checkpoint;
    let blocks = with_checkpoint.iter().filter(is_block).count();
    assert!(blocks >= 3, "{blocks} of a head, rows and a tail");
    let cut = |part: &Part| Part {
        payload: part.payload[..part.payload.len() - 1].into(),
        ..part.clone()
    };
    // A record has the length of its row behind a clock, a table and the length of a key. A delta follows.
    let mut shorter = cut(&log[1]);
    shorter.payload[16..20].copy_from_slice(&199_u32.to_le_bytes());
    let no_bases = |part: &&Part| part.kind != 1 || part.payload.len() < 200;
    vec![
        ("whole-log", list(&[&log])),
        ("whole-checkpoint", list(&[&with_checkpoint])),
        ("whole-rows-without-deltas", list(&[&log[..9], &log[13..]])),
        ("whole-only-tables", list(&[&log[..1]])),
        ("damaged-transaction-is-cut", list(&[&log[..3], &[cut(&log[3])]])),
        ("damaged-transactions-out-of-order", list(&[&log[..5], &log[3..4]])),
        ("damaged-unknown-record", list(&[&log, &[Part::record(77, 0, [1])]])),
        (
            "damaged-drop-of-no-table",
            list(&[&log[..1], &[Part::record(3, 0, 200_000_u32.to_le_bytes())]]),
        ),
        ("damaged-head-is-cut", list(&[&[cut(&with_checkpoint[0])], &with_checkpoint[1..]])),
        (
            "damaged-rows-are-cut",
            list(&[&with_checkpoint[..1], &[cut(&with_checkpoint[1])], &with_checkpoint[2..]]),
        ),
        ("damaged-delta-of-another-row", list(&[&log[..1], &[shorter], &log[2..]])),
        (
            "damaged-bases-are-nowhere",
            list(&[&log.iter().filter(no_bases).cloned().collect::<Vec<_>>()]),
        ),
    ]
}

#[test]
#[ignore = "writes into the tree"]
fn write_the_kept_inputs() {
    let targets = [
        ("segment", segments()),
        ("checkpoint", checkpoints()),
        ("worker", workers()),
        ("embedded", embedded()),
    ];
    for (target, inputs) in targets {
        let folder = corpus(target);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in inputs {
            assert!(bytes.len() <= INPUT_BYTES_MAX, "{name}: {} bytes", bytes.len());
            fs::write(folder.join(name), bytes).expect("room");
        }
    }
}

/// The kept inputs of a target, with their names, by these.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let inputs = fs::read_dir(corpus(target)).expect("a folder").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        (name, fs::read(&path).expect("a file"))
    });
    let mut inputs: Vec<_> = inputs.collect();
    inputs.sort_unstable();
    inputs
}

/// Those of them that are whole.
pub fn whole(target: &str) -> Vec<(String, Vec<u8>)> {
    kept(target).into_iter().filter(|(name, _)| name.starts_with("whole-")).collect()
}

/// Calls `is_whole` with each kept input of a target.
fn check(target: &str, is_whole: impl Fn(&[u8]) -> bool) {
    let (mut whole, mut damaged) = (0, 0);
    for (name, input) in kept(target) {
        let found = is_whole(&input);
        let expected = name.starts_with("whole-");
        assert!(expected || name.starts_with("damaged-"), "{name} says neither");
        assert_eq!(found, expected, "{target}/{name}");
        *(if found { &mut whole } else { &mut damaged }) += 1;
    }
    assert!(whole >= 3 && damaged >= 3, "{target}: {whole} whole inputs, {damaged} damaged");
}

/// Otherwise a change of a format could leave inputs that are all refused at the beginning.
#[test]
fn kept_inputs_are_what_their_names_say() {
    check("segment", |bytes| fuzz_wal::read_segment(bytes, false));
    check("checkpoint", |bytes| fuzz_wal::read_whole_checkpoint(bytes, false));
    check("worker", |bytes| {
        fuzz_worker::open(&parts::decode(bytes)).is_ok_and(|opened| opened.damaged.is_empty())
    });
    let folder = tempfile::tempdir().expect("a folder");
    // Without a checkpoint that is damaged there is a log, but no table.
    check("embedded", |bytes| {
        let examined = fuzz_embedded::restore(folder.path(), &parts::decode(bytes));
        examined.is_ok_and(|examined| !examined.tables.is_empty())
    });
}
