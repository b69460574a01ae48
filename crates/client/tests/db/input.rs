//! Bad input and limits: each is an error that names itself, and the transaction can go on.

use crate::churn::bytes_of;
use futures_executor::block_on;
use shoal_client::{Db, Error, Options, Rejected, Scan, TableId, limits};
use std::ops::Bound;

fn db() -> (Db, TableId) {
    let db = Db::memory();
    let table = db.table("t").expect("a table");
    (db, table)
}

#[track_caller]
fn rejected<T: std::fmt::Debug>(result: Result<T, Error>) -> Rejected {
    match result {
        Err(Error::Rejected(rejected)) => rejected,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

#[test]
fn keys_are_from_one_byte_to_the_limit() {
    let (db, table) = db();
    let tx = db.begin_blocking().unwrap();
    let empty = Rejected::KeyEmpty { table };
    assert_eq!(rejected(tx.get(table, b"")), empty);
    assert_eq!(rejected(tx.get_for_update(table, b"")), empty);
    assert_eq!(rejected(tx.put(table, b"", b"v")), empty);
    assert_eq!(rejected(tx.insert(table, b"", b"v")), empty);
    assert_eq!(rejected(tx.delete(table, b"")), empty);
    assert_eq!(rejected(tx.add(table, b"", 1)), empty);
    let long = vec![b'k'; limits::KEY_BYTES_MAX + 1];
    let too_long = |reason: Rejected| {
        let named = matches!(reason, Rejected::KeyTooLong { bytes: 4097, max: 4096, .. });
        assert!(named && reason.to_string().contains("KEY_BYTES_MAX"), "{reason}");
    };
    too_long(rejected(tx.get(table, &long)));
    too_long(rejected(tx.put(table, &long, b"v")));
    too_long(rejected(tx.insert(table, &long, b"v")));
    too_long(rejected(tx.delete(table, &long)));
    too_long(rejected(tx.add(table, &long, 1)));
    too_long(rejected(tx.scan(table, Scan::range(&long[..]..))));
    too_long(rejected(tx.scan(table, Scan::range(..&long[..]).reverse())));
    too_long(rejected(tx.scan(table, Scan::prefix(&long))));
    // All of it can go on, and the longest key is a key.
    tx.put(table, &long[1..], b"longest").unwrap();
    tx.put(table, b"k", b"short").unwrap();
    tx.commit().unwrap();
    let tx = db.begin_blocking().unwrap();
    assert_eq!(tx.get(table, &long[1..]).unwrap(), Some(&b"longest"[..]));
    assert_eq!(tx.scan(table, Scan::prefix(&long[1..])).unwrap().len(), 1);
    assert_eq!(tx.scan(table, Scan::all()).unwrap().len(), 2);
}

#[test]
fn values_are_from_nothing_to_the_limit() {
    let (db, table) = db();
    let huge = vec![7; limits::VALUE_BYTES_MAX + 1];
    let most = &huge[1..];
    block_on(db.transact(async |tx| {
        let reason = rejected(tx.put(table, b"k", &huge));
        assert!(matches!(reason, Rejected::ValueTooLong { .. }), "{reason}");
        assert!(reason.to_string().contains("VALUE_BYTES_MAX"), "{reason}");
        assert!(matches!(
            rejected(tx.insert(table, b"k", &huge).await),
            Rejected::ValueTooLong { .. }
        ));
        tx.put(table, b"empty", b"")?;
        tx.put(table, b"most", most)
    }))
    .unwrap();
    let tx = db.begin_blocking().unwrap();
    assert_eq!(tx.get(table, b"empty").unwrap(), Some(&b""[..]));
    assert!(tx.get(table, b"most").unwrap() == Some(most));
    assert_eq!(tx.get(table, b"k").unwrap(), None);
    let wrong = rejected(tx.add(table, b"empty", 1));
    assert!(matches!(wrong, Rejected::WrongValue { bytes: 0, expected: 8, .. }), "{wrong}");
    drop(tx);
    db.transact_blocking(|tx| tx.put(table, b"most", b"")).unwrap();
}

#[test]
fn a_transaction_over_its_limits_can_still_commit_what_it_has() {
    let (db, table) = db();
    let most = vec![7; limits::VALUE_BYTES_MAX];
    db.transact_blocking(|tx| {
        for key in 0..7u8 {
            tx.put(table, &[key], &most)?;
        }
        let reason = rejected(tx.put(table, b"beyond", &most));
        assert!(matches!(reason, Rejected::TransactionBytes { .. }), "{reason}");
        assert!(reason.to_string().contains("TRANSACTION_BYTES_MAX"), "{reason}");
        Ok(())
    })
    .unwrap();
    let rows = |table| db.transact_blocking(|tx| Ok(tx.scan(table, Scan::all())?.len())).unwrap();
    assert_eq!(rows(table), 7);
    let small = db.table("small").unwrap();
    db.transact_blocking(|tx| {
        for key in 0..limits::TRANSACTION_WRITES_MAX as u32 {
            tx.put(small, &key.to_be_bytes(), b"")?;
        }
        let reason = rejected(tx.put(small, b"beyond", b""));
        assert!(matches!(reason, Rejected::TransactionWrites { .. }), "{reason}");
        assert!(reason.to_string().contains("TRANSACTION_WRITES_MAX"), "{reason}");
        // A key that it writes already takes no more room.
        tx.put(small, &7u32.to_be_bytes(), b"again")
    })
    .unwrap();
    assert_eq!(rows(small), limits::TRANSACTION_WRITES_MAX);
}

#[test]
fn tables_are_named_and_known() {
    let (db, table) = db();
    assert_eq!(db.table("t").unwrap(), table);
    assert!(matches!(rejected(db.table("")), Rejected::TableName { bytes: 0, .. }));
    let long = "n".repeat(limits::TABLE_NAME_BYTES_MAX + 1);
    assert!(matches!(rejected(db.table(&long)), Rejected::TableName { bytes: 129, max: 128 }));
    db.table(&long[1..]).unwrap();
    let tx = db.begin_blocking().unwrap();
    for unknown in [TableId(2), TableId(77), TableId(limits::TABLES_MAX as u32), TableId(u32::MAX)]
    {
        let reason = Rejected::UnknownTable { table: unknown };
        assert_eq!(rejected(tx.get(unknown, b"k")), reason);
        assert_eq!(rejected(tx.put(unknown, b"k", b"")), reason);
        assert_eq!(rejected(tx.insert(unknown, b"k", b"")), reason);
        assert_eq!(rejected(tx.delete(unknown, b"k")), reason);
        assert_eq!(rejected(tx.add(unknown, b"k", 1)), reason);
        assert_eq!(rejected(tx.scan(unknown, Scan::all())), reason);
        tx.prefetch(&[(unknown, b"k"), (table, b"")]);
    }
    tx.commit().unwrap();
    for number in 2..limits::TABLES_MAX {
        db.table(&format!("table {number}")).unwrap();
    }
    let reason = rejected(db.table("one too many"));
    assert_eq!(reason, Rejected::TooManyTables { max: limits::TABLES_MAX });
    assert_eq!(db.table("t").unwrap(), table);
}

#[test]
fn strange_scans_are_empty_not_wrong() {
    let (db, table) = db();
    let tx = db.begin_blocking().unwrap();
    for key in [b"a", b"b", b"c", b"\xff"] {
        tx.put(table, key, b"").unwrap();
    }
    tx.commit().unwrap();
    let tx = db.begin_blocking().unwrap();
    tx.put(table, b"bb", b"").unwrap();
    let count = |scan: Scan<'_>| {
        let forward = tx.scan(table, scan).unwrap().len();
        assert_eq!(forward, tx.scan(table, scan.reverse()).unwrap().len(), "{scan:?}");
        forward
    };
    let (b, c) = (&b"b"[..], &b"c"[..]);
    assert_eq!(count(Scan::range(c..b)), 0);
    assert_eq!(count(Scan::range(c..=b)), 0);
    assert_eq!(count(Scan::range(b..b)), 0);
    assert_eq!(count(Scan::range((Bound::Excluded(b), Bound::Excluded(b)))), 0);
    assert_eq!(count(Scan::range((Bound::Excluded(b), Bound::Included(b)))), 0);
    assert_eq!(count(Scan::range(b..=b)), 1);
    assert_eq!(count(Scan::range(&b""[..]..)), 5);
    assert_eq!(count(Scan::range(..&b""[..])), 0);
    assert_eq!(count(Scan::range(..=&b""[..])), 0);
    assert_eq!(count(Scan::prefix(b"")), 5);
    assert_eq!(count(Scan::prefix(b"\xff")), 1);
    assert_eq!(count(Scan::prefix(b"\xff\xff")), 0);
    assert_eq!(count(Scan::all().limit(0)), 0);
}

/// A database that is full takes no more, goes on reading, and takes new data once old is deleted.
#[test]
fn a_full_database_recovers_by_deleting() {
    for value_bytes in [10, 1_000, 100_000] {
        let max = 4 << 20;
        let db = Db::with_options(Options { memory_bytes_max: max, ..Options::default() });
        let table = db.table("t").unwrap();
        let value = vec![1; value_bytes];
        let put = |key: u32| db.transact_blocking(|tx| tx.put(table, &key.to_be_bytes(), &value));
        let (written, full) = (0..).find_map(|key| put(key).err().map(|e| (key, e))).unwrap();
        assert!(matches!(full, Error::Rejected(Rejected::MemoryFull { .. })), "{full}");
        assert!(full.to_string().contains("memory_bytes_max"), "{full}");
        assert!(bytes_of(&db) < max + (256 << 10), "{} bytes", bytes_of(&db));
        let rows = db.transact_blocking(|tx| Ok(tx.scan(table, Scan::all())?.len())).unwrap();
        assert_eq!(rows, written as usize);
        for key in 0..written {
            db.transact_blocking(|tx| tx.delete(table, &key.to_be_bytes())).unwrap();
        }
        // What others may still read goes when they have ended, which takes a few transactions.
        let taken = (0..8).find(|key| put(*key).is_ok());
        assert!(taken.is_some(), "{} bytes after everything was deleted", bytes_of(&db));
    }
}
