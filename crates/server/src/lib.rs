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
//! | `config.rs` | a node's configuration, and its file |
//! | `builder.rs` | a node with procedures of its user's own |
//! | `server.rs` | starting a node with any engine of the registry, and its end |
//! | `worker_host.rs`, `worker_command.rs` | a worker on its event loop; what other threads ask of it |
//! | `envelope.rs` | the frames between nodes |
//! | `manager/` | the node's part of the configuration manager, on a thread of its own |
//! | `slow.rs` | the log of slow transactions |
//! | `status.rs` | the status of a node |
//! | `http.rs`, `health.rs`, `metrics.rs` | health and metrics for operators' tools, over HTTP |
//!
//! A crate of its own below the command, so that tests of clients have clusters to talk to.
//!
//! What always holds:
//!
//! - A worker is used by one thread only, that of its event loop.
//! - A frame is decoded as a whole before anything of it is used; malformed ones are counted, and close a client.
//! - A node that has not kept its streams, by the durability of the cluster, has lost its memory, and reports so when it joins.

mod builder;
mod config;
mod connections;
mod dashboard;
mod disks;
mod end_reason;
mod envelope;
mod examine;
mod health;
mod http;
mod manager;
mod metrics;
mod planted;
mod process;
mod server;
mod slow;
mod status;
mod worker_command;
mod worker_disk;
mod worker_host;

pub use builder::ServerBuilder;
pub use config::{ConfigError, NodeConfig, ValueError};
pub use disks::{DisksError, RebootLoss};
pub use examine::{ExaminedLog, NodeExamination};
pub use manager::{FromOperator, OperatorRefusal, RecoveryStage, RememberedManagers, ToOperator};
pub use planted::ServerPlantedBugs;
pub use server::{Server, ServerEnd, ServerStartError};
pub use shoal_node::{ExaminedStream, ExaminedWorkerLog, WorkerLogError};
pub use shoal_registry::{EngineOptions, Protocol};
pub use status::{
    AddedVoterStatus, DiskStatus, FollowerStatus, HotKeyStatus, HotKeysStatus, LackingStatus,
    LatencyStatus, LossStatus, LostEndStatus, ManagerStatus, NodeColumnStatus, NodeStatus,
    PeerStatus, ShardColumnStatus, ShardStatus, StageStatus, StreamStatus, VersionsStatus,
};
pub use worker_command::{MakeTask, WorkerCommand};
