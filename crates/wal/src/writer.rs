//! The writer: a state machine that turns records into groups, and says what to write and to flush.
//!
//! ```text
//! append ─► waiting ─► group ─ Write ─► written ─ Flush ─► persisted     one group at a time
//! reserve:  none ─ Make ─► ready ─► current segment ─► held ─ truncate ─► free ─► reserve
//! ```
//! Invariant: `persisted` ≤ records of groups written ≤ `appended`; a group is begun only when the one before it, and the
//! header of its segment, were flushed.

use crate::folder::{FolderError, LogEffect, LogEvent, SegmentFile};
use crate::format::{
    ChecksumSeed, FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, GROUP_HEADER_BYTES, GroupHeader,
    HEADER_BYTES, LogIdentity, Position, RECORD_HEADER_BYTES, RecordHeader, RecordPart, SECTOR,
    SEGMENT_MAGIC,
};
use crate::recovery::{HeldSegment, Recovered};
use shoal_types::ShardId;
use std::collections::VecDeque;

/// Free files that are kept for later segments, beside the reserve.
const FREE_MAX: usize = 1;

/// The smallest room in a segment in which a group is begun: more than the headers of the group and of a record.
const ROOM_MIN: u64 = SECTOR;

const _: () = assert!(GROUP_HEADER_BYTES + RECORD_HEADER_BYTES < ROOM_MIN as usize);

/// What a log takes of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// Bytes of a segment, a multiple of [`SECTOR`], at least eight of them. Larger ones are begun less often; the log takes two at
    /// least. Default 64 MiB.
    pub segment_bytes: u64,
    /// Bytes of records after which a group has no more, but for the one that exceeds it. More make fewer flushes, and the
    /// longest flush longer. Default 4 MiB.
    pub group_bytes_max: u64,
    /// Writes end at a multiple of this in their file, a multiple of [`SECTOR`], or with the segment; zeros fill the rest. A
    /// system reads a page from the disk before it changes a part of it, which takes as long as a flush. Default 4 KiB.
    pub page_bytes: u64,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions { segment_bytes: 64 << 20, group_bytes_max: 4 << 20, page_bytes: 4 << 10 }
    }
}

/// A record: bytes that the log keeps and does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is, by the owner's numbering.
    pub kind: u8,
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// Its bytes, at most 4 GiB.
    pub payload: Vec<u8>,
}

/// The segment that groups are written to.
#[derive(Debug, Clone, Copy)]
struct Current {
    file: SegmentFile,
    serial: u64,
    /// The sector at which the next group begins.
    next: u64,
}

/// The header of a segment, or a group, on its way to the disk.
#[derive(Debug, Clone, Copy)]
struct Written {
    file: SegmentFile,
    end: Position,
    /// Records that are complete with it.
    records: u64,
    /// It is written, and not flushed.
    is_done: bool,
    /// A group without records, which says how far the log was flushed.
    is_seal: bool,
}

/// Writes a log. Step it with the answers to its effects; see the file's header.
#[derive(Debug)]
pub struct LogWriter {
    identity: LogIdentity,
    options: WriterOptions,
    incarnation: u64,
    waiting: VecDeque<Record>,
    /// Bytes of the first waiting record that are in earlier groups.
    begun: usize,
    appended: u64,
    persisted: u64,
    /// Everything before is flushed.
    flushed: Position,
    current: Option<Current>,
    /// Is under way.
    written: Option<Written>,
    is_sealed: bool,
    /// The seal is not on the disk.
    wants_seal: bool,
    is_ready: bool,
    reserve: Option<SegmentFile>,
    making: Option<SegmentFile>,
    is_full: bool,
    /// Segments before the current one, oldest first.
    held: VecDeque<HeldSegment>,
    free: Vec<SegmentFile>,
    next_file: u32,
    failure: Option<FolderError>,
}

