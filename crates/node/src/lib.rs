//! One worker of a node: an engine and the streams it leads and follows, as one state machine; and the
//! node's view of the configuration manager.
//!
//! | file | holds |
//! |---|---|
//! | `events.rs` | what happens to a worker, and what it wants done |
//! | `worker.rs` | a worker's step: the order of events and effects; timers |
//! | `hosted_stream.rs` | a stream, and the part of it that the engine has received |
//! | `records.rs` | what streams have recorded for the log on disk, and is not durable |
//! | `streams.rs` | the streams of a worker: which node leads each, and what the engine receives of it |
//! | `membership.rs` | what the workers of a node share: the configuration, the lease |

mod events;
mod hosted_stream;
mod membership;
mod records;
mod streams;
mod tables;
#[cfg(test)]
mod tests;
mod worker;

pub use events::{WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage};
pub use membership::Membership;
pub use worker::{Worker, WorkerOrigin};
