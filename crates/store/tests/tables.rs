//! Tables that are opened and dropped while transactions run.

use shoal_store::{CopyPart, Options, Store, WalkPlace};
use shoal_types::limits::TABLE_IDS_MAX;
use shoal_types::{Aborted, Clock, Conflict, Epoch, Error, Rejected, StampRef, TableId};
use std::sync::Arc;

fn store() -> Arc<Store> {
    Arc::new(Store::new(Options::default()))
}

fn stamp(clock: u64) -> StampRef<'static> {
    StampRef { epoch: Epoch(1), clock: Clock(clock), remote: &[] }
}

fn is_dropped<T: std::fmt::Debug>(result: shoal_types::Result<T>, table: TableId) -> bool {
    result.unwrap_err() == Error::from(Rejected::TableDropped { table })
}

/// Frees all rows, a few at a time.
fn free(store: &Arc<Store>, table: TableId) {
    let mut session = store.session().expect("a session");
    let mut next = Some(WalkPlace { table, key: Vec::new() });
    while let Some(place) = next {
        next = session.free_table(&place, 3);
    }
}

#[test]
fn a_dropped_table_is_neither_read_nor_written_and_its_name_gets_another_id() {
    let store = store();
    let table = store.table("t").expect("a table");
    let other = store.table("u").expect("a table");
    let mut session = store.session().expect("a session");
    let tx = session.begin();
    for number in 0..400_u32 {
        tx.put(table, &number.to_be_bytes(), &[7; 1000]).expect("room");
    }
    tx.put(other, b"k", b"v").expect("room");
    tx.commit().expect("no rival");
    assert!(store.drop_table(table));
    assert!(!store.drop_table(table), "again");
    let tx = session.begin();
    assert!(is_dropped(tx.get(table, b"k").map(drop), table));
    assert!(is_dropped(tx.put(table, b"k", b"v"), table));
    assert!(is_dropped(tx.delete(table, b"k"), table));
    assert_eq!(tx.get(other, b"k").expect("there"), Some(&b"v"[..]));
    tx.commit().expect("no rival");
    let anew = store.table("t").expect("a table");
    assert_eq!(anew, TableId(2), "an id is not given twice");
    assert_eq!(session.begin().get(anew, &0_u32.to_be_bytes()).expect("open"), None);
    let before = store.memory_bytes();
    free(&store, table);
    drop(session);
    // What was unlinked is freed when no guard is left from that time.
    (0..8).for_each(|_| drop(store.session().expect("a session").begin()));
    let after = store.memory_bytes();
    assert!(after < before / 4, "{before} bytes, and {after} without its rows");
    let next = TableId(TABLE_IDS_MAX as u32);
    let too_many = Error::from(Rejected::TooManyTableIds { max: TABLE_IDS_MAX });
    assert_eq!(store.open_table(next), Err(too_many));
}

#[test]
fn a_transaction_that_has_touched_a_dropped_table_fails_and_others_do_not() {
    let store = store();
    let (table, other) = (store.table("t").unwrap(), store.table("u").unwrap());
    let mut sessions: Vec<_> = (0..4).map(|_| store.session().expect("a session")).collect();
    let [reads, writes, scans, beside] = &mut sessions[..] else { unreachable!("four") };
    let (reads, writes) = (reads.begin(), writes.begin());
    let (scans, beside) = (scans.begin(), beside.begin());
    assert_eq!(reads.get(table, b"k"), Ok(None));
    writes.put(table, b"k", b"v").unwrap();
    scans.scan(table, shoal_types::Scan::all()).unwrap();
    beside.put(other, b"k", b"v").unwrap();
    assert!(store.drop_table(table));
    let conflict = Error::from(Aborted::from(Conflict::TableDropped { table }));
    assert_eq!(reads.commit(), Err(conflict.clone()));
    assert_eq!(writes.commit(), Err(conflict.clone()));
    assert_eq!(scans.commit(), Err(conflict));
    beside.commit().expect("it has nothing to do with that table");
}

#[test]
fn what_was_locked_before_is_installed_and_freed_then() {
    let store = store();
    let table = store.table("t").unwrap();
    let (mut one, mut two) = (store.session().unwrap(), store.session().unwrap());
    let tx = one.begin();
    tx.put(table, b"k", b"v").unwrap();
    let locked = tx.lock().expect("no rival");
    locked.validate().expect("nothing was read");
    assert!(store.drop_table(table));
    let first = WalkPlace { table, key: Vec::new() };
    let waits = two.free_table(&first, 100);
    assert_eq!(waits, Some(WalkPlace { table, key: b"k".to_vec() }), "the lock is held");
    locked.install(stamp(1), |_| true);
    assert_eq!(two.free_table(&first, 100), None);
    let mut rows = 0;
    let part = CopyPart { records_max: 100, bytes_max: 100 };
    assert_eq!(two.copy(&WalkPlace::default(), part, |_| true, |_| false, |_| rows += 1), None);
    assert_eq!(rows, 0);
}

#[test]
fn a_replica_opens_what_its_leader_writes_and_leaves_what_is_dropped() {
    let store = store();
    let (known, unknown) = (TableId(0), TableId(3000));
    store.open_table(known).unwrap();
    let mut session = store.session().unwrap();
    let tx = session.begin();
    assert_eq!(tx.get(unknown, b"k"), Err(Rejected::UnknownTable { table: unknown }.into()));
    tx.replicate(unknown, b"k", Some(b"v")).expect("it is opened");
    let locked = tx.lock().expect("no rival");
    locked.install(stamp(1), |_| true);
    assert_eq!(session.begin().get(unknown, b"k"), Ok(Some(&b"v"[..])));
    assert!(store.drop_table(unknown));
    let tx = session.begin();
    tx.replicate(unknown, b"l", Some(b"v")).expect("passed over");
    tx.lock().expect("it writes nothing").install(stamp(2), |_| true);
    assert!(is_dropped(session.begin().get(unknown, b"l").map(drop), unknown));
    let never = TableId(5);
    assert!(!store.drop_table(never), "no row of it was here");
    session.begin().replicate(never, b"k", Some(b"v")).expect("passed over");
    assert!(is_dropped(session.begin().get(never, b"k").map(drop), never));
}
