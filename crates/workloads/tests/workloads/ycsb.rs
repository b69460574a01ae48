//! Every YCSB workload keeps its promises to itself, and notices when the data does not.

use futures_executor::block_on;
use shoal_types::{Database, Scan, Transaction};
use shoal_workloads::model::Model;
use shoal_workloads::workload::Workload;
use shoal_workloads::ycsb::{Distribution, Letter, Ycsb};

const KEYS: u32 = 3000;
const TRANSACTIONS: usize = 2000;

fn loaded(letter: Letter, distribution: Distribution) -> (Model, Ycsb) {
    let db = Model::new();
    let ycsb = Ycsb::new(&db, letter, KEYS, 64, distribution).unwrap();
    for part in 0..ycsb.load_parts() {
        block_on(ycsb.load(&db, part, 7, &mut |_| ())).unwrap();
    }
    (db, ycsb)
}

fn failed_checks(db: &Model, ycsb: &Ycsb) -> Vec<String> {
    let checks = block_on(ycsb.check(db)).unwrap();
    checks.into_iter().filter(|check| check.verdict.is_err()).map(|check| check.name).collect()
}

/// Runs transactions and returns which part of them was of the second kind.
fn second_share(letter: Letter, distribution: Distribution) -> f64 {
    let (db, ycsb) = loaded(letter, distribution);
    let mut client = ycsb.client(0, 1);
    let mut second = 0;
    for _ in 0..TRANSACTIONS {
        let done = block_on(ycsb.next(&db, &mut client)).unwrap();
        assert!(done.kind < ycsb.kinds().len());
        second += done.kind;
    }
    assert_eq!(failed_checks(&db, &ycsb), Vec::<String>::new(), "{letter:?} {distribution:?}");
    second as f64 / TRANSACTIONS as f64
}

#[test]
fn mixes_are_those_of_the_definition() {
    let mixes = [
        (Letter::A, 0.5),
        (Letter::B, 0.05),
        (Letter::C, 0.0),
        (Letter::D, 0.05),
        (Letter::E, 0.05),
        (Letter::F, 0.5),
    ];
    for (letter, share) in mixes {
        for distribution in [Distribution::Uniform, Distribution::Zipfian(0.99)] {
            let found = second_share(letter, distribution);
            assert!((found - share).abs() < 0.04, "{letter:?}: {found} instead of {share}");
        }
    }
}

#[test]
fn corrupted_data_fails_the_checks() {
    let (db, ycsb) = loaded(Letter::F, Distribution::Uniform);
    let table = db.table("ycsb").unwrap();
    let change = |at: usize| {
        block_on(db.transact(async |tx| {
            let rows = tx.scan(table, Scan::all().limit(1)).await?;
            let (key, mut value) = (rows[0].0, rows[0].1.to_vec());
            value[at] ^= 1;
            tx.put(table, key, &value)
        }))
        .unwrap();
        failed_checks(&db, &ycsb).len()
    };
    assert_eq!(change(0), 1, "another key's value");
    assert_eq!(change(0), 0);
    assert_eq!(change(8), 1, "a torn counter");
    assert_eq!(change(63 - 7), 1, "a counter that no transaction wrote");
    let removed = block_on(db.transact(async |tx| {
        let rows = tx.scan(table, Scan::all().limit(1)).await?;
        tx.delete(table, rows[0].0)
    }));
    removed.unwrap();
    assert_eq!(failed_checks(&db, &ycsb).len(), 1, "a lost row");
}

#[test]
fn a_foreign_value_ends_the_run() {
    let (db, ycsb) = loaded(Letter::C, Distribution::Uniform);
    let table = db.table("ycsb").unwrap();
    block_on(db.transact(async |tx| {
        for (key, _) in tx.scan(table, Scan::all()).await? {
            tx.put(table, key, b"foreign")?;
        }
        Ok(())
    }))
    .unwrap();
    let error = block_on(ycsb.next(&db, &mut ycsb.client(0, 1))).unwrap_err();
    assert!(error.to_string().contains("the data is corrupt"), "{error}");
}
