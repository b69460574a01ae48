//! Commit protocols: how a transaction that touches several shards becomes one event.
//!
//! Read in this order: `engine.rs` (what an engine is), `execution/` (how a transaction runs until it
//! asks to commit; the same for all engines), then an engine: [`mako`] certifies speculatively and
//! replicates in the background; [`two_phase_commit`] is the classic to compare with, which replicates
//! every step before the next one.
//!
//! Everything here is a state machine without I/O: time, messages and randomness come as arguments.

pub mod client;
mod dependencies;
pub mod engine;
pub mod execution;
pub mod interleave;
pub mod mako;
pub mod observation;
pub mod operation;
mod planted_bugs;
pub mod procedure;
mod replication;
pub mod slow;
mod transaction_id;
pub mod two_phase_commit;
mod watermarks;
mod wire;

pub use engine::{Engine, EngineEffect, EngineEffects, EngineEvent, WorkerPlace};
pub use execution::{CoordinatorTransaction, LocalDatabase};
pub use observation::Observation;
pub use planted_bugs::{PlantedBug, PlantedBugs};
pub use procedure::{Procedure, ProcedureTransaction, Procedures};
pub use transaction_id::TransactionId;
