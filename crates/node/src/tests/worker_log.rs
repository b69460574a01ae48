//! A worker's log on a virtual disk: restarts, checkpoints, damage.

use crate::{
    CheckpointBlock, CheckpointParts, CheckpointStep, DiskEffect, DiskWork, LogNews, OpenedLog,
    WorkerLog, WorkerLogError, WorkerLogOptions,
};
use bytes::Bytes;
use shoal_log::{LogLength, MemoryStorage, StreamRecord, StreamStorage};
use shoal_types::wire::encode;
use shoal_types::{Ballot, Epoch, NodeId, Random, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{LogError, LogIdentity, Record, WriterOptions, checkpoint_name, checkpoints};
use std::collections::VecDeque;

const SHARD: ShardId = ShardId(3);
const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(1), volume: 77 };
const OPTIONS: WorkerLogOptions = WorkerLogOptions {
    writer: WriterOptions { segment_bytes: 8 << 9, group_bytes_max: 1 << 10 },
    checkpoint_bytes: 8 << 10,
};

/// A worker with one stream, whose disk does one operation at a time.
struct Bed {
    disk: VirtualDisk,
    work: DiskWork,
    log: WorkerLog,
    effects: VecDeque<DiskEffect>,
    storage: MemoryStorage,
    /// Records that were written, each with the number of entries after it.
    written: VecDeque<u64>,
    /// So many entries may be acknowledged.
    durable: u64,
    news: Vec<LogNews>,
}

fn entry(index: u64) -> Bytes {
    Bytes::from(vec![index as u8; 200])
}

impl Bed {
    /// A process that begins with what the disk has.
    fn open(mut disk: VirtualDisk) -> Bed {
        let mut effects = Vec::new();
        let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, &mut effects).unwrap();
        let OpenedLog { log, mut recovered, .. } = opened;
        let storage = recovered.storages.remove(&SHARD);
        let storage = storage.unwrap_or_else(MemoryStorage::recorded);
        let durable = storage.log().length().0;
        Bed {
            disk,
            work: DiskWork::default(),
            log,
            effects: effects.into(),
            storage,
            written: VecDeque::new(),
            durable,
            news: Vec::new(),
        }
    }

    /// The stream accepts one more entry, and all are decided.
    fn append(&mut self) {
        let length = self.storage.log().length();
        if length == LogLength::ZERO {
            let ballot = Ballot { epoch: Epoch(1), node: NodeId(2) };
            self.storage.promise(ballot);
            self.storage.replace(ballot, length, vec![]);
        }
        self.storage.append(entry(length.0));
        self.storage.decide(length);
        let records = self.storage.take_records();
        self.written.extend(records.iter().map(|_| length.0));
        *self.written.back_mut().expect("an entry has a record") += 1;
        let record = |record: &StreamRecord| Record {
            kind: StreamRecord::KIND,
            shard: SHARD,
            payload: record.encode(),
        };
        let mut effects = Vec::new();
        self.log.write(records.iter().map(|it| record(&it.record)).collect(), &mut effects);
        self.effects.extend(effects);
    }

    fn checkpoint(&mut self, step: CheckpointStep) {
        let mut effects = Vec::new();
        self.log.checkpoint_step(IDENTITY, step, &mut effects);
        self.effects.extend(effects);
    }

    /// A checkpoint whose parts stand for all that is decided.
    fn whole_checkpoint(&mut self) {
        let length = self.storage.decided();
        let (shard, state) = (SHARD, Bytes::new());
        self.checkpoint(CheckpointStep::Begin);
        let head = self.storage.head(length);
        for block in [
            CheckpointBlock::Head { shard, head },
            CheckpointBlock::Part { shard, part: Bytes::from(vec![7; 3000]) },
            CheckpointBlock::Snapshot { shard, length, state },
        ] {
            self.checkpoint(CheckpointStep::Block(encode(&block)));
        }
        self.checkpoint(CheckpointStep::End);
    }

    /// Carries out the next operation, if there is one.
    fn work(&mut self) -> bool {
        let Some(effect) = self.effects.pop_front() else { return false };
        let event = self.work.perform(&mut self.disk, effect);
        let mut effects = Vec::new();
        self.log.step(event, &mut effects);
        self.effects.extend(effects);
        let mut news = Vec::new();
        self.log.take_news(&mut news);
        for news in news {
            match news {
                LogNews::Recorded { records } => {
                    let lengths = self.written.drain(..records as usize);
                    self.durable = lengths.fold(self.durable, u64::max);
                }
                news => self.news.push(news),
            }
        }
        true
    }

    fn work_all(&mut self) {
        while self.work() {}
    }

    /// What was acknowledged is there, and the next process goes on from it.
    fn lose_power(self, random: &mut Random) -> Bed {
        let Bed { mut disk, durable, .. } = self;
        disk.lose_power(|| random.chance(1, 2));
        let bed = Bed::open(disk);
        let log = bed.storage.log();
        assert!(log.length().0 >= durable, "{log:?} lacks entries of {durable}");
        for index in log.start().0..log.length().0 {
            assert_eq!(log.entry(index), Some(&entry(index)));
        }
        bed
    }
}

