//! Model check: the permutation tester decides the order of every atomic access, and small scenarios
//! are run under thousands of such orders. Nodes hold three entries here, and sessions try to move
//! the era on after every retirement, so that splits, merges and frees happen all the time.
//!
//! Each planted bug (`src/faults.rs`) must be caught by the scenario that is there to catch it.
//!
//! Run with `cargo test -p shoal-store --features model --test model`.
#![cfg(feature = "model")]

use shoal_store::{
    Options, ReplayRule, ReplayedWrite, RollBack, Session, Store, StoreBug, StoreBugs,
};
use shoal_types::{Clock, Epoch, Result, Scan, StampRef, TableId};
use shuttle::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The most random orders that a planted bug may take to be caught; half as many more are drawn by probabilistic
/// concurrency testing, which favours few, well-placed switches.
const ORDERS: usize = 5_000;
const PCT_DEPTH: usize = 3;

/// As many orders have to find nothing, unless the environment variable `ORDERS` says otherwise.
const ORDERS_THAT_HOLD: usize = 1_500;

fn explore(scenario: fn(StoreBugs), faults: StoreBugs, orders: usize) {
    shuttle::check_random(move || scenario(faults), orders);
    shuttle::check_pct(move || scenario(faults), orders / 2, PCT_DEPTH);
}

fn holds(scenario: fn(StoreBugs)) {
    let orders = std::env::var("ORDERS");
    let orders = orders.map_or(ORDERS_THAT_HOLD, |orders| orders.parse().expect("a number"));
    explore(scenario, StoreBugs::NONE, orders);
}

fn catches(scenario: fn(StoreBugs), fault: StoreBug) {
    let explored = catch_unwind(AssertUnwindSafe(|| {
        explore(scenario, StoreBugs::only(fault), ORDERS);
    }));
    assert!(explored.is_err(), "{fault:?} went unnoticed");
}

fn store(faults: StoreBugs) -> (Arc<Store>, TableId) {
    let options = Options { transactions_max: 4, faults, ..Options::default() };
    let store = Arc::new(Store::new(options));
    let table = store.table("t").expect("a table");
    (store, table)
}

fn session(store: &Arc<Store>) -> Session {
    store.session().expect("a session")
}

fn put_all(store: &Arc<Store>, table: TableId, rows: &[(&[u8], u64)]) {
    let mut session = session(store);
    let tx = session.begin();
    for (key, value) in rows {
        tx.put(table, key, &value.to_le_bytes()).expect("within limits");
    }
    tx.commit().expect("no other transaction runs");
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")))
}

fn read(store: &Arc<Store>, table: TableId, key: &[u8]) -> u64 {
    let mut session = session(store);
    number(session.begin().get(table, key).expect("within limits"))
}

/// Two threads add one each: of the commits that succeed, none is lost.
fn lost_update(faults: StoreBugs) {
    let (store, table) = store(faults);
    put_all(&store, table, &[(b"x", 0)]);
    let add = |store: Arc<Store>| {
        move || {
            let mut session = session(&store);
            let tx = session.begin();
            let old = number(tx.get(table, b"x").expect("within limits"));
            tx.put(table, b"x", &(old + 1).to_le_bytes()).expect("within limits");
            u64::from(tx.commit().is_ok())
        }
    };
    let other = thread::spawn(add(Arc::clone(&store)));
    let committed = add(Arc::clone(&store))() + other.join().expect("no panic");
    assert_eq!(read(&store, table, b"x"), committed, "an update was lost");
    assert!(committed > 0, "both got in each other's way");
}

/// Each of two threads reads both keys and, if they sum to less than 1, sets its own: never both.
fn write_skew(faults: StoreBugs) {
    let (store, table) = store(faults);
    put_all(&store, table, &[(b"x", 0), (b"y", 0)]);
    let set = |store: Arc<Store>, mine: &'static [u8]| {
        move || {
            let mut session = session(&store);
            let tx = session.begin();
            let sum = number(tx.get(table, b"x").expect("within limits"))
                + number(tx.get(table, b"y").expect("within limits"));
            if sum < 1 {
                tx.put(table, mine, &1u64.to_le_bytes()).expect("within limits");
            }
            let _ = tx.commit();
        }
    };
    let other = thread::spawn(set(Arc::clone(&store), b"x"));
    set(Arc::clone(&store), b"y")();
    other.join().expect("no panic");
    let sum = read(&store, table, b"x") + read(&store, table, b"y");
    assert!(sum <= 1, "write skew: both keys are set");
}

