//! Recovery: from the files of a folder to the records that are persisted.
//!
//! ```text
//! headers of all segments ─► the chain from the first that is needed: n, n+1, … ─► records, in order
//!                            each read up to where the next one says that it ends,
//!                            the last up to the first place that is not whole
//! ```
//! The chain is damaged where a segment of it is missing, where one ends before its successor says that it does, and where a group
//! behind the end of the last one was written after that end was flushed.

use crate::folder::{Folder, FolderError, SegmentFile};
use crate::format::{
    FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, HEADER_BYTES, HeaderFound, LogIdentity,
    Position, RecordHeader, RecordPart, SECTOR, SEGMENT_MAGIC,
};
use crate::segment::{Found, SegmentReader};
use shoal_types::ShardId;
use std::collections::BTreeMap;
use thiserror::Error;

/// Bytes that are read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// Why a log or a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// A file could not be read, or flushed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file of another owner.
    #[error(
        "{file} belongs to {what} {found}, expected {expected}: this is the folder of another database or node"
    )]
    Foreign {
        /// The name of the file.
        file: String,
        /// Of what there are two: cluster, node or volume.
        what: &'static str,
        /// The number in the file.
        found: u64,
        /// The number that the folder should have.
        expected: u64,
    },
    /// A format that this build does not know.
    #[error("{file} has format {found}, this build reads up to {expected}: start a newer build")]
    Newer {
        /// The name of the file.
        file: String,
        /// The version in the file.
        found: u32,
        /// The newest version that this build reads.
        expected: u32,
    },
    /// Bytes that were durable once are not what was written.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The name of the file.
        file: String,
        /// Where the damage was found.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A segment that is needed is not there.
    #[error("segment {serial} of the log is missing, though segment {found} is there")]
    Missing {
        /// The serial number of the missing segment.
        serial: u64,
        /// A segment, or the first segment that a checkpoint needs, that proves that it existed.
        found: u64,
    },
}

/// A torn end: a group whose flush had not come to its end. Nothing of it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment's file.
    pub file: SegmentFile,
    /// Where the log ends now.
    pub offset: u64,
}

/// A record as recovery shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'r> {
    /// What it is, by the owner's numbering.
    pub kind: u8,
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// Its bytes.
    pub payload: &'r [u8],
}

/// What a segment holds, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its serial number.
    pub serial: u64,
    /// The file that it is in.
    pub file: SegmentFile,
    /// The incarnation that wrote it.
    pub incarnation: u64,
    /// Groups that are whole, or were so far as they were recovered.
    pub groups: u64,
    /// Records that end in it.
    pub records: u64,
    /// Where it ends.
    pub end: u64,
}

/// What recovery found; the [writer](crate::LogWriter) goes on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Where the log ends.
    pub end: Position,
    /// The owner that the segments name; `None` where there are none.
    pub identity: Option<LogIdentity>,
    /// The greatest incarnation that wrote into this volume; 0 for a new one.
    pub incarnation: u64,
    /// The torn end that was cut, if there was one.
    pub torn: Option<Torn>,
    /// Whether its last process had ended in order: see [`LogWriter::seal`](crate::LogWriter::seal).
    pub is_sealed: bool,
    /// What each segment of the chain holds.
    pub summaries: Vec<SegmentSummary>,
    pub(crate) held: Vec<HeldSegment>,
    /// Segments before the first that was read, oldest first.
    pub(crate) former: Vec<HeldSegment>,
    /// Files in which no segment was begun, with their lengths.
    pub(crate) free: Vec<(SegmentFile, u64)>,
    pub(crate) next_file: u32,
}

/// A file that has a part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldSegment {
    pub(crate) serial: u64,
    pub(crate) file: SegmentFile,
    /// The length of the file: options may differ between processes.
    pub(crate) bytes: u64,
}

impl Recovered {
    /// Keeps the segments from `serial` on, though they were not needed: an older checkpoint needs them, or a log that has to stand
    /// for the only one. Those before are used again, and those in front of one that is not there: nothing reads them.
    pub fn keep_from(&mut self, serial: u64) {
        let is_kept = |former: &HeldSegment, held: &[HeldSegment]| {
            let is_next = held.first().is_none_or(|first| former.serial + 1 == first.serial);
            former.serial >= serial && is_next
        };
        while let Some(last) = self.former.pop_if(|former| is_kept(former, &self.held)) {
            self.held.insert(0, last);
        }
    }
}

