//! Checkpoints: files of checksummed blocks, whose content is the owner's, and the segment from which on the log has what came later.
//!
//! ```text
//! checkpoint := file header, block*, end block
//! block      := length 4 | kind 1 | zero 3 | checksum 4 | payload
//! ```
//! A checkpoint is written under a temporary name, flushed, renamed, and the folder is flushed: a crash in any step leaves the
//! whole file under its name, or none. It ends with a block that has the number of blocks, so that one that was cut is not
//! taken for whole.

use crate::folder::{Folder, FolderError};
use crate::format::{
    CHECKPOINT_MAGIC, ChecksumSeed, FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, HeaderFound,
    LogIdentity,
};
use crate::recovery::{LogError, Recovered, check_owner};

const BLOCK_HEADER_BYTES: usize = 12;

/// The kind of the last block.
const END: u8 = u8::MAX;

/// Bytes that are gathered before they are written.
const WRITTEN_AT_ONCE: usize = 1 << 20;

const PREFIX: &str = "checkpoint-";
const TEMPORARY: &str = ".tmp";

/// The beginning of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointHead {
    /// The owner of the folder.
    pub identity: LogIdentity,
    /// Its number: a later one has a greater one.
    pub number: u64,
    /// The serial number of the first segment that it needs.
    pub first: u64,
}

/// The name of a checkpoint's file.
#[must_use]
pub fn checkpoint_name(number: u64) -> String {
    format!("{PREFIX}{number:012}")
}

/// The numbers of the checkpoints that a folder has, the newest first.
///
/// # Errors
/// Those of the folder.
pub fn checkpoints(folder: &mut (impl Folder + ?Sized)) -> Result<Vec<u64>, FolderError> {
    let names = folder.names()?;
    let number = |name: &String| {
        let number = name.strip_prefix(PREFIX)?.parse().ok()?;
        (checkpoint_name(number) == *name).then_some(number)
    };
    let mut numbers: Vec<_> = names.iter().filter_map(number).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    Ok(numbers)
}

/// When a log is to have its next checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRule {
    /// The least growth of the log between two.
    pub log_bytes_min: u64,
    /// The length of the last one.
    pub last_bytes: u64,
}

impl CheckpointRule {
    /// Whether one is due, since the log has grown by so many bytes since the last one began.
    #[must_use]
    pub fn is_due(&self, grown: u64) -> bool {
        grown >= self.log_bytes_min.max(self.last_bytes)
    }

    /// Whether a log of so many bytes takes more of the disk than it should where hardly anything is written: with two checkpoints,
    /// 2.5 times the rows and some more.
    #[must_use]
    pub fn is_long(&self, bytes: u64) -> bool {
        bytes > self.log_bytes_min + self.last_bytes / 2
    }
}

/// A checkpoint in a folder, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedCheckpoint {
    /// The name of its file.
    pub file: String,
    /// The length of the file.
    pub bytes: u64,
    /// The first segment of the log that it needs; or what is wrong with it.
    pub first: Result<u64, LogError>,
}

/// Reads all checkpoints of a folder, the newest first. Nothing is changed.
///
/// # Errors
/// Those of the folder.
pub fn examine_checkpoints(
    folder: &mut (impl Folder + ?Sized),
) -> Result<Vec<ExaminedCheckpoint>, FolderError> {
    let mut examined = Vec::new();
    for number in checkpoints(folder)? {
        let file = checkpoint_name(number);
        let bytes = folder.length(&file)?;
        let read = read_checkpoint(folder, number, None, &mut |_, _| Ok(()));
        examined.push(ExaminedCheckpoint { file, bytes, first: read.map(|head| head.first) });
    }
    Ok(examined)
}

/// Removes what is left of checkpoints that were not completed.
///
/// # Errors
/// Those of the folder.
pub fn remove_unfinished(folder: &mut (impl Folder + ?Sized)) -> Result<(), FolderError> {
    let names = folder.names()?;
    let unfinished = |name: &&String| name.starts_with(PREFIX) && name.ends_with(TEMPORARY);
    names.iter().filter(unfinished).try_for_each(|name| folder.remove(name))
}

