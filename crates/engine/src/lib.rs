//! What every engine has in common: what an engine is, and the runtime that its workers share.
//!
//! Read in this order: `engine.rs` (one worker's part of a commit protocol), `events.rs` (what happens to it, and what it
//! wants done), `execution/` (how a transaction runs until it asks to commit). The engines are crates of their own, below
//! `engines/`.
//!
//! Imports run one way: `engine.rs` uses `execution/`, which uses `events.rs`, `client.rs`,
//! `operation.rs` and the other small files beside it.
//!
//! Everything here is a state machine without I/O: time, messages and randomness come as arguments.

pub mod client;
pub mod declarations;
pub mod engine;
pub mod epoch_reports;
pub mod events;
pub mod execution;
pub mod hot_keys;
pub mod interleave;
pub mod latency;
pub mod metrics;
pub mod operation;
pub mod planted_bugs;
pub mod procedure;
pub mod request_table;
pub mod slow;
pub mod transaction_id;
pub mod wire;

pub use engine::{Engine, EngineEffect, EngineEffects, EngineEvent, WorkerPlace};
pub use execution::{CoordinatorTransaction, LocalDatabase};
pub use planted_bugs::{Plantable, PlantedBug, PlantedBugs};
pub use procedure::{Procedure, ProcedureTransaction, Procedures};
pub use transaction_id::TransactionId;