/// The same through an empty range: each inserts a key of its own if it sees none. Never both.
fn phantom(faults: StoreBugs) {
    let (store, table) = store(faults);
    let insert = |store: Arc<Store>, mine: &'static [u8]| {
        move || {
            let mut session = session(&store);
            let tx = session.begin();
            if tx.scan(table, Scan::prefix(b"p")).expect("within limits").is_empty() {
                tx.insert(table, mine, b"").expect("it saw none");
            }
            let _ = tx.commit();
        }
    };
    let other = thread::spawn(insert(Arc::clone(&store), b"p1"));
    insert(Arc::clone(&store), b"p2")();
    other.join().expect("no panic");
    let mut last = session(&store);
    let tx = last.begin();
    let rows = tx.scan(table, Scan::prefix(b"p")).expect("within limits");
    assert!(rows.len() <= 1, "phantom: both were inserted");
}

/// A thread fills leaves until they split, and another reads and scans meanwhile: keys that were
/// there before are always found, in order, once each.
fn split_against_readers(faults: StoreBugs) {
    const OLD: [&[u8]; 3] = [b"b", b"d", b"f"];
    let (store, table) = store(faults);
    put_all(&store, table, &OLD.map(|key| (key, 1)));
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            for key in [b"c", b"e", b"a"] {
                let tx = session.begin();
                tx.put(table, key, &2u64.to_le_bytes()).expect("within limits");
                tx.commit().expect("it reads nothing and meets no lock");
            }
        })
    };
    let mut reader = session(&store);
    let tx = reader.begin();
    for key in OLD {
        assert_eq!(number(tx.get(table, key).expect("within limits")), 1, "{key:?} is missing");
    }
    for scan in [Scan::all(), Scan::all().reverse()] {
        let rows = tx.scan(table, scan).expect("within limits");
        let mut keys: Vec<&[u8]> = rows.iter().map(|(key, _)| *key).collect();
        if scan.reverse {
            keys.reverse();
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "out of order: {keys:?}");
        assert!(OLD.iter().all(|key| keys.contains(key)), "missing: {keys:?}");
    }
    drop(tx);
    writer.join().expect("no panic");
}

/// A thread removes keys until leaves merge and the root goes, and another reads what stays.
fn merge_against_readers(faults: StoreBugs) {
    const ALL: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"];
    let (store, table) = store(faults);
    put_all(&store, table, &ALL.map(|key| (key, 1)));
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            for key in [b"a", b"c", b"d", b"e", b"b", b"g"] {
                let tx = session.begin();
                tx.delete(table, key).expect("within limits");
                tx.commit().expect("it reads nothing and meets no lock");
            }
        })
    };
    let mut reader = session(&store);
    for _ in 0..2 {
        let tx = reader.begin();
        assert_eq!(number(tx.get(table, b"f").expect("within limits")), 1, "f is missing");
        let rows = tx.scan(table, Scan::range(&b"e"[..]..).limit(3)).expect("within limits");
        assert!(rows.iter().any(|(key, _)| *key == b"f"), "f is missing from {rows:?}");
    }
    writer.join().expect("no panic");
}

/// Keys that a scan finds come in order, once each, and those that stay are among them.
fn check_scan(session: &mut Session, table: TableId, stay: &[&[u8]]) {
    let tx = session.begin();
    for scan in [Scan::all(), Scan::all().reverse()] {
        let rows = tx.scan(table, scan).expect("within limits");
        let mut keys: Vec<&[u8]> = rows.iter().map(|(key, _)| *key).collect();
        if scan.reverse {
            keys.reverse();
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "out of order: {keys:?}");
        assert!(stay.iter().all(|key| keys.contains(key)), "missing: {keys:?}");
    }
}