/// Keeps of a log what the checkpoint `older` needs, for the case that the one that was used is damaged later. Returns its head. Where
/// there is none, or it is damaged, what there is of the log stands for it.
///
/// # Errors
/// If the folder cannot be read.
pub fn keep_older(
    recovered: &mut Recovered,
    folder: &mut (impl Folder + ?Sized),
    older: Option<u64>,
    identity: Option<LogIdentity>,
) -> Result<Option<CheckpointHead>, LogError> {
    let head = match older.map(|number| checkpoint_head(folder, number, identity)) {
        Some(Err(error @ LogError::Folder(_))) => return Err(error),
        Some(Ok(head)) => Some(head),
        Some(Err(_)) | None => None,
    };
    recovered.keep_from(head.map_or(1, |head| head.first));
    Ok(head)
}

/// Writes a checkpoint. Dropping it before [`finish`](CheckpointWriter::finish) leaves a file under a temporary name, which
/// [`remove_unfinished`] removes.
#[derive(Debug)]
pub struct CheckpointWriter {
    head: CheckpointHead,
    seed: ChecksumSeed,
    name: String,
    gathered: Vec<u8>,
    written: u64,
    blocks: u64,
}

impl CheckpointWriter {
    /// Begins a checkpoint.
    ///
    /// # Errors
    /// Those of the folder, as for all methods.
    pub fn begin(
        folder: &mut (impl Folder + ?Sized),
        head: CheckpointHead,
    ) -> Result<CheckpointWriter, FolderError> {
        let name = format!("{}{TEMPORARY}", checkpoint_name(head.number));
        folder.create(&name)?;
        let numbers = [head.number, head.first, 0, 0];
        let header = FileHeader { version: FORMAT_VERSION, identity: head.identity, numbers };
        let seed = ChecksumSeed::new(head.identity.volume, head.number);
        let gathered = header.encode(CHECKPOINT_MAGIC).to_vec();
        Ok(CheckpointWriter { head, seed, name, gathered, written: 0, blocks: 0 })
    }

    /// Bytes of the file so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    /// Appends a block of the owner's, of a kind below 255.
    ///
    /// # Errors
    /// See [`begin`](CheckpointWriter::begin).
    ///
    /// # Panics
    /// If it has more than 4 GiB.
    pub fn block(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        kind: u8,
        payload: &[u8],
    ) -> Result<(), FolderError> {
        assert!(kind != END, "the kind of the last block");
        self.push(kind, payload);
        match self.gathered.len() < WRITTEN_AT_ONCE {
            true => Ok(()),
            false => self.write(folder),
        }
    }

    /// Completes the checkpoint: when this returns, it is durable under its name.
    ///
    /// # Errors
    /// See [`begin`](CheckpointWriter::begin).
    pub fn finish(mut self, folder: &mut (impl Folder + ?Sized)) -> Result<u64, FolderError> {
        self.push(END, &self.blocks.to_le_bytes());
        self.write(folder)?;
        if !folder.planted().rename_unflushed {
            folder.flush(&self.name)?;
        }
        folder.rename(&self.name, &checkpoint_name(self.head.number))?;
        folder.flush_folder()?;
        Ok(self.written)
    }

    fn push(&mut self, kind: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a block has at most 4 GiB");
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = kind;
        let covered = covered_header(self.blocks, &header);
        let checksum = self.seed.checksum(&covered, payload);
        header[8..].copy_from_slice(&checksum.to_le_bytes());
        self.gathered.extend(header);
        self.gathered.extend(payload);
        self.blocks += 1;
    }

