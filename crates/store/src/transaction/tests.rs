//! Transactions on one store: against a model, against each other, and against their limits.

use crate::{Options, Session, Store};
use proptest::prelude::*;
use shoal_types::{
    Aborted, Clock, Conflict, Epoch, Error, Rejected, Scan, StampRef, TableId, limits,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

fn store() -> (Arc<Store>, TableId, Session, Session) {
    let store = Arc::new(Store::new(Options::default()));
    let table = store.table("t").expect("a table");
    let (one, two) = (store.session().expect("a session"), store.session().expect("a session"));
    (store, table, one, two)
}

fn set(session: &mut Session, table: TableId, key: &[u8], value: Option<&[u8]>) {
    let tx = session.begin();
    match value {
        Some(value) => tx.put(table, key, value).expect("within limits"),
        None => tx.delete(table, key).expect("within limits"),
    }
    tx.commit().expect("no other transaction runs");
}

fn get(session: &mut Session, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
    session.begin().get(table, key).expect("within limits").map(<[u8]>::to_vec)
}

fn conflict(result: Result<(), Error>) -> Conflict {
    match result {
        Err(Error::Aborted(Aborted::Conflict(conflict))) => conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[derive(Debug, Clone)]
enum Op {
    Put(u8, u8),
    Insert(u8, u8),
    Delete(u8),
    Get(u8),
    Scan { from: u8, to: u8, reverse: bool, limit: usize },
    Prefix(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Op::Put(key, value)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Op::Insert(key, value)),
        3 => any::<u8>().prop_map(Op::Delete),
        2 => any::<u8>().prop_map(Op::Get),
        2 => (any::<u8>(), any::<u8>(), any::<bool>(), 1..80usize)
            .prop_map(|(from, to, reverse, limit)| Op::Scan { from, to, reverse, limit }),
        1 => (0..4u8).prop_map(Op::Prefix),
    ];
    prop::collection::vec(op, 1..60)
}

/// Keys of two bytes, so that four prefixes have 64 keys each.
fn key(n: u8) -> [u8; 2] {
    [n / 64, n % 64]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(tx: &crate::Transaction<&mut Session>, table: TableId, op: &Op, model: &mut Model) {
    let rows = |found: Vec<(&[u8], &[u8])>| -> Vec<(Vec<u8>, Vec<u8>)> {
        found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    match op {
        Op::Put(k, v) => {
            tx.put(table, &key(*k), &[*v]).expect("within limits");
            model.insert(key(*k).to_vec(), vec![*v]);
        }
        Op::Insert(k, v) => {
            let inserted = tx.insert(table, &key(*k), &[*v]);
            let exists = matches!(inserted, Err(Error::Rejected(Rejected::KeyExists { .. })));
            assert_eq!(exists, model.contains_key(&key(*k)[..]), "{inserted:?}");
            model.entry(key(*k).to_vec()).or_insert(vec![*v]);
        }
        Op::Delete(k) => {
            tx.delete(table, &key(*k)).expect("within limits");
            model.remove(&key(*k)[..]);
        }
        Op::Get(k) => {
            let found = tx.get(table, &key(*k)).expect("within limits");
            assert_eq!(found, model.get(&key(*k)[..]).map(Vec::as_slice));
        }
        Op::Scan { from, to, reverse, limit } => {
            let (low, high) = (key(*from.min(to)), key(*from.max(to)));
            let scan = Scan::range(&low[..]..=&high[..]).limit(*limit);
            let range =
                model.range(low.to_vec()..=high.to_vec()).map(|(k, v)| (k.clone(), v.clone()));
            let (scan, expected): (_, Vec<_>) = match reverse {
                true => (scan.reverse(), range.rev().take(*limit).collect()),
                false => (scan, range.take(*limit).collect()),
            };
            assert_eq!(rows(tx.scan(table, scan).expect("within limits")), expected);
        }
        Op::Prefix(prefix) => {
            let found = rows(tx.scan(table, Scan::prefix(&[*prefix])).expect("within limits"));
            let expected: Vec<_> = model
                .iter()
                .filter(|(key, _)| key.starts_with(&[*prefix]))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            assert_eq!(found, expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn transactions_agree_with_a_btreemap(
        transactions in prop::collection::vec((ops(), any::<bool>()), 1..30),
    ) {
        let (store, table, mut session, spare) = store();
        let mut model = Model::new();
        for (ops, commit) in &transactions {
            let mut trial = model.clone();
            let tx = session.begin();
            for op in ops {
                apply(&tx, table, op, &mut trial);
            }
            if *commit {
                tx.commit().expect("no other transaction runs");
                model = trial;
            } else {
                tx.rollback();
            }
        }
        let tx = session.begin();
        let rows = tx.scan(table, Scan::all()).expect("within limits");
        let rows: Model = rows.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        prop_assert_eq!(rows, model);
        drop(tx);
        drop((session, spare, store));
    }
}

#[test]
fn a_changed_read_aborts() {
    let (_store, table, mut one, mut two) = store();
    set(&mut one, table, b"x", Some(b"0"));
    let tx = one.begin();
    tx.get(table, b"x").expect("within limits");
    tx.put(table, b"y", b"1").expect("within limits");
    set(&mut two, table, b"x", Some(b"1"));
    assert!(matches!(conflict(tx.commit()), Conflict::ReadChanged { .. }));
    assert_eq!(get(&mut one, table, b"y"), None, "an aborted transaction wrote");
}

#[test]
fn a_key_that_appears_in_a_gap_or_a_range_aborts() {
    let (_store, table, mut one, mut two) = store();
    let gap = one.begin();
    assert_eq!(gap.get(table, b"x").expect("within limits"), None);
    gap.put(table, b"y", b"1").expect("within limits");
    set(&mut two, table, b"x", Some(b"1"));
    assert!(matches!(conflict(gap.commit()), Conflict::RangeChanged { .. }));
    let range = one.begin();
    assert_eq!(range.scan(table, Scan::all()).expect("within limits").len(), 1);
    set(&mut two, table, b"w", Some(b"1"));
    assert!(matches!(conflict(range.commit()), Conflict::RangeChanged { .. }));
}

#[test]
fn a_tombstone_is_read_like_any_version() {
    let (_store, table, mut one, mut two) = store();
    set(&mut one, table, b"x", Some(b"0"));
    // Uncommitted, so that the tombstone stays in the index.
    let deletion = one.begin();
    deletion.delete(table, b"x").expect("within limits");
    let locked = deletion.lock().expect("no other transaction runs");
    let stamp = StampRef { epoch: Epoch(0), clock: locked.draw_clock(), remote: &[] };
    locked.install(stamp, |_| false);
    let reader = one.begin();
    assert_eq!(reader.get(table, b"x").expect("within limits"), None);
    let mut stamps = Vec::new();
    reader.versions_read(0, usize::MAX, |version| stamps.push(version.stamp.clock));
    assert_eq!(stamps, [stamp.clock], "M1: the tombstone's writer is a dependency");
    set(&mut two, table, b"x", Some(b"1"));
    assert!(matches!(conflict(reader.commit()), Conflict::ReadChanged { .. }));
}

#[test]
fn a_held_lock_aborts_readers_and_writers() {
    let (_store, table, mut one, mut two) = store();
    set(&mut one, table, b"x", Some(b"0"));
    let holder = one.begin();
    holder.put(table, b"x", b"1").expect("within limits");
    let holder = holder.lock().expect("no other transaction runs");
    let reader = two.begin();
    assert_eq!(reader.get(table, b"x").expect("within limits"), Some(&b"0"[..]));
    assert!(matches!(conflict(reader.commit()), Conflict::Locked { .. }));
    let writer = two.begin();
    writer.put(table, b"x", b"2").expect("within limits");
    assert!(matches!(conflict(writer.commit()), Conflict::Locked { .. }));
    drop(holder);
    assert_eq!(get(&mut two, table, b"x").as_deref(), Some(&b"0"[..]));
}

/// Installs `value` under `clock` without committing it.
fn certify(session: &mut Session, table: TableId, value: Option<&[u8]>) -> Clock {
    let tx = session.begin();
    match value {
        Some(value) => tx.put(table, b"x", value).expect("within limits"),
        None => tx.delete(table, b"x").expect("within limits"),
    }
    let locked = tx.lock().expect("no other transaction runs");
    let clock = locked.draw_clock();
    locked.validate().expect("no other transaction runs");
    locked.install(StampRef { epoch: Epoch(0), clock, remote: &[] }, |stamp| stamp.clock.0 <= 2);
    clock
}

fn newest_where(session: &mut Session, table: TableId, most: Clock) -> Option<Vec<u8>> {
    let tx = session.begin();
    let version = tx.get_where(table, b"x", |stamp| stamp.clock <= most).expect("within limits");
    version.and_then(|version| version.value).map(<[u8]>::to_vec)
}

#[test]
fn a_chain_keeps_the_uncommitted_and_the_newest_committed() {
    let (_store, table, mut one, _two) = store();
    let clocks: Vec<Clock> =
        (0..5u8).map(|value| certify(&mut one, table, Some(&[value]))).collect();
    for (value, clock) in (0..5u8).zip(&clocks).skip(1) {
        assert_eq!(newest_where(&mut one, table, *clock), Some(vec![value]), "at {clock}");
    }
    assert_eq!(newest_where(&mut one, table, clocks[0]), None, "trimmed behind clock 2");
    // A closed epoch that covers clocks up to 3.
    one.discard(table, b"x", |stamp| stamp.clock > clocks[2]).expect("unlocked");
    assert_eq!(get(&mut one, table, b"x"), Some(vec![2]));
    one.discard(table, b"x", |_| true).expect("unlocked");
    assert_eq!(get(&mut one, table, b"x"), None);
}

#[test]
fn a_tombstone_leaves_the_index_only_when_committed() {
    let (store, table, mut one, _two) = store();
    certify(&mut one, table, Some(b"0"));
    certify(&mut one, table, Some(b"1"));
    let deleted = certify(&mut one, table, None);
    assert_eq!(get(&mut one, table, b"x"), None);
    assert_eq!(newest_where(&mut one, table, Clock(2)), Some(b"1".to_vec()));
    one.sweep(|stamp| stamp.clock < deleted);
    assert_eq!(newest_where(&mut one, table, Clock(2)), Some(b"1".to_vec()), "swept too early");
    let before = store.memory_bytes();
    one.sweep(|stamp| stamp.clock <= deleted);
    assert_eq!(newest_where(&mut one, table, Clock(2)), None);
    assert!(store.memory_bytes() <= before);
}

#[test]
fn remote_clocks_come_back_with_the_version() {
    use shoal_types::{RemoteClock, ShardId};
    let (_store, table, mut one, _two) = store();
    let remote =
        [(1, 10), (7, 70)].map(|(s, c)| RemoteClock { shard: ShardId(s), clock: Clock(c) });
    let tx = one.begin();
    tx.put(table, b"x", b"value").expect("within limits");
    let locked = tx.lock().expect("no other transaction runs");
    let clock = locked.draw_clock();
    locked.install(StampRef { epoch: Epoch(3), clock, remote: &remote }, |_| true);
    let tx = one.begin();
    let version = tx.get_where(table, b"x", |_| true).expect("within limits").expect("a version");
    assert_eq!(version.value, Some(&b"value"[..]));
    assert_eq!(version.stamp, StampRef { epoch: Epoch(3), clock, remote: &remote });
}

#[test]
fn limits_are_named() {
    let (_store, table, mut one, _two) = store();
    let tx = one.begin();
    let rejected = |result: Result<(), Error>| match result {
        Err(Error::Rejected(rejected)) => rejected,
        other => panic!("expected a rejection, got {other:?}"),
    };
    assert_eq!(rejected(tx.put(table, b"", b"v")), Rejected::KeyEmpty { table });
    let long = vec![b'k'; limits::KEY_BYTES_MAX + 1];
    assert!(matches!(rejected(tx.put(table, &long, b"v")), Rejected::KeyTooLong { .. }));
    assert!(matches!(rejected(tx.delete(table, &long)), Rejected::KeyTooLong { .. }));
    assert!(tx.scan(table, Scan::range(&long[..]..)).is_err());
    let huge = vec![0; limits::VALUE_BYTES_MAX + 1];
    assert!(matches!(rejected(tx.put(table, b"k", &huge)), Rejected::ValueTooLong { .. }));
    let unknown = TableId(77);
    assert_eq!(rejected(tx.put(unknown, b"k", b"v")), Rejected::UnknownTable { table: unknown });
    let most = &huge[..limits::VALUE_BYTES_MAX];
    for n in 0..7u8 {
        tx.put(table, &[n + 1], most).expect("within limits");
    }
    let beyond = rejected(tx.put(table, b"one too many", most));
    assert!(matches!(beyond, Rejected::TransactionBytes { .. }), "{beyond:?}");
    // The transaction can still be used, and its values are whole.
    assert_eq!(tx.get(table, &[7]).expect("within limits").map(<[u8]>::len), Some(most.len()));
    tx.put(table, b"empty", b"").expect("a value may be empty");
    tx.commit().expect("no other transaction runs");
    assert_eq!(get(&mut one, table, b"empty"), Some(vec![]));
}

#[test]
fn sessions_and_memory_are_bounded() {
    let options = Options { transactions_max: 2, memory_bytes_max: 1 << 20, ..Options::default() };
    let store = Arc::new(Store::new(options));
    let table = store.table("t").expect("a table");
    let (mut one, two) = (store.session().expect("first"), store.session().expect("second"));
    let third = store.session().expect_err("a third");
    assert_eq!(third, Rejected::TooManyTransactions { max: 2 }.into());
    drop(two);
    drop(store.session().expect("again a second"));
    let full = (0..100u8).find_map(|n| {
        let tx = one.begin();
        let put = tx.put(table, &[n], &[0; 100 << 10]);
        put.and_then(|()| tx.commit()).err()
    });
    assert!(matches!(full, Some(Error::Rejected(Rejected::MemoryFull { .. }))), "{full:?}");
    let tx = one.begin();
    let taken = tx.replicate(table, b"more", Some(&[0; 100 << 10]));
    assert_eq!(taken, Ok(()), "a replica takes what its leader took");
}

#[test]
fn writes_are_refused_while_a_log_has_no_room() {
    let (store, table, mut one, _) = store();
    set(&mut one, table, b"x", Some(b"1"));
    let full = Err(Rejected::DiskFull { segment_bytes: 64 }.into());
    store.log_is_full(64);
    store.log_is_full(64);
    store.log_has_room();
    let tx = one.begin();
    assert_eq!(tx.get(table, b"x"), Ok(Some(&b"1"[..])), "reads go on");
    assert_eq!(
        (tx.put(table, b"x", b"2"), tx.insert(table, b"y", b"2")),
        (full.clone(), full.clone())
    );
    assert_eq!((tx.delete(table, b"x"), tx.add(table, b"z", 1)), (full.clone(), full.map(|()| 0)));
    assert_eq!(tx.delete(table, b"none"), Ok(()), "nothing is written");
    assert_eq!(tx.replicate(table, b"x", None), Ok(()), "a replica takes what its leader took");
    drop(tx);
    store.log_has_room();
    set(&mut one, table, b"x", Some(b"2"));
}

#[test]
fn churn_keeps_memory_steady() {
    let (store, table, mut one, mut two) = store();
    let mut peak = 0;
    for round in 0..120_000_u32 {
        let session = if round % 2 == 0 { &mut one } else { &mut two };
        // Updates of few keys, and keys that come and go for good.
        set(session, table, &(round % 64).to_be_bytes(), Some(&[7; 100]));
        set(session, table, &(1_000_000 + round).to_be_bytes(), Some(&[7; 100]));
        if round >= 100 {
            set(session, table, &(1_000_000 + round - 100).to_be_bytes(), None);
        }
        if round == 10_000 {
            peak = store.memory_bytes();
        }
    }
    let now = store.memory_bytes();
    assert!(now < peak + (256 << 10), "from {peak} to {now} bytes");
}

#[test]
fn nothing_is_leaked_by_aborts() {
    let (store, table, mut one, mut two) = store();
    for round in 0..2_000u32 {
        let tx = one.begin();
        tx.get(table, b"hot").expect("within limits");
        tx.put(table, &round.to_be_bytes(), &[1; 64]).expect("within limits");
        tx.put(table, &round.to_be_bytes(), &[2; 64]).expect("within limits");
        set(&mut two, table, b"hot", Some(&round.to_be_bytes()));
        conflict(tx.commit());
    }
    let tx = one.begin();
    assert_eq!(tx.scan(table, Scan::all()).expect("within limits").len(), 1);
    drop(tx);
    drop((one, two));
    // The store's own drop asserts that every byte is accounted for.
    let bytes = store.memory_bytes();
    assert!(bytes < 64 << 10, "{bytes} bytes for one key");
}

#[test]
fn bounds_are_exact() {
    let (_store, table, mut one, _two) = store();
    for n in 0..10u8 {
        set(&mut one, table, &[n], Some(&[n]));
    }
    let tx = one.begin();
    let keys = |scan: Scan<'_>| -> Vec<u8> {
        tx.scan(table, scan).expect("within limits").iter().map(|(key, _)| key[0]).collect()
    };
    assert_eq!(keys(Scan::range(&[3][..]..&[6][..])), [3, 4, 5]);
    assert_eq!(keys(Scan::range(&[3][..]..=&[6][..]).reverse()), [6, 5, 4, 3]);
    assert_eq!(
        keys(Scan::range((Bound::Excluded(&[3][..]), Bound::Unbounded))),
        [4, 5, 6, 7, 8, 9]
    );
    assert_eq!(keys(Scan::all().reverse().limit(2)), [9, 8]);
    assert_eq!(keys(Scan::range(&[6][..]..&[3][..])), [0u8; 0]);
    assert_eq!(keys(Scan::all().limit(0)), [0u8; 0]);
    assert_eq!(keys(Scan::prefix(&[])), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Installs `value` under `key` without anything being committed.
fn install(session: &mut Session, table: TableId, writes: &[(&[u8], Option<&[u8]>)]) {
    let tx = session.begin();
    for (key, value) in writes {
        match value {
            Some(value) => tx.put(table, key, value).expect("within limits"),
            None => tx.delete(table, key).expect("within limits"),
        }
    }
    let locked = tx.lock().expect("no other transaction runs");
    let stamp = StampRef { epoch: Epoch(0), clock: locked.draw_clock(), remote: &[] };
    locked.install(stamp, |_| false);
}

#[test]
fn discarding_one_key_leaves_the_tombstones_of_others_alone() {
    let (_store, table, mut one, _two) = store();
    set(&mut one, table, b"a", Some(b"1"));
    set(&mut one, table, b"b", Some(b"1"));
    install(&mut one, table, &[(b"a", None)]);
    one.discard(table, b"b", |_| false).expect("unlocked");
    one.discard(table, b"a", |stamp| stamp.clock == Clock(3)).expect("unlocked");
    assert_eq!(get(&mut one, table, b"a"), Some(b"1".to_vec()), "the tombstone was not committed");
}

#[test]
fn a_predicate_that_panics_changes_nothing() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let (_store, table, mut one, mut two) = store();
    set(&mut one, table, b"a", Some(b"1"));
    set(&mut one, table, b"b", Some(b"1"));
    install(&mut one, table, &[(b"a", Some(b"2")), (b"b", Some(b"2"))]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let tx = one.begin();
        tx.put(table, b"a", b"3").expect("within limits");
        tx.put(table, b"b", b"3").expect("within limits");
        let locked = tx.lock().expect("no other transaction runs");
        let clock = locked.draw_clock();
        let calls = std::cell::Cell::new(0);
        locked.install(StampRef { epoch: Epoch(0), clock, remote: &[] }, |stamp| {
            calls.set(calls.get() + 1);
            assert!(calls.get() < 3, "planted");
            stamp.clock < clock
        });
    }));
    assert!(panicked.is_err(), "the predicate was not asked");
    let panicked =
        catch_unwind(AssertUnwindSafe(|| one.discard(table, b"a", |_| panic!("planted"))));
    assert!(panicked.is_err(), "the predicate was not asked");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        install(&mut one, table, &[(b"c", None), (b"a", None)]);
        one.sweep(|_| panic!("planted"));
    }));
    assert!(panicked.is_err(), "the predicate was not asked");
    // Nothing is locked, and the sessions still work.
    for session in [&mut one, &mut two] {
        assert_eq!(get(session, table, b"a"), None);
        assert_eq!(get(session, table, b"b"), Some(b"2".to_vec()));
        set(session, table, b"b", Some(b"2"));
        set(session, table, b"a", None);
    }
}

#[test]
fn sessions_that_come_and_go_leave_no_memory_behind() {
    let (store, table, one, two) = store();
    drop((one, two));
    let mut peak = 0;
    for round in 0..40_000u32 {
        let mut session = store.session().expect("a session");
        set(&mut session, table, b"x", Some(&[7; 200]));
        drop(store.session().expect("a session"));
        if round == 2_000 {
            peak = store.memory_bytes();
        }
    }
    let now = store.memory_bytes();
    assert!(now <= peak + (64 << 10), "from {peak} to {now} bytes for one key");
    let regions = store.arena.region_bytes();
    assert!(regions <= 4 << 20, "{regions} bytes of regions for one key");
}

#[test]
fn values_that_change_their_size_use_the_memory_of_those_before() {
    const LIMIT: usize = 32 << 20;
    let options = Options { memory_bytes_max: LIMIT, ..Options::default() };
    let store = Arc::new(Store::new(options));
    let table = store.table("t").expect("a table");
    let mut session = store.session().expect("a session");
    for step in 1..=40usize {
        let value = vec![1; 100 * step];
        let rows = (LIMIT / 2 / value.len()) as u32;
        for n in 0..rows {
            set(&mut session, table, &n.to_be_bytes(), Some(&value));
        }
        for n in 0..rows {
            set(&mut session, table, &n.to_be_bytes(), None);
        }
    }
    let regions = store.arena.region_bytes();
    assert!(regions <= 6 * LIMIT, "{regions} bytes of regions for {LIMIT} at a time");
}

#[test]
fn a_forgotten_transaction_ends_when_the_next_one_begins() {
    let (_store, table, mut one, mut two) = store();
    let tx = one.begin();
    tx.put(table, b"x", b"1").expect("within limits");
    std::mem::forget(tx);
    assert_eq!(get(&mut one, table, b"x"), None);
    set(&mut one, table, b"x", Some(b"2"));
    assert_eq!(get(&mut two, table, b"x"), Some(b"2".to_vec()));
}

#[test]
fn the_front_of_a_queue_is_found_at_once() {
    let (store, table, mut one, _two) = store();
    for n in 0..60_000u32 {
        set(&mut one, table, &n.to_be_bytes(), Some(b""));
        if let Some(gone) = n.checked_sub(500) {
            set(&mut one, table, &gone.to_be_bytes(), None);
        }
        if n % 97 == 0 {
            let tx = one.begin();
            let first = tx.scan(table, Scan::all().limit(1)).expect("within limits");
            assert_eq!(first.len(), 1);
            let leaves = tx.leaves_noted();
            assert!(leaves <= 3, "{leaves} leaves before the first key of {n}");
        }
    }
    drop((one, store));
}

#[test]
fn scans_see_own_writes_of_the_table_they_scan() {
    let (store, table, mut one, _two) = store();
    let other = store.table("other").expect("a table");
    let tx = one.begin();
    let mut expected = BTreeMap::new();
    // Odd steps are inverse to 251, so keys come in no order; scans of two tables take turns.
    for n in 0..251u32 {
        let key = [(n * 96 % 251) as u8];
        tx.put(table, &key, &[1]).expect("within limits");
        expected.insert(key[0], 1);
        if n % 5 == 0 {
            tx.put(other, &key, &[2]).expect("within limits");
        }
        let rows = tx.scan(table, Scan::all()).expect("within limits");
        assert!(rows.iter().map(|(key, _)| &key[0]).eq(expected.keys()), "after {n}");
        let rows = tx.scan(table, Scan::range(&[50][..]..&[200][..]).reverse().limit(7));
        let rows = rows.expect("within limits");
        assert!(
            rows.iter().map(|(key, _)| &key[0]).eq(expected
                .range(50..200)
                .rev()
                .take(7)
                .map(|(key, _)| key))
        );
        let others = tx.scan(other, Scan::all()).expect("within limits");
        assert_eq!(others.len(), n as usize / 5 + 1);
        let third = store.table("third").expect("a table");
        assert!(tx.scan(third, Scan::all()).expect("within limits").is_empty());
    }
    tx.commit().expect("no other transaction runs");
}

#[test]
fn a_replay_keeps_the_newest_whatever_the_order() {
    let (_store, table, mut one, _two) = store();
    let mut replay = |clock: u64, value: Option<&[u8]>, removable: u64| {
        let stamp = StampRef { epoch: Epoch(1), clock: Clock(clock), remote: &[] };
        let tx = one.begin();
        tx.replicate(table, b"k", value).expect("within limits");
        let mut outcome = None;
        tx.lock().expect("no other transaction runs").replay(
            stamp,
            |newest| (newest.epoch, newest.clock) < (stamp.epoch, stamp.clock),
            |old| old.clock.0 <= removable,
            |_, _, won| outcome = Some(won),
        );
        (outcome.expect("one key"), get(&mut one, table, b"k"))
    };
    assert_eq!(replay(5, Some(b"5"), 0), (true, Some(b"5".to_vec())));
    assert_eq!(replay(9, None, 0), (true, None));
    assert_eq!(replay(7, Some(b"7"), 7), (false, None), "the tombstone waits for what is older");
    assert_eq!(replay(9, None, 9), (false, None), "a repetition changes nothing");
    // Nothing older can come any more, so the tombstone went; what comes is newer.
    assert_eq!(replay(12, Some(b"12"), 12), (true, Some(b"12".to_vec())));
}

#[test]
fn too_many_transactions_to_allow_is_an_error() {
    for asked in [limits::TRANSACTIONS_OPEN_MAX + 1, usize::MAX] {
        let options = Options { transactions_max: asked, ..Options::default() };
        let refused = Arc::new(Store::new(options)).session().expect_err("there is no such room");
        let max = limits::TRANSACTIONS_OPEN_MAX;
        assert_eq!(refused, Rejected::TransactionsMax { asked, max }.into());
    }
}

#[test]
fn deletes_of_absent_keys_are_reads_with_a_limit() {
    let (_store, table, mut one, _two) = store();
    let tx = one.begin();
    // One leaf: reads of rows, not leaves, reach the limit.
    let read = || tx.get(table, b"x").map(|_| ());
    tx.put(table, b"y", b"").expect("within limits");
    tx.session().state.borrow_mut().sets.fill_reads();
    let refused = Error::from(Rejected::TransactionReads { max: limits::TRANSACTION_READS_MAX });
    assert_eq!(read(), Err(refused.clone()));
    assert_eq!(tx.delete(table, b"absent"), Err(refused));
    assert_eq!(tx.delete(table, b"y"), Ok(()), "a write of its own is no read");
}

#[test]
fn lists_of_a_transaction_count_as_memory() {
    let options = Options { memory_bytes_max: 2 << 20, ..Options::default() };
    let store = Arc::new(Store::new(options));
    let table = store.table("t").expect("a table");
    let (mut one, mut two) = (store.session().expect("first"), store.session().expect("second"));
    set(&mut one, table, b"x", Some(b"0"));
    let before = store.memory_bytes();
    let tx = one.begin();
    let refused = (0..1 << 20).find_map(|_| tx.get(table, b"x").err());
    assert!(matches!(refused, Some(Error::Rejected(Rejected::MemoryFull { .. }))), "{refused:?}");
    assert!(store.memory_bytes() > before + (512 << 10), "{} bytes", store.memory_bytes());
    let other = two.begin();
    let value = vec![0; 1 << 20];
    let put = other.put(table, b"y", &value);
    assert!(matches!(put, Err(Error::Rejected(Rejected::MemoryFull { .. }))), "{put:?}");
    assert_eq!(other.delete(table, b"x"), Ok(()), "a delete needs no room");
    drop(tx);
    other.put(table, b"y", &value).expect("the other's list is gone");
    drop(other);
    assert!(store.memory_bytes() < before + (64 << 10), "{} bytes", store.memory_bytes());
    // New keys: lists of writes, and a table of them.
    let tx = two.begin();
    let put = |n: u32| tx.put(table, &n.to_be_bytes(), b"").err();
    let fits = (0..1 << 20).position(|n| put(n).is_some()).expect("memory ends");
    assert!(fits < (2 << 20) / 96, "{fits} writes in 2 MiB");
}
