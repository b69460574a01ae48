//! A worker's log on a virtual disk: restarts, checkpoints, damage.

use crate::recovery::PROCESSES_MAX;
use crate::{
    CheckpointBlock, CheckpointEffect, CheckpointParts, CheckpointStep, DiskEffect, DiskEvent,
    DiskWork, LogNews, OpenedLog, WorkerLog, WorkerLogError, WorkerLogOptions, named_by_all,
};
use bytes::Bytes;
use shoal_cluster::manager::ProcessInstance;
use shoal_log::{LogLength, MemoryStorage, StreamRecord, StreamStorage};
use shoal_types::{Ballot, Epoch, NodeId, Random, ShardId};
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{
    DiskPlantedBugs, LogError, LogEvent, LogIdentity, Record, WriterOptions, checkpoint_name,
    checkpoints,
};
use std::collections::VecDeque;
use std::panic::catch_unwind;

const SHARD: ShardId = ShardId(3);
const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(1), volume: 77 };
const PROCESS: ProcessInstance = ProcessInstance(9);
const OPTIONS: WorkerLogOptions = WorkerLogOptions {
    writer: WriterOptions { segment_bytes: 8 << 9, group_bytes_max: 1 << 10, page_bytes: 1 << 10 },
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
    checkpoints_begun: u64,
}

fn entry(index: u64) -> Bytes {
    Bytes::from(vec![index as u8; 200])
}

impl Bed {
    /// A process that begins with what the disk has.
    fn open(mut disk: VirtualDisk) -> Bed {
        let mut effects = Vec::new();
        let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, PROCESS, &mut effects).unwrap();
        Bed::of(disk, opened, effects)
    }

    fn of(disk: VirtualDisk, opened: OpenedLog, effects: Vec<DiskEffect>) -> Bed {
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
            checkpoints_begun: 0,
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
        self.checkpoints_begun += 1;
        self.checkpoint(CheckpointStep::Begin { number: self.checkpoints_begun });
        let head = self.storage.head(length);
        for block in [
            CheckpointBlock::Head { shard, head },
            CheckpointBlock::Part { shard, part: Bytes::from(vec![7; 3000]) },
            CheckpointBlock::Snapshot { shard, length, state },
        ] {
            self.checkpoint(CheckpointStep::Block(block));
        }
        self.checkpoint(CheckpointStep::End);
    }

    /// Carries out the next operation, if there is one.
    fn work(&mut self) -> bool {
        self.work_on(|_| true)
    }

    /// Carries out the next operation of those that are chosen, if there is one.
    fn work_on(&mut self, is_chosen: fn(&DiskEffect) -> bool) -> bool {
        let Some(at) = self.effects.iter().position(is_chosen) else { return false };
        let effect = self.effects.remove(at).expect("it is there");
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
        Bed::after_crash(disk, durable)
    }

    /// The next process after one that had acknowledged so many entries.
    fn after_crash(disk: VirtualDisk, durable: u64) -> Bed {
        let bed = Bed::open(disk);
        let log = bed.storage.log();
        assert!(log.length().0 >= durable, "{log:?} lacks entries of {durable}");
        for index in log.start().0..log.length().0 {
            assert_eq!(log.entry(index), Some(&entry(index)));
        }
        bed
    }
}

/// Every crash of a process that appends and writes checkpoints, beside the log and more slowly than that, before each operation of its
/// disk; and, after some of these, every crash of the next process. Returns how many there were.
fn every_crash(disk: VirtualDisk, appends: usize, second: bool) -> u32 {
    let (mut random, mut crashes) = (Random::new(5), 0);
    let mut bed = Bed::open(disk);
    for append in 0..appends {
        bed.append();
        if append % 15 == 9 {
            bed.whole_checkpoint();
        }
        for turn in 0..3 {
            let mut crashed = Vec::new();
            bed.disk.crashes(&mut random, |disk| crashed.push(disk));
            for disk in crashed {
                crashes += 1;
                let next = Bed::after_crash(disk, bed.durable);
                if second && crashes % 50 == 0 {
                    crashes += every_crash(next.disk, 20, false);
                }
            }
            match turn {
                2 if append % 2 == 0 => {
                    bed.work_on(|it| matches!(it, DiskEffect::Checkpoint { .. }))
                }
                _ => bed.work_on(|it| matches!(it, DiskEffect::Log(_))),
            };
        }
    }
    crashes
}

#[test]
fn what_is_appended_while_a_group_is_flushed_is_the_next_group() {
    let mut bed = Bed::open(VirtualDisk::new());
    while bed.work() {}
    let append = |bed: &mut Bed, length: u64| {
        bed.written.push_back(length);
        bed.log.append(vec![Record {
            kind: StreamRecord::KIND,
            shard: SHARD,
            payload: StreamRecord::Begin.encode(),
        }]);
    };
    append(&mut bed, 1);
    let mut effects = Vec::new();
    bed.log.go_on(&mut effects);
    bed.effects.extend(effects);
    assert!(bed.work(), "it is written");
    append(&mut bed, 2);
    append(&mut bed, 3);
    assert!(bed.work() && bed.durable == 1, "it is flushed");
    assert!(bed.work() && bed.work() && bed.durable == 3, "one write and one flush for both");
    assert!(!bed.work());
}

