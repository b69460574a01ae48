//! Every crash of small logs: power is lost before each operation of the disk, and any of the sectors that were not flushed
//! survive. What is recovered once was, has everything that was acknowledged, and stays when the log goes on.

use crate::testbed::{Process, SMALL, Traced, record, records_of};
use shoal_types::Random;
use shoal_wal::virtual_disk::VirtualDisk;
use shoal_wal::{DiskPlantedBugs, LogWriter, Record, SECTOR, WriterOptions};
use std::panic::catch_unwind;

/// What a log may be after a crash: it begins with all that was ever appended, up to somewhere behind what was acknowledged.
struct Truth<'t> {
    appended: &'t [Record],
    acknowledged: usize,
    /// The first segment that is needed.
    first: u64,
    /// Records from this one on are in that segment or behind.
    needed: usize,
}

impl Truth<'_> {
    /// Checks what is recovered from the disk, and returns all records that count from then on.
    fn check(&self, disk: &mut VirtualDisk) -> Vec<Record> {
        let (_, found) = records_of(disk, self.first).expect("a crash damages nothing");
        // Records before those that are needed may be there, or not.
        let start =
            (0..=self.needed).rev().find(|start| self.appended[*start..].starts_with(&found));
        let start = start.unwrap_or_else(|| panic!("this never was: {found:?}"));
        let end = start + found.len();
        assert!(end >= self.acknowledged, "{end} of {} acknowledged", self.acknowledged);
        self.appended[..end].to_vec()
    }
}

/// What a process does between two crashes.
#[derive(Clone, Copy, Debug)]
enum Action {
    Append(usize),
    /// Everything that was asked for is done before the next action.
    Finish,
    Truncate,
    Seal,
}