    fn write(&mut self, folder: &mut (impl Folder + ?Sized)) -> Result<(), FolderError> {
        folder.write(&self.name, self.written, &self.gathered)?;
        folder.write_back(&self.name, self.written, self.gathered.len());
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

/// What the checksum of a block covers beside its payload: its place, too, so that blocks cannot be exchanged.
fn covered_header(index: u64, header: &[u8; BLOCK_HEADER_BYTES]) -> [u8; 16] {
    let mut covered = [0; 16];
    covered[..8].copy_from_slice(&index.to_le_bytes());
    covered[8..].copy_from_slice(&header[..8]);
    covered
}

/// Reads the beginning of a checkpoint: whether the rest is whole is not known then.
///
/// # Errors
/// See [`LogError`].
fn checkpoint_head(
    folder: &mut (impl Folder + ?Sized),
    number: u64,
    identity: Option<LogIdentity>,
) -> Result<CheckpointHead, LogError> {
    BlockReader::open(folder, number)?.head(number, identity)
}

/// Takes the kind and the payload of a block, and says what is wrong with it.
pub type BlockVisitor<'v> = dyn FnMut(u8, &[u8]) -> Result<(), &'static str> + 'v;

/// Reads a checkpoint, and shows the kind and the payload of each block to `visit`. Where `identity` is `None`, any owner will do. It
/// is whole only if this returns no error: blocks of one that is not have been shown before that.
///
/// # Errors
/// See [`LogError`]; what `visit` finds wrong with a block is [`LogError::Damaged`].
pub fn read_checkpoint(
    folder: &mut (impl Folder + ?Sized),
    number: u64,
    identity: Option<LogIdentity>,
    visit: &mut BlockVisitor<'_>,
) -> Result<CheckpointHead, LogError> {
    let mut reader = BlockReader::open(folder, number)?;
    let head = reader.head(number, identity)?;
    let seed = ChecksumSeed::new(head.identity.volume, number);
    let seed = seed.with_planted(reader.folder.planted());
    for index in 0.. {
        let at = reader.offset;
        let kind = reader.block(seed, index)?;
        if kind == END {
            let is_end = reader.payload == index.to_le_bytes() && reader.offset == reader.length;
            return match is_end {
                true => Ok(head),
                false => Err(reader.damaged(at, "blocks are missing or left over")),
            };
        }
        visit(kind, &reader.payload).map_err(|what| reader.damaged(at, what))?;
    }
    unreachable!("there is no file with so many blocks")
}

/// Reads a checkpoint front to back.
struct BlockReader<'f, F: ?Sized> {
    folder: &'f mut F,
    name: String,
    length: u64,
    offset: u64,
    payload: Vec<u8>,
}

impl<'f, F: Folder + ?Sized> BlockReader<'f, F> {
    fn open(folder: &'f mut F, number: u64) -> Result<BlockReader<'f, F>, LogError> {
        let name = checkpoint_name(number);
        let length = folder.length(&name)?;
        Ok(BlockReader { folder, name, length, offset: 0, payload: Vec::new() })
    }

    fn head(
        &mut self,
        number: u64,
        identity: Option<LogIdentity>,
    ) -> Result<CheckpointHead, LogError> {
        let mut header = [0; FILE_HEADER_BYTES];
        self.read(&mut header)?;
        let HeaderFound::Whole(header) = FileHeader::decode(CHECKPOINT_MAGIC, &header) else {
            return Err(self.damaged(0, "its header is not whole"));
        };
        check_owner(&self.name, &header, identity)?;
        let [found, first, ..] = header.numbers;
        match found == number {
            true if first > 0 => Ok(CheckpointHead { identity: header.identity, number, first }),
            true => Err(self.damaged(0, "it needs a segment that cannot be")),
            false => Err(self.damaged(0, "it is the checkpoint of another number")),
        }
    }

    fn damaged(&self, offset: u64, what: &'static str) -> LogError {
        LogError::Damaged { file: self.name.clone(), offset, what }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), LogError> {
        let mut filled = 0;
        while filled < into.len() {
            let at = self.offset + filled as u64;
            match self.folder.read(&self.name, at, &mut into[filled..])? {
                0 => return Err(self.damaged(at, "the file is cut")),
                count => filled += count,
            }
        }
        self.offset += into.len() as u64;
        Ok(())
    }

    /// Reads the block that begins here into `payload`. Returns its kind.
    fn block(&mut self, seed: ChecksumSeed, index: u64) -> Result<u8, LogError> {
        let at = self.offset;
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.read(&mut header)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("a word"));
        // Checked before room is made for it.
        if u64::from(word(0)) > self.length - self.offset {
            return Err(self.damaged(at, "a block is longer than the file"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(word(0) as usize, 0);
        self.read(&mut payload)?;
        self.payload = payload;
        match seed.agrees(&covered_header(index, &header), &self.payload, word(8)) {
            true => Ok(header[4]),
            false => Err(self.damaged(at, "a block is not whole")),
        }
    }
}
