//! A whole cluster on this machine, and the folder that describes it.
//!
//! | in the folder | is |
//! |---|---|
//! | `cluster.json` | the addresses and processes of the nodes: for other commands |
//! | `stopped.json` | the same of the cluster that ran last: where its nodes have their data on disk, the next one goes on with that |
//! | `topology.toml` | nodes, shards, tables |
//! | `secret` | what only the nodes know |
//! | `client-secret` | what clients have to know, if anything |
//! | `ca.pem`; `NODE/node.pem`, `NODE/node.key` | with TLS on: the authority, and what a node shows |
//! | `NODE/node.toml`, `NODE/node.log` | a node's configuration; what it reports of itself |

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
