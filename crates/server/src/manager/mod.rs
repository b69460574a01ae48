//! A node's part of the configuration manager, on a thread of its own: its log writes to disk and waits for it.
//!
//! ```text
//!   worker host of the first worker ── inputs ──► manager inbox ─► manager ◄── exchange ──► raft ── asks ──► RPC
//!             ▲   ▲                          │         │                                        │
//!             │   └──── shared status: who, how ◄────┘         │                                        │
//!             └────────────── commands: told, send ◄───┴────────────────────────────────────────┘
//! ```
//! Heartbeats of nodes are left on the shared status, where the manager inbox finds them when other managers have acknowledged that this
//! one leads: so they wake no manager inbox.
//! Messages between managers go over the connections of the first workers. Every node has a manager inbox, so that any can
//! be told to host a manager; and so that any that knows who the managers are tells those who know less.
//!
//! Who they are stands in the managers' log, as lists with versions. `managers` in a node's file is where to begin.
//! A node sends the version it has with all that it says, and is told of a later one; while it is granted no lease,
//! it asks one more node each time, until it has found one that knows. So no node has to be restarted when a
//! manager moves, and one that begins with an old file finds its way. Nodes that have a folder keep the list in it.
//! While more than half of its lease is left, a node shows itself to the manager that has granted it, and to no other.
//!
//! 1. *No member votes twice.* A member of the log is a volume, on a node. A node that lost its volume has another one, which is
//!    none of the members, and what is asked of the lost one is not answered (`shoal_raft::Member`).
//! 2. *A cluster begins once.* The first of the named managers begins it when all of them say, one after the other,
//!    that their volumes are new (`bootstrap.rs`). When one has a log, or any node has heard of managers, there is a
//!    cluster, and who has nothing waits to be let in.
//! 3. *A cluster is itself.* Its first manager draws its identity (`shoal_cluster::manager::Action::Take`). A node learns it
//!    from its managers, keeps it in its folder, and from then on talks with no node of another (`shoal_net::Identity`). So a node
//!    that has missed that all others began anew comes to nothing, and neither do its lists of managers.
//! 4. *Who was dropped ends its manager*, and sets its volume aside, when it hears of a committed list without it; but
//!    not before that list is on its disk, so that it knows of a cluster for ever.
//! 5. *Managers whose loss was accepted stay lost* (`recovery.rs`). The list of those that follow is later than any of
//!    theirs, and one that comes back hears it from any node that it says something to.
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
