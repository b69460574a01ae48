//! Bytes of headers, and checksums. All numbers are little-endian.
//!
//! ```text
//! file header   magic 8 | version 4 | node 4 | cluster 8 | volume 8 | four numbers 8 each | checksum 4
//! group header  magic 4 | length 4 | flushed segment 8 | flushed offset 8 | checksum 4
//! record header length 4 | kind 1 | part 1 | zero 2 | shard 4 | checksum 4
//! ```
//! The place of the file header's checksum is the same in all versions.

use crate::planted::DiskPlantedBugs;
use shoal_types::{ClusterId, NodeId, ShardId};

/// Bytes that a disk writes whole or not at all.
pub const SECTOR: u64 = 512;

/// Bytes of the two copies of a segment's header, a sector each.
pub const HEADER_BYTES: u64 = 2 * SECTOR;

/// The version of the format that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"SHOALLOG";
pub(crate) const CHECKPOINT_MAGIC: [u8; 8] = *b"SHOALCHK";
const GROUP_MAGIC: [u8; 4] = *b"GRUP";

pub(crate) const FILE_HEADER_BYTES: usize = 68;
pub(crate) const GROUP_HEADER_BYTES: usize = 28;
pub(crate) const RECORD_HEADER_BYTES: usize = 16;

/// The owner of a folder: files of others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogIdentity {
    /// The cluster; `None` for an embedded database.
    pub cluster: Option<ClusterId>,
    /// The node; 0 for an embedded database.
    pub node: NodeId,
    /// A random number, drawn when the folder was first used.
    pub volume: u64,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// The serial number of a segment; the first is 1.
    pub serial: u64,
    /// Bytes from the beginning of the segment's file.
    pub offset: u64,
}

/// What every file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) version: u32,
    pub(crate) identity: LogIdentity,
    /// Of a segment: serial number, incarnation, bytes of the file, end of the previous segment. Of a checkpoint:
    /// number, first segment, 0, 0.
    pub(crate) numbers: [u64; 4],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What a file header turned out to be.
pub(crate) enum HeaderFound {
    Whole(FileHeader),
    /// Nothing was ever written.
    Zeros,
    Damaged,
}

impl FileHeader {
    pub(crate) fn encode(&self, magic: [u8; 8]) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        let cluster = self.identity.cluster.map_or(0, ClusterId::get);
        bytes[..8].copy_from_slice(&magic);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.identity.node.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&cluster.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.identity.volume.to_le_bytes());
        for (place, number) in self.numbers.iter().enumerate() {
            bytes[32 + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..64]);
        bytes[64..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the beginning of `bytes`, which may be too few.
    pub(crate) fn decode(magic: [u8; 8], bytes: &[u8]) -> HeaderFound {
        let bytes = &bytes[..bytes.len().min(FILE_HEADER_BYTES)];
        if bytes.iter().all(|byte| *byte == 0) {
            return HeaderFound::Zeros;
        }
        let is_whole = bytes.len() == FILE_HEADER_BYTES
            && bytes[..8] == magic
            && crc32fast::hash(&bytes[..64]) == u32_at(bytes, 64);
        if !is_whole {
            return HeaderFound::Damaged;
        }
        let identity = LogIdentity {
            cluster: ClusterId::new(u64_at(bytes, 16)),
            node: NodeId(u32_at(bytes, 12)),
            volume: u64_at(bytes, 24),
        };
        let numbers = [32, 40, 48, 56].map(|at| u64_at(bytes, at));
        HeaderFound::Whole(FileHeader { version: u32_at(bytes, 8), identity, numbers })
    }
}

/// The number with which all checksums of a file begin: of the volume, and of the segment or checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumSeed {
    seed: u32,
    /// Of the folder from which the file is read.
    planted: DiskPlantedBugs,
}

impl ChecksumSeed {
    pub(crate) fn new(volume: u64, serial: u64) -> ChecksumSeed {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&volume.to_le_bytes());
        hasher.update(&serial.to_le_bytes());
        ChecksumSeed { seed: hasher.finalize(), planted: DiskPlantedBugs::default() }
    }

    pub(crate) fn with_planted(self, planted: DiskPlantedBugs) -> ChecksumSeed {
        ChecksumSeed { planted, ..self }
    }

    /// Whether what was read has this checksum.
    pub(crate) fn agrees(self, header: &[u8], payload: &[u8], found: u32) -> bool {
        self.planted.skip_checksums || self.checksum(header, payload) == found
    }

    pub(crate) fn checksum(self, header: &[u8], payload: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.seed);
        hasher.update(header);
        hasher.update(payload);
        hasher.finalize()
    }
}

/// The beginning of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// Bytes of the records that follow.
    pub(crate) length: u32,
    /// Everything before was flushed when the group was written.
    pub(crate) flushed: Position,
}

impl GroupHeader {
    pub(crate) fn encode(&self, seed: ChecksumSeed) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        bytes[..4].copy_from_slice(&GROUP_MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.flushed.serial.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.flushed.offset.to_le_bytes());
        let checksum = seed.checksum(&bytes[..24], &[]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(seed: ChecksumSeed, bytes: &[u8]) -> Option<GroupHeader> {
        let bytes = bytes.get(..GROUP_HEADER_BYTES)?;
        if bytes[..4] != GROUP_MAGIC || !seed.agrees(&bytes[..24], &[], u32_at(bytes, 24)) {
            return None;
        }
        let flushed = Position { serial: u64_at(bytes, 8), offset: u64_at(bytes, 16) };
        Some(GroupHeader { length: u32_at(bytes, 4), flushed })
    }
}

/// Which part of a record a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPart {
    Whole = 0,
    First = 1,
    Middle = 2,
    Last = 3,
}

impl RecordPart {
    /// The part that begins at the record's beginning or not, and ends at its end or not.
    pub(crate) fn of(is_beginning: bool, is_end: bool) -> RecordPart {
        match (is_beginning, is_end) {
            (true, true) => RecordPart::Whole,
            (true, false) => RecordPart::First,
            (false, false) => RecordPart::Middle,
            (false, true) => RecordPart::Last,
        }
    }

    fn decode(byte: u8) -> Option<RecordPart> {
        use RecordPart::{First, Last, Middle, Whole};
        [Whole, First, Middle, Last].into_iter().find(|part| *part as u8 == byte)
    }
}

/// The beginning of a record, or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) part: RecordPart,
    pub(crate) shard: ShardId,
}

impl RecordHeader {
    pub(crate) fn encode(&self, seed: ChecksumSeed, payload: &[u8]) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind;
        bytes[5] = self.part as u8;
        bytes[8..12].copy_from_slice(&self.shard.0.to_le_bytes());
        let checksum = seed.checksum(&bytes[..12], payload);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header at the beginning of `bytes`, with the payload behind it; `None` where they are not whole.
    pub(crate) fn decode(seed: ChecksumSeed, bytes: &[u8]) -> Option<(RecordHeader, &[u8])> {
        let (header, rest) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
        let payload = rest.get(..usize::try_from(u32_at(header, 0)).ok()?)?;
        if !seed.agrees(&header[..12], payload, u32_at(header, 12)) || header[6..8] != [0, 0] {
            return None;
        }
        let part = RecordPart::decode(header[5])?;
        let (length, shard) = (u32_at(header, 0), ShardId(u32_at(header, 8)));
        Some((RecordHeader { length, kind: header[4], part, shard }, payload))
    }
}
