//! The disk of a worker: a virtual one, with the log that its streams write to, in the format of real ones.

use shoal_log::{MemoryStorage, StreamRecord};
use shoal_types::{Random, ShardId, Time, WorkerPlace};
use shoal_wal::virtual_disk::{DiskDelays, DiskQueue, VirtualDisk};
use shoal_wal::{LogEffect, LogIdentity, LogWriter, Record, WriterOptions, recover};
use std::collections::BTreeMap;
use std::time::Duration;

/// Small, so that logs go over many segments, and records over several.
const OPTIONS: WriterOptions = WriterOptions { segment_bytes: 16 << 10, group_bytes_max: 4 << 10 };

/// One operation in so many stalls, for ten times the longest that others take.
const STALLS_ONE_IN: u64 = 200;

/// The disk of a worker, which outlives the processes of its node.
#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    identity: LogIdentity,
    disk: VirtualDisk,
    queue: DiskQueue,
    /// The log of the current process.
    writer: Option<LogWriter>,
    /// What the writer wants, and the disk has not received.
    wanted: Vec<LogEffect>,
    /// The records that the worker knows to be durable.
    reported: u64,
    random: Random,
}

impl SimulatedDisk {
    /// An empty disk, whose operations take at most `longest`.
    pub(crate) fn new(place: WorkerPlace, longest: Duration, mut random: Random) -> SimulatedDisk {
        let delays = DiskDelays {
            least: Duration::from_nanos(1),
            most: longest.max(Duration::from_nanos(2)),
            stalls_one_in: STALLS_ONE_IN,
            stall: longest * 10,
        };
        let WorkerPlace { node, worker } = place;
        let volume = random.next_u64() ^ u64::from(worker.0);
        SimulatedDisk {
            identity: LogIdentity { cluster: None, node, volume },
            disk: VirtualDisk::new(),
            queue: DiskQueue::new(delays, random.fork(1)),
            writer: None,
            wanted: Vec::new(),
            reported: 0,
            random,
        }
    }

    /// Begins the log of a process. Returns what the streams of the processes before had made durable.
    ///
    /// # Panics
    /// If the log cannot be read: no disk of a simulation is damaged.
    pub(crate) fn begin(&mut self) -> BTreeMap<ShardId, MemoryStorage> {
        let mut storages = BTreeMap::new();
        let node = self.identity.node;
        let recovered = recover(&mut self.disk, Some(self.identity), 1, &mut |record| {
            let storage = storages.entry(record.shard).or_insert_with(MemoryStorage::recorded);
            let decoded = StreamRecord::decode(record.payload);
            let replayed = decoded.and_then(|decoded| storage.replay(decoded));
            replayed.unwrap_or_else(|error| panic!("{node}, {}: {error}", record.shard));
        });
        let recovered = recovered.unwrap_or_else(|error| panic!("the log of {node}: {error}"));
        let writer = LogWriter::begin(self.identity, OPTIONS, recovered, &mut self.wanted);
        self.writer = Some(writer);
        self.reported = 0;
        storages
    }

    /// Appends records to the log.
    pub(crate) fn write(&mut self, records: Vec<Record>) {
        let writer = self.writer.as_mut().expect("a process writes");
        for record in records {
            writer.append(record);
        }
        writer.go_on(&mut self.wanted);
    }

    /// When the next operation ends, of those that are under way at `now`.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        for effect in self.wanted.drain(..) {
            self.queue.submit(Duration::from_nanos(now.0), effect);
        }
        let due = self.queue.due()?;
        Some(Time(u64::try_from(due.as_nanos()).expect("virtual time fits")))
    }

    /// Ends the operations that are done. Returns how many more records are durable.
    pub(crate) fn complete(&mut self, now: Time) -> u64 {
        let Some(writer) = &mut self.writer else { return 0 };
        let now = Duration::from_nanos(now.0);
        while let Some(event) = self.queue.complete(now, &mut self.disk) {
            writer.step(event, &mut self.wanted);
        }
        let persisted = writer.persisted();
        persisted - std::mem::replace(&mut self.reported, persisted)
    }

    /// Ends the process. Without power, any part of what was written and not flushed is lost.
    pub(crate) fn crash(&mut self, power: bool) {
        self.queue.clear();
        self.wanted.clear();
        self.writer = None;
        if !power {
            let random = &mut self.random;
            self.disk.lose_power(|| random.chance(1, 2));
        }
    }

    /// Replaces the disk by an empty one.
    pub(crate) fn replace(&mut self) {
        self.disk = VirtualDisk::new();
        self.identity.volume = self.random.next_u64();
    }
}