#[test]
fn whatever_a_crash_leaves_of_a_small_log_has_what_was_acknowledged() {
    let crashes = every_crash(VirtualDisk::new(), 60, true);
    assert!(crashes > 1000, "{crashes} crashes");
}

type Plant = fn(&mut DiskPlantedBugs);

/// Bugs of what comes between the worker and the disk.
#[test]
fn crashes_show_what_is_planted() {
    let cases: [(&str, Plant); 3] = [
        ("skip_flush", |bugs| bugs.skip_flush = true),
        ("rename_unflushed", |bugs| bugs.rename_unflushed = true),
        ("truncate_early", |bugs| bugs.truncate_early = true),
    ];
    for (name, plant) in cases {
        let mut planted = DiskPlantedBugs::default();
        plant(&mut planted);
        let disk = VirtualDisk::new().with_planted(planted);
        let explored = catch_unwind(|| every_crash(disk, 120, false));
        assert!(explored.is_err(), "no crash shows {name}");
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
        let number = bed.checkpoints_begun;
        assert!(bed.news.contains(&LogNews::Checkpointed { number, is_durable: true }));
        bytes.push(bed.log.bytes());
    }
    assert_eq!(bytes[3], bytes[5], "the log grows: {bytes:?}");
    assert_eq!(checkpoints(&mut bed.disk).unwrap(), [6, 5]);
}

#[test]
fn a_log_that_is_asked_to_get_shorter_takes_checkpoints_until_it_is() {
    let mut bed = Bed::open(VirtualDisk::new());
    let checkpoint = |bed: &mut Bed| {
        bed.news.clear();
        bed.whole_checkpoint();
        bed.work_all();
    };
    for _ in 0..3 {
        (0..40).for_each(|_| bed.append());
        bed.work_all();
        checkpoint(&mut bed);
    }
    (0..5).for_each(|_| bed.append());
    bed.work_all();
    let (before, mut taken) = (bed.log.bytes(), 0);
    loop {
        bed.news.clear();
        bed.log.take_news(&mut bed.news);
        assert!(!bed.news.contains(&LogNews::CheckpointDue), "it was not asked");
        bed.log.shorten();
        bed.log.take_news(&mut bed.news);
        if !bed.news.contains(&LogNews::CheckpointDue) {
            break;
        }
        taken += 1;
        checkpoint(&mut bed);
    }
    let (after, most) = (bed.log.bytes(), OPTIONS.checkpoint_bytes + 3000);
    assert!(before > most && after <= most, "{before} bytes, {after} after {taken} checkpoints");
    assert!(taken == 1 || taken == 2, "{taken} checkpoints");
}

/// A checkpoint is durable on the disk when the worker, which does not know that yet, begins another one instead.
#[test]
fn what_became_of_an_abandoned_checkpoint_says_nothing_of_the_next() {
    let mut bed = Bed::open(VirtualDisk::new());
    bed.append();
    bed.whole_checkpoint();
    let is_finish = |effect: &DiskEffect| {
        matches!(effect, DiskEffect::Checkpoint { effect: CheckpointEffect::Finish { .. }, .. })
    };
    while !bed.effects.iter().any(is_finish) {
        bed.work();
    }
    let at = bed.effects.iter().position(is_finish).expect("seen above");
    let finish = bed.effects.remove(at).expect("it is there");
    let finished = bed.work.perform(&mut bed.disk, finish);
    bed.checkpoint(CheckpointStep::Abandon);
    bed.whole_checkpoint();
    bed.news.clear();
    let mut effects = Vec::new();
    bed.log.step(finished, &mut effects);
    bed.log.take_news(&mut bed.news);
    assert_eq!((effects.len(), &bed.news[..]), (0, &[][..]));
    bed.work_all();
    assert!(bed.news.contains(&LogNews::Checkpointed { number: 2, is_durable: true }));
    assert_eq!(checkpoints(&mut bed.disk).unwrap(), [2]);
}

