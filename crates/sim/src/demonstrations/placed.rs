//! The workloads of demonstrations, in their sizes.

use shoal_types::Database;
use shoal_workloads::placed::PlacedMicro;
use shoal_workloads::tpcc::{Scale, TpcC};

/// The micro-benchmark with `keys` keys on each of `shards` shards.
pub(super) fn micro<D: Database>(
    db: &D,
    shards: u32,
    keys_of_shard: u32,
    cross_percent: u32,
) -> shoal_types::Result<PlacedMicro> {
    PlacedMicro::new(db, shards, keys_of_shard, cross_percent)
}

/// TPC-C with this many warehouses on each shard, and this many items and customers of a district.
pub(super) fn tpcc<D: Database>(
    db: &D,
    shards: u32,
    warehouses: u16,
    items: u32,
    customers: u16,
) -> shoal_types::Result<TpcC> {
    let scale = Scale {
        items,
        customers,
        undelivered: customers / 3,
        warehouses: warehouses * shards as u16,
    };
    TpcC::new(db, scale)
}