/// What a thread does with a key, alone in its transaction.
#[derive(Clone, Copy)]
enum Change {
    Put(&'static [u8]),
    Delete(&'static [u8]),
}

fn change(store: &Arc<Store>, table: TableId, change: Change) {
    let mut session = session(store);
    let tx = session.begin();
    match change {
        Change::Put(key) => tx.put(table, key, &2u64.to_le_bytes()).expect("within limits"),
        Change::Delete(key) => tx.delete(table, key).expect("within limits"),
    }
    tx.commit().expect("it reads nothing and meets no lock");
}

/// One thread changes a tree of these keys; the other looks for a key that stays, and scans.
fn look_while(
    faults: StoreBugs,
    keys: &[&[u8]],
    before: &[Change],
    then: Change,
    stays: &'static [u8],
) {
    let (store, table) = store(faults);
    put_all(&store, table, &keys.iter().map(|key| (*key, 1)).collect::<Vec<_>>());
    before.iter().for_each(|now| change(&store, table, *now));
    let mut reader = session(&store);
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || change(&store, table, then))
    };
    let found = number(reader.begin().get(table, stays).expect("within limits"));
    assert_eq!(found, 1, "{stays:?} is missing");
    check_scan(&mut reader, table, &[stays]);
    writer.join().expect("no panic");
}

/// The root is a full leaf, and splits.
fn root_splits(faults: StoreBugs) {
    look_while(faults, &[b"a", b"b", b"c"], &[], Change::Put(b"bb"), b"c");
}

/// A full leaf below the root splits, and what moves is looked for.
fn leaf_splits(faults: StoreBugs) {
    look_while(faults, &[b"a", b"b", b"c", b"d"], &[], Change::Put(b"bb"), b"c");
}

/// A key comes into a leaf in front of the one that is looked for.
fn leaf_fills(faults: StoreBugs) {
    look_while(faults, &[b"a", b"c"], &[], Change::Put(b"b"), b"c");
}

/// A key leaves a leaf in front of the one that is looked for.
fn leaf_drains(faults: StoreBugs) {
    look_while(faults, &[b"a", b"b", b"c"], &[], Change::Delete(b"a"), b"c");
}

/// The right one of two leaves with a key each is merged into the left one.
fn leaves_merge(faults: StoreBugs) {
    let before = [Change::Delete(b"b"), Change::Delete(b"c")];
    look_while(faults, &[b"a", b"b", b"c", b"d"], &before, Change::Delete(b"a"), b"d");
}

/// A thread that is about to take its guard while the era moves on several times, then unlinks what
/// another one reads that began after that.
fn guard_of_an_old_era(faults: StoreBugs) {
    let (store, table) = store(faults);
    put_all(&store, table, &[(b"x", 7), (b"y", 7)]);
    let mut sessions = [session(&store), session(&store)];
    let late = {
        let mut session = session(&store);
        thread::spawn(move || {
            let tx = session.begin();
            tx.put(table, b"x", &8u64.to_le_bytes()).expect("within limits");
            tx.commit().expect("it reads nothing and meets no lock");
        })
    };
    let [others, reader] = &mut sessions;
    for _ in 0..4 {
        let tx = others.begin();
        tx.put(table, b"y", &8u64.to_le_bytes()).expect("within limits");
        tx.commit().expect("it reads nothing and meets no lock");
    }
    let tx = reader.begin();
    let value = tx.get(table, b"x").expect("within limits");
    let first = number(value);
    late.join().expect("no panic");
    assert!([7, 8].contains(&first), "read freed memory: {first:#x}");
    assert_eq!(number(value), first, "freed under the reader");
}

