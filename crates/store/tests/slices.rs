//! Transactions that lock, validate, install and roll back in slices: at the end all is as if it had been done at once,
//! and in between nothing is seen that may not be.
#![cfg(not(feature = "model"))]

use shoal_store::{Options, Session, Store, Transaction};
use shoal_types::{Clock, Epoch, Error, Scan, StampRef, TableId};
use std::sync::Arc;

const KEYS: u16 = 100;
const SLICE: usize = 7;
const FIRST: StampRef<'_> = StampRef { epoch: Epoch(1), clock: Clock(1), remote: &[] };

fn store() -> (Arc<Store>, TableId) {
    let store = Arc::new(Store::new(Options { epoch: Epoch(1), ..Options::default() }));
    let table = store.table("t").expect("there is room");
    (store, table)
}

fn key(number: u16) -> [u8; 2] {
    number.to_be_bytes()
}

/// A transaction that has written all keys, every second one after it read it.
fn written(session: &mut Session, table: TableId, value: u8) -> Transaction<&mut Session> {
    let tx = session.begin();
    for number in 0..KEYS {
        if number % 2 == 0 {
            tx.get(table, &key(number)).expect("within the limits");
        }
        tx.put(table, &key(number), &[value]).expect("within the limits");
    }
    tx
}

/// What a transaction of its own sees; `None` if it meets a lock.
fn seen(store: &Arc<Store>, table: TableId, number: u16) -> Option<Vec<u8>> {
    let mut session = store.session().expect("there is room");
    let tx = session.begin();
    let value = tx.get(table, &key(number)).expect("a key").map(<[u8]>::to_vec);
    tx.validate().ok().map(|()| value.unwrap_or_default())
}

fn all_are(store: &Arc<Store>, table: TableId, value: &[u8]) {
    (0..KEYS).for_each(|number| assert_eq!(seen(store, table, number).as_deref(), Some(value)));
}

#[test]
fn slices_come_to_the_same_as_one_commit() {
    let (store, table) = store();
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    written(&mut other, table, 1).commit().expect("alone");
    let mut locking = written(&mut session, table, 2).locking();
    let mut held = 0;
    while !locking.lock_some(SLICE).expect("no other holds a lock") {
        held += SLICE;
        let free = (0..KEYS).filter(|number| seen(&store, table, *number).is_some()).count();
        assert_eq!(free, usize::from(KEYS) - held, "a slice locks as many as it says");
    }
    let mut locked = locking.locked();
    locked.draw_clock();
    let clock = locked.draw_clock();
    let (mut from, mut slices) = (0, 0);
    while let Some(next) = locked.validate_some(from, SLICE).expect("nothing changed") {
        (from, slices) = (next, slices + 1);
    }
    assert_eq!(slices, (locked.size().reads - 1) / SLICE, "each slice validates as many");
    let stamp = StampRef { clock, ..FIRST };
    for until in (SLICE..).step_by(SLICE) {
        let free = (0..KEYS).filter(|number| seen(&store, table, *number).is_some()).count();
        assert_eq!(free, until - SLICE, "what is installed is free, and no more");
        if until >= usize::from(KEYS) {
            break;
        }
        locked.install_until(until, stamp, |_| false);
    }
    locked.install(stamp, |_| false);
    all_are(&store, table, &[2]);
}

#[test]
fn a_change_is_found_in_whatever_slice_it_is() {
    for changed in (0..KEYS).step_by(2) {
        let (store, table) = store();
        let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
        written(&mut other, table, 1).commit().expect("alone");
        let reader = session.begin();
        for number in 0..KEYS {
            assert_eq!(reader.get(table, &key(number)).expect("a key"), Some(&[1][..]));
        }
        let writer = other.begin();
        writer.put(table, &key(changed), b"new").expect("within the limits");
        writer.commit().expect("no other writes");
        let mut from = Some(0);
        let mut found = None;
        while let (Some(at), None) = (from, found.as_ref()) {
            match reader.validate_some(at, SLICE) {
                Ok(next) => from = next,
                Err(error) => found = Some((at, error)),
            }
        }
        let (at, error) = found.expect("it has read what changed");
        assert!((at..at + SLICE).contains(&usize::from(changed)), "{changed} at {at}: {error}");
    }
}