/// A file of the folder whose header is whole.
#[derive(Debug, Clone, Copy)]
struct SegmentFound {
    file: SegmentFile,
    incarnation: u64,
    bytes: u64,
    previous_end: u64,
}

/// Reads the log of a folder from the segment `first` on, shows each record to `visit`, and flushes what it has read. The
/// records of segments before `first` are in a checkpoint; without one `first` is 1. Where `identity` is `None`, any
/// owner will do, as long as all files have the same one.
///
/// # Errors
/// See [`LogError`]. Records may have been shown before.
pub fn recover(
    folder: &mut (impl Folder + ?Sized),
    identity: Option<LogIdentity>,
    first: u64,
    visit: &mut dyn FnMut(RecordRef<'_>),
) -> Result<Recovered, LogError> {
    let survey = survey(folder, identity)?;
    // The former process may have ended between a rename, or the making of a file, and the flush of the folder. A file that has its
    // name for good is to have its zeros, too.
    if !folder.planted().trust_unflushed {
        survey.unused.iter().try_for_each(|(file, _)| folder.flush(&file.to_string()))?;
        folder.flush_folder()?;
    }
    let mut chain = Chain::new(first, visit);
    let last = survey.segments.keys().next_back().copied();
    for serial in first..=last.unwrap_or_default() {
        let found = last.unwrap_or_default();
        let missing = LogError::Missing { serial, found };
        let segment = survey.segments.get(&serial).ok_or(missing)?;
        let ends_at = survey.segments.get(&(serial + 1)).map(|next| next.previous_end);
        let volume = survey.identity.expect("a header was read").volume;
        chain.read(folder, volume, serial, *segment, ends_at)?;
    }
    if first > 1 && last.is_none_or(|last| last < first) {
        return Err(LogError::Missing { serial: first, found: first });
    }
    let segments = survey.segments.iter().map(|(serial, segment)| {
        let SegmentFound { file, bytes, .. } = *segment;
        HeldSegment { serial: *serial, file, bytes }
    });
    let (held, former) = segments.partition(|segment| segment.serial >= first);
    Ok(Recovered {
        end: chain.end,
        identity: survey.identity,
        incarnation: survey.incarnation,
        is_sealed: chain.is_sealed && chain.torn.is_none(),
        torn: chain.torn,
        summaries: chain.summaries,
        held,
        former,
        free: survey.unused,
        next_file: survey.next_file,
    })
}

/// What the headers of all segments say.
struct Survey {
    segments: BTreeMap<u64, SegmentFound>,
    identity: Option<LogIdentity>,
    incarnation: u64,
    /// Files in which no segment was begun.
    unused: Vec<(SegmentFile, u64)>,
    next_file: u32,
}

fn survey(
    folder: &mut (impl Folder + ?Sized),
    identity: Option<LogIdentity>,
) -> Result<Survey, LogError> {
    let mut expected = identity;
    let (segments, unused) = (BTreeMap::new(), Vec::new());
    let mut survey = Survey { segments, identity: None, incarnation: 0, unused, next_file: 0 };
    let names = folder.names()?;
    for file in names.iter().filter_map(|name| SegmentFile::named(name)) {
        survey.next_file = survey.next_file.max(file.0 + 1);
        let name = file.to_string();
        let Some(header) = read_header(folder, &name)? else {
            survey.unused.push((file, folder.length(&name)?));
            continue;
        };
        check_owner(&name, &header, expected)?;
        // What one file does not name another one may.
        let cluster = header.identity.cluster.or(expected.and_then(|identity| identity.cluster));
        expected = Some(LogIdentity { cluster, ..header.identity });
        let [serial, incarnation, bytes, previous_end] = header.numbers;
        // The next segment and the next process have greater ones.
        if serial == 0 || serial == u64::MAX || incarnation == u64::MAX {
            let what = "its header has numbers that no segment has";
            return Err(LogError::Damaged { file: name, offset: 0, what });
        }
        let length = folder.length(&name)?;
        if length != bytes {
            let what = "the file is not as long as its header says";
            return Err(LogError::Damaged { file: name, offset: length, what });
        }
        survey.identity = expected;
        survey.incarnation = survey.incarnation.max(incarnation);
        let found = SegmentFound { file, incarnation, bytes, previous_end };
        if survey.segments.insert(serial, found).is_some() {
            let what = "another file has a segment of the same serial number";
            return Err(LogError::Damaged { file: name, offset: 0, what });
        }
    }
    Ok(survey)
}

/// The header of a segment: the later one of its two copies, if a crash left copies of two uses. `None` where there is none.
fn read_header(
    folder: &mut (impl Folder + ?Sized),
    name: &str,
) -> Result<Option<FileHeader>, LogError> {
    let mut bytes = [0; HEADER_BYTES as usize];
    let count = read_whole(folder, name, &mut bytes)?;
    let copies = [0, SECTOR as usize].map(|at| {
        let end = (at + FILE_HEADER_BYTES).min(count);
        FileHeader::decode(SEGMENT_MAGIC, &bytes[at.min(end)..end])
    });
    let whole = copies.iter().filter_map(|copy| match copy {
        HeaderFound::Whole(header) => Some(*header),
        HeaderFound::Zeros | HeaderFound::Damaged => None,
    });
    // A newer version may mean anything by its numbers: it is refused before they are compared.
    match whole.max_by_key(|header| (header.version, header.numbers[0])) {
        Some(header) => Ok(Some(header)),
        None if copies.iter().all(|copy| matches!(copy, HeaderFound::Zeros)) => Ok(None),
        None => {
            let what = "neither copy of the segment's header is whole";
            Err(LogError::Damaged { file: name.to_owned(), offset: 0, what })
        }
    }
}

/// Reads from the beginning of a file until `into` is full or the file ends. Returns the number of bytes.
fn read_whole(
    folder: &mut (impl Folder + ?Sized),
    name: &str,
    into: &mut [u8],
) -> Result<usize, FolderError> {
    let mut count = 0;
    while count < into.len() {
        let end = into.len().min(count + READ_AT_ONCE);
        match folder.read(name, count as u64, &mut into[count..end])? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// Checks that a file is of this format, and of this owner where one is expected.
pub(crate) fn check_owner(
    file: &str,
    header: &FileHeader,
    expected: Option<LogIdentity>,
) -> Result<(), LogError> {
    if header.version > FORMAT_VERSION {
        let (found, expected) = (header.version, FORMAT_VERSION);
        return Err(LogError::Newer { file: file.to_owned(), found, expected });
    }
    let Some(expected) = expected else { return Ok(()) };
    let cluster = |identity: LogIdentity| identity.cluster.map_or(0, |cluster| cluster.get());
    let found = header.identity;
    let pairs = [
        ("cluster", cluster(found), cluster(expected)),
        ("node", u64::from(found.node.0), u64::from(expected.node.0)),
        ("volume", found.volume, expected.volume),
    ];
    // A node may not have joined its cluster when it made the file.
    let is_known =
        |what: &str, found: u64, expected: u64| what != "cluster" || found != 0 && expected != 0;
    let differs = |(what, found, expected): &(&str, u64, u64)| {
        found != expected && is_known(what, *found, *expected)
    };
    match pairs.into_iter().find(differs) {
        None => Ok(()),
        Some((what, found, expected)) => {
            Err(LogError::Foreign { file: file.to_owned(), what, found, expected })
        }
    }
}

/// The segments read so far.
struct Chain<'v> {
    visit: &'v mut dyn FnMut(RecordRef<'_>),
    end: Position,
    incarnation: u64,
    torn: Option<Torn>,
    is_sealed: bool,
    summaries: Vec<SegmentSummary>,
    parts: Parts,
}

/// The parts of a record that goes over several groups.
#[derive(Default)]
struct Parts {
    /// Those of the record that is open, each in a block of its own: one block for all, which grew with each of them, would take
    /// twice their bytes, and three times while they move.
    list: Vec<Box<[u8]>>,
    /// The last record that was complete.
    joined: Vec<u8>,
    is_open: bool,
    /// A record ended, or began, so a part without its beginning is damage. Before that its beginning may be in a
    /// segment that is not read.
    is_aligned: bool,
}

impl Parts {
    /// Takes a part. Returns the record that it completes: its own payload, or the bytes of all parts.
    fn take<'r>(
        &'r mut self,
        part: RecordPart,
        payload: &'r [u8],
    ) -> Result<Option<&'r [u8]>, &'static str> {
        let begins = matches!(part, RecordPart::Whole | RecordPart::First);
        if begins == self.is_open {
            return match self.is_aligned || begins {
                true => Err("parts of different records follow each other"),
                // The rest of a record that began in a segment before the first.
                false => Ok(None),
            };
        }
        self.is_aligned = true;
        self.is_open = matches!(part, RecordPart::First | RecordPart::Middle);
        if part == RecordPart::Whole {
            return Ok(Some(payload));
        }
        if begins {
            // The memory, too: this record is not to be beside the one before it.
            (self.list, self.joined) = (Vec::new(), Vec::new());
        }
        if self.is_open {
            self.list.push(payload.into());
            return Ok(None);
        }
        let list = std::mem::take(&mut self.list);
        let bytes = list.iter().map(|part| part.len()).sum::<usize>() + payload.len();
        self.joined.reserve_exact(bytes);
        list.iter().for_each(|part| self.joined.extend_from_slice(part));
        self.joined.extend_from_slice(payload);
        Ok(Some(&self.joined))
    }
}

