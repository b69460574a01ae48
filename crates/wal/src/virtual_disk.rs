//! A disk in memory, for tests and simulations, that can do what real disks do: lose what was not flushed, sector by sector;
//! fail; be full; change bits at rest; take its time.
//!
//! A [`VirtualDisk`] carries out operations at once; a [`DiskQueue`] in front of it holds those of a log for as long as they
//! take.

use crate::folder::{Folder, FolderError, LogEffect, LogEvent, perform};
use crate::format::SECTOR;
use crate::planted::DiskPlantedBugs;
use shoal_types::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most unflushed sectors of which every subset is tried; of more, as many random ones.
const SECTORS_MAX: usize = 8;

/// A file, as it is read, with what of it is durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct VirtualFile {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes of sectors that are not durable, in their order: the sector, and its bytes after the write.
    unflushed: Vec<(u64, Vec<u8>)>,
    /// Those that a flush has failed to write: the system takes them for clean, and no later flush writes them.
    dropped: Vec<(u64, Vec<u8>)>,
}

/// Which operations of a disk fail from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Writes fail.
    pub writes: bool,
    /// Flushes fail where there is something to write. What they were to write is never written by a later one, though a crash
    /// may show any part of it.
    pub flushes: bool,
    /// Reads fail after so many.
    pub reads_after: Option<u32>,
    /// Flushes do nothing, and report success.
    pub lies: bool,
}

/// A folder in memory.
#[derive(Debug, Clone, Default)]
pub struct VirtualDisk {
    files: Vec<VirtualFile>,
    /// The files by name, as seen, and as they are after a crash.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Bytes that all files may take; `None` for a disk that is never full.
    pub bytes_max: Option<u64>,
    /// Operations that fail.
    pub faults: DiskFaults,
    planted: DiskPlantedBugs,
}

impl VirtualDisk {
    /// An empty disk that does not fail.
    #[must_use]
    pub fn new() -> VirtualDisk {
        VirtualDisk::default()
    }

    /// The same disk, with these bugs in what uses it.
    #[must_use]
    pub fn with_planted(self, planted: DiskPlantedBugs) -> VirtualDisk {
        VirtualDisk { planted, ..self }
    }

    /// Sectors, of all files, that were written since they were last flushed, or that a flush has failed to write. A sector
    /// counts once for each write.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.files.iter().map(|file| file.dropped.len() + file.unflushed.len()).sum()
    }

    /// Loses power. Of the [`unflushed`](VirtualDisk::unflushed) writes of sectors those become durable for which `survives`
    /// returns true, which is asked in their order; all others are lost, and so are names that were not flushed.
    pub fn lose_power(&mut self, mut survives: impl FnMut() -> bool) {
        for file in &mut self.files {
            let dropped = std::mem::take(&mut file.dropped);
            for (sector, bytes) in dropped.into_iter().chain(std::mem::take(&mut file.unflushed)) {
                if survives() {
                    write_at(&mut file.durable, sector * SECTOR, &bytes);
                }
            }
            file.seen.clone_from(&file.durable);
        }
        self.names.clone_from(&self.durable_names);
    }

    /// Calls `visit` with the disk of a process that is killed, and with each state in which it may be after a loss of power: of more
    /// than eight unflushed sectors, with some of them.
    pub fn crashes(&self, random: &mut Random, mut visit: impl FnMut(VirtualDisk)) {
        let sectors = self.unflushed();
        visit(self.clone());
        for subset in 0..1_u64 << sectors.min(SECTORS_MAX) {
            let mut crashed = self.clone();
            let mut at = 0;
            crashed.lose_power(|| {
                at += 1;
                match sectors <= SECTORS_MAX {
                    true => subset >> (at - 1) & 1 == 1,
                    false => random.below(2) == 1,
                }
            });
            visit(crashed);
        }
    }

    /// Inverts a bit at rest: that of the byte `bit / 8`. Returns false where the file has no such bit.
    pub fn flip(&mut self, name: &str, bit: u64) -> bool {
        let Some(place) = self.names.get(name) else { return false };
        let file = &mut self.files[*place];
        let at = (bit / 8) as usize;
        let mut flipped = false;
        for bytes in [&mut file.seen, &mut file.durable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
                flipped = true;
            }
        }
        flipped
    }

    /// Bytes that all files take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.names.values().map(|place| self.files[*place].seen.len() as u64).sum()
    }

    fn place(&self, name: &str) -> Result<usize, FolderError> {
        self.names.get(name).copied().ok_or_else(|| failed(name, "no such file"))
    }

    fn check(&self, name: &str, fails: bool) -> Result<usize, FolderError> {
        if fails {
            return Err(failed(name, "the virtual disk fails"));
        }
        self.place(name)
    }
}

fn failed(file: &str, what: &str) -> FolderError {
    FolderError { file: file.to_owned(), what: what.to_owned(), is_full: false }
}

fn write_at(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + written.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(written);
}

impl Folder for VirtualDisk {
    fn names(&mut self) -> Result<Vec<String>, FolderError> {
        Ok(self.names.keys().cloned().collect())
    }