#[test]
fn a_lock_held_by_another_stops_it_and_gives_all_back() {
    for stop in 0..KEYS {
        let (store, table) = store();
        let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
        let holder = other.begin();
        holder.put(table, &key(stop), b"held").expect("within the limits");
        let holder = holder.lock().expect("alone");
        let mut locking = written(&mut session, table, 2).locking();
        let error = loop {
            match locking.lock_some(SLICE) {
                Ok(is_over) => assert!(!is_over, "it passed a lock"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Aborted(_)), "{error}");
        drop(locking);
        drop(holder);
        all_are(&store, table, b"");
        let rows = session.begin().scan(table, Scan::all()).expect("a table").len();
        assert_eq!(rows, 0, "a placeholder stayed");
    }
}

#[test]
fn what_is_dropped_rolls_back_in_slices() {
    let (store, table) = store();
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    written(&mut other, table, 1).commit().expect("alone");
    session.end_in_slices(SLICE);
    drop(written(&mut session, table, 2).lock().expect("alone"));
    let mut free = SLICE;
    // The last slice of locks, which is all of them here, is released at once.
    all_are(&store, table, &[1]);
    while !session.end_some() {
        free += SLICE;
        assert!(session.is_ending());
    }
    assert!((usize::from(KEYS) - SLICE..usize::from(KEYS)).contains(&free), "{free} in slices");
    assert!(!session.is_ending() && session.end_some());
    // Locks that were taken in slices are released in slices.
    let mut locking = written(&mut session, table, 3).locking();
    while !locking.lock_some(SLICE).expect("alone") {}
    drop(locking);
    let is_free = |number: &u16| seen(&store, table, *number).is_some();
    let mut free = (0..KEYS).filter(is_free).count();
    assert!(free < 3 * SLICE, "{free} were released at once");
    while !session.end_some() {
        let now = (0..KEYS).filter(is_free).count();
        assert!(now - free <= SLICE, "{} were released at once", now - free);
        free = now;
    }
    all_are(&store, table, &[1]);
    // The session is at rest, and can be used.
    written(&mut session, table, 4).commit().expect("alone");
    all_are(&store, table, &[4]);
}

#[test]
fn what_is_installed_stays_when_the_rest_is_dropped() {
    let (store, table) = store();
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    written(&mut other, table, 1).commit().expect("alone");
    let mut locking = written(&mut session, table, 2).locking();
    while !locking.lock_some(SLICE).expect("alone") {}
    let mut locked = locking.locked();
    let stamp = StampRef { clock: locked.draw_clock(), ..FIRST };
    locked.install_until(3 * SLICE, stamp, |_| false);
    // Another writes over what is free already.
    let over = other.begin();
    over.put(table, &key(0), &[9]).expect("within the limits");
    let over = over.lock().expect("it is free");
    drop(locked);
    let value = |number| seen(&store, table, number);
    assert_eq!(value(0), None, "the lock of another was released");
    drop(over);
    for number in 0..KEYS {
        let is_installed = usize::from(number) < 3 * SLICE;
        assert_eq!(value(number), Some(vec![if is_installed { 2 } else { 1 }]), "{number}");
    }
}

#[test]
fn a_session_that_goes_while_it_ends_leaves_no_lock() {
    let (store, table) = store();
    let mut session = store.session().unwrap();
    session.end_in_slices(SLICE);
    let mut locking = written(&mut session, table, 2).locking();
    while !locking.lock_some(SLICE).expect("alone") {}
    drop(locking);
    drop(session);
    all_are(&store, table, b"");
}
