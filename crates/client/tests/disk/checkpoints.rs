//! Checkpoints and backups of a database that is in use.

use crate::{files, rows, small};
use shoal_client::{Db, TableId};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ACCOUNTS: u64 = 3000;

/// Moves amounts between accounts, whose sum is 0, until it is answered to stop; deletes those that have 0.
fn transfer(db: &Db, table: TableId, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = shoal_types::Random::new(seed);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let pair = [0; 2].map(|_: u64| random.below(ACCOUNTS).to_be_bytes());
        let amount = random.below(3) as i64;
        db.transact_blocking(|tx| {
            for (account, amount) in [(pair[0], amount), (pair[1], -amount)] {
                if tx.add(table, &account, amount)? == 0 {
                    tx.delete(table, &account)?;
                }
            }
            Ok(())
        })
        .unwrap();
        count += 1;
    }
    count
}

fn sum(db: &Db) -> i64 {
    let value = |value: Vec<u8>| i64::from_le_bytes(value.try_into().unwrap());
    rows(db, "accounts").into_iter().map(|(_, bytes)| value(bytes)).sum()
}

/// Runs transfers on threads beside `work`.
fn beside<T>(db: &Db, work: impl FnOnce() -> T) -> T {
    let table = db.table("accounts").unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let stop = &stop;
            scope.spawn(move || transfer(db, table, seed, stop));
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn checkpoints_are_taken_while_it_is_used_and_the_log_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        let db = Db::open_with(folder.path(), small()).unwrap();
        assert_eq!(rows(&db, "accounts"), expected, "round {round}");
        let embedded = db.embedded().unwrap();
        let before = embedded.checkpoints();
        beside(&db, || {
            while embedded.checkpoints() < before + 4 {
                thread::yield_now();
            }
        });
        assert_eq!(sum(&db), 0);
        expected = rows(&db, "accounts");
        assert!(expected.len() > 100, "{} rows", expected.len());
        drop(db);
        assert_eq!(files(folder.path(), "checkpoint"), 2);
    }
    let segments = files(folder.path(), "log-");
    assert!(segments < 60, "the log is cut: {segments} segments");
}

#[test]
fn a_damaged_checkpoint_is_not_used_where_there_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let expected = {
        let db = Db::open_with(folder.path(), small()).unwrap();
        let embedded = db.embedded().unwrap();
        beside(&db, || {
            while embedded.checkpoints() < 4 {
                thread::yield_now();
            }
        });
        rows(&db, "accounts")
    };
    let checkpoints = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_one =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint");
        let mut names: Vec<PathBuf> = paths.filter(is_one).collect();
        names.sort();
        names
    };
    let damage = |path: &PathBuf, beyond_middle: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 2 + beyond_middle;
        // One that was not finished is empty, and damaged as it is.
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    };
    damage(checkpoints().last().unwrap(), 0);
    {
        let db = Db::open_with(folder.path(), small()).unwrap();
        assert_eq!(rows(&db, "accounts"), expected);
    }
    // There may be another one since.
    checkpoints().iter().for_each(|path| damage(path, 1));
    let error = Db::open_with(folder.path(), small()).map(drop).unwrap_err().to_string();
    assert!(error.contains("a block is not whole"), "{error}");
}

#[test]
fn a_backup_is_a_state_that_was_with_all_that_came_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open_with(folder.path().join("db"), small()).unwrap();
    let marks = db.table("marks").unwrap();
    let embedded = db.embedded().unwrap();
    beside(&db, || {
        for backup in 0..4_u64 {
            db.transact_blocking(|tx| tx.put(marks, &backup.to_be_bytes(), b"")).unwrap();
            let path = folder.path().join(format!("backup-{backup}"));
            db.backup(&path).unwrap();
            assert!(db.backup(&path).is_err(), "it is not empty");
            let checkpoints = embedded.checkpoints();
            while backup < 2 && embedded.checkpoints() == checkpoints {
                thread::yield_now();
            }
        }
    });
    for backup in 0..4 {
        let copy = Db::open_with(folder.path().join(format!("backup-{backup}")), small()).unwrap();
        assert_eq!((sum(&copy), rows(&copy, "marks").len()), (0, backup + 1));
        let table = copy.table("accounts").unwrap();
        copy.transact_blocking(|tx| tx.add(table, b"new", 5)).expect("it goes on");
        assert_eq!(sum(&copy), 5);
    }
}
