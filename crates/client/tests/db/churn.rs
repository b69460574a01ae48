//! Churn: however much is written, memory returns to a steady state.

use shoal_client::{Db, Error, Options, TableId};
use shoal_types::{Random, Rejected};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Each part of the work is that of two new threads.
const PARTS: u64 = 10;

/// What sessions at rest may hold back: what waits to be freed, and counts not yet added up. Every
/// thread leaves one.
const SLACK_BYTES: usize = 2 * PARTS as usize * (384 << 10);

/// Runs `work` in parts of `rounds` rounds, each on two threads. After the first part memory does not
/// grow any more, once what waited for an interrupted thread has gone too.
fn steady(rounds: u64, work: impl Fn(&Db, TableId, u64, u64) + Sync) {
    let db = Db::memory();
    let table = db.table("t").expect("a table");
    let mut first = 0;
    for part in 0..PARTS {
        thread::scope(|scope| {
            for worker in 0..2 {
                let (db, work) = (db.clone(), &work);
                scope.spawn(move || {
                    (part * rounds..(part + 1) * rounds)
                        .for_each(|round| work(&db, table, worker, round));
                });
            }
        });
        if part == 0 {
            settle(&db, table, rounds, 0);
            first = bytes_of(&db);
        }
        settle(&db, table, rounds, first + SLACK_BYTES);
        let now = bytes_of(&db);
        assert!(now <= first + SLACK_BYTES, "part {part}: from {first} to {now} bytes");
    }
}

/// Bytes that the database takes.
pub fn bytes_of(db: &Db) -> usize {
    db.memory_bytes().expect("it is embedded")
}

/// Writes one key until memory is down to `bytes`, for at most `rounds` rounds.
fn settle(db: &Db, table: TableId, rounds: u64, bytes: usize) {
    let settled = (0..rounds).find(|round| {
        put(db, table, u64::MAX, &round.to_be_bytes());
        bytes_of(db) <= bytes
    });
    assert!(settled.is_some() || bytes == 0, "{} bytes do not go away", bytes_of(db));
}

fn put(db: &Db, table: TableId, key: u64, value: &[u8]) {
    db.transact_blocking(|tx| tx.put(table, &key.to_be_bytes(), value)).expect("attempts enough");
}

fn delete(db: &Db, table: TableId, key: u64) {
    db.transact_blocking(|tx| tx.delete(table, &key.to_be_bytes())).expect("attempts enough");
}

/// New values of all sizes under a few keys, which both threads write.
fn update(rounds: u64) {
    steady(rounds, |db, table, worker, round| {
        let mut random = Random::new(worker << 32 | round);
        let value = vec![1; random.below(600) as usize];
        put(db, table, random.below(64), &value);
    });
}

/// Keys that come and go for good, in order and at random places.
fn come_and_go(rounds: u64) {
    const ALIVE: u64 = 500;
    let key = |worker, round: u64| match worker {
        0 => round,
        _ => round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63,
    };
    steady(rounds, |db, table, worker, round| {
        put(db, table, key(worker, round), &[1; 100]);
        if let Some(old) = round.checked_sub(ALIVE) {
            delete(db, table, key(worker, old));
        }
    });
}

/// A queue: one thread inserts, the other deletes what the first inserted.
fn queue(rounds: u64) {
    const LONGEST: u64 = 500;
    let (inserted, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = |ready: &dyn Fn() -> bool| {
        while !ready() {
            thread::yield_now();
        }
    };
    steady(rounds, |db, table, worker, round| {
        if worker == 0 {
            wait(&|| round < deleted.load(Ordering::Acquire) + LONGEST);
            put(db, table, round, &[1; 100]);
            inserted.store(round + 1, Ordering::Release);
        } else {
            wait(&|| round < inserted.load(Ordering::Acquire));
            delete(db, table, round);
            deleted.store(round + 1, Ordering::Release);
        }
    });
}

#[test]
fn updates_keep_memory_steady() {
    update(20_000);
}

#[test]
fn keys_that_come_and_go_keep_memory_steady() {
    come_and_go(10_000);
}

#[test]
fn a_queue_keeps_memory_steady() {
    queue(10_000);
}

/// Rows are overwritten beside a transaction that stays open, until nothing more fits. Once it has
/// ended, puts succeed again: a blind one at once, one behind a read after one refusal at most.
#[test]
fn a_full_database_takes_puts_again_once_the_oldest_transaction_has_ended() {
    for (rows, bytes) in [(1, 1024), (20, 1024), (1000, 1024), (1000, 100)] {
        let db = Db::with_options(Options { memory_bytes_max: 8 << 20, ..Options::default() });
        let table = db.table("t").expect("a table");
        let put = |n: u64, value: u8| {
            let key = (n % rows).to_be_bytes();
            db.transact_blocking(|tx| tx.put(table, &key, &vec![value; bytes]))
        };
        (0..rows).for_each(|n| put(n, 0).expect("room"));
        let open = db.begin_blocking().expect("room");
        open.get(table, &0u64.to_be_bytes()).expect("within limits");
        let refused = (0..1_000_000).find_map(|n| put(n, 1).err()).expect("old versions fill it");
        assert!(matches!(refused, Error::Rejected(Rejected::MemoryFull { .. })), "{refused}");
        drop(open);
        for n in 0..10_000 {
            assert_eq!(put(n, 2), Ok(()), "{rows} rows of {bytes} bytes, put {n}");
            let added = db.transact_blocking(|tx| tx.add(table, b"counter", 1));
            assert_eq!(added, Ok(n as i64 + 1));
        }
    }
}

#[test]
#[ignore = "millions of operations"]
fn long_churn() {
    update(500_000);
    come_and_go(300_000);
    queue(300_000);
}