/// A key and its table.
type Place = (TableId, &'static [u8]);

/// Tables of one key each, which nothing brings into the lookup cache but a lookup of that key. The entry of the first would
/// be in one bucket, and those of the others in the other.
fn three_tables(faults: StoreBugs) -> (Arc<Store>, [Place; 3]) {
    let (store, first) = store(faults);
    let [second, third] = ["u", "v"].map(|name| store.table(name).expect("a table"));
    let rows: [Place; 3] = [(first, b"x"), (second, b"a"), (third, b"a")];
    for (table, key) in rows {
        put_all(&store, table, &[(key, 7)]);
    }
    // The first lookup makes the cache.
    read(&store, second, b"a");
    (store, rows)
}

/// A thread looks up `looked_up`, while another deletes the key of the first table.
fn delete_against_lookup(store: &Arc<Store>, deleted: Place, looked_up: Place) {
    let (table, key) = deleted;
    let reader = {
        let store = Arc::clone(store);
        thread::spawn(move || read(&store, looked_up.0, looked_up.1))
    };
    let mut session = session(store);
    let tx = session.begin();
    tx.delete(table, key).expect("within limits");
    tx.commit().expect("it reads nothing and meets no lock");
    let found = reader.join().expect("no panic");
    assert!([0, 7].contains(&found), "read freed memory: {found:#x}");
    assert_eq!(read(store, table, key), 0, "a deleted key was found");
}

/// A thread looks up a key that another deletes: the lookup cache does not lead to its record later, which the store
/// asserts when it goes.
fn deleted_under_a_lookup(faults: StoreBugs) {
    let (store, [deleted, _, _]) = three_tables(faults);
    delete_against_lookup(&store, deleted, deleted);
}

/// A thread looks up a key for which the lookup cache has no room, so that it is copied to a larger one, while another
/// deletes a key that is copied.
fn deleted_under_a_copy(faults: StoreBugs) {
    let (store, [deleted, second, third]) = three_tables(faults);
    for (table, key) in [deleted, second] {
        read(&store, table, key);
    }
    delete_against_lookup(&store, deleted, third);
}

/// A reader holds a value while another overwrites, deletes and inserts it again and again: the value
/// stays what it was until the reader ends.
fn freed_under_a_reader(faults: StoreBugs) {
    let (store, table) = store(faults);
    put_all(&store, table, &[(b"x", 7)]);
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            for value in [Some(8u64), None, Some(9), Some(10)] {
                let tx = session.begin();
                match value {
                    Some(value) => tx.put(table, b"x", &value.to_le_bytes()),
                    None => tx.delete(table, b"x"),
                }
                .expect("within limits");
                let _ = tx.commit();
            }
        })
    };
    let mut reader = session(&store);
    let tx = reader.begin();
    let value = tx.get(table, b"x").expect("within limits");
    let first = number(value);
    thread::yield_now();
    assert!([0, 7, 8, 9, 10].contains(&first), "read freed memory: {first:#x}");
    assert_eq!(number(value), first, "freed under the reader");
    drop(tx);
    writer.join().expect("no panic");
}

/// Insertions and deletions of one key by two threads: a thread that inserts a key that it saw absent is
/// alone with it.
fn insert_once(faults: StoreBugs) {
    let (store, table) = store(faults);
    let insert = |store: Arc<Store>| {
        move || {
            let mut session = session(&store);
            let mut attempt = || -> Result<()> {
                let tx = session.begin();
                tx.insert(table, b"x", b"")?;
                tx.commit()
            };
            u64::from(attempt().is_ok())
        }
    };
    let other = thread::spawn(insert(Arc::clone(&store)));
    let inserted = insert(Arc::clone(&store))() + other.join().expect("no panic");
    assert!(inserted <= 1, "both inserted the key");
    let mut last = session(&store);
    let tx = last.begin();
    assert_eq!(tx.get(table, b"x").expect("within limits").is_some(), inserted == 1);
}

/// One scans an empty range and then writes into it; the other writes the same key blindly. If both
/// commit and the scan saw nothing, the blind write came after, and stays. (The leaf alone does not
/// show: the blind write may fill the placeholder that the first one put there.)
fn scan_then_write(faults: StoreBugs) {
    let (store, table) = store(faults);
    let blind = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            let tx = session.begin();
            tx.put(table, b"p", &2u64.to_le_bytes()).expect("within limits");
            tx.commit().is_ok()
        })
    };
    let mut first = session(&store);
    let tx = first.begin();
    let empty = tx.scan(table, Scan::prefix(b"p")).expect("within limits").is_empty();
    tx.put(table, b"p", &1u64.to_le_bytes()).expect("within limits");
    let committed = tx.commit().is_ok();
    if blind.join().expect("no panic") && committed && empty {
        assert_eq!(read(&store, table, b"p"), 2, "the scan missed a committed key");
    }
}

