//! Memory under a limit: what is garbage does not keep a store full, whichever session left it and
//! independent of later transactions.
#![cfg(not(feature = "model"))]

use shoal_store::{Options, Session, Store};
use shoal_types::{Error, Rejected, Result, TableId};
use std::sync::Arc;

const LIMIT: usize = 8 << 20;

fn store() -> (Arc<Store>, TableId) {
    let options = Options { memory_bytes_max: LIMIT, ..Options::default() };
    let store = Arc::new(Store::new(options));
    let table = store.table("t").expect("a table");
    (store, table)
}

fn put(session: &mut Session, table: TableId, key: u64, value: &[u8]) -> Result<()> {
    let tx = session.begin();
    tx.put(table, &key.to_be_bytes(), value)?;
    tx.commit()
}

fn read_and_put(session: &mut Session, table: TableId, key: u64, value: &[u8]) -> Result<()> {
    let tx = session.begin();
    tx.get(table, &key.to_be_bytes())?;
    tx.put(table, &key.to_be_bytes(), value)?;
    tx.commit()
}

/// A store full of old versions, and two sessions at rest: the one whose transaction was open meanwhile,
/// and the one that has the garbage.
struct Full {
    store: Arc<Store>,
    table: TableId,
    reader: Session,
    _writer: Session,
    /// What the live rows take.
    live: usize,
}

/// Overwrites rows beside a transaction that stays open, until a put is refused; then the transaction
/// ends.
fn fill(rows: u64, value: &[u8]) -> Full {
    let (store, table) = store();
    let (mut reader, mut writer) = (store.session().expect("room"), store.session().expect("room"));
    for key in 0..rows {
        put(&mut writer, table, key, value).expect("room");
    }
    let live = store.memory_bytes();
    let open = reader.begin();
    open.get(table, &0u64.to_be_bytes()).expect("within limits");
    let refused = (0..1_000_000).find_map(|n| put(&mut writer, table, n % rows, value).err());
    let refused = refused.expect("old versions fill the store");
    assert!(matches!(refused, Error::Rejected(Rejected::MemoryFull { .. })), "{refused}");
    drop(open);
    Full { store, table, reader, _writer: writer, live }
}

/// Rows and bytes of a value: garbage that is heavy, long, and in chains.
const SHAPES: [(u64, usize); 4] = [(1, 1024), (20, 1024), (1000, 1024), (1000, 100)];

#[test]
fn a_put_finds_room_once_the_oldest_transaction_has_ended() {
    for (rows, bytes) in SHAPES {
        let Full { table, reader: mut session, _writer, .. } = fill(rows, &vec![1; bytes]);
        for round in 0..20_000 {
            let done = put(&mut session, table, round % rows, &vec![2; bytes]);
            assert_eq!(done, Ok(()), "{rows} rows of {bytes} bytes, put {round}");
        }
    }
}

#[test]
fn a_put_behind_a_read_finds_room_at_the_second_attempt() {
    for (rows, bytes) in SHAPES {
        let Full { table, reader: mut session, _writer, .. } = fill(rows, &vec![1; bytes]);
        // A guard with a read stands in the way of the first one itself.
        let _ = read_and_put(&mut session, table, 0, &vec![2; bytes]);
        for round in 0..20_000 {
            let done = read_and_put(&mut session, table, round % rows, &vec![2; bytes]);
            assert_eq!(done, Ok(()), "{rows} rows of {bytes} bytes, put {round}");
        }
    }
}

#[test]
fn transactions_without_garbage_free_that_of_others() {
    for (rows, bytes) in SHAPES {
        let Full { store, table, reader: mut session, _writer, live } = fill(rows, &vec![1; bytes]);
        // One entry of garbage in four transactions, and a few at the beginning and the end.
        for _ in 0..1000 + LIMIT / bytes / 4 {
            session.begin().get(table, &0u64.to_be_bytes()).expect("within limits");
        }
        let left = store.memory_bytes();
        assert!(left < live + LIMIT / 8, "{left} bytes for {live} of {rows} rows");
    }
}

#[test]
fn sessions_at_rest_keep_little_garbage() {
    let (store, table) = store();
    let mut reader = store.session().expect("room");
    let mut sessions: Vec<Session> = (0..30).map(|_| store.session().expect("room")).collect();
    put(&mut reader, table, 0, &[1; 1000]).expect("room");
    let open = reader.begin();
    open.get(table, &0u64.to_be_bytes()).expect("within limits");
    // Less than a session hands over where memory is not limited, and 6 of 8 MiB together.
    for session in &mut sessions {
        for _ in 0..200 {
            put(session, table, 0, &[2; 1000]).expect("room");
        }
    }
    drop(open);
    for key in 0..6000 {
        assert_eq!(put(&mut reader, table, key, &[3; 1000]), Ok(()), "row {key}");
    }
}
