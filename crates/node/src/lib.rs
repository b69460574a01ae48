//! One worker of a node: an engine and the streams it leads and follows, as one state machine; and the
//! node's view of the configuration manager.
//!
//! | file | holds |
//! |---|---|
//! | `events.rs` | what happens to a worker, and what it wants done |
//! | `checkpoint.rs`, `checkpoint_state.rs` | checkpoints of a worker, for its log on disk |
//! | `worker_files.rs` | what the files of a worker's log hold |
//! | `worker_log.rs` | the log of a worker on disk, with its checkpoints |
//! | `recovery.rs` | what a worker's checkpoint and its log hold when its node begins again |
//! | `worker.rs` | a worker's step: the order of events and effects; timers |
//! | `hosted_stream.rs` | a stream, and the part of it that the engine has received |
//! | `records.rs` | what streams have recorded for the log on disk, and is not durable |
//! | `streams.rs` | the streams of a worker: which node leads each, and what the engine receives of it |
//! | `membership.rs` | what the workers of a node share: the configuration, the lease |

mod checkpoint;
mod checkpoint_state;
mod events;
mod examine;
mod hosted_stream;
mod membership;
mod records;
mod recovery;
mod streams;
mod tables;
#[cfg(test)]
mod tests;
mod worker;
mod worker_files;
mod worker_log;

pub use checkpoint_state::{CheckpointBlock, CheckpointStep};
pub use events::{WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage};
pub use examine::{ExaminedStream, ExaminedWorkerLog};
pub use membership::Membership;
pub use recovery::{RecoveredWorker, RecoveryError, WorkerRecovery};
pub use worker::{Worker, WorkerOrigin};
pub use worker_files::{CheckpointParts, WorkerLogError, named_by_all, read_parts};
pub use worker_log::{
    CheckpointEffect, CheckpointProgress, DiskEffect, DiskEvent, DiskWork, LogNews, LogRoom,
    OpenedLog, WorkerLog, WorkerLogOptions,
};