/// Installs a value, or a tombstone, in an epoch, without reading; says whether no other was in the way.
fn certify(
    session: &mut Session,
    table: TableId,
    key: &[u8],
    epoch: u32,
    value: Option<u64>,
    committed: impl Fn(StampRef<'_>) -> bool,
) -> bool {
    let tx = session.begin();
    let value = value.map(u64::to_le_bytes);
    tx.replicate(table, key, value.as_ref().map(|bytes| &bytes[..])).expect("within limits");
    let Ok(locked) = tx.lock() else { return false };
    let clock = locked.draw_clock();
    locked.install(StampRef { epoch: Epoch(epoch), clock, remote: &[] }, committed);
    true
}

/// Two threads write over one chain, of which a part has become committed meanwhile: each cuts what
/// is behind that, and nothing is cut twice. A third looks at every version.
fn trim_against_trim(faults: StoreBugs) {
    let (store, table) = store(faults);
    let mut first = session(&store);
    for value in 0..3 {
        assert!(certify(&mut first, table, b"x", 1, Some(value), |_| false));
    }
    let write = |store: Arc<Store>| {
        move || {
            let mut session = session(&store);
            for value in [8, 9] {
                certify(&mut session, table, b"x", 1, Some(value), |stamp| stamp.clock.0 <= 2);
            }
        }
    };
    let others = [thread::spawn(write(Arc::clone(&store))), thread::spawn(write(store))];
    for _ in 0..2 {
        let tx = first.begin();
        let last = |stamp: StampRef<'_>| stamp.clock.0 <= 2;
        let kept = tx.get_where(table, b"x", last).expect("within limits").expect("it is kept");
        assert_eq!(number(kept.value), 1, "the newest committed version");
    }
    others.into_iter().for_each(|other| other.join().expect("no panic"));
}

/// Replays writes at these clocks, and tries again where a lock is in the way.
fn replay(session: &mut Session, table: TableId, writes: &[(&'static [u8], u64, Option<u64>)]) {
    let values: Vec<_> = writes.iter().map(|(_, _, value)| value.map(u64::to_le_bytes)).collect();
    let replayed = |((key, clock, _), value): (&(&'static [u8], u64, _), _)| ReplayedWrite {
        table,
        key,
        change: shoal_store::Change::of(value),
        stamp: StampRef { epoch: Epoch(1), clock: Clock(*clock), remote: &[] },
    };
    let values = values.iter().map(|value| value.as_ref().map(|bytes| &bytes[..]));
    let all: Vec<_> = writes.iter().zip(values).map(replayed).collect();
    let mut from = 0;
    while let Some(place) = session
        .replay(all[from..].iter().copied(), ReplayRule::NewestWins, |_| false, |_, _| {})
        .expect("limits")
    {
        from += place;
        thread::yield_now();
    }
}

/// Two threads replay writes of the same keys, most of which are new, in different orders; a third reads.
fn replay_against_replay(faults: StoreBugs) {
    let (store, table) = store(faults);
    put_all(&store, table, &[(b"b", 1), (b"d", 1)]);
    let other = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            let writes: [(&'static [u8], u64, Option<u64>); 4] =
                [(b"a", 12, Some(2)), (b"b", 12, None), (b"c", 11, Some(1)), (b"e", 11, Some(1))];
            replay(&mut session, table, &writes);
        })
    };
    let reader = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            assert!(read(&store, table, b"a") <= 2, "read freed memory");
        })
    };
    let mut session = session(&store);
    let writes: [(&'static [u8], u64, Option<u64>); 4] =
        [(b"e", 12, Some(2)), (b"c", 12, Some(2)), (b"b", 11, Some(3)), (b"a", 11, Some(1))];
    replay(&mut session, table, &writes);
    other.join().expect("no panic");
    reader.join().expect("no panic");
    for (key, value) in [(b"a", 2), (b"b", 0), (b"c", 2), (b"d", 1), (b"e", 2)] {
        assert_eq!(read(&store, table, key), value, "{key:?} is not as the newest write left it");
    }
}

/// An epoch was settled that covers nothing of `x`, and of `y` only the oldest version. A thread rolls
/// back, another writes both in the next epoch, a third reads and drops what it meets.
fn roll_back_against_all(faults: StoreBugs) {
    const KEYS: [&[u8]; 2] = [b"x", b"y"];
    let rejected = |stamp: StampRef<'_>| stamp.epoch == Epoch(1) && stamp.clock.0 > 1;
    let committed = |stamp: StampRef<'_>| stamp.epoch == Epoch(1) && stamp.clock.0 <= 1;
    let (store, table) = store(faults);
    let mut sweeper = session(&store);
    for (key, value) in [(1, Some(7)), (0, Some(1)), (1, Some(1)), (1, None), (0, Some(2))] {
        assert!(certify(&mut sweeper, table, KEYS[key], 1, value, |_| false));
    }
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            KEYS.map(|key| certify(&mut session, table, key, 2, Some(9), committed))
        })
    };
    let reader = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let mut session = session(&store);
            for _ in 0..2 {
                let tx = session.begin();
                let found = tx.scan(table, Scan::all()).expect("within limits");
                let mut met = false;
                tx.versions_read(0, usize::MAX, |version| met |= rejected(version.stamp));
                if met {
                    tx.discard_read(rejected);
                    assert!(tx.validate().is_err(), "what it read never was");
                }
                for (key, value) in found {
                    let value = number(Some(value));
                    let sound = value == 9 || (value == 7 && key == b"y");
                    assert!(met || sound, "{key:?} is {value}, which no transaction reported");
                    assert!(value < 10, "read freed memory: {value:#x}");
                }
            }
        })
    };
    let mut at = RollBack::default();
    while let Some(next) = sweeper.roll_back(&at, 1, rejected, committed).next {
        at = next;
        thread::yield_now();
    }
    let written = writer.join().expect("no panic");
    reader.join().expect("no panic");
    let tx = sweeper.begin();
    for ((key, written), before) in KEYS.into_iter().zip(written).zip([0, 7]) {
        let look = |stamp: StampRef<'_>| {
            assert!(!rejected(stamp), "{stamp:?} was left behind");
            false
        };
        assert_eq!(tx.get_where(table, key, look), Ok(None));
        let expected = if written { 9 } else { before };
        assert_eq!(number(tx.get(table, key).expect("within limits")), expected, "{key:?}");
    }
    let rows = tx.scan(table, Scan::all()).expect("within limits").len();
    assert_eq!(rows, 1 + usize::from(written[0]));
}