impl<'v> Chain<'v> {
    fn new(first: u64, visit: &'v mut dyn FnMut(RecordRef<'_>)) -> Chain<'v> {
        let parts = Parts { is_aligned: first == 1, ..Parts::default() };
        let (end, summaries) = (Position { serial: first - 1, offset: 0 }, Vec::new());
        let (incarnation, torn, is_sealed) = (0, None, false);
        Chain { visit, end, incarnation, torn, is_sealed, summaries, parts }
    }

    /// Reads a segment, up to where it ends by its successor's header or, for the last one, as far as it is whole.
    fn read(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        volume: u64,
        serial: u64,
        segment: SegmentFound,
        ends_at: Option<u64>,
    ) -> Result<(), LogError> {
        let file = segment.file.to_string();
        let damaged = |offset, what| LogError::Damaged { file: file.clone(), offset, what };
        if segment.incarnation < self.incarnation {
            return Err(damaged(0, "its incarnation is before that of the previous segment"));
        }
        if segment.incarnation > self.incarnation {
            // A part that was left over belongs to a record that was never acknowledged.
            self.parts.is_open = false;
            self.incarnation = segment.incarnation;
        }
        let length = usize::try_from(folder.length(&file)?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        let count = read_whole(folder, &file, &mut bytes)?;
        bytes.truncate(count);
        let planted = folder.planted();
        if !planted.trust_unflushed {
            folder.flush(&file)?;
        }
        let mut reader = SegmentReader::new(volume, serial, &bytes, planted);
        let mut records = 0;
        let is_torn = loop {
            if ends_at.is_some_and(|end| reader.offset() >= end) {
                break false;
            }
            match reader.advance() {
                Found::Group => {}
                Found::Record(header, payload) => {
                    records += self
                        .take(header, payload)
                        .map_err(|what| damaged(reader.offset(), what))?;
                }
                Found::End => break false,
                Found::Broken => break true,
            }
        };
        let end = reader.offset();
        self.is_sealed = reader.is_sealed();
        match ends_at {
            Some(expected) if expected != end && !planted.cut_damage => {
                return Err(damaged(end, "it ends before the next segment says that it does"));
            }
            Some(_) => {}
            None => {
                let behind = reader.flushed_behind();
                let flushed = Position { serial, offset: end };
                if behind.is_some_and(|behind| behind > flushed) && !planted.cut_damage {
                    return Err(damaged(end, "not whole, though it was flushed"));
                }
                let is_torn = is_torn || behind.is_some();
                self.torn = is_torn.then_some(Torn { file: segment.file, offset: end });
            }
        }
        self.end = Position { serial, offset: end };
        let (groups, incarnation) = (reader.groups(), segment.incarnation);
        let file = segment.file;
        self.summaries.push(SegmentSummary { serial, file, incarnation, groups, records, end });
        Ok(())
    }

    /// Shows a record if it is complete. Returns the number of records shown.
    fn take(&mut self, header: RecordHeader, payload: &[u8]) -> Result<u64, &'static str> {
        let Some(payload) = self.parts.take(header.part, payload)? else { return Ok(0) };
        (self.visit)(RecordRef { kind: header.kind, shard: header.shard, payload });
        Ok(1)
    }
}
