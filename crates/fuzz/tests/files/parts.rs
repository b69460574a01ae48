//! A list of records and blocks, as an input of a target, and the files with checksums that it becomes.
//!
//! ```text
//! input := part*
//! part  := place 1 | kind 1 | shard 1 | length 2 | payload      place: even in the log, odd in the checkpoint
//! ```
//! So changes of an input come to the readers of contents, and are not refused at a checksum. A part that is cut has the bytes
//! that are there.

use shoal_types::ShardId;
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    CheckpointHead, CheckpointWriter, LogIdentity, LogWriter, Record, WriterOptions, perform,
    recover,
};
use std::collections::VecDeque;

/// The number of the checkpoint of an input that has blocks.
pub const CHECKPOINT: u64 = 1;

/// The kind by which checkpoints mark their ends: no block of an owner has it.
const END: u8 = u8::MAX;

/// A file that a part belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Log,
    Checkpoint,
}

/// A record of the log, or a block of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub place: Place,
    pub kind: u8,
    pub shard: u8,
    pub payload: Vec<u8>,
}

impl Part {
    pub fn record(kind: u8, shard: u8, payload: impl Into<Vec<u8>>) -> Part {
        Part { place: Place::Log, kind, shard, payload: payload.into() }
    }

    pub fn block(kind: u8, payload: impl Into<Vec<u8>>) -> Part {
        Part { place: Place::Checkpoint, kind, shard: 0, payload: payload.into() }
    }
}

pub fn encode(parts: &[Part]) -> Vec<u8> {
    let mut input = Vec::new();
    for Part { place, kind, shard, payload } in parts {
        let length = u16::try_from(payload.len()).expect("parts of kept inputs are short");
        input.extend([u8::from(*place == Place::Checkpoint), *kind, *shard]);
        input.extend(length.to_le_bytes());
        input.extend(payload);
    }
    input
}

pub fn decode(mut input: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some((&[place, kind, shard, low, high], rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        let place = if place & 1 == 0 { Place::Log } else { Place::Checkpoint };
        parts.push(Part { place, kind, shard, payload: payload.to_vec() });
        input = rest;
    }
    parts
}

/// A disk with a log of these records and, if there are blocks, a checkpoint of them. All of it is durable.
pub fn disk_of(parts: &[Part], identity: LogIdentity, options: WriterOptions) -> VirtualDisk {
    let mut disk = VirtualDisk::new();
    let in_log = parts.iter().filter(|part| part.place == Place::Log);
    let records = in_log.map(|part| Record {
        kind: part.kind,
        shard: ShardId(part.shard.into()),
        payload: part.payload.clone(),
    });
    write_log(&mut disk, records, identity, options);
    let blocks: Vec<&Part> = parts.iter().filter(|part| part.place == Place::Checkpoint).collect();
    if !blocks.is_empty() {
        let head = CheckpointHead { identity, number: CHECKPOINT, first: 1 };
        let mut writer = CheckpointWriter::begin(&mut disk, head).expect("room");
        for Part { kind, payload, .. } in blocks {
            writer.block(&mut disk, (*kind).min(END - 1), payload).expect("room");
        }
        writer.finish(&mut disk).expect("room");
    }
    disk
}

/// Writes a log of these records into an empty folder.
pub fn write_log(
    disk: &mut VirtualDisk,
    records: impl IntoIterator<Item = Record>,
    identity: LogIdentity,
    options: WriterOptions,
) {
    let empty = recover(disk, Some(identity), 1, &mut |_| {}).expect("an empty folder");
    let mut effects = Vec::new();
    let mut writer = LogWriter::begin(identity, options, empty, &mut effects);
    records.into_iter().for_each(|record| {
        writer.append(record);
    });
    writer.go_on(&mut effects);
    let mut wanted = VecDeque::from(effects);
    while let Some(effect) = wanted.pop_front() {
        let mut effects = Vec::new();
        writer.step(perform(disk, &effect), &mut effects);
        wanted.extend(effects);
    }
    assert_eq!((writer.failure(), writer.persisted()), (None, writer.appended()));
}