#[test]
fn locks_reads_and_installs_are_serializable() {
    holds(lost_update);
    holds(write_skew);
}

#[test]
fn gaps_and_ranges_are_serializable() {
    holds(phantom);
    holds(insert_once);
    holds(scan_then_write);
}

#[test]
fn splits_and_merges_lose_nothing() {
    holds(split_against_readers);
    holds(merge_against_readers);
    holds(root_splits);
    holds(leaf_splits);
    holds(leaf_fills);
    holds(leaf_drains);
    holds(leaves_merge);
}

#[test]
fn nothing_is_freed_under_a_reader() {
    holds(freed_under_a_reader);
    holds(guard_of_an_old_era);
}

#[test]
fn no_removed_record_is_found_in_the_lookup_cache() {
    holds(deleted_under_a_lookup);
    holds(deleted_under_a_copy);
}

#[test]
fn removed_records_in_the_lookup_cache_are_caught() {
    catches(deleted_under_a_lookup, StoreBug::CachedWhenRemoved);
    catches(deleted_under_a_copy, StoreBug::CopyUnchecked);
    catches(deleted_under_a_lookup, StoreBug::DeadIsCached);
}

#[test]
fn the_newest_of_what_is_replayed_stays() {
    holds(replay_against_replay);
}

#[test]
fn chains_are_cut_once() {
    holds(trim_against_trim);
}

#[test]
fn what_is_rolled_back_is_gone_and_nothing_else() {
    holds(roll_back_against_all);
}

#[test]
fn skipping_the_read_set_is_caught() {
    catches(lost_update, StoreBug::SkipReadSet);
    catches(write_skew, StoreBug::SkipReadSet);
}

#[test]
fn skipping_the_node_set_is_caught() {
    catches(phantom, StoreBug::SkipNodeSet);
}

#[test]
fn skipping_the_lock_check_is_caught() {
    catches(write_skew, StoreBug::SkipLockCheck);
}

#[test]
fn freeing_too_early_is_caught() {
    catches(freed_under_a_reader, StoreBug::FreeTooEarly);
}

#[test]
fn a_parent_that_is_not_checked_again_is_caught() {
    catches(leaf_splits, StoreBug::ParentUnchecked);
}

#[test]
fn a_root_that_is_not_checked_again_is_caught() {
    catches(root_splits, StoreBug::RootUnchecked);
}

#[test]
fn taking_a_latched_node_for_stable_is_caught() {
    catches(leaf_fills, StoreBug::LatchedIsStable);
}

#[test]
fn lookups_and_scans_in_leaves_that_change_are_caught() {
    catches(leaf_fills, StoreBug::LookupUnchecked);
    catches(leaf_drains, StoreBug::ScanUnchecked);
}

#[test]
fn changes_that_leave_the_version_are_caught() {
    catches(leaf_fills, StoreBug::SilentInsertion);
    catches(leaf_drains, StoreBug::SilentRemoval);
    catches(leaves_merge, StoreBug::SilentMerge);
}

#[test]
fn a_placeholder_that_is_not_read_is_caught() {
    catches(scan_then_write, StoreBug::PlaceholderUnread);
}

#[test]
fn a_guard_without_a_second_look_is_caught() {
    catches(guard_of_an_old_era, StoreBug::PinWithoutSecondLook);
}
