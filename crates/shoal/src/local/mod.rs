//! A whole cluster on this machine, and the folder that describes it.
//!
//! | in the folder | is |
//! |---|---|
//! | `cluster.json` | the addresses and processes of the nodes: for other commands |
//! | `topology.toml` | nodes, shards, tables |
//! | `secret` | what only the nodes know |
//! | `NODE/node.toml`, `NODE/log` | a node's configuration; what it has logged |

mod folder;
mod in_process;
mod namespaces;
mod plan;
mod ready;

pub use folder::{ClusterFolder, LocalCluster, LocalNode};
pub use in_process::{InProcessCluster, start_all};
pub use namespaces::{Namespaces, block, isolate, join, listens};
pub use plan::{ClusterPlan, secret};
pub use ready::{wait_ready, wait_whole};
