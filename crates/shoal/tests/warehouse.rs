//! A TPC-C warehouse of the specification's size, on the embedded database: it loads in at most
//! 150 MB, and its consistency conditions hold.

use shoal::Db;
use shoal_workloads::bench::block_on;
use shoal_workloads::tpcc::{Scale, TpcC};
use shoal_workloads::workload::Workload;

const WAREHOUSE_BYTES_MAX: usize = 150_000_000;

#[test]
fn a_warehouse_loads_in_150_megabytes() {
    let db = Db::memory();
    let tpcc = TpcC::new(&db, Scale::specification(1)).expect("nine tables");
    let mut rows = 0;
    for part in 0..tpcc.load_parts() {
        block_on(tpcc.load(&db, part, 1, &mut |more| rows += more)).expect("no other client");
    }
    assert!(rows > 600_000, "{rows} rows are no warehouse");
    let bytes = db.memory_bytes().expect("it is embedded");
    assert!(bytes <= WAREHOUSE_BYTES_MAX, "{bytes} bytes for a warehouse");
    for check in block_on(tpcc.check(&db)).expect("no other client") {
        assert_eq!(check.verdict, Ok(()), "{}", check.name);
    }
}
