//! A segment as it is read: its groups, and the records in them, up to the first that is not whole.

use crate::format::{
    ChecksumSeed, GROUP_HEADER_BYTES, GroupHeader, HEADER_BYTES, Position, RECORD_HEADER_BYTES,
    RecordHeader, SECTOR,
};

/// Reads the records of a segment, whose bytes are in memory.
pub(crate) struct SegmentReader<'b> {
    seed: ChecksumSeed,
    bytes: &'b [u8],
    /// Where the next record begins, or the group ends.
    at: usize,
    group_end: usize,
    groups: u64,
}

/// What is at a place of a segment.
pub(crate) enum Found<'b> {
    Record(RecordHeader, &'b [u8]),
    /// A group begins.
    Group,
    /// No group begins here: the end, or a gap.
    End,
    /// A record of a group is not whole.
    Broken,
}

impl<'b> SegmentReader<'b> {
    pub(crate) fn new(volume: u64, serial: u64, bytes: &'b [u8]) -> SegmentReader<'b> {
        let start = HEADER_BYTES as usize;
        let seed = ChecksumSeed::new(volume, serial);
        SegmentReader { seed, bytes, at: start, group_end: start, groups: 0 }
    }

    /// Everything before was read, and is whole.
    pub(crate) fn offset(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn groups(&self) -> u64 {
        self.groups
    }

    /// Goes on to what comes next; stays where that is not whole.
    pub(crate) fn advance(&mut self) -> Found<'b> {
        if self.at < self.group_end {
            let rest = &self.bytes[self.at..self.group_end];
            let Some((header, payload)) = RecordHeader::decode(self.seed, rest) else {
                return Found::Broken;
            };
            self.at += RECORD_HEADER_BYTES + payload.len();
            return Found::Record(header, payload);
        }
        let start = self.at.next_multiple_of(SECTOR as usize);
        let Some((_, end)) = self.group_at(start) else { return Found::End };
        (self.at, self.group_end) = (start + GROUP_HEADER_BYTES, end);
        self.groups += 1;
        Found::Group
    }

    /// The header of the group that begins at this place, and where it ends.
    fn group_at(&self, start: usize) -> Option<(GroupHeader, usize)> {
        let header = GroupHeader::decode(self.seed, self.bytes.get(start..)?)?;
        let end = start + GROUP_HEADER_BYTES + usize::try_from(header.length).ok()?;
        (end <= self.bytes.len()).then_some((header, end))
    }

    /// How far groups behind this place say that the log was flushed; `None` where there are none.
    pub(crate) fn flushed_behind(&self) -> Option<Position> {
        let first = self.at.next_multiple_of(SECTOR as usize);
        let starts = (first..self.bytes.len()).step_by(SECTOR as usize);
        starts.filter_map(|start| Some(self.group_at(start)?.0.flushed)).max()
    }
}
