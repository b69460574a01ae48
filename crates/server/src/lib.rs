//! One node of a cluster: the cores of `node` on the event loops of `net`, with clients on one side and the
//! configuration manager on the other.
//!
//! ```text
//!   clients ──► ┌──────────────────── a node ────────────────────┐
//!               │ worker host of worker 0 ◄──► manager inbox ─ manager (some nodes) ─► disk
//!   other  ◄──► │ worker host of worker 1                                │
//!   nodes       │ …                                               │
//!               └─────────────────────────────────────────────────┘
//! ```
//! | file | holds |
//! |---|---|
//! | `config.rs` | what a node is told, and the file it stands in |
//! | `builder.rs` | a node with procedures of its user's own |
//! | `server.rs`, `protocol.rs`, `engines.rs` | starting a node, and its end; the commit protocols to choose from |
//! | `worker_host.rs`, `worker_command.rs` | a worker on its event loop; what other threads ask of it |
//! | `envelope.rs` | what a frame between nodes says |
//! | `manager/` | the node's part of the configuration manager, on a thread of its own |
//! | `slow.rs` | the log of slow transactions |
//! | `status.rs` | how a node is |
//! | `http.rs`, `health.rs`, `metrics.rs` | the same for operators' tools: what is answered over HTTP |
//!
//! A crate of its own below the command, so that tests of clients have clusters to talk to.
//!
//! What always holds:
//!
//! - A worker is touched by one thread, that of its event loop.
//! - What comes from outside is decoded as a whole before anything of it is believed; what makes no sense is
//!   counted, and closes a client.
//! - What streams have stored is in memory: a node that restarts has lost it, and says so.

mod builder;
mod config;
mod engines;
mod envelope;
mod health;
mod http;
mod manager;
mod metrics;
mod protocol;
mod server;
mod slow;
mod status;
mod worker_command;
mod worker_host;

pub use builder::ServerBuilder;
pub use config::{ConfigError, NodeConfig, ValueError};
pub use manager::{FromOperator, OperatorRefusal, RecoveryStage, RememberedManagers, ToOperator};
pub use protocol::Protocol;
pub use server::{Server, ServerEnd, ServerStartError};
pub use status::{
    FollowerStatus, LackingStatus, LossStatus, LostEndStatus, ManagerStatus, NodeStatus,
    PeerStatus, ShardStatus, StreamStatus, VersionsStatus,
};
pub use worker_command::{MakeTask, WorkerCommand};
