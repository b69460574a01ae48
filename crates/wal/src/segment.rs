//! A segment as it is read: its groups, and the records in them, up to the first that is not whole.

use crate::format::{
    ChecksumSeed, GROUP_HEADER_BYTES, GroupHeader, HEADER_BYTES, Position, RECORD_HEADER_BYTES,
    RecordHeader, SECTOR,
};
use crate::planted::DiskPlantedBugs;

/// Reads the records of a segment, whose bytes are in memory.
pub(crate) struct SegmentReader<'b> {
    seed: ChecksumSeed,
    /// Those of earlier segments, where their groups count: see [`DiskPlantedBugs::accept_former_use`].
    former: Vec<ChecksumSeed>,
    planted: DiskPlantedBugs,
    bytes: &'b [u8],
    /// Of the group that is read.
    group_seed: ChecksumSeed,
    /// Where the next record begins, or the group ends.
    at: usize,
    group_end: usize,
    groups: u64,
    /// The last group has no records.
    is_seal: bool,
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
    pub(crate) fn new(
        volume: u64,
        serial: u64,
        bytes: &'b [u8],
        planted: DiskPlantedBugs,
    ) -> SegmentReader<'b> {
        let start = HEADER_BYTES as usize;
        let seed_of = |serial| ChecksumSeed::new(volume, serial).with_planted(planted);
        let seed = seed_of(serial);
        let former =
            if planted.accept_former_use { (1..serial).map(seed_of).collect() } else { vec![] };
        let (group_seed, at, group_end) = (seed, start, start);
        let (groups, is_seal) = (0, false);
        SegmentReader { seed, former, planted, bytes, group_seed, at, group_end, groups, is_seal }
    }

    /// Everything before was read, and is whole.
    pub(crate) fn offset(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn groups(&self) -> u64 {
        self.groups
    }

    /// Whether what was read ends with a group without records.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_seal
    }

    /// Goes on to what comes next; stays where that is not whole.
    pub(crate) fn advance(&mut self) -> Found<'b> {
        while self.at < self.group_end {
            let rest = &self.bytes[self.at..self.group_end];
            match RecordHeader::decode(self.group_seed, rest) {
                Some((header, payload)) => {
                    self.at += RECORD_HEADER_BYTES + payload.len();
                    return Found::Record(header, payload);
                }
                None if self.planted.read_past_gap => self.at += 1,
                None => return Found::Broken,
            }
        }
        let start = self.at.next_multiple_of(SECTOR as usize);
        let Some((header, end, seed)) = self.group_at(start) else { return Found::End };
        self.is_seal = header.length == 0;
        (self.group_seed, self.at, self.group_end) = (seed, start + GROUP_HEADER_BYTES, end);
        self.groups += 1;
        Found::Group
    }

    /// The header of the group that begins at this place, where it ends, and with what its checksums begin.
    fn group_at(&self, start: usize) -> Option<(GroupHeader, usize, ChecksumSeed)> {
        let bytes = self.bytes.get(start..)?;
        let seeds = std::iter::once(&self.seed).chain(&self.former);
        let read = |seed: &ChecksumSeed| Some((GroupHeader::decode(*seed, bytes)?, *seed));
        let (header, seed) = seeds.into_iter().find_map(read)?;
        let end = start + GROUP_HEADER_BYTES + usize::try_from(header.length).ok()?;
        (end <= self.bytes.len()).then_some((header, end, seed))
    }

    /// How far groups behind this place say that the log was flushed; `None` where there are none.
    pub(crate) fn flushed_behind(&self) -> Option<Position> {
        let first = self.at.next_multiple_of(SECTOR as usize);
        let starts = (first..self.bytes.len()).step_by(SECTOR as usize);
        starts.filter_map(|start| Some(self.group_at(start)?.0.flushed)).max()
    }
}
