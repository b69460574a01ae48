//! What tests of small clusters look at.

use shoal_cluster::topology::Topology;
use shoal_store::Store;
use shoal_types::Scan;
use shoal_types::wire::{Coded, decode, encode};
use std::ops::Range;
use std::sync::Arc;

/// A table by its place in a list of names, a key, and its value.
pub type Row = (usize, Vec<u8>, Vec<u8>);

/// All rows of these tables, as a node's copy of a shard has them.
pub fn rows(store: &Arc<Store>, topology: &Topology, tables: &[&str]) -> Vec<Row> {
    let mut session = store.session().expect("a session");
    let tx = session.begin();
    let mut all = Vec::new();
    for (at, name) in tables.iter().enumerate() {
        let table = topology.table(name).expect("a table");
        let rows = tx.scan(table, Scan::all()).expect("within limits");
        all.extend(rows.into_iter().map(|(key, value)| (at, key.to_vec(), value.to_vec())));
    }
    all
}

/// A message as it arrives, out of the bytes that it was sent as.
pub fn carried<T: Coded>(message: &T) -> T {
    decode(&encode(message)).expect("what was encoded")
}

/// Those of a test's seeds that are run: the first quarter, two at least, or all where `EVERY_SEED` is set (`./check long`).
pub fn seeds(all: Range<u64>) -> Range<u64> {
    let some = ((all.end - all.start) / 4).max(2);
    match std::env::var_os("EVERY_SEED") {
        Some(_) => all,
        None => all.start..(all.start + some).min(all.end),
    }
}
