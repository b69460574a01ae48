//! What all experiments have in common of how they are scaled.

use crate::local::ClusterPlan;
use shoal_bench::{BenchLoad, MicroLoad, TpccLoad};
use shoal_server::Protocol;
use shoal_workloads::report::words;
use shoal_workloads::tpcc::Scale;
use std::time::Duration;

/// Between datacenters, there and back: as in the paper.
pub const FAR: Duration = Duration::from_millis(50);

/// Voters of each shard: as in the paper, which has a learner beside them.
pub const REPLICAS: u32 = 3;

/// Keys of the micro-benchmark on each shard; a million in the paper.
pub const KEYS_OF_SHARD: u32 = 100_000;

/// Clients of the micro-benchmark on all shards together: enough to keep two cores busy over 50 ms.
pub const MICRO_CLIENTS: usize = 7_500;

/// Warehouses on all shards together: on one, two or three as many each.
pub const WAREHOUSES: u16 = 12;

/// Clients of TPC-C on all shards together, where replicas are far.
pub const ORDER_CLIENTS: usize = 768;

/// In the paper 5 % of all accesses go to another shard. Here one of the four keys does, of so many
/// transactions in a hundred.
pub const CROSS_PERCENT: u32 = 20;

/// Ours and the one to compare it with.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::Mako, Protocol::TwoPhaseCommit];

/// So many keys, instead of the paper's million, in words.
pub fn keys(keys_of_shard: u32) -> String {
    format!("{} keys a shard, instead of a million", words::count(keys_of_shard.into()))
}

/// The cores of this machine, as the subject and verb of a sentence.
pub fn own_cores() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} {}", if cores == 1 { "core runs" } else { "cores run" })
}

/// What runs everything here.
pub fn cores() -> String {
    format!(
        "{} all clients and replicas; in the paper every replica has a machine of its own with \
         32 cores, 24 of them for workers.",
        own_cores()
    )
}

/// How the share of accesses becomes one of transactions.
pub fn conversion() -> String {
    format!(
        "5 % of the key accesses are here {CROSS_PERCENT} % of the transactions with one of their four keys \
         on another shard; in the paper every access draws by itself, so that 18.5 % of the transactions \
         leave their shard."
    )
}

/// TPC-C on so many warehouses, a tenth of the usual size: loading one takes as much less.
pub fn tpcc(warehouses: u16) -> BenchLoad {
    orders(warehouses, false)
}

/// The same, but nothing than new orders.
pub fn new_orders(warehouses: u16) -> BenchLoad {
    orders(warehouses, true)
}

fn orders(warehouses: u16, new_orders_only: bool) -> BenchLoad {
    BenchLoad::TpcC(TpccLoad {
        scale: tenth(warehouses),
        new_orders_only,
        any_home: false,
        calls: false,
        interactive_multi_shot: false,
    })
}

/// So many warehouses, with a tenth of the usual items and customers.
pub fn tenth(warehouses: u16) -> Scale {
    let usual = Scale::specification(warehouses);
    let Scale { items, customers, undelivered, .. } = usual;
    let (items, customers, undelivered) = (items / 10, customers / 10, undelivered / 10);
    Scale { items, customers, undelivered, warehouses }
}

/// How small they are, in words.
pub fn small_warehouses() -> String {
    "Warehouses have a tenth of the usual items and customers.".to_owned()
}

/// The replicas, and how far they are from each other.
pub fn replicas() -> String {
    format!("Shards have {REPLICAS} replicas of one worker each, {} ms apart.", FAR.as_millis())
}

/// Replicas of so many shards, in datacenters of their own.
pub fn far_cluster(protocol: Protocol, shards: u32) -> ClusterPlan {
    ClusterPlan {
        engine: protocol.options(),
        ..ClusterPlan::new(shards, REPLICAS).with_round_trip(FAR)
    }
}

/// The micro-benchmark with so many keys on each shard, half of whose transactions only read.
pub fn micro(keys_of_shard: u32, cross_percent: u32) -> BenchLoad {
    BenchLoad::Micro(MicroLoad { keys_of_shard, cross_percent, all_write: false, calls: false })
}