impl LogWriter {
    /// A writer that goes on after what was recovered, as the next incarnation. It [is ready](LogWriter::is_ready) once a
    /// segment that names the incarnation is flushed; records may be appended before.
    ///
    /// # Panics
    /// If the options are outside of what they allow.
    pub fn begin(
        identity: LogIdentity,
        options: WriterOptions,
        recovered: Recovered,
        effects: &mut Vec<LogEffect>,
    ) -> LogWriter {
        let bytes = options.segment_bytes;
        assert!(bytes.is_multiple_of(SECTOR) && bytes >= 8 * SECTOR, "segments of {bytes} bytes");
        let page = options.page_bytes;
        assert!(page.is_multiple_of(SECTOR) && page > 0, "pages of {page} bytes");
        // A file of another length is one that was not completely made, or of other options.
        let (usable, other): (Vec<_>, Vec<_>) =
            recovered.free.into_iter().partition(|(_, length)| *length == bytes);
        effects.extend(other.into_iter().map(|(file, _)| LogEffect::Remove { file }));
        let free = usable.into_iter().map(|(file, _)| file).collect();
        let mut writer = LogWriter {
            identity,
            options,
            incarnation: recovered.incarnation + 1,
            waiting: VecDeque::new(),
            begun: 0,
            appended: 0,
            persisted: 0,
            flushed: recovered.end,
            current: None,
            written: None,
            is_sealed: false,
            wants_seal: false,
            is_ready: false,
            reserve: None,
            making: None,
            is_full: false,
            held: recovered.held.into(),
            free,
            next_file: recovered.next_file,
            failure: None,
        };
        recovered.former.into_iter().for_each(|segment| writer.free(segment, effects));
        writer.go_on(effects);
        writer
    }

    /// The number of this incarnation: one more than that of any before on this volume.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether this incarnation's number is durable: nothing may be promised before.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Appends a record. Returns its number, counted from 1 in this incarnation.
    pub fn append(&mut self, record: Record) -> u64 {
        assert!(!self.is_sealed, "appended to a sealed log");
        assert!(u32::try_from(record.payload.len()).is_ok(), "a record beyond 4 GiB");
        self.waiting.push_back(record);
        self.appended += 1;
        self.appended
    }

    /// The number of the last record that was appended.
    #[must_use]
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// The number up to which all records are durable.
    #[must_use]
    pub fn persisted(&self) -> u64 {
        self.persisted
    }

    /// Everything before this place is flushed.
    #[must_use]
    pub fn flushed(&self) -> Position {
        self.flushed
    }

