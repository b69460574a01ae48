//! The shape of a cluster: datacenters, nodes, shards and their replicas, tables, and the shard map
//! that assigns keys to shards.
//!
//! A [`Topology`] never changes and has been validated: its holder may rely on every name
//! and number in it. Where tables are created or dropped, a later configuration has another one. It is read from TOML:
//!
//! ```
//! # use shoal_cluster::topology::{Home, Topology};
//! # use shoal_types::ShardId;
//! let topology = Topology::parse(r#"
//!     workers = 4                       # threads of each node
//!     durability = "fsync"              # or "async", "memory"; left out: "fsync"
//!
//!     [[datacenter]]
//!     name = "oregon"
//!
//!     [[node]]
//!     name = "o1"
//!     datacenter = "oregon"
//!     address = "10.0.0.1:7000"         # may be left out
//!
//!     [[shard]]                         # the first one is shard 0
//!     leader = "o1"                     # a voter or a learner
//!     voters = ["o1"]                   # an odd number of nodes
//!     learners = []                     # may be left out
//!
//!     [[table]]
//!     name = "stock"
//!     partitioning = "hash"
//!     prefix_bytes = 2                  # 0, or left out: hash the whole key
//!
//!     [[table]]
//!     name = "user"
//!     partitioning = "range"
//!     ranges = [
//!         { shard = 0 },                # from the least key
//!         { from = "m", shard = 0 },    # from this key on, up to the next `from`
//!     ]
//!
//!     [[table]]
//!     name = "item"
//!     partitioning = "everywhere"       # each shard has a copy: small, rarely written
//! "#)?;
//! let stock = topology.table("stock").expect("written above");
//! assert_eq!(topology.home(stock, b"\x00\x07abc"), Some(Home::One(ShardId(0))));
//! # Ok::<(), shoal_cluster::topology::TopologyError>(())
//! ```
//!
//! A key is written as text, `"m"`, whose bytes it is; as bytes, `"0x00ff"`; or as a tuple of
//! integers and text, `[7, "smith"]`, encoded as [`shoal_types::tuple`] does. Text that begins with `0x`
//! has to be written as bytes.
//!
//! Read in this order: `cluster.rs` has the topology and what can be asked, `tables.rs` its tables, `partitioning.rs` the
//! shard map of one table, `granules.rs` its granules, `hash.rs` the hash, which never changes; `distances.rs` is how far datacenters are from
//! each other, `regions.rs` has well-known sets of them. `draft.rs` is what a file says,
//! `names.rs` and `validate.rs` what must hold of it, `parse.rs` makes a topology of it, `error.rs` shows how a complaint
//! finds its line; `write.rs` is the way back. `nodes.rs` adds and removes nodes. `builder.rs` makes topologies without a file, `wire.rs` turns them into bytes.

mod builder;
mod cluster;
mod distances;
mod draft;
mod error;
mod granules;
mod hash;
mod key;
mod names;
mod nodes;
mod parse;
mod partitioning;
mod regions;
mod tables;
mod validate;
mod wire;
mod write;

pub use builder::Builder;
pub use cluster::{Datacenter, Node, Role, Topology};
pub use error::TopologyError;
pub use granules::{TableDefinition, TableGranules};
pub use hash::key_hash;
pub use partitioning::{Home, Homes, Partitioning, Splits, key_head};
pub use regions::Regions;
pub use tables::{Table, TableMap, TableStanding};

/// Most datacenters of a cluster.
pub const DATACENTERS_MAX: usize = 256;

/// Most nodes of a cluster.
pub const NODES_MAX: usize = 4096;

/// Most shards of a cluster.
pub const SHARDS_MAX: usize = 4096;

/// Most voters and learners of one shard together.
pub const REPLICAS_MAX: usize = 64;

/// Most ranges of one table.
pub const RANGES_MAX: usize = 1 << 16;

/// Most workers of a node.
pub const WORKERS_MAX: u32 = 1024;

/// Longest name of a datacenter or a node, in bytes. A name has at least one byte.
pub const NAME_BYTES_MAX: usize = 128;