#[test]
fn power_fails_after_every_operation_and_nothing_acknowledged_is_lost() {
    for operations in 0..120 {
        let mut random = Random::new(operations);
        let mut bed = Bed::open(VirtualDisk::new());
        for round in 0..operations {
            bed.append();
            if round % 7 == 3 {
                bed.whole_checkpoint();
            }
            bed.work();
            bed.work();
        }
        (0..3).for_each(|_| _ = bed.work());
        let mut bed = bed.lose_power(&mut random);
        bed.append();
        bed.work_all();
        let before = bed.durable;
        assert_eq!(bed.lose_power(&mut random).durable, before);
    }
}

#[test]
fn segments_are_freed_when_two_checkpoints_are_durable() {
    let mut bed = Bed::open(VirtualDisk::new());
    let mut bytes = Vec::new();
    for _ in 0..6 {
        (0..40).for_each(|_| bed.append());
        bed.work_all();
        assert!(bed.news.contains(&LogNews::CheckpointDue), "{:?}", bed.news);
        bed.news.clear();
        bed.whole_checkpoint();
        bed.work_all();
        assert!(bed.news.contains(&LogNews::Checkpointed { is_durable: true }));
        bytes.push(bed.log.bytes());
    }
    assert_eq!(bytes[3], bytes[5], "the log grows: {bytes:?}");
    assert_eq!(checkpoints(&mut bed.disk).unwrap(), [6, 5]);
}

#[test]
fn a_damaged_checkpoint_is_replaced_by_the_one_before() {
    let mut bed = Bed::open(VirtualDisk::new());
    for _ in 0..3 {
        (0..40).for_each(|_| bed.append());
        bed.whole_checkpoint();
        bed.work_all();
    }
    bed.append();
    bed.work_all();
    let (durable, mut disk) = (bed.durable, bed.disk);
    assert!(disk.flip(&checkpoint_name(3), 8 * 500));
    let mut effects = Vec::new();
    let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, &mut effects).unwrap();
    let parts = CheckpointParts { number: 2, shards: [SHARD].into() };
    assert_eq!((opened.checkpoint, opened.damaged.len()), (Some(parts), 1));
    let storage = &opened.recovered.storages[&SHARD];
    assert_eq!(storage.log().length(), LogLength(durable));
    assert!(disk.flip(&checkpoint_name(2), 8 * 500));
    let error = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, &mut effects).unwrap_err();
    assert!(matches!(error, WorkerLogError::Log(LogError::Damaged { .. })), "{error}");
}

#[test]
fn what_follows_a_snapshot_without_its_rows_is_void_also_after_more_restarts() {
    let mut bed = Bed::open(VirtualDisk::new());
    (0..5).for_each(|_| bed.append());
    bed.storage.restore(LogLength(50));
    bed.append();
    bed.work_all();
    let mut random = Random::new(1);
    let Bed { mut disk, .. } = bed;
    for more in 1..4 {
        disk.lose_power(|| random.chance(1, 2));
        let mut bed = Bed::open(disk);
        assert_eq!(bed.storage.log().length(), LogLength(4 + more));
        bed.append();
        bed.work_all();
        disk = bed.disk;
    }
}