    /// The serial number of the segment that gets the next group, or of an earlier one: what is appended from now on is
    /// there or behind.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.current.map_or(self.flushed.serial + 1, |current| current.serial)
    }

    /// Whether there is no room for the segment after this one. What was appended is written as far as there is room; more
    /// should be refused until this is over.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Why the writer does nothing more.
    #[must_use]
    pub fn failure(&self) -> Option<&FolderError> {
        self.failure.as_ref()
    }

    /// The files that have parts of the log, oldest first, with the serial numbers of these.
    pub fn segments(&self) -> impl Iterator<Item = (u64, SegmentFile)> {
        let current = self.current.map(|current| (current.serial, current.file));
        self.held.iter().map(|held| (held.serial, held.file)).chain(current)
    }

    /// Bytes of the log's files that are in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let current = self.current.map_or(0, |_| self.options.segment_bytes);
        self.held.iter().map(|held| held.bytes).sum::<u64>() + current
    }

    /// Begins a group of what was appended, or the segment for it, if nothing is under way.
    pub fn go_on(&mut self, effects: &mut Vec<LogEffect>) {
        self.keep_reserve(effects);
        let is_due = self.current.is_none() || self.wants_seal || !self.waiting.is_empty();
        if self.written.is_none() && is_due && self.failure.is_none() {
            match self.has_room() {
                true => self.write_group(effects),
                false => self.begin_segment(effects),
            }
        }
        self.assert_invariants();
    }

    /// Appends an empty group behind all records, so that damage to the last of them is not taken for a torn end. Nothing
    /// may be appended after it.
    pub fn seal(&mut self, effects: &mut Vec<LogEffect>) {
        self.is_sealed = true;
        self.wants_seal = true;
        self.go_on(effects);
    }

    /// Whether a [sealed](LogWriter::seal) log is completely on the disk.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_sealed && !self.wants_seal
    }

    /// Frees the segments before the one with this serial number.
    ///
    /// REQUIRES: what recovery begins with durably says that it needs none of them.
    pub fn truncate(&mut self, first: u64, effects: &mut Vec<LogEffect>) {
        while self.held.front().is_some_and(|held| held.serial < first) {
            let segment = self.held.pop_front().expect("there is one");
            self.free(segment, effects);
        }
        self.go_on(effects);
    }

    /// Keeps the file of a former segment for a later one, or removes it.
    fn free(&mut self, segment: HeldSegment, effects: &mut Vec<LogEffect>) {
        let HeldSegment { file, bytes, .. } = segment;
        match self.free.len() < FREE_MAX && bytes == self.options.segment_bytes {
            true => self.free.push(file),
            false => effects.push(LogEffect::Remove { file }),
        }
    }

    /// Handles the answer to an effect.
    ///
    /// # Panics
    /// If the answer fits no effect that was asked for.
    pub fn step(&mut self, event: LogEvent, effects: &mut Vec<LogEffect>) {
        match event {
            LogEvent::Made(file) => {
                assert_eq!(self.making.take(), Some(file), "made what was not asked for");
                self.reserve = Some(file);
                self.is_full = false;
            }
            LogEvent::Full(file) => {
                assert_eq!(self.making.take(), Some(file), "no room for what was not asked for");
                // It is made anew, which replaces what there is of it.
                self.next_file = file.0;
                self.is_full = true;
            }
            LogEvent::Retry => self.make_reserve(effects),
            LogEvent::Written => {
                let written = self.written.as_mut().expect("a write is under way");
                assert!(!written.is_done, "written twice");
                written.is_done = true;
                effects.push(LogEffect::Flush { file: written.file });
                return;
            }
            LogEvent::Flushed => self.on_flushed(),
            LogEvent::Removed(_) => return,
            LogEvent::Failed(error) => {
                self.failure.get_or_insert(error);
                return;
            }
        }
        self.go_on(effects);
    }

    fn on_flushed(&mut self) {
        let written = self.written.take().expect("a write is under way");
        assert!(written.is_done, "flushed before it was written");
        self.flushed = written.end;
        self.is_ready = true;
        self.persisted += written.records;
        // It was written when all records were flushed.
        self.wants_seal &= !written.is_seal;
    }

    /// Sees to it that there is a file for the next segment, or will be; where there was no room, when the owner says so.
    fn keep_reserve(&mut self, effects: &mut Vec<LogEffect>) {
        if self.reserve.is_none() && self.making.is_none() && !self.free.is_empty() {
            self.reserve = self.free.pop();
            self.is_full = false;
        }
        if !self.is_full {
            self.make_reserve(effects);
        }
    }

    fn make_reserve(&mut self, effects: &mut Vec<LogEffect>) {
        if self.reserve.is_some() || self.making.is_some() || self.failure.is_some() {
            return;
        }
        let file = SegmentFile(self.next_file);
        self.next_file += 1;
        self.making = Some(file);
        effects.push(LogEffect::Make { file, bytes: self.options.segment_bytes });
    }

    /// Whether the next group has a place in the current segment.
    fn has_room(&self) -> bool {
        let end = self.options.segment_bytes;
        self.current.is_some_and(|current| current.next + ROOM_MIN <= end)
    }

    /// Begins the next segment, if there is a file for it. Its header is flushed before it has a group: so where anything of a
    /// group may be on the disk, no later process uses this serial number again.
    fn begin_segment(&mut self, effects: &mut Vec<LogEffect>) {
        let Some(file) = self.reserve.take() else { return };
        let bytes = self.options.segment_bytes;
        let full = self.current.map(|current| (current.serial, current.file));
        self.held.extend(full.map(|(serial, file)| HeldSegment { serial, file, bytes }));
        let serial = self.flushed.serial + 1;
        self.current = Some(Current { file, serial, next: HEADER_BYTES });
        let numbers = [serial, self.incarnation, self.options.segment_bytes, self.flushed.offset];
        let header = FileHeader { version: FORMAT_VERSION, identity: self.identity, numbers };
        let mut bytes = vec![0; HEADER_BYTES as usize];
        for copy in bytes.chunks_mut(SECTOR as usize) {
            copy[..FILE_HEADER_BYTES].copy_from_slice(&header.encode(SEGMENT_MAGIC));
        }
        self.fill_page(0, &mut bytes);
        let end = Position { serial, offset: HEADER_BYTES };
        self.written = Some(Written { file, end, records: 0, is_done: false, is_seal: false });
        effects.push(LogEffect::Write { file, offset: 0, bytes });
        self.keep_reserve(effects);
    }

    fn write_group(&mut self, effects: &mut Vec<LogEffect>) {
        let Current { file, serial, next } = self.current.expect("it has room");
        let seed = ChecksumSeed::new(self.identity.volume, serial);
        let mut bytes = vec![0; GROUP_HEADER_BYTES];
        let room = (self.options.segment_bytes - next) as usize;
        let records = self.push_records(seed, room, &mut bytes);
        let length = (bytes.len() - GROUP_HEADER_BYTES) as u32;
        let group = GroupHeader { length, flushed: self.flushed };
        bytes[..GROUP_HEADER_BYTES].copy_from_slice(&group.encode(seed));
        let end = Position { serial, offset: next + bytes.len() as u64 };
        self.current = Some(Current { file, serial, next: end.offset.next_multiple_of(SECTOR) });
        self.fill_page(next, &mut bytes);
        let is_seal = length == 0;
        self.written = Some(Written { file, end, records, is_done: false, is_seal });
        effects.push(LogEffect::Write { file, offset: next, bytes });
    }

    /// Moves waiting records into a group, while `bytes` stays within `room`; the last one may be moved in part. Returns how
    /// many are complete.
    fn push_records(&mut self, seed: ChecksumSeed, room: usize, bytes: &mut Vec<u8>) -> u64 {
        let group_max = bytes.len() as u64 + self.options.group_bytes_max;
        let mut complete = 0;
        while let Some(record) = self.waiting.front() {
            let room = room.saturating_sub(bytes.len() + RECORD_HEADER_BYTES);
            if room == 0 || bytes.len() as u64 >= group_max {
                break;
            }
            let rest = &record.payload[self.begun..];
            let payload = &rest[..rest.len().min(room)];
            let is_end = payload.len() == rest.len();
            let header = RecordHeader {
                length: payload.len() as u32,
                kind: record.kind,
                part: RecordPart::of(self.begun == 0, is_end),
                shard: record.shard,
            };
            bytes.extend(header.encode(seed, payload));
            bytes.extend(payload);
            if !is_end {
                self.begun += payload.len();
                break;
            }
            self.begun = 0;
            self.waiting.pop_front();
            complete += 1;
        }
        complete
    }

    /// Adds zeros to what is written at `offset`. No group is behind it.
    fn fill_page(&self, offset: u64, bytes: &mut Vec<u8>) {
        let end = (offset + bytes.len() as u64).next_multiple_of(self.options.page_bytes);
        bytes.resize((end.min(self.options.segment_bytes) - offset) as usize, 0);
    }

    fn assert_invariants(&self) {
        let under_way = self.written.map_or(0, |written| written.records);
        let counted = self.persisted + under_way + self.waiting.len() as u64;
        assert_eq!(counted, self.appended, "records got lost: {self:?}");
        let end = self.options.segment_bytes;
        assert!(self.current.is_none_or(|current| current.next <= end), "too long: {self:?}");
        let mut serials = self.segments().map(|(serial, _)| serial);
        let first = serials.next().unwrap_or_default();
        assert!(serials.zip(first + 1..).all(|(a, b)| a == b), "a gap: {self:?}");
    }
}