    fn length(&mut self, name: &str) -> Result<u64, FolderError> {
        Ok(self.files[self.place(name)?].seen.len() as u64)
    }

    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, FolderError> {
        let left = self.faults.reads_after.as_mut();
        let fails = left.is_some_and(|left| std::mem::replace(left, left.saturating_sub(1)) == 0);
        let place = self.check(name, fails)?;
        let bytes = &self.files[place].seen;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn create(&mut self, name: &str) -> Result<(), FolderError> {
        self.files.push(VirtualFile::default());
        self.names.insert(name.to_owned(), self.files.len() - 1);
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), FolderError> {
        let place = self.check(name, self.faults.writes)?;
        let length = self.files[place].seen.len() as u64;
        let more = (offset + bytes.len() as u64).saturating_sub(length);
        if self.bytes_max.is_some_and(|max| self.bytes() + more > max) {
            return Err(FolderError { is_full: true, ..failed(name, "the virtual disk is full") });
        }
        let file = &mut self.files[place];
        write_at(&mut file.seen, offset, bytes);
        let end = offset + bytes.len() as u64;
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let start = (sector * SECTOR) as usize;
            let until = (start + SECTOR as usize).min(file.seen.len());
            file.unflushed.push((sector, file.seen[start..until].to_vec()));
        }
        Ok(())
    }

    fn flush(&mut self, name: &str) -> Result<(), FolderError> {
        let place = self.place(name)?;
        let file = &mut self.files[place];
        if self.faults.flushes && !file.unflushed.is_empty() {
            file.dropped.append(&mut file.unflushed);
            return Err(failed(name, "the virtual disk fails"));
        }
        if !self.faults.lies {
            for (sector, bytes) in file.unflushed.drain(..) {
                file.dropped.retain(|(dropped, _)| *dropped != sector);
                write_at(&mut file.durable, sector * SECTOR, &bytes);
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FolderError> {
        let place = self.place(from)?;
        self.names.remove(from);
        self.names.insert(to.to_owned(), place);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), FolderError> {
        self.place(name)?;
        self.names.remove(name);
        Ok(())
    }

    fn planted(&self) -> DiskPlantedBugs {
        self.planted
    }

    fn flush_folder(&mut self) -> Result<(), FolderError> {
        if self.faults.flushes {
            return Err(failed("", "the virtual disk fails"));
        }
        if !self.faults.lies {
            self.durable_names.clone_from(&self.names);
        }
        Ok(())
    }
}

/// How long a virtual disk takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskDelays {
    /// The shortest time of an operation.
    pub least: Duration,
    /// The longest time of an operation that does not stall.
    pub most: Duration,
    /// One operation in so many stalls; 0 for none.
    pub stalls_one_in: u64,
    /// What a stalled operation takes longer.
    pub stall: Duration,
}

/// The effects of a log on their way to a disk, in virtual time.
#[derive(Debug, Clone)]
pub struct DiskQueue {
    delays: DiskDelays,
    random: Random,
    /// When each effect is done. Files are made beside the others.
    waiting: VecDeque<(Duration, LogEffect)>,
    making: VecDeque<(Duration, LogEffect)>,
}

impl DiskQueue {
    /// An idle queue, whose delays are drawn from `random`.
    #[must_use]
    pub fn new(delays: DiskDelays, random: Random) -> DiskQueue {
        DiskQueue { delays, random, waiting: VecDeque::new(), making: VecDeque::new() }
    }

    /// What effects take that are submitted from now on.
    pub fn set_delays(&mut self, delays: DiskDelays) {
        self.delays = delays;
    }

    /// Takes an effect at the time `now`.
    pub fn submit(&mut self, now: Duration, effect: LogEffect) {
        let (least, most) = (self.delays.least, self.delays.most);
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
        let mut takes = least + Duration::from_nanos(self.random.range_inclusive(0, span));
        let one_in = self.delays.stalls_one_in;
        if one_in > 0 && self.random.below(one_in) == 0 {
            takes += self.delays.stall;
        }
        let queue = match effect {
            LogEffect::Make { .. } => &mut self.making,
            LogEffect::Write { .. } | LogEffect::Flush { .. } | LogEffect::Remove { .. } => {
                &mut self.waiting
            }
        };
        let begin = queue.back().map_or(now, |(done, _)| now.max(*done));
        queue.push_back((begin + takes, effect));
    }

    /// When the next effect is done; `None` where none is under way.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let next = [&self.waiting, &self.making].map(|queue| queue.front().map(|(due, _)| *due));
        next.into_iter().flatten().min()
    }

    /// Carries out the next effect that is done by the time `now`, and returns the answer.
    pub fn complete(&mut self, now: Duration, disk: &mut VirtualDisk) -> Option<LogEvent> {
        let due = self.due().filter(|due| *due <= now)?;
        let is_made = self.making.front().is_some_and(|(done, _)| *done == due);
        let queue = if is_made { &mut self.making } else { &mut self.waiting };
        let (_, effect) = queue.pop_front().expect("it is due");
        Some(perform(disk, &effect))
    }

    /// Forgets what is under way, as a crash of the process does.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.making.clear();
    }
}
