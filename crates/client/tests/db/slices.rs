//! What was read stays as it was until the transaction ends, also if others change it meanwhile.

use shoal_client::{Db, Options, Scan};
use shoal_store::{StoreBug, StoreBugs};
use shoal_types::Random;
use std::hint::black_box;

const KEYS: u8 = 60;
const READERS: usize = 3;

/// What the writers do while the readers hold their slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Churn {
    /// Only new values: versions go, records stay.
    Update,
    /// Keys come and go as well, so that leaves split and merge.
    ComeAndGo,
}

fn write(db: &Db, table: shoal_client::TableId, churn: Churn, random: &mut Random) {
    let key = [random.below(KEYS.into()) as u8];
    let value = vec![random.below(256) as u8; random.below(300) as usize];
    let delete = churn == Churn::ComeAndGo && random.chance(1, 2);
    db.transact_blocking(|tx| match delete {
        true => tx.delete(table, &key),
        false => tx.put(table, &key, &value),
    })
    .expect("no conflict");
}

/// How many of the slices that readers held changed under their eyes.
fn changed(faults: StoreBugs, churn: Churn) -> usize {
    let db = Db::with_options(Options { faults, ..Options::default() });
    let table = db.table("t").expect("a table");
    let mut random = Random::new(5);
    (0..500).for_each(|_| write(&db, table, Churn::Update, &mut random));
    let mut changed = 0;
    for _ in 0..40 {
        let readers: Vec<_> = (0..READERS).map(|_| db.begin_blocking().expect("room")).collect();
        let mut held: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for reader in &readers {
            write(&db, table, churn, &mut random);
            for (key, value) in reader.scan(table, Scan::all()).expect("within limits") {
                held.extend([(key, key.to_vec()), (value, value.to_vec())]);
            }
            let key = [random.below(KEYS.into()) as u8];
            let value = reader.get(table, &key).expect("within limits");
            held.extend(value.map(|value| (value, value.to_vec())));
        }
        (0..300).for_each(|_| write(&db, table, churn, &mut random));
        changed += held.iter().filter(|(slice, copy)| black_box(*slice) != copy).count();
    }
    changed
}

#[test]
fn slices_keep_what_they_showed() {
    assert_eq!(changed(StoreBugs::NONE, Churn::Update), 0);
    assert_eq!(changed(StoreBugs::NONE, Churn::ComeAndGo), 0);
}

/// An own write that is overwritten is still there for a reader from before.
#[test]
fn own_writes_keep_what_they_showed() {
    let db = Db::memory();
    let table = db.table("t").expect("a table");
    let tx = db.begin_blocking().expect("room");
    let mut held = Vec::new();
    for round in 0..100u8 {
        tx.put(table, b"x", &[round; 50]).expect("within limits");
        held.push(tx.get(table, b"x").expect("within limits").expect("just written"));
        if round % 10 == 9 {
            tx.delete(table, b"x").expect("within limits");
        }
    }
    assert!((0..).zip(&held).all(|(round, slice)| *slice == [round; 50]));
}

/// Only where values are replaced: what else is freed too early, the database itself may trip over.
#[test]
fn freeing_too_early_is_caught() {
    assert!(changed(StoreBugs::only(StoreBug::FreeTooEarly), Churn::Update) > 100);
}
