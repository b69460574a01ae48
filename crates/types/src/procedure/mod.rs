//! Procedures: one-shot transactions that a database knows by name.
//!
//! ```text
//!   Call { procedure, arguments } ──► Database::call ──► Procedures ──► Procedure::run
//!                                                            │                │
//!                                    an engine's transaction ┴─► ProcedureTransaction
//! ```
//! A procedure is written once and runs on the transaction of any database and any engine. What it will touch, and
//! whether it falls into independent pieces, it can say ahead, by its arguments: its [`Footprint`].
//!
//! Read in this order: `registry.rs` (what a procedure is, and how it is registered), `call.rs`, `footprint.rs`,
//! `transaction.rs` (how it runs on any transaction), `recorder.rs` (what a run has touched).

mod call;
mod footprint;
mod recorder;
mod registry;
mod transaction;

pub use call::Call;
pub use footprint::{Access, Footprint, FootprintKey, FootprintRange, Shape, successor};
pub use recorder::FootprintRecorder;
pub use registry::{DynProcedure, Procedure, ProcedureFuture, Procedures};
pub use transaction::{DynTransaction, OperationFuture, ProcedureTransaction};