/// While the disk is full, a checkpoint that was given up is not begun again at once: each one writes into the segment in reserve.
#[test]
fn a_checkpoint_that_was_given_up_is_due_again_when_the_log_has_grown() {
    let mut bed = Bed::open(VirtualDisk::new());
    (0..40).for_each(|_| bed.append());
    bed.work_all();
    assert!(bed.news.contains(&LogNews::CheckpointDue));
    bed.disk.bytes_max = Some(bed.disk.bytes());
    bed.news.clear();
    bed.whole_checkpoint();
    bed.work_all();
    bed.news.retain(|news| !matches!(news, LogNews::CheckpointWritten { .. }));
    assert_eq!(bed.news, [LogNews::Checkpointed { number: 1, is_durable: false }]);
    bed.disk.bytes_max = None;
    let mut effects = Vec::new();
    bed.log.step(DiskEvent::Log(LogEvent::Retry), &mut effects);
    bed.effects.extend(effects);
    (0..40).for_each(|_| bed.append());
    bed.work_all();
    assert!(bed.news.contains(&LogNews::CheckpointDue));
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
    let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, PROCESS, &mut effects).unwrap();
    let parts = CheckpointParts { number: 2, shards: [SHARD].into() };
    assert_eq!((opened.checkpoint, opened.damaged.len()), (Some(parts), 1));
    let storage = &opened.recovered.storages[&SHARD];
    assert_eq!(storage.log().length(), LogLength(durable));
    assert!(disk.flip(&checkpoint_name(2), 8 * 500));
    let error = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, PROCESS, &mut effects).unwrap_err();
    assert!(matches!(error, WorkerLogError::Log(LogError::Damaged { .. })), "{error}");
}

/// The log from the beginning on stands for a second checkpoint, also in later processes.
#[test]
fn while_there_is_one_checkpoint_a_damaged_one_costs_nothing() {
    let mut bed = Bed::open(VirtualDisk::new());
    (0..40).for_each(|_| bed.append());
    bed.whole_checkpoint();
    bed.work_all();
    for _ in 0..2 {
        bed = Bed::open(bed.disk);
        (0..40).for_each(|_| bed.append());
        bed.work_all();
    }
    let durable = bed.durable;
    assert!(bed.disk.flip(&checkpoint_name(1), 8 * 500));
    let mut bed = Bed::after_crash(bed.disk, durable);
    // Two others, and it is not needed any more.
    for _ in 0..2 {
        (0..40).for_each(|_| bed.append());
        bed.whole_checkpoint();
        bed.work_all();
    }
    let bytes = bed.log.bytes();
    assert!(bytes < OPTIONS.checkpoint_bytes + 8 * OPTIONS.writer.segment_bytes, "{bytes} bytes");
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

/// A checkpoint that was damaged before says nothing of a snapshot that came later (seed 941524912).
#[test]
fn a_snapshot_beside_a_damaged_checkpoint_is_void_as_others_are() {
    let mut bed = Bed::open(VirtualDisk::new());
    (0..5).for_each(|_| bed.append());
    bed.whole_checkpoint();
    bed.work_all();
    assert!(bed.disk.flip(&checkpoint_name(1), 8 * 500));
    let mut bed = Bed::open(bed.disk);
    assert_eq!(bed.storage.log().length(), LogLength(5), "the log has everything");
    bed.storage.restore(LogLength(50));
    bed.append();
    bed.work_all();
    assert_eq!(Bed::open(bed.disk).storage.log().length(), LogLength(5));
}

/// The process that was admitted last is found however much of the log was freed since it began.
#[test]
fn former_processes_are_named_when_their_records_are_freed() {
    let mut disk = VirtualDisk::new();
    for number in 1..=20 {
        let mut effects = Vec::new();
        let process = ProcessInstance(number);
        let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, process, &mut effects).unwrap();
        let former = (1..number).map(ProcessInstance);
        assert!(opened.processes.iter().copied().eq(former), "{number}: {:?}", opened.processes);
        let mut bed = Bed::of(disk, opened, effects);
        for _ in 0..3 {
            (0..40).for_each(|_| bed.append());
            bed.whole_checkpoint();
            bed.work_all();
        }
        disk = bed.disk;
    }
    let named = |numbers: &[u64]| numbers.iter().copied().map(ProcessInstance).collect();
    let logs: [Vec<_>; 3] = [named(&[1, 2, 3]), named(&[]), named(&[2, 3, 4])];
    assert_eq!(named_by_all(logs), named(&[2, 3]) as Vec<_>);
    let all: Vec<u64> = (0..PROCESSES_MAX as u64).collect();
    assert_eq!(named_by_all([named(&all)]), [], "others may have been dropped");
}

/// The checkpoint before does not say what a snapshot from a peer, and its checkpoint, stood for.
#[test]
fn a_damaged_checkpoint_with_the_rows_of_a_snapshot_is_replaced_by_none() {
    let mut bed = Bed::open(VirtualDisk::new());
    for round in 0..3 {
        (0..40).for_each(|_| bed.append());
        if round == 2 {
            bed.storage.restore(LogLength(500));
            bed.append();
        }
        bed.whole_checkpoint();
        bed.work_all();
    }
    let mut disk = bed.disk;
    WorkerLog::open(&mut disk.clone(), IDENTITY, OPTIONS, PROCESS, &mut Vec::new()).unwrap();
    assert!(disk.flip(&checkpoint_name(3), 8 * 500));
    let opened = WorkerLog::open(&mut disk, IDENTITY, OPTIONS, PROCESS, &mut Vec::new());
    assert!(matches!(opened, Err(error) if error.is_damage()));
}
