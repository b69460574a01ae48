//! Disks that fail, are full, or are slow.

use crate::testbed::{IDENTITY, Process, SMALL, record, records_of};
use shoal_types::Random;
use shoal_wal::virtual_disk::{DiskDelays, DiskFaults, DiskQueue, VirtualDisk};
use shoal_wal::{LogEvent, LogWriter};
use std::time::Duration;

#[test]
fn after_a_failed_operation_nothing_more_is_asked_for() {
    let failing = [
        DiskFaults { writes: true, ..DiskFaults::default() },
        DiskFaults { flushes: true, ..DiskFaults::default() },
    ];
    for faults in failing {
        let (mut process, _) = Process::start(VirtualDisk::new(), SMALL, 1);
        process.append(record(0, 10));
        process.finish();
        process.folder.faults = faults;
        process.append(record(1, 10));
        process.finish();
        assert!(process.writer.failure().is_some(), "{faults:?}");
        process.folder.faults = DiskFaults::default();
        process.append(record(2, 10));
        assert!(!process.work(), "a failed log asks for nothing");
        assert_eq!(process.writer.persisted(), 1);
        process.folder.lose_power(|| false);
        let (_, found) = records_of(&mut process.folder, 1).unwrap();
        assert_eq!(found, [record(0, 10)]);
    }
}

#[test]
fn a_full_disk_is_told_while_there_is_room_and_over_when_there_is_more() {
    let mut disk = VirtualDisk::new();
    disk.bytes_max = Some(SMALL.segment_bytes + 100);
    let (mut process, _) = Process::start(disk, SMALL, 1);
    process.append(record(0, 10));
    process.finish();
    assert!(process.writer.is_full(), "there is no second segment");
    assert_eq!(process.writer.persisted(), 1, "the first one has room");
    process.append(record(1, 5000));
    process.finish();
    process.change(|writer, effects| writer.step(LogEvent::Retry, effects));
    process.finish();
    assert!(process.writer.is_full(), "it is full still");
    assert_eq!((process.writer.persisted(), process.writer.failure()), (1, None));
    process.folder.bytes_max = None;
    process.change(|writer, effects| writer.step(LogEvent::Retry, effects));
    process.finish();
    assert!(!process.writer.is_full());
    assert_eq!(process.writer.persisted(), 2);
    process.folder.lose_power(|| false);
    let (_, found) = records_of(&mut process.folder, 1).unwrap();
    assert_eq!(found, [record(0, 10), record(1, 5000)]);
}

/// Records arrive at random times, the disk takes its time, power is lost at a random time.
#[test]
fn slow_disks_group_what_arrives_meanwhile() {
    let delays = DiskDelays {
        least: Duration::from_micros(50),
        most: Duration::from_micros(300),
        stalls_one_in: 20,
        stall: Duration::from_millis(5),
    };
    let (mut records, mut flushes) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut disk = VirtualDisk::new();
        let mut queue = DiskQueue::new(delays, random.fork(1));
        let (recovered, _) = records_of(&mut disk, 1).unwrap();
        let mut effects = Vec::new();
        let mut writer = LogWriter::begin(IDENTITY, SMALL, recovered, &mut effects);
        let mut appended = Vec::new();
        let end = Duration::from_micros(random.range_inclusive(1, 60_000));
        let (mut now, mut next) = (Duration::ZERO, Duration::ZERO);
        while now < end {
            effects.drain(..).for_each(|effect| queue.submit(now, effect));
            if next <= now {
                let record = record(appended.len(), random.below(900) as usize);
                appended.push(record.clone());
                writer.append(record);
                writer.go_on(&mut effects);
                next = now + Duration::from_micros(random.range_inclusive(1, 400));
            } else if let Some(event) = queue.complete(now, &mut disk) {
                flushes += u32::from(event == LogEvent::Flushed);
                writer.step(event, &mut effects);
            } else {
                now = queue.due().map_or(next, |due| due.min(next));
            }
        }
        queue.clear();
        disk.lose_power(|| random.below(2) == 1);
        let (_, found) = records_of(&mut disk, 1).unwrap();
        assert!(appended.starts_with(&found), "seed {seed}");
        assert!(found.len() as u64 >= writer.persisted(), "seed {seed}");
        records += appended.len() as u32;
    }
    assert!(flushes * 2 < records, "{flushes} flushes for {records} records");
}
