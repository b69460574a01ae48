//! The increments keep their promise, and notice when the data does not.

use futures_executor::block_on;
use shoal_types::{Database, Transaction};
use shoal_workloads::increments::Increments;
use shoal_workloads::model::Model;
use shoal_workloads::workload::Workload;
use shoal_workloads::ycsb::Distribution;

const SHARDS: u32 = 3;

/// More than one part of a load.
const KEYS_OF_SHARD: u32 = 20_000;

fn loaded(distribution: Distribution) -> (Model, Increments) {
    let db = Model::new();
    let increments = Increments::new(&db, SHARDS, KEYS_OF_SHARD, distribution).unwrap();
    let mut rows = 0;
    for part in 0..increments.load_parts() {
        block_on(increments.load(&db, part, 7, &mut |more| rows += more)).unwrap();
    }
    assert_eq!(rows, increments.rows());
    (db, increments)
}

fn failed_checks(db: &Model, increments: &Increments) -> Vec<String> {
    let checks = block_on(increments.check(db)).unwrap();
    checks.into_iter().filter(|check| check.verdict.is_err()).map(|check| check.name).collect()
}

#[test]
fn sums_agree_with_the_commits() {
    for distribution in [Distribution::Uniform, Distribution::Zipfian(0.99)] {
        let (db, increments) = loaded(distribution);
        for number in 0..4 {
            let mut client = increments.client(number, 7);
            for _ in 0..500 {
                let done = block_on(increments.next(&db, &mut client)).unwrap();
                assert_eq!((done.kind, done.retries, done.rolled_back), (0, 0, false));
            }
        }
        assert!(failed_checks(&db, &increments).is_empty(), "{distribution:?}");
    }
}

#[test]
fn corrupted_data_fails_the_checks() {
    let (db, increments) = loaded(Distribution::Uniform);
    let table = db.table("increments").unwrap();
    let write = |value: Option<&[u8]>| {
        block_on(db.transact(async |tx| match value {
            Some(value) => tx.put(table, &5u32.to_be_bytes(), value),
            None => tx.delete(table, &5u32.to_be_bytes()),
        }))
        .unwrap();
        failed_checks(&db, &increments)
    };
    assert_eq!(write(Some(&1u64.to_le_bytes())).len(), 1, "a lost or repeated increment");
    assert_eq!(write(None).len(), 1, "a lost row");
    assert!(write(Some(&0u64.to_le_bytes())).is_empty());
}
