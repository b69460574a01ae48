//! A whole cluster on this machine, and the folder that describes it.
//!
//! | in the folder | is |
//! |---|---|
//! | `cluster.json` | the addresses and processes of the nodes: for other commands |
//! | `topology.toml` | nodes, shards, tables |
//! | `secret` | what only the nodes know |
//! | `client-secret` | what clients have to know, if anything |
//! | `ca.pem`; `NODE/node.pem`, `NODE/node.key` | with TLS on: the authority, and what a node shows |
//! | `NODE/node.toml`, `NODE/log` | a node's configuration; what it has logged |

mod certificates;
mod files;
mod folder;
mod in_process;
mod interrupts;
mod namespaces;
mod plan;
mod processes;
mod ready;
mod removed_folder;
mod split;

pub use files::write_files;
pub use folder::{ClusterFolder, LocalCluster, LocalNode, Security};
pub use in_process::{InProcessCluster, start_all};
pub use interrupts::Interrupts;
pub use namespaces::{Namespaces, block, isolate, join, listens};
pub use plan::ClusterPlan;
pub use processes::{NodeProcesses, ProcessChange};
pub use ready::{wait_ready, wait_whole};
pub use split::SplitCluster;
