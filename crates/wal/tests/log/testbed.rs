//! A log on a virtual disk, and what should be in it.

use shoal_types::{NodeId, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    DiskPlantedBugs, Folder, FolderError, LogEffect, LogError, LogIdentity, LogWriter, Record,
    Recovered, SECTOR, WriterOptions, perform, recover,
};
use std::collections::VecDeque;

pub const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(3), volume: 0x5eed };

/// Six sectors beside the header.
pub const SMALL: WriterOptions =
    WriterOptions { segment_bytes: 4096, group_bytes_max: 4096, page_bytes: SECTOR };

/// A record whose bytes say which it is.
pub fn record(number: usize, bytes: usize) -> Record {
    let payload = (0..bytes).map(|at| (number * 31 + at) as u8 | 1).collect();
    Record { kind: number as u8, shard: ShardId(number as u32), payload }
}

/// What recovery shows.
pub fn records_of(
    folder: &mut impl Folder,
    first: u64,
) -> Result<(Recovered, Vec<Record>), LogError> {
    let mut records = Vec::new();
    let recovered = recover(folder, Some(IDENTITY), first, &mut |record| {
        let payload = record.payload.to_vec();
        records.push(Record { kind: record.kind, shard: record.shard, payload });
    })?;
    Ok((recovered, records))
}

/// A disk that keeps the state before each of its operations.
#[derive(Default)]
pub struct Traced {
    pub disk: VirtualDisk,
    pub states: Vec<VirtualDisk>,
}

impl Traced {
    fn keep(&mut self) -> &mut VirtualDisk {
        self.states.push(self.disk.clone());
        &mut self.disk
    }
}

impl Folder for Traced {
    fn names(&mut self) -> Result<Vec<String>, FolderError> {
        self.disk.names()
    }
    fn length(&mut self, name: &str) -> Result<u64, FolderError> {
        self.disk.length(name)
    }
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, FolderError> {
        self.disk.read(name, offset, into)
    }
    fn create(&mut self, name: &str) -> Result<(), FolderError> {
        self.keep().create(name)
    }
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), FolderError> {
        self.keep().write(name, offset, bytes)
    }
    fn flush(&mut self, name: &str) -> Result<(), FolderError> {
        self.keep().flush(name)
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<(), FolderError> {
        self.keep().rename(from, to)
    }
    fn remove(&mut self, name: &str) -> Result<(), FolderError> {
        self.keep().remove(name)
    }
    fn flush_folder(&mut self) -> Result<(), FolderError> {
        self.keep().flush_folder()
    }
    fn planted(&self) -> DiskPlantedBugs {
        self.disk.planted()
    }
}

/// A process that writes a log.
pub struct Process<F> {
    pub folder: F,
    pub writer: LogWriter,
    pub effects: VecDeque<LogEffect>,
}

impl<F: Folder> Process<F> {
    /// Recovers the log, from the segment `first` on, and goes on with it. Returns the records, too.
    pub fn start(mut folder: F, options: WriterOptions, first: u64) -> (Process<F>, Vec<Record>) {
        let (recovered, records) = records_of(&mut folder, first).expect("a log that is whole");
        let mut effects = Vec::new();
        let writer = LogWriter::begin(IDENTITY, options, recovered, &mut effects);
        (Process { folder, writer, effects: effects.into() }, records)
    }

    pub fn append(&mut self, record: Record) -> u64 {
        let number = self.writer.append(record);
        self.change(|writer, effects| writer.go_on(effects));
        number
    }

    pub fn change(&mut self, change: impl FnOnce(&mut LogWriter, &mut Vec<LogEffect>)) {
        let mut effects = Vec::new();
        change(&mut self.writer, &mut effects);
        self.effects.extend(effects);
    }

    /// Carries out the next effect. Returns false where there is none.
    pub fn work(&mut self) -> bool {
        let Some(effect) = self.effects.pop_front() else { return false };
        let event = perform(&mut self.folder, &effect);
        self.change(|writer, effects| writer.step(event, effects));
        true
    }

    pub fn finish(&mut self) {
        while self.work() {}
    }

    pub fn seal(&mut self) {
        self.change(LogWriter::seal);
        self.finish();
        assert!(self.writer.is_closed(), "a sealed log is on the disk: {:?}", self.writer);
    }
}

/// A sealed log of these records on a disk, each in a group of its own.
pub fn sealed(records: &[Record]) -> VirtualDisk {
    let (mut process, _) = Process::start(VirtualDisk::new(), SMALL, 1);
    for record in records {
        process.append(record.clone());
        process.finish();
    }
    process.seal();
    process.folder
}
