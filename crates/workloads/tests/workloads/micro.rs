//! The micro-benchmark keeps its promise to itself, and notices when the data does not.

use futures_executor::block_on;
use shoal_types::{Database, Transaction};
use shoal_workloads::micro::Micro;
use shoal_workloads::model::Model;
use shoal_workloads::workload::Workload;

const KEYS: u32 = 40_000;

fn loaded() -> (Model, Micro) {
    let db = Model::new();
    let micro = Micro::new(&db, KEYS).unwrap();
    let mut rows = 0;
    for part in 0..micro.load_parts() {
        block_on(micro.load(&db, part, 7, &mut |more| rows += more)).unwrap();
    }
    assert_eq!(rows, micro.rows());
    (db, micro)
}

fn failed_checks(db: &Model, micro: &Micro) -> Vec<String> {
    let checks = block_on(micro.check(db)).unwrap();
    checks.into_iter().filter(|check| check.verdict.is_err()).map(|check| check.name).collect()
}

#[test]
fn sums_agree_with_the_commits() {
    let (db, micro) = loaded();
    let mut kinds = [0; 2];
    for number in 0..3 {
        let mut client = micro.client(number, number as u64);
        for _ in 0..1000 {
            let done = block_on(micro.next(&db, &mut client)).unwrap();
            assert_eq!((done.retries, done.rolled_back), (0, false));
            kinds[done.kind] += 1;
        }
    }
    assert!(kinds.iter().all(|count| (1350..1650).contains(count)), "not half of each: {kinds:?}");
    assert!(failed_checks(&db, &micro).is_empty());
}

#[test]
fn corrupted_data_fails_the_checks() {
    let (db, micro) = loaded();
    let table = db.table("micro").unwrap();
    let write = |key: u32, value: Option<&[u8]>| {
        block_on(db.transact(async |tx| match value {
            Some(value) => tx.put(table, &key.to_be_bytes(), value),
            None => tx.delete(table, &key.to_be_bytes()),
        }))
        .unwrap();
        failed_checks(&db, &micro)
    };
    assert_eq!(write(5, Some(&1u64.to_le_bytes())).len(), 1, "a lost or repeated increment");
    assert_eq!(write(5, None).len(), 1, "a lost row");
    assert_eq!(write(5, Some(b"short")).len(), 1, "a misshapen value");
    assert!(write(5, Some(&0u64.to_le_bytes())).is_empty());
}
