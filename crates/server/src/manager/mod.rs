//! A node's part of the configuration manager, on a thread of its own: its log writes to disk and waits for it.
//!
//! ```text
//!   worker host of the first worker ── inputs ──► manager inbox ─► manager ◄── exchange ──► raft ── asks ──► RPC
//!             ▲   ▲                          │         │                                        │
//!             │   └──── shared status: all, how ◄────┘         │                                        │
//!             └────────────── commands: done, send ◄───┴────────────────────────────────────────┘
//! ```
//! Heartbeats of nodes are left in the shared status, where the manager inbox finds them when other managers have
//! acknowledged that this one leads: so they do not wake a manager inbox. Messages between managers go over the
//! connections of the first workers. Every node has a manager inbox, so that any node can host a manager, and any node
//! that has a later list of managers sends it to others.
//!
//! The list of managers is in the managers' log, with a version. `managers` in a node's file is where to begin. A node
//! sends the version that it has with each message to managers, and receives a later list; while it has no lease, it
//! asks one more node each time, until one knows the managers. So no node has to be restarted when a manager moves, and
//! one that begins with an old file finds the managers. Nodes that have a folder keep the list in it. While more than
//! half of its lease is left, a node sends heartbeats only to the manager that has granted it.
//!
//! 1. *No member votes twice.* A member of the log is a volume, on a node. A node that lost its volume has another one,
//!    which is none of the members, and requests for the lost one are not answered (`shoal_raft::Member`).
//! 2. *A cluster is founded once.* The first of the named managers founds it when all of them report, in one round,
//!    that their volumes are new (`bootstrap.rs`). If one has a log, or any node knows managers, there is a cluster,
//!    and a node with an empty log waits to be added.
//! 3. *A cluster has an identity.* Its first manager draws it (`shoal_cluster::manager::Action::Take`). A node learns
//!    it from its managers, stores it in its folder, and from then on exchanges no messages with nodes of another
//!    cluster (`shoal_net::SharedClusterId`). So a node that was away while the cluster was founded again has no
//!    effect, and neither have its lists of managers.
//! 4. *A removed manager ends*, and its volume is set aside, when its node receives a committed list without it; but
//!    not before that list is on the node's disk, so that the node knows of a cluster for ever.
//! 5. *Managers whose loss was accepted stay lost* (`generation.rs`). The list of the next generation is later than any
//!    of theirs, and one that returns receives it from any node that it sends a message to.
//!
//! Read in this order: `input.rs`, `shared_status.rs`, `inbox.rs`, `host.rs`, `folder.rs`, `start.rs`; `bootstrap.rs`, `change.rs` with
//! `operator.rs`, `recovery.rs` with `generation.rs`; `rpc.rs`.

mod bootstrap;
mod change;
mod folder;
mod generation;
mod host;
mod inbox;
mod input;
mod operator;
mod recovery;
mod rpc;
mod shared_status;
mod start;

pub(crate) use folder::cluster_of;
pub(crate) use inbox::ManagerPlan;
pub(crate) use input::{InputSender, ManagerInput};
pub use operator::{FromOperator, OperatorRefusal, RecoveryStage, RememberedManagers, ToOperator};
pub(crate) use start::start;