/// Runs `actions` on `disk`, whose log has `before`, and shows every state before an operation, with what is known of it.
fn run(
    disk: VirtualDisk,
    options: WriterOptions,
    first: u64,
    before: &[Record],
    actions: &[Action],
    mut visit: impl FnMut(&VirtualDisk, &Truth<'_>),
) {
    let traced = Traced { disk, states: Vec::new() };
    let (mut process, found) = Process::start(traced, options, first);
    let skipped = before.len() - found.len();
    assert_eq!(before[skipped..], found, "the state that was found before");
    let mut appended = before.to_vec();
    let (mut first, mut needed) = (first, skipped);
    let mut drain =
        |process: &mut Process<Traced>, appended: &[Record], first, needed, all: bool| {
            loop {
                let acknowledged = before.len() + process.writer.persisted() as usize;
                let truth = Truth { appended, acknowledged, first, needed };
                let goes_on = process.work();
                for state in std::mem::take(&mut process.folder.states) {
                    visit(&state, &truth);
                }
                if !goes_on || !all {
                    return visit(&process.folder.disk, &truth);
                }
            }
        };
    for action in actions {
        match *action {
            Action::Append(bytes) => {
                let record = record(appended.len(), bytes);
                appended.push(record.clone());
                process.append(record);
            }
            Action::Finish => drain(&mut process, &appended, first, needed, true),
            Action::Truncate => {
                (first, needed) = (process.writer.serial(), appended.len());
                process.change(|writer, effects| writer.truncate(first, effects));
            }
            Action::Seal => process.change(LogWriter::seal),
        }
        drain(&mut process, &appended, first, needed, false);
    }
    drain(&mut process, &appended, first, needed, true);
    assert_eq!(process.writer.persisted() as usize, appended.len() - before.len());
}

/// Every crash of a first process, and, for one in so many of these, every crash of a second one; where a page is a sector,
/// a header, or more than that.
fn explore(actions: &[Action], second: &[Action], one_in: u64) {
    for page_bytes in [SECTOR, 2 * SECTOR, 4 * SECTOR] {
        let options = WriterOptions { page_bytes, ..SMALL };
        explore_from(VirtualDisk::new(), options, actions, second, one_in);
    }
}

/// As [`explore`], on a disk that is empty, with these options.
fn explore_from(
    disk: VirtualDisk,
    options: WriterOptions,
    actions: &[Action],
    second: &[Action],
    one_in: u64,
) {
    let mut random = Random::new(7);
    let (mut states, mut seconds) = (0_u64, 0);
    run(disk, options, 1, &[], actions, |disk, truth| {
        let mut found = Vec::new();
        disk.crashes(&mut random, |mut crashed| {
            let records = truth.check(&mut crashed);
            found.push((crashed, records));
        });
        for (crashed, records) in found {
            states += 1;
            if states % one_in != 0 {
                continue;
            }
            run(crashed, options, truth.first, &records, second, |disk, truth| {
                disk.crashes(&mut random, |mut crashed| {
                    seconds += 1;
                    truth.check(&mut crashed);
                });
            });
        }
    });
    assert!(states > 100 && seconds > 1000, "{states} states, {seconds} of a second process");
}

#[test]
fn small_groups() {
    use Action::{Append, Finish, Seal};
    let first = [Append(10), Append(0), Finish, Append(700), Append(5), Finish, Append(1), Seal];
    explore(&first, &[Append(3), Finish, Append(520)], 7);
}

#[test]
fn records_that_span_segments() {
    use Action::{Append, Finish};
    let first = [Append(2500), Append(1500), Append(9), Finish, Append(7000), Append(1)];
    explore(&first, &[Append(4000), Append(2)], 61);
}

#[test]
fn segments_that_are_used_again() {
    use Action::{Append, Finish, Truncate};
    let first = [
        Append(2900),
        Finish,
        Append(2900),
        Finish,
        Append(200),
        Finish,
        Truncate,
        Append(2900),
        Finish,
        Append(2900),
        Truncate,
        Append(2901),
        Finish,
        Append(100),
    ];
    explore(&first, &[Append(2800), Finish, Truncate, Append(2900), Append(7)], 97);
}

/// The checks see a disk that does not do what it says.
#[test]
fn a_disk_that_lies_about_flushes_loses_what_was_acknowledged() {
    let mut disk = VirtualDisk::new();
    let (mut process, _) = Process::start(disk, SMALL, 1);
    process.finish();
    process.folder.faults.lies = true;
    process.append(record(0, 10));
    process.finish();
    assert_eq!(process.writer.persisted(), 1);
    disk = process.folder;
    disk.lose_power(|| false);
    let (_, found) = records_of(&mut disk, 1).unwrap();
    assert!(found.is_empty(), "the flush was no flush: {found:?}");
}

/// What a killed process had written and not flushed is read by the next, which flushes it before it goes on.
#[test]
fn what_was_read_is_flushed() {
    let (mut process, _) = Process::start(VirtualDisk::new(), SMALL, 1);
    process.finish();
    process.append(record(0, 10));
    assert!(process.work(), "it is written");
    assert_eq!(process.writer.persisted(), 0);
    let (mut next, found) = Process::start(process.folder, SMALL, 1);
    assert_eq!(found, [record(0, 10)]);
    assert_eq!(next.folder.unflushed(), 0);
    next.finish();
    next.folder.lose_power(|| false);
    let (recovered, found) = records_of(&mut next.folder, 1).unwrap();
    assert_eq!((found.len(), recovered.incarnation), (1, 2));
}

type Plant = fn(&mut DiskPlantedBugs);

/// Each bug of the log that crashes can show is found by them.
#[test]
fn crashes_show_what_is_planted() {
    use Action::{Append, Finish, Truncate};
    let planted = |plant: Plant| {
        let mut planted = DiskPlantedBugs::default();
        plant(&mut planted);
        VirtualDisk::new().with_planted(planted)
    };
    let spans: &[Action] =
        &[Append(2500), Append(10), Append(900), Append(9), Finish, Append(3000)];
    let used_again: &[Action] = &[
        Append(2500),
        Finish,
        Append(2500),
        Finish,
        Append(200),
        Finish,
        Truncate,
        Append(1300),
        Finish,
        Append(9),
        Finish,
    ];
    let cases: [(&str, Plant, &[Action]); 5] = [
        ("skip_flush", |bugs| bugs.skip_flush = true, spans),
        ("skip_checksums", |bugs| bugs.skip_checksums = true, spans),
        ("read_past_gap", |bugs| bugs.read_past_gap = true, spans),
        ("trust_unflushed", |bugs| bugs.trust_unflushed = true, spans),
        ("accept_former_use", |bugs| bugs.accept_former_use = true, used_again),
    ];
    for (name, plant, actions) in cases {
        let disk = planted(plant);
        let explored = catch_unwind(|| {
            explore_from(disk, SMALL, actions, &[Append(4000), Append(2)], 13);
        });
        assert!(explored.is_err(), "no crash shows {name}");
    }
}
